"""A loss with jit, remat, scan or unused results inside: ``jaxprs`` opens calls, drops what nothing
needs, evaluates scans again, and leaves functions with their own derivative closed.
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
    SIZE,
    Case,
    assert_rules,
    compared,
    halved,
    in_both_widths,
    rnn,
    score,
    tripled,
)
from workbench.clipping import clipped_sum
from workbench.clipping.jaxprs import constants

ONE_PLACE = "outer product: one place, 6 x 5"


def layer(loss, rule):
    return Case(loss, {"w": (6, 5)}, (6,), {"w": rule})


CASES = {
    "jit": layer(lambda u, x: score(jax.jit(jax.jit(jnp.matmul))(x, u["w"])), ONE_PLACE),
    "remat": layer(
        lambda u, x: score(jax.checkpoint(lambda w: jnp.tanh(x @ w))(u["w"])), ONE_PLACE
    ),
    "used by what the loss drops": layer(
        lambda u, x: (score(x), x @ u["w"])[0], "materialised: the loss does not depend on it"
    ),
    "unused": layer(lambda u, x: score(x), "materialised: the loss does not depend on it"),
    "custom_jvp on its output": layer(lambda u, x: score(halved(x @ u["w"])), ONE_PLACE),
    "custom_vjp on its output": layer(lambda u, x: score(tripled(x @ u["w"])), ONE_PLACE),
    "into custom_vjp": layer(
        lambda u, x: score(x @ tripled(u["w"])), "materialised: enters custom_vjp_call"
    ),
    "into custom_jvp": layer(
        lambda u, x: score(x @ halved(u["w"])), "materialised: enters custom_jvp_call"
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
}


@pytest.mark.parametrize("name", CASES)
def test_the_rule_is_found(name):
    assert_rules(CASES[name])


@pytest.mark.parametrize(("name", "width"), some_of(in_both_widths(CASES), 5))
def test_sums_and_norms_are_those_of_gradients_clipped_by_hand(name, width):
    compared(CASES[name], width)


def test_constants_are_those_that_the_results_depend_on():
    """In calls, scans and branches too, and none that only an unused result has."""
    first, second, third, fourth, unused = (jnp.full(3, value) for value in range(5))

    def loss(x):
        _ = jnp.sum(x * unused)
        x = jax.jit(lambda x: 2.5 * (x + first))(x)
        x, _ = lax.scan(lambda x, _: (x * second, None), x, length=2)
        return jnp.sum(lax.cond(x[0] > 0, lambda x: x - third, lambda x: x / fourth, x))

    values = constants(jax.make_jaxpr(loss)(jnp.ones(3)))
    assert sorted(float(value[0]) for value in values if np.ndim(value)) == [0, 1, 2, 3]
    assert 2.5 in [float(value) for value in values if not np.ndim(value)]


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
    assert_rules(Case(loss, {"w": (6, 2)}, (6,), {"w": "materialised: enters custom_vjp_call"}))
    total, _ = clipped_sum(loss, u, jnp.ones((SIZE, 6)), np.ones(SIZE, bool), 1e6, "bookkeeping")
    np.testing.assert_allclose(total["w"], SIZE * 7 * u["w"], rtol=1e-5)
