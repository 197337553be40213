"""Preprocessing: record by record from declared public bounds; by statistics of private records
only on request.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd

__all__ = [
    "MISSING",
    "OTHER",
    "as_truth",
    "checked_bounds",
    "checked_pair",
    "column_name",
    "finite_numbers",
    "has_control_characters",
    "is_absent",
    "is_value",
    "level_words",
    "listed",
    "may_hold_numbers",
    "middle_and_reach",
    "names_withheld",
    "number_or_nan",
    "numbers_in",
    "numeric_features",
    "places_of",
    "refuse_masked",
    "repeated",
    "scale_to_bounds",
    "text_of",
    "text_or_none",
    "texts_of",
    "unfit",
    "unknown_column",
    "unmasked",
]

# every undeclared value of a target, and every undeclared or missing value of a category
OTHER = "(other)"

Bounds = dict[str, tuple[float, float]]


def checked_bounds(bounds: Any, features: list[str]) -> Bounds:
    """``{feature: (low, high)}`` for all ``features``, from a mapping or from one pair for all of
    them.

    :raises ArgumentError: if a feature has no bounds, a name is not a feature, or low < high does
        not hold.
    """
    if not isinstance(bounds, Mapping):
        bounds = dict.fromkeys(features, bounds)
    declared = set(features)
    for name in bounds:
        if name not in declared:
            raise unknown_column("bounds", name, features)
    missing = [name for name in features if name not in bounds]
    if missing:
        example = "age" if names_withheld(features) else missing[0]
        raise _validate.ArgumentError(
            "bounds",
            sorted(bounds),
            f"no bounds for {len(missing)} feature(s): "
            f"{names_withheld(features) or listed(missing, 5)}. Declare the public range of "
            f"each, such as bounds={{{example!r}: (0, 100)}}, or name the columns to use with "
            "features=.",
        )
    return {name: checked_pair(f"bounds[{name!r}]", bounds[name]) for name in features}


# The square of the widest range and that of the inverse of the narrowest one are numbers of
# float32, in which models compute and their coefficients are converted to the columns' own units.
_LARGEST_BOUND, _NARROWEST_RANGE = 9e18, 1e-18


# a user may declare anything: what is no pair is refused here
def checked_pair(argument: str, value: Any) -> tuple[float, float]:
    """``value`` as (low, high), finite with low < high, at most 9e18 in size and at least 1e-18
    apart.

    :raises ArgumentError: naming ``argument``.
    """
    try:
        if isinstance(value, (str, bytes)):  # "01" would be unpacked into two letters
            raise TypeError
        low, high = value
        low, high = float(low), float(high)
    except (TypeError, ValueError, OverflowError):
        raise _validate.ArgumentError(
            argument, value, f"must be a pair of numbers (low, high){_of_dates(value)}."
        ) from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise _validate.ArgumentError(argument, value, "must be finite with low < high.")
    if max(-low, high) > _LARGEST_BOUND or high - low < _NARROWEST_RANGE:
        raise _validate.ArgumentError(
            argument,
            value,
            f"must be within {-_LARGEST_BOUND:g} .. {_LARGEST_BOUND:g} and at least "
            f"{_NARROWEST_RANGE:g} apart, or squares of differences are no numbers of float32: "
            "declare the range that the column can have, or use another unit.",
        )
    return low, high


def _of_dates(pair: object) -> str:
    is_dates = isinstance(pair, (list, tuple)) and any(
        isinstance(bound, datetime.date) for bound in pair
    )
    return ", and dates be converted, for example to days since a public date" if is_dates else ""


def names_withheld(names: Iterable[str]) -> str:
    """Why an error does not list the names of a table's columns; "" if it may list them.

    In a file without a line of names, the first record takes their place. If a name begins like a
    number or a date, it may be a cell of that record, and so may all others.
    """
    if any(_LIKE_A_VALUE.match(name) for name in names):
        return "names not listed, because some look like values (is the header row missing?)"
    return ""


_LIKE_A_VALUE = re.compile(r"[\W_]*(\d|(nan|inf|infinity)$)", re.IGNORECASE)


def level_words(label: str) -> str:
    """A level beside what it is compared with: of undeclared values there may be none."""
    return f"{OTHER}, if there are any," if label == OTHER else label


def listed(names: Iterable[str], most: int = 8) -> str:
    """The first ``most`` names, with "..." if there are more."""
    shown = list(names)
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")


def unknown_column(argument: str, value: object, columns: Iterable[str]) -> _validate.ArgumentError:
    """The error for an unknown column. A value that is not a scalar is shown by its type, because
    it may contain cells.
    """
    names = list(columns)
    shown = value if pd.api.types.is_scalar(value) else type(value).__name__
    withheld = names_withheld(names)
    if withheld:
        return _validate.ArgumentError(
            argument, shown, f"unknown name; the table has {len(names)} columns, {withheld}."
        )
    return _validate.unknown_name(argument, shown, names)


# code of errors about how a column is declared, which a file in JSON writes in its own way
DECLARATION = "declaration"
TOO_FEW_ROWS = "too few rows"  # code of errors about a table that no split can divide
# code of errors about values that ``from_frame(missing=...)`` can leave out or replace
MISSING = "missing"


def unfit(column: pd.Series, expectation: str, code: str = "") -> _validate.ArgumentError:
    """The error for a column with unusable cells. It shows name and type, but no cell and no number
    of rows.
    """
    return _validate.ArgumentError(str(column.name), str(column.dtype), expectation, code=code)


def refuse_masked(argument: str, values: ArrayLike) -> None:
    """:raises ArgumentError: if ``values``, an array or a list of some, has masked entries, which
    NumPy would forget.
    """
    columns = values if isinstance(values, (list, tuple)) else (values,)
    # a column of a table may be called "_mask"
    arrays = (np.ma.MaskedArray, pd.api.extensions.ExtensionArray)
    if any(isinstance(column, arrays) and np.ma.is_masked(column) for column in columns):
        raise _validate.ArgumentError(
            argument,
            type(values).__name__,
            "has masked entries, which have no value: fill or drop them first.",
        )


def unmasked(argument: str, values: ArrayLike) -> np.ndarray:
    """``values`` as an array.

    :raises ArgumentError: if it is none, or has masked entries, which NumPy would forget.
    """
    refuse_masked(argument, values)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return np.asarray(values)
    raise _validate.ArgumentError(
        argument, type(values).__name__, "must be an array, with rows of one length."
    )


def numeric_features(frame: pd.DataFrame, features: list[str], row: str = "row") -> np.ndarray:
    """float64[rows, features] of ``frame``, finite.

    :param row: what an error calls a row.
    :raises ArgumentError: naming the first column with text, dates or missing values, and its type;
        never a cell.
    """
    return np.stack([finite_numbers(frame[name], row) for name in features], axis=1)


def finite_numbers(column: pd.Series, row: str = "row") -> np.ndarray:
    """float64[rows].

    :raises ArgumentError: as ``numeric_features``.
    """
    if not may_hold_numbers(column.dtype):  # pandas would count dates in nanoseconds
        is_complex = pd.api.types.is_complex_dtype(column.dtype)
        raise unfit(column, f"does not have plain numbers; {_COMPLEX if is_complex else _DATES}")
    values = numbers_in(column)
    if np.all(np.isfinite(values)):
        return values
    if np.any(np.isnan(values) & column.notna().to_numpy()):
        raise unfit(
            column,
            f"has text, or something else that is not a number, in some {row}; "
            f"{_advice(column, values)}",
        )
    raise unfit(
        column, f"is missing or infinite in some {row}; fill or drop such {row}s first.", MISSING
    )


def is_absent(column: pd.Series, *, of_numbers: bool) -> np.ndarray:
    """bool[rows]: which values are missing; an infinite number is, because nothing can be computed
    with it.

    :param of_numbers: whether the column is declared to hold numbers, and not text.
    """
    absent: np.ndarray = column.isna().to_numpy(bool)
    if of_numbers and may_hold_numbers(column.dtype):
        absent = absent | np.isinf(numbers_in(column))
    return absent


_DATES = "convert dates, for example to days since a public date, or leave the column out."
_COMPLEX = (
    "complex numbers are not taken: give the real and the imaginary part, or the size, as columns."
)
_NO_NUMBERS = (
    (
        re.compile(r"n\.?/?a\.?|nan|null|none|missing|[-.?]*", re.IGNORECASE),
        "words or signs for a missing value, such as NA, are text here: make them missing, as in "
        "frame.replace('NA', float('nan')), and say with missing= what to do about these rows.",
    ),
    (re.compile(r"\d{4}-\d\d?-\d\d?([ T].*)?|\d\d?([./])\d\d?\2\d{2,4}"), _DATES),
    (re.compile(r"[-+]?[\d.,\s]+%"), "take off the percent signs, and declare bounds in percent."),
    (
        re.compile(r"[-+]?\d{1,3}([\s.,'\u2019]?\d{3})*([.,]\d*)?"),
        "numbers are written with commas, or with blanks or points between thousands: "
        "decimal=',' of from_csv reads 3,5, and what is between thousands must be taken out.",
    ),
    (
        re.compile(r"yes|no|true|false|y|n|t|f", re.IGNORECASE),
        "declare it as bool, which takes yes and no.",
    ),
)
_OTHERWISE = "declare its categories in schema=, encode it as numbers or leave it out."


def _advice(column: pd.Series, values: np.ndarray) -> str:
    """What to do about cells that are no numbers, if all of them look alike."""
    cells = [
        cell
        for cell, value in zip(column.tolist(), values, strict=True)
        if math.isnan(value) and is_value(cell)
    ]
    if all(isinstance(cell, datetime.date) for cell in cells):
        return _DATES
    if all(isinstance(cell, complex) for cell in cells):
        return _COMPLEX
    texts = {cell.strip() if isinstance(cell, str) else "\0" for cell in cells}
    return next(
        (words for form, words in _NO_NUMBERS if all(map(form.fullmatch, texts))), _OTHERWISE
    )


def is_value(cell: object) -> bool:
    """Whether a cell is not missing."""
    return not (pd.api.types.is_scalar(cell) and pd.isna(cell))


_TRUTH = {"true": 1, "t": 1, "yes": 1, "y": 1, "1": 1, "false": 0, "f": 0, "no": 0, "n": 0, "0": 0}


def as_truth(column: pd.Series) -> pd.Series:
    """A column of truth values with 1 and 0 for words such as yes and No; as it is, if it has other
    words.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column
    cells = [
        _TRUTH.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell
        for cell in column.tolist()
    ]
    has_others = any(isinstance(cell, str) for cell in cells)
    return column if has_others else pd.Series(cells, column.index, object, column.name)


