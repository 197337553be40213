"""Families of counts with zeros of their own: zero-inflated ones and hurdles, of poisson and
negative_binomial.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from workbench import _validate
from workbench.formula import links
from workbench.formula.counts import NegativeBinomial, Poisson
from workbench.formula.family import Array, Family, Gradient, Values
from workbench.formula.likelihoods import CountsBehindHurdle, ZeroInflatedCounts
from workbench.formula.response import Response

__all__ = [
    "HurdleNegativeBinomial",
    "HurdlePoisson",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
]


class _WithZeros(Family):
    """Zeros in addition to the counts of the family that comes next among the bases."""

    centres = False
    with_zeros: ClassVar[type[ZeroInflatedCounts | CountsBehindHurdle]]

    def check(self, response: Response) -> None:
        super().check(response)
        if response.bounds[0] > 0:
            raise _validate.ArgumentError(
                "response",
                response.bounds,
                f"{response.name} must have the lower bound 0 for this family, which is of zeros.",
            )

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        # by its logit a record's gradient is at most 1; by itself it has no bound near 0 and 1
        return {**super().parameters(response), self.zeros: dist.Normal(0.0, 2.5)}

    def own_parameters(self, response: Response, values: Values) -> dict[str, Any]:
        of_counts = super().own_parameters(response, values)
        return {**of_counts, self.zeros: jax.nn.sigmoid(values[self.zeros])}

    def gradient(self, response: Response) -> Gradient:
        # half of the records, by the prior's centre, have one that is not near 0
        return Gradient(super().gradient(response).size * math.sqrt(0.5), False)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        counts = super().likelihood(response, predictor, parameters, **extras)
        return self.with_zeros(counts, parameters[self.zeros])


class _ZeroInflated(_WithZeros):
    """A count is 0 with the probability ``zero_inflation``, and else one that may be 0 too."""

    zeros = "zero_inflation"
    with_zeros = ZeroInflatedCounts

    def target_words(self, response: Response) -> str:
        return f"{super().target_words(response)}, without the extra zeros"

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        mean = super().mean(response, predictor, parameters, **extras)
        return jax.nn.sigmoid(-parameters[self.zeros]) * mean


class _Hurdle(_WithZeros):
    """A count is 0 with the probability ``zero_probability``, and else one that is above 0."""

    zeros = "zero_probability"
    with_zeros = CountsBehindHurdle

    def target_words(self, response: Response) -> str:
        return f"{super().target_words(response)}, before truncation at 0"

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        counts = self.likelihood(response, predictor, parameters, **extras).counts
        log_mean = jnp.log(super().mean(response, predictor, parameters, **extras))
        # of a count above 0; at least 1, which both terms round to where the mean is near 0
        log_positive = jnp.maximum(log_mean - links.log_of_rest(-counts.log_zero()), 0)
        return jax.nn.sigmoid(-parameters[self.zeros]) * links.safe_exp(log_positive)


class ZeroInflatedPoisson(_ZeroInflated, Poisson):
    """Poisson counts with extra zeros."""

    name = "zero_inflated_poisson"
    summary = "Counts with more zeros than Poisson's, some of which are of another origin."


class ZeroInflatedNegativeBinomial(_ZeroInflated, NegativeBinomial):
    """Negative binomial counts with extra zeros."""

    name = "zero_inflated_negative_binomial"
    summary = "Counts that vary more than Poisson's, with more zeros than even these have."


class HurdlePoisson(_Hurdle, Poisson):
    """Poisson counts above 0, or none."""

    name = "hurdle_poisson"
    summary = "Counts whose zeros are a matter of their own, and Poisson's above 0."


class HurdleNegativeBinomial(_Hurdle, NegativeBinomial):
    """Negative binomial counts above 0, or none."""

    name = "hurdle_negative_binomial"
    summary = "Counts whose zeros are a matter of their own, and vary more than Poisson's above 0."
