"""Losses of layers for tests of book-keeping, and what their clipped sums are compared with: each
record's own gradient.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.conftest import quick_jit
from workbench.clipping import clipped_sum

SIZE = 4

OUTER, GRAM, ROWS, FORMED, MATERIALISED = (
    "outer product",
    "Gram matrix",
    "rows",
    "instantiated",
    "materialised",
)


@jax.custom_vjp
def tripled(value):
    """The identity, with three times its derivative."""
    return value


tripled.defvjp(lambda value: (value, None), lambda _, g: (3 * g,))


@jax.custom_jvp
def halved(value):
    """The identity, with half of its derivative."""
    return value


@halved.defjvp
def _(primals, tangents):
    return primals[0], 0.5 * tangents[0]


class Case(NamedTuple):
    """A loss with the shapes of its arguments; ``tokens`` is the size of the vocabulary, where the
    record is of tokens.
    """

    loss: Any
    u: dict
    record: tuple
    rules: dict
    tokens: int = 0


def score(value):
    """A scalar of ``value`` whose derivative differs at every entry."""
    return jnp.sum(
        jnp.sin(value)
        * (1 + jnp.arange(value.size) / value.size).astype(value.dtype).reshape(value.shape)
    )


def shapes(case):
    return {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in case.u.items()}


def records_of(case):
    """Shapes and types of a minibatch."""
    return jax.ShapeDtypeStruct((SIZE, *case.record), jnp.int32 if case.tokens else jnp.float32)


def made(case, width):
    """u and a minibatch; tokens of the first record are all the same."""
    random = np.random.default_rng(0)
    u = {name: random.normal(size=shape).astype(width) for name, shape in case.u.items()}
    if not case.tokens:
        return u, random.normal(size=(SIZE, *case.record)).astype(width)
    tokens = random.integers(0, case.tokens, (SIZE, *case.record), np.int32)
    tokens[0] = tokens[0, 0]
    return u, tokens


def explained(case, strategy="bookkeeping", **options):
    everyone = np.ones(SIZE, bool)
    return clipped_sum(
        case.loss, shapes(case), records_of(case), everyone, 1.0, strategy, explain=True, **options
    )


def compared(case, width, tolerance, clipping="flat", rules=None):
    """Book-keeping against each record's own gradient, clipped by hand at a norm between the
    records'.
    """

    @quick_jit
    def solve(u, records):
        gradients = jax.vmap(jax.grad(case.loss), (None, 0))(u, records)
        norms = jnp.sqrt(
            sum(jnp.sum(leaf.reshape(SIZE, -1) ** 2, axis=1) for leaf in gradients.values())
        )
        clip = jnp.median(norms)
        mask = jnp.ones(SIZE, bool)
        ours = clipped_sum(
            case.loss, u, records, mask, clip, "bookkeeping", clipping=clipping, rules=rules
        )
        return (
            gradients,
            norms,
            clip,
            ours,
            clipped_sum(case.loss, u, records, mask, clip, "vmap", clipping=clipping),
        )

    with jax.enable_x64(width is np.float64):
        gradients, norms, clip, (total, found), (by_vmap, _) = jax.tree.map(
            np.asarray, solve(*made(case, width))
        )
    np.testing.assert_allclose(found, norms, rtol=tolerance)
    largest = max(np.max(np.abs(leaf)) for leaf in by_vmap.values())
    for name, leaf in gradients.items():
        np.testing.assert_allclose(
            total[name], by_vmap[name], rtol=0, atol=tolerance * largest, err_msg=name
        )
        if (
            clipping == "flat"
        ):  # whose definition is short enough to be said again; a margin for the factor 1 - 4e-6
            expected = np.tensordot(np.minimum(1, clip / norms), leaf, 1)
            np.testing.assert_allclose(
                total[name], expected, rtol=0, atol=max(tolerance, 5e-6) * largest, err_msg=name
            )
