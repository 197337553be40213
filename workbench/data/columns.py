"""Kinds of columns: what is publicly declared about each, and how its values are encoded, row by
row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.preprocessing import OTHER, level_words, listed, text_of, texts_of

__all__ = ["Boolean", "Categorical", "Column", "Contrast", "Numeric", "indicator_of"]

_LARGEST_WHOLE = 2.0**53  # float64 does not have all whole numbers above it


class Contrast(NamedTuple):
    """What a feature's weight compares, in the column's own units.

    :param slope: of the feature in the column. :param shift: the feature where the column is 0, no
        or at its reference.
    :param words: the comparison of which the weight times the slope is the effect.
    """

    slope: float
    shift: float
    words: str


@dataclass(frozen=True)
class Numeric:
    """A column of numbers with a public range. It becomes one feature, cut to the range and mapped
    linearly to [-1, 1].

    A value outside becomes the nearest bound, also a code such as -999 for a missing value: replace
    it by NaN before.

    >>> schema = wb.data.Schema({"age": wb.data.Numeric(0, 120, whole=True)})
    >>> schema.encode(pd.DataFrame({"age": [0, 60, 150]})).tolist()
    [[-1.0], [0.0], [1.0]]

    :param low: lower bound, in the column's own units.
    :param high: upper bound.
    :param whole: True to round decoded values to whole numbers.
    :param missing: True where values may be missing, a public fact. The middle of the range then
        stands for them, and one more feature, "age is missing", is 1 for them and 0 for others.
        Each row is encoded from its own value.
    :raises ArgumentError: unless both are finite with low < high, at most 9e18 in size and at least
        1e-18 apart and, if ``whole``, contain a whole number.
    """

    kind: ClassVar[str] = "numeric"
    low: float
    high: float
    whole: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        low, high = preprocessing.checked_pair("bounds", (self.low, self.high))
        is_whole = _validate.flag("whole", self.whole)
        object.__setattr__(self, "missing", _validate.flag("missing", self.missing))
        if is_whole and not (
            math.ceil(low) <= math.floor(high) and max(-low, high) <= _LARGEST_WHOLE
        ):
            raise _validate.ArgumentError(
                "bounds",
                (low, high),
                "must contain a whole number and be within -2**53 .. 2**53, because whole=True.",
                code="no whole number",
            )
        for name, value in (("low", low), ("high", high), ("whole", is_whole)):
            object.__setattr__(self, name, value)

    @property
    def middle(self) -> float:
        """Of the range."""
        return self.low / 2 + self.high / 2

    @property
    def reach(self) -> float:
        """Half the range."""
        return self.high / 2 - self.low / 2

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Names of the encoded columns, given that of the column itself."""
        return (name, indicator_of(name)) if self.missing else (name,)

    def contrasts(self) -> list[Contrast]:
        """What the weight of each feature compares."""
        slope = Contrast(1 / self.reach, -self.middle / self.reach, "1 more")
        return (
            [slope, Contrast(1.0, 0.0, f"missing against {self.middle:g}")]
            if self.missing
            else [slope]
        )

    def numbers(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
        """(float64[B] cut to the range, bool[B] which are missing). Other than numbers and declared
        gaps is refused.
        """
        absent = np.zeros(len(column), bool)
        if self.missing and preprocessing.may_hold_numbers(column.dtype):
            absent = preprocessing.is_absent(column, of_numbers=True)
            # as objects, because a column of whole numbers may not take the value
            column = column.astype(object).where(~absent, self.middle) if absent.any() else column
        return np.clip(preprocessing.finite_numbers(column), self.low, self.high), absent

    def encode(self, column: pd.Series) -> np.ndarray:
        """float32[B, 1] in [-1, 1], with ``missing`` float32[B, 2]. Infinite and non-numeric values
        are refused.
        """
        values, absent = self.numbers(column)
        encoded = preprocessing.scale_to_bounds(
            values[:, None], {str(column.name): (self.low, self.high)}
        )
        return np.column_stack([encoded, absent.astype(np.float32)]) if self.missing else encoded

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """float64[B], or int64[B] for whole numbers, within the bounds, from float64[B, 1].

        With ``missing`` float64[B] with NaN where the second feature is at least a half.
        """
        if self.missing:
            values = replace(self, missing=False).decode(encoded[:, :1]).astype(np.float64)
            return np.where(encoded[:, 1] >= 0.5, np.nan, values)
        values = self.middle + np.clip(encoded[:, 0], -1, 1) * self.reach
        values = np.clip(values, self.low, self.high)
        if self.whole:
            return np.clip(np.rint(values), math.ceil(self.low), math.floor(self.high)).astype(
                np.int64
            )
        return values


def indicator_of(name: str) -> str:
    """The name of the feature that says whether a number is missing."""
    return f"{name} is missing"


_FIRST = object()  # the default reference


@dataclass(frozen=True)
class Categorical:
    """A column with a public list of values. It becomes one feature of 0 and 1 for each value but
    the reference.

    A weight is then the difference to the reference level. With a feature for every level and an
    intercept, a constant could be moved from all weights of the column to the intercept without a
    change of the likelihood.

    Values are compared as text, so 1, 1.0, "1" and "1.0" are the same category.

    >>> sex = wb.data.Categorical(["f", "m"], other=True)
    >>> sex.feature_names("sex")
    ('sex=m', 'sex=(other)')

    :param categories: the values; at least one, each once.
    :param other: True accepts undeclared and missing values as one more level, "(other)". Otherwise
        they are an error.
    :param reference: the level that has no feature; the first of ``categories`` by default. None
        gives each level a feature, as for a column with one level.
    """

    kind: ClassVar[str] = "categorical"
    categories: tuple[str, ...]
    other: bool = False
    reference: Any = _FIRST

    def __post_init__(self) -> None:
        declared = self.categories
        if isinstance(declared, (str, Mapping, set, frozenset)) or not isinstance(
            declared, Iterable
        ):
            raise _validate.ArgumentError("categories", declared, "must be a list of values.")
        values = list(declared)
        if not values or not all(
            isinstance(value, str) or (pd.api.types.is_scalar(value) and not pd.isna(value))
            for value in values
        ):
            raise _validate.ArgumentError(
                "categories", values, "must have at least one value, and no missing ones."
            )
        categories = tuple(text_of(value) for value in values)
        if repeated := preprocessing.repeated(categories):
            raise _validate.ArgumentError(
                "categories", repeated[0], "is repeated (values are compared as text)."
            )
        has_other = _validate.flag("other", self.other)
        if has_other and OTHER in categories:
            raise _validate.ArgumentError(
                "categories", OTHER, "is the name of undeclared values, because other=True."
            )
        object.__setattr__(self, "categories", categories)
        object.__setattr__(self, "other", has_other)
        object.__setattr__(self, "reference", self._checked_reference())

    def _checked_reference(self) -> str | None:
        if self.reference is _FIRST:
            return self.categories[0] if len(self.labels) > 1 else None
        reference = None if self.reference is None else text_of(self.reference)
        if reference is not None and (reference not in self.labels or len(self.labels) == 1):
            raise _validate.ArgumentError(
                "reference",
                self.reference,
                f"must be one of at least two levels ({listed(self.labels)}), or None.",
            )
        return reference

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, followed by "(other)" if undeclared values are accepted."""
        return (*self.categories, OTHER) if self.other else self.categories

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Names of the encoded columns, such as "sex=m" where "f" is the reference, given that of
        the column itself.
        """
        return tuple(f"{name}={label}" for label in self.labels if label != self.reference)

    def contrasts(self) -> list[Contrast]:
        """What the weight of each feature compares."""
        baseline = "none of them" if self.reference is None else self.reference
        return [
            Contrast(1.0, 0.0, f"{level_words(label)} against {baseline}")
            for label in self.labels
            if label != self.reference
        ]

    def codes(self, column: pd.Series) -> np.ndarray:
        """int64[B]: the place of each value among ``labels``. A value of none of them
        is refused.
        """
        codes = preprocessing.places_of(texts_of(column), self.categories)
        unknown = codes < 0
        if unknown.any() and not self.other:
            raise preprocessing.unfit(
                column,
                f"has none of the declared categories ({listed(self.categories)}) in some row; "
                "declare all possible values, or make undeclared and missing values one more "
                "category with Categorical(..., other=True).",
                preprocessing.DECLARATION,
            )
        codes[unknown] = len(self.categories)
        return codes

    def encode(self, column: pd.Series) -> np.ndarray:
        """float32[B, number of features] of 0 and 1, with a single 1 in each row that is not the
        reference.
        """
        features = np.eye(len(self.labels), dtype=np.float32)
        if self.reference is not None:
            features = np.delete(features, self.labels.index(self.reference), axis=1)
        return features[self.codes(column)]

    def all_levels(self, encoded: np.ndarray) -> np.ndarray:
        """[B, number of levels] from [B, number of features]: that of the reference is 1 less the
        others.
        """
        if self.reference is None:
            return encoded
        reference = 1 - np.sum(np.clip(encoded, 0, 1), axis=1)
        return np.insert(encoded, self.labels.index(self.reference), reference, axis=1)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """object[B]: the level with the largest feature in each row of float64[B, number of
        features].
        """
        return np.array(self.labels, object)[np.argmax(self.all_levels(encoded), axis=1)]


@dataclass(frozen=True)
class Boolean:
    """A column of 0 and 1, False and True, or yes and no. It becomes one feature, -1 or 1.

    Text is read without regard to case: yes, y, true or t, and no, n, false or f.

    >>> schema = wb.data.Schema({"smoker": wb.data.Boolean()})
    >>> schema.encode(pd.DataFrame({"smoker": [True, False]})).tolist()
    [[1.0], [-1.0]]
    """

    kind: ClassVar[str] = "boolean"

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Names of the encoded columns, given that of the column itself."""
        return (name,)

    def contrasts(self) -> list[Contrast]:
        """What the weight of the feature compares."""
        return [Contrast(2.0, -1.0, "yes against no")]

    def encode(self, column: pd.Series) -> np.ndarray:
        """float32[B, 1] of -1 and 1. Values other than 0 and 1, or words for them, are refused."""
        values = preprocessing.finite_numbers(preprocessing.as_truth(column))[:, None]
        if not np.all(np.isin(values, (0, 1))):
            raise preprocessing.unfit(
                column,
                "is a boolean column, but some row has neither 0 nor 1, False nor True, yes nor "
                f"no. {preprocessing.two_values(column)}",
            )
        return (2 * values - 1).astype(np.float32)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """bool[B]: the sign of float64[B, 1]; 0 is False."""
        return encoded[:, 0] > 0


Column = Numeric | Categorical | Boolean
