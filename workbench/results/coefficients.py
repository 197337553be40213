"""Coefficients of a linear predictor in the columns' own units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Contrast
from workbench.data.schema import Schema
from workbench.models.model import OwnUnits
from workbench.results import arviz_adapter

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult

__all__ = ["table"]


def table(result: FitResult, interval: float, kind: str) -> pd.DataFrame:
    """See ``FitResult.coefficients``. :raises ArgumentError: naming ``model``, if it has no linear predictor."""
    linear = result.predictor.model.linear if result.model_is_known else None
    if linear is None:
        raise _validate.ArgumentError("model", result.model, "has no linear predictor: only regressions have coefficients.")
    weights, intercept = _drawn(result, linear.weights, 2), None
    if linear.intercept:
        intercept = _drawn(result, linear.intercept, 1)
    names = list(result.coordinates.get(linear.weights) or result.data["feature_names"])
    size = weights.shape[1]
    names = names if len(names) == size else [f"feature {place}" for place in range(size)]
    drawn = weights if intercept is None else np.column_stack([intercept, weights])
    own = linear.own_units or _own_units(result, size, intercept is not None)
    columns, words = list((drawn @ own.matrix.T).T), list(own.contrasts)
    if intercept is not None:
        columns[0], names = columns[0] + own.shift, [linear.intercept, *names]
    posterior = arviz_adapter.to_posterior({"draws": np.stack(columns, axis=1)}, {}, {})
    rows = arviz_adapter.summary(posterior, interval, kind).set_axis(names, axis=0)
    low, high = rows.columns[2:4]
    rows.insert(0, "contrast", words)
    if linear.ratio:
        for name, column in ((linear.ratio, "mean"), (f"{linear.ratio} low", low), (f"{linear.ratio} high", high)):
            rows[name] = np.exp(rows[column])
    rows["share above 0"] = [float(np.mean(draws > 0)) for draws in columns]
    return rows


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
