import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import optax
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.optim import SGD, Adam, Minimize
from scipy import stats

from tests import zoo
from tests.conftest import some_of
from workbench._validate import ArgumentError
from workbench.clipping.separation import PrivacyModelError
from workbench.inference import DPVI, run
from workbench.inference.batched import BatchedProgram, stacked, starting_states
from workbench.inference.compiling import compile_ahead
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.elbo import elbo_per_record
from workbench.sampling import PoissonSampler

NUM_RECORDS = 60
RECORDS = zoo.logistic_data(NUM_RECORDS)


def logistic(clip=1.0, noise_multiplier=1.0, rate=0.2, optim=None, **options):
    """A trainer of the zoo's logistic regression."""
    return DPVI(
        zoo.logistic,
        zoo.logistic_guide,
        optim or Adam(0.05),
        privacy=(
            PoissonSampler(NUM_RECORDS, rate, NUM_RECORDS),
            GaussianMechanism(clip, noise_multiplier),
        ),
        **options,
    )


def run_of(trainer, state, records, steps):
    return run(trainer.private_step, trainer.hyper, state, records, steps)


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
    """Over 20 seeds the mean is off by at most a twentieth of a posterior standard deviation, the
    deviation by 2 %.
    """
    (x,) = zoo.normal_mean_data(100)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(lambda step: 0.05 * 1e-3 ** (step / 6000)),
        privacy=(PoissonSampler(100, 1.0, 100), GaussianMechanism(math.inf, 0.0)),
    )
    *_, last = run_of(trainer, trainer.init(key_from_seed(0), x), (x,), 6000)
    mean, deviation = zoo.normal_mean_posterior(x)
    assert float(last.params["loc"]) == pytest.approx(mean, abs=0.1 * deviation)
    assert float(last.params["scale"]) == pytest.approx(deviation, rel=0.05)


@pytest.mark.thorough
def test_noise_of_the_right_size_still_comes_near_the_posterior():
    """Minibatches, clipping and a little noise: the mean is found, within five posterior standard
    deviations.
    """
    (x,) = zoo.normal_mean_data(400)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(lambda step: 0.1 * 1e-3 ** (step / 1000)),
        privacy=(PoissonSampler(400, 0.2, 160), GaussianMechanism(2.0, 0.5)),
    )
    *_, last = run_of(trainer, trainer.init(key_from_seed(1), x), (x,), 1000)
    mean, deviation = zoo.normal_mean_posterior(x)
    assert abs(float(last.params["loc"]) - mean) < 5 * deviation


@pytest.mark.thorough
def test_elbo_of_the_exact_posterior_is_the_evidence():
    """log p(x | mean) + log p(mean) - log q(mean) is then the same at every draw: no Monte Carlo
    error.
    """
    (x,) = zoo.normal_mean_data(50)
    trainer = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        SGD(1.0),
        privacy=(PoissonSampler(50, 1.0, 50), GaussianMechanism(1.0, 1.0)),
    )
    trainer.init(key_from_seed(2), x)
    mean, deviation = zoo.normal_mean_posterior(x)
    params = trainer.private_step.model.unconstrain(
        {"loc": jnp.array(mean), "scale": jnp.array(deviation)}
    )

    @jax.jit
    def elbo_at(params):
        return elbo_per_record(
            trainer.private_step.model, params, jax.random.key(0), (jnp.asarray(x),), 20
        )

    covariance = np.eye(50) + zoo.PRIOR_SCALE**2
    evidence = stats.multivariate_normal.logpdf(x, np.zeros(50), covariance)
    assert float(elbo_at(params)) == pytest.approx(evidence / 50, rel=1e-4)
    assert elbo_at(trainer.private_step.model.initial) < evidence / 50


@pytest.mark.thorough
def test_update_returns_no_loss():
    state, loss = compiled(USUAL)(USUAL.init(key_from_seed(3), *RECORDS), *RECORDS)
    assert loss is None
    assert state.step == 1


