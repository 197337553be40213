"""Layers by scan whose kernels are masked inside, or a product that is turned: the leaf is an array
of matrices, one for each layer or transposed, and ``_frames`` keeps which entry of it is where.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.conftest import some_of
from tests.layers import (
    MASK,
    MATERIALISED,
    OUTER,
    Case,
    assert_rules,
    compared,
    dense,
    in_both_widths,
    score,
    stack,
)
from workbench.clipping._frames import Frame, all_formed, transposed
from workbench.clipping.kernel_factors import Factors

CASES = {
    "one mask for layers": Case(
        lambda u, x: score(
            lax.scan(lambda h, w: (jnp.tanh(h @ (w * MASK[:3, :3])), None), x, u["w"])[0]
        ),
        {"w": (4, 3, 3)},
        (3,),
        {"w": OUTER},
    ),
    "turned": dense(lambda u: (u["w"] @ u["v"]).T, OUTER, w=(5, 2), v=(2, 6)),
    "layers by scan": Case(
        stack(lambda u: u["w"] * jnp.sin(u["v"])),
        {"w": (4, 3, 3), "v": (4, 3, 3)},
        (3,),
        {"w": OUTER, "v": OUTER},
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
    "by scan": Case(
        stack(lambda u: jnp.concatenate([u["v"], u["w"]], 1)),
        {"v": (4, 3, 1), "w": (4, 3, 2)},
        (3,),
        {"v": OUTER, "w": OUTER},
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
    "a product for each layer": Case(
        stack(lambda u: u["k"] + u["v"] @ u["w"]),
        {"k": (4, 3, 3), "v": (4, 3, 2), "w": (4, 2, 3)},
        (3,),
        {"k": OUTER, "v": OUTER, "w": OUTER},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(("name", "width"), some_of(in_both_widths(CASES), 5))
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


def test_another_frame_of_an_array_has_the_same_gradient_for_it():
    """Transposed, or formed for each record; compared with what NumPy makes of the factors."""
    shape, random = (3, 4, 2), np.random.default_rng(0)
    a, g = (random.normal(size=(6, 2, 5, width)) for width in (3, 4))
    expected = np.einsum("mstp,mstd->mpds", a, g).reshape(6, 24)
    frame = Frame(lambda array: jnp.moveaxis(array, 2, 0), (2, 5, 3, 4))
    for changed in (frame, transposed(frame), all_formed(frame, frame.arrange, shape, 1)):
        factors = Factors(jnp.asarray(a, jnp.float32), jnp.asarray(g, jnp.float32))
        for stage in changed.stages:
            factors = stage(factors, [])
        s, _, p, d = changed.shape
        assert factors.formed().shape == (6, s, p, d)
        total = np.zeros((6, 24))
        total[:, changed.numbers(shape).ravel()] = factors.formed().reshape(6, 24)
        np.testing.assert_allclose(total, expected, atol=1e-5)
    assert all_formed(frame._replace(rows=True), frame.arrange, shape, 1) is None