def two_values(column: pd.Series) -> str:
    """What to declare for a column of two values that are not those of bool. The values are
    examples, and no cells.
    """
    return (
        "Declare its two values as text, first the one that counts as 0: "
        f"schema={{{str(column.name)!r}: ['1', '2']}} for 1 and 2, or ['nein', 'ja'] for these "
        "words."
    )


def column_name(label: object) -> str:
    """The text of a column's label, in Unicode's composed form: "ö" may be one character or two,
    which look the same.
    """
    return unicodedata.normalize("NFC", str(label))


def numbers_in(column: pd.Series) -> np.ndarray:
    """float64[rows], converted cell by cell; NaN for everything that is not a number."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return column.to_numpy(np.float64)
    with contextlib.suppress(TypeError, ValueError, OverflowError):  # the errors quote cells
        numbers = pd.to_numeric(column, errors="coerce")
        if pd.api.types.is_complex_dtype(numbers.dtype):  # whose imaginary parts NumPy would drop
            return np.full(len(column), np.nan)
        return numbers.to_numpy(np.float64, na_value=np.nan)
    return np.array([number_or_nan(cell) for cell in column.tolist()], np.float64)


def number_or_nan(cell: Any) -> float:
    """``cell`` as a number; NaN if it is not one."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float(cell) if pd.api.types.is_scalar(cell) else math.nan
    return math.nan


