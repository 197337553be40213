import itertools
import math
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend.random import define_prng_impl
from scipy import stats

from tests.conftest import examples, some_of
from workbench.noise import chacha20, normals
from workbench.noise.chacha20 import (
    CHACHA20,
    fast_key,
    key_from_bytes,
    key_from_seed,
    new_key,
    require_secure,
)
from workbench.noise.normals import NORMAL_BOUND, normal


def words_of(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32)


def little_endian(text):
    return np.frombuffer(bytes.fromhex(text.replace(" ", "")), "<u4").astype(np.uint32)


def test_quarter_round_of_rfc_8439():
    """Section 2.1.1."""
    mixed = chacha20._quarter_round(*jnp.asarray(words_of("11111111 01020304 9b8d6f43 01234567")))
    np.testing.assert_array_equal(mixed, words_of("ea2a92f4 cb1cf8ce 4581472e 5881c4bb"))


def test_block_of_rfc_8439():
    """Section 2.3.2: key 00, 01, ..., 1f, counter 1."""
    key = np.frombuffer(bytes(range(32)), "<u4").astype(np.uint32)
    nonce = little_endian("00 00 00 09 00 00 00 4a 00 00 00 00")
    stream = chacha20.block(jnp.asarray(key), jnp.array([1], jnp.uint32), jnp.asarray(nonce))
    expected = words_of(
        "e4e7f110 15593bd1 1fdd0f50 c47120a3 c7f4d1c7 0368c033 9aaa2204 4e6cd4c3 "
        "466482d2 09aa9f07 05d7c214 a2028bd9 d19c12b5 b94e16de e883d0cb 4e3c50a2"
    )
    np.testing.assert_array_equal(stream[:, 0], expected)


def test_consecutive_blocks_of_rfc_8439():
    """Appendix A.1, vectors 1 and 2: key and nonce zero, counters 0 and 1, computed side
    by side.
    """
    stream = chacha20.block(
        jnp.zeros(8, jnp.uint32), jnp.arange(2, dtype=jnp.uint32), jnp.zeros(3, jnp.uint32)
    )
    first = "76b8e0ad a0f13d90 405d6ae5 5386bd28 bdd219b8 a08ded1a a836efcc 8b770dc7"
    second = "9f07e7be 5551387a 98ba977c 732d080d cb0f29a0 48e36569 12c6533e 32ee7aed"
    np.testing.assert_array_equal(stream[:8, 0], little_endian(first))
    np.testing.assert_array_equal(stream[:8, 1], little_endian(second))


def cryptography_blocks(secret, first, nonce, count):
    """``count`` consecutive blocks of ChaCha20 by the cryptography package (OpenSSL), uint32[16,
    count].
    """
    initial = first.to_bytes(4, "little") + nonce
    stream = (
        Cipher(algorithms.ChaCha20(secret, initial), mode=None)
        .encryptor()
        .update(bytes(64 * count))
    )
    return np.frombuffer(stream, "<u4").reshape(count, 16).T


WORD = st.integers(0, 2**32 - 1)


@examples(200)
@given(
    secret=st.binary(min_size=32, max_size=32),
    counter=WORD,
    nonce=st.binary(min_size=12, max_size=12),
)
def test_blocks_are_those_of_the_cryptography_package(secret, counter, nonce):
    """For any key, nonce and counter, the last one 2^32 - 1."""
    key, words = (
        jnp.asarray(np.frombuffer(data, "<u4").astype(np.uint32)) for data in (secret, nonce)
    )
    ours = jitted_block(key, jnp.array([counter], jnp.uint32), words)
    np.testing.assert_array_equal(ours, cryptography_blocks(secret, counter, nonce, 1))


jitted_block = jax.jit(chacha20.block)
jitted_normal = jax.jit(normal, static_argnums=1)


