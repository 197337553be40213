"""How far the arithmetic of large sums lets one record move what a step releases.

Floating-point sums are rounded, and one record may change how all the others are rounded
(Casacuberta, Shoemate, Vadhan and Wagaman 2022, "Widespread underestimation of sensitivity in
differentially private libraries and how to fix it", arXiv 2207.10635). Half of the records here add
up to a power of two. Each of the others takes a little less than half an ulp away, which does
nothing until a record is missing: below the power of two, an ulp is half as large.

Sums on a grid are compared as whole numbers, without any tolerance. A sum may move as far as the
noise allows for: the standard deviation of the noise, in units of the sum, over the claimed sigma.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tests.auditing import planted
from workbench.auditing.bugs import silent
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.key_use import throw_away
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import Minibatch

SIZE = 8192  # records
CLIP, SIGMA = 0.5, 1.0

_WIDTH = 4  # coordinates
# terms that a floating-point sum may join before it adds them to the others
_ADDED_AT_ONCE = (1, 4, 8, 16, 64, 512)
_FULL = 1 - 1e-5  # of C: no record is clipped
_COARSEST = 11  # at level 0 the noise has a standard deviation of 2^11 spacings


class Worst(NamedTuple):
    """The largest move that was found. ``ratio``: to what is allowed; ``of_clip``: to C."""

    ratio: float
    of_clip: float
    what: str


def _lengths(spacing, size):
    """Signed lengths of the clipped gradients of ``size`` records, by name; the first one is as
    long as C.
    """
    full, half = CLIP * _FULL, size // 2
    power = 2.0 ** math.floor(math.log2(half * full / math.sqrt(_WIDTH)))  # in one coordinate
    count = math.ceil(power * math.sqrt(_WIDTH) / full)
    ulp = power * 2.0**-23
    for joined in _ADDED_AT_ONCE:
        rest = -0.49 * ulp / joined * math.sqrt(_WIDTH)
        part = "half an ulp" if joined == 1 else f"1/{2 * joined} of an ulp"
        yield (
            f"{count} records at a power of two, the others less by {part}",
            _then(full, count, rest, size),
        )
    for share in (0.499, 0.501):
        yield (
            f"records of {share} spacings",
            _then(full, 1, share * spacing * math.sqrt(_WIDTH), size),
        )
    yield "records of length C", np.full(size, full)


def _then(first, count, rest, size):
    return np.where(np.arange(size) < count, first, rest)


def worst_move(size=SIZE, bug=None, clipping="flat", **settings):
    """The largest move of the sum without noise when one of ``size`` records is masked out of its
    place.
    """
    claimed, key = GaussianMechanism(CLIP, SIGMA, clipping), key_from_seed(0)
    throw_away(key)
    step, watched = planted.step_of(
        (np.zeros((size, _WIDTH), np.float32),), key, claimed, bug, **settings
    )
    hyper = Hyperparameters.of(watched)
    start = step.init(key, hyper, step.model.initial)
    drawn = silent(step.draw(start.key, start.step, hyper))

    def total(records, mask):
        minibatch = Minibatch(jnp.arange(size, dtype=jnp.int32), mask)
        watched.begin(minibatch)
        step.step(start, records, drawn._replace(minibatch=minibatch), hyper)
        return watched.total()

    compiled = jax.jit(total)
    everyone = np.ones(size, bool)
    empty, unit = compiled((jnp.zeros((size, _WIDTH)),), jnp.asarray(everyone))
    spacing, on_grid = float(unit), jnp.issubdtype(empty.dtype, jnp.integer)
    deviation = (
        2.0 ** (_COARSEST + int(drawn.noise.level)) if on_grid else claimed.standard_deviation
    )
    allowed = deviation / claimed.noise_multiplier
    worst = Worst(0.0, 0.0, "nothing")
    for what, lengths in _lengths(spacing, size):
        rows = (jnp.asarray(planted.rows_for(lengths, _WIDTH, CLIP, clipping)),)

        def sum_of(mask, rows=rows):
            values = np.asarray(compiled(rows, jnp.asarray(mask))[0])
            return values.astype(np.int64 if on_grid else np.float64)

        there = sum_of(everyone)
        for place in (0, size // 3, size - 1):
            move = float(np.linalg.norm(there - sum_of(np.arange(size) != place)))
            if move / allowed > worst.ratio:
                worst = Worst(
                    move / allowed, move * spacing / CLIP, f"{what}, without number {place}"
                )
    print(worst)
    return worst
