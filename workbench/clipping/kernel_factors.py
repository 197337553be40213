"""Norms and weighted sums of per-record gradients that are known by their factors.

Record i's gradient for a matrix is a_i^T g_i, with a row of a_i and g_i for each of the T places
where the record meets it. Where the matrix is a table, a_i may be the numbers of the rows that are
looked up. Norms are upper bounds: they include corrections for underflow and cancellation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from workbench.clipping import whole_sums
from workbench.clipping.whole_sums import ROUNDOFF, Bound, Grid

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import PyTree

__all__ = [
    "PRECISION",
    "Factors",
    "bound_of_formed",
    "bound_of_product",
    "formed",
    "single",
    "squared_norm",
    "squares_of",
    "weighted",
    "weighted_product",
    "without",
]

Array = jax.Array

# a GPU's default precision (TF32) would let a clipped gradient exceed C by one part in a thousand
PRECISION = lax.Precision.HIGHEST

# Where the places of a record cancel, what they add to a leaf is taken to be no shorter than this
# part of their lengths together: else its terms, each far longer than C, would round off what
# others add to the sum. It leaves alone what adds up like a random walk of up to 4096 places.
_CANCELS = 64

MOST_SCALED = 4  # places; each two of them take a matrix product

_ROWS_A_MENTION = (
    100  # up to here a table with a place for each row is quicker than sorting the mentions
)
_FEW_ROWS = 64  # up to here a one-hot matrix product sums rows faster than a scatter


def without(tree: PyTree, left_out: Array) -> Any:
    """A pytree of arrays with first axis M, with zeros where ``left_out``, bool[M], says so."""

    def emptied(array: Array) -> Array:
        return jnp.where(
            left_out.reshape(-1, *[1] * (array.ndim - 1)), jnp.zeros((), array.dtype), array
        )

    return jax.tree.map(emptied, tree)


def single(tree: PyTree) -> Any:
    """Arrays of half precision in float32: half cannot hold a norm to the accuracy that the bound
    needs.
    """
    return jax.tree.map(
        lambda array: array.astype(jnp.promote_types(array.dtype, jnp.float32)), tree
    )


class Factors(NamedTuple):
    """What each record's gradient is made of: (a^T g) * scale, for S matrices and T places.

    :param a: float[M, S, T, p], or numbers of rows int[M, S, T]. :param g: float[M, S, T, d].
    :param scale: float[S, p, d], the same for all records; None where it is one everywhere, and for
        rows.
    """

    a: Array
    g: Array
    scale: Array | None = None

    def turned(self) -> Factors:
        """The factors of the transposed matrices."""
        return Factors(
            self.g, self.a, None if self.scale is None else jnp.swapaxes(self.scale, 1, 2)
        )

    def scaled_by(self, scale: Array) -> Factors:
        """The factors with each entry of the gradient scaled. :param scale: float[S, p, d]."""
        return self._replace(scale=scale if self.scale is None else scale * self.scale)

    def times_rows(self, scale: Array) -> Factors:
        """``scaled_by`` for rows that are looked up: each is scaled as its row of the table."""
        rows = jnp.clip(self.a, 0, scale.shape[1] - 1)
        return self._replace(g=self.g * scale[jnp.arange(len(scale))[:, None], rows])

    def part(self, matrices: slice | np.ndarray, rows: Any, columns: slice | np.ndarray) -> Factors:
        """The factors of some of the S matrices, their p rows and d columns.

        Each is a slice or numbers; a slice where rows are looked up.
        """
        a, g = _along(self.a, 1, matrices), _along(_along(self.g, 1, matrices), 3, columns)
        if _is_rows(a):
            return Factors(
                a - rows.start, jnp.where(((a >= rows.start) & (a < rows.stop))[..., None], g, 0)
            )
        scale = None if self.scale is None else self.scale[matrices][:, rows][:, :, columns]
        return Factors(_along(a, 3, rows), g, scale)

    def formed(self) -> Array:
        """Each record's gradient, float[M, S, p, d]."""
        product = jnp.einsum("mstp,mstd->mspd", self.a, self.g, precision=PRECISION)
        return product if self.scale is None else product * self.scale

    def without(self, left_out: Array) -> Factors:
        """The factors with zeros for the records in ``left_out``, bool[M]."""
        return self._replace(a=without(self.a, left_out), g=without(self.g, left_out))


