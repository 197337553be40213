"""What is declared of the records of a release: their columns, unit and number, and no record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from workbench.releases.tables import Tables
from workbench.results import FitResult
from workbench.results.report import public_columns

__all__ = ["columns_of", "declaration"]

_HEAD = "# What is declared, as public, of the records. No record is in this file.\n"


def columns_of(result: FitResult | Tables) -> list[tuple[str, str]]:
    """(column, what is declared about its values), the target last."""
    if isinstance(result, Tables):
        return [(name, words) for name, words in result.columns]
    return [*(public_columns(result) or _arrays(result.data)), *_target(result.data)]


def declaration(result: FitResult | Tables) -> str:
    """The content of ``data.yaml``."""
    fit = result.guarantee
    facts = {} if isinstance(result, Tables) else result.data
    named = ("name", "description", "source", "licence")
    said = {name: facts[name] for name in named if facts.get(name)}
    values = said | {
        "each record is a": fit.unit,
        "number of records": fit.num_records,
        "rows of each, at most": fit.max_rows or 1,
        "columns": dict(columns_of(result)),
    }
    return _HEAD + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)


def _arrays(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Arrays of records that are not a table, and what one record has in each."""
    facts = zip(data["arrays"], data["record_types"], data["record_shapes"], strict=True)
    return [(name, f"{kind}{shape}") for name, kind, shape in facts]


def _target(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The target of a table with what is declared about it; nothing without a target."""
    if not data["target"]:
        return []
    bounds, classes = data["target_bounds"], ", ".join(map(str, data["classes"]))
    words = classes if bounds is None else "from {:g} to {:g}".format(*bounds)
    return [(data["target"], f"the target: {words}" if words else "the target")]
