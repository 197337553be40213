"""What a run learns about its own clipping, as a part of its release: how long its records'
gradients were.

Besides the noised sum of clipped gradients, every step releases noised counts of the minibatch's
gradients by ranges of their norm. The privacy budget of the step is divided between the two. A
record moves the sum by at most C, and one count by
1. If the sum has noise of standard deviation sigma_1 C and counts of sigma_2, then the step, each
  part in units of its own
noise, is one Gaussian mechanism whose sensitivity over noise is the root of 1 / sigma_1^2 + 1 /
sigma_2^2. So with sigma_1 = sigma / OF_SUM and sigma_2 = sigma / OF_NORMS, shares whose squares add
up to 1, the step costs what a step without counts costs, and no accountant needs to know. The noise
on the sum is larger by less than a hundredth. Andrew, Thakkar, McMahan and Ramaswamy 2021 (arXiv
1905.03871) divide the budget between the sum and a count in this way; Zou et al. 2026 learn norms
within the release from the room that short gradients leave.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from workbench.noise.mechanism import GaussianMechanism

__all__ = ["EDGES", "OF_NORMS", "OF_SUM", "RANGES", "counts_of", "have_room"]

EDGES = (0.125, 0.25, 0.5, 0.75, 1.0, 2.0, 4.0)
"""Where ranges of norms end, in units of C; the last range has no end."""

RANGES = len(EDGES) + 1

_LENGTH = 1 / 8  # of what a record moves counts by, where it moves the sum by 1
OF_SUM = 1 / math.hypot(1, _LENGTH)
OF_NORMS = _LENGTH / math.hypot(1, _LENGTH)


def have_room(mechanism: GaussianMechanism, capacity: int) -> bool:
    """Whether there is noise to divide, and whole numbers hold what counts get of it.

    :param capacity: records of a minibatch at most.
    """
    return mechanism.noise_multiplier > 0 and mechanism.has_room(capacity, (0.5 / OF_NORMS) ** 2)


def counts_of(norms: jax.Array, counted: jax.Array, clip: jax.Array) -> jax.Array:
    """How many norms lie in each range, int32[RANGES]. A record counts in one range; NaN and
    infinity in the last one.

    :param norms: float[M]. :param counted: which records count, bool[M]. :param clip: C, scalar.
    """
    range_numbers = jnp.sum(~(norms[:, None] <= clip * np.array(EDGES, norms.dtype)), axis=1)
    return jnp.sum(
        (range_numbers[:, None] == jnp.arange(RANGES)) & counted[:, None], axis=0, dtype=jnp.int32
    )
