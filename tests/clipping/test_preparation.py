"""Kernels that are made of leaves before a record meets them: scaled, joined, summed, functions of
entries. ``_preparation`` goes back from the gradient for the kernel to that for the leaves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    MASK,
    MATERIALISED,
    OUTER,
    PLANE,
    ROWS,
    Case,
    assert_rules,
    compared,
    conv,
    dense,
    in_both_widths,
    rnn,
    score,
)


def norm(v, axis=0):
    return jnp.sqrt(jnp.sum(v * v, axis=axis, keepdims=True))


SCALED = {
    "mask": dense(lambda u: u["w"] * MASK, "outer product: one place, 6 x 5 after mul", w=(6, 5)),
    "an entrywise function": dense(
        lambda u: jnp.exp(u["w"]), "outer product: one place, 6 x 5 after exp", w=(6, 5)
    ),
    "a broadcast": dense(
        lambda u: jnp.broadcast_to(u["w"], (6, 5)),
        "outer product: one place, 1 x 5 after broadcast_in_dim",
        w=(5,),
    ),
    "mask by where": dense(lambda u: jnp.where(MASK > 0, u["w"], 0), OUTER, w=(6, 5)),
    "mask, places": dense(lambda u: u["w"] * MASK, GRAM, 4, w=(6, 5)),
    "mask of a part": dense(
        lambda u: jnp.concatenate([(u["w"] * MASK)[1:4], u["v"]], 0), OUTER, w=(6, 5), v=(3, 5)
    ),
    "mask of a turned kernel": dense(lambda u: (u["w"].T * MASK).T.T, OUTER, w=(5, 6)),
    "a scale for all": dense(lambda u: 0.3 * u["w"] / 7, GRAM, 4, w=(6, 50)),
    "a leaf as scale for all": dense(
        lambda u: u["s"] * u["w"], {"w": GRAM, "s": OUTER}, 4, w=(6, 50), s=()
    ),
    "a scale for each column": dense(
        lambda u: u["w"] * u["s"], {"w": GRAM, "s": OUTER}, 4, w=(6, 50), s=(50,)
    ),
    "a scale for each row": dense(
        lambda u: u["w"] / u["s"][:, None], {"w": GRAM, "s": OUTER}, 4, w=(6, 50), s=(6,)
    ),
    "a scale for every second": dense(
        lambda u: (u["w"].reshape(3, 2, 5) * u["s"][:, None]).reshape(6, 5),
        OUTER,
        w=(6, 5),
        s=(3, 5),
    ),
    "a square": dense(lambda u: u["w"] * u["w"], OUTER, w=(6, 5)),
    "two leaves, entry by entry": dense(lambda u: u["v"] * u["w"], OUTER, v=(6, 5), w=(6, 5)),
    "a difference": dense(lambda u: u["v"] - u["w"], GRAM, 4, v=(6, 50), w=(6, 50)),
    "twice": dense(lambda u: u["w"] + u["w"], FORMED, 4, w=(6, 5)),
    "a symmetric kernel": dense(lambda u: u["w"] + u["w"].T, FORMED, 4, w=(6, 6)),
    "a skew one, one place": dense(lambda u: u["w"] - u["w"].T, GRAM, w=(16, 16))._replace(
        record=(16,)
    ),
    "mask and without": dense(lambda u: u["w"] * MASK + u["w"], GRAM, w=(6, 5)),
    "mask and its transpose": dense(
        lambda u: u["w"] * np.arange(36.0).reshape(6, 6) + u["w"].T, GRAM, w=(6, 6)
    ),
    "weight normalisation": dense(
        lambda u: u["s"] * u["w"] / norm(u["w"]), {"w": GRAM, "s": OUTER}, w=(6, 5), s=(5,)
    ),
    "weight normalisation of rows": dense(
        lambda u: (u["s"] * (u["w"] / norm(u["w"], 1)).T).T,
        {"w": GRAM, "s": OUTER},
        w=(6, 5),
        s=(6,),
    ),
    "weight normalisation, places": dense(lambda u: u["w"] / norm(u["w"]), FORMED, 4, w=(6, 5)),
    "normalised as a whole": dense(
        lambda u: u["w"] / jnp.sqrt(jnp.sum(u["w"] ** 2)), GRAM, w=(6, 5)
    ),
    "standardised convolution": conv(
        PLANE, (2, 2, 2, 3), (3, 4, 2), FORMED, lambda u: u["w"] / norm(u["w"], (0, 1, 2))
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
    "KAN": Case(
        lambda u, x: score(
            (u["w"] * u["s"][..., None]).reshape(3, 30)
            @ jnp.exp(-((x[:, None] - np.arange(6.0)) ** 2)).reshape(30)
        ),
        {"w": (3, 5, 6), "s": (3, 5)},
        (5,),
        {"w": OUTER, "s": OUTER},
    ),
    "functions of entries": dense(
        lambda u: jnp.exp(u["w"]) - jnp.tanh(u["w"]), {"w": GRAM}, w=(6, 5)
    ),
}


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


JOINED = {
    "columns": dense(lambda u: jnp.concatenate([u["v"], u["w"]], 1), OUTER, v=(6, 2), w=(6, 3)),
    "rows": dense(
        lambda u: jnp.concatenate([u["v"], u["w"]], 0),
        {"v": FORMED, "w": GRAM},
        4,
        v=(2, 10),
        w=(4, 10),
    ),
    "turned": dense(lambda u: jnp.concatenate([u["v"], u["w"]], 0).T, OUTER, v=(2, 6), w=(3, 6)),
    "with a constant": dense(
        lambda u: jnp.concatenate([u["w"], jnp.ones((6, 2), u["w"].dtype)], 1), FORMED, 4, w=(6, 3)
    ),
    "padded": dense(lambda u: jnp.pad(u["w"], ((1, 2), (0, 1))), MATERIALISED, w=(3, 4)),
    "a leaf with itself": dense(
        lambda u: jnp.concatenate([u["w"], u["w"]], 1), FORMED, 4, w=(6, 3)
    ),
    "a leaf with its transpose": dense(
        lambda u: jnp.concatenate([u["w"], u["w"].T], 1), FORMED, 4, w=(6, 6)
    ),
    "stacked, then cut": dense(
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
    "convolution": conv(
        PLANE,
        {"v": (2, 2, 1, 4), "w": (2, 2, 2, 4)},
        (3, 4, 3),
        FORMED,
        lambda u: jnp.concatenate([u["v"], u["w"]], 2),
    ),
    "outside of scan": Case(
        lambda u, x: rnn({**u, "v": jnp.concatenate([u["v"], u["k"]], 1)}, x),
        {"w": (2, 3), "v": (3, 1), "k": (3, 2), "b": (3,)},
        (5, 2),
        {"w": FORMED, "v": FORMED, "k": FORMED},
    ),
}

CASES = {**SCALED, **JOINED}


@pytest.mark.parametrize("name", some_of(list(CASES), 5))
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(("name", "width"), some_of(in_both_widths(CASES), 13))
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width, single=2e-5)


@pytest.mark.parametrize("clipping", some_of(["automatic", "per_leaf"], 2, 1))
@pytest.mark.parametrize("name", some_of(["weight normalisation", "LSTM"], 2))
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, clipping)
