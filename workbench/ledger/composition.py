"""The total of several private fits on the same records: one epsilon and one delta for all of them.

Under one relation the privacy losses of all planned steps are composed ("pld"). Fits under several
relations are totalled under replace_one, which takes two changes under another relation: removing
one record and adding another, or blanking one and filling the blank. What (epsilon, delta) allows
for one change, (2 epsilon, (1 + e^epsilon) delta) allows for two.

A fit that runs is not exactly the accounted mechanism. The differences cost delta, and the costs of
all fits add up:

*Overflow.* Neighbours differ in one record. Use the same coin for it in both of them. The
minibatches then differ in that record alone, as accounted for, unless that record and the others
drawn are more than the padding holds. Whether they are more depends on no record, so this
probability counts once as delta (joint convexity of the hockey-stick divergence).

*Tail.* ``Guarantee.noise_delta`` counts a probability of outcomes, and also a factor on densities.
The factors of all fits are multiplied.

*Rounding.* If the minibatches of a fit are within total variation t of ideal ones, its delta at
epsilon is larger by (1 + e^epsilon) t. Up to some epsilon e that is at most (1 + e^e) t, and beyond
e delta is at most its value at e. So at every epsilon delta is at most delta_ideal(e) + (1 + e^e) t
above the ideal, whatever epsilon the other fits have.

A fit whose delta is at most c above the ideal at every epsilon can be simulated from the ideal fit,
with a probability c moved to outcomes that reveal everything (Blackwell's theorem). So these costs
add up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr

from workbench import _validate
from workbench._limits import MOST_RECORDS
from workbench._numbers import upper
from workbench.noise.normals import NORMAL_BOUND
from workbench.privacy import accounting
from workbench.privacy.accounting import round_up
from workbench.privacy.guarantee import Guarantee, change_of
from workbench.privacy.steps import LAWS, SENSITIVITY
from workbench.sampling.poisson import overflow_capacity

__all__ = ["TotalPrivacy", "implementation_delta", "total"]

_ROUNDING_SHARE = 1e-3  # of delta, for the largest losses of the fits whose samplers round
_LOG_OVERFLOW = -1000.0  # no plan asks for a rarer overflow
_LARGEST_EXPONENT = 700.0
_LAST_BITS = 1 + 1e-12  # the rounding error of a sum of deltas
_SEARCHED = (
    40.0  # range below the logarithm of two changes' delta in which that of one change is searched
)


@dataclass(frozen=True)
class TotalPrivacy:
    """The guarantee against somebody who sees all of several fits; made by ``total``.

    :param epsilon: rounded up to 4 decimals; infinite if there is no guarantee.
    :param delta: as asked for, or larger if overflow, tail and rounding cost too much of it.
    :param relation: which data sets are neighbours.
    :param fits: their number.
    :param method: "pld", "basic composition" or "group privacy"; in a ledger also "Renyi filter",
        "one seed" or "several units".
    """

    epsilon: float
    delta: float
    relation: str
    fits: int
    method: str

    def statement(self, unit: str) -> str:
        """The guarantee in plain words.

        :param unit: what one record is, in words.
        """
        who = (
            "The one fit"
            if self.fits == 1
            else f"{'Both' if self.fits == 2 else f'All {self.fits}'} fits together, on the same "
            "records,"
        )
        change = change_of(self.relation, unit)
        if not math.isfinite(self.epsilon):
            have = "has" if self.fits == 1 else "have"
            return (
                f"{who} {have} no finite epsilon at delta = {upper(self.delta)} under {change}, "
                "so there is no guarantee."
            )
        shown = f"{self.epsilon:.4f}".rstrip("0").rstrip(".")
        promise = (
            f"(epsilon = {shown}, delta = {upper(self.delta)})-differential privacy under {change}."
        )
        if self.fits == 1:
            return f"{who} satisfies {promise}"
        return f"{who} satisfy {promise} Anyone who sees several of their results can combine them."


def total(guarantees: Sequence[Guarantee], delta: float | None = None) -> TotalPrivacy:
    """Upper bound on what all fits together reveal about one record that they share.

    It counts the planned steps, so early stops change nothing. It holds if the plans were fixed
    without looking at results (models and learning rates may follow them), and if each fit drew its
    own noise, which two fits with one seed did not.

    :param guarantees: of the fits, at least one.
    :param delta: in (0, 1), for which epsilon is stated; by default the largest delta of the fits.
        If overflow, tail and rounding cost more than half of it, the stated delta is twice their
        cost, or the sum of the fits' deltas if that is less.
    :raises ArgumentError: naming ``guarantees`` if there are none, or ``delta``.
    """
    fits = tuple(guarantees)
    if not fits:
        raise _validate.ArgumentError("guarantees", [], "must have at least one guarantee.")
    if not all(fit.is_private for fit in fits):
        raise _validate.ArgumentError(
            "guarantees", "no privacy", "include a fit without noise, so there is no total."
        )
    target_delta = _validate.probability(
        "delta", max(fit.delta for fit in fits) if delta is None else delta
    )
    groups: dict[str, list[Guarantee]] = {}
    for fit in fits:
        groups.setdefault(fit.relation, []).append(fit)
    if len(groups) == 1:
        relation = fits[0].relation
        epsilon, stated, method = _composed(fits, target_delta, 1)
        # calibration leaves a little room, but a total is never below the epsilon of one of its
        # fits
        epsilon = max([epsilon, *(fit.epsilon for fit in fits if fit.delta >= target_delta)])
    else:
        relation, method = "replace_one", "group privacy"
        group_delta = target_delta / len(groups)
        bounds = [
            _composed(group, group_delta, 1 if name == relation else 2)[:2]
            for name, group in groups.items()
        ]
        epsilon, stated = (math.fsum(column) for column in zip(*bounds, strict=True))
    if stated >= 1:
        epsilon, stated = math.inf, target_delta
    elif stated <= target_delta * _LAST_BITS:
        stated = target_delta
    else:
        stated = round_up(stated / _LAST_BITS, 2 - math.floor(math.log10(stated)))
    return TotalPrivacy(round_up(epsilon, 4), stated, relation, len(fits), method)


def _composed(fits: Sequence[Guarantee], delta: float, changes: int) -> tuple[float, float, str]:
    """(epsilon of fits under one relation, the delta >= ``delta`` at which it holds, the method).

    :param changes: 1 for neighbours; 2 for two neighbours of the same data set.
    """
    basic = math.fsum(changes * fit.epsilon for fit in fits)
    spent = math.fsum(
        fit.delta if changes == 1 else _of_two(fit.epsilon, fit.delta) for fit in fits
    )
    cost = implementation_delta(fits, delta, changes)
    stated = max(delta, 2 * cost)
    if stated <= max(delta, spent):
        remaining = (
            stated * math.exp(-math.fsum(fit.noise_delta / fit.delta for fit in fits)) - cost
        )
        epsilon = (
            _ideal_epsilon(tuple(fit.accounted() for fit in fits), remaining, changes)
            if remaining > 0
            else math.inf
        )
        if math.isfinite(epsilon) and (epsilon <= basic or spent > stated):
            return epsilon, stated, "pld"
    return basic, max(delta, spent), "basic composition"


def _of_two(epsilon: float, delta: float) -> float:
    """The delta of two changes that have (epsilon, delta) each."""
    return (1 + math.exp(epsilon)) * delta if epsilon < _LARGEST_EXPONENT else math.inf


def _ideal_epsilon(
    plans: tuple[accounting.Plan, ...], delta: float, changes: int, coarse: bool = False
) -> float:
    """Upper bound on the epsilon of ideal fits at ``delta``; infinite if there is none."""
    if changes == 1:
        return accounting.total_epsilon(plans, delta, coarse)
    # bisect the logarithm of one change's delta for the largest that keeps the delta of two changes
    low, high, best = math.log(delta) - _SEARCHED, math.log(delta / 2), math.inf
    for _ in range(8):
        middle = (low + high) / 2
        epsilon = accounting.total_epsilon(plans, math.exp(middle), coarse)
        if _of_two(epsilon, math.exp(middle)) <= delta:
            low, best = middle, min(best, 2 * epsilon)
        else:
            high = middle
    return best


def implementation_delta(fits: Sequence[Guarantee], delta: float, changes: int) -> float:
    """What overflow, tail and rounding of the fits add to delta at every epsilon.

    :param delta: a thousandth of it may be used for the largest losses of samplers that round.
    :param changes: 1 for neighbours; 2 for two neighbours of the same data set.
    """
    allowance = _ROUNDING_SHARE * delta / len(fits)
    return math.fsum(
        _failure(fit) + _noise(fit) + _tail(fit, changes) + _rounding(fit, allowance, changes)
        for fit in fits
    )


def _failure(fit: Guarantee) -> float:
    """Probability that a minibatch of the fit overflows or is not ideal; the plan counts it (1 +
    e^epsilon) times.
    """
    return fit.overflow_delta / (1 + math.exp(min(fit.epsilon, _LARGEST_EXPONENT)))


def _noise(fit: Guarantee) -> float:
    """Upper bound on the total variation of the fit's noise from exact draws that its plan counts
    (1 + e^epsilon) times.

    What the plan counts otherwise (``noise.integers.delta_cost``) costs the same delta at every
    epsilon.
    """
    if fit.arithmetic == "floating point":
        return 0.0
    return fit.noise_delta / (1 + math.exp(min(fit.epsilon, _LARGEST_EXPONENT)))


def _tail(fit: Guarantee, changes: int) -> float:
    """The delta that noise costs at every epsilon; in floating point for the tail that it lacks
    beyond ``NORMAL_BOUND``.

    There ``noise_delta`` is the sum over steps of e sqrt(d) r phi(B) + r^2 B^2 P(Z > B - 1 / B) +
    P(Z > B - r) and a share of delta, for sums that differ by r standard deviations. Where r is
    twice that, all but the last grow at most fourfold.
    """
    if changes == 1 or fit.arithmetic != "floating point":
        return fit.noise_delta
    reach = changes * SENSITIVITY[fit.relation] / fit.noise_multiplier
    return 4 * fit.noise_delta + fit.steps * float(ndtr(reach - NORMAL_BOUND))


def _rounding(fit: Guarantee, allowance: float, changes: int) -> float:
    """What the rounding of sampler and noise adds to the fit's delta at every epsilon.

    :param allowance: delta of its largest losses.
    """
    failure = _failure(fit)
    if LAWS[fit.sampler].hides_size:
        records = max(fit.num_records, MOST_RECORDS)
        variation = max(_total_variation(fit.sampler, rate, records) for rate in fit.sampling_rates)
        failure = min(failure, fit.expected_steps * variation)
    failure += _noise(fit)
    if failure == 0:
        return 0.0
    largest = _ideal_epsilon((fit.accounted(),), allowance, changes, coarse=True)
    return allowance + _of_two(largest, failure)


@functools.lru_cache(maxsize=256)
def _total_variation(sampler: str, sampling_rate: float, num_records: int) -> float:
    """Upper bound on the total variation of a minibatch of up to ``num_records`` records from the
    ideal one, without overflow.

    The guarantee's N alone is not enough: there may be more records than were declared.
    """
    capacity = overflow_capacity(num_records, sampling_rate, _LOG_OVERFLOW)
    return LAWS[sampler].sampler(MOST_RECORDS, sampling_rate, capacity).total_variation
