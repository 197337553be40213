"""The part "summation": how far the arithmetic of large sums lets one record move what a step releases.

Floating-point sums are rounded, and one record may change how all the others are rounded (Casacuberta, Shoemate, Vadhan and
Wagaman 2022, "Widespread underestimation of sensitivity in differentially private libraries and how to fix it", arXiv
2207.10635). Half of the records here add up to a power of two. Each of the others takes a little less than half an ulp away,
which does nothing until a record is missing: below the power of two, an ulp is half as large.

Sums on a grid are compared as whole numbers, without any tolerance. A sum may move as far as the noise allows for: the
standard deviation of the noise, in units of the sum, over the claimed sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench.auditing import made
from workbench.auditing.bugs import Watched, silent
from workbench.auditing.canaries import Rows
from workbench.auditing.result import Check
from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.noise._key_use import throw_away
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import Minibatch

__all__ = ["PARTS_OF", "SIZE", "Worst", "check", "worst_move"]

SIZE = 8192  # records
PARTS_OF = 8  # records that are brought in at once, where nothing else is asked for

_WIDTH = 4  # coordinates
_ADDED_AT_ONCE = (1, 4, 8, 16, 64, 512)  # terms that a floating-point sum may join before it adds them to the others
_FULL = 1 - 1e-5  # of C: no record is clipped
_COARSEST = 11  # at level 0 the noise has a standard deviation of 2^11 spacings

MakeStep = Callable[[jax.Array, Rows], tuple[PrivateStep, Watched]]


class Worst(NamedTuple):
    """The largest move that was found. ``ratio``: to what is allowed; ``of_clip``: to C."""

    ratio: float
    of_clip: float
    what: str


def _lengths(clip: float, spacing: float, size: int) -> Iterator[tuple[str, np.ndarray]]:
    """Signed lengths of the clipped gradients of ``size`` records, by name; the first one is as long as C."""
    full, half = clip * _FULL, size // 2
    power = 2.0 ** math.floor(math.log2(half * full / math.sqrt(_WIDTH)))  # in one coordinate
    count = math.ceil(power * math.sqrt(_WIDTH) / full)
    ulp = power * 2.0**-23
    for joined in _ADDED_AT_ONCE:
        rest = -0.49 * ulp / joined * math.sqrt(_WIDTH)
        part = "half an ulp" if joined == 1 else f"1/{2 * joined} of an ulp"
        yield f"{count} records at a power of two, the others less by {part}", _then(full, count, rest, size)
    for share in (0.499, 0.501):
        yield f"records of {share} spacings", _then(full, 1, share * spacing * math.sqrt(_WIDTH), size)
    yield "records of length C", np.full(size, full)


def _then(first: float, count: int, rest: float, size: int) -> np.ndarray:
    return np.where(np.arange(size) < count, first, rest)


def worst_move(make_step: MakeStep, claimed: GaussianMechanism, key: jax.Array, size: int = SIZE) -> Worst:
    """The largest move of the sum without noise when one of ``size`` records is masked out of its place."""
    throw_away(key)
    step, watched = make_step(key, (np.zeros((size, _WIDTH), np.float32),))
    hyper = Hyperparameters.of(watched)
    start = step.init(key, hyper, step.model.initial)
    drawn = silent(step.draw(start.key, start.step, hyper))
    assert drawn.noise is not None

    def total(records: tuple[jax.Array, ...], mask: jax.Array) -> tuple[jax.Array, jax.Array]:
        minibatch = Minibatch(jnp.arange(size, dtype=jnp.int32), mask)
        watched.begin(minibatch)
        step.step(start, records, drawn._replace(minibatch=minibatch), hyper)
        return watched.total()

    compiled = jax.jit(total)
    everyone = np.ones(size, bool)
    empty, unit = compiled((jnp.zeros((size, _WIDTH)),), jnp.asarray(everyone))
    spacing, on_grid = float(unit), jnp.issubdtype(empty.dtype, jnp.integer)
    deviation = 2.0 ** (_COARSEST + int(drawn.noise.level)) if on_grid else claimed.standard_deviation
    allowed = deviation / claimed.noise_multiplier
    worst = Worst(0.0, 0.0, "nothing")
    for what, lengths in _lengths(claimed.clip, spacing, size):
        rows = (jnp.asarray(made.rows_for(lengths, _WIDTH, claimed.clip, claimed.clipping)),)

        def sum_of(mask: np.ndarray, rows: Any = rows) -> np.ndarray:
            values = np.asarray(compiled(rows, jnp.asarray(mask))[0])
            return values.astype(np.int64 if on_grid else np.float64)

        there = sum_of(everyone)
        for place in (0, size // 3, size - 1):
            move = float(np.linalg.norm(there - sum_of(np.arange(size) != place)))
            if move / allowed > worst.ratio:
                worst = Worst(move / allowed, move * spacing / claimed.clip, f"{what}, without number {place}")
    return worst


def check(make_steps: Mapping[str, MakeStep], claimed: GaussianMechanism, key: jax.Array, size: int = SIZE) -> Check:
    """Check that one record moves the sum of many by no more than the noise allows for.

    :param make_steps: makers of a step of ``made.model`` for ``size`` records, and its mechanism, by what they sum up.
    """
    found = {
        name: worst_move(make_step, claimed, jax.random.fold_in(key, number), size)
        for number, (name, make_step) in enumerate(make_steps.items())
    }
    name, worst = max(found.items(), key=lambda each: each[1].ratio)
    finding = (
        f"one of {size} records moves the sum by at most {worst.of_clip:.4f} C, {worst.ratio:.5f} times what the noise "
        f"allows for ({name}; {worst.what})."
    )
    return Check("summation", worst.ratio <= 1, finding, worst.ratio)
