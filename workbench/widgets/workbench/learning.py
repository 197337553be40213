"""Columns whose ranges and values a fit learns: the regression that a screen offers for them, and
what they cost.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench._validate import ArgumentError
from workbench.data.preprocessing import listed
from workbench.data.targets import class_names
from workbench.widgets.ledger.words import percent
from workbench.widgets.workbench.declarations import (
    CLASSES,
    FEATURE_ROLES,
    NUMBER,
    ColumnDeclaration,
    TableDeclaration,
)

if TYPE_CHECKING:
    from workbench.fitting.columns import Price

__all__ = ["Learning", "offered", "price_words"]

_NAME = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class Learning:
    """What a screen knows about models that learn the columns.

    :param is_chosen: whether such a model is chosen.
    :param formula: the formula that is written; "" for none.
    :param choose: chooses the regression of a formula and a family; "" for the family that follows
        from the chosen model.
    """

    is_chosen: Callable[[], bool]
    formula: Callable[[], str]
    choose: Callable[[str, str], None]


def offered(declared: TableDeclaration) -> tuple[str, str] | None:
    """(formula, family) of the target's regression on all features; the family is "" where the
    target's type does not tell it. None without a target or features.
    """
    target = next((column for column in declared.columns if column.role == "target"), None)
    features = [_quoted(column) for column in declared.columns if column.role in FEATURE_ROLES]
    if target is None or not features:
        return None
    groups = [f"(1 | {_quoted(column)})" for column in declared.columns if column.role == "group"]
    return f"{_quoted(target)} ~ {' + '.join([*features, *groups])}", _family(target)


def _quoted(column: ColumnDeclaration) -> str:
    is_name = _NAME.fullmatch(column.name) and not keyword.iskeyword(column.name)
    return column.name if is_name else f"`{column.name}`"


def _family(target: ColumnDeclaration) -> str:
    if target.predicted == NUMBER:
        return "gaussian"
    if target.predicted == CLASSES:
        try:
            classes = target.class_options()["classes"]
        except ArgumentError:  # shown beside its field, unless it is empty and learned
            return "categorical" if target.is_empty else ""
        return "bernoulli" if len(class_names(classes)) == 2 else "categorical"
    is_clear = target.outcome or target.positive.strip() or target.kind in (bool, str)
    return "bernoulli" if is_clear else ""


def price_words(price: Price | None) -> str:
    """What it costs to learn columns, a sentence; "" where none are."""
    if price is None:
        return ""
    taken, declared = percent(price.share), percent(price.share_if_declared)
    shown = "it takes as much" if declared == taken else f"it takes {declared}"
    return (
        f"The look that learns {listed(list(price.columns))} takes {taken} of the privacy budget; "
        f"where their ranges and values are declared, {shown}."
    )