def _along(array: Array, axis: int, indices: slice | np.ndarray) -> Array:
    """Some of an axis; the array itself, and not a copy that XLA would compute with apart, where it
    is all of them.
    """
    if isinstance(indices, slice) and indices == slice(0, array.shape[axis]):
        return array
    return array[(*[slice(None)] * axis, indices)]


def formed(blocks: Sequence[Factors]) -> Array:
    """Each record's gradient from all linear uses of a group, float[M, S, p, d]."""
    plain = [block for block in blocks if block.scale is None]
    gradients = [block.formed() for block in blocks if block.scale is not None]
    return functools.reduce(jnp.add, [_joined(plain).formed(), *gradients] if plain else gradients)


def _joined(blocks: Sequence[Factors]) -> Factors:
    """a and g of linear uses without scales, places after one another."""
    if len(blocks) == 1:
        return blocks[0]
    return Factors(
        jnp.concatenate([block.a for block in blocks], 2),
        jnp.concatenate([block.g for block in blocks], 2),
    )


# --- norms ----------------------------------------------------------------------------------------


# up to here squares are added up one after the other, which may be off by 3e-5 of the norm
_FEW_SQUARES = 1024


def squares_of(gradients: Array) -> Array:
    """Squared l2 norm of each record's gradient for one leaf, float[M]; first axis M."""
    return _sum_of_squares(gradients.reshape(gradients.shape[0], -1))


def _sum_of_squares(rows: Array) -> Array:
    """Over the last axis. Long rows are added up in two stages, which differ less from the true sum
    than one.
    """
    size = rows.shape[-1]
    if size <= _FEW_SQUARES:
        return jnp.sum(jnp.square(rows), axis=-1)
    width = math.isqrt(size)
    full_size = size - size % width
    first = jnp.sum(jnp.square(rows[..., :full_size]).reshape(*rows.shape[:-1], -1, width), axis=-2)
    # without the maximum XLA would join the two sums to one
    square = jnp.sum(_apart(first), axis=-1)
    return (
        square
        if full_size == size
        else square + jnp.sum(jnp.square(rows[..., full_size:]), axis=-1)
    )


def _apart(sums: Array) -> Array:
    """``sums``, of which XLA does not know that they are: it would join two sums, one after the
    other, to one.
    """
    return jnp.maximum(sums, jnp.finfo(sums.dtype).min)


def _turns_of_squares(size: int) -> int:
    """Additions and products that one number goes through in ``_sum_of_squares``."""
    if size <= _FEW_SQUARES:
        return size + 1
    width = math.isqrt(size)
    return size // width + width + 3


def _length(rows: Array) -> Array:
    """l2 norm over the last axis, never below the true one by underflow.

    It is infinite above 2^64, as the square is, so that such a record does not count. What a factor
    loses by underflow is then too short to matter, also where places cancel: 2^-126 2^64.
    """
    if rows.shape[-1] == 1:
        length = jnp.abs(rows[..., 0])
        return jnp.where(length < 2.0**64, length, jnp.inf)
    flushed = rows.shape[-1] * float(jnp.finfo(rows.dtype).tiny)
    return jnp.sqrt(_sum_of_squares(rows) + flushed)


def _is_rows(a: Array) -> bool:
    return jnp.issubdtype(a.dtype, jnp.integer)


