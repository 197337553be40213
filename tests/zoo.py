"""Small NumPyro models and guides that the tests share: record arrays first, then ``num_records``.

Beside each stands what is known about it in closed form, in NumPy or plain JAX, for the tests to compare with.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

PRIOR_SCALE = 2.0


def shapes_of(*arrays):
    """Shapes and types of one record of ``arrays``, which is all that ``split`` may look at."""
    return tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in arrays)


# --- logistic regression --------------------------------------------------------------------------------------------


def logistic(x, y=None, num_records=None):
    weights = numpyro.sample("weights", dist.Normal(0, PRIOR_SCALE).expand([x.shape[-1]]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)


def logistic_guide(x, y=None, num_records=None):
    for name, shape in (("weights", (x.shape[-1],)), ("intercept", ())):
        loc = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(f"{name}_scale", jnp.full(shape, 0.1), constraint=constraints.positive)
        numpyro.sample(name, dist.Normal(loc, scale).to_event(len(shape)))


def logistic_data(num_records=200, features=3, seed=0):
    """(x in [-1, 1], y) with all true weights 2."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (num_records, features)).astype(np.float32)
    y = (rng.uniform(size=num_records) < 1 / (1 + np.exp(-2 * x.sum(axis=1)))).astype(np.int32)
    return x, y


def logistic_losses(weights, intercept, x, y):
    """-log p(y_i | x_i) for each record, in float64."""
    logits = np.asarray(x, np.float64) @ np.asarray(weights, np.float64) + float(intercept)
    return np.logaddexp(0, logits) - np.asarray(y) * logits


# --- a hyper-parameter that enters no record -----------------------------------------------------------------------


def hierarchical(x, y=None, num_records=None):
    """Logistic regression whose weights share an unknown prior scale: given the weights, no record depends on it."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    weights = numpyro.sample("weights", dist.Normal(0, scale).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def hierarchical_guide(x, y=None, num_records=None):
    loc = numpyro.param("scale_loc", 0.0)
    width = numpyro.param("scale_width", 0.1, constraint=constraints.positive)
    numpyro.sample("scale", dist.LogNormal(loc, width))
    weights_loc = numpyro.param("weights_loc", jnp.zeros(x.shape[-1]))
    weights_scale = numpyro.param("weights_scale", jnp.full(x.shape[-1], 0.1), constraint=constraints.positive)
    numpyro.sample("weights", dist.Normal(weights_loc, weights_scale).to_event(1))


# --- a mean with a conjugate prior -----------------------------------------------------------------------------------


def normal_mean(x, num_records=None):
    mean = numpyro.sample("mean", dist.Normal(0, PRIOR_SCALE))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0), obs=x)


def normal_mean_guide(x, num_records=None):
    loc = numpyro.param("loc", 0.0)
    scale = numpyro.param("scale", 0.5, constraint=constraints.positive)
    numpyro.sample("mean", dist.Normal(loc, scale))


def normal_mean_data(num_records=100, seed=0):
    return (np.random.default_rng(seed).normal(1.5, 1.0, num_records).astype(np.float32),)


def normal_mean_posterior(x):
    """(mean, standard deviation) of the exact posterior."""
    precision = PRIOR_SCALE**-2 + len(x)
    return float(np.sum(x, dtype=np.float64)) / precision, precision**-0.5
