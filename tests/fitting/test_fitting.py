"""A fit from its settings to its result: what is refused, what is promised, what may be shown."""

import dataclasses
import gc
import math
import re
import weakref
from concurrent.futures import Future

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.fitting import prepared as prepared_fits
from workbench.fitting.fits import DeltaWarning
from workbench.fitting.groups import grouped
from workbench.inference import compiling, program_cache
from workbench.models import registry
from workbench.privacy import second_opinion
from workbench.privacy.plan import default_delta


def prepare(**changes):
    """A fit of the model that ``done`` has checked."""
    with pytest.MonkeyPatch.context() as patch:
        fakes.split_once(patch)
        return fits.prepare(
            **grouped({"model": "logistic", "data": "breast_cancer", "epsilon": 1.0, **changes})
        )


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("epsilon", None),
        ("epsilon", 1e300),
        ("iterations", 2**31),
        ("draws", 1),
        ("batch_size", 700),
        ("relation", "replace_one"),
        ("model", "logistik"),
        ("model", 3),
        ("data", "brest_cancer"),
        ("device", "abacus"),
        ("device", "cpu:99"),
        ("device", "cpu:x"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named_with_its_value(argument, value):
    with pytest.raises(ArgumentError) as caught:
        prepare(**{argument: value})
    assert caught.value.argument == argument
    assert f"{argument}={value!r}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_data_that_are_no_data_set_are_named_by_their_type():
    with pytest.raises(ArgumentError, match=r"^data='ndarray': "):
        prepare(data=np.zeros((3, 2)))


def test_learning_rate_belongs_to_the_optimizer_that_was_given():
    import optax

    with pytest.raises(ArgumentError, match=r"^learning_rate=0\.1: "):
        prepare(optimizer=optax.sgd(0.1), learning_rate=0.1)


def test_fit_refuses_as_prepare_does():
    with pytest.raises(ArgumentError, match=r"^epsilon=-1: "):
        wb.fit("logistic", "breast_cancer", epsilon=-1)


@pytest.mark.parametrize(
    "records",
    [2, 3, 9, 10, 11, 99, 100, 101, 458, 569, 999, 1000, 1001, 32561, 10**5, 10**6, 10**9],
)
def test_default_delta_is_the_largest_power_of_ten_below_one_over_n(records):
    delta = default_delta(records)
    assert delta < 1 / records
    assert 10 * delta >= (1 / records) * (1 - 1e-12)
    assert math.log10(delta) == pytest.approx(round(math.log10(delta)), abs=1e-12)


@pytest.mark.parametrize("delta", [1 / 458, 0.5])
def test_a_delta_that_is_not_below_one_over_n_is_a_caution(delta):
    prepared = prepare(delta=delta)
    (caution,) = prepared.cautions
    assert f"delta={delta:g} is not below 1/N = 0.00218 for N = 458" in caution
    assert "0.001 is a usual choice" in caution
    assert prepared.privacy.delta == delta


def test_a_caution_compares_delta_with_the_declared_number_of_records():
    assert prepare(delta=1e-3).cautions == ()
    assert "N = 10000 records" in prepare(delta=1e-3, num_records=10_000).cautions[0]


def test_more_records_than_declared_are_refused_before_anything_is_spent(
    private_data, monkeypatch, tmp_path
):
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path))
    for model, options in (("logistic", {}), ("logistic", {"estimator": "vanilla"})):
        with pytest.raises(ArgumentError, match="upper bound") as refused:
            wb.fit(
                model,
                private_data,
                epsilon=1.0,
                **grouped(num_records=private_data.num_train - 1, **options),
            )
        assert refused.value.argument == "num_records"
        assert str(private_data.num_train) not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_caution_is_a_warning_of_fit(monkeypatch):
    monkeypatch.setattr(fits.PreparedFit, "run", lambda *_: iter(()))
    monkeypatch.setattr(fits.PreparedFit, "result", lambda _: None)
    with pytest.warns(DeltaWarning, match="is not below 1/N") as caught:
        wb.fit("logistic", "breast_cancer", epsilon=1.0, delta=0.1)
    assert caught[0].filename == __file__


