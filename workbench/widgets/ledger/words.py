"""Words and tables for what the ledger says, shared by the screens."""

from __future__ import annotations

from workbench import _numbers
from workbench._validate import ArgumentError
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.entries import Entry, Spend
from workbench.ledger.ledger import LedgerError
from workbench.ledger.words import (
    EMPTY,
    also_counted,
    cap_words,
    count,
    counted,
    number,
    percent,
    shares,
    spent_words,
    when,
)
from workbench.results.fit_result import FitResult
from workbench.widgets.kit import markup

__all__ = [
    "EMPTY",
    "REMEDIES",
    "also_counted",
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

_COLUMNS = ["fit", "model", "epsilon", "steps", "status", "rule", "began", "by", "result"]


_OVER_CAP = "To exceed it on purpose, which is recorded, write why in “reason to exceed the cap”."
REMEDIES = {"over cap": _OVER_CAP, "cap relation": _OVER_CAP}  # by code of an ``ArgumentError``


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