@pytest.mark.parametrize("count", some_of([1, 255, 256, 257, 700, 5000], 3))
def test_long_keystreams_are_those_of_the_cryptography_package(count):
    """Computed in tiles, the last of which overlaps the one before: no block is left out, moved or
    repeated.
    """
    secret, nonce = bytes(range(100, 132)), b"bits" + (32).to_bytes(4, "little") + bytes(4)
    words = jax.random.bits(key_from_bytes(secret), (16 * count,), jnp.uint32)
    np.testing.assert_array_equal(
        words.reshape(16, count), cryptography_blocks(secret, 0, nonce, count)
    )


def test_keys_and_numbers_of_a_batch_get_the_keystream_of_the_cryptography_package():
    """Batches go through the same tiles with a key and a nonce for each block."""
    secrets = [bytes([first, *range(31)]) for first in range(3)]
    keys = jax.random.wrap_key_data(
        jnp.stack([jax.random.key_data(key_from_bytes(secret)) for secret in secrets]),
        impl=CHACHA20,
    )
    numbers = jnp.arange(200, 204, dtype=jnp.uint32)
    each = jax.vmap(
        jax.vmap(lambda key, number: chacha20.stream(key, number, 16 * 70, lane=1), (None, 0)),
        (0, None),
    )
    words = np.asarray(jax.jit(each)(keys, numbers)).reshape(3, 4, 16, 70)
    for secret, rows in zip(secrets, words, strict=True):
        for number, row in zip(numbers.tolist(), rows, strict=True):
            nonce = b"strm" + number.to_bytes(4, "little") + (1).to_bytes(4, "little")
            np.testing.assert_array_equal(row, cryptography_blocks(secret, 0, nonce, 70))


def test_keystream_is_the_blocks_of_consecutive_counters():
    key = jax.random.key_data(key_from_seed(0))
    nonce = jnp.array([chacha20._BITS, 32, 0], jnp.uint32)
    blocks = chacha20.block(key, jnp.arange(4, dtype=jnp.uint32), nonce)
    words = jax.random.bits(key_from_seed(0), (64,), jnp.uint32)
    np.testing.assert_array_equal(np.sort(words), np.sort(blocks, axis=None))


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="tiles are for CPUs")
def test_a_tile_compiles_to_one_kernel():
    """Without it the keystream takes twice as long: XLA would cut each double round into fifty
    small kernels.
    """
    compiled = (
        jax.jit(lambda key: jax.random.bits(key, (16 * 700,), jnp.uint32))
        .lower(key_from_seed(0))
        .compile()
    )
    assert 'xla_cpu_small_call="true"' in compiled.as_text()


def test_a_large_batch_of_keys_is_cut_into_tiles_as_well():
    """A whole batch as one tile would be too large for one kernel."""
    keys = jax.random.split(key_from_seed(12), 300)
    batch = jax.jit(jax.vmap(lambda key: jax.random.bits(key, (1600,), jnp.uint32)))(keys)
    for number in (0, 150, 299):
        np.testing.assert_array_equal(
            batch[number], jax.random.bits(keys[number], (1600,), jnp.uint32)
        )


def test_long_keystreams_repeat_no_word_more_than_chance_allows():
    """Among n = 2^17 words chance alone repeats n^2 / 2^33 = 2."""
    words = np.asarray(jax.random.bits(key_from_seed(1), (2**17,), jnp.uint32))
    assert len(words) - len(np.unique(words)) < 20


def test_bits_split_and_fold_in_share_no_block():
    """Streams of one key with the same nonce would share words; 320 unrelated words hold two alike
    for one key in 80 000.
    """
    key = key_from_seed(2)
    streams = {
        "bits 32": jax.random.bits(key, (64,), jnp.uint32),
        "bits 16": np.asarray(jax.random.bits(key, (128,), jnp.uint16)).view(np.uint32),
        "bits 8": np.asarray(jax.random.bits(key, (256,), jnp.uint8)).view(np.uint32),
        "split": jax.random.key_data(jax.random.split(key, 8)).reshape(-1),
        "own key": jax.random.key_data(key),
    }
    for number in (0, 1, 8, 16, 32, 64, 2**32 - 1):
        streams[f"fold_in {number}"] = jax.random.key_data(jax.random.fold_in(key, number))
    for (one, first), (other, second) in itertools.combinations(streams.items(), 2):
        assert not np.intersect1d(first, second).size, f"{one} and {other} share keystream"


