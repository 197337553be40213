"""Scores of how far pairs of columns are from independent."""

import itertools
import math

import numpy as np
import pytest

from workbench import ArgumentError
from workbench.data.counting import deviation
from workbench.data.dependence import Margins, PairScores

LEVELS = (2, 2, 3)
SCORES = PairScores.of(LEVELS, 100)


def table(size, seed=0, strength=0.0):
    """Columns of 2, 2, 3 and 8 levels, of which the second follows the first."""
    random = np.random.default_rng(seed)
    codes = np.column_stack([random.integers(0, levels, size) for levels in (2, 2, 3, 8)])
    follows = random.random(size) < strength
    codes[follows, 1] = codes[follows, 0]
    return codes


def dependence(scores, codes, noise, seed=1):
    """As a fit has it. :param noise: of each count and score, in records."""
    random = np.random.default_rng(seed)
    counts = scores.counts(codes)
    margins = scores.margins(counts + noise * random.normal(size=len(counts)), noise)
    distances = scores.scores(codes, scores.references(margins, 100), 100) / 100
    return scores.dependence(distances + noise * random.normal(size=len(distances)), noise, margins)


@pytest.mark.parametrize("per_record", [1, 7])
def test_no_record_moves_counts_or_scores_further_than_is_stated(per_record):
    """All tables of up to three records, each with one more, by any reference."""
    records = list(itertools.product(*map(range, LEVELS)))
    random = np.random.default_rng(0)
    references = [
        SCORES.references(SCORES.margins(random.normal(1, 2, sum(LEVELS)), 1.0), per_record)
        for _ in range(3)
    ]
    references.append([np.zeros(4, np.int64), np.zeros(6, np.int64), np.zeros(6, np.int64)])
    largest = np.zeros(2)
    for size in range(4):
        for rows in itertools.combinations_with_replacement(records, size):
            before = np.array(rows, int).reshape(size, 3)
            for reference in references:
                without = SCORES.scores(before, reference, per_record)
                for record in records:
                    after = np.vstack([before, record])
                    counts = SCORES.counts(after) - SCORES.counts(before)
                    moved = SCORES.scores(after, reference, per_record) - without
                    assert np.abs(moved).max() <= per_record
                    norms = np.linalg.norm(counts), np.linalg.norm(moved) / per_record
                    largest = np.maximum(largest, norms)
    assert largest[0] == pytest.approx(SCORES.of_columns.sensitivity) == pytest.approx(3**0.5)
    assert largest[1] == pytest.approx(SCORES.of_pairs.sensitivity) == pytest.approx(3**0.5)


def test_scores_are_distances_from_independent_columns():
    codes = np.array([[0, 0, 0], [1, 1, 0], [1, 1, 2], [0, 0, 1]])
    shares = [np.array([0.5, 0.5]), np.array([0.5, 0.5]), np.array([0.5, 0.25, 0.25])]
    references = SCORES.references(Margins(shares, shares, 4.0, 0.0, 0.0), 2)
    expected = []
    for a, b in SCORES.pairs:
        counts = np.zeros((LEVELS[a], LEVELS[b]))
        np.add.at(counts, (codes[:, a], codes[:, b]), 2)
        expected.append(np.abs(counts - np.rint(8 * np.outer(shares[a], shares[b]))).sum())
    assert SCORES.scores(codes, references, 2).tolist() == expected
    assert SCORES.counts(codes).tolist() == [2, 2, 2, 2, 2, 1, 1]


def test_shares_are_the_nearest_that_are_possible():
    margins = SCORES.margins(np.array([60.0, 40, -20, 120, 50, 30, 20]), 3.0)
    assert margins.total == pytest.approx(100)
    assert margins.error == pytest.approx(3 / math.sqrt(1 / 2 + 1 / 2 + 1 / 3))
    for shares, expected in zip(
        margins.probabilities, ([0.6, 0.4], [0, 1], [0.5, 0.3, 0.2]), strict=True
    ):
        np.testing.assert_allclose(shares, expected)
    nobody = SCORES.margins(np.full(7, -5.0), 3.0)
    assert nobody.total == 1
    np.testing.assert_allclose([shares.sum() for shares in nobody.probabilities], 1)


@pytest.mark.parametrize("size", [0, 1])
def test_tables_of_hardly_any_record_have_no_clear_pair(size):
    assert not dependence(SCORES, table(size)[:, :3], 3.0).is_clear.any()


@pytest.mark.parametrize(("size", "noise"), [(300, 0.5), (300, 20.0), (3000, 5.0)])
def test_independent_columns_are_seldom_called_dependent(size, noise):
    """In one of ten tables; six of 30 and more have a probability of 0.07."""
    scores = PairScores.of((2, 2, 3, 8), 100)
    false = [dependence(scores, table(size, seed), noise, seed).is_clear for seed in range(30)]
    assert np.sum(np.any(false, axis=1)) < 7


def test_independent_columns_of_many_levels_are_seldom_called_dependent():
    """Noise as large as the counts. Of 60 tables 10 to 14 had one, and 43 without moving the counts
    together.
    """
    scores, random = PairScores.of((40, 40), 5000), np.random.default_rng(0)
    false = [
        dependence(scores, random.integers(0, 40, (2000, 2)), 30.0, seed).is_clear
        for seed in range(30)
    ]
    assert np.sum(false) < 13


def test_what_may_have_been_missed_is_seen_in_most_tables():
    scores = PairScores.of((2, 2, 3, 8), 100)
    missed = dependence(scores, table(1000), 20.0).missed[0]
    # of two even columns, of which one follows the other in a share c, c / 2 has to change
    seen = [dependence(scores, table(1000, s, 2 * missed), 20.0, s).is_clear for s in range(20)]
    assert np.sum(seen, axis=0)[0] >= 17
    assert 0 < missed < 0.2


def test_pairs_of_too_many_cells_are_not_scored():
    assert PairScores.of((100, 60, 2), 5000).pairs == ((0, 2), (1, 2))


def test_scores_have_the_noise_of_their_sensitivity():
    counting = PairScores.of((2,) * 10, 100).of_pairs
    assert counting.size == 45
    assert deviation(counting.per_record(3.0)) == pytest.approx(3 * 45**0.5, rel=1e-4)
    with pytest.raises(ArgumentError, match=r"^look=.*says nothing"):
        counting.per_record(1e6)
