"""A regression's coefficients as a table that says what they are of, and what was promised."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from workbench import _html
from workbench._numbers import count, fixed, places_for
from workbench.results import summaries
from workbench.results.chains import chains_of

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["CoefficientTable", "coefficient_table"]

_DIAGNOSTICS = (
    "An sd near the prior's says that little was learned. ess: how many independent draws say as "
    "much of the mean, which is exact to about sd / sqrt(ess). r_hat: near 1 where chains agree."
)
_NARROW = 80  # characters of a printed line at least


class CoefficientTable(pd.DataFrame):
    """A DataFrame whose text and HTML have a heading. What is printed are its own columns and rows.

    Rows are coefficients, then deviations between groups and the family's further parameters, all
    in own units. Those have no ratio and no share above 0 (NaN).

    :ivar heading: ``{what: words}``. :ivar note: why they should not be trusted, if so, and what
        the intervals count.
    """

    _metadata = ["heading", "note"]  # noqa: RUF012  # as pandas declares it
    heading: dict[str, str]
    note: str

    def __str__(self) -> str:
        rows = _text(self)
        line = "-" * max(map(len, rows.splitlines()))
        wide = 2 + max(map(len, self.heading))
        above = [
            textwrap.fill(
                words,
                max(len(line), _NARROW),
                initial_indent=f"{label}:".ljust(wide),
                subsequent_indent=" " * wide,
            )
            for label, words in self.heading.items()
        ]
        below = textwrap.fill(self.note, max(len(line), _NARROW))
        return "\n".join([*above, line, rows, line, below])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        notes = [_html.note(f"{label}:", words) for label, words in self.heading.items()]
        return _html.box(*notes, _html.table(*_cells(self)), _html.quiet(self.note))


def coefficient_table(
    result: FitResult, rows: pd.DataFrame, interval: float, kind: str, diagnostics: bool = False
) -> CoefficientTable:
    """``rows`` with the result's heading.

    :param interval: probability of the intervals. :param kind: "hdi" or "eti".
    :param diagnostics: whether the rows have them, in place of scaled coefficients.
    """
    table = CoefficientTable(rows)
    table.heading = _heading(result, interval, kind)
    scaled = "Scaled: of the fitted columns, in [-1, 1], and in the predictor's own unit."
    if diagnostics:
        table.heading |= _diagnostics(result, len(rows) and len(next(iter(result.draws.values()))))
        scaled = _DIAGNOSTICS
    table.note = " ".join(filter(None, [result.doubts, scaled, result.interval_words]))
    return table


def _heading(result: FitResult, interval: float, kind: str) -> dict[str, str]:
    from workbench.results.effects import formula_of

    model = formula_of(result)
    heading = {"Coefficients": result.model if model is None else str(model.options["formula"])}
    if model is not None:
        heading["Response"] = model.target_words
        heading["Family"] = f"{model.options['family']}, link {model.options['link']}"
    heading["Records"] = (
        f"{count(result.settings['num_records'])} (declared), of {result.data['name']}"
    )
    heading["Privacy"] = result.guarantee.headline()
    heading["Intervals"] = f"{100 * interval:g} %, {summaries.KINDS[kind]}"
    return heading


def _diagnostics(result: FitResult, count: int) -> dict[str, str]:
    """What the release says of the fit, and how draws are in chains."""
    chains = chains_of(result.draws_kind, count).words(count)
    lines = {"Draws": f"{count}: {chains}"}
    if result.convergence is not None:
        lines["Arrival"] = result.convergence.verdict
    if result.gradient_norms is not None:
        lines["Clipping"] = result.gradient_norms.words()
    return lines


def _cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows with the decimals that each row's standard deviation leaves a meaning; shares
    have two.
    """
    decimals = places_for(table["sd"].tolist())
    rows = []
    for (name, row), digits in zip(table.iterrows(), decimals, strict=True):
        cells = [
            value if isinstance(value, str) else _number(column, value, digits)
            for column, value in row.items()
        ]
        rows.append([str(name), *cells])
    return ["", *map(str, table.columns)], rows


def _number(column: Hashable, value: float, digits: int) -> str:
    if np.isnan(value):
        return ""
    if str(column) == "ess":
        return count(round(value))
    if str(column) == "r_hat":
        return fixed(value, 2)
    if str(column) == "share above 0":
        return fixed(value, 3)
    if "ratio" in str(column) and not 1e-3 <= value <= 1e3:
        return "over 1000" if value > 1 else "below 0.001"
    return fixed(
        value, max(3, digits) if "scaled" in str(column) or "ratio" in str(column) else digits
    )


def _text(table: pd.DataFrame) -> str:
    """The table in columns, the first and words to the left, numbers to the right."""
    head, rows = _cells(table)
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    is_text = [column == 0 or head[column] == "contrast" for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    )
