"""Points that vary add to the mean gradient of a scale what ``ResidualScale`` takes off."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist

from workbench.posterior.noise_aware import ResidualScale


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_the_mean_gradient_over_points_is_that_at_their_mean_and_what_they_add(order):
    """Exact, for the gradient in sigma of a normal likelihood is quadratic in the weights."""
    random, sigma = np.random.default_rng(0), 0.4
    x = random.normal(size=(200, 2))
    y = x @ [0.3, -0.2] + sigma * random.normal(size=200)
    order = np.array(order)

    def log_likelihood(u):
        weights_and_scale = jnp.zeros(3).at[order].set(u)
        mean = x @ weights_and_scale[:2]
        return jnp.sum(dist.Normal(mean, weights_and_scale[2]).log_prob(y))

    center = np.array([0.28, -0.15, sigma])[order]
    steps = 0.2 * random.normal(size=(50, 2)) @ [[1.0, 0.4], [0.0, 0.5]]
    moves = np.zeros((100, 3))
    moves[:, :2] = np.concatenate([steps, -steps])
    moves = moves[:, order]
    gradient = jax.grad(log_likelihood)
    mean = np.mean(jax.jit(jax.vmap(gradient))(jnp.asarray(center + moves)), axis=0)
    located = order < 2
    curvature = -np.asarray(jax.hessian(log_likelihood)(jnp.asarray(center)), float)
    residuals = ResidualScale(int(np.argmin(located)), located)
    added = residuals.spread_of_points(curvature[None], center, moves.T @ moves / 100)[0]
    assert added[residuals.index] > 20
    np.testing.assert_allclose(mean - added, gradient(jnp.asarray(center)), rtol=1e-3, atol=0.05)
