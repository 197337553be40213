"""Book-keeping's rules: which leaf of u is tapped, which is materialised and why, and what that
saves.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import zoo
from tests.conftest import quick_jit, some_of
from tests.layers import halved, tripled
from workbench.clipping import bookkeeping, clipped_sum

SIZE = 4
X = jax.ShapeDtypeStruct((SIZE, 6), jnp.float32)  # inputs of a record
SERIES = jax.ShapeDtypeStruct((SIZE, 2, 6), jnp.float32)  # two places of a record, inputs at each
TOKEN = jax.ShapeDtypeStruct((SIZE,), jnp.int32)
TOKENS = jax.ShapeDtypeStruct((SIZE, 2), jnp.int32)


def explanation(loss, u, records, strategy="bookkeeping"):
    return clipped_sum(loss, u, records, np.ones(SIZE, bool), 1.0, strategy, explain=True)


def score(value):
    """A scalar of ``value`` whose derivative differs at every entry."""
    return jnp.sum(
        jnp.sin(value) * (1 + jnp.arange(value.size, dtype=value.dtype)).reshape(value.shape)
    )


def scanned(kernel, x):
    return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ kernel), None), x, None, length=2)[0]


OUTER, GRAM, ROWS = "outer product", "Gram matrix", "rows"

# construct: (loss, u, records, rule and reason of the leaf "w")
TAPPED = {
    "vector times matrix": (
        lambda u, x: score(x @ u["w"]),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "matrix times vector": (
        lambda u, x: score(u["w"] @ x),
        {"w": (5, 6)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "vector times vector": (
        lambda u, x: score(x @ u["w"]),
        {"w": (6,)},
        X,
        OUTER,
        "one place, 6 x 1",
    ),
    "a leading axis of one": (
        lambda u, x: score(x[None] @ u["w"]),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "places": (lambda u, x: score(x @ u["w"]), {"w": (6, 5)}, SERIES, GRAM, "2 places, 6 x 5"),
    "places, kernel first": (
        lambda u, x: score(u["w"] @ x.T),
        {"w": (5, 6)},
        SERIES,
        GRAM,
        "2 places, 6 x 5",
    ),
    "several contracted axes": (
        lambda u, x: score(jnp.einsum("tp,ptd->d", x, u["w"])),
        {"w": (6, 2, 5)},
        SERIES,
        OUTER,
        "one place, 12 x 5",
    ),
    "several output axes": (
        lambda u, x: score(jnp.einsum("tp,hpd->htd", x, u["w"])),
        {"w": (3, 6, 4)},
        SERIES,
        GRAM,
        "2 places, 6 x 12",
    ),
    "transpose": (lambda u, x: score(x @ u["w"].T), {"w": (5, 6)}, X, OUTER, "one place, 6 x 5"),
    "reshape": (
        lambda u, x: score(x @ u["w"].reshape(6, 5)),
        {"w": (30,)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "squeeze": (
        lambda u, x: score(x @ jnp.squeeze(u["w"], 1)),
        {"w": (6, 1, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "new axis": (
        lambda u, x: score(x @ u["w"][:, None]),
        {"w": (6,)},
        X,
        OUTER,
        "one place, 6 x 1",
    ),
    "a chain of views": (
        lambda u, x: score(x @ jnp.squeeze(u["w"].T.reshape(5, 6, 1), 2).T),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "jit": (
        lambda u, x: score(jax.jit(jax.jit(jnp.matmul))(x, u["w"])),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "remat": (
        lambda u, x: score(jax.checkpoint(lambda w: jnp.tanh(x @ w))(u["w"])),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "custom_jvp on its output": (
        lambda u, x: score(halved(x @ u["w"])),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "custom_vjp on its output": (
        lambda u, x: score(tripled(x @ u["w"])),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5",
    ),
    "an entrywise function": (
        lambda u, x: score(x @ jnp.exp(u["w"])),
        {"w": (6, 5)},
        X,
        OUTER,
        "one place, 6 x 5 after exp",
    ),
    "a broadcast": (
        lambda u, x: score(x @ jnp.broadcast_to(u["w"], (6, 5))),
        {"w": (5,)},
        X,
        OUTER,
        "one place, 1 x 5 after broadcast_in_dim",
    ),
    "a product of leaves": (
        lambda u, x: score(x @ (u["w"] @ u["v"])),
        {"w": (6, 5), "v": (5, 2)},
        X,
        OUTER,
        "one place, 6 x 5 after dot_general",
    ),
    "one row": (lambda u, token: score(u["w"][token]), {"w": (7, 3)}, TOKEN, ROWS, "1 of 7 rows"),
    "one row, with an axis of one": (
        lambda u, t: score(u["w"][t[None]]),
        {"w": (7, 3)},
        TOKEN,
        ROWS,
        "1 of 7 rows",
    ),
    "rows": (lambda u, tokens: score(u["w"][tokens]), {"w": (7, 3)}, TOKENS, ROWS, "2 of 7 rows"),
    "rows by jnp.take": (
        lambda u, t: score(jnp.take(u["w"], t, axis=0)),
        {"w": (7, 3)},
        TOKENS,
        ROWS,
        "2 of 7 rows",
    ),
    "rows of a vector": (
        lambda u, tokens: score(u["w"][tokens]),
        {"w": (9,)},
        TOKENS,
        ROWS,
        "2 of 9 rows",
    ),
    "rows of a deeper table": (
        lambda u, t: score(u["w"][t]),
        {"w": (7, 3, 2)},
        TOKENS,
        ROWS,
        "2 of 7 rows",
    ),
}

# leaves that enter more than once, and places that are many
MORE = {
    "used twice": (
        lambda u, x: score(x @ u["w"]) + score(x @ u["w"].T),
        {"w": (6, 6)},
        X,
        GRAM,
        "2 uses, 2 places, 6 x 6",
    ),
    "two layers with one kernel": (
        lambda u, x: score(jnp.tanh(x @ u["w"]) @ u["w"]),
        {"w": (6, 6)},
        X,
        GRAM,
        "2 uses, 2 places, 6 x 6",
    ),
    "tied embedding": (
        lambda u, t: score(jnp.tanh(u["w"][t]) @ u["w"].T),
        {"w": (17, 3)},
        TOKENS,
        GRAM,
        "2 uses, 4 places, 17 x 3",
    ),
    "into scan": (
        lambda u, x: score(scanned(u["w"], x)),
        {"w": (6, 6)},
        X,
        GRAM,
        "2 places, 6 x 6",
    ),
    "a product for each place": (
        lambda u, x: score(jnp.einsum("tp,tpd->td", x, u["w"])),
        {"w": (2, 6, 5)},
        SERIES,
        OUTER,
        "2 apart, one place, 6 x 5",
    ),
    "many places": (
        lambda u, x: score(x.reshape(6, 2) @ u["w"]),
        {"w": (2, 5)},
        SERIES,
        "instantiated",
        "6 places, 2 x 5",
    ),
}

MATERIALISED = {
    "used twice by one product": (
        lambda u, x: score(u["w"] @ u["w"]) * x[0],
        {"w": (6, 6)},
        X,
        "used 2 times, meets itself",
    ),
    "used twice after one view": (
        lambda u, x: (lambda v: score(x @ v) + jnp.sum(v))(u["w"].T),
        {"w": (5, 6)},
        X,
        "used 2 times, enters reduce_sum",
    ),
    "a penalty besides": (
        lambda u, x: score(x @ u["w"]) + jnp.sum(u["w"] ** 2),
        {"w": (6, 5)},
        X,
        "used 2 times, enters integer_pow",
    ),
    "tied embedding of few rows": (
        lambda u, t: score(jnp.tanh(u["w"][t]) @ u["w"].T),
        {"w": (7, 3)},
        TOKENS,
        "cheaper: 2 uses, 4 places, 7 x 3",
    ),
    "into custom_vjp": (
        lambda u, x: score(x @ tripled(u["w"])),
        {"w": (6, 5)},
        X,
        "enters custom_vjp_call",
    ),
    "into custom_jvp": (
        lambda u, x: score(x @ halved(u["w"])),
        {"w": (6, 5)},
        X,
        "enters custom_jvp_call",
    ),
    "carried by scan": (
        lambda u, x: score(
            x @ jax.lax.scan(lambda w, _: (0.5 * w, None), u["w"], None, length=2)[0]
        ),
        {"w": (6, 5)},
        X,
        "is what scan carries",
    ),
    "into cond": (
        lambda u, x: score(jax.lax.cond(x[0] > 0, lambda: x @ u["w"], lambda: 2 * x @ u["w"])),
        {"w": (6, 5)},
        X,
        "enters cond",
    ),
    "two sums over the same entries": (
        lambda u, x: score(x @ u["w"]) + score(x[:5] @ u["w"][:5]),
        {"w": (6, 5)},
        X,
        "its 2 uses share some of its entries",
    ),
    "sums along an axis": (
        lambda u, x: score(x @ jnp.cumsum(u["w"], 0)),
        {"w": (6, 5)},
        X,
        "enters cumsum",
    ),
    "entries that are sorted": (
        lambda u, x: score(x @ jnp.sort(u["w"], 0)),
        {"w": (6, 5)},
        X,
        "enters sort",
    ),
    "a bias": (lambda u, x: score(x + u["w"]), {"w": (6,)}, X, "enters add"),
    "many rows": (
        lambda u, tokens: score(u["w"][tokens]),
        {"w": (2, 2)},
        TOKENS,
        "cheaper: 2 of 2 rows",
    ),
    "no places": (
        lambda u, x: score(x[:0] @ u["w"]) + score(x),
        {"w": (6, 5)},
        SERIES,
        "it meets nothing: 0 places",
    ),
    "no rows": (
        lambda u, tokens: score(u["w"][tokens[:0]]) + 1.0,
        {"w": (7, 2)},
        TOKENS,
        "the loss does not depend on it",
    ),
    "columns": (lambda u, tokens: score(u["w"][:, tokens]), {"w": (7, 9)}, TOKENS, "enters gather"),
    "the loss itself": (lambda u, x: u["w"], {"w": ()}, X, "is the loss itself"),
    "unused": (lambda u, x: score(x), {"w": (6, 5)}, X, "the loss does not depend on it"),
    "used by what the loss drops": (
        lambda u, x: (score(x), x @ u["w"])[0],
        {"w": (6, 5)},
        X,
        "the loss does not depend on it",
    ),
}


def shapes(u):
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in u.items()}


def made(u, records, seed=0):
    """Arrays of these shapes; tokens of one record may repeat."""
    random = np.random.default_rng(seed)
    values = {
        name: jnp.asarray(random.normal(size=shape), jnp.float32) for name, shape in u.items()
    }
    if records.dtype == jnp.int32:
        tokens = random.integers(0, next(iter(u.values()))[0], records.shape, np.int32)
        if records.ndim == 2:
            tokens[0] = tokens[0, 0]
        return values, tokens
    return values, random.normal(size=records.shape).astype(np.float32)


def assert_like_materialised(loss, u, records):
    """Book-keeping against gradients formed by jax.grad and clipped by hand."""
    values, arrays = made(u, records)

    @quick_jit
    def solve(values, arrays):
        gradients = jax.vmap(jax.grad(loss), (None, 0))(values, arrays)
        # a clip between the norms, so that some records are clipped
        norms = jnp.sqrt(
            sum(jnp.sum(leaf.reshape(SIZE, -1) ** 2, axis=1) for leaf in jax.tree.leaves(gradients))
        )
        clip = jnp.median(norms)
        return (
            gradients,
            norms,
            clip,
            clipped_sum(loss, values, arrays, jnp.ones(SIZE, bool), clip, "bookkeeping"),
        )

    gradients, norms, clip, (total, ours) = jax.tree.map(np.asarray, solve(values, arrays))
    np.testing.assert_allclose(ours, norms, rtol=1e-5, atol=1e-15)
    factors = np.minimum(1, clip / np.maximum(norms, 1e-30))
    for name, leaf in gradients.items():
        expected = np.tensordot(factors, leaf, 1)
        np.testing.assert_allclose(
            total[name], expected, rtol=0, atol=1e-5 * max(np.max(np.abs(expected)), 1e-30)
        )


@pytest.mark.parametrize("construct", some_of([*TAPPED, *MORE], 3))
def test_a_leaf_that_meets_matrix_products_or_look_ups_is_tapped(construct):
    loss, u, records, rule, reason = (TAPPED | MORE)[construct]
    (row,) = [row for row in explanation(loss, shapes(u), records).rows if row.leaf == "['w']"]
    assert (row.shape, row.rule, row.reason) == (u["w"], rule, reason)
    assert_like_materialised(loss, u, records)


@pytest.mark.parametrize("construct", some_of(list(MATERIALISED), 3))
def test_any_other_leaf_is_materialised_and_the_table_says_why(construct):
    loss, u, records, reason = MATERIALISED[construct]
    (row,) = explanation(loss, shapes(u), records).rows
    assert (row.leaf, row.shape, row.rule, row.reason) == ("['w']", u["w"], "materialised", reason)
    assert_like_materialised(loss, u, records)


def test_two_leaves_that_meet_each_other_are_materialised():
    """Where no rule says what the one's gradient is from that for what is made of both."""
    u = {"a": (2, 6, 5), "b": (2, 5, 2)}

    def loss(u, x):
        return score(x @ jnp.einsum("hpc,hcd->hpd", u["a"], u["b"])[0])

    assert [row.reason for row in explanation(loss, shapes(u), X).rows] == [
        "meets another leaf"
    ] * 2
    assert_like_materialised(loss, u, X)


