"""The form of result.json: every field, its type and its range, in one table. Arrays are in other
files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench._schema import (
    Form,
    FormError,
    anything,
    flag,
    listed,
    mapped,
    number,
    optional,
    record,
    text,
    whole,
)
from workbench.data.dataset import EVALUATION_LABELS
from workbench.data.look import scales_form
from workbench.data.schema import Schema
from workbench.privacy import gradient_norms, guarantee
from workbench.results.storage import MADE, NUMBERS

__all__ = ["check", "check_draws"]

_KINDS = ("noise-aware", "variational", "normal likelihood")


def _hexadecimal(field: str, value: Any) -> None:
    text()(field, value)
    if len(value) != 64 or not set(value) <= set("0123456789abcdef"):
        raise FormError(field, "must be 64 hexadecimal digits.")


def _type(field: str, value: Any) -> None:
    """The type of an array of numbers."""
    text()(field, value)
    try:
        is_number = np.dtype(value).kind in "biuf" and str(np.dtype(value)) == value
    except TypeError:
        is_number = False
    if not is_number:
        raise FormError(field, "must be a type of numbers, such as float32.")


def _labels(field: str, value: Any) -> None:
    """Labels of a vector's entries, or those of a matrix's rows and of its columns."""
    is_matrix = type(value) is list and bool(value) and type(value[0]) is list
    (listed(listed(_label), 2) if is_matrix else listed(_label))(field, value)


def _label(field: str, value: Any) -> None:
    (whole() if type(value) is int else text())(field, value)


def _constant(field: str, value: Any) -> None:
    """Any value, or an array with its type."""
    if isinstance(value, dict) and value.keys() == {"dtype", "value"}:
        _type(f"{field}.dtype", value["dtype"])
        try:
            np.array(value["value"], value["dtype"])  # refuses lists that are not of one shape
        except (ValueError, TypeError, OverflowError):
            raise FormError(
                f"{field}.value", f"must be numbers of type {value['dtype']} in lists of one shape."
            ) from None


def _schema(field: str, value: Any) -> None:
    mapped(record({}, more=anything))(field, value)
    try:
        is_same = Schema.from_dict(value).to_dict() == value
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormError(field, f"must describe columns: {' '.join(str(error).split())}") from None
    if not is_same:
        raise FormError(field, "must describe columns as it was written.")


def _point(field: str, value: Any) -> None:
    record({"step": whole()}, more=optional(number()))(field, value)


_DATA = {
    **dict.fromkeys(("name", "unit"), text(empty=False)),
    **dict.fromkeys(("description", "licence", "source", "target", "group"), text()),
    **dict.fromkeys(
        ("classes", "arrays", "feature_names", "groups", "declarations"), listed(text())
    ),
    "vocabulary_size": whole(),
    "image_shape": listed(whole(at_least=1)),
    "num_evaluation": optional(whole()),
    "target_bounds": optional(listed(number(), 2)),
    "record_shapes": listed(listed(whole())),
    "record_types": listed(_type),
    "schema": optional(_schema),
    "scales": scales_form,
}
_SETTINGS: dict[str, Form] = {
    "epsilon": optional(number(above=0)),
    "delta": optional(number(above=0, below=1)),
    "iterations": whole(at_least=1),
    "sampling_rate": number(above=0, at_most=1),
    "clip": optional(number(above=0)),
    "num_records": whole(at_least=1),
    "seed": optional(whole()),
    "average": flag,
    "evaluate_private": flag,
    "estimator": text(("aligned", "vanilla", "statistics")),
    "learning_rate": optional(number(above=0)),
    "draws": whole(at_least=1),
    "device": text(),
    "devices": optional(listed(text())),
}


def _setting(field: str, value: Any) -> None:
    """A value that fits on a line."""
    if type(value) not in (type(None), bool, str):
        number()(field, value)


_RESULT: dict[str, Form] = {
    "format": whole(),
    "status": text(("done", "cancelled", "failed")),
    "message": text(),
    "guarantee": guarantee.check_form,
    "model": text(empty=False),
    "model_options": mapped(anything),
    "data": record(_DATA),
    "settings": record(_SETTINGS, more=_setting),
    "coordinates": mapped(_labels),
    "history": listed(_point),
    "metrics": mapped(optional(number())),
    "metrics_label": text(("covered", *EVALUATION_LABELS.values())),
    "metric_intervals": mapped(listed(number(), 2)),
    "release_label": text(("covered", *EVALUATION_LABELS.values())),
    "seconds": number(at_least=0),
    "finished": text(),
    "constants": mapped(_constant),
    "released": listed(text()),
    "spend": text(),
    "versions": mapped(text()),
    "posterior_kind": text(_KINDS),
    "posterior_note": text(),
    "gradient_norms": optional(gradient_norms.check_form),
    "convergence": optional(
        record(
            {
                "steps": whole(),
                "score": optional(number(at_least=0)),
                "site": text(),
                "threshold": number(above=0),
            }
        )
    ),
    "cautions": listed(text()),
    "arrays": record(dict.fromkeys(NUMBERS, mapped(text()))),
    "files": record(dict.fromkeys(NUMBERS, _hexadecimal), more=_hexadecimal),
    "digest": _hexadecimal,
}


def check(values: Mapping[str, Any]) -> None:
    """Check everything in result.json. :raises FormError: naming a field that ``storage.save`` does
    not write like this.
    """
    record(_RESULT)("", {"convergence": None, **values})  # former versions did not save it
    unknown = values["files"].keys() - {*NUMBERS, *MADE}
    if unknown:
        raise FormError(f"files.{min(unknown)}", "is not known.")
    data, label = values["data"], values["release_label"]
    if (label == "covered") is (values["guarantee"].get("private") is False):
        raise FormError("release_label", "must be that of a fit with this guarantee.")
    for name in ("record_shapes", "record_types"):
        if len(data[name]) != len(data["arrays"]):
            raise FormError(f"data.{name}", "must be as many as data.arrays.")
    if data["target_bounds"] is not None and data["target_bounds"][0] >= data["target_bounds"][1]:
        raise FormError("data.target_bounds", "must ascend.")


def check_draws(values: Mapping[str, Any], draws: Mapping[str, np.ndarray]) -> None:
    """Check that labels are those of the draws, and that there is one number of draws. :raises
    FormError: naming a field.
    """
    if len({len(array) if array.ndim else 0 for array in draws.values()} | {0}) > 2:
        raise FormError("posterior.nc", "must have one number of draws.")
    for name, labels in values["coordinates"].items():
        if name in draws:
            axes = labels if labels and isinstance(labels[0], list) else [labels]
            if tuple(map(len, axes)) != draws[name].shape[1:]:
                raise FormError(
                    f"coordinates.{name}",
                    f"must be labels for the shape {list(draws[name].shape[1:])}.",
                )
