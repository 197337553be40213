import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.optim import SGD, Adam
from scipy import stats

from tests import zoo
from workbench._validate import ArgumentError
from workbench.inference import DPVI, dpvi, run
from workbench.inference.records import PrivacyModelError
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.randomness import key_from_seed
from workbench.sampling import Minibatch, PoissonSampler

NUM_RECORDS = 60
RECORDS = zoo.logistic_data(NUM_RECORDS)


def logistic(clip=1.0, noise_multiplier=1.0, rate=0.2, optim=None, **options):
    """A trainer of the zoo's logistic regression."""
    return DPVI(
        zoo.logistic,
        zoo.logistic_guide,
        optim or Adam(0.05),
        sampler=PoissonSampler(NUM_RECORDS, rate, NUM_RECORDS),
        mechanism=GaussianMechanism(clip, noise_multiplier),
        **options,
    )


@functools.cache
def compiled(trainer):
    return jax.jit(trainer.update)


USUAL = logistic()
RARE = logistic(rate=1e-6, noise_multiplier=1e-3, optim=SGD(1.0))


def after(steps, trainer=USUAL, seed=0, records=RECORDS):
    """Parameters after a loop of ``update``."""
    state = trainer.init(key_from_seed(seed), *records)
    for _ in range(steps):
        state, _ = compiled(trainer)(state, *records)
    return trainer.get_params(state)


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def without_key(state):
    return state._replace(key=jax.random.key_data(state.key))


def test_without_noise_it_finds_the_exact_posterior():
    """Over 20 seeds the mean is off by at most a twentieth of a posterior standard deviation, the deviation by 2 %."""
    (x,) = zoo.normal_mean_data(100)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(lambda step: 0.05 * 1e-3 ** (step / 6000)),
        sampler=PoissonSampler(100, 1.0, 100),
        mechanism=GaussianMechanism(math.inf, 0.0),
    )
    *_, last = run(trainer, trainer.init(key_from_seed(0), x), (x,), 6000)
    mean, deviation = zoo.normal_mean_posterior(x)
    assert float(last.params["loc"]) == pytest.approx(mean, abs=0.1 * deviation)
    assert float(last.params["scale"]) == pytest.approx(deviation, rel=0.05)


def test_noise_of_the_right_size_still_comes_near_the_posterior():
    """Minibatches, clipping and a little noise: the mean is found, within five posterior standard deviations."""
    (x,) = zoo.normal_mean_data(400)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(lambda step: 0.1 * 1e-3 ** (step / 1000)),
        sampler=PoissonSampler(400, 0.2, 160),
        mechanism=GaussianMechanism(2.0, 0.5),
    )
    *_, last = run(trainer, trainer.init(key_from_seed(1), x), (x,), 1000)
    mean, deviation = zoo.normal_mean_posterior(x)
    assert abs(float(last.params["loc"]) - mean) < 5 * deviation


def test_elbo_of_the_exact_posterior_is_the_evidence():
    """log p(x | mean) + log p(mean) - log q(mean) is then the same at every draw: no Monte Carlo error."""
    (x,) = zoo.normal_mean_data(50)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        SGD(1.0),
        sampler=PoissonSampler(50, 1.0, 50),
        mechanism=GaussianMechanism(1.0, 1.0),
    )
    trainer.init(key_from_seed(2), x)
    mean, deviation = zoo.normal_mean_posterior(x)
    params = trainer.split.unconstrain({"loc": jnp.array(mean), "scale": jnp.array(deviation)})

    @jax.jit
    def elbo_at(params):
        return dpvi.elbo_per_record(trainer.split, params, jax.random.key(0), (jnp.asarray(x),), 20)

    covariance = np.eye(50) + zoo.PRIOR_SCALE**2
    evidence = stats.multivariate_normal.logpdf(x, np.zeros(50), covariance)
    assert float(elbo_at(params)) == pytest.approx(evidence / 50, rel=1e-4)
    assert elbo_at(trainer.split.initial) < evidence / 50


def test_update_returns_no_loss():
    state, loss = compiled(USUAL)(USUAL.init(key_from_seed(3), *RECORDS), *RECORDS)
    assert loss is None
    assert state.step == 1


def test_state_is_optimiser_state_step_and_key():
    state = USUAL.init(key_from_seed(3), *RECORDS)
    assert state._fields == ("optim_state", "step", "key", "average")
    assert state.step == 0
    assert_same(jax.random.key_data(state.key), jax.random.key_data(key_from_seed(3)))


def test_records_reach_the_state_through_the_released_sum_alone(monkeypatch):
    """With the sum put out of action, records of any value give the same state, bit by bit."""

    def only_noise(total, noise):
        return jax.flatten_util.ravel_pytree(total)[1](noise)

    others = (np.full_like(RECORDS[0], math.nan), 1 - RECORDS[1])
    start = USUAL.init(key_from_seed(4), *RECORDS)
    exposed = [compiled(USUAL)(start, *records)[0] for records in (RECORDS, others)]
    monkeypatch.setattr(GaussianMechanism, "add", staticmethod(only_noise))
    shielding = jax.jit(lambda *arguments: USUAL.update(*arguments))  # traced anew, unlike compiled(USUAL)
    shielded = [shielding(start, *records)[0] for records in (RECORDS, others)]
    assert_same(without_key(shielded[0]), without_key(shielded[1]))
    assert not np.array_equal(USUAL.get_params(exposed[0])["weights_loc"], USUAL.get_params(exposed[1])["weights_loc"])


