"""Terms whose weights have a prior of their own: curves, and steps of one sign.

What is learnt about all weights of a term stands above what records use, so no noise is added
to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import (
    ParameterFreeTransform,
    StickBreakingTransform,
    biject_to,
)

__all__ = ["Curve", "Monotone", "OneSign", "scale_of"]

_LEAST = 1e-30  # of an average step, whose logarithm is taken


def scale_of(curve: str) -> str:
    """The site of the standard deviation of a curve's weights."""
    return f"{curve}_sd"


@dataclass(frozen=True, eq=False)
class Curve:
    """The weights of a smooth but the line's: Normal(0, sd t_j).

    :param name: of the term. :param columns: their numbers, with t_j. :param sd: prior of sd.
    """

    name: str
    columns: Mapping[int, float]
    sd: dist.Distribution

    def weights(self, predictors: int) -> jax.Array:
        """A draw, float[columns], or float[columns, predictors] where there are several."""
        several = (predictors,) if predictors else ()
        sd = numpyro.sample(scale_of(self.name), self.sd.expand(several).to_event(len(several)))
        scales = np.array([*self.columns.values()], np.float32)
        scale = jnp.reshape(scales, (-1, *(1 for _ in several))) * sd
        return numpyro.sample(self.name, dist.Normal(0.0, scale).to_event(scale.ndim))


@dataclass(frozen=True, eq=False)
class Monotone:
    """The weights of a monotone effect: steps from each level to the next, all of one sign.

    :param name: of the term. :param columns: their numbers.
    :param average: prior of the average step, of either sign.
    """

    name: str
    columns: tuple[int, ...]
    average: dist.Distribution

    def weights(self, predictors: int) -> jax.Array:
        """A draw, float[columns]; of one predictor."""
        return numpyro.sample(self.name, OneSign(self.average, len(self.columns)))


class _OneSign(constraints.ParameterFreeConstraint):
    """Vectors without two entries of different signs."""

    event_dim = 1

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.all(x >= 0, axis=-1) | jnp.all(x <= 0, axis=-1)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.zeros_like(prototype)


class _StepsTransform(ParameterFreeTransform):
    """From the average step b and K - 1 free numbers to K steps b K share_k, where the numbers give
    the shares by breaking a stick. Smooth where b changes its sign.
    """

    domain = constraints.real_vector
    codomain = _OneSign()
    _stick = StickBreakingTransform()

    def __call__(self, x: jax.Array) -> jax.Array:
        return x[..., :1] * x.shape[-1] * self._stick(x[..., 1:])

    def _inverse(self, y: jax.Array) -> jax.Array:
        total, count = y.sum(axis=-1, keepdims=True), y.shape[-1]
        has_shares = jnp.abs(total) > _LEAST
        simplex = jnp.where(has_shares, y / jnp.where(has_shares, total, 1.0), 1 / count)
        return jnp.concatenate([total / count, self._stick.inv(simplex)], axis=-1)

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: Any = None
    ) -> jax.Array:
        free = x[..., 1:]
        of_shares = self._stick.log_abs_det_jacobian(free, self._stick(free))
        return math.log(x.shape[-1]) + _log_power(x[..., 0], x.shape[-1]) + of_shares


def _log_power(average: jax.Array, count: int) -> jax.Array:
    """log |count average|^(count - 1)."""
    return (count - 1) * jnp.log(jnp.maximum(jnp.abs(count * average), _LEAST))


@biject_to.register(_OneSign)
def _to_one_sign(constraint: _OneSign) -> _StepsTransform:
    return _StepsTransform()


class OneSign(dist.Distribution):
    """Steps whose average has a distribution of its own, and whose shares of their sum are uniform,
    Dirichlet(1), as in brms (Bürkner and Charpentier 2020).

    :param average: a distribution of one number. :param count: of steps, at least 2.
    """

    support = _OneSign()

    def __init__(
        self, average: dist.Distribution, count: int, *, validate_args: bool | None = None
    ) -> None:
        self.average = average
        super().__init__(event_shape=(count,), validate_args=validate_args)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws, float[sample_shape, count]."""
        of_average, of_shares = jax.random.split(key)
        (count,) = self.event_shape
        simplex = jax.random.dirichlet(of_shares, jnp.ones(count), sample_shape)
        return self.average.sample(of_average, sample_shape)[..., None] * count * simplex

    def log_prob(self, value: jax.Array) -> jax.Array:
        """float[...]. The density of the steps is infinite at 0, where all shares are possible; no
        average of steps is below 1e-30 in it.
        """
        (count,) = self.event_shape
        average = value.mean(axis=-1)
        of_shares = math.lgamma(count) - math.log(count) - _log_power(average, count)
        return self.average.log_prob(average) + of_shares
