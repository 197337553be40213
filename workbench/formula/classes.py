"""Families of levels: categorical, and cumulative for ordered ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.distributions.transforms import OrderedTransform
from scipy import special

from workbench.data.preprocessing import listed
from workbench.formula import links
from workbench.formula.counts import EVEN
from workbench.formula.family import Array, Family, Gradient, Units, Values
from workbench.formula.response import Response
from workbench.models import scoring
from workbench.models.outcomes import Classes, Outcome

__all__ = ["Categorical", "Cumulative"]

_MOST_LEVELS = 200  # a weight for each level and feature
# inverse links, by link
_QUANTILES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "logit": special.logit,
    "probit": special.ndtri,
    "cloglog": lambda probability: np.log(-np.log1p(-probability)),
}


class _Levels(Family):
    kind = "class"

    def check(self, response: Response) -> None:
        response.require_levels(2, _MOST_LEVELS)

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.codes(values)

    def log_probabilities(self, response: Response, predictor: Array, parameters: Values) -> Array:
        """log of the probabilities of the levels, float[B, K]."""
        raise NotImplementedError

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return dist.Categorical(logits=self.log_probabilities(response, predictor, parameters))

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return jnp.exp(self.log_probabilities(response, predictor, parameters))

    def outcome(self, response: Response) -> Outcome:
        return Classes(len(response.levels))

    def scores(
        self, response: Response, y: np.ndarray, predictions: np.ndarray, **extras: np.ndarray
    ) -> dict[str, float]:
        return scoring.class_scores(np.asarray(y), np.asarray(predictions))


class Categorical(_Levels):
    """Levels without an order. Each but the first has a predictor, the logarithm of its odds
    against the first.
    """

    name = "categorical"
    summary = "Several levels without an order, compared with the first."
    links = ("logit",)
    ratio: ClassVar = {"logit": "odds ratio"}

    def num_predictors(self, response: Response) -> int:
        return len(response.levels) - 1

    def target_words(self, response: Response) -> str:
        first, *outcomes = response.levels
        return f"odds of {response.name} = {listed(outcomes)} against {first}"

    def gradient(self, response: Response) -> Gradient:
        # an indicator less the probabilities: both have a norm of at most 1
        return Gradient(math.sqrt(2), True)

    def log_probabilities(self, response: Response, predictor: Array, parameters: Values) -> Array:
        if self.num_predictors(response) == 1:  # which has no axis
            predictor = predictor[..., None]
        first = jnp.zeros_like(predictor[..., :1])
        logits = jnp.concatenate([first, predictor], axis=-1)
        return logits - jnp.logaddexp.reduce(logits, axis=-1, keepdims=True)


class Cumulative(_Levels):
    """Ordered levels: P(y <= k) = F(``cutpoints``[k] - predictor). The cutpoints take the place of
    an intercept.
    """

    name = "cumulative"
    summary = "Ordered levels, such as grades: a larger predictor favours later ones."
    links = ("logit", "probit", "cloglog")
    ratio: ClassVar = {"logit": "odds ratio of a later level"}
    has_intercept = False

    def units(self, response: Response) -> Units:
        return Units(0.0, 1.0)

    def target_words(self, response: Response) -> str:
        return (
            f"probability of later levels of {response.name}, in the order "
            f"{listed(response.levels)}"
        )

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        """Cutpoints around those of equally likely levels: the first is normal, distances are
        log-normal.
        """
        levels = len(response.levels)
        equal = _QUANTILES[self.link](np.arange(1, levels) / levels)
        location = np.concatenate([equal[:1], np.log(np.diff(equal))]).astype(np.float32)
        spread = np.full(levels - 1, 1.0, np.float32)
        spread[0] = self.intercept_prior(response).scale
        base = dist.Normal(location, spread).to_event(1)
        return {"cutpoints": dist.TransformedDistribution(base, OrderedTransform())}

    def gradient(self, response: Response) -> Gradient:
        # logit: 1 - F(c[k] - predictor) - F(c[k - 1] - predictor)
        return Gradient(1.0, True) if self.link == "logit" else Gradient(EVEN, False)

    def log_probabilities(self, response: Response, predictor: Array, parameters: Values) -> Array:
        z = parameters["cutpoints"] - predictor[..., None]
        log_masses = [
            links.log_cdf(self.link, z[..., :1]),
            links.log_survival(self.link, z[..., -1:]),
        ]
        if len(response.levels) > 2:
            log_masses.insert(1, links.log_interval(self.link, z[..., :-1], z[..., 1:]))
        return jnp.concatenate(log_masses, axis=-1)
