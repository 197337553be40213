"""Hierarchical logistic regression: each group of records has its own weights, which public facts
about it predict.

    mixing (D x K) ~ Normal(0, mixing_scale)
    weights_l      ~ Normal(mixing . g_l, group_scale)    for each group l, with public features g_l
    y_i            ~ Bernoulli(sigmoid(weights_group(i) . x_i))    for each record i

    (mixing) --+     +-- groups L --+     +- records N -+
               +---> |  (weights) --|---> |    [ y ]    |
    (scale) ---+     +--------------+     +-------------+

Global latents: ``mixing``, ``group_weights`` and, if it is learnt, ``group_scale``. A group has
many records, so its weights are shared by records and global as well. Local latents: none. Only
``group_weights`` are used with records, so noise is added to them alone, and ``mixing`` learns from
them without noise. A group without records has the weights that its features predict.

Fits tables with numeric features, a group and a target of 0 and 1. Predicts the probability of
class 1. Scores are AUC and log-likelihood. Copy this file to start your own hierarchical model.

Reference: Prediger, Loppi, Kaski and Honkela 2022, "d3p - a Python package for differentially
private probabilistic programming", sections 3.3 and 5.3.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from workbench import ArgumentError, data
from workbench.models import Model, checks, clip_share, guides, pictures, scoring

__all__ = ["guide", "hierarchical_logistic", "model", "predict"]

_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior
_LEARNT = "learnt"


def _with_intercept(x):
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1), x.dtype)], axis=-1)


def model(
    x,
    group,
    y=None,
    num_records=None,
    group_features=None,
    mixing_scale=4.0,
    group_scale=1.0,
    group_guide=True,
    intercept=False,
):
    """The NumPyro model.

    :param x: float[B, D]. :param group: int[B], in 0 .. L - 1. :param y: int[B], or None to draw
        it.
    :param num_records: N (B by default). :param group_features: float[L, K], public.
    The other arguments are options of ``hierarchical_logistic``. ``group_guide`` is for the guide
    only.
    """
    if intercept:
        x = _with_intercept(x)
    shape = (x.shape[-1], group_features.shape[-1])
    mixing = numpyro.sample("mixing", dist.Normal(0, mixing_scale).expand(shape).to_event(2))
    if group_scale == _LEARNT:
        group_scale = numpyro.sample("group_scale", dist.HalfNormal(1.0))
    with numpyro.plate("groups", group_features.shape[0]):
        weights = numpyro.sample(
            "group_weights", dist.Normal(group_features @ mixing.T, group_scale).to_event(1)
        )
    with numpyro.plate("records", num_records or x.shape[0], subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(weights[group] * x, axis=-1)), obs=y)


def guide(
    x,
    group,
    y=None,
    num_records=None,
    group_features=None,
    mixing_scale=4.0,
    group_scale=1.0,
    group_guide=True,
    intercept=False,
):
    """Mean-field normal guide. If ``group_scale`` is learnt, its logarithm is normal.

    Without ``group_guide``, the guide leaves out the group weights, and they are drawn from the
    model. Then only the part of a group's weights that its features explain is learnt.
    """
    num_features = x.shape[-1] + intercept
    _normal("mixing", (num_features, group_features.shape[-1]))
    if group_scale == _LEARNT:
        location = numpyro.param("group_scale_loc", jnp.zeros(()))
        scale = numpyro.param(
            "group_scale_scale", jnp.array(_INITIAL_SCALE), constraint=constraints.softplus_positive
        )
        numpyro.sample("group_scale", dist.LogNormal(location, scale))
    if group_guide:
        with numpyro.plate("groups", group_features.shape[0]):
            _normal("group_weights", (group_features.shape[0], num_features), event_dims=1)


def joint_model(x, group, y=None, num_records=None, covariance="full", **options):
    """``model``, with an option that is for the guide."""
    model(x, group, y, num_records, **options)


def joint_guide(
    x,
    group,
    y=None,
    num_records=None,
    group_features=None,
    group_scale=1.0,
    group_guide=True,
    intercept=False,
    **options,
):
    """Normal guide with all covariances; ``guide`` describes the options."""
    num_features, learns_scale = x.shape[-1] + intercept, group_scale == _LEARNT
    shapes: dict[str, tuple[int, ...]] = {"mixing": (num_features, group_features.shape[1])}
    shapes |= {"group_scale": ()} if learns_scale else {}
    shapes |= {"group_weights": (group_features.shape[0], num_features)} if group_guide else {}
    values = guides.joint_normal(shapes, _INITIAL_SCALE)
    numpyro.sample("mixing", dist.Delta(values["mixing"], event_dim=2))
    if learns_scale:  # the density of the exponential of a normal
        numpyro.sample(
            "group_scale",
            dist.Delta(jnp.exp(values["group_scale"]), log_density=-values["group_scale"]),
        )
    if group_guide:
        with numpyro.plate("groups", group_features.shape[0]):
            numpyro.sample("group_weights", dist.Delta(values["group_weights"], event_dim=1))


def _normal(name, shape, event_dims=2):
    location = numpyro.param(f"{name}_loc", jnp.zeros(shape))
    scale = numpyro.param(
        f"{name}_scale", jnp.full(shape, _INITIAL_SCALE), constraint=constraints.softplus_positive
    )
    numpyro.sample(name, dist.Normal(location, scale).to_event(event_dims))


def predict(values: dict[str, jax.Array], x: jax.Array, group: jax.Array) -> jax.Array:
    """Probability of class 1 for each row of ``x``, float[B], under one posterior draw."""
    weights = values["group_weights"][group]
    if weights.shape[-1] == x.shape[-1] + 1:
        x = _with_intercept(x)
    return jax.nn.sigmoid(jnp.sum(weights * x, axis=-1))


def _check(dataset: data.Dataset) -> None:
    if len(dataset.train) != 3 or dataset.train[0].ndim != 2:
        raise ArgumentError(
            "data",
            dataset.name,
            "must be a table of features, a group and a binary target for this model.",
        )
    if not dataset.groups:
        raise ArgumentError(
            "data", dataset.name, "must declare its groups, because the model has weights for each."
        )
    scoring.check_binary_target(dataset)


def _constants(dataset: data.Dataset) -> dict[str, Any]:
    features = (
        np.ones((len(dataset.groups), 1))
        if dataset.group_features is None
        else dataset.group_features
    )
    return {"group_features": np.asarray(features, np.float32)}


def _coordinates(dataset: data.Dataset, intercept: bool) -> dict[str, Any]:
    weights = [*dataset.feature_names, *(["intercept"] if intercept else [])]
    names = list(dataset.group_feature_names) or ["constant"]
    return {"mixing": (weights, names), "group_weights": (list(dataset.groups), weights)}


def _advice(
    dataset: data.Dataset, num_records: int, epsilon: float, *, intercept: bool
) -> dict[str, Any]:
    """C as a share of the norm of a record's gradient where all its features are 1: the share of
    the gallery's logistic regression for one group, with its part of the records.
    """
    size = dataset.train[0].shape[1] + intercept
    fraction = clip_share(num_records * epsilon / (size * len(dataset.groups)))
    return {"iterations": 1000, "clip": fraction * size**0.5, "average": True}


def hierarchical_logistic(
    mixing_scale: float = 4.0,
    group_scale: float | Literal["learnt"] = 1.0,
    group_guide: bool = True,
    intercept: bool = False,
    covariance: Literal["diagonal", "full"] = "diagonal",
) -> Model:
    """Hierarchical logistic regression.

    >>> model = wb.models.get("hierarchical_logistic", intercept=True)
    >>> model.arrays
    ('x', 'group', 'y')

    :param mixing_scale: standard deviation of the entries of ``mixing``, in logits per unit of a
        feature and of a group feature.
    :param group_scale: how far a group's weights stray from what its features predict, a standard
        deviation in logits per unit of a feature; or "learnt", with a half-normal prior of scale 1.
    :param group_guide: True learns each group's own weights; False learns ``mixing`` alone, which
        takes less data.
    :param intercept: True gives every group an intercept, as the weight of a constant feature;
        measured data usually need one, the synthetic records of the literature have none.
    :param covariance: of the guide, "diagonal" or "full". The full one fits correlated weights, and
        needs little noise.
    """
    if isinstance(group_scale, str):
        if group_scale != _LEARNT:
            raise ArgumentError("group_scale", group_scale, f"must be a number or {_LEARNT!r}.")
    else:
        group_scale = checks.number("group_scale", group_scale, above=0)
    is_full = checks.choice("covariance", covariance, ("diagonal", "full")) == "full"
    return Model(
        name="hierarchical_logistic",
        summary="Hierarchical logistic regression: a binary target, with weights for each group "
        "that its features predict.",
        model=joint_model if is_full else model,
        guide=joint_guide if is_full else guide,
        predict=predict,
        score=scoring.binary_scores,
        check=_check,
        coordinates=functools.partial(_coordinates, intercept=intercept),
        constants=_constants,
        arrays=("x", "group", "y"),
        options={
            "mixing_scale": checks.number("mixing_scale", mixing_scale, above=0),
            "group_scale": group_scale,
            "group_guide": checks.flag("group_guide", group_guide),
            "intercept": checks.flag("intercept", intercept),
            **({"covariance": "full"} if is_full else {}),
        },
        defaults=functools.partial(_advice, intercept=intercept),
        pictures={"groups": pictures.groups},
        reference="Prediger, Loppi, Kaski and Honkela 2022, sections 3.3 and 5.3",
        is_for_scaled=True,
    )
