"""A privacy loss of which only upper bounds on delta are known, as a step that composes.

delta, as a function of e^epsilon, is convex, and 1 at 0. So it is at most the lower convex hull of
points that bound it, and the hull is the delta of a loss with finitely many values. What has this
loss dominates what the points came from (Blackwell's theorem), so it may stand for it in a
composition. The two directions of a pair of neighbours are tied: delta at -epsilon is 1 -
e^-epsilon (1 - delta of the other direction at epsilon).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from scipy.special import ndtr

__all__ = ["KnownLoss", "Profile", "tilted"]

Profile: TypeAlias = Callable[[np.ndarray], np.ndarray]  # delta at epsilons >= 0

_EPSILONS = np.geomspace(1e-3, 40.0, 2000)
_NEGLIGIBLE = 1e-18  # probability of the smallest losses, which are raised


@dataclass(frozen=True, eq=False)
class KnownLoss:
    """One release, by the upper bounds on its delta.

    :param losses: ascending. :param probabilities: of these.
    :param infinite: the probability of an infinite loss.
    """

    losses: np.ndarray
    probabilities: np.ndarray
    infinite: float
    direction: ClassVar[str] = "either"

    @classmethod
    def of(cls, forward: Profile, backward: Profile) -> KnownLoss:
        """The loss under P of a pair (P, Q).

        :param forward: bounds delta of P against Q. :param backward: of Q against P.
        """
        shrink = np.exp(-_EPSILONS)
        at_zero = np.minimum(forward(np.zeros(1)), backward(np.zeros(1)))
        below = (1 - shrink * (1 - backward(_EPSILONS)))[::-1]
        powers = np.concatenate([[0.0], shrink[::-1], [1.0], np.exp(_EPSILONS)])
        deltas = np.concatenate([[1.0], below, at_zero, forward(_EPSILONS)])
        corners = _lower_hull(powers, np.minimum(deltas, 1.0))
        slopes = np.append(np.diff(deltas[corners]) / np.diff(powers[corners]), 0.0)
        probabilities = powers[corners][1:] * np.maximum(np.diff(slopes), 0.0)
        losses = np.log(powers[corners][1:])
        first = int(np.argmax(np.cumsum(probabilities) > _NEGLIGIBLE))
        probabilities[first] = probabilities[: first + 1].sum()
        probabilities = probabilities[first:]
        infinite = float(deltas[corners][-1])
        if not probabilities.sum() > 0:  # nothing is known
            return cls(np.zeros(1), np.full(1, _NEGLIGIBLE), 1.0)
        scale = (1 - infinite) / float(probabilities.sum())
        return cls(losses[first:], probabilities * scale, infinite)

    def within(self, reach: float, floor: float = -math.inf) -> KnownLoss:
        """The same release, with the largest losses infinite that are as rare as a normal's
        outcomes beyond ``reach``. :param floor: of no use here.
        """
        rarer = np.cumsum(self.probabilities[::-1])[::-1] <= ndtr(-reach)
        if not rarer.any():
            return self
        infinite = self.infinite + float(self.probabilities[rarer].sum())
        return KnownLoss(self.losses[~rarer], self.probabilities[~rarer], infinite)

    def loss_limits(self) -> tuple[float, float]:
        """(smallest, largest) finite loss."""
        return float(self.losses[0]), float(self.losses[-1])

    def cumulant(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt l)] and the mean and variance of the tilted loss."""
        with np.errstate(divide="ignore"):
            return tilted(self.losses, np.log(self.probabilities), tilt)

    def on_grid(self, width: float) -> tuple[int, np.ndarray, float]:
        """The loss on multiples of ``width``, as an upper bound.

        A probability is split between the two multiples around its loss, so that that of Q stays
        the same too.

        :return: (index of the first multiple, probabilities, probability of an infinite loss).
        """
        cells = np.floor(self.losses / width).astype(np.int64)
        above = -np.expm1(cells * width - self.losses) / -math.expm1(-width)
        up = self.probabilities * np.clip(above, 0.0, 1.0)
        first, size = int(cells[0]), int(cells[-1] - cells[0]) + 2
        points = np.bincount(cells - first + 1, weights=up, minlength=size)
        points += np.bincount(cells - first, weights=self.probabilities - up, minlength=size)
        return first, points, self.infinite


def _lower_hull(x: np.ndarray, y: np.ndarray) -> list[int]:
    """Indices of the corners of the lower convex hull of points with ascending x."""
    corners: list[int] = []
    for index in range(len(x)):
        while len(corners) > 1:
            before, last = corners[-2:]
            rise = (y[last] - y[before]) * (x[index] - x[last])
            if rise < (y[index] - y[last]) * (x[last] - x[before]):
                break
            corners.pop()
        corners.append(index)
    return corners


def tilted(losses: np.ndarray, log_masses: np.ndarray, tilt: float) -> tuple[float, float, float]:
    """log E[e^(tilt l)] and the mean and variance of the tilted loss, of one on a few points.

    :param losses: float[n]. :param log_masses: float[n].
    """
    exponents = log_masses + tilt * losses
    largest = float(exponents.max())
    weights = np.exp(exponents - largest)
    total = float(weights.sum())
    mean = float(weights @ losses) / total
    return math.log(total) + largest, mean, float(weights @ (losses - mean) ** 2) / total
