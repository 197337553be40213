"""A second opinion on the accountant: lower bounds on a plan's delta and epsilon, from an exactly
computed attack.

The attacker uses the simplest data sets: only the canary moves the noised sum. One step is then a
pair of distributions on a line, P with the canary and Q without it (or with its opposite), both
normal mixtures. A bound for this pair is a lower bound for the plan. The code shares nothing with
the accountant, which bounds the same quantity from above.

Merging outcomes can only weaken the attacker (data processing), so the bound remains a lower bound.
Outcomes are merged until their losses log P/Q are whole multiples of a width. Such losses add up
exactly over the steps, on a grid, and T steps are the T-th power of a discrete Fourier transform.
The distribution is first tilted by e^(theta loss), which moves the decisive losses to the middle of
the grid. What rounding and the ends of the grid could add is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy.optimize import brentq
from scipy.special import ndtr

__all__ = ["delta_lower_bound", "epsilon_lower_bound"]

_REACH = 9.0  # standard deviations beyond which outcomes are merged into one
_PER_DEVIATION = 10  # grid points per standard deviation of one step's loss
_MOST_OUTCOMES = 10**5  # grid points, at most
_PER_POINT = 4  # outcomes per grid point before merging
_LARGEST = 2**22  # points of a window
_WINDOW = 14.0  # standard deviations on each side of the window's middle
_SLACK = 1e-11  # error of a loss, from rounding in its two probabilities
_LARGEST_EPSILON = 200.0


_EPOCHS: dict[str, Callable[[float], int]] = {  # how many steps an epoch has
    "shuffle": lambda rate: max(1, math.floor((1 + 1e-12) / rate)),
    "random_allocation": lambda rate: max(1, math.floor(1 / rate + 0.5)),
}


class _Step(NamedTuple):
    """P = (1 - q) N(0, 1) + q N(there, 1), and Q likewise with ``instead`` < ``there``. The loss
    increases.
    """

    rate: float
    there: float
    instead: float

    def loss(self, outcome: np.ndarray) -> np.ndarray:
        """log dP/dQ."""
        terms = []
        for mean in (self.there, self.instead):
            exponent = mean * outcome - mean**2 / 2
            out = math.log1p(-self.rate) if self.rate < 1 else -math.inf
            terms.append(np.logaddexp(out, math.log(self.rate) + exponent))
        return terms[0] - terms[1]

    def masses(self, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities under P and Q between the edges and beyond them."""
        ends = np.concatenate([[-np.inf], edges, [np.inf]])

        def normal(mean: float) -> np.ndarray:
            low, high = ends[:-1] - mean, ends[1:] - mean
            # the nearer tail loses no digits
            return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))

        absent = (1 - self.rate) * normal(0.0)
        return absent + self.rate * normal(self.there), absent + self.rate * normal(self.instead)


