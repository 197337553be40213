"""What every sampler must be and do (workbench.sampling.minibatch)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from tests.conftest import quick_jit, some_of
from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_seed, stream
from workbench.sampling import (
    FeistelSampler,
    PoissonSampler,
    Sampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)
from workbench.sampling.random_allocation import RandomAllocationSampler

FIXED_SIZE = [WithoutReplacementSampler, ShuffleSampler, FeistelSampler]
SAMPLERS = [
    PoissonSampler(40, 0.2, 40),
    WithoutReplacementSampler(40, 30),
    WithoutReplacementSampler(5000, 7),
    ShuffleSampler(40, 7),
    FeistelSampler(40, 7),
    RandomAllocationSampler(40, 6, 40),
]


def step_of(sampler, key, number):
    """The draw of a step as training makes it."""
    return sampler.draw_from(stream(key, number, sampler.words), key, number)


jitted_step = quick_jit(step_of, static_argnums=0)


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)
    assert jax.tree.map(lambda leaf: leaf.dtype, left) == jax.tree.map(
        lambda leaf: leaf.dtype, right
    )


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_samplers_are_values_that_have_every_property(sampler):
    for name, member in vars(Sampler).items():
        if isinstance(member, property):
            getattr(sampler, name)
    assert 0 < sampler.sampling_rate <= 1
    assert 1 <= sampler.usual_size() <= sampler.capacity
    assert 0 <= sampler.total_variation <= 1
    assert len({sampler, type(sampler)(**vars(sampler))}) == 1


@pytest.mark.thorough
@pytest.mark.parametrize(  # for Poisson minibatches see test_poisson.py
    "sampler",
    [
        pytest.param(each, marks=pytest.mark.thorough if place % 2 else ())
        for place, each in enumerate(SAMPLERS[1:])
    ],
    ids=str,
)
def test_jit_vmap_and_scan_draw_what_eager_steps_draw(sampler):
    keys, numbers = (
        jnp.stack([key_from_seed(20), key_from_seed(21)]),
        jnp.arange(3, dtype=jnp.int32),
    )
    one = functools.partial(step_of, sampler)
    mapped = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))(keys, numbers)
    _, scanned = jax.jit(
        lambda key: lax.scan(lambda carry, number: (carry, one(key, number)), 0, numbers)
    )(keys[1])
    assert_same(scanned, jax.tree.map(lambda leaf: leaf[1], mapped))
    for number in range(3):
        assert_same(
            jitted_step(sampler, keys[0], number),
            jax.tree.map(lambda leaf, number=number: leaf[0, number], mapped),
        )
    first = sampler.draw(keys[0])
    assert_same(first, jax.tree.map(lambda leaf: leaf[0, 0], mapped))
    assert first.indices.dtype == jnp.int32
    assert first.indices.shape == first.mask.shape == (sampler.capacity,)


@pytest.mark.parametrize("sampler", some_of(list(SAMPLERS), 3), ids=str)
def test_keys_and_steps_change_the_minibatch_and_64_bit_mode_does_not(sampler):
    drawn = {
        tuple(np.asarray(jitted_step(sampler, key_from_seed(seed), n).indices))
        for seed in (22, 23)
        for n in (0, 1)
    }
    assert len(drawn) == 4
    with jax.enable_x64(True):
        wide = jitted_step(sampler, key_from_seed(23), 1)
    assert_same(wide, jitted_step(sampler, key_from_seed(23), 1))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_insecure_keys_are_refused(sampler):
    with pytest.raises(TypeError, match="new_key"):
        sampler.draw(jax.random.key(0))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("surplus", [-1, 1])
def test_a_wrong_number_of_words_is_refused(sampler, surplus):
    count = abs(sampler.words + surplus)
    with pytest.raises(ArgumentError, match=r"^words="):
        sampler.draw_from(jnp.zeros(count, jnp.uint32), key_from_seed(24), jnp.uint32(0))


@pytest.mark.parametrize("sampler", FIXED_SIZE)
@pytest.mark.parametrize(
    ("argument", "num_records", "batch_size"),
    [
        ("num_records", 0, 1),
        ("num_records", 2**30, 1),
        ("num_records", 10.5, 1),
        ("batch_size", 10, 0),
        ("batch_size", 10, 11),
        ("batch_size", 10, 2.5),
    ],
)
def test_unusable_sizes_are_named(sampler, argument, num_records, batch_size):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        sampler(num_records, batch_size)


@pytest.mark.parametrize("sampler", FIXED_SIZE)
def test_a_minibatch_larger_than_the_records_is_refused_with_both_numbers(sampler):
    with pytest.raises(ArgumentError, match=r"^batch_size=700: must be .* at most 569\.$"):
        sampler(569, 700)


@pytest.mark.parametrize("sampler", FIXED_SIZE)
def test_whole_numbers_given_as_floats_are_whole_numbers(sampler):
    assert sampler(50.0, 5.0) == sampler(50, 5)
    assert isinstance(sampler(50.0, 5.0).num_records, int)
    assert isinstance(sampler(50.0, 5.0).batch_size, int)


def assert_distinct(sampler, seed, number):
    """A minibatch of random words has its size and holds distinct records."""
    words = np.random.default_rng(seed).integers(0, 2**32, sampler.words, np.uint32)
    batch = quick_jit(sampler.draw_from)(jnp.asarray(words), key_from_seed(26), number)
    indices = np.asarray(batch.indices)
    assert np.all(batch.mask)
    assert len(np.unique(indices)) == len(indices) == sampler.batch_size
    assert np.all((indices >= 0) & (indices < sampler.num_records))


@pytest.mark.parametrize("sampler", some_of(FIXED_SIZE, 3))
@settings(max_examples=5, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_minibatch_holds_distinct_records(sampler, data):
    num_records = data.draw(st.integers(1, 300))
    chosen = sampler(num_records, data.draw(st.integers(1, num_records)))
    assert_distinct(chosen, data.draw(st.integers(0, 99)), data.draw(st.integers(0, 2**31 - 1)))


@pytest.mark.parametrize("sampler", FIXED_SIZE)
@pytest.mark.parametrize(
    ("num_records", "batch_size"), some_of([(1, 1), (65, 33), (64, 64), (2**30 - 1, 999)], 2)
)
def test_edges_of_the_sizes(sampler, num_records, batch_size):
    assert_distinct(sampler(num_records, batch_size), 0, 1)


@pytest.mark.parametrize("rate", some_of([1.0, 0.5, 1 / 64]))
def test_a_vacant_sampler_draws_nothing(rate):
    poisson = PoissonSampler(1, rate, 8, declared=8, is_vacant=True)
    allocated = RandomAllocationSampler(1, round(1 / rate), 8, declared=8, is_vacant=True)
    key, steps = key_from_seed(0), jnp.arange(40, dtype=jnp.uint32)
    for sampler in (poisson, allocated):

        def drawn(number, sampler=sampler):
            minibatch = sampler.draw_from(stream(key, number, sampler.words), key, number)
            return minibatch.mask, minibatch.members(1)

        assert not any(found.any() for found in quick_jit(jax.vmap(drawn))(steps))

    @quick_jit
    def in_epoch(steps):
        prepared = allocated.prepare(key, jnp.uint32(0))
        return jax.vmap(lambda step: allocated.draw_prepared(prepared, step).mask)(steps)

    assert not in_epoch(steps).any()
