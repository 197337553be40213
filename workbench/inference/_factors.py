"""Norms and weighted sums of per-record gradients that are known by their factors.

Record i's gradient for a matrix is a_i^T g_i, with a row of a_i and g_i for each of the T places where the record meets it.
Where the matrix is a table, a_i may be the numbers of the rows that are looked up. A norm may be too large, never too small:
it makes up for squares that are flushed to zero and for sums over places that cancel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["PRECISION", "joined", "single", "squared_norm", "squares_of", "weighted", "weighted_product", "without"]

Array = jax.Array
Factors = tuple[Array, Array]  # a: float[M, S, T, p] or numbers of rows int[M, S, T]; g: float[M, S, T, d]

# a GPU's default precision (TF32) would let a clipped gradient exceed C by one part in a thousand
PRECISION = lax.Precision.HIGHEST

# Where the places of a record cancel, what they add to a leaf is taken to be no shorter than this part of their lengths
# together: else its terms, each far longer than C, would round off what others add to the sum. It leaves alone what adds up
# like a random walk of up to 4096 places.
_CANCELS = 64

_ROWS_A_MENTION = 100  # up to here a table with a place for each row is quicker than sorting the mentions
_FEW_ROWS = 64  # up to here a one-hot matrix product sums rows faster than a scatter


def without(tree: Any, left_out: Array) -> Any:
    """A pytree of arrays with first axis M, with zeros where ``left_out``, bool[M], says so."""

    def emptied(array: Array) -> Array:
        return jnp.where(left_out.reshape(-1, *[1] * (array.ndim - 1)), jnp.zeros((), array.dtype), array)

    return jax.tree.map(emptied, tree)


def single(array: Array) -> Array:
    """Half precision cannot hold a norm to the accuracy that the bound needs."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def joined(blocks: Sequence[Factors]) -> Factors:
    """a and g of all linear uses of a group, places after one another."""
    if len(blocks) == 1:
        return blocks[0]
    return jnp.concatenate([a for a, _ in blocks], axis=2), jnp.concatenate([g for _, g in blocks], axis=2)


# --- norms ------------------------------------------------------------------------------------------------------------


def squares_of(gradients: Array) -> Array:
    """Squared l2 norm of each record's gradient for one leaf, float[M]; first axis M."""
    return jnp.sum(jnp.square(gradients), axis=tuple(range(1, gradients.ndim)))


def _length(rows: Array) -> Array:
    """l2 norm over the last axis, never below the true one by underflow."""
    if rows.shape[-1] == 1:
        return jnp.abs(rows[..., 0])
    flushed = rows.shape[-1] * float(jnp.finfo(rows.dtype).tiny)
    return jnp.sqrt(jnp.sum(jnp.square(rows), axis=-1) + flushed)


def _is_rows(a: Array) -> bool:
    return jnp.issubdtype(a.dtype, jnp.integer)


def squared_norm(blocks: Sequence[Factors], p: int, d: int, *, by_rows: bool) -> Array:
    """|a^T g|^2 of each record over its S matrices, p x d, float[M].

    :param by_rows: sum what a record adds to each row that it looks up, instead of products between its places.
    """
    if all(not _is_rows(a) for a, _ in blocks):
        blocks = [joined(blocks)]
    lengths = [_length(g) if _is_rows(a) else _length(a) * _length(g) for a, g in blocks]
    if len(blocks) == 1 and lengths[0].shape[2] == 1:
        return jnp.sum(jnp.square(lengths[0]), axis=(1, 2))
    if by_rows:
        return _squared_norm_of_rows(*blocks[0], p)
    square: Any = 0.0
    for first, (a, g) in enumerate(blocks):
        for second, (b, h) in enumerate(blocks[: first + 1]):
            crossing = jnp.sum(_overlap(a, b) * jnp.einsum("mstd,msud->mstu", g, h, precision=PRECISION), axis=(1, 2, 3))
            square = square + (crossing if first == second else 2 * crossing)
    whole = jnp.concatenate(lengths, axis=2)
    longest = jnp.sum(jnp.square(jnp.sum(whole, axis=2)), axis=1)
    # products of p and d terms, added up in the order of the machine: 1.9 eps sqrt(p + d + T) was the most in search of more
    slack = 4 * jnp.finfo(whole.dtype).eps * math.sqrt(p + d + whole.shape[2]) * longest
    return jnp.maximum(jnp.maximum(square, 0) + slack, longest / _CANCELS**2)