def squared_norm(blocks: Sequence[Factors], p: int, d: int, *, by_rows: bool) -> Array:
    """|a^T g|^2 of each record over its S matrices, p x d, float[M].

    :param by_rows: sum what a record adds to each row that it looks up, instead of products between
        its places.
    """
    if any(block.scale is not None for block in blocks):
        return _squared_norm_of_scaled(blocks, p, d)
    if all(not _is_rows(block.a) for block in blocks):
        blocks = [_joined(blocks)]
    lengths = [
        (jnp.ones(a.shape, g.dtype) if _is_rows(a) else _length(a), _length(g))
        for a, g, _ in blocks
    ]
    added = jnp.concatenate([of_a * of_g for of_a, of_g in lengths], axis=2)
    if len(blocks) == 1 and added.shape[2] == 1:
        return jnp.sum(jnp.square(added), axis=(1, 2))
    if by_rows:
        return _squared_norm_of_rows(blocks[0].a, blocks[0].g, p)
    square: Any = 0.0
    for first, (a, g, _) in enumerate(blocks):
        for second, (b, h, _) in enumerate(blocks[: first + 1]):
            overlap, inner_products = (
                _overlap(a, b),
                jnp.einsum("mstd,msud->mstu", g, h, precision=PRECISION),
            )
            crossing = jnp.sum(_apart(jnp.sum(overlap * inner_products, axis=3)), axis=(1, 2))
            _, s, t, u = overlap.shape
            turns = 0 if _is_rows(a) or _is_rows(b) else p, d, u + s * t + len(blocks) ** 2 + 4
            crossing = crossing + _rounded_off(
                (overlap, inner_products), lengths[first], lengths[second], turns
            )
            square = square + (crossing if first == second else 2 * crossing)
    return _not_too_small(square, added)


def _rounded_off(
    products: Sequence[Array],
    of_first: Sequence[Array],
    of_second: Sequence[Array],
    turns: Sequence[int],
) -> Array:
    """What rounding may have taken from a sum of products of a times those of g, between the places
    of two uses, float[M].

    After n turns a product is off by n ROUNDOFF times the lengths of its operands. What that makes
    of the sum is bounded by Cauchy's inequality: several times closer than by lengths alone, as
    most products are short.

    :param products: of a and of g, [M, S, T, U]. :param of_first: lengths of a and of g at each
        place of one use, [M, S, T].
    :param of_second: of the other one. :param turns: operations that a number goes through in each
        product and in the sum.
    """
    unit = float(jnp.finfo(products[1].dtype).eps) / 2
    most = functools.reduce(
        jnp.multiply, [jnp.sum(x * y, axis=2) for x, y in (of_first, of_second)]
    )
    norms = [_length(_length(product)) for product in products]
    factors = [_length(x) * _length(y) for x, y in zip(of_first, of_second, strict=True)]
    # zero times infinity is no bound
    met = [jnp.fmin(factors[side] * norms[1 - side], most) for side in (0, 1)]
    off = turns[0] * met[0] + turns[1] * met[1] + turns[2] * jnp.fmin(norms[0] * norms[1], most)
    # a tenth more for the rounding of lengths and for what is of second order
    return jnp.sum(1.1 * unit * (off + 2 * turns[0] * turns[1] * unit * most), axis=1)


def _not_too_small(square: Array, lengths: Array) -> Array:
    """The squared norm, as if places cancelled no more than they may. :param lengths: of what each
    place adds, [M, S, T].
    """
    longest = jnp.sum(jnp.square(jnp.sum(lengths, axis=2)), axis=1)
    return jnp.maximum(square, longest / _CANCELS**2)


class _Place(NamedTuple):
    """One place, (a^T g) * scale times ``size``: nothing is longer than one. a: [M, S, p]; g: [M,
    S, d]; size: [M, S].
    """

    a: Array
    g: Array
    scale: Array | None
    size: Array


