"""Words and tables for what the ledger says, shared by the screens."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from workbench import _numbers
from workbench._validate import ArgumentError
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.composition import TotalPrivacy
from workbench.ledger.entries import Entry, Spend
from workbench.ledger.ledger import LedgerError
from workbench.ledger.renyi_filter import Cap
from workbench.privacy.steps import NEIGHBOURS
from workbench.widgets.kit import markup

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = [
    "EMPTY",
    "REMEDIES",
    "cap_bar",
    "cap_words",
    "count",
    "counted",
    "fits_table",
    "number",
    "percent",
    "result_words",
    "shares",
    "spent_words",
    "when",
]

EMPTY = "-"  # of a cell
_COLUMNS = ["fit", "model", "epsilon", "steps", "status", "rule", "began", "by", "result"]


def count(number: int, noun: str) -> str:
    """ "1 fit", "2 fits"."""
    return f"{_numbers.count(number)} {noun}{'s' * (number != 1)}"


def number(epsilon: float) -> str:
    """An epsilon that was rounded up to 4 decimals, without trailing zeros."""
    return f"{epsilon:.4f}".rstrip("0").rstrip(".")


_OVER_CAP = "To exceed it on purpose, which is recorded, write why in “reason to exceed the cap”."
REMEDIES = {"over cap": _OVER_CAP, "cap relation": _OVER_CAP}  # by code of an ``ArgumentError``


def percent(fraction: float) -> str:
    """A share such as "61 %". It shows 0 % and 100 % only for 0 and 1, up to rounding errors."""
    shown = round(100 * fraction, 6)
    if 0 < shown < 1:
        return "less than 1 %"
    return f"{99 if 99 < shown < 100 else round(shown)} %"


def spent_words(total: TotalPrivacy | None) -> str:
    """Epsilon and delta of all fits together."""
    if total is None:
        return "nothing"
    if not math.isfinite(total.epsilon):
        return "more than any finite epsilon"
    return f"epsilon {number(total.epsilon)} at delta {_numbers.upper(total.delta)}"


def counted(total: TotalPrivacy | None) -> str:
    """The number of fits in a total, with the condition under which the total of several holds."""
    if total is None:
        return ""
    return (
        "in 1 fit"
        if total.fits == 1
        else f"in {total.fits} fits, if their plans were fixed beforehand"
    )


def cap_words(cap: Cap) -> str:
    """A cap in words."""
    return f"epsilon {cap.epsilon:g} at delta {cap.delta:g} ({NEIGHBOURS[cap.relation]})"


def shares(budget: BudgetStatus) -> tuple[float, float, float] | None:
    """The shares of the tightest cap that are spent, reserved and left; None without a cap or if a
    fit cannot be counted.
    """
    used = budget.used()
    if used is None or not math.isfinite(used):
        return None
    ended = tuple(spend for spend in budget.spends if spend.status != "reserved")
    spent, used = min(1.0, dataclasses.replace(budget, spends=ended).used() or 0.0), min(1.0, used)
    return spent, used - spent, 1 - used


def cap_bar(budget: BudgetStatus) -> str:
    """The tightest cap as a bar with numbers below it; a sentence if there is no bar to show."""
    if not budget.caps:
        return markup.quiet("There is no cap, so these fits can add up to any epsilon.")
    fractions = shares(budget)
    if fractions is None:
        return markup.problem(
            "Some of these fits cannot be counted under the cap, so no further fit is allowed."
        )
    labels = ("spent", "reserved", "left under the cap")
    fills = ("solid", "striped", "empty")
    bar = markup.bar(
        [
            (f"{label} {percent(fraction)}", fraction, fill)
            for label, fraction, fill in zip(labels, fractions, fills, strict=True)
        ]
    )
    return bar + markup.quiet(
        "Shares are of what the cap counts, Rényi divergence and delta, and not of epsilon."
    )


def fits_table(budget: BudgetStatus) -> str:
    """A table of the fits, the newest first, with their data sets if fits on relatives
    count too.
    """
    if not budget.spends:
        return markup.quiet("No fit has been recorded.")
    names = {entry.number: entry.name for entry in _entries(budget)}
    columns, rows = list(_COLUMNS), [_row(spend, budget) for spend in reversed(budget.spends)]
    if budget.relatives:
        columns.insert(1, "data set")
        for row, spend in zip(rows, reversed(budget.spends), strict=True):
            row.insert(1, f"{spend.dataset}: {names[spend.dataset]}")
    filled = [index for index in range(len(columns)) if any(row[index] != EMPTY for row in rows)]
    return markup.cards(
        [columns[index] for index in filled], [[row[index] for index in filled] for row in rows]
    )


def _entries(budget: BudgetStatus) -> list[Entry]:
    entries = [] if budget.entry is None else [budget.entry]
    return [*entries, *(entry for entry, _ in budget.relatives)]


def _row(spend: Spend, budget: BudgetStatus) -> list[str]:
    taken = (
        f"at most {_numbers.count(spend.reached)}"
        if spend.taken is None
        else _numbers.count(spend.taken)
    )
    promise = spend.promise
    return [
        str(spend.number),
        spend.model,
        "0" if promise is None else number(promise.epsilon),
        f"{taken} of {_numbers.count(spend.planned)}",
        budget.status_of(spend),
        spend.allowed_by,
        when(spend.began),
        spend.who,
        spend.result or EMPTY,
    ]


def when(time: str) -> str:
    """A time of the ledger, to the minute."""
    return f"{time[:10]} {time[11:16]} UTC"


def result_words(result: FitResult) -> str:
    """A sentence about what was spent on a fit's records so far; "" if the fit is in no ledger."""
    try:
        budget = result.budget_status
    except (ArgumentError, LedgerError) as error:
        return f"The ledger cannot say what was spent on these records: {error}"
    if budget is None:
        return ""
    fractions = shares(budget)
    remainder = "" if fractions is None else f"; {percent(fractions[2])} of the cap is left"
    spent = (
        f"{spent_words(budget.total)} was spent on these records {counted(budget.total)}".strip()
    )
    return f"According to the ledger, {spent}{remainder}."
