"""The log-likelihood of all records near a point, as a quadratic, without noise: for fits without
privacy only.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.random import Generator

from workbench.inference import program_cache
from workbench.posterior import noise_aware
from workbench.posterior.joint_prior import JointPrior, NoNoiseAwarePosterior
from workbench.posterior.noise_aware import Prior
from workbench.record_model.model import Record, RecordModel

__all__ = ["draw"]

_AT_ONCE = 4096  # records
_MOST_TURNS = 20
_ARRIVED = (
    0.15  # standard deviations of the posterior; the mean of 1000 draws is known to 0.03 of them
)


def draw(
    model: RecordModel,
    prior: Prior | JointPrior,
    point: np.ndarray,
    records: Any,
    count: int,
    generator: Generator,
) -> np.ndarray:
    """Draws of the released quantities, as of ``noise_aware.draw``, from prior times normal
    likelihood, float[count, k].

    The likelihood is a normal one with the gradient and the curvature that all records have at the
    middle of the draws, which Newton's method finds. They are exact functions of the records, so
    what is drawn is not private.

    :param point: u where it begins, float[d]. :param records: all of them, arrays with first axis
        N.
    :raises NoNoiseAwarePosterior: if the method does not arrive.
    """
    of_part = program_cache.jit(lambda at, block: _derivatives(model, at, block))
    for _ in range(_MOST_TURNS):
        gradient, curvature = _summed(of_part, point, records)
        eigenvalues, vectors = np.linalg.eigh(curvature)
        curvature = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
        if not (np.all(np.isfinite(gradient)) and np.all(np.isfinite(curvature))):
            break
        linear = gradient + curvature @ point
        drawn = noise_aware.of_quadratics(
            prior,
            np.broadcast_to(curvature, (count, *curvature.shape)),
            np.broadcast_to(linear, (count, len(linear))),
            generator,
        )
        released = drawn[:, : len(point)]  # a JointPrior has those of the release first
        middle, spread = released.mean(axis=0), released.std(axis=0)
        arrived = np.all(np.abs(middle - point) <= _ARRIVED * spread)
        if arrived:
            return drawn
        point = middle
    raise NoNoiseAwarePosterior("Newton's method did not arrive at a maximum of the posterior")


def _summed(of_part: Any, point: np.ndarray, records: Any) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and negative second derivatives of the log-likelihood of all records, float64[d] and
    [d, d].
    """
    gradient, curvature = np.zeros(len(point)), np.zeros((len(point), len(point)))
    for start in range(0, len(records[0]), _AT_ONCE):
        block = tuple(np.asarray(array[start : start + _AT_ONCE]) for array in records)
        slope, bend = jax.device_get(of_part(jnp.asarray(point, jnp.float32), block))
        gradient, curvature = gradient - slope, curvature + bend
    return gradient, (curvature + curvature.T) / 2


def _derivatives(
    model: RecordModel, point: jax.Array, records: Record
) -> tuple[jax.Array, jax.Array]:
    """Gradient and second derivatives of the loss, the negative log-likelihood, of some records at
    u.
    """
    like = {name: jnp.asarray(value) for name, value in _shapes(model).items()}
    ends = np.cumsum([array.size for array in like.values()])[:-1]

    def loss(flat: jax.Array) -> jax.Array:
        segments = jnp.split(flat, ends)
        shared = {
            name: segment.reshape(like[name].shape)
            for name, segment in zip(like, segments, strict=True)
        }
        return jnp.sum(model.record_losses(shared, records, jax.random.key(0)))

    return jax.grad(loss)(point), jax.hessian(loss)(point)


def _shapes(model: RecordModel) -> dict[str, Any]:
    """An array like each entry of u, in their order."""
    shared, _ = model.release_point(model.initial, jax.random.key(0))
    return {name: shared[name] for name in model.shared}
