"""A regression's coefficients as a table that says what they are of, and what was promised."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from workbench import _html
from workbench._numbers import count, fixed, places_for
from workbench.results import arviz_adapter
from workbench.results.card import promise

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["CoefficientTable", "coefficient_table"]

_NARROW = 80  # characters of a printed line at least


class CoefficientTable(pd.DataFrame):
    """A DataFrame whose text and HTML have a heading, and the deviations between groups below.

    :ivar heading: ``{what: words}``. :ivar further: mean, sd and interval of deviations between groups and of the family's
        further parameters, in own units: of groups' intercepts in the middle of all numbers, of their slopes for 1 more of
        a column, and cutpoints where all columns are 0 or at reference. :ivar note: what the intervals count.
    """

    _metadata = ["further", "heading", "note"]  # noqa: RUF012  # as pandas declares it
    heading: dict[str, str]
    further: pd.DataFrame
    note: str

    def __str__(self) -> str:
        blocks = [_text(self), *([_text(self.further)] if len(self.further) else [])]
        line = "-" * max(len(row) for block in blocks for row in block.splitlines())
        wide = 2 + max(map(len, self.heading))
        above = [
            textwrap.fill(
                words, max(len(line), _NARROW), initial_indent=f"{what}:".ljust(wide), subsequent_indent=" " * wide
            )
            for what, words in self.heading.items()
        ]
        below = textwrap.fill(self.note, max(len(line), _NARROW))
        return "\n".join([*above, *(part for block in blocks for part in (line, block)), line, below])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        notes = [_html.note(f"{what}:", words) for what, words in self.heading.items()]
        tables = [_html.table(*_cells(part)) for part in (self, self.further) if len(part)]
        return _html.box(*notes, *tables, _html.quiet(self.note))


def coefficient_table(result: FitResult, rows: pd.DataFrame, interval: float, kind: str) -> CoefficientTable:
    """``rows`` with the result's heading.

    :param interval: probability of the intervals. :param kind: "hdi" or "eti".
    """
    table = CoefficientTable(rows)
    table.heading = _heading(result, interval, kind)
    table.further = _further(result, interval, kind)
    scaled = "Scaled: of columns in [-1, 1], and in the predictor's own unit." if "scaled mean" in rows else ""
    table.note = " ".join(filter(None, [scaled, result.interval_words, result.interval_warning]))
    return table


def _heading(result: FitResult, interval: float, kind: str) -> dict[str, str]:
    from workbench.results.effects import formula_of

    model = formula_of(result)
    heading = {"Coefficients": result.model if model is None else str(model.options["formula"])}
    if model is not None:
        heading["Family"] = f"{model.options['family']}, link {model.options['link']}"
    heading["Records"] = f"{count(result.settings['num_records'])} (declared), of {result.data['name']}"
    heading["Privacy"] = promise(result.guarantee, result.release_label)
    heading["Intervals"] = f"{100 * interval:g} %, {arviz_adapter.KINDS[kind]}"
    return heading


def _further(result: FitResult, interval: float, kind: str) -> pd.DataFrame:
    """Deviations between groups, on the scale of the link, and the family's parameters; none for a model without formula.

    All of them are in own units, as ``CoefficientTable`` says.
    """
    from workbench.results.effects import formula_of

    model = formula_of(result)
    draws: dict[str, np.ndarray] = {}
    if model is not None and model.columns is not None:
        family, response, design = model.columns.family, model.columns.response, model.columns.design
        unit = family.units(response).scale
        for effects in design.groups:
            deviations = result.draws[f"{effects.name}_sd"] * unit
            for place, (column, slope) in enumerate(zip(effects.columns, effects.slopes, strict=True)):
                draws |= _entries(f"sd of {column} by {effects.name}", deviations[:, place] * slope)
        own = {site: result.draws[site] for site in family.parameters(response)}
        if "cutpoints" in own and design.block.intercept and design.own_units is not None and "weights" in result.draws:
            # they take the place of an intercept, with the other sign
            own["cutpoints"] = own["cutpoints"] - (result.draws["weights"] @ design.own_units[0, 1:])[:, None]
        for site, values in family.own_parameters(response, own).items():
            draws |= _entries(site, values)
    if not draws:
        return pd.DataFrame()
    return arviz_adapter.summary(arviz_adapter.to_posterior(draws, {}, {}), interval, kind)


def _entries(name: str, values: Any) -> dict[str, np.ndarray]:
    flat = np.asarray(values).reshape(len(values), -1)
    return {name if flat.shape[1] == 1 else f"{name}[{place}]": flat[:, place] for place in range(flat.shape[1])}


def _cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows with the decimals that each row's standard deviation leaves a meaning; shares have two."""
    places = places_for(table["sd"].tolist())
    columns = [str(column) for column in table.columns]
    low, high = (column for column in columns if column.endswith(("%_low", "%_high")))
    names = {low: "from", high: "to"}
    rows = []
    for (name, row), digits in zip(table.iterrows(), places, strict=True):
        cells = [value if isinstance(value, str) else _number(column, value, digits) for column, value in row.items()]
        rows.append([str(name), *cells])
    return ["", *(names.get(column, column) for column in columns)], rows


def _number(column: Any, value: float, digits: int) -> str:
    if str(column) == "share above 0":
        return fixed(value, 3)
    if "ratio" in str(column) and not 1e-3 <= value <= 1e3:
        return "over 1000" if value > 1 else "below 0.001"
    return fixed(value, max(3, digits) if "scaled" in str(column) or "ratio" in str(column) else digits)


def _text(table: pd.DataFrame) -> str:
    """The table in columns, the first and words to the left, numbers to the right."""
    head, rows = _cells(table)
    lines = [head, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    is_text = [place == 0 or head[place] == "contrast" for place in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in lines
    )
