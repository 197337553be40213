import dataclasses
import math
import types
from concurrent.futures import Future
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.optim import SGD, Adam

from tests import zoo
from workbench import _compiler
from workbench._compiler import compiler_options
from workbench.inference import DPVI, Snapshot, compiling, run, training
from workbench.inference.compiling import Compiling
from workbench.inference.recent_mean import RecentMean
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import PoissonSampler

NUM_RECORDS = 60
RECORDS = zoo.normal_mean_data(NUM_RECORDS)


def trainer(optim=None):
    return DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        optim or Adam(0.05),
        privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
    )


def run_of(dpvi, state, records, steps, **options):
    return run(dpvi.private_step, dpvi.hyper, state, records, steps, **options)


def test_options_that_this_jaxlib_does_not_know_are_left_out(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    unknown, level = ("xla_of_another_version", 1), ("xla_backend_optimization_level", 1)
    assert _compiler._known((unknown,)) == ()
    assert _compiler._known((unknown, level)) == (level,)
    for calls in (1, math.inf):
        assert compiler_options("cpu", 5, calls=calls)["xla_backend_optimization_level"] == 1
    monkeypatch.setattr(
        _compiler, "_known", lambda options: tuple(each for each in options if each != level)
    )
    assert set(compiler_options("cpu", 5)) == {"xla_cpu_experimental_ynn_fusion_type"}


def test_few_steps_are_not_worth_an_optimised_program(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    sampler = PoissonSampler(5000, 0.1, 1000)
    step = types.SimpleNamespace(noise_size=10, sampler=sampler)

    def level(calls, platform="cpu"):
        options = compiling._options(step, calls, platform)
        return options.get("xla_backend_optimization_level")

    assert (level(1300), level(130_000), level(1300, "gpu")) == (0, 1, None)
    step.sampler = PoissonSampler(50_000, 0.02, 2000)
    assert level(1300) == 1


def snapshots_of(steps, dpvi=None, records=RECORDS, **options):
    dpvi = dpvi or trainer()
    return list(run_of(dpvi, dpvi.init(key_from_seed(0), *records), records, steps, **options))


def assert_same_params(left, right, **tolerance):
    assert set(left) == set(right)
    for name, value in left.items():
        np.testing.assert_allclose(right[name], value, err_msg=name, **tolerance)


def instead_of_chunks(monkeypatch, error, compiles=True):
    """Chunks take seconds to compile; these fail when they are called, or when they
    are compiled.
    """

    def failing(*arguments):
        raise error

    lowered = types.SimpleNamespace(compile=(lambda: failing) if compiles else failing)
    monkeypatch.setattr(compiling, "lower", lambda *arguments: lowered)


@pytest.fixture
def without_chunk(monkeypatch):
    """For runs that take no step."""
    instead_of_chunks(monkeypatch, AssertionError("a step was taken"))


@pytest.fixture
def one_evaluation(monkeypatch):
    """Evaluation ends a chunk, and short runs would be evaluated at each step."""
    monkeypatch.setattr(compiling, "_LEAST_STOPS", 1)
    monkeypatch.setattr(training, "_EVALUATION_SECONDS", math.inf)


STEPS = 48


@pytest.fixture(scope="module")
def usual():
    """Snapshots of a run of 48 steps in chunks of 10 and 38."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "_LEAST_STOPS", 1)
        patch.setattr(training, "_CHUNK_SECONDS", 60.0)
        return snapshots_of(STEPS, epsilon_at=lambda step: step / 10)


@pytest.fixture(scope="module")
def looped():
    """(trainer, state after 10 steps) by a loop of ``update``."""
    dpvi = trainer()
    state = dpvi.init(key_from_seed(0), *RECORDS)
    update = jax.jit(dpvi.update)
    for _ in range(10):
        state, _ = update(state, *RECORDS)
    return dpvi, state


@pytest.mark.thorough
def test_snapshots_lead_from_zero_to_the_last_step(usual):
    assert [(snapshot.step, snapshot.status) for snapshot in usual] == [
        (0, "running"),
        (10, "running"),
        (STEPS, "done"),
    ]


@pytest.mark.thorough
def test_the_first_snapshot_holds_the_starting_values(usual, looped):
    dpvi, *_ = looped
    start = dpvi.get_params(dpvi.init(key_from_seed(0), *RECORDS))
    assert_same_params(start, usual[0].params, rtol=1e-6)
    assert usual[0].seconds_per_step is None


@pytest.mark.thorough
def test_params_of_each_snapshot_are_numpy_arrays_of_their_own(usual):
    """Buffers are donated to the next chunk: what a snapshot holds must survive that."""
    assert all(
        type(value) is np.ndarray for snapshot in usual for value in snapshot.params.values()
    )
    for earlier, later in pairwise(usual):
        assert earlier.params["loc"] != later.params["loc"]


def test_times_are_told(usual):
    assert all(earlier.seconds <= later.seconds for earlier, later in pairwise(usual))
    assert usual[-1].seconds_per_step > 0


def test_epsilon_follows_the_steps(usual):
    assert [snapshot.epsilon_so_far for snapshot in usual] == [
        snapshot.step / 10 for snapshot in usual
    ]


def test_snapshots_have_no_place_for_a_minibatch_loss(usual):
    names = {field.name for field in dataclasses.fields(Snapshot)}
    released_or_clock = {
        "status",
        "step",
        "params",
        "message",
        "details",
        "seconds",
        "seconds_per_step",
        "compile_seconds",
    }
    from_the_caller = {"epsilon_so_far", "metrics", "metrics_step"}
    assert names == released_or_clock | from_the_caller
    assert all(snapshot.metrics == {} for snapshot in usual)


def test_a_run_continues_where_a_state_stands_and_leaves_it_alone(usual, looped):
    dpvi, at_10 = looped
    snapshots = list(run_of(dpvi, at_10, RECORDS, STEPS))
    assert snapshots[0].step == 10
    assert_same_params(usual[-1].params, snapshots[-1].params, rtol=1e-4, atol=1e-6)
    assert int(at_10.step) == 10
    assert_same_params(dpvi.get_params(at_10), snapshots[0].params, rtol=1e-6)


@pytest.mark.thorough
def test_how_many_draws_are_made_ahead_changes_no_result(usual, one_evaluation, monkeypatch):
    monkeypatch.setattr(compiling, "_STEPS_AHEAD", ((1, 7),))
    dpvi = trainer()
    snapshots = snapshots_of(STEPS, dpvi)
    assert compiling._steps_ahead(dpvi.private_step, 49, 1) == 7
    assert_same_params(usual[-1].params, snapshots[-1].params, rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_how_many_steps_make_a_chunk_changes_no_result(usual, one_evaluation, monkeypatch):
    monkeypatch.setattr(training, "_FIRST_CHUNK_STEPS", 4)
    monkeypatch.setattr(training, "_CHUNK_SECONDS", 1e-9)
    snapshots = snapshots_of(STEPS)
    assert [snapshot.step for snapshot in snapshots] == [0, *range(4, STEPS + 1)]
    assert_same_params(usual[-1].params, snapshots[-1].params, rtol=0)


def test_many_draws_are_made_ahead_for_small_models_and_one_step_of_them_for_large_ones(
    looped, monkeypatch
):
    dpvi, *_ = looped
    step = dpvi.private_step
    for steps, ahead in ((10, 1), (100, 4), (400, 16), (12_000, 16), (1_000_000, 128)):
        interval = compiling.interval_of(steps)
        assert compiling._steps_ahead(step, interval, 1) == ahead
        assert interval % ahead == 0  # nothing is drawn in vain
    words = step.mechanism.words_for(step.noise_size) + step.sampler.words + 2
    monkeypatch.setattr(compiling, "_WORDS_AHEAD", 10 * words)
    assert compiling._steps_ahead(step, 16, 1) == 8  # nor where memory has room for ten
    monkeypatch.setattr(compiling, "_WORDS_AHEAD", 100)
    assert compiling._steps_ahead(step, 1000, 1) == 1


def test_no_steps_are_done_at_once(without_chunk):
    assert [(snapshot.step, snapshot.status) for snapshot in snapshots_of(0)] == [
        (0, "running"),
        (0, "done"),
    ]


def test_without_an_accountant_no_epsilon_is_claimed(without_chunk):
    assert snapshots_of(0)[-1].epsilon_so_far is None


def test_a_stop_before_the_first_chunk_takes_no_step(without_chunk):
    last = snapshots_of(50, stop=lambda: True)[-1]
    assert (last.status, last.step) == ("cancelled", 0)


def test_a_stop_does_not_wait_for_the_compiler():
    dpvi, never = trainer(), Future()
    state = dpvi.init(key_from_seed(0), *RECORDS)
    asked = []

    def stop():
        return asked.append(0) or len(asked) > 2

    run = run_of(dpvi, state, RECORDS, 50, stop=stop, compiled=Compiling(never, never))
    last = list(run)[-1]
    assert (last.status, last.step) == ("cancelled", 0)


def test_interrupt_from_the_keyboard_ends_cancelled(without_chunk):
    def stop():
        raise KeyboardInterrupt

    last = snapshots_of(50, stop=stop)[-1]
    assert (last.status, last.message) == ("cancelled", "interrupted")


def test_evaluation_sees_unconstrained_params(without_chunk):
    seen = []
    snapshots_of(0, evaluate=lambda params: seen.append(params) or {})
    assert float(seen[0]["scale"]) == pytest.approx(math.log(0.5), rel=1e-5)


def test_a_stop_between_chunks_ends_cancelled_with_what_was_reached(usual, one_evaluation):
    """The first chunk has ten steps; the end is evaluated once more, though it is off the grid."""
    dpvi = trainer()
    snapshots = []

    def stop():
        return snapshots[-1].step > 0

    def evaluate(params):
        return {"loc": float(params["loc"])}

    state = dpvi.init(key_from_seed(0), *RECORDS)
    for snapshot in run_of(dpvi, state, RECORDS, 1_000_000, stop=stop, evaluate=evaluate):
        snapshots.append(snapshot)
    last = snapshots[-1]
    assert [snapshot.status for snapshot in snapshots] == ["running", "running", "cancelled"]
    assert (last.step, last.message, last.metrics_step) == (10, "", 10)
    assert snapshots[-2].metrics_step == 0
    assert last.metrics["loc"] == pytest.approx(float(last.params["loc"]))
    assert_same_params(usual[1].params, last.params, rtol=1e-5, atol=1e-7)


def test_params_that_leave_the_finite_numbers_end_failed_with_the_last_good_ones(one_evaluation):
    snapshots = snapshots_of(50, trainer(SGD(1e38)))
    last = snapshots[-1]
    assert (last.status, last.step) == ("failed", 10)
    assert "no longer finite after step 10" in last.message
    assert "smaller learning rate" in last.message
    assert_same_params(snapshots[0].params, last.params, rtol=0)
    assert all(np.all(np.isfinite(value)) for value in last.params.values())


@pytest.mark.parametrize(
    "error",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory"),
        MemoryError("no more"),
        FloatingPointError("nan"),
    ],
)
def test_an_error_of_jax_ends_failed_and_counts_the_chunk(error, monkeypatch):
    """The chunk may have released something before it broke, so its steps count as taken."""
    instead_of_chunks(monkeypatch, error)
    first, last = snapshots_of(50, epsilon_at=float)
    assert last.status == "failed"
    assert last.message == f"{type(error).__name__}: {error}"
    assert last.step > 0
    assert last.epsilon_so_far == last.step
    assert_same_params(first.params, last.params, rtol=0)


def test_an_error_while_compiling_ends_failed_without_a_step(monkeypatch):
    instead_of_chunks(monkeypatch, jax.errors.JaxRuntimeError("too large"), compiles=False)
    last = snapshots_of(50)[-1]
    assert (last.status, last.step, last.message) == ("failed", 0, "JaxRuntimeError: too large")


def test_a_mistake_in_the_program_is_not_hidden(monkeypatch):
    instead_of_chunks(monkeypatch, KeyError("typo"))
    with pytest.raises(KeyError, match="typo"):
        snapshots_of(50)


def test_evaluation_happens_on_its_grid_and_snapshots_keep_their_values(monkeypatch):
    monkeypatch.setattr(compiling, "_LEAST_STOPS", 4)
    monkeypatch.setattr(training, "_EVALUATION_SECONDS", math.inf)
    metrics = {"count": 0.0}

    def evaluate(params):
        metrics["count"] += 1
        return metrics

    snapshots = snapshots_of(38, evaluate=evaluate)
    assert metrics == {"count": 6.0}
    grid = {0: 1.0, 8: 2.0, 16: 3.0, 24: 4.0, 32: 5.0, 38: 6.0}
    assert {snapshot.metrics_step: snapshot.metrics["count"] for snapshot in snapshots} == grid
    assert all(snapshot.metrics_step <= snapshot.step for snapshot in snapshots)


@pytest.mark.thorough
def test_metrics_that_cannot_be_computed_do_not_lose_the_run(one_evaluation):
    """Epsilon is spent by then: the run ends as planned and says what went wrong."""
    calls = []

    def evaluate(params):
        calls.append(params)
        if len(calls) > 1:
            raise ZeroDivisionError("no positive labels")
        return {"elbo": -1.0}

    last = snapshots_of(12, evaluate=evaluate)[-1]
    assert (last.status, last.step, last.metrics) == ("done", 12, {"elbo": -1.0})
    assert "ZeroDivisionError: no positive labels" in last.message
    assert len(calls) == 2


def test_evaluation_is_never_long_overdue(one_evaluation, monkeypatch):
    monkeypatch.setattr(training, "_EVALUATION_SECONDS", 0.0)
    snapshots = snapshots_of(30, evaluate=lambda params: {})
    assert [snapshot.metrics_step for snapshot in snapshots] == [
        snapshot.step for snapshot in snapshots
    ]
    assert len(snapshots) > 2


def test_records_reach_snapshots_through_the_released_sum_alone(one_evaluation, monkeypatch):
    """With the sum put out of action a whole run shows the same for records of any value, losses
    included.
    """

    def only_noise(total, noise):
        return adding(total._replace(units=jax.tree.map(jnp.zeros_like, total.units)), noise)

    adding = GaussianMechanism.add
    monkeypatch.setattr(GaussianMechanism, "add", staticmethod(only_noise))
    others = (jnp.full(NUM_RECORDS, math.nan),)
    shown = [snapshots_of(20, records=records)[-1] for records in (RECORDS, others)]
    assert_same_params(shown[0].params, shown[1].params, rtol=0)
    assert (shown[0].status, shown[0].step, shown[0].message) == (
        shown[1].status,
        shown[1].step,
        shown[1].message,
    )


# --- convolutions ---------------------------------------------------------------------------------


def convolved(image, num_records=None, wide=True):
    """A mean seen through a convolution, or through products that say the same."""
    kernel = numpyro.sample("kernel", dist.Normal(0, 1).expand([3]).to_event(1))
    if wide:
        seen = jax.lax.conv_general_dilated(image[:, None], kernel[None, None], (1,), "VALID")[:, 0]
    else:
        seen = sum(
            image[:, place : image.shape[1] - 2 + place] * kernel[place] for place in range(3)
        )
    with numpyro.plate("records", num_records, subsample_size=len(image)):
        numpyro.sample("y", dist.Normal(seen.mean(-1), 1), obs=image[:, 0])


def convolved_guide(image, num_records=None, wide=True):
    loc = numpyro.param("loc", jnp.zeros(3))
    numpyro.sample("kernel", dist.Normal(loc, 0.1).to_event(1))


@pytest.mark.thorough
def test_convolutions_are_stepped_outside_of_a_loop_and_take_the_same_steps():
    images = np.random.default_rng(0).normal(size=(NUM_RECORDS, 6)).astype(np.float32)
    ends, kinds = [], []
    for wide in (True, False):
        dpvi = DPVI(
            convolved,
            convolved_guide,
            Adam(0.05),
            privacy=(PoissonSampler(NUM_RECORDS, 0.2, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
            wide=wide,
        )
        state = dpvi.init(key_from_seed(0), images)
        kinds.append(
            not compiling.lower(
                dpvi.private_step, dpvi.hyper, state, (jnp.asarray(images),), 5
            ).is_single
        )
        ends.append(snapshots_of(25, dpvi, (images,))[-1])
    assert kinds == [False, True]
    assert [end.step for end in ends] == [25, 25]
    assert_same_params(ends[0].params, ends[1].params, rtol=1e-4)


def test_evaluations_of_an_averaging_run_are_of_about_the_last_half_of_the_iterates():
    """Single iterates made curves fall in the middle of a fit that went well. The last evaluation
    is of what the run returns.
    """
    steps, half = 60, 30
    rng = np.random.default_rng(0)
    noise = rng.normal(size=steps + 1)  # of iterates around 1, after a start at -9
    iterates = [{"mean": jnp.float32(1 + noise[t] - 10 * (t == 0))} for t in range(steps + 1)]
    recent, evaluated = RecentMean(half), []
    for step, iterate in enumerate(iterates):
        recent.follow(iterate, step, min(step, 1))
        average = (
            iterate["mean"]
            if step <= half
            else np.mean([past["mean"] for past in iterates[half + 1 : step + 1]])
        )
        evaluated.append(float(recent.at(step, {"mean": jnp.float32(average)})["mean"]))
    values = np.array([float(iterate["mean"]) for iterate in iterates])
    assert evaluated[0] == values[0]
    assert evaluated[-1] == pytest.approx(values[half + 1 :].mean())
    assert np.std(evaluated[10:]) < 0.4 * np.std(values[10:])
    assert np.abs(np.diff(evaluated[half:])).max() < 0.2  # no jump where the average begins
    assert RecentMean(0).at(5, "the average") == "the average"  # of a resumed run


@pytest.mark.parametrize("stops", [False, True])
def test_the_last_evaluation_is_of_what_an_averaging_run_returns(stops):
    steps, evaluated, asked = 40, [], []
    dpvi = DPVI(
        zoo.normal_mean,
        zoo.normal_mean_guide,
        Adam(0.05),
        average_from=20,
        privacy=(PoissonSampler(NUM_RECORDS, 1.0, NUM_RECORDS), GaussianMechanism(1.0, 1.0)),
    )

    def evaluate(params):
        evaluated.append(params)
        return {"elbo": 0.0}

    records = zoo.normal_mean_data(NUM_RECORDS)
    last = snapshots_of(
        steps,
        dpvi,
        records,
        averaged=True,
        evaluate=evaluate,
        stop=lambda: bool(asked.append(0)) or (stops and len(asked) > 3),
    )[-1]
    assert last.status == ("cancelled" if stops else "done")
    assert_same_params(dpvi.private_step.model.constrain(evaluated[-1]), last.params, rtol=1e-6)
