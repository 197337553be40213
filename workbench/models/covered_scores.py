"""Scores of predictions from one release with noise: what a guarantee covers.

Records that a fit did not read are counted by their class and by how likely the model found class
1, and their log-likelihoods, cut at a public bound, are added up. These numbers get Gaussian noise
and are all that leaves. AUC, calibration, confusion table and log-likelihood follow from them, each
with a 90 % interval that counts the noise and the sampling of records.

A record adds 1 to one count and at most 1 to the sum, in units of the bound. So neighbouring data
sets are at a distance of at most sqrt(2) under add_or_remove_one, and of sqrt(3) under replace_one
and replace_special, where a record may leave one count for another.

Numbers are whole multiples of a spacing, and so is the noise (``noise.integers``): accountants of
the Gaussian mechanism hold. Intervals are those of ``estimates``: W is linear in the counts, or for
AUC linear in those of each class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from workbench import _validate
from workbench.data.counting import deviation, weighed, with_noise
from workbench.models.estimates import (
    Estimate,
    checked_spacings,
    estimate,
    means_of_units,
    weights_of_rows,
)
from workbench.privacy.steps import SENSITIVITY

__all__ = ["BINS", "EDGES", "MIDDLES", "CoveredScores", "covered_scores"]

# Log-odds of class 1 between neighbouring bins. Narrow where most models predict, and as far out as
# they go for an outcome that one in a thousand has; each bin more adds noise to AUC.
_ENDS = np.array([0.4, 0.8, 1.2, 1.7, 2.3, 3.0, 4.0, 5.2, 7.0])
EDGES = np.concatenate([-_ENDS[::-1], [0.0], _ENDS])
BINS = len(EDGES) + 1
MIDDLES = np.concatenate([EDGES[:1], (EDGES[1:] + EDGES[:-1]) / 2, EDGES[-1:]])
_CUT = 4.0
# The probability that a 1 (row) has larger log-odds than a 0. Within a bin of width w, where 1s and
# 0s have densities in the ratio e^log-odds, it is 1/2 + w/12 if w is small.
_ABOVE = np.tri(BINS, k=-1) + np.diag(0.5 + np.pad(np.diff(EDGES), 1) / 12)
_MOVED = {"add_or_remove_one": 2.0, "replace_one": 3.0, "replace_special": 3.0}  # squared


@dataclass(frozen=True)
class CoveredScores:
    """What was released, and what follows from it. Of a class 1 and a class 0.

    :param counts: records of class 0 and of class 1 in each bin of the log-odds of class 1, with
        noise, float[2, bins]. ``EDGES`` are between bins; the first and the last have no end.
    :param log_likelihoods: sum of the log-likelihoods, with noise, nats.
    :param deviation: standard deviation of the noise of a count; that of ``log_likelihoods`` is
        ``cut`` times it.
    :param cut: no record's log-likelihood is below ``-cut`` nats.
    """

    counts: np.ndarray
    log_likelihoods: float
    deviation: float
    cut: float

    def log_likelihood(self) -> Estimate:
        """The mean log-likelihood of a record, nats, cut at the bound."""
        of_bins = np.maximum(-np.logaddexp(0.0, np.stack([MIDDLES, -MIDDLES])), -self.cut)
        total = float(self.counts.sum())

        def test(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            squares = (self.counts * (of_bins - means[:, None, None]) ** 2).sum(axis=(1, 2))
            noise = self.deviation**2 * (self.cut**2 + 2 * BINS * means**2)
            return self.log_likelihoods - means * total, noise + np.maximum(squares, 0.0)

        value = self.log_likelihoods / total if total > 0 else -math.log(2)
        return estimate(value, (-self.cut, 0.0), test)

    def accuracy(self) -> Estimate:
        """The share of records whose class was the likelier one."""
        return self._share(self._classes == self._likelier, self._all)

    def confusion(self) -> tuple[tuple[Estimate, ...], ...]:
        """Shares of all records by class (row) and likelier class (column)."""
        return tuple(
            tuple(
                self._share((self._classes == row) & (self._likelier == column), self._all)
                for column in (0, 1)
            )
            for row in (0, 1)
        )

    def calibration(self) -> tuple[Estimate, ...]:
        """The share of class 1 among the records of each bin."""
        columns = np.indices(self.counts.shape)[1]
        return tuple(
            self._share((self._classes == 1) & (columns == column), columns == column)
            for column in range(BINS)
        )

    @property
    def _all(self) -> np.ndarray:
        return np.ones(self.counts.shape, bool)

    @property
    def _classes(self) -> np.ndarray:
        return np.indices(self.counts.shape)[0]

    @property
    def _likelier(self) -> np.ndarray:
        return (np.indices(self.counts.shape)[1] >= BINS / 2).astype(int)

    def auc(self) -> Estimate:
        """Area under the ROC curve.

        A pair of a 1 and a 0 within one bin counts as if log-odds were calibrated there; in the
        first and the last bin as half. Where more than a quarter of all pairs are within one bin,
        their order matters and is unknown: the interval is wider by half of what is more than a
        quarter, and by up to a half where all are.
        """
        zeros, ones = self.counts
        noise, above = self.deviation**2, _ABOVE
        all_pairs, pairs = float(ones.sum() * zeros.sum()), float(ones @ above @ zeros)

        def test(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            # W = ones' (above - r) zeros, and its derivatives by the counts of each class
            by_ones = (above @ zeros)[:, None] - scores * zeros.sum()
            by_zeros = (above.T @ ones)[:, None] - scores * ones.sum()
            squares = (above[:, :, None] - scores) ** 2
            of_noise = noise**2 * squares.sum(axis=(0, 1))
            # the noise in the derivatives adds to their squares, and is taken off
            variance = noise * ((by_ones**2).sum(axis=0) + (by_zeros**2).sum(axis=0)) - of_noise
            of_records = ones @ (by_ones**2 - noise * squares.sum(axis=1))
            of_records += zeros @ (by_zeros**2 - noise * squares.sum(axis=0))
            variance = np.maximum(variance, of_noise) + np.maximum(of_records, 0.0)
            return pairs - scores * all_pairs, variance

        of_bins = estimate(pairs / all_pairs if all_pairs > 0 else 0.5, (0.0, 1.0), test)
        within = float(ones @ zeros) / all_pairs if all_pairs > 0 else 1.0
        unknown = min(max((within - 0.25) / 2, within - 0.5, 0.0), 0.5)
        low, high = max(of_bins.low - unknown, 0.0), min(of_bins.high + unknown, 1.0)
        return Estimate(of_bins.value, low, high)

    def order(self) -> dict[str, float]:
        """As of ``outcomes.Released``."""
        zeros, ones = self.counts
        right = self._classes == self._likelier
        return {
            "log_likelihood": self.log_likelihoods,
            "auc": float(ones @ (_ABOVE - 0.5) @ zeros),
            "accuracy": float(self.counts[right].sum() - self.counts[~right].sum()),
        }

    def _share(self, of_share: np.ndarray, of_all: np.ndarray) -> Estimate:
        """The share of the records of ``of_all`` that are in ``of_share``, masks of the counts."""

        def test(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            weights = of_share.astype(float) - rates[:, None, None] * of_all
            of_records = (self.counts * weights**2).sum(axis=(1, 2))
            variance = self.deviation**2 * (weights**2).sum(axis=(1, 2))
            return (self.counts * weights).sum(axis=(1, 2)), variance + np.maximum(of_records, 0.0)

        total = float(self.counts[of_all].sum())
        value = float(self.counts[of_share].sum()) / total if total > 0 else 0.5
        return estimate(value, (0.0, 1.0), test)


def covered_scores(
    target: np.ndarray,
    probability: np.ndarray,
    key: jax.Array,
    *,
    noise_multiplier: float,
    rows: np.ndarray | None = None,
    relation: str = "add_or_remove_one",
    cut: float = _CUT,
) -> CoveredScores:
    """Scores of predicted probabilities of class 1, through one release of whole numbers.

    It costs what one step without sampling costs at this noise multiplier: ``Phase(1.0,
    noise_multiplier, 1)``, and in delta ``noise.integers.delta_cost`` of 2 ``BINS`` + 1 draws.

    >>> from workbench.models.covered_scores import covered_scores
    >>> target = np.array([0, 1, 1, 0] * 100)
    >>> scores = covered_scores(
    ...     target, 0.2 + 0.6 * target, wb.noise.new_key(), noise_multiplier=1.0
    ... )
    >>> scores.auc()._fields, bool(scores.auc().low > 0.8)
    (('value', 'low', 'high'), True)

    :param target: 0 or 1, int[B]; whatever is not 1 counts as 0.
    :param probability: of class 1, float[B]. One that is not a number counts as one half.
    :param key: a ChaCha20 key that is used for nothing else.
    :param noise_multiplier: sigma, as accountants take it.
    :param rows: how many of the records each privacy unit has, one after another: they weigh 1
        together. By default each has one.
    :param relation: "add_or_remove_one", "replace_one" or "replace_special".
    :param cut: bound of a log-likelihood in nats, public, in [0.1, 100].
    :raises ArgumentError: naming the argument; ``noise_multiplier``, if there is more noise than
        whole numbers hold.
    :raises TypeError: if ``key`` is not a ChaCha20 key.
    """
    cut = _validate.number("cut", cut, at_least=0.1, at_most=100)
    relation = _validate.choice("relation", relation, _MOVED)
    per_record = checked_spacings(
        noise_multiplier, math.sqrt(_MOVED[relation]) / SENSITIVITY[relation]
    )
    weights = weights_of_rows(per_record, len(target), rows)
    is_one = np.asarray(target) == 1
    with np.errstate(divide="ignore", invalid="ignore"):
        chances = np.clip(np.nan_to_num(np.asarray(probability, np.float64), nan=0.5), 0.0, 1.0)
        odds = np.log(chances) - np.log1p(-chances)
    column = np.searchsorted(EDGES, odds, side="right")
    counts = weighed(column + BINS * is_one, weights, 2 * BINS)
    # fractions of the bound, rounded: at most per_record spacings for each record
    fractions = np.minimum(np.logaddexp(0.0, np.where(is_one, -odds, odds)) / cut, 1.0)
    rounded = np.rint(means_of_units(fractions, rows) * per_record)
    total = rounded.astype(np.int64).sum(keepdims=True)
    noised = with_noise(np.concatenate([counts, total]), per_record, key)
    return CoveredScores(
        noised[:-1].reshape(2, BINS), -cut * float(noised[-1]), deviation(per_record), cut
    )
