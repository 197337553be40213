"""Columns of which nothing but their type is declared: their ranges and levels by noised counts.

A number is counted in a binary tree over all floats in their order: sign, exponent and four bits of
the mantissa, so a leaf reaches from a number to one a sixteenth of an octave further. A text is one
count for each text that occurs. Which texts those are is private: only those are released whose
noised count is beyond a threshold that a text of one record passes with a probability of at most
``delta``. All others become "(other)".

Numbers and texts of other columns share nothing, so the counts of data sets that differ in one
record have a distance of at most the square root of depth times the number of numeric columns plus
the number of columns of text (``counting.Counting.sensitivity``), apart from texts that only one of
them has: with the probability of ``delta`` one of those is released. The rows of a unit weigh 1
together, and at most ``max_rows`` of them count.

Source of the threshold: Korolova, Kenthapadi, Mishra and Ntoulas 2009; with Gaussian noise, Wilson
et al. 2020.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from scipy.special import ndtri

from workbench import _validate
from workbench._lazy import pd
from workbench._numbers import count
from workbench.data import preprocessing
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.counting import Counting, Levels, tree_of, weighed
from workbench.data.look import (
    CERTAIN,
    MOST_TAIL,
    consistent,
    noise_in_ranks,
    outer_leaves,
    ranks,
    visible_tail,
)
from workbench.data.preprocessing import DECLARATION, OTHER, texts_of
from workbench.data.schema import Schema, columns_of, with_index
from workbench.data.units import checked_max_rows

__all__ = [
    "MOST_LEVELS",
    "Floats",
    "Table",
    "by_type",
    "is_complete",
    "types_from_text",
    "types_in",
    "types_to_text",
]

_BITS = 16  # of a float64: its sign, 11 of its exponent, 4 of its mantissa
_LARGEST = 2.0**61  # of a bound: a range is at most 9e18 in size
_SMALLEST = 2.0**-59  # of the size of a range, at least 1e-18
_WHOLE = 2.0**53  # float64 does not have all whole numbers above it
_ROOM = 2  # octaves between the outer quantiles and the bounds, in which finer counts then look
_NOTHING = "(none)"  # the one category of a column of which no text is frequent
_ALL_OTHERS = Categorical((_NOTHING,), other=True, reference=OTHER)
MOST_LEVELS = 100  # of a column of text: the most frequent ones
_TYPES = {"int": int, "float": float, "str": str}
_ZERO = 2 ** (_BITS - 1)  # the leaf of 0
_ANYTHING = (-_LARGEST, _LARGEST)


class Floats(NamedTuple):
    """A column of numbers without a range."""

    name: str
    whole: bool

    @property
    def size(self) -> int:
        """The number of its counts, leaves first."""
        return 2 ** (_BITS + 1) - 2

    @property
    def squared_sensitivity(self) -> int:
        """How many counts a record adds 1 to."""
        return _BITS


def by_type(
    frame: pd.DataFrame, unit_id: Hashable = None, formula: str | None = None
) -> dict[str, Any]:
    """What the types of a table's columns declare: ``float``, ``int``, ``str`` or ``Boolean()``.

    The types are public, like the names of the columns. No value is read.

    :param unit_id: the column that says whose row it is, which is left out.
    :param formula: columns of dates and of other types that it does not name are left out, too.
    :raises ArgumentError: naming ``schema``, for a column of dates or of another type.
    """
    names = [preprocessing.column_name(label) for label in frame.columns]
    unit = None if unit_id is None else preprocessing.column_name(unit_id)
    columns = columns_of(frame, [name for name in names if name != unit])
    types = {name: _type_of(column) for name, column in columns.items()}
    for name, how in types.items():
        is_used = formula is None or re.search(rf"(?<!\w){re.escape(name)}(?!\w)", formula)
        if how is None and is_used:
            raise _validate.ArgumentError(
                f"schema[{name!r}]",
                None,
                "must be declared, because nothing is learned of a column of type "
                f"{columns[name].dtype}.",
                code=DECLARATION,
                remedy="Make numbers of dates, such as the days since a public date.",
            )
    return {name: how for name, how in types.items() if how is not None}


def _type_of(column: pd.Series) -> Any:
    kinds, dtype = pd.api.types, column.dtype
    if kinds.is_bool_dtype(dtype):
        return Boolean()
    if kinds.is_integer_dtype(dtype):
        return int
    if kinds.is_float_dtype(dtype):
        return float
    if (
        kinds.is_object_dtype(dtype)
        or kinds.is_string_dtype(dtype)
        or isinstance(dtype, pd.CategoricalDtype)
    ):
        return str
    return None


def is_complete(declaration: Any) -> bool:
    """Whether every column is declared, and none by its type alone."""
    return not isinstance(declaration, Mapping) or not any(map(_is_type, declaration.values()))


def _is_type(declared: Any) -> bool:
    return isinstance(declared, type) and declared in _TYPES.values()


def types_in(declaration: Any) -> tuple[dict[Any, type], Any]:
    """(the columns that are declared by their type alone, the declaration of the others)."""
    if is_complete(declaration):
        return {}, declaration
    types = {name: how for name, how in declaration.items() if _is_type(how)}
    return types, {name: how for name, how in declaration.items() if name not in types}


def types_to_text(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration with columns that are declared by their type alone, ready for JSON."""
    types, others = types_in(declaration)
    named = {name: how.__name__ for name, how in types.items()}
    return {**(Schema.from_declaration(others).to_dict() if others else {}), **named}


