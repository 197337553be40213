"""Book-keeping: per-record gradient norms and clipped sums without per-record gradients.

Where a leaf of u enters one matrix product and nothing else, record i's gradient for it is a_i^T g_i: a_i is the product's
other operand, T rows for the T places where the record meets the leaf, and g_i the gradient of the loss at the product's
output. Both come out of one backward pass to a zero that is added to the output (a tap), so the norm costs O(p + d) instead
of O(p d), and the clipped sum of the whole minibatch is one matrix product, a^T diag(c) g. A leaf whose rows are looked up
by an index (an embedding, a group's coefficients) works alike, with the index in the place of a_i.

The taps are found in the jaxpr of the per-record loss. A leaf that is used twice, or in a way that is not known here, is
materialised: its per-record gradients are formed by vmap. So is a leaf that enters a function with a derivative of its own
(custom_jvp, custom_vjp): a tap inside would replace that derivative by another.

The idea, for layers of a network: Goodfellow 2015 (arXiv 1510.01799); Rochette et al. 2019 (arXiv 1912.06015); Bu et al.
2022 (arXiv 2210.00038).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var
from jax.extend.core.primitives import dynamic_slice_p, gather_p

from workbench.inference._jaxprs import Environment, aval, evaluate, flat_jaxpr, is_literal

__all__ = ["Backward", "LeafRule", "Plan", "plan", "single", "without"]

Array = jax.Array

# a GPU's default precision (TF32) would let a clipped gradient exceed C by one part in a thousand
_PRECISION = lax.Precision.HIGHEST

_VIEWS = {"reshape", "transpose", "squeeze", "broadcast_in_dim", "expand_dims", "copy", "convert_element_type"}
_FEW_ROWS = 64  # up to here a one-hot matrix product sums rows faster than a scatter


class LeafRule(NamedTuple):
    """How book-keeping treats a leaf of u; a row of the table that ``explain=True`` returns.

    :param leaf: where it stands in u. :param shape: its shape. :param rule: "outer product", "Gram matrix", "rows" or
        "materialised". :param reason: why. :param bytes: held for it, for one record.
    """

    leaf: str
    shape: tuple[int, ...]
    rule: str
    reason: str
    bytes: int


class _Use(NamedTuple):
    """Where a leaf enters: equation ``place`` of the flat jaxpr (None: its result), as operand ``side``, after views."""

    place: int | None
    side: int
    chain: tuple[JaxprEqn, ...]


class _Tap(NamedTuple):
    """A tapped leaf's one use and the rule for it."""

    place: int
    side: int
    chain: tuple[JaxprEqn, ...]
    rule: LeafRule


class Backward(NamedTuple):
    """One backward pass over a minibatch of M records.

    :param small: leaf number -> float[M, *shape], per-record gradients of materialised leaves.
    :param factors: leaf number -> (a: float[M, T, p] or row numbers int[M, T], g: float[M, T, d]) of tapped leaves.
    """

    small: dict[int, Array]
    factors: dict[int, tuple[Array, Array]]

    def without(self, left_out: Array) -> Backward:
        """The same with zeros for the records in ``left_out``, bool[M]: zero times infinity is not zero."""
        return without(self, left_out)


def without(tree: Any, left_out: Array) -> Any:
    """A pytree of arrays with first axis M, with zeros where ``left_out``, bool[M], says so."""

    def emptied(array: Array) -> Array:
        return jnp.where(left_out.reshape(-1, *[1] * (array.ndim - 1)), jnp.zeros((), array.dtype), array)

    return jax.tree.map(emptied, tree)


def _contracted(left: Array, right: Array) -> Array:
    """left^T right, over the rows; one column on either side makes it a product of vector and matrix."""
    if left.shape[1] == 1:
        return jnp.matmul(left[:, 0], right, precision=_PRECISION)[None]
    if right.shape[1] == 1:
        return jnp.matmul(right[:, 0], left, precision=_PRECISION)[:, None]
    return lax.dot_general(left, right, (((0,), (0,)), ((), ())), precision=_PRECISION)


def _loss_jaxpr(loss: Callable, leaves: Sequence[Any], treedef: Any, record: Any) -> ClosedJaxpr:
    """The flat jaxpr of loss(u, record)."""
    record_leaves, record_treedef = jax.tree.flatten(record)

    def flat(*arguments: Any) -> Any:
        u = jax.tree.unflatten(treedef, arguments[: len(leaves)])
        return loss(u, jax.tree.unflatten(record_treedef, arguments[len(leaves) :]))

    return flat_jaxpr(flat, *leaves, *record_leaves)