def test_every_leaf_has_a_rule_of_its_own():
    """A look-up, two layers and their biases, one of which scales as well."""
    u = {
        "table": (9, 6),
        "first": (6, 5),
        "first_bias": (5,),
        "second": (3, 5),
        "second_bias": (3,),
    }

    def loss(u, token):
        hidden = jax.nn.relu(u["table"][token] @ u["first"] + u["first_bias"])
        return score(u["second"] @ hidden * u["second_bias"] + u["second_bias"])

    rules = {
        row.leaf[2:-2]: (row.rule, row.reason) for row in explanation(loss, shapes(u), TOKEN).rows
    }
    assert rules == {
        "table": ("rows", "1 of 9 rows"),
        "first": ("outer product", "one place, 6 x 5"),
        "first_bias": ("materialised", "enters add"),
        "second": ("outer product", "one place, 5 x 3"),
        "second_bias": ("materialised", "used 2 times, enters mul"),
    }
    assert_like_materialised(loss, u, TOKEN)


def test_the_plan_has_a_tap_for_each_tapped_leaf():
    u = {"bias": (5,), "kernel": (6, 5)}
    plan = bookkeeping.plan(
        lambda u, x: score(x @ u["kernel"] + u["bias"]),
        shapes(u),
        jax.ShapeDtypeStruct((6,), jnp.float32),
    )
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


