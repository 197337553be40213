"""Privacy loss distributions (PLD) of sampled Gaussian mechanisms and of their compositions, as upper bounds.

One step is a pair of outcome distributions P and Q on the line; its privacy loss is l = log dP/dQ under P. Between
neighbouring points of a grid the mass of P, and that of Q, is moved to the two ends in the only way that keeps both.
delta(epsilon) is the mean of (1 - e^(epsilon - l))_+, convex in e^-l, so by Jensen's inequality it can only grow
(Doroshenko et al. 2022, "Connect the Dots").

T steps are a T-fold convolution, here the T-th power of a discrete Fourier transform. Its rounding errors are about 1e-16
of the largest probability, where the tail that decides at delta = 1e-12 has far less: composed plainly, the bound can fall
below the truth (seen with dp-accounting 0.6 at sigma 50, q = 1, T = 10 000). So the distribution is tilted by e^(theta l)
first, theta such that the loss asked for is in the middle (Esscher's transform), and the rounding that remains, as well as
the mass beyond the window, is bounded and added.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import fft
from scipy.linalg import blas
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri_exp

__all__ = ["LARGEST_EPSILON", "ComposedLoss", "SampledGaussian"]

_REACH = 12.0  # standard deviations beyond which outcomes count as an infinite loss at most: 2e-33 a step
_NODES = 1201  # of the quadrature that places grid and window; it decides how tight a bound is, never whether it holds
_LARGEST = 2**20  # points of a grid at most
_OUTSIDE = 30.0  # -log of the share of what matters that may lie beyond each end of the window
_FFT_ERROR = 8 * np.finfo(float).eps  # of a transform of length n, times log2(n), relative to the sum of its entries
_NARROW = 2e-3  # cells of less than so many standard deviations are integrated by Taylor
_SUM_ERROR = 4 * np.finfo(float).eps  # of sums over a grid, times its length, relative to them
_STEP_ERROR = 64 * np.finfo(float).eps  # of one step's probabilities and of their moment, relative to them
_RAREST = 1e-35  # delta for which a window is still placed
_LAST_BITS = 1e-12  # by which, relatively, an epsilon grows first that was not confirmed
_TRIES = 12  # windows, each around the answer of the one before
_SAME_WINDOW = 0.01  # losses this close to each other, relatively, share a window
LARGEST_EPSILON = 1e5  # beyond it the bound is infinite
_MOST_PLACES = 2**60  # of a grid's points, which are counted by 64-bit integers
_HUGE = 600.0  # losses whose exponential is near the end of float64
_UNDERFLOW = 746.0  # e^-746 is 0 in float64, and so is all that is smaller

Phases = tuple[tuple["SampledGaussian", int], ...]


class _Grid(NamedTuple):
    """How fine a grid is: points at least, and points for a standard deviation of one step's (tilted) loss at least."""

    points: int
    per_deviation: float


_FINE, _COARSE = _Grid(2**16, 50.0), _Grid(2**13, 8.0)  # 50 add 1e-4 to the variance of a step


