"""Preprocessing: from declared (public) bounds one record at a time, from private statistics only on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from workbench import _validate

__all__ = [
    "binary_target",
    "checked_bounds",
    "checked_pair",
    "numeric_features",
    "scale_to_bounds",
    "standardise",
    "thresholded",
]

Bounds = dict[str, tuple[float, float]]


def checked_bounds(bounds: Any, features: list[str]) -> Bounds:
    """``{feature: (low, high)}`` for all ``features`` from a mapping, or from one pair that holds for each of them.

    :raises ArgumentError: if a feature has no bounds, a name is no feature, or low < high does not hold.
    """
    if not isinstance(bounds, Mapping):
        bounds = dict.fromkeys(features, bounds)
    for name in bounds:
        if name not in features:
            raise _validate.unknown_name("bounds", name, features)
    missing = [name for name in features if name not in bounds]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise _validate.ArgumentError(
            "bounds",
            sorted(bounds),
            f"no bounds for {len(missing)} feature(s): {shown}. Declare the public range of each, such as "
            f"bounds={{{missing[0]!r}: (0, 100)}}, or name the columns to use with features=.",
        )
    return {name: checked_pair(f"bounds[{name!r}]", bounds[name]) for name in features}


def checked_pair(argument: str, value: Any) -> tuple[float, float]:
    """``value`` as (low, high), finite with low < high; else an ``ArgumentError`` that names ``argument``."""
    try:
        low, high = value
        low, high = float(low), float(high)
    except (TypeError, ValueError):
        raise _validate.ArgumentError(argument, value, "must be a pair of numbers (low, high).") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise _validate.ArgumentError(argument, value, "must be finite with low < high.")
    return low, high


def numeric_features(frame: pd.DataFrame, features: list[str]) -> np.ndarray:
    """float64[rows, features] of ``frame``.

    :raises ArgumentError: naming the first column with text, dates or missing values, and one of them or its type.
    """
    columns = []
    for name in features:
        kind = frame[name].dtype
        if not _may_hold_numbers(kind):  # pandas would count dates in nanoseconds
            raise _validate.ArgumentError(
                name,
                str(kind),
                "this feature holds no plain numbers; make some of it, such as days since a public date, or leave it out.",
            )
        numbers = pd.to_numeric(frame[name], errors="coerce")
        others = frame[name][numbers.isna() & frame[name].notna()]
        if len(others):
            first = others.iloc[0]
            what = "text" if isinstance(first, str) else f"a {type(first).__name__}"
            raise _validate.ArgumentError(
                name,
                first,
                f"this feature has {what} in {len(others)} row(s); declare its categories "
                "in schema=, encode it as numbers or leave it out.",
            )
        values = numbers.to_numpy(np.float64)
        bad = int(np.sum(~np.isfinite(values)))
        if bad:
            first = values[~np.isfinite(values)][0]
            raise _validate.ArgumentError(
                name, float(first), f"this feature is missing or infinite in {bad} row(s); fill or drop them first."
            )
        columns.append(values)
    return np.stack(columns, axis=1)


def _may_hold_numbers(kind: Any) -> bool:
    """Whether a column of this type is of real numbers, truth values, or text and objects that may turn out as numbers."""
    types = pd.api.types
    if types.is_numeric_dtype(kind):
        return not types.is_complex_dtype(kind)
    return types.is_object_dtype(kind) or types.is_string_dtype(kind) or isinstance(kind, pd.CategoricalDtype)


def scale_to_bounds(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    """float32 features in [-1, 1]: each value is cut to its feature's bounds and mapped linearly from them."""
    low = np.array([pair[0] for pair in bounds.values()])
    high = np.array([pair[1] for pair in bounds.values()])
    # exact, and keeps twice the distance between the largest numbers finite
    unit = np.where(np.maximum(np.abs(low), np.abs(high)) > 1e300, 0.125, 1.0)
    low, high, values = low * unit, high * unit, values * unit
    return (2 * (np.clip(values, low, high) - low) / (high - low) - 1).astype(np.float32)


def standardise(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """float32 ``values`` less the mean of ``reference``, over its standard deviation, column by column.

    A column that is constant in ``reference`` is only centred. The result depends on all of ``reference``: it is for private
    records only where the user asked for it (``Dataset.private_scaling``).
    """
    size = np.max(np.abs(reference), axis=0)
    size[size == 0] = 1.0
    ratio = reference / size  # so that neither sums nor squares leave the range of numbers
    mean, deviation = np.mean(ratio, axis=0) * size, np.std(ratio, axis=0) * size
    constant = (np.min(reference, axis=0) == np.max(reference, axis=0)) | (deviation == 0)
    mean[constant], deviation[constant] = reference[0, constant], 1.0  # rounding would leave a deviation above 0
    largest = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore"):  # other values than those of ``reference`` may be any number of deviations away
        scaled = 2 * ((values / 2 - mean / 2) / deviation)
    return np.clip(scaled, -largest, largest).astype(np.float32)


def binary_target(column: pd.Series, positive: Any = None) -> tuple[np.ndarray, tuple[str, str]]:
    """(int32 target of 0 and 1, labels of the two classes).

    :param positive: the value that counts as 1; may be left out if the values are 0 and 1 or False and True.
    :raises ArgumentError: if values are missing, are not exactly two, or ``positive`` is needed or not among them.
    """
    name = str(column.name)
    missing = int(column.isna().sum())
    if missing:
        raise _validate.ArgumentError("target", name, f"the target is missing in {missing} row(s); drop them first.")
    values = sorted(column.unique().tolist(), key=str)
    shown = ", ".join(map(repr, values[:4])) + (", ..." if len(values) > 4 else "")
    if len(values) == 1:
        raise _validate.ArgumentError(
            "target", name, f"every row has the same class ({shown}): there is nothing to tell apart."
        )
    if len(values) != 2:
        raise _validate.ArgumentError("target", name, f"the target must be binary but has {len(values)} values ({shown}).")
    if positive is None:
        if {float(value) if isinstance(value, (int, float)) else value for value in values} != {0.0, 1.0}:
            raise _validate.ArgumentError("positive", None, f"say which value of {name!r} counts as 1: one of {shown}.")
        positive = values[1]
    if positive not in values:
        # a command line hands over text
        matching = [value for value in values if str(value) == str(positive)]
        if not matching:
            raise _validate.ArgumentError("positive", positive, f"not a value of {name!r}, which has {shown}.")
        positive = matching[0]
    negative = next(value for value in values if value != positive)
    return (column == positive).to_numpy(np.int32), (str(negative), str(positive))


def thresholded(column: pd.Series, threshold: float) -> tuple[np.ndarray, tuple[str, str]]:
    """(int32 target, labels of the two classes): whether each number is above the public ``threshold``.

    :raises ArgumentError: naming the column, if a value is missing, infinite or no number.
    """
    name = str(column.name)
    limit = _validate.number("threshold", threshold)
    values = numeric_features(column.to_frame(name), [name])[:, 0]
    return (values > limit).astype(np.int32), (f"<= {limit:g}", f"> {limit:g}")