def _squared_norm_of_scaled(blocks: Sequence[Factors], p: int, d: int) -> Array:
    """sum over entries of (sum_t a_t g_t scale_t)^2, by a matrix product for each two places."""
    addends = [
        _place(block.a[:, :, t], block.g[:, :, t], block.scale)
        for block in blocks
        for t in range(block.a.shape[2])
    ]
    square, lengths = jnp.zeros(()), []
    for first, addend in enumerate(addends):
        for earlier in addends[:first]:
            square = square + 2 * jnp.sum(
                _crossing(addend, earlier) * addend.size * earlier.size, axis=1
            )
        # products that are flushed to zero add up to less than this
        flushed = 4 * p * d * float(jnp.finfo(addend.g.dtype).tiny)
        diagonal = (_crossing(addend, addend) + flushed) * (
            1 + (p + d + 8) * float(jnp.finfo(addend.g.dtype).eps)
        )
        lengths.append(jnp.sqrt(diagonal) * addend.size)
        square = square + jnp.sum(jnp.square(lengths[-1]), axis=1)
    if len(addends) == 1:
        return square
    added = jnp.stack(lengths, axis=2)
    s, t = added.shape[1:]
    turns = 2 * (p + d) + 3 * t + s * t + 16
    longest = jnp.sum(jnp.square(jnp.sum(added, axis=2)), axis=1)
    return _not_too_small(square + turns * float(jnp.finfo(added.dtype).eps) / 2 * longest, added)


def _place(a: Array, g: Array, scale: Array | None) -> _Place:
    length_of_a, length_of_g = _length(a), _length(g)
    largest = jnp.ones(()) if scale is None else jnp.max(jnp.abs(scale))
    a, g = (
        array / jnp.where(length > 0, length, 1)[..., None]
        for array, length in ((a, length_of_a), (g, length_of_g))
    )
    scale = None if scale is None else scale / jnp.where(largest == 0, 1, largest)
    shortest, longest = jnp.minimum(length_of_a, length_of_g), jnp.maximum(length_of_a, length_of_g)
    # the smallest times the largest of three numbers first: another order may be flushed to zero
    between = jnp.maximum(shortest, jnp.minimum(longest, largest))
    return _Place(
        a, g, scale, jnp.minimum(shortest, largest) * jnp.maximum(longest, largest) * between
    )


def _crossing(first: _Place, second: _Place) -> Array:
    """Product of what two places add, [M, S]."""
    a, g = first.a * second.a, first.g * second.g
    scales = [addend.scale for addend in (first, second) if addend.scale is not None]
    if not scales:
        return jnp.sum(a, axis=-1) * jnp.sum(g, axis=-1)
    return jnp.sum(
        jnp.einsum("msp,spd->msd", a, functools.reduce(jnp.multiply, scales), precision=PRECISION)
        * g,
        axis=-1,
    )


def _overlap(a: Array, b: Array) -> Array:
    """Products between the rows of a and b, [M, S, T, U]; a row number stands for the row with a
    single one there.
    """
    if _is_rows(a) and _is_rows(b):
        return (a[..., :, None] == b[..., None, :]).astype(jnp.float32)
    if _is_rows(a):
        return jnp.swapaxes(_overlap(b, a), 2, 3)
    if _is_rows(b):
        inside = jnp.clip(b, 0, a.shape[-1] - 1)
        return jnp.take_along_axis(a, inside[..., None, :], axis=-1)
    return jnp.einsum("mstp,msup->mstu", a, b, precision=PRECISION)


def _squared_norm_of_rows(rows: Array, g: Array, num_rows: int) -> Array:
    """What a record adds to each row that it looks up, summed row by row, squared and summed.

    A sum of n terms may be off by (n - 1) eps times the sum of their lengths, which is much where
    they cancel: it is added.
    """
    size, s, t, d = g.shape
    targets, order = _places_of_rows(rows.reshape(size * s, t), num_rows)
    empty = jnp.zeros(size * s * t, g.dtype)
    terms = jnp.zeros((size * s * t, d), g.dtype).at[targets].add(g.reshape(-1, d)[order])
    lengths, counts = empty.at[targets].add(_length(g).reshape(-1)[order]), empty.at[targets].add(1)
    slack = jnp.finfo(g.dtype).eps * jnp.maximum(counts - 1, 0) * lengths
    added = jnp.maximum(_length(terms) + slack, lengths / _CANCELS)
    return jnp.sum(jnp.square(added).reshape(size, s * t), axis=1)


