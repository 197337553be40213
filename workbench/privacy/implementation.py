"""What the implementation of a plan costs in delta, and the sampler that keeps the cost small."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from workbench._limits import READING_FAILURE
from workbench.privacy.steps import LAWS
from workbench.sampling import Sampler
from workbench.sampling.poisson import log_overflow_probability, overflow_capacity

if TYPE_CHECKING:
    from workbench.privacy.plan import PrivacySettings

__all__ = ["SHARE", "affordable", "failure_cost", "log_factor", "mechanism_delta", "sampler_for"]

SHARE = 1e-3  # of delta, for minibatches that are not ideal, and the same for noise
_EPSILON_OF_PADDING, _STEPS_OF_PADDING = 10.0, 20_000


def affordable(settings: PrivacySettings, cost: Callable[[float], float]) -> PrivacySettings:
    """``settings``, or with the largest epsilon in tenths at which ``cost`` is within its share of
    delta, if any is.

    :param cost: in delta, a function of epsilon that does not fall.
    """
    allowance = settings.delta * SHARE
    if cost(settings.epsilon) <= allowance:
        return settings
    smaller = range(1, math.ceil(10 * settings.epsilon))  # tenths
    tenths = bisect.bisect_right(smaller, allowance, key=lambda tenth: cost(tenth / 10))
    return replace(settings, epsilon=tenths / 10) if tenths else settings


def sampler_for(settings: PrivacySettings, num_train: int, epsilon: float) -> Sampler:
    """The sampler, with as much padding as keeps what overflow costs at ``epsilon`` within its
    share of delta.
    """
    law, rate = LAWS[settings.sampler], settings.sampling_rate
    # the padding M, the parts of a minibatch and the spacing of the sum may tell the declared N,
    # not how many there are
    size = law.public_size(settings.num_records, num_train)
    if not law.hides_size:
        return law.sampler(size, rate)
    allowance = settings.delta * SHARE
    # at least as for epsilon = 10 and many steps: a little more padding, but fits that differ in
    # epsilon or in the number of steps share a compiled program
    padded = log_factor(
        max(epsilon, _EPSILON_OF_PADDING), max(settings.iterations, _STEPS_OF_PADDING)
    )
    capacity = overflow_capacity(size, rate, math.log(allowance / 2) - padded)
    return law.sampler(num_train, rate, capacity, size)


def failure_cost(
    settings: PrivacySettings, sampler: Sampler, epsilon: float, reads_obliviously: bool
) -> float:
    """What it costs in delta at ``epsilon`` that a minibatch is not always the ideal one.

    :param reads_obliviously: as of ``make_plan``.
    """
    failure = sampler.total_variation + (READING_FAILURE if reads_obliviously else 0.0)
    if sampler.has_random_size:
        overflow = log_overflow_probability(
            settings.num_records, settings.sampling_rate, sampler.capacity
        )
        failure += math.exp(overflow)
    return math.exp(log_factor(epsilon, settings.iterations)) * failure


def log_factor(epsilon: float, steps: int) -> float:
    """log((1 + e^epsilon) T), the logarithm of what a failure of one step costs in delta, per
    probability.
    """
    return float(np.logaddexp(0.0, epsilon)) + math.log(steps)


def mechanism_delta(settings: PrivacySettings, overflow_delta: float) -> float:
    """The part of delta that the subsampled Gaussian mechanism itself may use."""
    return settings.delta * (1 - SHARE) - overflow_delta
