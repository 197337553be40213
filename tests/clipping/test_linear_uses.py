"""What a record meets a leaf in: a matrix product, a convolution, a look-up of rows, in scans too.

``_linear_uses`` reads from such an operation what a record's gradient is made of, a^T g.
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
    LINE,
    MATERIALISED,
    OUTER,
    PLANE,
    ROWS,
    Case,
    assert_rules,
    compared,
    conv,
    in_both_widths,
    rnn,
    score,
)

SMALLEST = {
    "vector times matrix": Case(
        lambda u, x: score(x @ u["w"]),
        {"w": (6, 5)},
        (6,),
        {"w": "outer product: one place, 6 x 5"},
    ),
    "image under a kernel": conv(PLANE, (2, 2, 1, 3), (3, 3, 1), "instantiated: 9 places, 4 x 3"),
    "one row": Case(
        lambda u, token: score(u["w"][token]), {"w": (7, 3)}, (), {"w": "rows: 1 of 7 rows"}, 7
    ),
    **{
        f"rows outside the table, {mode}": Case(
            lambda u, t, mode=mode: score(jnp.take(u["w"], t - 9, 0, mode=mode, fill_value=0)),
            {"w": (5, 2)},
            (3,),
            {"w": ROWS},
            17,
        )
        for mode in ("clip", "fill", "wrap")
    },
}

# --- products -------------------------------------------------------------------------------------


def attention(u, x, heads=2):
    """Self-attention whose queries, keys and values are parts of one kernel."""
    q, k, v = jnp.split((x @ u["w"]).reshape(len(x), heads, -1), 3, axis=-1)
    weights = jax.nn.softmax(jnp.einsum("thd,shd->hts", q, k))
    return score(jnp.einsum("hts,shd->thd", weights, v).reshape(len(x), -1) @ u["v"])


def attention_by_einsum(u, x):
    """Kernels with an axis for the heads."""
    q, k, v = (jnp.einsum("tp,hpd->htd", x, u[name]) for name in "qkv")
    seen = jnp.einsum("hts,hsd->htd", jax.nn.softmax(jnp.einsum("htd,hsd->hts", q, k)), v)
    return score(jnp.einsum("htd,hdp->tp", seen, u["o"]))


PRODUCTS = {
    "matrix times vector": Case(
        lambda u, x: score(u["w"] @ x),
        {"w": (5, 6)},
        (6,),
        {"w": "outer product: one place, 6 x 5"},
    ),
    "vector times vector": Case(
        lambda u, x: score(x @ u["w"]), {"w": (6,)}, (6,), {"w": "outer product: one place, 6 x 1"}
    ),
    "a leading axis of one": Case(
        lambda u, x: score(x[None] @ u["w"]),
        {"w": (6, 5)},
        (6,),
        {"w": "outer product: one place, 6 x 5"},
    ),
    "places": Case(
        lambda u, x: score(x @ u["w"]), {"w": (6, 5)}, (2, 6), {"w": "Gram matrix: 2 places, 6 x 5"}
    ),
    "places, kernel first": Case(
        lambda u, x: score(u["w"] @ x.T),
        {"w": (5, 6)},
        (2, 6),
        {"w": "Gram matrix: 2 places, 6 x 5"},
    ),
    "several contracted axes": Case(
        lambda u, x: score(jnp.einsum("tp,ptd->d", x, u["w"])),
        {"w": (6, 2, 5)},
        (2, 6),
        {"w": "outer product: one place, 12 x 5"},
    ),
    "several output axes": Case(
        lambda u, x: score(jnp.einsum("tp,hpd->htd", x, u["w"])),
        {"w": (3, 6, 4)},
        (2, 6),
        {"w": "Gram matrix: 2 places, 6 x 12"},
    ),
    "a product for each place": Case(
        lambda u, x: score(jnp.einsum("tp,tpd->td", x, u["w"])),
        {"w": (2, 6, 5)},
        (2, 6),
        {"w": "outer product: 2 apart, one place, 6 x 5"},
    ),
    "many places": Case(
        lambda u, x: score(x.reshape(6, 2) @ u["w"]),
        {"w": (2, 5)},
        (2, 6),
        {"w": "instantiated: 6 places, 2 x 5"},
    ),
    "attention": Case(attention, {"w": (4, 12), "v": (4, 5)}, (3, 4), {"w": GRAM, "v": GRAM}),
    "attention, heads as an axis": Case(
        attention_by_einsum,
        {"q": (2, 4, 2), "k": (2, 4, 2), "v": (2, 4, 2), "o": (2, 2, 4)},
        (3, 4),
        {"q": FORMED, "k": FORMED, "v": FORMED, "o": FORMED},
    ),
}

# --- convolutions ---------------------------------------------------------------------------------

SWAPPED, SOLID = ("NCHW", "OIHW", "NCHW"), ("NDHWC", "DHWIO", "NDHWC")

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
    "kernel made of a longer one": conv(
        LINE, (24,), (5, 2), FORMED, lambda u: u["w"].reshape(3, 2, 4)[1:]
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

# --- recurrent nets -------------------------------------------------------------------------------


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


def stack_of_recurrent_nets(u, x):
    """A scan over layers with a scan over time inside: of the kernel, the one takes slices and the
    other all.
    """

    def layer(rows, kernels):
        return lax.scan(
            lambda h, row: (lambda y: (y, y))(jnp.tanh(row + h @ kernels.T)), rows[0], rows
        )[1], None

    return score(lax.scan(layer, x, u["w"])[0])


RECURRENT = {
    "RNN": Case(rnn, {"w": (2, 3), "v": (3, 3), "b": (3,)}, (5, 2), {"w": FORMED, "v": FORMED}),
    "few steps": Case(rnn, {"w": (5, 6), "v": (6, 6), "b": (6,)}, (3, 5), {"w": GRAM, "v": GRAM}),
    "LSTM": Case(lstm, {"w": (12, 2), "v": (12, 3), "b": (12,)}, (4, 2), {"w": FORMED, "v": GRAM}),
    "GRU": Case(gru, {"w": (2, 9), "v": (3, 9)}, (4, 2), {"w": FORMED, "v": FORMED}),
    "layers of recurrent nets": Case(
        stack_of_recurrent_nets, {"w": (2, 3, 3)}, (4, 3), {"w": FORMED}
    ),
}

# --- rows of tables -------------------------------------------------------------------------------

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
TABLES = {
    "one row, with an axis of one": Case(
        lambda u, t: score(u["w"][t[None]]), {"w": (7, 3)}, (), {"w": "rows: 1 of 7 rows"}, 7
    ),
    "rows": Case(
        lambda u, tokens: score(u["w"][tokens]), {"w": (7, 3)}, (2,), {"w": "rows: 2 of 7 rows"}, 7
    ),
    "rows by jnp.take": Case(
        lambda u, t: score(jnp.take(u["w"], t, axis=0)),
        {"w": (7, 3)},
        (2,),
        {"w": "rows: 2 of 7 rows"},
        7,
    ),
    "rows of a vector": Case(
        lambda u, tokens: score(u["w"][tokens]), {"w": (9,)}, (2,), {"w": "rows: 2 of 9 rows"}, 9
    ),
    "rows of a deeper table": Case(
        lambda u, t: score(u["w"][t]), {"w": (7, 3, 2)}, (2,), {"w": "rows: 2 of 7 rows"}, 7
    ),
    "columns": Case(
        lambda u, tokens: score(u["w"][:, tokens]),
        {"w": (7, 9)},
        (2,),
        {"w": "materialised: enters gather"},
        7,
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


MORE = {**PRODUCTS, **CONVOLUTIONS, **RECURRENT, **TABLES}
CASES = {**SMALLEST, **MORE}


@pytest.mark.parametrize("name", some_of(list(CASES), 3))
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(
    ("name", "width"), [*some_of(in_both_widths(SMALLEST)), *some_of(in_both_widths(MORE), 13)]
)
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


@pytest.mark.thorough
@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
@pytest.mark.parametrize("name", ["LSTM", "groups"])
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, clipping)
