"""What every family of responses has: a link, priors from declared bounds, a likelihood, means,
draws and scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from numpyro import distributions as dist

from workbench import _validate
from workbench.data.preprocessing import middle_and_reach
from workbench.formula import links
from workbench.formula.centring import Nodes
from workbench.formula.response import LARGEST, Response
from workbench.models.outcomes import Numbers, Outcome

__all__ = ["Chances", "Family", "Gradient", "Units", "number_scores"]

Array = jax.Array
Values = Mapping[str, Any]

_FLOOR = 1e-3  # in units of the predictor; below it, the link bends so that a mean stays positive
_LEAST = 0.01  # share of the upper bound that stands for a lower bound of 0 on the log scale
# (standard deviation of the intercept, of a slope; scale of a group's standard deviation), on the
# predictor's scale
_PRIORS = {
    "identity": (1.0, 2.0, 0.5),
    "inverse": (1.0, 2.0, 0.5),
    "log": (1.0, 2.5, 1.0),
    "logit": (2.5, 2.5, 1.0),
    "cloglog": (2.5, 2.5, 1.0),
    "probit": (1.5, 1.5, 0.6),
}


class Units(NamedTuple):
    """link(mean) = shift + scale x predictor.

    :param shift: link(mean) where the predictor is 0. :param scale: of one unit of the predictor.
    """

    shift: float
    scale: float


class Gradient(NamedTuple):
    """The size of a record's gradient of the log-likelihood in the predictor.

    :param size: absolute value, or Euclidean norm of several predictors.
    :param is_bound: True if no record within the declared bounds has a larger one, whatever the
        parameters; False for a typical size near the prior's centre.
    """

    size: float
    is_bound: bool


@dataclass(frozen=True)
class Family:
    """A family of responses with one of its links.

    The predictor has units of its own: ``link(mean) = shift + scale * predictor`` with
    ``units(response)``, so that values of about 1 are ordinary for every response. Predictors are
    float[B], or float[B, K - 1] where a family has several. A standard deviation among the
    parameters is a share of half the declared range; ``own_parameters`` undoes this.

    >>> from workbench.formula.families import Response, get
    >>> counts = get("poisson")
    >>> counts.link, counts.links, counts.extras
    ('log', ('log', 'identity'), ('exposure',))
    >>> shift, scale = counts.units(
    ...     Response("visits", 0, 40, extras={"exposure": (1, 2)})
    ... )
    >>> round(float(np.exp(shift)), 2), scale
    (3.18, 1.0)

    :param link: of the mean; the first of ``links`` by default.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    links: ClassVar[tuple[str, ...]]
    extras: ClassVar[tuple[str, ...]] = ()  # further record arrays
    optional: ClassVar[tuple[str, ...]] = ()  # those of them that a formula may leave out
    ratio: ClassVar[Mapping[str, str]] = {}  # what exp of a weight is, by link
    has_intercept: ClassVar[bool] = True
    normal_scale: ClassVar[str] = (
        ""  # the parameter that is the standard deviation of normal residuals; "" for others
    )
    residual_scale: ClassVar[str] = ""  # the parameter that is the scale of any residuals
    cancels_bias: ClassVar[bool] = (
        False  # residuals of both signs are clipped alike, unless they are skewed
    )
    learns_bounds: ClassVar[bool] = False  # whether the response's bounds only scale it
    limits: ClassVar[tuple[float, float]] = (-LARGEST, LARGEST)  # of a response's bounds
    zeros: ClassVar[str] = (
        ""  # the parameter that is the probability of zeros of their own; its site is the logit
    )
    # of parameters that records use by their logarithms over these factors: a gradient in the
    # parameter itself may be a thousand times shorter than one in the predictor, whose noise it
    # would get
    logarithms: ClassVar[Mapping[str, float]] = {}
    centres: ClassVar[bool] = False  # whether clipped gradients are centred (``centring``)
    # whether scores have the same distribution whatever the predictor
    is_pivotal: ClassVar[bool] = False
    kind: ClassVar[str] = "number"  # of the response: number, count, share, class or time
    link: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "link", _validate.choice("link", self.link or self.links[0], self.links)
        )

    # ---- what the declaration says ---------------------------------------------------------------

    def target_words(self, response: Response) -> str:
        """What the predictor describes, such as "probability of ill = yes"."""
        return f"mean of {response.name}"

    def check(self, response: Response) -> None:
        """:raises ArgumentError: naming what is declared in a way that the family cannot use."""
        raise NotImplementedError

    def num_predictors(self, response: Response) -> int:
        """How many predictors a record has."""
        return 1

    def units(self, response: Response) -> Units:
        """What 0 and 1 of the predictor are, from the declared bounds alone."""
        shift, scale = self._centred_units(response)
        if not response.through_origin:
            return Units(shift, scale)
        return Units(0.0, scale if self.link == "log" else scale + abs(shift))

    def _centred_units(self, response: Response) -> Units:
        """Of a predictor that is 0 in the middle of what is declared."""
        if self.link not in ("identity", "inverse", "log"):
            return Units(0.0, 1.0)
        low, high = self._mean_range(response)
        if self.link == "log":
            return Units((math.log(low) + math.log(high)) / 2, 1.0)
        if self.link == "inverse":
            low, high = 1 / high, 1 / low
        return Units(*middle_and_reach((low, high)))

    def _mean_range(self, response: Response) -> tuple[float, float]:
        """Bounds of the mean; on the scale of logarithms and inverses both are above 0."""
        low, high = response.bounds
        return (low, high) if self.link == "identity" else (low if low > 0 else _LEAST * high, high)

    def intercept_prior(self, response: Response) -> dist.Distribution:
        """Normal around 0, the middle of what is declared; on the scale of logarithms as wide as
        half the declared range.
        """
        wide = _PRIORS[self.link][0]
        if self.link == "log":
            low, high = self._mean_range(response)
            wide = max(wide, math.log(high / low) / 2)
        return dist.Normal(0.0, wide)

    def slope_scale(self, response: Response) -> float:
        """Standard deviation of the normal prior of a feature's weight; features are in [-1, 1]."""
        return _PRIORS[self.link][1]

    def group_scale(self, response: Response) -> float:
        """Scale of the half-normal prior of the standard deviation between groups."""
        return _PRIORS[self.link][2]

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        """``{site: prior}`` of further global latents."""
        return {}

    def own_parameters(self, response: Response, values: Values) -> dict[str, Any]:
        """``values`` of the sites of ``parameters`` in the response's own units."""
        return dict(values)

    def gradient(self, response: Response) -> Gradient:
        """A bound on a record's gradient in the predictor, or a typical size where there
        is none.
        """
        raise NotImplementedError

    # ---- records ---------------------------------------------------------------------------------

    def cut_together(
        self, response: Response, values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Values of a response and its extras of which one is outside its bounds, changed together,
        row by row.

        A time above its bound is censored there; a count and its trials or exposure are multiplied
        by one number. What is within its bounds stays, and so does NaN. Bounds that remain to be
        kept are those of the response alone.

        :param values: ``{"y": float64[N], role: float64[N]}``.
        """
        return dict(values)

    def encode(self, response: Response, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Private values as arrays of the model, row by row, cut to the declared bounds.

        :param values: ``{"y": column, extra: column}``.
        :raises ArgumentError: naming the column of a value that cannot be; the value is never
            quoted.
        """
        for role in self.extras:
            if role not in values and role not in self.optional:
                raise _validate.ArgumentError(
                    role, None, f"is needed for each record by the family {self.name!r}."
                )
        encoded = {
            role: response.extra(role, values[role]) for role in self.extras if role in values
        }
        return {**encoded, "y": self._encoded(response, values["y"])}

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.numbers(values)

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        """The distribution of encoded responses, with the batch shape [B]."""
        raise NotImplementedError

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        """The expected response, float[B] in own units, or the probabilities of the levels,
        float[B, K].

        Without ``trials`` or ``exposure`` it is that of one trial or one unit of exposure.
        """
        raise NotImplementedError

    def sample(
        self, key: Array, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        """A draw for each record, [B], in own units; levels as codes, times as those of events."""
        return self.likelihood(response, predictor, parameters, **extras).sample(key)

    def scores(
        self, response: Response, y: np.ndarray, predictions: np.ndarray, **extras: np.ndarray
    ) -> dict[str, float]:
        """``{metric: value}`` of expected responses for encoded ones."""
        return number_scores(y, predictions)

    def outcome(self, response: Response) -> Outcome:
        """What is predicted, for scores through noise."""
        return Numbers(*response.bounds)

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        """Responses that a record with this predictor, float scalar, may have, for expectations;
        where ``centres`` is True.
        """
        raise NotImplementedError

    # ---- for subclasses --------------------------------------------------------------------------

    def _linear(self, response: Response, predictor: Array) -> Array:
        """link(mean)."""
        shift, scale = self.units(response)
        return shift + scale * predictor

    def _log_slope(self, response: Response) -> float:
        """How fast log(mean) moves with the predictor in the middle of what is declared: a typical
        size.
        """
        return (
            1.0
            if self.link == "log"
            else self.units(response).scale / self._centred_units(response).shift
        )

    def _log_mean(self, response: Response, predictor: Array) -> Array:
        """log of a positive mean. Identity and inverse links bend below a small share of the
        predictor's unit.
        """
        return links.log_mean(
            self.link, self._linear(response, predictor), _FLOOR * self.units(response).scale
        )


class Chances(Family):
    """A family whose mean is a probability, or a multiple of one."""

    links = ("logit", "probit", "cloglog")
    ratio: ClassVar = {"logit": "odds ratio"}

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return jnp.exp(links.log_cdf(self.link, predictor))


class Positive(Family):
    """A family of positive numbers."""

    def check(self, response: Response) -> None:
        response.require_numbers()
        response.require_positive()

    def _encoded(self, response: Response, values: ArrayLike) -> np.ndarray:
        return response.numbers(values, at_least=0)

    def mean(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Array:
        return links.safe_exp(self._log_mean(response, predictor))


def number_scores(y: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Root mean squared error, mean absolute error and, unless all ``y`` are equal, R squared: 1
    less the share of the variance of ``y`` that the predictions leave.
    """
    y, predictions = np.asarray(y, np.float64), np.asarray(predictions, np.float64)
    errors = y - predictions
    scores = {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}
    if np.var(y) > 0:
        scores["r2"] = float(1 - np.mean(errors**2) / np.var(y))
    return scores