def may_hold_numbers(kind: np.dtype | pd.api.extensions.ExtensionDtype) -> bool:
    """Whether a column of this type may have real numbers: numbers, booleans, or text and objects
    that may be numbers.
    """
    types = pd.api.types
    if types.is_numeric_dtype(kind):
        return not types.is_complex_dtype(kind)
    return (
        types.is_object_dtype(kind)
        or types.is_string_dtype(kind)
        or isinstance(kind, pd.CategoricalDtype)
    )


def scale_to_bounds(values: np.ndarray, bounds: Bounds) -> np.ndarray:
    """float32 features in [-1, 1]: each value is cut to its feature's bounds and
    mapped linearly.
    """
    low = np.array([pair[0] for pair in bounds.values()])
    high = np.array([pair[1] for pair in bounds.values()])
    return (2 * (np.clip(values, low, high) - low) / (high - low) - 1).astype(np.float32)


def middle_and_reach(bounds: tuple[float, float]) -> tuple[float, float]:
    """The middle of bounds, and half their distance."""
    low, high = bounds
    return low / 2 + high / 2, high / 2 - low / 2


def text_of(value: object) -> str:
    """The text of a category, class or group for comparisons, without blanks around it and in
    Unicode's composed form.

    A whole number loses its ".0", also in text. A column of whole numbers becomes floating point as
    soon as one is missing, and must keep the same categories. A CSV file then has them with ".0",
    and they are read as text. "01.0" and "1.10" are unchanged. Likewise a day is the same with and
    without "00:00:00", which a column of dates has.
    """
    if (
        isinstance(value, (float, np.floating))
        and math.isfinite(value)
        and float(value).is_integer()
    ):
        return str(int(value))
    text = column_name(value).strip()
    match = _WHOLE.fullmatch(text) or _MIDNIGHT.fullmatch(text)
    if match is None:
        return text
    return "0" if match[1] == "-0" else match[1]


_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[ T]00:00:00(?:\.0+)?")
_WHOLE = re.compile(r"(-?(?:0|[1-9][0-9]*))\.0+")  # as floating point would hold it


def texts_of(column: pd.Series) -> list[str | None]:
    """The text of each value, None if it is missing or an object without text."""
    missing = column.isna().to_numpy()
    return [
        None if absent else text_or_none(value)
        for value, absent in zip(column.tolist(), missing, strict=True)
    ]


def places_of(texts: Sequence[str | None], labels: Sequence[str]) -> np.ndarray:
    """int64[N]: the place of each text among ``labels``; -1 for one that is none of them."""
    place_of: dict[str | None, int] = {label: index for index, label in enumerate(labels)}
    return np.array([place_of.get(text, -1) for text in texts], np.int64)


def repeated(names: Iterable[str]) -> list[str]:
    """The names that occur more than once, in the order of their first places."""
    return [name for name, times in collections.Counter(names).items() if times > 1]


def has_control_characters(text: str) -> bool:
    """Whether some are Unicode's control characters or surrogates, which no name may have."""
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def text_or_none(value: object) -> str | None:
    """``text_of`` a value; None for an object without text."""
    with contextlib.suppress(Exception):  # a user's object may raise anything, and quote itself
        return text_of(value)
    return None