def test_state_is_optimiser_state_step_and_key():
    state = USUAL.init(key_from_seed(3), *RECORDS)
    assert state._fields == ("optim_state", "step", "key", "average", "moments")
    assert state.average is state.moments is None
    assert state.step == 0
    assert_same(jax.random.key_data(state.key), jax.random.key_data(key_from_seed(3)))


@pytest.mark.thorough
def test_params_are_constrained():
    start = USUAL.get_params(USUAL.init(key_from_seed(9), *RECORDS))
    np.testing.assert_allclose(start["weights_scale"], np.full(3, 0.1), rtol=1e-6)
    assert all(np.all(value > 0) for name, value in after(20).items() if name.endswith("scale"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "optim",
    [
        pytest.param(optax.adam(0.05), marks=pytest.mark.thorough),
        optax.chain(optax.clip(1.0), optax.sgd(0.1)),
    ],
    ids=["adam", "chain"],
)
def test_optimisers_of_optax_work(optim):
    params = after(3, logistic(optim=optim))
    assert np.all(np.isfinite(params["weights_loc"]))
    assert np.all(params["weights_loc"] != 0)


@pytest.mark.thorough
def test_a_declared_number_of_records_scales_the_gradient():
    """On noise alone sgd steps are in proportion to 1 / N."""
    steps = []
    for trainer in (
        RARE,
        logistic(rate=1e-6, noise_multiplier=1e-3, optim=SGD(1.0), num_records=10 * NUM_RECORDS),
    ):
        start = trainer.get_params(trainer.init(key_from_seed(0), *RECORDS))
        steps.append(after(1, trainer)["weights_loc"] - start["weights_loc"])
    np.testing.assert_allclose(steps[0], 10 * steps[1], rtol=1e-3)


def test_number_of_records_is_that_of_the_sampler_unless_declared():
    trainer = logistic()
    trainer.init(key_from_seed(0), *RECORDS)
    assert trainer.private_step.model.num_records == NUM_RECORDS


def test_more_records_than_declared_are_refused_before_the_model_is_read():
    def unread(*arguments, **options):
        raise AssertionError("it was called")

    trainer = DPVI(
        unread,
        unread,
        Adam(0.1),
        epsilon=1.0,
        iterations=10,
        sampling_rate=0.2,
        num_records=NUM_RECORDS - 1,
    )
    with pytest.raises(ArgumentError, match="upper bound") as refused:
        trainer.init(new_key(), *RECORDS)
    assert (refused.value.argument, refused.value.value) == ("num_records", NUM_RECORDS - 1)


@pytest.mark.parametrize("strategy", ["auto", "loop"])
def test_the_guarantee_says_whether_sums_depend_on_places(strategy):
    trainer = DPVI(
        zoo.logistic,
        zoo.logistic_guide,
        Adam(0.1),
        epsilon=1.0,
        iterations=2,
        sampling_rate=0.2,
        strategy=strategy,
    )
    guarantee = trainer.guarantee(trainer.init(new_key(), *RECORDS))
    assert guarantee.covers_deletion == (strategy == "loop")
    assert ("its place stays empty" in guarantee.headline()) == (strategy == "auto")


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
        privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
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
        logistic().private_step  # noqa: B018


@pytest.mark.parametrize(
    ("argument", "value"), [("estimator", "sideways"), ("num_records", 1), ("num_records", 2.5)]
)
def test_unusable_arguments_are_named(argument, value):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        logistic(**{argument: value})


def test_a_model_that_cannot_be_fitted_privately_is_refused_at_init():
    trainer = DPVI(
        lambda x, num_records=None: numpyro.sample("mean", numpyro.distributions.Normal(0, 1)),
        zoo.normal_mean_guide,
        Adam(0.1),
        privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
    )
    with pytest.raises(PrivacyModelError, match=r"nothing to learn.*numpyro\.plate"):
        trainer.init(key_from_seed(0), RECORDS[0][:, 0])


# --- numpyro's surface ----------------------------------------------------------------------------


def with_target(**options):
    """A trainer that calibrates its own noise."""
    options = {"epsilon": 1.0, "delta": 1e-3, "sampling_rate": 0.2, **options}
    model, guide = options.pop("model", zoo.logistic), options.pop("guide", zoo.logistic_guide)
    return DPVI(model, guide, options.pop("optim", Adam(0.05)), **options)


def test_replacing_svi_is_the_whole_change():
    """The same three calls on SVI and DPVI, and the same parameters in the end but for their
    values.
    """
    (x,) = zoo.normal_mean_data(NUM_RECORDS)
    svi = SVI(zoo.normal_mean, zoo.normal_mean_guide, Adam(0.05), Trace_ELBO())
    theirs = svi.run(jax.random.key(0), 20, x, num_records=NUM_RECORDS, progress_bar=False)
    private = with_target(model=zoo.normal_mean, guide=zoo.normal_mean_guide)
    ours = private.run(new_key(), 20, x, num_records=NUM_RECORDS, progress_bar=False)
    assert jax.tree.map(jnp.shape, ours.params) == jax.tree.map(jnp.shape, theirs.params)
    assert (ours.losses, ours.status) == (None, "done")
    loc = private.get_params(ours.state)["loc"]
    np.testing.assert_allclose(ours.params["loc"], loc, rtol=1e-6)
    promise = private.guarantee(ours.state)
    assert (promise.epsilon, promise.delta, promise.steps, promise.steps_taken) == (
        1.0,
        1e-3,
        20,
        20,
    )
    assert promise.secure_randomness


def test_run_takes_the_steps_of_update():
    records = zoo.normal_mean_data(NUM_RECORDS)
    privacy = PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)
    trainer = DPVI(zoo.normal_mean, zoo.normal_mean_guide, Adam(0.05), privacy=privacy)
    run_params = trainer.run(key_from_seed(0), 7, *records, progress_bar=False).params
    for name, value in after(7, trainer, records=records).items():
        np.testing.assert_allclose(run_params[name], value, rtol=1e-4, atol=1e-6)