@pytest.mark.parametrize("dtype", [jnp.uint8, jnp.uint16, jnp.uint32])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 7)])
def test_bits_have_the_shape_and_type_asked_for(dtype, shape):
    bits = jax.eval_shape(lambda: jax.random.bits(key_from_seed(3), shape, dtype))
    assert bits.shape == shape
    assert bits.dtype == dtype


@pytest.mark.parametrize("dtype", some_of([jnp.uint8, jnp.uint16, jnp.uint32], 3))
def test_each_bit_is_set_half_of_the_time(dtype):
    """Chi-square over the positions of a word; false alarms one in a million seeds for
    each type.
    """
    draws = 20_000
    values = np.asarray(jax.random.bits(key_from_seed(4), (draws,), dtype))
    width = values.dtype.itemsize * 8
    counts = np.array([np.sum((values >> place) & 1) for place in range(width)])
    statistic = np.sum((counts - draws / 2) ** 2) / (draws / 4)
    assert 5e-7 < stats.chi2.sf(statistic, width) < 1 - 5e-7


def draw_everything(key):
    return (
        jax.random.key_data(jax.random.split(key, 3)),
        jax.random.key_data(jax.random.fold_in(key, 7)),
        jax.random.bits(key, (5,), jnp.uint32),
        jax.random.uniform(key, (4,)),
    )


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.thorough
def test_jit_gives_the_draws_of_eager_mode():
    key = key_from_seed(5)
    with jax.disable_jit():
        eager = draw_everything(key)
    assert_same(jax.jit(draw_everything)(key), eager)


def test_vmap_and_scan_give_the_draws_of_single_keys():
    keys = jax.random.split(key_from_seed(6), 4)
    draw = jax.jit(draw_everything)
    single = jax.tree.map(lambda *draws: np.stack(draws), *map(draw, keys))
    assert_same(jax.jit(jax.vmap(draw_everything))(keys), single)
    _, scanned = lax.scan(lambda carry, key: (carry, draw_everything(key)), 0, keys)
    assert_same(scanned, single)