def test_delta_is_below_one_over_n_by_default():
    assert prepare().privacy.delta == 1e-3
    assert prepare().cautions == ()


def test_planned_epsilon_and_delta_are_promised(done):
    assert (done.guarantee.epsilon, done.guarantee.delta) == (1.0, 1e-3)
    assert done.guarantee.relation == "add_or_remove_one"
    assert done.guarantee.unit == "tumour"
    assert done.guarantee.num_records == 458


def test_noise_of_a_result_keeps_the_promised_epsilon(done):
    guarantee = done.guarantee
    plan = {
        "sampler": guarantee.sampler,
        "sampling_rate": guarantee.sampling_rate,
        "steps": guarantee.steps,
    }
    left = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    assert (
        wb.privacy.epsilon(**plan, noise_multiplier=guarantee.noise_multiplier, delta=left)
        <= guarantee.epsilon
    )


def test_noise_of_a_result_is_no_larger_than_it_must_be(done):
    guarantee = done.guarantee
    plan = {
        "sampler": guarantee.sampler,
        "sampling_rate": guarantee.sampling_rate,
        "steps": guarantee.steps,
    }
    less_noise = 0.98 * guarantee.noise_multiplier
    assert (
        wb.privacy.epsilon(**plan, noise_multiplier=less_noise, delta=guarantee.delta)
        > guarantee.epsilon
    )


def test_implementation_takes_a_small_share_of_delta(done):
    guarantee = done.guarantee
    assert 0 < guarantee.overflow_delta <= 1e-3 * guarantee.delta
    assert 0 < guarantee.noise_delta <= 1e-3 * guarantee.delta


def test_a_whole_run_takes_all_steps_and_no_more_than_epsilon(done):
    assert done.status == "done"
    assert done.guarantee.steps_taken == done.guarantee.steps == 300
    assert 0.95 < done.guarantee.epsilon_taken <= 1.0


def test_a_stopped_run_is_cancelled_with_what_it_has(cancelled):
    assert cancelled.status == "cancelled"
    assert 100 <= cancelled.guarantee.steps_taken < 300
    assert np.any(cancelled.params["weights_loc"] != 0)
    assert cancelled.draws["weights"].shape == (1000, 30)


def test_a_stopped_run_keeps_its_promise_and_states_the_smaller_epsilon_with_its_condition(
    cancelled,
):
    guarantee = cancelled.guarantee
    assert guarantee.epsilon == 1.0
    assert 0 < guarantee.epsilon_taken < 0.9
    assert "not decided by looking at the outputs" in " ".join(guarantee.statement().split())


def test_epsilon_taken_is_that_of_the_steps_taken(cancelled):
    guarantee = cancelled.guarantee
    steps_alone = wb.privacy.epsilon(
        sampling_rate=guarantee.sampling_rate,
        noise_multiplier=guarantee.noise_multiplier,
        steps=guarantee.steps_taken,
        delta=guarantee.delta,
    )
    assert steps_alone <= guarantee.epsilon_taken <= 1.02 * steps_alone


def test_metrics_of_a_stopped_run_belong_to_its_last_step(cancelled):
    assert cancelled.history[-1].step == cancelled.guarantee.steps_taken
    assert cancelled.history[-1].metrics == cancelled.metrics


def test_steps_before_a_stop_are_those_of_the_whole_run():
    """Without an average, evaluations are of single iterates."""
    whole = prepare(iterations=300, seed=1, average=False)
    stopped = whole.again()
    metrics = {snapshot.metrics_step: snapshot.metrics for snapshot in whole.run()}
    cancelled = {each.metrics_step: each.metrics for each in stopped.run(stop_after(5))}
    assert stopped.can_resume
    # a slow machine evaluates at others, too
    common = [step for step in cancelled if step in metrics]
    assert len(common) > 2
    assert all(cancelled[step] == metrics[step] for step in common)


def test_no_step_taken_spends_nothing_and_leaves_the_promise():
    guarantee = prepare(iterations=50, seed=0).guarantee(0)
    assert (guarantee.steps_taken, guarantee.epsilon_taken, guarantee.epsilon) == (0, 0.0, 1.0)