class _Losses(NamedTuple):
    """One step's loss under P: multiples of ``width`` and their probabilities."""

    width: float
    multiples: np.ndarray
    probabilities: np.ndarray

    def cumulant(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt loss)], and the mean and variance of the tilted loss."""
        losses = self.multiples * self.width
        exponents = tilt * losses + np.log(self.probabilities)
        largest = float(exponents.max())
        tilted = np.exp(exponents - largest)
        total = float(tilted.sum())
        mean = float(tilted @ losses) / total
        return largest + math.log(total), mean, float(tilted @ (losses - mean) ** 2) / total


def _merged(step: _Step) -> _Losses:
    """Merge a step's outcomes, from small losses to large ones, until each loss is a multiple of
    the width.
    """
    low, high = min(0.0, step.instead) - _REACH, max(0.0, step.there) + _REACH
    outcomes = np.linspace(low, high, 400_001)
    losses = step.loss(outcomes)
    weights = np.exp(-((outcomes - step.there) ** 2) / 2) * step.rate + np.exp(
        -(outcomes**2) / 2
    ) * (1 - step.rate)
    mean = float(weights @ losses) / float(weights.sum())
    deviation = math.sqrt(float(weights @ (losses - mean) ** 2) / float(weights.sum()))
    reach = float(losses[-1] - losses[0])
    width = max(deviation / _PER_DEVIATION, reach / _MOST_OUTCOMES)
    edges = np.interp(np.arange(losses[0], losses[-1], width / _PER_POINT), losses, outcomes)
    with_it, without = step.masses(np.unique(edges))
    masses: dict[int, float] = {}
    multiple, held_p, held_q = -(10**18), 0.0, 0.0
    for p, q in zip(with_it.tolist(), without.tolist(), strict=True):
        while p > 0 and q > 0:
            ratio = math.exp(multiple * width) if abs(multiple) < 10**17 else 0.0
            if (
                held_q == 0.0 and p > ratio * q
            ):  # nothing is held, and this loss is already above the target
                multiple = math.ceil(math.log(p / q) / width - 1e-9)
                ratio = math.exp(multiple * width)
            excess = p - ratio * q
            fraction = (ratio * held_q - held_p) / excess if excess > 0 else math.inf
            if fraction > 1:
                held_p, held_q = held_p + p, held_q + q
                break
            masses[multiple] = masses.get(multiple, 0.0) + held_p + fraction * p
            p, q = (1 - fraction) * p, (1 - fraction) * q
            multiple, held_p, held_q = multiple + 1, 0.0, 0.0
    if held_p > 0:  # rounded down, which only weakens the attack
        last = math.floor(math.log(held_p / held_q) / width)
        masses[last] = masses.get(last, 0.0) + held_p
    multiples = np.array(sorted(masses))
    probabilities = np.array([masses[multiple] for multiple in multiples])
    return _Losses(width, multiples[probabilities > 0], probabilities[probabilities > 0])


def _composed_delta(losses: _Losses, steps: int, epsilon: float) -> float:
    """A lower bound on delta(epsilon) after ``steps`` steps. It may be below 0 and then says
    nothing.
    """
    epsilon += steps * _SLACK
    if steps * losses.multiples[-1] * losses.width <= epsilon:
        return 0.0  # no loss is above epsilon
    tilt = _tilt(losses, epsilon / steps)
    log_mean, mean, variance = losses.cumulant(tilt)
    multiples, width = losses.multiples, losses.width
    variance = max(variance, width**2)  # it only sets the window's size
    tilted = np.exp(tilt * multiples * width + np.log(losses.probabilities) - log_mean)
    middle = round(steps * mean / width)
    needed = 2 * _WINDOW * math.sqrt(steps * variance) / width + float(multiples[-1] - multiples[0])
    points = 2 ** min(math.ceil(math.log2(max(needed, 64))), int(math.log2(_LARGEST)))
    wrapped = np.bincount(multiples % points, weights=tilted, minlength=points)
    spectrum = fft.rfft(wrapped)
    composed = fft.irfft(spectrum**steps, points)
    window = middle - points // 2 + np.arange(points)
    decisive = window * width > epsilon
    window = window[decisive]
    beyond = window * width - epsilon
    total = float(composed[window % points] @ (np.exp(-tilt * beyond) * -np.expm1(-beyond)))
    # subtract the errors of the transform and its power in every entry, and the mass that wrapped
    # around the window
    rounding = 4 * np.finfo(float).eps * math.log2(points)
    entry = rounding * (1 + steps * 2 * float(np.sum(np.abs(spectrum) ** (steps - 1))) / points)
    total -= entry * (min(points, 1 / (tilt * width)) if tilt > 0 else points)
    total -= _beyond(losses, steps, tilt, mean, variance, points * width / 2 - width)
    return total * math.exp(min(0.0, steps * log_mean - tilt * epsilon))


def _tilt(losses: _Losses, target: float) -> float:
    """theta >= 0 that makes one step's tilted mean loss ``target``; 0 if the mean is larger without
    tilting.
    """
    if losses.cumulant(0.0)[1] >= target:
        return 0.0
    high = 1.0
    while losses.cumulant(high)[1] < target:
        high *= 2
        if high > 1e6:  # the mean is almost exactly the largest loss
            return high
    return float(brentq(lambda tilt: losses.cumulant(tilt)[1] - target, 0.0, high, rtol=1e-6))


def _beyond(
    losses: _Losses, steps: int, tilt: float, mean: float, variance: float, distance: float
) -> float:
    """Chernoff's bound on the tilted probability that the total loss is further than ``distance``
    from its mean.
    """
    start = losses.cumulant(tilt)[0]
    total = 0.0
    for sign in (1, -1):
        slopes = sign * distance / (steps * variance) * np.geomspace(1e-4, 1, 9)
        exponents = [
            steps * (losses.cumulant(tilt + u)[0] - start - u * mean) - abs(u) * distance
            for u in slopes
        ]
        total += math.exp(min(0.0, *exponents))
    return total


def _steps(
    sampler: str, relation: str, sampling_rate: float, noise_multiplier: float, steps: int
) -> tuple[list[_Step], int]:
    """The attacker's pairs, one for each direction, and how often they are composed.

    T steps of a Gaussian mechanism are equivalent to one. The attacker adds up all noised sums of
    an epoch, and so does not need to know the order of shuffled records, or the step that a record
    was allocated to. An incomplete epoch is left out.
    """
    if sampler not in (*_EPOCHS, "poisson", "without_replacement"):
        raise NotImplementedError(f"no attack on the sampler {sampler!r} is written here")
    unit = 1 / noise_multiplier
    sensitivity = 2.0 if relation == "replace_one" else 1.0
    if sampler in _EPOCHS or sampling_rate == 1:
        epoch = _EPOCHS[sampler](sampling_rate) if sampler in _EPOCHS else 1
        shift = sensitivity * unit * math.sqrt(steps // epoch / epoch)
        return ([_Step(1.0, shift, 0.0)] if shift > 0 else []), 1
    if relation == "replace_one":
        # all other gradients are 0, or all are opposite to the canary's, so that only minibatches
        # with the canary differ
        return [
            _Step(sampling_rate, unit, -unit),
            _Step(sampling_rate, 2 * unit, 0.0),
            _Step(sampling_rate, 0.0, -2 * unit),
        ], steps
    return [_Step(sampling_rate, unit, 0.0), _Step(sampling_rate, 0.0, -unit)], steps


def delta_lower_bound(
    *,
    sampler: str,
    relation: str,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
) -> float:
    """A delta >= 0 below which none holds at ``epsilon``. The arguments are those of
    ``privacy.delta`` for one phase.
    """
    pairs, count = _steps(sampler, relation, sampling_rate, noise_multiplier, steps)
    return max([0.0, *(_composed_delta(_merged(pair), count, epsilon) for pair in pairs)])


def epsilon_lower_bound(
    *,
    sampler: str,
    relation: str,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
) -> float:
    """An epsilon >= 0 below which none holds at ``delta``. The arguments are those of
    ``privacy.epsilon`` for one phase.
    """
    best = 0.0
    pairs, count = _steps(sampler, relation, sampling_rate, noise_multiplier, steps)
    for pair in pairs:
        losses = _merged(pair)
        low, high = best, 1.0
        if _composed_delta(losses, count, low) <= delta:
            continue
        while high < _LARGEST_EPSILON and _composed_delta(losses, count, high) > delta:
            low, high = high, 2 * high
        for _ in range(20):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if _composed_delta(losses, count, middle) > delta else (low, middle)
            )
        best = low
    return best
