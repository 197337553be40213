"""Decisions that all lanes of a vmapped step take together: plain vmap would take both branches in
every lane.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

__all__ = ["in_any_lane", "largest_in_any_lane"]


@custom_vmap
def largest_in_any_lane(number: jax.Array) -> jax.Array:
    """The largest ``number``, a scalar or bool, over all lanes under vmap, so that all run the same
    number of iterations.
    """
    return number


@largest_in_any_lane.def_vmap
def _largest_of(size: int, in_batched: list[bool], number: jax.Array) -> tuple[jax.Array, bool]:
    return largest_in_any_lane(jnp.max(number)), False


def in_any_lane(needed: jax.Array) -> jax.Array:
    """Whether any lane under vmap needs a branch, a bool scalar, so that a rare branch stays rare.

    For branches that lanes may take needlessly. Otherwise vmap computes both and selects.
    """
    return largest_in_any_lane(needed)
