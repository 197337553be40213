"""Persons and other units with several rows: how a minibatch of them is brought in, and what a row counts.

Rows of one unit follow one another, and the arrays of rows are followed by two that find them: the first row and the number of
rows of each unit, int32[N]. A unit is as wide as its stratum: units with few rows would otherwise cost as much as those with
many. The stratum follows from the unit's own number of rows and from public widths, so no unit moves another one, nor changes
how it is computed. Rows that are missing repeat the unit's own, with weight 0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from workbench.inference.clipping import Stratum
from workbench.sampling.minibatch import Minibatch, Sampler
from workbench.sampling.stratified import StratifiedSampler

__all__ = ["UnitRows"]

Record = tuple[jax.Array, ...]

_FEWEST_AT_ONCE = 8  # units


class UnitRows(NamedTuple):
    """How rows make units.

    :param widths: rows for which each stratum has room, descending; the first is the largest number of rows of a unit. One
        alone where the sampler has no strata.
    :param mean: whether the rows of a unit weigh 1 together instead of 1 each.
    """

    widths: tuple[int, ...]
    mean: bool = False

    def strata(
        self, minibatch: Minibatch, sampler: Sampler, records: Record, needs_place: bool, size: int
    ) -> list[Stratum]:
        """The minibatch by strata. A record of it is ((row arrays, weights), place in the minibatch or None).

        :param sampler: that drew it. :param records: rows, first rows and numbers of rows.
        :param needs_place: whether the place is wanted. :param size: units brought in at once where they are narrowest.
        """
        places = [one.capacity for one in sampler.strata] if isinstance(sampler, StratifiedSampler) else [sampler.capacity]
        *rows, firsts, counts = records
        found, start = [], 0
        for width, own in zip(self.widths, places, strict=True):
            indices, mask = (array[start : start + own] for array in minibatch)

            def chosen(at: jax.Array, width: int = width, indices: jax.Array = indices, start: int = start) -> tuple:
                unit = indices[at]
                count, number = counts[unit][:, None], jnp.arange(width)
                place = firsts[unit][:, None] + jnp.minimum(number, jnp.maximum(count - 1, 0))
                weights = jnp.where(number < count, 1.0 / jnp.maximum(count, 1) if self.mean else 1.0, 0.0)
                of_rows = tuple(array[place] for array in rows)
                return ((*of_rows, weights.astype(jnp.float32)), at + start if needs_place else None)

            at_once = max(_FEWEST_AT_ONCE, -(-size * self.widths[-1] // width))
            found.append(Stratum(chosen, mask & (counts[indices] > 0), at_once))
            start += own
        return found
