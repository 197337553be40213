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
from scipy.special import expit

from workbench.models.covered_scores import BINS, EDGES, MIDDLES, covered_scores
from workbench.models.estimates import Estimate, covered_means

__all__ = [
    "LOSSES",
    "RANKS",
    "Bin",
    "Classes",
    "Numbers",
    "Outcome",
    "Predicted",
    "Released",
    "YesOrNo",
    "log_range",
]

RANKS = 10  # bins of a rank among draws
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
    :param ranks: of each target among draws of the model for its record, as a share, float[B]:
        uniform where the model is right. None where no calibration is asked for.
    """

    target: np.ndarray
    predictions: np.ndarray | None
    densities: np.ndarray | None
    rows: np.ndarray | None = None
    ranks: np.ndarray | None = None


class Bin(NamedTuple):
    """A bin of a check of calibration.

    :param low: where it begins: a predicted probability, or a rank among the model's draws.
    :param high: where it ends. :param expected: the share that a right model has there.
    :param fraction: of class 1 among the bin's records, or of all records in the bin.
    """

    low: float
    high: float
    expected: float
    fraction: Estimate


class Released(NamedTuple):
    """What a release of scores says.

    :param scores: by name, each with a 90 % interval.
    :param order: by score, a number that is larger for the better of two fits on the same records,
        and has no bound at which several would tie. Of probabilities the noise in the number of
        records is not in it.
    :param calibration: bins, if the outcome has such a check.
    """

    scores: Mapping[str, Estimate]
    order: Mapping[str, float]
    calibration: tuple[Bin, ...] = ()


class Outcome(Protocol):
    """What a model predicts of a record."""

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores that a release has, the log-likelihood first."""

    @property
    def draws(self) -> int:
        """How many numbers of a release get noise."""

    @property
    def uses_densities(self) -> bool:
        """Whether a release reads predictive densities."""

    @property
    def prediction_shape(self) -> tuple[int, ...] | None:
        """Shape of a record's prediction; None where a release reads none."""

    @property
    def squared_distance(self) -> int:
        """Square of the most that a record moves the numbers of a release without ranks."""

    @property
    def log_range(self) -> float:
        """The most that a record's log-likelihood adds to the number of a release, in nats."""

    @property
    def has_ranks(self) -> bool:
        """Whether calibration is checked by ranks among draws, which move one number more."""

    def release(self, predicted: Predicted, key: jax.Array, noise_multiplier: float) -> Released:
        """All scores, from one release with noise, as of ``covered_means``."""


@dataclass(frozen=True)
class YesOrNo(Outcome):
    """The probability of class 1."""

    scores = ("log_likelihood", "auc", "accuracy")
    draws = 2 * BINS + 1
    uses_densities = False
    prediction_shape = ()
    squared_distance = 2
    log_range = _CUT
    has_ranks = False

    def release(self, predicted: Predicted, key: jax.Array, noise_multiplier: float) -> Released:
        probability, rows = predicted.predictions, predicted.rows
        assert probability is not None
        scores = covered_scores(
            predicted.target, probability, key, noise_multiplier=noise_multiplier, rows=rows
        )
        ends = [0.0, *expit(EDGES).tolist(), 1.0]
        bins = zip(ends[:-1], ends[1:], expit(MIDDLES).tolist(), scores.calibration(), strict=True)
        return Released(
            {name: getattr(scores, name)() for name in self.scores},
            scores.order(),
            tuple(Bin(*row) for row in bins),
        )


@dataclass(frozen=True)
class Classes(Outcome):
    """The probability of each of several classes.

    Log-likelihoods are cut at -4 - log(K / 2) nats.

    :param number: of the classes, K.
    """

    number: int
    scores = ("log_likelihood", "accuracy")
    draws = squared_distance = 5
    uses_densities = False
    has_ranks = False

    @property
    def prediction_shape(self) -> tuple[int, ...]:
        return (self.number,)

    @property
    def log_range(self) -> float:
        return (_CUT + math.log(self.number / 2)) / 2

    def release(self, predicted: Predicted, key: jax.Array, noise_multiplier: float) -> Released:
        probabilities, rows = predicted.predictions, predicted.rows
        assert probabilities is not None
        codes = np.clip(np.asarray(predicted.target).astype(np.int64), 0, self.number - 1)
        chances = np.nan_to_num(np.asarray(probabilities, np.float64), nan=0.0)
        half = self.log_range
        with np.errstate(divide="ignore"):
            logs = np.log(np.take_along_axis(chances, codes[:, None], axis=1)[:, 0])
        right = np.argmax(chances, axis=1) == codes
        values = np.stack([logs / half + 1, 2.0 * right - 1], axis=1)
        means = covered_means(values, key, noise_multiplier=noise_multiplier, rows=rows)
        return Released(
            {
                "log_likelihood": means.mean(0).moved(lambda mean: half * (mean - 1)),
                "accuracy": means.mean(1).moved(lambda mean: (mean + 1) / 2),
            },
            dict(zip(self.scores, means.sums.tolist(), strict=True)),
        )


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
    def squared_distance(self) -> int:
        return self.draws

    @property
    def log_range(self) -> float:
        return log_range(self.low, self.high)[1]

    @property
    def has_ranks(self) -> bool:
        return self.has_errors

    @property
    def prediction_shape(self) -> tuple[int, ...] | None:
        return () if self.has_errors else None

    def release(self, predicted: Predicted, key: jax.Array, noise_multiplier: float) -> Released:
        assert predicted.densities is not None
        (middle, half), largest = log_range(self.low, self.high), (self.high - self.low) / 2
        values = [(np.asarray(predicted.densities, np.float64) - middle) / half]
        if self.has_errors:
            assert predicted.predictions is not None
            errors = np.asarray(predicted.target, np.float64) - predicted.predictions
            errors = np.nan_to_num(np.minimum(np.abs(errors) / largest, 1.0), nan=1.0)
            values += [errors**2, errors]
        means = covered_means(
            np.stack(values, axis=1),
            key,
            noise_multiplier=noise_multiplier,
            rows=predicted.rows,
            bins=None if predicted.ranks is None else (_bin_of(predicted.ranks), RANKS),
        )
        changes: list[Callable[[float], float]] = [
            lambda mean: middle + half * mean,
            lambda mean: largest * math.sqrt(max(mean, 0.0)),
            lambda mean: largest * max(mean, 0.0),
        ]
        scores = {
            name: means.mean(column).moved(changes[column])
            for column, name in enumerate(self.scores)
        }
        # in units that candidates share, whose ranges may have been learned anew; without bounds
        units = ((middle, half), (0.0, -(largest**2)), (0.0, -largest))
        unbounded = means.sums / max(means.count, 1.0)
        order = {
            name: start + unit * float(mean)
            for name, (start, unit), mean in zip(self.scores, units, unbounded, strict=False)
        }
        if predicted.ranks is None:
            return Released(scores, order)
        bins = [
            Bin(index / RANKS, (index + 1) / RANKS, 1 / RANKS, means.fraction(index))
            for index in range(RANKS)
        ]
        return Released(scores, order, tuple(bins))


def _bin_of(ranks: np.ndarray) -> np.ndarray:
    bins = np.floor(np.nan_to_num(ranks, nan=0.0) * RANKS)
    return np.clip(bins, 0, RANKS - 1).astype(np.int64)