def _places_of_rows(rows: Array, num_rows: int) -> tuple[Array, Any]:
    """(place, order): mention order[k] of all B T mentions goes to place[k], the same one for equal
    rows of a record.

    :param rows: int[B, T]. A record's places are T consecutive ones.
    """
    count, t = rows.shape
    starts = t * jnp.arange(count)[:, None]
    if num_rows <= _ROWS_A_MENTION * t:  # the first mention of each, in a table of all rows
        mentions = starts + jnp.arange(t)
        inside = jnp.clip(rows, 0, num_rows - 1)  # those outside add zeros, wherever it is
        table = (
            jnp.full((count, num_rows), count * t)
            .at[jnp.arange(count)[:, None], inside]
            .min(mentions)
        )
        return jnp.take_along_axis(table, inside, axis=1).reshape(-1), slice(None)
    sorted_rows, order = lax.sort(
        (rows, jnp.broadcast_to(jnp.arange(t), rows.shape)), dimension=1, num_keys=1
    )
    another = jnp.concatenate(
        [jnp.zeros((count, 1), bool), sorted_rows[:, 1:] != sorted_rows[:, :-1]], axis=1
    )
    return (starts + jnp.cumsum(another, axis=1)).reshape(-1), (starts + order).reshape(-1)


# --- sums -----------------------------------------------------------------------------------------


def weighted(gradients: Array, weights: Array, grid: Grid | None) -> Array:
    """sum_i weights_i gradients_i, over the first axis; whole numbers on ``grid``, if there
    is one.
    """

    def of(weights: Array, rows: Array) -> Array:
        return jnp.matmul(weights, rows, precision=PRECISION)

    rows = gradients.reshape(gradients.shape[0], -1)
    return whole_sums.total(of, [weights.astype(rows.dtype), rows], grid).reshape(
        gradients.shape[1:]
    )


def bound_of_formed(entries: int, size: int) -> Bound:
    """How far arithmetic moves ``weighted`` with norms by ``squares_of``.

    :param entries: of a record's gradient. :param size: of the minibatch.
    """
    return whole_sums.of_block(size, entries, _half(_turns_of_squares(entries)))


def _half(turns: int) -> float:
    """Relative error of the root of a sum, and of what follows it. :param turns: operations that a
    number goes through.
    """
    return (turns / 2 + 8) * ROUNDOFF


def weighted_product(blocks: Sequence[Factors], weights: Array, p: int, grid: Grid | None) -> Array:
    """sum_i weights_i a_i^T g_i * scale, [S, p, d]; whole numbers on ``grid``, if there is one."""
    blocks = [
        block._replace(g=block.g * weights[:, None, None, None].astype(block.g.dtype))
        for block in blocks
    ]
    one_by_one = [
        _is_rows(block.a) and not _are_few(block.a.shape[1], block.a.shape[2], p)
        for block in blocks
    ]
    terms = [
        _sum_of_rows(block.a, block.g, p, grid)
        for block, apart in zip(blocks, one_by_one, strict=True)
        if apart
    ]
    if dense := [block for block, apart in zip(blocks, one_by_one, strict=True) if not apart]:
        terms.append(
            _sum_of_others(dense, p, grid, _spread(sum(block.a.shape[2] for block in blocks)))
        )
    return functools.reduce(jnp.add, terms)


def _are_few(s: int, t: int, p: int) -> bool:
    """Whether rows are so few, each met once, that a one-hot matrix product sums them faster than a
    scatter.
    """
    return t == 1 and s * p <= _FEW_ROWS


def _spread(positions: int) -> float:
    """How long the terms of a record's places are together, in units of C: where there are several
    they may cancel.
    """
    return 1.0 if positions == 1 else float(_CANCELS)


