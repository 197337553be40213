"""Where leaves enter a jaxpr, and what a record's gradient is made of there.

A linear use is one operation that is linear in a leaf: a matrix product, a convolution or a look-up of rows, maybe in the
body of lax.scan. Seen from it the leaf is an array of S matrices, p x d, and record i's gradient for each of them is
a_i^T g_i: a_i is the other operand with T rows, one for each place where the record meets the matrix, and g_i the gradient
of the loss at the operation's output. A convolution's rows are the patches that its kernel sees, a look-up's the numbers of
its rows. Steps of a scan that all use one leaf are places; steps that each take their own part of a stacked leaf are among
the S.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p, dynamic_slice_p, gather_p, scan_p

from workbench.inference._jaxprs import Environment, aval, evaluate, scan_again, scan_counts

__all__ = ["LinearUse", "Use", "entries", "factors", "linear_use_of", "run", "uses_of"]

Array = jax.Array

_VIEWS = {"reshape", "transpose", "squeeze", "broadcast_in_dim", "expand_dims", "copy", "convert_element_type"}
_PARTS = {"slice", "split"}  # views of some of the entries
# Of this many entries a kernel's patches are read in one pass; XLA is slow at choosing among more operands (an 8 x 8 kernel
# took three times as long), and reading them axis by axis costs memory.
_ENTRIES_AT_ONCE = 9
_STACKED = None  # in a list of steps: from here on, each turn of a scan sees its own part


class Use(NamedTuple):
    """One place where a leaf enters.

    :param path: places of the scans around it, outermost first, and of the equation itself.
    :param equation: None where the leaf is a result. :param side: which operand the leaf is.
    :param steps: (view, number of its result) from leaf to operand, with None where a scan is entered that takes it apart.
    :param lengths: of the scans. :param stacked: which of the scans take the leaf apart.
    :param problem: why book-keeping cannot follow it; "" where it can.
    """

    path: tuple[int, ...]
    equation: JaxprEqn | None
    side: int
    steps: tuple[Any, ...]
    lengths: tuple[int, ...]
    stacked: tuple[bool, ...]
    problem: str = ""


class LinearUse(NamedTuple):
    """A use that is linear in the leaf. :param kind: "product", "convolution" or "rows".

    :param shape: (S, T, p, d) as above; p is the number of rows of the table where rows are looked up.
    """

    use: Use
    kind: str
    shape: tuple[int, int, int, int]

    def seen(self, leaf: Array) -> Array:
        """The leaf as the operation's S matrices, [S, p, d]: a linear function, and a permutation of the entries it uses."""
        equation, stacks = self.use.equation, sum(self.use.stacked)
        assert equation is not None
        leaf = _viewed(leaf, self.use.steps)
        order = list(range(leaf.ndim - stacks))
        if self.kind == "product":
            contracted, batch = _sides(equation, self.use.side)
            order = [*batch, *contracted, *(axis for axis in order if axis not in (*contracted, *batch))]
        elif self.kind == "convolution":
            outputs, inputs, *space = equation.params["dimension_numbers"].rhs_spec
            leaf = jnp.moveaxis(leaf, stacks + outputs, stacks)
            leaf = leaf.reshape(*leaf.shape[:stacks], equation.params["feature_group_count"], -1, *leaf.shape[stacks + 1 :])
            later = [2 + axis - (axis > outputs) for axis in (*space, inputs)]
            order = [0, *later, 1]
        s, _, p, d = self.shape
        return jnp.transpose(leaf, [*range(stacks), *(stacks + axis for axis in order)]).reshape(s, p, d)


def _viewed(leaf: Array, steps: Sequence[Any]) -> Array:
    depth = 0
    for step in steps:
        if step is _STACKED:
            depth += 1
            continue
        equation, jaxpr, place = step
        one = functools.partial(_result, jaxpr, equation, place)
        for _ in range(depth):
            one = jax.vmap(one)
        leaf = one(leaf)
    return leaf


def _result(jaxpr: Jaxpr, equation: JaxprEqn, place: int, operand: Array) -> Array:
    return evaluate(jaxpr, equation, [operand])[place]


# --- finding them -----------------------------------------------------------------------------------------------------


def uses_of(jaxpr: Jaxpr, num_leaves: int) -> list[list[Use]]:
    """The uses of each of the first ``num_leaves`` arguments of a flat jaxpr, through views and into scans."""
    found: list[list[Use]] = [[] for _ in range(num_leaves)]
    _walk(jaxpr, {variable: (number, ()) for number, variable in enumerate(jaxpr.invars[:num_leaves])}, found)
    return found


