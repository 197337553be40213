"""The public declaration of a table's columns, and the encoding of rows that follows from it."""

from __future__ import annotations

import collections
import contextlib
import datetime
import math
import numbers
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import preprocessing
from workbench.data.columns import Boolean, Categorical, Column, Numeric
from workbench.data.preprocessing import listed

__all__ = ["Schema", "as_table", "columns_of", "with_index"]

_KINDS: dict[str, type[Column]] = {
    column.kind: column for column in (Numeric, Categorical, Boolean)
}


@dataclass(frozen=True)
class Schema:
    """The public declaration of a table's columns, in the order of the encoded features.

    Declarations are not checked against the range or the categories of the records, because these
    are private. A range that is wider than the values, a category without records and a constant
    column are allowed, and cost at most some precision. Values outside a declared range are cut.

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
    :raises ArgumentError: naming ``schema``, if a column is none of these, or two features would
        have the same name.
    """

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise _validate.ArgumentError(
                "schema", self.columns, "must be a mapping of at least one column to its kind."
            )
        columns = {preprocessing.column_name(name): column for name, column in self.columns.items()}
        if len(columns) < len(self.columns):
            raise _validate.ArgumentError(
                "schema",
                list(self.columns),
                "has a column twice, by its label and by the text of its label.",
            )
        for name, column in columns.items():
            if not isinstance(column, Column):
                raise _validate.ArgumentError(
                    f"schema[{name!r}]", column, "must be Numeric, Categorical or Boolean."
                )
        object.__setattr__(self, "columns", columns)
        if repeated := sorted(preprocessing.repeated(self.feature_names)):
            raise _validate.ArgumentError(
                "schema", repeated[0], "would be the name of two encoded features; rename a column."
            )

    @classmethod
    def from_declaration(cls, declaration: Schema | Mapping[Any, Any]) -> Schema:
        """A schema from short forms.

        A tuple ``(low, high)`` is a range, and ``(low, high, int)`` a range of whole numbers. A
        list or tuple of texts, or of more than two values, is categories. ``bool`` is a boolean
        column. ``Numeric``, ``Categorical``, ``Boolean`` and their ``to_dict`` forms are taken as
        they are. A list of two numbers is ambiguous and refused.

        :raises ArgumentError: naming ``schema['column']`` and what was given for it.
        """
        if isinstance(declaration, Schema):
            return declaration
        if not isinstance(declaration, Mapping):
            raise _validate.ArgumentError(
                "schema", declaration, "must be a Schema or a mapping of columns to declarations."
            )
        columns: dict[Any, Column] = {}
        for name, declared in declaration.items():
            try:
                columns[name] = _column(declared)
            except _validate.ArgumentError as error:
                raise _validate.ArgumentError(
                    f"schema[{str(name)!r}]",
                    declared,
                    error.expectation,
                    code=error.code,
                    remedy=error.remedy,
                ) from None
        return cls(columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """D names of the encoded columns: "age", "sex=m", "ward=b", "ward=c", ..."""
        return tuple(
            feature
            for name, column in self.columns.items()
            for feature in column.feature_names(name)
        )

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
        return {
            name: (column.low, column.high)
            for name, column in self.columns.items()
            if isinstance(column, Numeric)
        }

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """float32[B, D]: each row is encoded from its own values and the schema alone.

        Columns of ``frame`` that are not in the schema are ignored.

        :raises ArgumentError: naming ``frame`` for a missing or repeated column, or the column and
            its type if a value is missing, infinite, text, a date or an undeclared category. Values
            are never quoted.
        """
        columns = columns_of(frame, self.columns)
        return np.concatenate(
            [column.encode(columns[name]) for name, column in self.columns.items()], axis=1
        )

    def decode(self, x: ArrayLike) -> pd.DataFrame:
        """The table of the encoded rows float[B, D], in the columns' own units: the inverse of
        ``encode``.

        Numbers are cut to their bounds, and rounded if ``whole``. A category is the level with the
        largest feature, of which the reference's is 1 less the others. A boolean is the sign.

        :raises ArgumentError: naming ``x``, for a wrong shape or NaN.
        """
        values = preprocessing.unmasked("x", x)
        names = self.feature_names
        if values.ndim != 2 or values.shape[1] != len(names) or values.dtype.kind not in "fiub":
            raise _validate.ArgumentError(
                "x",
                values,
                f"must be numbers of shape (records, {len(names)}), with a column for each "
                "encoded feature.",
            )
        values = values.astype(np.float64)
        if np.isnan(values).any():
            feature = names[int(np.argmax(np.isnan(values).any(axis=0)))]
            raise _validate.ArgumentError(
                "x", math.nan, f"feature {feature!r} has NaN, which decodes to no value."
            )
        return pd.DataFrame(
            {name: column.decode(features) for name, column, features in self._parts(values)}
        )

    def by_column(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The features of each column, of encoded rows [B, D]."""
        return {name: features for name, _, features in self._parts(x)}

    def _parts(self, x: np.ndarray) -> Iterator[tuple[str, Column, np.ndarray]]:
        """Each column with its features of [B, D]."""
        start = 0
        for name, column in self.columns.items():
            stop = start + len(column.feature_names(name))
            yield name, column, x[:, start:stop]
            start = stop

    def all_levels(self, x: np.ndarray) -> np.ndarray:
        """Encoded rows float32[B, D] as ``with_all_levels()`` encodes them."""
        encoded = [
            column.all_levels(features) if isinstance(column, Categorical) else features
            for _, column, features in self._parts(x)
        ]
        return np.concatenate(encoded, axis=1)

    def with_all_levels(self) -> Schema:
        """The same columns without reference levels."""
        return Schema(
            {
                name: replace(column, reference=None) if isinstance(column, Categorical) else column
                for name, column in self.columns.items()
            }
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The form that ``from_dict`` reads, JSON-ready: ``{column: {"kind": "numeric", "low": 0.0,
        ...}}``.
        """
        return {
            name: {
                "kind": column.kind,
                **{
                    attribute.name: _plain(getattr(column, attribute.name))
                    for attribute in fields(column)
                },
            }
            for name, column in self.columns.items()
        }

    def with_indicators(self, names: Iterable[str] | None = None) -> Schema:
        """The same columns with ``missing`` for these of the columns of numbers; for all by
        default.
        """
        chosen = set(self.columns if names is None else names)
        return Schema(
            {
                name: replace(column, missing=True)
                if name in chosen and isinstance(column, Numeric)
                else column
                for name, column in self.columns.items()
            }
        )

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Schema:
        """The schema that ``to_dict`` wrote, also before categories had a reference. Short forms
        are accepted too.

        :raises ArgumentError: as ``from_declaration``.
        """
        return cls.from_declaration(
            {name: _with_reference(column) for name, column in declared.items()}
        )


def columns_of(frame: pd.DataFrame, names: Iterable[str]) -> dict[str, pd.Series]:
    """The columns of a table by the text of their labels. :raises ArgumentError: naming ``frame``;
    values are not quoted.
    """
    names = list(names)
    frame = with_index(as_table("frame", frame), names)
    labels = [preprocessing.column_name(label) for label in frame.columns]
    occurs = collections.Counter(labels)
    place_of = {label: index for index, label in enumerate(labels)}
    for name in names:
        if occurs[name] != 1:
            withheld = preprocessing.names_withheld(labels)
            has = f"{len(labels)} columns, {withheld}" if withheld else listed(labels)
            reason = (
                "occurs more than once." if occurs[name] else f"is missing; the table has {has}."
            )
            raise _validate.ArgumentError("frame", name, f"this column of the schema {reason}")
    return {name: frame.iloc[:, place_of[name]].rename(name) for name in names}


def as_table(argument: str, table: Any) -> pd.DataFrame:
    """A DataFrame of pandas, also from a table of pyarrow or polars, which convert themselves.

    :raises ArgumentError: naming ``argument``, for anything else; no cell is quoted.
    """
    if isinstance(table, pd.DataFrame):
        return table
    needed = "must be a pandas DataFrame, or a table of pyarrow or polars."
    if callable(convert := getattr(type(table), "to_pandas", None)):
        with contextlib.suppress(Exception):  # of the other package, whose words may quote cells
            converted = convert(table)
            if isinstance(converted, pd.DataFrame):
                return converted
        needed = (
            "cannot be converted by its to_pandas (polars needs pyarrow for it): give a pandas "
            "DataFrame."
        )
    raise _validate.ArgumentError(argument, type(table).__name__, needed)


def with_index(frame: pd.DataFrame, names: Iterable[Any]) -> pd.DataFrame:
    """The table with those of ``names`` as columns that are not columns but named levels of its
    index.

    A Parquet file keeps the index of the table that was written to it.
    """
    wanted = {preprocessing.column_name(name) for name in names if isinstance(name, Hashable)}
    wanted -= {preprocessing.column_name(label) for label in frame.columns}
    levels = [
        name
        for name in frame.index.names
        if name is not None and preprocessing.column_name(name) in wanted
    ]
    return frame.reset_index(level=levels) if levels else frame


def _with_reference(column: Any) -> Any:
    """A column that was written when each level had a feature."""
    is_categorical = isinstance(column, Mapping) and column.get("kind") == Categorical.kind
    return {"reference": None, **column} if is_categorical else column


def _column(declared: Any) -> Column:
    if isinstance(declared, Column):
        return declared
    if declared is bool or declared is Boolean:
        return Boolean()
    if isinstance(declared, Mapping):
        return _column_from_dict(declared)
    if (
        isinstance(declared, tuple)
        and len(declared) == 3
        and declared[2] in (int, float)
        and isinstance(declared[2], type)
    ):
        return Numeric(
            *preprocessing.checked_pair("bounds", declared[:2]), whole=declared[2] is int
        )
    if isinstance(declared, (list, tuple, np.ndarray, pd.Index)):
        values = list(declared)
        pair = len(values) == 2 and _is_pair(values)
        is_range = len(values) == 2 and all(isinstance(value, datetime.date) for value in values)
        if (pair or is_range) and isinstance(declared, tuple):
            return Numeric(*preprocessing.checked_pair("bounds", declared))
        if pair:
            raise _validate.ArgumentError(
                "schema",
                declared,
                "could be a range or two categories.",
                code=preprocessing.DECLARATION,
                remedy="Give a tuple (low, high), or Categorical(...).",
            )
        if len(values) == 3 and _is_pair(values[:2]) and values[2] in ("int", "float"):
            raise _validate.ArgumentError(
                "schema",
                declared,
                "could be a range or three categories.",
                code=preprocessing.DECLARATION,
                remedy="Give a tuple (low, high, int), or Categorical(...).",
            )
        return Categorical(tuple(values))
    raise _validate.ArgumentError(
        "schema",
        declared,
        "is no declaration of a column.",
        code=preprocessing.DECLARATION,
        remedy="Give (low, high), (low, high, int), a list of categories, bool, or a column of "
        "wb.data.",
    )


def _is_pair(values: list[Any]) -> bool:
    return all(isinstance(v, numbers.Real) and not isinstance(v, bool) for v in values)


def _column_from_dict(declared: Mapping[str, Any]) -> Column:
    kind = _KINDS[_validate.choice("kind", declared.get("kind"), _KINDS)]
    try:
        return kind(**{name: value for name, value in declared.items() if name != "kind"})
    except TypeError:
        settings = ", ".join(field.name for field in fields(kind)) or "nothing else"
        raise _validate.ArgumentError(
            "schema", declared, f"a {kind.kind} column is declared by kind, {settings}."
        ) from None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
