"""Gaussian mixture: a record is a draw from one of K normal components, which is summed out.

    log_masses_k ~ log Gamma(1, 1)       softmax(log_masses) = weights ~ Dirichlet(1, ..., 1)
    means_k      ~ Normal(0, prior_scale)
    scales_k^2   ~ InverseGamma(2, prior_scale^2 / 2)    of a component, or of each feature
    x_i          ~ sum_k weights_k Normal(means_k, scales_k)

    +----------- components K ------------+      +- records N -+
    | (log_masses)  (means)  (log_scales) | ---> |    [ x ]    |
    +-------------------------------------+      +-------------+

Global latents: ``log_masses``, ``means``, ``log_scales``. ``weights`` and ``scales`` are functions
of them that are easier to read. Local latents: none, because the component of a record is summed
out. A record's gradient with respect to all global latents is clipped as a whole, so each latent is
on a scale on which a record moves it about as much as the others. Logarithms are used for weights
and scales, because the gradients of these grow without bound at the edges.

The order of the components is arbitrary. The guide keeps one labelling from start to end, so a
label means the same in every posterior draw. Summaries number the components by weight, the largest
first (``sort``).

Fits any table of numeric features. Predicts the probability of each component for a record
(``predict``). Its metric is the held-out log-likelihood. Copy this file to start your own mixture.

Reference: Jälkö, Dikmen and Honkela 2017, "Differentially private variational inference for
non-conjugate models", section 5.2; Prediger et al. 2022, section 5.4.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, ExpTransform

from workbench import ArgumentError, data
from workbench.models import Model, checks, pictures

__all__ = ["gmm", "guide", "model", "predict", "sort"]

_Covariance = Literal["spherical", "diagonal"]
_INITIAL_SCALE = 0.1  # of the guide: narrow, so that early steps see a mean rather than the prior
_START_WIDTH, _START_SCALE = 2.0, 0.5  # of the guide's means and scales, in prior scales
_SCALED, _UNSCALED = 0.5, 1.0  # prior scales of features that are scaled to [-1, 1], and of others
_VISIBLE = 300.0  # records times epsilon for each quantity, from which C is adapted
_VARIANCE_SHAPE = 2.0  # of the inverse gamma prior: the mean is finite, the variance is not


def _log_scale_prior(prior_scale):
    """The distribution of log(scale) where scale^2 ~ InverseGamma(2, prior_scale^2 / 2)."""
    variance = dist.InverseGamma(_VARIANCE_SHAPE, prior_scale**2 / 2)
    return dist.TransformedDistribution(variance, [ExpTransform().inv, AffineTransform(0.0, 0.5)])


def _spread(num_components, num_features):
    """Points that fill [-1, 1]^D evenly, float[K, D], the same in every run: the additive
    recurrence of Roberts (2018).

    Starting means must not depend on the private records, and equal means would stay equal.
    """
    ratio = 2.0
    for _ in range(60):  # the root of ratio^(D + 1) = ratio + 1
        ratio = (1 + ratio) ** (1 / (num_features + 1))
    steps = ratio ** -np.arange(1, num_features + 1)
    return (2 * ((0.5 + np.outer(np.arange(1, num_components + 1), steps)) % 1) - 1).astype(
        np.float32
    )


def _log_scale_shape(covariance, num_components, num_features):
    return (num_components, num_features if covariance == "diagonal" else 1)


def model(
    x=None,
    num_records=None,
    num_features=None,
    feature_scale=1.0,
    num_components=5,
    covariance="spherical",
    prior_scale=None,
):
    """The NumPyro model.

    :param x: float[B, D], or None to draw ``num_records`` records of ``num_features`` features.
    :param num_records: N (B by default). :param feature_scale: ``prior_scale`` where that is None.
    The other arguments are options of ``gmm``.
    """
    prior_scale = feature_scale if prior_scale is None else prior_scale
    batch = num_records if x is None else x.shape[0]
    num_features = num_features if x is None else x.shape[1]
    shape = _log_scale_shape(covariance, num_components, num_features)
    mass = dist.TransformedDistribution(dist.Gamma(1.0, 1.0), ExpTransform().inv)
    log_masses = numpyro.sample("log_masses", mass.expand([num_components]).to_event(1))
    means = numpyro.sample(
        "means", dist.Normal(0, prior_scale).expand([num_components, num_features]).to_event(2)
    )
    log_scales = numpyro.sample(
        "log_scales", _log_scale_prior(prior_scale).expand(shape).to_event(2)
    )
    numpyro.deterministic("weights", jax.nn.softmax(log_masses))
    scales = numpyro.deterministic("scales", jnp.exp(log_scales))
    components = dist.Normal(means, jnp.broadcast_to(scales, means.shape)).to_event(1)
    with numpyro.plate("records", num_records or batch, subsample_size=batch):
        numpyro.sample(
            "x", dist.MixtureSameFamily(dist.Categorical(logits=log_masses), components), obs=x
        )


def guide(
    x=None,
    num_records=None,
    num_features=None,
    feature_scale=1.0,
    num_components=5,
    covariance="spherical",
    prior_scale=None,
):
    """Mean-field normal guide. It starts with broad components, spread evenly around the origin."""
    prior_scale = feature_scale if prior_scale is None else prior_scale
    num_features = num_features if x is None else x.shape[1]
    shape = _log_scale_shape(covariance, num_components, num_features)
    # distances grow with the number of features; at full width, the component nearest to the origin
    # would take all records
    nearer = min(1.0, (2 / num_features) ** 0.5)
    starts = {
        "log_masses": jnp.zeros(num_components),
        "means": nearer
        * _START_WIDTH
        * prior_scale
        * jnp.asarray(_spread(num_components, num_features)),
        "log_scales": jnp.full(shape, jnp.log(prior_scale * min(1.0, _START_SCALE / nearer))),
    }
    for name, start in starts.items():
        location = numpyro.param(f"{name}_loc", start)
        width = prior_scale if name == "means" else 1.0
        scale = numpyro.param(
            f"{name}_scale",
            jnp.full(start.shape, width * _INITIAL_SCALE),
            constraint=constraints.softplus_positive,
        )
        numpyro.sample(name, dist.Normal(location, scale).to_event(start.ndim))


def predict(values: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Probability of each component for each row of ``x``, float[B, K], under one posterior draw.

    Components are numbered as in summaries, by the parameters' weights if ``values`` has them, so
    that all draws have the same order.
    """
    scales = jnp.broadcast_to(jnp.exp(values["log_scales"]), values["means"].shape)
    offsets = (x[:, None, :] - values["means"]) / scales
    scores = values["log_masses"] - jnp.sum(0.5 * offsets**2 + jnp.log(scales), axis=-1)
    order = jnp.argsort(-values.get("log_masses_loc", values["log_masses"]))
    return jax.nn.softmax(scores, axis=-1)[:, order]


