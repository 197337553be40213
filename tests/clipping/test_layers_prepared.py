"""Book-keeping on kernels that are made of leaves before a record meets them: converted, joined,
masked, products of leaves.

The cases are compared with each record's own gradient, as those of ``test_layers`` are. What could
be taken for such a kernel, and is none, has to be materialised.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    MATERIALISED,
    OUTER,
    ROWS,
    SIZE,
    Case,
    compared,
    explained,
    halved,
    made,
    score,
    tripled,
)
from workbench.clipping import clipped_sum

PLANE, LINE = ("NHWC", "HWIO", "NHWC"), ("NWC", "WIO", "NWC")
MASK = (np.arange(30).reshape(6, 5) % 3 > 0).astype(np.float32)


def of_dense(prepare):
    """A dense layer on a record of 6, whose kernel, 6 x 5, is prepared."""
    return lambda u, x: score(x @ prepare(u))


def one(prepare, rule, **shapes):
    """A case with one place; ``rule`` is that of all leaves, or of each."""
    rules = rule if isinstance(rule, dict) else dict.fromkeys(shapes, rule)
    return Case(of_dense(prepare), shapes, (6,), rules)


def places(prepare, rule, **shapes):
    """The same with four places."""
    return one(prepare, rule, **shapes)._replace(record=(4, 6))


def norm(v, axis=0):
    return jnp.sqrt(jnp.sum(v * v, axis=axis, keepdims=True))


# --- joined arrays --------------------------------------------------------------------------------


def optimised_lstm(u, x):
    """As flax has it: the kernels of the gates joined inside of the scan."""

    def step(carry, row):
        h, c = carry
        gates = row @ jnp.concatenate([u[name] for name in "abcd"], 1) + h @ jnp.concatenate(
            [u[name] for name in "efgh"], 1
        )
        i, f, o, g = jnp.split(gates, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros_like(x, shape=(3,))
    return score(lax.scan(step, (start, start), x)[0][0])


def elman(u, x):
    """A recurrent net."""
    step = lambda h, row: (jnp.tanh(row @ u["w"] + h @ u["v"] + u["b"]), None)  # noqa: E731
    return score(lax.scan(step, jnp.zeros_like(x, shape=u["b"].shape), x)[0])


def scanned_stack(prepare):
    """A stack of layers by scan whose kernels are prepared inside: ``prepare`` of the leaves'
    parts.
    """

    def loss(u, x):
        return score(lax.scan(lambda h, parts: (jnp.tanh(h @ prepare(parts)), None), x, u)[0])

    return loss


JOINED = {
    "columns": one(lambda u: jnp.concatenate([u["v"], u["w"]], 1), OUTER, v=(6, 2), w=(6, 3)),
    "rows": places(
        lambda u: jnp.concatenate([u["v"], u["w"]], 0),
        {"v": FORMED, "w": GRAM},
        v=(2, 10),
        w=(4, 10),
    ),
    "turned": one(lambda u: jnp.concatenate([u["v"], u["w"]], 0).T, OUTER, v=(2, 6), w=(3, 6)),
    "with a constant": places(
        lambda u: jnp.concatenate([u["w"], jnp.ones((6, 2), u["w"].dtype)], 1), FORMED, w=(6, 3)
    ),
    "padded": one(lambda u: jnp.pad(u["w"], ((1, 2), (0, 1))), MATERIALISED, w=(3, 4)),
    "a leaf with itself": places(lambda u: jnp.concatenate([u["w"], u["w"]], 1), FORMED, w=(6, 3)),
    "a leaf with its transpose": places(
        lambda u: jnp.concatenate([u["w"], u["w"].T], 1), FORMED, w=(6, 6)
    ),
    "stacked, then cut": one(
        lambda u: jnp.stack([u["v"], u["w"]])[1],
        {"v": MATERIALISED, "w": OUTER},
        v=(6, 5),
        w=(6, 5),
    ),
    "stacked heads": Case(
        lambda u, x: score(jnp.einsum("p,hpd->hd", x, jnp.stack([u["v"], u["w"]]))),
        {"v": (6, 5), "w": (6, 5)},
        (6,),
        {"v": OUTER, "w": OUTER},
    ),
    "tables": Case(
        lambda u, t: score(jnp.concatenate([u["v"], u["w"]], 0)[t]),
        {"v": (4, 3), "w": (9, 3)},
        (4,),
        {"v": MATERIALISED, "w": ROWS},
        13,
    ),
    "tables, columns": Case(
        lambda u, t: score(jnp.concatenate([u["v"], u["w"]], 1)[t]),
        {"v": (9, 3), "w": (9, 2)},
        (4,),
        {"v": ROWS, "w": ROWS},
        9,
    ),
    "LSTM": Case(
        optimised_lstm,
        {**{name: (2, 3) for name in "abcd"}, **{name: (3, 3) for name in "efgh"}},
        (5, 2),
        dict.fromkeys("abcdefgh", FORMED),
    ),
    "convolution": Case(
        lambda u, x: score(
            lax.conv_general_dilated(
                x[None],
                jnp.concatenate([u["v"], u["w"]], 2),
                (1, 1),
                "SAME",
                dimension_numbers=PLANE,
            )
        ),
        {"v": (2, 2, 1, 4), "w": (2, 2, 2, 4)},
        (3, 4, 3),
        {"v": FORMED, "w": FORMED},
    ),
    "by scan": Case(
        scanned_stack(lambda u: jnp.concatenate([u["v"], u["w"]], 1)),
        {"v": (4, 3, 1), "w": (4, 3, 2)},
        (3,),
        {"v": OUTER, "w": OUTER},
    ),
    "outside of scan": Case(
        lambda u, x: elman({**u, "v": jnp.concatenate([u["v"], u["k"]], 1)}, x),
        {"w": (2, 3), "v": (3, 1), "k": (3, 2), "b": (3,)},
        (5, 2),
        {"w": FORMED, "v": FORMED, "k": FORMED},
    ),
    "constants and parts": Case(  # the kernel differs from turn to turn, and w does not
        lambda u, x: score(
            lax.scan(lambda h, v: (jnp.tanh(h @ jnp.concatenate([u["w"], v], 1)), None), x, u["v"])[
                0
            ]
        ),
        {"w": (3, 1), "v": (4, 3, 2)},
        (3,),
        {"w": MATERIALISED, "v": OUTER},
    ),
}


# --- sums, products, functions of entries ---------------------------------------------------------

SCALED = {
    "mask": one(lambda u: u["w"] * MASK, OUTER, w=(6, 5)),
    "mask by where": one(lambda u: jnp.where(MASK > 0, u["w"], 0), OUTER, w=(6, 5)),
    "mask, places": places(lambda u: u["w"] * MASK, GRAM, w=(6, 5)),
    "mask of a part": one(
        lambda u: jnp.concatenate([(u["w"] * MASK)[1:4], u["v"]], 0), OUTER, w=(6, 5), v=(3, 5)
    ),
    "mask of a turned kernel": one(lambda u: (u["w"].T * MASK).T.T, OUTER, w=(5, 6)),
    "a scale for all": places(lambda u: 0.3 * u["w"] / 7, GRAM, w=(6, 50)),
    "a leaf as scale for all": places(
        lambda u: u["s"] * u["w"], {"w": GRAM, "s": OUTER}, w=(6, 50), s=()
    ),
    "a scale for each column": places(
        lambda u: u["w"] * u["s"], {"w": GRAM, "s": OUTER}, w=(6, 50), s=(50,)
    ),
    "a scale for each row": places(
        lambda u: u["w"] / u["s"][:, None], {"w": GRAM, "s": OUTER}, w=(6, 50), s=(6,)
    ),
    "a scale for every second": one(
        lambda u: (u["w"].reshape(3, 2, 5) * u["s"][:, None]).reshape(6, 5),
        OUTER,
        w=(6, 5),
        s=(3, 5),
    ),
    "an entrywise function": one(
        lambda u: jnp.exp(u["w"]) - jnp.tanh(u["w"]), {"w": GRAM}, w=(6, 5)
    ),
    "a square": one(lambda u: u["w"] * u["w"], OUTER, w=(6, 5)),
    "two leaves, entry by entry": one(lambda u: u["v"] * u["w"], OUTER, v=(6, 5), w=(6, 5)),
    "a difference": places(lambda u: u["v"] - u["w"], GRAM, v=(6, 50), w=(6, 50)),
    "twice": places(lambda u: u["w"] + u["w"], FORMED, w=(6, 5)),
    "a symmetric kernel": places(lambda u: u["w"] + u["w"].T, FORMED, w=(6, 6)),
    "a skew one, one place": one(lambda u: u["w"] - u["w"].T, GRAM, w=(16, 16))._replace(
        record=(16,)
    ),
    "mask and without": one(lambda u: u["w"] * MASK + u["w"], GRAM, w=(6, 5)),
    "mask and its transpose": one(
        lambda u: u["w"] * np.arange(36.0).reshape(6, 6) + u["w"].T, GRAM, w=(6, 6)
    ),
    "weight normalisation": one(
        lambda u: u["s"] * u["w"] / norm(u["w"]), {"w": GRAM, "s": OUTER}, w=(6, 5), s=(5,)
    ),
    "weight normalisation of rows": one(
        lambda u: (u["s"] * (u["w"] / norm(u["w"], 1)).T).T,
        {"w": GRAM, "s": OUTER},
        w=(6, 5),
        s=(6,),
    ),
    "weight normalisation, places": places(lambda u: u["w"] / norm(u["w"]), FORMED, w=(6, 5)),
    "normalised as a whole": one(lambda u: u["w"] / jnp.sqrt(jnp.sum(u["w"] ** 2)), GRAM, w=(6, 5)),
    "standardised convolution": Case(
        lambda u, x: score(
            lax.conv_general_dilated(
                x[None], u["w"] / norm(u["w"], (0, 1, 2)), (1, 1), "SAME", dimension_numbers=PLANE
            )
        ),
        {"w": (2, 2, 2, 3)},
        (3, 4, 2),
        {"w": FORMED},
    ),
    "a masked table": Case(
        lambda u, t: score((u["w"] * np.arange(27.0).reshape(9, 3))[t]),
        {"w": (9, 3)},
        (4,),
        {"w": ROWS},
        9,
    ),
    "a tied table, masked once": Case(
        lambda u, t: score(jnp.tanh(u["w"][t]) @ (u["w"] * np.arange(210.0).reshape(70, 3)).T),
        {"w": (70, 3)},
        (4,),
        {"w": MATERIALISED},
        70,
    ),
    "a tied table, scaled once": Case(
        lambda u, t: score(jnp.tanh(u["w"][t]) @ (u["w"] * 2).T),
        {"w": (70, 3)},
        (4,),
        {"w": GRAM},
        70,
    ),
    "layers by scan": Case(
        scanned_stack(lambda u: u["w"] * jnp.sin(u["v"])),
        {"w": (4, 3, 3), "v": (4, 3, 3)},
        (3,),
        {"w": OUTER, "v": OUTER},
    ),
    "one mask for layers": Case(
        lambda u, x: score(
            lax.scan(lambda h, w: (jnp.tanh(h @ (w * MASK[:3, :3])), None), x, u["w"])[0]
        ),
        {"w": (4, 3, 3)},
        (3,),
        {"w": OUTER},
    ),
    "a mask for each layer": Case(
        lambda u, x: score(
            lax.scan(
                lambda h, part: (jnp.tanh(h @ (u["w"] * part)), None),
                x,
                np.arange(27.0).reshape(3, 3, 3) / 27,
            )[0]
        ),
        {"w": (3, 3)},
        (3,),
        {"w": MATERIALISED},
    ),
    "a kernel scaled by a scan's part": Case(
        lambda u, x: score(lax.scan(lambda h, s: (jnp.tanh(h @ (u["w"] * s)), None), x, u["s"])[0]),
        {"w": (3, 3), "s": (4,)},
        (3,),
        {"w": MATERIALISED, "s": OUTER},
    ),
    "KAN": Case(
        lambda u, x: score(
            (u["w"] * u["s"][..., None]).reshape(3, 30)
            @ jnp.exp(-((x[:, None] - np.arange(6.0)) ** 2)).reshape(30)
        ),
        {"w": (3, 5, 6), "s": (3, 5)},
        (5,),
        {"w": OUTER, "s": OUTER},
    ),
}

PRODUCTS = {
    "two leaves": one(lambda u: u["v"] @ u["w"], OUTER, v=(6, 2), w=(2, 5)),
    "merged LoRA": places(
        lambda u: u["k"] + 0.5 * u["v"] @ u["w"],
        {"k": GRAM, "v": FORMED, "w": GRAM},
        k=(6, 50),
        v=(6, 2),
        w=(2, 50),
    ),
    "turned": one(lambda u: (u["w"] @ u["v"]).T, OUTER, w=(5, 2), v=(2, 6)),
    "by einsum": one(lambda u: jnp.einsum("rp,dr->pd", u["v"], u["w"]), OUTER, v=(2, 6), w=(5, 2)),
    "columns of a product": one(lambda u: (u["v"] @ u["w"])[1:, :3], OUTER, v=(7, 2), w=(2, 5)),
    "three leaves": places(
        lambda u: u["a"] @ u["b"] @ u["c"], FORMED, a=(6, 2), b=(2, 3), c=(3, 5)
    ),
    "a leaf with itself": one(lambda u: u["w"] @ u["w"], GRAM, w=(6, 6)),
    "a leaf with its transpose": places(lambda u: u["w"] @ u["w"].T, FORMED, w=(6, 6)),
    "masked product": one(lambda u: (u["v"] @ u["w"]) * MASK, {"v": OUTER}, v=(6, 2), w=(2, 5)),
    "products of vectors": one(lambda u: jnp.outer(u["v"], u["w"]), OUTER, v=(6,), w=(5,)),
    "one code": one(lambda u: (u["v"] @ u["w"]).reshape(6, 5), OUTER, v=(2,), w=(2, 30)),
    "one code, four places": places(
        lambda u: (u["v"] @ u["w"]).reshape(6, 5), OUTER, v=(2,), w=(2, 30)
    ),
    "one code, two places": one(
        lambda u: (u["v"] @ u["w"]).reshape(6, 5), {"v": OUTER, "w": GRAM}, v=(2,), w=(2, 30)
    )._replace(record=(2, 6)),
    "matrices and a code": one(lambda u: jnp.tanh(u["w"]) @ u["v"], OUTER, v=(2,), w=(6, 5, 2)),
    "turned columns of one code": one(
        lambda u: jnp.tensordot(u["v"], u["w"], 1)[1:, ::2].T, OUTER, v=(3,), w=(3, 6, 12)
    ),
    "one code of grouped kernels": Case(
        lambda u, x: score(
            lax.conv_general_dilated(
                x[None],
                (u["v"] @ u["w"]).reshape(3, 3, 2, 6),
                (3, 3),
                "VALID",
                dimension_numbers=PLANE,
                feature_group_count=2,
            )
        ),
        {"v": (3,), "w": (3, 108)},
        (3, 3, 4),
        dict.fromkeys("vw", OUTER),
    ),
    "codes": one(lambda u: (u["v"] @ u["w"]).reshape(6, 5), {"v": OUTER}, v=(3, 2), w=(2, 10)),
    "a hypernetwork": one(
        lambda u: (jnp.tanh(u["z"] @ u["v"]) @ u["w"]).reshape(6, 5),
        OUTER,
        z=(2,),
        v=(2, 4),
        w=(4, 30),
    ),
    "convolution": Case(
        lambda u, x: score(
            lax.conv_general_dilated(
                x[None],
                (u["v"] @ u["w"]).reshape(2, 2, 2, 3),
                (1, 1),
                "SAME",
                dimension_numbers=PLANE,
            )
        ),
        {"v": (8, 2), "w": (2, 3)},
        (3, 4, 2),
        {"v": FORMED, "w": FORMED},
    ),
    "by scan": Case(
        scanned_stack(lambda u: u["k"] + u["v"] @ u["w"]),
        {"k": (4, 3, 3), "v": (4, 3, 2), "w": (4, 2, 3)},
        (3,),
        {"k": OUTER, "v": OUTER, "w": OUTER},
    ),
    "recurrent": Case(
        lambda u, x: elman({**u, "v": u["l"] @ u["r"]}, x),
        {"w": (2, 3), "l": (3, 2), "r": (2, 3), "b": (3,)},
        (5, 2),
        {"w": FORMED, "l": FORMED, "r": FORMED},
    ),
    "once alone and once in a product": places(
        lambda u: u["w"] + u["w"] @ u["w"], FORMED, w=(6, 6)
    ),
    "used outside as well": Case(
        lambda u, x: score(jnp.tanh(x @ (u["w"] + u["v"])) @ u["w"].T),
        {"w": (6, 5), "v": (6, 5)},
        (2, 6),
        {"w": FORMED, "v": GRAM},
    ),
    "a part outside": Case(
        lambda u, x: score(x @ (u["w"] * MASK)) + score(x[:2] @ u["w"][:2]),
        {"w": (6, 5)},
        (6,),
        {"w": MATERIALISED},
    ),
}

embedding = eqx.nn.Embedding(9, 3, key=jax.random.key(0))


def vmapped(u, tokens):
    return score(
        jnp.tanh(jax.vmap(eqx.tree_at(lambda module: module.weight, embedding, u["w"]))(tokens))
    )


def looked_up(dimensions, sizes, mode, indices):
    """Rows by lax.gather; ``indices`` are made of the record's tokens."""

    def loss(u, tokens):
        numbers = lax.GatherDimensionNumbers(**dimensions)
        return score(
            jnp.nan_to_num(lax.gather(u["w"], indices(tokens), numbers, sizes, mode=mode), nan=2.0)
        )

    return loss


