"""Operations that are linear in a leaf, and what a record's gradient is made of there.

A linear use is one operation that is linear in a leaf, or in what is made of it (``_preparation``):
a matrix product, a convolution or a look-up of rows, maybe in the body of lax.scan. Seen from it
the leaf is an array of S matrices, p x d, and record i's gradient for each of them is a_i^T g_i:
a_i is the other operand with T rows, one for each place where the record meets the matrix, and g_i
the gradient of the loss at the operation's output. A convolution's rows are the patches that its
kernel sees, a look-up's the numbers of its rows. Steps of a scan that all use one leaf are places;
steps that each take their own part of a stacked leaf are among the S.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, JaxprEqn
from jax.extend.core.primitives import (
    conv_general_dilated_p,
    dot_general_p,
    dynamic_slice_p,
    gather_p,
    scan_p,
)

from workbench.clipping._frames import Frame, Leaves
from workbench.clipping._preparation import back_to_leaf
from workbench.clipping._uses import Use
from workbench.clipping.jaxprs import Environment, aval, evaluate, scan_again
from workbench.clipping.kernel_factors import Factors, single

__all__ = ["LinearUse", "linear_use_of", "run"]

Array = jax.Array


class LinearUse(NamedTuple):
    """A use that is linear in what is made of the leaf.

    :param frame: the leaf as the matrices that a record meets; without preparations those of the
        operation.
    """

    use: Use
    operation: _Operation
    frame: Frame

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(S, T, p, d) as above; p is the number of rows of the table where rows are looked up."""
        return self.frame.shape

    def factors(self, met: Array, cotangent: Array, leaves: Leaves, cache: dict) -> Factors:
        """What M records' gradients are made of: a, float[M, S, T, p] or numbers of rows int[M, S,
        T], and g, float[M, S, T, d].

        :param met: what the leaf met, :param cotangent: the gradient at the output; first axis M,
            then one for each scan.
        :param cache: every a that other uses of the same ``met`` have; it is filled. XLA computes
            with one array only once.
        """
        assert self.use.equation is not None
        factors = self.operation.factors(self.use, met, cotangent)
        how = (
            id(met),
            self.operation,
            self.use.side,
            self.use.stacked,
            str(self.use.equation.params),
        )
        factors = factors._replace(a=cache.setdefault(how, factors.a))
        for stage in self.frame.stages:
            factors = stage(factors, leaves)
        return factors


class _Operation(NamedTuple):
    """:param kind: "product", "convolution" or "rows". :param shape: (S, T, p, d)."""

    kind: str
    shape: tuple[int, int, int, int]

    def factors(self, use: Use, met: Array, cotangent: Array) -> Factors:
        """As ``LinearUse.factors``, of the operand."""
        axes = range(1, 1 + len(use.lengths))
        stacks = [axis for axis, apart in zip(axes, use.stacked, strict=True) if apart]
        turns = [axis for axis, apart in zip(axes, use.stacked, strict=True) if not apart]
        read = {"product": _product_factors, "convolution": _patches, "rows": _row_numbers}[
            self.kind
        ]
        a, g = read(self, use, met, cotangent, stacks, turns)
        size, (s, t, p, d) = met.shape[0], self.shape
        g = single(g.reshape(size, s, t, d))
        return Factors(
            a.reshape(size, s, t) if self.kind == "rows" else single(a.reshape(size, s, t, p)), g
        )

    def arrange(self, use: Use, leaf: Array) -> Array:
        """The operand as the operation's S matrices, [S, p, d]: a linear function, and a
        permutation of its entries.
        """
        equation, stacks = use.equation, sum(use.stacked)
        assert equation is not None
        order = list(range(leaf.ndim - stacks))
        if self.kind == "product":
            contracted, batch = _sides(equation, use.side)
            order = [
                *batch,
                *contracted,
                *(axis for axis in order if axis not in (*contracted, *batch)),
            ]
        elif self.kind == "convolution":
            outputs, inputs, *space = equation.params["dimension_numbers"].rhs_spec
            leaf = jnp.moveaxis(leaf, stacks + outputs, stacks)
            leaf = leaf.reshape(
                *leaf.shape[:stacks],
                equation.params["feature_group_count"],
                -1,
                *leaf.shape[stacks + 1 :],
            )
            later = [2 + axis - (axis > outputs) for axis in (*space, inputs)]
            order = [0, *later, 1]
        s, _, p, d = self.shape
        return jnp.transpose(leaf, [*range(stacks), *(stacks + axis for axis in order)]).reshape(
            s, p, d
        )


