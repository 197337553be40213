"""The sum of clipped per-record gradients: the one place where records meet the parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench import _validate
from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.clipping import bookkeeping, kernel_factors, whole_sums
from workbench.clipping.bookkeeping import LeafRule
from workbench.clipping.lanes import in_any_lane
from workbench.clipping.separation import require_separate
from workbench.clipping.whole_sums import Bound, Grid
from workbench.noise.mechanism import CLIPPINGS

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "STRATEGIES",
    "Explanation",
    "Strategy",
    "check_clipping",
    "choose_strategy",
    "clipped_sum",
    "is_by_record",
    "shape_of_one",
]

Loss = Callable[[Any, Any], jax.Array]

# float32 rounding of norm, factor and product stays under this, so that a clipped gradient never
# exceeds C
_SAFETY = np.float32(1 - 4e-6)

# Bu, Wang, Zha and Karypis 2023 (arXiv 2206.07136): what automatic clipping adds to the norm that
# it divides by
_STABILITY = 0.01


class _Clipped(NamedTuple):
    total: Any
    norms: jax.Array


@dataclass(frozen=True)
class Explanation:
    """How a strategy would treat each leaf of u. Printed, it is a table.

    :param strategy: the strategy that would run. :param num_records: M. :param rows: one
        ``LeafRule`` a leaf, its bytes those of the whole minibatch.
    """

    strategy: str
    num_records: int
    rows: tuple[LeafRule, ...]

    @property
    def bytes(self) -> int:
        """Bytes held for per-record quantities of all leaves."""
        return sum(row.bytes for row in self.rows)

    def __str__(self) -> str:
        """The table, with a line on top, and below it what could be written instead for large
        leaves.
        """
        cells = [("leaf", "shape", "rule", "bytes", "why")]
        cells += [
            (row.leaf, str(row.shape), row.rule, f"{row.bytes:,}", row.reason) for row in self.rows
        ]
        widths = [max(len(row[column]) for row in cells) for column in range(5)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        advice = [f"{row.leaf}: {row.advice}." for row in self.rows if row.advice]
        return "\n".join(
            [
                f"strategy {self.strategy}, minibatch of {self.num_records}, {self.bytes:,} bytes",
                *lines,
                *advice,
            ]
        )


def clipped_sum(
    loss: Loss,
    u: PyTree,
    records: PyTree,
    mask: jax.Array,
    clip: float | jax.Array,
    strategy: str = "auto",
    *,
    clipping: str = "flat",
    rules: Mapping[str, str] | None = None,
    num_records: int | None = None,
    explain: bool = False,
) -> Any:
    """sum_i mask_i clip_C(grad_u loss(u, record_i)) and the norms before clipping.

    Each record's gradient is scaled to an l2 norm (over all leaves of u together) of at most C;
    shorter ones pass unchanged up to a factor 1 - 4e-6 that keeps floating-point rounding below C.
    So adding or removing one record moves the sum by at most C, replacing one by at most 2 C,
    whichever ``clipping`` is chosen, apart from the rounding of the sum itself: its terms are at
    most C each (64 C in all where a record's terms for one leaf cancel), in float32 at least,
    whatever the precision of loss and parameters. A step of DP-VI adds up whole numbers instead,
    and its noise pays for rounding; noise that is added to this sum has holes (Mironov 2012). A
    record whose gradient has a NaN or infinite entry contributes zero, and so does padding (mask
    False). An empty minibatch gives zeros.

    >>> loss = lambda u, record: 0.5 * ((u - record) ** 2).sum()
    >>> records, mask = np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([True, True])
    >>> total, norms = wb.clipping.clipped_sum(loss, np.zeros(2), records, mask, clip=1.0)
    >>> np.allclose(total, [-0.6 - 0.3, -0.8 - 0.4]), norms.tolist()
    (True, [5.0, 0.5])

    :param loss: ``loss(u, record) -> scalar`` for one record (leaves of ``records`` without their
        first axis). Any JAX function that calls nothing outside JAX and has no rule for many
        records at once (custom_vmap, say); it need not come from NumPyro. It must not use other
        records: the caller answers for what it closes over.
    :param u: pytree of float arrays.
    :param records: pytree of arrays with a first axis of length M.
    :param mask: bool[M], False on padding.
    :param clip: C >= 1e-12 (``inf`` switches flat clipping off: no guarantee then).
    :param strategy: how the same result is reached:
        "bookkeeping" takes norms and sum from one backward pass, without per-record gradients of
        the leaves that enter linear operations (``bookkeeping``); "vmap" materialises M gradients
        (Subramani et al. 2021); "loop" goes one record at a time; "auto" is vmap where book-keeping
        would form M gradients of every leaf too, and no faster, else book-keeping. The choice
        depends on shapes and types alone, M among them.
    :param clipping: how a record's gradient g is scaled:
        "flat" by ``min(1, C / |g|)`` (Abadi et al. 2016);
        "automatic" by ``C / (|g| + 0.01)``, which makes nearly all norms C, so that C only scales
        the learning rate (Bu et al. 2023, arXiv 2206.07136); "per_leaf" each of the L leaves of u
        by min(1, (C / sqrt(L)) / its own norm), so that together they keep C (McMahan et al. 2018,
        arXiv 1710.06963).
    :param rules: ``{leaf: rule}`` for book-keeping, where another than the chosen one is wanted: as
        ``explain`` names both.
    :param num_records: how many records there are in all, where ``records`` are some of them; M by
        default. Arrays with an axis of that length which ``loss`` closes over are refused as
        records.
    :param explain: compute nothing and return an ``Explanation``: a table of leaf, shape, rule,
        bytes. ``u``, ``records`` and ``mask`` may then be ``jax.ShapeDtypeStruct``.
    :return: (pytree like u, in float32 at least, float[M] norms). The norms come from records
        without noise: never release them.
    :raises ArgumentError: for an unknown strategy, clipping or rule, a clip out of range, or leaves
        of u that are not floating-point.
    :raises PrivacyModelError: if ``loss`` may see other records or show its own (``separation``).
    """
    check_clipping(clipping, strategy, rules)
    if not isinstance(clip, jax.Array) and not (clip == math.inf and clipping == "flat"):
        _validate.number("clip", clip, at_least=SMALLEST_CLIP, at_most=LARGEST_CLIP)
    for path, leaf in jax.tree_util.tree_flatten_with_path(u)[0]:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise _validate.ArgumentError(
                f"u{jax.tree_util.keystr(path)}", leaf, "must hold floating-point numbers."
            )
    if explain:
        return _explanation(loss, u, records, mask.shape[0], strategy, rules)
    u, records, mask = jax.tree.map(jnp.asarray, (u, records, mask))
    require_separate(
        loss, u, shape_of_one(records), mask.shape[0] if num_records is None else num_records
    )
    chosen = choose_strategy(
        loss, u, shape_of_one(records), mask.shape[0], strategy, clipping, rules
    )
    clipped = chosen.sum_of(records, mask, clip, None)
    return clipped.total, clipped.norms


class Strategy(NamedTuple):
    """A strategy for one loss, minibatch and clipping.

    :param sum_of: ``sum_of(records, mask bool[M], C, grid)`` is the clipped sum; in whole numbers
        if there is a grid.
    :param bound: how far arithmetic moves it.
    """

    sum_of: Callable[[Any, jax.Array, Any, Grid | None], _Clipped]
    bound: Bound


def choose_strategy(
    loss: Loss,
    u: PyTree,
    record: PyTree,
    size: int,
    strategy: str,
    clipping: str,
    rules: Mapping[str, str] | None,
) -> Strategy:
    """:param record: shapes and types of one record. :param size: M."""
    plan = None
    if strategy in ("auto", "bookkeeping"):
        plan = bookkeeping.plan(loss, u, record, rules, size)
        strategy = _settled(strategy, plan)
    of: Callable[..., _Clipped]
    if plan is not None and strategy == "bookkeeping":
        of, bound = functools.partial(_bookkeeping, plan), plan.bound(size)
    else:
        of, at_once = (_loop, 1) if strategy == "loop" else (_vmap, size)
        bound = whole_sums.combined(
            kernel_factors.bound_of_formed(leaf.size, at_once) for leaf in jax.tree.leaves(u)
        )

    def sum_of(
        records: PyTree, mask: jax.Array, clip: float | jax.Array, grid: Grid | None
    ) -> _Clipped:
        return of(loss, u, records, mask, functools.partial(_WEIGHTS[clipping], clip), grid)

    return Strategy(sum_of, bound)


def is_by_record(strategy: str) -> bool:
    """Whether each record is computed and rounded to whole numbers by itself, wherever in a
    minibatch it is.

    Then deleting a row moves the sum as leaving its place empty does. Other strategies compute many
    records at once, and round sums of blocks of them: which block a record is in follows from how
    many there are before it.
    """
    return strategy == "loop"


def check_clipping(clipping: str, strategy: str, rules: Mapping[str, str] | None = None) -> None:
    """:raises ArgumentError: naming ``clipping``, ``strategy`` or ``rules``: no such one, or they
    do not go together.
    """
    if isinstance(strategy, str) and strategy == "two_pass":
        raise _validate.ArgumentError(
            "strategy",
            strategy,
            "was removed: its second backward pass rounded differently from the norms, so it did "
            "not keep C. Omit strategy, or use 'bookkeeping', which is faster.",
        )
    _validate.choice("strategy", strategy, STRATEGIES)
    _validate.choice("clipping", clipping, CLIPPINGS)
    if not isinstance(rules, Mapping | None):
        raise _validate.ArgumentError("rules", rules, "must be a mapping of leaves to rules.")
    for rule in (rules or {}).values():
        _validate.choice("rules", rule, bookkeeping.RULES)
    if rules and strategy in ("vmap", "loop"):
        raise _validate.ArgumentError(
            "rules", dict(rules), f"apply only to book-keeping, not to strategy {strategy!r}."
        )


class _Weights(NamedTuple):
    """What each record's gradient is multiplied by, and its norm over all leaves, float[M].

    :param of_leaf: float[M] for each leaf of u.
    """

    of_leaf: Sequence[jax.Array]
    norms: jax.Array


# weigh(mask bool[M], [squared norms float[M] for each leaf])
Weigh = Callable[[jax.Array, Sequence[jax.Array]], _Weights]


def _norm(squares: Sequence[jax.Array]) -> jax.Array:
    return jnp.sqrt(functools.reduce(jnp.add, squares))


def _shortened(
    norms: jax.Array, counted: jax.Array, limit: float | np.floating | jax.Array
) -> jax.Array:
    """min(1, limit / norm) made a little smaller, zero where not ``counted``."""
    limit = limit * _SAFETY
    factors = jnp.where(norms > limit, limit / jnp.where(counted & (norms > 0), norms, 1), _SAFETY)
    return _if_normal(jnp.where(counted, factors, 0))


def _if_normal(factors: jax.Array) -> jax.Array:
    """Zero for a factor so small that it may have been rounded far up: its record is 2^100 C long
    and more.
    """
    return jnp.where(factors < 2.0**-100, 0, factors)


def _flat(clip: float | jax.Array, mask: jax.Array, squares: Sequence[jax.Array]) -> _Weights:
    norms = _norm(squares)
    return _Weights([_shortened(norms, mask & jnp.isfinite(norms), clip)] * len(squares), norms)


def _automatic(clip: float | jax.Array, mask: jax.Array, squares: Sequence[jax.Array]) -> _Weights:
    norms = _norm(squares)
    counted = mask & jnp.isfinite(norms)
    factors = jnp.where(counted, clip * _SAFETY / (jnp.where(counted, norms, 1) + _STABILITY), 0)
    factors = jnp.minimum(factors, jnp.finfo(factors.dtype).max)  # 0 * inf is NaN
    return _Weights([_if_normal(factors)] * len(squares), norms)


def _per_leaf(clip: float | jax.Array, mask: jax.Array, squares: Sequence[jax.Array]) -> _Weights:
    norms = _norm(squares)
    counted, limit = mask & jnp.isfinite(norms), clip / math.sqrt(len(squares))
    return _Weights([_shortened(jnp.sqrt(square), counted, limit) for square in squares], norms)


_WEIGHTS = {"flat": _flat, "automatic": _automatic, "per_leaf": _per_leaf}


def shape_of_one(records: PyTree) -> Any:
    """Shapes and types of one record."""
    return jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape[1:], array.dtype), records)


def _settled(strategy: str, plan: bookkeeping.Plan) -> str:
    """The strategy that runs."""
    if strategy != "auto":
        return strategy
    return "vmap" if plan.forms_all else "bookkeeping"


def _explanation(
    loss: Loss,
    u: PyTree,
    records: PyTree,
    size: int,
    strategy: str,
    rules: Mapping[str, str] | None,
) -> Explanation:
    plan = bookkeeping.plan(loss, u, shape_of_one(records), rules, size)
    strategy = _settled(strategy, plan)
    rows = list(plan.rules)
    if strategy in ("vmap", "loop"):
        leaves = [(row, math.prod(row.shape) * 4) for row in rows]
        rows = [
            row._replace(rule="materialised", reason=strategy, bytes=width, advice="")
            for row, width in leaves
        ]
    at_once = 1 if strategy == "loop" else size
    return Explanation(
        strategy, size, tuple(row._replace(bytes=row.bytes * at_once) for row in rows)
    )


def _bookkeeping(
    plan: bookkeeping.Plan,
    loss: Loss,
    u: PyTree,
    records: PyTree,
    mask: jax.Array,
    weigh: Weigh,
    grid: Grid | None,
) -> _Clipped:
    leaves, treedef = jax.tree.flatten(u)
    backward = _computed_once(mask, plan.backward(leaves, records))
    weights = weigh(mask, plan.squared_norms(backward))
    sound = _where_sound(weights.norms, backward, bookkeeping.Backward.without)
    return _Clipped(
        jax.tree.unflatten(treedef, plan.weighted_sum(sound, weights.of_leaf, grid)), weights.norms
    )


def _vmap(
    loss: Loss, u: PyTree, records: PyTree, mask: jax.Array, weigh: Weigh, grid: Grid | None
) -> _Clipped:
    gradients = _computed_once(
        mask, kernel_factors.single(jax.vmap(jax.grad(loss), in_axes=(None, 0))(u, records))
    )
    leaves, treedef = jax.tree.flatten(gradients)
    weights = weigh(mask, [kernel_factors.squares_of(leaf) for leaf in leaves])
    sound = _where_sound(weights.norms, leaves, kernel_factors.without)
    total = [
        kernel_factors.weighted(leaf, leaf_weights, grid)
        for leaf, leaf_weights in zip(sound, weights.of_leaf, strict=True)
    ]
    return _Clipped(jax.tree.unflatten(treedef, total), weights.norms)


def _computed_once(mask: jax.Array, values: PyTree) -> Any:
    """``values``, a pytree of arrays, such that all who read it read the same numbers; of no use
    where mask is False.

    XLA may evaluate an expression again wherever it is used, and join a product and a sum to one
    operation (FMA) in one of these places only. Where large terms cancel, the gradient that was
    measured would then be another than the one that is summed, which was seen to move the sum by
    417 C. What a loop carries lies in memory, once; this loop takes no turn where a record counts,
    and the barrier keeps XLA from knowing that beforehand: ``optimization_barrier`` around the
    gradients themselves does not do it on CPUs. (A branch that computes them does, but its step
    takes up to three times as long.)
    """
    no_record_counts = lax.optimization_barrier(~in_any_lane(jnp.any(mask)))
    return _carried(no_record_counts, lambda values: jax.tree.map(jnp.negative, values), values)


def _where_sound(norms: jax.Array, values: PyTree, without: Callable[[Any, jax.Array], Any]) -> Any:
    """``values`` if all gradients are finite, as they nearly always are, else ``without(values,
    those that are not)``.

    A loop of one turn at most changes them where they lie. A branch would have to hold all that
    comes after, for its results are copies otherwise, and that would be compiled twice.
    """
    broken = ~jnp.isfinite(norms)
    return _carried(in_any_lane(jnp.any(broken)), lambda values: without(values, broken), values)


def _carried(needed: jax.Array, change: Callable[[Any], Any], values: PyTree) -> Any:
    """``values``, carried by a loop that takes its one turn, ``change(values)``, if ``needed``.
    Whole numbers stay out.
    """
    leaves, treedef = jax.tree.flatten(values)
    indices: dict[int, int] = {}
    for index, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            indices.setdefault(id(leaf), index)  # one array once

    def assembled(arrays: Sequence[jax.Array]) -> Any:
        by_id = dict(zip(indices, arrays, strict=True))
        return jax.tree.unflatten(treedef, [by_id.get(id(leaf), leaf) for leaf in leaves])

    def turn(carried: tuple[jax.Array, list[jax.Array]]) -> tuple[jax.Array, list[jax.Array]]:
        changed = jax.tree.leaves(change(assembled(carried[1])))
        return jnp.zeros_like(carried[0]), [changed[index] for index in indices.values()]

    start = needed, [leaves[index] for index in indices.values()]
    return assembled(lax.while_loop(lambda carried: carried[0], turn, start)[1])


def _loop(
    loss: Loss, u: PyTree, records: PyTree, mask: jax.Array, weigh: Weigh, grid: Grid | None
) -> _Clipped:
    def one(total: list[jax.Array], index: jax.Array) -> tuple[list[jax.Array], jax.Array]:
        record = jax.tree.map(lambda array: array[index], records)
        gradient = _computed_once(
            mask[index], jax.tree.leaves(kernel_factors.single(jax.grad(loss)(u, record)))
        )
        weights = weigh(
            mask[index][None], [kernel_factors.squares_of(leaf[None]) for leaf in gradient]
        )
        clipped = [
            jnp.where(leaf_weights[0] != 0, leaf * leaf_weights[0].astype(leaf.dtype), 0)
            for leaf, leaf_weights in zip(gradient, weights.of_leaf, strict=True)
        ]
        if grid is not None:
            clipped = [grid.rounded(leaf) for leaf in clipped]
        return [sum_ + leaf for sum_, leaf in zip(total, clipped, strict=True)], weights.norms[0]

    start = [
        jnp.zeros_like(leaf, None if grid is None else jnp.int32)
        for leaf in jax.tree.leaves(kernel_factors.single(u))
    ]
    total, norms = lax.scan(one, start, jnp.arange(mask.shape[0]))
    return _Clipped(jax.tree.unflatten(jax.tree.structure(u), total), norms)


STRATEGIES = ("auto", "bookkeeping", "vmap", "loop")
