"""One step of the sampled Gaussian mechanism: its privacy loss, and the loss on a grid, as an upper
bound.

A step is a pair of outcome distributions P and Q on the line. Its privacy loss is l = log dP/dQ
under P. Between neighbouring points of a grid the masses of P and of Q are moved to the two ends,
in the only way that keeps both. delta(epsilon) is the mean of (1 - e^(epsilon - l))_+, convex in
e^-l, so by Jensen's inequality it can only grow (Doroshenko et al. 2022, "Connect the Dots").
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from workbench.privacy.known_loss import tilted

__all__ = ["REACH", "SampledGaussian", "gaussian_mass"]

# standard deviations beyond which outcomes count as an infinite loss: at most 2e-33 per step
REACH = 12.0
# of the quadrature that places grid and window; it decides how tight a bound is, never whether it
# holds
_NODES = 1201
_NARROW = 2e-3  # cells narrower than this many standard deviations are integrated by Taylor
_HUGE = 600.0  # losses whose exponential is near the largest float64


@dataclass(frozen=True)
class SampledGaussian:
    """One step: a record enters with probability q, and then moves the noised sum by mu standard
    deviations.

    :param sampling_rate: q in (0, 1].
    :param mu: sensitivity / noise standard deviation, > 0.
    :param direction: which pair of outcome distributions, up to scale and shift:
        "remove": P = (1 - q) N(0, 1) + q N(mu, 1) against Q = N(0, 1); "add": Q against P;
        "replace": the pair whose delta is the larger of the two at every epsilon, which dominates
        sampling without replacement under replace_one (Zhu, Dong and Wang 2022, Proposition 30):
        losses above 0 are those of "remove", losses below 0 those of "add", and the remaining
        probability has loss 0.
    :param reach: standard deviations beyond which outcomes count as an infinite loss.
    :param floor: smaller losses are raised to it; for "add".
    """

    sampling_rate: float
    mu: float
    direction: str
    reach: float = REACH
    floor: float = -math.inf

    def within(self, reach: float, floor: float = -math.inf) -> SampledGaussian:
        """The same step with another reach and floor."""
        return replace(self, reach=reach, floor=floor)

    def loss(self, outcome: Any) -> Any:
        """log of the density ratio of mixture and N(0, 1) at ``outcome``."""
        exponent = self.mu * outcome - self.mu**2 / 2
        if self.sampling_rate == 1:
            return exponent
        return np.logaddexp(
            math.log1p(-self.sampling_rate), math.log(self.sampling_rate) + exponent
        )

    def loss_limits(self) -> tuple[float, float]:
        """(smallest, largest) loss of the outcomes within reach."""
        low, high = float(self.loss(-self.reach)), float(self.loss(self.mu + self.reach))
        return {
            "remove": (low, high),
            "add": (max(-high, self.floor), -low),
            "replace": (-high, high),
        }[self.direction]

    @functools.cached_property
    def _quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """(losses, log weights): approximately the distribution of the loss, for placing grid and
        window only.
        """
        outcome = np.linspace(-self.reach, self.mu + self.reach, _NODES)
        losses = self.loss(outcome)
        log_absent = -(outcome**2) / 2
        log_present = -((outcome - self.mu) ** 2) / 2
        log_mixed = np.logaddexp(
            math.log1p(-self.sampling_rate) + log_absent
            if self.sampling_rate < 1
            else np.full(_NODES, -np.inf),
            math.log(self.sampling_rate) + log_present,
        )
        scale = math.log((outcome[1] - outcome[0]) / math.sqrt(2 * math.pi))
        if self.direction == "remove":
            return losses, log_mixed + scale
        if self.direction == "add":
            return np.maximum(-losses, self.floor), log_absent + scale
        # the node in the middle has loss 0, up to rounding: it is on neither side
        above = slice(_NODES // 2 + 1, None)
        weights = np.concatenate([log_mixed[above], log_absent[above]]) + scale
        remainder = max(1 - float(np.exp(weights).sum()), 1e-300)
        return np.concatenate([losses[above], -losses[above], [0.0]]), np.append(
            weights, math.log(remainder)
        )

    def cumulant(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt l)] and the mean and variance of the tilted loss, by quadrature."""
        return tilted(*self._quadrature, tilt)

    def on_grid(self, width: float) -> tuple[int, np.ndarray, float]:
        """The loss distribution on multiples of ``width``, as an upper bound.

        :return: (index of the first multiple, probabilities, probability of an infinite loss);
            together they are 1.
        """
        cells = _cells(self.sampling_rate, self.mu, self.reach, -self.floor, width)
        if self.direction == "remove":
            first = cells.first
            probabilities = _connected(cells.mixed, cells.absent, cells.error, first, width)
            probabilities[0] += cells.mixed_below  # smaller losses, moved up
            infinite = cells.mixed_above
        elif (
            self.direction == "add"
        ):  # the mirror image: losses change sign, and P and Q change places
            first = -(cells.first + len(cells.absent))
            probabilities = _connected(
                cells.absent[::-1], cells.mixed[::-1], cells.error[::-1], first, width
            )
            probabilities[0] += cells.absent_above
            infinite = cells.absent_below
        else:
            zero = -cells.first
            mixed, absent, error = cells.mixed[zero:], cells.absent[zero:], cells.error[zero:]
            first = -len(mixed)
            below = _connected(absent[::-1], mixed[::-1], error[::-1], first, width)
            below[0] += cells.absent_above
            probabilities = np.concatenate(
                [below[:-1], [0.0], _connected(mixed, absent, error, 0, width)[1:]]
            )
            infinite = cells.mixed_above
            probabilities[-first] = max(0.0, 1 - infinite - float(probabilities.sum()))
        return first, probabilities * ((1 - infinite) / float(probabilities.sum())), infinite