# --- derivatives that a function brings of its own ------------------------------------------------


@pytest.mark.parametrize("strategy", ["bookkeeping", "vmap", "loop"])
@pytest.mark.parametrize(("function", "factor"), some_of([(tripled, 3.0), (halved, 0.5)]))
@pytest.mark.parametrize("inside", [False, True])
def test_a_custom_derivative_is_kept_to_the_letter(strategy, function, factor, inside):
    """Around the kernel, and around the whole product, where a tap inside would see ordinary
    differentiation.
    """
    x = jnp.arange(1.0, 7.0, dtype=jnp.float32).reshape(1, 6)

    def loss(kernel, x):
        product = function(x @ kernel) if inside else x @ function(kernel)
        return jnp.sum(product * jnp.array([1.0, -2.0]))

    total, norms = clipped_sum(loss, jnp.ones((6, 2)), x, jnp.ones(1, bool), 1e6, strategy)
    expected = factor * np.outer(x[0], [1.0, -2.0])
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(norms, [np.linalg.norm(expected)], rtol=1e-5)


def test_a_product_inside_a_custom_derivative_is_not_tapped():
    """Here kernel and record enter together, and the derivative has nothing to do with
    the product.
    """

    @jax.custom_vjp
    def product(kernel, x):
        return x @ kernel

    product.defvjp(
        lambda kernel, x: (x @ kernel, (kernel, x)),
        lambda saved, g: (7 * saved[0], jnp.zeros_like(saved[1])),
    )

    def loss(u, x):
        return jnp.sum(product(u["w"], x))

    u = {"w": jnp.arange(1.0, 13.0, dtype=jnp.float32).reshape(6, 2)}
    (row,) = explanation(loss, u, X).rows
    assert (row.rule, row.reason) == ("materialised", "enters custom_vjp_call")
    total, _ = clipped_sum(loss, u, jnp.ones((SIZE, 6)), np.ones(SIZE, bool), 1e6, "bookkeeping")
    np.testing.assert_allclose(total["w"], SIZE * 7 * u["w"], rtol=1e-5)


