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
    weights = result.draws[linear.weights]
    contrasts = _contrasts(result, weights.shape[1])
    slopes, shifts = (np.array([contrast[place] for contrast in contrasts]) for place in (0, 1))
    found = dict(zip(result.coordinates[linear.weights], (weights * slopes).T, strict=True))
    if linear.intercept in result.draws:
        found = {linear.intercept: result.draws[linear.intercept] + weights @ shifts, **found}
    posterior = arviz_adapter.to_posterior({"draws": np.stack(list(found.values()), axis=1)}, {"draws": list(found)}, {})
    rows = arviz_adapter.summary(posterior, interval, kind).set_axis(list(found), axis=0)
    of_intercept = ["all columns 0 or at reference"] * (len(found) - len(contrasts))
    low, high = rows.columns[2:4]
    rows.insert(0, "contrast", of_intercept + [contrast.words for contrast in contrasts])
    if linear.ratio:
        for name, column in ((linear.ratio, "mean"), (f"{linear.ratio} low", low), (f"{linear.ratio} high", high)):
            rows[name] = np.exp(rows[column])
    rows["share above 0"] = [float(np.mean(draws > 0)) for draws in found.values()]
    return rows


def _contrasts(result: FitResult, size: int) -> list[Contrast]:
    schema = result.data["schema"]
    unscaled = [Contrast(1.0, 0.0, "1 more, as the model saw it")] * size
    if not schema:
        return unscaled
    found = [contrast for column in Schema.from_dict(schema).columns.values() for contrast in column.contrasts()]
    return found if len(found) == size else unscaled
