"""Rounded Gaussian noise against the law that it is said to have, from the integers of the table to
draws of a key.

The references are mpmath's normal distribution, Fourier integrals, and the definition of a draw in
plain Python.
"""

import functools
import itertools
import math
from unittest import mock

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from jax import lax
from scipy import stats

from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.noise import integers
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.noise.integers import (
    COARSEST,
    FINEST,
    delta_cost,
    rounded_gaussian,
    rounded_gaussian_from,
    words_for,
)

mpmath.mp.prec = 250

LEVELS = (0, 1, 5, FINEST - 1, FINEST)

# a program for each number of draws, which takes the level
drawn = jax.jit(rounded_gaussian, static_argnums=1)
drawn_from = jax.jit(rounded_gaussian_from, static_argnums=1)


# --- the law --------------------------------------------------------------------------------------


@functools.cache
def columns():
    """(threshold of 72 bits, alias) of each column."""
    high, middle, packed = (table.tolist() for table in integers._table())
    parts = zip(high, middle, packed, strict=True)
    return [
        (first >> 8 << 48 | second << 16 | third & 0xFFFF, third >> 16)
        for first, second, third in parts
    ]


@functools.cache
def magnitudes():
    """2^87 P(|A| = a + 1/2) for a = 0, ..., 2^15 - 1, counted over columns and numbers that are
    compared.
    """
    counts = [0] * 2**15
    for column, (threshold, alias) in enumerate(columns()):
        counts[column] += threshold
        counts[alias] += 2**72 - threshold
    return counts


@functools.cache
def unrounded():
    """The same without rounding, and their sum."""
    values = integers._unrounded()
    return values, sum(values)


@functools.cache
def within_a_step():
    """2^40 P(B = k): four uniform draws from {0, ..., 1023}."""
    law, uniform = np.array([1], object), np.array([1] * 1024, object)
    for _ in range(4):
        law = np.convolve(law, uniform)
    return law.tolist()


