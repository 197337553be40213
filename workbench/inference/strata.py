"""The clipped sum of a minibatch, processed in parts: records that are alike in shape form a
stratum.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.clipping import whole_sums
from workbench.clipping.clipped_sums import Loss, Strategy, choose_strategy, shape_of_one
from workbench.clipping.lanes import in_any_lane, largest_in_any_lane
from workbench.clipping.whole_sums import Grid
from workbench.noise.mechanism import OnGrid
from workbench.sampling.minibatch import Minibatch

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["Stratum", "clipped_sum_in_parts", "stratum_of"]


class Stratum(NamedTuple):
    """Places of a minibatch whose records are alike in shape.

    :param chosen: ``chosen(places)`` gives the records at these of its places, int32[B] -> pytree.
    :param mask: bool[M], False on padding.
    :param microbatch_size: records brought in at once.
    """

    chosen: Callable[[jax.Array], Any]
    mask: jax.Array
    microbatch_size: int


def stratum_of(
    records: Sequence[jax.Array], minibatch: Minibatch, at: jax.Array | None, size: int
) -> Stratum:
    """All of a minibatch as one stratum. A record of it is (its rows of ``records``, its entry of
    ``at`` or None).

    :param at: int32[M]. :param size: records brought in at once.
    """

    def chosen(positions: jax.Array) -> Any:
        rows = tuple(array[minibatch.indices[positions]] for array in records)
        return rows, None if at is None else at[positions]

    return Stratum(chosen, minibatch.mask, size)


class _InParts(NamedTuple):
    """A stratum that is brought in by parts of ``width`` records, and how each part is clipped and
    added up.
    """

    stratum: Stratum
    width: int
    strategy: Strategy

    @property
    def parts(self) -> int:
        return -(-self.stratum.mask.shape[0] // self.width)

    @property
    def padded_mask(self) -> jax.Array:
        mask = self.stratum.mask
        return jnp.pad(mask, (0, self.parts * self.width - mask.shape[0]))

    def sum_of(
        self,
        start: int | jax.Array,
        counted: jax.Array,
        clip: float | jax.Array,
        grid: Grid | None,
        count: Callable | None,
    ) -> Any:
        """(clipped sum, ``count``) of the part that begins at place ``start``. :param counted: its
        mask.
        """
        positions = jnp.minimum(start + jnp.arange(self.width), self.stratum.mask.shape[0] - 1)
        clipped = self.strategy.sum_of(self.stratum.chosen(positions), counted, clip, grid)
        return clipped.total, None if count is None else count(clipped.norms, counted)


def clipped_sum_in_parts(
    loss: Loss,
    u: PyTree,
    strata: Sequence[Stratum],
    clip: float | jax.Array,
    strategy: str,
    clipping: str,
    rules: Mapping[str, str] | None = None,
    spacing_for: Callable[[float, float], jax.Array] | None = None,
    count: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
) -> tuple[Any, Any]:
    """The sum of ``clipped_sum`` over a minibatch that is brought in stratum by stratum, and each
    in parts.

    A record is in the stratum that its own shape decides, at a place that no other record moves. So
    what is added up for others is the same with and without it, and only its own stratum's sum is
    off by more. The loss must have passed ``require_separate``: it is not looked at again for every
    step that is traced.

    :param strata: the first of them is computed without asking whether any record is in it.
    :param spacing_for: ``spacing_for(slack, units)`` is the spacing g for a sum whose sensitivity
        is C (1 + slack) + sqrt(units) g; without it the sum is in floating point.
    :param count: ``count(norms, mask)`` of each part, int32[...], is added up too.
    :return: (a pytree like u, with ``spacing_for`` an ``OnGrid`` of such a pytree in whole numbers;
        the sum of ``count``, not noised, or None).
    """
    summands = []
    for stratum in strata:
        # whole blocks, so that no array is copied to fill the last one up
        width = whole_sums.in_whole_blocks(min(stratum.microbatch_size, stratum.mask.shape[0]))
        record = shape_of_one(
            jax.eval_shape(stratum.chosen, jax.ShapeDtypeStruct((width,), jnp.int32))
        )
        summands.append(
            _InParts(
                stratum, width, choose_strategy(loss, u, record, width, strategy, clipping, rules)
            )
        )
    grid = spacing = None
    if spacing_for is not None:
        slack, units = (
            max(getattr(summand.strategy.bound, name) for summand in summands)
            for name in ("slack", "units")
        )
        spacing = spacing_for(slack, units)
        grid = Grid(1 / spacing)
    total, counts = _sum_of_stratum(summands[0], clip, grid, count)
    if len(summands) > 1:
        total, counts = _with_scattered((total, counts), summands[1:], clip, grid, count)
    return total if spacing is None else OnGrid(total, spacing), counts


def _sum_of_stratum(
    summand: _InParts, clip: float | jax.Array, grid: Grid | None, count: Callable | None
) -> Any:
    """(clipped sum, sum of ``count``) of a stratum whose first part is hardly ever empty."""
    mask = summand.padded_mask
    total = summand.sum_of(0, mask[: summand.width], clip, grid, count)

    def add_part(total: PyTree, start: jax.Array) -> tuple[Any, None]:
        counted = lax.dynamic_slice_in_dim(mask, start, summand.width)
        # whole parts are often padding
        longer = lax.cond(
            in_any_lane(jnp.any(counted)),
            lambda: _added(total, summand.sum_of(start, counted, clip, grid, count)),
            lambda: total,
        )
        return longer, None

    return (
        lax.scan(add_part, total, jnp.arange(1, summand.parts) * summand.width)[0]
        if summand.parts > 1
        else total
    )


def _with_scattered(
    total: PyTree,
    strata: Sequence[_InParts],
    clip: float | jax.Array,
    grid: Grid | None,
    count: Callable | None,
) -> Any:
    """``total`` and the sums of strata that may be empty, of each from the first part that is not
    to the last.
    """

    def with_one(total: PyTree, summand: _InParts) -> Any:
        mask = summand.padded_mask
        needed = jnp.any(mask.reshape(-1, summand.width), axis=1)
        numbers = np.arange(summand.parts)
        # where it begins is counted from the end, because lanes agree on a largest number
        remaining = largest_in_any_lane(jnp.max(jnp.where(needed, summand.parts - numbers, 0)))
        end = largest_in_any_lane(jnp.max(jnp.where(needed, 1 + numbers, 0)))

        def add_part(number: jax.Array, total: PyTree) -> Any:
            counted = lax.dynamic_slice_in_dim(mask, number * summand.width, summand.width)
            return _added(total, summand.sum_of(number * summand.width, counted, clip, grid, count))

        return lax.fori_loop(summand.parts - remaining, end, add_part, total)

    # one question for all, because each loop without turns costs a hundredth of a small step
    is_any = jnp.any(functools.reduce(jnp.logical_or, (summand.stratum.mask for summand in strata)))
    return lax.cond(
        in_any_lane(is_any), lambda: functools.reduce(with_one, strata, total), lambda: total
    )


def _added(first: PyTree, second: PyTree) -> Any:
    return jax.tree.map(jnp.add, first, second)
