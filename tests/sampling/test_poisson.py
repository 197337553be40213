import bisect
import math
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy import stats

from tests.conftest import some_of
from tests.sampling.uniformity import (
    DRAWS,
    FALSE_ALARMS,
    SETTINGS,
    even_inclusion,
    even_outcomes,
    even_pairs,
    fits,
    memberships,
    subset_codes,
    tally,
)
from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.sampling import PoissonSampler, poisson
from workbench.sampling.poisson import log_overflow_probability, overflow_capacity


def sampler_for(num_records, sampling_rate):
    """A sampler whose minibatches overflow less than once in 10^15."""
    capacity = overflow_capacity(num_records, sampling_rate, math.log(1e-15))
    return PoissonSampler(num_records, sampling_rate, capacity)


@partial(jax.jit, static_argnums=(0, 2))
def draw_many(sampler, key, draws):
    return lax.map(sampler.draw, jax.random.split(key, draws), batch_size=1000)


def right_inclusion_counts(counts, draws, rate):
    return fits(np.sum((counts - draws * rate) ** 2) / (draws * rate * (1 - rate)), len(counts))


def right_sizes(sizes, num_records, rate):
    """Chi-square of the minibatch sizes against Binomial(N, q), sizes expected less than 20 times
    pooled.
    """
    draws = len(sizes)
    expected = draws * stats.binom.pmf(np.arange(num_records + 1), num_records, rate)
    common = expected >= 20
    observed = np.bincount(sizes, minlength=num_records + 1)
    expected = np.append(expected[common], expected[~common].sum())
    observed = np.append(observed[common], observed[~common].sum())
    kept = expected > 1e-9
    return fits(np.sum((observed - expected)[kept] ** 2 / expected[kept]), kept.sum() - 1)


@pytest.mark.parametrize(("num_records", "expected"), some_of(SETTINGS, 3))
def test_records_are_included_independently_at_the_sampling_rate(num_records, expected):
    """Poisson sampling is a binomial size and, given the size, an even subset: sizes, records and
    pairs are tested.
    """
    rate = expected / num_records
    counted = tally(memberships(sampler_for(num_records, rate), key_from_seed(0), np.arange(DRAWS)))
    assert right_inclusion_counts(counted.counts, DRAWS, rate)
    assert right_sizes(counted.sizes, num_records, rate)
    assert even_inclusion(counted)
    assert even_pairs(counted)
    assert not right_inclusion_counts(counted.counts, DRAWS, 1.02 * rate), (
        "a rate 2 % too high would go unnoticed"
    )


def test_every_subset_of_records_is_equally_likely_at_one_half():
    """Chi-square over all 2^10 minibatches, so independence beyond pairs as well."""
    assert even_outcomes(
        subset_codes(memberships(sampler_for(10, 0.5), key_from_seed(2), np.arange(DRAWS))), 1024
    )