def types_from_text(declaration: Mapping[str, Any]) -> dict[str, Any]:
    """What ``types_to_text`` wrote, or a user in a file. Other texts stay as they are."""
    words = _TYPES | {"bool": bool}
    return {
        name: words.get(how, how) if isinstance(how, str) else how
        for name, how in declaration.items()
    }


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table of which some columns are declared by their type alone.

    :param table: its rows. :param declaration: of each column, as ``Schema.from_declaration`` takes
        it, or a type.
    :param unit_id: the column that says whose row it is; None where a row is a unit.
    :param max_rows: of a unit, at most.
    :param limits: ``{column: (low, high)}``, public, within which learned ranges stay.
    :param from_zero: columns whose learned ranges begin at 0.
    :raises ArgumentError: naming ``schema`` or ``max_rows``.
    """

    table: pd.DataFrame
    declaration: Mapping[Any, Any]
    unit_id: Hashable = None
    max_rows: int | None = None
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    from_zero: Collection[str] = ()

    def __post_init__(self) -> None:
        for name, how in self.types.items():
            for other in self.declared:
                if how is str and other.startswith(f"{name}="):
                    raise _validate.ArgumentError(
                        f"schema[{name!r}]",
                        None,
                        f"is text, so its features are called {name}=..., as the column "
                        f"{other!r} is already: rename one of them.",
                    )
        _ = self.most

    @functools.cached_property
    def declared(self) -> dict[str, Any]:
        """The declaration by the texts of the columns' labels."""
        return {preprocessing.column_name(name): how for name, how in self.declaration.items()}

    @functools.cached_property
    def most(self) -> int:
        """The number of rows of a unit that count, at most."""
        return 1 if self.max_rows is None else checked_max_rows(self.max_rows)

    @functools.cached_property
    def _rows(self) -> tuple[pd.DataFrame, np.ndarray | None]:
        """The rows that count, and whose they are, as whole numbers."""
        if self.unit_id is None:
            return self.table, None
        name = preprocessing.column_name(self.unit_id)
        unit = pd.factorize(columns_of(self.table, [name])[name])[0]
        in_order = pd.Series(unit).groupby(unit).cumcount().to_numpy()
        rows = (in_order < self.most) & (unit >= 0)
        return self.table[rows], unit[rows]

    @property
    def frame(self) -> pd.DataFrame:
        """The rows that count."""
        return self._rows[0]

    @property
    def unit(self) -> np.ndarray | None:
        """Whose row each is."""
        return self._rows[1]

    @functools.cached_property
    def types(self) -> dict[str, type]:
        """Those of the columns that are declared by nothing else."""
        return {name: how for name, how in self.declared.items() if _is_type(how)}

    @functools.cached_property
    def _texts(self) -> dict[str, list[str | None]]:
        """The values of the columns of text, private."""
        names = [name for name, how in self.types.items() if how is str]
        return {name: texts_of(column) for name, column in columns_of(self.frame, names).items()}

    def digest(self, key: bytes) -> str:
        """32 hexadecimal digits that recognise the same table, all of its columns and the named
        levels of its index, as ``ledger.fingerprint`` has them of a data set.
        """
        digest = hashlib.blake2b(digest_size=16, key=key)
        table = with_index(self.table, self.table.index.names)
        for position, label in enumerate(table.columns):
            column = table.iloc[:, position]
            if pd.api.types.is_numeric_dtype(column):
                numbers = preprocessing.numbers_in(column)
                content: Any = hashlib.blake2b(numbers.tobytes()).hexdigest()
            else:
                content = texts_of(column)
            digest.update(json.dumps([preprocessing.column_name(label), content]).encode())
        return digest.hexdigest()

    def counting(self) -> Counting:
        """What is counted: of a column of text what occurs, so those labels and their number are
        private; S is not.
        """
        return Counting(
            tuple(
                Levels(name, tuple(sorted(filter(_is_name, set(self._texts[name])))))
                if how is str
                else Floats(name, how is int)
                for name, how in self.types.items()
            )
        )

    def largest_size(self, units: int) -> int:
        """The number of counts of ``units`` units at most, public, with those of learned levels."""
        texts = sum(how is str for how in self.types.values())
        of_texts = units * self.most + MOST_LEVELS  # in this release, and as levels in the next
        return texts * of_texts + (len(self.types) - texts) * Floats("", whole=False).size

    @property
    def numbers(self) -> list[str]:
        """The columns that are declared as numbers and no more."""
        return [name for name, how in self.types.items() if how is not str]

    @property
    def has_texts(self) -> bool:
        """Whether a threshold takes a part of delta."""
        return str in self.types.values()

    def counted(self, counting: Counting, per_record: int) -> np.ndarray:
        """int64[size]: the counts in spacings, without noise.

        :param per_record: spacings that a record adds to each of its counts.
        """
        weights = np.full(len(self.frame), per_record, np.int64)
        if self.unit is not None:
            weights = per_record // np.bincount(self.unit)[self.unit]
        columns = columns_of(self.frame, self.types)
        counts: list[np.ndarray] = []
        for how in counting.columns:
            if isinstance(how, Levels):
                code_of: dict[str | None, int] = {
                    label: code for code, label in enumerate(how.labels)
                }
                texts = self._texts[how.name]
                codes = np.array([code_of.get(text, -1) for text in texts], np.int64)
                counts.append(weighed(codes[codes >= 0], weights[codes >= 0], how.size))
                continue
            numbers = preprocessing.numbers_in(columns[how.name])
            present = np.isfinite(numbers)
            leaves = weighed(_leaf_of(numbers[present]), weights[present], 2**_BITS)
            counts += tree_of(leaves)
        return np.concatenate(counts) if counts else np.zeros(0, np.int64)

    def schema(
        self, counting: Counting, values: np.ndarray, deviation: float, delta: float
    ) -> Schema:
        """The declaration that follows from noised counts.

        :param values: float64[size], in records. :param deviation: of the noise of each.
        :param delta: the probability with which a text of one unit alone may be released.
        """
        threshold = self._threshold(deviation, delta)
        columns: dict[str, Any] = dict(self.declared)
        for column, place in counting.slices():
            if isinstance(column, Levels):
                counts = values[place]
                frequent = np.flatnonzero(counts > threshold)
                frequent = np.sort(frequent[np.argsort(-counts[frequent])][:MOST_LEVELS])
                texts = tuple(column.labels[index] for index in frequent)
                columns[column.name] = Categorical(texts, other=True) if texts else _ALL_OTHERS
            elif isinstance(column, Floats):
                limits = self.limits.get(column.name, _ANYTHING)
                range_ = _range_of(column, values[place], deviation, limits)
                is_moved = column.name in self.from_zero
                columns[column.name] = replace(range_, low=0.0) if is_moved else range_
        return Schema.from_declaration(columns)

    def _threshold(self, deviation: float, delta: float) -> float:
        """Noised records of a text above which it is a level."""
        texts = sum(how is str for how in self.types.values())
        if not texts:
            return math.inf
        return 1 - deviation * float(ndtri(delta / (texts * self.most)))

    def unlearned(self) -> Schema:
        """A declaration under which every row that some declaration allows is a record."""
        columns: dict[str, Any] = {
            name: _ALL_OTHERS
            if how is str
            else Numeric(max(self.limits.get(name, _ANYTHING)[0], -1), 1, whole=how is int)
            for name, how in self.types.items()
        }
        return Schema.from_declaration({**self.declared, **columns})

    def widest(self) -> Schema:
        """The widest ranges and the most levels that may be learned."""
        columns: dict[str, Any] = {
            name: Categorical(
                tuple(f"{_NOTHING} {index}" for index in range(MOST_LEVELS)), other=True
            )
            if how is str
            else _within(-_LARGEST, _LARGEST, how is int, self.limits.get(name, _ANYTHING))
            for name, how in self.types.items()
        }
        return Schema.from_declaration({**self.declared, **columns})

    def require_visible(self, epsilon: float, deviation: float, delta: float, units: int) -> None:
        """Refuse counts that would be mostly noise, before they are released.

        :raises ArgumentError: naming ``epsilon``.
        """
        least = {
            True: self._threshold(deviation, delta),
            False: CERTAIN * noise_in_ranks(_BITS, deviation),
        }
        hidden = [name for name, how in self.types.items() if least[how is str] > MOST_TAIL * units]
        if hidden:
            raise _validate.ArgumentError(
                "epsilon",
                epsilon,
                f"is too small for {count(units)} records to learn anything of columns of which "
                f"only the type is declared, such as {hidden[0]}.",
                remedy=f"Declare ranges and levels, as in schema={{{hidden[0]!r}: (0, 100)}}.",
            )


