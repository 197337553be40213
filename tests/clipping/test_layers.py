"""Book-keeping on every kind of layer: the rule that is found, and that it gives what vmap gives.

A case is a loss of one record, u, the record's shape and the rules expected for the leaves that are
kernels or tables. The same cases are solved in double precision, where an error in a formula cannot
hide behind rounding.
"""

import functools

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
    score,
)
from workbench._validate import ArgumentError
from workbench.clipping import clipped_sum

# --- convolutions ---------------------------------------------------------------------------------


def convolution(spec, **options):
    """A loss of one image under a kernel; ``spec`` are the layouts of image, kernel and result."""
    options = {"window_strides": (1,) * (len(spec[0]) - 2), "padding": "SAME", **options}

    def loss(u, x):
        return score(lax.conv_general_dilated(x[None], u["w"], dimension_numbers=spec, **options))

    return loss


def conv(spec, kernel, image, rule, **options):
    """A case of one convolution."""
    return Case(convolution(spec, **options), {"w": kernel}, image, {"w": rule})


PLANE, SWAPPED = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
LINE, SOLID = ("NWC", "WIO", "NWC"), ("NDHWC", "DHWIO", "NDHWC")

CONVOLUTIONS = {
    "in one dimension": conv(LINE, (3, 2, 4), (5, 2), FORMED),
    "in two": conv(PLANE, (3, 2, 2, 4), (4, 5, 2), FORMED),
    "in three": conv(SOLID, (2, 1, 2, 2, 3), (3, 2, 3, 2), FORMED),
    "channels first": conv(SWAPPED, (4, 2, 3, 2), (2, 4, 5), FORMED),
    "odd layouts": conv(("HNCW", "IOWH", "WHCN"), (2, 4, 3, 2), (4, 2, 5), FORMED),
    "strides": conv(PLANE, (3, 3, 2, 4), (7, 6, 2), FORMED, window_strides=(2, 3)),
    "no padding": conv(PLANE, (3, 3, 2, 4), (4, 5, 2), FORMED, padding="VALID"),
    "uneven padding": conv(PLANE, (3, 3, 2, 2), (4, 3, 2), FORMED, padding=((2, 0), (1, 3))),
    "cut edges": conv(PLANE, (2, 2, 2, 2), (6, 6, 2), FORMED, padding=((-1, 0), (0, -2))),
    "dilated kernel": conv(
        PLANE, (3, 2, 2, 4), (7, 5, 2), FORMED, padding="VALID", rhs_dilation=(2, 3)
    ),
    "transposed convolution": conv(
        PLANE, (3, 2, 2, 4), (3, 3, 2), FORMED, padding=((1, 2), (1, 1)), lhs_dilation=(2, 2)
    ),
    "groups": conv(PLANE, (2, 2, 2, 6), (3, 4, 6), FORMED, feature_group_count=3),
    "groups, channels first": conv(SWAPPED, (6, 2, 2, 2), (6, 3, 4), FORMED, feature_group_count=3),
    "depthwise": conv(PLANE, (3, 3, 1, 6), (4, 4, 3), FORMED, feature_group_count=3),
    "few places": conv(
        PLANE, (3, 3, 4, 8), (5, 5, 4), GRAM, padding="VALID", window_strides=(2, 2)
    ),
    "one place": conv(PLANE, (3, 3, 2, 4), (3, 3, 2), OUTER, padding="VALID"),
    "pointwise": conv(PLANE, (1, 1, 3, 4), (4, 4, 3), FORMED),
    "two convolutions with one kernel": Case(
        lambda u, x: score(
            functools.reduce(
                lambda x, _: jnp.tanh(
                    lax.conv_general_dilated(x, u["w"], (1,), "SAME", dimension_numbers=LINE)
                ),
                range(2),
                x[None],
            )
        ),
        {"w": (3, 2, 2)},
        (5, 2),
        {"w": FORMED},
    ),
    "kernel made of a longer one": Case(
        lambda u, x: score(
            lax.conv_general_dilated(
                x[None], u["w"].reshape(3, 2, 4)[1:], (1,), "SAME", dimension_numbers=LINE
            )
        ),
        {"w": (24,)},
        (5, 2),
        {"w": FORMED},
    ),
    "an image as kernel": Case(
        lambda u, x: score(
            lax.conv_general_dilated(u["w"], x[..., None], (1,), "SAME", dimension_numbers=LINE)
        ),
        {"w": (1, 6, 2)},
        (3, 2),
        {"w": MATERIALISED},
    ),
}


