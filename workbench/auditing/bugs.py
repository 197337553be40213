"""Bugs that an audit plants to show that it can fail, and a mechanism that keeps what it releases."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from workbench.inference._units import UnitRows
from workbench.inference.record_model import Record
from workbench.inference.state import DPVIState, Draws, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.inference.strata import Stratum
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid
from workbench.noise.normals import normal, normal_from
from workbench.sampling import Minibatch

__all__ = [
    "PLANTED_BUGS",
    "ClampedIndices",
    "FloatSums",
    "Watched",
    "silent",
    "stepping",
    "watched",
]

# {name: what is broken}; each is caught by at least one part of the audit
PLANTED_BUGS = {
    "half_noise": "half of the noise is added",
    "no_clipping": "gradients are not clipped to C",
    "realised_size": "the sum is divided by the realised size of the minibatch",
    "short_norms": "norms are computed a fifth too small, so that gradients of norm 1.25 C pass",
    "clip_by_row": "the gradient of each row is clipped to C, where a person with several rows is the unit",
    "clamped_indices": "indices beyond the end of an array read its last record",
    "shared_key": "all lanes of a sweep draw from one key",
    "repeated_noise": "a resumed run repeats released steps with the same noise and another model",
    "float_noise": "float32 normals are added to sums in floating point, as in earlier versions",
    "float_sums": "a minibatch is summed in floating point, and only its sum is rounded to the grid",
    "lenient_accountant": "an accountant undercounts 100 000 steps and so adds too little noise",
}


@dataclass(frozen=True, eq=False)
class Watched(GaussianMechanism):
    """The mechanism, which also keeps the noised sum while a step is traced.

    ``add`` is called once per step and outside inner loops, so its result may be used outside the step's trace.
    """

    seen: list[Any] = field(default_factory=list)
    totals: list[Any] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Forget the last step. Called before each step is traced."""
        self.seen.clear()
        self.totals.clear()

    def add(self, total: Any, noise: Noise | None) -> Any:  # type: ignore[override]
        """Add noise, as ``GaussianMechanism.add``, and keep the sum with noise and without."""
        return self.kept(total, super().add(total, noise))

    def kept(self, total: Any, noised: Any) -> Any:
        """``noised``, which is kept with the sum that it was made from."""
        self.totals.append(total)
        self.seen.append(noised)
        return noised

    def noised_sum(self) -> jax.Array:
        """The step's release, float[size of u]."""
        return ravel_pytree(self.seen[0])[0]

    def noised_counts(self) -> jax.Array:
        """Counts of norms in the step's release, float[RANGES]; empty where none are released."""
        return ravel_pytree(self.seen[1:])[0]

    def total(self) -> tuple[jax.Array, jax.Array]:
        """The step's sum without noise, int32[size of u], and g; where it has no grid, float[size of u] and 1."""
        total = self.totals[0]
        units, spacing = total if isinstance(total, OnGrid) else (total, jnp.ones(()))
        return ravel_pytree(units)[0], spacing


@dataclass(frozen=True, eq=False)
class _DividesByRealisedSize(Watched):
    """PLANTED BUG: the noised sum is rescaled from the realised to the expected minibatch size, as a mean would be."""

    expected: float = math.nan
    realised: list[jax.Array] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Keep the number of records in the step's minibatch."""
        super().begin(minibatch)
        self.realised[:] = [jnp.sum(minibatch.mask)]

    def add(self, total: Any, noise: Noise | None) -> Any:  # type: ignore[override]
        """Add noise, then multiply by expected / realised size."""
        factor = self.expected / jnp.maximum(self.realised[0], 1)
        return self.kept(total, jax.tree.map(lambda leaf: leaf * factor, GaussianMechanism.add(total, noise)))


@dataclass(frozen=True, eq=False)
class _OnFloatSums(Watched):
    """A mechanism for ``FloatSums``, which gives it the sum in floating point and the noise apart."""

    held: list[Any] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _FloatNoise(_OnFloatSums):
    """PLANTED BUG: float32 normals times sigma C are added to sums in floating point."""

    def words_for(self, size: int) -> int:
        """Two for each draw."""
        return 2 * size

    def noise_from(self, words: jax.Array, size: int, level: jax.Array) -> Noise:
        """Standard normal draws, float32[size], instead of whole numbers."""
        return Noise(normal_from(words[:size], words[size:]), level)

    def noise(self, key: jax.Array, size: int, level: jax.Array) -> Noise:
        """As ``noise_from``."""
        return Noise(normal(key, (size,)), level)

    def add(self, total: Any, noise: Noise | None) -> Any:  # type: ignore[override]
        """Add the draws that are held."""
        (held,) = self.held
        flat, back = ravel_pytree(total)
        draws = held.units * jnp.float32(self.standard_deviation)
        return self.kept(total, back(flat + draws.astype(flat.dtype)))