def _is_view(equation: JaxprEqn) -> bool:
    """Does the equation only arrange its one operand's entries anew, or take some of them?"""
    if len(equation.invars) != 1:
        return False
    before, after = aval(equation.invars[0]), [aval(variable) for variable in equation.outvars]
    if any(result.dtype != before.dtype for result in after):
        return False
    name = equation.primitive.name
    return name in _PARTS or (name in _VIEWS and after[0].size == before.size)


def _walk(
    jaxpr: Jaxpr,
    leaf_of: dict[Var, tuple[int, tuple[Any, ...]]],
    found: list[list[Use]],
    path: tuple[int, ...] = (),
    lengths: tuple[int, ...] = (),
    stacked_for: dict[int, tuple[bool, ...]] | None = None,
) -> None:
    stacked_for = stacked_for or {}
    for place, equation in enumerate(jaxpr.eqns):
        known = [leaf_of.get(atom) if isinstance(atom, Var) else None for atom in equation.invars]
        hits = [(side, *entry) for side, entry in enumerate(known) if entry is not None]
        if not hits:
            continue
        if _is_view(equation):
            ((_, number, steps),) = hits
            for result, variable in enumerate(equation.outvars):
                leaf_of[variable] = (number, (*steps, (equation, jaxpr, result)))
            continue
        here, carried = (*path, place), set()
        if equation.primitive is scan_p:
            constants, carries = scan_counts(equation)
            body = equation.params["jaxpr"].jaxpr
            inner: dict[Var, tuple[int, tuple[Any, ...]]] = {}
            inner_stacked: dict[int, set[bool]] = {}
            carried = {side for side, *_ in hits if constants <= side < constants + carries}
            for side, number, steps in hits:
                if side not in carried:
                    is_stacked = side >= constants
                    inner[body.invars[side]] = (number, (*steps, _STACKED) if is_stacked else steps)
                    inner_stacked.setdefault(number, set()).add(is_stacked)
            if all(len(ways) == 1 for ways in inner_stacked.values()):
                ways = {number: (*stacked_for.get(number, ()), *way) for number, way in inner_stacked.items()}
                _walk(body, inner, found, here, (*lengths, equation.params["length"]), ways)
                hits = [hit for hit in hits if hit[0] in carried]
        for side, number, steps in hits:
            others = [entry for position, entry in enumerate(known) if position != side and entry is not None]
            problem = (
                "" if equation.primitive is not scan_p else "is what scan carries" if side in carried else "enters scan"
            )
            if not problem and others:
                problem = "meets another leaf" if any(other[0] != number for other in others) else "meets itself"
            found[number].append(Use(here, equation, side, steps, lengths, stacked_for.get(number, ()), problem))
    for atom in jaxpr.outvars:
        if isinstance(atom, Var) and atom in leaf_of:
            number, steps = leaf_of[atom]
            problem = "leaves scan as it is" if path else "is the loss itself"
            found[number].append(Use(path, None, 0, steps, lengths, stacked_for.get(number, ()), problem))


