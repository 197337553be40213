"""Randomness, clipping and noise of a step; compiled as users' are, unlike the tests of DPVI's
surface.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.optim import SGD, Adam
from scipy import stats

from tests.conftest import quick_jit, some_of
from tests.inference.test_svi import (
    NUM_RECORDS,
    RECORDS,
    USUAL,
    after,
    assert_same,
    compiled,
    logistic,
    without_key,
)
from workbench._validate import ArgumentError
from workbench.inference import DPVI, run
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import Minibatch, PoissonSampler


def in_floats(noise, deviation):
    """``noise`` in the units of the sum, but for the share that pays for rounding. :param
    deviation: sigma C.
    """
    return (
        np.asarray(noise.units, np.float64)
        * deviation
        / np.exp2(11.0 + np.asarray(noise.level))[..., None]
    )


def times(factor, noise):
    return noise._replace(units=factor * noise.units)


def test_records_reach_the_state_through_the_released_sum_alone(monkeypatch):
    """With the sum put out of action, records of any value give the same state, bit by bit."""

    def only_noise(total, noise):
        return adding(total._replace(units=jax.tree.map(jnp.zeros_like, total.units)), noise)

    adding = GaussianMechanism.add

    others = (np.full_like(RECORDS[0], math.nan), 1 - RECORDS[1])
    start = USUAL.init(key_from_seed(4), *RECORDS)
    exposed = [compiled(USUAL)(start, *records)[0] for records in (RECORDS, others)]
    monkeypatch.setattr(GaussianMechanism, "add", staticmethod(only_noise))
    # traced anew, unlike compiled(USUAL)
    shielding = quick_jit(lambda *arguments: USUAL.update(*arguments))
    shielded = [shielding(start, *records)[0] for records in (RECORDS, others)]
    assert_same(without_key(shielded[0]), without_key(shielded[1]))
    assert not np.array_equal(
        USUAL.get_params(exposed[0])["weights_loc"], USUAL.get_params(exposed[1])["weights_loc"]
    )


def test_an_empty_minibatch_takes_a_step_on_noise_and_leaves_no_trace_of_the_records():
    """With sgd, twice the noise moves loc by noise / (q N) further; records of NaN change
    nothing.
    """
    trainer = logistic(rate=0.5, optim=SGD(1.0))
    state = trainer.init(key_from_seed(5), *RECORDS)
    draws = quick_jit(trainer.draw)(state.key, state.step)
    empty = Minibatch(draws.minibatch.indices, jnp.zeros(NUM_RECORDS, bool))
    step = jax.jit(trainer.step)
    once = step(state, RECORDS, draws._replace(minibatch=empty))
    twice = step(state, RECORDS, draws._replace(minibatch=empty, noise=times(2, draws.noise)))
    assert once.step == 1
    nobody = (np.full_like(RECORDS[0], math.nan), RECORDS[1])
    unread = step(state, nobody, draws._replace(minibatch=empty))
    assert_same(without_key(unread), without_key(once))
    moved = trainer.get_params(twice)["weights_loc"] - trainer.get_params(once)["weights_loc"]
    np.testing.assert_allclose(
        moved, -in_floats(draws.noise, 1.0)[1:] / 0.5 / NUM_RECORDS, rtol=2e-3, atol=1e-7
    )
    assert np.all(moved != 0)


def test_a_record_of_nan_does_not_spoil_the_run():
    x = RECORDS[0].copy()
    x[7] = math.nan
    params = after(20, records=(x, RECORDS[1]))
    assert all(np.all(np.isfinite(value)) for value in params.values())


def test_initial_state_depends_on_no_record():
    states = [
        USUAL.init(key_from_seed(7), *records)
        for records in (RECORDS, (np.full_like(RECORDS[0], math.nan), RECORDS[1] * 0))
    ]
    assert_same(*map(without_key, states))


def test_same_seed_same_result_other_seed_other_result():
    results = [after(5, seed=seed) for seed in (0, 0, 1)]
    assert_same(results[0], results[1])
    assert np.all(results[0]["weights_loc"] != results[2]["weights_loc"])


@pytest.fixture(scope="module")
def draws():
    """The randomness of 5000 steps with sigma = 3 and C = 1/2."""
    trainer = logistic(clip=0.5, noise_multiplier=3.0)
    state = trainer.init(key_from_seed(8), *RECORDS)
    drawn = jax.jit(jax.vmap(trainer.draw, (None, 0)))(state.key, jnp.arange(5000, dtype=jnp.int32))
    return drawn._replace(
        base_noise=jax.random.key_data(drawn.base_noise), noise=in_floats(drawn.noise, 1.5)
    )


def test_every_step_has_randomness_of_its_own(draws):
    """Of 20 000 draws some coincide by chance; no two steps do."""
    assert len(np.unique(draws.noise, axis=0)) == 5000
    assert len(np.unique(draws.base_noise, axis=0)) == 5000
    assert len(np.unique(draws.minibatch.indices, axis=0)) == 5000
    assert len(np.unique(draws.minibatch.mask.sum(axis=1))) > 10


def test_noise_of_a_run_has_standard_deviation_sigma_times_clip(draws):
    """Chi-square over 5000 steps and four coordinates; false alarms one seed in a million; 2/3 and
    3/2 are rejected.
    """
    noise = np.asarray(draws.noise, np.float64)

    def plausible(scale):
        return 5e-7 < stats.chi2.sf(np.sum((noise / scale) ** 2), noise.size) < 1 - 5e-7

    assert noise.shape == (5000, 4)
    assert plausible(1.5)
    assert not plausible(1.5 * 2 / 3)
    assert not plausible(1.5 * 3 / 2)


def test_noise_of_one_step_says_nothing_of_the_next(draws):
    """Correlation between neighbouring steps; false alarms one seed in a million."""
    noise = np.asarray(draws.noise, np.float64)
    correlation = np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]
    assert abs(correlation) * math.sqrt(noise[1:].size) < stats.norm.isf(5e-7)


@pytest.mark.parametrize("multiplier", [0.0, 1.5])
def test_hyperparameters_without_noise_are_no_use_to_a_step_with_noise(multiplier):
    trainer = logistic(noise_multiplier=multiplier)
    state = trainer.init(key_from_seed(5), *RECORDS)
    other = Hyperparameters.of(GaussianMechanism(1.0, 1.5 - multiplier))
    with pytest.raises(ArgumentError, match=r"^hyper="):
        trainer.private_step.init(key_from_seed(6), other)
    with pytest.raises(ArgumentError, match=r"^hyper="):
        next(run(trainer.private_step, other, state, RECORDS, 3))


@pytest.mark.thorough
def test_a_clip_schedule_far_below_c_keeps_its_noise():
    """The quotient of the two underflows in float32."""
    trainer = logistic(clip=1e35, clip_schedule=lambda step: 1e-3, rate=0.5, optim=SGD(1.0))
    state = trainer.init(key_from_seed(5), *RECORDS)
    draws = trainer.draw(state.key, state.step)
    step = jax.jit(trainer.step)
    once, without = (
        step(state, RECORDS, draws),
        step(state, RECORDS, draws._replace(noise=times(0, draws.noise))),
    )
    moved = trainer.get_params(once)["weights_loc"] - trainer.get_params(without)["weights_loc"]
    noise = in_floats(draws.noise, 1e-3)
    np.testing.assert_allclose(moved, -noise[1:] / 0.5 / NUM_RECORDS, rtol=0.01)
    assert np.all(np.abs(noise) > 1e-6)  # sigma C_t = .001


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_parts_of_a_minibatch_give_the_same_step(size):
    """Same draws, same noise once, same result to rounding."""
    for name, value in after(3, logistic(microbatch_size=size)).items():
        np.testing.assert_allclose(value, after(3)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", some_of(["bookkeeping", "vmap", "loop"], 3, first=2))
def test_strategies_take_the_same_steps(strategy):
    for name, value in after(3, logistic(strategy=strategy)).items():
        np.testing.assert_allclose(value, after(3)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_vanilla_runs_with_noise_in_all_parameters():
    trainer = logistic(estimator="vanilla")
    assert np.all(np.isfinite(after(3, trainer)["weights_loc"]))
    assert trainer.private_step.noise_size == 8


@pytest.mark.parametrize("kind", some_of([jnp.bfloat16, jnp.float16]))
@pytest.mark.parametrize("estimator", some_of(["aligned", "vanilla"]))
def test_parameters_of_half_precision_keep_it(estimator, kind):
    """Noise is drawn and added in whole numbers all the same, and small steps add up: optimiser and
    average are single.
    """

    def model(x, num_records):
        mean = numpyro.param("mean", jnp.zeros(3, kind))
        numpyro.param("nothing", jnp.zeros((0, 2)))
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            numpyro.sample(
                "x", numpyro.distributions.Normal(mean.astype(x.dtype), 1.0).to_event(1), obs=x
            )

    x = np.random.default_rng(0).normal(2, 1, (50, 3)).astype(np.float32)
    noise = PoissonSampler(50, 0.5, 50), GaussianMechanism(1.0, 0.5)
    adam = Adam(jnp.float32(0.1))  # as of a fit whose learning rate is an argument
    dpvi = DPVI(
        model, lambda *_, **__: None, adam, privacy=noise, estimator=estimator, average_from=1
    )
    dpvi.init(key_from_seed(0), x)
    state = dpvi.run(
        key_from_seed(0), 3, x, progress_bar=False
    ).state  # a loop, which needs the same kinds again
    for averaged in (False, True):
        mean = dpvi.get_params(state, averaged=averaged)["mean"]
        assert mean.dtype == kind
        assert np.all(np.abs(np.asarray(mean, np.float32)) > 0)
