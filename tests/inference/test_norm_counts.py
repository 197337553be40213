"""Counts of gradients by their norm: part of what a step releases, within the step's noise."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.optim import SGD

from tests import zoo
from tests.conftest import Watched, quick_jit, some_of
from workbench.clipping.clipped_sums import STRATEGIES
from workbench.inference import DPVI, norm_counts, running_moments
from workbench.inference._release import noised
from workbench.inference.state import Draws, Performance
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import CLIPPINGS, GaussianMechanism, Noise, OnGrid
from workbench.sampling import Minibatch, PoissonSampler

SIZE, SIGMA = 12, 3.0
ALL = Minibatch(jnp.arange(SIZE, dtype=jnp.int32), jnp.ones(SIZE, bool))
LEVEL = jnp.int32(8)
DEVIATION = 2.0 ** (11 + int(LEVEL))  # of the noise, in whole numbers


def step_of(clip=0.5, *, clipping="flat", strategy="auto", size=SIZE, counts=True):
    """``step(x, mask)`` -> ({sum, counts} in whole numbers, next state) of normal_mean with all
    records in the minibatch.
    """
    mechanism = Watched(clip, SIGMA, clipping)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        SGD(0.1),
        privacy=(PoissonSampler(SIZE, 1.0, SIZE), mechanism),
    )
    start = trainer.init(key_from_seed(0), *zoo.normal_mean_data(SIZE))
    private_step = dataclasses.replace(
        trainer.private_step.with_options(counts_norms=counts),
        performance=Performance(strategy, None, size),
    )
    hyper = trainer.hyper._replace(moments_from=jnp.int32(0))
    start = start._replace(moments=running_moments.empty(private_step.noise_size, counts))

    @quick_jit
    def step(x, mask):
        mechanism.seen.clear()
        noise = Noise(jnp.zeros(private_step.noised_coordinates, jnp.int32), LEVEL)
        draws = Draws(Minibatch(ALL.indices, mask), noise, jax.random.key(1))
        state = private_step.step(start, (x,), draws, hyper)
        return [
            jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(seen.units)])
            for seen in mechanism.seen
        ], state

    return step


def records(seed, scale=1.0):
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=SIZE), jnp.float32)


@pytest.mark.parametrize(
    ("strategy", "clipping"), some_of([*itertools.product(STRATEGIES, CLIPPINGS)], 4)
)
def test_a_record_moves_sum_and_counts_by_no_more_than_the_noise_covers(clipping, strategy):
    step, everyone = step_of(clipping=clipping, strategy=strategy), ALL.mask
    for seed in range(20):
        x = records(seed, scale=10.0 ** (seed % 4 - 2))
        both = [
            np.concatenate(step(x, mask)[0]).astype(float)
            for mask in (everyone, everyone.at[3].set(False))
        ]
        assert np.linalg.norm(both[0] - both[1]) <= DEVIATION / SIGMA


def test_a_record_that_is_clipped_uses_all_that_the_noise_covers():
    """Or else the bound above would be loose, or the counts without weight."""
    step = step_of()
    (total, counts), (rest, others) = (
        step(records(1, 1e3), mask)[0] for mask in (ALL.mask, ALL.mask.at[3].set(False))
    )
    of_sum, of_counts = (
        np.linalg.norm(np.float64(total - rest)),
        np.linalg.norm(np.float64(counts - others)),
    )
    assert of_sum == pytest.approx(norm_counts.OF_SUM * DEVIATION / SIGMA, rel=1e-3)
    assert of_counts == pytest.approx(norm_counts.OF_NORMS * DEVIATION / SIGMA, rel=1e-3)
    assert np.hypot(of_sum, of_counts) <= DEVIATION / SIGMA


@pytest.mark.parametrize("size", [SIZE, 5])
def test_counts_are_those_of_the_gradients(size):
    """The gradient of record x is theta - x; without noise, counts are what NumPy counts."""
    step, x = step_of(clip=0.5, size=size), records(3, 2.0)
    mask = ALL.mask.at[:2].set(False)
    (_, counts), state = step(x, mask)
    theta = float(state.moments.origin[0])
    lengths = np.abs(theta - np.asarray(x))[2:]
    wanted = np.histogram(lengths, [0, *(0.5 * edge for edge in norm_counts.EDGES), np.inf])[0]
    np.testing.assert_array_equal(counts // counts[counts > 0].min(), wanted)
    np.testing.assert_allclose(state.moments.norms, [1, *wanted], rtol=1e-6)


def test_numbers_that_are_not_finite_count_in_the_last_range():
    counts = norm_counts.counts_of(
        jnp.array([np.nan, np.inf, 0.0, 0.3]), jnp.array([True, True, True, False]), jnp.float32(1)
    )
    np.testing.assert_array_equal(counts, [1, 0, 0, 0, 0, 0, 0, 2])


def test_shares_of_the_noise_add_up_to_one():
    assert pytest.approx(1, abs=1e-12) == norm_counts.OF_SUM**2 + norm_counts.OF_NORMS**2


def test_sum_and_counts_get_noise_of_their_own():
    """Each draw is added once, in the spacing of what it is added to."""
    units = jnp.arange(1, 3 + norm_counts.RANGES + 1, dtype=jnp.int32) * 1000
    mechanism, sigma = GaussianMechanism(0.5, SIGMA), jnp.float32(4.0)
    total = OnGrid(jnp.zeros(3, jnp.int32), jnp.float32(0.25))
    summed, counted = noised(
        mechanism, 3, total, jnp.zeros(norm_counts.RANGES, jnp.int32), Noise(units, LEVEL), sigma
    )
    np.testing.assert_array_equal(summed, 0.25 * units[:3])
    np.testing.assert_allclose(
        counted * mechanism.whole_spacings(sigma, LEVEL), units[3:], rtol=1e-6
    )


def test_without_noise_nothing_is_counted():
    assert not norm_counts.have_room(GaussianMechanism(1.0, 0.0), 100)
    assert norm_counts.have_room(GaussianMechanism(1.0, 0.3), 100)
    assert not norm_counts.have_room(GaussianMechanism(1.0, 1e6), 100)


def test_a_step_says_how_many_coordinates_get_noise():
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        SGD(0.1),
        privacy=(PoissonSampler(SIZE, 1.0, SIZE), GaussianMechanism(1, 1)),
    )
    trainer.init(key_from_seed(0), *zoo.normal_mean_data(SIZE))
    step = trainer.private_step
    assert (step.noise_size, step.noised_coordinates) == (1, 1)
    counting = step.with_options(counts_norms=True)
    assert (counting.noise_size, counting.noised_coordinates) == (1, 1 + norm_counts.RANGES)
    noise = counting.draw(key_from_seed(1), jnp.int32(0), trainer.hyper).noise
    assert noise.units.shape == (1 + norm_counts.RANGES,)
