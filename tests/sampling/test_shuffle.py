import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import some_of
from tests.sampling.uniformity import (
    DRAWS,
    SETTINGS,
    even_inclusion,
    even_outcomes,
    even_pairs,
    memberships,
    minibatches,
    subset_codes,
    tally,
)
from workbench.noise.chacha20 import key_from_seed
from workbench.sampling import ShuffleSampler, shuffle
from workbench.sampling._integers import mixed, modulo


def one_step_of_each_epoch(sampler, draws):
    """Numbers of steps: first, second, ... of their epochs in turn. Steps of one epoch are
    disjoint, not independent.
    """
    epochs = np.arange(draws, dtype=np.uint32)
    return epochs * np.uint32(sampler.steps_per_epoch) + epochs % np.uint32(sampler.steps_per_epoch)


def orders(sampler, key, epochs):
    """int[epochs, steps per epoch * b]: the records of the first epochs in their order."""
    numbers = jnp.arange(epochs * sampler.steps_per_epoch, dtype=jnp.uint32)
    return np.asarray(minibatches(sampler, key, numbers).indices).reshape(epochs, -1)


@pytest.mark.parametrize(("num_records", "batch_size"), some_of(SETTINGS, 3))
def test_records_and_pairs_of_a_step_are_drawn_evenly(num_records, batch_size):
    sampler = ShuffleSampler(num_records, batch_size)
    counted = tally(memberships(sampler, key_from_seed(0), one_step_of_each_epoch(sampler, DRAWS)))
    assert np.all(counted.sizes == batch_size)
    assert even_inclusion(counted)
    assert even_pairs(counted)


@pytest.mark.parametrize(
    ("batch_size", "draws"),
    [pytest.param(2, 10 * DRAWS, marks=pytest.mark.statistical), (7, DRAWS)],
)
def test_every_subset_is_equally_likely_in_a_step(batch_size, draws):
    sampler = ShuffleSampler(10, batch_size)
    codes = subset_codes(
        memberships(sampler, key_from_seed(1), one_step_of_each_epoch(sampler, draws))
    )
    assert even_outcomes(codes, math.comb(10, batch_size))


def test_every_order_of_five_records_is_equally_likely_whatever_the_epoch_before():
    """All 5! orders, and all 25 pairs of the first records of two epochs in a row, equal ones
    included.
    """
    drawn = orders(ShuffleSampler(5, 5), key_from_seed(2), DRAWS)
    assert even_outcomes(drawn @ 5 ** np.arange(5), math.factorial(5))
    assert even_outcomes(drawn[::2, 0] * 5 + drawn[1::2, 0], 25)


@pytest.mark.parametrize("num_records", some_of([1, 2, 3, 4, 5, 10, 64, 1023], 2))
def test_an_order_is_a_permutation(num_records):
    """Whatever its words and however few rounds."""
    words = np.random.default_rng(0).integers(0, 2**32, (50, 3, 7), np.uint32)
    words[0], words[1] = 0, 2**32 - 1
    places = jnp.arange(num_records, dtype=jnp.uint32)
    drawn = jax.vmap(lambda words: shuffle._at(places, words, num_records))(jnp.asarray(words))
    np.testing.assert_array_equal(np.sort(drawn, axis=1), np.tile(np.arange(num_records), (50, 1)))


@pytest.mark.parametrize(("num_records", "batch_size"), some_of([(14, 4), (30, 1)], 2))
def test_an_epoch_takes_every_record_once_but_those_left_out(num_records, batch_size):
    sampler, key = ShuffleSampler(num_records, batch_size), key_from_seed(6)
    assert sampler.steps_per_epoch == num_records // batch_size
    assert sampler.left_out == num_records % batch_size
    drawn = orders(sampler, key, 8)
    # the order of an epoch does not depend on how it is cut
    np.testing.assert_array_equal(
        drawn, orders(ShuffleSampler(num_records, num_records), key, 8)[:, : drawn.shape[1]]
    )
    missing = {tuple(set(range(num_records)) - set(order)) for order in drawn.tolist()}
    assert {len(left_out) for left_out in missing} == {sampler.left_out}
    assert len({tuple(order) for order in drawn.tolist()}) == 8
    assert len(missing) > 1 or sampler.left_out == 0, (
        "the same records were left out of eight epochs"
    )


def test_late_steps_are_counted_without_a_sign():
    sampler, key = ShuffleSampler(6, 3), key_from_seed(7)
    draw = jax.jit(lambda number: sampler.draw_from(jnp.zeros(0, jnp.uint32), key, number).indices)
    last = np.concatenate([draw(2**31 - 2), draw(2**31 - 1)])
    np.testing.assert_array_equal(np.sort(last), np.arange(6))


