"""Calibration: the smallest noise multiplier that keeps a plan under its epsilon."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy.optimize import brentq
from scipy.stats import norm

from workbench import _validate
from workbench.privacy import accounting

__all__ = ["noise_multiplier"]

_SMALLEST, _LARGEST = 0.2, 1e5
_DIGITS = 5  # significant digits of sigma


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampler: str = "poisson",
    sampling_rate: float,
    steps: int,
    accountant: str = "pld",
) -> float:
    """The smallest sigma with epsilon(sigma) <= ``epsilon`` at ``delta`` after ``steps`` steps, rounded up to 5 digits.

    Found on the pessimistic bound of ``accounting.epsilon`` and verified by a forward call of it: the sigma returned
    has been shown to keep the promise. Sigma is never below .2, where noise hides little: a larger epsilon than that
    needs is kept with room to spare.

    :param epsilon: target > 0. :param delta: in (0, 1). :param sampling_rate: q in (0, 1]. :param steps: T >= 1.
    :raises ArgumentError: if an argument is out of range or no sigma up to 1e5 reaches epsilon.
    """
    _validate.number("epsilon", epsilon, above=0)
    _validate.probability("delta", delta)
    _validate.choice("sampler", sampler, accounting.SAMPLERS)
    _validate.choice("accountant", accountant, accounting.ACCOUNTANTS)
    _validate.number("sampling_rate", sampling_rate, above=0, at_most=1)
    _validate.integer("steps", steps, at_least=1)
    return _smallest(float(epsilon), float(delta), sampler, float(sampling_rate), int(steps), accountant)


@functools.lru_cache(maxsize=256)
def _smallest(epsilon: float, delta: float, sampler: str, sampling_rate: float, steps: int, accountant: str) -> float:
    def bound(sigma: float) -> float:
        return accounting.epsilon(
            sampler=sampler,
            sampling_rate=sampling_rate,
            noise_multiplier=sigma,
            steps=steps,
            delta=delta,
            accountant=accountant,
        )

    interval = 5 * accounting.bucket_width(epsilon, steps)

    def coarse(sigma: float) -> float:
        return accounting.composed_epsilon(sampling_rate, sigma, steps, delta, interval)

    bracket = _bracket(coarse, epsilon, min(max(_gaussian_guess(epsilon, delta, sampling_rate, steps), _SMALLEST), _LARGEST))
    if bracket is None:
        raise _validate.ArgumentError(
            "epsilon",
            epsilon,
            f"no noise multiplier up to {_LARGEST:g} reaches it at delta={delta:g}, sampling_rate={sampling_rate:g}, "
            f"steps={steps}; take fewer steps, a smaller sampling rate or a larger epsilon.",
        )
    low, high = bracket
    if low == high == _SMALLEST and bound(_SMALLEST) <= epsilon:
        return _SMALLEST

    def gap(log_sigma: float, curve: Callable[[float], float]) -> float:
        return math.log(max(curve(math.exp(log_sigma)), 1e-12) / epsilon)

    start = (
        math.log(high) if low == high else brentq(gap, math.log(low), math.log(high), args=(coarse,), xtol=1e-5, rtol=1e-8)
    )
    slope = (gap(start + 0.01, coarse) - gap(start, coarse)) / 0.01
    # wide buckets overstate epsilon, so the answer lies a little below: secant steps on the fine bound find it
    point, error = start, gap(start, bound)
    for _ in range(6):
        if -1e-5 < error <= 0:
            break
        previous, previous_error = point, error
        point -= (error + 3e-6) / slope  # aims just inside the promise
        error = gap(point, bound)
        slope = (error - previous_error) / (point - previous)
    root = math.exp(point)
    decimals = max(0, _DIGITS - 1 - math.floor(math.log10(root)))
    sigma = max(accounting.round_up(root, decimals), _SMALLEST)
    while bound(sigma) > epsilon:
        sigma = accounting.round_up(sigma * (1 + 2e-5), decimals)
    return sigma


def _bracket(curve: Callable[[float], float], epsilon: float, guess: float) -> tuple[float, float] | None:
    """(low, high) with curve(low) > epsilon >= curve(high), the same twice where the smallest sigma already suffices."""
    low = high = guess
    factor = 1.01
    while curve(high) > epsilon:
        if high >= _LARGEST:
            return None
        low, high, factor = high, min(high * factor, _LARGEST), factor**2
    while curve(low) <= epsilon:
        if low <= _SMALLEST:
            return low, low
        low, high, factor = max(low / factor, _SMALLEST), low, factor**2
    return low, high


def _gaussian_guess(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """Where to start looking: the central-limit approximation by a Gaussian mechanism (Bu et al. 2020). Not a bound."""

    def delta_of(mu: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(min(epsilon + norm.logcdf(-mu / 2 - epsilon / mu), 0.0)))

    mu = brentq(lambda log_mu: delta_of(math.exp(log_mu)) - delta, math.log(1e-9), math.log(1e4))
    return 1 / math.sqrt(math.log1p((math.exp(mu) / (sampling_rate * math.sqrt(steps))) ** 2))
