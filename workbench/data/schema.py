"""The public declaration of a table's columns, and the encoding of rows that follows from it."""

from __future__ import annotations

import collections
import math
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.preprocessing import OTHER, listed, text_of, texts_of

__all__ = ["Boolean", "Categorical", "Column", "Contrast", "Numeric", "Schema"]

_LARGEST_WHOLE = 2.0**53  # float64 does not have all whole numbers above it


class Contrast(NamedTuple):
    """What a feature's weight compares, in the column's own units.

    :param slope: of the feature in the column. :param shift: the feature where the column is 0, no or at its reference.
    :param words: the comparison of which the weight times the slope is the effect.
    """

    slope: float
    shift: float
    words: str


@dataclass(frozen=True)
class Numeric:
    """A column of numbers with a public range. It becomes one feature, cut to the range and mapped linearly to [-1, 1].

    >>> schema = wb.data.Schema({"age": wb.data.Numeric(0, 120, whole=True)})
    >>> schema.encode(pd.DataFrame({"age": [0, 60, 150]})).tolist()
    [[-1.0], [0.0], [1.0]]

    :param low: lower bound, in the column's own units.
    :param high: upper bound.
    :param whole: True to round decoded values to whole numbers.
    :raises ArgumentError: unless both are finite with low < high and, if ``whole``, contain a whole number.
    """

    kind: ClassVar[str] = "numeric"
    low: float
    high: float
    whole: bool = False

    def __post_init__(self) -> None:
        low, high = preprocessing.checked_pair("bounds", (self.low, self.high))
        whole = _validate.flag("whole", self.whole)
        if whole and not (math.ceil(low) <= math.floor(high) and max(-low, high) <= _LARGEST_WHOLE):
            raise _validate.ArgumentError(
                "bounds",
                (low, high),
                "must contain a whole number and be within -2**53 .. 2**53, because whole=True.",
                code="no whole number",
            )
        for name, value in (("low", low), ("high", high), ("whole", whole)):
            object.__setattr__(self, name, value)

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Names of the encoded columns, given that of the column itself."""
        return (name,)

    def contrasts(self) -> list[Contrast]:
        """What the weight of each feature compares."""
        reach = self.high / 2 - self.low / 2
        return [Contrast(1 / reach, -(self.high / 2 + self.low / 2) / reach, "1 more")]

    def encode(self, column: pd.Series) -> np.ndarray:
        """float32[B, 1] in [-1, 1]. Missing, infinite and non-numeric values are refused."""
        values = preprocessing.finite_numbers(column)[:, None]
        return preprocessing.scale_to_bounds(values, {str(column.name): (self.low, self.high)})

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """float64[B], or int64[B] for whole numbers, within the bounds, from float64[B, 1]."""
        # halved first, so that the distance of the largest numbers is finite
        middle, reach = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        values = np.clip(middle + np.clip(encoded[:, 0], -1, 1) * reach, self.low, self.high)
        if self.whole:
            return np.clip(np.rint(values), math.ceil(self.low), math.floor(self.high)).astype(np.int64)
        return values


_FIRST = object()  # the default reference


@dataclass(frozen=True)
class Categorical:
    """A column with a public list of values. It becomes one feature of 0 and 1 for each value but the reference.

    A weight is then the difference to the reference level. With a feature for every level and an intercept, a constant
    could be moved from all weights of the column to the intercept without a change of the likelihood.

    Values are compared as text, so 1, 1.0, "1" and "1.0" are the same category.

    >>> sex = wb.data.Categorical(["f", "m"], other=True)
    >>> sex.feature_names("sex")
    ('sex=m', 'sex=(other)')

    :param categories: the values; at least one, each once.
    :param other: True accepts undeclared and missing values as one more level, "(other)". Otherwise they are an error.
    :param reference: the level that has no feature; the first of ``categories`` by default. None gives each level a
        feature, as for a column with one level.
    """

    kind: ClassVar[str] = "categorical"
    categories: tuple[str, ...]
    other: bool = False
    reference: Any = _FIRST

    def __post_init__(self) -> None:
        given = self.categories
        if isinstance(given, (str, Mapping, set, frozenset)) or not isinstance(given, Iterable):
            raise _validate.ArgumentError("categories", given, "must be a list of values.")
        values = list(given)
        if not values or not all(isinstance(value, str) or (_is_scalar(value) and not pd.isna(value)) for value in values):
            raise _validate.ArgumentError("categories", values, "must have at least one value, and no missing ones.")
        categories = tuple(text_of(value) for value in values)
        repeated = [category for category, times in collections.Counter(categories).items() if times > 1]
        if repeated:
            raise _validate.ArgumentError("categories", repeated[0], "is repeated (values are compared as text).")
        other = _validate.flag("other", self.other)
        if other and OTHER in categories:
            raise _validate.ArgumentError("categories", OTHER, "is the name of undeclared values, because other=True.")
        object.__setattr__(self, "categories", categories)
        object.__setattr__(self, "other", other)
        object.__setattr__(self, "reference", self._checked_reference())

    def _checked_reference(self) -> str | None:
        if self.reference is _FIRST:
            return self.categories[0] if len(self.labels) > 1 else None
        reference = None if self.reference is None else text_of(self.reference)
        if reference is not None and (reference not in self.labels or len(self.labels) == 1):
            raise _validate.ArgumentError(
                "reference", self.reference, f"must be one of at least two levels ({listed(self.labels)}), or None."
            )
        return reference

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, followed by "(other)" if undeclared values are accepted."""
        return (*self.categories, OTHER) if self.other else self.categories

    def feature_names(self, name: str) -> tuple[str, ...]:
        """Names of the encoded columns, such as "sex=m" where "f" is the reference, given that of the column itself."""
        return tuple(f"{name}={label}" for label in self.labels if label != self.reference)

    def contrasts(self) -> list[Contrast]:
        """What the weight of each feature compares."""
        other = "none of them" if self.reference is None else self.reference
        return [Contrast(1.0, 0.0, f"{label} against {other}") for label in self.labels if label != self.reference]

    def encode(self, column: pd.Series) -> np.ndarray:
        """float32[B, number of features] of 0 and 1, with a single 1 in each row that is not the reference."""
        place_of = {category: place for place, category in enumerate(self.categories)}
        places = np.array([-1 if text is None else place_of.get(text, -1) for text in texts_of(column)], int)
        unknown = places < 0
        if unknown.any() and not self.other:
            raise preprocessing.unfit(
                column,
                f"has none of the declared categories ({listed(self.categories)}) in some row; declare all possible values, "
                "or make undeclared and missing values one more category with Categorical(..., other=True).",
            )
        places[unknown] = len(self.categories)
        features = np.eye(len(self.labels), dtype=np.float32)
        if self.reference is not None:
            features = np.delete(features, self.labels.index(self.reference), axis=1)
        return features[places]

    def all_levels(self, encoded: np.ndarray) -> np.ndarray:
        """[B, number of levels] from [B, number of features]: that of the reference is 1 less the others."""
        if self.reference is None:
            return encoded
        rest = 1 - np.sum(np.clip(encoded, 0, 1), axis=1)
        return np.insert(encoded, self.labels.index(self.reference), rest, axis=1)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """object[B]: the level with the largest feature in each row of float64[B, number of features]."""
        return np.array(self.labels, object)[np.argmax(self.all_levels(encoded), axis=1)]


