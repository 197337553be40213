"""Adaptive clipping: the run chooses C in its first three tenths from quantities it has already
released.

In these steps the counts of ``norm_counts`` get a larger share of each step's privacy budget, so
the noise on the sum is an eighth larger. In the warm-up, the first fifth, C_t may move to another
value C 2^(k / 2) at five steps, each twice as late as the one before, according to the counts since
the last such step. At three more in the tenth that follows it may be halved or more. Gradients are
longest on the way to the posterior, above all where a scale has shrunk before the residuals have,
and a C of that time would drown what comes later in noise. After that C stays.

The noise is sigma C_t, and sums, spacings and ranges of norms are those of clipping norm C_t. So a
step, divided by its own C_t, is the same mechanism as with any other C, and C_t is a function of
what was released before. Accountants allow each step to depend on earlier outcomes, so the
guarantee is that of one C.

C_t is to minimise the error of the mean gradient in the steps that follow, B(C)^2 + (nu C)^2. Here
nu C is the length of the noise in the mean of n steps, and B(C) the length of clipping bias, about
E (norm - C)+ = integral of P(norm > t) from C on. The noise on counts leaves an interval for each
P(norm > t). C_t is the best value at or above C if every probability is at the lower end of its
interval; if that is C itself, it is the best value at or below C with every probability at the
upper end. Where noise hides the answer, C_t stays C, whatever the gradients of the first steps were
like; after the warm-up it stays what it is. (A C that followed the counts of each step by feedback
walked at random at epsilon 1 and 1000 records.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.inference import norm_counts

__all__ = ["SMALLEST_SHARE", "Adaptive", "clip_of", "of", "shares", "with_counts"]

_SHARE = 0.2  # share of the steps that are the warm-up
_DECISIONS = 5
_LATER = 3  # decisions after the warm-up, in half as many steps
_MUCH = 2  # rungs by which C falls then, at least
_SURE = 3.0  # standard errors by which the counts have to prove a move
_MOST_CLIPPED = 0.2  # share of the gradients that a C below the first may clip
# shares of the lengths clipped off that do not cancel out between gradients; the second, where the
# model takes the mean off what is clipped
_ALIGNED, _CENTRED = 0.5, 0.1
_OF_SUM, _OF_NORMS = 0.8**0.5, 0.2**0.5  # while C is adapted: squares add up to 1
_MOST = 24  # largest |k|: a factor of 4096 up or down
_LADDER = np.float32(2.0) ** (np.arange(-_MOST, _MOST + 1) / 2).astype(np.float32)
_RUNGS = np.arange(-6, 7)  # changes of k that one decision chooses among
_FACTORS = 2.0 ** (_RUNGS / 2)


class Adaptive(NamedTuple):
    """How C is adapted, a part of ``Hyperparameters``.

    :param until: the step at which the warm-up ends, int32 scalar.
    :param largest: C is never above it, float32 scalar.
    :param aligned: share of the lengths clipped off that does not cancel out, float32 scalar.
    """

    until: jax.Array
    largest: jax.Array
    aligned: jax.Array


def of(steps: int, largest: float = LARGEST_CLIP, *, is_centred: bool = False) -> Adaptive:
    """For a run of ``steps`` planned steps. :param is_centred: whether the model takes the mean off
    what is clipped (``RecordModel.correction``).
    """
    aligned = _CENTRED if is_centred else _ALIGNED
    return Adaptive(jnp.int32(int(_SHARE * steps)), jnp.float32(largest), jnp.float32(aligned))


def _end(adaptive: Adaptive) -> jax.Array:
    """The step from which C stays what it is."""
    return adaptive.until + adaptive.until // 2


def clip_of(rung: jax.Array, clip: jax.Array, adaptive: Adaptive) -> jax.Array:
    """C_t. :param rung: k, int32 scalar. :param clip: C of the first step."""
    moved = clip * jnp.asarray(_LADDER)[jnp.clip(rung, -_MOST, _MOST) + _MOST]
    return jnp.clip(
        moved,
        SMALLEST_CLIP,
        jnp.minimum(jnp.maximum(adaptive.largest, SMALLEST_CLIP), LARGEST_CLIP),
    )


# norms between which the share of longer ones is linear
_NODES = np.array([0.0, *norm_counts.EDGES, 2 * norm_counts.EDGES[-1]])
_LONGER = np.arange(norm_counts.RANGES - 1, 0, -1)  # ranges above each edge
_ABOVE = np.arange(norm_counts.RANGES) >= np.arange(1, norm_counts.RANGES)[:, None]  # edges, ranges


def _at_factors() -> tuple[np.ndarray, np.ndarray]:
    """Weights of the nodes' shares, float[factors, nodes]: for the share at each factor, and its
    integral from there on.
    """
    at_factors = np.stack(
        [np.interp(_FACTORS, _NODES, unit) for unit in np.eye(len(_NODES))], axis=1
    )
    points = np.union1d(_NODES, _FACTORS)
    of_points = np.stack([np.interp(points, _NODES, unit) for unit in np.eye(len(_NODES))], axis=1)
    pieces = np.diff(points)[:, None] * (of_points[1:] + of_points[:-1]) / 2
    return at_factors, np.stack([pieces[points[:-1] >= factor].sum(0) for factor in _FACTORS])


_SHARES, _INTEGRALS = _at_factors()


def shares(number: jax.Array, adaptive: Adaptive) -> tuple[jax.Array, jax.Array]:
    """By what the noise multiplier is divided for sum and counts in step ``number``; squares add up
    to 1.
    """
    warm = number < _end(adaptive)
    of_both = (_OF_SUM, norm_counts.OF_SUM), (_OF_NORMS, norm_counts.OF_NORMS)
    of_sum, of_norms = (
        jnp.where(warm, jnp.float32(early), jnp.float32(late)) for early, late in of_both
    )
    return of_sum, of_norms


SMALLEST_SHARE = _OF_SUM
"""By which the noise multiplier for the sum is divided at most."""


def with_counts(
    rung: jax.Array,
    counts: jax.Array,
    norms: jax.Array,
    number: jax.Array,
    adaptive: Adaptive,
    clip: jax.Array,
    sigma: jax.Array,
    size: int,
    expected: float,
) -> tuple[jax.Array, jax.Array]:
    """(k, counts) after a step.

    :param rung: k before it. :param counts: steps and noised counts since k was last decided on,
        float32[1 + RANGES].
    :param norms: noised counts of the step, float32[RANGES]. :param number: of the step, from 0.
    :param clip: C of the first step. :param sigma: noise multiplier. :param size: d.
    :param expected: records in a minibatch, q N.
    """
    warm = number < adaptive.until
    counted = jnp.where(number < _end(adaptive), 1.0, 0.0)
    counts = counts + counted * jnp.concatenate([jnp.ones(1, jnp.float32), norms])
    later = adaptive.until + adaptive.until // 2 // 2 ** jnp.arange(_LATER)
    ends = jnp.concatenate([adaptive.until // 2 ** jnp.arange(_DECISIONS), later])
    decides = jnp.any(number + 1 == ends)
    records = jnp.maximum(counts[0], 1.0) * expected
    _, of_norms = shares(number, adaptive)
    deviation = sigma / of_norms * jnp.sqrt(jnp.maximum(counts[0], 1.0)) / records
    fractions = counts[1:] / records
    # shares add up to 1, which takes off a part of their noise, unless records are clearly absent:
    # left out by learned scales, or fewer than declared
    absent = 1 - jnp.sum(fractions)
    is_whole = absent < _SURE * deviation * np.float32(math.sqrt(norm_counts.RANGES))
    longer = jnp.sum(jnp.where(_ABOVE, fractions, 0.0), 1) + np.float32(
        _LONGER / norm_counts.RANGES
    ) * jnp.where(is_whole, absent, 0.0)
    squares = jnp.where(is_whole, (norm_counts.RANGES - _LONGER) / norm_counts.RANGES, 1.0)
    error = _SURE * deviation * jnp.sqrt(np.float32(_LONGER) * squares)
    low, high = (
        jnp.pad(jnp.clip(end, 0, 1), 1, constant_values=(1, 0))
        for end in (longer - error, longer + error)
    )
    least, most = (
        jnp.sum(np.float32(weights) * ends, 1)
        for weights, ends in ((_INTEGRALS, low), (_SHARES, high))
    )
    steps = adaptive.until.astype(jnp.float32) * np.float32(1 / _SHARE - 1)
    noise = (
        sigma
        / np.float32(norm_counts.OF_SUM)
        * np.float32(math.sqrt(size) / expected)
        / jnp.sqrt(jnp.maximum(steps, 1.0))
    )
    factors = np.float32(_FACTORS)
    # what C is without evidence, seen from where it is: where it began, later what it is
    first = jnp.where(warm, jnp.clip(-rung, _RUNGS[0], _RUNGS[-1]), 0)
    rungs = jnp.asarray(_RUNGS)
    up, down = (
        rungs[jnp.argmin(jnp.where(allowed, bias**2 + (noise * factors) ** 2, jnp.inf))]
        for bias, allowed in (
            (adaptive.aligned * least, rungs >= first),
            (
                adaptive.aligned * factors * most,
                (rungs == first) | (rungs < first) & (most <= _MOST_CLIPPED),
            ),
        )
    )
    highest = jnp.ceil(jnp.clip(2 * jnp.log2(adaptive.largest / clip), 0, _MOST)).astype(jnp.int32)
    change = jnp.where(up > first, up, down)
    # noise would take a C that may only fall down step by step
    change = jnp.where(warm | (change <= -_MUCH), change, 0)
    decided = jnp.clip(rung + change, -_MOST, highest)
    return jnp.where(decides, decided, rung), jnp.where(decides, jnp.zeros_like(counts), counts)