def linear_use_of(use: Use) -> LinearUse | str:
    """``use`` as a linear use, or the reason why it is none."""
    equation = use.equation
    if use.problem or equation is None:
        return use.problem
    turns = math.prod(length for length, apart in zip(use.lengths, use.stacked, strict=True) if not apart)
    stacks = math.prod(length for length, apart in zip(use.lengths, use.stacked, strict=True) if apart)
    leaf = aval(equation.invars[use.side])
    if equation.primitive is dot_general_p:
        (contracted, batch), other = _sides(equation, use.side), aval(equation.invars[1 - use.side])
        p, s = (math.prod(leaf.shape[axis] for axis in axes) for axes in (contracted, batch))
        if p * s:
            return LinearUse(use, "product", (stacks * s, turns * (other.size // (p * s)), p, leaf.size // (p * s)))
    if equation.primitive is conv_general_dilated_p and use.side == 1 and equation.params["batch_group_count"] == 1:
        spec, groups = equation.params["dimension_numbers"].rhs_spec, equation.params["feature_group_count"]
        outputs, result = leaf.shape[spec[0]], aval(equation.outvars[0])
        if leaf.size:
            shape = (stacks * groups, turns * (result.size // outputs), leaf.size // outputs, outputs // groups)
            return LinearUse(use, "convolution", shape)
    if _looks_up_rows(equation, use.side):
        d = math.prod(leaf.shape[1:])
        return LinearUse(use, "rows", (stacks, turns * (aval(equation.outvars[0]).size // max(d, 1)), leaf.shape[0], d))
    return f"enters {equation.primitive.name}"


def _sides(equation: JaxprEqn, side: int) -> tuple[Sequence[int], Sequence[int]]:
    """(contracted axes, batch axes) of one operand of a dot_general."""
    contracted, batch = equation.params["dimension_numbers"]
    return contracted[side], batch[side]


def _looks_up_rows(equation: JaxprEqn, side: int) -> bool:
    leaf = aval(equation.invars[side])
    if side != 0 or leaf.ndim < 1:
        return False
    row = (1, *leaf.shape[1:])
    if equation.primitive is dynamic_slice_p:
        return tuple(equation.params["slice_sizes"]) == row
    if equation.primitive is not gather_p:
        return False
    numbers = equation.params["dimension_numbers"]
    batch = aval(equation.invars[1]).ndim - 1
    return (
        tuple(equation.params["slice_sizes"]) == row
        and tuple(numbers.collapsed_slice_dims) == (0,)
        and tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(numbers.offset_dims) == tuple(range(batch, batch + leaf.ndim - 1))
    )


# --- evaluating with zeros added --------------------------------------------------------------------------------------


def run(
    closed: ClosedJaxpr,
    arguments: Sequence[Any],
    taps: dict[tuple[int, ...], Array],
    sides: dict,
    path: tuple[int, ...] = (),
) -> tuple[list[Any], dict[tuple[int, ...], Array]]:
    """(results, what the leaves met): ``closed`` on ``arguments``, with ``taps[path]`` added to the equation at that path.

    :param taps: arrays of the equations' results, with an axis for each scan around in front.
    :param sides: which operand of each of these equations is the leaf. What it met has the axes of the scans too.
    """
    environment = Environment(closed, arguments)
    met = {}
    for place, equation in enumerate(closed.jaxpr.eqns):
        inputs = environment.read(equation.invars)
        here = (*path, place)
        within = {key: tap for key, tap in taps.items() if key[: len(here)] == here}
        if within and equation.primitive is scan_p:
            outputs, seen = scan_again(equation, inputs, functools.partial(run, sides=sides, path=here), within)
            met.update(seen)
        else:
            outputs = evaluate(closed.jaxpr, equation, inputs)
            if within:
                met[here] = jnp.asarray(inputs[1 - sides[here]])
                outputs = [outputs[0] + taps[here]]
        environment.write(equation.outvars, outputs)
    return environment.read(closed.jaxpr.outvars), met


# --- what a record's gradient is made of --------------------------------------------------------------------------------


def factors(linear_use: LinearUse, met: Array, cotangent: Array) -> tuple[Array, Array]:
    """a (float[M, S, T, p], or numbers of rows int[M, S, T]) and g (float[M, S, T, d]) of a linear use, for M records.

    :param met: what the leaf met, :param cotangent: the gradient at the output; first axis M, then one for each scan.
    """
    use = linear_use.use
    axes = range(1, 1 + len(use.lengths))
    stacks = [axis for axis, apart in zip(axes, use.stacked, strict=True) if apart]
    turns = [axis for axis, apart in zip(axes, use.stacked, strict=True) if not apart]
    read = {"product": _product_factors, "convolution": _patches, "rows": _row_numbers}[linear_use.kind]
    a, g = read(linear_use, met, cotangent, stacks, turns)
    size, (s, t, p, d) = met.shape[0], linear_use.shape
    return a.reshape(size, s, t, p) if linear_use.kind != "rows" else a.reshape(size, s, t), g.reshape(size, s, t, d)


def _product_factors(
    linear_use: LinearUse, met: Array, cotangent: Array, stacks: list[int], turns: list[int]
) -> tuple[Array, Array]:
    equation, side, depth = linear_use.use.equation, linear_use.use.side, 1 + len(linear_use.use.lengths)
    assert equation is not None
    contracted, batch = _sides(equation, 1 - side)
    other, leaf = aval(equation.invars[1 - side]), aval(equation.invars[side])
    free = [axis for axis in range(other.ndim) if axis not in (*contracted, *batch)]
    a = jnp.transpose(met, [0, *stacks, *_later(depth, batch), *turns, *_later(depth, free), *_later(depth, contracted)])
    # the result has the batch axes first, then those of the left operand, then those of the right one
    of_leaf = leaf.ndim - len(contracted) - len(batch)
    begin = len(batch) if side == 0 else len(batch) + len(free)
    mine = range(begin, begin + of_leaf)
    others = [axis for axis in range(len(batch), len(batch) + len(free) + of_leaf) if axis not in mine]
    places = [*turns, *_later(depth, others)]
    g = jnp.transpose(cotangent, [0, *stacks, *_later(depth, range(len(batch))), *places, *_later(depth, mine)])
    return a, g


def _later(depth: int, axes: Sequence[int]) -> list[int]:
    return [depth + axis for axis in axes]


def _patches(
    linear_use: LinearUse, met: Array, cotangent: Array, stacks: list[int], turns: list[int]
) -> tuple[Array, Array]:
    """The patches of the images that the kernel sees, [..., places, kernel's entries of space, inputs], and g."""
    equation, depth = linear_use.use.equation, 1 + len(linear_use.use.lengths)
    assert equation is not None
    params = equation.params
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    images, channels, *space = numbers.lhs_spec
    x = jnp.transpose(met, [0, *stacks, *turns, *_later(depth, [images, *space, channels])])
    padding = [(*pad, dilation - 1) for pad, dilation in zip(params["padding"], params["lhs_dilation"], strict=True)]
    a = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (depth + 1) + padding + [(0, 0, 0)])
    kernel, result = aval(equation.invars[1]).shape, aval(equation.outvars[0]).shape
    of_images, outputs, *of_space = numbers.out_spec
    widths = [kernel[axis] for axis in numbers.rhs_spec[2:]]
    extents = [result[axis] for axis in of_space]
    ways = list(zip(extents, params["window_strides"], params["rhs_dilation"], strict=True))
    axes = range(len(space))
    stages = [axes] if math.prod(widths) <= _ENTRIES_AT_ONCE else [[axis] for axis in reversed(axes)]
    for stage in stages:
        seen = []
        for offsets in itertools.product(*(range(widths[axis]) for axis in stage)):
            seen.append(a)
            for axis, offset in zip(stage, offsets, strict=True):
                extent, stride, dilation = ways[axis]
                first = offset * dilation
                last = first + (extent - 1) * stride + 1
                seen[-1] = lax.slice_in_dim(seen[-1], first, last, stride, depth + 1 + axis)
        a = jnp.stack(seen, depth + 1 + len(space))  # [M, stacks, turns, images, space, kernel, channels]
    a = a.reshape(*a.shape[:-1], groups, a.shape[-1] // groups)
    a = jnp.moveaxis(a, -2, 1 + len(stacks))
    g = jnp.transpose(cotangent, [0, *stacks, *turns, *_later(depth, [of_images, *of_space, outputs])])
    g = g.reshape(*g.shape[:-1], groups, g.shape[-1] // groups)
    return a, jnp.moveaxis(g, -2, 1 + len(stacks))


def _row_numbers(
    linear_use: LinearUse, met: Array, cotangent: Array, stacks: list[int], turns: list[int]
) -> tuple[Array, Array]:
    """The numbers of the rows, [..., places], and g, which is zero where a number is that of no row."""
    equation = linear_use.use.equation
    assert equation is not None
    _, _, p, d = linear_use.shape
    order = [0, *stacks, *turns]
    g = jnp.transpose(cotangent, [*order, *range(len(order), cotangent.ndim)])
    rows = jnp.transpose(met, [*order, *range(len(order), met.ndim)])
    g = g.reshape(met.shape[0], -1, d)
    rows = rows.reshape(met.shape[0], -1)
    if equation.primitive is dynamic_slice_p or equation.params["mode"] == lax.GatherScatterMode.CLIP:
        rows = jnp.clip(rows.astype(jnp.int32), 0, p - 1)
    inside = (rows >= 0) & (rows < p)
    return rows.astype(jnp.int32), jnp.where(inside[..., None], g, 0)


def entries(linear_use: LinearUse, shape: tuple[int, ...]) -> np.ndarray:
    """Which entry of the leaf of ``shape`` each entry of ``linear_use.seen`` is, int[S, p, d]."""
    with jax.ensure_compile_time_eval():
        return np.asarray(linear_use.seen(jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape)))