# --- recurrent nets and stacks of layers ----------------------------------------------------------


def rnn(u, x, **options):
    """Elman's net, with projections inside."""

    def step(h, row):
        h = jnp.tanh(row @ u["w"] + h @ u["v"] + u["b"])
        return h, h

    h, seen = lax.scan(step, jnp.zeros_like(x, shape=u["b"].shape), x, **options)
    return score(h) + score(seen)


def lstm(u, x):
    """Hochreiter and Schmidhuber's, the inputs projected outside of the scan."""

    def step(carry, row):
        h, c = carry
        i, f, o, g = jnp.split(row + h @ u["v"].T, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    start = jnp.zeros_like(x, shape=u["v"].shape[1:])
    (h, _), _ = lax.scan(step, (start, start), x @ u["w"].T + u["b"])
    return score(h)


def gru(u, x):
    """Cho's, with a product for each gate from slices of one kernel."""

    def step(h, row):
        size = h.shape[0]
        r = jax.nn.sigmoid(row @ u["w"][:, :size] + h @ u["v"][:, :size])
        z = jax.nn.sigmoid(row @ u["w"][:, size : 2 * size] + h @ u["v"][:, size : 2 * size])
        n = jnp.tanh(row @ u["w"][:, 2 * size :] + r * (h @ u["v"][:, 2 * size :]))
        return (1 - z) * n + z * h, None

    return score(lax.scan(step, jnp.zeros_like(x, shape=(u["v"].shape[0],)), x)[0])


def stack(u, x):
    """Layers whose kernels are slices of one array, by scan."""
    return score(
        lax.scan(lambda h, layer: (jnp.tanh(h @ layer[0] + layer[1]), None), x, (u["w"], u["b"]))[0]
    )


def stack_of_recurrent_nets(u, x):
    """A scan over layers with a scan over time inside: of the kernel, the one takes slices and the
    other all.
    """

    def layer(rows, kernels):
        return lax.scan(
            lambda h, row: (lambda y: (y, y))(jnp.tanh(row + h @ kernels.T)), rows[0], rows
        )[1], None

    return score(lax.scan(layer, x, u["w"])[0])


def unstacked_views(u, x):
    """A table with the layers inside, turned about outside and inside of the scan."""

    def layer(h, kernel):
        return jnp.tanh(h @ kernel.reshape(3, 3).T), None

    return score(lax.scan(layer, x, jnp.moveaxis(u["w"], 1, 0))[0])


RECURRENT = {
    "RNN": Case(rnn, {"w": (2, 3), "v": (3, 3), "b": (3,)}, (5, 2), {"w": FORMED, "v": FORMED}),
    "few steps": Case(rnn, {"w": (5, 6), "v": (6, 6), "b": (6,)}, (3, 5), {"w": GRAM, "v": GRAM}),
    "backwards": Case(
        functools.partial(rnn, reverse=True),
        {"w": (2, 3), "v": (3, 3), "b": (3,)},
        (5, 2),
        {"w": FORMED, "v": FORMED},
    ),
    "unrolled in part": Case(
        functools.partial(rnn, unroll=2),
        {"w": (2, 3), "v": (3, 3), "b": (3,)},
        (5, 2),
        {"w": FORMED, "v": FORMED},
    ),
    "LSTM": Case(lstm, {"w": (12, 2), "v": (12, 3), "b": (12,)}, (4, 2), {"w": FORMED, "v": GRAM}),
    "GRU": Case(gru, {"w": (2, 9), "v": (3, 9)}, (4, 2), {"w": FORMED, "v": FORMED}),
    "one kernel inside and outside": Case(
        lambda u, x: rnn({**u, "w": u["v"]}, x @ u["v"]),
        {"v": (3, 3), "b": (3,)},
        (4, 3),
        {"v": FORMED},
    ),
    "layers": Case(stack, {"w": (4, 3, 3), "b": (4, 3)}, (3,), {"w": OUTER}),
    "layers with places": Case(stack, {"w": (3, 4, 4), "b": (3, 4)}, (2, 4), {"w": GRAM}),
    "layers of recurrent nets": Case(
        stack_of_recurrent_nets, {"w": (2, 3, 3)}, (4, 3), {"w": FORMED}
    ),
    "layers inside a table": Case(unstacked_views, {"w": (3, 4, 3)}, (3,), {"w": OUTER}),
    "fori_loop": Case(
        lambda u, x: score(lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ u["w"]), x)),
        {"w": (4, 4)},
        (4,),
        {"w": FORMED},
    ),
    "jit inside": Case(
        lambda u, x: score(
            lax.scan(
                lambda h, _: (jax.jit(jnp.tanh)(jax.jit(jnp.matmul)(h, u["w"])), None), x, length=2
            )[0]
        ),
        {"w": (4, 4)},
        (4,),
        {"w": GRAM},
    ),
    "remat inside": Case(
        lambda u, x: score(
            lax.scan(jax.checkpoint(lambda h, _: (jnp.tanh(h @ u["w"]), None)), x, length=2)[0]
        ),
        {"w": (4, 4)},
        (4,),
        {"w": GRAM},
    ),
    "a constant and slices of one leaf": Case(
        lambda u, x: score(
            lax.scan(lambda h, row: (jnp.tanh(h @ u["w"]) @ row, None), x, u["w"][None])[0]
        ),
        {"w": (3, 3)},
        (3,),
        {"w": MATERIALISED},
    ),
}