def test_a_seeded_result_says_that_its_noise_is_predictable(done):
    assert not done.guarantee.secure_randomness
    assert "who knows the seed (1) can predict the noise" in done.guarantee.caveats[0]


def test_a_secret_result_speaks_of_no_seed(secret):
    guarantee = secret[1].guarantee
    assert guarantee.secure_randomness
    assert "seed" not in guarantee.statement()


@pytest.mark.thorough
def test_two_secret_runs_differ(secret, private_data):
    other = wb.fit("logistic", private_data, epsilon=2.0, iterations=40)
    assert not np.any(other.params["weights_loc"] == secret[1].params["weights_loc"])


def test_private_evaluation_records_are_not_looked_at(secret):
    _, result = secret
    assert result.metrics == {}
    assert result.history == ()


@pytest.fixture(scope="module")
def scored(private_data):
    """A fit that has run, whose private evaluation records were scored on request."""
    privacy = wb.Privacy(evaluate_private=True)
    prepared = fits.prepare("logistic", private_data, epsilon=2.0, iterations=40, privacy=privacy)
    list(prepared.run())
    return prepared


def test_private_evaluation_records_are_scored_on_request_and_labelled(scored):
    result = scored.result()
    assert {"elbo", "auc", "log_likelihood"} <= set(result.metrics)
    assert (
        result.metrics_label
        == result.labels["metrics"]
        == result.labels["history"]
        == "outside the guarantee"
    )
    assert result.labels["params"] == "covered"
    assert any("outside the guarantee" in caveat for caveat in result.guarantee.caveats)


def test_public_evaluation_records_are_labelled_public(done):
    assert done.metrics_label == done.labels["metrics"] == done.labels["history"] == "public data"
    assert not any("outside the guarantee" in caveat for caveat in done.guarantee.caveats)


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", some_of(["without_replacement", "shuffle"], 2, 1))
def test_other_samplers_fit_under_their_own_relation(sampler):
    result = wb.fit(
        "logistic",
        "breast_cancer",
        epsilon=8.0,
        iterations=200,
        batch_size=50,
        seed=3,
        privacy=wb.Privacy(sampler=sampler),
    )
    assert result.status == "done"
    assert (result.guarantee.sampler, result.guarantee.relation) == (sampler, "replace_one")
    assert result.settings["sampling_rate"] == result.guarantee.sampling_rate == 50 / 458
    assert result.metrics["auc"] > 0.9
    assert "replacing any one tumour by another" in result.guarantee.statement()


@pytest.mark.thorough
def test_random_allocation_fits_with_whole_epochs_and_is_confirmed():
    """458 records at q = .12 make epochs of 8 steps (1 / .12 is 8.33), so q is 1 / 8."""
    result = wb.fit(
        "logistic",
        "breast_cancer",
        epsilon=8.0,
        iterations=200,
        sampling_rate=0.12,
        seed=3,
        privacy=wb.Privacy(sampler="random_allocation"),
    )
    guarantee = result.guarantee
    assert result.status == "done"
    assert (guarantee.sampler, guarantee.relation) == ("random_allocation", "add_or_remove_one")
    assert result.settings["sampling_rate"] == guarantee.sampling_rate == 1 / 8
    assert result.metrics["auc"] > 0.9
    words = guarantee.statement()
    assert "minibatches by random allocation, each record in one step of every 8" in words
    lowest = float(
        re.search(r"no epsilon below ([\d.]+) holds, by an independent lower bound", words)[1]
    )
    assert 7.8 < lowest <= 8.0


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_random_allocation_that_was_stopped_within_an_epoch_resumes_to_the_same_bits(tmp_path):
    """The first chunk has 8 steps, and epochs have 16."""
    settings = {
        "epsilon": 8.0,
        "iterations": 200,
        "sampling_rate": 1 / 16,
        "sampler": "random_allocation",
        "seed": 3,
    }
    seen = []
    wb.fit(
        "logistic",
        "breast_cancer",
        ledger=False,
        **grouped(
            checkpoint=tmp_path / "run",
            on_snapshot=lambda snapshot: seen.append(snapshot.step),
            stop=lambda: seen[-1:] != [0],
            **settings,
        ),
    )
    assert seen[-1] == 8
    resumed = wb.resume(tmp_path / "run")
    whole = wb.fit("logistic", "breast_cancer", ledger=False, **grouped(settings))
    assert resumed.status == whole.status == "done"
    assert all(np.array_equal(resumed.params[name], whole.params[name]) for name in whole.params)


