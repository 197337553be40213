"""What several private fits on the same records come to together: one epsilon and one delta for all of them.

Under one relation the privacy losses of all planned steps are composed ("pld"). Fits under several relations are brought to
replace_one, which takes two changes of the others: removing one record and adding another, or blanking one and filling the
blank. What (epsilon, delta) allows for one change, (2 epsilon, (1 + e^epsilon) delta) allows for two.

A fit that ran is not exactly the mechanism that is accounted for, and what that costs adds up over the fits:

*Overflow.* Toss the coin of the one record in which neighbours differ in both of them. Unless it and the other records
drawn are more than the padding holds, the minibatches differ in that record alone, as accounted for. Whether they are more
depends on no record, so its probability counts once as delta (joint convexity of the hockey-stick divergence).

*Tail.* What ``Guarantee.truncation_delta`` counts is a probability of outcomes as well, and a factor on densities, which is
multiplied over the fits.

*Rounding.* A fit whose minibatches are within total variation t of ideal ones has at epsilon a delta larger by
(1 + e^epsilon) t. Up to some epsilon e that is at most (1 + e^e) t, and beyond e delta is at most what it is at e. So at
every epsilon delta is at most delta_ideal(e) + (1 + e^e) t above the ideal, whatever epsilon the other fits have.

A fit whose delta is at most c above the ideal at every epsilon can be simulated from the ideal one of which a probability c
has been moved to outcomes that tell all (Blackwell's theorem). So such costs add up.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr

from workbench import _validate
from workbench.noise.normals import NORMAL_BOUND
from workbench.privacy import accounting
from workbench.privacy.accounting import round_up
from workbench.privacy.guarantee import _RELATIONS, Guarantee
from workbench.privacy.steps import SENSITIVITY, Steps
from workbench.sampling import PoissonSampler
from workbench.sampling.poisson import overflow_capacity

__all__ = ["TotalPrivacy", "implementation_delta", "total"]

_ROUNDING_SHARE = 1e-3  # of delta, for the largest losses of the fits whose samplers round
_MOST_RECORDS = 2**30 - 1  # that a sampler draws from
_LOG_OVERFLOW = -1000.0  # no plan asks for a rarer one
_LARGEST_EXPONENT = 700.0
_LAST_BITS = 1 + 1e-12  # by which a sum of deltas may differ from what it should be
_SEARCHED = 40.0  # how far below the logarithm of two changes' delta that of one is searched


@dataclass(frozen=True)
class TotalPrivacy:
    """What is promised to whoever sees all of several fits; made by ``total``.

    :param epsilon: rounded up to 4 decimals; infinite where no promise holds.
    :param delta: the one asked for, or larger where overflow, tail and rounding cost too much of it.
    :param relation: which data sets are neighbours. :param fits: how many.
    :param method: "pld", "basic composition" or "group privacy".
    """

    epsilon: float
    delta: float
    relation: str
    fits: int
    method: str

    def statement(self, unit: str) -> str:
        """The promise in plain words. :param unit: what one record is, in words."""
        who = "The one fit" if self.fits == 1 else f"All {self.fits} fits together, on the same records,"
        change = _RELATIONS[self.relation].format(unit=unit)
        if not math.isfinite(self.epsilon):
            return f"{who} can be given no epsilon at delta = {self.delta:g} under {change}: together they promise nothing."
        shown = f"{self.epsilon:.4f}".rstrip("0").rstrip(".")
        promise = f"(epsilon = {shown}, delta = {self.delta:g})-differential privacy under {change}."
        if self.fits == 1:
            return f"{who} satisfies {promise}"
        return f"{who} satisfy {promise} Whoever looks at several of them learns from all."


def total(guarantees: Sequence[Guarantee], delta: float | None = None) -> TotalPrivacy:
    """Upper bound on what all fits together give away about one of the records that they share.

    It is that of the planned steps, so early stops change nothing. It holds where the plans were settled without looking at
    results (models and learning rates may follow them), and where each fit drew noise of its own: two from one seed did not.

    :param guarantees: of the fits, at least one.
    :param delta: in (0, 1), at which epsilon is stated; the largest delta of the fits by default. Where overflow, tail and
        rounding cost more than half of it, twice their cost is stated, or the sum of the fits' deltas where that is less.
    :raises ArgumentError: naming ``guarantees`` where there are none, or ``delta``.
    """
    fits = tuple(guarantees)
    if not fits:
        raise _validate.ArgumentError("guarantees", [], "must be at least one.")
    asked = _validate.probability("delta", max(fit.delta for fit in fits) if delta is None else delta)
    groups: dict[str, list[Guarantee]] = {}
    for fit in fits:
        groups.setdefault(fit.relation, []).append(fit)
    if len(groups) == 1:
        relation = fits[0].relation
        epsilon, stated, method = _composed(fits, asked, 1)
        # calibration leaves a little room, but no total is stated below a single promise
        epsilon = max([epsilon, *(fit.epsilon for fit in fits if fit.delta >= asked)])
    else:
        relation, method = "replace_one", "group privacy"
        share = asked / len(groups)
        parts = [_composed(group, share, 1 if name == relation else 2)[:2] for name, group in groups.items()]
        epsilon, stated = (math.fsum(column) for column in zip(*parts, strict=True))
    if stated >= 1:
        epsilon, stated = math.inf, asked
    elif stated <= asked * _LAST_BITS:
        stated = asked
    else:
        stated = round_up(stated / _LAST_BITS, 2 - math.floor(math.log10(stated)))
    return TotalPrivacy(round_up(epsilon, 4), stated, relation, len(fits), method)


def _composed(fits: Sequence[Guarantee], delta: float, changes: int) -> tuple[float, float, str]:
    """Epsilon of fits under one relation, the delta >= ``delta`` at which it holds, and the method that gives it.

    :param changes: 1, or 2 for the epsilon of two neighbours of one data set.
    """
    basic = math.fsum(changes * fit.epsilon for fit in fits)
    spent = math.fsum(fit.delta if changes == 1 else _of_two(fit.epsilon, fit.delta) for fit in fits)
    cost = implementation_delta(fits, delta, changes)
    stated = max(delta, 2 * cost)
    if stated <= max(delta, spent):
        left = stated * math.exp(-math.fsum(fit.truncation_delta / fit.delta for fit in fits)) - cost
        epsilon = _ideal_epsilon(tuple(fit.accounted() for fit in fits), left, changes) if left > 0 else math.inf
        if math.isfinite(epsilon) and (epsilon <= basic or spent > stated):
            return epsilon, stated, "pld"
    return basic, max(delta, spent), "basic composition"


def _of_two(epsilon: float, delta: float) -> float:
    """The delta of two changes, of which each has (epsilon, delta)."""
    return (1 + math.exp(epsilon)) * delta if epsilon < _LARGEST_EXPONENT else math.inf


def _ideal_epsilon(plans: tuple[Steps, ...], delta: float, changes: int, coarse: bool = False) -> float:
    """Upper bound on epsilon of ideal fits at ``delta``; infinite where there is none."""
    if changes == 1:
        return accounting.total_epsilon(plans, delta, coarse)
    # the largest delta of one change, in logarithms, that keeps that of two
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

    :param delta: of which a thousandth may be used for the largest losses of samplers that round.
    :param changes: 1, or 2 for the delta of two neighbours of one data set.
    """
    share = _ROUNDING_SHARE * delta / len(fits)
    return math.fsum(_failure(fit) + _tail(fit, changes) + _rounding(fit, share, changes) for fit in fits)


