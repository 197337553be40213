"""Which named data sets a model cannot fit, and which models fit a data set, by trying one small
set of each kind.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from workbench import data, models
from workbench._validate import ArgumentError
from workbench.data import Dataset

__all__ = ["first_model", "unsuitable_data", "unsuitable_models"]

# tried in this order before the others
_USUAL = ("hierarchical_logistic", "logistic", "neural_classifier")


def unsuitable_data(model: str) -> dict[str, str]:
    """Named data sets that ``model`` refuses with its default options, and why; no record of a
    user's own data is read.
    """
    refused = {task: _refusal(model, task) for task in _examples()}
    tasks = {name: data.info(name).task for name in data.names()}
    return {name: why for name, task in tasks.items() if (why := refused.get(task, ""))}


def unsuitable_models(name: str) -> dict[str, str]:
    """Models that refuse the data set ``name`` with their default options, and why; empty for a
    user's own data.
    """
    task = data.info(name).task if name in data.names() else ""
    return {model: why for model in models.names() if (why := _refusal(model, task))}


def first_model(refused: Mapping[str, str]) -> str | None:
    """The model to begin with for data that these models refuse; None where none is left."""
    suitable = set(models.names()) - set(refused)
    return next((model for model in (*_USUAL, *models.names()) if model in suitable), None)


def _refusal(model: str, task: str) -> str:
    """Why a model cannot fit data for ``task``; "" if it can, and where there is no example
    to try.
    """
    example = _examples().get(task)
    try:
        definition = models.get(model)
    except ArgumentError:  # it says so where it is chosen
        return ""
    try:
        if example is not None:
            definition.view(example)
    except ArgumentError as error:
        return error.expectation
    return ""


@functools.cache
def _examples() -> dict[str, Dataset]:
    """A data set that comes with the workbench, for each task that has one."""
    examples: dict[str, Dataset] = {}
    for name in data.names():
        info = data.info(name)
        if info.available == "with the workbench" and info.task not in examples:
            examples[info.task] = data.load(name)
    return examples