@pytest.mark.thorough
def test_rows_outside_the_table_are_treated_as_jax_treats_them():
    """Reading beyond the end takes the last row, or fills with NaN, and their
    derivatives differ.
    """
    table, tokens = jnp.ones((5, 2)), np.array([0, -1, 7, 4, -9], np.int32)
    for mode in ("clip", "fill", "wrap"):

        def loss(u, token, mode=mode):
            return score(jnp.nan_to_num(jnp.take(u, token, axis=0, mode=mode), nan=2.0))

        results = [
            clipped_sum(loss, table, tokens, np.ones(5, bool), 1e6, strategy)
            for strategy in ("bookkeeping", "vmap")
        ]
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, err_msg=mode)
        np.testing.assert_allclose(
            results[0][1], results[1][1], rtol=1e-5, atol=1e-15, err_msg=mode
        )
        assert (
            clipped_sum(loss, table, tokens, np.ones(5, bool), 1.0, explain=True).rows[0].rule
            == "rows"
        )


# --- the table ------------------------------------------------------------------------------------


U = {"bias": (5,), "kernel": (600, 5)}
WIDE = jax.ShapeDtypeStruct((SIZE, 600), jnp.float32)


def affine(u, x):
    return score(x @ u["kernel"] + u["bias"])


def test_bytes_are_those_of_the_minibatch():
    """A bias is held as it is, a kernel as its inputs and the gradient at its outputs; vmap holds
    both whole.
    """
    held = {row.leaf: row.bytes for row in explanation(affine, shapes(U), WIDE).rows}
    assert held == {"['bias']": SIZE * 5 * 4, "['kernel']": SIZE * (600 + 5) * 4}
    table = explanation(affine, shapes(U), WIDE, "vmap")
    assert {row.leaf: row.bytes for row in table.rows} == {
        "['bias']": SIZE * 5 * 4,
        "['kernel']": SIZE * 600 * 5 * 4,
    }
    assert table.bytes == SIZE * 605 * 5 * 4 - SIZE * 4 * 20
    assert explanation(affine, shapes(U), WIDE, "loop").bytes == table.bytes // SIZE


def test_the_printed_table_has_a_line_for_each_leaf():
    lines = str(explanation(affine, shapes(U), WIDE)).splitlines()
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

    table = explanation(loss, shapes({"router": (4, 8), "experts": (8, 600, 50)}), WIDE)
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
    u = {"kernel": (600, 50), "bias": (50,)}
    loss = lambda u, x: score(jax.nn.softplus(u["bias"][:5]) @ prepare(u, x)[:5])  # noqa: E731
    table = explanation(loss, shapes(u), WIDE)
    (line,) = [line for line in str(table).splitlines() if line.startswith("['kernel']:")]
    assert said in line
    assert all(not row.advice for row in table.rows if row.leaf == "['bias']")
    assert not any(row.advice for row in explanation(loss, shapes(u), WIDE, "vmap").rows)


def test_auto_says_which_strategy_it_takes():
    assert explanation(affine, shapes(U), WIDE, "auto").strategy == "bookkeeping"
    assert (
        explanation(lambda u, x: score(x[:5] + u["bias"]), shapes(U), WIDE, "auto").strategy
        == "vmap"
    )


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
