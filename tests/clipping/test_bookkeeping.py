"""A network as users write it: which leaf is tapped, which is materialised and why, also where it
is used again. ``bookkeeping`` decides it, puts the sums together, and says what that saves.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests import zoo
from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    LINE,
    MATERIALISED,
    OUTER,
    ROWS,
    SIZE,
    Case,
    assert_rules,
    compared,
    dense,
    explained,
    in_both_widths,
    rnn,
    score,
    shapes,
)
from workbench._validate import ArgumentError
from workbench.clipping import bookkeeping, clipped_sum


def transformer(u, tokens):
    """One encoder block on embedded tokens, with layer norms and the embedding as output
    layer too.
    """

    def normalised(x, scale):
        return scale * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    x = u["table"][tokens] + u["places"]
    q, k, v = (x @ u[name] for name in "qkv")
    x = normalised(x + jax.nn.softmax(q @ k.T) @ v, u["first"])
    x = normalised(x + jax.nn.gelu(x @ u["up"]) @ u["down"], u["second"])
    return score(x.mean(0) @ u["table"].T)


def look_up(u, token):
    """One of the biases scales as well."""
    hidden = jax.nn.relu(u["table"][token] @ u["first"] + u["first_bias"])
    return score(u["second"] @ hidden * u["second_bias"] + u["second_bias"])


NETWORKS = {
    "a bias and a kernel": Case(
        lambda u, x: score(x @ u["w"] + u["b"]),
        {"b": (5,), "w": (6, 5)},
        (6,),
        {"b": "materialised: enters add", "w": "outer product: one place, 6 x 5"},
    ),
    "a look-up and two layers": Case(
        look_up,
        {
            "table": (9, 6),
            "first": (6, 5),
            "first_bias": (5,),
            "second": (3, 5),
            "second_bias": (3,),
        },
        (),
        {
            "table": "rows: 1 of 9 rows",
            "first": "outer product: one place, 6 x 5",
            "first_bias": "materialised: enters add",
            "second": "outer product: one place, 5 x 3",
            "second_bias": "materialised: used 2 times, enters mul",
        },
        9,
    ),
    "transformer": Case(
        transformer,
        {
            "table": (40, 4),
            "places": (3, 4),
            **dict.fromkeys("qkv", (4, 4)),
            "first": (4,),
            "up": (4, 8),
            "down": (8, 4),
            "second": (4,),
        },
        (3,),
        {
            "table": GRAM,
            **dict.fromkeys("qkv", FORMED),
            "up": GRAM,
            "down": GRAM,
            "first": MATERIALISED,
        },
        40,
    ),
}


def convolved(u, x):
    return lax.conv_general_dilated(x[None], u["w"], (1,), "SAME", dimension_numbers=LINE)[0]


USED_AGAIN = {
    "used twice": Case(
        lambda u, x: score(x @ u["w"]) + score(x @ u["w"].T),
        {"w": (6, 6)},
        (6,),
        {"w": "Gram matrix: 2 uses, 2 places, 6 x 6"},
    ),
    "two layers with one kernel": Case(
        lambda u, x: score(jnp.tanh(x @ u["w"]) @ u["w"]),
        {"w": (6, 6)},
        (6,),
        {"w": "Gram matrix: 2 uses, 2 places, 6 x 6"},
    ),
    "tied embedding": Case(
        lambda u, t: score(jnp.tanh(u["w"][t]) @ u["w"].T),
        {"w": (17, 3)},
        (2,),
        {"w": "Gram matrix: 2 uses, 4 places, 17 x 3"},
        17,
    ),
    "tied embedding of few rows": Case(
        lambda u, t: score(jnp.tanh(u["w"][t]) @ u["w"].T),
        {"w": (7, 3)},
        (2,),
        {"w": "materialised: cheaper: 2 uses, 4 places, 7 x 3"},
        7,
    ),
    "two sums over the same entries": Case(
        lambda u, x: score(x @ u["w"]) + score(x[:5] @ u["w"][:5]),
        {"w": (6, 5)},
        (6,),
        {"w": "materialised: its 2 uses share some of its entries"},
    ),
    "many rows": Case(
        lambda u, tokens: score(u["w"][tokens]),
        {"w": (2, 2)},
        (2,),
        {"w": "materialised: cheaper: 2 of 2 rows"},
        2,
    ),
    "no places": Case(
        lambda u, x: score(x[:0] @ u["w"]) + score(x),
        {"w": (6, 5)},
        (2, 6),
        {"w": "materialised: it meets nothing: 0 places"},
    ),
    "no rows": Case(
        lambda u, tokens: score(u["w"][tokens[:0]]) + 1.0,
        {"w": (7, 2)},
        (2,),
        {"w": "materialised: the loss does not depend on it"},
        7,
    ),
    "one kernel inside and outside": Case(
        lambda u, x: rnn({**u, "w": u["v"]}, x @ u["v"]),
        {"v": (3, 3), "b": (3,)},
        (4, 3),
        {"v": FORMED},
    ),
    "two convolutions with one kernel": Case(
        lambda u, x: score(jnp.tanh(convolved(u, jnp.tanh(convolved(u, x))))),
        {"w": (3, 2, 2)},
        (5, 2),
        {"w": FORMED},
    ),
    "tied layers, turned": Case(
        lambda u, x: score(jnp.tanh(x @ u["w"]) @ u["w"].T), {"w": (4, 5)}, (2, 4), {"w": FORMED}
    ),
    "auto-encoder with tied layers": Case(
        lambda u, x: score(jnp.tanh(x @ u["w"]) @ u["w"].T), {"w": (8, 5)}, (8,), {"w": GRAM}
    ),
    "tied across scan": Case(
        lambda u, x: score(
            lax.scan(lambda h, row: (jnp.tanh(h + row @ u["w"]), None), x[0] @ u["w"], x)[0]
            @ u["w"].T
        ),
        {"w": (3, 3)},
        (4, 3),
        {"w": FORMED},
    ),
    "parts that do not meet": Case(
        lambda u, x: score(x[:2] @ u["w"][:2]) + score(x @ jnp.tanh(u["v"]) + x[2:] @ u["w"][2:]),
        {"w": (6, 5), "v": (6, 5)},
        (6,),
        {"w": OUTER, "v": OUTER},
    ),
}
CASES = {**NETWORKS, **USED_AGAIN}


@pytest.mark.parametrize("name", some_of(list(CASES), 2))
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(("name", "width"), some_of(in_both_widths(CASES), 7))
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
@pytest.mark.parametrize("name", some_of(["transformer", "tied embedding", "tied across scan"], 3))
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, clipping)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"['w']": "ghost"}, "rules='ghost': unknown name"),
        ({"['kernel']": GRAM}, "did you mean \"['w']\""),
        ({"['w']": ROWS}, "may have one of instantiated, Gram matrix"),
        ({"['b']": OUTER}, "can only be materialised: enters add"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rules, said):
    with pytest.raises(ArgumentError, match="rules") as refusal:
        explained(Case(rnn, {"w": (2, 3), "v": (3, 3), "b": (3,)}, (5, 2), {}), rules=rules)
    assert said in str(refusal.value)
    assert refusal.value.argument == "rules"


@pytest.mark.thorough
def test_leaves_that_are_one_array_are_two():
    """As jax.grad treats them, and clipped together."""
    case = dense(lambda u: u["v"] @ u["w"] + u["w"].T * 2, OUTER, v=(6, 6), w=(6, 6))
    array, x = np.random.default_rng(0).normal(size=(2, 6, 6)).astype(np.float32)
    shared = jnp.asarray(array)
    u, separate = {"v": shared, "w": shared}, {"v": shared, "w": jnp.array(array)}
    results = [
        clipped_sum(case.loss, given, x, np.ones(6, bool), 0.1, strategy)
        for given, strategy in ((u, "bookkeeping"), (separate, "bookkeeping"), (u, "vmap"))
    ]
    for total, norms in results[:2]:
        np.testing.assert_allclose(norms, results[2][1], rtol=1e-5)
        for name, leaf in total.items():
            np.testing.assert_allclose(leaf, results[2][0][name], atol=1e-6)


def test_the_plan_has_a_tap_for_each_tapped_leaf():
    case = NETWORKS["a bias and a kernel"]
    plan = bookkeeping.plan(case.loss, shapes(case), jax.ShapeDtypeStruct((6,), jnp.float32))
    assert plan.num_leaves == 2
    assert [row.rule for row in plan.rules] == ["materialised", "outer product"]
    assert list(plan.taps) == [1]
    assert [group.rule for group in plan.taps[1]] == ["outer product"]


@pytest.mark.parametrize(
    "name", some_of(["vae", "vae numpyro.module", "vae flax_module", "vae nnx_module"], 2)
)
def test_networks_of_any_library_are_tapped(name):
    """NumPyro shows the model one record with a leading axis of one, and every library keeps
    kernels in its own way.
    """
    seen, records = zoo.split_case(name), zoo.ZOO[name].records()
    u, _ = jax.eval_shape(seen.release_point, seen.initial, jax.random.key(0))
    keys = jax.random.split(jax.random.key(0), zoo.NUM_RECORDS)
    mask = np.ones(zoo.NUM_RECORDS, bool)
    rows = clipped_sum(
        lambda u, drawn: seen.record_loss(u, *drawn), u, (records, keys), mask, 1.0, explain=True
    ).rows
    assert sorted(row.shape for row in rows if row.rule == "outer product") == [
        (2, 4),
        (4, 4),
        (4, 5),
        (5, 4),
    ]
    assert all(
        row.rule == "materialised" and len(row.shape) == 1
        for row in rows
        if row.rule != "outer product"
    )


# --- the table ------------------------------------------------------------------------------------


AFFINE = Case(
    lambda u, x: score(x @ u["kernel"] + u["bias"]), {"bias": (5,), "kernel": (600, 5)}, (600,), {}
)


def test_bytes_are_those_of_the_minibatch():
    """A bias is held as it is, a kernel as its inputs and the gradient at its outputs; vmap holds
    both whole.
    """
    held = {row.leaf: row.bytes for row in explained(AFFINE).rows}
    assert held == {"['bias']": SIZE * 5 * 4, "['kernel']": SIZE * (600 + 5) * 4}
    table = explained(AFFINE, "vmap")
    assert {row.leaf: row.bytes for row in table.rows} == {
        "['bias']": SIZE * 5 * 4,
        "['kernel']": SIZE * 600 * 5 * 4,
    }
    assert table.bytes == SIZE * 605 * 5 * 4 - SIZE * 4 * 20
    assert explained(AFFINE, "loop").bytes == table.bytes // SIZE


def test_the_printed_table_has_a_line_for_each_leaf():
    lines = str(explained(AFFINE)).splitlines()
    assert lines[0] == "strategy bookkeeping, minibatch of 4, 9,760 bytes"
    cells = [re.split(r"\s{2,}", line) for line in lines[1:]]
    assert cells == [
        ["leaf", "shape", "rule", "bytes", "why"],
        ["['bias']", "(5,)", "materialised", "80", "enters add"],
        ["['kernel']", "(600, 5)", "outer product", "9,680", "one place, 600 x 5"],
    ]
    for heading, *column in zip(*cells, strict=True):  # one under the other
        place = lines[1].index(heading)
        assert all(
            line[place:].startswith(cell) for line, cell in zip(lines[2:], column, strict=True)
        )


def test_gathered_matrices_have_advice():
    def loss(u, x):
        chosen = jax.lax.top_k(x[:4] @ u["router"], 2)[1]
        return score(jnp.einsum("p,kpd->kd", x, u["experts"][chosen]))

    table = explained(Case(loss, {"router": (4, 8), "experts": (8, 600, 50)}, (600,), {}))
    assert [bool(row.advice) for row in table.rows] == [True, False]
    assert "['experts']: multiply by all matrices, then look up results" in str(table)


@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        (lambda u, x: x @ jax.nn.softplus(u["kernel"]), "own derivative"),
        (lambda u, x: x @ (u["kernel"] * x[:, None]), "(x * s) @ W"),
        (lambda u, x: jax.lax.cond(x[0] > 0, lambda: x @ u["kernel"], lambda: x[:50]), "jnp.where"),
        (lambda u, x: x @ u["kernel"] + x[:300] @ u["kernel"][:300], "do not overlap"),
    ],
)
def test_what_to_write_for_a_large_leaf_is_below_the_table(prepare, said):
    case = AFFINE._replace(
        loss=lambda u, x: score(jax.nn.softplus(u["bias"][:5]) @ prepare(u, x)[:5]),
        u={"kernel": (600, 50), "bias": (50,)},
    )
    table = explained(case)
    (line,) = [line for line in str(table).splitlines() if line.startswith("['kernel']:")]
    assert said in line
    assert all(not row.advice for row in table.rows if row.leaf == "['bias']")
    assert not any(row.advice for row in explained(case, "vmap").rows)


def test_auto_says_which_strategy_it_takes():
    assert explained(AFFINE, "auto").strategy == "bookkeeping"
    only_a_bias = AFFINE._replace(loss=lambda u, x: score(x[:5] + u["bias"]))
    assert explained(only_a_bias, "auto").strategy == "vmap"


# --- memory ---------------------------------------------------------------------------------------

ROOM = 128  # records
LARGE = {
    "outer product": (
        lambda u, x: score(jnp.tanh(x @ u)),
        (512, 256),
        jax.ShapeDtypeStruct((ROOM, 512), jnp.float32),
    ),
    "Gram matrix": (
        lambda u, x: score(jnp.tanh(x @ u)),
        (512, 256),
        jax.ShapeDtypeStruct((ROOM, 4, 512), jnp.float32),
    ),
    "rows": (
        lambda u, tokens: score(jnp.tanh(u[tokens])),
        (4096, 32),
        jax.ShapeDtypeStruct((ROOM, 8), jnp.int32),
    ),
}


def temporary_bytes(loss, u, records, strategy):
    """What the compiled clipped sum holds besides its arguments and results, on this device."""

    def total(u, records, mask):
        return clipped_sum(loss, u, records, mask, 1.0, strategy)[0]

    arguments = (jax.ShapeDtypeStruct(u, jnp.float32), records, jax.ShapeDtypeStruct((ROOM,), bool))
    return jax.jit(total).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("rule", some_of(list(LARGE), 3))
def test_tapped_leaves_take_no_room_for_each_record(rule):
    """vmap holds minibatch x parameters, which shows that the measure sees it; book-keeping not a
    tenth of that.
    """
    loss, u, records = LARGE[rule]
    every_gradient = ROOM * np.prod(u) * 4
    assert (
        clipped_sum(loss, jnp.zeros(u), records, np.ones(ROOM, bool), 1.0, explain=True)
        .rows[0]
        .rule
        == rule
    )
    assert temporary_bytes(loss, u, records, "vmap") >= every_gradient
    assert temporary_bytes(loss, u, records, "bookkeeping") < every_gradient / 10
