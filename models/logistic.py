"""Bayesian logistic regression: y ~ Bernoulli(sigmoid(x . weights + intercept)).

Global latents: ``weights`` (one per feature) and ``intercept``, normal priors. Local latents: none. Fits tables with
numeric features in [-1, 1] and a target of 0 and 1. Copy this file to start a model of your own.

Reference: Jälkö, Dikmen and Honkela 2017, "Differentially private variational inference for non-conjugate models",
section 5.1.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from workbench.models._scoring import binary_scores
from workbench.models.model import Model

from workbench import _validate

__all__ = ["guide", "logistic", "model", "predict"]

_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior


def model(x, y=None, num_records=None, prior_scale=5.0):
    """The NumPyro model. ``x``: float[B, D], ``y``: int[B] or None, ``num_records``: N (B by default)."""
    num_features = x.shape[-1]
    weights = numpyro.sample("weights", dist.Normal(0, prior_scale).expand([num_features]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, prior_scale))
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)


def guide(x, y=None, num_records=None, prior_scale=5.0):
    """Mean-field normal guide over weights and intercept."""
    for name, shape in (("weights", (x.shape[-1],)), ("intercept", ())):
        location = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(f"{name}_scale", jnp.full(shape, _INITIAL_SCALE), constraint=constraints.softplus_positive)
        numpyro.sample(name, dist.Normal(location, scale).to_event(len(shape)))


def predict(latents: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Probability of class 1 for each row of ``x``, float[B], under one posterior draw."""
    return jax.nn.sigmoid(x @ latents["weights"] + latents["intercept"])


def _check(dataset: Any) -> None:
    if len(dataset.train) != 2 or dataset.train[0].ndim != 2:
        raise _validate.ArgumentError(
            "data", dataset.name, "the logistic model fits a table of features with a binary target."
        )


def _coordinates(dataset: Any) -> dict[str, list[str]]:
    return {"weights": list(dataset.feature_names)}


def logistic(prior_scale: float = 5.0) -> Model:
    """The registry entry.

    :param prior_scale: standard deviation of the normal priors, in logits per unit of a feature scaled to [-1, 1].
    """
    scale = _validate.number("prior_scale", prior_scale, above=0)
    return Model(
        name="logistic",
        summary="Bayesian logistic regression: a binary target from numeric features, with an interval for each weight.",
        model=model,
        guide=guide,
        predict=predict,
        score=binary_scores,
        check=_check,
        coordinates=_coordinates,
        options={"prior_scale": scale},
        reference="Jälkö, Dikmen and Honkela 2017, section 5.1",
    )