def _sum_of_others(blocks: Sequence[Factors], p: int, grid: Grid | None, spread: float) -> Array:
    """``weighted_product`` by matrix products. :param spread: as of ``whole_sums.total``; other
    uses may cancel these.
    """
    positions = sum(block.a.shape[2] for block in blocks)

    def of(*arrays: Array) -> Array:
        pairs = [
            Factors(arrays[2 * k], arrays[2 * k + 1], block.scale) for k, block in enumerate(blocks)
        ]
        terms = [_sum_of_few_rows(a, g, p) for a, g, _ in pairs if _is_rows(a)]
        plain = [pair for pair in pairs if pair.scale is None and not _is_rows(pair.a)]
        if plain:
            terms.append(_sum_of_products(*_joined(plain)[:2]))
        for a, g, scale in pairs:
            if (
                scale is not None
            ):  # where it is not finite no record counts, and zero times infinity is not zero
                terms.append(_sum_of_products(a, g) * jnp.where(jnp.isfinite(scale), scale, 0))
        return functools.reduce(jnp.add, terms)

    arrays = [array for block in blocks for array in (block.a, block.g)]
    return whole_sums.total(of, arrays, grid, positions, spread)


def bound_of_product(
    size: int,
    s: int,
    p: int,
    d: int,
    met: Sequence[int],
    looked_up: Sequence[int],
    *,
    by_rows: bool,
) -> Bound:
    """How far arithmetic moves ``weighted_product`` with norms by ``squared_norm``.

    :param size: of the minibatch. :param met: places of each use that meets a matrix.
    :param looked_up: of each use that looks up rows.
    """
    one_by_one = sum(t for t in looked_up if not _are_few(s, t, p))
    positions = sum(met) + sum(looked_up)
    spread, uses = _spread(positions), len(met) + len(looked_up)
    lengths = (
        _turns_of_squares(d)
        + (0 if by_rows or not met else _turns_of_squares(p))
        + s * positions
        + uses**2
    )
    blocks, units = dict[int, float](), 0.0
    if positions > one_by_one:
        of_block = whole_sums.of_block(size, s * p * d, 0.0, positions - one_by_one, spread)
        blocks, units = of_block.blocks, math.sqrt(of_block.units)
    if one_by_one:  # half of g in each of d numbers of a row, T times in one row at most
        blocks[1] = blocks.get(1, 0.0) + 4 * ROUNDOFF * spread
        units += math.sqrt(s * d) * one_by_one / 2  # both may fall on the same entries
    return Bound(_half(lengths), blocks, units**2)


def _sum_of_products(a: Array, g: Array) -> Array:
    if a.shape[1] > 1:
        return jnp.einsum("mstp,mstd->spd", a, g, precision=PRECISION)
    flat_a, flat_g = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
    # one column on either side makes it a product of vector and matrix
    if flat_a.shape[1] == 1:
        return jnp.matmul(flat_a[:, 0], flat_g, precision=PRECISION)[None, None]
    if flat_g.shape[1] == 1:
        return jnp.matmul(flat_g[:, 0], flat_a, precision=PRECISION)[None, :, None]
    return lax.dot_general(flat_a, flat_g, (((0,), (0,)), ((), ())), precision=PRECISION)[None]


def _numbers_of_rows(rows: Array, p: int) -> Array:
    """Rows of S tables as rows of one, int[...]; those outside as the row after the last."""
    s = rows.shape[1]
    numbers = rows + p * jnp.arange(s)[:, None]
    return jnp.where((rows >= 0) & (rows < p), numbers, s * p).reshape(-1)


def _sum_of_few_rows(rows: Array, g: Array, p: int) -> Array:
    s, d = rows.shape[1], g.shape[-1]
    chosen = (_numbers_of_rows(rows, p)[:, None] == jnp.arange(s * p)).astype(g.dtype)
    total = lax.dot_general(chosen, g.reshape(-1, d), (((0,), (0,)), ((), ())), precision=PRECISION)
    return total.reshape(s, p, d)


def _sum_of_rows(rows: Array, g: Array, p: int, grid: Grid | None) -> Array:
    s, d = rows.shape[1], g.shape[-1]
    flat = g.reshape(-1, d)
    terms = flat if grid is None else grid.rounded(flat)
    total = jnp.zeros((s * p, d), terms.dtype).at[_numbers_of_rows(rows, p)].add(terms, mode="drop")
    return total.reshape(s, p, d)