def test_a_fit_that_another_accountant_contradicts_does_not_run(monkeypatch):
    opinion = second_opinion.SecondOpinion(1.01, "dp-accounting")
    monkeypatch.setattr(second_opinion, "second_opinion", lambda plan, delta: opinion)
    prepared = fits.prepare("logistic", "breast_cancer", epsilon=1.0, iterations=20)
    with pytest.raises(
        second_opinion.DisagreementError, match=r"^epsilon = 1 is not promised: by dp-accounting it"
    ):
        next(prepared.run())
    assert not prepared.has_begun


def test_a_needless_request_does_not_turn_public_records_private():
    caveats = prepare(evaluate_private=True).guarantee(0).caveats
    assert not any("private evaluation records" in caveat for caveat in caveats)


@pytest.mark.thorough
def test_one_changed_record_changes_nothing_but_what_was_trained(private_data):
    features, target = private_data.train
    changed = features.copy()
    changed[0] = [-1.0, 1.0]
    neighbour = dataclasses.replace(private_data, train=(changed, target))
    here, there = (
        wb.fit("logistic", data, epsilon=20.0, iterations=40, clip=5.0, sampling_rate=0.5, seed=5)
        for data in (private_data, neighbour)
    )
    assert not np.array_equal(here.params["weights_loc"], there.params["weights_loc"])
    trained, clock = (
        {"params", "draws", "variational_draws", "gradient_norms"},
        {"seconds", "finished", "spend", "ledger"},
    )
    for field in dataclasses.fields(here):
        if field.name not in trained | clock:
            assert getattr(here, field.name) == getattr(there, field.name), field.name
    assert {name: value.shape for name, value in here.params.items()} == {
        name: value.shape for name, value in there.params.items()
    }


def test_a_fit_runs_once(secret):
    with pytest.raises(RuntimeError, match="prepare another one"):
        next(secret[0].run())


def stop_after(chunks):
    asked = iter(range(chunks))
    return lambda: next(asked, None) is None


def test_another_fit_of_the_same_plan_has_noise_of_its_own_and_compiles_nothing(
    scored, monkeypatch
):
    first = scored
    second = first.again()
    monkeypatch.setattr(prepared_fits, "compile_ahead", lambda *_: pytest.fail("compiled again"))
    assert not second.has_begun
    assert list(second.run())[-1].status == "done"
    assert first.functions.compute is second.functions.compute
    one, other = first.result(), second.result()
    assert (one.params["weights_loc"] != other.params["weights_loc"]).all()
    assert (one.draws["weights"] != other.draws["weights"]).any()
    assert one.guarantee == other.guarantee
    assert len(other.history) == len(one.history)


@pytest.fixture
def compiled(monkeypatch):
    """The names of the programs that were compiled in this test, which begins with none."""
    names, compile = [], jax.stages.Lowered.compile

    def noting(lowered, *arguments, **options):
        names.append(lowered.as_text().partition("module @")[2].partition(" ")[0])
        return compile(lowered, *arguments, **options)

    program_cache.forget()
    monkeypatch.setattr("jax.stages.Lowered.compile", noting)
    return names


def assert_same_release(result, other):
    assert result.metrics == other.metrics
    for parts in ("params", "draws"):
        for name, value in getattr(other, parts).items():
            np.testing.assert_array_equal(getattr(result, parts)[name], value)


