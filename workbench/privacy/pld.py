"""Privacy loss distributions (PLD) of compositions of sampled Gaussian mechanisms, as upper bounds.

T steps are a T-fold convolution, computed as the T-th power of a discrete Fourier transform. Its
rounding errors are about 1e-16 of the largest probability, but the tail that decides at delta =
1e-12 is much smaller. Without further care the bound can fall below the truth (seen with
dp-accounting 0.6 at sigma 50, q = 1, T = 10 000). So the distribution is first tilted by e^(theta
l), with theta such that the loss asked for is in the middle (Esscher's transform). The remaining
rounding error and the mass beyond the window are bounded and added.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import fft
from scipy.special import ndtri_exp

from workbench._lazy import optimize
from workbench.privacy._windows import Grid, GridStep, Step, Window, convolved
from workbench.privacy.sampled_gaussian import REACH

__all__ = ["LARGEST_EPSILON", "ComposedLoss"]

_LARGEST = 2**20  # points of a grid, at most
_OUTSIDE = 30.0  # -log of the share of the relevant mass that may be beyond each end of the window
_RAREST = 1e-35  # the smallest delta for which a window is placed
_LAST_BITS = 1e-12  # the first relative increase of an epsilon that was not confirmed
_TRIES = 12  # windows, each around the answer of the one before
_SAME_WINDOW = 0.01  # losses this close to each other, relatively, share a window
LARGEST_EPSILON = 1e5  # beyond it the bound is infinite
_MOST_PLACES = 2**60  # largest index of a grid point, which is a 64-bit integer

Phases = tuple[tuple[Step, int], ...]

_FINE, _COARSE = Grid(2**16, 50.0), Grid(2**13, 8.0)  # 50 add 1e-4 to the variance of a step


class _Place(NamedTuple):
    """Where a window lies: multiples ``first`` .. ``first + size - 1`` of ``width``; ``shift``
    bounds the mass above it.
    """

    first: int
    size: int
    width: float
    shift: float


# for steps with almost no noise, whose losses no grid holds: delta is 1, and no epsilon holds
_NOTHING_KNOWN = Window(np.array([0.0, 1.0]), 1.0, np.zeros(2), 1.0)


@dataclass(frozen=True)
class ComposedLoss:
    """The privacy loss of a sequence of independent steps in one direction; answers are upper
    bounds.

    :param phases: (step, number of repetitions >= 1) pairs.
    :param coarse: faster and a little higher.
    """

    phases: Phases
    coarse: bool = False

    @property
    def _steps(self) -> int:
        return sum(count for _, count in self.phases)

    def _cumulant(self, tilt: float) -> tuple[float, float, float]:
        total = mean = variance = 0.0
        for step, count in self.phases:
            of_one = step.cumulant(tilt)
            total += count * of_one[0]
            mean += count * of_one[1]
            variance += count * of_one[2]
        return total, mean, variance

    def _tilt_for(self, epsilon: float) -> float:
        """The tilt >= 0 under which the mean loss is ``epsilon``; 0 if the mean is larger without a
        tilt.
        """
        _, mean, variance = self._cumulant(0.0)
        if mean >= epsilon or variance == 0:
            return 0.0
        # the mean may jump from the bulk to rare large losses within a factor of 1.1, anywhere over
        # many powers of ten
        high = math.log(10 * (epsilon - mean) / variance)
        low = min(math.log(1e-3), high - math.log(10))

        def gap(log_tilt: float) -> float:
            return self._cumulant(math.exp(log_tilt))[1] - epsilon

        if gap(high) <= 0:
            return math.exp(high)
        if gap(low) >= 0:
            return math.exp(low)
        return math.exp(optimize.brentq(gap, low, high, xtol=1e-6))

    def _chernoff(self, delta: float) -> float:
        """About how large epsilon is at ``delta``: min over tilts of (log E[e^(tilt l)] + log
        1/delta) / tilt.
        """
        _, mean, variance = self._cumulant(0.0)
        largest = math.sqrt(-2 * math.log(delta) / max(variance, 1e-300))

        def value(log_tilt: float) -> float:
            return (self._cumulant(math.exp(log_tilt))[0] - math.log(delta)) / math.exp(log_tilt)

        # two scales: that of the bulk, and that of the rare large losses of small sampling rates
        ends = (math.log(min(largest, 1.0)) - 5, math.log(largest) + 3)
        points = np.linspace(*ends, 25)
        best = int(np.argmin([value(point) for point in points]))
        around = (points[max(best - 1, 0)], points[min(best + 1, 24)])
        minimum = optimize.minimize_scalar(
            value, bounds=around, method="bounded", options={"xatol": 0.05}
        )
        return max(self._attainable(float(minimum.fun)), mean, 0.0)

    def _attainable(self, near: float) -> float:
        """``near``, but at most a little less than the largest loss, because no tilt makes the mean
        larger.
        """
        return min(near, 0.98 * sum(count * step.loss_limits()[1] for step, count in self.phases))

    def _within_reach(self, near: float) -> ComposedLoss:
        """The same steps, without the outcomes that are too rare to matter for delta(near).

        Otherwise the heavy upper tails of small sampling rates would dominate the tilted
        distribution.
        """
        tilt = self._tilt_for(near)
        log_delta = min(self._cumulant(tilt)[0] - tilt * near, 0.0)
        reach = min(-float(ndtri_exp(log_delta - _OUTSIDE - math.log(self._steps))), REACH)
        phases = tuple((step.within(reach), count) for step, count in self.phases)
        if all(step.direction == "add" for step, _ in phases):
            # if a step's loss is below minus the largest sum of the others, its exact value never
            # matters at epsilon >= 0
            floor = -3 * sum(count * step.loss_limits()[1] for step, count in phases)
            phases = tuple((step.within(reach, floor), count) for step, count in phases)
        return replace(self, phases=phases)

    def _window(self, near: float) -> Window:
        """The composed distribution around the loss ``near``. Losses of about the same size share a
        window.
        """
        if near > 0:
            near = math.exp(round(math.log(near) / _SAME_WINDOW) * _SAME_WINDOW)
        return _window(self, self._attainable(near))

    def _around(self, near: float) -> Window:
        """The composed distribution around the loss ``near``, which a tilt makes the mean of the
        loss if it is larger.
        """
        tilt = self._tilt_for(near)
        grid = self._placed(near, tilt, _COARSE if self.coarse else _FINE)
        if grid is None:
            return _NOTHING_KNOWN
        first, size, width, shift = grid
        steps = [GridStep.of(step, count, width, tilt) for step, count in self.phases]
        offset = sum(step.count * step.first for step in steps)
        if abs(offset) > _MOST_PLACES:
            return _NOTHING_KNOWN
        indices = first + np.arange(size)
        tilted, error = convolved(steps, size)
        composed = np.maximum(tilted[(indices - offset) % size] + error, 0.0)
        losses = indices * width
        log_moment = sum(step.log_moment(tilt) for step in steps)
        with np.errstate(divide="ignore", over="ignore"):
            probabilities = np.minimum(np.exp(np.log(composed) + log_moment - tilt * losses), 1.0)
        beyond = sum(step.log_moment(tilt + shift) for step in steps) - (tilt + shift) * float(
            losses[-1]
        )
        infinite = sum(step.count * step.infinite for step in steps)
        return Window(losses, width, probabilities, infinite + math.exp(min(beyond, 0.0)))

    def _placed(self, near: float, tilt: float, grid: Grid) -> _Place | None:
        """Where the window around ``near`` lies; None if losses are so large that no grid holds
        them.
        """
        log_moment, mean, variance = self._cumulant(tilt)
        near = max(near, mean)
        deviation = math.sqrt(max(variance, 1e-300))
        # the grid must resolve the bulk of the steps as well as the losses that the tilt brings up
        scale = min(variance / self._steps, self._cumulant(0.0)[2] / self._steps * 25)
        width = min(
            math.sqrt(max(scale, 1e-300)) / grid.per_deviation, deviation * 16 / grid.points
        )
        width = max(
            width, max(sum(map(abs, step.loss_limits())) for step, _ in self.phases) / _LARGEST
        )
        for _ in range(
            8
        ):  # if the window is still too large then, mass outside is folded into it, which only adds
            rounded = math.sqrt(variance + self._steps * width * min(width, deviation))
            shifts = [pull / rounded for pull in (0.3, 1.0, 2.0, 4.0, 6.0, 10.0)]

            def bound(shift: float, width: float = width) -> float:
                """The loss beyond which, on the side of ``shift``, the tilted probability is below
                e^-30 (Chernoff).
                """
                pull = abs(shift) + tilt + 1
                rounding = self._steps * (pull * width) ** 2 / 8 * math.exp(min(pull * width, 1.0))
                return (self._cumulant(tilt + shift)[0] - log_moment + rounding + _OUTSIDE) / shift

            high, shift = min((bound(shift), shift) for shift in shifts)
            lowest = max(bound(-shift) for shift in shifts) / width
            if not (abs(lowest) < _MOST_PLACES and math.isfinite(high)):
                return None
            first = math.floor(lowest)
            needed = high / width - first + 2
            if needed <= 2 * _LARGEST:
                break
            width *= min(1.5 * needed / _LARGEST, 100.0)
        size = fft.next_fast_len(math.ceil(min(max(needed, 16), 2 * _LARGEST)), real=True)
        return _Place(first, size, width, shift)

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at ``epsilon`` >= 0; at least the mass beyond the reach, about 1e-33
        per step.
        """
        return self._window(min(epsilon, self._chernoff(_RAREST))).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta`` in (0, 1); infinite above 1e5, or if omitted outcomes
        are likelier than delta.

        The window around the answer has confirmed it: its delta is at most ``delta``.
        """
        quick = replace(self, coarse=True)
        best, near = math.inf, self._chernoff(delta)
        if near > LARGEST_EPSILON:
            return math.inf
        for _ in range(_TRIES):
            value = max(quick._window(near).epsilon(delta), 0.0)
            is_near = abs(value - near) <= 0.05 * abs(near)
            best = min(best, value)
            near = min(value, near) if math.isfinite(value) else near / 2
            if is_near:
                break
        if not self.coarse:
            best = min(best, max(self._window(near).epsilon(delta), 0.0))
        return self._confirmed(best, delta)

    def _confirmed(self, epsilon: float, delta: float) -> float:
        """The first of ``epsilon`` and a few larger values whose own window confirms ``delta``."""
        growth = _LAST_BITS
        for _ in range(_TRIES):
            if not epsilon <= LARGEST_EPSILON:
                break
            window = self._window(epsilon)
            if window.delta(epsilon) <= delta:
                return epsilon
            # by more each time, because e^epsilon may not resolve a change in the last bits
            epsilon = max(window.epsilon(delta), epsilon) * (1 + growth) + growth * window.width
            growth *= 10
        return math.inf

    def profile(self, near: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
        """``delta`` as a function of many epsilons, float[n], accurate to about 1e-8 (not
        relatively, in the far tail).

        :param near: a loss around which it is accurate relatively as well.
        """
        windows = [self._window(loss) for loss in {0.0, near}]
        return lambda epsilons: np.min([window.deltas(epsilons) for window in windows], axis=0)


@functools.lru_cache(maxsize=1)  # the window that gives an answer usually confirms it too
def _window(loss: ComposedLoss, near: float) -> Window:
    return loss._within_reach(near)._around(near)
