"""Families of counts: bernoulli, binomial, beta_binomial, poisson and negative_binomial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro import distributions as dist

from workbench import _validate
from workbench.data import preprocessing
from workbench.formula import links
from workbench.formula.centring import Nodes
from workbench.formula.family import Array, Chances, Family, Gradient, Values
from workbench.formula.likelihoods import (
    NegativeBinomialOfMean,
    PoissonOfMean,
    Successes,
    SuccessesOfBeta,
)
from workbench.formula.response import MOST, Response
from workbench.models import scoring
from workbench.models.outcomes import Outcome, YesOrNo

__all__ = ["EVEN", "Bernoulli", "BetaBinomial", "Binomial", "NegativeBinomial", "Poisson"]

EVEN = (
    0.8  # the gradient's deviation at about even chances: sqrt(2 / pi) for probit, 0.76 for cloglog
)
_CONCENTRATION = 10.0  # the prior's median
_NODES, _FAR_OUT = 64, 8.0  # of sums over counts: how many, and to how many deviations


class Bernoulli(Chances):
    """Yes or no. The predictor is that of the second level's probability."""

    name = "bernoulli"
    summary = "Yes or no: the probability of the second of two levels."
    kind = "class"

    def target_words(self, response: Response) -> str:
        return (
            f"probability of {response.name} = "
            f"{response.levels[1] if response.levels else '1 or True'}"
        )

    def check(self, response: Response) -> None:
        bounds = (response.low, response.high)
        suits = len(response.levels) == 2 if response.levels else bounds in ((None, None), (0, 1))
        if not suits:
            raise _validate.ArgumentError(
                "response",
                response.name,
                "must be declared with 2 levels, or as bool, for this family. For successes in a "
                f"number of trials name the column of these, as in p({response.name}, n).",
            )

    def gradient(self, response: Response) -> Gradient:
        # y less p; the others' grows with the predictor
        return Gradient(1.0, True) if self.link == "logit" else Gradient(EVEN, False)

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.zeros_and_ones(values)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        if self.link == "logit":
            return dist.Bernoulli(logits=predictor)
        return Successes(*links.log_probabilities(self.link, predictor), 1)

    def outcome(self, response: Response) -> Outcome:
        return YesOrNo()

    def scores(
        self, response: Response, y: np.ndarray, predictions: np.ndarray, **extras: np.ndarray
    ) -> dict[str, float]:
        return scoring.binary_scores(y, predictions)