@dataclass(frozen=True, eq=False)
class _FloatSums(_OnFloatSums):
    """PLANTED BUG: the sum is rounded to the grid when all of it has been added up in floating point."""

    def add(self, total: Any, noise: Noise | None) -> Any:  # type: ignore[override]
        """Round the sum, and add the noise that is held."""
        (held,) = self.held
        size = sum(leaf.size for leaf in jax.tree.leaves(total))
        sigma, clip = jnp.float32(self.noise_multiplier), jnp.float32(self.clip)
        spacing = self.spacing(sigma, clip, held.level, 0.0, float(size))
        units = jax.tree.map(lambda leaf: jnp.round(leaf / spacing).astype(jnp.int32), total)
        return super().add(OnGrid(units, spacing), held)


def silent(draws: Draws) -> Draws:
    """The same draws with noise of zero, so that a step releases the sum as it is."""
    if draws.noise is None:
        return draws
    return draws._replace(noise=draws.noise._replace(units=jnp.zeros_like(draws.noise.units)))


def watched(claimed: GaussianMechanism, bug: str | None, expected: float) -> Watched:
    """The claimed mechanism, or one with a planted bug.

    :param expected: minibatch size that the bug "realised_size" scales to.
    """
    clip, sigma, clipping = claimed.clip, claimed.noise_multiplier, claimed.clipping
    if bug == "half_noise":
        return Watched(clip, sigma / 2, clipping)
    if bug == "no_clipping":  # the noise is for C, but every gradient is below the bound it is clipped to
        return Watched(clip * 1e9, sigma / 1e9, "flat")
    if bug == "short_norms":  # a gradient whose norm is computed as 4/5 of itself is clipped to 5/4 of C
        return Watched(clip * 1.25, sigma / 1.25, clipping)
    if bug == "realised_size":
        return _DividesByRealisedSize(clip, sigma, clipping, expected=expected)
    kinds = {"float_noise": _FloatNoise, "float_sums": _FloatSums}
    return kinds.get(str(bug), Watched)(clip, sigma, clipping)


def stepping(sound: PrivateStep, bug: str | None) -> PrivateStep:
    """The sound step, or one with a planted bug."""
    if bug == "clamped_indices":
        return ClampedIndices(**vars(sound))
    if bug == "clip_by_row" and sound.units is not None:
        return dataclasses.replace(sound, units=_RowByRow(*sound.units))
    return FloatSums(**vars(sound)) if isinstance(sound.mechanism, _OnFloatSums) else sound


class _RowByRow(UnitRows):
    """PLANTED BUG: each row of a unit is a stratum of its own, so that it is clipped alone."""

    def strata(self, minibatch: Minibatch, records: Record, *others: Any) -> list[Stratum]:
        """A stratum for the first row of each unit, one for the second, and so on."""
        *rows, firsts, counts = records
        all_strata: list[Stratum] = []
        for number in range(self.widths[0]):
            alone = (*rows, firsts + jnp.minimum(number, counts - 1), jnp.minimum(counts, 1))
            (stratum,) = UnitRows((1,)).strata(minibatch, alone, *others)
            all_strata.append(stratum._replace(mask=stratum.mask & (counts[minibatch.indices] > number)))
        return all_strata


class FloatSums(PrivateStep):
    """PLANTED BUG: sums in floating point, in one block; the mechanism does what it does with them and the noise."""

    def step(self, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters) -> DPVIState:
        """Take a step as ``PrivateStep.step`` without noise does, with a mechanism that adds some."""
        assert isinstance(self.mechanism, _OnFloatSums)
        self.mechanism.held[:] = [draws.noise]
        return super().step(state, records, draws._replace(noise=None), hyper)


class ClampedIndices(PrivateStep):
    """PLANTED BUG: indices beyond the end of an array, or of its first half, read the last record there."""

    def step(self, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters) -> DPVIState:
        """Take a step as ``PrivateStep.step`` does, with clamped indices, on arrays of any size."""
        size = self.sampler.num_records
        rows = jnp.minimum(jnp.arange(size), records[0].shape[0] - 1)
        indices = jnp.minimum(draws.minibatch.indices, size // 2)
        clamped = draws._replace(minibatch=draws.minibatch._replace(indices=indices))
        return super().step(state, tuple(array[rows] for array in records), clamped, hyper)
