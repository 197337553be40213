"""The sum of clipped per-record gradients: the one place where records meet the parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate

__all__ = ["SMALLEST_CLIP", "STRATEGIES", "clipped_sum"]

STRATEGIES = ("vmap",)

# squares of float32 below 1e-19 underflow, so a norm may be too small by about that much, and C must be far above it
SMALLEST_CLIP = 1e-12

# float32 rounding of norm, factor and product stays under this, so that a clipped gradient never exceeds C
_SAFETY = np.float32(1 - 4e-6)


def clipped_sum(
    loss: Callable[[Any, Any], jax.Array],
    u: Any,
    records: Any,
    mask: jax.Array,
    clip: float,
    strategy: str = "vmap",
) -> tuple[Any, jax.Array]:
    """sum_i mask_i clip_C(grad_u loss(u, record_i)) and the norms before clipping.

    Each record's gradient is scaled to an l2 norm (over all leaves of u together) of at most C; shorter ones pass
    unchanged up to a factor 1 - 4e-6 that keeps floating-point rounding below C. So adding or removing one record moves
    the sum by at most C, replacing one by at most 2 C. A record whose gradient has a NaN or infinite entry contributes
    zero, and so does padding (mask False). An empty minibatch gives zeros.

    :param loss: ``loss(u, record) -> scalar`` for one record (leaves of ``records`` without their first axis).
    :param u: pytree of float arrays.
    :param records: pytree of arrays with a first axis of length M.
    :param mask: bool[M], False on padding.
    :param clip: C >= 1e-12 (``inf`` switches clipping off: no guarantee then).
    :param strategy: "vmap" materialises M gradients (Subramani et al. 2021).
    :return: (pytree like u, in float32 at least, float[M] norms). The norms come from records without noise: never
        release them.
    """
    _validate.choice("strategy", strategy, STRATEGIES)
    if not isinstance(clip, jax.Array) and clip != math.inf:
        _validate.number("clip", clip, at_least=SMALLEST_CLIP)
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(u, records)
    # half precision cannot hold a norm to the accuracy that the bound needs
    gradients = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), gradients)
    leaves = jax.tree.leaves(gradients)
    size = mask.shape[0]
    squares = sum((jnp.sum(jnp.square(leaf.reshape(size, -1)), axis=1) for leaf in leaves), jnp.zeros(size))
    norms = jnp.sqrt(squares)
    counted = mask & jnp.isfinite(norms)
    limit = clip * _SAFETY
    factors = jnp.where(norms > limit, limit / jnp.where(counted & (norms > 0), norms, 1), _SAFETY)
    factors = jnp.where(counted, factors, 0)

    def total(leaf: jax.Array) -> jax.Array:
        flat = jnp.where(counted[:, None], leaf.reshape(size, -1), 0)
        return (factors.astype(leaf.dtype) @ flat).reshape(leaf.shape[1:])

    return jax.tree.map(total, gradients), norms
