"""Models and tables by name or file, as users name them in the shell and in plans of sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench._validate import ArgumentError

__all__ = ["group_features", "is_file", "model", "table"]


def is_file(text: str) -> bool:
    """Whether ``text`` names a file. Names of the workbench's data sets have neither dots nor slashes."""
    return "." in text or os.sep in text


def model(text: str, options: Mapping[str, Any], folder: str | Path = "") -> Any:
    """Find a model: a name without options is returned as it is, else the ``Model``. A model's file is run.

    :param folder: the folder that a relative FILE.py or FILE.py:NAME is relative to.
    :raises ArgumentError: naming ``model``, or the option.
    """
    from workbench import models

    if not is_file(text) and ":" not in text:
        return models.get(text, **options) if options else text
    return models.from_file(os.path.join(folder, os.path.expanduser(text)), **options)


def table(argument: str, path: str | Path) -> Any:
    """Read the table in a CSV file. :raises ArgumentError: naming ``argument``."""
    from workbench.data.files import read_csv

    try:
        return read_csv(path)
    except ArgumentError as error:
        raise ArgumentError(argument, str(path), error.expectation) from None


def group_features(path: str | Path) -> Any:
    """Read a table of public facts about groups, whose first column has their names.

    :raises ArgumentError: naming ``group_features``.
    """
    facts = table("group_features", path)
    return facts.set_index(facts.columns[0])
