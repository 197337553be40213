"""One epoch of random allocation with the Gaussian mechanism: its privacy loss, and the loss on a
grid, between two bounds.

In an epoch of t steps a record enters one step, which it chooses uniformly and independently of
other records. Steps release a sum of terms of norm at most C plus noise of standard deviation sigma
C. With mu = 1 / sigma, the pair

    P = mean over i of N(mu e_i, I),  Q = N(0, I)  on R^t

dominates an epoch with the record against one without it. Proof: from x ~ P or Q, the output of
step i is made of x_i and of the outputs before it. Given those and the steps of other records, the
record's term is a vector g with |g| <= C, and the rest of the sum is known. With a = |g| / C and an
independent Z ~ N(0, 1) the number y = a x_i + sqrt(1 - a^2) Z is N(0, 1) or N(a mu, 1). So the
known rest, plus sigma C times y g / |g| and independent noise orthogonal to g, has the law of the
step without or with the record. This is the same for every choice of i, so the outputs are a
function of x and of independent randomness. Epochs compose, also if later ones depend on earlier
ones (Zhu, Dong and Wang 2022). Random allocation was reduced to this pair by Feldman and Shenfeld
2025.

The ratio dP/dQ is the mean S of t ratios exp(mu x_i - mu^2 / 2), which are independent under Q. In
the direction "remove" delta(epsilon) is E_Q[(S - e^epsilon)_+], in the direction "add" E_Q[(1 -
e^epsilon S)_+]. Both are convex in S, and deltas of several epochs are convex in the S of each. So
a law of S that is larger (smaller) in the convex order gives an upper (lower) bound in both
directions. ``_mean_ratio`` has such laws.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from workbench.privacy._mean_ratio import mean_ratio
from workbench.privacy.known_loss import tilted
from workbench.privacy.sampled_gaussian import REACH

__all__ = ["AllocatedGaussian"]

# of a logarithm and of its place in a grid, relative to 1 + its size
_LOG_ROUNDING = 32 * float(np.finfo(float).eps)


@dataclass(frozen=True)
class AllocatedGaussian:
    """One epoch, as ``ComposedLoss`` takes it: a record enters one of t steps and moves its noised
    sum by mu deviations.

    :param steps: t >= 1 of an epoch.
    :param mu: sensitivity / noise standard deviation, in (0, 10].
    :param direction: "remove" or "add".
    :param released: how many of these t steps, r, are taken. The record has entered one of them
        with probability r / t, so the ratio is 1 - r / t + r / t S, with S of r steps.
    :param is_upper: whether losses are those of a law of S that is larger than the true one, for
        upper bounds, or smaller.
    :param reach: losses as rare as a normal's outcomes beyond this many standard deviations count
        as infinite in upper bounds, and as none in lower bounds.
    :param floor: smaller losses are raised to it; for "add".
    """

    steps: int
    mu: float
    direction: str
    released: int
    is_upper: bool = True
    reach: float = REACH
    floor: float = -math.inf

    def within(self, reach: float, floor: float = -math.inf) -> AllocatedGaussian:
        """The same step with another reach and floor."""
        return replace(self, reach=reach, floor=floor)

    @functools.cached_property
    def _atoms(self) -> tuple[np.ndarray, np.ndarray, float]:
        """(finite losses, ascending; their probabilities; probability of an infinite loss), all
        rounded to one side.

        Without errors of rounding, masses and ratios would be within constant factors of these (see
        ``MeanRatio``). The integrands of both directions grow by no more if masses grow by the
        factor of masses and that of ratios, and losses by the logarithm of the latter.
        """
        law = mean_ratio(self.released, self.mu, self.is_upper)
        logs, fraction = law.log_ratios(), self.released / self.steps
        if fraction < 1:
            inside = logs > -math.inf
            logs = np.where(
                inside,
                np.log1p(fraction * np.expm1(np.where(inside, logs, 0.0))),
                math.log1p(-fraction),
            )
        side = 1.0 if self.is_upper else -1.0
        slack = law.value_error + _LOG_ROUNDING * (
            1 + np.where(np.isfinite(logs), np.abs(logs), 0.0)
        )
        if self.direction == "remove":
            losses, masses = logs, law.masses * np.exp(logs)
            infinite = fraction * law.infinite
        else:
            losses, masses, infinite = -logs[::-1], law.masses[::-1], 0.0
            slack = slack[::-1]
        error = (
            law.mass_error
            + law.value_error
            + _LOG_ROUNDING * (1 + 2 * self.mu * REACH + self.mu**2)
        )
        factor = (1 - error) ** -side
        masses, infinite = masses * factor, infinite * factor
        finite = np.isfinite(losses)
        infinite += float(masses[losses == math.inf].sum())
        losses, masses = (losses + side * slack)[finite], masses[finite]
        return self._within_reach(losses, masses, infinite)

    def _within_reach(
        self, losses: np.ndarray, masses: np.ndarray, infinite: float
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Without the rarest losses: in an upper bound they are raised, in a lower one they are
        left out.
        """
        rare = float(ndtr(-self.reach))
        low = int(np.searchsorted(np.cumsum(masses), rare))
        high = max(len(masses) - int(np.searchsorted(np.cumsum(masses[::-1]), rare)), low + 1)
        retained, probabilities = losses[low:high], masses[low:high].copy()
        if not self.is_upper:
            return retained, probabilities, 0.0
        probabilities[0] += masses[:low].sum()
        return (
            np.maximum(retained, self.floor),
            probabilities,
            infinite + float(masses[high:].sum()),
        )

    def loss_limits(self) -> tuple[float, float]:
        """(smallest, largest) finite loss."""
        losses = self._atoms[0]
        return float(losses[0]), float(losses[-1])

    def cumulant(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt l)] and the mean and variance of the tilted loss, over the
        finite losses.
        """
        losses, masses, _ = self._atoms
        return tilted(losses, np.log(masses), tilt)

    def on_grid(self, width: float) -> tuple[int, np.ndarray, float]:
        """The loss distribution on multiples of ``width``: each loss is moved to the two ends of
        its cell.

        The shares keep the masses of both distributions, so this is a spread of S that keeps its
        mean.

        :return: (index of the first multiple, probabilities, probability of an infinite loss).
        """
        losses, masses, infinite = self._atoms
        cells = np.floor(losses / width).astype(np.int64)
        first = int(cells[0])
        up = masses * np.clip(np.expm1(cells * width - losses) / math.expm1(-width), 0.0, 1.0)
        size = int(cells[-1]) - first + 2
        cells = cells - first
        return (
            first,
            np.bincount(cells, masses - up, size) + np.bincount(cells + 1, up, size),
            infinite,
        )