def _is_view(equation: JaxprEqn) -> bool:
    """Does the equation only arrange its one operand's entries anew?"""
    if equation.primitive.name not in _VIEWS:
        return False
    before, after = aval(equation.invars[0]), aval(equation.outvars[0])
    return len(equation.invars) == 1 and before.size == after.size and before.dtype == after.dtype


class _Uses:
    """Where each leaf ends up, through views: a list of (place, side, chain), place None for the loss itself."""

    def __init__(self, jaxpr: Jaxpr, num_leaves: int) -> None:
        self.leaf_of: dict[Var, tuple[int, tuple[JaxprEqn, ...]]] = {
            variable: (number, ()) for number, variable in enumerate(jaxpr.invars[:num_leaves])
        }
        self.of_leaf: list[list[_Use]] = [[] for _ in range(num_leaves)]
        for place, equation in enumerate(jaxpr.eqns):
            for side, atom in enumerate(equation.invars):
                if is_literal(atom) or atom not in self.leaf_of:
                    continue
                number, chain = self.leaf_of[atom]
                if _is_view(equation):
                    self.leaf_of[equation.outvars[0]] = (number, (*chain, equation))
                else:
                    self.of_leaf[number].append(_Use(place, side, chain))
        for atom in jaxpr.outvars:
            if not is_literal(atom) and atom in self.leaf_of:
                number, chain = self.leaf_of[atom]
                self.of_leaf[number].append(_Use(None, 0, chain))


