"""Coefficients of a linear predictor in the columns' own units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.schema import Contrast, Schema
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
    contrasts = _contrasts(result, weights.shape[1])
    slopes, shifts = (np.array([contrast[place] for contrast in contrasts]) for place in (0, 1))
    columns, words = list((weights * slopes).T), [contrast.words for contrast in contrasts]
    names = list(result.coordinates.get(linear.weights) or result.data["feature_names"])
    names = names if len(names) == len(columns) else [f"feature {place}" for place in range(len(columns))]
    if intercept is not None:
        columns, names = [intercept + weights @ shifts, *columns], [linear.intercept, *names]
        words = ["all columns 0 or at reference", *words]
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


def _contrasts(result: FitResult, size: int) -> list[Contrast]:
    schema = result.data["schema"]
    unscaled = [Contrast(1.0, 0.0, "1 more, as the model saw it")] * size
    if not schema:
        return unscaled
    found = [contrast for column in Schema.from_dict(schema).columns.values() for contrast in column.contrasts()]
    return found if len(found) == size else unscaled
