"""Models and tables by the names and files that people give them, in the shell and in plans of sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench._validate import ArgumentError

__all__ = ["group_features", "is_file", "model", "table"]


def is_file(text: str) -> bool:
    """Whether ``text`` is to be read as the name of a file; data sets of the workbench have neither dots nor slashes."""
    return "." in text or os.sep in text


def model(text: str, options: Mapping[str, Any], folder: str | Path = "") -> Any:
    """The name of a model as it is; the ``Model`` where options are set, or of a file, which is run.

    :param folder: where a relative FILE.py or FILE.py:NAME begins.
    :raises ArgumentError: naming ``model``, or the option.
    """
    from workbench import models

    if not is_file(text) and ":" not in text:
        return models.get(text, **options) if options else text
    return models.from_file(os.path.join(folder, os.path.expanduser(text)), **options)


def table(argument: str, path: str | Path) -> Any:
    """The table of a CSV file. :raises ArgumentError: naming ``argument``."""
    from workbench.data.files import read_csv

    try:
        return read_csv(path)
    except ArgumentError as error:
        raise ArgumentError(argument, str(path), error.expectation) from None


def group_features(path: str | Path) -> Any:
    """A table of public facts about groups, its first column their names.

    :raises ArgumentError: naming ``group_features``.
    """
    facts = table("group_features", path)
    return facts.set_index(facts.columns[0])