def test_a_run_goes_on_from_a_state_and_not_beyond_its_plan():
    records = zoo.normal_mean_data(NUM_RECORDS)
    trainer = with_target(iterations=12, model=zoo.normal_mean, guide=zoo.normal_mean_guide)
    first = trainer.run(new_key(), 5, *records, progress_bar=False)
    assert trainer.guarantee(first.state).steps_taken == 5
    second = trainer.run(new_key(), 7, *records, progress_bar=False, init_state=first.state)
    assert int(second.state.step) == 12
    with pytest.raises(ArgumentError, match=r"^num_steps=1:"):
        trainer.run(new_key(), 1, *records, init_state=second.state)
    beyond, _ = compiled(trainer)(second.state, *records)
    with pytest.raises(ArgumentError, match=r"^state=13:"):
        trainer.guarantee(beyond)


@pytest.mark.thorough
def test_another_runs_guarantee_is_kept_again():
    trainer = with_target(iterations=9)
    state = trainer.init(new_key(), *RECORDS)
    promise = trainer.guarantee(state)
    again = DPVI(zoo.logistic, zoo.logistic_guide, Adam(0.05), privacy=promise)
    other = again.guarantee(again.init(new_key(), *RECORDS))
    for name in ("epsilon", "delta", "sampling_rate", "clip", "steps", "relation"):
        assert getattr(other, name) == getattr(promise, name)
    assert other.noise_multiplier == promise.noise_multiplier


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["without_replacement", "shuffle"])
def test_other_samplers_are_asked_for_by_name(sampler):
    """Every step sees exactly q N records; under shuffle all of an epoch's are different."""
    trainer = with_target(iterations=10, sampler=sampler)
    state = trainer.init(new_key(), *RECORDS)
    promise = trainer.guarantee(state)
    assert (promise.sampler, promise.relation) == (sampler, "replace_one")
    epoch = [
        trainer.draw(state.key, jnp.int32(step)).minibatch
        for step in range(NUM_RECORDS // trainer.private_step.sampler.batch_size)
    ]
    assert all(bool(jnp.all(minibatch.mask)) for minibatch in epoch)
    seen = np.concatenate([minibatch.indices for minibatch in epoch])
    if sampler == "shuffle":
        assert sorted(seen) == list(range(NUM_RECORDS))
    state, _ = jax.jit(trainer.update)(state, *RECORDS)
    assert np.all(np.isfinite(trainer.get_params(state)["weights_loc"]))


def test_the_guarantee_says_when_somebody_may_know_the_key():
    trainer = with_target(iterations=3)
    promise = trainer.guarantee(trainer.init(key_from_seed(1), *RECORDS))
    assert not promise.secure_randomness
    assert any("predict the noise" in caveat for caveat in promise.caveats)


def test_without_a_plan_there_is_no_guarantee():
    trainer = logistic()
    with pytest.raises(ArgumentError, match="was given without accounting"):
        trainer.guarantee(trainer.init(key_from_seed(1), *RECORDS))


def test_an_unknown_sampler_is_named():
    with pytest.raises(ArgumentError, match=r"^sampler='bernoulli'"):
        with_target(iterations=3, sampler="bernoulli").init(new_key(), *RECORDS)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"epsilon": None}, "epsilon"),
        ({"sampling_rate": None}, "sampling_rate"),
        ({"privacy": (PoissonSampler(60, 0.1, 60), GaussianMechanism(1.0, 1.0))}, "epsilon"),
        ({"sampler": PoissonSampler(60, 0.1, 60)}, "sampler"),
        ({"microbatch_size": 0}, "microbatch_size"),
        ({"strategy": "ghost"}, "strategy"),
        ({"clipping": "ghost"}, "clipping"),
        ({"strategy": "two_pass"}, "strategy"),
        ({"average_from": -1}, "average_from"),
        ({"optim": Minimize()}, "optim"),
        ({"optim": "adam"}, "optim"),
    ],
)
def test_unusable_targets_and_options_are_named(options, argument):
    with pytest.raises(ArgumentError, match=f"^{argument}="):
        with_target(**options)


