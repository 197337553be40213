"""Accounting of random allocation: in each epoch every record enters k of the t steps, chosen uniformly for itself.

Neighbouring relation: add_or_remove_one. A step adds noise of standard deviation sigma C to a sum of terms of norm at most
C. With k = 1 each record is used once an epoch, as with shuffled records, and epsilon is about that of Poisson sampling or
less.

``epsilon`` and ``delta`` are upper bounds, ``lower_epsilon`` and ``lower_delta`` lower bounds on the same true values. For
k = 1 they are usually within 0.5 % of each other. The pair of distributions and its bounds are explained in
``allocated_gaussian``.

k > 1. Let the t steps be divided at random into k blocks, t mod k of them with one step more than floor(t / k), and let a
record enter one step of each, uniformly and independently. All sets of k steps are then equally likely, because this is
symmetric in the steps: it is random allocation. An attacker who also sees the division learns no less, as delta of a
mixture is at most the mean of the deltas. Given the division the blocks are k independent allocations with k = 1. So the
upper bound is that of their composition (Feldman and Shenfeld 2025). The lower bound for k > 1 is that of the sum of all t
outputs, a Gaussian mechanism with mu = k / (sigma sqrt(t)), and is loose if sigma is small.

An epoch that is not finished (T is not a multiple of t): exact for k = 1, where a record enters one of the steps that were
taken with probability (T mod t) / t. For k > 1 upper bounds charge the whole epoch, and lower bounds leave it out.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

from workbench import _validate
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy.accounting import round_up
from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.calibration import gaussian_mu, largest_kept
from workbench.privacy.lower_pld import ComposedLowerBound
from workbench.privacy.pld import ComposedLoss, Phases
from workbench.privacy.sampled_gaussian import SampledGaussian
from workbench.privacy.steps import MOST_STEPS_PER_EPOCH

__all__ = [
    "Allocation",
    "delta",
    "epsilon",
    "lower_delta",
    "lower_epsilon",
    "max_participations",
    "max_steps",
    "noise_multiplier",
]

_DIRECTIONS = ("remove", "add")
_SMALLEST, _LARGEST = 0.1, 1e5  # of sigma, as in ``Steps``
_LEAST_CALIBRATED = 0.2
_DIGITS = 5  # significant digits of sigma
_MOST_EPOCHS = 10**7
_GAUSSIAN_SLACK = 1e-8  # relative: ``GaussianLoss`` rounds up by less


@dataclass(frozen=True)
class Allocation:
    """The steps of a run with random allocation. ``checked`` makes it from public arguments.

    :param steps_per_epoch: t.
    :param participations: k in 1 .. t.
    :param noise_multiplier: sigma = noise standard deviation / C.
    :param steps: T >= 0, in all epochs together.
    """

    steps_per_epoch: int
    participations: int
    noise_multiplier: float
    steps: int

    @classmethod
    def checked(cls, steps_per_epoch: Any, participations: Any, noise_multiplier: Any, steps: Any) -> Allocation:
        """From public arguments.

        :raises ArgumentError: naming the argument and its value.
        """
        t = _validate.integer("steps_per_epoch", steps_per_epoch, at_least=1, at_most=MOST_STEPS_PER_EPOCH)
        k = _validate.integer("participations", participations, at_least=1)
        if k > t:
            raise _validate.ArgumentError("participations", k, f"a record cannot enter more than the {t} steps of an epoch.")
        sigma = _validate.number("noise_multiplier", noise_multiplier, at_least=_SMALLEST, at_most=_LARGEST)
        return cls(t, k, sigma, _validate.integer("steps", steps, at_least=0, at_most=_MOST_EPOCHS * t))

    @property
    def epochs(self) -> int:
        """Epochs that were finished."""
        return self.steps // self.steps_per_epoch

    @property
    def begun(self) -> int:
        """Steps of the epoch that was not."""
        return self.steps % self.steps_per_epoch

    @property
    def most_uses(self) -> int:
        """The most steps that can contain a given record."""
        return self.epochs * self.participations + min(self.begun, self.participations)

    @property
    def composed_mu(self) -> float:
        """mu of the Gaussian mechanism of a record that is in ``most_uses`` known steps, whose losses are no smaller."""
        return math.sqrt(self.most_uses) / self.noise_multiplier

    def phases(self, direction: str, is_upper: bool) -> Phases:
        """The blocks of all epochs as steps of ``ComposedLoss``, with their repetitions; for k > 1 as upper bounds only."""
        k, mu = self.participations, 1 / self.noise_multiplier
        size, larger = divmod(self.steps_per_epoch, k)
        epochs = self.epochs + (1 if k > 1 and self.begun else 0)
        blocks = [(size, (k - larger) * epochs), (size + 1, larger * epochs)]
        phases: list[tuple[Any, int]] = [
            (AllocatedGaussian(steps, mu, direction, steps, is_upper), count)
            for steps, count in blocks
            if count and steps > 1
        ]
        if size == 1 and blocks[0][1]:  # steps without sampling are Gaussian mechanisms, and these compose to one
            phases.append((SampledGaussian(1.0, mu * math.sqrt(blocks[0][1]), direction), 1))
        if k == 1 and self.begun:
            phases.append((AllocatedGaussian(self.steps_per_epoch, mu, direction, self.begun, is_upper), 1))
        return tuple(phases)


@functools.lru_cache(maxsize=1024)
def bound(plan: Allocation, delta: float, coarse: bool = False) -> float:
    """Upper bound on epsilon at ``delta``; finite, because no allocation is worse than entering known steps.

    :param coarse: up to some per cent higher and a little faster.
    """
    if _entered(plan) <= delta:
        return 0.0
    known = GaussianLoss(plan.composed_mu).epsilon(delta)
    if plan.participations == plan.steps_per_epoch:
        return known
    return min(known, max(ComposedLoss(plan.phases(direction, True), coarse).epsilon(delta) for direction in _DIRECTIONS))


def _entered(plan: Allocation) -> float:
    """Upper bound on the probability that a given record enters any step. With this delta even epsilon = 0 holds."""
    if plan.epochs or plan.participations > 1:
        return min(plan.steps, 1)
    return plan.begun / plan.steps_per_epoch * (1 + 1e-12)


@functools.lru_cache(maxsize=1024)
def _delta_bound(plan: Allocation, epsilon: float) -> float:
    known = min(GaussianLoss(plan.composed_mu).delta(epsilon), _entered(plan))
    if plan.participations == plan.steps_per_epoch or plan.steps == 0:
        return known
    return min(known, max(ComposedLoss(plan.phases(direction, True)).delta(epsilon) for direction in _DIRECTIONS))


def _of_the_sum(plan: Allocation) -> GaussianLoss:
    """The loss of the sum of all outputs of finished epochs, which says no more than the outputs do."""
    return GaussianLoss(plan.participations / plan.noise_multiplier * math.sqrt(plan.epochs / plan.steps_per_epoch))


def epsilon(*, noise_multiplier: float, steps_per_epoch: int, steps: int, delta: float, participations: int = 1) -> float:
    """Upper bound on epsilon at ``delta`` after ``steps`` steps; takes 0.05 to 1 s.

    The sampler is taken as ideal. The overflow of a padded minibatch is a part of delta.

    >>> from workbench.privacy import random_allocation
    >>> plan = {"noise_multiplier": 2.0, "steps_per_epoch": 10, "steps": 100}
    >>> round(random_allocation.epsilon(delta=1e-5, **plan), 3)
    2.143

    :param noise_multiplier: sigma = noise standard deviation / clipping norm C, in [0.1, 1e5].
    :param steps_per_epoch: t in 1 .. 1e7.
    :param steps: T >= 0, in all epochs together; at 0 epsilon is 0. Also less than t.
    :param delta: in (0, 1).
    :param participations: k in 1 .. t, how many steps of an epoch a record enters.
    :raises ArgumentError: naming the argument and its value.

    Sources: Feldman and Shenfeld 2025 (random allocation and its reduction to k = 1), Zhu, Dong and Wang 2022 (composition).
    """
    plan = Allocation.checked(steps_per_epoch, participations, noise_multiplier, steps)
    return bound(plan, _validate.probability("delta", delta))


def delta(*, noise_multiplier: float, steps_per_epoch: int, steps: int, epsilon: float, participations: int = 1) -> float:
    """Upper bound on delta at ``epsilon`` >= 0 after ``steps`` steps; see ``epsilon`` for the other arguments."""
    plan = Allocation.checked(steps_per_epoch, participations, noise_multiplier, steps)
    return _delta_bound(plan, _validate.number("epsilon", epsilon, at_least=0))


def lower_epsilon(
    *, noise_multiplier: float, steps_per_epoch: int, steps: int, delta: float, participations: int = 1
) -> float:
    """Lower bound on epsilon at ``delta``: no smaller epsilon holds. See ``epsilon`` for arguments; 0 if none is known."""
    plan = Allocation.checked(steps_per_epoch, participations, noise_multiplier, steps)
    delta = _validate.probability("delta", delta)
    if plan.steps == 0:
        return 0.0
    of_the_sum = _of_the_sum(plan).epsilon(delta * (1 + _GAUSSIAN_SLACK)) * (1 - _GAUSSIAN_SLACK)
    if plan.participations > 1 or plan.steps_per_epoch == 1:
        return of_the_sum
    return max(of_the_sum, *(ComposedLowerBound(plan.phases(direction, False)).epsilon(delta) for direction in _DIRECTIONS))


def lower_delta(
    *, noise_multiplier: float, steps_per_epoch: int, steps: int, epsilon: float, participations: int = 1
) -> float:
    """Lower bound on delta at ``epsilon`` >= 0: no smaller delta holds. See ``epsilon`` for the other arguments."""
    plan = Allocation.checked(steps_per_epoch, participations, noise_multiplier, steps)
    epsilon = _validate.number("epsilon", epsilon, at_least=0)
    if plan.steps == 0:
        return 0.0
    of_the_sum = _of_the_sum(plan).delta(epsilon) * (1 - _GAUSSIAN_SLACK)
    if plan.participations > 1 or plan.steps_per_epoch == 1:
        return of_the_sum
    return max(of_the_sum, *(ComposedLowerBound(plan.phases(direction, False)).delta(epsilon) for direction in _DIRECTIONS))


def noise_multiplier(*, epsilon: float, delta: float, steps_per_epoch: int, steps: int, participations: int = 1) -> float:
    """The smallest sigma in [0.2, 1e5] with epsilon(sigma) <= ``epsilon`` at ``delta``, rounded up to 5 digits and verified.

    >>> from workbench.privacy import random_allocation
    >>> random_allocation.noise_multiplier(
    ...     epsilon=2.0, delta=1e-5, steps_per_epoch=10, steps=100
    ... )
    2.1121

    :raises ArgumentError: if an argument is out of range or no sigma up to 1e5 reaches epsilon.
    """
    epsilon, delta = _validate.number("epsilon", epsilon, above=0), _validate.probability("delta", delta)
    plan = Allocation.checked(steps_per_epoch, participations, 1.0, _validate.integer("steps", steps, at_least=1))
    spread = gaussian_mu(epsilon, delta) / math.sqrt(plan.most_uses * plan.participations / plan.steps_per_epoch)
    root = largest_kept(
        lambda inverse, coarse: bound(replace(plan, noise_multiplier=1 / inverse), delta, coarse),
        epsilon,
        1 / _LARGEST,
        1 / _LEAST_CALIBRATED,
        math.sqrt(math.log1p(spread**2)),
    )
    if root is None:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"no noise multiplier up to {_LARGEST:g} reaches it at delta={delta:g}, steps_per_epoch={plan.steps_per_epoch}, "
            f"steps={plan.steps}, participations={plan.participations}; choose fewer steps or a larger epsilon.",
        )
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(1 / root)))
    sigma = max(round_up(1 / root, decimals), _LEAST_CALIBRATED)
    while bound(replace(plan, noise_multiplier=sigma), delta) > epsilon:  # verified whatever the search did
        sigma = round_up(sigma * (1 + 2e-5), decimals)
    return sigma


def max_steps(
    *, epsilon: float, delta: float, noise_multiplier: float, steps_per_epoch: int, participations: int = 1
) -> int:
    """The most steps T, in whole epochs, with epsilon(T) <= ``epsilon`` at ``delta``; at most 1e7 epochs.

    A forward call has verified the returned T. Above 10 000 epochs it may be a ten-thousandth below the largest.

    >>> from workbench.privacy import random_allocation
    >>> random_allocation.max_steps(
    ...     epsilon=2.0, delta=1e-5, noise_multiplier=2.0, steps_per_epoch=10
    ... )
    80

    :raises ArgumentError: if an argument is out of range or one epoch alone costs more.
    """
    epsilon, delta = _validate.number("epsilon", epsilon, above=0), _validate.probability("delta", delta)
    one = Allocation.checked(steps_per_epoch, participations, noise_multiplier, steps_per_epoch)

    def cost(epochs: float, coarse: bool = False) -> float:
        return bound(replace(one, steps=math.floor(epochs) * one.steps_per_epoch), delta, coarse)

    if cost(1) > epsilon:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"is less than one epoch alone costs, {round_up(cost(1), 4):g} at delta={delta:g}, steps_per_epoch="
            f"{one.steps_per_epoch}, noise_multiplier={one.noise_multiplier:g}; choose more noise.",
        )
    variance = math.expm1(min(one.noise_multiplier**-2, 100.0)) * one.participations**2 / one.steps_per_epoch
    guess = min(max(gaussian_mu(epsilon, delta) ** 2 / variance, 1.0), float(_MOST_EPOCHS))
    epochs = math.floor(largest_kept(cost, epsilon, 1.0, float(_MOST_EPOCHS), guess) or 1.0)
    while cost(epochs) > epsilon:
        epochs -= max(1, epochs // 50_000)
    while epochs < 10_000 and cost(epochs + 1) <= epsilon:
        epochs += 1
    return epochs * one.steps_per_epoch


def max_participations(*, epsilon: float, delta: float, noise_multiplier: float, steps_per_epoch: int, steps: int) -> int:
    """The most steps k of an epoch that a record may enter with epsilon(k) <= ``epsilon`` at ``delta``, verified.

    >>> from workbench.privacy import random_allocation
    >>> random_allocation.max_participations(
    ...     epsilon=2.0,
    ...     delta=1e-5,
    ...     noise_multiplier=2.0,
    ...     steps_per_epoch=100,
    ...     steps=1000,
    ... )
    2

    :raises ArgumentError: if an argument is out of range or k = 1 costs more.
    """
    epsilon, delta = _validate.number("epsilon", epsilon, above=0), _validate.probability("delta", delta)
    once = Allocation.checked(steps_per_epoch, 1, noise_multiplier, steps)

    def keeps(uses: int) -> bool:
        return bound(replace(once, participations=uses), delta) <= epsilon

    if not keeps(1):
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"is less than one step an epoch costs, {round_up(bound(once, delta), 4):g} at delta={delta:g}; choose more "
            "noise or fewer steps.",
        )
    low, high = 1, once.steps_per_epoch + 1  # k = low keeps epsilon, and high does not, or is too many
    while high - low > 1:
        middle = min(2 * low, (low + high) // 2) if high > once.steps_per_epoch else (low + high) // 2
        middle = max(middle, low + 1)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
