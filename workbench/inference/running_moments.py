"""Running moments of what a private run releases: the points u and the noised gradients there.

They are functions of the release, so the guarantee covers them and they cost no privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench.inference.norm_counts import RANGES

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["Moments", "arrays_of", "empty", "moments_in", "with_pull", "with_release"]

# no name of a parameter: their sites' names hold no blanks before a slash
_PREFIX = "moments of the release/"


class Moments(NamedTuple):
    """Sums over steps of z = (1, u - origin, g), where g is the noised gradient of the
    log-likelihood of all records at u.

    Sums of squares of u itself would lose their digits in float32, so u is counted from the first
    one.

    :param origin: float32[d]; None, as ``sums`` is, where only norms are kept.
    :param sums: of (1, u - origin) z', float32[1 + d, 1 + 2 d].
    :param norms: a 1 for each step and its noised counts of gradients by ranges of their norm,
        float32[1 + RANGES]; None where norms were not counted.
    :param rung: where C is on its ladder (``adaptive_clip``), int32; None where C is not adapted.
    :param warm_up: as ``norms``, but of the steps since C was last decided on.
    :param pull: sums over the steps whose iterates are averaged of (1, v, v^2), where v is the
        direction in which the optimiser's gradient moves u, float32[1 + 2 d]; None where they are
        not kept.
    """

    origin: Any
    sums: Any
    norms: Any = None
    rung: Any = None
    warm_up: Any = None
    pull: Any = None

    @property
    def steps(self) -> float:
        """How many counted."""
        return float(np.asarray(self.sums)[0, 0])

    def centred(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Means of u and g, float[d], sums of (u - mean) (u - mean)' and of (u - mean) (g - mean)',
        float[d, d].

        Without steps they are NaN.
        """
        sums, size = np.asarray(self.sums, float), len(self.origin)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = sums[0, 1:] / sums[0, 0]
        products = sums[1:, 1:] - sums[0, 0] * np.outer(means[:size], means)
        return (
            np.asarray(self.origin, float) + means[:size],
            means[size:],
            products[:, :size],
            products[:, size:],
        )


def empty(size: int | None, counts_norms: bool = False, adapts_clip: bool = False) -> Moments:
    """Those of no step.

    :param size: d, or None to keep no sums of z and v.
    """

    def zeros(*shape: int) -> jax.Array:
        # jnp.zeros would compile a program for each shape
        return jax.device_put(np.zeros(shape, np.float32))

    origin, sums, pull = (
        (None,) * 3
        if size is None
        else (zeros(size), zeros(1 + size, 1 + 2 * size), zeros(1 + 2 * size))
    )
    norms, warm_up = (
        zeros(1 + RANGES) if is_counted else None for is_counted in (counts_norms, adapts_clip)
    )
    return Moments(origin, sums, norms, jnp.int32(0) if adapts_clip else None, warm_up, pull)


def with_release(
    moments: Moments, point: PyTree, gradient: PyTree, norms: jax.Array | None, counts: jax.Array
) -> Moments:
    """``moments`` with one more step.

    :param point: u, a pytree of arrays. :param gradient: g, like it. :param norms: noised counts,
        float32[RANGES].
    :param counts: whether the step counts, bool scalar.
    """
    weight = counts.astype(jnp.float32)[None]
    if moments.norms is not None and norms is not None:
        moments = moments._replace(
            norms=moments.norms + weight * jnp.concatenate([jnp.ones(1, jnp.float32), norms])
        )
    if moments.sums is None:
        return moments
    point, gradient = (
        jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])
        for tree in (point, gradient)
    )
    point = point.astype(jnp.float32)
    origin = jnp.where(moments.sums[0, 0] > 0, moments.origin, point)
    # a barrier: else the draw of u would be computed again for each entry of the product
    row = jax.lax.optimization_barrier(
        jnp.concatenate([jnp.ones(1, jnp.float32), point - origin, gradient.astype(jnp.float32)])
    )
    return moments._replace(
        origin=origin, sums=moments.sums + jnp.outer(weight * row[: 1 + len(point)], row)
    )


def with_pull(moments: Moments, direction: PyTree, counts: jax.Array) -> Moments:
    """``moments`` with the direction v of one more step.

    :param direction: v, a pytree like u. :param counts: whether the step counts, bool scalar.
    """
    flat = jnp.concatenate(
        [jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(direction)]
    )
    row = jnp.concatenate([jnp.ones(1, jnp.float32), flat, jnp.square(flat)])
    return moments._replace(pull=moments.pull + jnp.where(counts, row, 0.0))


def arrays_of(moments: Moments | None) -> dict[str, np.ndarray]:
    """``moments`` as arrays by name, to be kept with parameters."""
    fields = {} if moments is None else moments._asdict()
    return {_PREFIX + name: np.asarray(leaf) for name, leaf in fields.items() if leaf is not None}


def moments_in(arrays: Mapping[str, np.ndarray]) -> tuple[Moments | None, dict[str, np.ndarray]]:
    """The inverse of ``arrays_of``, and the other arrays."""
    mine: dict[str, Any] = {
        name.removeprefix(_PREFIX): array
        for name, array in arrays.items()
        if name.startswith(_PREFIX)
    }
    remaining = {name: array for name, array in arrays.items() if not name.startswith(_PREFIX)}
    return (
        Moments(**{"origin": None, "sums": None, **mine})
        if mine and set(mine) <= set(Moments._fields)
        else None
    ), remaining
