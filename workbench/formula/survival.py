"""Families of times to an event, with right censoring: exponential and weibull."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from numpyro import distributions as dist

from workbench.data import preprocessing
from workbench.formula import links
from workbench.formula.centring import Nodes
from workbench.formula.family import Array, Gradient, Positive, Values
from workbench.formula.likelihoods import TimeToEvent
from workbench.formula.response import Response
from workbench.models.outcomes import Numbers, Outcome

__all__ = ["Exponential", "Weibull"]

_LOG_HAZARDS = np.linspace(-10, 3, 53)  # logarithms of cumulative hazards, for sums over times
_LOG_WIDTH = np.log(_LOG_HAZARDS[1] - _LOG_HAZARDS[0])


class Exponential(Positive):
    """Times to an event with a constant hazard. ``observed`` is 0 where a time is censored: no
    event until then.
    """

    name = "exponential"
    summary = "Times to an event at a constant hazard, some of them censored."
    links = ("log", "inverse", "identity")
    extras = ("observed",)
    optional = ("observed",)
    ratio: ClassVar = {"log": "ratio of mean times"}
    kind = "time"

    def gradient(self, response: Response) -> Gradient:
        return Gradient(self._log_slope(response), False)  # the deviation of time / mean is 1

    def cut_together(
        self, response: Response, values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """A time above its upper bound is censored at it."""
        if "observed" not in values:
            return dict(values)
        high = response.bounds[1]
        is_late = values["y"] > high
        return {
            "y": np.where(is_late, high, values["y"]),
            "observed": np.where(is_late, 0.0, values["observed"]),
        }

    def encode(self, response: Response, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        encoded = super().encode(response, values)
        if "observed" in encoded:
            times = preprocessing.numbers_in(preprocessing.pd.Series(values["y"])).astype(
                np.float32
            )
            encoded["observed"] = np.where(
                times > np.float32(response.bounds[1]), np.float32(0), encoded["observed"]
            )
        return encoded

    def _scale_and_shape(
        self, response: Response, predictor: Array, parameters: Values
    ) -> tuple[Array, Any]:
        """log of Weibull's scale, and its shape."""
        return self._log_mean(response, predictor), 1.0

    def likelihood(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> dist.Distribution:
        scale_and_shape = self._scale_and_shape(response, predictor, parameters)
        # without a status, a time at its bound may have been cut to it
        status = (
            (extras["observed"], jnp.inf)
            if "observed" in extras
            else (1.0, np.float32(response.bounds[1]))
        )
        return TimeToEvent(*scale_and_shape, *status)

    def survival(
        self, response: Response, predictor: Array, parameters: Values, times: Array
    ) -> Array:
        """The probability of no event until each of ``times``, which broadcast with
        the predictors.
        """
        log_scale, shape = self._scale_and_shape(response, predictor, parameters)
        return jnp.exp(-links.safe_exp(shape * (jnp.log(times) - log_scale)))

    def outcome(self, response: Response) -> Outcome:
        return Numbers(*response.bounds, has_errors=False)

    def scores(
        self, response: Response, y: np.ndarray, predictions: np.ndarray, **extras: np.ndarray
    ) -> dict[str, float]:
        """Harrell's concordance, if ``observed`` is given and some pair can be compared."""
        if "observed" not in extras:
            return {}
        concordance = _concordance(
            np.asarray(y), np.asarray(extras["observed"]) > 0, np.asarray(predictions)
        )
        return {} if concordance is None else {"concordance": concordance}


class Weibull(Exponential):
    """Times to an event whose hazard grows with time^(``shape`` - 1)."""

    name = "weibull"
    summary = "Times to an event at a hazard that grows or falls with time, some of them censored."
    logarithms: ClassVar = {"shape": 1.0}
    centres = True

    def parameters(self, response: Response) -> dict[str, dist.Distribution]:
        return {"shape": dist.LogNormal(0.0, 0.75)}

    def _scale_and_shape(
        self, response: Response, predictor: Array, parameters: Values
    ) -> tuple[Array, Any]:
        shape = parameters["shape"]
        return self._log_mean(response, predictor) - gammaln(1 + 1 / shape), shape

    def nodes(
        self, response: Response, predictor: Array, parameters: Values, **extras: Array
    ) -> Nodes:
        log_scale, shape = self._scale_and_shape(response, predictor, parameters)
        high = np.float32(response.bounds[1])
        values = links.safe_exp(log_scale + _LOG_HAZARDS / shape)
        # times from the bound on are one event, with a probability of its own
        log_widths = jnp.where(values < high, jnp.log(values / shape), -jnp.inf)
        return Nodes(
            jnp.append(jnp.minimum(values, high), high), jnp.append(log_widths + _LOG_WIDTH, 0.0)
        )


def _concordance(times: np.ndarray, observed: np.ndarray, predictions: np.ndarray) -> float | None:
    """The share of comparable pairs whose later one has the larger prediction, ties by half; None
    without such a pair.

    A pair is comparable if the earlier time is that of an event. At equal times a censored one
    counts as later.
    """
    order = np.lexsort((observed, -times))  # from the latest; censored first among equals
    later: list[float] = []
    right, pairs = 0.0, 0
    for _, same in itertools.groupby(order, key=lambda record: times[record]):
        tied = list(same)
        for record in (index for index in tied if not observed[index]):
            bisect.insort(later, float(predictions[record]))
        events = [float(predictions[index]) for index in tied if observed[index]]
        for prediction in events:
            below, upto = (
                bisect.bisect_left(later, prediction),
                bisect.bisect_right(later, prediction),
            )
            right += len(later) - upto + (upto - below) / 2
        pairs += len(later) * len(events)
        for prediction in events:
            bisect.insort(later, prediction)
    return right / pairs if pairs else None