@dataclass(frozen=True)
class SampledGaussian:
    """One step: a record enters with probability q and then moves the noised sum by mu standard deviations.

    :param sampling_rate: q in (0, 1]. :param mu: sensitivity / noise standard deviation, > 0.
    :param direction: which pair of outcome distributions, up to scale and shift:
        "remove": P = (1 - q) N(0, 1) + q N(mu, 1) against Q = N(0, 1); "add": Q against P; "replace": the pair whose
        delta is the larger of both at every epsilon, as sampling without replacement has it under replace_one (Zhu, Dong
        and Wang 2022, Proposition 30): losses above 0 are those of "remove", losses below 0 those of "add", and what is
        left of the probability has loss 0.
    :param reach: standard deviations beyond which outcomes count as an infinite loss.
    :param floor: losses below it count as it; for "add".
    """

    sampling_rate: float
    mu: float
    direction: str
    reach: float = _REACH
    floor: float = -math.inf

    def loss(self, outcome: Any) -> Any:
        """log of the density ratio of mixture and N(0, 1) at ``outcome``."""
        exponent = self.mu * outcome - self.mu**2 / 2
        if self.sampling_rate == 1:
            return exponent
        return np.logaddexp(math.log1p(-self.sampling_rate), math.log(self.sampling_rate) + exponent)

    def loss_limits(self) -> tuple[float, float]:
        """(smallest, largest) loss of the outcomes within reach."""
        low, high = float(self.loss(-self.reach)), float(self.loss(self.mu + self.reach))
        return {"remove": (low, high), "add": (max(-high, self.floor), -low), "replace": (-high, high)}[self.direction]

    @functools.cached_property
    def _quadrature(self) -> tuple[np.ndarray, np.ndarray]:
        """(losses, log weights), nearly the distribution of the loss: for placing things only."""
        outcome = np.linspace(-self.reach, self.mu + self.reach, _NODES)
        losses = self.loss(outcome)
        log_absent = -(outcome**2) / 2
        log_present = -((outcome - self.mu) ** 2) / 2
        log_mixed = np.logaddexp(
            math.log1p(-self.sampling_rate) + log_absent if self.sampling_rate < 1 else np.full(_NODES, -np.inf),
            math.log(self.sampling_rate) + log_present,
        )
        scale = math.log((outcome[1] - outcome[0]) / math.sqrt(2 * math.pi))
        if self.direction == "remove":
            return losses, log_mixed + scale
        if self.direction == "add":
            return np.maximum(-losses, self.floor), log_absent + scale
        above = slice(_NODES // 2 + 1, None)  # the node in the middle has loss 0, up to rounding: it is on neither side
        weights = np.concatenate([log_mixed[above], log_absent[above]]) + scale
        rest = max(1 - float(np.exp(weights).sum()), 1e-300)
        return np.concatenate([losses[above], -losses[above], [0.0]]), np.append(weights, math.log(rest))

    def cumulant(self, tilt: float) -> tuple[float, float, float]:
        """log E[e^(tilt l)] and the mean and variance of the tilted loss, by quadrature."""
        losses, weights = self._quadrature
        exponents = weights + tilt * losses
        largest = float(exponents.max())
        share = np.exp(exponents - largest)
        total = float(share.sum())
        mean = float(share @ losses) / total
        return math.log(total) + largest, mean, float(share @ (losses - mean) ** 2) / total

    def on_grid(self, width: float) -> tuple[int, np.ndarray, float]:
        """The loss distribution on multiples of ``width``, as an upper bound.

        :return: (index of the first multiple, probabilities, probability of an infinite loss); together they are 1.
        """
        cells = _cells(self.sampling_rate, self.mu, self.reach, -self.floor, width)
        if self.direction == "remove":
            first = cells.first
            probabilities = _connected(cells.mixed, cells.absent, cells.error, first, width)
            probabilities[0] += cells.mixed_below  # a smaller loss, moved up
            infinite = cells.mixed_above
        elif self.direction == "add":  # the mirror image: losses change sign, P and Q places
            first = -(cells.first + len(cells.absent))
            probabilities = _connected(cells.absent[::-1], cells.mixed[::-1], cells.error[::-1], first, width)
            probabilities[0] += cells.absent_above
            infinite = cells.absent_below
        else:
            zero = -cells.first
            mixed, absent, error = cells.mixed[zero:], cells.absent[zero:], cells.error[zero:]
            first = -len(mixed)
            below = _connected(absent[::-1], mixed[::-1], error[::-1], first, width)
            below[0] += cells.absent_above
            probabilities = np.concatenate([below[:-1], [0.0], _connected(mixed, absent, error, 0, width)[1:]])
            infinite = cells.mixed_above
            probabilities[-first] = max(0.0, 1 - infinite - float(probabilities.sum()))
        return first, probabilities * ((1 - infinite) / float(probabilities.sum())), infinite


class _Cells(NamedTuple):
    """Masses where the loss log dP/dQ is between multiples ``first + i`` and ``first + i + 1`` of the width, and beyond."""

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
        share = np.expm1(np.minimum(losses, _HUGE)) / q
        reachable = share > -1
        logarithm = np.where(losses > _HUGE, losses - math.log(q), np.log1p(np.where(reachable, share, 0.0)))
        outcomes = np.where(reachable, logarithm / mu + mu / 2, -np.inf)
        if width < 1:  # narrow cells need their own width more exactly than as a difference
            growth = np.exp(losses - logarithm)[:-1] * (math.expm1(width) / q)
            steps = np.where(reachable[:-1], np.log1p(growth) / mu, np.inf)
        else:
            steps = np.diff(outcomes)
    absent, absent_error = _gaussian_mass(outcomes, steps)
    present, present_error = _gaussian_mass(outcomes - mu, steps)

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


def _gaussian_mass(ends: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """P(end_i < Z <= end_i + step_i), where end_i + step_i is end_(i+1) to rounding, and a bound on its relative error."""
    narrow = steps < _NARROW
    width = np.where(narrow, steps, 0.0)
    middle = np.where(narrow, ends[:-1] + width / 2, 0.0)
    # Taylor around the middle, where a difference of two distribution functions would lose the digits that count
    square, wide = middle**2, width**2
    series = 1 + wide / 24 * (square - 1) + wide**2 / 1920 * (square**2 - 6 * square + 3)
    taylor = np.exp(-square / 2) / math.sqrt(2 * math.pi) * width * series
    side = np.where(ends[1:] > 0, -1.0, 1.0)  # in the tail that the cell is in
    tails = ndtr(side * ends[:-1]), ndtr(side * ends[1:])
    difference = np.abs(tails[1] - tails[0])
    precision = np.finfo(float).eps
    with np.errstate(divide="ignore", invalid="ignore"):
        cancelled = np.where(difference > 0, 4 * precision * np.maximum(*tails) / difference, 0.0)
    # an exponential's error grows with its argument
    return np.where(narrow, taylor, difference), np.where(narrow, precision * (8 + square), cancelled)


def _connected(mass: np.ndarray, other: np.ndarray, error: np.ndarray, first: int, width: float) -> np.ndarray:
    """Probabilities at n + 1 multiples that keep the masses of P and Q in the n cells between them, rounding up.

    A cell's mass of P splits into what goes up and down; keeping that of Q too fixes the share that goes up.
    """
    lower = (first + np.arange(len(mass))) * width
    above = mass - np.exp(np.minimum(lower, _HUGE)) * other
    share = (above + error * mass) / -math.expm1(-width)
    up = np.where(lower > _HUGE, mass, np.clip(share, 0.0, mass))
    points = np.zeros(len(mass) + 1)
    points[1:] += up
    points[:-1] += mass - up
    return points


@dataclass(frozen=True)
class _GridStep:
    """One phase on a grid: its probabilities at multiples ``first``, ``first + 1``, ... of ``width``."""

    first: int
    width: float
    probabilities: np.ndarray
    infinite: float
    count: int
    tilted: np.ndarray

    @classmethod
    def of(cls, step: SampledGaussian, count: int, width: float, tilt: float) -> _GridStep:
        first, probabilities, infinite = step.on_grid(width)
        exponents = tilt * (first + np.arange(len(probabilities))) * width
        weights = probabilities * np.exp(exponents - exponents.max())
        return cls(first, width, probabilities, infinite, count, weights / weights.sum())

    def log_moment(self, tilt: float) -> float:
        """log E[e^(tilt l)] of all repetitions, rounded up."""
        exponents = tilt * (self.first + np.arange(len(self.probabilities))) * self.width
        largest = float(exponents.max())
        moment = math.log(float((self.probabilities * np.exp(exponents - largest)).sum())) + largest
        return self.count * (moment + _STEP_ERROR * (1 + abs(largest)))


@dataclass(frozen=True)
class _Window:
    """Upper bounds of a composed loss distribution around the losses that matter.

    Below its first loss a window knows no probabilities; there delta is bounded by its convexity in e^epsilon alone.

    :param losses: ascending, ``width`` apart. :param probabilities: at them.
    :param elsewhere: probability of larger losses, and infinite.
    """

    losses: np.ndarray
    width: float
    probabilities: np.ndarray
    elsewhere: float

    @functools.cached_property
    def _sums(self) -> tuple[np.ndarray, np.ndarray]:
        """For each place, from there on, the sums of p and of p e^(loss there - loss), rounded to the safe side."""
        backwards = self.probabilities[::-1]
        total = np.cumsum(backwards)[::-1]
        # a[i] = p[i] + e^-width a[i - 1]: a triangular system of two diagonals
        diagonals = np.array([[1.0], [-math.exp(-self.width)]]).repeat(len(backwards), axis=1)
        discounted = blas.dtbsv(1, np.asfortranarray(diagonals), backwards, lower=1, diag=1)[::-1]
        error = _SUM_ERROR * (len(backwards) + float(np.abs(self.losses[[0, -1]]).max()))
        return total * (1 + error), discounted * (1 - error)

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at ``epsilon``."""
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at many epsilons."""
        total, discounted = self._sums
        place = np.searchsorted(self.losses, epsilons, side="right")
        inside = np.minimum(place, len(self.losses) - 1)
        share = total[inside] - np.exp(np.minimum(epsilons - self.losses[inside], 0.0)) * discounted[inside]
        deltas = np.minimum(1.0, self.elsewhere + np.where(place < len(self.losses), share, 0.0))
        # as if all that is not in the window had its first loss: a chord of delta, which is 1 where e^epsilon is 0
        first = min(1.0, self.elsewhere + float(total[0] - discounted[0]))
        chord = first - (1 - first) * np.expm1(np.minimum(epsilons - self.losses[0], 0.0))
        return np.where(epsilons < self.losses[0], chord, deltas)

    def epsilon(self, delta: float) -> float:
        """An epsilon with delta(epsilon) <= delta, the smallest from the first loss on; infinite if there is none."""
        left = delta - self.elsewhere
        total, discounted = self._sums
        if not (left >= 0 and np.isfinite(total[0])):
            return math.inf
        kept = np.append((total - discounted)[:-1] <= left, True)  # beyond the last loss only `elsewhere` is left
        place = int(np.argmax(kept))
        if place == 0:
            return float(self.losses[0])
        if total[place] <= left or discounted[place] == 0:
            return float(self.losses[place - 1])
        exact = float(self.losses[place]) + math.log((total[place] - left) / discounted[place])
        return min(max(exact, float(self.losses[place - 1])), float(self.losses[place]))


# of steps that hide next to nothing, whose losses no grid holds: delta is 1, and no epsilon holds
_NOTHING_KNOWN = _Window(np.array([0.0, 1.0]), 1.0, np.zeros(2), 1.0)


@dataclass(frozen=True)
class ComposedLoss:
    """The privacy loss of independent steps in a row, in one direction; answers are upper bounds.

    :param phases: (step, number of repetitions >= 1) pairs. :param coarse: quicker and a little higher.
    """

    phases: Phases
    coarse: bool = False

    @property
    def _steps(self) -> int:
        return sum(count for _, count in self.phases)

    def _cumulant(self, tilt: float) -> tuple[float, float, float]:
        rows = [(count, step.cumulant(tilt)) for step, count in self.phases]
        total, mean, variance = (sum(count * row[place] for count, row in rows) for place in range(3))
        return total, mean, variance

    def _tilt_for(self, epsilon: float) -> float:
        """The tilt >= 0 under which the mean loss is ``epsilon`` (0 where it is larger anyway)."""
        _, mean, variance = self._cumulant(0.0)
        if mean >= epsilon or variance == 0:
            return 0.0
        # the mean may jump from the bulk to rare large losses within a factor of 1.1, anywhere over many powers of ten
        high = 10 * (epsilon - mean) / variance
        low = min(1e-3, high / 10)
        for _ in range(30):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._cumulant(middle)[1] < epsilon else (low, middle)
        return low

    def _chernoff(self, delta: float) -> float:
        """About how large epsilon is at ``delta``: min over tilts of (log E[e^(tilt l)] + log 1/delta) / tilt."""
        _, mean, variance = self._cumulant(0.0)
        largest = math.sqrt(-2 * math.log(delta) / max(variance, 1e-300))

        def value(log_tilt: float) -> float:
            return (self._cumulant(math.exp(log_tilt))[0] - math.log(delta)) / math.exp(log_tilt)

        # two scales: that of the bulk, and of the rare large losses that small sampling rates bring
        ends = (math.log(min(largest, 1.0)) - 5, math.log(largest) + 3)
        places = np.linspace(*ends, 25)
        best = int(np.argmin([value(place) for place in places]))
        around = (places[max(best - 1, 0)], places[min(best + 1, 24)])
        found = minimize_scalar(value, bounds=around, method="bounded", options={"xatol": 0.05})
        return max(self._attainable(float(found.fun)), mean, 0.0)

    def _attainable(self, near: float) -> float:
        """``near``, or a little less than the largest loss: no tilt could make the mean larger."""
        return min(near, 0.98 * sum(count * step.loss_limits()[1] for step, count in self.phases))

    def _within_reach(self, near: float) -> ComposedLoss:
        """The same steps with outcomes cut where all that is beyond cannot matter to delta(near).

        Heavy upper tails, as small sampling rates have them, would otherwise dominate the tilted distribution.
        """
        tilt = self._tilt_for(near)
        log_delta = min(self._cumulant(tilt)[0] - tilt * near, 0.0)
        reach = min(-float(ndtri_exp(log_delta - _OUTSIDE - math.log(self._steps))), _REACH)
        phases = tuple((replace(step, reach=reach), count) for step, count in self.phases)
        if all(step.direction == "add" for step, _ in phases):
            # a step with a loss below minus all that the others can gain never counts at an epsilon >= 0, however low it is
            floor = -3 * sum(count * step.loss_limits()[1] for step, count in phases)
            phases = tuple((replace(step, floor=floor), count) for step, count in phases)
        return replace(self, phases=phases)

    def _window(self, near: float) -> _Window:
        """The composed distribution around the loss ``near``: one window for all losses about as large."""
        if near > 0:
            near = math.exp(round(math.log(near) / _SAME_WINDOW) * _SAME_WINDOW)
        return _window(self, self._attainable(near))

    def _around(self, near: float) -> _Window:
        """The composed distribution around the loss ``near``, which a tilt makes the mean of the loss if it is larger."""
        tilt = self._tilt_for(near)
        log_moment, mean, variance = self._cumulant(tilt)
        near = max(near, mean)
        deviation = math.sqrt(max(variance, 1e-300))

        # the bulk of the steps has to be resolved as well as the losses that the tilt brings up
        scale = min(variance / self._steps, self._cumulant(0.0)[2] / self._steps * 25)
        grid = _COARSE if self.coarse else _FINE
        width = min(math.sqrt(max(scale, 1e-300)) / grid.per_deviation, deviation * 16 / grid.points)
        width = max(width, max(sum(map(abs, step.loss_limits())) for step, _ in self.phases) / _LARGEST)
        for _ in range(8):  # should it still be too large then, what lies outside is folded into it, which only adds
            rounded = math.sqrt(variance + self._steps * width * min(width, deviation))
            shifts = [pull / rounded for pull in (0.3, 1.0, 2.0, 4.0, 6.0, 10.0)]

            def bound(shift: float, width: float = width) -> float:
                """By Chernoff: the loss beyond which, on the side of ``shift``, the tilted probability is below e^-30."""
                pull = abs(shift) + tilt + 1
                rounding = self._steps * (pull * width) ** 2 / 8 * math.exp(min(pull * width, 1.0))
                return (self._cumulant(tilt + shift)[0] - log_moment + rounding + _OUTSIDE) / shift

            high, shift = min((bound(shift), shift) for shift in shifts)
            lowest = max(bound(-shift) for shift in shifts) / width
            if not (abs(lowest) < _MOST_PLACES and math.isfinite(high)):
                return _NOTHING_KNOWN
            first = math.floor(lowest)
            needed = high / width - first + 2
            if needed <= 2 * _LARGEST:
                break
            width *= min(1.5 * needed / _LARGEST, 100.0)
        size = fft.next_fast_len(math.ceil(min(max(needed, 16), 2 * _LARGEST)), real=True)

        steps = [_GridStep.of(step, count, width, tilt) for step, count in self.phases]
        log_moment = sum(step.log_moment(tilt) for step in steps)
        spectrum = np.ones(size // 2 + 1, np.complex128)
        error = float(_FFT_ERROR * math.log2(size))  # of each entry of a transform
        sensitivity = np.ones(size // 2 + 1)  # how much such errors, those of the last transform too, move the product,
        most = np.zeros(size // 2 + 1)  # relatively, and the logarithm of what they make of it at most
        for step in steps:
            folded = np.bincount(np.arange(len(step.tilted)) % size, weights=step.tilted, minlength=size)
            transform = fft.rfft(folded)
            magnitude = np.abs(transform)
            # a complex power is slow, and of many steps most are smaller than any float64 but 0
            some = magnitude > math.exp(-_UNDERFLOW / step.count)
            spectrum[some] *= transform[some] ** step.count
            spectrum[~some] = 0.0
            most += step.count * np.log(magnitude + error)
            sensitivity += step.count / np.maximum(magnitude, error)
        error = float(np.mean(np.exp(most) * np.minimum(error * sensitivity, 1.0)))
        offset = sum(step.count * step.first for step in steps)
        if abs(offset) > _MOST_PLACES:
            return _NOTHING_KNOWN
        indices = first + np.arange(size)
        composed = np.maximum(fft.irfft(spectrum, size)[(indices - offset) % size] + error, 0.0)
        losses = indices * width
        with np.errstate(divide="ignore", over="ignore"):
            probabilities = np.minimum(np.exp(np.log(composed) + log_moment - tilt * losses), 1.0)
        beyond = sum(step.log_moment(tilt + shift) for step in steps) - (tilt + shift) * float(losses[-1])
        infinite = sum(step.count * step.infinite for step in steps)
        return _Window(losses, width, probabilities, infinite + math.exp(min(beyond, 0.0)))

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at ``epsilon`` >= 0; never below what lies beyond the reach, about 1e-33 a step."""
        return self._window(min(epsilon, self._chernoff(_RAREST))).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta`` in (0, 1); infinite above 1e5, or if lost outcomes are likelier than delta.

        What is returned was confirmed by the window around it: ``delta`` of it is at most ``delta``.
        """
        quick = replace(self, coarse=True)
        best, near = math.inf, self._chernoff(delta)
        if near > LARGEST_EPSILON:
            return math.inf
        for _ in range(_TRIES):
            value = max(quick._window(near).epsilon(delta), 0.0)
            spec = abs(value - near) <= 0.05 * abs(near)
            best = min(best, value)
            near = min(value, near) if math.isfinite(value) else near / 2
            if spec:
                break
        if not self.coarse:
            best = min(best, max(self._window(near).epsilon(delta), 0.0))
        return self._confirmed(best, delta)

    def _confirmed(self, epsilon: float, delta: float) -> float:
        """``epsilon``, or a larger one if that is needed for the window around it to show ``delta``."""
        growth = _LAST_BITS
        for _ in range(_TRIES):
            if not epsilon <= LARGEST_EPSILON:
                break
            window = self._window(epsilon)
            if window.delta(epsilon) <= delta:
                return epsilon
            # by more each time: a change in the last bits may be less than e^epsilon resolves
            epsilon = max(window.epsilon(delta), epsilon) * (1 + growth) + growth * window.width
            growth *= 10
        return math.inf

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """``delta`` at many epsilons at once, float[n], accurate to about 1e-8 (not relatively, in the far tail)."""
        return self._window(0.0).deltas(epsilons)


@functools.lru_cache(maxsize=1)  # an answer is mostly confirmed by the window that gave it
def _window(loss: ComposedLoss, near: float) -> _Window:
    return loss._within_reach(near)._around(near)
