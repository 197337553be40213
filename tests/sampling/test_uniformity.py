"""The statistics of ``uniformity``: right for a fair sampler of NumPy's, and failing for
deliberately biased ones.
"""

import itertools

import numpy as np
import pytest
from scipy import stats

from tests.sampling import uniformity
from tests.sampling.uniformity import (
    DRAWS,
    even_inclusion,
    even_outcomes,
    even_pairs,
    fair,
    subset_codes,
    tally,
)

# the statistics are the same for any N
SLOW = pytest.param(1000, 100, marks=pytest.mark.statistical)


def exchange(member, random, share, entering, leaving):
    """In a ``share`` of the minibatches let one record of those that may enter take the place of
    one that may leave.

    ``entering(member)`` and ``leaving(member, entered)`` give the records that may, bool[rows, N].
    """

    def one_of(allowed):
        return np.argmax(allowed * random.random(allowed.shape, np.float32), axis=1)

    rows = np.flatnonzero(random.random(len(member)) < share)
    rows = rows[np.any(entering(member[rows]), axis=1)]
    entered = one_of(entering(member[rows]))
    left = one_of(leaving(member[rows], entered))
    member[rows, left] = False
    member[rows, entered] = True
    return member


def first_is_likelier(num_records, batch_size, excess):
    """Record 0 is in ``excess`` times more minibatches than it should."""
    share = excess * batch_size / (num_records - batch_size)
    first = np.arange(num_records) == 0
    return lambda member, random: exchange(
        member, random, share, lambda m: first & ~m, lambda m, _: m
    )


def half_is_likelier(num_records, batch_size, excess):
    """The first half of the records is in ``excess`` times more minibatches than the second."""
    half = np.arange(num_records) < num_records // 2
    share = excess * batch_size / 4
    return lambda member, random: exchange(
        member, random, share, lambda m: half & ~m, lambda m, _: ~half & m
    )


def partners_attract(num_records, batch_size, excess):
    """Records 2 k and 2 k + 1 are ``excess`` times more often together, while all are included
    equally often.

    Less where minibatches are large: of ten records and five, about half of it is lost to pairs
    that are parted instead.
    """
    partner = np.arange(num_records) ^ 1
    share = (
        excess * num_records / 2 * batch_size * (batch_size - 1) / (num_records * (num_records - 1))
    )

    def leaving(member, entered):
        return member & (np.arange(num_records) != partner[entered][:, None])

    return lambda member, random: exchange(
        member, random, share, lambda m: m[:, partner] & ~m, leaving
    )


def biased(num_records, batch_size, bias, seed):
    random = np.random.default_rng(seed + 1)
    for member in fair(num_records, batch_size, DRAWS, seed):
        yield bias(member, random)


@pytest.mark.parametrize(("num_records", "batch_size"), [(10, 5), (500, 50), SLOW])
def test_a_fair_sampler_passes(num_records, batch_size):
    counted = tally(fair(num_records, batch_size, DRAWS, seed=0))
    assert even_inclusion(counted)
    assert even_pairs(counted)


@pytest.mark.parametrize(("num_records", "batch_size"), [(10, 5), (500, 50), SLOW])
def test_one_half_that_is_2_percent_likelier_is_noticed(num_records, batch_size):
    bias = half_is_likelier(num_records, batch_size, 0.02)
    assert not even_inclusion(tally(biased(num_records, batch_size, bias, seed=1), pairs=False))


def test_one_of_ten_records_that_is_3_percent_likelier_is_noticed():
    assert not even_inclusion(
        tally(biased(10, 5, first_is_likelier(10, 5, 0.03), seed=2), pairs=False)
    )


@pytest.mark.parametrize(
    ("num_records", "batch_size", "excess"),
    [(10, 5, 0.06), (500, 50, 0.15), pytest.param(1000, 100, 0.15, marks=pytest.mark.statistical)],
)
def test_records_that_attract_each_other_are_noticed_by_pairs_only(num_records, batch_size, excess):
    counted = tally(
        biased(num_records, batch_size, partners_attract(num_records, batch_size, excess), seed=3)
    )
    assert even_inclusion(counted)
    assert not even_pairs(counted)


def test_a_likelier_subset_is_noticed():
    codes = subset_codes(fair(10, 3, DRAWS, seed=4))
    assert even_outcomes(codes, 120)
    codes[: DRAWS // 200] = 0b111
    assert not even_outcomes(codes, 120)


@pytest.mark.parametrize(("num_records", "size"), [(4, 2), (6, 3), (7, 5), (8, 2)])
def test_statistics_have_their_exact_mean_over_all_subsets(num_records, size):
    """A single minibatch has each statistic's mean exactly, by symmetry; one for each subset cancel
    out.
    """
    subsets = np.zeros((0, num_records), bool)
    for chosen in itertools.combinations(range(num_records), size):
        member = np.isin(np.arange(num_records), chosen)[None]
        subsets = np.concatenate([subsets, member])
        for statistic, degrees in (
            uniformity.inclusion_statistic(tally([member])),
            uniformity.pair_statistic(tally([member])),
        ):
            assert statistic == pytest.approx(degrees)
    for statistic, _ in (
        uniformity.inclusion_statistic(tally([subsets])),
        uniformity.pair_statistic(tally([subsets])),
    ):
        assert statistic == pytest.approx(0, abs=1e-9)


def test_statistics_of_varying_sizes_are_chi_square():
    """Kolmogorov-Smirnov on 1000 repetitions with minibatches of 2 to 8 records; false alarm 1e-6
    each.
    """
    random = np.random.default_rng(5)
    inclusion, pairs = [], []
    for _ in range(1000):
        order = random.random((500, 10)).argsort(axis=1)
        counted = tally([order < random.integers(2, 9, (500, 1))])
        inclusion.append(stats.chi2.sf(*uniformity.inclusion_statistic(counted)))
        pairs.append(stats.chi2.sf(*uniformity.pair_statistic(counted)))
    assert stats.kstest(inclusion, "uniform").pvalue > 1e-6
    assert stats.kstest(pairs, "uniform").pvalue > 1e-6
