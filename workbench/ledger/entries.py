"""Data sets and fits as a ledger has them: what its file says of each, and what of it counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.ledger.renyi_filter import Cap, taken_part
from workbench.privacy import events
from workbench.privacy.guarantee import Guarantee

__all__ = [
    "CLONES",
    "FILTER",
    "NAMESAKES",
    "NOT_COMPARED",
    "NO_CAP",
    "OVERRIDE",
    "PLAN",
    "RELATED",
    "RULES",
    "Entry",
    "Spend",
]

# rules that allow a fit, as the file has them, and in words
NO_CAP, FILTER, PLAN, OVERRIDE = "no cap", "filter", "plan", "override"
RULES = {
    NO_CAP: "without a cap",
    FILTER: "within the cap",
    PLAN: "within the cap, as the first plan",
    OVERRIDE: "over the cap",
}

# why data sets count together
RELATED = "related"  # somebody said so
CLONES = "clones"  # copies of one estimator were fitted to them
NAMESAKES = "name"  # they have a name in common, and there is a cap
NOT_COMPARED = "another key"  # nobody can tell whether they are the same


@dataclass(frozen=True)
class Entry:
    """A data set in the ledger.

    :param number: may stand for its name.
    :param name: by which it was entered.
    :param cap: None if it has none.
    :param why: the reason given for the cap.
    :param after: number of the last fit in the ledger when the cap was set.
    :param time: when it was first seen.
    :param key: digest of the key that it was entered with, "" if that is not known.
    :param aliases: the other names that its records had in later fits.
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
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names of its records."""
        return (self.name, *self.aliases)


def event_of(fit: Guarantee) -> dict[str, Any]:
    """dp-accounting's event for all planned steps of a fit, JSON-ready."""
    return events.to_json(events.event_of(fit.accounted()))


@dataclass(frozen=True)
class Spend:
    """One fit in the ledger.

    :param number: ascending in the order in which fits were reserved.
    :param key: unique.
    :param dataset: number of its entry.
    :param plan: digest of everything that decides the result except data and randomness.
    :param planned: steps.
    :param seen: steps that may have been taken before it was resumed.
    :param reached: steps that may have been taken so far.
    :param taken: steps that count in the end, None while reserved.
    :param status: "reserved", "settled" or "recovered".
    :param rule: that allowed it: "no cap", "filter", "plan", or "override" with ``why``.
    :param owner: its process.
    :param run: folder of its checkpoints.
    :param result: where its result was saved.
    """

    number: int
    key: str
    dataset: int
    model: str
    plan: str
    sampler: str
    relation: str
    guarantee: Guarantee
    seed: int | None
    planned: int
    seen: int
    reached: int
    taken: int | None
    status: str
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
    def event(self) -> dict[str, Any]:
        """dp-accounting's event for the planned steps, JSON-ready."""
        return event_of(self.guarantee)

    @property
    def allowed_by(self) -> str:
        """The rule that allowed it, in words, with the reason to override a cap."""
        return RULES[self.rule] + (f": {self.why}" if self.why else "")

    @property
    def counted(self) -> int:
        """Steps that count: all planned steps until it is known how many were taken."""
        return self.planned if self.taken is None else self.taken

    @property
    def counts(self) -> bool:
        """Whether anything of it counts: a step, or a look at the columns, which comes before them
        and counts from the reservation on.
        """
        return self.counted > 0 or self.guarantee.look_noise > 0

    @property
    def promise(self) -> Guarantee | None:
        """What the fit promises however its end was decided, that of all planned steps; None if
        nothing counts.

        A fit that stops is a function of the whole fit. The smaller epsilon of the steps taken is
        no bound if a look at the outputs decided when to stop.
        """
        return self.guarantee if self.counts else None

    @property
    def under_filter(self) -> Guarantee | None:
        """The guarantee of the steps that a cap's filter counts, which holds for stops that are
        decided by looking.

        A first plan that was allowed as a whole counts whole, however it ended. None if nothing
        counts.
        """
        if self.rule == PLAN:
            return self.guarantee
        return taken_part(self.guarantee, self.counted) if self.counts else None
