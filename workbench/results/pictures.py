"""The pictures of a result, by name: training curves, posterior summaries and the model's own
pictures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import _validate, plots
from workbench._lazy import pd
from workbench.data import Dataset
from workbench.results import description, replication
from workbench.results.effects import formula_of
from workbench.results.entries import entry_names
from workbench.results.prediction import synthetic_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.results.fit_result import FitResult

__all__ = ["pictures", "records_of"]

_PAIRS = 6  # most scalars in the pairs picture
_MADE = "posterior draws, independent in the guide: none of these correlations was estimated"


def pictures(result: FitResult) -> dict[str, Callable[..., Figure]]:
    """``{name: picture(dataset or None) -> Figure}``."""
    figures: dict[str, Callable[[FitResult, Dataset | None], Figure]] = {
        "curves": lambda result, _: plots.training_figure(result)
    }
    model = result.predictor.model if result.model_is_known else None
    if result.draws and (model is None or "coefficients" not in model.pictures):
        # coefficients are a forest of their own
        figures["forest"] = lambda result, _: plots.forest_figure(
            result.summary_table().iloc[:, :4], result.release_label
        )
    if result.draws and not result.quantities_are_independent:
        figures["pairs"] = _pairs
    if result.gradient_norms is not None:
        figures["clipping"] = _clipping
    if model is not None:
        if _regression(result) is not None:
            figures["check"] = _check_of_response
        elif (
            model.predict is not None
            and len(result.data["arrays"]) > 1
            and len(result.data["classes"]) == 2
        ):
            figures["check"] = _check_of_probabilities
        elif result.data["arrays"] == ["x"] and not result.data["image_shape"]:
            figures["check"] = _check_of_points
        figures |= model.pictures
    return {name: functools.partial(draw, result) for name, draw in figures.items()}


def records_of(result: FitResult, data: Dataset | pd.DataFrame | None) -> Dataset | None:
    """The data set whose evaluation records a picture shows: ``data``, or all rows of a table, as
    private records.

    :raises ArgumentError: naming ``data``, for anything else, or a table where the model is not one
        of a formula.
    """
    if data is None or isinstance(data, Dataset):
        return data
    columns = (
        _regression(result) if isinstance(data, pd.DataFrame) and result.model_is_known else None
    )
    if columns is None:
        raise _validate.ArgumentError(
            "data",
            type(data).__name__,
            "must be a Dataset, as wb.data.from_frame, or model.dataset of a formula, makes it.",
        )
    return columns.dataset(data, evaluation=data)


def _regression(result: FitResult) -> Any:
    """The columns of a formula; None for other models."""
    model = formula_of(result)
    return None if model is None else model.columns


def _clipping(result: FitResult, data: Dataset | None) -> Figure:
    assert result.gradient_norms is not None
    return plots.norms_figure(result.gradient_norms, result.release_label)


def _pairs(result: FitResult, data: Dataset | None) -> Figure:
    """Pairs of the scalars whose means are most posterior standard deviations away from zero."""
    scalars: dict[str, np.ndarray] = {}
    for name, value in result.sorted_draws.items():
        names = entry_names(name, result.coordinates.get(name), value.shape[1:])
        scalars |= dict(zip(names, value.reshape(len(value), -1).T, strict=True))
    size = {name: abs(draws.mean()) / (draws.std() or 1.0) for name, draws in scalars.items()}
    chosen = sorted(size, key=size.__getitem__, reverse=True)[:_PAIRS]
    made = result.posterior_kind == "variational" and description.draws_are_independent(result)
    title = _MADE if made else "posterior draws"
    return plots.pair_figure({name: scalars[name] for name in chosen}, result.release_label, title)


def _needs_records(result: FitResult, data: Dataset | None, picture: str) -> None:
    if data is None and result.public_records is None:
        raise _validate.ArgumentError(
            "data",
            None,
            f"the picture {picture!r} compares with records: pass a Dataset that has evaluation "
            "records, or a table for a formula.",
        )


def _check_of_probabilities(result: FitResult, data: Dataset | None) -> Figure:
    _needs_records(result, data, "check")
    observed = result.predictor.all_arrays(data)[-1]
    probabilities = result.predictor.draws_of_predictions(result.predictor.inputs(data))
    return plots.predictive_check_figure(observed, probabilities, label=result.label_beside(data))


def _check_of_response(result: FitResult, data: Dataset | None) -> Figure:
    """Records beside what a regression's posterior makes of their columns, in the way that suits
    the family.
    """
    _needs_records(result, data, "check")
    columns, label = _regression(result), result.label_beside(data)
    arrays = dict(zip(columns.arrays, result.predictor.all_arrays(data), strict=True))
    family, name, observed = columns.family, columns.response.name, arrays["y"]
    if family.kind == "time":
        grid = np.linspace(0, float(observed.max()), 81)
        uncensored = arrays.get("observed", observed < np.float32(columns.response.high))
        return plots.survival_check_figure(
            observed,
            uncensored,
            grid,
            replication.survival(result, arrays, grid),
            label,
            xlabel=name,
        )
    if family.name == "bernoulli":
        return plots.predictive_check_figure(observed, replication.means(result, arrays), label)
    replicated = replication.responses(result, arrays)
    if family.kind == "class":
        return plots.proportions_figure(observed, replicated, columns.response.levels, label)
    if family.kind == "count":
        # counts that were cut with their trials or exposure need not be whole
        return plots.rootogram_figure(np.rint(observed), replicated, label, xlabel=name)
    return plots.points_check_figure(observed[:, None], replicated[..., None], [name], label)


def _check_of_points(result: FitResult, data: Dataset | None) -> Figure:
    _needs_records(result, data, "check")
    (observed,) = result.predictor.all_arrays(data)
    sets = 50
    drawn = result.predictor.sample(sets * len(observed), (), synthetic_key(0))
    replicated = drawn.reshape(sets, *observed.shape)
    return plots.points_check_figure(
        observed, replicated, result.data["feature_names"] or None, label=result.label_beside(data)
    )
