"""Book-keeping: per-record gradient norms and clipped sums without per-record gradients.

Where a leaf of u enters one linear operation (``_linear_uses``), record i's gradient for it is
a_i^T g_i: a_i is the operation's other operand, T rows for the T places where the record meets the
leaf, and g_i the gradient of the loss at the operation's output. Both come out of one backward pass
to a zero that is added to the output (a tap), so a norm over one place costs O(p + d) instead of
O(p d), and the clipped sum of the whole minibatch is one matrix product, a^T diag(c) g. With many
places it is cheaper to form a_i^T g_i for each record, still without differentiating for each
record separately. A leaf that enters several times (tied weights) is treated as one with the places
of all, so that what crosses between them counts.

These operations are found in the jaxpr of the per-record loss, also where no record enters what is
made of a leaf before it meets one (``_preparation``). A leaf that enters in any other way is
materialised: its per-record gradients are formed by vmap. So is a leaf that enters a function with
its own derivative (custom_jvp, custom_vjp): a tap inside would replace that derivative by another.

The idea, for layers of a network: Goodfellow 2015 (arXiv 1510.01799); Rochette et al. 2019 (arXiv
1912.06015); Lee and Kifer 2021 (arXiv 2009.03106) for recurrent nets and attention; Bu et al. 2022
(arXiv 2210.00038).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from workbench import _validate
from workbench.clipping import _choice, _linear_uses, kernel_factors, whole_sums
from workbench.clipping._linear_uses import LinearUse
from workbench.clipping._uses import Preparation, Use, uses_of
from workbench.clipping.jaxprs import aval, flat_jaxpr
from workbench.clipping.kernel_factors import Factors
from workbench.clipping.whole_sums import Bound, Grid

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["RULES", "Backward", "LeafRule", "Plan", "plan"]

Array = jax.Array

OUTER, GRAM, ROWS, FORMED, MATERIALISED = (
    "outer product",
    "Gram matrix",
    "rows",
    "instantiated",
    "materialised",
)
RULES = (OUTER, GRAM, ROWS, FORMED, MATERIALISED)


# what to write instead, by what stands in the way of a large leaf
_ADVICE = {
    "enters custom_jvp_call": "apply a function with its own derivative (jax.nn.softplus, say) to "
    "what a record makes of the leaf, not to the leaf; or write it with jax.numpy's functions",
    "enters custom_vjp_call": "apply a function with its own derivative to what a record makes of "
    "the leaf, not to the leaf",
    "enters mul": "scale what the record gives or gets, (x * s) @ W, instead of the leaf by "
    "something of the record",
    "enters cond": "choose between results, jnp.where(flag, x @ V, x @ W), instead of between "
    "kernels",
    "enters while": "write the loop with jax.lax.scan, over a fixed number of turns",
    "enters scan": "give the scan the leaf either whole or in parts, not both",
    "is what scan carries": "let the body of the scan close over the leaf instead of carrying it",
    "share some of its entries": "use all of the leaf, or parts of it that do not overlap, or two "
    "leaves",
}
_LARGE = 4096  # entries of a leaf for which advice is given
# Two of eight experts, 64 x 128: the plain gradient took 6 ms as gathered and 2 ms so, the clipped
# sum 34 and 2 ms.
_OF_MATRICES = (
    "multiply by all matrices, then look up results, jnp.einsum('p,kpd->kd', x, W)[chosen]"
)


class LeafRule(NamedTuple):
    """How book-keeping treats a leaf of u; a row of the table that ``explain=True`` returns.

    :param leaf: its path in u. :param shape: its shape. :param rule: one of ``RULES``: "outer
        product" (one place), "Gram matrix" (norms from products between places, never a gradient),
        "rows" (looked up), "instantiated" (the record's gradient as one matrix product),
        "materialised" (the record's gradient by vmap).
    :param reason: why. :param bytes: held for it, for one record. :param advice: what to write
        instead, of a large leaf that is materialised or whose matrices are looked up; "" if nothing
        is known.
    """

    leaf: str
    shape: tuple[int, ...]
    rule: str
    reason: str
    bytes: int
    advice: str = ""


class _Group(NamedTuple):
    """Linear uses that use the same entries of a leaf, as the same matrices or as their transposes,
    with the rule for them.

    :param turned: for each linear use whether a and g change places.
    """

    linear_uses: tuple[LinearUse, ...]
    turned: tuple[bool, ...]
    rule: str

    def factors(
        self, pairs: Sequence[tuple[Array, Array]], leaves: Sequence[Array], cache: dict[Any, Array]
    ) -> list[Factors]:
        """Factors of the linear uses. :param pairs: what the leaf met and the gradient at the
        output, of each use.
        """
        unturned = [
            use.factors(*pair, leaves, cache)
            for use, pair in zip(self.linear_uses, pairs, strict=True)
        ]
        return [
            factors.turned() if turn else factors
            for factors, turn in zip(unturned, self.turned, strict=True)
        ]


class Backward(NamedTuple):
    """One backward pass over a minibatch of M records.

    :param small: leaf number -> float[M, *shape], per-record gradients of materialised leaves.
    :param formed: (leaf number, group) -> float[M, S, p, d], those that were formed from a and g.
    :param factors: (leaf number, group) -> factors of its linear uses.
    """

    small: dict[int, Array]
    formed: dict[tuple[int, int], Array]
    factors: dict[tuple[int, int], list[Factors]]

    def without(self, left_out: Array) -> Backward:
        """The same with zeros for the records in ``left_out``, bool[M]; multiplying by 0 would not
        do, as 0 * inf is NaN.
        """
        small, formed = kernel_factors.without((self.small, self.formed), left_out)
        return Backward(
            small,
            formed,
            {
                key: [factor.without(left_out) for factor in factors]
                for key, factors in self.factors.items()
            },
        )


# --- rules ----------------------------------------------------------------------------------------


def _loss_jaxpr(
    loss: Callable, leaves: Sequence[Any], treedef: jax.tree_util.PyTreeDef, record: PyTree
) -> ClosedJaxpr:
    """The flat jaxpr of loss(u, record)."""
    record_leaves, record_treedef = jax.tree.flatten(record)

    def flat(*arguments: Array) -> Any:
        u = jax.tree.unflatten(treedef, arguments[: len(leaves)])
        return loss(u, jax.tree.unflatten(record_treedef, arguments[len(leaves) :]))

    return flat_jaxpr(flat, *leaves, *record_leaves)


def _grouped(
    linear_uses: Sequence[LinearUse], shape: tuple[int, ...]
) -> list[tuple[list[LinearUse], list[bool]]] | None:
    """Linear uses by the entries of the leaf that they use; None where two share some but not all,
    or in another order.
    """
    if len(linear_uses) == 1:
        return [([linear_uses[0]], [False])]
    groups: list[tuple[np.ndarray, list[LinearUse], list[bool]]] = []
    for linear_use in sorted(
        linear_uses, key=lambda linear_use: not linear_use.frame.rows
    ):  # a table's rows are its first axis, whatever follows
        entries = linear_use.frame.numbers(shape)
        for group_entries, members, turned in groups:
            turn = next(
                (
                    turn
                    for turn, oriented in enumerate((entries, entries.swapaxes(1, 2)))
                    if _equal(oriented, group_entries)
                ),
                None,
            )
            if turn is not None and not (turn and linear_use.frame.rows):
                members.append(linear_use)
                turned.append(bool(turn))
                break
            if np.intersect1d(group_entries, entries).size:
                return None
        else:
            groups.append((entries, [linear_use], [False]))
    return [(members, turned) for _, members, turned in groups]


def _equal(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and bool(np.array_equal(first, second))


def _size(linear_uses: Sequence[LinearUse]) -> tuple[int, int, int, int]:
    """(S, T, p, d) of a group."""
    s, _, p, d = linear_uses[0].shape
    return s, sum(linear_use.shape[1] for linear_use in linear_uses), p, d


def _possible(linear_uses: Sequence[LinearUse], in_all: int) -> list[str]:
    """The rules that a group of linear uses may be given, the one that is taken by default first.

    :param in_all: bytes of the gradients of the minibatch that are formed, with those of this leaf.
    """
    _, t, p, d = _size(linear_uses)
    if t == 0:
        return [MATERIALISED]
    looks_up = [linear_use.frame.rows for linear_use in linear_uses]
    if any(linear_use.frame.scaled for linear_use in linear_uses):
        if any(looks_up):
            return [MATERIALISED]
        return [OUTER if t == 1 else GRAM, FORMED] if t <= kernel_factors.MOST_SCALED else [FORMED]
    if len(linear_uses) == 1 and looks_up[0]:
        norms = [GRAM, ROWS] if _choice.are_few_long_rows(t, d) else [ROWS, GRAM]
        return norms if t == 1 or t * (d + 1) <= p * d else [MATERIALISED, *norms]
    if t == 1:
        return [OUTER, FORMED]
    if any(looks_up):
        return [GRAM] if 2 * t * t <= p * d else [MATERIALISED, GRAM]
    return [GRAM, FORMED] if _choice.gram_is_faster(t, p, d, in_all) else [FORMED, GRAM]


def _bytes(linear_uses: Sequence[LinearUse], rule: str, width: int) -> int:
    """Held for a group, for one record."""
    s, t, p, d = _size(linear_uses)
    if rule == FORMED:
        return s * p * d * width
    rows = sum(
        linear_use.shape[1] * (1 if linear_use.frame.rows else p) for linear_use in linear_uses
    )
    return s * (rows + t * d + (2 * t * t if rule == GRAM and t > 1 else 0)) * width


def _described(linear_uses: Sequence[LinearUse]) -> str:
    s, t, p, d = _size(linear_uses)
    apart = f"{s} apart, " if s > 1 else ""
    uses = f"{len(linear_uses)} uses, " if len(linear_uses) > 1 else ""
    steps = [
        step
        for linear_use in linear_uses
        for step in linear_use.use.steps
        if isinstance(step, Preparation)
    ]
    names = list(dict.fromkeys(step.equation.primitive.name for step in steps))
    through = f" after {', '.join(names)}" if names else ""
    if len(linear_uses) == 1 and linear_uses[0].frame.rows:
        return f"{apart}{t} of {p} rows{through}"
    return f"{apart}{uses}{'one place' if t == 1 else f'{t} places'}, {p} x {d}{through}"


def _rule(
    uses: Sequence[Use],
    leaves: Sequence[Any],
    number: int,
    name: str,
    wanted: str | None,
    in_all: int,
) -> tuple[LeafRule, tuple[_Group, ...]]:
    """The rule for a leaf, and its groups of linear uses where it is tapped.

    :param leaves: shapes and types. :param number: of the leaf. :param in_all: as in ``_possible``.
    :raises ArgumentError: naming ``rules``, if the leaf cannot have the ``wanted`` rule.
    """
    leaf = leaves[number]
    width = max(leaf.dtype.itemsize, 4)

    def materialised(reason: str) -> tuple[LeafRule, tuple[_Group, ...]]:
        if wanted not in (None, MATERIALISED):
            raise _validate.ArgumentError(
                "rules", {name: wanted}, f"this leaf can only be materialised: {reason}."
            )
        advice = next((advice for words, advice in _ADVICE.items() if reason.endswith(words)), "")
        advice = advice if leaf.size >= _LARGE and leaf.ndim > 1 else ""
        return LeafRule(name, leaf.shape, MATERIALISED, reason, leaf.size * width, advice), ()

    if not uses:
        return materialised("the loss does not depend on it")
    linear_uses = [_linear_uses.linear_use_of(use, leaves) for use in uses]
    problems = [linear_use for linear_use in linear_uses if isinstance(linear_use, str)]
    if problems:
        return materialised(
            problems[0] if len(uses) == 1 else f"used {len(uses)} times, {problems[0]}"
        )
    grouped = _grouped(
        [linear_use for linear_use in linear_uses if isinstance(linear_use, LinearUse)], leaf.shape
    )
    if grouped is None:
        return materialised(f"its {len(uses)} uses share some of its entries")
    if wanted == MATERIALISED:
        return materialised("as asked")
    chosen = []
    for members, _ in grouped:
        possible = _possible(members, in_all)
        if wanted is not None and wanted not in possible:
            raise _validate.ArgumentError(
                "rules", {name: wanted}, f"the leaf may have one of {', '.join(possible)}."
            )
        chosen.append(possible[0] if wanted is None else wanted)
    reasons = list(dict.fromkeys(_described(members) for members, _ in grouped))
    if MATERIALISED in chosen:
        no_places = all(_size(members)[1] == 0 for members, _ in grouped)
        return materialised(
            "it meets nothing: 0 places" if no_places else f"cheaper: {'; '.join(reasons)}"
        )
    groups = tuple(
        _Group(tuple(members), tuple(turned), rule)
        for (members, turned), rule in zip(grouped, chosen, strict=True)
    )
    total_bytes = sum(_bytes(group.linear_uses, group.rule, width) for group in groups)
    prefix = f"{len(groups)} parts: " if len(groups) > 1 else ""
    looked_up = any(
        use.frame.rows and use.shape[3] >= _LARGE for group in groups for use in group.linear_uses
    )
    advice = _OF_MATRICES if looked_up and leaf.ndim > 2 else ""
    return LeafRule(
        name,
        leaf.shape,
        ", ".join(dict.fromkeys(chosen)),
        prefix + "; ".join(reasons),
        total_bytes,
        advice,
    ), groups


# --- the plan -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What ``plan`` found: the flat jaxpr of the per-record loss, the taps, and a table of rules.

    ``taps`` maps leaf numbers to groups of linear uses; leaves that are not in it are materialised.
    ``has_rules`` says whether rules were given.
    """

    jaxpr: ClosedJaxpr
    num_leaves: int
    taps: dict[int, tuple[_Group, ...]]
    rules: tuple[LeafRule, ...]
    has_rules: bool

    @property
    def forms_all(self) -> bool:
        """Whether a gradient is formed for each record and leaf, no faster than by vmap, and nobody
        asked for it.
        """
        groups = [group for of_leaf in self.taps.values() for group in of_leaf]
        return not (groups and self.has_rules) and all(
            group.rule == FORMED and _choice.as_by_vmap(group.linear_uses) for group in groups
        )

    def backward(self, leaves: Sequence[Array], records: PyTree) -> Backward:
        """One vmapped backward pass to the taps and the materialised leaves of ``records`` (first
        axis M).
        """
        linear_uses = [
            linear_use
            for groups in self.taps.values()
            for group in groups
            for linear_use in group.linear_uses
        ]
        first = _first_to_meet(linear_uses)
        sides = {
            linear_use.use.path: linear_use.use.side
            for linear_use in linear_uses
            if linear_use.use.path in first.values()
        }
        zeros = {linear_use.use.path: _zeros(linear_use) for linear_use in linear_uses}
        small = {number: leaf for number, leaf in enumerate(leaves) if number not in self.taps}

        def one(small: dict[int, Array], zeros: dict, record: PyTree) -> tuple[Array, dict]:
            everything = [small.get(number, leaf) for number, leaf in enumerate(leaves)]
            (loss,), met = _linear_uses.run(
                self.jaxpr, [*everything, *jax.tree.leaves(record)], zeros, sides
            )
            return loss, met

        gradient = jax.grad(one, argnums=(0, 1), has_aux=True)
        (gradients, cotangents), met = jax.vmap(lambda record: gradient(small, zeros, record))(
            records
        )
        factors, formed = {}, {}
        cache: dict[Any, Array] = {}
        for number, groups in self.taps.items():
            for index, group in enumerate(groups):
                pairs = [
                    (met[first[linear_use.use.path]], cotangents[linear_use.use.path])
                    for linear_use in group.linear_uses
                ]
                if group.rule == FORMED:
                    formed[number, index] = _formed(group, pairs, leaves, cache)
                else:
                    factors[number, index] = group.factors(pairs, leaves, cache)
        return Backward(
            {number: kernel_factors.single(leaf) for number, leaf in gradients.items()},
            formed,
            factors,
        )

    def squared_norms(self, backward: Backward) -> list[Array]:
        """Squared l2 norm of each record's gradient for each leaf, float[M] each; rounding may only
        enlarge it.

        Squares under the smallest normal number are flushed to zero, and a Gram matrix or a sum of
        rows may cancel: both are made up for.
        """
        squares = []
        for number in range(self.num_leaves):
            if number not in self.taps:
                squares.append(kernel_factors.squares_of(backward.small[number]))
                continue
            terms = []
            for index, group in enumerate(self.taps[number]):
                if group.rule == FORMED:
                    terms.append(kernel_factors.squares_of(backward.formed[number, index]))
                else:
                    _, _, p, d = group.linear_uses[0].shape
                    terms.append(
                        kernel_factors.squared_norm(
                            backward.factors[number, index], p, d, by_rows=group.rule == ROWS
                        )
                    )
            squares.append(functools.reduce(jnp.add, terms))
        return squares

    def weighted_sum(
        self, backward: Backward, weights: Sequence[Array], grid: Grid | None
    ) -> list[Array]:
        """sum_i weights_i grad l_i for every leaf. Everything must be finite: ``Backward.without``
        takes out what is not.

        :param weights: float[M] for each leaf. :param grid: on which sums become whole numbers, if
            there is one.
        """
        totals = []
        for number, variable in enumerate(self.jaxpr.jaxpr.invars[: self.num_leaves]):
            leaf, leaf_weights = aval(variable), weights[number]
            if number not in self.taps:
                totals.append(
                    kernel_factors.weighted(backward.small[number], leaf_weights, grid).reshape(
                        leaf.shape
                    )
                )
                continue
            terms = []
            for index, group in enumerate(self.taps[number]):
                if group.rule == FORMED:
                    total = kernel_factors.weighted(
                        backward.formed[number, index], leaf_weights, grid
                    )
                else:
                    p = group.linear_uses[0].shape[2]
                    total = kernel_factors.weighted_product(
                        backward.factors[number, index], leaf_weights, p, grid
                    )
                terms.append(_put_back(group.linear_uses[0].frame.arrange, leaf.shape, total))
            totals.append(functools.reduce(jnp.add, terms))
        return totals

    def bound(self, size: int) -> Bound:
        """How far arithmetic moves a record's part of ``weighted_sum`` beyond C, for minibatches of
        ``size`` records.
        """
        bounds = []
        for number, variable in enumerate(self.jaxpr.jaxpr.invars[: self.num_leaves]):
            if number not in self.taps:
                bounds.append(kernel_factors.bound_of_formed(aval(variable).size, size))
                continue
            for group in self.taps[number]:
                s, _, p, d = group.linear_uses[0].shape
                if group.rule == FORMED:
                    bounds.append(kernel_factors.bound_of_formed(s * p * d, size))
                    continue
                met, looked_up = (
                    [use.shape[1] for use in group.linear_uses if use.frame.rows is rows]
                    for rows in (False, True)
                )
                bounds.append(
                    kernel_factors.bound_of_product(
                        size, s, p, d, met, looked_up, by_rows=group.rule == ROWS
                    )
                )
        return whole_sums.combined(bounds)


def _put_back(arrange: Callable[[Array], Array], shape: tuple[int, ...], total: Array) -> Array:
    """``total``, [S, p, d], as the leaf whose entries ``arrange`` arranges so; zero where it uses
    none.
    """

    def back(block: Array) -> Array:
        (of_leaf,) = jax.linear_transpose(arrange, jax.ShapeDtypeStruct(shape, block.dtype))(block)
        return of_leaf

    if jnp.issubdtype(total.dtype, jnp.floating):
        return back(total)
    # JAX transposes no functions of whole numbers; halves of them are exact in float32
    high, low = total >> 12, total & 0xFFF
    return (back(high.astype(jnp.float32)).astype(jnp.int32) << 12) | back(
        low.astype(jnp.float32)
    ).astype(jnp.int32)


def _formed(
    group: _Group,
    pairs: Sequence[tuple[Array, Array]],
    leaves: Sequence[Array],
    cache: dict[Any, Array],
) -> Array:
    """Each record's gradient for a group. Patches of images are made for some of the records at a
    time.
    """
    size = len(pairs[0][0])
    at_once = _choice.records_at_once(group.linear_uses, size)
    if at_once is None or at_once >= size:
        return kernel_factors.formed(group.factors(pairs, leaves, cache))

    def one(pairs: Sequence[tuple[Array, Array]]) -> Array:
        return kernel_factors.formed(
            group.factors(jax.tree.map(lambda array: array[None], pairs), leaves, {})
        )[0]

    return lax.map(one, list(pairs), batch_size=at_once)


def _first_to_meet(linear_uses: Sequence[LinearUse]) -> dict[tuple[int, ...], tuple[int, ...]]:
    """For the path of each use that of the first one that meets the same operand, as the gates of a
    cell do.
    """
    first: dict[Any, tuple[int, ...]] = {}
    representatives = {}
    for linear_use in linear_uses:
        use = linear_use.use
        assert use.equation is not None
        representatives[use.path] = first.setdefault(
            (use.path[:-1], id(use.equation.invars[1 - use.side])), use.path
        )
    return representatives


def _zeros(linear_use: LinearUse) -> Array:
    assert linear_use.use.equation is not None
    output = aval(linear_use.use.equation.outvars[0])
    return jnp.zeros((*linear_use.use.lengths, *output.shape), output.dtype)


def plan(
    loss: Callable[[Any, Any], Array],
    u: PyTree,
    record: PyTree,
    rules: Mapping[str, str] | None = None,
    size: int = 1,
) -> Plan:
    """Find the taps of ``loss(u, record)``.

    :param loss: loss of one record, a float scalar. :param u: pytree of float arrays (or their
        shapes and types).
    :param record: pytree of one record's arrays, or their shapes and types.
    :param rules: ``{leaf: rule}`` instead of the one that is the fastest by ``_choice``; leaves as
        ``LeafRule.leaf`` names them.
    :param size: how many records are clipped at once.
    :raises ArgumentError: naming ``rules``, for an unknown leaf or a rule that it cannot have.
    """
    named, treedef = jax.tree_util.tree_flatten_with_path(u)
    names = [jax.tree_util.keystr(path) for path, _ in named]
    for name in rules or {}:
        if name not in names:
            raise _validate.unknown_name("rules", name, names)
    leaves = [leaf for _, leaf in named]
    closed = _loss_jaxpr(loss, leaves, treedef, record)
    uses = uses_of(closed, len(leaves))
    shapes = [
        jax.ShapeDtypeStruct(aval(variable).shape, aval(variable).dtype)
        for variable in closed.jaxpr.invars
    ]
    chosen, total_bytes = {}, 0
    for number in sorted(
        range(len(leaves)), key=lambda number: shapes[number].size
    ):  # small gradients are formed first
        of_all = size * shapes[number].size * max(shapes[number].dtype.itemsize, 4)
        rule, groups = _rule(
            uses[number],
            shapes,
            number,
            names[number],
            (rules or {}).get(names[number]),
            total_bytes + of_all,
        )
        chosen[number] = rule, groups
        total_bytes += of_all if not groups or any(group.rule == FORMED for group in groups) else 0
    taps = {number: groups for number, (_, groups) in sorted(chosen.items()) if groups}
    return Plan(
        closed,
        len(leaves),
        taps,
        tuple(chosen[number][0] for number in range(len(leaves))),
        bool(rules),
    )
