"""Which pairs of a table's columns depend on each other, by scores with noise.

Two releases, each from all records. First the counts of all levels of the D columns: a record is in
one level of each, so it moves them by sqrt(D). They are public from there on, and say what the
table of counts of a pair would be if its columns were independent, in whole numbers: the reference.
The score of a pair is how far its table is from that,

    s = sum over cells of |count - reference|.

The reference is public and stays as it is when a record is added or removed, which moves one count
of the table by 1. By the triangle inequality |s - s'| <= 1, so the scores of K pairs move by
sqrt(K) at most. They are whole numbers of spacings, as counts are, and get the same noise.
The second release depends on the first one's outcome; for Gaussian mechanisms the two together are
one whose inverse variances add up (Dong, Roth and Su 2022, corollary 3.3).

What follows from the scores costs nothing more. Independent columns have a score above 0 too, by
the sampling of records and by noise in the reference: made-up tables of independent columns, with
noise in all that has noise, say how large it is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from workbench.data.counting import Counting, Levels

__all__ = ["Dependence", "Margins", "PairScores"]

_FALSE = 0.1  # probability that a pair of independent columns, of all pairs, is called dependent
_CERTAIN = 1.645  # standard deviations: 95 %
_TABLES = 400  # that are made up


class Margins(NamedTuple):
    """What the noised counts of all columns say.

    :param probabilities: of the levels of each column. :param smooth: the same, nearer to each
        other by as much as noise moved them apart. :param total: of all records.
    :param deviation: of the noise of each count. :param error: of the total.
    """

    probabilities: list[np.ndarray]
    smooth: list[np.ndarray]
    total: float
    deviation: float
    error: float


class Dependence(NamedTuple):
    """What the noised scores say of each pair.

    :param excess: by how much the score is above that of independent columns, in records.
    :param is_clear: whether that is more than sampling and noise make of independent columns.
    :param missed: share of the records whose dependence would be clear in 95 % of cases.
    """

    excess: np.ndarray
    is_clear: np.ndarray
    missed: np.ndarray


@dataclass(frozen=True)
class PairScores:
    """The pairs of columns whose dependence is scored, from public facts.

    :param levels: how many each column has. :param pairs: numbers of the columns.
    """

    levels: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, levels: Sequence[int], largest: int) -> PairScores:
        """All pairs that have ``largest`` cells at most."""
        pairs = itertools.combinations(range(len(levels)), 2)
        small = tuple((a, b) for a, b in pairs if levels[a] * levels[b] <= largest)
        return cls(tuple(levels), small)

    @property
    def of_columns(self) -> Counting:
        """The first release: the counts of all levels."""
        return Counting(tuple(Levels("", ("",) * count) for count in self.levels))

    @property
    def of_pairs(self) -> Counting:
        """The second release: a score for each pair."""
        return Counting((Levels("", ("",)),) * len(self.pairs))

    def counts(self, codes: np.ndarray) -> np.ndarray:
        """int64[levels]: of all columns. :param codes: the level in each column, int[N, D]."""
        columns = zip(codes.T, self.levels, strict=True)
        return np.concatenate([np.bincount(code, minlength=size) for code, size in columns])

    def margins(self, counts: np.ndarray, deviation: float) -> Margins:
        """What the noised counts say. :param deviation: of the noise."""
        blocks = np.split(counts, np.cumsum(self.levels)[:-1])
        precisions = 1 / np.array(self.levels)
        total = max(float(np.average([np.sum(block) for block in blocks], weights=precisions)), 1.0)
        error = deviation / math.sqrt(precisions.sum())
        smooth = [_shares(_shrunk(block, deviation), total) for block in blocks]
        shares = [_shares(block, total) for block in blocks]
        return Margins(shares, smooth, total, deviation, error)

    def references(self, margins: Margins, per_record: int) -> list[np.ndarray]:
        """The tables of independent columns in whole spacings, int64[cells] for each pair."""
        scale, levels = per_record * margins.total, margins.probabilities
        return [
            np.rint(scale * np.outer(levels[a], levels[b])).astype(np.int64).ravel()
            for a, b in self.pairs
        ]

    def scores(
        self, codes: np.ndarray, references: Sequence[np.ndarray], per_record: int
    ) -> np.ndarray:
        """int64[K]: in spacings, without noise. :param references: public; as ``references``."""
        scores = np.zeros(len(self.pairs), np.int64)
        for number, ((a, b), reference) in enumerate(zip(self.pairs, references, strict=True)):
            cells = codes[:, a] * self.levels[b] + codes[:, b]
            counts = per_record * np.bincount(cells, minlength=len(reference))
            scores[number] = np.abs(counts - reference).sum()
        return scores

    def dependence(self, scores: np.ndarray, deviation: float, margins: Margins) -> Dependence:
        """What the noised scores say. :param scores: in records. :param deviation: of the noise."""
        generator = np.random.default_rng(0)  # nothing private: the result is always the same
        z = float(ndtri(1 - _FALSE / max(len(self.pairs), 1)))
        means, limits, deviations = np.zeros((3, len(self.pairs)))
        for number, (a, b) in enumerate(self.pairs):
            made_up = _of_independent(margins.smooth[a], margins.smooth[b], margins, generator)
            means[number], spread = made_up.mean(), math.hypot(made_up.std(), deviation)
            skewness = max(float(np.mean((made_up - means[number]) ** 3)) / spread**3, 0.0)
            # a table of few cells has a skewed score (Cornish and Fisher 1938)
            limits[number] = means[number] + spread * (z + skewness * (z**2 - 1) / 6)
            deviations[number] = spread
        # of a distance d, half of d / N has to change to be independent, and scores are d at least
        missed = np.minimum((limits + _CERTAIN * deviations) / (2 * margins.total), 1.0)
        return Dependence(scores - means, scores > limits, missed)


def _shares(counts: np.ndarray, total: np.ndarray | float) -> np.ndarray:
    """The nearest counts of at least 0 with this total, divided by it.

    :param counts: noised, float[..., levels]. :param total: float[...].
    """
    totals = np.asarray(total)[..., None]
    ordered = -np.sort(-counts, axis=-1)
    shifts = (np.cumsum(ordered, axis=-1) - totals) / np.arange(1, counts.shape[-1] + 1)
    last = np.sum(ordered > shifts, axis=-1, keepdims=True) - 1
    nearest: np.ndarray = np.maximum(counts - np.take_along_axis(shifts, last, -1), 0) / totals
    return nearest


def _shrunk(counts: np.ndarray, deviation: float) -> np.ndarray:
    """Noised counts, moved towards their mean (James and Stein 1961): as they are they would vary
    by the noise, and once more by that of made-up tables.
    """
    away, noise = counts - np.mean(counts), (len(counts) - 1) * deviation**2
    return np.asarray(counts - away * min(1.0, noise / max(float(away @ away), 1e-300)))


def _of_independent(
    first: np.ndarray, second: np.ndarray, margins: Margins, generator: np.random.Generator
) -> np.ndarray:
    """Scores of made-up tables of independent columns, without the noise of scores, float[T]."""
    cells = np.outer(first, second)
    tables = generator.multinomial(round(margins.total), cells.ravel() / cells.sum(), _TABLES)
    counts = tables.reshape(_TABLES, *cells.shape)
    total = np.maximum(counts[0].sum() + margins.error * generator.standard_normal(_TABLES), 1.0)
    sides = []
    for axis in (2, 1):
        exact = counts.sum(axis=axis)
        noise = margins.deviation * generator.standard_normal(exact.shape)
        sides.append(_shares(exact + noise, total))
    reference = total[:, None, None] * sides[0][:, :, None] * sides[1][:, None, :]
    distances: np.ndarray = np.abs(counts - reference).sum(axis=(1, 2))
    return distances
