"""Accounting: from a sampler, a noise multiplier and a number of steps to epsilon at delta, as an upper bound.

The promise is made with Google's dp-accounting: privacy loss distributions (PLD), pessimistic, which bound every
outcome in both directions of add_or_remove_one. Discretisation only ever raises the answer.
"""

from __future__ import annotations

import functools
import math

from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from workbench import _validate
from workbench.privacy._composition import self_compose

__all__ = ["ACCOUNTANTS", "MAX_EPSILON", "SAMPLERS", "delta", "epsilon", "epsilon_curve", "round_up"]

ACCOUNTANTS = ("pld",)
SAMPLERS = {"poisson": "add_or_remove_one"}

MAX_EPSILON = 100.0  # beyond it a guarantee says nothing

_INTERVAL = 1e-4  # width of a privacy-loss bucket where epsilon is between .1 and 20
_COARSE = 1e-3
_REFERENCE_DELTA = 1e-6  # where delta is asked for, the epsilon at this delta gives the scale of the losses


def round_up(value: float, digits: int) -> float:
    """``value`` rounded up to ``digits`` decimals; never below ``value``."""
    if not math.isfinite(value):
        return value
    rounded = math.ceil(value * 10**digits) / 10**digits
    return rounded if rounded >= value else rounded + 10.0**-digits


@functools.lru_cache(maxsize=64)
def _one_step(sampling_rate: float, noise_multiplier: float, interval: float) -> PrivacyLossDistribution:
    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier,
        sampling_prob=sampling_rate,
        value_discretization_interval=interval,
        pessimistic_estimate=True,
        use_connect_dots=True,
    )


@functools.lru_cache(maxsize=64)
def _composed(sampling_rate: float, noise_multiplier: float, steps: int, interval: float) -> PrivacyLossDistribution:
    return self_compose(_one_step(sampling_rate, noise_multiplier, interval), steps)


def bucket_width(epsilon: float, steps: int) -> float:
    """Width of the privacy-loss buckets for answers near ``epsilon``.

    Rounding to buckets costs little while they are narrow beside epsilon and beside the spread of one step's loss,
    about epsilon / (3 sqrt(T)). Where epsilon is huge it means little and may be coarse.
    """
    widest = _INTERVAL * max(1.0, epsilon / 20)
    return max(min(widest, epsilon / 1000, epsilon / (30 * math.sqrt(steps))), 1e-8)


def _settings(
    sampler: str, sampling_rate: float, noise_multiplier: float, steps: int, accountant: str
) -> tuple[float, float, int]:
    _validate.choice("sampler", sampler, SAMPLERS)
    _validate.choice("accountant", accountant, ACCOUNTANTS)
    return (
        _validate.number("sampling_rate", sampling_rate, above=0, at_most=1),
        # below .1 one step alone costs an epsilon in the hundreds; above 1e5 the buckets cannot resolve the loss
        _validate.number("noise_multiplier", noise_multiplier, at_least=0.1, at_most=1e5),
        _validate.integer("steps", steps, at_least=0),
    )


def composed_epsilon(sampling_rate: float, noise_multiplier: float, steps: int, delta: float, interval: float) -> float:
    """Upper bound on epsilon with privacy-loss buckets of width ``interval``; wider is quicker and higher."""
    return float(_composed(sampling_rate, noise_multiplier, steps, interval).get_epsilon_for_delta(delta))


def _refined_epsilon(sampling_rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Upper bound on epsilon with buckets that suit it: coarse first, then finer until they are fine enough for it."""
    interval = _COARSE
    value = composed_epsilon(sampling_rate, noise_multiplier, steps, delta, interval)
    for _ in range(4):
        wanted = bucket_width(value, steps)
        if 0.5 * interval <= wanted <= 2 * interval:
            break
        interval = wanted
        value = min(value, composed_epsilon(sampling_rate, noise_multiplier, steps, delta, interval))
    return value


def epsilon(
    *,
    sampler: str = "poisson",
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    accountant: str = "pld",
) -> float:
    """Upper bound on epsilon at ``delta`` after ``steps`` steps.

    Neighbouring relation: that of the sampler ("poisson": add_or_remove_one, both directions). The sampler is taken as
    ideal; the overflow of a padded minibatch belongs into delta (``Guarantee.overflow_delta``).

    :param sampling_rate: q in (0, 1], public.
    :param noise_multiplier: sigma = noise standard deviation / clipping norm C, in [.1, 1e5].
    :param steps: T >= 0; at 0 epsilon is 0.
    :param delta: in (0, 1).
    :param accountant: "pld": dp-accounting's privacy loss distribution, pessimistic.
    :raises ArgumentError: naming the argument and its value.

    Source: Doroshenko et al. 2022 ("Connect the Dots"), as implemented by dp-accounting.
    """
    rate, sigma, count = _settings(sampler, sampling_rate, noise_multiplier, steps, accountant)
    delta = _validate.probability("delta", delta)
    if count == 0:
        return 0.0
    return _refined_epsilon(rate, sigma, count, delta)


def delta(
    *,
    sampler: str = "poisson",
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    epsilon: float,
    accountant: str = "pld",
) -> float:
    """Upper bound on delta at ``epsilon`` >= 0 after ``steps`` steps; see ``epsilon`` for the other arguments."""
    rate, sigma, count = _settings(sampler, sampling_rate, noise_multiplier, steps, accountant)
    epsilon = _validate.number("epsilon", epsilon, at_least=0)
    if count == 0:
        return 0.0
    scale = max(epsilon, _refined_epsilon(rate, sigma, count, _REFERENCE_DELTA))
    return float(_composed(rate, sigma, count, bucket_width(scale, count)).get_delta_for_epsilon(epsilon))


def epsilon_curve(
    *, sampling_rate: float, noise_multiplier: float, steps: int, delta: float, epsilon: float, points: int = 12
) -> list[tuple[int, float]]:
    """(number of steps, upper bound on epsilon) at ``points`` numbers of steps up to ``steps``, for display.

    :param epsilon: the plan's epsilon after ``steps`` steps; no value of the curve exceeds it.

    Wider buckets make it quick (about 10 ms a point); the values are still upper bounds, rounded up to 3 decimals.
    """
    counts = sorted({max(1, math.ceil(steps * (point / points) ** 2)) for point in range(1, points + 1)})
    interval = 5 * bucket_width(epsilon, steps)
    bounds = [composed_epsilon(sampling_rate, noise_multiplier, n, delta, interval) for n in counts]
    return [(n, min(round_up(bound, 3), epsilon)) for n, bound in zip(counts, bounds, strict=True)]