@pytest.mark.thorough
def test_a_fit_of_other_numbers_compiles_none_of_its_programs_again(compiled):
    changes = {"epsilon": 2.0, "clip": 0.7, "learning_rate": 0.05, "iterations": 930, "seed": 1}
    alone = wb.fit("logistic", "breast_cancer", **grouped(changes))
    assert {"jit_chunk", "jit_latents", "jit_outputs"} <= set(compiled)
    program_cache.forget()
    wb.fit("logistic", "breast_cancer", epsilon=1.0, iterations=400)
    compiled.clear()
    after = wb.fit("logistic", "breast_cancer", **grouped(changes))
    assert compiled == []
    assert after.guarantee == alone.guarantee
    assert_same_release(after, alone)


@pytest.mark.parametrize(
    "change",
    some_of(
        [{"iterations": 100}, {"sampling_rate": 0.2}, {"estimator": "vanilla"}, {"average": False}],
        4,
        first=2,
    ),
)
@pytest.mark.thorough
def test_a_fit_of_other_steps_compiles_them(compiled, change):
    for settings in ({}, change):
        compiled.clear()
        prepare(**{"iterations": 400, **settings}).compile()
        assert "jit_chunk" in compiled


def of_scale(scale):
    def model(x, y=None, num_records=None):
        weights = numpyro.sample(
            "weights", dist.Normal(0.0, scale()).expand([x.shape[-1]]).to_event(1)
        )
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    return model


WIDE = 1.0


class Prior:
    width = 1.0

    def __call__(self):
        return self.width


PRIOR = Prior()


def in_a_cell(width):
    """A model as a notebook's cell defines it: each time under the same name, from the
    same place.
    """
    cell = f"""
def model(x, y=None, num_records=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, {width}).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)
"""
    names = {"numpyro": numpyro, "dist": dist, "__name__": "__main__"}
    exec(compile(cell, "cell", "exec"), names)
    return names["model"]


def changed_global(monkeypatch):
    model = of_scale(lambda: WIDE)
    yield model
    monkeypatch.setitem(globals(), "WIDE", 0.1)
    yield model


def changed_attribute(monkeypatch):
    model = of_scale(PRIOR)
    yield model
    monkeypatch.setattr(PRIOR, "width", 0.1)
    yield model


def changed_cell(monkeypatch):
    held = [1.0]
    model = of_scale(lambda: held[0])
    yield model
    held[0] = 0.1
    yield model


def changed_default(monkeypatch):
    def width(value=1.0):
        return value

    model = of_scale(width)
    yield model
    width.__defaults__ = (0.1,)
    yield model


def changed_code(monkeypatch):
    def width():
        return 1.0

    model = of_scale(width)
    yield model
    width.__code__ = (lambda: 0.1).__code__
    yield model


def other_closures(monkeypatch):
    for width in (1.0, 0.1):
        yield of_scale(lambda width=width: width)


def redefined(monkeypatch):
    for width in (1.0, 0.1):
        yield in_a_cell(width)


def registered_again(monkeypatch):
    for width in (1.0, 0.1):
        wb.models.register("again", in_a_cell(width), replace=True)
        yield "again"


