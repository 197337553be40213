"""What was spent on a data set and its relatives, and whether more may be spent, as a ``Ledger``
reads it from its file.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import _numbers, _validate
from workbench.ledger.composition import TotalPrivacy, total
from workbench.ledger.entries import (
    CLONES,
    FILTER,
    NAMESAKES,
    NO_CAP,
    NOT_COMPARED,
    OVERRIDE,
    PLAN,
    Entry,
    Spend,
)
from workbench.ledger.renyi_filter import Cap, Used, percent
from workbench.privacy.guarantee import Guarantee

__all__ = ["BudgetStatus", "CapError", "count"]

_SHOWN = 8  # data sets in a sentence
_MUCH = 0.5  # of a cap's delta, from where on it is said
_OVER_CAP = (
    "To go over it on purpose, which is recorded, give over_cap= of wb.Privacy with the reason."
)


class CapError(_validate.ArgumentError):
    """A fit would raise what is spent on its records above their cap.

    ``status`` is what was spent before. ``code`` is "over cap"; "cap relation", if the cap cannot
    count the fit; or "cap seed", if the fit has the noise of an earlier one. ``over_cap`` allows
    the first two on purpose.
    """

    def __init__(
        self,
        argument: str,
        value: Any,
        expectation: str,
        status: BudgetStatus,
        *,
        code: str,
        remedy: str = _OVER_CAP,
    ) -> None:
        self.status = status
        super().__init__(argument, value, expectation, code=code, remedy=remedy)


@dataclass(frozen=True)
class BudgetStatus:
    """What was spent on a data set and its relatives.

    :param entry: the data set; None if the ledger has never seen it.
    :param relatives: ``(entry, why)`` of the data sets whose fits count too; why as in ``entries``.
    :param spends: of all of them, in order.
    :param interrupted: numbers of reservations whose process has ended.
    :param namesakes: data sets of the same name that are counted separately, because there is no
        cap.
    :param begun_anew: when the ledger was begun anew, "" for never.
    """

    entry: Entry | None
    relatives: tuple[tuple[Entry, str], ...] = ()
    spends: tuple[Spend, ...] = ()
    interrupted: tuple[int, ...] = ()
    namesakes: tuple[Entry, ...] = ()
    begun_anew: str = ""

    @property
    def caps(self) -> tuple[Entry, ...]:
        """The entries that have a cap, all of which must be kept."""
        return tuple(entry for entry, _ in self._caps)

    @property
    def _caps(self) -> list[tuple[Entry, Cap]]:
        entries = [self.entry, *(entry for entry, _ in self.relatives)]
        return [(entry, entry.cap) for entry in filter(None, entries) if entry.cap is not None]

    @property
    def parts(self) -> tuple[Guarantee, ...]:
        """The guarantees of all planned steps of all fits of which anything counts."""
        return tuple(filter(None, (spend.promise for spend in self.spends)))

    @property
    def _before(self) -> tuple[Guarantee, ...]:
        return tuple(filter(None, (spend.under_filter for spend in self.spends)))

    @property
    def reserved(self) -> tuple[Spend, ...]:
        """Fits that have not ended, or whose end is unknown."""
        return tuple(spend for spend in self.spends if spend.status == "reserved")

    def status_of(self, spend: Spend) -> str:
        """The status of one of ``spends``, which is "interrupted" while it is reserved for a
        process that has ended.
        """
        return "interrupted" if spend.number in self.interrupted else spend.status

    @functools.cached_property
    def repeated_seeds(self) -> tuple[int, ...]:
        """Seeds that several different fits drew their noise from. Together these fits have no
        guarantee.
        """
        fits: dict[int, set[tuple[int, str]]] = {}
        for spend in self.spends:
            if spend.seed is not None and spend.counts:
                fits.setdefault(spend.seed, set()).add((spend.dataset, spend.plan))
        return tuple(sorted(seed for seed, different in fits.items() if len(different) > 1))

    @functools.cached_property
    def units(self) -> tuple[str, ...]:
        """The privacy units of the fits, in words. Fits with several have no common total
        (``unit_of``).
        """
        return self.units_with()

    def units_with(self, *fits: Guarantee) -> tuple[str, ...]:
        """``units`` after ``fits`` too."""
        return tuple(dict.fromkeys(map(unit_of, (*self.parts, *fits))))

    @functools.cached_property
    def total(self) -> TotalPrivacy | None:
        """The total of all fits, if their plans were fixed beforehand; None if nothing was spent.

        All planned steps count, so it holds however stops were decided. Where a cap was kept from
        the first fit on and is less, it is the total. Fits under several relations are totalled
        under replace_one. ``totals`` has each relation apart.
        """
        bound = self._total(self.parts)
        cap = self._cap_of_all
        if (
            bound is None
            or cap is None
            or cap.relation != bound.relation
            or bound.epsilon <= cap.epsilon
        ):
            return bound
        return dataclasses.replace(
            bound, epsilon=cap.epsilon, delta=cap.delta, method="Renyi filter"
        )

    @functools.cached_property
    def totals(self) -> tuple[TotalPrivacy, ...]:
        """The total of the fits of each unit and relation, in the order of ``kinds``."""
        bounds = (
            self._total([guarantee for guarantee in self.parts if _kind(guarantee) == kind])
            for kind in self.kinds
        )
        return tuple(filter(None, bounds))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        """(unit, relation) of the fits, each once."""
        return tuple(dict.fromkeys(map(_kind, self.parts)))

    def _total(self, guarantees: Sequence[Guarantee]) -> TotalPrivacy | None:
        if not guarantees:
            return None
        bound = total(guarantees, next((cap.delta for _, cap in self._caps), None))
        if self.repeated_seeds:
            return dataclasses.replace(bound, epsilon=math.inf, method="one seed")
        if len(set(map(unit_of, guarantees))) > 1:
            return dataclasses.replace(bound, epsilon=math.inf, method="several units")
        return bound

    def used(self) -> float | None:
        """Share of the tightest cap that is used up; infinite if it cannot count some fit, None
        without a cap.
        """
        used = [] if len(self.units) > 1 else self._used_of_each()
        return max((usage.most for _, usage in used), default=math.inf) if self.caps else None

    def _used_of_each(self) -> list[tuple[Entry, Used]]:
        """What is used of each cap; none if one of them cannot count some fit."""
        try:
            return [(entry, cap.used(self._before)) for entry, cap in self._caps]
        except _validate.ArgumentError:
            return []

    def how_many_more(self, fit: Guarantee) -> int | None:
        """How many fits like ``fit`` the caps still allow; None without a cap, 0 if a cap cannot
        count it.
        """
        if self.caps and len(self.units_with(fit)) > 1:
            return 0
        try:
            return min(
                (cap.how_many_more(fit, self._before) for _, cap in self._caps), default=None
            )
        except _validate.ArgumentError:
            return 0

    def check(self, fits: Sequence[Guarantee], seed: int | None = None) -> str:
        """The rule that allows ``fits``.

        :raises CapError: naming ``epsilon``, with what would fit instead; ``relation``, for fits
            that a cap cannot count; or ``seed``, for one that was used before.
        """
        rules = set()
        if self.caps and len(units := self.units_with(*fits)) > 1:
            raise CapError(
                "unit_id",
                fits[0].unit,
                "cannot be counted under one cap: fits of these records protect "
                f"{_listed(units)}, and what they spend for one is not what they spend for "
                "another.",
                self,
                code="cap unit",
            )
        for entry, cap in self._caps:
            try:
                allowed = cap.admits(fits, self._before)
                by_filter = allowed and cap.allows(map(cap.loss, (*self._before, *fits)))
            except _validate.ArgumentError as error:
                raise CapError(
                    error.argument, error.value, error.expectation, self, code="cap relation"
                ) from None
            if not allowed:
                raise CapError(
                    "epsilon",
                    fits[0].epsilon,
                    self._refusal(entry.name, cap, fits),
                    self,
                    code="over cap",
                )
            rules.add(FILTER if by_filter else PLAN)
        if (
            self.caps
            and seed is not None
            and any(spend.seed == seed and spend.counts for spend in self.spends)
        ):
            raise CapError(
                "seed",
                seed,
                "gave the noise of an earlier fit on these records; the two together have no "
                "guarantee.",
                self,
                code="cap seed",
                remedy="Leave the seed out, or give another.",
            )
        return PLAN if PLAN in rules else FILTER if rules else NO_CAP

    def check_cap(self, cap: Cap) -> None:
        """Refuse a cap for these records if they have others.

        :raises ArgumentError: naming ``cap``, with one of those.
        """
        if self._caps and cap not in [
            dataclasses.replace(existing, order=cap.order) for _, existing in self._caps
        ]:
            owner, existing = self._caps[0]
            whose = "the cap of these records in the ledger"
            if owner is not self.entry:
                whose = (
                    f"the cap of data set {owner.number} ({owner.name}), with which these "
                    "records count"
                )
            numbers = f"epsilon = {existing.epsilon:g} at delta = {existing.delta:g}"
            if existing.relation == cap.relation:
                reason = f"is not {whose}: {numbers}."
            else:
                reason = (
                    f"is under {cap.relation}, and {whose} is under {existing.relation}: {numbers}."
                )
            counts = existing.relation in (cap.relation, "replace_one")
            remedy = (
                "Leave it out to keep that one" if counts else "Give a sampler of that relation"
            )
            remedy += ", or change that one with Ledger.set_cap."
            if (owner, NAMESAKES) in self.relatives:
                remedy += " For records of other people, give another name=."
            raise _validate.ArgumentError(
                "cap", (cap.epsilon, cap.delta), reason, code="another cap", remedy=remedy
            )

    def check_rest(self, spend: Spend) -> str:
        """The rule that allows ``spend``, one of ``spends``, to continue to the end of its planned
        steps.

        :raises CapError: as ``check``; never if all its steps count already, or were allowed as a
            whole or on purpose.
        """
        if spend.taken is None or spend.rule in (OVERRIDE, PLAN):
            return spend.rule
        remaining = tuple(candidate for candidate in self.spends if candidate.key != spend.key)
        return dataclasses.replace(self, spends=remaining).check([spend.guarantee], spend.seed)

    def _refusal(self, name: str, cap: Cap, fits: Sequence[Guarantee]) -> str:
        subject = "this fit" if len(fits) == 1 else f"these {len(fits)} fits"
        used = cap.used(self._before)
        text = (
            f"{subject} would raise what is spent on {name!r} above its cap of epsilon = "
            f"{cap.epsilon:g} "
        )
        text += f"at delta = {cap.delta:g}, of which {percent(used.most)} is used."
        largest = max(fits, key=lambda fit: fit.epsilon)
        epsilon = cap.largest_epsilon(largest, self._before)
        if cap.used([*self._before, *fits]).epsilon <= 1 or (
            not epsilon and used.delta > used.epsilon
        ):
            text = f"{text} {used.short_of_delta()}"
        if len(fits) > 1:
            text += f" {cap.how_many_more(largest, self._before)} like the largest would fit."
        else:
            text += (
                f" The same with epsilon={epsilon:g} would fit."
                if epsilon
                else " Nothing like it would fit."
            )
        return " ".join([text, *self._by_name()])

    def _by_name(self) -> tuple[str, ...]:
        """A sentence if data sets count for their name alone."""
        numbers = [
            f"{entry.number} ({entry.name})" for entry, why in self.relatives if why == NAMESAKES
        ]
        if not numbers:
            return ()
        return (
            f"Counted too, because of the name and the cap: {_some(numbers)}. In the ledger, "
            "separate those of other people, with the reason, and give other people's records "
            "another name.",
        )

    @property
    def _is_kept(self) -> bool:
        """Whether all fits that count now keep the caps, also where they were related after they
        had run.
        """
        if any(spend.rule == OVERRIDE for spend in self.spends):
            return False
        as_plan = all(spend.rule == PLAN for spend in self.spends)
        try:
            return all(
                cap.allows(map(cap.loss, self._before))
                or (as_plan and cap.kept_by_plan(self._before))
                for _, cap in self._caps
            )
        except _validate.ArgumentError:
            return False

    @property
    def _cap_of_all(self) -> Cap | None:
        """The cap that every fit which counts had to keep before it began; None if there
        is none.
        """
        if self.entry is None or self.relatives or len(self.units) > 1 or self.repeated_seeds:
            return None
        after = self.entry.after
        allowed = all(
            spend.rule in (FILTER, PLAN) and spend.number > after for spend in self.spends
        )
        return self.entry.cap if allowed else None

    def cautions(self) -> tuple[str, ...]:
        """The conditions under which the numbers hold, a sentence each."""
        scarce = [
            (entry.name, used)
            for entry, used in self._used_of_each()
            if _MUCH <= used.delta > used.epsilon
        ]
        lines = [f"Cap of {name!r}: {used.short_of_delta()}" for name, used in scarce]
        for entry in self.caps:
            if any(spend.number <= entry.after for spend in self.spends):
                lines.append(
                    f"The cap of {entry.name!r} was set or changed after fits had begun. It is "
                    "valid only if it was not chosen by looking at their results."
                )
        stopped = sum(spend.counts and spend.counted < spend.planned for spend in self.spends)
        if stopped:
            lines.append(
                f"{count(stopped, 'fit')} ended early. Totals count all planned steps, because "
                "an output may have decided when to stop. A cap counts the steps taken, which is "
                "right in that case too."
            )
        if overridden := [spend for spend in self.spends if spend.rule == OVERRIDE]:
            lines.append(
                f"{count(len(overridden), 'fit')} went over a cap on purpose: "
                f"{overridden[-1].why!r}."
            )
        if self.repeated_seeds:
            lines.append(
                "Several fits drew their noise from the same seed. Together they have no guarantee."
            )
        if len(self.units) > 1:
            lines.append(
                f"The fits protect different units ({_listed(self.units)}) and have no common "
                "total. A fit that protects a row with epsilon protects a person with k rows "
                "with k epsilon at a larger delta (group privacy)."
            )
        if any(why == CLONES for _, why in self.relatives):
            lines.append(
                "Copies of one estimator were fitted. A fit counts each of its rows once: where "
                "rows were drawn with replacement, it promises less to a person whose row was "
                "drawn several times (group privacy)."
            )
        lines += [*self._by_name(), *self.mix_ups()]
        if self.begun_anew:
            lines.append(
                f"The ledger was begun anew on {self.begun_anew[:10]}. It does not know what was "
                "spent before."
            )
        if self.interrupted:
            was, its = ("was", "its") if len(self.interrupted) == 1 else ("were", "their")
            lines.append(
                f"{count(len(self.interrupted), 'fit')} {was} interrupted. All {its} planned "
                f"steps count until you resume {'it' if its == 'its' else 'them'} or let the "
                "ledger recover."
            )
        return tuple(lines)

    def mix_ups(self) -> tuple[str, ...]:
        """A sentence for each case in which a person must say whether records are shared."""
        lines = []
        if self.namesakes:
            names = self.namesakes[0].names
            name = (
                names[0]
                if self.entry is None
                else next(alias for alias in names if alias in self.entry.names)
            )
        if len(self.namesakes) == 1:
            lines.append(
                f"Data set {self.namesakes[0].number} is also called {name!r} and is counted "
                "separately, because there is no cap. In the ledger, relate the two if they "
                "share records, or separate them."
            )
        elif self.namesakes:
            numbers = [str(entry.number) for entry in self.namesakes]
            lines.append(
                f"These data sets are also called {name!r} and are counted separately, because "
                f"there is no cap: {_some(numbers)}. In the ledger, relate those that share "
                "records with these, and separate the others."
            )
        uncompared = [
            f"{entry.number} ({entry.name})" for entry, why in self.relatives if why == NOT_COMPARED
        ]
        if uncompared:
            lines.append(
                "These data sets were entered with another key and are counted too: "
                f"{_some(uncompared)}. Nobody can tell whether they share these records. In the "
                "ledger, separate those that do not."
            )
        return tuple(lines)

    def statement(self) -> str:
        """What was spent, in plain words, with the conditions."""
        return " ".join([self.spending(), *self.cautions()])

    def spending(self) -> str:
        """``statement`` without its conditions."""
        if self.total is None:
            return "According to this ledger, nothing was spent on these records."
        unit = (self.entry or self.relatives[0][0]).unit
        words = [] if len(self.units) > 1 else [self.total.statement(unit)]
        if len(self.totals) > 1:
            named = (kind[0] if len(self.units) > 1 else unit for kind in self.kinds)
            words += [bound.statement(name) for bound, name in zip(self.totals, named, strict=True)]
        if len(self.parts) > 1:
            words.append("These totals hold for plans that were fixed without looking at results.")
            if not self.caps:
                words.append("Set a cap to be safe in any case.")
            elif self._is_kept:
                words.append("The cap holds for others too, and however stops were decided.")
        return " ".join(words)


def unit_of(fit: Guarantee) -> str:
    """What a fit protects: a row, or someone with several. Rows are one unit, whatever each fit
    calls them.
    """
    return "row" if fit.max_rows is None else fit.unit


def _kind(fit: Guarantee) -> tuple[str, str]:
    return unit_of(fit), fit.relation


def _some(names: Sequence[str]) -> str:
    """Names with commas, of which the first few are spelt out."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _listed(units: Iterable[str]) -> str:
    return " and ".join(f"one {unit}" for unit in units)


def count(number: int, noun: str) -> str:
    """ "1 fit", "2 fits"."""
    return f"{_numbers.count(number)} {noun}{'s' * (number != 1)}"
