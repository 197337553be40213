"""Models and tables by name or file, as users name them in the shell and in plans of sweeps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench._validate import ArgumentError

__all__ = ["RECORDS", "group_features", "is_file", "model", "table", "unit_in"]

RECORDS = ".wbr"  # suffix of files that workbench pack writes


def is_file(text: str) -> bool:
    """Whether ``text`` names a file. Names of the workbench's data sets have neither dots nor
    slashes.
    """
    return "." in text or os.sep in text


def model(text: str, options: Mapping[str, Any], folder: str | Path = "") -> Any:
    """Find a model: a name without options is returned as it is, else the ``Model``. A model's file
    is run.

    :param folder: the folder that a relative FILE.py or FILE.py:NAME is relative to.
    :raises ArgumentError: naming ``model``, or the option.
    """
    from workbench import models

    if not is_file(text) and ":" not in text:
        return models.get(text, **options) if options else text
    return models.from_file(os.path.join(folder, os.path.expanduser(text)), **options)


def table(argument: str, path: str | Path) -> Any:
    """Read the table in a CSV file. :raises ArgumentError: naming ``argument``."""
    from workbench.data.csv_files import read_csv

    try:
        return read_csv(path)
    except ArgumentError as error:
        raise ArgumentError(argument, str(path), error.expectation) from None


def unit_in(schema: Any) -> dict[str, Any]:
    """What a schema file with a column that says whose row it is means as options of
    ``from_frame``; none without one.

    :param schema: as the file has it: ``{"patient_id": {"kind": "unit", "max_rows": 10}, "age":
        ...}``.
    :raises ArgumentError: naming ``schema``: several such columns, or other facts about one.
    """
    if not isinstance(schema, Mapping):
        return {}
    units = {
        name: facts
        for name, facts in schema.items()
        if isinstance(facts, Mapping) and facts.get("kind") == "unit"
    }
    for facts in units.values():
        if len(units) > 1 or not {"kind", "max_rows"} <= set(facts) <= {"kind", "max_rows", "mean"}:
            raise ArgumentError(
                "schema",
                dict(facts),
                'must describe exactly one unit column, as {"kind": "unit", "max_rows": 10}, '
                'optionally with "mean".',
            )
        columns = {name: of_column for name, of_column in schema.items() if name not in units}
        unit = {"max_rows": facts["max_rows"], "unit_mean": facts.get("mean", False)}
        return {"schema": columns, "unit_id": next(iter(units)), **unit}
    return {}


def group_features(path: str | Path) -> Any:
    """Read a table of public facts about groups, whose first column has their names.

    :raises ArgumentError: naming ``group_features``.
    """
    facts = table("group_features", path)
    return facts.set_index(facts.columns[0])
