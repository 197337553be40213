"""From what is made of a leaf back to the leaf: how a record's gradient for the one follows from
that for the other.

Let W be made of a leaf, and W meet a record in a linear operation, so that record i's gradient for
W is a_i^T g_i. No record enters on the way from the leaf to W, so the gradient for the leaf is that
for W times one Jacobian for all records. Step by step back it keeps its form: a part of a joined
kernel takes its columns of g_i, a scale for each column is a scale of g_i, and where W = B A, the
gradients for A and B are (a_i B)^T g_i and a_i^T (g_i A^T). A scale for each entry (a mask) stays
next to the factors: (a_i^T g_i) * D. Where the form is lost, the gradient is formed for each
record.

What is done here is done before norms are taken, so norms and sums are of the same numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.clipping._frames import Frame, Leaves, Step, all_formed, one_place, transposed
from workbench.clipping._products import product
from workbench.clipping._uses import ENTRYWISE, STACKED, Preparation, Value, View, viewed
from workbench.clipping.jaxprs import aval, evaluate
from workbench.clipping.kernel_factors import PRECISION, Factors, single

__all__ = ["back_to_leaf"]

Array = jax.Array


def back_to_leaf(
    frame: Frame, steps: Sequence[Any], leaves: Leaves, lengths: tuple[int, ...]
) -> Frame | None:
    """The frame of a leaf, from that of the operand which ``steps`` make of it; None where there is
    no rule.

    :param lengths: of the scans around the operation.
    """
    last = len(steps)
    for index in reversed(range(-1, len(steps))):
        step = steps[index] if index >= 0 else None
        if step is not None and not isinstance(step, Preparation):
            continue
        depth = sum(earlier is STACKED for earlier in steps[: index + 1])
        views = steps[index + 1 : last]
        if views:
            frame = frame._replace(
                arrange=functools.partial(_arranged_through, frame.arrange, views, depth)
            )
        if step is not None:
            scanned = Step(step, leaves, lengths)
            turns = [operand.apart for operand in step.operands]
            if scanned.apart != tuple(any(levels) for levels in zip(*turns, strict=True)):
                return None  # what it meets differs from turn to turn, and the leaf does not
            before = _RULES.get(step.equation.primitive.name, _entrywise)(frame, scanned)
            if before is None:
                return None
            frame = before
        last = index
    return frame


def _arranged_through(
    arrange: Callable[[Array], Array], views: Sequence[Any], depth: int, array: Array
) -> Array:
    return arrange(viewed(array, views, depth))


# --- functions of entries -------------------------------------------------------------------------


def _slope(step: Step, leaves: Leaves) -> Array:
    """The derivative of each entry of the result in the same entry of the leaf."""
    made = step.made
    arrays = [step.spread(operand.array(leaves), operand) for operand in made.operands]

    def slope(*arrays: Array) -> Array:
        def result(leaf: Array) -> Array:
            operands = [leaf if side in made.sides else array for side, array in enumerate(arrays)]
            return evaluate(made.jaxpr, made.equation, operands)[0]

        leaf = jnp.broadcast_to(arrays[made.sides[0]], aval(made.equation.outvars[0]).shape)
        return jax.jvp(result, (leaf,), (jnp.ones_like(leaf),))[1]

    return step.vmapped(slope)(*arrays)


def _entrywise(frame: Frame, step: Step) -> Frame | None:
    if step.made.equation.primitive.name not in ENTRYWISE:
        return None
    scaled = _scaled(frame, step)
    return scaled if step.before == step.after else _copied(scaled, step, step.stretched)


def _scaled(frame: Frame, step: Step) -> Frame:
    def scale(leaves: Leaves) -> Array:
        return single(frame.arrange(_slope(step, leaves)))

    if frame.rows:
        return frame.then(lambda factors, leaves: factors.times_rows(scale(leaves)))
    same_p, same_d = _same_along(frame, step)
    if same_p:
        return frame.then(
            lambda factors, leaves: factors._replace(g=factors.g * scale(leaves)[:, 0][:, None])
        )
    if same_d:
        return frame.then(
            lambda factors, leaves: factors._replace(a=factors.a * scale(leaves)[:, :, 0][:, None])
        )
    return frame.then(lambda factors, leaves: factors.scaled_by(scale(leaves)), scaled=True)


def _same_along(frame: Frame, step: Step) -> tuple[bool, bool]:
    """Is the slope the same along all p, and along all d, whatever the values?"""
    _, _, p, d = frame.shape
    made, name = step.made, step.made.equation.primitive.name
    is_sum = name in ("add", "add_any", "sub", "neg")
    is_linear = (name == "mul" and len(made.sides) == 1) or (name == "div" and made.sides == (0,))
    along_p = along_d = True
    for side, operand in enumerate(made.operands):
        if not (is_sum or (is_linear and side in made.sides)):
            numbers = _numbers_of(operand, step)
            with jax.ensure_compile_time_eval():
                matrices = np.asarray(frame.arrange(step.stretched(numbers)))
            along_p &= bool((matrices == matrices[:, :1]).all())
            along_d &= bool((matrices == matrices[:, :, :1]).all())
    return along_p or p == 1, along_d or d == 1


def _numbers_of(value: Value, step: Step) -> Array:
    """An int array like ``value``, whose entries are equal where those of ``value`` are one entry
    of what it was made of.
    """
    chain, root = [], value
    while (
        root.equation is not None
        and root.equation.primitive.name in _COPIES
        and len(root.operands) == 1
    ):
        chain.append(root)
        (root,) = root.operands
    shape = jax.eval_shape(root.array, list(step.leaves)).shape
    with jax.ensure_compile_time_eval():
        numbers = jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)
        for link in reversed(chain):
            assert link.equation is not None
            assert link.jaxpr is not None
            numbers = viewed(
                numbers, [View(link.equation, link.jaxpr, link.position)], sum(link.apart)
            )
        return step.spread(numbers, value)


_COPIES = {
    "reshape",
    "transpose",
    "squeeze",
    "broadcast_in_dim",
    "copy",
    "slice",
    "split",
}


# --- parts of a joined array ----------------------------------------------------------------------


def _joined(frame: Frame, step: Step) -> Frame | None:
    equation, (side,) = step.made.equation, step.made.sides
    stacks = equation.primitive.name == "stack"
    axis = equation.params["axis" if stacks else "dimension"]
    widths = [1 if stacks else aval(atom).shape[axis] for atom in equation.invars]
    margins = sum(widths[:side]), sum(widths[side + 1 :])

    def padded(array: Array) -> Array:
        array = jnp.expand_dims(array, axis) if stacks else array
        around = [
            (*margins, 0) if dimension == axis else (0, 0, 0) for dimension in range(array.ndim)
        ]
        return lax.pad(array, jnp.zeros((), array.dtype), around)

    def unrestricted(array: Array) -> Array:
        return frame.arrange(step.vmapped(padded)(array))

    with jax.ensure_compile_time_eval():
        inside = np.asarray(unrestricted(jnp.ones(step.before, jnp.int32))) > 0
    axes = [np.flatnonzero(inside.any(axis=other_axes)) for other_axes in ((1, 2), (0, 2), (0, 1))]
    if not inside.any() or not inside[np.ix_(*axes)].all():
        return None
    matrices, rows, columns = map(_selected, axes)
    if frame.rows and not isinstance(rows, slice):
        return None

    def arrange(array: Array) -> Array:
        return unrestricted(array)[matrices][:, rows][:, :, columns]

    def select(factors: Factors, leaves: Leaves) -> Factors:
        return factors.part(matrices, rows, columns)

    s, p, d = (len(indices) for indices in axes)
    return frame.then(select, arrange=arrange, shape=(s, frame.shape[1], p, d))


def _selected(indices: np.ndarray) -> Any:
    """The places as a slice where they follow one another."""
    if len(indices) and np.array_equal(indices, np.arange(indices[0], indices[0] + len(indices))):
        return slice(int(indices[0]), int(indices[0]) + len(indices))
    return indices


# --- sums and copies along axes -------------------------------------------------------------------


def _copied(frame: Frame, step: Step, copy: Callable[[Array], Array]) -> Frame | None:
    """A smaller array whose entries ``copy`` repeats: its gradient is summed over the copies."""
    if frame.rows:
        return None

    def arrange(array: Array) -> Array:
        return frame.arrange(copy(array))

    numbers = frame._replace(arrange=arrange).numbers(step.before)
    for turned in (False, True):
        repeated = numbers.swapaxes(1, 2) if turned else numbers
        s, p, d = repeated.shape
        # that follow one another along p
        copies = int(np.argmax(repeated[0, :, 0] != repeated[0, 0, 0])) or p
        blocks = repeated.reshape(s, -1, copies, d) if p % copies == 0 else repeated[:, None]
        which = blocks[:, :, 0].reshape(s, -1)
        if not (blocks == blocks[:, :, :1]).all() or len(np.unique(which)) < which.size:
            continue

        def summed(
            factors: Factors,
            leaves: Leaves,
            turned: bool = turned,
            blocks: tuple[int, ...] = blocks.shape,
        ) -> Factors:
            a, g, scale = factors.turned() if turned else factors
            a = a.reshape(*a.shape[:-1], *blocks[1:3])
            if scale is None:
                lengths = jnp.sum(a, axis=-1, keepdims=True)
            else:
                lengths = jnp.einsum(
                    "mstnb,snbd->mstnd", a, scale.reshape(blocks), precision=PRECISION
                )
            return one_place(jnp.sum(lengths * g[..., None, :], axis=2).reshape(*a.shape[:2], -1))

        chosen = lambda array, which=which: jnp.take(array.reshape(-1), which)[:, None]  # noqa: E731
        return frame.then(summed, arrange=chosen, shape=(s, 1, 1, which.shape[1]), scaled=False)
    return all_formed(frame, arrange, step.before, step.parts)


def _broadcast(frame: Frame, step: Step) -> Frame | None:
    return _copied(frame, step, step.vmapped(View(step.made.equation, step.made.jaxpr, 0).__call__))


def _summed(frame: Frame, step: Step) -> Frame | None:
    """A larger array that is summed over axes: each of its entries has the gradient of its sum."""
    axes = step.made.equation.params["axes"]
    remaining = [axis for axis in range(len(step.before) - len(step.turns)) if axis not in axes]
    size = math.prod(step.after) // step.parts
    if not math.prod(step.before):
        return None
    placed = (
        frame
        if frame.shape[2] == 1
        else transposed(frame)
        if frame.shape[3] == 1 and not frame.rows
        else None
    )
    if placed is None or frame.rows or frame.scaled:
        placed = all_formed(frame, frame.arrange, step.after, step.parts)
        if placed is None:
            return None
    numbers = placed.numbers(step.after)[:, 0]
    if (
        len(numbers) != step.parts
        or not (numbers == numbers[0] + size * np.arange(step.parts)[:, None]).all()
    ):
        return None
    shape = step.before[len(step.turns) :]
    # of one sum of all, the last axis is taken for the columns, as a product takes it
    width = shape[-1] if size == 1 and len(shape) > 1 else 1
    many = math.prod(shape) // size // width

    def arrange(array: Array) -> Array:
        ordered = step.vmapped(
            lambda entries: jnp.transpose(entries, [*axes, *remaining]).reshape(many, size * width)
        )(array)
        ordered = ordered.reshape(step.parts, many, size * width)
        return ordered if width > 1 else ordered[:, :, numbers[0]]

    def repeated(factors: Factors, leaves: Leaves) -> Factors:
        g = jnp.repeat(factors.g * factors.a, width, axis=-1)
        return Factors(jnp.ones((*g.shape[:-1], many), g.dtype), g)

    s, t, _, d = placed.shape
    return placed.then(repeated, arrange=arrange, shape=(s, t, many, d * width))


_RULES = {
    "concatenate": _joined,
    "stack": _joined,
    "dot_general": product,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": _summed,
}