@pytest.mark.thorough
def test_tiny_rates_use_two_tables_and_keep_mean_variance_and_places():
    num_records, rate, draws = 1_000_000, 1e-5, 20_000
    sampler = sampler_for(num_records, rate)
    assert len(poisson._gap_tables(rate)[1]) == 2
    batches = draw_many(sampler, key_from_seed(3), draws)
    sizes = np.asarray(batches.mask).sum(axis=1)
    mean, variance = num_records * rate, num_records * rate * (1 - rate)
    assert abs(sizes.mean() - mean) < stats.norm.isf(FALSE_ALARMS / 2) * math.sqrt(variance / draws)
    spread_of_variance = variance * math.sqrt((2 + 1 / variance) / draws)
    assert abs(sizes.var() - variance) < stats.norm.isf(FALSE_ALARMS / 2) * spread_of_variance
    hundredths = np.bincount(
        np.asarray(batches.indices)[np.asarray(batches.mask)] * 100 // num_records, minlength=100
    )
    assert right_inclusion_counts(hundredths / 1.0, draws * num_records // 100, rate)


def test_neighbouring_records_are_as_independent_as_distant_ones_at_tiny_rates():
    """The first gap is geometric, also where the two tables meet: Kolmogorov-Smirnov on its
    survival function.
    """
    num_records, rate, draws = 1_000_000, 1e-4, 50_000
    batches = draw_many(PoissonSampler(num_records, rate, 2), key_from_seed(4), draws)
    first = np.asarray(batches.indices)[np.asarray(batches.mask)[:, 0], 0]
    # a whole number g plus a uniform draw is continuous, so that the test's distribution is exact
    fraction = np.random.default_rng(0).uniform(size=len(first))
    below = -np.expm1(first * np.log1p(-rate))
    assert stats.kstest(below + fraction * rate * (1 - below), "uniform").pvalue > FALSE_ALARMS


OVERFLOWING = PoissonSampler(100, 0.1, 12)


@pytest.mark.parametrize(
    "sampler",
    some_of(
        [
            OVERFLOWING,
            *(sampler_for(min(int(50 / rate), 200_000), rate) for rate in (0.5, 0.00102, 1e-5)),
        ],
        4,
    ),
    ids=repr,
)
def test_indices_are_distinct_ascending_and_padding_is_masked(sampler):
    batches = draw_many(sampler, key_from_seed(5), 20_000)
    some = (np.asarray(array)[:200] for array in (batches.indices, batches.mask))
    for indices, mask in zip(*some, strict=True):
        size = mask.sum()
        assert np.all(mask[:size])
        assert np.all(np.diff(indices[:size]) > 0)
        assert np.all((indices >= 0) & (indices < sampler.num_records))
        assert np.all(indices[size:] == 0)


@pytest.mark.parametrize("capacity", [7, 12])
def test_rate_one_includes_every_record(capacity):
    batch = PoissonSampler(7, 1.0, capacity).draw(key_from_seed(6))
    np.testing.assert_array_equal(np.asarray(batch.indices)[np.asarray(batch.mask)], np.arange(7))
    assert batch.mask.sum() == 7


@pytest.mark.thorough
def test_a_rate_next_to_one_includes_nearly_every_record():
    batches = draw_many(PoissonSampler(100, 0.999, 100), key_from_seed(7), 20_000)
    assert right_sizes(np.asarray(batches.mask).sum(axis=1), 100, 0.999)


def test_overflow_fills_the_capacity_and_no_more():
    """P(K >= M) full minibatches, K ~ Binomial(N, q)."""
    draws = 20_000
    batches = draw_many(OVERFLOWING, key_from_seed(9), draws)
    full = int(np.asarray(batches.mask).all(axis=1).sum())
    assert stats.binomtest(full, draws, stats.binom.sf(11, 100, 0.1)).pvalue > FALSE_ALARMS


def exact_overflow(num_records, rate, capacity):
    """P(K > M) for K ~ Binomial(N + 1, q), added up in rational numbers."""
    trials, rate = num_records + 1, Fraction(rate)
    terms = (
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
        for k in range(capacity + 1, trials + 1)
    )
    return float(sum(terms, Fraction(0)))


@pytest.mark.parametrize(
    ("num_records", "rate", "capacity"),
    [(10, 0.3, 5), (100, 0.1, 30), (100, 0.5, 50), (9, 0.25, 9)],
)
def test_overflow_probability_is_that_of_one_record_more(num_records, rate, capacity):
    exact = exact_overflow(num_records, rate, capacity)
    assert math.exp(log_overflow_probability(num_records, rate, capacity)) == pytest.approx(
        exact, rel=1e-9
    )


@pytest.mark.parametrize(
    ("num_records", "rate"), [(10, 0.3), (500, 0.1), (1000, 0.004), (60_000, 0.002)]
)
@pytest.mark.parametrize("tolerance", [1e-3, 1e-12, 1e-40])
def test_capacity_is_the_smallest_that_overflows_rarely_enough(num_records, rate, tolerance):
    capacity = overflow_capacity(num_records, rate, math.log(tolerance))
    candidates = np.arange(1, num_records + 2)
    log_overflow = stats.binom.logsf(candidates, num_records + 1, rate)
    log_overflow[candidates >= num_records + 1] = -np.inf
    assert capacity == candidates[np.argmax(log_overflow <= math.log(tolerance))]


def test_capacity_is_at_least_one_and_no_more_than_everybody():
    assert overflow_capacity(10, 0.1, 0.0) == 1
    assert overflow_capacity(10, 0.9, -1e9) == 11
    assert log_overflow_probability(10, 0.9, 11) == -math.inf


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_outcome_counts_the_thresholds_up_to_a_number(size):
    """At, just below and just above thresholds that differ in the high, the middle or the low word
    only.
    """
    random = np.random.default_rng(1)
    high, middle, low = random.integers(0, 3, (3, size)).astype(object)
    table = sorted(set((high << 64) + (middle << 32) + low + 1))
    numbers = [
        number for entry in table for number in (entry - 1, entry, entry + 1) if 0 <= number < 2**96
    ] + [0, 2**96 - 1]
    words = np.array(
        [[number >> shift & 0xFFFFFFFF for number in numbers] for shift in (64, 32, 0)], np.uint32
    )
    expected = [bisect.bisect_right(table, number) for number in numbers]
    np.testing.assert_array_equal(poisson._search(jnp.asarray(words), table), expected)


ONE = 1 << 400  # probabilities as whole multiples of 2^-400: the errors looked for are near 2^-97


def gap_probabilities(rate):
    """P(gap = g) by the tables, in units of 2^-400."""
    base, tables = poisson._gap_tables(rate)
    outcomes = [
        [high - low for low, high in zip([0, *table], [*table, 2**96], strict=True)]
        for table in tables
    ]
    if len(tables) == 1:
        return [weight << 304 for weight in outcomes[0]]
    remainders, multiples = outcomes
    assert len(remainders) == base
    return [(a * b) << 208 for a in multiples for b in remainders]


@pytest.mark.parametrize("rate", [0.9, 0.5, 0.1, 0.004])
def test_one_table_rounds_gaps_by_less_than_the_bound(rate):
    assert len(poisson._gap_tables(rate)[1]) == 1
    assert_gaps_are_within_the_bound(rate)


def test_two_tables_round_gaps_by_less_than_the_bound(monkeypatch):
    """With two tables forced on a larger rate, so that all gaps can be added up exactly."""
    monkeypatch.setattr(poisson, "_ONE_TABLE", 16)
    poisson._gap_tables.cache_clear()
    assert len(poisson._gap_tables(0.05)[1]) == 2
    assert_gaps_are_within_the_bound(0.05)
    poisson._gap_tables.cache_clear()


def assert_gaps_are_within_the_bound(rate):
    probabilities = gap_probabilities(rate)
    exact, survival = [], ONE
    for _ in probabilities[:-1]:
        exact.append(int(Fraction(rate) * survival))
        survival -= exact[-1]
    exact.append(survival)  # the last outcome stands for all longer gaps
    assert sum(probabilities) == sum(exact) == ONE
    distance = (
        sum(abs(ours - theirs) for ours, theirs in zip(probabilities, exact, strict=True)) / 2 / ONE
    )
    assert 0 < distance <= PoissonSampler(10, rate, 1).total_variation


@pytest.mark.parametrize(("num_records", "rate"), [(500, 0.1), (60_000, 0.002), (1_000_000, 1e-5)])
def test_rounding_bound_is_tiny_but_not_zero(num_records, rate):
    assert 0 < sampler_for(num_records, rate).total_variation < 1e-20


def test_rate_one_rounds_nothing_and_takes_no_random_words():
    sampler = PoissonSampler(10, 1.0, 10)
    assert sampler.total_variation == 0
    assert sampler.words == 0


@pytest.mark.parametrize("rate", [pytest.param(1e-4, marks=pytest.mark.thorough), 1.0])
def test_jit_vmap_and_scan_draw_the_same_minibatches(rate):
    sampler = PoissonSampler(200, rate, 200 if rate == 1 else 40)
    keys = jax.random.split(key_from_seed(10), 2)
    mapped = jax.vmap(sampler.draw)(keys)
    _, scanned = lax.scan(lambda carry, key: (carry, sampler.draw(key)), 0, keys)
    jax.tree.map(np.testing.assert_array_equal, scanned, mapped)
    first = jax.tree.map(lambda leaf: leaf[0], mapped)
    for draw in (sampler.draw, jax.jit(sampler.draw)):
        jax.tree.map(np.testing.assert_array_equal, draw(keys[0]), first)


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_insecure_keys_are_refused(rate):
    with pytest.raises(TypeError, match="new_key"):
        PoissonSampler(10, rate, 10).draw(jax.random.key(0))


@pytest.mark.thorough
def test_words_are_those_that_a_draw_takes():
    """Words beyond them are not asked for, and each of them matters."""
    for rate in (0.1, 1e-4):
        sampler = PoissonSampler(1000, rate, 9)
        key = key_from_seed(11)
        words = stream(key, 0, sampler.words)
        expected = sampler.draw(key)
        jax.tree.map(
            np.testing.assert_array_equal, sampler.draw_from(words, key, jnp.uint32(0)), expected
        )
        with pytest.raises(ArgumentError, match=r"^words="):
            sampler.draw_from(words[:-1], key, jnp.uint32(0))


@pytest.mark.parametrize("rate", some_of([0.05, 0.9, 0.3, 0.0021], 4))
def test_high_words_settle_an_outcome_only_where_the_search_agrees(rate):
    """Around every threshold and at random: a settled guess holds for all low words, and few are
    unsettled.
    """
    _, (table,) = poisson._gap_tables(rate)
    near = np.array([entry >> 64 for entry in table], np.uint64)
    high = np.unique(
        np.concatenate(
            [
                np.clip(near + shift, 1, 2**32) - 1
                for shift in (np.uint64(0), np.uint64(1), np.uint64(2))
            ]
        )
    )
    high = np.concatenate(
        [high, np.random.default_rng(0).integers(0, 2**32, 20_000, np.uint64), [0, 2**32 - 1]]
    ).astype(np.uint32)
    found, spec = (
        np.asarray(array) for array in poisson._guess(jnp.asarray(high), table, math.log1p(-rate))
    )
    for low in (0, 2**32 - 1):
        words = np.stack([high, np.full_like(high, low), np.full_like(high, low)])
        exact = np.asarray(poisson._search(jnp.asarray(words), table))
        np.testing.assert_array_equal(found[spec], exact[spec])
    at_thresholds = np.isin(high, near.astype(np.uint32))
    assert np.all(spec[~at_thresholds & (high > 0) & (high < 2**32 - 1)])
    assert not np.any(spec[at_thresholds])


@pytest.mark.thorough
def test_unsettled_gaps_take_their_low_words(monkeypatch):
    """With nothing settled the minibatches are still those of the tables: uniform inclusion at rate
    q.
    """
    guess = poisson._guess
    monkeypatch.setattr(
        poisson, "_guess", lambda *args: (0 * guess(*args)[0], jnp.zeros_like(guess(*args)[1]))
    )
    poisson._single_outcomes.cache_clear()
    try:
        sampler = PoissonSampler(40, 0.2, 40)
        batches = jax.jit(jax.vmap(sampler.draw))(jax.random.split(key_from_seed(12), 20_000))
        monkeypatch.undo()
        poisson._single_outcomes.cache_clear()
        counts = np.bincount(np.asarray(batches.indices)[np.asarray(batches.mask)], minlength=40)
        # false alarm below 1e-6: 40 binomial counts, 5.5 standard deviations
        assert np.all(np.abs(counts - 4000) < 5.5 * math.sqrt(20_000 * 0.2 * 0.8))
        usual = jax.jit(jax.vmap(sampler.draw))(jax.random.split(key_from_seed(12), 20_000))
        # the high words are the same, so only draws at a threshold may differ
        assert np.mean(np.asarray(usual.indices) != np.asarray(batches.indices)) < 1e-3
    finally:
        poisson._single_outcomes.cache_clear()


@pytest.mark.parametrize(
    ("argument", "num_records", "rate", "capacity"),
    [
        ("num_records", 0, 0.1, 5),
        ("num_records", 2**30, 0.1, 5),
        ("sampling_rate", 10, 0.0, 5),
        ("sampling_rate", 10, 1.5, 5),
        ("sampling_rate", 10, math.nan, 5),
        ("capacity", 10, 0.1, 0),
        ("capacity", 10, 1.0, 9),
    ],
)
def test_unusable_arguments_are_named(argument, num_records, rate, capacity):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        PoissonSampler(num_records, rate, capacity)


@pytest.mark.thorough
def test_whole_numbers_given_as_floats_still_draw_indices():
    batch = PoissonSampler(50.0, 0.5, 40.0).draw(key_from_seed(12))
    assert jnp.issubdtype(batch.indices.dtype, jnp.integer)