def pair_law(num_records, rounds):
    """P(records at places 0 and 1 after so many rounds), from the Markov chain of the pair with
    uniform sums and bits.
    """
    states = list(itertools.permutations(range(num_records), 2))
    place = {state: number for number, state in enumerate(states)}
    step = np.zeros((len(states), len(states)))
    for (a, b), total, bits in itertools.product(
        states, range(num_records), itertools.product((0, 1), repeat=2)
    ):
        partners = (total - a) % num_records, (total - b) % num_records
        bit_of_b = bits[0] if partners[0] == b else bits[1]
        after = (partners[0] if bits[0] else a, partners[1] if bit_of_b else b)
        step[place[a, b], place[after]] += 1 / num_records / 4
    return np.linalg.matrix_power(step, rounds)[place[0, 1]]


@pytest.mark.parametrize("num_records", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("rounds", [1, 4, 12, 40])
def test_pairs_of_places_are_as_close_to_uniform_as_the_paper_says(num_records, rounds):
    law = pair_law(num_records, rounds)
    assert (
        np.abs(law - 1 / len(law)).sum() / 2 <= shuffle._pair_distance(num_records, rounds) + 1e-12
    )


@pytest.mark.parametrize("num_records", [1, 2, 3, 10, 500, 60_000, 2**30 - 1])
def test_rounds_keep_pairs_within_a_billionth_and_stay_few(num_records):
    rounds = shuffle._rounds(num_records)
    assert shuffle._pair_distance(num_records, rounds) <= 1e-9
    assert rounds <= 101


@pytest.mark.thorough
def test_pairs_of_places_are_even_but_not_after_too_few_rounds():
    """All 90 ordered pairs of ten records; six rounds are 4 % off (``pair_law``), so the statistic
    can fail.
    """
    words = np.random.default_rng(1).integers(0, 2**32, (DRAWS, 3, shuffle._rounds(10)), np.uint32)
    pair = jax.vmap(lambda words: shuffle._at(jnp.arange(2, dtype=jnp.uint32), words, 10))
    assert even_outcomes(np.asarray(pair(jnp.asarray(words))) @ [10, 1], 90)
    assert not even_outcomes(np.asarray(pair(jnp.asarray(words[:, :, :6]))) @ [10, 1], 90)


@pytest.mark.parametrize("modulus", [1, 2, 3, 10, 1000, 2**16, 60_000, 2**29 + 1, 2**30 - 1])
def test_remainders_of_64_bits_are_exact(modulus):
    random = np.random.default_rng(0)
    high, low = random.integers(0, 2**32, (2, 1000), np.uint64)
    high[:3], low[:3] = (0, 2**32 - 1, 2**32 - 1), (0, 2**32 - 1, 0)
    words = (jnp.asarray(part.astype(np.uint32)) for part in (high, low))
    np.testing.assert_array_equal(
        modulo(*words, modulus), ((high << np.uint64(32)) | low) % np.uint64(modulus)
    )


def test_bits_of_different_values_and_keys_are_unrelated():
    """High bits of neighbouring values under neighbouring keys: 64 bits for each key, all pairs of
    them, Bonferroni.
    """
    keys = jnp.arange(20_000, dtype=jnp.uint32)
    bits = jax.vmap(lambda key: mixed(jnp.arange(64, dtype=jnp.uint32), key) >> np.uint32(31))(keys)
    signs = np.asarray(bits).astype(np.float64) * 2 - 1
    products = signs.T @ signs / math.sqrt(len(keys))
    # 2016 normal z-values: false alarm 1.2e-6
    assert np.abs(products[np.triu_indices(64, 1)]).max() < 6.2
    assert np.abs(signs.sum(axis=0)).max() / math.sqrt(len(keys)) < 6.2


def test_order_needs_no_words_and_costs_no_delta():
    sampler = ShuffleSampler(500, 50)
    assert sampler.name == "shuffle"
    assert (sampler.words, sampler.total_variation) == (0, 0)
    assert (sampler.capacity, sampler.usual_size(), sampler.sampling_rate) == (50, 50, 0.1)


def test_steps_refuse_an_insecure_key_as_draw_does():
    with pytest.raises(TypeError, match="new_key"):
        ShuffleSampler(10, 2).draw_from(jnp.zeros(0, jnp.uint32), jax.random.key(0), jnp.uint32(0))