class _Counts(Family):
    """Counts, maybe of a number of trials or per exposure: the one of ``extras``."""

    kind = "count"
    limits = (0.0, MOST)

    def cut_together(
        self, response: Response, values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        (role,) = self.extras
        if role not in values:
            return dict(values)
        counts, sizes = response.rescaled(role, values["y"], values[role])
        return {"y": counts, role: sizes}

    def encode(self, response: Response, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        (role,) = self.extras
        if role not in values:
            return super().encode(response, values)
        counts, sizes = response.counts_per(role, values["y"], values[role])
        return {role: sizes, "y": counts}

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.counts(values)


class Binomial(_Counts, Chances):
    """Successes in a declared number of trials."""

    name = "binomial"
    summary = "Successes in a number of trials, such as 3 of 12."
    extras = ("trials",)

    def target_words(self, response: Response) -> str:
        return f"probability of a success in a trial; {response.name} counts successes"

    def check(self, response: Response) -> None:
        response.require_counts()
        response.require_extra("trials")

    def gradient(self, response: Response) -> Gradient:
        trials = math.floor(response.extras["trials"][1])
        return (
            Gradient(float(trials), True)
            if self.link == "logit"
            else Gradient(math.sqrt(trials) * EVEN, False)
        )

    def encode(self, response: Response, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        encoded = super().encode(response, values)
        successes, trials = (
            preprocessing.numbers_in(preprocessing.pd.Series(values[name]))
            for name in ("y", "trials")
        )
        # trials at their bound may have been cut to it before, without the successes
        if ((successes > trials) & (trials != math.floor(response.extras["trials"][1]))).any():
            raise preprocessing.unfit(
                preprocessing.pd.Series(values["y"]).rename(response.name),
                "has more successes than trials in some row.",
            )
        return {**encoded, "y": np.minimum(encoded["y"], encoded["trials"])}

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return Successes(*links.log_probabilities(self.link, predictor), extras.get("trials", 1))

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return extras.get("trials", 1) * super().mean(response, predictor, parameters)


class BetaBinomial(Binomial):
    """Successes that vary more than binomial ones: between records, their probability has the
    variance p (1 - p) / (1 + ``concentration``).
    """

    name = "beta_binomial"
    summary = "Successes in a number of trials that vary more than binomial ones."
    logarithms: ClassVar = {"concentration": 1.0}

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"concentration": dist.LogNormal(math.log(_CONCENTRATION), 1.5)}

    def gradient(self, response: Response) -> Gradient:
        # the binomial's deviation over the root of how much larger the variance is
        trials = math.floor(response.extras["trials"][1])
        even = 0.5 if self.link == "logit" else EVEN
        inflation = (_CONCENTRATION + trials) / (_CONCENTRATION + 1)
        return Gradient(even * math.sqrt(trials / inflation), False)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return SuccessesOfBeta(
            *links.log_probabilities(self.link, predictor),
            extras.get("trials", 1),
            parameters["concentration"],
        )


class Poisson(_Counts):
    """Counts, with a variance that is their mean; per unit of ``exposure`` where a formula gives
    it.
    """

    name = "poisson"
    summary = "Counts, such as visits, also per unit of exposure."
    links = ("log", "identity")
    extras = ("exposure",)
    optional = ("exposure",)
    ratio: ClassVar = {"log": "rate ratio"}

    def target_words(self, response: Response) -> str:
        return super().target_words(response) + (
            " per unit of exposure" if "exposure" in response.extras else ""
        )

    def check(self, response: Response) -> None:
        response.require_counts()
        if "exposure" in response.extras:
            response.require_extra("exposure")

    def _mean_range(self, response: Response) -> tuple[float, float]:
        """Of the rate: counts of half above the bounds, which are never 0, over the middle of the
        exposure's logarithm.
        """
        low, high = (bound + 0.5 for bound in response.bounds)
        middle = (
            math.sqrt(math.prod(response.extras["exposure"]))
            if "exposure" in response.extras
            else 1.0
        )
        return low / middle, high / middle

    def gradient(self, response: Response) -> Gradient:
        # a count's deviation
        return Gradient(math.sqrt(self._middle(response)) * self._log_slope(response), False)

    def _middle(self, response: Response) -> float:
        """The mean count where the predictor is 0."""
        low, high = (bound + 0.5 for bound in response.bounds)
        return math.sqrt(low * high) if self.link == "log" else low / 2 + high / 2

    def _log_count(
        self, response: Response, predictor: Array, extras: Mapping[str, Array]
    ) -> Array:
        log_rate = self._log_mean(response, predictor)
        return log_rate + jnp.log(extras["exposure"]) if "exposure" in extras else log_rate

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return PoissonOfMean(self._log_count(response, predictor, extras))

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return links.safe_exp(self._log_count(response, predictor, extras))


class NegativeBinomial(Poisson):
    """Counts with a larger variance than Poisson's: mean + mean^2 / ``concentration``."""

    name = "negative_binomial"
    summary = "Counts that vary more than Poisson's, also per unit of exposure."
    centres = True
    logarithms: ClassVar = {"concentration": 1.0}

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"concentration": dist.LogNormal(1.0, 1.5)}

    def gradient(self, response: Response) -> Gradient:
        # for a concentration k and mean m, a deviation of sqrt(m + m^2/k) times 1 / (1 + m/k)
        concentration = math.e  # the prior's median
        return Gradient(
            super().gradient(response).size / math.sqrt(1 + self._middle(response) / concentration),
            False,
        )

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        mean = links.safe_exp(self._log_count(response, predictor, extras))
        variance = mean + mean**2 / parameters["concentration"]
        # every count, or of many each width-th one
        width = jnp.maximum((mean + _FAR_OUT * jnp.sqrt(variance)) / _NODES, 1.0)
        widths = jnp.full(_NODES, width).at[0].set((1 + width) / 2)
        return Nodes(jnp.arange(_NODES) * width, jnp.log(widths))

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return NegativeBinomialOfMean(
            self._log_count(response, predictor, extras), parameters["concentration"]
        )
