"""Book-keeping: per-record gradient norms and clipped sums without per-record gradients.

Where a leaf of u enters one linear operation (a site, ``_sites``), record i's gradient for it is a_i^T g_i: a_i is the
operation's other operand, T rows for the T places where the record meets the leaf, and g_i the gradient of the loss at the
operation's output. Both come out of one backward pass to a zero that is added to the output (a tap), so a norm over one
place costs O(p + d) instead of O(p d), and the clipped sum of the whole minibatch is one matrix product, a^T diag(c) g.
With many places it is cheaper to form a_i^T g_i for each record, still without differentiating for each record apart. A leaf
that enters several times (tied weights) is treated as one with the places of all, so that what crosses between them counts.

The sites are found in the jaxpr of the per-record loss. A leaf that enters in a way that is not known there is materialised:
its per-record gradients are formed by vmap. So is a leaf that enters a function with a derivative of its own (custom_jvp,
custom_vjp): a tap inside would replace that derivative by another.

The idea, for layers of a network: Goodfellow 2015 (arXiv 1510.01799); Rochette et al. 2019 (arXiv 1912.06015); Lee and Kifer
2021 (arXiv 2009.03106) for recurrent nets and attention; Bu et al. 2022 (arXiv 2210.00038).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr

from workbench import _validate
from workbench.inference import _linear_uses
from workbench.inference._jaxprs import aval, flat_jaxpr
from workbench.inference._linear_uses import Site

__all__ = ["RULES", "Backward", "LeafRule", "Plan", "plan", "single", "squares_of", "weighted", "without"]

Array = jax.Array

# a GPU's default precision (TF32) would let a clipped gradient exceed C by one part in a thousand
_PRECISION = lax.Precision.HIGHEST

OUTER, GRAM, ROWS, FORMED, MATERIALISED = "outer product", "Gram matrix", "rows", "instantiated", "materialised"
RULES = (OUTER, GRAM, ROWS, FORMED, MATERIALISED)

# Where the places of a record cancel, what they add to a leaf is taken to be no shorter than this part of their lengths
# together: else its terms, each far longer than C, would round off what others add to the sum. It leaves alone what adds up
# like a random walk of up to 4096 places.
_CANCELS = 64

_ROWS_A_MENTION = 100  # up to here a table with a place for each row is quicker than sorting the mentions
_FEW_ROWS = 64  # up to here a one-hot matrix product sums rows faster than a scatter


class LeafRule(NamedTuple):
    """How book-keeping treats a leaf of u; a row of the table that ``explain=True`` returns.

    :param leaf: where it stands in u. :param shape: its shape. :param rule: one of ``RULES``: "outer product" (one place),
        "Gram matrix" (norms from products between places, never a gradient), "rows" (looked up), "instantiated" (the
        record's gradient as one matrix product), "materialised" (the record's gradient by vmap).
    :param reason: why. :param bytes: held for it, for one record.
    """

    leaf: str
    shape: tuple[int, ...]
    rule: str
    reason: str
    bytes: int


class _Group(NamedTuple):
    """Sites that use the same entries of a leaf, as the same matrices or as their transposes, with the rule for them.

    :param turned: for each site whether a and g change places.
    """

    sites: tuple[Site, ...]
    turned: tuple[bool, ...]
    rule: str


class Backward(NamedTuple):
    """One backward pass over a minibatch of M records.

    :param small: leaf number -> float[M, *shape], per-record gradients of materialised leaves.
    :param formed: (leaf number, group) -> float[M, S, p, d], those that were formed from a and g.
    :param factors: (leaf number, group) -> [(a, g)] of its sites: float[M, S, T, p] or numbers of rows int[M, S, T], and
        float[M, S, T, d].
    """

    small: dict[int, Array]
    formed: dict[tuple[int, int], Array]
    factors: dict[tuple[int, int], list[tuple[Array, Array]]]

    def without(self, left_out: Array) -> Backward:
        """The same with zeros for the records in ``left_out``, bool[M]: zero times infinity is not zero."""
        return without(self, left_out)


def without(tree: Any, left_out: Array) -> Any:
    """A pytree of arrays with first axis M, with zeros where ``left_out``, bool[M], says so."""

    def emptied(array: Array) -> Array:
        return jnp.where(left_out.reshape(-1, *[1] * (array.ndim - 1)), jnp.zeros((), array.dtype), array)

    return jax.tree.map(emptied, tree)


def single(array: Array) -> Array:
    """Half precision cannot hold a norm to the accuracy that the bound needs."""
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


# --- rules ------------------------------------------------------------------------------------------------------------


def _loss_jaxpr(loss: Callable, leaves: Sequence[Any], treedef: Any, record: Any) -> ClosedJaxpr:
    """The flat jaxpr of loss(u, record)."""
    record_leaves, record_treedef = jax.tree.flatten(record)

    def flat(*arguments: Any) -> Any:
        u = jax.tree.unflatten(treedef, arguments[: len(leaves)])
        return loss(u, jax.tree.unflatten(record_treedef, arguments[len(leaves) :]))

    return flat_jaxpr(flat, *leaves, *record_leaves)


def _grouped(sites: Sequence[Site], shape: tuple[int, ...]) -> list[tuple[list[Site], list[bool]]] | None:
    """Sites by the entries of the leaf that they use; None where two share some but not all, or in another order."""
    if len(sites) == 1:
        return [([sites[0]], [False])]
    groups: list[tuple[np.ndarray, list[Site], list[bool]]] = []
    for site in sorted(sites, key=lambda site: site.kind != "rows"):  # a table's rows are its first axis, whatever follows
        entries = _linear_uses.entries(site, shape)
        for known, members, turned in groups:
            way = next((way for way, seen in enumerate((entries, entries.swapaxes(1, 2))) if _equal(seen, known)), None)
            if way is not None and not (way and site.kind == "rows"):
                members.append(site)
                turned.append(bool(way))
                break
            if np.intersect1d(known, entries).size:
                return None
        else:
            groups.append((entries, [site], [False]))
    return [(members, turned) for _, members, turned in groups]


def _equal(left: np.ndarray, right: np.ndarray) -> bool:
    return left.shape == right.shape and bool(np.array_equal(left, right))


def _size(sites: Sequence[Site]) -> tuple[int, int, int, int]:
    """(S, T, p, d) of a group."""
    s, _, p, d = sites[0].shape
    return s, sum(site.shape[1] for site in sites), p, d


def _possible(sites: Sequence[Site]) -> list[str]:
    """The rules that a group of sites may be given, the one that is taken by default first."""
    _, t, p, d = _size(sites)
    if t == 0:
        return [MATERIALISED]
    looks_up = [site.kind == "rows" for site in sites]
    if len(sites) == 1 and looks_up[0]:
        return [ROWS, GRAM] if t == 1 or t * (d + 1) <= p * d else [MATERIALISED, ROWS, GRAM]
    if t == 1:
        return [OUTER, FORMED]
    is_small = 0 < 2 * t * t <= p * d
    if any(looks_up):
        return [GRAM] if is_small else [MATERIALISED, GRAM]
    return [GRAM, FORMED] if is_small else [FORMED, GRAM]


def _bytes(sites: Sequence[Site], rule: str, width: int) -> int:
    """Held for a group, for one record."""
    s, t, p, d = _size(sites)
    if rule == FORMED:
        return s * p * d * width
    rows = sum(site.shape[1] * (1 if site.kind == "rows" else p) for site in sites)
    return s * (rows + t * d + (2 * t * t if rule == GRAM and t > 1 else 0)) * width


def _described(sites: Sequence[Site]) -> str:
    s, t, p, d = _size(sites)
    apart = f"{s} apart, " if s > 1 else ""
    uses = f"{len(sites)} uses, " if len(sites) > 1 else ""
    if len(sites) == 1 and sites[0].kind == "rows":
        return f"{apart}{t} of {p} rows"
    return f"{apart}{uses}{'one place' if t == 1 else f'{t} places'}, {p} x {d}"


def _rule(uses: Sequence[_linear_uses.Use], leaf: Any, name: str, wanted: str | None) -> tuple[LeafRule, tuple[_Group, ...]]:
    """The rule for a leaf, and its groups of sites where it is tapped.

    :raises ArgumentError: naming ``rules``, if the leaf cannot have the ``wanted`` rule.
    """
    width = max(leaf.dtype.itemsize, 4)

    def materialised(reason: str) -> tuple[LeafRule, tuple[_Group, ...]]:
        if wanted not in (None, MATERIALISED):
            raise _validate.ArgumentError("rules", {name: wanted}, f"the leaf has to be materialised: {reason}.")
        return LeafRule(name, leaf.shape, MATERIALISED, reason, leaf.size * width), ()

    if not uses:
        return materialised("the loss does not depend on it")
    sites = [_linear_uses.site_of(use) for use in uses]
    problems = [site for site in sites if isinstance(site, str)]
    if problems:
        return materialised(problems[0] if len(uses) == 1 else f"used {len(uses)} times, {problems[0]}")
    found = _grouped([site for site in sites if isinstance(site, Site)], leaf.shape)
    if found is None:
        return materialised(f"its {len(uses)} uses share some of its entries")
    if wanted == MATERIALISED:
        return materialised("as asked")
    chosen = []
    for members, _ in found:
        possible = _possible(members)
        if wanted is not None and wanted not in possible:
            raise _validate.ArgumentError("rules", {name: wanted}, f"the leaf may have one of {', '.join(possible)}.")
        chosen.append(possible[0] if wanted is None else wanted)
    reasons = list(dict.fromkeys(_described(members) for members, _ in found))
    if MATERIALISED in chosen:
        no_places = all(_size(members)[1] == 0 for members, _ in found)
        return materialised("it meets nothing: 0 places" if no_places else f"cheaper: {'; '.join(reasons)}")
    groups = tuple(
        _Group(tuple(members), tuple(turned), rule) for (members, turned), rule in zip(found, chosen, strict=True)
    )
    held = sum(_bytes(group.sites, group.rule, width) for group in groups)
    parts = f"{len(groups)} parts: " if len(groups) > 1 else ""
    return LeafRule(name, leaf.shape, ", ".join(dict.fromkeys(chosen)), parts + "; ".join(reasons), held), groups


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What ``plan`` found: the flat jaxpr of the per-record loss, the taps, and a table of rules.

    ``taps`` maps leaf numbers to groups of sites; leaves that are not in it are materialised.
    """

    jaxpr: ClosedJaxpr
    num_leaves: int
    taps: dict[int, tuple[_Group, ...]]
    rules: tuple[LeafRule, ...]

    def backward(self, leaves: Sequence[Array], records: Any) -> Backward:
        """One vmapped backward pass to the taps and the materialised leaves of ``records`` (first axis M)."""
        sites = [site for groups in self.taps.values() for group in groups for site in group.sites]
        sides = {site.use.path: site.use.side for site in sites}
        zeros = {site.use.path: _zeros(site) for site in sites}
        small = {number: leaf for number, leaf in enumerate(leaves) if number not in self.taps}

        def one(small: dict[int, Array], zeros: dict, record: Any) -> tuple[Array, dict]:
            everything = [small.get(number, leaf) for number, leaf in enumerate(leaves)]
            (loss,), met = _linear_uses.run(self.jaxpr, [*everything, *jax.tree.leaves(record)], zeros, sides)
            return loss, met

        gradient = jax.grad(one, argnums=(0, 1), has_aux=True)
        (gradients, cotangents), met = jax.vmap(lambda record: gradient(small, zeros, record))(records)
        factors, formed = {}, {}
        for number, groups in self.taps.items():
            for place, group in enumerate(groups):
                found = [_factors(site, met, cotangents) for site in group.sites]
                turned = [pair[::-1] if turn else pair for pair, turn in zip(found, group.turned, strict=True)]
                if group.rule == FORMED:
                    a, g = _joined(turned)
                    formed[number, place] = jnp.einsum("mstp,mstd->mspd", a, g, precision=_PRECISION)
                else:
                    factors[number, place] = turned
        return Backward({number: single(leaf) for number, leaf in gradients.items()}, formed, factors)

    def squared_norms(self, backward: Backward) -> list[Array]:
        """Squared l2 norm of each record's gradient for each leaf, float[M] each; rounding may only enlarge it.

        Squares under the smallest normal number are flushed to zero, and a Gram matrix or a sum of rows may cancel: both
        are made up for.
        """
        squares = []
        for number in range(self.num_leaves):
            if number not in self.taps:
                squares.append(squares_of(backward.small[number]))
                continue
            parts = []
            for place, group in enumerate(self.taps[number]):
                if group.rule == FORMED:
                    parts.append(squares_of(backward.formed[number, place]))
                else:
                    parts.append(_squared_norm(group, backward.factors[number, place]))
            squares.append(functools.reduce(jnp.add, parts))
        return squares

    def weighted_sum(self, backward: Backward, weights: Sequence[Array]) -> list[Array]:
        """sum_i weights_i grad l_i for every leaf. Everything must be finite: ``Backward.without`` takes out what is not.

        :param weights: float[M] for each leaf.
        """
        totals = []
        for number, variable in enumerate(self.jaxpr.jaxpr.invars[: self.num_leaves]):
            leaf, own = aval(variable), weights[number]
            if number not in self.taps:
                totals.append(weighted(backward.small[number], own).reshape(leaf.shape))
                continue
            parts = []
            for place, group in enumerate(self.taps[number]):
                if group.rule == FORMED:
                    total = weighted(backward.formed[number, place], own)
                else:
                    total = _weighted_product(group, backward.factors[number, place], own)
                seen = jax.ShapeDtypeStruct(leaf.shape, total.dtype)
                (part,) = jax.linear_transpose(group.sites[0].seen, seen)(total)
                parts.append(part)
            totals.append(functools.reduce(jnp.add, parts))
        return totals


