import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.conftest import quick_jit, some_of
from tests.sampling.uniformity import (
    DRAWS,
    FALSE_ALARMS,
    even_inclusion,
    even_outcomes,
    even_pairs,
    memberships,
    tally,
)
from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.sampling import PoissonSampler
from workbench.sampling.random_allocation import RandomAllocationSampler

NO_WORDS = jnp.zeros(0, jnp.uint32)


def one_step_of_each_epoch(sampler, draws):
    """Numbers of steps: first, second, ... of their epochs in turn. Steps of one epoch are not
    independent.
    """
    epochs = np.arange(draws, dtype=np.uint32)
    return epochs * np.uint32(sampler.steps_per_epoch) + epochs % np.uint32(sampler.steps_per_epoch)


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.mark.parametrize(("num_records", "steps"), some_of([(10, 2), (500, 10), (100, 33)], 3))
def test_records_and_pairs_of_a_step_are_drawn_evenly(num_records, steps):
    sampler = RandomAllocationSampler(num_records, steps, num_records)
    counted = tally(memberships(sampler, key_from_seed(0), one_step_of_each_epoch(sampler, DRAWS)))
    assert even_inclusion(counted)
    assert even_pairs(counted)


def test_sizes_are_binomial():
    """False alarms: 1e-6."""
    sampler = RandomAllocationSampler(30, 4, 30)
    sizes = tally(
        memberships(sampler, key_from_seed(1), one_step_of_each_epoch(sampler, DRAWS)), pairs=False
    ).sizes
    expected = DRAWS * stats.binom.pmf(np.arange(31), 30, 1 / 4)
    usual = expected > 10
    observed = np.bincount(sizes, minlength=31)
    observed, expected = (np.append(row[usual], row[~usual].sum()) for row in (observed, expected))
    assert (
        stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), len(expected) - 1)
        > FALSE_ALARMS
    )


@pytest.mark.thorough
def test_every_assignment_of_three_records_is_equally_likely_whatever_the_epoch_before():
    sampler = RandomAllocationSampler(3, 3, 3)
    assigned = np.asarray(
        jax.vmap(lambda epoch: sampler.assignment(key_from_seed(2), epoch))(jnp.arange(DRAWS))
    )
    codes = assigned @ 3 ** np.arange(3)
    assert even_outcomes(codes, 27)
    assert even_outcomes(codes[::2] * 27 + codes[1::2], 27**2)


@pytest.mark.parametrize(
    ("num_records", "steps"), some_of([(1, 5), (40, 7), (1000, 100), (33, 1)], 4, 1)
)
def test_each_record_enters_exactly_one_step_of_an_epoch(num_records, steps):
    sampler = RandomAllocationSampler(num_records, steps, num_records)
    draw = jax.jit(jax.vmap(lambda number: sampler.draw_from(NO_WORDS, key_from_seed(3), number)))
    for epoch in (0, 3):
        found = []
        minibatches = draw(jnp.arange(epoch * steps, (epoch + 1) * steps, dtype=jnp.uint32))
        for row, mask in zip(
            np.asarray(minibatches.indices), np.asarray(minibatches.mask), strict=True
        ):
            indices = row[mask]
            assert np.all(np.diff(indices) > 0)
            found.append(indices)
        assert sorted(np.concatenate(found)) == list(range(num_records))


@pytest.mark.parametrize(
    ("num_records", "steps", "capacity"),
    some_of([(1, 1, 1), (1000, 7, 400), (1000, 7, 100), (1000, 2**21 + 1, 5), (2000, 2**22, 5)], 5),
)
def test_a_prepared_epoch_gives_the_same_minibatches(num_records, steps, capacity):
    """Also where records and steps do not share a word, and where minibatches overflow."""
    sampler, key = RandomAllocationSampler(num_records, steps, capacity), key_from_seed(4)
    epoch = jax.jit(sampler.prepare)(key, jnp.uint32(2))
    occupied = np.asarray(sampler.assignment(key, jnp.uint32(2)))[:3].tolist()
    for step in {0, steps - 1, *occupied}:
        number = jnp.uint32(2 * steps + step)
        assert_same(sampler.draw_prepared(epoch, number), sampler.draw_from(NO_WORDS, key, number))


@pytest.mark.thorough
def test_more_records_than_places_lose_the_last():
    key = key_from_seed(5)
    whole = RandomAllocationSampler(100, 4, 100).draw(key)
    cut = RandomAllocationSampler(100, 4, 10).draw(key)
    assert np.asarray(whole.mask).sum() > 10
    assert np.all(cut.mask)
    np.testing.assert_array_equal(cut.indices, whole.indices[:10])


