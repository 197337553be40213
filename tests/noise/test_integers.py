"""Rounded Gaussian noise against the law that it is said to have, from the integers of the table to draws of a key.

The references are mpmath's normal distribution, Fourier integrals, and the definition of a draw in plain Python.
"""

import functools
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
from workbench.noise.integers import FINEST, rounded_gaussian, rounded_gaussian_from, total_variation, words_for

mpmath.mp.prec = 250

LEVELS = (0, 1, 5, FINEST - 1, FINEST)


# --- the law -------------------------------------------------------------------------------------------------------------


@functools.cache
def columns():
    """(threshold of 66 bits, alias) of each column."""
    high, middle, low = (table.tolist() for table in integers._table())
    parts = zip(high, middle, low, strict=True)
    return [(first << 34 | (second & 3) << 32 | third, second >> 2) for first, second, third in parts]


@functools.cache
def magnitudes():
    """2^81 P(|A| = a + 1/2) for a = 0, ..., 2^15 - 1, counted over columns and numbers that are compared."""
    counts = [0] * 2**15
    for column, (threshold, alias) in enumerate(columns()):
        counts[column] += threshold
        counts[alias] += 2**66 - threshold
    return counts


@functools.cache
def within_a_step():
    """2^32 P(256 B + C = k): four uniform draws from {0, ..., 3} and three from {0, ..., 255}."""
    law = np.array([1], object)
    for step, values, times in ((256, 4, 4), (1, 256, 3)):
        uniform = np.zeros(step * (values - 1) + 1, object)
        uniform[::step] = 1
        for _ in range(times):
            law = np.convolve(law, uniform)
    return law.tolist()