# --- attention, embeddings and tied weights -------------------------------------------------------


def attention(u, x, heads=2):
    """Self-attention whose queries, keys and values are parts of one kernel."""
    q, k, v = jnp.split((x @ u["w"]).reshape(len(x), heads, -1), 3, axis=-1)
    weights = jax.nn.softmax(jnp.einsum("thd,shd->hts", q, k))
    return score(jnp.einsum("hts,shd->thd", weights, v).reshape(len(x), -1) @ u["v"])


def attention_of_slices(u, x):
    """The kernel cut in three before it meets the rows."""
    q, k, v = (x @ kernel for kernel in jnp.split(u["w"], 3, axis=1))
    return score(jax.nn.softmax(q @ k.T) @ v)


def attention_by_einsum(u, x):
    """Kernels with an axis for the heads."""
    q, k, v = (jnp.einsum("tp,hpd->htd", x, u[name]) for name in "qkv")
    seen = jnp.einsum("hts,hsd->htd", jax.nn.softmax(jnp.einsum("htd,hsd->hts", q, k)), v)
    return score(jnp.einsum("htd,hdp->tp", seen, u["o"]))


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


TRANSFORMER = {
    "table": (40, 4),
    "places": (3, 4),
    "q": (4, 4),
    "k": (4, 4),
    "v": (4, 4),
    "first": (4,),
    "up": (4, 8),
    "down": (8, 4),
    "second": (4,),
}

