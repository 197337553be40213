"""Preprocessing from declared (public) bounds: it looks at one record at a time and never at the whole private table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from workbench import _validate

__all__ = ["binary_target", "checked_bounds", "numeric_features", "scale_to_bounds"]

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
    return {name: _pair(f"bounds[{name!r}]", bounds[name]) for name in features}


def _pair(argument: str, value: Any) -> tuple[float, float]:
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

    :raises ArgumentError: naming the first column with text or missing values, and one of them.
    """
    columns = []
    for name in features:
        numbers = pd.to_numeric(frame[name], errors="coerce")
        text = frame[name][numbers.isna() & frame[name].notna()]
        if len(text):
            raise _validate.ArgumentError(
                name, text.iloc[0], f"this feature has text in {len(text)} row(s); encode it as numbers or leave it out."
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


def scale_to_bounds(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    """float32 features in [-1, 1]: each value is cut to its feature's bounds and mapped linearly from them."""
    low = np.array([pair[0] for pair in bounds.values()])
    high = np.array([pair[1] for pair in bounds.values()])
    return (2 * (np.clip(values, low, high) - low) / (high - low) - 1).astype(np.float32)


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