def _is_name(text: str | None) -> TypeGuard[str]:
    """Whether a text can be a level. All others are "(other)"."""
    return bool(text) and text != OTHER and not preprocessing.has_control_characters(str(text))


def _leaf_of(numbers: np.ndarray) -> np.ndarray:
    """int64[n]: the leaf of each float in the order of the floats, 0 to 2^16 - 1."""
    bits = (np.clip(numbers, -_LARGEST, _LARGEST) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    sign = np.uint64(1) << np.uint64(63)
    ordered = np.where(bits & sign, ~bits, bits | sign)
    return (ordered >> np.uint64(64 - _BITS)).astype(np.int64)


def _edge(leaf: int) -> float:
    """The smallest float of a leaf; for those below 0, the largest of the leaf before."""
    ordered = min(max(leaf, 0), 2**_BITS - 1) << (64 - _BITS)
    sign = 1 << 63
    bits = ordered & ~sign if ordered & sign else ~ordered & (2**64 - 1)
    value = float(np.array([bits], np.uint64).view(np.float64)[0])
    return value if math.isfinite(value) else math.copysign(_LARGEST, value)


def _range_of(
    column: Floats, values: np.ndarray, deviation: float, limits: tuple[float, float]
) -> Numeric:
    """Bounds some octaves beyond the outer quantiles of a column of numbers."""
    below, error = ranks(consistent(values, _BITS)), noise_in_ranks(_BITS, deviation)
    tail = visible_tail(below[-1], error)
    low, high = -1.0, 1.0
    if tail is not None:
        first, last = outer_leaves(below, tail, error)
        room = _ROOM * 2 ** (_BITS - 12)
        if first < last:
            low, high = _edge(first - room), _edge(last + 1 + room)
        elif last > _ZERO:  # others may be at 0
            low, high = 0.0, _edge(last + 1 + room)
        elif last < _ZERO:  # and beyond it
            low, high = _edge(first - room), -_edge(first - room)
    low, high = (0.0 if abs(bound) < _SMALLEST else bound for bound in (low, high))
    return _within(low, high, column.whole, limits)


def _within(low: float, high: float, is_whole: bool, limits: tuple[float, float]) -> Numeric:
    """A range that is as near to ``low`` to ``high`` as limits allow, and not empty."""
    low, high = (max(min(bound, limits[1]), limits[0]) for bound in (low, high))
    whole = is_whole and max(-low, high) <= _WHOLE
    if whole:
        low, high = float(math.floor(low)), float(math.ceil(high))
    if not low < high:
        reach = max(1.0, abs(low) / 2)
        low, high = max(low - reach, limits[0]), min(high + reach, limits[1])
    return Numeric(low, high, whole)