OTHERS = {
    "attention": Case(attention, {"w": (4, 12), "v": (4, 5)}, (3, 4), {"w": GRAM, "v": GRAM}),
    "attention, slices": Case(attention_of_slices, {"w": (4, 12)}, (2, 4), {"w": GRAM}),
    "attention, heads as an axis": Case(
        attention_by_einsum,
        {"q": (2, 4, 2), "k": (2, 4, 2), "v": (2, 4, 2), "o": (2, 2, 4)},
        (3, 4),
        {"q": FORMED, "k": FORMED, "v": FORMED, "o": FORMED},
    ),
    "embedding": Case(lambda u, t: score(jnp.tanh(u["w"][t])), {"w": (9, 3)}, (6,), {"w": ROWS}, 9),
    "embedding inside scan": Case(
        lambda u, t: score(
            lax.scan(lambda h, token: (jnp.tanh(h + u["w"][token]), None), u["b"], t)[0]
        ),
        {"w": (9, 3), "b": (3,)},
        (6,),
        {"w": ROWS},
        9,
    ),
    "a table for each layer": Case(
        lambda u, t: score(
            lax.scan(lambda h, layer: (jnp.tanh(h + layer[t]), None), u["b"], u["w"])[0]
        ),
        {"w": (2, 9, 3), "b": (4, 3)},
        (4,),
        {"w": ROWS},
        9,
    ),
    "two look-ups": Case(
        lambda u, t: score(u["w"][t[:2]]) + score(jnp.tanh(u["w"][t[1:]])),
        {"w": (19, 3)},
        (4,),
        {"w": GRAM},
        19,
    ),
    "tied embedding": Case(
        lambda u, t: score(jnp.tanh(u["w"][t]) @ u["w"].T), {"w": (70, 3)}, (4,), {"w": GRAM}, 70
    ),
    "tied embedding, turned": Case(
        lambda u, t: score(jnp.tanh(u["w"].T[t]) @ u["w"]), {"w": (3, 70)}, (4,), {"w": GRAM}, 70
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
    "transformer": Case(
        transformer,
        TRANSFORMER,
        (3,),
        {
            "table": GRAM,
            "q": FORMED,
            "k": FORMED,
            "v": FORMED,
            "up": GRAM,
            "down": GRAM,
            "first": MATERIALISED,
        },
        40,
    ),
}

CASES = {**CONVOLUTIONS, **RECURRENT, **OTHERS}


@pytest.mark.parametrize("name", some_of(list(CASES)))
def test_the_rule_is_found(name):
    case = CASES[name]
    rules = {row.leaf[2:-2]: row.rule for row in explained(case).rows}
    assert {leaf: rules[leaf] for leaf in case.rules} == case.rules


@pytest.mark.parametrize("name", some_of(list(CASES), 10))
def test_sums_and_norms_are_those_of_vmap_in_double_precision(name):
    compared(CASES[name], np.float64, 1e-10)


@pytest.mark.parametrize("name", some_of(list(CASES), 8, first=1))
def test_sums_and_norms_are_those_of_vmap(name):
    compared(CASES[name], np.float32, 1e-5)


# --- rules by hand --------------------------------------------------------------------------------

BY_HAND = {
    "places": Case(lambda u, x: score(x @ u["w"]), {"w": (6, 5)}, (2, 6), {"w": (GRAM, FORMED)}),
    "one place": Case(lambda u, x: score(x @ u["w"]), {"w": (6, 5)}, (6,), {"w": (OUTER, FORMED)}),
    "embedding": Case(OTHERS["embedding"].loss, {"w": (9, 3)}, (6,), {"w": (ROWS, GRAM)}, 9),
    "embedding of few rows": Case(
        OTHERS["embedding"].loss, {"w": (4, 3)}, (6,), {"w": (ROWS, GRAM)}, 4
    ),
    "convolution": CONVOLUTIONS["strides"]._replace(rules={"w": (GRAM, FORMED)}),
    "groups": CONVOLUTIONS["groups"]._replace(rules={"w": (GRAM, FORMED)}),
    "RNN": RECURRENT["RNN"]._replace(rules={"v": (GRAM, FORMED)}),
    "layers of recurrent nets": RECURRENT["layers of recurrent nets"]._replace(
        rules={"w": (GRAM, FORMED)}
    ),
    "tied layers": OTHERS["tied layers, turned"]._replace(rules={"w": (GRAM, FORMED)}),
    "tied embedding of few rows": OTHERS["tied embedding"]._replace(
        u={"w": (7, 3)}, tokens=7, rules={"w": (GRAM,)}
    ),
}


@pytest.mark.parametrize("name", some_of(list(BY_HAND), 4))
def test_a_rule_given_by_hand_is_kept_and_changes_no_result(name):
    case = BY_HAND[name]
    ((leaf, rules),) = case.rules.items()
    for rule in (*rules, MATERIALISED):
        (row,) = [
            row
            for row in explained(case, rules={f"['{leaf}']": rule}).rows
            if row.leaf == f"['{leaf}']"
        ]
        assert row.rule == rule
        compared(case, np.float64, 1e-10, rules={f"['{leaf}']": rule})


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
        explained(RECURRENT["RNN"], rules=rules)
    assert said in str(refusal.value)
    assert refusal.value.argument == "rules"


# --- the other ways of clipping -------------------------------------------------------------------


@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
@pytest.mark.parametrize("name", some_of(["LSTM", "groups", "transformer", "tied embedding"], 4))
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, 1e-10, clipping)


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", some_of([ROWS, GRAM]))
@pytest.mark.parametrize(
    "vocabulary", some_of([40, 40_000])
)  # few rows are merged by a table, many by sorting
def test_what_cancels_in_a_row_is_not_clipped_too_little(rule, vocabulary):
    """One token, many times, with gradients ten thousand times as long as their sum: the norm may
    only come out larger.
    """
    random = np.random.default_rng(0)
    terms = random.normal(size=(SIZE, 256, 3)) * 1e4
    terms[:, -1] -= terms.sum(1)  # what is left is rounding, and a little more
    terms[:, 0, 0] += 1
    terms = terms.astype(np.float32)
    exact = np.linalg.norm(terms.astype(np.float64).sum(1), axis=1)

    def loss(u, record):
        tokens, direction = record
        return jnp.vdot(u["w"][tokens], direction)

    records = (np.full((SIZE, 256), 7, np.int32), terms)
    u = {"w": jnp.zeros((vocabulary, 3))}
    _, norms = clipped_sum(
        loss, u, records, np.ones(SIZE, bool), 0.5, "bookkeeping", rules={"['w']": rule}
    )
    assert np.all(norms >= exact * (1 - 1e-6))
