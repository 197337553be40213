"""Estimates from sums with Gaussian noise, with intervals that are inverted tests.

A score r of population means solves an equation W(r) = 0 in the noised sums. r is in the interval
if W is within 1.645 standard deviations of 0, where the variance counts the noise and the sampling
of records and is estimated without bias. If noise hides the denominator of r, the interval is all
of its range, as it should be (Fieller 1954).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from workbench import _validate
from workbench.data.counting import deviation, spacings, weighed, with_noise

__all__ = [
    "CoveredMeans",
    "Estimate",
    "checked_spacings",
    "covered_means",
    "estimate",
    "means_of_units",
    "weights_of_rows",
]

_NORMAL = 1.6448536269514722  # standard deviations of a 90 % interval
_POINTS = 201  # of a score's range that are tested at once


class Estimate(NamedTuple):
    """A score and its 90 % interval."""

    value: float
    low: float
    high: float

    def moved(self, change: Callable[[float], float]) -> Estimate:
        """The estimate of an increasing function of the score."""
        return Estimate(*map(change, self))


def estimate(
    value: float,
    limits: tuple[float, float],
    test: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> Estimate:
    """The estimate, with the smallest interval around it that has all scores that a test accepts.

    :param limits: of the score.
    :param test: W and its variance at scores, float[n] each.
    """
    value = min(max(value, limits[0]), limits[1])
    low, high = limits
    for _ in range(2):  # the second time within a step of the first
        grid = np.linspace(low, high, _POINTS)
        difference, variance = test(grid)
        accepted = grid[np.abs(difference) <= _NORMAL * np.sqrt(variance)]
        ends = [value, *accepted[:1], *accepted[-1:]]
        step = grid[1] - grid[0]
        low, high = max(min(ends) - step, limits[0]), min(max(ends) + step, limits[1])
    return Estimate(value, low, high)


def checked_spacings(noise_multiplier: float, sensitivity: float) -> int:
    """``counting.spacings`` of noise that whole numbers hold.

    :raises ArgumentError: naming ``noise_multiplier``, if there is more noise than whole numbers
        hold.
    """
    sigma = _validate.number("noise_multiplier", noise_multiplier, at_least=0.1, at_most=1e5)
    per_record = spacings(sigma, sensitivity)
    if per_record < 1:
        raise _validate.ArgumentError(
            "noise_multiplier", sigma, "is more noise than whole numbers hold."
        )
    return per_record


def means_of_units(values: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    """The mean of each privacy unit's rows. :param rows: as of ``covered_scores``."""
    if rows is None or not len(rows):
        return values
    counts = np.asarray(rows, np.int64)
    sums = np.add.reduceat(values, np.cumsum(counts) - counts)
    return sums / counts.reshape(-1, *[1] * (values.ndim - 1))


def weights_of_rows(per_record: int, size: int, rows: np.ndarray | None) -> np.ndarray:
    """Spacings that each of ``size`` rows counts, int64[size]: those of a privacy unit are one
    record together. :param rows: as of ``covered_scores``.
    """
    of_unit = np.ones(size, np.int64) if rows is None else np.asarray(rows, np.int64)
    return np.repeat(per_record // of_unit, of_unit)


@dataclass(frozen=True)
class CoveredMeans:
    """Means of bounded numbers of records, from one release with noise.

    :param count: number of records, with noise.
    :param sums: of the numbers, with noise, float[m].
    :param squares: of their squares, with noise, float[m].
    :param in_bins: number of records in each bin, with noise, float[bins].
    :param deviation: standard deviation of the noise of each.
    """

    count: float
    sums: np.ndarray
    squares: np.ndarray
    in_bins: np.ndarray
    deviation: float

    def mean(self, column: int) -> Estimate:
        """The mean of a number, in [-1, 1]."""
        total, squares = float(self.sums[column]), float(self.squares[column])

        def test(means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            of_records = squares - 2 * means * total + means**2 * self.count
            noise = self.deviation**2 * (1 + means**2)
            return total - means * self.count, noise + np.maximum(of_records, 0.0)

        return estimate(total / self.count if self.count > 0 else 0.0, (-1.0, 1.0), test)

    def fraction(self, index: int) -> Estimate:
        """The fraction of the records that are in a bin."""
        inside, outside = float(self.in_bins[index]), float(self.in_bins.sum())
        outside -= inside

        def test(fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            complement = 1 - fractions
            noise = self.deviation**2 * (complement**2 + (len(self.in_bins) - 1) * fractions**2)
            of_records = inside * complement**2 + outside * fractions**2
            return inside * complement - outside * fractions, noise + np.maximum(of_records, 0.0)

        total = inside + outside
        return estimate(inside / total if total > 0 else 0.0, (0.0, 1.0), test)


def covered_means(
    values: np.ndarray,
    key: jax.Array,
    *,
    noise_multiplier: float,
    rows: np.ndarray | None = None,
    bins: tuple[np.ndarray, int] | None = None,
) -> CoveredMeans:
    """Means of bounded numbers of records, through one release of whole numbers: how many records
    there are, how many in each bin, and the sums of the numbers and of their squares.

    A record adds 1 to the count, 1 to that of a bin, and at most 1 to each sum. So data sets that
    differ by one more record are at a distance of at most sqrt(1 + 2 m), or with bins of
    sqrt(2 + 2 m). The release costs what one step without sampling costs at this noise multiplier:
    ``Phase(1.0, noise_multiplier, 1)``, and in delta ``noise.integers.delta_cost`` of 1 + 2 m
    draws, and one for each bin.

    >>> from workbench.models.estimates import covered_means
    >>> values = np.full((4000, 1), 0.5)
    >>> means = covered_means(values, wb.noise.new_key(), noise_multiplier=1.0)
    >>> bool(0.4 < means.mean(0).low < 0.6)
    True

    :param values: float[B, m]; what is outside [-1, 1] counts as the nearer end, and what is no
        number as -1.
    :param key: a ChaCha20 key that is used for nothing else.
    :param noise_multiplier: sigma, as accountants take it, under "add_or_remove_one".
    :param rows: how many of the records each privacy unit has, one after another, of which the
        mean counts. By default each has one.
    :param bins: the bin of each record, int[B], and how many bins there are; none by default.
    :raises ArgumentError: naming ``noise_multiplier``, as of ``checked_spacings``.
    :raises TypeError: if ``key`` is not a ChaCha20 key.
    """
    bounded = np.clip(np.nan_to_num(np.asarray(values, np.float64), nan=-1.0), -1.0, 1.0)
    numbers = means_of_units(bounded, rows)
    columns = numbers.shape[1]
    per_record = checked_spacings(noise_multiplier, math.sqrt(1 + 2 * columns + (bins is not None)))
    ones = np.ones((len(numbers), 1))
    # each rounded to at most per_record spacings
    rounded = np.rint(np.concatenate([ones, numbers, numbers**2], axis=1) * per_record)
    sums = rounded.astype(np.int64).sum(axis=0)
    if bins is not None:
        weights = weights_of_rows(per_record, len(bins[0]), rows)
        sums = np.concatenate([sums, weighed(bins[0], weights, bins[1])])
    count, numbers, squares, in_bins = np.split(
        with_noise(sums, per_record, key), np.cumsum([1, columns, columns])
    )
    return CoveredMeans(float(count[0]), numbers, squares, in_bins, deviation(per_record))
