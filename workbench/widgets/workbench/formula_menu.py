"""What the screen asks of a regression from a formula."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench._validate import ArgumentError
from workbench.models import Option

__all__ = ["COLUMNS", "check", "options"]

COLUMNS = {
    "trials": "Column with the number of trials, for binomial.",
    "exposure": "Column with the exposure, such as days at risk, for counts.",
    "observed": "Column that is 1 where the event was seen, for times to an event.",
}


def options() -> tuple[Option, ...]:
    """The formula, the family and what belongs to it, as fields of a form."""
    from workbench.formula.families import FAMILIES

    of_formula = Option(
        "formula", "", "text", help="Such as readmitted ~ age + ward + (1 | hospital)."
    )
    family = Option(
        "family",
        None,
        "choice",
        tuple(FAMILIES),
        optional=True,
        help="What the response is; automatic: by its type.",
    )
    link = Option(
        "link", None, "text", optional=True, help="Of the mean; empty for the family's usual one."
    )
    return (
        of_formula,
        family,
        link,
        *(Option(name, None, "text", optional=True, help=text) for name, text in COLUMNS.items()),
    )


def check(settings: Mapping[str, Any]) -> None:
    """:raises ArgumentError: naming ``formula``, ``family`` or ``link``, as far as is known without
    columns.
    """
    from workbench.formula.families import get
    from workbench.formula.parsing import parse

    if settings.get("family") is not None:
        get(settings["family"], settings.get("link"))
    if not str(settings.get("formula", "")).strip():
        raise ArgumentError(
            "formula", "", "write one, such as y ~ a + b, of the columns that are declared."
        )
    parse(settings["formula"])
