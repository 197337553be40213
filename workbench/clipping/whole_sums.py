"""Sums of clipped gradients as whole multiples of a spacing g, and how far one record can move such
a sum.

The mechanism adds whole numbers to whole numbers, which is exact. What floating-point arithmetic
does before, which may move a sum by far more than one record's term (Casacuberta et al. 2022, arXiv
2207.10635), is bounded here, and the noise pays for it (``GaussianMechanism.spacing``). A record
that is left out leaves its place empty, so all that is computed for other records alone stays the
same to the last bit. With u = 2^-24, the unit roundoff of float32:

* What a record gives is a function of this record alone. Its norm, computed in float32, is below
  that of the numbers that are added up by a part ``norm`` at most.
* Records are added up in blocks. A block's sum of k products in float32, in any order, is off by at
  most (k + 4) u times the lengths of its terms together (Higham 2002, section 4.2). These are at
  most ``spread`` C for each of its records. Only one block changes with a record, but its sum may
  be off in both data sets: ``block``, twice.
* Each block's sum is rounded to whole numbers, which are added up without error (modulo 2^32; where
  a sum reaches that, it begins again, whatever the noise). So two sums differ by another g at most
  in each coordinate. Rows of a table that are looked up are rounded one by one, by g / 2 at most.
  In all this is sqrt(``units``) g.

The sensitivity is C (1 + norm + 2 block) + sqrt(units) g, with numbers that depend on shapes alone.

This holds for places that stay empty. Where later records move up instead, all B blocks change, by
2 block C + sqrt(units) g each, and that has no limit. Sums of single records have no blocks
(``clipping.is_by_record``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

__all__ = [
    "ROUNDOFF",
    "Bound",
    "Grid",
    "combined",
    "in_whole_blocks",
    "of_block",
    "records_in_block",
    "total",
]

Array = jax.Array

ROUNDOFF = 2.0**-24
_BLOCK_ERROR = 3e-4  # of C, which blocks keep where one record alone does not exceed it
_AT_ONCE = 2**22  # numbers of blocks' sums that are held at once


class Grid(NamedTuple):
    """The whole multiples of g that sums are rounded to. :param per_unit: 1 / g, float32 scalar."""

    per_unit: Array

    def rounded(self, sums: Array) -> Array:
        """Whole numbers modulo 2^32, int32.

        Nothing is cut off: terms of one record may be far longer than what they add up to.
        """
        rounded = jnp.round(sums * self.per_unit.astype(sums.dtype))
        # without rounding, from -2^31 to 2^31
        rounded = rounded - 2.0**32 * jnp.round(rounded * 2.0**-32)
        return jnp.where(rounded < 2.0**31, rounded, -(2.0**31)).astype(jnp.int32)


class Bound(NamedTuple):
    """How far arithmetic moves the sum of a leaf, or of all leaves, beyond C; see above.

    :param norm: part of its norm by which a record's gradient may be longer than computed.
    :param blocks: {records in a block: error of the block's sum, a part of C}.
    :param units: squared length of the errors of rounding to whole numbers, in g^2.
    """

    norm: float
    blocks: dict[int, float]
    units: float

    @property
    def slack(self) -> float:
        """What all but the rounding to whole numbers adds to the sensitivity, a part of C."""
        return self.norm + 2 * sum(self.blocks.values()) * (1 + self.norm)


def combined(bounds: Iterable[Bound]) -> Bound:
    """The bound of several leaves together.

    A record's terms of all leaves keep C together. So errors of blocks of the same records are
    those of one leaf (Minkowski's inequality), and those of blocks of other records are added.
    """
    norm, blocks, units = 0.0, dict[int, float](), 0.0
    for number, bound in enumerate(bounds):
        # squares are added up over leaves one after the other
        norm, units = max(norm, bound.norm) + (ROUNDOFF / 2 if number else 0.0), units + bound.units
        for size, error in bound.blocks.items():
            blocks[size] = max(blocks.get(size, 0.0), error)
    return Bound(norm, blocks, units)


def _error(records: int, terms: int, spread: float) -> float:
    rounded = (records * terms + 4) * ROUNDOFF
    return rounded / (1 - rounded) * records * spread if rounded < 0.5 else math.inf


def records_in_block(size: int, terms: int = 1, spread: float = 1.0) -> int:
    """How many of ``size`` records are added up in floating point.

    :param terms: terms of a record. :param spread: their lengths together, in units of C.
    """
    records = 1
    while records < size and _error(records + 1, terms, spread) <= _BLOCK_ERROR:
        records += 1
    return -(-size // -(-size // records)) if size else 1  # blocks of about equal size


def in_whole_blocks(size: int) -> int:
    """``size`` or a few records more, which are blocks of one size where a record has one term."""
    records = records_in_block(size)
    return -(-size // records) * records


def of_block(size: int, entries: int, norm: float, terms: int = 1, spread: float = 1.0) -> Bound:
    """How far arithmetic moves a sum by ``total``. :param entries: of the leaf."""
    records = records_in_block(size, terms, spread)
    return Bound(norm, {records: _error(records, terms, spread)}, float(entries))


def total(
    of: Callable[..., Array],
    arrays: Sequence[Array],
    grid: Grid | None,
    terms: int = 1,
    spread: float = 1.0,
) -> Array:
    """``of(*arrays)``, a sum over their first axis: as whole numbers int32 if there is a grid,
    block by block.

    :param arrays: with a first axis of M.
    :param terms: terms of a record. :param spread: their lengths together, in units of C.
    """
    if grid is None:
        return of(*arrays)
    size = arrays[0].shape[0]
    records = records_in_block(size, terms, spread)
    blocks = -(-size // records) if size else 1
    if blocks == 1:
        return grid.rounded(of(*arrays))

    def in_blocks(array: Array) -> Array:
        missing = blocks * records - size
        padded = jnp.pad(array, [(0, missing), *[(0, 0)] * (array.ndim - 1)]) if missing else array
        return padded.reshape(blocks, records, *array.shape[1:])

    split = [in_blocks(array) for array in arrays]
    result = jax.eval_shape(of, *(array[0] for array in split))
    if blocks * result.size <= _AT_ONCE:
        return jnp.sum(grid.rounded(jax.vmap(of)(*split)), axis=0, dtype=jnp.int32)

    def add(number: Array, partial_sum: Array) -> Array:
        return partial_sum + grid.rounded(of(*(array[number] for array in split)))

    return jax.lax.fori_loop(0, blocks, add, jnp.zeros(result.shape, jnp.int32))
