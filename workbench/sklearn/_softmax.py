"""Softmax regression: y ~ Categorical(softmax(x . weights + intercept)), the classifier's model for
three classes or more.

    (weights) ---+     +- records N -+
                 +---> |    [ y ]    |
    (intercept) -+     +-------------+

Global latents: ``weights``, one for each feature and class, and ``intercept``, one for each class,
each with a normal prior around zero. One fit for all classes spends epsilon once. One against the
rest would spend it once for each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from workbench.models import Model, get, scoring

if TYPE_CHECKING:
    from workbench.data import Dataset

__all__ = ["softmax"]

_INITIAL_SCALE = 0.1  # of the guide, as in the gallery's logistic regression


def _shapes(x: jax.Array, num_classes: int) -> dict[str, tuple[int, ...]]:
    return {"weights": (x.shape[-1], num_classes), "intercept": (num_classes,)}


def _model(x, y=None, num_records=None, num_classes=3, prior_scale=5.0):
    drawn = {
        name: numpyro.sample(name, dist.Normal(0.0, prior_scale).expand(shape).to_event(len(shape)))
        for name, shape in _shapes(x, num_classes).items()
    }
    logits = x @ drawn["weights"] + drawn["intercept"]
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Categorical(logits=logits), obs=y)


def _guide(x, y=None, num_records=None, num_classes=3, prior_scale=5.0):
    for name, shape in _shapes(x, num_classes).items():
        location = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(
            f"{name}_scale",
            jnp.full(shape, _INITIAL_SCALE),
            constraint=constraints.softplus_positive,
        )
        numpyro.sample(name, dist.Normal(location, scale).to_event(len(shape)))


def _predict(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x @ values["weights"] + values["intercept"])


def _advice(dataset: Dataset, num_records: int, epsilon: float) -> dict[str, float]:
    """C as of the gallery's logistic regression: a record's residuals over all classes have norm
    sqrt(2) at most.
    """
    of_two = get("logistic").advice(dataset, num_records, epsilon)
    return {name: 2**0.5 * value for name, value in of_two.items()}


def _coordinates(dataset: Dataset) -> dict[str, Any]:
    return {
        "weights": (list(dataset.feature_names), list(dataset.classes)),
        "intercept": list(dataset.classes),
    }


def _constants(dataset: Dataset) -> dict[str, Any]:
    return {"num_classes": len(dataset.classes)}


def softmax(prior_scale: float) -> Model:
    """The model. :param prior_scale: standard deviation of weights and intercept."""
    return Model(
        name="softmax",
        summary="Softmax regression: one of several classes from numeric features.",
        model=_model,
        guide=_guide,
        predict=_predict,
        score=scoring.class_scores,
        coordinates=_coordinates,
        constants=_constants,
        arrays=("x", "y"),
        defaults=_advice,
        options={"prior_scale": prior_scale},
    )
