"""What the header of a file says about its records: declarations of a table.

A file in the clear may be anybody's. So each fact is checked, the layout of a record follows from
the facts, and nothing in them is about privacy: what a record is, and which records are public, is
said by those who open the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.data.dataset import PRESENT, Dataset
from workbench.data.schema import Schema
from workbench.data.units import MOST_ROWS

__all__ = ["dataset_facts", "layout", "public_facts", "require", "unit_facts"]

_TEXTS = ("name", "description", "target_name", "licence", "source", "group_name")
_NAMES = ("classes", "groups", "group_feature_names")
_LARGEST = float(np.finfo(np.float32).max)
_OTHERS = ("schema", "group_features", "target_bounds", "units")


def public_facts(dataset: Dataset) -> dict[str, Any]:
    """What the header says about a data set, ready for JSON."""
    bounds, units = dataset.target_bounds, dataset.units
    return {
        **{name: getattr(dataset, name) for name in _TEXTS},
        **{name: list(getattr(dataset, name)) for name in _NAMES},
        "schema": None if dataset.schema is None else dataset.schema.to_dict(),
        "group_features": None
        if dataset.group_features is None
        else dataset.group_features.tolist(),
        "target_bounds": None if bounds is None else list(bounds),
        "units": None if units is None else {"max_rows": units.max_rows, "mean": units.mean},
    }


def dataset_facts(facts: Any) -> dict[str, Any]:
    """The arguments of ``Dataset`` that ``public_facts`` wrote.

    :raises ValueError: (``ArgumentError`` is one) if a fact is missing or unknown, of another type
        or outside its range, or contradicts another.
    """
    require(type(facts) is dict and facts.keys() == {*_TEXTS, *_NAMES, *_OTHERS})
    require(all(type(facts[name]) is str for name in _TEXTS))
    for name in _NAMES:
        require(_is_list(facts[name], str) and len(set(facts[name])) == len(facts[name]))
    require(type(facts["schema"]) is dict)
    schema = Schema.from_dict(facts["schema"])
    require(schema.to_dict() == facts["schema"])
    bounds, classes = facts["target_bounds"], facts["classes"]
    require(bounds is None or (_is_list(bounds, float, 2) and bounds[0] < bounds[1]))
    has_target, has_group = facts["target_name"] != "", facts["group_name"] != ""
    require((bounds is not None) + (len(classes) >= 2) == has_target and len(classes) != 1)
    require(has_group == bool(facts["groups"]) == bool(facts["group_feature_names"]))
    features, width = facts["group_features"], len(facts["group_feature_names"])
    if has_group:
        require(
            _is_list(features, list, len(facts["groups"]))
            and all(_is_list(row, float, width) for row in features)
        )
    else:
        require(features is None)
    unit_facts(facts)
    arguments = {
        **{name: facts[name] for name in _TEXTS},
        **{name: tuple(facts[name]) for name in _NAMES},
        "schema": schema,
        "feature_names": schema.feature_names,
        "group_features": np.asarray(features, np.float32) if has_group else None,
        "target_bounds": None if bounds is None else tuple(bounds),
        "arrays": ("x", *["group"] * has_group, *["y"] * has_target),
    }
    Dataset(train=(), evaluation=(), **arguments)  # which refuses names that no screen can show
    return arguments


def unit_facts(facts: Mapping[str, Any]) -> tuple[int, bool] | None:
    """(largest number of rows of a unit, whether they weigh 1 together); None where each row is a
    record.

    :raises ValueError: if they are none.
    """
    units = facts["units"]
    if units is None:
        return None
    require(
        type(units) is dict and units.keys() == {"max_rows", "mean"} and type(units["mean"]) is bool
    )
    require(type(units["max_rows"]) is int and 1 <= units["max_rows"] <= MOST_ROWS)
    return units["max_rows"], units["mean"]


def layout(facts: Mapping[str, Any]) -> np.dtype:
    """A training record of these facts: its arrays one after another, least significant byte first.

    A unit has room for its largest number of rows, and says which are there.
    """
    described = dataset_facts(facts)
    kinds = {"x": "<f4", "group": "<i4", "y": "<i4" if described["classes"] else "<f4"}
    shapes = {"x": (len(described["feature_names"]),)}
    rows, names = unit_facts(facts), described["arrays"]
    room = () if rows is None else (rows[0],)
    fields = [(name, kinds[name], (*room, *shapes.get(name, ()))) for name in names]
    return np.dtype([*fields, *([] if rows is None else [(PRESENT, "<f4", room)])])


def require(is_right: bool) -> None:
    """:raises ValueError: unless it is."""
    if not is_right:
        raise ValueError


def _is_list(value: object, kind: type, length: int | None = None) -> bool:
    """Whether it is a list, of finite numbers where ``kind`` is float, and as long as it
    must be.
    """
    return (
        type(value) is list
        and length in (None, len(value))
        and all(type(entry) is kind for entry in value)
        and (kind is not float or all(abs(number) <= _LARGEST for number in value))
    )
