"""Fits that look at their columns first: their promises, and that they fit what is there."""

import dataclasses
import errno
import math
import warnings
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from numpyro import distributions as dist

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.data.counting import counting_of
from workbench.data.look import PRODUCTS, Scale, Shares, inside, scales_to_dict
from workbench.fitting import cross_validation
from workbench.fitting.learned_scales import of_other_levels, share_for
from workbench.formula.model import FormulaModel
from workbench.ledger.ledger import Ledger, LedgerDiskError
from workbench.ledger.reservation import LedgerWarning
from workbench.privacy.accounting import total_epsilon
from workbench.privacy.plan import PrivacySettings, make_plan

pytestmark = pytest.mark.usefixtures("made_up_steps")  # ``result`` takes real ones

SIZE = 3000
SCHEMA = {"a": (0, 1000), "b": (0, 1000), "y": bool}
QUIET = wb.Execution(progress=False, checkpoint=False)
SCALES = {"a": Scale(0, 100, 50, 15, 0.0), "b": Scale(0, 100, 50, 15, 0.0)}


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(0)
    z = random.normal(size=(SIZE, 2))
    chance = 1 / (1 + np.exp(-(z @ [0.8, -0.5] + 0.2)))
    return pd.DataFrame(50 + 15 * z, columns=["a", "b"]).assign(y=random.random(SIZE) < chance)


def arguments(**options):
    """Of ``wb.fit`` and ``wb.prepare``, without a ledger unless there is one."""
    if "look" in options:
        options["privacy"] = wb.Privacy(look=options.pop("look"))
    defaults = {"epsilon": 2.0, "delta": 1e-5, "iterations": 60, "ledger": False}
    return {"family": "bernoulli", "schema": SCHEMA, **defaults, "execution": QUIET} | options


def fit(frame, formula="y ~ a + b", **options):
    return wb.fit(formula, frame, **arguments(**options))


def prepare(frame, **options):
    execution = wb.Execution(checkpoint=False)
    return wb.prepare("y ~ a + b", frame, **arguments(execution=execution, **options))


@pytest.fixture(scope="module")
def result(frame):
    return fit(frame, seed=3)


# ---- what is promised ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "rate", "sensitivity"),
    [("poisson", 0.1, 1), ("poisson", 1.0, 1), ("shuffle", 0.1, 2)],
)
def test_look_and_steps_together_keep_epsilon_by_dp_accounting(sampler, rate, sensitivity):
    settings = PrivacySettings(1.0, 1e-5, 500, rate, sampler, 1.0, 5000, None, look=0.1)
    plan = make_plan(settings, 5000, look_size=1000)
    sigma, look = plan.mechanism.noise_multiplier, plan.look.noise_multiplier
    accountant = PLDAccountant(
        NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=1e-4
    )
    accountant.compose(dp_event.GaussianDpEvent(look / sensitivity))
    step = dp_event.GaussianDpEvent(sigma / sensitivity)
    if sampler == "poisson":
        accountant.compose(dp_event.PoissonSampledDpEvent(rate, step), 500)
    else:
        accountant.compose(step, 50)  # a record is in one step of an epoch
    exact = accountant.get_epsilon(1e-5 * 0.998)
    assert exact == pytest.approx(1.0, abs=0.01)
    assert exact <= 1.0 + 1e-3
    # the steps alone keep less, and a plan without a look needs less noise
    assert (
        sigma > make_plan(dataclasses.replace(settings, look=0.0), 5000).mechanism.noise_multiplier
    )
    assert plan.epsilon_after(0) > 0.05
    assert plan.epsilon_after(500) == pytest.approx(1.0, abs=1e-3)
    assert [count for count, _ in plan.epsilon_curve()][-1] == 500
    assert plan.confirmed().opinion.source == "dp-accounting"


def test_the_guarantee_counts_the_look_everywhere(result):
    guarantee = result.guarantee
    assert guarantee.look_noise > 0
    assert [phase.steps for phase in guarantee.accounted().phases] == [1, 60]
    assert "scales of the columns" in guarantee.statement()
    bare = dataclasses.replace(guarantee, look_noise=0.0)
    assert total_epsilon((guarantee.accounted(),), 1e-5) > total_epsilon((bare.accounted(),), 1e-5)
    assert type(guarantee).from_dict(guarantee.to_dict()) == guarantee
    assert guarantee.attack_bounds()["belief_from_half"] > bare.attack_bounds()["belief_from_half"]


