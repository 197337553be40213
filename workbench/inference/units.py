"""Persons and other units with several rows: how a minibatch of them is brought in, and what a row
counts.

Rows of one unit follow one another. The arrays of rows are followed by two that find them: the
first row and the number of rows of each unit, int32[N]. A unit is computed at the width of its
stratum: at one width for all, units with few rows would cost as much as those with many. The
stratum follows from the unit's own number of rows and from public widths, and its place from the
draw of the minibatch alone. So a unit that is left out leaves its place empty, as one without rows,
and changes nothing that is computed for others. Rows that are missing repeat the unit's own, with
weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench import _validate
from workbench.inference.bringing import are_at_rest
from workbench.inference.sources import RecordSource
from workbench.inference.strata import Stratum
from workbench.record_model.model import Record
from workbench.sampling.minibatch import Minibatch

__all__ = ["UnitRows"]

_FEWEST_AT_ONCE = 8  # units
_MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class UnitRows(RecordSource):
    """Units on one device, each with several rows.

    :param widths: rows for which each stratum has room, descending; the first is the largest number
        of rows of a unit.
    :param mean: whether the rows of a unit weigh 1 together instead of 1 each.
    """

    widths: tuple[int, ...]
    mean: bool = False

    @property
    def rows_of_unit(self) -> int:
        """``widths[0]``."""
        return self.widths[0]

    def parted(self, records: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(arrays of rows, first rows and numbers of rows). Of records in a file they have shapes
        and types alone.
        """
        if are_at_rest(records):
            kinds = (
                jax.ShapeDtypeStruct(array.shape, jax.dtypes.canonicalize_dtype(array.dtype))
                for array in records
            )
            records = jax.eval_shape(self.in_rows, tuple(kinds))
        return records[:-2], records[-2:]

    def in_rows(self, records: Record) -> Record:
        """Rows, first rows and numbers of rows of units that a file brings with room for
        ``widths[0]`` rows each.

        :param records: arrays [N, widths[0], ...], and the last which rows are there, the first
            ones: float32[N, widths[0]].
        """
        *arrays, present = records
        rows = (array.reshape(-1, *array.shape[2:]) for array in arrays)
        firsts = jnp.arange(len(present), dtype=jnp.int32) * np.int32(self.widths[0])
        return (*rows, firsts, jnp.sum(present > 0, axis=1, dtype=jnp.int32))

    def as_unit(self, record: Record) -> Record:
        """``widths[0]`` rows that are alike, and their weights."""
        rows = (jnp.broadcast_to(array, (self.widths[0], *jnp.shape(array))) for array in record)
        return (*rows, jnp.ones(self.widths[0], jnp.float32))

    def strata(
        self,
        minibatch: Minibatch,
        records: Record,
        at: jax.Array | None,
        size: int,
        *,
        needs_place: bool,
        ascending: bool,
    ) -> list[Stratum]:
        """The minibatch by strata, the narrowest first. A record is ((row arrays, weights), its
        place or None).

        :param records: rows, first rows and numbers of rows. Units of one stratum should follow one
            another.
        :param at: None: units are on one device. :param size: units brought in at once where they
            are narrowest.
        :raises ArgumentError: naming ``records``, for more rows than first rows in 32 bits can tell
            apart.
        """
        *rows, firsts, counts = records
        if len(rows[0]) > _MOST_ROWS:
            raise _validate.ArgumentError(
                "records",
                len(rows[0]),
                f"rows at once are more than {_MOST_ROWS}: take smaller minibatches, or fewer "
                "rows.",
            )
        units, mask, order = *minibatch, jnp.arange(len(minibatch.mask))
        if (
            len(self.widths) > 1 and not ascending
        ):  # so that few parts have units of several strata; padding last
            units, order = lax.sort((jnp.where(mask, units, len(counts)), order), num_keys=1)
            mask = units < len(counts)
        count = jnp.where(mask, counts[units], 0)

        def stratum(width: int, narrower: int) -> Stratum:
            def chosen(positions: jax.Array) -> tuple:
                numbers = firsts[units[positions]][:, None]
                weights = jnp.ones(numbers.shape, jnp.float32)
                if width > 1:
                    row_counts, number = count[positions][:, None], jnp.arange(width)
                    numbers = numbers + jnp.minimum(number, jnp.maximum(row_counts - 1, 0))
                    weights = jnp.where(
                        number < row_counts,
                        1.0 / jnp.maximum(row_counts, 1) if self.mean else 1.0,
                        0.0,
                    )
                of_rows = tuple(array[numbers] for array in rows)
                return (
                    (*of_rows, weights.astype(jnp.float32)),
                    order[positions] if needs_place else None,
                )

            at_once = max(_FEWEST_AT_ONCE, -(-size * self.widths[-1] // width))
            return Stratum(chosen, (count <= width) & (count > narrower), at_once)

        return [
            stratum(*pair) for pair in zip(self.widths[::-1], (0, *self.widths[:0:-1]), strict=True)
        ]
