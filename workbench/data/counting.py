"""Counts of a data set's columns with Gaussian noise: one release, whose sensitivity is stated.

A number is counted in the intervals of a binary tree over its declared range: at each level, from
halves of the range down to the leaves, in the one interval that it is in. A level of a category,
and a number that is missing, is one count. So one record adds 1 to at most ``depth`` counts of each
column of numbers and to one of every other column, and the counts of data sets that differ in one
record have a distance of at most

    S = sqrt(sum over numbers of depth + number of other columns).

The rows of a person weigh 1 together: rounded down, row by row, so a person moves the counts no
further than one record does.

Counts are whole multiples of a spacing, and so is the noise (``noise.integers``): the sum is a
function of the counts with continuous Gaussian noise, and accountants of that mechanism hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import numpy as np

from workbench import _validate
from workbench._compiler import compiler_options
from workbench.data.columns import Boolean, Categorical, Column, Numeric
from workbench.data.dataset import Dataset
from workbench.noise import integers

__all__ = [
    "Counted",
    "Counting",
    "Levels",
    "Numbers",
    "counting_of",
    "deviation",
    "noised",
    "spacings",
    "spacings_of_rows",
    "tree_of",
    "weighed",
    "with_noise",
]

_ROWS = 100_000  # that are counted at once
_DEPTH, _SMALLER_DEPTH, _FEW = 14, 10, 100  # levels of a tree; of each of more than 100 columns
_NOISE = 2**21  # standard deviation of the finest noise, in spacings


class Counted(Protocol):
    """How a column is counted."""

    @property
    def name(self) -> str:
        """The column."""

    @property
    def size(self) -> int:
        """The number of its counts."""

    @property
    def squared_sensitivity(self) -> int:
        """How many counts a record adds 1 to."""


class Numbers(NamedTuple):
    """A column of numbers as it is counted.

    :param low: of its declared range. :param high: of its declared range.
    :param whole: whether its values are whole numbers.
    :param gaps: whether values may be missing, which are counted by themselves.
    :param depth: levels of the tree below the range itself.
    """

    name: str
    low: float
    high: float
    whole: bool
    gaps: bool
    depth: int

    @property
    def size(self) -> int:
        """The number of its counts: all intervals of the tree, leaves first, then missing ones."""
        return 2 ** (self.depth + 1) - 2 + self.gaps

    @property
    def squared_sensitivity(self) -> int:
        """How many counts a record adds 1 to."""
        return self.depth

    def counts(self, unit_interval: np.ndarray, absent: np.ndarray, weights: np.ndarray) -> list:
        """int64 counts of each level, leaves first, and of missing values.

        :param unit_interval: places in the range, 0 to 1. :param weights: whole numbers.
        """
        leaves = 2**self.depth
        place = np.clip(np.floor(unit_interval * leaves), 0, leaves - 1).astype(np.int64)
        present = ~absent
        levels = tree_of(weighed(place[present], weights[present], leaves))
        return [*levels, *([np.array([weights[absent].sum()])] if self.gaps else [])]


class Levels(NamedTuple):
    """A column of categories, truth values or classes as it is counted, a count for each level."""

    name: str
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of its counts."""
        return len(self.labels)

    @property
    def squared_sensitivity(self) -> int:
        """How many counts a record adds 1 to."""
        return 1


@dataclass(frozen=True)
class Counting:
    """What is counted, from public declarations alone.

    :param columns: in the order of the counts.
    """

    columns: tuple[Counted, ...]

    @property
    def size(self) -> int:
        """The number of counts, each of which gets noise."""
        return sum(column.size for column in self.columns)

    @property
    def sensitivity(self) -> float:
        """S: the largest distance of the counts of data sets that differ in one record."""
        return math.sqrt(sum(column.squared_sensitivity for column in self.columns))

    def slices(self) -> Iterator[tuple[Counted, slice]]:
        """Each column, and where its counts are."""
        start = 0
        for column in self.columns:
            yield column, slice(start, start + column.size)
            start += column.size

    def deviation(self, noise_multiplier: float) -> float:
        """Standard deviation of the noise of each count, in records."""
        return deviation(self.per_record(noise_multiplier))

    def per_record(self, noise_multiplier: float) -> int:
        """Spacings that a record adds to a count.

        :raises ArgumentError: naming ``look``, where noise would need more than whole numbers hold.
        """
        per_record = spacings(noise_multiplier, self.sensitivity)
        if per_record < 1:
            raise _validate.ArgumentError(
                "look",
                noise_multiplier,
                f"would take noise of {noise_multiplier * self.sensitivity:.3g} records in each "
                "count, which says nothing: leave the look out.",
            )
        return per_record


def spacings(noise_multiplier: float, sensitivity: float) -> int:
    """Spacings that 1 is, so that the noise is that of ``noise_multiplier``; 0 where it would be
    more than whole numbers hold.

    :param sensitivity: the largest distance of what neighbouring data sets add up to.
    """
    return math.floor(_NOISE / (noise_multiplier * sensitivity * (1 + 1e-9)))


def deviation(per_record: int) -> float:
    """Standard deviation of the noise, in records. :param per_record: of ``spacings``."""
    return _NOISE / per_record


def counting_of(data: Dataset, names: Collection[str] | None = None) -> Counting:
    """What a look at ``data`` counts: every declared column, the target among them.

    :param names: of the columns to count; all by default.
    """
    columns = {name: column for name, column in _declared(data) if names is None or name in names}
    numbers = sum(isinstance(column, Numeric) for column in columns.values())
    depth = _DEPTH if numbers <= _FEW else _SMALLER_DEPTH
    return Counting(tuple(_counted(name, column, depth) for name, column in columns.items()))


