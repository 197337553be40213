"""Calibration: the smallest noise multiplier, the most steps or the largest sampling rate that keep
epsilon.

Each is searched on the pessimistic bound "pld", first coarsely, then verified by a forward call and
rounded to the safe side. Answers are kept in memory and on disk. An answer from disk is verified
again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate
from workbench._lazy import optimize
from workbench.privacy import _cache, accounting, selection
from workbench.privacy._gaussian import GaussianLoss
from workbench.privacy.accounting import round_up
from workbench.privacy.selection import Runs
from workbench.privacy.steps import MOST_STEPS_PER_EPOCH, SENSITIVITY, Phase, Steps

__all__ = [
    "Candidate",
    "gaussian_mu",
    "largest_kept",
    "max_sampling_rate",
    "max_steps",
    "noise_multiplier",
    "noise_of_candidates",
]

_SMALLEST, _LARGEST = 0.2, 1e5
_DIGITS = 5  # significant digits of sigma and q
_MOST_STEPS = 10**8
_MOST_EXPONENT = 100.0
_GROWTH = 0.2  # about how much epsilon grows with log E[K]


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float,
    steps: int,
    before: Phase | None = None,
    runs: Runs | None = None,
) -> float:
    """The smallest sigma with epsilon(sigma) <= ``epsilon`` at ``delta`` after ``steps`` steps,
    rounded up to 5 digits.

    A forward call of the bound has verified that the returned sigma keeps epsilon. Sigma is never
    below 0.2, where noise hides little, so very large epsilons are kept with room to spare.

    >>> wb.privacy.noise_multiplier(
    ...     epsilon=1.0, delta=1e-5, sampling_rate=0.01, steps=1000
    ... )
    1.4147

    :param epsilon: target, in (0, 100].
    :param delta: in (0, 1).
    :param sampler: see ``accounting.epsilon``, as ``relation``.
    :param sampling_rate: q in (0, 1].
    :param steps: T >= 1.
    :param before: a phase of other noise on the same records, which counts too.
    :param runs: how often all of that is repeated before only the best is published
        (``selection``); None for once.
    :raises ArgumentError: if an argument is out of range or no sigma up to 1e5 reaches epsilon.
    """
    epsilon = _validate.epsilon("epsilon", epsilon)
    delta = _validate.probability("delta", delta)
    steps = _validate.integer("steps", steps, at_least=1)
    plan = Steps.checked(sampler, relation, _one("sampling_rate", sampling_rate), 1.0, steps)
    return _smallest_noise(
        epsilon,
        delta,
        plan.sampler,
        plan.relation,
        plan.phases[0].sampling_rate,
        steps,
        before,
        runs,
    )


def _one(argument: str, value: Any) -> Any:
    """``value``; a schedule is refused, because the answer would be that of one of its phases."""
    if isinstance(value, (list, tuple, np.ndarray)):
        raise _validate.ArgumentError(
            argument, value, "must be one number: calibration takes no schedules."
        )
    return value


@functools.lru_cache(maxsize=256)
def _smallest_noise(
    epsilon: float,
    delta: float,
    sampler: str,
    relation: str,
    sampling_rate: float,
    steps: int,
    before: Phase | None,
    runs: Runs | None,
) -> float:
    first = () if before is None else (before,)

    def bound(sigma: float, coarse: bool = False) -> float:
        phases = (*first, Phase(sampling_rate, sigma, steps))
        plan = Steps(sampler, relation, phases)
        if runs is None:
            return accounting.bound(plan, delta, coarse)
        return selection.bound((plan,), runs, delta, coarse)

    key = ["noise_multiplier", epsilon, delta, sampler, relation, sampling_rate, steps, *first]
    key += [] if runs is None else [asdict(runs)]
    stored = _cache.read(key)
    if stored is not None and _SMALLEST <= stored <= _LARGEST and bound(stored) <= epsilon:
        return stored
    of_one = epsilon if runs is None else epsilon / (1 + _GROWTH * math.log(runs.mean))
    spread = gaussian_mu(of_one, delta) / (sampling_rate * math.sqrt(steps))
    root = largest_kept(
        lambda inverse, coarse: bound(1 / inverse, coarse),
        epsilon,
        1 / _LARGEST,
        1 / _SMALLEST,
        math.sqrt(math.log1p(spread**2)) / SENSITIVITY[relation],
    )
    if root is None:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"no noise multiplier up to {_LARGEST:g} reaches it at delta={delta:g}, "
            f"sampling_rate={sampling_rate:g}, steps={steps}; choose fewer steps, a smaller "
            "sampling rate or a larger epsilon.",
        )
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(1 / root)))
    sigma = max(round_up(1 / root, decimals), _SMALLEST)
    while bound(sigma) > epsilon:  # verified whatever the search did
        sigma = round_up(sigma * (1 + 2e-5), decimals)
    _cache.write(key, sigma)
    return sigma


class Candidate(NamedTuple):
    """Steps that want noise: q, T, and a phase of other noise on the same records."""

    sampling_rate: float
    steps: int
    before: Phase | None = None


def noise_of_candidates(
    candidates: Sequence[Candidate],
    *,
    epsilon: float,
    delta: float,
    runs: Runs,
    sampler: str = "poisson",
    relation: str | None = None,
) -> tuple[float, ...]:
    """A sigma for each candidate, with which the best of ``runs`` runs of uniformly drawn ones
    keeps ``epsilon`` at ``delta``.

    Each has the noise of ``noise_multiplier`` for one epsilon, which is ``epsilon``, or a little
    less where a mixture of candidates costs more than each of them.

    >>> from workbench.privacy.calibration import Candidate, noise_of_candidates
    >>> from workbench.privacy.selection import Runs
    >>> plans = [Candidate(0.1, 500), Candidate(0.1, 1000)]
    >>> noise_of_candidates(plans, epsilon=1.0, delta=1e-3, runs=Runs.of_mean(20))
    (11.247, 15.879)

    :raises ArgumentError: as ``noise_multiplier``.
    """
    law = Steps.checked(sampler, relation, 1.0, 1.0, 1)
    target = epsilon
    while True:
        noise = {
            plan: noise_multiplier(
                epsilon=target,
                delta=delta,
                sampler=law.sampler,
                relation=law.relation,
                runs=runs,
                **plan._asdict(),
            )
            for plan in dict.fromkeys(candidates)
        }
        phases = [
            (plan.before, Phase(plan.sampling_rate, noise[plan], plan.steps)) for plan in candidates
        ]
        drawn = tuple(replace(law, phases=tuple(filter(None, both))) for both in phases)
        total = selection.epsilon(drawn, runs, delta)
        if total <= epsilon:
            return tuple(noise[plan] for plan in candidates)
        target *= (1 - 1e-4) * epsilon / total


def max_steps(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sampler: str = "poisson",
    relation: str | None = None,
    sampling_rate: float,
) -> int:
    """The most steps T with epsilon(T) <= ``epsilon`` at ``delta``, at most 1e8.

    A forward call has verified the returned T. Above 10 000 it may be a ten-thousandth below the
    largest.

    >>> wb.privacy.max_steps(
    ...     epsilon=1.0, delta=1e-5, noise_multiplier=1.5, sampling_rate=0.01
    ... )
    1178

    :raises ArgumentError: if an argument is out of range or one step alone costs more.
    """
    epsilon = _validate.epsilon("epsilon", epsilon)
    delta = _validate.probability("delta", delta)
    rate, sigma = _one("sampling_rate", sampling_rate), _one("noise_multiplier", noise_multiplier)
    plan = Steps.checked(sampler, relation, rate, sigma, 1)

    def bound(count: float, coarse: bool = False) -> float:
        phase = plan.phases[0]._replace(steps=math.floor(count))
        return accounting.bound(Steps(plan.sampler, plan.relation, (phase,)), delta, coarse)

    if bound(1) > epsilon:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"is less than one step alone costs, {round_up(bound(1), 4):g} at delta={delta:g}, "
            f"sampling_rate={sampling_rate:g}, noise_multiplier={noise_multiplier:g}; choose "
            "more noise or a smaller sampling rate.",
        )
    guess = (gaussian_mu(epsilon, delta) / _mu_of_a_step(plan)) ** 2
    root = largest_kept(bound, epsilon, 1.0, float(_MOST_STEPS), guess)
    count = math.floor(root or 1.0)
    while bound(count) > epsilon:
        count -= max(1, count // 50_000)
    while count < 10_000 and bound(count + 1) <= epsilon:
        count += 1
    return count


def max_sampling_rate(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    steps: int,
    sampler: str = "poisson",
    relation: str | None = None,
) -> float:
    """The largest q in (0, 1] with epsilon(q) <= ``epsilon`` at ``delta``, rounded down to 5 digits
    and verified.

    For "random_allocation" it is 1 / t with whole t.

    >>> wb.privacy.max_sampling_rate(
    ...     epsilon=1.0, delta=1e-5, noise_multiplier=1.5, steps=1000
    ... )
    0.010816

    :raises ArgumentError: if an argument is out of range or no q from 1e-9 up keeps epsilon.
    """
    epsilon = _validate.epsilon("epsilon", epsilon)
    delta = _validate.probability("delta", delta)
    steps = _validate.integer("steps", steps, at_least=1)
    plan = Steps.checked(sampler, relation, 1.0, _one("noise_multiplier", noise_multiplier), steps)

    def bound(rate: float, coarse: bool = False) -> float:
        phase = plan.phases[0]._replace(sampling_rate=min(rate, 1.0))
        return accounting.bound(Steps(plan.sampler, plan.relation, (phase,)), delta, coarse)

    if bound(1.0) <= epsilon:
        return 1.0
    guess = gaussian_mu(epsilon, delta) / (_mu_of_a_step(plan) * math.sqrt(steps))
    lowest = 1 / MOST_STEPS_PER_EPOCH if plan.law.participation == "random step" else 1e-9
    root = largest_kept(bound, epsilon, lowest, 1.0, guess)
    if root is None:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"no sampling rate from {lowest:g} up reaches it at delta={delta:g}, "
            f"noise_multiplier={noise_multiplier:g}, steps={steps}; add noise, or choose fewer "
            "steps or a larger epsilon.",
        )
    if plan.law.participation == "random step":  # rates are 1 / t
        length = plan.law.steps_per_epoch(root)
        while bound(1 / length) > epsilon:
            length += max(1, length // 50_000)
        return 1 / length
    unit = 10.0 ** (math.floor(math.log10(root)) - _DIGITS + 1)
    rate = math.floor(root / unit) * unit
    while bound(rate) > epsilon:
        rate -= unit
    return rate


def _mu_of_a_step(plan: Steps) -> float:
    """The mu of the Gaussian mechanism that approximates one of many steps (Bu et al. 2020). Not a
    bound.
    """
    phase = plan.phases[0]
    inverse = (plan.sensitivity / phase.noise_multiplier) ** 2
    return phase.sampling_rate * math.sqrt(math.expm1(min(inverse, _MOST_EXPONENT)))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism with this epsilon and delta, where the search starts."""

    def gap(log_mu: float) -> float:
        return GaussianLoss(math.exp(log_mu)).delta(epsilon) - delta

    return math.exp(optimize.brentq(gap, math.log(1e-18), math.log(1e4), xtol=1e-3))


