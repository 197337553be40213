"""What was spent on a data set and its relatives, and whether more may be: what a ``Ledger`` reads out of its file."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench import _validate
from workbench.ledger.composition import TotalPrivacy, total
from workbench.ledger.renyi_filter import Cap, taken_part
from workbench.privacy.guarantee import Guarantee

__all__ = ["FILTER", "NOT_COMPARED", "NO_CAP", "OVERRIDE", "PLAN", "BudgetStatus", "CapError", "Entry", "Spend"]

# by which a fit was allowed
NO_CAP, FILTER, PLAN, OVERRIDE = "no cap", "filter", "plan", "override"

NOT_COMPARED = "another key"  # how data sets are related of which nobody can tell whether they share records

_OVERRIDE = " To go over it on purpose, which is recorded, give over_cap= with the reason."


class CapError(_validate.ArgumentError):
    """A fit would lift what is spent on its records above their cap; ``standing`` is what was spent before."""

    def __init__(self, argument: str, value: Any, expectation: str, standing: BudgetStatus) -> None:
        self.standing = standing
        super().__init__(argument, value, expectation)


@dataclass(frozen=True)
class Entry:
    """A data set in the ledger.

    :param number: by which it may be named. :param cap: None where there is none. :param why: that the cap was given.
    :param after: number of the last fit in the ledger when the cap was set. :param time: when it was first seen.
    :param key: digest of the key that it was entered with, "" where that is not known.
    """

    number: int
    name: str
    fingerprint: str
    unit: str
    time: str
    cap: Cap | None = None
    why: str = ""
    after: int = 0
    key: str = ""


@dataclass(frozen=True)
class Spend:
    """One fit in the ledger.

    :param number: ascending in the order in which fits were reserved. :param key: unique.
    :param dataset: the entry's number. :param event: of dp-accounting, JSON-ready, for the planned steps.
    :param plan: digest of all that decides the result but data and randomness. :param planned: steps.
    :param seen: steps that may have been taken before it was resumed. :param reached: steps that may have been taken while
        it ran. :param taken: steps that count in the end, None while reserved.
    :param state: "reserved", "settled" or "recovered". :param rule: by which it was allowed: "no cap", "filter", "plan" or
        "override", with ``why``. :param owner: the process. :param run: folder of its checkpoints. :param result: where it
        was saved.
    """

    number: int
    key: str
    dataset: int
    model: str
    plan: str
    event: Mapping[str, Any]
    sampler: str
    relation: str
    guarantee: Guarantee
    seed: int | None
    planned: int
    seen: int
    reached: int
    taken: int | None
    state: str
    rule: str
    why: str
    who: str
    version: str
    owner: str
    began: str
    ended: str | None
    run: str | None
    result: str | None

    @property
    def counted(self) -> int:
        """Steps that count: all that are planned until it is known how many were taken."""
        return self.planned if self.taken is None else self.taken

    @property
    def part(self) -> Guarantee | None:
        """The promise of the steps that count; None where there are none."""
        return taken_part(self.guarantee, self.counted) if self.counted else None

    @property
    def under_filter(self) -> Guarantee | None:
        """``part`` as a cap counts it: a first plan that was allowed as a whole stays whole, however it ended."""
        return self.guarantee if self.rule == PLAN else self.part


@dataclass(frozen=True)
class BudgetStatus:
    """What was spent on a data set and its relatives.

    :param entry: the data set; None where the ledger has never seen it. :param relatives: ``(entry, how)`` of those whose
        fits count too. :param spends: of all of them, in order. :param interrupted: numbers of reservations whose process is
        gone. :param namesakes: data sets of the same name that are counted apart. :param begun_anew: when the ledger was, ""
        for never.
    """

    entry: Entry | None
    relatives: tuple[tuple[Entry, str], ...] = ()
    spends: tuple[Spend, ...] = ()
    interrupted: tuple[int, ...] = ()
    namesakes: tuple[Entry, ...] = ()
    begun_anew: str = ""

    @property
    def caps(self) -> tuple[Entry, ...]:
        """The entries whose caps have to be kept."""
        own = () if self.entry is None else (self.entry,)
        return tuple(entry for entry in (*own, *(entry for entry, _ in self.relatives)) if entry.cap is not None)

    @property
    def parts(self) -> tuple[Guarantee, ...]:
        """The promises of all fits, as far as they count."""
        return tuple(part for part in (spend.part for spend in self.spends) if part is not None)

    @property
    def _before(self) -> tuple[Guarantee, ...]:
        return tuple(part for part in (spend.under_filter for spend in self.spends) if part is not None)

    @property
    def reserved(self) -> tuple[Spend, ...]:
        """Fits that have not ended, or whose end is not known."""
        return tuple(spend for spend in self.spends if spend.state == "reserved")

    @functools.cached_property
    def repeated_seeds(self) -> tuple[int, ...]:
        """Seeds that different fits drew their noise from: what those promise together is not known."""
        fits: dict[int, set[tuple[int, str]]] = {}
        for spend in self.spends:
            if spend.seed is not None and spend.counted:
                fits.setdefault(spend.seed, set()).add((spend.dataset, spend.plan))
        return tuple(sorted(seed for seed, different in fits.items() if len(different) > 1))

    @functools.cached_property
    def total(self) -> TotalPrivacy | None:
        """All fits together, as if their plans had been settled beforehand; None where nothing was spent.

        Under several relations it is that of replace_one (``totals`` has each apart).
        """
        return self._total(self.parts)

    @functools.cached_property
    def totals(self) -> tuple[TotalPrivacy, ...]:
        """One for the fits of each relation."""
        relations = dict.fromkeys(part.relation for part in self.parts)
        found = (self._total([part for part in self.parts if part.relation == relation]) for relation in relations)
        return tuple(each for each in found if each is not None)

    def _total(self, parts: Sequence[Guarantee]) -> TotalPrivacy | None:
        if not parts:
            return None
        delta = self.caps[0].cap.delta if self.caps and self.caps[0].cap is not None else None
        found = total(parts, delta)
        return dataclasses.replace(found, epsilon=math.inf, method="one seed") if self.repeated_seeds else found

    def used(self) -> float | None:
        """Share of the tightest cap that is used up, infinite where fits cannot be counted under it; None without a cap."""
        try:
            return max((entry.cap.used(self._before) for entry in self.caps if entry.cap is not None), default=None)
        except _validate.ArgumentError:
            return math.inf

    def how_many_more(self, fit: Guarantee) -> int | None:
        """How many fits like ``fit`` the caps still allow; None without a cap, 0 where it cannot be counted under one."""
        try:
            counts = [entry.cap.how_many_more(fit, self._before) for entry in self.caps if entry.cap is not None]
        except _validate.ArgumentError:
            return 0
        return min(counts, default=None)

    def check(self, fits: Sequence[Guarantee], seed: int | None = None) -> str:
        """By which rule ``fits`` may run.

        :raises CapError: saying what would fit instead; naming ``relation`` for fits that a cap cannot count, ``seed`` for
            one that was used before.
        """
        rules = set()
        for entry in self.caps:
            assert entry.cap is not None
            try:
                allowed = entry.cap.admits(fits, self._before)
                by_filter = allowed and entry.cap.allows(map(entry.cap.loss, (*self._before, *fits)))
            except _validate.ArgumentError as error:
                raise CapError(error.argument, error.value, f"{error.expectation}{_OVERRIDE}", self) from None
            if not allowed:
                raise CapError("epsilon", fits[0].epsilon, self._refusal(entry, fits), self)
            rules.add(FILTER if by_filter else PLAN)
        if self.caps and seed is not None and any(spend.seed == seed and spend.counted for spend in self.spends):
            raise CapError(
                "seed", seed, "gave the noise of an earlier fit on these records; the two together promise nothing.", self
            )
        return PLAN if PLAN in rules else FILTER if rules else NO_CAP

    def check_rest(self, spend: Spend) -> str:
        """By which rule ``spend``, one of ``spends``, may go on to the end of its planned steps.

        :raises CapError: as ``check``; never where all of them count already, or were allowed on purpose.
        """
        if spend.taken is None or spend.rule in (OVERRIDE, PLAN):
            return spend.rule
        others = tuple(other for other in self.spends if other.key != spend.key)
        return dataclasses.replace(self, spends=others).check([spend.guarantee], spend.seed)

    def _refusal(self, entry: Entry, fits: Sequence[Guarantee]) -> str:
        cap = entry.cap
        assert cap is not None
        asked = "this fit" if len(fits) == 1 else f"these {len(fits)} fits"
        spent = min(1.0, cap.used(self._before))
        text = (
            f"{asked} would lift what is spent on {entry.name!r} above its cap of epsilon = {cap.epsilon:g} at delta = "
            f"{cap.delta:g}, of which {100 * spent:.0f} % is used up."
        )
        if len(fits) > 1:
            largest = max(fits, key=lambda fit: fit.epsilon)
            return f"{text} {cap.how_many_more(largest, self._before)} like the largest would fit.{_OVERRIDE}"
        epsilon = cap.largest_epsilon(fits[0], self._before)
        instead = f"The same with epsilon={epsilon:g} would fit." if epsilon else "Nothing like it would fit."
        return f"{text} {instead}{_OVERRIDE}"

    @property
    def _is_kept(self) -> bool:
        return not any(spend.rule == OVERRIDE for spend in self.spends)

    def cautions(self) -> tuple[str, ...]:
        """Conditions of what is said here, each a sentence."""
        lines = []
        for entry in self.caps:
            if any(spend.number <= entry.after for spend in self.spends):
                lines.append(
                    f"The cap of {entry.name!r} was set or changed when fits had begun: it holds if that was not decided by "
                    "their results."
                )
        stopped = sum(0 < spend.counted < spend.planned for spend in self.spends)
        if stopped:
            lines.append(
                f"Of {_count(stopped, 'fit')} that ended early the steps taken count: totals hold if no stop was decided by "
                "outputs."
            )
        overridden = [spend for spend in self.spends if spend.rule == OVERRIDE]
        if overridden:
            lines.append(f"{_count(len(overridden), 'fit')} went over a cap on purpose: {overridden[-1].why!r}.")
        if self.repeated_seeds:
            seeds = ", ".join(map(str, self.repeated_seeds))
            lines.append(f"Several fits drew their noise from one seed ({seeds}): together they promise nothing.")
        lines += self.mix_ups()
        if self.begun_anew:
            lines.append(f"The ledger was begun anew on {self.begun_anew[:10]}: what was spent before is not known to it.")
        if self.interrupted:
            lines.append(
                f"{_count(len(self.interrupted), 'fit')} ended without a word, and all planned steps count: resume what was "
                "interrupted, or let the ledger recover."
            )
        return tuple(lines)

    def mix_ups(self) -> tuple[str, ...]:
        """Where people have to say whether records are shared: a sentence for each case, until they have."""
        lines = [
            f"Data set {entry.number} is called {entry.name!r} too and is counted apart: relate the two in the ledger "
            "if they share records, or separate them."
            for entry in self.namesakes
        ]
        others = ", ".join(f"{entry.number} ({entry.name})" for entry, how in self.relatives if how == NOT_COMPARED)
        if others:
            lines.append(
                "Entered with another key, so that nobody can tell whether they share these records, and counted too: "
                f"{others}. Separate those in the ledger that share none."
            )
        return tuple(lines)

    def statement(self) -> str:
        """In plain words what was spent, with the conditions."""
        if self.total is None:
            words = ["Nothing has been spent on these records, as far as this ledger knows."]
            return " ".join([*words, *self.cautions()])
        unit = (self.entry or self.relatives[0][0]).unit
        words = [self.total.statement(unit)]
        if len(self.totals) > 1:
            words += [each.statement(unit) for each in self.totals]
        if len(self.parts) > 1:
            always = "; set a cap to be safe in any case"
            if self.caps:
                always = ", the cap holds in any case" if self._is_kept else ""
            words.append(f"These totals hold for plans that were settled without looking at results{always}.")
        return " ".join([*words, *self.cautions()])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