@dataclass(frozen=True)
class Boolean:
    """A column of 0 and 1, or False and True. It becomes one feature, -1 or 1.

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
        """float32[B, 1] of -1 and 1. Values other than 0 and 1 are refused."""
        values = preprocessing.finite_numbers(column)[:, None]
        if not np.all(np.isin(values, (0, 1))):
            raise preprocessing.unfit(column, "is a boolean column, but some row has neither 0 nor 1, False nor True.")
        return (2 * values - 1).astype(np.float32)

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """bool[B]: the sign of float64[B, 1]; 0 is False."""
        return encoded[:, 0] > 0


Column = Numeric | Categorical | Boolean

_KINDS: dict[str, type[Column]] = {each.kind: each for each in (Numeric, Categorical, Boolean)}


@dataclass(frozen=True)
class Schema:
    """The public declaration of a table's columns, in the order of the encoded features.

    Declarations are not checked against the range or the categories of the records, because these are private. A range that
    is wider than the values, a category without records and a constant column are allowed, and cost at most some precision.
    Values outside a declared range are cut.

    >>> schema = wb.data.Schema.from_declaration(
    ...     {"age": (0, 120), "sex": ["f", "m"], "smoker": bool}
    ... )
    >>> schema.feature_names
    ('age', 'sex=m', 'smoker')
    >>> schema.encode(
    ...     pd.DataFrame({"age": [30], "sex": ["m"], "smoker": [False]})
    ... ).tolist()
    [[-0.5, 1.0, -1.0]]

    :param columns: ``{name: Numeric | Categorical | Boolean}``, at least one.
    :raises ArgumentError: naming ``schema``, if a column is none of these, or two features would have the same name.
    """

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise _validate.ArgumentError("schema", self.columns, "must be a mapping of at least one column to its kind.")
        columns = {str(name): column for name, column in self.columns.items()}
        if len(columns) < len(self.columns):
            raise _validate.ArgumentError(
                "schema", list(self.columns), "has a column twice, by its label and by the text of its label."
            )
        for name, column in columns.items():
            if not isinstance(column, Column):
                raise _validate.ArgumentError(f"schema[{name!r}]", column, "must be Numeric, Categorical or Boolean.")
        object.__setattr__(self, "columns", columns)
        repeated = sorted(feature for feature, times in collections.Counter(self.feature_names).items() if times > 1)
        if repeated:
            raise _validate.ArgumentError(
                "schema", repeated[0], "would be the name of two encoded features; rename a column."
            )

    @classmethod
    def from_declaration(cls, declaration: Any) -> Schema:
        """A schema from short forms.

        A tuple ``(low, high)`` is a range, and ``(low, high, int)`` a range of whole numbers. A list or tuple of texts, or
        of more than two values, is categories. ``bool`` is a boolean column. ``Numeric``, ``Categorical``, ``Boolean`` and
        their ``to_dict`` forms are taken as they are. A list of two numbers is ambiguous and refused.

        :raises ArgumentError: naming ``schema['column']`` and what was given for it.
        """
        if isinstance(declaration, Schema):
            return declaration
        if not isinstance(declaration, Mapping):
            raise _validate.ArgumentError("schema", declaration, "must be a Schema or a mapping of columns to declarations.")
        columns: dict[Any, Column] = {}
        for name, given in declaration.items():
            try:
                columns[name] = _column(given)
            except _validate.ArgumentError as error:
                raise _validate.ArgumentError(f"schema[{str(name)!r}]", given, error.expectation, code=error.code) from None
        return cls(columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """D names of the encoded columns: "age", "sex=m", "ward=b", "ward=c", ..."""
        return tuple(feature for name, column in self.columns.items() for feature in column.feature_names(name))

    @property
    def references(self) -> dict[str, str]:
        """``{column: reference level}`` of the categorical columns that have one."""
        return {
            name: column.reference
            for name, column in self.columns.items()
            if isinstance(column, Categorical) and column.reference is not None
        }

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """``{column: (low, high)}`` of the numeric columns, in their own units."""
        return {name: (column.low, column.high) for name, column in self.columns.items() if isinstance(column, Numeric)}

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """float32[B, D]: each row is encoded from its own values and the schema alone.

        Columns of ``frame`` that are not in the schema are ignored.

        :raises ArgumentError: naming ``frame`` for a missing or repeated column, or the column and its type if a value is
            missing, infinite, text, a date or an undeclared category. Values are never quoted.
        """
        if not isinstance(frame, pd.DataFrame):
            raise _validate.ArgumentError("frame", type(frame).__name__, "must be a pandas DataFrame.")
        labels = [str(label) for label in frame.columns]
        occurs = collections.Counter(labels)
        place_of = {label: place for place, label in enumerate(labels)}
        encoded = []
        for name, column in self.columns.items():
            if occurs[name] != 1:
                withheld = preprocessing.names_withheld(labels)
                has = f"{len(labels)} columns, {withheld}" if withheld else listed(labels)
                reason = "occurs more than once." if occurs[name] else f"is missing; the table has {has}."
                raise _validate.ArgumentError("frame", name, f"this column of the schema {reason}")
            encoded.append(column.encode(frame.iloc[:, place_of[name]].rename(name)))
        return np.concatenate(encoded, axis=1)

    def decode(self, x: Any) -> pd.DataFrame:
        """The table of the encoded rows float[B, D], in the columns' own units: the inverse of ``encode``.

        Numbers are cut to their bounds, and rounded if ``whole``. A category is the level with the largest feature, of which
        the reference's is 1 less the others. A boolean is the sign.

        :raises ArgumentError: naming ``x``, for a wrong shape or NaN.
        """
        values = np.asarray(x)
        names = self.feature_names
        if values.ndim != 2 or values.shape[1] != len(names) or values.dtype.kind not in "fiub":
            raise _validate.ArgumentError(
                "x", values, f"must be numbers of shape (records, {len(names)}), with a column for each encoded feature."
            )
        values = values.astype(np.float64)
        if np.isnan(values).any():
            feature = names[int(np.argmax(np.isnan(values).any(axis=0)))]
            raise _validate.ArgumentError("x", math.nan, f"feature {feature!r} has NaN, which decodes to no value.")
        return pd.DataFrame({name: column.decode(part) for name, column, part in self._parts(values)})

    def _parts(self, x: np.ndarray) -> Iterator[tuple[str, Column, np.ndarray]]:
        """Each column with its features of [B, D]."""
        start = 0
        for name, column in self.columns.items():
            stop = start + len(column.feature_names(name))
            yield name, column, x[:, start:stop]
            start = stop

    def all_levels(self, x: np.ndarray) -> np.ndarray:
        """Encoded rows float32[B, D] as ``with_all_levels()`` encodes them."""
        parts = [column.all_levels(part) if isinstance(column, Categorical) else part for _, column, part in self._parts(x)]
        return np.concatenate(parts, axis=1)

    def with_all_levels(self) -> Schema:
        """The same columns without reference levels."""
        return Schema(
            {
                name: replace(column, reference=None) if isinstance(column, Categorical) else column
                for name, column in self.columns.items()
            }
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The form that ``from_dict`` reads, JSON-ready: ``{column: {"kind": "numeric", "low": 0.0, ...}}``."""
        return {
            name: {"kind": column.kind, **{each.name: _plain(getattr(column, each.name)) for each in fields(column)}}
            for name, column in self.columns.items()
        }

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Schema:
        """The schema that ``to_dict`` wrote, also before categories had a reference. Short forms are accepted too.

        :raises ArgumentError: as ``from_declaration``.
        """
        return cls.from_declaration({name: _with_reference(column) for name, column in declared.items()})