def linear_use_of(use: Use, leaves: Leaves) -> LinearUse | str:
    """``use`` as a linear use, or the reason why it is none. :param leaves: of u, or their shapes
    and types.
    """
    operation = None if use.problem else _operation(use)
    if operation is not None:
        frame = Frame(
            functools.partial(operation.arrange, use), operation.shape, operation.kind == "rows"
        )
        leaf_frame = back_to_leaf(frame, use.steps, leaves, use.lengths)
        if leaf_frame is not None:
            return LinearUse(use, operation, leaf_frame)
    if use.first or use.problem:
        return use.first or use.problem
    assert use.equation is not None
    return f"enters {use.equation.primitive.name}"


def _operation(use: Use) -> _Operation | None:
    equation = use.equation
    assert equation is not None
    turns = math.prod(
        length for length, apart in zip(use.lengths, use.stacked, strict=True) if not apart
    )
    stacks = math.prod(
        length for length, apart in zip(use.lengths, use.stacked, strict=True) if apart
    )
    leaf = aval(equation.invars[use.side])
    if equation.primitive is dot_general_p:
        (contracted, batch), operand = (
            _sides(equation, use.side),
            aval(equation.invars[1 - use.side]),
        )
        p, s = (math.prod(leaf.shape[axis] for axis in axes) for axes in (contracted, batch))
        if p * s:
            return _Operation(
                "product", (stacks * s, turns * (operand.size // (p * s)), p, leaf.size // (p * s))
            )
    if (
        equation.primitive is conv_general_dilated_p
        and use.side == 1
        and equation.params["batch_group_count"] == 1
    ):
        spec, groups = (
            equation.params["dimension_numbers"].rhs_spec,
            equation.params["feature_group_count"],
        )
        outputs, result = leaf.shape[spec[0]], aval(equation.outvars[0])
        if leaf.size:
            shape = (
                stacks * groups,
                turns * (result.size // outputs),
                leaf.size // outputs,
                outputs // groups,
            )
            return _Operation("convolution", shape)
    if _looks_up_rows(equation, use.side):
        d = math.prod(leaf.shape[1:])
        return _Operation(
            "rows",
            (stacks, turns * (aval(equation.outvars[0]).size // max(d, 1)), leaf.shape[0], d),
        )
    return None


def _sides(equation: JaxprEqn, side: int) -> tuple[Sequence[int], Sequence[int]]:
    """(contracted axes, batch axes) of one operand of a dot_general."""
    contracted, batch = equation.params["dimension_numbers"]
    return contracted[side], batch[side]


def _looks_up_rows(equation: JaxprEqn, side: int) -> bool:
    """Does the equation look up whole rows of its operand, whose number is one of the indices?"""
    leaf = aval(equation.invars[side])
    if side != 0 or leaf.ndim < 1:
        return False
    row = (1, *leaf.shape[1:])
    if equation.primitive is dynamic_slice_p:
        return tuple(equation.params["slice_sizes"]) == row
    if equation.primitive is not gather_p:
        return False
    numbers = equation.params["dimension_numbers"]
    return (
        tuple(equation.params["slice_sizes"]) == row
        and tuple(numbers.collapsed_slice_dims) in ((0,), ())
        and 0 in numbers.start_index_map
        and not numbers.operand_batching_dims
    )


# --- evaluating with zeros added ------------------------------------------------------------------


def run(
    closed: ClosedJaxpr,
    arguments: Sequence[Any],
    taps: dict[tuple[int, ...], Array],
    sides: dict,
    path: tuple[int, ...] = (),
) -> tuple[list[Any], dict[tuple[int, ...], Array]]:
    """Evaluate a jaxpr with zeros, the taps, added to the results of some of its equations.

    :return: (results, what the leaves met).
    :param taps: by path, of the result's shape, with an axis for each scan in front.
    :param sides: which operand is the leaf, of the equations whose other operand is wanted. What it
        met has the axes of the scans too.
    """
    environment = Environment(closed, arguments)
    met = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        inputs = environment.read(equation.invars)
        here = (*path, index)
        within = {key: tap for key, tap in taps.items() if key[: len(here)] == here}
        if within and equation.primitive is scan_p:
            outputs, inner_met = scan_again(
                equation, inputs, functools.partial(run, sides=sides, path=here), within
            )
            met.update(inner_met)
        else:
            outputs = evaluate(closed.jaxpr, equation, inputs)
            if within:
                if here in sides:
                    met[here] = jnp.asarray(inputs[1 - sides[here]])
                outputs = [outputs[0] + taps[here]]
        environment.write(equation.outvars, outputs)
    return environment.read(closed.jaxpr.outvars), met


# --- what a record's gradient is made of ----------------------------------------------------------


def _product_factors(
    operation: _Operation,
    use: Use,
    met: Array,
    cotangent: Array,
    stacks: list[int],
    turns: list[int],
) -> tuple[Array, Array]:
    equation, side, depth = use.equation, use.side, 1 + len(use.lengths)
    assert equation is not None
    contracted, batch = _sides(equation, 1 - side)
    operand, leaf = aval(equation.invars[1 - side]), aval(equation.invars[side])
    free = [axis for axis in range(operand.ndim) if axis not in (*contracted, *batch)]
    a = jnp.transpose(
        met,
        [
            0,
            *stacks,
            *_later(depth, batch),
            *turns,
            *_later(depth, free),
            *_later(depth, contracted),
        ],
    )
    # the result has the batch axes first, then those of the left operand, then those of the right
    # one
    of_leaf = leaf.ndim - len(contracted) - len(batch)
    begin = len(batch) if side == 0 else len(batch) + len(free)
    mine = range(begin, begin + of_leaf)
    free_axes = [
        axis for axis in range(len(batch), len(batch) + len(free) + of_leaf) if axis not in mine
    ]
    positions = [*turns, *_later(depth, free_axes)]
    g = jnp.transpose(
        cotangent, [0, *stacks, *_later(depth, range(len(batch))), *positions, *_later(depth, mine)]
    )
    return a, g


def _later(depth: int, axes: Sequence[int]) -> list[int]:
    return [depth + axis for axis in axes]


def _patches(
    operation: _Operation,
    use: Use,
    met: Array,
    cotangent: Array,
    stacks: list[int],
    turns: list[int],
) -> tuple[Array, Array]:
    """The patches of the images that the kernel sees, [..., places, kernel's entries of space,
    inputs], and g.
    """
    equation, depth = use.equation, 1 + len(use.lengths)
    assert equation is not None
    params = equation.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    images, channels, *space = numbers.lhs_spec
    x = jnp.transpose(met, [0, *stacks, *turns, *_later(depth, [images, *space, channels])])
    padding = [
        (*pad, dilation - 1)
        for pad, dilation in zip(params["padding"], params["lhs_dilation"], strict=True)
    ]
    a = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (depth + 1) + padding + [(0, 0, 0)])
    kernel, result = aval(equation.invars[1]).shape, aval(equation.outvars[0]).shape
    of_images, outputs, *of_space = numbers.out_spec
    widths = [kernel[axis] for axis in numbers.rhs_spec[2:]]
    extents = [result[axis] for axis in of_space]
    windows = list(zip(extents, params["window_strides"], params["rhs_dilation"], strict=True))
    # axis by axis: of a 3 x 3 kernel 6 slices instead of 9, which compile in two thirds of the time
    for axis in reversed(range(len(space))):
        extent, stride, dilation = windows[axis]
        firsts = [dilation * offset for offset in range(widths[axis])]
        stop = (extent - 1) * stride + 1
        slices = [
            lax.slice_in_dim(a, first, first + stop, stride, depth + 1 + axis) for first in firsts
        ]
        # in the end [M, stacks, turns, images, space, kernel, channels]
        a = jnp.stack(slices, depth + 1 + len(space))
    a = a.reshape(*a.shape[:-1], groups, a.shape[-1] // groups)
    a = jnp.moveaxis(a, -2, 1 + len(stacks))
    g = jnp.transpose(
        cotangent, [0, *stacks, *turns, *_later(depth, [of_images, *of_space, outputs])]
    )
    g = g.reshape(*g.shape[:-1], groups, g.shape[-1] // groups)
    return a, jnp.moveaxis(g, -2, 1 + len(stacks))


def _row_numbers(
    operation: _Operation,
    use: Use,
    met: Array,
    cotangent: Array,
    stacks: list[int],
    turns: list[int],
) -> tuple[Array, Array]:
    """The numbers of the rows, [..., places], and g, which is zero where a number is that of no
    row.
    """
    equation, depth = use.equation, 1 + len(use.lengths)
    assert equation is not None
    _, _, p, d = operation.shape
    order = [0, *stacks, *turns]
    if equation.primitive is dynamic_slice_p:
        rows = jnp.transpose(met, order).reshape(met.shape[0], -1)
        clips, within, axes = True, jnp.ones((), bool), [*range(cotangent.ndim - depth)]
    else:
        numbers = equation.params["dimension_numbers"]
        clips = equation.params["mode"] == lax.GatherScatterMode.CLIP
        met = jnp.transpose(met, [*order, *range(depth, met.ndim)]).reshape(
            met.shape[0], -1, len(numbers.start_index_map)
        )
        rows = met[..., numbers.start_index_map.index(0)]
        # rows are whole, so that along other axes all but the first number reach beyond the end
        within = jnp.all((met == 0) | (jnp.array(numbers.start_index_map) == 0), axis=-1)
        batch = [axis for axis in range(cotangent.ndim - depth) if axis not in numbers.offset_dims]
        axes = [*batch, *numbers.offset_dims]
    g = jnp.transpose(cotangent, [*order, *_later(depth, axes)]).reshape(met.shape[0], -1, d)
    if clips:
        return jnp.clip(rows.astype(jnp.int32), 0, p - 1), g
    inside = within & (rows >= 0) & (rows < p)
    return rows.astype(jnp.int32), jnp.where(inside[..., None], g, 0)
