"""Words for what a ledger says, shared by its report and the screens."""

from __future__ import annotations

import dataclasses
import math

from workbench import _numbers
from workbench.ledger.budget import BudgetStatus, count
from workbench.ledger.composition import TotalPrivacy
from workbench.ledger.entries import CLONES, NAMESAKES, NOT_COMPARED, RELATED
from workbench.ledger.renyi_filter import Cap
from workbench.privacy.steps import NEIGHBOURS

__all__ = [
    "EMPTY",
    "also_counted",
    "cap_words",
    "count",
    "counted",
    "number",
    "percent",
    "shares",
    "spent_words",
    "when",
]

EMPTY = "-"  # of a cell
_WHY = {
    RELATED: "they were related in the ledger",
    CLONES: "copies of one estimator were fitted there and here, so they share one cap",
    NAMESAKES: "they have one name, and there is a cap",
    NOT_COMPARED: "they were entered with another key, so it is unknown whether they share records",
}


def number(epsilon: float) -> str:
    """An epsilon that was rounded up to 4 decimals, without trailing zeros."""
    return f"{epsilon:.4f}".rstrip("0").rstrip(".")


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


def also_counted(budget: BudgetStatus) -> list[str]:
    """Which data sets share caps and totals with one, a sentence for each reason."""
    names: dict[str, list[str]] = {}
    for entry, why in budget.relatives:
        names.setdefault(why, []).append(f"{entry.number} ({entry.name})")
    return [f"Fits on {', '.join(sets)} count too: {_WHY[why]}." for why, sets in names.items()]


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


def when(time: str) -> str:
    """A time of the ledger, to the minute."""
    return f"{time[:10]} {time[11:16]} UTC"