def test_seeds_reproduce_and_differ():
    data = [np.asarray(jax.random.key_data(key_from_seed(seed))) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(data[0], data[1])
    assert not np.intersect1d(data[0], data[2]).size


def test_new_keys_differ_in_every_word():
    """Fails once in 67 million runs."""
    first, second = (np.asarray(jax.random.key_data(new_key())) for _ in range(2))
    assert first.shape == (8,)
    assert np.all(first != second)


def test_key_takes_exactly_32_bytes_and_the_error_hides_them():
    np.testing.assert_array_equal(
        jax.random.key_data(key_from_bytes(bytes(range(32))))[0], 0x03020100
    )
    with pytest.raises(ValueError, match="takes 32 bytes, not 31") as caught:
        key_from_bytes(b"s" * 31)
    assert "ss" not in str(caught.value)


@pytest.mark.parametrize("seed", [0, 2**31])
def test_integer_seeds_of_jax_are_refused(seed):
    with pytest.raises(TypeError, match="new_key"):
        jax.random.key(seed, impl=CHACHA20)


@pytest.mark.parametrize("split", [False, True])
def test_keys_of_this_module_are_secure(split):
    key = key_from_seed(1)
    require_secure(jax.random.split(key)[0] if split else key)
    jax.jit(lambda key: require_secure(key))(key)


@pytest.mark.parametrize("kind", ["threefry", "raw words", "fast key", "none"])
def test_other_keys_are_refused_where_privacy_depends_on_them(kind):
    key = {
        "threefry": jax.random.key(0),
        "raw words": jax.random.key_data(key_from_seed(0)),
        "fast key": fast_key(key_from_seed(0)),
        "none": None,
    }[kind]
    with pytest.raises(TypeError, match="new_key"):
        require_secure(key)


def test_fast_key_is_threefry_and_follows_its_secure_key():
    keys = [fast_key(key_from_seed(seed)) for seed in (0, 0, 1)]
    draws = [np.asarray(jax.random.normal(key, (3,))) for key in keys]
    assert jax.random.key_impl(keys[0]) == "threefry2x32"
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.all(draws[0] != draws[2])


def test_quantile_agrees_with_scipy_down_to_the_last_tail():
    exponents = np.linspace(-65, -1.0001, 20_001)
    p = np.exp2(exponents).astype(np.float32)
    ours = np.asarray(normals.upper_tail_quantile(jnp.asarray(p)), np.float64)
    exact = stats.norm.isf(p.astype(np.float64))
    # near the median the quantile is a difference of nearly equal float32 numbers
    relative = np.abs(ours - exact) / np.maximum(exact, 0.1)
    assert relative.max() < 1e-6


def test_quantile_falls_as_the_tail_shrinks():
    p = jnp.exp2(jnp.linspace(-65, -1, 2001))
    assert np.all(np.diff(normals.upper_tail_quantile(p)) < 0)


CONSTANT_BITS = define_prng_impl(
    key_shape=(1,),
    seed=lambda seed: jnp.zeros(1, jnp.uint32),
    split=lambda key, shape: jnp.broadcast_to(key, (*shape, 1)),
    random_bits=lambda key, width, shape: jnp.broadcast_to(key[0], shape),
    fold_in=lambda key, number: key,
    name="constant_bits",
)


def constant_bits_key(word):
    """A key of a generator that returns nothing but ``word``: shows where a transform of
    bits ends.
    """
    return jax.random.wrap_key_data(jnp.asarray(word, jnp.uint32).reshape(1), impl=CONSTANT_BITS)


def farthest(draw):
    return max(
        abs(float(draw(constant_bits_key(word), ()))) for word in (0, 1, 2**32 - 2, 2**32 - 1)
    )


def test_noise_reaches_nine_standard_deviations():
    assert farthest(normal) == pytest.approx(NORMAL_BOUND, abs=0.01)


def test_jax_random_normal_ends_before_five_and_a_half():
    """Why the noise is not ``jax.random.normal``: it would fail the test above."""
    assert 5.2 < farthest(partial(jax.random.normal, dtype=jnp.float32)) < 5.5


def test_lowest_bit_is_the_sign():
    below, above = (float(normal(constant_bits_key(word), ())) for word in (2, 3))
    assert below == pytest.approx(-above, rel=1e-6)
    assert above > 0


PAIRS = (200_000, 2)  # one program for both tests


def test_normal_draws_are_standard_normal():
    """Kolmogorov-Smirnov and four moments of 400 000 draws; together, false alarms in five of a
    million seeds.
    """
    draws = np.asarray(jitted_normal(key_from_seed(8), PAIRS), np.float64).ravel()
    assert stats.kstest(draws, "norm").pvalue > 1e-6
    variances = {1: 1, 2: 2, 3: 15, 4: 96}  # of x, x^2, x^3, x^4
    expected = {1: 0, 2: 1, 3: 0, 4: 3}
    bound = stats.norm.isf(5e-7)
    for power, mean in expected.items():
        z = (np.mean(draws**power) - mean) / np.sqrt(variances[power] / len(draws))
        assert abs(z) < bound, f"moment {power} is {z:.1f} standard errors off"


def test_normal_draws_of_neighbouring_coordinates_are_uncorrelated():
    """False alarms one in a million seeds."""
    draws = np.asarray(jitted_normal(key_from_seed(9), PAIRS), np.float64)
    assert abs(np.mean(draws[:, 0] * draws[:, 1])) * np.sqrt(len(draws)) < stats.norm.isf(5e-7)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
def test_normal_has_the_shape_asked_for(shape):
    draws = jax.eval_shape(lambda: normal(key_from_seed(10), shape))
    assert draws.shape == shape
    assert draws.dtype == jnp.float32


@pytest.mark.thorough
def test_jitted_normal_agrees_with_eager():
    key = key_from_seed(11)
    np.testing.assert_allclose(jitted_normal(key, (100,)), normal(key, (100,)), rtol=1e-5)


# --- tails ----------------------------------------------------------------------------------------

FAR = (4, 5, 6, 7, 8, 9)


def share_beyond(draw, num_words, far):
    """The share of equally likely words whose draw is above ``far``; ``draw(word)`` falls as
    ``word`` grows.
    """
    low, high = 0, num_words
    while low < high:
        middle = (low + high) // 2
        if draw(middle) > far:
            low = middle + 1
        else:
            high = middle
    return low / num_words


def is_right(share, far):
    """Whether ``share`` is P(Z > far) to 1e-4, or as near as 2^64 words can come."""
    exact = stats.norm.sf(far)
    return abs(share - exact) <= 1e-4 * exact + 2.0**-65


jitted_normal_from = jax.jit(normals.normal_from)


def noise_by_rank(rank):
    """The ``rank``-th largest draw of our noise: a sign and 63 bits."""
    positive = rank < 2**63
    bits = rank if positive else 2**64 - 1 - rank
    return float(
        jitted_normal_from(np.uint32((bits >> 32) << 1 | positive), np.uint32(bits & (2**32 - 1)))
    )


@jax.jit
def jax_normal_of_word(word):
    return jax.random.normal(constant_bits_key(word), ())


def jax_normal_by_rank(rank):
    """The ``rank``-th largest draw of ``jax.random.normal``: one word, of which it looks at 23
    bits.
    """
    return float(jax_normal_of_word(np.uint32(2**32 - 1 - rank)))


@pytest.mark.parametrize("far", FAR)
def test_tails_have_their_share_of_all_words(far):
    """At t = 9 that is two of 2^64."""
    assert is_right(share_beyond(noise_by_rank, 2**64, far), far)
    assert is_right(share_beyond(lambda rank: -noise_by_rank(2**64 - 1 - rank), 2**64, far), far)


@pytest.mark.parametrize("far", FAR)
def test_tails_of_jax_random_normal_have_not(far):
    share = share_beyond(jax_normal_by_rank, 2**32, far)
    assert not is_right(share, far)
    assert far < 6 or share == 0


def test_draws_fall_as_their_words_grow():
    """All 2^64 words in order, looked at on a grid: the bisection above misses no draw beyond.
    Rounding is allowed for.
    """
    ranks = sorted({round(2**exponent) for exponent in np.linspace(0, 63, 4000)})
    draws = np.array([noise_by_rank(rank) for rank in ranks])
    assert np.all(np.diff(draws) <= 1e-6 * np.maximum(draws[:-1], 0.1))
    exact = stats.norm.isf((np.array(ranks, float) + 0.5) / 2**64)
    np.testing.assert_allclose(draws, exact, rtol=1e-6, atol=1e-7)


THRESHOLDS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0, 5.25)


