"""Bugs that an audit plants to show that it can fail, and a mechanism that keeps what
it releases.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from workbench.inference.state import Draws
from workbench.inference.step import PrivateStep
from workbench.inference.strata import Stratum
from workbench.inference.units import UnitRows
from workbench.noise.mechanism import GaussianMechanism, Noise
from workbench.record_model.model import Record
from workbench.sampling import Minibatch

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["PLANTED_BUGS", "Watched", "clipping_by_row", "silent", "watched"]

# {name: what is broken}; each is caught by at least one part of the audit
PLANTED_BUGS = {
    "half_noise": "half of the noise is added",
    "no_clipping": "gradients are not clipped to C",
    "realised_size": "the sum is divided by the realised size of the minibatch",
    "short_norms": "norms are computed a fifth too small, so that gradients of norm 1.25 C pass",
    "clip_by_row": "the gradient of each row is clipped to C, where a person with several rows is "
    "the unit",
    "lenient_accountant": "an accountant undercounts 100 000 steps and so adds too little noise",
}
# {bug: factors by which C is too large, and sigma too small}
_FACTORS: dict[str | None, tuple[float, float]] = {
    "half_noise": (1.0, 2.0),
    # the noise is for C, but every gradient is below the bound it is clipped to
    "no_clipping": (1e9, 1e9),
    # a gradient whose norm is computed as 4/5 of itself is clipped to 5/4 of C
    "short_norms": (1.25, 1.25),
}


@dataclass(frozen=True, eq=False)
class Watched(GaussianMechanism):
    """The mechanism, which also keeps the noised sum while a step is traced.

    ``add`` is called once per step and outside inner loops, so its result may be used outside the
    step's trace.
    """

    releases: list[Any] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Forget the last step. Called before each step is traced."""
        self.releases.clear()

    def add(self, total: PyTree, noise: Noise | None) -> Any:  # type: ignore[override]
        """Add noise, as ``GaussianMechanism.add``, and keep the result."""
        return self.kept(super().add(total, noise))

    def kept(self, noised: PyTree) -> Any:
        """``noised``, which is kept."""
        self.releases.append(noised)
        return noised

    def noised_sum(self) -> jax.Array:
        """The step's release, float[size of u]."""
        return ravel_pytree(self.releases[0])[0]

    def noised_counts(self) -> jax.Array:
        """Counts of norms in the step's release, float[RANGES]; empty where none are released."""
        return ravel_pytree(self.releases[1:])[0]


@dataclass(frozen=True, eq=False)
class _DividesByRealisedSize(Watched):
    """PLANTED BUG: the noised sum is rescaled from the realised to the expected minibatch size, as
    a mean would be.
    """

    expected: float = math.nan
    realised: list[jax.Array] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Keep the number of records in the step's minibatch."""
        super().begin(minibatch)
        self.realised[:] = [jnp.sum(minibatch.mask)]

    def add(self, total: PyTree, noise: Noise | None) -> Any:  # type: ignore[override]
        """Add noise, then multiply by expected / realised size."""
        factor = self.expected / jnp.maximum(self.realised[0], 1)
        return self.kept(
            jax.tree.map(lambda leaf: leaf * factor, GaussianMechanism.add(total, noise))
        )


def silent(draws: Draws) -> Draws:
    """The same draws with noise of zero, so that a step releases the sum as it is."""
    if draws.noise is None:
        return draws
    return draws._replace(noise=draws.noise._replace(units=jnp.zeros_like(draws.noise.units)))


def watched(claimed: GaussianMechanism, bug: str | None, expected: float) -> Watched:
    """The claimed mechanism, or one with a planted bug.

    :param expected: minibatch size that the bug "realised_size" scales to.
    """
    wider, quieter = _FACTORS.get(bug, (1.0, 1.0))
    clip, sigma = claimed.clip * wider, claimed.noise_multiplier / quieter
    if bug == "realised_size":
        return _DividesByRealisedSize(clip, sigma, claimed.clipping, expected=expected)
    return Watched(clip, sigma, "flat" if bug == "no_clipping" else claimed.clipping)


def clipping_by_row(sound: PrivateStep) -> PrivateStep:
    """PLANTED BUG: the step with each row of a unit clipped alone."""
    assert isinstance(sound.source, UnitRows)
    return dataclasses.replace(sound, source=_RowByRow(sound.source.widths, sound.source.mean))


class _RowByRow(UnitRows):
    """PLANTED BUG: each row of a unit is a stratum of its own, so that it is clipped alone."""

    def strata(
        self, minibatch: Minibatch, records: Record, *arguments: Any, **options: Any
    ) -> list[Stratum]:
        """A stratum for the first row of each unit, one for the second, and so on."""
        *rows, firsts, counts = records
        all_strata: list[Stratum] = []
        for number in range(self.widths[0]):
            alone = (*rows, firsts + jnp.minimum(number, counts - 1), jnp.minimum(counts, 1))
            (stratum,) = UnitRows((1,)).strata(minibatch, alone, *arguments, **options)
            all_strata.append(
                stratum._replace(mask=stratum.mask & (counts[minibatch.indices] > number))
            )
        return all_strata
