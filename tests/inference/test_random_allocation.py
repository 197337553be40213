"""Runs whose records are allocated to the steps of epochs: what the compiled loop does
with them.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.optim import Adam

from tests import zoo
from tests.conftest import some_of
from workbench.inference import DPVI, compiling, program_cache, run
from workbench.inference.batched import BatchedProgram, stacked, starting_states
from workbench.inference.compiling import chunk_of
from workbench.inference.state import DPVIState, Draws, Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler, RandomAllocationSampler

NUM_RECORDS = 60
RECORDS = zoo.normal_mean_data(NUM_RECORDS)
STEPS = 45


def trainer(sampler):
    return DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(0.05),
        privacy=(sampler, GaussianMechanism(1.0, 1.0)),
    )


def counting(sampler, epochs):
    """A step for ``chunk_of`` that counts how often each record enters each epoch, int32[epochs,
    N], and does no more.
    """

    def draw(key, number, hyper, minibatch=None):
        assert minibatch is not None
        return Draws(minibatch, None, jax.random.fold_in(jax.random.key(0), number))

    def step(state, records, draws, hyper):
        members = draws.minibatch.members(sampler.num_records).astype(jnp.int32)
        counts = state.optim_state.at[state.step // sampler.steps_per_epoch].add(members)
        return state._replace(optim_state=counts, step=state.step + 1)

    counts = jnp.zeros((epochs, sampler.num_records), jnp.int32)
    mechanism = SimpleNamespace(words_for=lambda size: size)
    return SimpleNamespace(
        sampler=sampler, mechanism=mechanism, noise_size=1, parts=None, draw=draw, step=step
    ), counts


@pytest.mark.parametrize("steps_per_epoch", some_of([1, 3, 7, 10, 64]))
@pytest.mark.parametrize("stops", some_of([[], [1], [13, 14, 40], [21]]))
@pytest.mark.parametrize("ahead", some_of([1, 5, 200], 3, 1))
def test_every_record_enters_every_epoch_of_a_run_exactly_once(
    steps_per_epoch, stops, ahead, monkeypatch
):
    """Also where the run is stopped within an epoch, and where blocks of steps end within it or
    hold several.
    """
    monkeypatch.setattr(compiling, "_STEPS_AHEAD", ((1, ahead),))
    sampler = RandomAllocationSampler(NUM_RECORDS, steps_per_epoch, NUM_RECORDS)
    total = max(2 * steps_per_epoch, STEPS // steps_per_epoch * steps_per_epoch)
    step, counts = counting(sampler, total // steps_per_epoch)
    chunk = jax.jit(chunk_of(step, total))
    state = DPVIState(counts, jnp.int32(0), key_from_seed(1))
    for limit in [*(stop for stop in stops if stop < total), total]:
        state = chunk(state, (), jnp.int32(limit), None)
        assert int(state.step) == limit
    assert np.all(np.asarray(state.optim_state) == 1)


class TwiceAnEpoch(RandomAllocationSampler):
    """PLANTED BUG: records of a step are in the next one too."""

    def draw_prepared(self, prepared, number):
        (one, two) = (
            super(TwiceAnEpoch, self).draw_prepared(prepared, each) for each in (number, number + 1)
        )
        return jax.tree.map(lambda left, right: jnp.concatenate([left, right]), one, two)


class StaleEpoch(RandomAllocationSampler):
    """PLANTED BUG: steps are shifted by one against the epoch that was prepared."""

    def prepare(self, key, epoch, epochs=1):
        return super().prepare(key, (epoch + 1) // 2 * 2, epochs)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some_of([TwiceAnEpoch, StaleEpoch], first=1))
def test_a_broken_sampler_is_seen(kind, monkeypatch):
    """By what is checked of sound ones: uses an epoch, and that a loop which prepares nothing draws
    the same.
    """
    sampler = kind(NUM_RECORDS, 5, NUM_RECORDS)
    step, counts = counting(sampler, 4)
    monkeypatch.setattr(compiling, "_STEPS_AHEAD", ((1, 5),))
    state = DPVIState(counts, jnp.int32(0), key_from_seed(1))
    found = np.asarray(jax.jit(chunk_of(step, 20))(state, (), jnp.int32(20), None).optim_state)
    key, numbers = key_from_seed(1), jnp.arange(20, dtype=jnp.int32)
    epochs = [sampler.prepare(key, number // 5) for number in numbers]
    drawn = [
        sampler.draw_prepared(epoch, number) for epoch, number in zip(epochs, numbers, strict=True)
    ]
    anew = [
        RandomAllocationSampler.draw_from(sampler, jnp.zeros(0, jnp.uint32), key, number)
        for number in numbers
    ]
    same = all(
        np.array_equal(one.members(NUM_RECORDS), other.members(NUM_RECORDS))
        for one, other in zip(drawn, anew, strict=True)
    )
    assert not (same and np.all(found == 1))


def test_epochs_of_a_run_differ_and_depend_on_its_key():
    sampler = RandomAllocationSampler(NUM_RECORDS, 5, NUM_RECORDS)
    assigned = [
        np.asarray(sampler.assignment(key_from_seed(seed), jnp.uint32(epoch)))
        for seed in (1, 2)
        for epoch in (0, 1, 2)
    ]
    assert len({tuple(each) for each in assigned}) == 6


@pytest.fixture(scope="module")
def uninterrupted():
    """(trainer, state after 45 steps of 7-step epochs) by the compiled loop."""
    dpvi = trainer(RandomAllocationSampler(NUM_RECORDS, 7, NUM_RECORDS))
    return dpvi, end_of(dpvi, dpvi.init(key_from_seed(0), *RECORDS), STEPS)


def end_of(dpvi, state, steps):
    running = run(dpvi.private_step, dpvi.hyper, state, RECORDS, steps)
    while True:
        try:
            next(running)
        except StopIteration as finished:
            return finished.value


def assert_same(left, right, **tolerance):
    for one, other in zip(
        jax.tree.leaves(left.optim_state), jax.tree.leaves(right.optim_state), strict=True
    ):
        np.testing.assert_allclose(one, other, **tolerance)


@pytest.mark.parametrize("stop", some_of([1, 7, 10, 44], 4, first=1))
def test_a_run_that_is_stopped_within_an_epoch_and_continued_ends_at_the_same_bits(
    uninterrupted, stop
):
    dpvi, end = uninterrupted
    program = jax.jit(chunk_of(dpvi.private_step, STEPS))
    half = program(dpvi.init(key_from_seed(0), *RECORDS), RECORDS, jnp.int32(stop), dpvi.hyper)
    whole = program(dpvi.init(key_from_seed(0), *RECORDS), RECORDS, jnp.int32(STEPS), dpvi.hyper)
    assert_same(program(half, RECORDS, jnp.int32(STEPS), dpvi.hyper), whole, rtol=0)
    assert_same(whole, end, rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_lanes_end_where_single_fits_do(uninterrupted):
    dpvi, _ = uninterrupted
    step = dpvi.private_step
    keys = [key_from_seed(seed) for seed in (0, 1, 2)]
    hyper = stacked(
        [Hyperparameters.of(GaussianMechanism(1.0, sigma)) for sigma in (1.0, 2.0, 0.5)]
    )
    program = BatchedProgram(step, 3, shared=True, devices=jax.devices()[:1])
    together = program.run(starting_states(step, keys, hyper), RECORDS, hyper, STEPS)
    assert together.finished
    single = jax.jit(chunk_of(step, STEPS))
    for lane, (key, sigma) in enumerate(zip(keys, (1.0, 2.0, 0.5), strict=True)):
        own = Hyperparameters.of(GaussianMechanism(1.0, sigma))
        end = single(step.init(key, own), RECORDS, jnp.int32(STEPS), own)
        of_lane = DPVIState(
            jax.tree.map(
                lambda leaf, lane=lane: leaf[lane] if leaf.ndim else leaf,
                together.state.optim_state,
            ),
            end.step,
            key,
        )
        assert_same(of_lane, end, rtol=1e-4, atol=1e-6)


# --- many records, whose epochs are prepared by a program of their own ----------------------------


@pytest.fixture
def as_if_many(monkeypatch):
    """As with millions of records; a list of the (key, epoch) that are prepared."""
    monkeypatch.setattr(compiling, "_WORDS_AHEAD", NUM_RECORDS // 4)
    prepared, prepare = [], program_cache.jit

    def watched(function, *arguments):
        compiled = prepare(function, *arguments)
        if getattr(function, "__name__", "") != "prepare":
            return compiled
        return lambda key, epoch: (
            prepared.append((key_data(key), int(epoch))) or compiled(key, epoch)
        )

    monkeypatch.setattr(program_cache, "jit", watched)
    return prepared


def compiled(dpvi, state):
    lowered = compiling.lower(
        dpvi.private_step, dpvi.hyper, state, tuple(map(jnp.asarray, RECORDS)), 2
    )
    assert lowered.epochs == dpvi.private_step.sampler.preparation
    return lowered.compile()


def key_data(key):
    return np.asarray(jax.random.key_data(key)).tobytes()


@pytest.mark.thorough
def test_many_records_end_at_the_bits_of_a_run_without_stops(uninterrupted, as_if_many):
    """However often a run stops within an epoch, it prepares it once."""
    dpvi, end = uninterrupted
    state = dpvi.init(key_from_seed(0), *RECORDS)
    chunk = compiled(dpvi, state)
    for limit in range(1, STEPS + 1):
        state = chunk(state, RECORDS, jnp.int32(limit), dpvi.hyper)
    assert [epoch for _, epoch in as_if_many] == list(range(7))
    assert_same(state, end, rtol=1e-5, atol=1e-7)
    whole = chunk(dpvi.init(key_from_seed(0), *RECORDS), RECORDS, jnp.int32(STEPS), dpvi.hyper)
    assert_same(state, whole, rtol=0)


@pytest.mark.thorough
def test_two_runs_in_turn_prepare_epochs_of_their_own(uninterrupted, as_if_many):
    dpvi, _ = uninterrupted
    states = [dpvi.init(key_from_seed(seed), *RECORDS) for seed in (0, 1)]
    chunk = compiled(dpvi, states[0])
    alone = [
        chunk(dpvi.init(key_from_seed(seed), *RECORDS), RECORDS, jnp.int32(20), dpvi.hyper)
        for seed in (0, 1)
    ]
    as_if_many.clear()
    for limit in range(1, 21):
        states = [chunk(state, RECORDS, jnp.int32(limit), dpvi.hyper) for state in states]
    assert as_if_many == [
        (key_data(key_from_seed(seed)), limit // 7) for limit in range(20) for seed in (0, 1)
    ]
    for state, own in zip(states, alone, strict=True):
        assert_same(state, own, rtol=0)


@pytest.mark.thorough
def test_fits_of_many_records_take_the_epochs_that_were_kept(uninterrupted, as_if_many):
    dpvi, end = uninterrupted
    assert_same(
        end_of(dpvi, dpvi.init(key_from_seed(0), *RECORDS), STEPS), end, rtol=1e-5, atol=1e-7
    )
    assert [epoch for _, epoch in as_if_many] == list(range(7))


@pytest.mark.thorough
def test_lanes_of_many_records_end_where_single_fits_do(uninterrupted, as_if_many):
    test_lanes_end_where_single_fits_do(uninterrupted)


def test_other_samplers_carry_nothing_more():
    """Their program has no epochs: one loop over blocks, as without this sampler."""
    dpvi = trainer(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS))
    state = dpvi.init(key_from_seed(0), *RECORDS)
    jaxpr = jax.make_jaxpr(chunk_of(dpvi.private_step, STEPS))(
        state, RECORDS, jnp.int32(STEPS), dpvi.hyper
    )
    (loop,) = [equation for equation in jaxpr.jaxpr.eqns if equation.primitive.name == "while"]
    assert len(loop.outvars) <= len(jax.tree.leaves(state))