@pytest.mark.thorough
def test_words_that_favour_some_steps_are_drawn_again():
    """At t = 3 2^29 a fourth of the words is left over. It would make two thirds of the steps
    likelier.

    False alarms: 1e-6.
    """
    records = 200_000
    sampler = RandomAllocationSampler(records, 3 * 2**29, 1)
    key = key_from_seed(6)
    assigned = np.asarray(sampler.assignment(key, jnp.uint32(0)))
    biased = np.asarray(stream(key, 0, records, 3)) % np.uint32(3 * 2**29)
    kept = stats.kstest(assigned / sampler.steps_per_epoch, "uniform").pvalue
    assert kept > 1e-6
    assert stats.kstest(biased / sampler.steps_per_epoch, "uniform").pvalue < 1e-6


@pytest.mark.thorough
def test_draws_are_functions_of_key_and_number_under_jit_and_vmap():
    sampler = RandomAllocationSampler(50, 3 * 2**29, 3)  # a fourth of the words is drawn again
    keys, numbers = jnp.stack([key_from_seed(7), key_from_seed(8)]), jnp.arange(3, dtype=jnp.uint32)
    both = jax.jit(jax.vmap(jax.vmap(sampler.assignment, (None, 0)), (0, None)))(keys, numbers)
    for lane in range(2):
        for epoch in range(3):
            np.testing.assert_array_equal(
                both[lane, epoch], sampler.assignment(keys[lane], numbers[epoch])
            )
    small = RandomAllocationSampler(50, 5, 30)
    prepared = jax.vmap(small.prepare, (0, None))(keys, jnp.uint32(1))
    drawn = jax.vmap(small.draw_prepared, (0, None))(prepared, jnp.uint32(7))
    assert_same(drawn, jax.vmap(small.draw_from, (None, 0, None))(NO_WORDS, keys, jnp.uint32(7)))


def test_an_epoch_takes_words_of_its_own_lane():
    """Lane 0 of stream ``number`` belongs to the step's noise."""
    key, sampler = key_from_seed(9), RandomAllocationSampler(64, 16, 64)
    for epoch in (0, 5):
        np.testing.assert_array_equal(
            sampler.assignment(key, epoch), stream(key, epoch, 64, 3) % np.uint32(16)
        )


def test_usual_sizes_are_those_of_poisson_minibatches():
    for records, steps in ((1000, 10), (50_000, 300)):
        allocation = RandomAllocationSampler(records, steps, records, declared=2 * records)
        poisson = PoissonSampler(records, 1 / steps, records, declared=2 * records)
        assert allocation.usual_size(100) == poisson.usual_size(100)
        assert math.isclose(allocation.sampling_rate, 1 / steps)


def test_places_without_a_record_stay_empty():
    """An epoch is drawn for as many as are declared, so neither its words nor its arrays tell how
    many there are.
    """
    key, no_words = key_from_seed(3), jnp.zeros(0, jnp.uint32)
    whole, fewer = (
        RandomAllocationSampler(64, 4, 40),
        RandomAllocationSampler(40, 4, 40, declared=64),
    )
    prepared, of_whole = (
        quick_jit(each.prepare, static_argnums=2)(key, jnp.uint32(2), 2) for each in (fewer, whole)
    )
    assert prepared.order.shape == of_whole.order.shape
    from_epoch, *draws = (
        quick_jit(draw) for draw in (fewer.draw_prepared, fewer.draw_from, whole.draw_from)
    )
    for step in range(8, 16):
        anew, of_all = (draw(no_words, key, step) for draw in draws)
        drawn = np.asarray(of_all.indices)
        for minibatch in (from_epoch(prepared, step - 8), anew):
            np.testing.assert_array_equal(minibatch.indices, np.where(drawn < 40, drawn, 0))
            np.testing.assert_array_equal(
                minibatch.members(40)[1:], np.isin(np.arange(1, 40), drawn)
            )


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((0, 5, 5), "num_records"),
        ((2**30, 5, 5), "num_records"),
        ((10, 0, 5), "steps_per_epoch"),
        ((10, 2**31 + 1, 5), "steps_per_epoch"),
        ((10, 5, 0), "capacity"),
        ((10, 1, 9), "capacity"),
        ((10, 5, 5, 9), "declared"),
    ],
)
def test_bad_arguments_are_named(arguments, argument):
    with pytest.raises(ArgumentError) as caught:
        RandomAllocationSampler(*arguments)
    assert caught.value.argument == argument


def test_words_and_insecure_keys_are_refused():
    sampler = RandomAllocationSampler(10, 5, 10)
    with pytest.raises(ArgumentError, match="takes exactly 0 words"):
        sampler.draw_from(jnp.zeros(1, jnp.uint32), key_from_seed(0), jnp.uint32(0))
    with pytest.raises(TypeError, match="key"):
        sampler.draw(jax.random.key(0))