def test_an_empty_minibatch_takes_a_step_on_noise():
    """With sgd, twice the noise moves loc by noise / (q N) further."""
    trainer = logistic(rate=0.5, optim=SGD(1.0))
    state = trainer.init(key_from_seed(5), *RECORDS)
    draws = jax.jit(trainer.draw)(state.key, state.step)
    empty = Minibatch(draws.minibatch.indices, jnp.zeros(NUM_RECORDS, bool))
    step = jax.jit(trainer.step)
    once = step(state, RECORDS, draws._replace(minibatch=empty))
    twice = step(state, RECORDS, draws._replace(minibatch=empty, noise=2 * draws.noise))
    assert once.step == 1
    moved = trainer.get_params(twice)["weights_loc"] - trainer.get_params(once)["weights_loc"]
    np.testing.assert_allclose(moved, -draws.noise[1:] / 0.5 / NUM_RECORDS, rtol=1e-4, atol=1e-7)
    assert np.all(moved != 0)


def test_empty_minibatches_leave_no_trace_of_the_records():
    """At a rate of one in a million, ten steps draw nobody; records of NaN then change nothing."""
    nobody = (np.full_like(RECORDS[0], math.nan), RECORDS[1])
    results = [after(10, RARE, seed=6, records=records) for records in (RECORDS, nobody)]
    assert_same(*results)
    start = RARE.get_params(RARE.init(key_from_seed(6), *RECORDS))
    assert np.all(results[0]["weights_loc"] != start["weights_loc"])


def test_a_record_of_nan_does_not_spoil_the_run():
    x = RECORDS[0].copy()
    x[7] = math.nan
    params = after(20, records=(x, RECORDS[1]))
    assert all(np.all(np.isfinite(value)) for value in params.values())


def test_initial_state_depends_on_no_record():
    states = [
        USUAL.init(key_from_seed(7), *records) for records in (RECORDS, (np.full_like(RECORDS[0], math.nan), RECORDS[1] * 0))
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
    return drawn._replace(base_noise=jax.random.key_data(drawn.base_noise))


def test_every_step_has_randomness_of_its_own(draws):
    """Of 20 000 float32 normal draws some hundred coincide by chance; no two steps do."""
    assert len(np.unique(draws.noise, axis=0)) == 5000
    assert len(np.unique(draws.base_noise, axis=0)) == 5000
    assert len(np.unique(draws.minibatch.indices, axis=0)) == 5000
    assert len(np.unique(draws.minibatch.mask.sum(axis=1))) > 10


def test_noise_of_a_run_has_standard_deviation_sigma_times_clip(draws):
    """Chi-square over 5000 steps and four coordinates; false alarms one seed in a million; 2/3 and 3/2 are rejected."""
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


def test_params_are_constrained():
    start = USUAL.get_params(USUAL.init(key_from_seed(9), *RECORDS))
    np.testing.assert_allclose(start["weights_scale"], np.full(3, 0.1), rtol=1e-6)
    assert all(np.all(value > 0) for name, value in after(20).items() if name.endswith("scale"))


@pytest.mark.parametrize("optim", [optax.adam(0.05), optax.chain(optax.clip(1.0), optax.sgd(0.1))], ids=["adam", "chain"])
def test_optimisers_of_optax_work(optim):
    params = after(3, logistic(optim=optim))
    assert np.all(np.isfinite(params["weights_loc"]))
    assert np.all(params["weights_loc"] != 0)


def test_a_declared_number_of_records_scales_the_gradient():
    """On noise alone sgd steps are in proportion to 1 / N."""
    steps = []
    for trainer in (RARE, logistic(rate=1e-6, noise_multiplier=1e-3, optim=SGD(1.0), num_records=10 * NUM_RECORDS)):
        start = trainer.get_params(trainer.init(key_from_seed(0), *RECORDS))
        steps.append(after(1, trainer)["weights_loc"] - start["weights_loc"])
    np.testing.assert_allclose(steps[0], 10 * steps[1], rtol=1e-3)


def test_number_of_records_is_that_of_the_sampler_unless_declared():
    assert logistic().num_records == NUM_RECORDS


def test_static_arguments_reach_the_model():
    def model(x, y=None, num_records=None, width=None):
        assert width == 3.0
        zoo.logistic(x, y, num_records)

    def guide(x, y=None, num_records=None, width=None):
        zoo.logistic_guide(x, y, num_records)

    trainer = DPVI(
        model,
        guide,
        Adam(0.1),
        sampler=PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS),
        mechanism=GaussianMechanism(1.0, 1.0),
        width=3.0,
    )
    assert trainer.init(key_from_seed(0), *RECORDS).step == 0


@pytest.mark.parametrize("key", [None, 0, "seed"])
def test_a_missing_key_is_an_error(key):
    with pytest.raises(TypeError):
        logistic().init(key, *RECORDS)


def test_an_insecure_key_takes_no_step():
    with pytest.raises(TypeError, match="new_key"):
        USUAL.update(USUAL.init(jax.random.key(0), *RECORDS), *RECORDS)


def test_reading_the_model_comes_first():
    with pytest.raises(RuntimeError, match="call init"):
        logistic().split  # noqa: B018


@pytest.mark.parametrize(("argument", "value"), [("gradient", "sideways"), ("num_records", 1), ("num_records", 2.5)])
def test_unusable_arguments_are_named(argument, value):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        logistic(**{argument: value})


def test_a_model_that_cannot_be_fitted_privately_is_refused_at_init():
    trainer = DPVI(
        lambda x, num_records=None: numpyro.sample("mean", numpyro.distributions.Normal(0, 1)),
        zoo.normal_mean_guide,
        Adam(0.1),
        sampler=PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS),
        mechanism=GaussianMechanism(1.0, 1.0),
    )
    with pytest.raises(PrivacyModelError, match="no record plate"):
        trainer.init(key_from_seed(0), RECORDS[0][:, 0])