MODES = (lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP)
GATHERS = {
    "equinox, vmapped": Case(vmapped, {"w": (9, 3)}, (6,), {"w": ROWS}, 9),
    "vmapped twice": Case(
        lambda u, t: score(jax.vmap(jax.vmap(lambda token: u["w"][token]))(t.reshape(2, 3))),
        {"w": (9, 3)},
        (6,),
        {"w": ROWS},
        9,
    ),
    "vmapped, results last": Case(
        lambda u, t: score(jax.vmap(lambda token: u["w"][token], out_axes=-1)(t)),
        {"w": (9, 3, 2)},
        (6,),
        {"w": ROWS},
        9,
    ),
    **{
        f"places last, {mode.name}": Case(
            looked_up(
                {"offset_dims": (0,), "collapsed_slice_dims": (0,), "start_index_map": (0,)},
                (1, 3),
                mode,
                lambda t: t[:, None] - 2,
            ),
            {"w": (9, 3)},
            (6,),
            {"w": ROWS},
            13,
        )
        for mode in MODES
    },
    # the second index reaches beyond the end of a row now and then: then the row is another, or
    # none
    **{
        f"two indices, {mode.name}": Case(
            looked_up(
                {"offset_dims": (1, 2), "collapsed_slice_dims": (), "start_index_map": (1, 0)},
                (1, 3),
                mode,
                lambda t: jnp.stack([t % 3 - 1, t - 1], 1).at[0].set(jnp.array([0, 4], t.dtype)),
            ),
            {"w": (9, 3)},
            (6,),
            {"w": ROWS},
            11,
        )
        for mode in MODES
    },
    "parts of rows": Case(
        looked_up(
            {"offset_dims": (1, 2), "collapsed_slice_dims": (), "start_index_map": (0, 1)},
            (1, 2),
            MODES[0],
            lambda t: jnp.stack([t, t % 2], 1),
        ),
        {"w": (9, 3)},
        (6,),
        {"w": MATERIALISED},
        9,
    ),
}