def tail_p_values(draw, key, num_draws=2**28):
    """p-values, exact binomial, of the numbers of draws above t and below -t, for each
    threshold t.
    """
    at_once = 2**20

    @jax.jit
    def count(key):
        def more(counts, key):
            draws = draw(key, (at_once,))
            beyond = [
                jnp.sum(side * draws > far, dtype=jnp.int32)
                for side in (1, -1)
                for far in THRESHOLDS
            ]
            return counts + jnp.stack(beyond), None

        start = jnp.zeros(2 * len(THRESHOLDS), jnp.int32)
        return lax.scan(more, start, jax.random.split(key, num_draws // at_once))[0]

    counts = np.asarray(count(key)).tolist()
    return [
        stats.binomtest(seen, num_draws, stats.norm.sf(far)).pvalue
        for seen, far in zip(counts, 2 * THRESHOLDS, strict=True)
    ]


FALSE_ALARMS = 1e-7  # for each of 18 comparisons: together, two seeds in a million


@pytest.mark.statistical
def test_draws_beyond_each_threshold_are_as_many_as_a_normal_has():
    """Up to 5.25, which 20 of 2^28 draws should pass on each side."""
    assert min(tail_p_values(normal, key_from_seed(40))) > FALSE_ALARMS


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [0.997, 1.003])
def test_a_scale_three_in_a_thousand_off_would_be_seen(scale):
    p_values = tail_p_values(
        lambda key, shape: scale * normal(key, shape), key_from_seed(40), 2**26
    )
    assert min(p_values) < FALSE_ALARMS


@pytest.mark.statistical
def test_draws_of_jax_random_normal_are_not_as_many():
    """None of 2^28 draws lies above 5.25."""
    p_values = tail_p_values(partial(jax.random.normal, dtype=jnp.float32), jax.random.key(40))
    assert p_values[THRESHOLDS.index(5.25)] < FALSE_ALARMS


# --- many draws at once: low bits only where they matter ------------------------------------------


def tail_p_value(draws, start=3.5):
    """That the draws beyond ``start`` are as a normal's: (p-value of Kolmogorov and Smirnov, how
    many there are).
    """
    beyond = np.abs(draws[np.abs(draws) > start])
    return stats.kstest(stats.norm.sf(beyond) / stats.norm.sf(start), "uniform").pvalue, len(beyond)


@pytest.mark.parametrize("all_in_tail", some_of([False, True], 2, first=1))
@pytest.mark.thorough
def test_many_draws_are_standard_normal_out_to_the_tail(monkeypatch, all_in_tail):
    """Eight million draws, 3700 of them beyond 3.5; once with low bits drawn for all of them. False
    alarms: one seed in 1e6.

    A scale of 1.01 would show in the tail (and 2/3 or 3/2 anywhere).
    """
    if all_in_tail:
        monkeypatch.setattr(normals, "_TAIL_BELOW", np.uint32(2**31))
    draws = np.asarray(jitted_normal(key_from_seed(20), (2**23,)), np.float64)
    assert stats.kstest(draws[: 2**18], "norm").pvalue > 1e-6
    p_value, count = tail_p_value(draws)
    assert p_value > 1e-6
    assert abs(count - 2**23 * 2 * stats.norm.sf(3.5)) < 5 * math.sqrt(count)
    assert tail_p_value(1.03 * draws)[0] < 1e-6 or abs(
        tail_p_value(1.03 * draws)[1] - count
    ) > 5 * math.sqrt(count)


def chunk_of(high, shared):
    """A chunk of draws whose high words and shared low words are given, float32[groups, 8]."""
    words = jnp.concatenate([jnp.asarray(high).reshape(-1), jnp.asarray(shared)])
    return np.asarray(chunk_of_words(words)).reshape(-1, 8)


@jax.jit
def chunk_of_words(words):
    bits = jax.random.bits
    with mock.patch.object(
        jax.random, "bits", lambda key, shape, *_: words if len(shape) == 1 else bits(key, shape)
    ):
        return normals._normal_chunk(key_from_seed(22))


def test_two_draws_in_the_tail_take_low_bits_of_their_own():
    """Their high words are the same, so with a shared low word they would be equal."""
    high = np.full((normals._CHUNK // 8, 8), 2**31, np.uint32)
    high[5, 2:4] = 7 << 1
    draws = chunk_of(high, np.zeros(normals._CHUNK // 8, np.uint32))
    assert draws[5, 2] != draws[5, 3]
    shallow, deep = stats.norm.isf(np.array([8, 7]) / 2**32)
    assert np.all((-deep * 1.00001 < draws[5, 2:4]) & (draws[5, 2:4] < -shallow * 0.99999))


def test_a_draw_in_the_tail_takes_the_shared_low_bits():
    """The chunk's words put one draw of each group in the tail; other low bits move it and no
    other.
    """
    high = np.full((normals._CHUNK // 8, 8), 2**31, np.uint32)
    high[:, 3] = 7 << 1
    shared = np.arange(normals._CHUNK // 8, dtype=np.uint32) * np.uint32(2**20)

    moved = chunk_of(high, shared) != chunk_of(high, shared ^ np.uint32(2**31))
    assert np.all(moved[:, 3])
    assert not np.any(np.delete(moved, 3, axis=1))
    expected = -stats.norm.isf((7 + (shared + 0.5) / 2**32) / 2**32)
    np.testing.assert_allclose(chunk_of(high, shared)[:, 3], expected, rtol=2e-6)


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_is_the_keystream_under_its_own_nonce():
    key = key_from_seed(30)
    nonce = jnp.array([int.from_bytes(b"strm", "little"), 5, 2], jnp.uint32)
    blocks = np.asarray(
        chacha20.block(jax.random.key_data(key), jnp.arange(3, dtype=jnp.uint32), nonce)
    )
    np.testing.assert_array_equal(chacha20.stream(key, 5, 40, lane=2), blocks.reshape(-1)[:40])


@pytest.mark.thorough
def test_many_streams_at_once_are_the_streams_one_by_one():
    key, numbers = key_from_seed(31), jnp.arange(4, dtype=jnp.uint32)
    one_by_one = [chacha20.stream(key, number, 50) for number in range(4)]
    at_once = jax.jit(jax.vmap(lambda number: chacha20.stream(key, number, 50)))(numbers)
    np.testing.assert_array_equal(at_once, one_by_one)
    nested = jax.vmap(jax.vmap(lambda number: chacha20.stream(key, number, 50)))(
        numbers.reshape(2, 2)
    )
    np.testing.assert_array_equal(nested.reshape(4, 50), one_by_one)
    keys = jax.random.split(key, 3)
    by_key = jax.vmap(lambda key: chacha20.stream(key, 1, 50))(keys)
    np.testing.assert_array_equal(by_key, [chacha20.stream(own, 1, 50) for own in keys])
    assert len({tuple(np.asarray(row)) for row in at_once}) == 4


def test_lanes_numbers_bits_and_folds_never_share_a_block():
    key = key_from_seed(32)
    rows = [chacha20.stream(key, number, 8, lane) for number in (0, 1, 32) for lane in (0, 1)]
    rows += [
        jax.random.bits(key, (8,), jnp.uint32),
        *(jax.random.key_data(jax.random.fold_in(key, n)) for n in (0, 1)),
    ]
    rows += list(jax.random.key_data(jax.random.split(key)))
    assert len({tuple(np.asarray(row).tolist()) for row in rows}) == len(rows)


def test_streams_of_no_words_are_empty_under_vmap_too():
    empty = jax.vmap(lambda number: chacha20.stream(key_from_seed(1), number, 0))(jnp.arange(3))
    assert empty.shape == (3, 0)


def test_streams_need_a_secure_key():
    with pytest.raises(TypeError, match="new_key"):
        chacha20.stream(jax.random.key(0), 0, 4)


def test_only_keys_of_the_operating_system_are_secret():
    key = chacha20.new_key()
    assert chacha20.is_secret(key)
    assert not chacha20.is_secret(key_from_seed(1))
    assert not chacha20.is_secret(jax.random.fold_in(key, 1))