@pytest.mark.thorough
def test_evaluate_says_what_its_loss_may_be_used_for():
    """And it is numpyro's loss: the mean over many draws agrees within five standard errors."""
    x, y = (jnp.asarray(array) for array in RECORDS)
    trainer = logistic()
    state = trainer.init(key_from_seed(0), x, y)
    ours = trainer.evaluate(state, x, y, num_draws=2000)
    assert ours.label == "outside the guarantee"
    assert trainer.evaluate(state, x, y, public=True).label == "public data"
    svi = SVI(zoo.logistic, zoo.logistic_guide, SGD(1.0), Trace_ELBO(num_particles=2000))
    theirs = svi.evaluate(
        svi.init(jax.random.key(0), x, y, num_records=NUM_RECORDS), x, y, num_records=NUM_RECORDS
    )
    assert float(ours) == pytest.approx(float(theirs), abs=0.5)


@pytest.mark.parametrize("name", ["y", "weights"])
def test_record_arrays_among_the_constants_are_refused(name):
    """Every record would see all of them. By keyword of ``init`` they are records."""
    x, y = RECORDS
    with pytest.raises(ArgumentError, match=f"^{name}="):
        with_target(iterations=3, **{name: y}).init(new_key(), x)


@pytest.mark.thorough
def test_initial_values_can_be_given():
    trainer = logistic()
    start = trainer.init(
        key_from_seed(0), *RECORDS, init_params={"weights_scale": jnp.full(3, 0.7)}
    )
    np.testing.assert_allclose(
        trainer.get_params(start)["weights_scale"], np.full(3, 0.7), rtol=1e-6
    )
    with pytest.raises(ArgumentError, match=r"^init_params="):
        trainer.init(key_from_seed(0), *RECORDS, init_params={"weight_scale": jnp.ones(3)})


# --- schedules, averages, parts -------------------------------------------------------------------


def test_a_clip_schedule_gives_one_number():
    """Several would clip by record and scale the noise by coordinate."""
    with pytest.raises(ArgumentError, match=r"^clip_schedule=\(4,\): must return one number"):
        after(1, logistic(clip_schedule=lambda step: jnp.full(4, 0.5)))