CASES = {
    f"{kind}: {name}": case
    for kind, cases in (
        ("joined", JOINED),
        ("scaled", SCALED),
        ("product", PRODUCTS),
        ("gather", GATHERS),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("name", some_of(list(CASES), 5))
def test_the_rule_is_found(name):
    case = CASES[name]
    rules = {row.leaf[2:-2]: row.rule for row in explained(case).rows}
    assert {leaf: rules[leaf] for leaf in case.rules} == case.rules


@pytest.mark.parametrize("name", some_of(list(CASES), 8))
def test_sums_and_norms_are_those_of_vmap_in_double_precision(name):
    compared(CASES[name], np.float64, 1e-10)


@pytest.mark.parametrize("name", some_of(list(CASES), 16))
def test_sums_and_norms_are_those_of_vmap(name):
    compared(CASES[name], np.float32, 2e-5)


@pytest.mark.parametrize("clipping", some_of(["automatic", "per_leaf"], 2, 1))
@pytest.mark.parametrize(
    "name", some_of(["scaled: weight normalisation", "product: merged LoRA", "joined: LSTM"], 2)
)
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, 1e-10, clipping)


# --- what is no such kernel -----------------------------------------------------------------------


def reused(u, x):
    """A kernel prepared outside of a scan that carries it and changes it."""
    kernel = u["w"] * MASK[:3, :3]
    step = lambda carry, _: ((jnp.tanh(carry[0] @ carry[1]), 0.5 * carry[1]), None)  # noqa: E731
    return score(lax.scan(step, (x, kernel), None, length=2)[0][0])


def half_known(u, x):
    """One use of a leaf is linear in what is made of it, the other is not."""
    return score(x @ (u["w"] * MASK[:3, :3])) + jnp.sum((u["w"] * MASK[:3, :3]) ** 2) * x[0]


def powers(u, x):
    """More ways from a leaf to a kernel than are followed."""
    w = u["w"]
    for _ in range(4):
        w = w @ w / 3
    return score(x @ w)


NOT_PREPARED = {
    "a mask that depends on the record": (
        lambda u, x: score(x @ (u["w"] * ((x[:, None] > 0) + 0.5))),
        "enters mul",
    ),
    "a scale that depends on the record": (
        lambda u, x: score(x @ (u["w"] / (1 + x[:, None] ** 2))),
        "enters div",
    ),
    "an addition from the record": (
        lambda u, x: score(jnp.tanh(x @ (u["w"] + x[:, None]))),
        "enters add",
    ),
    "joined with the record": (
        lambda u, x: score(x @ jnp.concatenate([u["w"], x[:, None]], 1)),
        "enters concatenate",
    ),
    "a product with the record": (
        lambda u, x: score(x @ (jnp.outer(x, x) @ jnp.tanh(u["w"]).T)),
        "",
    ),
    "rounded": (
        lambda u, x: score(x @ (jnp.round(u["w"]) * 2 + u["w"])),
        "used 2 times, enters round",
    ),
    "converted to integers": (
        lambda u, x: score(x @ (u["w"] * u["w"].astype(int))),
        "used 2 times, enters",
    ),
    "complex": (lambda u, x: score(jnp.abs(x @ (u["w"] * MASK[:3, :3] * 1j))), "enters"),
    "stopped": (
        lambda u, x: score(x @ (u["w"] * lax.stop_gradient(u["w"]))),
        "used 2 times, enters stop_gradient",
    ),
    "a custom derivative between": (
        lambda u, x: score(x @ (tripled(u["w"] * 2) + u["w"])),
        "used 2 times, enters",
    ),
    "another custom derivative": (
        lambda u, x: score(x @ (halved(u["w"] * 2) + u["w"])),
        "used 2 times, enters",
    ),
    "carried by scan": (reused, "enters mul"),
    "the other use not linear": (half_known, "used 2 times, enters mul"),
    "too many ways": (powers, "meets itself"),
    "a penalty": (
        lambda u, x: score(x @ (u["w"] * 2)) + jnp.sum(jnp.exp(u["w"])),
        "used 2 times, enters exp",
    ),
    "chosen by the record": (
        lambda u, x: score(lax.cond(x[0] > 0, lambda w: x @ w, lambda w: 2 * (x @ w), u["w"] * 2)),
        "enters mul",
    ),
}


@pytest.mark.parametrize("name", some_of(list(NOT_PREPARED)))
def test_what_could_be_mistaken_for_a_prepared_kernel_is_materialised(name):
    loss, reason = NOT_PREPARED[name]
    case = Case(loss, {"w": (3, 3)}, (3,), {})
    (row,) = explained(case, strategy="bookkeeping").rows
    if reason:
        assert row.rule == MATERIALISED
        assert reason in row.reason
    if name not in (
        "complex",
        "converted to integers",
    ):  # whose derivatives jax.grad takes, and 64 bits change the type
        compared(case, np.float64, 1e-10)
    else:
        compared(case, np.float32, 1e-5)


@pytest.mark.thorough
def test_leaves_that_are_one_array_are_two():
    """As jax.grad treats them, and clipped together."""
    case = Case(
        of_dense(lambda u: u["v"] @ u["w"] + u["w"].T * 2), {"v": (6, 6), "w": (6, 6)}, (6,), {}
    )
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


# --- half precision -------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("half", some_of([jnp.bfloat16, jnp.float16]))
@pytest.mark.parametrize("rule", some_of([OUTER, GRAM, FORMED], 3, 1))
def test_a_kernel_converted_to_half_precision_has_the_gradient_of_its_factors(half, rule):
    """JAX rounds each record's gradient to half precision; here it is left as it is, longer or
    shorter by that rounding.
    """
    random = np.random.default_rng(0)
    places_ = {OUTER: 1, GRAM: 2, FORMED: 2}[rule]
    a = random.normal(size=(SIZE, places_, 8)).astype(np.float32)
    g = random.normal(size=(SIZE, places_, 5)).astype(np.float32)
    # halves, so that nothing is rounded on the way to the factors
    a, g = (np.asarray(jnp.asarray(array, half), np.float32) for array in (a, g))
    u = {"w": jnp.zeros((8, 5), jnp.float32), "b": jnp.zeros(5, jnp.float32)}

    def loss(u, record):
        a, g = (array.astype(half) for array in record)
        return jnp.sum(((a @ u["w"].astype(half) + u["b"].astype(half)) * g).astype(jnp.float32))

    total, norms = clipped_sum(
        loss, u, (a, g), np.ones(SIZE, bool), 1.0, "bookkeeping", rules={"['w']": rule}
    )
    double = a.astype(np.float64), g.astype(np.float64)
    kernels = np.einsum("mtp,mtd->mpd", *double)
    lengths = np.sqrt(np.sum(kernels**2, axis=(1, 2)) + np.sum(double[1].sum(1) ** 2, axis=1))
    # the bias is summed in half precision
    np.testing.assert_allclose(norms, lengths, rtol=2**-8 if places_ > 1 else 1e-6)
    assert total["w"].dtype == jnp.float32
    expected = np.tensordot(np.minimum(1, 1 / np.asarray(norms, np.float64)), kernels, 1)
    np.testing.assert_allclose(total["w"], expected, atol=5e-6 * np.max(np.abs(expected)))


@pytest.mark.thorough  # compiles for 10 s
def test_half_precision_networks_are_tapped():
    """A look-up, a dense layer and a convolution with float32 parameters, as flax computes with
    dtype=bfloat16.
    """

    def loss(u, tokens):
        x = u["table"].astype(jnp.bfloat16)[tokens]
        x = lax.conv_general_dilated(
            x[None], u["kernel"].astype(jnp.bfloat16), (1,), "SAME", dimension_numbers=LINE
        )[0]
        return score(jnp.tanh(x.reshape(-1) @ u["w"].astype(jnp.bfloat16))).astype(jnp.float32)

    case = Case(loss, {"table": (20, 3), "kernel": (3, 3, 8), "w": (32, 5)}, (4,), {}, 20)
    rules = {row.leaf[2:-2]: row.rule for row in explained(case).rows}
    assert rules == {"table": ROWS, "kernel": GRAM, "w": OUTER}
    u, tokens = made(case, np.float32)
    u = {name: 0.2 * leaf for name, leaf in u.items()}  # far from where tanh is flat
    norms = [
        clipped_sum(loss, u, tokens, np.ones(SIZE, bool), 1.0, strategy)[1]
        for strategy in ("bookkeeping", "vmap")
    ]
    np.testing.assert_allclose(norms[0], norms[1], rtol=2**-7)


def test_a_scale_that_is_not_finite_leaves_zeros():
    """As gradients that are not finite do; half precision overflows to it."""

    def loss(u, x):
        return score(jnp.tanh(x @ (u["w"] * jnp.sqrt(u["v"]))))

    # the derivative of the root is infinite at zero
    u = {"w": jnp.ones((6, 5)), "v": jnp.zeros((6, 5)).at[0].set(1)}
    x = np.random.default_rng(0).normal(size=(SIZE, 6)).astype(np.float32)
    for strategy in ("bookkeeping", "vmap"):
        total, norms = clipped_sum(loss, u, x, np.ones(SIZE, bool), 1.0, strategy)
        assert not np.isfinite(norms).any()
        assert all(not np.any(leaf) for leaf in jax.tree.leaves(total))
