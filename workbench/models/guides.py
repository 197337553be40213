"""Parts of guides."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

__all__ = ["joint_normal"]


def joint_normal(shapes: Mapping[str, tuple[int, ...]], scale: float) -> dict[str, jax.Array]:
    """Values of several latents, drawn from one normal distribution with all covariances; for use
    in a guide.

    The guide gives them to its sites as ``dist.Delta(value, event_dim=value.ndim)``. Their
    locations and the Cholesky factor of their covariance are the parameters ``joint_loc``, d
    numbers, and ``joint_scale_tril``, d (d + 1) / 2. Noise is added in d coordinates all the same,
    as for a guide without covariances.

    >>> from numpyro import handlers
    >>> draw = handlers.seed(wb.models.guides.joint_normal, 0)
    >>> {
    ...     name: value.shape
    ...     for name, value in draw({"weights": (3,), "intercept": ()}, 0.1).items()
    ... }
    {'weights': (3,), 'intercept': ()}

    :param shapes: of the latents.
    :param scale: standard deviation of all entries at the beginning.
    """
    sizes = [math.prod(shape) for shape in shapes.values()]
    location = numpyro.param("joint_loc", jnp.zeros(sum(sizes)))
    factor = numpyro.param(
        "joint_scale_tril",
        scale * jnp.eye(sum(sizes)),
        constraint=constraints.scaled_unit_lower_cholesky,
    )
    normal = dist.MultivariateNormal(location, scale_tril=factor)
    drawn = numpyro.sample("joint", normal, infer={"is_auxiliary": True})
    values = jnp.split(drawn, np.cumsum(sizes)[:-1])
    return {
        name: value.reshape(shape)
        for (name, shape), value in zip(shapes.items(), values, strict=True)
    }
