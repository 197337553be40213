"""Families of numbers: gaussian, student_t, gamma, inverse_gaussian, lognormal and beta."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro import distributions as dist

from workbench import _validate
from workbench.formula import links
from workbench.formula.centring import Nodes
from workbench.formula.family import Array, Chances, Family, Gradient, Positive, Values
from workbench.formula.likelihoods import (
    BetaOfMean,
    GammaOfMean,
    InverseGaussianOfMean,
    LogNormalOfMedian,
)
from workbench.formula.response import Response

__all__ = ["Beta", "Gamma", "Gaussian", "InverseGaussian", "LogNormal", "StudentT"]

_TYPICAL = 0.3  # of a residual's standard deviation, as a share of half the declared range
# how far above its centre log(mean) goes before it bends: squares of residuals stay within float32
_FAR = 20.0
_EDGE = 1e-6  # of a declared share
_NODES = 49  # of sums over responses
_FAR_OUT = 7.0  # asinh of the largest residual of Student's t over sigma in these
_MEDIAN_SIGMA = 0.67  # of the prior of the standard deviation of logarithms


class Gaussian(Family):
    """Numbers with normal residuals of one standard deviation, ``sigma``."""

    name = "gaussian"
    summary = "Numbers, with normal residuals."
    normal_scale = residual_scale = "sigma"
    centres = True
    cancels_bias = True
    links = ("identity", "log", "inverse")

    @property
    def learns_bounds(self) -> bool:  # type: ignore[override]
        return self.link == "identity"

    @property
    def is_pivotal(self) -> bool:  # type: ignore[override]
        return self.link == "identity"

    def check(self, response: Response) -> None:
        response.require_numbers()
        if self.link != "identity" and response.bounds[1] <= 0:
            raise _validate.ArgumentError(
                "link", self.link, f"needs an upper bound of {response.name} above 0."
            )

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"sigma": dist.HalfNormal(1.0)}

    def own_parameters(self, response: Response, values: Values) -> dict[str, Any]:
        return {**values, "sigma": values["sigma"] * _reach(response)}

    def gradient(self, response: Response) -> Gradient:
        middle, scale = self._centred_units(response).shift, self.units(response).scale
        slopes = {
            "identity": lambda: scale,
            "log": lambda: np.exp(middle),
            "inverse": lambda: scale / middle**2,
        }
        slope = slopes[self.link]()  # of the mean, in the middle of what is declared
        return Gradient(float(slope / (_TYPICAL * _reach(response))), False)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return dist.Normal(
            self.mean(response, predictor, parameters), _reach(response) * parameters["sigma"]
        )

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        residuals, log_widths = self._residuals()
        middle = self.mean(response, predictor, parameters)
        values = middle + _reach(response) * parameters["sigma"] * residuals
        return Nodes(values, jnp.asarray(log_widths))

    @staticmethod
    def _residuals() -> tuple[np.ndarray, np.ndarray]:
        """Residuals over sigma, and the logarithms of their distances."""
        return np.linspace(-5, 5, _NODES), np.zeros(_NODES)

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        if self.link == "identity":
            return self._linear(response, predictor)
        high = response.bounds[1]
        return high * links.safe_exp(self._log_mean(response, predictor) - np.log(high), _FAR)


class StudentT(Gaussian):
    """Numbers with residuals of Student's t distribution, which outliers pull less than normal
    ones.
    """

    name = "student_t"
    normal_scale = ""
    logarithms: ClassVar = {"nu": 4.0}  # sigma is small where tails reach far
    summary = "Numbers, with residuals that have heavy tails: robust against outliers."

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {**super().parameters(response), "nu": dist.Gamma(2.0, 0.1)}

    @staticmethod
    def _residuals() -> tuple[np.ndarray, np.ndarray]:
        even = np.linspace(-_FAR_OUT, _FAR_OUT, _NODES)
        return np.sinh(even), np.log(np.cosh(even))

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        location = self.mean(response, predictor, parameters)
        return dist.StudentT(parameters["nu"], location, _reach(response) * parameters["sigma"])


def _reach(response: Response) -> float:
    """Half the declared range; of a line through the origin the largest number of it."""
    low, high = response.bounds
    return max(abs(low), abs(high)) if response.through_origin else high / 2 - low / 2


class Gamma(Positive):
    """Positive numbers whose standard deviation is a share of their mean, 1 / sqrt(``shape``)."""

    name = "gamma"
    summary = "Positive numbers whose spread grows with their mean, such as costs."
    links: ClassVar[tuple[str, ...]] = ("log", "inverse", "identity")
    ratio: ClassVar = {"log": "ratio of means"}
    centres = True
    logarithms: ClassVar = {"shape": 1.0}

    @property
    def is_pivotal(self) -> bool:  # type: ignore[override]
        return self.link == "log"

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"shape": dist.LogNormal(1.0, 1.5)}

    def gradient(self, response: Response) -> Gradient:
        shape = math.e  # the prior's median
        return Gradient(float(math.sqrt(shape) * self._log_slope(response)), False)

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        # of the logarithm, whose density falls as exp(-shape |x|) to the left, and faster to the
        # right
        spread, even = parameters["shape"] ** -0.5, np.linspace(-8, 4, _NODES)
        logarithms = spread * (even + spread * np.minimum(even, 0))
        values = links.safe_exp(self._log_mean(response, predictor) + logarithms)
        return Nodes(values, jnp.log(jnp.asarray(jnp.gradient(logarithms)) * values))

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return GammaOfMean(self._log_mean(response, predictor), parameters["shape"])


class InverseGaussian(Gamma):
    """Positive numbers with the variance mean^3 / ``shape``. Its site is a multiple of the mean in
    the middle of what is declared, where the spread is gamma's.
    """

    name = "inverse_gaussian"
    summary = "Positive numbers with a long tail, whose spread grows faster than their mean."
    centres = False
    links = ("log", "identity")  # where 1 / mean falls below 0, its likelihood has no gradient

    def own_parameters(self, response: Response, values: Values) -> dict[str, Any]:
        return {**values, "shape": values["shape"] * self._middle(response)}

    def _middle(self, response: Response) -> float:
        """The mean where a centred predictor is 0."""
        middle = self._centred_units(response).shift
        return math.exp(middle) if self.link == "log" else middle

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        shape = self.own_parameters(response, parameters)["shape"]
        return InverseGaussianOfMean(self._log_mean(response, predictor), shape)


class LogNormal(Gamma):
    """Positive numbers whose logarithms are normal, with the standard deviation ``sigma``. The
    predictor is that of their median.
    """

    name = "lognormal"
    summary = "Positive numbers whose logarithms have normal residuals, such as incomes."
    links = ("log",)
    ratio: ClassVar = {"log": "ratio of medians"}
    logarithms: ClassVar = {}
    residual_scale = "sigma"
    cancels_bias = True

    def target_words(self, response: Response) -> str:
        return f"median of {response.name}"

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"sigma": dist.HalfNormal(1.0)}

    def gradient(self, response: Response) -> Gradient:
        return Gradient(1 / _MEDIAN_SIGMA, False)

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        residuals = np.linspace(-5, 5, _NODES)
        median = self._linear(response, predictor)
        values = links.safe_exp(median + parameters["sigma"] * residuals)
        return Nodes(values, jnp.log(values))

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return LogNormalOfMedian(self._linear(response, predictor), parameters["sigma"])

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return links.safe_exp(self._linear(response, predictor) + parameters["sigma"] ** 2 / 2)


class Beta(Chances):
    """Shares between 0 and 1, with the variance mean x (1 - mean) / (1 + ``concentration``)."""

    name = "beta"
    summary = "Shares between 0 and 1 that are no counts, such as a percentage."
    kind = "share"
    logarithms: ClassVar = {"concentration": 1.0}

    def check(self, response: Response) -> None:
        low, high = response.bounds
        if low < _EDGE or high > 1 - _EDGE:
            raise _validate.ArgumentError(
                "response",
                (low, high),
                f"{response.name} needs bounds between 0 and 1 for this family, such as (0.001, "
                "0.999): shares outside are cut to them.",
            )

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"concentration": dist.LogNormal(float(np.log(10)), 1.5)}

    def gradient(self, response: Response) -> Gradient:
        # at a mean of 1/2: concentration x 1/4 x the deviation of logit(y), which is about 2 /
        # sqrt(concentration)
        return Gradient(0.5 * float(np.sqrt(10)), False)

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.numbers(values, at_least=0, at_most=1)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        return BetaOfMean(
            *links.log_probabilities(self.link, predictor), parameters["concentration"]
        )