def _dense_sizes(equation: JaxprEqn, side: int) -> tuple[int, int, int]:
    """(T, p, d) of a matrix product whose operand ``side`` is the leaf: places, inputs, outputs."""
    leaf, other = aval(equation.invars[side]), aval(equation.invars[1 - side])
    p = math.prod(leaf.shape[axis] for axis in equation.params["dimension_numbers"][0][side])
    return (other.size // p, p, leaf.size // p) if p else (0, 0, 0)


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


def _rule(uses: _Uses, jaxpr: Jaxpr, number: int, name: str) -> tuple[LeafRule, _Tap | None]:
    """The rule for leaf ``number``, and its tap if it gets one."""
    leaf = aval(jaxpr.invars[number])
    width = max(leaf.dtype.itemsize, 4)

    def materialised(reason: str) -> tuple[LeafRule, None]:
        return LeafRule(name, leaf.shape, "materialised", reason, leaf.size * width), None

    found = uses.of_leaf[number]
    if not found:
        return materialised("the loss does not depend on it")
    if len(found) > 1:
        return materialised(f"used {len(found)} times")
    ((place, side, chain),) = found
    if place is None:
        return materialised("is the loss itself")
    equation = jaxpr.eqns[place]

    def tapped(rule: str, reason: str, held: int) -> tuple[LeafRule, _Tap]:
        row = LeafRule(name, leaf.shape, rule, reason, held)
        return row, _Tap(place, side, chain, row)

    others = [atom for position, atom in enumerate(equation.invars) if position != side]
    if any(not is_literal(atom) and atom in uses.leaf_of for atom in others):
        return materialised("meets another leaf")
    if equation.primitive.name == "dot_general" and not equation.params["dimension_numbers"][1][0]:
        t, p, d = _dense_sizes(equation, side)
        held = t * (p + d) * width
        if t == 1:
            return tapped("outer product", f"one place, {p} x {d}", held)
        if 0 < 2 * t * t <= p * d:
            return tapped("Gram matrix", f"{t} places, {p} x {d}", held + 2 * t * t * width)
        return materialised(f"cheaper: {t} places, {p} x {d}")
    if _looks_up_rows(equation, side):
        d = math.prod(leaf.shape[1:])
        t = aval(equation.outvars[0]).size // max(d, 1)
        if t == 1 or 0 < 2 * t * t <= leaf.size:
            return tapped("rows", f"{t} of {leaf.shape[0]} rows", t * (d + 1) * width)
        return materialised(f"cheaper: {t} of {leaf.shape[0]} rows")
    return materialised(f"enters {equation.primitive.name}")


@dataclass(frozen=True)
class Plan:
    """What ``plan`` found: the flat jaxpr of the per-record loss, the taps, and a table of rules.

    ``taps`` maps leaf numbers to taps; leaves that are not in it are materialised.
    """

    jaxpr: ClosedJaxpr
    num_leaves: int
    taps: dict[int, _Tap]
    rules: tuple[LeafRule, ...]

    def _tapped_loss(self, leaves: Sequence[Array], zeros: dict[int, Array], record: Sequence[Any]) -> tuple[Array, dict]:
        """The loss with ``zeros[leaf]`` added where the leaf enters, and what the leaf meets there."""
        environment = Environment(self.jaxpr, [*leaves, *record])
        tapped = {tap.place: (number, tap) for number, tap in self.taps.items()}
        met = {}
        for place, equation in enumerate(self.jaxpr.jaxpr.eqns):
            inputs = environment.read(equation.invars)
            outputs = evaluate(self.jaxpr.jaxpr, equation, inputs)
            if place in tapped:
                number, tap = tapped[place]
                met[number] = jnp.asarray(inputs[1 - tap.side])
                outputs = [outputs[0] + zeros[number]]
            environment.write(equation.outvars, outputs)
        (loss,) = environment.read(self.jaxpr.jaxpr.outvars)
        return loss, met

    def backward(self, leaves: Sequence[Array], records: Any) -> Backward:
        """One vmapped backward pass to the taps and the materialised leaves of ``records`` (first axis M)."""
        zeros = {}
        for number, tap in self.taps.items():
            output = aval(self.jaxpr.jaxpr.eqns[tap.place].outvars[0])
            zeros[number] = jnp.zeros(output.shape, output.dtype)
        small = {number: leaf for number, leaf in enumerate(leaves) if number not in self.taps}

        def one(small: dict[int, Array], zeros: dict[int, Array], record: Any) -> tuple[Array, dict]:
            everything = [small.get(number, leaf) for number, leaf in enumerate(leaves)]
            return self._tapped_loss(everything, zeros, jax.tree.leaves(record))

        gradient = jax.grad(one, argnums=(0, 1), has_aux=True)
        (gradients, cotangents), met = jax.vmap(lambda record: gradient(small, zeros, record))(records)
        factors = {number: self._factors(number, met[number], cotangents[number]) for number in self.taps}
        return Backward({number: single(leaf) for number, leaf in gradients.items()}, factors)

    def _factors(self, number: int, met: Array, cotangent: Array) -> tuple[Array, Array]:
        """a and g of a tapped leaf, from what it met (float or int[M, ...]) and the cotangent at its output."""
        tap = self.taps[number]
        equation = self.jaxpr.jaxpr.eqns[tap.place]
        leaf = aval(equation.invars[tap.side])
        size = cotangent.shape[0]
        if tap.rule.rule == "rows":
            g = single(cotangent).reshape(size, -1, math.prod(leaf.shape[1:]))
            rows = met.reshape(size, -1)
            if equation.primitive is dynamic_slice_p or equation.params["mode"] == lax.GatherScatterMode.CLIP:
                rows = jnp.clip(rows.astype(jnp.int32), 0, leaf.shape[0] - 1)
            inside = (rows >= 0) & (rows < leaf.shape[0])
            return rows.astype(jnp.int32), jnp.where(inside[..., None], g, 0)
        _, p, d = _dense_sizes(equation, tap.side)
        contracted = equation.params["dimension_numbers"][0]
        summed = contracted[1 - tap.side]
        # axes in the order in which the leaf's contracted axes ascend
        order = sorted(range(len(summed)), key=lambda axis: contracted[tap.side][axis])
        free = [axis for axis in range(met.ndim - 1) if axis not in summed]
        a = jnp.transpose(met, [0, *(1 + axis for axis in free), *(1 + summed[axis] for axis in order)])
        g = cotangent.reshape(size, -1, d) if tap.side == 1 else jnp.swapaxes(cotangent.reshape(size, d, -1), 1, 2)
        return single(a).reshape(size, -1, p), single(g)

    def squared_norms(self, backward: Backward) -> Array:
        """Squared l2 norm of each record's gradient over all leaves, float[M]; rounding may only enlarge it.

        Squares under the smallest normal number are flushed to zero, and a Gram matrix may cancel: both are made up for.
        """
        squares = [jnp.sum(jnp.square(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in backward.small.values()]
        squares += [self._squared_norm(self.taps[number].rule.rule, a, g) for number, (a, g) in backward.factors.items()]
        return functools.reduce(jnp.add, squares)

    @staticmethod
    def _squared_norm(rule: str, a: Array, g: Array) -> Array:
        lengths_g = _length(g)
        lengths = lengths_g if rule == "rows" else _length(a) * lengths_g
        if a.shape[1] == 1:
            return jnp.square(lengths[:, 0])
        if rule == "rows":
            overlap = (a[:, :, None] == a[:, None, :]).astype(g.dtype)
        else:
            overlap = jnp.einsum("mtp,msp->mts", a, a, precision=_PRECISION)
        gram = jnp.einsum("mtd,msd->mts", g, g, precision=_PRECISION)
        square = jnp.sum(overlap * gram, axis=(1, 2))
        slack = 4 * jnp.finfo(g.dtype).eps * jnp.square(jnp.sum(lengths, axis=1))
        return jnp.maximum(square, 0) + slack

    def weighted_sum(self, backward: Backward, weights: Array) -> list[Array]:
        """sum_i weights_i grad l_i for every leaf. Everything must be finite: ``Backward.without`` takes out what is not."""
        totals = []
        for number, variable in enumerate(self.jaxpr.jaxpr.invars[: self.num_leaves]):
            if number in self.taps:
                totals.append(self._tapped_sum(number, *backward.factors[number], weights))
            else:
                leaf = backward.small[number]
                summed = _contracted(weights.astype(leaf.dtype)[:, None], leaf.reshape(leaf.shape[0], -1))
                totals.append(summed.reshape(aval(variable).shape))
        return totals

    def _tapped_sum(self, number: int, a: Array, g: Array, weights: Array) -> Array:
        tap = self.taps[number]
        equation = self.jaxpr.jaxpr.eqns[tap.place]
        seen, leaf = aval(equation.invars[tap.side]), aval(self.jaxpr.jaxpr.invars[number])
        g = g * weights[:, None, None].astype(g.dtype)
        flat_g = g.reshape(-1, g.shape[-1])
        if tap.rule.rule == "rows":
            rows = a.reshape(-1)
            if seen.shape[0] <= _FEW_ROWS:
                chosen = (rows[:, None] == jnp.arange(seen.shape[0])).astype(g.dtype)
                total = _contracted(chosen, flat_g)
            else:
                total = jnp.zeros((seen.shape[0], flat_g.shape[1]), g.dtype).at[rows].add(flat_g, mode="drop")
            total = total.reshape(seen.shape)
        else:
            contracted = sorted(equation.params["dimension_numbers"][0][tap.side])
            free = [axis for axis in range(len(seen.shape)) if axis not in contracted]
            total = _contracted(a.reshape(-1, a.shape[-1]), flat_g)
            total = total.reshape([seen.shape[axis] for axis in (*contracted, *free)])
            total = jnp.transpose(total, [[*contracted, *free].index(axis) for axis in range(len(seen.shape))])
        return self._undo_views(tap.chain, leaf, total)

    def _undo_views(self, chain: tuple[JaxprEqn, ...], leaf: Any, total: Array) -> Array:
        for equation in reversed(chain):
            if equation.primitive.name == "transpose":
                permutation = equation.params["permutation"]
                total = jnp.transpose(total, [permutation.index(axis) for axis in range(len(permutation))])
            else:  # the other views keep the order of the entries
                total = total.reshape(aval(equation.invars[0]).shape)
        return total.reshape(leaf.shape)


def single(array: Array) -> Array:
    """Half precision cannot hold a norm to the accuracy that the bound needs."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _length(rows: Array) -> Array:
    """l2 norm over the last axis, never below the true one by underflow."""
    if rows.shape[-1] == 1:
        return jnp.abs(rows[..., 0])
    flushed = rows.shape[-1] * float(jnp.finfo(rows.dtype).tiny)
    return jnp.sqrt(jnp.sum(jnp.square(rows), axis=-1) + flushed)


def plan(loss: Callable[[Any, Any], Array], u: Any, record: Any) -> Plan:
    """Find the taps of ``loss(u, record)``.

    :param loss: loss of one record, a float scalar. :param u: pytree of float arrays (or their shapes and types).
    :param record: pytree of one record's arrays, or their shapes and types.
    """
    named, treedef = jax.tree_util.tree_flatten_with_path(u)
    leaves = [leaf for _, leaf in named]
    closed = _loss_jaxpr(loss, leaves, treedef, record)
    uses = _Uses(closed.jaxpr, len(leaves))
    rules = [_rule(uses, closed.jaxpr, number, jax.tree_util.keystr(path)) for number, (path, _) in enumerate(named)]
    taps = {number: tap for number, (_, tap) in enumerate(rules) if tap is not None}
    return Plan(closed, len(leaves), taps, tuple(rule for rule, _ in rules))