def _failure(fit: Guarantee) -> float:
    """Probability that a minibatch of the fit overflows or is not ideal; the plan counts it (1 + e^epsilon) times."""
    return fit.overflow_delta / (1 + math.exp(min(fit.epsilon, _LARGEST_EXPONENT)))


def _tail(fit: Guarantee, changes: int) -> float:
    """The delta of the noise's missing tail.

    Where sums differ by twice as much, all terms of ``PrivacyPlan.truncation_delta`` but the last grow at most fourfold.
    """
    if changes == 1:
        return fit.truncation_delta
    reach = changes * SENSITIVITY[fit.relation] / fit.noise_multiplier
    return 4 * fit.truncation_delta + fit.steps * float(ndtr(reach - NORMAL_BOUND))


def _rounding(fit: Guarantee, share: float, changes: int) -> float:
    """What the sampler's rounding adds to the fit's delta at every epsilon: ``share`` is that of its largest losses."""
    failure = _failure(fit)
    if fit.sampler == "poisson":
        failure = min(failure, fit.steps * _poisson_rounding(fit.sampling_rate, max(fit.num_records, _MOST_RECORDS)))
    if failure == 0:
        return 0.0
    largest = _ideal_epsilon((fit.accounted(),), share, changes, coarse=True)
    return share + _of_two(largest, failure)


@functools.lru_cache(maxsize=256)
def _poisson_rounding(sampling_rate: float, num_records: int) -> float:
    """Total variation of a minibatch from ideal Poisson sampling, at most, from up to ``num_records`` records.

    The guarantee's N alone would not do: there may be more records than were declared.
    """
    capacity = overflow_capacity(num_records, sampling_rate, _LOG_OVERFLOW)
    return PoissonSampler(_MOST_RECORDS, sampling_rate, capacity).total_variation
