"""Gradients of regressions whose mean stays 0 under the model when they are clipped.

At the true parameters a record's score s has mean 0. Clipped to norm C it has not, unless its
distribution is symmetric, and estimates move to where the clipped mean is 0. So records release

    clip_C(s - a(x)),   where   E_y[clip_C(s(y) - a(x))] = 0   for y ~ p(. | x, parameters)

(Künsch, Stefanski and Carroll 1989, conditionally unbiased bounded influence). The shift a depends
on the record's x and on the parameters alone, and clipping comes last: norms are at most C
whatever a is, so neither sensitivity nor accounting know of it. Where nothing is clipped, a is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Nodes", "shift", "shift_of_square"]

Array = jax.Array
_ITERATIONS = 6  # after which a is within 0.003 of its limit, also where C is small
# between which shifts are interpolated; those of shorter records have their limit
_LOG_SQUARES = np.log(2) * np.append(np.arange(-16.0, -4.0), np.arange(-4.0, 15.25, 0.25))


class Nodes(NamedTuple):
    """Responses over which a record's expectations are sums.

    :param values: float[K]. :param log_widths: float[K], of the intervals that they stand for; 0
        where a response is a count, or has a probability.
    """

    values: Array
    log_widths: Array


def shift(
    log_density: Callable[[Array, Array], Array],
    point: Array,
    nodes: Nodes,
    square: Array,
    clip: Array,
) -> Array:
    """a, float[F], of one record.

    :param log_density: (coordinates float[F], responses float[K]) -> float[K]. :param point: the
        coordinates: the predictor and the family's parameters.
    :param square: of the predictor's gradient in what is released, float scalar; parameters are
        released themselves.
    """
    squares = jnp.ones_like(point).at[0].set(square)
    weights = jax.nn.softmax(log_density(point, nodes.values) + nodes.log_widths)
    scores = jax.jacfwd(log_density)(point, nodes.values).T  # [F, K]
    scores = scores - (scores @ weights)[:, None]  # what is left of the sums' error

    def improved(_: int, a: Array) -> Array:
        norms = jnp.sqrt(squares @ jnp.square(scores - a[:, None]))
        clipped = weights * jnp.where(norms > clip, clip / jnp.where(norms > 0, norms, 1), 1.0)
        return (scores @ clipped) / jnp.sum(clipped)

    a = jax.lax.fori_loop(0, _ITERATIONS, improved, jnp.zeros_like(point))
    return jnp.where(jnp.all(jnp.isfinite(a)), a, 0.0)


def shift_of_square(
    log_density: Callable[[Array, Array], Array],
    point: Array,
    nodes: Nodes,
    square: Array,
    clip: Array,
) -> Array:
    """``shift`` where scores have the same distribution whatever the predictor: a then follows from
    how long a record's x is. It is computed for a few lengths, once for all records of a step.

    :param point: of any predictor, the same for all records. :param square: as of ``shift``.
    """
    squares = jnp.asarray(np.exp(_LOG_SQUARES), point.dtype)
    table = jax.vmap(lambda square: shift(log_density, point, nodes, square, clip))(squares)
    log_square = jnp.log(square)
    a = jnp.stack([jnp.interp(log_square, _LOG_SQUARES, column) for column in table.T])
    return jnp.where(jnp.all(jnp.isfinite(a)), a, 0.0)
