"""What the ledger says, in the words and tables that the screens share: names, counts, shares and epsilons."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from workbench._validate import ArgumentError
from workbench.ledger.budget import FILTER, NO_CAP, OVERRIDE, PLAN, BudgetStatus, Entry, Spend
from workbench.ledger.composition import TotalPrivacy
from workbench.ledger.ledger import LedgerError
from workbench.ledger.renyi_filter import Cap
from workbench.widgets._kit import markup

__all__ = [
    "RELATIONS", "REMEDIES", "cap_bar", "cap_words", "count", "counted", "fits_table", "number", "percent", "result_words",
    "shares", "spent_words", "when",
]  # fmt: skip

RELATIONS = {
    "add_or_remove_one": "add or remove one", "replace_one": "replace one", "replace_special": "blank one in place",
}  # fmt: skip
_COLUMNS = ["fit", "model", "epsilon", "steps", "state", "allowed as", "began", "by", "result"]
_RULES = {NO_CAP: "no cap", FILTER: "within the cap", PLAN: "within the cap, as one plan", OVERRIDE: "over the cap"}


def count(number: int, noun: str) -> str:
    """ "1 fit", "2 fits"."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def number(epsilon: float) -> str:
    """An epsilon that was rounded up to 4 decimals, none of them lost."""
    return f"{epsilon:.4f}".rstrip("0").rstrip(".")


_OVER_CAP = "To go over it on purpose, which is recorded, write the reason below the Fit button."
REMEDIES = {"over cap": _OVER_CAP, "cap relation": _OVER_CAP}  # by code of an ``ArgumentError``


def percent(share: float) -> str:
    """ "61 %"; no 100 % and no 0 % that is not, but for rounding errors."""
    shown = round(100 * share, 6)
    if 0 < shown < 1:
        return "less than 1 %"
    return f"{99 if 99 < shown < 100 else round(shown)} %"


def spent_words(total: TotalPrivacy | None) -> str:
    """Epsilon and delta of all fits together."""
    if total is None:
        return "nothing"
    if not math.isfinite(total.epsilon):
        return "more than any epsilon says"
    return f"epsilon {number(total.epsilon)} at delta {total.delta:g}"


def counted(total: TotalPrivacy | None) -> str:
    """How many fits those are, with the condition that a total of several has."""
    if total is None:
        return ""
    return "in 1 fit" if total.fits == 1 else f"in {total.fits} fits, if their plans were settled beforehand"


def cap_words(cap: Cap) -> str:
    """A cap's promise."""
    return f"epsilon {cap.epsilon:g} at delta {cap.delta:g} ({RELATIONS[cap.relation]})"


def shares(standing: BudgetStatus) -> tuple[float, float, float] | None:
    """What is spent, reserved and left of the tightest cap; None without one, and where fits cannot be counted under it."""
    used = standing.used()
    if used is None or not math.isfinite(used):
        return None
    ended = tuple(spend for spend in standing.spends if spend.status != "reserved")
    spent, used = min(1.0, dataclasses.replace(standing, spends=ended).used() or 0.0), min(1.0, used)
    return spent, used - spent, 1 - used


def cap_bar(standing: BudgetStatus) -> str:
    """The tightest cap as a bar, with its numbers as text; a sentence where there is none to show."""
    if not standing.caps:
        return markup.quiet("No cap: nothing keeps these fits from adding up.")
    parts = shares(standing)
    if parts is None:
        return markup.problem("Some of these fits cannot be counted under the cap, so none more is allowed.")
    labels = ("spent", "reserved", "left under the cap")
    fills = ("solid", "striped", "empty")
    return markup.bar(
        [(f"{label} {percent(share)}", share, fill) for label, share, fill in zip(labels, parts, fills, strict=True)]
    )


def fits_table(standing: BudgetStatus) -> str:
    """A row for each fit, the newest first; with the data set where relatives count too."""
    if not standing.spends:
        return markup.quiet("No fit has been entered.")
    names = {entry.number: entry.name for entry in _entries(standing)}
    columns, rows = list(_COLUMNS), [_row(spend, standing) for spend in reversed(standing.spends)]
    if standing.relatives:
        columns.insert(1, "data set")
        for row, spend in zip(rows, reversed(standing.spends), strict=True):
            row.insert(1, f"{spend.dataset}: {names[spend.dataset]}")
    return f"<div style='overflow-x:auto'>{markup.table(columns, rows, numbers=False)}</div>"


def _entries(standing: BudgetStatus) -> list[Entry]:
    own = [] if standing.entry is None else [standing.entry]
    return [*own, *(entry for entry, _ in standing.relatives)]


def _row(spend: Spend, standing: BudgetStatus) -> list[str]:
    state = {"reserved": "running", "settled": "ended"}.get(spend.status, spend.status)
    if spend.number in standing.interrupted:
        state = "interrupted"
    taken = f"at most {spend.reached:,}" if spend.taken is None else f"{spend.taken:,}"
    rule = _RULES[spend.rule] + (f": {spend.why}" if spend.why else "")
    part = spend.part
    return [
        str(spend.number), spend.model, "0" if part is None else number(part.epsilon), f"{taken} of {spend.planned:,}",
        state, rule, when(spend.began), spend.who, spend.result or "-",
    ]  # fmt: skip


def when(time: str) -> str:
    """A time of the ledger, to the minute."""
    return f"{time[:10]} {time[11:16]} UTC"


def result_words(result: Any) -> str:
    """One line on what was spent on a fit's records so far; "" where no ledger is kept of it."""
    try:
        standing = result.standing
    except (ArgumentError, LedgerError) as error:
        return f"What was spent on these records so far is not known: {error}"
    if standing is None:
        return ""
    parts = shares(standing)
    left = "" if parts is None else f"; {percent(parts[2])} of the cap is left"
    return f"On these records the ledger counts {spent_words(standing.total)} {counted(standing.total)}{left}."
