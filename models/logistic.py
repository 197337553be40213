"""Bayesian logistic regression: y ~ Bernoulli(sigmoid(x . weights + intercept)).

    (weights) ---+     +- records N -+
                 +---> |    [ y ]    |
    (intercept) -+     +-------------+

Global latents: ``weights`` (one per feature) and ``intercept``, each with a prior around zero.
Local latents: none. Fits tables with numeric features in [-1, 1] and a target of 0 and 1. Predicts
the probability of class 1. Scores are AUC and log-likelihood. Copy this file to start your own
model.

Reference: Jälkö, Dikmen and Honkela 2017, "Differentially private variational inference for
non-conjugate models", section 5.1.
"""

from __future__ import annotations

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from workbench import ArgumentError, data
from workbench.models import LinearPredictor, Model, checks, clip_share, guides, pictures, scoring

__all__ = ["guide", "logistic", "model", "predict"]

_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior


_PRIORS = {
    "normal": functools.partial(dist.Normal, 0.0),
    "laplace": functools.partial(dist.Laplace, 0.0),
    "student_t": functools.partial(
        dist.StudentT, 3.0, 0.0
    ),  # 3 degrees of freedom: a variance, but heavy tails
    "cauchy": functools.partial(dist.Cauchy, 0.0),
}


def model(x, y=None, num_records=None, prior_scale=5.0, prior="normal", intercept=True):
    """The NumPyro model. ``x``: float[B, D], ``y``: int[B] or None, ``num_records``: N (B by
    default).
    """
    prior_of = _PRIORS[prior]
    logits = x @ numpyro.sample("weights", prior_of(prior_scale).expand([x.shape[-1]]).to_event(1))
    if intercept:
        logits = logits + numpyro.sample("intercept", prior_of(prior_scale))
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def guide(x, y=None, num_records=None, prior_scale=5.0, prior="normal", intercept=True):
    """Mean-field normal guide over weights and intercept."""
    shapes = {"weights": (x.shape[-1],)} | ({"intercept": ()} if intercept else {})
    for name, shape in shapes.items():
        location = numpyro.param(f"{name}_loc", jnp.zeros(shape))
        scale = numpyro.param(
            f"{name}_scale",
            jnp.full(shape, _INITIAL_SCALE),
            constraint=constraints.softplus_positive,
        )
        numpyro.sample(name, dist.Normal(location, scale).to_event(len(shape)))


def joint_model(x, y=None, num_records=None, covariance="full", **options):
    """``model``, with an option that is for the guide."""
    model(x, y, num_records, **options)


def joint_guide(x, y=None, num_records=None, intercept=True, **options):
    """Normal guide with the covariances of weights and intercept."""
    shapes = {"weights": (x.shape[-1],)} | ({"intercept": ()} if intercept else {})
    for name, value in guides.joint_normal(shapes, _INITIAL_SCALE).items():
        numpyro.sample(name, dist.Delta(value, event_dim=value.ndim))


def predict(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Probability of class 1 for each row of ``x``, float[B], under one posterior draw."""
    return jax.nn.sigmoid(x @ values["weights"] + values.get("intercept", 0.0))


def _check(dataset: data.Dataset) -> None:
    if len(dataset.train) != 2 or dataset.train[0].ndim != 2:
        raise ArgumentError(
            "data", dataset.name, "must be a table of features with a binary target for this model."
        )
    scoring.check_binary_target(dataset)


def _advice(dataset: data.Dataset, num_records: int, epsilon: float) -> dict[str, float]:
    """C as a share of the largest possible norm of a record's gradient, for the cost of noise and
    the bias of clipping.

    Every column of the table adds at most 1 to |x|^2, however many features it becomes, and the
    intercept adds 1. Noise is added for each feature: with C at the largest norm, its length in the
    mean gradient grows with sqrt(columns features) / (N epsilon). ``clip_share`` has the share.
    """
    features = dataset.train[0].shape[1]
    columns = features if dataset.schema is None else len(dataset.schema.columns)
    noise_ratio = (columns / features) ** (1 / 6)
    fraction = clip_share(num_records * epsilon / columns, noise_ratio=noise_ratio)
    largest = (columns + 1) ** 0.5
    return {"clip": fraction * largest, "largest_clip": largest}


def _coordinates(dataset: data.Dataset) -> dict[str, list[str]]:
    return {"weights": list(dataset.feature_names)}


def logistic(
    prior_scale: float = 5.0,
    prior: Literal["normal", "laplace", "student_t", "cauchy"] = "normal",
    intercept: bool = True,
    covariance: Literal["diagonal", "full"] = "diagonal",
) -> Model:
    """Bayesian logistic regression.

    >>> model = wb.models.get("logistic", prior="laplace", prior_scale=1.0)
    >>> model.options
    {'prior_scale': 1.0, 'prior': 'laplace', 'intercept': True}

    :param prior_scale: scale of the priors (standard deviation of the normal one), in logits per
        unit of a feature scaled to [-1, 1].
    :param prior: "normal"; or with heavier tails, for few large weights among many small ones,
        "laplace", "student_t" (3 degrees of freedom) or "cauchy".
    :param intercept: False leaves the intercept out.
    :param covariance: of the guide, "diagonal" or "full". The full one fits correlated columns, and
        needs little noise.
    """
    is_full = checks.choice("covariance", covariance, ("diagonal", "full")) == "full"
    return Model(
        name="logistic",
        summary="Bayesian logistic regression: a binary target from numeric features, with an "
        "interval for each weight.",
        model=joint_model if is_full else model,
        guide=joint_guide if is_full else guide,
        predict=predict,
        score=scoring.binary_scores,
        check=_check,
        coordinates=_coordinates,
        arrays=("x", "y"),
        defaults=_advice,
        pictures={"coefficients": pictures.coefficients},
        linear=LinearPredictor("weights", "intercept" if intercept else "", "odds ratio"),
        options={
            "prior_scale": checks.number("prior_scale", prior_scale, above=0),
            "prior": checks.choice("prior", prior, _PRIORS),
            "intercept": checks.flag("intercept", intercept),
            **({"covariance": "full"} if is_full else {}),
        },
        reference="Jälkö, Dikmen and Honkela 2017, section 5.1",
        is_for_scaled=True,
    )