def _overlap(a: Array, b: Array) -> Array:
    """Products between the rows of a and b, [M, S, T, U]; a row number stands for the row with a single one there."""
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

    A sum of n terms may be off by (n - 1) eps times the sum of their lengths, which is much where they cancel: it is added.
    """
    size, s, t, d = g.shape
    places, order = _places_of_rows(rows.reshape(size * s, t), num_rows)
    empty = jnp.zeros(size * s * t, g.dtype)
    terms = jnp.zeros((size * s * t, d), g.dtype).at[places].add(g.reshape(-1, d)[order])
    lengths, counts = empty.at[places].add(_length(g).reshape(-1)[order]), empty.at[places].add(1)
    slack = jnp.finfo(g.dtype).eps * jnp.maximum(counts - 1, 0) * lengths
    added = jnp.maximum(_length(terms) + slack, lengths / _CANCELS)
    return jnp.sum(jnp.square(added).reshape(size, s * t), axis=1)


def _places_of_rows(rows: Array, num_rows: int) -> tuple[Array, Any]:
    """(place, order): mention order[k] of all B T mentions goes to place[k], the same one for equal rows of a record.

    :param rows: int[B, T]. A record's places are T consecutive ones.
    """
    count, t = rows.shape
    starts = t * jnp.arange(count)[:, None]
    if num_rows <= _ROWS_A_MENTION * t:  # the first mention of each, in a table of all rows
        mentions = starts + jnp.arange(t)
        inside = jnp.clip(rows, 0, num_rows - 1)  # those outside add zeros, wherever it is
        table = jnp.full((count, num_rows), count * t).at[jnp.arange(count)[:, None], inside].min(mentions)
        return jnp.take_along_axis(table, inside, axis=1).reshape(-1), slice(None)
    found, order = lax.sort((rows, jnp.broadcast_to(jnp.arange(t), rows.shape)), dimension=1, num_keys=1)
    another = jnp.concatenate([jnp.zeros((count, 1), bool), found[:, 1:] != found[:, :-1]], axis=1)
    return (starts + jnp.cumsum(another, axis=1)).reshape(-1), (starts + order).reshape(-1)


# --- sums -------------------------------------------------------------------------------------------------------------


def weighted(gradients: Array, weights: Array) -> Array:
    """sum_i weights_i gradients_i, over the first axis."""
    total = jnp.matmul(weights.astype(gradients.dtype), gradients.reshape(gradients.shape[0], -1), precision=PRECISION)
    return total.reshape(gradients.shape[1:])


def weighted_product(blocks: Sequence[Factors], weights: Array, p: int) -> Array:
    """sum_i weights_i a_i^T g_i, float[S, p, d]."""
    weighted = [(a, g * weights[:, None, None, None].astype(g.dtype)) for a, g in blocks]
    parts = [_sum_of_rows(a, g, p) for a, g in weighted if _is_rows(a)]
    products = [pair for pair in weighted if not _is_rows(pair[0])]
    if products:
        parts.append(_sum_of_products(*joined(products)))
    return functools.reduce(jnp.add, parts)


def _sum_of_products(a: Array, g: Array) -> Array:
    if a.shape[1] > 1:
        return jnp.einsum("mstp,mstd->spd", a, g, precision=PRECISION)
    left, right = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
    # one column on either side makes it a product of vector and matrix
    if left.shape[1] == 1:
        return jnp.matmul(left[:, 0], right, precision=PRECISION)[None, None]
    if right.shape[1] == 1:
        return jnp.matmul(right[:, 0], left, precision=PRECISION)[None, :, None]
    return lax.dot_general(left, right, (((0,), (0,)), ((), ())), precision=PRECISION)[None]


def _sum_of_rows(rows: Array, g: Array, num_rows: int) -> Array:
    s, d = rows.shape[1], g.shape[-1]
    numbers = (rows + num_rows * jnp.arange(s)[:, None]).reshape(-1)
    numbers = jnp.where((rows >= 0) & (rows < num_rows), numbers.reshape(rows.shape), s * num_rows).reshape(-1)
    flat = g.reshape(-1, d)
    if s * num_rows <= _FEW_ROWS:
        chosen = (numbers[:, None] == jnp.arange(s * num_rows)).astype(g.dtype)
        total = lax.dot_general(chosen, flat, (((0,), (0,)), ((), ())), precision=PRECISION)
    else:
        total = jnp.zeros((s * num_rows, d), g.dtype).at[numbers].add(flat, mode="drop")
    return total.reshape(s, num_rows, d)