def sort(
    draws: dict[str, np.ndarray], params: dict[str, np.ndarray] | None = None
) -> dict[str, np.ndarray]:
    """``draws`` with components numbered by weight, the largest first, in the same order for all
    draws.

    :param draws: ``{site: array[draws, K, ...]}``. :param params: the fit's parameters, whose
        ``log_masses_loc`` decides, as in ``predict``; without them, the mean of ``log_masses`` over
        the draws decides.
    """
    mass = (
        np.mean(draws["log_masses"], axis=0)
        if params is None
        else np.asarray(params["log_masses_loc"])
    )
    order = np.argsort(-mass, kind="stable")
    return {
        name: value[:, order] if name in _BY_COMPONENT else value for name, value in draws.items()
    }


_BY_COMPONENT = ("log_masses", "means", "log_scales", "weights", "scales")


def _no_scores(x: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """No scores, because the true component is not known. The log-likelihood is measured for every
    model.
    """
    return {}


def _defaults(
    dataset: data.Dataset, num_records: int, epsilon: float, num_components: int
) -> dict[str, Any]:
    """At first C clips nearly all gradients, which gets through much noise but draws the shares of
    clusters of different widths together. So C adapts where there are enough records.
    """
    numbers = num_components * (len(dataset.feature_names) + 2)
    shows = num_records * epsilon >= _VISIBLE * numbers
    return {"iterations": 1000, "clip": 0.3, "average": True, "adapts_clip": shows}


def _check(dataset: data.Dataset, num_components: int) -> None:
    # tokens are whole numbers
    numeric = len(dataset.train) == 1 and np.issubdtype(dataset.train[0].dtype, np.floating)
    if not numeric or dataset.train[0].ndim != 2:
        raise ArgumentError(
            "data", dataset.name, "must be a table of numeric features for the Gaussian mixture."
        )
    if num_components > dataset.num_train:
        raise ArgumentError(
            "num_components", num_components, "must be at most the number of records."
        )


def _constants(dataset: data.Dataset) -> dict[str, Any]:
    return {
        "num_features": dataset.train[0].shape[1],
        "feature_scale": _SCALED if dataset.bounds else _UNSCALED,
    }


def _coordinates(dataset: data.Dataset, num_components: int, covariance: str) -> dict[str, Any]:
    components = [f"component {number}" for number in range(1, num_components + 1)]
    features = list(dataset.feature_names)
    scales = (components, features if covariance == "diagonal" else ["all"])
    return {
        "log_masses": components,
        "weights": components,
        "means": (components, features),
        "log_scales": scales,
        "scales": scales,
    }


def gmm(
    num_components: int = 5, covariance: _Covariance = "spherical", prior_scale: float | None = None
) -> Model:
    """Gaussian mixture.

    >>> model = wb.models.get("gmm", num_components=3)
    >>> model.options
    {'num_components': 3, 'covariance': 'spherical', 'prior_scale': None}

    :param num_components: K >= 1, chosen by the user. Components that the data do not need get
        little weight.
    :param covariance: "spherical", one scale for each component, or "diagonal", one for each of its
        features.
    :param prior_scale: standard deviation of the normal prior of the means, in units of a feature:
        about a quarter of the range where records are expected. By default 0.5 where features are
        scaled to [-1, 1], and 1 elsewhere.
    """
    num_components = checks.integer("num_components", num_components, at_least=1)
    checks.choice("covariance", covariance, get_args(_Covariance))
    if prior_scale is not None:
        prior_scale = checks.number("prior_scale", prior_scale, above=0)
    return Model(
        name="gmm",
        summary="Gaussian mixture: groups of similar records, found without labels, with the place "
        "and size of each.",
        model=model,
        guide=guide,
        predict=predict,
        score=_no_scores,
        check=functools.partial(_check, num_components=num_components),
        coordinates=functools.partial(
            _coordinates, num_components=num_components, covariance=covariance
        ),
        constants=_constants,
        arrays=("x",),
        options={
            "num_components": num_components,
            "covariance": covariance,
            "prior_scale": prior_scale,
        },
        defaults=functools.partial(_defaults, num_components=num_components),
        pictures={"mixture": pictures.mixture},
        sort=sort,
        reference="Jälkö, Dikmen and Honkela 2017, section 5.2; Prediger et al. 2022, section 5.4",
        is_for_scaled=True,
    )