def _zeros(site: Site) -> Array:
    assert site.use.equation is not None
    output = aval(site.use.equation.outvars[0])
    return jnp.zeros((*site.use.lengths, *output.shape), output.dtype)


def _factors(site: Site, met: dict, cotangents: dict) -> tuple[Array, Array]:
    a, g = _linear_uses.factors(site, met[site.use.path], cotangents[site.use.path])
    return a if site.kind == "rows" else single(a), single(g)


def _joined(blocks: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """a and g of all sites of a group, places after one another."""
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


def _squared_norm(group: _Group, blocks: Sequence[tuple[Array, Array]]) -> Array:
    """|a^T g|^2 of each record over its S matrices, float[M]."""
    if all(not _is_rows(a) for a, _ in blocks):
        blocks = [_joined(blocks)]
    lengths = [_length(g) if _is_rows(a) else _length(a) * _length(g) for a, g in blocks]
    if len(blocks) == 1 and lengths[0].shape[2] == 1:
        return jnp.sum(jnp.square(lengths[0]), axis=(1, 2))
    if group.rule == ROWS:
        return _squared_norm_of_rows(*blocks[0], group.sites[0].shape[2])
    square: Any = 0.0
    for first, (a, g) in enumerate(blocks):
        for second, (b, h) in enumerate(blocks[: first + 1]):
            crossing = jnp.sum(_overlap(a, b) * jnp.einsum("mstd,msud->mstu", g, h, precision=_PRECISION), axis=(1, 2, 3))
            square = square + (crossing if first == second else 2 * crossing)
    whole = jnp.concatenate(lengths, axis=2)
    longest = jnp.sum(jnp.square(jnp.sum(whole, axis=2)), axis=1)
    # products of p and d terms, added up in the order of the machine: 1.9 eps sqrt(p + d + T) was the most in search of more
    _, _, p, d = group.sites[0].shape
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
    return jnp.einsum("mstp,msup->mstu", a, b, precision=_PRECISION)


def _squared_norm_of_rows(rows: Array, g: Array, num_rows: int) -> Array:
    """What a record adds to each row that it looks up, summed in a place of the row's own, squared and summed.

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

    :param rows: int[B, T]. A record's places are among T of its own.
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
    total = jnp.matmul(weights.astype(gradients.dtype), gradients.reshape(gradients.shape[0], -1), precision=_PRECISION)
    return total.reshape(gradients.shape[1:])


def _weighted_product(group: _Group, blocks: Sequence[tuple[Array, Array]], weights: Array) -> Array:
    """sum_i weights_i a_i^T g_i, float[S, p, d]."""
    _, _, p, _ = group.sites[0].shape
    weighted = [(a, g * weights[:, None, None, None].astype(g.dtype)) for a, g in blocks]
    parts = [_sum_of_rows(a, g, p) for a, g in weighted if _is_rows(a)]
    products = [pair for pair in weighted if not _is_rows(pair[0])]
    if products:
        parts.append(_sum_of_products(*_joined(products)))
    return functools.reduce(jnp.add, parts)


def _sum_of_products(a: Array, g: Array) -> Array:
    if a.shape[1] > 1:
        return jnp.einsum("mstp,mstd->spd", a, g, precision=_PRECISION)
    left, right = a.reshape(-1, a.shape[-1]), g.reshape(-1, g.shape[-1])
    # one column on either side makes it a product of vector and matrix
    if left.shape[1] == 1:
        return jnp.matmul(left[:, 0], right, precision=_PRECISION)[None, None]
    if right.shape[1] == 1:
        return jnp.matmul(right[:, 0], left, precision=_PRECISION)[None, :, None]
    return lax.dot_general(left, right, (((0,), (0,)), ((), ())), precision=_PRECISION)[None]


def _sum_of_rows(rows: Array, g: Array, num_rows: int) -> Array:
    s, d = rows.shape[1], g.shape[-1]
    numbers = (rows + num_rows * jnp.arange(s)[:, None]).reshape(-1)
    numbers = jnp.where((rows >= 0) & (rows < num_rows), numbers.reshape(rows.shape), s * num_rows).reshape(-1)
    flat = g.reshape(-1, d)
    if s * num_rows <= _FEW_ROWS:
        chosen = (numbers[:, None] == jnp.arange(s * num_rows)).astype(g.dtype)
        total = lax.dot_general(chosen, flat, (((0,), (0,)), ((), ())), precision=_PRECISION)
    else:
        total = jnp.zeros((s * num_rows, d), g.dtype).at[numbers].add(flat, mode="drop")
    return total.reshape(s, num_rows, d)


def plan(loss: Callable[[Any, Any], Array], u: Any, record: Any, rules: Mapping[str, str] | None = None) -> Plan:
    """Find the taps of ``loss(u, record)``.

    :param loss: loss of one record, a float scalar. :param u: pytree of float arrays (or their shapes and types).
    :param record: pytree of one record's arrays, or their shapes and types.
    :param rules: ``{leaf: rule}`` in the place of the one chosen by bytes; leaves as ``LeafRule.leaf`` names them.
    :raises ArgumentError: naming ``rules``, for an unknown leaf or a rule that it cannot have.
    """
    named, treedef = jax.tree_util.tree_flatten_with_path(u)
    names = [jax.tree_util.keystr(path) for path, _ in named]
    for name in rules or {}:
        if name not in names:
            raise _validate.unknown_name("rules", name, names)
    leaves = [leaf for _, leaf in named]
    closed = _loss_jaxpr(loss, leaves, treedef, record)
    uses = _linear_uses.uses_of(closed.jaxpr, len(leaves))
    found = [
        _rule(uses[number], aval(closed.jaxpr.invars[number]), name, (rules or {}).get(name))
        for number, name in enumerate(names)
    ]
    taps = {number: groups for number, (_, groups) in enumerate(found) if groups}
    return Plan(closed, len(leaves), taps, tuple(rule for rule, _ in found))
