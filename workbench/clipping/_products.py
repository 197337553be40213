"""Products of two arrays that no record enters: from what a product meets back to its operands; see
``_preparation``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from workbench.clipping._frames import Frame, Leaves, Step, all_formed, one_place, transposed
from workbench.clipping.jaxprs import aval
from workbench.clipping.kernel_factors import PRECISION, Factors, single

__all__ = ["product"]

Array = jax.Array


def product(frame: Frame, step: Step) -> Frame | None:
    """The frame of one operand, from that of the product; None where there is no rule."""
    equation, (side,) = step.made.equation, step.made.sides
    contracted, batch = equation.params["dimension_numbers"]
    if batch[0] or not math.prod(step.before) or not math.prod(step.after):
        return None
    orders = []  # the left operand as [rows, contracted], the right one as [contracted, columns]
    for index, atom in enumerate(equation.invars):
        free = [axis for axis in range(aval(atom).ndim) if axis not in contracted[index]]
        orders.append([*free, *contracted[index]] if index == 0 else [*contracted[index], *free])
    inner = math.prod(aval(equation.invars[0]).shape[axis] for axis in contracted[0])
    outer = [aval(atom).size // inner for atom in equation.invars]

    def matrix(array: Array, index: int) -> Array:
        sizes = (outer[0], inner) if index == 0 else (inner, outer[1])
        return step.vmapped(lambda entries: jnp.transpose(entries, orders[index]).reshape(sizes))(
            array
        ).reshape(step.parts, *sizes)

    def opposite(leaves: Leaves) -> Array:
        value = step.made.operands[1 - side]
        return single(matrix(step.spread(value.array(leaves), value), 1 - side))

    placed = _as_matrix(frame, step, outer[1])
    if placed is None:
        combined = _combined(frame, step, outer, inner, matrix)
        if combined is not None:
            return combined
        dense = all_formed(frame, frame.arrange, step.after, step.parts)
        if dense is None:
            return None
        placed = _as_matrix(dense, step, outer[1])
        if placed is None:
            return _product_of_formed(dense, step, side, outer, inner, matrix, opposite)
    frame, rows, columns = placed
    s, t, _, _ = frame.shape
    if side == 0:

        def for_left(factors: Factors, leaves: Leaves) -> Factors:
            multiplier = opposite(leaves)[:, :, columns]
            return factors._replace(
                g=jnp.einsum("mstd,scd->mstc", factors.g, multiplier, precision=PRECISION)
            )

        return frame.then(
            for_left,
            arrange=lambda array: matrix(array, 0)[:, rows],
            shape=(s, t, len(rows), inner),
        )

    def for_right(factors: Factors, leaves: Leaves) -> Factors:
        multiplier = opposite(leaves)[:, rows]
        return factors._replace(
            a=jnp.einsum("mstp,spc->mstc", factors.a, multiplier, precision=PRECISION)
        )

    return frame.then(
        for_right,
        arrange=lambda array: matrix(array, 1)[:, :, columns],
        shape=(s, t, inner, len(columns)),
    )


def _combined(
    frame: Frame, step: Step, outer: Sequence[int], inner: int, matrix: Callable
) -> Frame | None:
    """Of a combination of ``inner`` arrays, sum_k code_k B_k: a record's gradient for B_k is
    (code_k a)^T g.

    None where it is none, or where more would be held than for a gradient that is formed.
    """
    if 1 not in outer or step.parts > 1 or frame.rows or frame.scaled:
        return None
    if frame.shape[2] > frame.shape[3]:
        frame = transposed(frame)  # the shorter of a and g grows
    s, t, p, d = frame.shape
    if t * inner > d:
        return None
    code, (side,) = outer.index(1), step.made.sides

    def other(leaves: Leaves) -> Array:
        return single(matrix(step.made.operands[1 - side].array(leaves), 1 - side)[0])

    def all_seen(array: Array) -> Array:
        """B as [inner, S, p, d], from its matrix."""
        return jax.vmap(frame.arrange)(
            (array if code == 0 else array.T).reshape(inner, *step.after)
        )

    def for_code(factors: Factors, leaves: Leaves) -> Factors:
        met = jnp.einsum(
            "mstd,kspd->mstkp", factors.g, all_seen(other(leaves)), precision=PRECISION
        )
        return one_place(jnp.einsum("mstkp,mstp->mk", met, factors.a, precision=PRECISION)[:, None])

    def for_all(factors: Factors, leaves: Leaves) -> Factors:
        a = other(leaves).reshape(-1, 1) * factors.a[..., None, :]
        return factors._replace(a=a.reshape(*a.shape[:3], inner * p))

    if side == code:
        return frame.then(
            for_code, arrange=lambda array: array.reshape(1, 1, inner), shape=(1, 1, 1, inner)
        )

    def arrange(array: Array) -> Array:
        return jnp.moveaxis(all_seen(matrix(array, side)[0]), 0, 1).reshape(s, inner * p, d)

    return frame.then(for_all, arrange=arrange, shape=(s, t, inner * p, d))


def _as_matrix(frame: Frame, step: Step, width: int) -> tuple[Frame, np.ndarray, np.ndarray] | None:
    """(frame, rows, columns) such that its p are these rows of a product with ``width`` columns,
    and its d these columns.
    """
    if frame.rows or frame.scaled:
        return None
    size = math.prod(step.after) // step.parts
    numbers = frame.numbers(step.after)
    blocks = np.arange(step.parts)[:, None, None]
    if len(numbers) != step.parts or not (numbers // size == blocks).all():
        return None
    rows, columns = np.divmod(numbers % size, width)
    for turned in (False, True):
        if turned:
            rows, columns = rows.swapaxes(1, 2), columns.swapaxes(1, 2)
        if (rows == rows[:1, :, :1]).all() and (columns == columns[:1, :1]).all():
            return transposed(frame) if turned else frame, rows[0, :, 0], columns[0, 0]
    return None


def _product_of_formed(
    frame: Frame,
    step: Step,
    side: int,
    outer: Sequence[int],
    inner: int,
    matrix: Callable,
    opposite: Callable,
) -> Frame:
    """Where the gradient of the product was formed for each record: its rows are places that meet
    the right leaf.
    """
    s, _, _, _ = frame.shape

    def for_left(factors: Factors, leaves: Leaves) -> Factors:
        formed = factors.g.reshape(-1, s, *outer)
        g = jnp.einsum("msij,scj->msic", formed, opposite(leaves), precision=PRECISION)
        return factors._replace(g=g.reshape(-1, s, 1, outer[0] * inner))

    def for_right(factors: Factors, leaves: Leaves) -> Factors:
        formed = factors.g.reshape(-1, s, *outer)
        return Factors(
            jnp.broadcast_to(opposite(leaves), (len(formed), s, outer[0], inner)), formed
        )

    if side == 0:
        size = outer[0] * inner
        return frame.then(
            for_left,
            arrange=lambda array: matrix(array, 0).reshape(s, 1, size),
            shape=(s, 1, 1, size),
        )
    return frame.then(
        for_right, arrange=lambda array: matrix(array, 1), shape=(s, outer[0], inner, outer[1])
    )