@pytest.mark.parametrize(
    "versions",
    [
        changed_global,
        changed_attribute,
        changed_cell,
        changed_default,
        changed_code,
        other_closures,
        redefined,
        registered_again,
    ],
    ids=lambda versions: versions.__name__,
)
@pytest.mark.thorough
def test_whatever_a_model_reads_may_change_between_two_fits(versions, monkeypatch, private_data):
    """The second fit's numbers are those of a process that had not seen the first."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    settings = {"epsilon": 8.0, "iterations": 10, "seed": 1, "draws": 2, "checkpoint": False}

    def fit(model):
        chosen = model if isinstance(model, str) else wb.models.Model("mine", "", model)
        return wb.fit(chosen, private_data, **grouped(settings))

    program_cache.forget()
    changing = versions(monkeypatch)
    before = fit(next(changing))
    last = next(changing)
    after = fit(last)
    program_cache.forget()
    assert_same_release(after, fit(last))
    assert any((value != after.params[name]).any() for name, value in before.params.items())


@pytest.mark.thorough
def test_what_an_optimiser_and_predictions_read_may_change_too(private_data):
    settings = {"epsilon": 8.0, "iterations": 10, "seed": 1, "evaluate_private": True}
    model = wb.models.get("logistic")
    program_cache.forget()
    found = []
    for rate, sign in ((0.1, 1.0), (0.2, 1.0), (0.2, -1.0)):

        def predict(values, x, sign=sign):
            return jax.nn.sigmoid(sign * (x @ values["weights"]))

        optimizer = numpyro.optim.Adam(lambda step, rate=rate: rate)
        found.append(
            wb.fit(
                dataclasses.replace(model, predict=predict),
                private_data,
                **grouped(optimizer=optimizer, **settings),
            )
        )
    one, two, three = found
    assert (one.params["weights_loc"] != two.params["weights_loc"]).all()
    np.testing.assert_array_equal(two.params["weights_loc"], three.params["weights_loc"])
    assert three.metrics["auc"] == pytest.approx(1 - two.metrics["auc"])


def test_what_is_kept_of_a_fit_holds_no_records_keys_models_or_results(private_frame):
    data = wb.data.from_frame(
        private_frame, target="ill", bounds={"dose": (0, 200), "age": (0, 100)}, name="clinic"
    )
    model = of_scale(lambda: 1.0)
    program_cache.forget()
    prepared = fits.prepare(
        wb.models.Model("mine", "", model),
        data,
        epsilon=8.0,
        iterations=10,
        privacy=wb.Privacy(evaluate_private=True),
    )
    list(prepared.run())
    result = prepared.result()
    held = [
        model,
        data,
        data.train[0],
        data.evaluation[0],
        prepared,
        prepared.key,
        prepared.step,
        prepared.step.model,
        prepared.on_device[0][0],
        prepared._end.key,
        result,
        result.params["weights_auto_loc"],
        result.draws["weights"],
    ]
    seen = [(type(each).__name__, weakref.ref(each)) for each in held]
    assert len(program_cache._programs) >= 4
    del model, data, prepared, result, held
    gc.collect()
    assert [name for name, reference in seen if reference() is not None] == []
    assert len(program_cache._programs) >= 4


def test_a_fit_that_was_interrupted_within_a_step_does_not_go_on(monkeypatch):
    prepared = prepare(iterations=300)

    # as when the compiled steps are interrupted: they have taken the state's memory
    compiled = compiling.compile_ahead

    def compile_ahead(step, hyper, state, records, steps, within):
        def chunk(state, records, limit, numbers):
            for leaf in jax.tree.leaves(state):
                leaf.delete()
            raise KeyboardInterrupt

        begun, interrupting = compiled(step, hyper, state, records, steps), Future()
        interrupting.set_result(compiling.Compilation(chunk, begun.compilation.result().seconds))
        return begun._replace(compilation=interrupting)

    monkeypatch.setattr(prepared_fits, "compile_ahead", compile_ahead)
    last = list(prepared.run())[-1]
    assert (last.status, last.message) == ("cancelled", "interrupted")
    assert not prepared.can_resume
    with pytest.raises(RuntimeError, match="prepare another one"):
        next(prepared.run())


@pytest.mark.thorough
def test_an_unexpected_error_keeps_the_partial_result(monkeypatch):
    prepared = prepare(iterations=300)
    curve = prepared.plan.epsilon_so_far()

    def epsilon(step):
        if step > 10:
            raise RuntimeError("boom")
        return curve(step)

    monkeypatch.setattr(type(prepared.plan), "epsilon_so_far", lambda plan: epsilon)
    with pytest.raises(RuntimeError, match="boom"):
        list(prepared.run())
    result = prepared.result()
    assert (result.status, result.message) == ("failed", "RuntimeError: boom")
    assert result.guarantee.epsilon == 1.0


@pytest.mark.thorough
def test_compiling_beforehand_takes_no_step_and_is_not_repeated(done, monkeypatch):
    prepared = prepare(iterations=300, seed=1)
    prepared.compile()
    monkeypatch.setattr(prepared_fits, "compile_ahead", lambda *_: pytest.fail("compiled again"))
    prepared.compile()
    snapshots = list(prepared.run())
    assert snapshots[0].step == 0
    assert snapshots[0].compile_seconds is None
    assert snapshots[-1].compile_seconds > 0
    for name, value in done.params.items():
        np.testing.assert_array_equal(prepared.result().params[name], value)


def test_there_is_no_result_before_the_run():
    with pytest.raises(RuntimeError, match="no result yet"):
        prepare(iterations=10).result()


def test_settings_of_a_result_are_the_settings_given(done):
    given = {
        "epsilon": 1.0,
        "delta": 1e-3,
        "iterations": 300,
        "sampling_rate": 0.1,
        "sampler": "poisson",
        "clip": pytest.approx(0.1 * (458 / 30) ** (1 / 3) * math.sqrt(31)),
        "seed": 1,
    }
    assert given.items() <= done.settings.items()
    assert done.settings["learning_rate"] == pytest.approx(1 / math.sqrt(300))
    assert done.settings["device"].startswith("cpu:0")


def test_whole_numbers_may_be_written_as_floats():
    prepared = prepare(iterations=2e2, seed=3.0)
    assert (prepared.privacy.iterations, prepared.privacy.seed) == (200, 3)


def test_repr_of_a_prepared_fit_shows_neither_key_nor_records(secret):
    import jax

    prepared, _ = secret
    assert not any(
        str(word) in repr(prepared) for word in np.asarray(jax.random.key_data(prepared.key))
    )
    assert "array(" not in repr(prepared)


@pytest.mark.thorough
def test_parameters_that_run_away_end_the_fit_as_failed_with_advice():
    result = wb.fit(
        "logistic", "breast_cancer", epsilon=1.0, iterations=20, seed=1, learning_rate=1e8
    )
    assert result.status == "failed"
    assert "smaller learning rate" in result.message
    assert all(np.all(np.isfinite(value)) for value in result.params.values())
    assert result.guarantee.epsilon == 1.0
    assert result.guarantee.steps_taken > 0


@pytest.fixture(scope="module")
def unscorable():
    """A fit of ten steps whose model can be scored three times only."""
    scored = []

    def score(target, predictions):
        if len(scored) == 3:
            raise ValueError("Input contains NaN.")
        scored.append(predictions)
        return {"count": float(len(scored))}

    model = dataclasses.replace(wb.models.get("logistic"), score=score)
    return wb.fit(model, "breast_cancer", epsilon=1.0, iterations=10, seed=1)


@pytest.mark.thorough
def test_scores_that_cannot_be_computed_lose_no_result(unscorable):
    assert unscorable.status == "done"
    assert unscorable.guarantee.steps_taken == 10
    assert (
        "metrics could not be computed from step 3 on (ValueError: Input contains NaN.)"
        in unscorable.message
    )


@pytest.mark.thorough
def test_metrics_are_not_repeated_for_steps_that_were_not_scored(unscorable):
    assert [(point.step, point.metrics["count"]) for point in unscorable.history] == [
        (0, 1),
        (1, 2),
        (2, 3),
    ]


def mean_auc(epsilon, seeds):
    scores = []
    for seed in seeds:
        data = wb.data.load("breast_cancer", split_seed=seed)
        with pytest.warns(DeltaWarning):
            result = wb.fit("logistic", data, epsilon=epsilon, delta=1 / data.num_train, seed=seed)
        scores.append(result.metrics["auc"])
    print(
        f"epsilon {epsilon:g}: mean AUC {np.mean(scores):.4f} of",
        *(f"{score:.4f}" for score in scores),
    )
    return np.mean(scores)


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "least"), [(8.0, 0.98), (1.0, 0.96)])
def test_auc_on_breast_cancer_five_seeds(epsilon, least):
    assert mean_auc(epsilon, range(5)) > least


@pytest.mark.usefixtures("made_up_steps")
def test_curves_without_noise_are_not_labelled_as_scores_with_noise(private_data):
    privacy = wb.Privacy(evaluate_private=True, covered_scores=True)
    result = wb.fit("logistic", private_data, epsilon=2.0, iterations=40, privacy=privacy)
    assert result.labels["history"] == "covered"
    assert result.metric_intervals
    assert result.history == ()
