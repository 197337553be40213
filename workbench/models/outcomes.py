"""What a model predicts, and which scores of it can be released through noise.

An outcome decides from public facts alone what is added up for a record: a model of the user's or a
new family names one of these, or brings its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import numpy as np

from workbench.models.covered_scores import BINS, covered_scores
from workbench.models.estimates import Estimate, covered_means

__all__ = ["LOSSES", "Classes", "Numbers", "Outcome", "Predicted", "YesOrNo", "log_range"]

LOSSES = ("rmse", "mae")  # scores of which a smaller one is better

_CUT = 4.0  # nats: no record counts more of its surprise
_SHARPEST = 8.0  # nats that a density may be above that of the declared range


class Predicted(NamedTuple):
    """Evaluation records, and what a model says of each of them alone.

    :param target: [B].
    :param predictions: averaged over draws, [B] or [B, K]; None where the outcome does not use
        them.
    :param densities: logarithms of the predictive densities, float[B], nats; None likewise.
    :param rows: how many of the records each privacy unit has; None for one.
    """

    target: np.ndarray
    predictions: np.ndarray | None
    densities: np.ndarray | None
    rows: np.ndarray | None = None


class Outcome(Protocol):
    """What a model predicts of a record."""

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores that a release has, the log-likelihood first."""
        ...

    @property
    def draws(self) -> int:
        """How many numbers of a release get noise."""
        ...

    @property
    def uses_densities(self) -> bool:
        """Whether a release reads predictive densities."""
        ...

    @property
    def prediction_shape(self) -> tuple[int, ...] | None:
        """Shape of a record's prediction; None where a release reads none."""
        ...

    def release(
        self, predicted: Predicted, key: jax.Array, noise_multiplier: float
    ) -> Mapping[str, Estimate]:
        """All scores, from one release with noise, as of ``covered_means``."""
        ...


@dataclass(frozen=True)
class YesOrNo(Outcome):
    """The probability of class 1."""

    scores = ("log_likelihood", "auc", "accuracy")
    draws = 2 * BINS + 1
    uses_densities = False
    prediction_shape = ()

    def release(
        self, predicted: Predicted, key: jax.Array, noise_multiplier: float
    ) -> Mapping[str, Estimate]:
        target, probability, _, rows = predicted
        assert probability is not None
        scores = covered_scores(
            target, probability, key, noise_multiplier=noise_multiplier, rows=rows
        )
        return {name: getattr(scores, name)() for name in self.scores}


@dataclass(frozen=True)
class Classes(Outcome):
    """The probability of each of several classes.

    Log-likelihoods are cut at -4 - log(K / 2) nats.

    :param number: of the classes, K.
    """

    number: int
    scores = ("log_likelihood", "accuracy")
    draws = 5
    uses_densities = False

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        return (self.number,)

    def release(
        self, predicted: Predicted, key: jax.Array, noise_multiplier: float
    ) -> Mapping[str, Estimate]:
        target, probabilities, _, rows = predicted
        assert probabilities is not None
        codes = np.clip(np.asarray(target).astype(np.int64), 0, self.number - 1)
        chances = np.nan_to_num(np.asarray(probabilities, np.float64), nan=0.0)
        half = (_CUT + math.log(self.number / 2)) / 2
        with np.errstate(divide="ignore"):
            logs = np.log(np.take_along_axis(chances, codes[:, None], axis=1)[:, 0])
        right = np.argmax(chances, axis=1) == codes
        values = np.stack([logs / half + 1, 2.0 * right - 1], axis=1)
        means = covered_means(values, key, noise_multiplier=noise_multiplier, rows=rows)
        return {
            "log_likelihood": means.mean(0).moved(lambda mean: half * (mean - 1)),
            "accuracy": means.mean(1).moved(lambda mean: (mean + 1) / 2),
        }


def log_range(low: float, high: float) -> tuple[float, float]:
    """Middle and half of the range to which the log density of a number is cut: from 4 nats below
    to 8 above 1 / r, with r half of the number's range; at least to 0, for counts.
    """
    uniform = -math.log(max((high - low) / 2, 1e-300))
    bottom, top = uniform - _CUT, max(uniform + _SHARPEST, 0.0)
    return (bottom + top) / 2, (top - bottom) / 2


@dataclass(frozen=True)
class Numbers(Outcome):
    """The expectation of a number, and its density.

    Errors are cut at half of the number's range.

    :param low: of the number's declared or learned range.
    :param high: of that range.
    :param has_errors: False where an expectation is not compared with the number, such as with a
        time that may be censored.
    """

    low: float
    high: float
    has_errors: bool = True
    uses_densities = True

    @property
    def scores(self) -> tuple[str, ...]:
        return ("log_likelihood", "rmse", "mae") if self.has_errors else ("log_likelihood",)

    @property
    def draws(self) -> int:
        return 1 + 2 * len(self.scores)

    @property
    def prediction_shape(self) -> tuple[int, ...] | None:
        return () if self.has_errors else None

    def release(
        self, predicted: Predicted, key: jax.Array, noise_multiplier: float
    ) -> Mapping[str, Estimate]:
        assert predicted.densities is not None
        (middle, half), largest = log_range(self.low, self.high), (self.high - self.low) / 2
        values = [(np.asarray(predicted.densities, np.float64) - middle) / half]
        if self.has_errors:
            assert predicted.predictions is not None
            errors = np.asarray(predicted.target, np.float64) - predicted.predictions
            errors = np.nan_to_num(np.minimum(np.abs(errors) / largest, 1.0), nan=1.0)
            values += [errors**2, errors]
        means = covered_means(
            np.stack(values, axis=1), key, noise_multiplier=noise_multiplier, rows=predicted.rows
        )
        changes: list[Callable[[float], float]] = [
            lambda mean: middle + half * mean,
            lambda mean: largest * math.sqrt(max(mean, 0.0)),
            lambda mean: largest * max(mean, 0.0),
        ]
        return {
            name: means.mean(column).moved(changes[column])
            for column, name in enumerate(self.scores)
        }
