"""Targets of records. Their classes follow from declarations and column types, never from
the rows.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data.preprocessing import (
    MISSING,
    OTHER,
    finite_numbers,
    number_or_nan,
    numbers_in,
    places_of,
    repeated,
    text_of,
    text_or_none,
    texts_of,
    unmasked,
)

__all__ = [
    "binary_target",
    "checked_labels",
    "class_names",
    "declared_classes",
    "numeric_target",
    "thresholded",
]

_MOST_CLASSES = 10_000


def binary_target(
    column: pd.Series, positive: Hashable = None
) -> tuple[np.ndarray, tuple[str, str]]:
    """(int32 target of 0 and 1, labels of the two classes). The labels follow from column type and
    ``positive`` alone.

    :param positive: the value that counts as 1, compared as a number if it is one (True is 1),
        otherwise as text without regard to case and to blanks around it. Every other value is in
        the other class. It may be left out if all values are 0 and 1, or False and True.
    :raises ArgumentError: naming ``target`` if a value is missing, or ``positive`` if it is needed
        or cannot occur.
    """
    name = str(column.name)
    if column.isna().any():
        raise _validate.ArgumentError(
            "target", name, "is missing in some row; drop such rows first.", code=MISSING
        )
    truth_values = pd.api.types.is_bool_dtype(column.dtype)
    if positive is None:
        values = numbers_in(column)
        if not np.all((values == 0) | (values == 1)):
            raise _validate.ArgumentError(
                "positive",
                None,
                f"must name the value of {name!r} that counts as 1, as in positive='yes' (all "
                "others are then one class), because the column has other values than 0 and 1, "
                "and classes are not read off the records. Or declare all values, as in "
                "classes=['no', 'yes'].",
            )
        return values.astype(np.int32), ("False", "True") if truth_values else ("0", "1")
    if not pd.api.types.is_scalar(positive):
        raise _validate.ArgumentError(
            "positive", type(positive).__name__, "must be a single value, which counts as 1."
        )
    chosen = _compared(positive)
    if truth_values and chosen not in (0, 1):
        raise _validate.ArgumentError(
            "positive", positive, f"must be False or True, because {name!r} is a boolean column."
        )
    cells = [_compared(cell) for cell in column.tolist()]
    # in a file numbers are text
    is_numeric = bool(cells) and all(isinstance(cell, float) for cell in cells)
    if (is_numeric or pd.api.types.is_numeric_dtype(column.dtype)) and not isinstance(
        chosen, float
    ):
        kind = "numbers" if not np.isnan(numbers_in(column)).any() else "numbers or truth values"
        raise _validate.ArgumentError(
            "positive", positive, f"must be a number, because {name!r} is a column of {kind}."
        )
    text = text_of(positive)
    same = np.array([cell == chosen for cell in cells], bool)
    return same.astype(np.int32), (f"not {OTHER}" if text == OTHER else OTHER, text)


def _compared(cell: object) -> float | str | None:
    """The form in which one value is compared: a number, if it is one or the text of one (True is
    1); otherwise its text.

    Case does not count, because every other value is silently the other class. The form depends on
    the value alone, because another record may turn a column of booleans or numbers into one of
    text.
    """
    text = text_or_none(cell)
    number = {"true": 1.0, "false": 0.0}.get((text or "").lower(), number_or_nan(cell))
    return (text and text.casefold()) if math.isnan(number) else number


def declared_classes(
    column: pd.Series, classes: Iterable[Any] | int | None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """(int32 position of each value in ``classes``, compared as text; the labels).

    :raises ArgumentError: naming ``classes`` if they are fewer than two names, or ``target`` for a
        row with none of them.
    """
    labels = class_names(classes)
    codes = places_of(texts_of(column), labels)
    if np.any(codes < 0):
        raise _validate.ArgumentError(
            "target",
            str(column.name),
            f"has none of the {len(labels)} declared classes, or no value, in some row; declare "
            "all possible values in classes=[...], or give the one that counts as 1 with "
            "positive=.",
        )
    return codes.astype(np.int32), labels


def class_names(classes: Iterable[Any] | int | None) -> tuple[str, ...]:
    """The names of two or more classes as text; K means 0 .. K - 1.

    :raises ArgumentError: naming ``classes``.
    """
    if (
        isinstance(classes, numbers.Integral)
        and not isinstance(classes, bool)
        and 2 <= int(classes) <= _MOST_CLASSES
    ):
        return tuple(map(str, range(int(classes))))
    if isinstance(classes, (str, Mapping, set, frozenset)) or not isinstance(classes, Iterable):
        raise _classes_needed(classes)
    labels = list(classes)
    if len(labels) < 2 or any(
        not pd.api.types.is_scalar(label) or pd.isna(label) for label in labels
    ):
        raise _classes_needed(classes)
    names = tuple(text_of(label) for label in labels)
    if repeated(names):
        raise _validate.ArgumentError(
            "classes", labels, "must all be different (they are compared as text)."
        )
    return names


def checked_labels(
    argument: str, labels: ArrayLike, num_records: int, names: tuple[str, ...]
) -> np.ndarray:
    """int32[N] of whole numbers, positions in ``names``. Errors show no label.

    :raises ArgumentError: naming ``argument``.
    """
    values = unmasked(argument, labels)
    if values.shape != (num_records,):
        shown = values if values.ndim else type(labels).__name__
        raise _validate.ArgumentError(
            argument, shown, f"must have shape ({num_records},), one for each record."
        )
    if values.dtype.kind not in "iu":
        raise _validate.ArgumentError(
            argument, str(values.dtype), "must be whole numbers 0, 1, ... with an integer type."
        )
    if values.size and not (values.min() >= 0 and values.max() < len(names)):
        raise _validate.ArgumentError(
            argument,
            values,
            f"has values outside 0 .. {len(names) - 1}; declare all classes in classes=.",
        )
    return values.astype(np.int32)


def _classes_needed(classes: Iterable[Any] | int | None) -> _validate.ArgumentError:
    return _validate.ArgumentError(
        "classes",
        classes,
        "must declare all possible classes, two or more, as in classes=['cat', 'dog'] or "
        "classes=10 for 0 .. 9. Classes that are read off private labels could reveal a single "
        "record.",
    )


def numeric_target(column: pd.Series, bounds: tuple[float, float]) -> np.ndarray:
    """float32 target in its own units, cut to public ``bounds``.

    :raises ArgumentError: naming the column, if a value is missing, infinite or not a number.
    """
    return np.clip(finite_numbers(column), *bounds).astype(np.float32)


def thresholded(column: pd.Series, threshold: float) -> tuple[np.ndarray, tuple[str, str]]:
    """(int32 target, labels of the two classes): whether each number is above the public
    ``threshold``.

    :raises ArgumentError: naming the column, if a value is missing, infinite or not a number.
    """
    limit = _validate.number("threshold", threshold)
    return (finite_numbers(column) > limit).astype(np.int32), (f"<= {limit:g}", f"> {limit:g}")