@pytest.mark.thorough
def test_a_learning_rate_schedule_of_the_step_is_followed():
    frozen = logistic(optim=optax.sgd(lambda step: jnp.where(step < 2, 0.0, 0.1)))
    start = frozen.get_params(frozen.init(key_from_seed(0), *RECORDS))
    assert_same(after(2, frozen), start)
    assert np.all(after(3, frozen)["weights_loc"] != start["weights_loc"])


@pytest.mark.thorough
def test_the_average_is_the_mean_of_the_unconstrained_iterates():
    trainer = logistic(average_from=2)
    state = trainer.init(key_from_seed(0), *RECORDS)
    iterates = []
    for _ in range(5):
        state, _ = compiled(trainer)(state, *RECORDS)
        iterates.append(trainer.private_step.unconstrained(state))
    expected = jax.tree.map(lambda *values: np.mean(values, axis=0), *iterates[2:])
    averaged = trainer.private_step.unconstrained(state, averaged=True)
    for name, value in expected.items():
        np.testing.assert_allclose(averaged[name], value, rtol=1e-5)
    assert_same(trainer.private_step.unconstrained(state), iterates[-1])


@pytest.mark.thorough
def test_before_the_average_begins_it_is_the_last_iterate():
    trainer = logistic(average_from=10)
    state, _ = compiled(trainer)(trainer.init(key_from_seed(0), *RECORDS), *RECORDS)
    assert_same(trainer.get_params(state, averaged=True), trainer.get_params(state))


def test_no_average_is_claimed_where_none_was_kept():
    with pytest.raises(ArgumentError, match=r"^averaged="):
        USUAL.get_params(USUAL.init(key_from_seed(0), *RECORDS), averaged=True)


@pytest.mark.parametrize("clipping", ["automatic", "per_leaf"])
def test_the_way_of_clipping_is_that_of_plan_and_promise(clipping):
    trainer = with_target(iterations=3, clipping=clipping)
    state = trainer.init(new_key(), *RECORDS)
    promise = trainer.guarantee(state)
    assert (trainer.private_step.mechanism.clipping, promise.clipping) == (clipping, clipping)
    again = DPVI(zoo.logistic, zoo.logistic_guide, Adam(0.05), privacy=promise)
    assert again.guarantee(again.init(new_key(), *RECORDS)).clipping == clipping
    assert promise.noise_multiplier == with_target_noise("flat")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("delta", 1e-5),
        ("iterations", 10),
        ("sampling_rate", 0.1),
        ("clip", 2.0),
        ("clipping", "automatic"),
    ],
)
def test_what_a_mechanism_decides_is_refused_beside_it(argument, value):
    """Ignored, the run would not be what its caller reads in the call."""
    privacy = PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(0.5, 1.0)
    with pytest.raises(
        ArgumentError, match=rf"^{argument}={value!r}: cannot be given together with privacy="
    ):
        DPVI(zoo.logistic, zoo.logistic_guide, SGD(0.05), privacy=privacy, **{argument: value})


def test_rules_are_refused_where_they_do_nothing():
    for strategy in ("vmap", "loop"):
        with pytest.raises(ArgumentError, match=r"^rules=.*not to strategy '(vmap|loop)'"):
            logistic(rules={"['weights']": "instantiated"}, strategy=strategy)
    with pytest.raises(ArgumentError, match=r"^rules='ghost': unknown name"):
        logistic(rules={"['weights']": "ghost"})


@functools.cache
def with_target_noise(clipping):
    """sigma that the same target asks for: all ways of clipping have the same sensitivity."""
    trainer = with_target(iterations=3, clipping=clipping)
    trainer.init(new_key(), *RECORDS)
    return trainer.private_step.mechanism.noise_multiplier