def _with_reference(column: Any) -> Any:
    """A column that was written when each level had a feature."""
    is_categorical = isinstance(column, Mapping) and column.get("kind") == Categorical.kind
    return {"reference": None, **column} if is_categorical else column


def _column(given: Any) -> Column:
    if isinstance(given, Column):
        return given
    if given is bool or given is Boolean:
        return Boolean()
    if isinstance(given, Mapping):
        return _column_from_dict(given)
    if isinstance(given, tuple) and len(given) == 3 and given[2] in (int, float) and isinstance(given[2], type):
        return Numeric(*preprocessing.checked_pair("bounds", given[:2]), whole=given[2] is int)
    if isinstance(given, (list, tuple, np.ndarray, pd.Index)):
        values = list(given)
        pair = len(values) == 2 and all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values)
        if pair and isinstance(given, tuple):
            return Numeric(*preprocessing.checked_pair("bounds", given))
        if pair:
            raise _validate.ArgumentError(
                "schema", given, "could be a range or two categories: give a tuple (low, high), or Categorical(...)."
            )
        return Categorical(tuple(values))
    raise _validate.ArgumentError(
        "schema", given, "must be (low, high), (low, high, int), a list of categories, bool, or a column of wb.data."
    )


def _column_from_dict(given: Mapping[str, Any]) -> Column:
    kind = _KINDS[_validate.choice("kind", given.get("kind"), _KINDS)]
    try:
        return kind(**{name: value for name, value in given.items() if name != "kind"})
    except TypeError:
        known = ", ".join(each.name for each in fields(kind)) or "nothing else"
        raise _validate.ArgumentError("schema", given, f"a {kind.kind} column is declared by kind, {known}.") from None


def _is_scalar(value: Any) -> bool:
    return bool(pd.api.types.is_scalar(value))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
