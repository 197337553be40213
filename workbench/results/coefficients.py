"""Coefficients of a linear predictor in the columns' own units."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from workbench import _validate
from workbench.data.columns import Contrast
from workbench.data.schema import Schema
from workbench.models.model import LinearPredictor, OwnUnits
from workbench.results import arviz_adapter
from workbench.results.coefficient_table import CoefficientTable, coefficient_table
from workbench.results.effects import formula_of

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["table"]


def table(result: FitResult, interval: float, kind: str) -> CoefficientTable:
    """See ``FitResult.coefficients``. :raises ArgumentError: naming ``model``, if it has no linear predictor."""
    linear = result.predictor.model.linear if result.model_is_known else None
    if linear is not None:
        intercept = _drawn(result, linear.intercept, 1) if linear.intercept else None
        parts = {"": _part(result, linear, _drawn(result, linear.weights, 2), intercept)}
    else:
        linear, parts = _parts_of_levels(result)
    columns = [column for part in parts.values() for column in part.columns]
    posterior = arviz_adapter.to_posterior({"draws": np.stack(columns, axis=1)}, {}, {})
    names = [f"{level}: {name}" if level else name for level, part in parts.items() for name in part.names]
    rows = arviz_adapter.summary(posterior, interval, kind).set_axis(names, axis=0)
    low, high = rows.columns[2:4]
    rows.insert(0, "contrast", [word for part in parts.values() for word in part.words])
    if linear.ratio:
        for name, column in ((linear.ratio, "mean"), (f"{linear.ratio} low", low), (f"{linear.ratio} high", high)):
            rows[name] = np.exp(rows[column])
    rows["share above 0"] = [float(np.mean(draws > 0)) for draws in columns]
    scaled = np.column_stack([part.scaled for part in parts.values()])
    rows["scaled mean"], rows["scaled sd"] = scaled.mean(axis=0), scaled.std(axis=0, ddof=1)
    return coefficient_table(result, rows, interval, kind)


class _Part(NamedTuple):
    """Coefficients of one linear predictor: draws of each in own units, names, contrasts, and draws of the scaled ones."""

    columns: list[np.ndarray]
    names: list[str]
    words: list[str]
    scaled: np.ndarray


def _part(result: FitResult, linear: LinearPredictor, weights: np.ndarray, intercept: np.ndarray | None) -> _Part:
    given = result.coordinates.get(linear.weights)
    names = list((given[0] if isinstance(given, tuple) else given) or result.data["feature_names"])
    size = weights.shape[1]
    names = names if len(names) == size else [f"feature {place}" for place in range(size)]
    drawn = weights if intercept is None else np.column_stack([intercept, weights])
    own = linear.own_units or _own_units(result, size, intercept is not None)
    columns = list((drawn @ own.matrix.T + own.shift).T)
    if intercept is not None:
        names = [linear.intercept, *names]
    return _Part(columns, names, list(own.contrasts), drawn)


def _parts_of_levels(result: FitResult) -> tuple[LinearPredictor, dict[str, _Part]]:
    """A formula's coefficients for each level of the response but the first.

    :raises ArgumentError: naming ``model``, if it has none.
    """
    model = formula_of(result) if result.model_is_known else None
    weights, intercept = result.draws.get("weights"), result.draws.get("intercept")
    if model is None or model.columns is None or weights is None or weights.ndim != 3:
        raise _validate.ArgumentError("model", result.model, "has no linear predictor: only regressions have coefficients.")
    family, design = model.columns.family, model.columns.design
    words, own = design.block.contrasts(), None
    if design.own_units is not None:
        first = ("all columns 0 or at reference",) if intercept is not None else ()
        own = OwnUnits(design.own_units, (*first, *words))
    linear = LinearPredictor("weights", "intercept" if intercept is not None else "", family.ratio.get(family.link, ""), own)
    return linear, {
        level: _part(result, linear, weights[:, :, place], None if intercept is None else intercept[:, place])
        for place, level in enumerate(model.columns.response.levels[1:])
    }


def _drawn(result: FitResult, site: str, dimensions: int) -> np.ndarray:
    """Draws of a site of the linear predictor. :raises ArgumentError: naming ``linear``, if it is not such a site."""
    draws = result.draws.get(site)
    if draws is None or draws.ndim != dimensions:
        shape = "one number for each feature" if dimensions == 2 else "one number"
        raise _validate.ArgumentError("linear", site, f"must be a latent site of the model with {shape}.")
    return draws


def _own_units(result: FitResult, size: int, has_intercept: bool) -> OwnUnits:
    """Of weights of columns that were each scaled by the schema of the data set."""
    contrasts = _contrasts(result, size)
    words = tuple(contrast.words for contrast in contrasts)
    slopes = np.diag([contrast.slope for contrast in contrasts])
    if not has_intercept:
        return OwnUnits(slopes, words)
    shifts = [[1.0, *(contrast.shift for contrast in contrasts)]]
    return OwnUnits(np.vstack([shifts, np.insert(slopes, 0, 0.0, axis=1)]), ("all columns 0 or at reference", *words))


def _contrasts(result: FitResult, size: int) -> list[Contrast]:
    schema = result.data["schema"]
    unscaled = [Contrast(1.0, 0.0, "1 more, as the model saw it")] * size
    if not schema:
        return unscaled
    found = [contrast for column in Schema.from_dict(schema).columns.values() for contrast in column.contrasts()]
    return found if len(found) == size else unscaled