def test_the_ledger_reserves_the_look_with_the_steps(frame, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    prepared = prepare(frame, iterations=40, ledger=ledger)
    assert not ledger.spends()
    run = prepared.run()
    next(run)
    (spend,) = ledger.spends()
    assert spend.guarantee.look_noise == prepared.plan.look.noise_multiplier
    list(run)
    assert prepared.result().status == "done"


def test_public_facts_decide_about_the_share(frame):
    data = wb.models.formula("y ~ a + b", "bernoulli", SCHEMA).dataset(frame)
    counting = counting_of(data)
    shares = [
        share_for(counting, size, epsilon, 1e-5, "add_or_remove_one")
        for size, epsilon in [(500, 0.3), (5000, 1.0), (50_000, 1.0), (10**6, 8.0)]
    ]
    assert shares[0] == 0
    assert shares[1:] == sorted(shares[1:], reverse=True)
    assert 0.02 <= shares[-1] <= shares[1] <= 0.15


# ---- what is fitted ------------------------------------------------------------------------------


def test_columns_are_scaled_where_they_have_values(result):
    scales = result.data["scales"]
    for name in ("a", "b"):
        assert 0 <= scales[name]["low"] < 20
        assert 80 < scales[name]["high"] < 160
    assert result.data["schema"]["a"]["high"] == scales["a"]["high"]
    slopes = result.coefficients().loc[["a", "b"], "mean"].to_numpy() * 15
    assert slopes == pytest.approx([0.8, -0.5], abs=0.35)


@pytest.mark.whole_fit
def test_a_seed_repeats_look_and_steps(frame, result):
    again = fit(frame, seed=3)
    assert again.data["scales"] == result.data["scales"]
    assert all(np.array_equal(again.params[name], result.params[name]) for name in result.params)
    with fakes.installed():  # a look is all that is asked of it
        other = fit(frame, seed=4)
    assert other.data["scales"] != result.data["scales"]


@pytest.mark.whole_fit
def test_a_stopped_fit_resumes_with_the_scales_that_it_learned(frame, tmp_path, result):
    seen = []
    stopped = fit(
        frame,
        seed=3,
        execution=wb.Execution(
            progress=False,
            checkpoint=tmp_path / "run",
            on_snapshot=seen.append,
            stop=lambda: bool(seen) and seen[-1].step > 0,
        ),
    )
    assert stopped.data["scales"] == result.data["scales"]
    model = wb.models.formula("y ~ a + b", "bernoulli", SCHEMA)
    data = model.dataset(frame, evaluation_fraction=0.0)
    resumed = wb.resume(tmp_path / "run", model=model, data=data)
    assert resumed.data["scales"] == result.data["scales"]
    assert all(np.array_equal(resumed.params[name], result.params[name]) for name in result.params)


def test_c_follows_the_scales_unless_it_was_chosen(frame, result):
    """By the records themselves: C is the same multiple of a typical record's length as it is for
    columns that are uniform on their bounds, whose mean square is a third.
    """
    scales = [result.data["scales"][name] for name in ("a", "b")]
    scaled = [
        2 * (frame[name] - scale["low"]) / (scale["high"] - scale["low"]) - 1
        for name, scale in zip(("a", "b"), scales, strict=True)
    ]
    length = np.sqrt(1 + sum(np.mean(column**2) for column in scaled))
    before = prepare(frame).privacy.clip
    assert result.settings["clip"] == pytest.approx(before * length / (5 / 3) ** 0.5, rel=0.05)
    assert fit(frame, seed=3, clip=1.1).settings["clip"] == 1.1
    # one seed and two C: the difference of their noise would show the sum, if both counted once
    digests = {prepare(frame, seed=3, clip=clip)._digest(to_run=False) for clip in (None, before)}
    assert len(digests) == 2
    assert fit(frame, seed=3, look=0).settings["clip"] == before


@pytest.mark.parametrize(("sampler", "size"), [("poisson", 5000), ("shuffle", SIZE)])
def test_c_before_and_after_a_look_is_advised_for_the_same_public_size(
    frame, monkeypatch, sampler, size
):
    sizes = []

    def advice(model, dataset, num_records, epsilon):
        sizes.append(num_records)
        return {}

    monkeypatch.setattr(FormulaModel, "advice", advice)
    prepare(
        frame, privacy=wb.Privacy(look=scales_to_dict(SCALES), sampler=sampler, num_records=5000)
    )
    assert sizes == [size, size]


def test_a_fit_on_the_scales_of_a_seeded_look_says_that_its_seed_tells_them(frame, monkeypatch):
    """Whoever knows the seed subtracts the noise, so the fit's own promise does not hold for them;
    a resumed fit and a cross-validation know it too.
    """
    columns = {name: SCHEMA[name] for name in ("a", "b")}
    said = "Everybody who knows the seed of the look that scaled its columns can predict its noise"
    for seed in (None, 4):
        look = wb.look(
            frame[["a", "b"]], schema=columns, epsilon=1.0, delta=1e-5, ledger=False, seed=seed
        )
        prepared = prepare(frame, privacy=wb.Privacy(look=look))
        again = prepare(frame, privacy=wb.Privacy(look=prepared.settings.look))
        charge = Mock(return_value=None)
        monkeypatch.setattr(cross_validation, "charged", charge)
        with pytest.raises(TypeError):  # before the first step
            wb.cross_validate("y ~ a + b", frame, **arguments(look=look, execution=wb.Execution()))
        for promise in (prepared.guarantee(60), again.guarantee(60), charge.call_args.args[1]):
            assert promise.secure_randomness == (seed is None)
            assert (said in promise.statement()) == (seed is not None)
    own = fit(frame, look=look)
    with pytest.raises(
        ArgumentError, match="noise that follows from a seed: its own, or that of a look"
    ):
        wb.release(own, "nowhere")


def test_a_plan_says_that_its_c_follows_the_look(frame, result):
    prepared = prepare(frame, seed=3)
    assert prepared.privacy.clip_follows_look
    assert "clip_follows_look=True" in repr(prepared)
    assert prepared.settings.clip is None  # nobody chose it
    assert "follows the scales that the look learns" in prepared.guarantee(60).statement()
    for _ in prepared.run():
        pass
    assert not prepared.privacy.clip_follows_look
    assert prepared.privacy.clip == prepared.settings.clip == result.settings["clip"]
    assert "follows" not in prepared.result().guarantee.statement()
    assert prepared.again().privacy.clip_follows_look


@pytest.mark.parametrize("options", [{"clip": 1.1}, {"look": 0}, {"look": scales_to_dict(SCALES)}])
def test_a_c_that_was_chosen_or_has_its_scales_follows_no_look(frame, options):
    assert not prepare(frame, **options).privacy.clip_follows_look


def test_an_adapted_c_begins_where_the_look_says(frame):
    settings = prepare(frame, clip="auto").privacy
    assert settings.clip_follows_look
    assert settings.as_arguments()["clip"] == "auto"


def test_another_run_of_a_prepared_fit_looks_anew(frame):
    prepared = prepare(frame, iterations=30)
    results = []
    for one in (prepared, prepared.again()):
        list(one.run())
        results.append(one.result())
    assert results[0].data["scales"] != results[1].data["scales"]


def test_a_look_is_used_without_being_paid_for_again(frame):
    seen = wb.look(frame, schema=SCHEMA, epsilon=1.0, delta=1e-5, ledger=False)
    assert seen.guarantee.released == "counts"
    used = fit(frame, look=seen)
    assert used.guarantee.look_noise == 0
    assert used.data["scales"]["a"]["low"] == seen.scale("a").low


def test_with_nothing_declared_a_look_declares_and_the_ledger_adds_both(frame, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    table = frame.assign(ward=np.where(np.arange(SIZE) % 3, "north", "south"))
    seen = wb.look(table, epsilon=1.0, delta=1e-5, ledger=ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LedgerWarning)  # of data sets that may be the same
        used = wb.fit(
            "y ~ a + b + C(ward)",
            table,
            family="bernoulli",
            epsilon=2.0,
            delta=1e-5,
            iterations=60,
            privacy=wb.Privacy(look=seen),
            ledger=ledger,
            execution=QUIET,
        )
    learned = used.data["schema"]
    assert learned["ward"]["categories"] == ["north", "south"]
    low, high = learned["a"]["low"], learned["a"]["high"]
    assert low < frame["a"].quantile(0.02) < frame["a"].quantile(0.98) < high < 200
    one, other = ledger.datasets()
    assert len(ledger.budget_status(one.number).spends) == 2
    assert ledger.budget_status(one.number).spends == ledger.budget_status(other.number).spends


def test_no_look_is_taken_where_it_is_refused(frame):
    plain = fit(frame, look=0)
    assert plain.guarantee.look_noise == 0
    assert plain.data["schema"]["a"]["high"] == 1000
    words = "Without a look the declared bounds stand"
    assert any(caution.startswith(words) for caution in plain.cautions)
    assert not any(words in caution for caution in fit(frame).cautions)
    for look in (0.6, -0.1, "much", float("nan")):
        with pytest.raises(ArgumentError, match="look"):
            fit(frame, look=look)


def test_the_result_of_a_sweep_states_what_the_sweep_ran(frame):
    model = wb.models.formula("y ~ a + b", "bernoulli", SCHEMA)
    sweep = wb.sweep(
        model,
        model.dataset(frame),
        epsilons=[2.0],
        iterations=20,
        delta=1e-5,
        ledger=False,
        accept_total_epsilon=3.0,
    )
    guarantee = sweep.fit(0).guarantee
    assert guarantee.look_noise == 0
    assert guarantee.noise_multiplier == sweep.table.loc[0, "noise_multiplier"]
    assert sweep.settings_of(0)["privacy"].look == 0


# ---- models on other scales ----------------------------------------------------------------------


def test_a_prior_of_the_user_means_the_same_on_learned_scales():
    model = wb.models.formula(
        "y ~ a + b", "bernoulli", SCHEMA, priors={"a": "Normal(1, 2)", "b": "StudentT(3, 0, 5)"}
    )
    scaled = model.with_scales(SCALES)
    # a slope of 1 in half of 0 .. 1000 is one of 0.1 in half of 0 .. 100
    assert scaled.priors.loc["a", "prior"] == "Normal(0.1, 0.2)"
    assert scaled.priors.loc["b", "prior"] == "StudentT(3, 0, 0.5)"
    assert scaled.learns_scales
    fixed = wb.models.formula("y ~ a", "bernoulli", SCHEMA, priors={"Intercept": "Normal(0, 1)"})
    assert not fixed.learns_scales
    with pytest.raises(ArgumentError, match="Intercept"):
        fixed.with_scales(SCALES)
    of_basis = wb.models.formula(
        "y ~ poly(a, 2)", "bernoulli", SCHEMA, priors={"poly(a, 2)": "Normal(0, 1)"}
    )
    assert not of_basis.learns_scales  # another basis would give the prior another meaning


def test_a_prior_of_a_line_counts_the_scale_of_the_response_too():
    schema = {"a": (0, 1000), "y": (0, 200)}
    model = wb.models.formula("y ~ a", schema=schema, priors={"a": "Normal(0, 1)"})
    scaled = model.with_scales({"a": SCALES["a"], "y": Scale(50, 150, 100, 10, 0.0)})
    # 1 is 100 / 500 of y for each of a; on the learned scales 50 / 50 is 1
    assert scaled.priors.loc["a", "prior"] == "Normal(0, 0.2)"


def test_default_priors_are_of_one_learned_spread():
    scaled = wb.models.formula("y ~ a + b", "bernoulli", SCHEMA).with_scales(SCALES)
    assert scaled.priors.loc["a", "prior"] == f"Normal(0, {2.5 * 50 / 15:.12g})"


def test_only_bounds_that_merely_scale_are_learned():
    schema = {
        "a": (0, 1000),
        "b": (1, 1000),
        "days": (1, 400),
        "grade": (1, 5, int),
        "y": (0, 60),
    }
    model = wb.models.formula(
        "y ~ a + log(b) + C(grade)",
        "poisson",
        schema,
        exposure="days",
    )
    scales = {name: Scale(-5, 5, 0, 1, 0.0) for name in schema}
    scaled = model.with_scales(scales).columns.schema.columns
    assert (scaled["a"].low, scaled["a"].high) == (0, 5)
    assert (scaled["b"].low, scaled["b"].high) == (1, 5)
    for name in ("days", "grade", "y"):
        assert scaled[name] == model.columns.schema.columns[name]


def test_predictions_are_those_of_the_same_columns_in_their_own_units(frame):
    model = wb.models.formula("y ~ a * b + I(a**2)", "bernoulli", SCHEMA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = model.with_scales(SCALES)
    rows = frame.clip(0, 100).head(50)
    for made in (model, scaled):
        x = made.arrays_of(rows)["x"]
        weights = np.random.default_rng(0).normal(size=x.shape[1])
        unscaled = made.own_units.matrix @ np.concatenate([[0.3], weights])
        own = np.column_stack([np.ones(50), rows.a, rows.b, rows.a**2, rows.a * rows.b])
        order = ["a", "b", "I(a ** 2)", "a:b"]
        names = list(made.columns.design.block.names)
        own = own[:, [0, *(1 + order.index(name) for name in names)]]
        assert x @ weights + 0.3 == pytest.approx(own @ unscaled, abs=2e-4)


def test_a_data_set_of_a_table_is_scaled_for_any_model(frame):
    data = wb.data.from_frame(
        frame, target="y", schema={"a": (0, 1000), "b": (0, 1000)}, evaluation=False
    )
    used = wb.fit(
        "logistic",
        data,
        epsilon=2.0,
        delta=1e-5,
        iterations=40,
        privacy=wb.Privacy(look=0.1),
        ledger=False,
        execution=QUIET,
    )
    assert used.guarantee.look_noise > 0
    assert used.data["schema"]["a"]["high"] < 200
    images = wb.data.Dataset("pictures", "None.", (np.zeros((40, 3)),), (np.zeros((0, 3)),))
    with pytest.raises(ArgumentError):
        wb.fit(
            "gmm", images, epsilon=1.0, privacy=wb.Privacy(look=0.1), ledger=False, execution=QUIET
        )


@pytest.mark.parametrize("number", [10**5, 10**6, 10**8])
def test_a_look_has_room_for_many_records(frame, number):
    """Its counts have 64 bits; the sums of steps, of which this once was asked, have 32."""
    look = wb.look(
        frame, schema=SCHEMA, epsilon=1.0, delta=1e-9, num_records=number, seed=1, ledger=False
    )
    noise = look.guarantee.noise_multiplier * math.sqrt(14 + 14 + 1)
    assert look.deviation == pytest.approx(noise, rel=1e-3)
    leaves = np.histogram(frame["a"], bins=2**14, range=(0, 1000))[0]
    apart = look.values[: 2**14] - leaves
    assert apart.std() == pytest.approx(noise, rel=0.03)


def of_columns(frame, names=("a", "b"), bounds=(0, 1000), **options):
    """A data set of columns with these bounds."""
    schema = dict.fromkeys(names, bounds)
    return wb.data.from_frame(frame, schema=schema, evaluation=False, **options)


def look_of(model, data, **options):
    """The share of the budget for a look, by default."""
    common = {"epsilon": 2.0, "delta": 1e-5, "iterations": 60, "ledger": False}
    prepared = wb.prepare(model, data, **common, **options)
    return prepared.privacy.look


@pytest.mark.parametrize("model", ["logistic", "neural_classifier", "hierarchical_logistic", "gmm"])
def test_models_of_the_gallery_look_at_a_table_of_ones_own(frame, model):
    """Their priors are for columns that fill [-1, 1]."""
    table = frame.assign(g=np.where(frame.a > 50, "north", "south"))
    options = {"target": None if model == "gmm" else "y"}
    if model == "hierarchical_logistic":
        options |= {"group": "g", "groups": ["north", "south"]}
    used = table.drop(columns=[name for name in ("y", "g") if name not in options.values()])
    data = of_columns(used, **options)
    assert look_of(model, data) > 0
    assert look_of(model, data, privacy=wb.Privacy(look=0)) == 0
    assert look_of(model, dataclasses.replace(data, is_public=True)) == 0
    inside = used.assign(a=used.a / 100, b=used.b / 100)
    assert look_of(model, of_columns(inside, bounds=(-1, 1), **options)) == 0


def test_who_wrote_a_model_decides_whether_it_looks(frame):
    def own(x, y=None, num_records=None):
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(2), 1).to_event(1))
        with numpyro.plate("records", num_records or len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    data = of_columns(frame, target="y")
    assert look_of(own, data) == 0
    assert look_of(wb.models.Model("own", "Mine.", own), data) == 0
    assert look_of(wb.models.Model("own", "Mine.", own, is_for_scaled=True), data) > 0


def test_files_keep_their_bounds_and_the_result_says_so(tmp_path, frame):
    rows, path = tmp_path / "t.csv", tmp_path / "t.wbr"
    frame.to_csv(rows, index=False)
    schema = {"a": (0, 1000), "b": (0, 1000)}
    wb.data.pack(rows, path, target="y", schema=schema, encrypt=False)
    result = wb.fit(
        "logistic",
        wb.data.open(path, reading="direct"),
        epsilon=2.0,
        delta=1e-5,
        iterations=40,
        ledger=False,
        execution=QUIET,
    )
    assert result.settings["look"] == 0
    assert any("this fit did not look at them" in words for words in result.cautions)


def test_the_look_has_a_key_of_its_own(monkeypatch, frame):
    keys = []
    from workbench.fitting import columns

    original = columns.take

    def recorded(counting, model, data, noise, key):
        keys.append(np.asarray(jax.random.key_data(key)))
        return original(counting, model, data, noise, key)

    monkeypatch.setattr(columns, "take", recorded)
    one = prepare(frame, iterations=20)
    list(one.run())
    assert not np.array_equal(keys[0], np.asarray(jax.random.key_data(one.key)))


def test_a_look_counts_though_no_step_was_taken(frame, tmp_path):
    """The result of a fit that is stopped at once has the scales that were learned."""
    ledger = Ledger(tmp_path / "ledger.db")
    execution = wb.Execution(progress=False, checkpoint=False, stop=lambda: True)
    stopped = fit(frame, ledger=ledger, execution=execution)
    assert stopped.data["scales"]
    assert stopped.guarantee.steps_taken == 0
    (spend,) = ledger.spends()
    assert spend.taken == 0
    assert spend.promise == spend.guarantee
    assert spend.under_filter.epsilon == pytest.approx(stopped.guarantee.epsilon_taken, abs=1e-3)
    assert spend.under_filter.epsilon > 0.1
    assert ledger.budget_status(1).total.epsilon >= 2.0


def test_a_process_that_ends_after_its_look_has_spent_it(frame, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.db")
    prepared = prepare(frame, iterations=40, ledger=ledger)
    monkeypatch.setattr(prepared, "_compiling", _end_of_the_process)
    with pytest.raises(KeyboardInterrupt):
        next(prepared.run())
    monkeypatch.setattr("workbench.ledger.owners.is_alive", lambda *arguments: False)
    (spend,) = ledger.recover()
    assert (spend.status, spend.taken) == ("recovered", 0)
    assert spend.promise == spend.guarantee
    assert ledger.budget_status(1).total.epsilon >= 2.0


def _end_of_the_process():
    raise KeyboardInterrupt


def test_a_fit_with_a_look_goes_on_after_a_pause(frame, tmp_path):
    """Its rest is reserved again, and its second look is the first one."""
    ledger = Ledger(tmp_path / "ledger.db")
    prepared = prepare(frame, iterations=40, ledger=ledger)
    *_, paused = prepared.run(lambda: prepared.has_begun and prepared._last.step > 0)
    assert paused.status == "cancelled"
    scales = prepared.result().data["scales"]
    *_, last = prepared.run()
    assert (last.status, last.step) == ("done", 40)
    assert prepared.result().data["scales"] == scales
    (spend,) = ledger.spends()
    assert (spend.status, spend.taken) == ("settled", 40)


def test_a_stopped_fit_with_a_secret_key_resumes(frame, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    execution = wb.Execution(progress=False, checkpoint=tmp_path / "run", stop=lambda: True)
    stopped = fit(frame, ledger=ledger, execution=execution)
    model = wb.models.formula("y ~ a + b", "bernoulli", SCHEMA)
    data = model.dataset(frame, evaluation_fraction=0.0)
    resumed = wb.resume(tmp_path / "run", model=model, data=data)
    assert resumed.status == "done"
    assert resumed.data["scales"] == stopped.data["scales"]
    (spend,) = ledger.spends()
    assert (spend.status, spend.taken) == ("settled", 60)


def test_a_look_that_was_shown_counts_though_its_end_was_not_written(frame, tmp_path, monkeypatch):
    """As on a disk that was full, after which the process ends."""
    ledger = Ledger(tmp_path / "ledger.db")

    def full(*arguments):
        raise LedgerDiskError(ledger.path, errno.ENOSPC, "disk full", code="full")

    monkeypatch.setattr(Ledger, "settle", full)
    with pytest.warns(LedgerWarning, match="stays reserved"):
        wb.look(frame, schema=SCHEMA, epsilon=1.0, ledger=ledger)
    monkeypatch.setattr("workbench.ledger.owners.is_alive", lambda *arguments: False)
    (spend,) = ledger.recover()
    assert spend.promise == spend.guarantee
    assert spend.promise.epsilon == 1.0


@pytest.mark.parametrize(
    ("look", "words"),
    [
        ({"a": 3}, r"look=.*scales\.a must be an object"),
        ({"a": SCALES["a"]._asdict() | {"low": "0"}}, r"look=.*scales\.a\.low"),
        ({"a": SCALES["a"]._asdict() | {"low": float("nan")}}, r"look=.*scales\.a\.low"),
        ({"a": Scale(5000, 6000, 5500, 1, 0.0)._asdict()}, r"look=.*for a, which is declared"),
    ],
)
def test_scales_that_are_none_are_refused(frame, look, words):
    with pytest.raises(ArgumentError, match=words):
        fit(frame, look=look)


@pytest.mark.parametrize(("name", "epsilon"), [("a", 0.01), ("other", 50.0)])
def test_a_look_without_a_scale_for_the_model_is_refused(frame, name, epsilon):
    table = frame[["a"]].set_axis([name], axis=1)
    look = wb.look(table, schema={name: (0, 1000)}, epsilon=epsilon, ledger=False)
    with pytest.raises(ArgumentError, match=r"look=Look\(1 columns.*for no column of the model"):
        fit(frame, look=look)


def test_narrow_bounds_far_from_zero_do_not_end_a_fit_after_its_look(frame):
    """There, float64 lacks digits for coefficients in the column's own units."""
    table = pd.DataFrame({"a": np.full(SIZE, 1e12 + 1), "b": frame["b"], "y": frame["y"]})
    narrow = wb.fit(
        "y ~ a + b",
        table,
        family="bernoulli",
        schema=SCHEMA | {"a": (1e12, 1e12 + 10)},
        epsilon=2.0,
        iterations=5,
        privacy=wb.Privacy(look=0.1),
        ledger=False,
        execution=QUIET,
    )
    assert narrow.status == "done"
    assert (narrow.coefficients()["contrast"] == "1 more, as the model saw it").all()


def test_a_look_that_is_none_is_the_default(frame):
    """As the command line passes it on."""
    shares = [prepare(frame, **named).privacy.look for named in ({}, {"look": None})]
    assert shares[0] == shares[1] > 0


# ---- values beyond what was learned --------------------------------------------------------------


@pytest.fixture(scope="module")
def long_tails():
    random = np.random.default_rng(4)
    x = random.standard_t(2.5, 20_000)
    return pd.DataFrame({"x": x, "y": 3 * x + random.normal(size=20_000)})


TAILS = {"x": Scale(-4, 4, 0.0, 1.0, 0.01), "y": Scale(-40, 40, 0.0, 3.0, 0.0)}


def of_tails(**options):
    """The arguments of a fit of ``long_tails``."""
    bounds = {"x": (-100, 100), "y": (-300, 300)}
    execution = wb.Execution(checkpoint=False)
    return arguments(**{"family": "gaussian", "schema": bounds, "execution": execution} | options)


def test_records_beyond_learned_bounds_take_no_part(long_tails):
    look = {name: scale._asdict() for name, scale in TAILS.items()}
    prepared = wb.prepare("y ~ x", long_tails, **of_tails(look=look))
    left = int(long_tails["x"].abs().le(4).sum())
    assert 19_000 < left < 20_000
    assert prepared.data.num_train == prepared.plan.sampler.num_records == left
    assert prepared.privacy.num_records == 20_000
    assert str(left) not in str(prepared.guarantee(1).to_dict())


def test_a_look_of_the_run_leaves_the_same_records_out(long_tails):
    prepared = wb.prepare("y ~ x", long_tails, **of_tails())
    assert prepared.data.num_train == 20_000
    list(prepared.run())
    scale = prepared.spec.scales["x"]
    kept = long_tails["x"].between(scale.low - 1e-4, scale.high + 1e-4)
    assert prepared.data.num_train == prepared.plan.sampler.num_records == int(kept.sum()) < 20_000
    assert str(int(kept.sum())) not in str(prepared.result().data)


def test_columns_that_are_not_scaled_leave_no_record_out():
    """Levels at the ends of a range, and long exposures, are as good as others."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"x": random.normal(size=4000), "year": random.integers(0, 10, 4000)})
    frame = frame.assign(days=random.uniform(1, 100, 4000), y=random.poisson(2, 4000))
    look = {name: Scale(2, 5, 3, 1, 0.0)._asdict() for name in ("year", "days")}
    look["x"] = Scale(-9, 9, 0, 1, 0.0)._asdict()
    schema = {"x": (-10, 10), "year": (0, 9, int), "days": (1, 100), "y": (0, 50)}
    table = wb.Table(exposure="days")
    options = arguments(family="poisson", schema=schema, look=look, table=table)
    options["execution"] = wb.Execution(checkpoint=False)
    prepared = wb.prepare("y ~ x + C(year)", frame, **options)
    assert prepared.data.num_train == 4000


@pytest.mark.parametrize(
    "options", [{"sampler": "shuffle"}, {"sampler": "without_replacement"}, {"unit": True}]
)
def test_records_are_cut_where_their_number_is_known_or_they_are_rows_of_persons(
    long_tails, options
):
    frame = long_tails.assign(who=np.arange(20_000) // 2)
    table = wb.Table(unit_id="who", max_rows=2) if "unit" in options else wb.Table()
    privacy = wb.Privacy(
        look={name: scale._asdict() for name, scale in TAILS.items()},
        **{name: value for name, value in options.items() if name == "sampler"},
    )
    prepared = wb.prepare("y ~ x", frame, **of_tails(privacy=privacy, table=table))
    assert len(prepared.data.train[0]) == 20_000


def test_missing_values_are_inside_and_rounding_puts_none_out():
    schema = wb.data.Schema({"x": wb.data.Numeric(0, 1000, missing=True), "g": wb.data.Boolean()})
    values = [0.0, 10.0, 10.001, 9.9999, np.nan, 1000.0, 500.0]
    x = schema.encode(pd.DataFrame({"x": values, "g": [True] * 7}))
    rows = inside(schema, x, {"x": Scale(0, 10, 5, 1, 0.0), "g": Scale(5, 6, 5, 1, 0.0)})
    assert rows.tolist() == [True, True, False, True, True, False, False]


@pytest.mark.whole_fit
def test_slopes_of_long_tails_are_those_of_the_records_within_bounds(long_tails):
    """Cut values would move this slope by .15 of its size, and the interval is .02 wide."""
    options = of_tails(epsilon=8.0, iterations=500, seed=2, execution=QUIET)
    result = wb.fit("y ~ x", long_tails, **options)
    assert abs(result.coefficients()["mean"]["x"] - 3) < 0.06


def test_a_rare_event_keeps_its_declared_scale_and_the_result_says_so():
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(50, 15, 20_000), "rare": random.random(20_000) < 0.01})
    frame = frame.assign(rare=frame["rare"].astype(float), y=random.random(20_000) < 0.5)
    schema = {"x": (0, 120), "rare": (0, 1), "y": bool}
    used = fit(frame, "y ~ x + rare", schema=schema, epsilon=1.0, iterations=20)
    assert set(used.data["scales"]) - {PRODUCTS} == {"x"}
    assert used.data["schema"]["rare"]["high"] == 1.0
    assert [line for line in used.cautions if "No scale of rare" in line]
    assert not [line for line in used.cautions if "No scale of x" in line]


def test_another_run_begins_with_all_records_again(long_tails):
    prepared = wb.prepare("y ~ x", long_tails, **of_tails(iterations=20))
    list(prepared.run())
    assert prepared.data.num_train < 20_000
    again = prepared.again()
    assert again.data.num_train == again.plan.sampler.num_records == 20_000
    assert list(again.run())[-1].status == "done"


@pytest.mark.whole_fit
@pytest.mark.parametrize("sampler", some_of(["poisson", "random_allocation"]))
def test_a_run_goes_on_where_no_record_is_within_the_learned_bounds(long_tails, sampler):
    """An error would say that none is, which one more record may change."""
    far = long_tails[(long_tails["x"] - 5).abs() > 0.1]
    scales = TAILS | {"x": Scale(4.9, 5.1, 5.0, 0.02, 0.0)}
    privacy = wb.Privacy(
        sampler=sampler, look={name: scale._asdict() for name, scale in scales.items()}
    )
    options = of_tails(iterations=20, sampling_rate=0.1, privacy=privacy)
    prepared = wb.prepare("y ~ x", far, **options)
    drawn = prepared.plan.sampler
    assert (drawn.num_records, drawn.members, drawn.public_size) == (1, 0, len(far))
    assert list(prepared.run())[-1].status == "done"
    with_one = pd.concat([far, pd.DataFrame({"x": [5.0], "y": [15.0]})])
    alone = wb.prepare("y ~ x", with_one, **options).plan.sampler
    assert (alone.num_records, alone.members) == (1, 1)


def test_many_records_of_no_level_are_said_with_their_share():
    def words(share):
        shares = Shares({"a": [1 - share, 0.01], "(other)": [share, 0.01]})
        return of_other_levels({"ward": shares, "x": SCALES["a"]})

    assert words(0.05) == []
    (some,) = words(0.4)
    assert some.startswith("About 40% of the records have values of ward")


@pytest.mark.parametrize(("errors", "hidden"), [((0.02, 2.0), True), ((0.02, 0.1), False)])
def test_a_reference_that_noise_hides_is_a_doubt_that_names_a_frequent_one(errors, hidden):
    schema = {"x": (0, 1), "ward": ["c", "a", "b"], "y": bool}
    model = wb.models.formula("y ~ x + ward", family="bernoulli", schema=schema)
    levels = {"a": [0.7, errors[0]], "b": [0.29, 0.05], "c": [0.01, errors[1]]}
    doubts = model.with_scales({"ward": Shares(levels)}).doubts({})
    assert len(doubts) == hidden
    if hidden:
        assert "whether any record has ward=c" in doubts[0]
        assert "C(ward, Treatment('a'))" in doubts[0]
    for without in ("y ~ 0 + ward", "y ~ x:ward"):
        other = wb.models.formula(without, family="bernoulli", schema=schema)
        assert not other.with_scales({"ward": Shares(levels)}).doubts({})