def probability(y):
    """P(a draw of the finest level is y), from the integers of the table."""
    law, counts = within_a_step(), magnitudes()
    total = 0
    for a in range((y + 1407 - len(law)) // 1024, (y + 1407) // 1024 + 1):  # 1024 a + 256 B + C - 1407 = y
        rest = y + 1407 - 1024 * a
        if 0 <= rest < len(law) and -(2**15) <= a < 2**15:
            total += counts[a if a >= 0 else -1 - a] * law[rest]
    return mpmath.mpf(total) / 2**114


def between(low, high):
    """P(low < Z <= high) for Z ~ N(0, 1), without cancellation."""
    if low < 0:
        low, high = -high, -low
    return (mpmath.erfc(low / mpmath.sqrt(2)) - mpmath.erfc(high / mpmath.sqrt(2))) / 2


def relative_error(y):
    s = mpmath.mpf(2**21)
    return float(probability(y) / between(y / s, (y + 1) / s) - 1)


def test_table_is_a_distribution():
    assert sum(magnitudes()) == 2**81
    assert min(magnitudes()) >= 0


@functools.cache
def wave(p):
    """The transform that A needs, at p."""
    p = mpmath.mpf(p)
    sinc = mpmath.sinc
    return mpmath.exp(-(p**2) * 2**21) * sinc(p / 8) * sinc(p / 2048) ** 4 / sinc(p / 2) ** 4


def magnitude(a):
    """P(|A| = a + 1/2) by the trapezoidal rule. Its error is the density 2^17 away; the transform ends at 40 deviations."""
    step = mpmath.pi / 2**16
    terms = (wave(step * n) * mpmath.cos(step * n * (a + mpmath.mpf(1) / 2)) for n in range(1, 420))
    return 2 * step / mpmath.pi * (mpmath.mpf(1) / 2 + sum(terms))


@pytest.mark.parametrize("a", [0, 1, 2, 777, 2047, 5000, 9999, 15000, 20001, 22000, 26000, 32767])
def test_table_has_the_fourier_integral_to_the_last_bit(a):
    """The series differs by less than 2^-65; the rest is rounding to multiples of 2^-81."""
    exact = magnitude(a)
    assert abs(mpmath.mpf(magnitudes()[a]) / 2**81 - exact) < mpmath.mpf(2) ** -81 + exact * mpmath.mpf(2) ** -65


def test_divergence_from_the_rounded_gaussian_is_what_is_charged():
    """E[r^2] over deviations, by the trapezoidal rule, and over residues of y: pairs of 32 that are 8 apart."""
    residues = [8 * n + (0 if n % 2 else 3) for n in range(32)]
    deviations = np.arange(-7, 7.01, 0.5) + 0.1234
    squares = [np.mean([relative_error(math.floor(2**21 * z) // 256 * 256 + y) ** 2 for y in residues]) for z in deviations]
    divergence = 0.5 * np.sum(stats.norm.pdf(deviations) * squares)
    charged = 4 * (total_variation(1) - 2**-67 - 7.5 * 2**-68) ** 2
    assert 0.9 * charged < divergence < charged


@pytest.mark.parametrize("z", [-7.5, -5.0, -3.0, 0.0, 0.7, 3.0, 5.0, 7.5])
def test_probabilities_of_the_finest_level_are_those_of_the_normal_distribution(z):
    """|He3(z)| 2^-45 is the largest error that the analysis allows for."""
    start = math.floor(z * 2**21)
    worst = max(abs(relative_error(start + step)) for step in range(0, 1100, 37))
    assert worst < (abs(z**3 - 3 * z) + 0.1) * 2**-45 + 2**-81 / float(magnitudes()[int(abs(z) * 2048)]) * 2**81


@pytest.mark.parametrize("z", [8.0, 9.0, 10.0])
def test_far_tails_have_their_probability(z):
    """P(A > 2048 z) to a hundredth: at 10 deviations it is 37 multiples of 2^-82."""
    beyond = sum(magnitudes()[int(2048 * z) :]) / 2**82
    assert beyond == pytest.approx(stats.norm.sf(z), rel=1e-2)


def test_rounding_puts_nothing_where_the_density_is_below_the_last_bit():
    assert sum(magnitudes()[12 * 2048 :]) == 0


def test_coarser_levels_are_rounded_and_not_cut_off():
    """round(Z / 2^k) from the integer below Z."""
    finest = stretched(FINEST)
    for level in range(FINEST):
        exact = [math.floor((2 * y + 2 ** (FINEST - level)) / 2 ** (FINEST - level + 1)) for y in finest.tolist()]
        np.testing.assert_array_equal(stretched(level), exact)


def stretched(level):
    return np.asarray(rounded_gaussian(key_from_seed(40), 5000, level))


def test_total_variation_grows_as_stated_and_is_tiny():
    assert total_variation(0) == 0
    assert total_variation(1e6) < 2e-11
    assert total_variation(1e9) < 1e-9
    assert total_variation(1e11) < 1e-8
    assert total_variation(1e30) == 1
    # rounding of the table, and pairs of draws that share a word and tie in 34 bits each
    assert total_variation(1e16) > 1e16 * (2.0**-67 + 15 / 2 * 2.0**-68)


# --- from words to draws -------------------------------------------------------------------------------------------------


def draw(words, groups, lane, group):
    """One draw of the finest level, as defined."""
    first, second = words[lane * groups + group], words[(16 + lane) * groups + group]
    half = words[(32 + lane % 8) * groups + group] >> (16 if lane >= 8 else 0) & 0xFFFF
    pair = words[40 * groups + group] >> 2 * lane & 3
    number = (first & 0xFFFF) << 50 | half << 34 | pair << 32 | words[41 * groups + group]
    column = first >> 16 & 0x7FFF
    threshold, alias = columns()[column]
    a = (column if number < threshold else alias) + 0.5
    b = sum(second >> shift & 3 for shift in (24, 26, 28, 30)) - 6
    c = sum(second >> shift & 255 for shift in (0, 8, 16)) - 382.5
    return int((-a if first >> 31 else a) * 1024 + 256 * b + c - 0.5)


def draws(words, count):
    groups = len(words) // 42
    return [draw(words, groups, place // groups, place % groups) for place in range(count)]


def ours(words, count, level=FINEST):
    return np.asarray(rounded_gaussian_from(jnp.asarray(np.array(words, np.uint32)), count, level))


@pytest.mark.parametrize("count", [1, 15, 16, 17, 31, 160, 1000])
def test_draws_are_those_of_the_definition(count):
    words = np.random.default_rng(count).integers(0, 2**32, words_for(count)).tolist()
    np.testing.assert_array_equal(ours(words, count), draws(words, count))


@pytest.mark.parametrize("word", [0, 2**32 - 1, 2**31, 2**31 - 1, 0x7FFFFFFF, 0x80007FFF])
def test_extreme_words_give_the_draws_of_the_definition(word):
    np.testing.assert_array_equal(ours([word] * 84, 32), draws([word] * 84, 32))


@pytest.mark.parametrize("column", [0, 1, 1000, 9000, 14000, 20000, 30000, 32767])
@pytest.mark.parametrize("nearer", [-(2**32), -1, 0, 1, 2**32])
def test_numbers_near_a_threshold_are_compared_to_the_last_bit(column, nearer):
    """In all lanes of the first of two groups."""
    threshold, _ = columns()[column]
    number = min(max(threshold + nearer, 0), 2**66 - 1)
    words = np.random.default_rng(column).integers(0, 2**32, 84).tolist()
    for lane in range(16):
        words[2 * lane] = column << 16 | number >> 50
    for word in range(32, 40):
        words[2 * word] = (number >> 34 & 0xFFFF) * 0x10001
    words[80] = (number >> 32 & 3) * 0x55555555
    words[82] = number & 0xFFFFFFFF
    np.testing.assert_array_equal(ours(words, 32), draws(words, 32))
    own = (ours(words, 32)[::2] + 1407) // 1024  # and up to three more
    expected = column if number < threshold else columns()[column][1]
    assert np.all((own >= expected) & (own <= expected + 3))


@pytest.mark.parametrize("level", [0, 5, FINEST])
def test_no_draw_is_farther_out_than_ten_and_a_half_standard_deviations(level):
    """With all numbers below the threshold and the other steps as far out as they go."""
    farthest = max(a for a, count in enumerate(magnitudes()) if count)
    out = ours([farthest << 16] * 16 + [2**32 - 1] * 16 + [0] * 10, 16, level)
    back = ours([0x80000000 | farthest << 16] * 16 + [0] * 26, 16, level)
    assert 10.4 * 2 ** (11 + level) < out.min() == out.max() < 10.5 * 2 ** (11 + level)
    assert -10.4 * 2 ** (11 + level) > back.max() == back.min() > -10.5 * 2 ** (11 + level)


@pytest.mark.parametrize(("count", "words"), [(0, 0), (1, 42), (16, 42), (17, 84), (688_884, 43056 * 42)])
def test_words_come_in_groups_of_sixteen_draws(count, words):
    assert words_for(count) == words


def test_no_draws():
    assert ours([], 0).shape == (0,)


# --- draws of keys -------------------------------------------------------------------------------------------------------


def p_value(sample, level):
    """Chi-square of draws in 61 classes of equal width and two tails, against the normal distribution."""
    edges = np.round(np.linspace(-4.5, 4.5, 62) * 2 ** (11 + level)) + 0.5  # of classes of integers
    shift = 0.5 if level == FINEST else 0  # there the integer below
    cumulative = np.concatenate([[0], stats.norm.cdf((edges + shift) / 2 ** (11 + level)), [1]])
    counts = np.bincount(np.searchsorted(edges, sample), minlength=63)
    return stats.chisquare(counts, np.diff(cumulative) * len(sample)).pvalue


@pytest.mark.parametrize("level", some_of(LEVELS, 2))
def test_draws_have_the_normal_distribution(level):
    """Two sizes, one of them in chunks. False alarms one in a million seeds for each."""
    for count in (30_000, 300_000):
        assert p_value(np.asarray(rounded_gaussian(key_from_seed(41 + level), count, level)), level) > 1e-6


def test_a_scale_that_is_off_by_two_hundredths_would_be_found():
    sample = np.asarray(rounded_gaussian(key_from_seed(41), 300_000, 5))
    for scale in (0.98, 1.02):
        assert p_value(np.round(scale * sample), 5) < 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("level", LEVELS)
def test_many_draws_have_the_normal_distribution_and_its_tails(level):
    """Chi-square of 2^25 draws, and how many are beyond 4.5, 5 and 5.5 deviations. False alarms four in a million seeds."""
    sample = np.concatenate(
        [np.asarray(rounded_gaussian(key, 2**22, level)) for key in jax.random.split(key_from_seed(60 + level), 8)]
    )
    assert p_value(sample, level) > 1e-6
    scaled = np.abs((sample + (0.5 if level == FINEST else 0)) / 2 ** (11 + level))
    for far in (4.5, 5.0, 5.5):
        found = int(np.sum(scaled > far))
        expected = 2 * stats.norm.sf(far) * len(sample)
        assert stats.poisson.cdf(found, expected) > 5e-7
        assert stats.poisson.sf(found - 1, expected) > 5e-7


def test_residues_are_uniform():
    """Modulo 256 and 1024: nothing of the steps in which a draw is put together is left. False alarms two in a million."""
    sample = np.asarray(rounded_gaussian(key_from_seed(42), 400_000, FINEST))
    for step in (256, 1024):
        assert stats.chisquare(np.bincount(sample % step, minlength=step)).pvalue > 1e-6


def test_draws_of_a_group_are_uncorrelated():
    """The sixteen that share words: values, magnitudes and residues. False alarms one in a million seeds."""
    groups = 40_000
    words = stream(key_from_seed(43), 0, 42 * groups)
    sample = np.asarray(rounded_gaussian_from(words, 16 * groups, FINEST)).reshape(16, groups)
    for values in (sample, np.abs(sample), sample % 256, sample % 2):
        correlations = np.corrcoef(values)[np.triu_indices(16, 1)]
        assert np.max(np.abs(correlations)) * np.sqrt(groups) < stats.norm.isf(1e-6 / 4 / 240)


def test_the_shared_word_matters_only_for_ties():
    words = np.random.default_rng(1).integers(0, 2**32, 42 * 500)
    others = words.copy()
    others[41 * 500 :] ^= 0xFFFFFFFF
    np.testing.assert_array_equal(ours(words, 8000), ours(others, 8000))


@pytest.mark.parametrize("count", [1, 100, 2 * integers._CHUNK + 5])
def test_draws_do_not_depend_on_the_device(count):
    """Devices other than CPUs compute all chunks at once."""
    with mock.patch.object(lax, "platform_dependent", lambda *arguments, cpu, default: default(*arguments)):
        at_once = np.asarray(jax.jit(lambda key: rounded_gaussian(key, count, 3))(key_from_seed(44)))
    np.testing.assert_array_equal(at_once, rounded_gaussian(key_from_seed(44), count, 3))


def test_jit_scan_and_vmap_with_own_levels_give_the_same_draws():
    keys = jax.random.split(key_from_seed(45), FINEST + 1)
    levels = jnp.arange(FINEST + 1)
    with jax.disable_jit():
        single = np.stack([rounded_gaussian(key, 31, level) for level, key in enumerate(keys)])
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(lambda key, level: rounded_gaussian(key, 31, level)))(keys, levels), single
    )
    _, scanned = lax.scan(lambda carry, each: (carry, rounded_gaussian(each[0], 31, each[1])), 0, (keys, levels))
    np.testing.assert_array_equal(scanned, single)
    assert scanned.dtype == jnp.int32


@pytest.mark.thorough
def test_vmap_of_draws_in_chunks_gives_the_draws_of_single_keys():
    keys, levels = jax.random.split(key_from_seed(46), 2), jnp.array([0, FINEST])
    count = 2 * integers._CHUNK
    batch = jax.jit(jax.vmap(lambda key, level: rounded_gaussian(key, count, level)))(keys, levels)
    for row, key, level in zip(batch, keys, levels.tolist(), strict=True):
        np.testing.assert_array_equal(row, rounded_gaussian(key, count, level))


@pytest.mark.parametrize("level", [0, 4, FINEST])
def test_draws_are_the_same_in_64_bit_mode(level):
    expected = rounded_gaussian(key_from_seed(47), 500, level)
    with jax.enable_x64(True):
        wide = jax.jit(lambda level: rounded_gaussian(key_from_seed(47), 500, level))(level)
        assert wide.dtype == jnp.int32
        np.testing.assert_array_equal(wide, expected)
        np.testing.assert_array_equal(rounded_gaussian(key_from_seed(47), 500, level), expected)


def test_a_compiled_program_draws_from_32_bit_integers_alone_in_64_bit_mode():
    with jax.enable_x64(True):
        words = jnp.zeros(words_for(31), jnp.uint32)
        program = str(jax.make_jaxpr(lambda words, level: rounded_gaussian_from(words, 31, level))(words, jnp.int32(3)))
    for wide in ("i64", "f64", "u64"):
        assert wide not in program


@pytest.mark.parametrize("level", [-1, FINEST + 1, 2.5, np.int32(-1), np.float32("nan")])
def test_levels_out_of_range_are_refused(level):
    for call in (lambda: ours([0] * 42, 3, level), lambda: rounded_gaussian(key_from_seed(0), 3, level)):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert caught.value.argument == "level"


def test_draws_need_a_secure_key():
    with pytest.raises(TypeError, match="new_key"):
        rounded_gaussian(jax.random.key(0), 3, 3)


@pytest.mark.parametrize("count", [-1, math.inf, math.nan])
def test_numbers_of_draws_that_make_no_sense_are_refused(count):
    with pytest.raises(ArgumentError, match="draws"):
        total_variation(count)
