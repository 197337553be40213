"""Losses of layers for tests of book-keeping, and what their clipped sums are compared with: each
record's own gradient.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

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
PLANE, LINE = ("NHWC", "HWIO", "NHWC"), ("NWC", "WIO", "NWC")
MASK = (np.arange(30).reshape(6, 5) % 3 > 0).astype(np.float32)


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
    """A loss with the shapes of its arguments.

    :param rules: of leaves, as "rule" or as "rule: reason". :param tokens: size of the vocabulary,
        where the record is of tokens.
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


def dense(prepare, rule, *places, **leaves):
    """A case of a dense layer on a record of 6, at one place or at several, whose kernel, 6 x 5, is
    prepared; ``rule`` is that of all leaves, or of each.
    """
    rules = rule if isinstance(rule, dict) else dict.fromkeys(leaves, rule)
    return Case(lambda u, x: score(x @ prepare(u)), leaves, (*places, 6), rules)


def conv(spec, leaves, image, rule, prepare=lambda u: u["w"], **options):
    """A case of one convolution.

    :param spec: layouts of image, kernel and result. :param leaves: their shapes, or the kernel's.
    """
    leaves = leaves if isinstance(leaves, dict) else {"w": leaves}
    options = {"window_strides": (1,) * (len(spec[0]) - 2), "padding": "SAME", **options}

    def loss(u, x):
        return score(
            lax.conv_general_dilated(x[None], prepare(u), dimension_numbers=spec, **options)
        )

    return Case(loss, leaves, image, dict.fromkeys(leaves, rule))


def rnn(u, x, **options):
    """Elman's net, with projections inside."""

    def step(h, row):
        h = jnp.tanh(row @ u["w"] + h @ u["v"] + u["b"])
        return h, h

    h, seen = lax.scan(step, jnp.zeros_like(x, shape=u["b"].shape), x, **options)
    return score(h) + score(seen)


def stack(prepare):
    """A loss of layers by scan, whose kernels are prepared inside of the leaves' parts."""

    def loss(u, x):
        return score(lax.scan(lambda h, parts: (jnp.tanh(h @ prepare(parts)), None), x, u)[0])

    return loss


def in_both_widths(names):
    """Parameters (name, width) of a test in double and in single precision. In double precision an
    error in a formula cannot hide behind rounding.
    """
    return [(name, width) for name in names for width in (np.float64, np.float32)]


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
    tokens[0] = tokens[0].flat[0] if case.record else tokens[0]
    return u, tokens


def explained(case, strategy="bookkeeping", **options):
    everyone = np.ones(SIZE, bool)
    return clipped_sum(
        case.loss, shapes(case), records_of(case), everyone, 1.0, strategy, explain=True, **options
    )


def assert_rules(case):
    """Book-keeping takes the rules of the case, for the reasons that it names."""
    rows = {row.leaf[2:-2]: row for row in explained(case).rows}
    for leaf, rule in case.rules.items():
        row = rows[leaf]
        assert (f"{row.rule}: {row.reason}" if ": " in rule else row.rule) == rule


def clipped_by_hand(gradients, clip, clipping="flat"):
    """(sums, norms) of {leaf: float[M, ...]} by NumPy in 64 bits; C is less by four millionths."""
    lengths = {
        name: np.linalg.norm(np.float64(leaf).reshape(SIZE, -1), axis=1)
        for name, leaf in gradients.items()
    }
    norms = np.linalg.norm([*lengths.values()], axis=0)
    totals = {}
    for name, leaf in gradients.items():
        factors = {
            "flat": np.minimum(1, clip / np.maximum(norms, 1e-300)),
            "automatic": clip / (norms + 0.01),
            "per_leaf": np.minimum(
                1, clip / np.sqrt(len(gradients)) / np.maximum(lengths[name], 1e-300)
            ),
        }[clipping]
        totals[name] = np.tensordot(factors * np.float32(1 - 4e-6), leaf, 1)
    return totals, norms


def compared(case, width=np.float64, clipping="flat", rules=None, single=1e-5):
    """Book-keeping against each record's own gradient, clipped by hand at a norm between the
    records'.

    :param single: the tolerance in single precision.
    """

    @quick_jit
    def solve(u, records):
        gradients = jax.vmap(jax.grad(case.loss), (None, 0))(u, records)
        clip = jnp.median(
            jnp.sqrt(
                sum(jnp.sum(leaf.reshape(SIZE, -1) ** 2, axis=1) for leaf in gradients.values())
            )
        )
        mask = jnp.ones(SIZE, bool)
        return (
            gradients,
            clip,
            clipped_sum(
                case.loss, u, records, mask, clip, "bookkeeping", clipping=clipping, rules=rules
            ),
        )

    with jax.enable_x64(width is np.float64):
        gradients, clip, (total, norms) = jax.tree.map(np.asarray, solve(*made(case, width)))
    expected, lengths = clipped_by_hand(gradients, clip, clipping)
    tolerance = 1e-10 if width is np.float64 else single
    np.testing.assert_allclose(norms, lengths, rtol=tolerance)
    largest = max(np.max(np.abs(leaf)) for leaf in expected.values())
    for name, leaf in expected.items():
        np.testing.assert_allclose(
            total[name], leaf, rtol=0, atol=tolerance * largest, err_msg=name
        )
