"""Missing values of tables: rows are left out or completed one by one, from what is declared."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.schema import Schema

__all__ = [
    "INDICATOR",
    "WAYS",
    "check_left",
    "public_values",
    "with_indicators",
    "with_remedy",
    "without_missing",
]

INDICATOR = "indicator"
WAYS = ("refuse", "drop", "middle", INDICATOR)


def with_indicators(
    missing: str | Mapping[Any, Any] | None, declared: Schema
) -> tuple[Any, Schema]:
    """(what is left of a ``missing`` of ``from_frame``, the schema with indicators of the columns
    that have one).

    :raises ArgumentError: naming ``missing``, or the column if it has no declared bounds.
    """
    if isinstance(missing, str) and missing == INDICATOR:
        return "drop", declared.with_indicators()
    if not isinstance(missing, Mapping):
        return missing, declared
    names = [
        str(name)
        for name, value in missing.items()
        if isinstance(value, str) and value == INDICATOR
    ]
    columns = declared.columns
    # of which it may be a level
    names = [name for name in names if not isinstance(columns.get(name), Categorical)]
    for name in names:
        if not isinstance(columns.get(name), Numeric):
            raise _validate.ArgumentError(
                f"missing[{name!r}]", INDICATOR, "is for a column of numbers with declared bounds."
            )
    remaining = {name: value for name, value in missing.items() if str(name) not in names}
    return remaining, declared.with_indicators(names)


def public_values(
    missing: str | Mapping[Any, Any],
    declared: Schema,
    names: Mapping[Any, str],
) -> dict[str, Any]:
    """``{column: value that stands for a missing one}``, from a ``missing`` of ``from_frame`` other
    than "refuse".

    :param declared: the schema of the features.
    :param names: ``{label: text}`` of the table's columns.
    :raises ArgumentError: naming ``missing``, for an unknown way or bounds that are not declared;
        or ``missing['column']``, for a column that is not a feature or a value that is not
        declared.
    """
    columns = declared.columns
    if isinstance(missing, Mapping):
        declarations = {
            names.get(label, preprocessing.column_name(label)): value
            for label, value in missing.items()
        }
        return {name: _checked_value(name, value, declared) for name, value in declarations.items()}
    if not isinstance(missing, str) or missing not in WAYS:
        raise _validate.ArgumentError(
            "missing",
            missing,
            f"must be one of {', '.join(map(repr, WAYS))}, or public values by column, {{'age': "
            "50}.",
        )
    if missing == "drop":
        return {}
    return {name: column.middle for name, column in columns.items() if isinstance(column, Numeric)}


def _checked_value(name: str, value: Any, declared: Schema) -> Any:
    argument = f"missing[{name!r}]"
    if name not in declared.columns:
        raise preprocessing.unknown_column("missing", name, declared.columns)
    column = declared.columns[name]
    if isinstance(column, Categorical):
        if preprocessing.text_or_none(value) not in column.labels:
            raise _validate.ArgumentError(
                argument,
                value,
                f"must be one of the declared categories ({preprocessing.listed(column.labels)}).",
            )
        return value
    if isinstance(column, Boolean):
        if not isinstance(value, (bool, int, float, np.bool_)) or value not in (0, 1):
            raise _validate.ArgumentError(argument, value, "must be False or True.")
        return value
    number = _validate.number(argument, value)
    if not column.low <= number <= column.high:
        raise _validate.ArgumentError(
            argument,
            value,
            f"must be within the declared bounds, {column.low:g} to {column.high:g}.",
        )
    return number


def without_missing(
    frame: pd.DataFrame,
    filled: Mapping[str, Any],
    declared: Schema,
    roles: tuple[str | None, ...],
    numbers: Collection[str],
) -> tuple[pd.DataFrame, np.ndarray]:
    """(rows without missing values, bool[rows of ``frame``] of which they are).

    Whether a row is left, and what it then holds, depends on that row alone. So a row that is added
    or removed adds or removes at most one row of the result.

    :param filled: as from ``public_values``.
    :param roles: target and others, None for those that are not given. Their missing values are
        never replaced.
    :param numbers: the columns that hold numbers, of which infinite ones are missing.
    """
    columns = declared.columns
    complete, changed = np.ones(len(frame), bool), {}
    for name in [*declared.columns, *(role for role in roles if role is not None)]:
        column, kind = frame[name], columns.get(name)
        absent = preprocessing.is_absent(column, of_numbers=name in numbers)
        if not absent.any() or (
            isinstance(kind, Categorical) and kind.other and name not in filled
        ):
            continue
        if isinstance(kind, Numeric) and kind.missing:
            continue  # it has a feature of its own for that
        if name in filled and not (
            isinstance(kind, Categorical) or preprocessing.may_hold_numbers(column.dtype)
        ):
            continue  # dates would become objects; their column is refused by its type
        if name in filled:
            # as objects, because a column of whole numbers or of categories may not take the value
            changed[name] = column.astype(object).where(~absent, filled[name])
        else:
            complete &= ~absent
    return frame.assign(**changed)[complete], complete


@contextlib.contextmanager
def with_remedy() -> Iterator[None]:
    """Errors about a missing value say which ``missing=`` would help."""
    try:
        yield
    except _validate.ArgumentError as error:
        if error.code != preprocessing.MISSING:
            raise
        remedy = (
            "missing='drop' leaves them out; missing='middle' puts the middle of the declared "
            "bounds."
        )
        raise _validate.ArgumentError(
            error.argument, error.value, error.expectation, code=error.code, remedy=remedy
        ) from None


def check_left(
    rows: int, held_out: np.ndarray | None, missing: str | Mapping[Any, Any], least: int
) -> None:
    """Check that the rows that are left have 2 training records and ``least`` evaluation records,
    or can have them.
    """
    if rows < 2 + least or (
        held_out is not None and (np.sum(~held_out) < 2 or np.sum(held_out) < least)
    ):
        raise _validate.ArgumentError(
            "missing", missing, "leaves fewer than 2 training records or no evaluation record."
        )
