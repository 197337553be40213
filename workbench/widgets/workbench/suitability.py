"""Which named data sets a model cannot fit, and which models fit a data set, by trying one small set of each kind."""

from __future__ import annotations

import functools

from workbench import data, models
from workbench._validate import ArgumentError
from workbench.data import Dataset

__all__ = ["first_model", "unsuitable_data", "unsuitable_models"]

_USUAL = ("hierarchical_logistic", "logistic", "neural_classifier")  # tried in this order before the others


def unsuitable_data(model: str) -> dict[str, str]:
    """Named data sets that ``model`` refuses with its default options, and why; no record of a user's own data is read.

    :raises ArgumentError: if the model cannot be made.
    """
    refused = {task: why for task in _examples() if (why := _refusal(models.get(model), task))}
    tasks = {name: data.info(name).task for name in data.names()}
    return {name: refused[task] for name, task in tasks.items() if task in refused}


def unsuitable_models(name: str) -> dict[str, str]:
    """Models that refuse the data set ``name`` with their default options, and why; empty for a user's own data."""
    task = data.info(name).task if name in data.names() else ""
    found = {}
    for model in models.names() if task in _examples() else ():
        try:
            why = _refusal(models.get(model), task)
        except ArgumentError:  # a model that cannot be made says so where it is chosen
            continue
        if why:
            found[model] = why
    return found


def first_model(refused: dict[str, str]) -> str | None:
    """The model to begin with for data that these models refuse; None where none is left."""
    left = [model for model in (*_USUAL, *models.names()) if model not in refused and model in models.names()]
    return left[0] if left else None


def _refusal(definition: models.Model, task: str) -> str:
    """Why a model cannot fit data for ``task``; "" if it can."""
    try:
        definition.view(_examples()[task])
    except ArgumentError as error:
        return error.expectation
    return ""


@functools.cache
def _examples() -> dict[str, Dataset]:
    """A data set that comes with the workbench, for each task that has one."""
    found: dict[str, Dataset] = {}
    for name in data.names():
        info = data.info(name)
        if info.available == "with the workbench" and info.task not in found:
            found[info.task] = data.load(name)
    return found
