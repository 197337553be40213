"""Synthetic records in the units of the fitted data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset
from workbench.results.new_groups import predictor_for
from workbench.results.prediction import Predictor, synthetic_key

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult
    from workbench.results.prediction import Records

__all__ = ["MOST_NUMBERS", "synthetic_records", "table_of"]


MOST_NUMBERS = 200_000_000  # numbers in all drawn records: about 1 GB, and more for a table as text


def require_public(given: Records) -> None:
    """:raises ArgumentError: naming ``given``, for a data set whose evaluation records are
    private.
    """
    if isinstance(given, Dataset) and not given.evaluation_is_public:
        raise _validate.ArgumentError(
            "given",
            given.name,
            "has evaluation records that are private, and synthetic records have their inputs.",
            remedy="Pass a public table of inputs.",
        )


def synthetic_records(
    result: FitResult,
    count: int,
    given: Records,
    seed: int | None,
    on_progress: Callable[[int], object] = lambda _: None,
    *,
    new_groups: bool = False,
) -> Any:
    """Implementation of ``FitResult.sample``.

    :param on_progress: called with the number of records just drawn.
    """
    predictor, facts = result.predictor, result.data
    size = sum(math.prod(shape) for shape in facts["record_shapes"])
    count = _validate.integer("count", count, at_least=1, at_most=MOST_NUMBERS // max(1, size))
    key, choosing = jax.random.split(synthetic_key(seed))
    inputs: tuple[np.ndarray, ...] = ()
    require_public(given)
    if len(facts["arrays"]) > 1:
        try:
            predictor, inputs, _ = predictor_for(result, given, new_groups)
        except _validate.ArgumentError as error:
            if error.argument != "records":
                raise
            remedy = (
                "Pass the inputs, as in result.sample(given=frame), which draws a target for "
                "each row of the table."
            )
            raise _validate.ArgumentError(
                "given",
                error.value,
                error.expectation,
                code=error.code,
                remedy=remedy if given is None else error.remedy,
            ) from None
        if given is None:
            rows = np.asarray(jax.random.randint(choosing, (count,), 0, len(inputs[0])))
            inputs = tuple(array[rows] for array in inputs)
        count = len(inputs[0])
    elif given is not None:
        raise _validate.ArgumentError(
            "given", given, "is for models that predict a target; this one draws whole records."
        )
    drawn = predictor.sample(count, inputs, key, on_progress)
    if facts["image_shape"] or not (facts["feature_names"] or facts["schema"]):
        return drawn
    features = None
    if predictor.model.has_own_arrays and isinstance(given, pd.DataFrame):
        features = given.reset_index(drop=True)
    return table_of(predictor, inputs, drawn, features)


def table_of(
    predictor: Predictor,
    inputs: tuple[np.ndarray, ...],
    drawn: np.ndarray,
    features: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """A table of inputs and drawn values in its own columns and units.

    :param features: the columns of the inputs; by default those of the arrays, which of a model's
        own arrays are the design's.
    """
    facts = predictor.result.data
    arrays = dict(zip(facts["arrays"], (*inputs, drawn), strict=True))
    if features is not None:
        table = features
    elif predictor.model.has_own_arrays or predictor.schema is None:
        table = pd.DataFrame(arrays["x"], columns=facts["feature_names"] or None)
    else:
        table = predictor.schema.decode(arrays["x"])
    if "group" in arrays:
        table[facts["group"]] = np.asarray(facts["groups"])[arrays["group"]]
    if "y" in arrays:
        y, bounds = arrays["y"], facts.get("target_bounds")  # which early results do not have
        if facts["classes"]:
            y = np.asarray(facts["classes"])[y]
        elif bounds is not None:  # as a record of a table is cut
            kind = np.float64 if y.dtype.kind == "f" else y.dtype  # a bound need not be a float32
            y = np.clip(y.astype(kind), *np.asarray(bounds, kind))
        table[facts["target"]] = y
        for name, values in predictor.model.beside_target(arrays["y"]).items():
            table[name] = values
    return table
