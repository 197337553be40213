"""Which named data sets a model cannot fit, by trying it on one small set of each kind."""

from __future__ import annotations

import functools

from workbench import data, models
from workbench._validate import ArgumentError
from workbench.data import Dataset

__all__ = ["unsuitable"]


def unsuitable(model: str) -> dict[str, str]:
    """Data sets that ``model`` refuses with its default options, and why. No record of a user's own data is read.

    :raises ArgumentError: if the model cannot be made.
    """
    definition = models.get(model)
    refused = {}
    for task, example in _examples().items():
        try:
            definition.view(example)
        except ArgumentError as error:
            refused[task] = error.expectation
    tasks = {name: data.info(name).task for name in data.names()}
    return {name: refused[task] for name, task in tasks.items() if task in refused}


@functools.cache
def _examples() -> dict[str, Dataset]:
    """A data set that comes with the workbench, for each task that has one."""
    found: dict[str, Dataset] = {}
    for name in data.names():
        info = data.info(name)
        if info.available == "with the workbench" and info.task not in found:
            found[info.task] = data.load(name)
    return found
