"""Kernels that are products of leaves, as a layer of low rank has: ``_products`` goes back from the
gradient for the product to those for its factors.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_of
from tests.layers import (
    FORMED,
    GRAM,
    MASK,
    MATERIALISED,
    OUTER,
    PLANE,
    Case,
    assert_rules,
    compared,
    conv,
    dense,
    in_both_widths,
    rnn,
    score,
)

CASES = {
    "low rank": dense(
        lambda u: u["v"] @ u["w"],
        {
            "v": "outer product: one place, 6 x 2 after dot_general",
            "w": "outer product: one place, 2 x 5 after dot_general",
        },
        v=(6, 2),
        w=(2, 5),
    ),
    "merged LoRA": dense(
        lambda u: u["k"] + 0.5 * u["v"] @ u["w"],
        {"k": GRAM, "v": FORMED, "w": GRAM},
        4,
        k=(6, 50),
        v=(6, 2),
        w=(2, 50),
    ),
    "by einsum": dense(
        lambda u: jnp.einsum("rp,dr->pd", u["v"], u["w"]), OUTER, v=(2, 6), w=(5, 2)
    ),
    "columns of a product": dense(lambda u: (u["v"] @ u["w"])[1:, :3], OUTER, v=(7, 2), w=(2, 5)),
    "three leaves": dense(
        lambda u: u["a"] @ u["b"] @ u["c"], FORMED, 4, a=(6, 2), b=(2, 3), c=(3, 5)
    ),
    "a leaf with itself": dense(lambda u: u["w"] @ u["w"], GRAM, w=(6, 6)),
    "a leaf with its transpose": dense(lambda u: u["w"] @ u["w"].T, FORMED, 4, w=(6, 6)),
    "masked product": dense(lambda u: (u["v"] @ u["w"]) * MASK, {"v": OUTER}, v=(6, 2), w=(2, 5)),
    "products of vectors": dense(lambda u: jnp.outer(u["v"], u["w"]), OUTER, v=(6,), w=(5,)),
    "one code": dense(lambda u: (u["v"] @ u["w"]).reshape(6, 5), OUTER, v=(2,), w=(2, 30)),
    "one code, four places": dense(
        lambda u: (u["v"] @ u["w"]).reshape(6, 5), OUTER, 4, v=(2,), w=(2, 30)
    ),
    "one code, two places": dense(
        lambda u: (u["v"] @ u["w"]).reshape(6, 5), {"v": OUTER, "w": GRAM}, v=(2,), w=(2, 30)
    )._replace(record=(2, 6)),
    "matrices and a code": dense(lambda u: jnp.tanh(u["w"]) @ u["v"], OUTER, v=(2,), w=(6, 5, 2)),
    "turned columns of one code": dense(
        lambda u: jnp.tensordot(u["v"], u["w"], 1)[1:, ::2].T, OUTER, v=(3,), w=(3, 6, 12)
    ),
    "one code of grouped kernels": conv(
        PLANE,
        {"v": (3,), "w": (3, 108)},
        (3, 3, 4),
        OUTER,
        lambda u: (u["v"] @ u["w"]).reshape(3, 3, 2, 6),
        window_strides=(3, 3),
        padding="VALID",
        feature_group_count=2,
    ),
    "codes": dense(lambda u: (u["v"] @ u["w"]).reshape(6, 5), {"v": OUTER}, v=(3, 2), w=(2, 10)),
    "a hypernetwork": dense(
        lambda u: (jnp.tanh(u["z"] @ u["v"]) @ u["w"]).reshape(6, 5),
        OUTER,
        z=(2,),
        v=(2, 4),
        w=(4, 30),
    ),
    "convolution": conv(
        PLANE,
        {"v": (8, 2), "w": (2, 3)},
        (3, 4, 2),
        FORMED,
        lambda u: (u["v"] @ u["w"]).reshape(2, 2, 2, 3),
    ),
    "recurrent": Case(
        lambda u, x: rnn({**u, "v": u["l"] @ u["r"]}, x),
        {"w": (2, 3), "l": (3, 2), "r": (2, 3), "b": (3,)},
        (5, 2),
        {"w": FORMED, "l": FORMED, "r": FORMED},
    ),
    "once alone and once in a product": dense(
        lambda u: u["w"] + u["w"] @ u["w"], FORMED, 4, w=(6, 6)
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


@pytest.mark.parametrize("name", some_of(list(CASES), 3))
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(("name", "width"), some_of(in_both_widths(CASES), 11))
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


@pytest.mark.thorough
@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
@pytest.mark.parametrize("name", ["merged LoRA", "one code"])
def test_every_way_of_clipping_agrees(name, clipping):
    compared(CASES[name], np.float64, clipping)