def largest_kept(
    bound: Callable[[float, bool], float], epsilon: float, low: float, high: float, guess: float
) -> float | None:
    """About the largest x in [low, high] with bound(x) <= epsilon, for a bound that grows with x;
    None if there is none.

    Searches the root of log(bound / epsilon) in log x, where it is nearly straight: first on the
    coarse bound, which is a little too high, then by a few secant steps on the fine one. The caller
    must verify the answer.
    """

    def gap(log_x: float, coarse: bool = True) -> float:
        return math.log(min(max(bound(math.exp(log_x), coarse), 1e-12), 1e12) / epsilon)

    lowest, highest = math.log(low), math.log(high)
    start = end = min(max(math.log(guess), lowest), highest)
    distance = 0.02
    while gap(end) <= 0:
        if end == highest:
            return high
        start, end, distance = end, min(end + distance, highest), 3 * distance
    while gap(start) > 0:
        if start == lowest:
            return None
        start, end, distance = max(start - distance, lowest), start, 3 * distance
    root = optimize.brentq(gap, start, end, xtol=1e-4, rtol=1e-9)
    slope = max((gap(root + 0.02) - gap(root)) / 0.02, 0.05)
    point, best = root, -math.inf
    for _ in range(6):
        error = gap(point, coarse=False)
        if error <= 0:
            best = max(best, point)
        if -1e-5 < error <= 0:
            break
        # aims just inside epsilon, and not far where the bound jumps
        point = min(max(point - (error + 3e-6) / slope, start), end + 0.02, highest)
    return math.exp(best if best > -math.inf else root)
