"""What a ledger says to somebody who is answerable for the records: who spent what on which,
and what is left. As a page to print, as a table, and as text for a registry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from workbench import __version__, _html
from workbench._csv import to_csv
from workbench._lazy import pd
from workbench._numbers import count as grouped
from workbench._numbers import upper
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.entries import Entry, Spend
from workbench.ledger.words import (
    EMPTY,
    cap_words,
    count,
    number,
    percent,
    shares,
    spent_words,
    when,
)

__all__ = ["BudgetReport"]

_INTRODUCTION = (
    "Epsilon says how much everything that was computed can reveal about one person: with epsilon "
    "1, a suspicion of 50 % can grow to about 73 % at most, with epsilon 8 to 99.97 %. Delta is "
    "the share of cases in which even that may fail. Smaller is better.",
    "The ledger records each fit before it reads a record. It does not know what was computed with "
    "other programs, or with the ledger switched off. Results on public records spend nothing.",
)
_SETS = ("data sets", "protects each", "fits", "spent", "caps", "left", "not ended")
_UNITS = ("protects each", "data sets", "fits", "most for one set", "for all of them")
_FITS = ("fit", "data set", "what", "epsilon", "delta", "steps", "status", "rule", "began", "by")


@dataclass(frozen=True)
class BudgetReport:
    """What was spent on all records that a ledger knows, made by ``Ledger.report``.

    >>> report = wb.ledger.Ledger("no_such_file.sqlite").report("2026-01-31T12:00:00Z")
    >>> report.to_csv(), report.composition()
    ('', '{}\\n')

    It has names of data sets, people and reasons, and no seed.

    :param source: name of the ledger's file.
    :param time: at which it was read, in UTC.
    :param groups: for data sets that count together, the status of the first of them.
    """

    source: str
    time: str
    groups: tuple[BudgetStatus, ...]

    def to_html(self) -> str:
        """The page, which loads nothing and can be printed."""
        read = f"Ledger {self.source}, read {when(self.time)} by version {__version__}."
        items = [_html.quiet(read), *map(_html.paragraph, _INTRODUCTION)]
        if not self.groups:
            items.append(_html.paragraph("Nothing has been recorded."))
            return _html.page("Privacy spent on personal records", *items)
        items += [
            _html.heading("All data sets"),
            _table(_SETS, map(_of_group, self.groups)),
            _html.heading("Totals by protected unit"),
            _table(_UNITS, self._of_units()),
            _html.paragraph(
                "Data sets in different lines of the first table are counted as those of different "
                "people. The last column is what was spent on somebody who is in all of them."
            ),
        ]
        for group in self.groups:
            items += [_html.heading(f"Data set {_names(group)}"), *_details(group)]
        return _html.page("Privacy spent on personal records", *items)

    def _of_units(self) -> Iterator[list[str]]:
        for unit in dict.fromkeys(_entry(group).unit for group in self.groups):
            groups = [group for group in self.groups if _entry(group).unit == unit]
            entries = [entry for group in groups for entry in _entries(group)]
            spends = tuple(spend for group in groups for spend in group.spends)
            totals = [group.total for group in groups]
            largest = max(totals, key=lambda total: 0.0 if total is None else total.epsilon)
            # as if they had been related, so nothing that a cap promises for one of them holds
            together = BudgetStatus(None, tuple((entry, "") for entry in entries), spends).total
            yield [
                unit,
                str(len(entries)),
                str(len(spends)),
                spent_words(largest),
                spent_words(largest if len(groups) == 1 else together),
            ]

    def to_csv(self) -> str:
        """A line for each fit, with what its data set and those that count with it spent."""
        rows = [row for group in self.groups for row in _rows(group)]
        table = pd.DataFrame(sorted(rows, key=lambda row: row["fit"]), dtype=object)
        return to_csv(table, index=False) if rows else ""

    def composition(self) -> str:
        """YAML: what the field "composition" of the Differential Privacy Deployments Registry says
        about fits on the same records, by data set.
        """
        texts = {_names(group): group.spending() for group in self.groups}
        return yaml.safe_dump(texts, sort_keys=False, allow_unicode=True, width=100)


def _table(columns: tuple[str, ...], rows: Any) -> str:
    return f'<div class="scroll">{_html.table(columns, rows, numbers=False)}</div>'


def _entry(group: BudgetStatus) -> Entry:
    assert group.entry is not None, "a group begins with a data set of the ledger"
    return group.entry


def _entries(group: BudgetStatus) -> list[Entry]:
    return [_entry(group), *(entry for entry, _ in group.relatives)]


def _names(group: BudgetStatus) -> str:
    return ", ".join(f"{entry.number} ({', '.join(entry.names)})" for entry in _entries(group))


def _left(group: BudgetStatus) -> str:
    """What the caps still allow, in words."""
    if not group.caps:
        return "no cap, so no limit"
    fractions = shares(group)
    if fractions is None:
        return "nothing, because fits cannot be counted under the cap"
    more = group.how_many_more(group.spends[-1].guarantee) if group.spends else None
    like = "" if more is None else f": {count(more, 'more fit')} like the last"
    return f"{percent(fractions[2])} of the cap{like}"


def _of_group(group: BudgetStatus) -> list[str]:
    gone = len(group.interrupted)
    open_fits = {"running": len(group.reserved) - gone, "interrupted": gone}
    return [
        _names(group),
        _entry(group).unit,
        str(len(group.spends)),
        spent_words(group.total),
        "; ".join(cap_words(entry.cap) for entry in group.caps if entry.cap) or EMPTY,
        _left(group),
        ", ".join(f"{size} {status}" for status, size in open_fits.items() if size) or EMPTY,
    ]


def _details(group: BudgetStatus) -> Iterator[str]:
    yield _html.paragraph(f"{group.spending()} Left: {_left(group)}.")
    for entry in group.caps:
        if entry.cap is not None:
            words = f"Cap of {entry.name}: {cap_words(entry.cap)}. Reason: {entry.why}"
            yield _html.paragraph(words)
    yield from map(_html.paragraph, group.cautions())
    if seeded := [str(spend.number) for spend in group.spends if spend.seed is not None]:
        yield _html.paragraph(
            f"Fits with a seed: {', '.join(seeded)}. Their noise follows from it, so nothing is "
            "promised against those who know it."
        )
    if group.spends:
        yield _table(_FITS, [_of_fit(spend, group) for spend in group.spends])


def _of_fit(spend: Spend, group: BudgetStatus) -> list[str]:
    promise = spend.promise
    return [
        str(spend.number),
        str(spend.dataset),
        spend.model,
        "0" if promise is None else number(promise.epsilon),
        "0" if promise is None else upper(promise.delta),
        f"{grouped(spend.counted)} of {grouped(spend.planned)}",
        group.status_of(spend),
        spend.allowed_by,
        when(spend.began),
        spend.who,
    ]


def _rows(group: BudgetStatus) -> Iterator[dict[str, Any]]:
    names = {entry.number: entry.name for entry in _entries(group)}
    total, fractions = group.total, shares(group)
    shared = {
        "total_epsilon": total.epsilon if total and math.isfinite(total.epsilon) else None,
        "total_delta": total.delta if total else None,
        "caps": "; ".join(cap_words(entry.cap) for entry in group.caps if entry.cap),
        "left_of_cap": fractions and fractions[2],
    }
    plain = ("model", "relation", "planned", "taken", "began", "ended", "who", "version")
    for spend in group.spends:
        promise = spend.promise
        yield {
            "fit": spend.number,
            "dataset": spend.dataset,
            "name": names[spend.dataset],
            "unit": spend.guarantee.unit,
            **{name: getattr(spend, name) for name in plain},
            "epsilon": 0.0 if promise is None else promise.epsilon,
            "delta": 0.0 if promise is None else promise.delta,
            "status": group.status_of(spend),
            "rule": spend.allowed_by,
            "event": json.dumps(spend.event),
            "seeded": spend.seed is not None,
            **shared,
        }
