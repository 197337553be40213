import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import some_of
from tests.sampling.uniformity import (
    DRAWS,
    SETTINGS,
    even_inclusion,
    even_outcomes,
    even_pairs,
    memberships,
    subset_codes,
    tally,
)
from workbench.noise.chacha20 import key_from_seed
from workbench.sampling import WithoutReplacementSampler, without_replacement
from workbench.sampling.without_replacement import _words_for

# N = 6 rejects words from 2^32 - 4 on; N = 5000 has more indices than buckets; 5 of 6 draws the one
# that is left out
SMALL = [
    WithoutReplacementSampler(6, 3),
    WithoutReplacementSampler(6, 5),
    WithoutReplacementSampler(5000, 8),
]


@pytest.mark.parametrize(("num_records", "batch_size"), some_of(SETTINGS, 3))
def test_records_and_pairs_are_drawn_evenly(num_records, batch_size):
    sampler = WithoutReplacementSampler(num_records, batch_size)
    counted = tally(memberships(sampler, key_from_seed(0), np.arange(DRAWS)))
    assert np.all(counted.sizes == batch_size)
    assert even_inclusion(counted)
    assert even_pairs(counted)


@pytest.mark.parametrize(
    ("batch_size", "draws"),
    [pytest.param(2, 10 * DRAWS, marks=pytest.mark.statistical), (7, DRAWS)],
)
def test_every_subset_is_equally_likely(batch_size, draws):
    sampler = WithoutReplacementSampler(10, batch_size)
    codes = subset_codes(memberships(sampler, key_from_seed(1), np.arange(draws)))
    assert even_outcomes(codes, math.comb(10, batch_size))


def first_distinct(words, num_records, count):
    """The first ``count`` distinct indices of the words, as the module's text defines them."""
    found = []
    for word in words:
        if word < 2**32 - 2**32 % num_records and word % num_records not in found:
            found.append(word % num_records)
    return found[:count]


def expected(sampler, words):
    """Indices and mask of the minibatch that the words make, in Python."""
    size, total = sampler.batch_size, sampler.num_records
    if size <= total / 2:
        found = first_distinct(words, total, size)
        return found + [0] * (size - len(found)), [True] * len(found) + [False] * (
            size - len(found)
        )
    left_out = first_distinct(words, total, total - size)
    return [index for index in range(total) if index not in left_out][:size], [True] * size


DRAWERS = {sampler: jax.jit(sampler.draw_from) for sampler in SMALL}


@pytest.mark.parametrize("sampler", SMALL, ids=str)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_minibatch_is_the_first_distinct_indices_of_its_words(sampler, data):
    """With words chosen to repeat, to be rejected and to meet in one bucket (multiples of 1024)."""
    word = st.one_of(
        st.integers(0, 9),
        st.integers(0, 4).map(lambda k: 1024 * k),
        st.integers(2**32 - 5, 2**32 - 1),
        st.integers(0, 2**32 - 1),
    )
    words = data.draw(st.lists(word, min_size=sampler.words, max_size=sampler.words))
    batch = DRAWERS[sampler](
        jnp.asarray(np.array(words, np.uint32)), key_from_seed(2), jnp.uint32(0)
    )
    indices, mask = expected(sampler, words)
    assert batch.indices.tolist() == indices
    assert batch.mask.tolist() == mask


@pytest.mark.parametrize("sampler", SMALL, ids=str)
def test_words_that_do_not_suffice_leave_a_short_or_an_uneven_minibatch(sampler):
    """All words the same: one index is drawn, the other places are masked or filled with the first
    of those left.
    """
    words = np.full(sampler.words, 4, np.uint32)
    batch = DRAWERS[sampler](jnp.asarray(words), key_from_seed(3), jnp.uint32(0))
    indices, mask = expected(sampler, words.tolist())
    assert batch.indices.tolist() == indices
    assert batch.mask.tolist() == mask
    assert batch.mask.sum() == (
        1 if sampler.batch_size <= sampler.num_records / 2 else sampler.batch_size
    )


@pytest.mark.parametrize("size", [3, 40, 200])
def test_first_occurrences_are_found_in_few_buckets_too(size, monkeypatch):
    """With two buckets for as many as 200 different indices, most have to try again many times."""
    monkeypatch.setattr(without_replacement, "_buckets", lambda words: 2)
    indices = np.random.default_rng(0).integers(0, size, size).astype(np.uint32)
    first = np.zeros(size, bool)
    first[np.unique(indices, return_index=True)[1]] = True
    np.testing.assert_array_equal(
        without_replacement._first_drawn(jnp.asarray(indices), size), first
    )


@pytest.mark.parametrize("size", [1, 32, 33, 1000])
def test_ranks_count_what_stands_before(size):
    kept = np.random.default_rng(1).random(size) < 0.7
    np.testing.assert_array_equal(jax.jit(without_replacement._ranks)(kept), np.cumsum(kept) - kept)


def exact_failure(num_records, count, words):
    """P(fewer than ``count`` distinct indices among so many words), by adding up in
    whole numbers.
    """
    limit = 2**32 - 2**32 % num_records
    share = limit // num_records  # words for one index
    ways = [1] + [0] * (count - 1)  # ways[i]: sequences of words with i distinct indices so far
    for _ in range(words):
        ways = [
            (2**32 - limit + distinct * share) * ways[distinct]
            + (share * (num_records - distinct + 1) * ways[distinct - 1] if distinct else 0)
            for distinct in range(count)
        ]
    return Fraction(sum(ways), 2 ** (32 * words))


@pytest.mark.parametrize(
    ("num_records", "count"),
    [(10, 1), (10, 2), (10, 5), (100, 10), (500, 50), (60_000, 128), (3 * 2**28, 20)],
)
def test_words_suffice_but_with_probability_below_the_bound(num_records, count):
    """The bound holds, is below 2^-110, and hardly more words are drawn than that takes."""
    words, log_bound = _words_for(num_records, count)
    failure = exact_failure(num_records, count, words)
    assert 0 < failure <= Fraction(math.exp(log_bound))
    assert math.exp(log_bound) <= 2.0**-110
    fewer = words - max(2, math.ceil(0.06 * words))
    assert exact_failure(num_records, count, fewer) > Fraction(2) ** -110


@pytest.mark.parametrize(("num_records", "batch_size"), [(2, 1), (1024, 1), (1024, 1023)])
def test_one_index_of_a_power_of_two_takes_one_word_and_cannot_fail(num_records, batch_size):
    sampler = WithoutReplacementSampler(num_records, batch_size)
    assert sampler.words == 1
    assert sampler.total_variation == 0


@pytest.mark.parametrize(
    ("num_records", "batch_size"),
    [(500, 50), (60_000, 128), (1_000_000, 10_000), (2**30 - 1, 2**29)],
)
def test_few_words_are_needed_and_failure_is_negligible(num_records, batch_size):
    sampler = WithoutReplacementSampler(num_records, batch_size)
    assert sampler.words <= 1.4 * batch_size + 80
    assert 0 < sampler.total_variation <= 2.0**-110


def test_everybody_takes_no_words():
    sampler = WithoutReplacementSampler(7, 7)
    assert sampler.words == 0
    assert sampler.total_variation == 0
    np.testing.assert_array_equal(sampler.draw(key_from_seed(4)).indices, np.arange(7))


def test_size_rate_and_name():
    sampler = WithoutReplacementSampler(500, 50)
    assert sampler.name == "without_replacement"
    assert (sampler.capacity, sampler.usual_size(), sampler.sampling_rate) == (50, 50, 0.1)
