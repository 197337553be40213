"""What one step releases: the noised sum of clipped gradients, and noised counts of how long the
gradients were.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from workbench import _validate
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["Release", "noised", "spacing"]


class Release(NamedTuple):
    """The release of a step, which the guarantee covers.

    :param point: u, where gradients were taken; a function of earlier releases. :param total: G,
        the noised sum, like u.
    :param counts: noised counts of gradients by ranges of their norm, float32[RANGES]; None where
        norms are not counted.
    """

    point: Any
    total: Any
    counts: jax.Array | None


def noised(
    mechanism: GaussianMechanism,
    size: int,
    total: PyTree,
    counts: jax.Array | None,
    noise: Noise | None,
    sigma: jax.Array,
) -> tuple[Any, jax.Array | None]:
    """(the sum with its noise, counts with theirs); None for counts that were not taken.

    :param size: d, how many of the draws in ``noise`` are for the sum; the others are for counts.
    :param sigma: standard deviation of the noise in a count.
    """
    if counts is None or noise is None:
        return mechanism.add(total, noise), None
    for_sum, for_counts = jnp.split(noise.units, [size])
    # a count of 1; 0 where noise leaves no room for counts
    per_count = mechanism.whole_spacings(sigma, noise.level)
    in_spacings = OnGrid(counts * per_count, jnp.where(per_count > 0, 1 / per_count, 0))
    sum_with_noise = mechanism.add(total, Noise(for_sum, noise.level))
    return sum_with_noise, mechanism.add(in_spacings, Noise(for_counts, noise.level))


def spacing(
    mechanism: GaussianMechanism,
    capacity: int,
    fraction: float,
    sigma: jax.Array,
    clip: jax.Array,
    level: jax.Array,
    slack: float,
    units: float,
) -> jax.Array:
    """As ``GaussianMechanism.spacing``.

    :param capacity: records of a minibatch at most.
    :param fraction: by which the noise multiplier is divided at most.
    :raises ArgumentError: naming ``noise_multiplier``, if 32-bit integers have no room for the
        noise.
    """
    if not mechanism.has_room(capacity, units / fraction**2):
        raise _validate.ArgumentError(
            "noise_multiplier",
            mechanism.noise_multiplier,
            f"the noise does not fit into 32-bit integers next to sums of {capacity} records "
            f"(rounding: {math.sqrt(units):.3g} spacings); use smaller minibatches, a smaller "
            "model, or look up fewer rows.",
        )
    return mechanism.spacing(sigma, clip, level, slack, units)