def _declared(data: Dataset) -> Iterator[tuple[str, Column]]:
    """The columns of features, then those of the other arrays, by name."""
    if data.schema is not None and "x" in data.arrays:
        yield from data.schema.columns.items()
    if "group" in data.arrays and data.groups:
        yield data.group_name, Categorical(data.groups, reference=None)
    if "y" in data.arrays and data.target_name:
        if data.target_bounds is not None:
            yield data.target_name, Numeric(*data.target_bounds)
        elif data.classes:
            yield data.target_name, Categorical(data.classes, reference=None)


def _counted(name: str, column: Column, depth: int) -> Numbers | Levels:
    if isinstance(column, Numeric):
        return Numbers(name, column.low, column.high, column.whole, column.missing, depth)
    return Levels(name, ("no", "yes") if isinstance(column, Boolean) else column.labels)


def weighed(places: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """int64[size]: the sum of whole weights at each place; exact, because it is below 2^53."""
    return np.bincount(places, weights.astype(np.float64), minlength=size).astype(np.int64)


def tree_of(leaves: np.ndarray) -> list[np.ndarray]:
    """The counts of each level of a binary tree above these leaves, which come first, down to the
    two halves.
    """
    levels = [leaves]
    while len(levels[-1]) > 2:
        levels.append(levels[-1].reshape(-1, 2).sum(axis=1))
    return levels


def counted(counting: Counting, data: Dataset, per_record: int) -> np.ndarray:
    """int64[size]: the counts in spacings, without noise. For ``noised`` and for tests.

    :param per_record: spacings that a record adds to each of its counts.
    """
    total, of_row = np.zeros(counting.size, np.int64), spacings_of_rows(data, per_record)
    for start in range(0, len(data.train[0]), _ROWS):
        rows = slice(start, min(start + _ROWS, len(data.train[0])))
        arrays = {
            name: np.asarray(array[rows])
            for name, array in zip(data.arrays, data.train, strict=True)
        }
        total += np.concatenate(_counts_of(counting, data, arrays, of_row[rows]))
    return total


def spacings_of_rows(data: Dataset, per_record: int) -> np.ndarray:
    """int64[rows]: spacings that 1 is in each training row; the rows of a person weigh 1 together.

    :param per_record: spacings that 1 is in a record.
    """
    if data.units is None or data.units.are_padded:
        return np.broadcast_to(np.int64(per_record), len(data.train[0]))
    of_unit = np.asarray(data.units.counts, np.int64)
    return np.repeat(per_record // np.maximum(of_unit, 1), of_unit)


def _counts_of(
    counting: Counting, data: Dataset, arrays: dict[str, np.ndarray], weights: np.ndarray
) -> list[np.ndarray]:
    counts: list[np.ndarray] = []
    features = {} if data.schema is None else data.schema.by_column(arrays["x"])
    nobody = np.zeros(len(weights), bool)
    for column in counting.columns:
        encoded = features.get(column.name)
        if isinstance(column, Numbers):
            if encoded is None:
                y = np.asarray(arrays["y"], np.float64)
                place, absent = (y - column.low) / (column.high - column.low), nobody
            else:
                place = (np.asarray(encoded[:, 0], np.float64) + 1) / 2
                absent = encoded[:, 1] >= 0.5 if column.gaps else nobody
            counts += column.counts(place, absent, weights)
            continue
        if encoded is None:
            codes = arrays["group" if column.name == data.group_name else "y"]
        else:
            codes = _codes(data, column.name, encoded)
        codes = np.clip(np.asarray(codes, np.int64), 0, column.size - 1)
        counts.append(weighed(codes, weights, column.size))
    return counts


def _codes(data: Dataset, name: str, encoded: np.ndarray) -> np.ndarray:
    assert data.schema is not None
    column = data.schema.columns[name]
    if isinstance(column, Categorical):
        return np.argmax(column.all_levels(encoded), axis=1)
    return (encoded[:, 0] > 0).astype(np.int64)


def noised(
    counting: Counting, data: Dataset, noise_multiplier: float, key: jax.Array
) -> np.ndarray:
    """float64[size]: the counts of the training records with noise, in records.

    The standard deviation of the noise is at least ``noise_multiplier`` times S.

    :param key: a ChaCha20 key that is used for nothing else.
    :raises TypeError: if ``key`` is not a ChaCha20 key.
    """
    per_record = counting.per_record(noise_multiplier)
    return with_noise(counted(counting, data, per_record), per_record, key)


@functools.cache
def _noise_of(size: int) -> Callable[[jax.Array], jax.Array]:
    """Whole-number noise for ``size`` counts, compiled as what is called once: its bits do not
    depend on XLA's optimisation, which takes a second.
    """
    return jax.jit(
        functools.partial(integers.rounded_gaussian, count=size, level=integers.FINEST),
        compiler_options=compiler_options(jax.default_backend(), 0, level=0, calls=1),
    )


def with_noise(counts: np.ndarray, per_record: int, key: jax.Array) -> np.ndarray:
    """float64[size]: counts in spacings with noise, in records.

    :param per_record: spacings that a record adds to each of its counts, of
        ``Counting.per_record``.
    :param key: a ChaCha20 key that is used for nothing else.
    :raises TypeError: if ``key`` is not a ChaCha20 key.
    """
    noise = np.asarray(_noise_of(len(counts))(key), np.int64)
    return (counts + noise) / per_record
