"""A look at a table of which some columns are declared by their type alone: two releases, of which
the second counts within the ranges and the levels that the first has shown.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from workbench import _validate
from workbench.data import Dataset
from workbench.data.counting import Counting, counting_of, noised, with_noise
from workbench.data.look import Look
from workbench.data.missing_values import INDICATOR
from workbench.data.preprocessing import DECLARATION
from workbench.data.schema import Schema
from workbench.data.undeclared import MOST_LEVELS, Table
from workbench.fitting.learned_scales import LARGEST_SHARE, share_for, share_of_budget
from workbench.inference.state import Purpose
from workbench.ledger.ledger import DatasetId
from workbench.privacy.accounting import round_up

__all__ = ["Undeclared", "id_of_table"]

_SHARE_OF_TEXTS = 0.1  # of delta, for texts of one record that pass their threshold
_RELEASES = 2


@dataclass(frozen=True, eq=False, repr=False)
class Undeclared:
    """A table with columns that are declared by their type alone.

    :param table: its columns. :param data_of: the records, given the declaration of all columns.
    :param missing: what stands for missing values, as of ``wb.look``.
    :raises ArgumentError: naming ``missing``, for a value of a column without a range or levels.
    """

    table: Table
    data_of: Callable[[Schema], Dataset]
    missing: Any = None

    def __post_init__(self) -> None:
        values = self.missing if isinstance(self.missing, Mapping) else {}
        for name, value in values.items():
            how = self.table.types.get(str(name))
            is_value = how is str or not (isinstance(value, str) and value == INDICATOR)
            if how is not None and is_value:
                raise _validate.ArgumentError(
                    f"missing[{str(name)!r}]",
                    value,
                    f"needs a declaration of {name}, because it must be one of its values.",
                    code=DECLARATION,
                )

    @functools.cached_property
    def data(self) -> Dataset:
        """The records before anything is learned: whatever they are refused for is refused here."""
        return self.data_of(self.table.unlearned())

    @functools.cached_property
    def _first(self) -> Counting:
        return self.table.counting()

    @functools.cached_property
    def _second(self) -> Counting:
        """What the second release counts at least: levels that are learned come to it."""
        return counting_of(self.data)

    @property
    def most_coordinates(self) -> int:
        """How many times more coordinates a model has when all levels are learned, at most."""
        return MOST_LEVELS**2 if self.table.has_texts else 1  # of two columns that interact

    @property
    def largest_sensitivity(self) -> float:
        """S of the release that has the larger one, as of ``Counting``."""
        return max(self._first.sensitivity, self._second.sensitivity)

    @property
    def depth(self) -> int:
        """Levels of the deepest tree of the first release."""
        return max(column.squared_sensitivity for column in self._first.columns)

    def size(self, units: int) -> int:
        """The number of counts of ``units`` units at most: how many texts there are is private."""
        return self.table.largest_size(units) + self._second.size

    def share_of_budget(
        self, num_records: int, epsilon: float, delta: float, relation: str
    ) -> float:
        """The default share of a fit's budget for the look, from public facts."""
        sensitivity = self.largest_sensitivity * math.sqrt(_RELEASES)
        share = share_of_budget(self.depth, sensitivity, num_records, epsilon, delta, relation)
        return share or LARGEST_SHARE

    def share_if_declared(
        self, num_records: int, epsilon: float, delta: float, relation: str
    ) -> float:
        """The default share if all columns were declared."""
        return share_for(self._second, num_records, epsilon, delta, relation)

    def delta_of_texts(self, delta: float) -> float:
        """The part of delta for texts of one unit that pass their threshold."""
        return delta * _SHARE_OF_TEXTS if self.table.has_texts else 0.0

    def require_visible(
        self, epsilon: float, noise_multiplier: float, of_texts: float, units: int
    ) -> None:
        """Refuse counts that would be mostly noise, before they are released.

        :raises ArgumentError: naming ``epsilon``.
        """
        self._second.per_record(noise := _of_each(noise_multiplier))  # has room for it
        deviation = self._first.deviation(noise)
        self.table.require_visible(epsilon, deviation, of_texts, units)

    def take(self, noise_multiplier: float, key: jax.Array, of_texts: float) -> Look:
        """Noised counts of all columns, and the declaration that was learned for them.

        :param noise_multiplier: of both releases together. :param key: of the run, whose children
            for these purposes nothing else uses.
        :param of_texts: as of ``delta_of_texts``.
        """
        noise, first = _of_each(noise_multiplier), self._first
        per_record = first.per_record(noise)
        child = jax.random.fold_in(key, Purpose.UNDECLARED)
        values: np.ndarray = with_noise(self.table.counted(first, per_record), per_record, child)
        data = self.data_of(self.table.schema(first, values, first.deviation(noise), of_texts))
        counting = counting_of(data)
        values = noised(counting, data, noise, jax.random.fold_in(key, Purpose.LOOK))
        return Look(counting, values, counting.deviation(noise), data.unit, schema=data.schema)


def id_of_table(source: Dataset, table: Table) -> DatasetId:
    """How a ledger recognises the table of ``source`` before its columns are declared. The digest
    is computed once for each key.
    """
    return DatasetId(source.name, source.unit, functools.cache(table.digest))


def _of_each(noise_multiplier: float) -> float:
    """The noise multiplier of each release: together they are one of ``noise_multiplier``."""
    return round_up(noise_multiplier * math.sqrt(_RELEASES), 4)