def probability(y, counts, whole):
    """P(a draw of the finest level is y), from P(|A| = a + 1/2) = counts[a] / whole."""
    law = within_a_step()
    total = 0
    for a in range((y + 1534 - len(law)) // 1024, (y + 1534) // 1024 + 1):  # 1024 a + B - 1534 = y
        rest = y + 1534 - 1024 * a
        if 0 <= rest < len(law) and -(2**15) <= a < 2**15:
            total += counts[a if a >= 0 else -1 - a] * law[rest]
    return mpmath.mpf(total) / (whole * 2**41)


def between(low, high):
    """P(low < Z <= high) for Z ~ N(0, 1), without cancellation."""
    if low < 0:
        low, high = -high, -low
    return (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2


def relative_error(y, counts, whole):
    s, half = mpmath.mpf(2**21), mpmath.mpf(1) / 2
    return float(probability(y, counts, whole) / between((y - half) / s, (y + half) / s) - 1)


def test_table_is_a_distribution():
    assert sum(magnitudes()) == 2**87
    assert min(magnitudes()) >= 0


@functools.cache
def wave(p):
    """The transform that A needs, at p."""
    p = mpmath.mpf(p)
    sinc = mpmath.sinc
    return mpmath.exp(-(p**2) * 2**21) * sinc(p / 2048) ** 5 / sinc(p / 2) ** 4


def magnitude(a):
    """P(|A| = a + 1/2) by the trapezoidal rule. Its error is the density 2^17 away; the transform
    ends at 40 deviations.
    """
    step = mpmath.pi / 2**16
    terms = (wave(step * n) * mpmath.cos(step * n * (a + mpmath.mpf(1) / 2)) for n in range(1, 420))
    return 2 * step / mpmath.pi * (mpmath.mpf(1) / 2 + sum(terms))


@pytest.mark.parametrize("a", [0, 1, 2, 777, 2047, 5000, 9999, 15000, 20001, 22000, 26000, 32767])
def test_table_has_the_fourier_integral_to_the_last_bit(a):
    """The series differs by less than 2^-65; the rest is rounding to multiples of 2^-87."""
    exact = magnitude(a)
    assert (
        abs(mpmath.mpf(magnitudes()[a]) / 2**87 - exact)
        < mpmath.mpf(2) ** -87 + exact * mpmath.mpf(2) ** -65
    )


def test_rounding_of_the_table_is_within_what_is_charged():
    values, whole = unrounded()
    wrong = [
        abs(count * whole - (value << 87))
        for count, value in zip(magnitudes(), values, strict=True)
    ]
    assert max(wrong) <= whole
    assert sum(wrong) / (2 * whole * 2**87) < integers._TABLE


def test_squares_of_relative_errors_are_what_is_charged():
    """E[r^2] over deviations, by the trapezoidal rule, and over residues of y: pairs of 32 that are
    32 apart.
    """
    residues = [32 * n + (0 if n % 2 else 11) for n in range(32)]
    deviations = np.arange(-7, 7.01, 0.5) + 0.1234
    starts = [math.floor(2**21 * z) // 1024 * 1024 for z in deviations]
    squares = [
        np.mean([relative_error(start + y, magnitudes(), 2**87) ** 2 for y in residues])
        for start in starts
    ]
    assert (
        0.97 * integers._SQUARE
        < 0.5 * np.sum(stats.norm.pdf(deviations) * squares)
        < integers._SQUARE
    )


@pytest.mark.parametrize("z", [-10.5, -8.0, -3.0, 0.0, 0.7, 3.0, 5.0, 9.0, 10.5])
def test_probabilities_of_a_table_without_rounding_have_the_errors_of_the_analysis(z):
    """To a hundredth of the largest error at such a z, at residues of y of which some are the
    worst.
    """
    start = math.floor(z * 2**21)
    k = np.arange(1, 1024)
    sizes = (2**22 * np.sin(np.pi * k / 1024)) ** -4.0
    for y in range(start // 1024 * 1024, start + 1024, 64):
        expected = (z**4 - 6 * z**2 + 3) * np.sum(
            (-1.0) ** k * np.cos(2 * np.pi * k * y / 1024) * sizes
        )
        error = relative_error(y, *unrounded())
        assert abs(error - expected) < 0.01 * (abs(z**4 - 6 * z**2 + 3) + 1) * np.sum(sizes)
        assert abs(error) < 2**-39.95 < integers._LARGEST


@pytest.mark.parametrize("z", [-7.0, -5.0, 0.0, 0.7, 5.0, 7.0])
def test_probabilities_of_the_finest_level_are_those_of_the_normal_distribution(z):
    """Besides the errors of the analysis there is the rounding of the table."""
    start = math.floor(z * 2**21)
    worst = max(
        abs(relative_error(start + step, magnitudes(), 2**87)) for step in range(0, 1100, 37)
    )
    assert worst < (abs(z**4 - 6 * z**2 + 3) + 1) * 2**-53.4 + 1 / magnitudes()[int(abs(z) * 2048)]


@pytest.mark.parametrize("z", [8.0, 9.0, 10.0])
def test_far_tails_have_their_probability(z):
    """P(A > 2048 z) to a hundredth: at 10 deviations it is 2358 multiples of 2^-88."""
    beyond = sum(magnitudes()[int(2048 * z) :]) / 2**88
    assert beyond == pytest.approx(stats.norm.sf(z), rel=1e-2)


def test_what_is_left_out_of_the_likelihood_ratio_is_charged():
    values, whole = unrounded()
    assert 2 * stats.norm.sf(10.5) < integers._FAR
    assert sum(values[int(10.5 * 2048) - 2 :]) / whole < integers._FAR


def test_rounding_puts_nothing_where_the_density_is_below_the_last_bit():
    assert sum(magnitudes()[11 * 2048 :]) == 0


def test_coarser_levels_are_rounded_and_not_cut_off():
    """round((Z + 1/2) / 2^k) from round(Z)."""
    finest = stretched(FINEST)
    for level in range(COARSEST, FINEST):
        exact = [
            math.floor((2 * y + 2 ** (FINEST - level)) / 2 ** (FINEST - level + 1))
            for y in finest.tolist()
        ]
        np.testing.assert_array_equal(stretched(level), exact)


def stretched(level):
    return np.asarray(drawn(key_from_seed(40), 300_000, level)[:30_000])


# --- what it costs --------------------------------------------------------------------------------


def test_cost_of_large_epsilon_is_small():
    """A logistic regression of 31 coordinates and 10 000 steps, a VAE, and both where epsilon
    is 1.
    """
    assert delta_cost(3e5, 8) < 2e-10
    assert delta_cost(7e9, 8) < 4e-9
    assert delta_cost(31e6, 1) < 1e-11
    assert delta_cost(1e11, 1) < 1e-9


def test_cost_grows_with_draws_and_epsilon():
    draws = [0, 1e-300, 1, *np.logspace(0.1, 40, 120), 1e308]
    epsilons = [0, 1e-9, *np.logspace(-3, 2.8, 60), 699, 701, 720, 1e4, 1e308]
    costs = np.array([[delta_cost(count, epsilon) for epsilon in epsilons] for count in draws])
    assert np.all(costs[0] == 0)
    assert np.all(costs[1:] > 0)
    assert np.all(np.isfinite(costs[1:-1, :-5]))
    assert np.all(costs[1:, -2:] == math.inf)
    assert np.all(costs[1:] >= costs[:-1])
    assert np.all(costs[:, 1:] >= costs[:, :-1])


def test_cost_has_the_parts_of_ties_and_of_rounding():
    """Four of 32 draws that tie in 24 bits, or two that tie in 56; and the table."""
    ties = math.comb(32, 4) / 32 * 2.0**-96 + 31 / 2 * 2.0**-112
    assert delta_cost(1e15, 3) > (1 + math.exp(3)) * 1e15 * (2.0**-73 + ties)
    assert delta_cost(1e40, 0) >= 1


def divergence(first, second, epsilon):
    """The smallest delta for epsilon, of two laws given as arrays."""
    return np.sum(np.maximum(first - math.exp(epsilon) * second, 0))


def binary(draws, chance):
    """How many of ``draws`` are 1, and the same if each is turned over, as a neighbouring data set
    would have it.
    """
    counts = np.arange(draws + 1)
    return stats.binom.pmf(counts, draws, chance), stats.binom.pmf(counts, draws, 1 - chance)


@pytest.mark.parametrize(
    ("draws", "error"), [(1, 0.1), (10, 0.01), (100, 1e-3), (10_000, 1e-4), (10_000, 1e-2)]
)
@pytest.mark.parametrize("tilt", [0.0, 0.003, 0.1])
def test_cost_of_a_coin_is_above_that_of_its_divergence(draws, error, tilt):
    """An exact coin of which the bias is secret, and a real one with an error that is far too
    large; all draws together.
    """
    exact = 0.5 + tilt
    for real in (exact * (1 + error), exact * (1 - error)):
        errors = np.array([real / exact - 1, (1 - real) / (1 - exact) - 1])
        square = (
            1.05
            * (exact * errors[0] ** 2 + (1 - exact) * errors[1] ** 2)
            * (1 + np.max(np.abs(errors)))
        )
        largest = 1.2 * np.max(np.abs(errors))
        for epsilon in (0.0, 0.1, 1.0, 3.0):
            costs = []
            for pair in (slice(None), slice(None, None, -1)):
                delta = divergence(*binary(draws, exact)[pair], epsilon)
                costs.append(divergence(*binary(draws, real)[pair], epsilon) - delta)
            assert max(costs) <= integers._by_distance(draws, epsilon, square, 0.0) + 1e-12
            for unlikely in (1e-2, 1e-4, 1e-9):
                bound = integers._by_ratio(draws, epsilon, square, 0.0, largest, 0.0, unlikely)
                assert max(costs) <= bound + 1e-12


def test_bounds_of_the_cost_are_not_far_above_what_an_error_can_cost():
    """An error that moves the bias costs a fifth of the first bound, and more than a thirtieth of
    the second.
    """
    exact, real = binary(10_000, 0.503), binary(10_000, 0.50305)
    cost = divergence(*real, 0.0) - divergence(*exact, 0.0)
    assert cost > 0.2 * integers._by_distance(10_000, 0.0, 1e-8, 0.0)
    assert cost > integers._by_ratio(10_000, 0.0, 1e-8, 0.0, 1e-4, 0.0, 1e-9) / 30


@pytest.mark.parametrize("draws", [1, 2, 4])
def test_cost_of_products_is_above_that_of_their_divergence(draws):
    """Noise on a circle of seven values, moved by one: all outcomes of all draws."""
    exact = np.exp(-((np.arange(7) - 3.0) ** 2) / 4)
    exact /= exact.sum()
    errors = np.array([0.02, -0.01, 0.03, 0.0, -0.02, 0.01, -0.03])
    errors -= exact @ errors
    square, largest = 1.1 * (exact @ errors**2), 1.2 * np.max(np.abs(errors))

    def product(law):
        return functools.reduce(np.multiply.outer, [law] * draws).ravel()

    for epsilon, shift in itertools.product((0.0, 0.5, 2.0, 6.0), (1, -1, 3)):
        real = exact * (1 + errors)
        delta = divergence(product(exact), product(np.roll(exact, shift)), epsilon)
        cost = divergence(product(real), product(np.roll(real, shift)), epsilon) - delta
        assert cost <= integers._by_distance(draws, epsilon, square, 0.0)
        for unlikely in (0.3, 1e-2, 1e-6):
            assert cost <= integers._by_ratio(draws, epsilon, square, 0.0, largest, 0.0, unlikely)


# --- from words to draws --------------------------------------------------------------------------


def shared_number(words, groups, lane, group):
    """The last 48 bits of the number that is compared with a threshold."""
    mixed = words[80 * groups + group]
    for bit in range(5):
        mixed ^= words[(81 + bit) * groups + group] if lane >> bit & 1 else 0
    return mixed << 16 | words[86 * groups + group] & 0xFFFF


def draw(words, groups, lane, group):
    """One draw of the finest level, as defined."""
    first, second = words[lane * groups + group], words[(32 + lane) * groups + group]
    half = words[(64 + lane % 16) * groups + group] >> (16 if lane >= 16 else 0) & 0xFFFF
    number = ((first & 0xFFFF) << 8 | half >> 10 << 2 | second & 3) << 48 | shared_number(
        words, groups, lane, group
    )
    column = first >> 16 & 0x7FFF
    threshold, alias = columns()[column]
    a = (column if number < threshold else alias) + 0.5
    b = sum(second >> shift & 1023 for shift in (2, 12, 22)) + (half & 1023) - 2046
    return int((-a if first >> 31 else a) * 1024 + b)


def draws(words, count):
    groups = len(words) // 87
    return [draw(words, groups, place // groups, place % groups) for place in range(count)]


def ours(words, count, level=FINEST):
    return np.asarray(drawn_from(jnp.asarray(np.array(words, np.uint32)), count, level))


@pytest.mark.parametrize("count", [1, 33, 1000])
def test_draws_are_those_of_the_definition(count):
    words = np.random.default_rng(count).integers(0, 2**32, words_for(count)).tolist()
    np.testing.assert_array_equal(ours(words, count), draws(words, count))


@pytest.mark.parametrize("word", [0, 2**32 - 1, 2**31, 2**31 - 1, 0x7FFFFFFF, 0x80007FFF])
def test_extreme_words_give_the_draws_of_the_definition(word):
    np.testing.assert_array_equal(ours([word] * 174, 64), draws([word] * 174, 64))


@pytest.mark.parametrize("column", [0, 1, 1000, 9000, 14000, 20000, 30000, 32767])
@pytest.mark.parametrize("nearer", [-(2**48), -(2**16), -1, 0, 1, 2**16, 2**48])
def test_numbers_near_a_threshold_are_compared_to_the_last_bit(column, nearer):
    """In all lanes of the first of two groups."""
    threshold, _ = columns()[column]
    number = min(max(threshold + nearer, 0), 2**72 - 1)
    words = np.random.default_rng(column).integers(0, 2**32, 174).tolist()
    for lane in range(32):
        words[2 * lane] = column << 16 | number >> 56
        words[64 + 2 * lane] = words[64 + 2 * lane] & 0xFFFFFFFC | number >> 48 & 3
    for word in range(64, 80):
        words[2 * word] = words[2 * word] & 0x03FF03FF | (number >> 50 & 63) * 0x04000400
    words[160:172:2] = [number >> 16 & 0xFFFFFFFF] + [0] * 5
    words[172] = words[172] & 0xFFFF0000 | number & 0xFFFF
    np.testing.assert_array_equal(ours(words, 64), draws(words, 64))
    own = (ours(words, 64)[::2] + 1534) // 1024  # and up to three more
    expected = column if number < threshold else columns()[column][1]
    assert np.all((own >= expected) & (own <= expected + 3))


def test_draws_that_tie_use_shared_numbers_of_their_own():
    """All 32 draws of eight groups tie in the bits of their own."""
    groups = 8
    random = np.random.default_rng(2)
    words = random.integers(0, 2**32, 87 * groups).tolist()
    for word in range(64 * groups, 80 * groups):
        words[word] &= 0x03FF03FF
    for lane, group in itertools.product(range(32), range(groups)):
        column = int(random.integers(2**15))
        own = columns()[column][0] >> 48
        words[lane * groups + group] = column << 16 | own >> 8
        words[(32 + lane) * groups + group] = (
            words[(32 + lane) * groups + group] & 0xFFFFFFFC | own & 3
        )
        words[(64 + lane % 16) * groups + group] |= (own >> 2 & 63) << (26 if lane >= 16 else 10)
    np.testing.assert_array_equal(ours(words, 32 * groups), draws(words, 32 * groups))


def test_any_three_draws_of_a_group_have_independent_shared_numbers():
    """Each is a sum modulo 2 of words, given by a vector: no sum of one, two or three of them is
    zero.
    """
    vectors = []
    for lane in range(32):
        parts = [
            shared_number([0] * 80 + [int(word == k) for word in range(7)], 1, lane, 0) >> 16
            for k in range(6)
        ]
        vectors.append(sum(part << k for k, part in enumerate(parts)))
    sums = [one ^ other for one, other in itertools.combinations(vectors, 2)]
    assert 0 not in vectors
    assert 0 not in sums
    assert not set(sums) & set(vectors)


@pytest.mark.parametrize("level", [0, 5, FINEST])
def test_no_draw_is_farther_out_than_eleven_standard_deviations(level):
    """With all numbers below the threshold and the other steps as far out as they go."""
    farthest = max(a for a, count in enumerate(magnitudes()) if count)
    out = ours([farthest << 16] * 32 + [2**32 - 4] * 32 + [0x03FF03FF] * 16 + [0] * 7, 32, level)
    back = ours([0x80000000 | farthest << 16] * 32 + [0] * 55, 32, level)
    assert 10.8 * 2 ** (11 + level) < out.min() == out.max() < 11 * 2 ** (11 + level)
    assert -10.8 * 2 ** (11 + level) > back.max() == back.min() > -11 * 2 ** (11 + level)


@pytest.mark.parametrize(
    ("count", "words"), [(0, 0), (1, 87), (32, 87), (33, 174), (688_884, 21528 * 87)]
)
def test_words_come_in_groups_of_thirty_two_draws(count, words):
    assert words_for(count) == words


def test_no_draws():
    assert ours([], 0).shape == (0,)


# --- draws of keys --------------------------------------------------------------------------------


def p_value(sample, level):
    """Chi-square of draws in 61 classes of equal width and two tails, against the normal
    distribution.
    """
    edges = np.round(np.linspace(-4.5, 4.5, 62) * 2 ** (11 + level)) + 0.5  # of classes of integers
    cumulative = np.concatenate([[0], stats.norm.cdf(edges / 2 ** (11 + level)), [1]])
    counts = np.bincount(np.searchsorted(edges, sample), minlength=63)
    return stats.chisquare(counts, np.diff(cumulative) * len(sample)).pvalue


@pytest.mark.parametrize("level", some_of(LEVELS, 2))
def test_draws_have_the_normal_distribution(level):
    """Two sizes, one of them in chunks. False alarms one in a million seeds for each."""
    for count in (30_000, 300_000):
        assert p_value(np.asarray(drawn(key_from_seed(41 + level), count, level)), level) > 1e-6


@pytest.mark.parametrize("level", [COARSEST, COARSEST + 2])
def test_whole_numbers_of_coarse_levels_have_their_probabilities(level):
    """P(k) = Phi((k + 1/2) / s) - Phi((k - 1/2) / s) within 4 s. False alarms one in a million
    seeds.
    """
    deviation = 2 ** (11 + level)
    sample = np.asarray(drawn(key_from_seed(44), 300_000, level))
    whole = np.arange(-4 * deviation, 4 * deviation + 1)
    cumulative = np.concatenate(
        [[0], stats.norm.cdf((np.append(whole, whole[-1] + 1) - 0.5) / deviation), [1]]
    )
    counts = np.bincount(
        np.searchsorted(np.append(whole, whole[-1] + 1), sample, side="right"),
        minlength=len(whole) + 2,
    )
    assert stats.chisquare(counts, np.diff(cumulative) * len(sample)).pvalue > 1e-6


def test_a_scale_that_is_off_by_two_hundredths_would_be_found():
    sample = np.asarray(drawn(key_from_seed(41), 300_000, 5))
    for scale in (0.98, 1.02):
        assert p_value(np.round(scale * sample), 5) < 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("level", LEVELS)
def test_many_draws_have_the_normal_distribution_and_its_tails(level):
    """Chi-square of 2^25 draws, and how many are beyond 4.5, 5 and 5.5 deviations. False alarms
    four in a million seeds.
    """
    sample = np.concatenate(
        [
            np.asarray(drawn(key, 2**22, level))
            for key in jax.random.split(key_from_seed(60 + level), 8)
        ]
    )
    assert p_value(sample, level) > 1e-6
    scaled = np.abs(sample / 2 ** (11 + level))
    for far in (4.5, 5.0, 5.5):
        found = int(np.sum(scaled > far))
        expected = 2 * stats.norm.sf(far) * len(sample)
        assert stats.poisson.cdf(found, expected) > 5e-7
        assert stats.poisson.sf(found - 1, expected) > 5e-7


def test_residues_are_uniform():
    """Modulo 32 and 1024: nothing of the steps in which a draw is put together is left. False
    alarms two in a million.
    """
    sample = np.asarray(drawn(key_from_seed(42), 300_000, FINEST))
    for step in (32, 1024):
        assert stats.chisquare(np.bincount(sample % step, minlength=step)).pvalue > 1e-6


def test_draws_of_a_group_are_uncorrelated():
    """The 32 that share words: values, magnitudes and residues. False alarms one in a million
    seeds.
    """
    groups = 20_000
    words = stream(key_from_seed(43), 0, 87 * groups)
    sample = np.asarray(drawn_from(words, 32 * groups, FINEST)).reshape(32, groups)
    for values in (sample, np.abs(sample), sample % 1024, sample % 2):
        correlations = np.corrcoef(values)[np.triu_indices(32, 1)]
        assert np.max(np.abs(correlations)) * np.sqrt(groups) < stats.norm.isf(1e-6 / 4 / 992)


def test_shared_words_matter_only_for_ties():
    words = np.random.default_rng(1).integers(0, 2**32, 87 * 32)
    others = words.copy()
    others[80 * 32 :] ^= 0xFFFFFFFF
    np.testing.assert_array_equal(ours(words, 1000), ours(others, 1000))


@pytest.mark.parametrize("count", some_of([300_000, 1, 100], 3))
def test_draws_do_not_depend_on_the_device(count):
    """Devices other than CPUs compute all chunks at once."""
    with mock.patch.object(
        lax, "platform_dependent", lambda *arguments, cpu, default: default(*arguments)
    ):
        at_once = np.asarray(
            jax.jit(lambda key: rounded_gaussian(key, count, 3))(key_from_seed(44))
        )
    np.testing.assert_array_equal(at_once, drawn(key_from_seed(44), count, 3))


def test_jit_scan_and_vmap_with_own_levels_give_the_same_draws():
    keys = jax.random.split(key_from_seed(45), FINEST + 1)
    levels = jnp.arange(FINEST + 1)
    single = np.stack([drawn(key, 31, level) for level, key in enumerate(keys)])
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(lambda key, level: rounded_gaussian(key, 31, level)))(keys, levels), single
    )
    _, scanned = lax.scan(
        lambda carry, each: (carry, rounded_gaussian(each[0], 31, each[1])), 0, (keys, levels)
    )
    np.testing.assert_array_equal(scanned, single)
    assert scanned.dtype == jnp.int32


@pytest.mark.thorough
def test_vmap_of_draws_in_chunks_gives_the_draws_of_single_keys():
    keys, levels = jax.random.split(key_from_seed(46), 2), jnp.array([0, FINEST])
    count = 2 * integers._CHUNK
    batch = jax.jit(jax.vmap(lambda key, level: rounded_gaussian(key, count, level)))(keys, levels)
    for row, key, level in zip(batch, keys, levels.tolist(), strict=True):
        np.testing.assert_array_equal(row, rounded_gaussian(key, count, level))


@pytest.mark.parametrize("level", some_of([4, 0, FINEST], 3))
def test_draws_are_the_same_in_64_bit_mode(level):
    """Of a traced level, and of one that is known when the program is compiled."""
    key = key_from_seed(47)
    expected = drawn(key, 31, level)
    with jax.enable_x64(True):
        wide = jax.jit(lambda level: rounded_gaussian(key, 31, level))(level)
        assert wide.dtype == jnp.int32
        np.testing.assert_array_equal(wide, expected)
        np.testing.assert_array_equal(jax.jit(lambda: rounded_gaussian(key, 31, level))(), expected)


def test_a_compiled_program_draws_from_32_bit_integers_alone_in_64_bit_mode():
    with jax.enable_x64(True):
        words = jnp.zeros(words_for(31), jnp.uint32)
        program = str(
            jax.make_jaxpr(lambda words, level: rounded_gaussian_from(words, 31, level))(
                words, jnp.int32(3)
            )
        )
    for wide in ("i64", "f64", "u64"):
        assert wide not in program


@pytest.mark.parametrize(
    "level", [COARSEST - 1, FINEST + 1, 2.5, np.int32(COARSEST - 1), np.float32("nan")]
)
def test_levels_out_of_range_are_refused(level):
    words = jnp.zeros(87, jnp.uint32)
    for call in (
        lambda: rounded_gaussian_from(words, 3, level),
        lambda: rounded_gaussian(key_from_seed(0), 3, level),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert caught.value.argument == "level"


def test_draws_need_a_secure_key():
    with pytest.raises(TypeError, match="new_key"):
        rounded_gaussian(jax.random.key(0), 3, 3)


@pytest.mark.parametrize("number", [-1, math.inf, math.nan])
def test_costs_of_numbers_that_make_no_sense_are_refused(number):
    with pytest.raises(ArgumentError, match="draws"):
        delta_cost(number, 1)
    with pytest.raises(ArgumentError, match="epsilon"):
        delta_cost(1, number)
