"""Lower bounds on delta and epsilon of composed steps, to stand beside the upper bounds of ``pld``.

A grid moves the loss of a step by a random amount x, from an interval as wide as a cell, with
E[e^-x] = 1. So E[x] is at most width^2 / 8 (Hoeffding's lemma, for e^-x). With probability 1 - p or
more, the sum of all T amounts is at most T width^2 / 8 + width sqrt(T log(1 / p) / 2) (Hoeffding's
inequality). So the true delta at epsilon is at least that of the grid at epsilon plus this sum,
less p. Errors of the transform, and mass that it folds into the window, are bounded and subtracted.

``allocation_epsilon`` is such a bound for random allocation, by laws of each epoch's loss that are
smaller in the convex order (``allocated_gaussian``). It is usually within 0.5 % of the upper bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from workbench.privacy._windows import STEP_ERROR, SUM_ERROR, Grid, GridStep, Window, convolved
from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.pld import LARGEST_EPSILON, ComposedLoss
from workbench.privacy.steps import Steps

__all__ = ["ComposedLowerBound", "allocation_epsilon", "of_allocation"]

# lower bounds lose about 4 widths times the root of the number of steps
_FINEST = Grid(2**16, 2000.0)
_CONFIDENT = (
    16.0  # -log of the share of delta that is given up for the roundings of losses to a grid
)
_PRECISE = 1e-6  # relative, of an epsilon
_POINTS = 301  # where an epsilon is looked for first


@dataclass(frozen=True)
class _LowerWindow:
    """The composed losses on a grid, and what is given up.

    :param moved: how much larger losses on the grid may be than true ones.
    :param rare: how much of delta is given up because they may be even larger.
    :param log_error: log of the tilted mass that may be wrong, times e^(cumulant of the tilt).
    """

    window: Window
    moved: float
    rare: float
    log_error: float
    tilt: float

    def delta(self, epsilon: float) -> float:
        """Lower bound on delta at ``epsilon``; 0 if none is known."""
        losses = self.window.losses
        value = max(epsilon + self.moved, float(losses[0]))
        if value >= losses[-1]:
            return 0.0
        above = float(self.window.sums[0][np.searchsorted(losses, value, side="right")])
        # the window rounds up
        rounding = 4 * SUM_ERROR * (len(losses) + float(np.abs(losses[[0, -1]]).max())) * above
        wrong = math.exp(min(self.log_error - self.tilt * value, 0.0))
        return max(self.window.delta(value) - rounding - self.rare - wrong, 0.0)


_NOTHING_KNOWN = _LowerWindow(
    Window(np.array([0.0, 1.0]), 1.0, np.zeros(2), 0.0), 0.0, 0.0, 0.0, 0.0
)


@dataclass(frozen=True)
class ComposedLowerBound(ComposedLoss):
    """The privacy loss of a sequence of independent steps in one direction; answers are lower
    bounds.

    :param phases: (step, number of repetitions >= 1) pairs, with steps that are themselves lower
        bounds (``AllocatedGaussian`` with ``is_upper=False``).
    """

    def delta(self, epsilon: float) -> float:
        """Lower bound on delta at ``epsilon`` >= 0; 0 if none is known."""
        return self._lower(self._attainable(epsilon)).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Lower bound on epsilon at ``delta`` in (0, 1): a value whose delta is larger, or 0 if
        none is known up to 1e5.
        """
        near, best = ComposedLoss(self.phases, coarse=True).epsilon(delta), 0.0
        for _ in range(2 if near <= LARGEST_EPSILON else 0):
            window = self._lower(near)
            points = np.linspace(0.0, min(1.5 * near, LARGEST_EPSILON), _POINTS)
            # not near 0, if tilted
            refuted = [index for index, point in enumerate(points) if window.delta(point) > delta]
            if not (refuted and near > 0):
                break
            low, high = points[refuted[-1]], points[min(refuted[-1] + 1, _POINTS - 1)]
            while high - low > _PRECISE * high:
                middle = (low + high) / 2
                low, high = (middle, high) if window.delta(middle) > delta else (low, middle)
            near, best = float(low), max(best, float(low))
        return best

    def _lower(self, near: float) -> _LowerWindow:
        """The composed distribution around the loss ``near``."""
        loss = self._within_reach(near)
        tilt = loss._tilt_for(near)
        grid = loss._placed(near, tilt, _FINEST)
        if grid is None:
            return _NOTHING_KNOWN
        first, size, width, _ = grid
        steps = [GridStep.of(step, count, width, tilt) for step, count in loss.phases]
        offset = sum(step.count * step.first for step in steps)
        indices = first + np.arange(size)
        losses = indices * width
        transformed, error = convolved(steps, size)
        tilted = np.maximum(transformed[(indices - offset) % size], 0.0)
        log_moment = sum(step.log_moment(tilt) for step in steps)
        # moments are rounded up, and so are their exponentials
        rounding = 2 * loss._steps * STEP_ERROR * (1 + float(np.abs(losses[[0, -1]]).max()))
        with np.errstate(divide="ignore", over="ignore"):
            probabilities = np.minimum(
                np.exp(np.log(tilted) + log_moment - tilt * losses - rounding), 1.0
            )
        # Chernoff's bound on delta, and much less
        log_rare = min(log_moment - tilt * near, 0.0) - _CONFIDENT
        moved = loss._steps * width**2 / 8 + width * math.sqrt(-loss._steps * log_rare / 2)
        wrong = size * error + _outside(steps, tilt, float(losses[0]), float(losses[-1]))
        window = Window(losses, width, probabilities, 0.0)
        return _LowerWindow(window, moved, math.exp(log_rare), math.log(wrong) + log_moment, tilt)


def _outside(steps: list[GridStep], tilt: float, low: float, high: float) -> float:
    """Upper bound on the tilted probability of losses below ``low`` or above
    ``high`` (Chernoff).
    """
    log_moment = sum(step.log_moment(tilt) for step in steps)
    deviation = (high - low) / 16
    total = 0.0
    for end, sign in ((high, 1), (low, -1)):
        shifts = [sign * pull / deviation for pull in (0.3, 1.0, 2.0, 4.0, 6.0, 10.0, 20.0)]
        beyond = (
            sum(step.log_moment(tilt + shift) for step in steps) - log_moment - shift * end
            for shift in shifts
        )
        total += math.exp(min(0.0, *beyond))
    return total


def allocation_epsilon(plan: Steps, delta: float) -> float:
    """Lower bound on epsilon at ``delta`` of a run with random allocation: no smaller epsilon
    holds; 0 if none is known.

    >>> from workbench.privacy import lower_pld
    >>> plan = wb.privacy.steps.Steps.checked("random_allocation", None, 0.1, 2.0, 100)
    >>> round(lower_pld.allocation_epsilon(plan, 1e-5), 2)
    2.14
    """
    return max((bound.epsilon(delta) for bound in of_allocation(plan)), default=0.0)


def of_allocation(plan: Steps) -> list[ComposedLowerBound]:
    """The losses of ``plan`` in both directions; none of a plan without steps."""
    epochs = plan.epochs
    return [
        ComposedLowerBound(
            tuple(
                (
                    AllocatedGaussian(
                        epoch.length, 1 / epoch.noise_multiplier, direction, epoch.released, False
                    ),
                    epoch.repeated,
                )
                for epoch in epochs
            )
        )
        for direction in (("remove", "add") if epochs else ())
    ]
