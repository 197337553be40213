"""Bugs that an audit plants to show that it can fail, and the mechanism that it watches."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from workbench.inference.record_model import Record
from workbench.inference.step import DPVIState, Draws, Hyperparameters, PrivateStep
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import Minibatch

__all__ = ["PLANTED_BUGS", "ClampedIndices", "Watched", "watched"]

# {name: what is broken}; each is caught by at least one part of the audit
PLANTED_BUGS = {
    "half_noise": "half of the noise is added",
    "no_clipping": "gradients are not cut to C",
    "realised_size": "the sum is divided by the realised size of the minibatch",
    "short_norms": "norms come out a fifth too small, so that gradients of 1.25 C pass",
    "clamped_indices": "records beyond the end of an array are read as its last one",
    "shared_key": "all lanes of a sweep draw from one key",
    "repeated_noise": "a resumed run draws the noise of steps that were seen again, for another model",
    "lenient_accountant": "noise for 100 000 steps as an accountant that undercounts them would have it",
}


@dataclass(frozen=True, eq=False)
class Watched(GaussianMechanism):
    """The mechanism itself; while a step is traced it notes the noised sum.

    ``add`` is called once a step and outside of inner loops, so what it returns may leave the trace of the step.
    """

    seen: list[Any] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Called before each step is traced."""
        self.seen.clear()

    def add(self, total: Any, noise: jax.Array) -> Any:  # type: ignore[override]
        """As ``GaussianMechanism.add``."""
        noised = super().add(total, noise)
        self.seen.append(noised)
        return noised

    def noised_sum(self) -> jax.Array:
        """What the step released, float[size of u]."""
        (noised,) = self.seen
        return ravel_pytree(noised)[0]


@dataclass(frozen=True, eq=False)
class _DividesByRealisedSize(Watched):
    """PLANTED BUG: the noised sum is rescaled from the realised to the expected minibatch size, as a mean would be."""

    expected: float = math.nan
    realised: list[jax.Array] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Notes how many records the step will see."""
        super().begin(minibatch)
        self.realised[:] = [jnp.sum(minibatch.mask)]

    def add(self, total: Any, noise: jax.Array) -> Any:  # type: ignore[override]
        """Noised sum times expected / realised size."""
        factor = self.expected / jnp.maximum(self.realised[0], 1)
        noised = jax.tree.map(lambda leaf: leaf * factor, GaussianMechanism.add(total, noise))
        self.seen.append(noised)
        return noised


def watched(claimed: GaussianMechanism, bug: str | None, expected: float) -> Watched:
    """The mechanism as claimed, or with a bug planted. ``expected``: minibatch size that "realised_size" scales to."""
    clip, sigma, clipping = claimed.clip, claimed.noise_multiplier, claimed.clipping
    if bug == "half_noise":
        return Watched(clip, sigma / 2, clipping)
    if bug == "no_clipping":  # noise as for C, but no gradient is as long as what it is cut to
        return Watched(clip * 1e9, sigma / 1e9, "flat")
    if bug == "short_norms":  # a norm taken for 4/5 of itself is cut to 5/4 of C
        return Watched(clip * 1.25, sigma / 1.25, clipping)
    if bug == "realised_size":
        return _DividesByRealisedSize(clip, sigma, clipping, expected=expected)
    return Watched(clip, sigma, clipping)


class ClampedIndices(PrivateStep):
    """PLANTED BUG: what lies beyond the end of an array, or of its first half, is read as the last record there."""

    def step(self, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters) -> DPVIState:
        """As ``PrivateStep.step``, with clamped indices, on arrays of any size."""
        size = self.sampler.num_records
        rows = jnp.minimum(jnp.arange(size), records[0].shape[0] - 1)
        indices = jnp.minimum(draws.minibatch.indices, size // 2)
        clamped = draws._replace(minibatch=draws.minibatch._replace(indices=indices))
        return super().step(state, tuple(array[rows] for array in records), clamped, hyper)