@pytest.mark.thorough
@pytest.mark.parametrize("rule", some_of(["instantiated", "materialised"]))
def test_rules_of_book_keeping_change_no_step(rule):
    for name, value in after(2, logistic(rules={"['weights']": rule})).items():
        np.testing.assert_allclose(value, after(2)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("optim", [Adam(0.05), optax.adam(0.05)], ids=["numpyro", "optax"])
def test_small_models_update_as_leaf_by_leaf(optim):
    """numpyro's optimisers see one vector, optax's a tree: Adam is the same."""
    for name, value in after(4, logistic(optim=optim)).items():
        np.testing.assert_allclose(value, after(4)[name], rtol=1e-4, atol=1e-6)


# --- other records than those of init -------------------------------------------------------------


def others():
    """RECORDS with something changed, ``{what: arrays}``."""
    x, y = (jnp.asarray(array) for array in RECORDS)
    return {
        "a minibatch": (x[:12], y[:12]),
        "one less": (x[:-1], y[:-1]),
        "one more": (jnp.concatenate([x, x[:1]]), jnp.concatenate([y, y[:1]])),
        "arrays that differ": (x, y[:-1]),
        "other features": (x[:, :2], y),
        "another type": (x.astype(jnp.float16), y),
        "one array": (x,),
        "none": (),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("what", some_of(list(others()), 8))
def test_other_records_than_init_saw_are_refused_while_the_step_is_traced(what):
    """JAX would read places beyond the end as the last record, which moved the parameters 443 times
    as far as 2 C allows.
    """
    state = USUAL.init(key_from_seed(0), *RECORDS)
    calls = {
        "update": lambda: jax.jit(USUAL.update).lower(state, *others()[what]),
        "step": lambda: USUAL.step(state, others()[what], USUAL.draw(state.key, state.step)),
        "run": lambda: USUAL.run(
            key_from_seed(0), 1, *others()[what], init_state=state, progress_bar=False
        ),
        "training.run": lambda: next(run_of(USUAL, state, others()[what], 1)),
        "compile_ahead": lambda: compile_ahead(
            USUAL.private_step, USUAL.hyper, state, others()[what], 1
        ),
    }
    for call in calls.values():
        with pytest.raises(ArgumentError, match=r"^records="):
            call()


@pytest.mark.thorough
def test_who_gives_update_a_minibatch_reads_what_to_give_instead():
    x, y = RECORDS
    with pytest.raises(ArgumentError) as refusal:
        USUAL.update(USUAL.init(key_from_seed(0), x, y), x[:12], y[:12])
    assert str(refusal.value) == (
        "records=12: init was given 60 records; pass the same whole arrays, not a minibatch "
        "(each step draws its own)."
    )


def test_records_are_the_same_in_whatever_width_they_were_written():
    """JAX itself takes float64 for float32."""
    x, y = RECORDS
    state = USUAL.init(key_from_seed(0), x.astype(np.float32), y)
    jax.eval_shape(USUAL.update, state, x.astype(np.float64), y)


@pytest.mark.thorough
def test_evaluate_takes_other_records_of_the_same_shape():
    x, y = (jnp.asarray(array) for array in RECORDS)
    state = USUAL.init(key_from_seed(0), x, y)
    assert np.isfinite(float(USUAL.evaluate(state, x[:12], y[:12])))
    for bad in ((x[:12], y), (x[:, :2], y), (x,)):
        with pytest.raises(ArgumentError, match=r"^records="):
            USUAL.evaluate(state, *bad)


@pytest.mark.thorough
def test_lanes_take_a_number_of_each_kind_for_every_lane():
    """Places beyond the end would be read as the last lane's: another fit's records, clip
    or noise.
    """
    x, y = (jnp.asarray(array) for array in RECORDS)
    state = USUAL.init(key_from_seed(0), x, y)
    step, hyper = USUAL.private_step, USUAL.hyper
    states = starting_states(step, [state.key, key_from_seed(1)], stacked([hyper] * 2))
    program = BatchedProgram(step, 2, shared=False, devices=jax.devices()[:1])
    records, both = stacked([(x, y)] * 2), stacked([hyper] * 2)
    many = stacked([hyper] * 9)
    wrong = [
        (states, stacked([(x, y)]), both, "records"),
        (states, records, stacked([hyper]), "hyper"),
        (states, stacked([(x[:12], y[:12])] * 2), both, "records"),
        (starting_states(step, [state.key] * 9, many), stacked([(x, y)] * 9), many, "state"),
    ]
    for begun, arrays, given, argument in wrong:
        with pytest.raises(ArgumentError, match=f"^{argument}="):
            program.run(begun, arrays, given, 1)