class _Cells(NamedTuple):
    """Masses where the loss log dP/dQ is between multiples ``first + i`` and ``first + i + 1`` of
    the width, and beyond.
    """

    first: int
    absent: np.ndarray  # of Q = N(0, 1)
    mixed: np.ndarray  # of the mixture P
    error: np.ndarray  # relative, of both
    absent_below: float
    mixed_below: float
    absent_above: float
    mixed_above: float


@functools.lru_cache(maxsize=8)
def _cells(q: float, mu: float, reach: float, ceiling: float, width: float) -> _Cells:
    step = SampledGaussian(q, mu, "remove")
    first = math.floor(step.loss(-reach) / width)
    losses = np.arange(first, math.ceil(min(step.loss(mu + reach), ceiling) / width) + 1) * width
    if q == 1:
        outcomes = losses / mu + mu / 2
        steps = np.full(len(losses) - 1, width / mu)
    else:
        # the outcome with loss l is log1p((e^l - 1) / q) / mu + mu / 2; no loss is below log(1 - q)
        ratio = np.expm1(np.minimum(losses, _HUGE)) / q
        reachable = ratio > -1
        logarithm = np.where(
            losses > _HUGE, losses - math.log(q), np.log1p(np.where(reachable, ratio, 0.0))
        )
        outcomes = np.where(reachable, logarithm / mu + mu / 2, -np.inf)
        if width < 1:  # a difference would give the width of narrow cells with too few digits
            growth = np.exp(losses - logarithm)[:-1] * (math.expm1(width) / q)
            steps = np.where(reachable[:-1], np.log1p(growth) / mu, np.inf)
        else:
            steps = np.diff(outcomes)
    absent, absent_error = gaussian_mass(outcomes, steps)
    present, present_error = gaussian_mass(outcomes - mu, steps)

    def mixed(absent: Any, present: Any) -> Any:
        return (1 - q) * absent + q * present

    low, high = float(outcomes[0]), float(outcomes[-1])
    return _Cells(
        first,
        absent,
        mixed(absent, present),
        np.maximum(absent_error, present_error),
        float(ndtr(low)),
        mixed(float(ndtr(low)), float(ndtr(low - mu))),
        float(ndtr(-high)),
        mixed(float(ndtr(-high)), float(ndtr(mu - high))),
    )


def gaussian_mass(ends: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(end_i < Z <= end_i + step_i), where end_i + step_i is end_(i+1) to rounding, and a bound on
    its relative error.
    """
    mass, error = np.empty_like(steps), np.empty_like(steps)
    precision = np.finfo(float).eps
    narrow = steps < _NARROW
    # Taylor around the middle: a difference of two distribution functions would lose the digits
    # that count
    width = steps[narrow]
    square, wide = (ends[:-1][narrow] + width / 2) ** 2, width**2
    series = 1 + wide / 24 * (square - 1) + wide**2 / 1920 * (square**2 - 6 * square + 3)
    mass[narrow] = np.exp(-square / 2) / math.sqrt(2 * math.pi) * width * series
    error[narrow] = precision * (8 + square)  # an exponential's error grows with its argument
    low, high = ends[:-1][~narrow], ends[1:][~narrow]
    side = np.where(high > 0, -1.0, 1.0)  # of the tail that the cell is in
    tails = ndtr(side * low), ndtr(side * high)
    difference = np.abs(tails[1] - tails[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        cancelled = np.where(difference > 0, 4 * precision * np.maximum(*tails) / difference, 0.0)
    mass[~narrow], error[~narrow] = difference, cancelled
    return mass, error


def _connected(
    mass: np.ndarray, reference_mass: np.ndarray, error: np.ndarray, first: int, width: float
) -> np.ndarray:
    """Probabilities at n + 1 multiples that keep the masses of P and Q in the n cells between them,
    rounded up.

    A cell's mass of P is split between its upper and lower end. Keeping the mass of Q as well fixes
    the upper share.
    """
    lower = (first + np.arange(len(mass))) * width
    above = mass - np.exp(np.minimum(lower, _HUGE)) * reference_mass
    excess = (above + error * mass) / -math.expm1(-width)
    up = np.where(lower > _HUGE, mass, np.clip(excess, 0.0, mass))
    points = np.zeros(len(mass) + 1)
    points[1:] += up
    points[:-1] += mass - up
    return points
