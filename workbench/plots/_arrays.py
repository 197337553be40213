"""Checks of the arrays and tables that figures take, and intervals of draws."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from workbench._lazy import pd
from workbench._validate import ArgumentError

__all__ = ["Shapes", "columns_of", "interval_columns"]


class Shapes:
    """The arrays of one call. Axes of the same name must have the same length."""

    def __init__(self) -> None:
        self._lengths: dict[str, tuple[int, str]] = {}

    def array(
        self,
        name: str,
        value: ArrayLike,
        *axes: str,
        at_least: float | None = None,
        at_most: float | None = None,
        increases: bool = False,
    ) -> np.ndarray:
        """``value`` as finite float64 of shape ``axes``, within the limits; of one axis also one
        that ``increases``.

        :raises ArgumentError: otherwise.
        """
        wanted = f"[{', '.join(axes)}]"
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(
                name, value, f"must be an array of numbers of shape {wanted}."
            ) from None
        if array.ndim != len(axes):
            raise ArgumentError(name, value, f"must be an array of shape {wanted}.")
        for axis, length in zip(axes, array.shape, strict=True):
            self._agree(name, value, axis, length)
        if not np.isfinite(array).all():
            raise ArgumentError(
                name, value, f"must be finite, but contains {_first(array, ~np.isfinite(array))}."
            )
        if at_least is not None and (array < at_least).any():
            offender = _first(array, array < at_least)
            raise ArgumentError(
                name, value, f"must be at least {at_least:g}, but contains {offender}."
            )
        if at_most is not None and (array > at_most).any():
            raise ArgumentError(
                name,
                value,
                f"must be at most {at_most:g}, but contains {_first(array, array > at_most)}.",
            )
        if increases and (np.diff(array) <= 0).any():
            raise ArgumentError(name, value, "must increase.")
        return array

    def names(self, name: str, value: Sequence[str] | None, axis: str, prefix: str) -> list[str]:
        """``value`` as one string for each entry of ``axis``; if None, ``prefix`` with the numbers
        1, 2, ...
        """
        if value is None:
            return [f"{prefix}{number + 1}" for number in range(self._lengths[axis][0])]
        if isinstance(value, str):
            raise ArgumentError(name, value, "must be a sequence of names.")
        names = [str(entry) for entry in value]
        self._agree(name, names, axis, len(names))
        return names

    def _agree(self, name: str, value: ArrayLike, axis: str, length: int) -> None:
        if length == 0:
            raise ArgumentError(name, value, f"is empty along its axis of {axis}.")
        expected, first = self._lengths.setdefault(axis, (length, name))
        if expected != length:
            raise ArgumentError(name, value, f"has {length} {axis}, but {first} has {expected}.")


def _first(array: np.ndarray, mask: np.ndarray) -> str:
    position = tuple(int(index) for index in np.argwhere(mask)[0])
    return f"{array[position]:g} at {list(position)}"


def columns_of(
    name: str,
    table: pd.DataFrame,
    columns: Sequence[str],
    may_be_infinite: Sequence[str] = (),
    numbers: bool = True,
) -> None:
    """Check that ``table`` has rows, and ``columns`` that contain finite numbers.

    :param may_be_infinite: columns whose numbers may be infinite.
    :param numbers: False to allow any values that are not missing.
    :raises ArgumentError: naming the table and the column.
    """
    if not hasattr(table, "columns"):
        raise ArgumentError(name, table, "must be a pandas DataFrame.")
    for column in columns:
        if column not in table.columns:
            raise ArgumentError(name, list(table.columns), f"has no column {column!r}.")
    if len(table) == 0:
        raise ArgumentError(name, table, "must have at least one row.")
    for column in columns if not numbers else ():
        if table[column].isna().any():
            raise ArgumentError(name, table, f"column {column!r} must have a value in every row.")
    for column in columns if numbers else ():
        try:
            values = np.asarray(table[column], dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(name, table, f"column {column!r} must contain numbers.") from None
        bad = np.isnan(values) if column in may_be_infinite else ~np.isfinite(values)
        if bad.any():
            raise ArgumentError(
                name,
                table,
                f"column {column!r} must be finite, but row {int(np.argmax(bad))} is not.",
            )


_KINDS = {
    "hdi": "highest-density",
    "eti": "equal-tailed",
    "ci": "credible",
    "quantile": "equal-tailed",
}


def interval_columns(name: str, table: pd.DataFrame) -> tuple[str, str, str]:
    """The two interval columns of a summary and their meaning, such as "90 % highest-density
    interval".

    :raises ArgumentError: if there is not exactly one pair of columns that end in "_low" and
        "_high".
    """
    columns = [str(column) for column in getattr(table, "columns", ())]
    stems = [column[: -len("_low")] for column in columns if column.endswith("_low")]
    stems = [stem for stem in stems if f"{stem}_high" in columns]
    if len(stems) != 1:
        raise ArgumentError(
            name,
            columns,
            "must have one pair of interval columns, such as hdi_90%_low and hdi_90%_high.",
        )
    match = re.fullmatch(r"([a-z]+)_?(\d+(?:\.\d+)?)%", stems[0])
    words = (
        f"{match[2]} % {_KINDS.get(match[1], match[1])} interval"
        if match
        else stems[0].replace("_", " ")
    )
    return f"{stems[0]}_low", f"{stems[0]}_high", words
