"""A cap on what all fits on some records spend together. It holds even if each fit is chosen after
seeing the others.

Totals by privacy loss distributions (``ledger.composition``) hold for plans that were fixed
beforehand. If a fit may depend on the results of earlier ones, a Rényi filter keeps the cap
(Feldman and Zrnic 2021). At one order, which is fixed with the cap, the Rényi losses of all steps
are added up, and a fit that would raise the sum above the budget is refused. The delta that fits
cost because they are not exactly the accounted mechanism (the three costs of
``ledger.composition``) is added up as well, and must stay within a share of the cap's delta.

The cap comes with two conditions: it keeps its promise if it was set without looking at results,
and it counts steps taken, which is right however a stop was decided.

One plan needs no filter. If the first fits on the records were planned together and keep the cap by
their own total, they may run and use the cap up even where they do not pass the filter. This
decision depends on no record.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from workbench import _validate
from workbench.ledger.composition import implementation_delta, total
from workbench.privacy.guarantee import Guarantee, epsilon_of_steps
from workbench.privacy.rdp import MAX_ORDER, renyi_loss
from workbench.privacy.steps import SENSITIVITY

__all__ = ["Cap", "Loss", "RelationError", "Used", "percent", "taken_part"]

_FILTER_SHARE = 0.9  # of delta; the rest is for the costs of implementations
_ORDERS = (*range(2, 65), *(round(64 * 2 ** (power / 8)) for power in range(1, 41)))  # up to 2048
# of the cap's delta, a thousandth of which may go to a fit's largest losses: each gives a bound on
# what its rounding costs
_ROUNDED_AT = (0.1, 1e-6)
_SEARCHES = 20
_LOUDEST = math.log(1e4)  # sigma


class RelationError(_validate.ArgumentError):
    """A cap cannot count a fit, because of its neighbouring relation."""


class Loss(NamedTuple):
    """What fits use of a cap.

    :param renyi: Rényi loss at the cap's order.
    :param delta: cost of overflow, tail and rounding.
    :param log_factor: logarithm of the factor by which the noise's missing tail raises densities.
    """

    renyi: float
    delta: float
    log_factor: float

    @classmethod
    def sum(cls, losses: Iterable[Loss]) -> Loss:
        """The loss of several fits."""
        columns = list(zip(*losses, strict=True)) or [(), (), ()]
        return cls(*map(math.fsum, columns))


class Used(NamedTuple):
    """The shares of a cap that fits have used: in [0, 1], or above 1 if the cap was overridden.

    :param epsilon: of the Rényi loss. :param delta: of the delta for overflow, tail and rounding.
    """

    epsilon: float
    delta: float

    @property
    def most(self) -> float:
        """The share of what runs out first."""
        return max(self)

    def short_of_delta(self) -> str:
        """That delta, and not epsilon, is what a cap lacks, and what helps."""
        return (
            f"It runs short of delta ({percent(self.delta)} of what is set aside for overflow, "
            f"rounding and the noise's tail is used), not of epsilon ({percent(self.epsilon)}). "
            "Fits with a smaller delta cost less of it, and a cap with a larger delta allows "
            "more."
        )


def percent(fraction: float) -> str:
    """A share such as "61 %"; 100 % only if all is used."""
    return f"{100 if fraction >= 1 else min(99, round(100 * fraction))} %"


@dataclass(frozen=True)
class Cap:
    """At most (epsilon, delta) for all fits together under ``relation``; made by ``Cap.checked``.

    :param order: of the filter, a whole number >= 2.
    """

    epsilon: float
    delta: float
    relation: str
    order: int

    @classmethod
    def checked(
        cls,
        epsilon: float,
        delta: float,
        relation: str = "add_or_remove_one",
        order: int | None = None,
    ) -> Cap:
        """A cap that some fit can keep.

        :param epsilon: in (0, 100].
        :param delta: in (0, 1).
        :param relation: which data sets are neighbours. A cap under replace_one counts fits of all
            relations; a cap under another relation counts fits of that relation only.
        :param order: in [2, 2048]; by default the one that allows most fits with Gaussian noise and
            full batches. A smaller order suits fits that sample records rarely and add little
            noise.
        :raises ArgumentError: naming the argument and its value.
        """
        epsilon = _validate.epsilon("epsilon", epsilon)
        delta = _validate.probability("delta", delta)
        relation = _validate.choice("relation", relation, SENSITIVITY)
        if order is None:
            order = max(
                _ORDERS,
                key=lambda candidate: cls(epsilon, delta, relation, candidate).budget / candidate,
            )
        cap = cls(
            epsilon,
            delta,
            relation,
            _validate.integer("order", order, at_least=2, at_most=MAX_ORDER // 2),
        )
        if cap.budget <= 0:
            raise _validate.ArgumentError(
                "epsilon", epsilon, f"is so small that no fit keeps it at delta = {delta:g}."
            )
        return cap

    @functools.cached_property
    def budget(self) -> float:
        """The largest Rényi loss at ``order`` from which (epsilon, the filter's share of delta)
        follows.

        Canonne, Kamath and Steinke 2020, Proposition 12.
        """
        a = self.order
        return (
            self.epsilon
            - math.log1p(-1 / a)
            + (math.log(_FILTER_SHARE * self.delta) + math.log(a)) / (a - 1)
        )

    def loss(self, fit: Guarantee) -> Loss:
        """What all planned steps of ``fit`` use. For the steps taken, give ``taken_part``.

        :raises RelationError: if the cap cannot count the fit's relation.
        """
        return _loss(self, replace(fit, caveats=(), epsilon_taken=0.0, steps_taken=0))

    def allows(self, losses: Iterable[Loss]) -> bool:
        """Whether fits with these losses together keep the cap."""
        used = Loss.sum(losses)
        of_filter = _FILTER_SHARE * self.delta * math.exp(used.log_factor)
        return used.renyi <= self.budget and self.delta - of_filter - used.delta >= 0

    def admits(self, fits: Sequence[Guarantee], before: Sequence[Guarantee]) -> bool:
        """Whether ``fits`` may run after ``before``: by the filter, or as the first plan of all by
        its own total.

        :raises RelationError: as ``loss``.
        """
        losses = [self.loss(fit) for fit in (*before, *fits)]
        return self.allows(losses) or (not before and self.kept_by_plan(fits))

    def kept_by_plan(self, fits: Sequence[Guarantee]) -> bool:
        """Whether ``fits``, planned beforehand, keep the cap if there are no others."""
        if any(fit.relation != self.relation for fit in fits):
            return False
        composed = total(fits, self.delta)
        return composed.epsilon <= self.epsilon and composed.delta <= self.delta

    def used(self, fits: Iterable[Guarantee]) -> Used:
        """The shares of the cap that ``fits`` have used."""
        used = Loss.sum(map(self.loss, fits))
        of_delta = _FILTER_SHARE * self.delta * math.expm1(used.log_factor) + used.delta
        return Used(used.renyi / self.budget, of_delta / ((1 - _FILTER_SHARE) * self.delta))

    def how_many_more(self, fit: Guarantee, before: Sequence[Guarantee]) -> int:
        """How many fits like ``fit`` may still run, one after the other."""
        used, per_fit = Loss.sum(map(self.loss, before)), self.loss(fit)
        if not before and not self.allows([per_fit]):
            return int(self.kept_by_plan([fit]))
        count = (
            max(0, math.floor((self.budget - used.renyi) / per_fit.renyi))
            if per_fit.renyi > 0
            else 2**31
        )

        def allowed(number: int) -> bool:
            return self.allows([used, Loss(*(number * component for component in per_fit))])

        if allowed(count):
            return count
        low = 0  # the deltas allow fewer
        while count - low > 1:
            middle = (low + count) // 2
            low, count = (middle, count) if allowed(middle) else (low, middle)
        return low

    def largest_epsilon(self, fit: Guarantee, before: Sequence[Guarantee]) -> float:
        """The largest epsilon with which ``fit``, which is refused, would be allowed; 0 if there is
        none.

        Rounded down to 3 digits.
        """
        used = [self.loss(earlier) for earlier in before]

        def with_noise(log_sigma: float) -> Guarantee:
            sigma = math.exp(log_sigma)  # a look's noise is in proportion
            look_noise = fit.look_noise * sigma / fit.noise_multiplier
            return replace(fit, noise_multiplier=sigma, look_noise=look_noise)

        def allowed(log_sigma: float) -> bool:
            return self.allows([*used, self.loss(with_noise(log_sigma))])

        quiet, loud = math.log(fit.noise_multiplier), _LOUDEST
        if not allowed(loud):
            return 0.0
        for _ in range(_SEARCHES):
            middle = (quiet + loud) / 2
            quiet, loud = (quiet, middle) if allowed(middle) else (middle, loud)
        epsilon = taken_part(replace(with_noise(loud), epsilon=math.inf), fit.steps).epsilon
        scale = 10.0 ** (2 - math.floor(math.log10(epsilon))) if epsilon > 0 else 1.0
        return math.floor(epsilon * scale * (1 - 1e-3)) / scale


def taken_part(fit: Guarantee, steps: int) -> Guarantee:
    """``fit`` as if it had been planned with the first ``steps`` of its steps, all of
    them taken.
    """
    if steps == fit.steps and math.isfinite(fit.epsilon):
        return fit
    epsilon = min(fit.epsilon, epsilon_of_steps(fit, steps))
    return replace(fit, steps=steps, steps_taken=steps, epsilon=epsilon, epsilon_taken=epsilon)


@functools.lru_cache(maxsize=4096)
def _loss(cap: Cap, fit: Guarantee) -> Loss:
    if fit.relation != cap.relation and cap.relation != "replace_one":
        raise RelationError(
            "relation",
            fit.relation,
            f"cannot be counted under a cap for {cap.relation}: choose a sampler with a "
            "guarantee for that, or set the cap under replace_one, which counts all relations.",
        )
    changes = 1 if fit.relation == cap.relation else 2
    return Loss(
        renyi_loss(fit.accounted(), cap.order, changes=changes),
        min(implementation_delta([fit], fraction * cap.delta, changes) for fraction in _ROUNDED_AT),
        fit.noise_delta / fit.delta,
    )
