"""Linear regression: y ~ Normal(x . weights + intercept, noise), with features and target scaled to
[-1, 1].

    (weights) ---+     +- records N -+
    (intercept) -+---> |    [ y ]    |
    (log_noise) -+     +-------------+

Global latents: ``weights``, ``intercept`` and ``log_noise``, the logarithm of the standard
deviation of the target around its mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from workbench.models import Model

if TYPE_CHECKING:
    import numpy as np

    from workbench.data import Dataset

__all__ = ["linear"]

_INITIAL_SCALE = 0.1  # of the guide, as in the gallery's logistic regression
_NOISE = 0.3  # of the target whose range is 2: the middle of its prior, and where the guide begins


def _shapes(x: jax.Array) -> dict[str, tuple[int, ...]]:
    return {"weights": (x.shape[-1],), "intercept": (), "log_noise": ()}


def _model(x, y=None, num_records=None, prior_scale=5.0):
    mean = x @ numpyro.sample(
        "weights", dist.Normal(0.0, prior_scale).expand([x.shape[-1]]).to_event(1)
    )
    mean = mean + numpyro.sample("intercept", dist.Normal(0.0, prior_scale))
    log_noise = numpyro.sample("log_noise", dist.Normal(jnp.log(_NOISE), 1.0))
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Normal(mean, jnp.exp(log_noise)), obs=y)


def _guide(x, y=None, num_records=None, prior_scale=5.0):
    for name, shape in _shapes(x).items():
        start = jnp.full(shape, jnp.log(_NOISE) if name == "log_noise" else 0.0)
        location = numpyro.param(f"{name}_loc", start)
        scale = numpyro.param(
            f"{name}_scale",
            jnp.full(shape, _INITIAL_SCALE),
            constraint=constraints.softplus_positive,
        )
        numpyro.sample(name, dist.Normal(location, scale).to_event(len(shape)))


def _predict(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ values["weights"] + values["intercept"]


def _no_scores(target: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    return {}


def _advice(dataset: Dataset, num_records: int, epsilon: float) -> dict[str, float]:
    """C at the norm of the gradient of a record that is one standard deviation of the noise off,
    where a fit begins.
    """
    columns = dataset.train[0].shape[1] if dataset.schema is None else len(dataset.schema.columns)
    return {"clip": (columns + 1) ** 0.5 / _NOISE}


def _coordinates(dataset: Dataset) -> dict[str, list[str]]:
    return {"weights": list(dataset.feature_names)}


def linear(prior_scale: float) -> Model:
    """The model. :param prior_scale: standard deviation of weights and intercept."""
    return Model(
        name="linear",
        summary="Linear regression: a number from numeric features.",
        model=_model,
        guide=_guide,
        predict=_predict,
        score=_no_scores,
        coordinates=_coordinates,
        arrays=("x", "y"),
        defaults=_advice,
        options={"prior_scale": prior_scale},
    )
