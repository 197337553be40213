"""Sweeps: every fit is the one that ``workbench.fit`` would give, finished ones are kept, nothing
is spent unasked.
"""

import dataclasses
import functools
import itertools
import math
import warnings

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer.autoguide import AutoNormal

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS
from workbench import ArgumentError
from workbench.fitting import defaults, fits
from workbench.fitting.groups import grouped
from workbench.fitting.settings import Shared, default_of
from workbench.fitting.spec import resolve
from workbench.inference.batched import BatchedProgram
from workbench.ledger.composition import total
from workbench.models import Model
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy import plan as planning
from workbench.privacy.steps import LAWS
from workbench.sweeps import BudgetError, grid, running, sweeping
from workbench.sweeps.request import LISTS, SweepRequest
from workbench.sweeps.store import COLUMNS

pytestmark = pytest.mark.usefixtures("made_up_steps")

STEPS = 60
HIERARCHICAL = {
    "epsilons": [0.5, 2.0],
    "seeds": [3, 4],
    "iterations": STEPS,
    "num_records": 120,
    "delta": 1e-3,
}


def quietly(function, *arguments, **settings):
    return function(
        *arguments, on_progress=lambda progress: None, **grouped(settings, direct=LISTS)
    )


def single(model, data, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fits.DeltaWarning)
        return wb.fit(model, data, **grouped(settings))


def assert_same_fit(ours, alone, tolerance=2e-4):
    for name, value in alone.params.items():
        np.testing.assert_allclose(ours.params[name], value, rtol=tolerance, atol=tolerance)
    assert ours.guarantee == alone.guarantee
    for name, value in alone.metrics.items():
        assert ours.metrics[name] == pytest.approx(value, abs=1e-3)


@pytest.fixture(scope="module", params=EITHER_STEPS)
def hierarchical(request):
    """Other records, and other group features, for each seed; baselines beside them."""
    with fakes.installed(request.param == "made up"):
        return quietly(
            wb.sweep,
            "hierarchical_logistic",
            wb.data.hierarchical,
            baselines=["non-private", "scikit-learn"],
            **HIERARCHICAL,
        )


@pytest.mark.whole_fit
@pytest.mark.thorough
@pytest.mark.parametrize("hierarchical", ["real"], indirect=True)
@pytest.mark.parametrize(("epsilon", "seed"), [(2.0, 3), (2.0, 4), (0.5, 3)])
def test_a_fit_of_the_sweep_is_the_single_fit_with_its_seed(hierarchical, epsilon, seed):
    (number,) = hierarchical.numbers(epsilon=epsilon, seed=seed, method="dp-vi")
    settings = hierarchical.settings_of(number)
    assert (settings["epsilon"], settings["seed"]) == (epsilon, seed)
    data = wb.data.hierarchical(num_records=120, seed=seed)
    assert_same_fit(hierarchical.fit(number), single("hierarchical_logistic", data, **settings))


def test_the_two_seeds_give_different_fits(hierarchical):
    one, other = (
        hierarchical.fit(hierarchical.numbers(epsilon=2.0, seed=seed, method="dp-vi")[0])
        for seed in (3, 4)
    )
    assert np.abs(one.params["mixing_loc"] - other.params["mixing_loc"]).max() > 0.01


def test_the_table_is_tidy(hierarchical):
    table = hierarchical.table
    assert len(table) == 2 * 2 + 2 + 2
    assert set(table["status"]) == {"done"}
    assert table.groupby("method").size().to_dict() == {
        "dp-vi": 4,
        "non-private": 2,
        "scikit-learn": 2,
    }
    private = table[table["method"] == "dp-vi"]
    assert (
        private[["auc", "elbo", "log_likelihood", "noise_multiplier", "seconds"]]
        .notna()
        .all()
        .all()
    )
    assert set(private["iterations"]) == {STEPS}
    assert set(private["num_records"]) == {120}
    assert set(private["label"]) == {"public data"}
    assert np.isinf(table.loc[table["method"] != "dp-vi", "epsilon"]).all()
    baselines = table[table["method"] != "dp-vi"]
    assert set(baselines["release_label"]) == {"outside the guarantee"}
    assert private["noise_multiplier"].nunique() == 2


@pytest.mark.thorough
@pytest.mark.parametrize("hierarchical", ["real"], indirect=True)
def test_the_baseline_without_privacy_has_neither_clipping_nor_noise(hierarchical):
    """It is what ``baseline.without_privacy`` gives, whose randomness is its own."""
    table = hierarchical.table
    without = table[table["method"] == "non-private"]["log_likelihood"]
    private = table[(table["method"] == "dp-vi") & (table["epsilon"] == 0.5)]["log_likelihood"]
    assert without.mean() > private.mean() + 0.01


@pytest.mark.thorough
def test_a_default_that_follows_epsilon_is_no_axis():
    plan = {"epsilons": [0.1, 8.0], "seeds": [0], "iterations": STEPS}
    result = quietly(wb.sweep, "logistic", "breast_cancer", **plan)
    assert result.table["clip"].nunique() == 2
    assert [text.get_text() for text in result.plot().axes[0].get_legend().get_texts()] == ["DP-VI"]


@pytest.mark.thorough
def test_models_that_differ_in_an_option_are_told_apart():
    models = [wb.models.get("logistic", prior_scale=scale) for scale in (0.1, 10.0)]
    result = quietly(
        wb.sweep, models=models, data="breast_cancer", epsilons=1.0, seeds=[0], iterations=STEPS
    )
    assert result.table["options"].nunique() == 2
    words = [text.get_text() for text in result.plot().axes[0].get_legend().get_texts()]
    assert len(set(words)) == 2


@pytest.mark.thorough
def test_how_a_fit_is_run_does_not_make_it_another(tmp_path, monkeypatch):
    plan = {"epsilons": 1.0, "seeds": [0], "iterations": STEPS, "store": tmp_path / "fits.sqlite"}
    quietly(wb.sweep, "logistic", "breast_cancer", baselines="non-private", **plan)
    again = {
        **plan,
        "epsilons": [1.0, 2.0],
        "strategy": "vmap",
        "microbatch_size": 7,
        "device": "cpu",
    }
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", baselines="non-private", **grouped(again, direct=LISTS)
    )
    assert [run.spec.privacy.epsilon for run in prepared.runs] == [2.0]


@pytest.mark.thorough
def test_another_reference_level_is_another_fit_of_the_same_records():
    frame = pd.DataFrame({"ward": ["a", "b"] * 100, "y": [0, 1, 1, 0] * 50})
    keys, records = set(), set()
    for level in (None, "a", "b"):
        schema = {"ward": wb.data.Categorical(["a", "b"], reference=level)}
        data = dataclasses.replace(
            wb.data.from_frame(frame, target="y", schema=schema), is_public=True
        )
        prepared = sweeping.prepare("logistic", data, epsilons=1.0, seeds=[0], iterations=STEPS)
        keys |= set(prepared.cells)
        records |= {prepared.grid.fingerprint_of(cell) for cell in prepared.cells.values()}
    assert (len(keys), len(records)) == (3, 1)


def test_figures_are_drawn_for_every_axis(hierarchical):
    assert hierarchical.plot().axes[0].get_xlabel().startswith("epsilon")
    words = [
        text.get_text()
        for text in hierarchical.plot("log_likelihood").axes[0].get_legend().get_texts()
    ]
    assert any(word.startswith("non-private") for word in words)
    assert "<img" in hierarchical._repr_html_()
    with pytest.raises(ArgumentError, match="x='seed'"):
        hierarchical.plot(x="seed")
    with pytest.raises(ArgumentError, match="metric='f1'"):
        hierarchical.plot("f1")


def test_public_records_spend_nothing(hierarchical):
    assert hierarchical.total is None
    assert "no privacy is spent" in hierarchical.statement


def test_a_fit_that_is_not_private_has_no_result(hierarchical):
    (number, _) = hierarchical.numbers(method="scikit-learn")
    with pytest.raises(ArgumentError, match=f"number={number}: .*not a finished private fit"):
        hierarchical.fit(number)
    with pytest.raises(ArgumentError, match="number=99"):
        hierarchical.fit(99)


def bernoulli(x, y=None, num_records=None):
    """A model of the user's, without a guide."""
    weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_clips_rates_and_an_automatic_guide_go_together_too():
    own = Model("own", "A model of the user's.", bernoulli, AutoNormal)
    sizes = {"epsilons": 1.0, "seeds": [1, 2], "iterations": STEPS}
    result = quietly(
        wb.sweep, own, "breast_cancer", clips=[0.1, 1.0], learning_rates=[0.01, 0.1], **sizes
    )
    assert len(result.table) == 8
    assert (
        len(
            running.groups_of(
                sweeping.prepare(
                    own, "breast_cancer", clips=[0.1, 1.0], **grouped(sizes, direct=LISTS)
                ).runs
            )
        )
        == 1
    )
    (number,) = result.numbers(clip=0.1, learning_rate=0.1, seed=2)
    assert_same_fit(result.fit(number), single(own, "breast_cancer", **result.settings_of(number)))
    assert {line.get_label() for line in result.plot(x="clip").axes[0].get_lines()} >= {
        "learning rate 0.01"
    }


@pytest.mark.thorough
@pytest.mark.whole_fit
@pytest.mark.parametrize("sampler", ["without_replacement", "shuffle", "random_allocation"])
def test_other_samplers_go_together_too(sampler):
    sizes = {"epsilons": [2.0, 20.0], "seeds": [5], "iterations": STEPS}
    result = quietly(wb.sweep, "logistic", "breast_cancer", samplers=sampler, **sizes)
    (number,) = result.numbers(epsilon=2.0)
    assert_same_fit(
        result.fit(number), single("logistic", "breast_cancer", **result.settings_of(number))
    )


@pytest.mark.thorough
def test_every_epsilon_below_ten_shares_one_program():
    """Their padding is that of epsilon 10."""
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", epsilons=[0.1, 1, 9.9], seeds=2, iterations=STEPS
    )
    assert [len(group) for group in running.groups_of(prepared.runs)] == [6]


@pytest.mark.whole_fit
@pytest.mark.thorough
def test_lanes_take_no_step_where_the_noise_of_one_has_no_room(monkeypatch):
    """One program asks for one amount of noise: the largest, which is not that of the first run."""
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", epsilons=[8.0, 0.5], seeds=1, iterations=STEPS
    )
    (group,) = running.groups_of(prepared.runs)
    rooms = [run.plan.mechanism.room(run.plan.sampler.capacity) for run in group]
    assert rooms[0] > rooms[1]
    monkeypatch.setattr(
        GaussianMechanism,
        "has_room",
        lambda noise, capacity, units: noise.room(capacity) > rooms[1],
    )
    (outcomes,) = running.run_group(group)
    assert [outcome.status for outcome in outcomes] == ["failed", "failed"]
    assert all("does not fit into 32-bit integers" in outcome.message for outcome in outcomes)


# --- memory, stopping, failing --------------------------------------------------------------------


@pytest.fixture
def six():
    """Six fits that take a moment."""
    return sweeping.prepare(
        "logistic", "breast_cancer", epsilons=[1.0, 2.0, 4.0], seeds=[0, 1], iterations=STEPS
    )


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_where_memory_does_not_suffice_the_batch_is_halved(six, monkeypatch):
    sizes, run = [], BatchedProgram.run

    def scarce(self, state, *arguments, **settings):
        sizes.append(state.key.shape[0])
        if state.key.shape[0] > 2:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes."
            )
        return run(self, state, *arguments, **settings)

    monkeypatch.setattr(BatchedProgram, "run", scarce)
    result = six.run()
    assert sizes == [6, 3, 2, 2, 2]
    assert set(result.table["status"]) == {"done"}


@pytest.mark.thorough
def test_memory_that_does_not_suffice_for_one_fit_is_told_in_its_row(six, monkeypatch):
    def never(*arguments, **settings):
        raise MemoryError("no more")

    monkeypatch.setattr(BatchedProgram, "run", never)
    result = six.run()
    assert set(result.table["status"]) == {"failed"}
    assert set(result.table["message"]) == {"MemoryError: no more"}


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_a_fit_that_diverges_fails_alone():
    sizes = {"epsilons": 1.0, "seeds": [0], "iterations": STEPS}
    result = quietly(wb.sweep, "logistic", "breast_cancer", learning_rates=[0.1, 1e38], **sizes)
    states = result.table.set_index("learning_rate")["status"].to_dict()
    assert states == {0.1: "done", 1e38: "failed"}
    assert "parameters are not finite" in result.table["message"].iloc[1]


def test_a_stop_keeps_what_is_finished_and_the_rest_goes_on(six):
    fits = []

    def note(progress):
        fits.append(progress.fits)

    result = six.run(lambda: fits[-1] >= 2, note, max_lanes=2)
    assert (result.status, len(result.table)) == ("stopped", 2)
    assert fits[0] == 0
    result = six.run(on_progress=note)
    assert (result.status, len(result.table)) == ("done", 6)
    assert fits[-1] == 6


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_a_stop_within_a_batch_forgets_it():
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", epsilons=1.0, seeds=[0], iterations=2_000_000
    )
    steps = []
    result = prepared.run(
        lambda: bool(steps) and steps[-1] > 0, lambda progress: steps.append(progress.step)
    )
    assert (result.status, len(result.table)) == ("stopped", 0)
    assert repr(result) == "SweepResult(0 of 1 fits done, stopped)"
    with pytest.raises(ArgumentError, match="no finished fit has metrics"):
        result.plot()


def test_an_interrupt_is_a_stop(six, monkeypatch):
    def interrupt(*arguments, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(BatchedProgram, "run", interrupt)
    assert six.run().status == "stopped"


@pytest.mark.thorough
def test_a_cell_that_cannot_be_calibrated_says_why_and_the_others_run():
    # at epsilon 100 in one step the noise would have to be smaller than what 64-bit draws can
    # promise
    result = quietly(
        wb.sweep,
        "logistic",
        "breast_cancer",
        epsilons=[1.0, 100.0],
        seeds=[0],
        iterations=1,
        baselines=["non-private"],
    )
    rows = result.table.set_index("epsilon")
    # a baseline has no noise, and takes its other settings from the largest epsilon that can be
    # kept
    assert rows["status"].to_dict() == {1.0: "done", 100.0: "refused", math.inf: "done"}
    assert rows.loc[100.0, "message"].startswith("epsilon=100.0")


@pytest.mark.thorough
def test_a_score_that_fails_keeps_the_fit():
    logistic = wb.models.get("logistic")

    def score(target, predictions):
        raise ZeroDivisionError("by nothing")

    broken = dataclasses.replace(logistic, score=score)
    result = quietly(wb.sweep, broken, "breast_cancer", epsilons=1.0, seeds=[0], iterations=STEPS)
    assert result.table["status"].tolist() == ["done"]
    assert "ZeroDivisionError" in result.table["message"].iloc[0]
    assert result.fit(0).params


# --- the store ------------------------------------------------------------------------------------


def test_a_repeated_sweep_does_no_work_and_a_changed_one_adds_rows(tmp_path, monkeypatch):
    file = tmp_path / "fits.sqlite"
    plan = {"epsilons": [1.0], "seeds": [0, 1], "iterations": STEPS, "store": file}
    first = quietly(wb.sweep, "logistic", "breast_cancer", **plan)
    with monkeypatch.context() as patch:
        patch.setattr(BatchedProgram, "run", lambda *_, **__: pytest.fail("fitted again"))
        again = quietly(wb.sweep, "logistic", "breast_cancer", **plan)
    pd.testing.assert_frame_equal(first.table, again.table)
    ran = []
    run = BatchedProgram.run
    monkeypatch.setattr(
        BatchedProgram,
        "run",
        lambda self, *a, **k: ran.append(a[0].key.shape[0]) or run(self, *a, **k),
    )
    more = quietly(wb.sweep, "logistic", "breast_cancer", **{**plan, "epsilons": [1.0, 2.0]})
    assert ran == [2]
    assert len(more.table) == 4
    assert file.stat().st_mode & 0o777 == 0o600
    for name, value in first.fit(0).params.items():
        np.testing.assert_array_equal(again.fit(0).params[name], value)


def test_a_stored_fit_keeps_what_another_rule_chose_or_is_refused(tmp_path, monkeypatch):
    plan = {
        "epsilons": [1.0],
        "seeds": [0],
        "iterations": STEPS,
        "store": tmp_path / "store.sqlite",
    }
    first = quietly(wb.sweep, "logistic", "breast_cancer", **plan)
    monkeypatch.setattr(defaults, "clip_of", lambda advice, rows=1: 3.25)
    again = quietly(wb.sweep, "logistic", "breast_cancer", **plan)
    assert again.fit(0).settings["clip"] == first.table["clip"][0] == first.fit(0).guarantee.clip
    noise = planning.noise_multiplier
    monkeypatch.setattr(planning, "noise_multiplier", lambda **steps: 1.1 * noise(**steps))
    with pytest.raises(ArgumentError, match=r"^number=0: was run with other noise"):
        again.fit(0)


def test_a_baseline_of_an_automatic_guide_runs_beside_the_fits():
    mine = Model("mine", "A model of the user's.", bernoulli, AutoNormal)
    sizes = {"epsilons": [1.0, 2.0], "seeds": [1], "iterations": STEPS}
    result = quietly(wb.sweep, mine, "breast_cancer", baselines=["non-private"], **sizes)
    assert result.table["status"].tolist() == ["done"] * 3


def cells_of(**settings):
    """(grid, its only cell) of a fit with these settings."""
    one = grid.Grid(SweepRequest("logistic", "breast_cancer", epsilons=1.0, seeds=[0], **settings))
    (cell,) = one.cells()
    return one, cell


@pytest.mark.thorough
def test_one_key_is_of_one_fit_and_defaults_may_be_written_out():
    choices = {
        "samplers": ["poisson", "without_replacement", "shuffle", "random_allocation"],
        "relation": [None, "add_or_remove_one", "replace_one", "replace_special"],
        "clipping": [None, "flat", "automatic"],
        "average": [None, True, False],
        "evaluate_private": [None, False, True],
        "delta": [None, 1e-4],
    }
    fits_of = {}
    for values in itertools.product(*choices.values()):
        written = {
            name: value for name, value in zip(choices, values, strict=True) if value is not None
        }
        one, cell = cells_of(**written)
        try:
            spec = resolve(one.models[0], one.records_of(cell), **one.settings_of(cell))
        except ArgumentError:  # the relation is not the sampler's
            continue
        fits_of.setdefault(one.key_of(cell), []).append((spec.privacy, spec.run_settings()))
    assert all(fit == fits[0] for fits in fits_of.values() for fit in fits)  # one key, one fit
    # 5 pairs of sampler and relation, 2 clippings, 3 of average (the model's advice is another), 2
    # and 2
    assert len(fits_of) == 5 * 2 * 3 * 2 * 2


def test_defaults_that_are_left_out_are_those_of_the_table():
    defaults = {name: default_of(name, Shared) for name in grid._LEFT_OUT}
    # otherwise a key stands for another fit than before: leave _LEFT_OUT, drop this line
    assert defaults == grid._LEFT_OUT
    # keys leave these out too, in stores that users have: the first relation of a law stays
    assert {name: law.relations[0] for name, law in LAWS.items()} == {
        "poisson": "add_or_remove_one",
        "without_replacement": "replace_one",
        "shuffle": "replace_one",
        "random_allocation": "add_or_remove_one",
    }


def test_a_delta_that_allows_publishing_a_record_is_warned_of(monkeypatch):
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", epsilons=1.0, seeds=3, iterations=STEPS, delta=0.01
    )
    (caution,) = prepared.cautions
    assert "not below 1/N" in caution
    monkeypatch.setattr(sweeping.PreparedSweep, "run", lambda *_, **__: None)
    with pytest.warns(fits.DeltaWarning, match="not below 1/N"):
        quietly(
            wb.sweep,
            "logistic",
            "breast_cancer",
            epsilons=1.0,
            seeds=[0],
            iterations=STEPS,
            delta=0.01,
        )


@pytest.mark.thorough
def test_other_records_options_and_models_are_other_fits():
    def keys(model="logistic", data="breast_cancer", **settings):
        plan = {"epsilons": [1.0], "seeds": [0], "iterations": STEPS, **settings}
        return list(sweeping.prepare(model, data, **grouped(plan, direct=LISTS)).cells)

    here = keys()
    assert keys() == here
    others = [
        keys(wb.models.get("logistic", prior_scale=3.0)),
        keys(data=wb.data.load("breast_cancer", split_seed=1)),
        keys(epsilons=[2.0]),
        keys(seeds=[1]),
        keys(seeds=1),
        keys(iterations=STEPS + 1),
        keys(clips=0.5),
        keys(delta=1e-4),
        keys(estimators="vanilla"),
    ]
    found = {key for cells in (here, *others) for key in cells}
    assert len(found) == 1 + len(others)


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 40, None])
def test_a_file_that_is_something_else_is_refused_and_left_alone(tmp_path, content):
    import sqlite3

    file = tmp_path / "other.sqlite"
    if content is None:
        with sqlite3.connect(file) as other:
            other.execute("CREATE TABLE mine (x)")
        content = file.read_bytes()
    else:
        file.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"store=.*cannot be used"):
        quietly(wb.sweep, "logistic", "breast_cancer", epsilons=1.0, store=file)
    assert file.read_bytes() == content


def test_the_file_documents_its_columns(tmp_path):
    import sqlite3

    file = tmp_path / "fits.sqlite"
    sweeping.Store(file).close()
    with sqlite3.connect(file) as database:
        said = dict(database.execute("SELECT name, meaning FROM columns").fetchall())
        there = [row[1] for row in database.execute("PRAGMA table_info(fits)")]
    assert list(said) == there == list(COLUMNS)


# --- what is spent --------------------------------------------------------------------------------


def test_private_records_need_the_total_to_be_accepted(private_data, made_up_steps):
    plan = {"epsilons": [0.5, 1.0], "seeds": 2, "iterations": STEPS, "delta": 1e-3}
    with pytest.raises(
        BudgetError, match="All 4 fits together, on the same records, satisfy"
    ) as refused:
        quietly(wb.sweep, "logistic", private_data, **plan)
    spent = refused.value.total
    assert 1.0 < spent.epsilon < 3.0
    with pytest.raises(BudgetError, match=r"accept_total_epsilon=1\.0:"):
        quietly(wb.sweep, "logistic", private_data, accept_total_epsilon=1.0, **plan)
    result = quietly(wb.sweep, "logistic", private_data, accept_total_epsilon=spent.epsilon, **plan)
    assert set(result.table["status"]) == {"done"}
    assert result.metrics == ()  # private evaluation records
    assert result.total == spent == total([result.fit(number).guarantee for number in range(4)])
    assert all(result.fit(number).guarantee.secure_randomness for number in range(4))
    with pytest.raises(ArgumentError, match="evaluate_private"):
        result.plot()


@pytest.mark.thorough
def test_what_is_spent_is_told_also_when_nothing_is_left_to_run(private_data, tmp_path):
    plan = {"epsilons": 1.0, "seeds": 1, "iterations": STEPS, "store": tmp_path / "fits.sqlite"}
    first = quietly(wb.sweep, "logistic", private_data, accept_total_epsilon=2, **plan)
    again = quietly(wb.sweep, "logistic", private_data, **plan)
    assert again.total == first.total
    assert "The one fit satisfies" in again.statement


def test_a_fit_that_failed_and_is_run_again_counts_twice(private_data, tmp_path, monkeypatch):
    plan = {"epsilons": 1.0, "seeds": 1, "iterations": STEPS, "store": tmp_path / "fits.sqlite"}
    with monkeypatch.context() as patch:
        patch.setattr(
            BatchedProgram, "run", lambda *_, **__: (_ for _ in ()).throw(MemoryError("no more"))
        )
        failed = quietly(wb.sweep, "logistic", private_data, accept_total_epsilon=2, **plan)
    assert failed.table["status"].tolist() == ["failed"]
    again = sweeping.prepare("logistic", private_data, **grouped(plan, direct=LISTS))
    assert (failed.total.fits, again.total.fits, len(again.runs)) == (1, 2, 1)
    assert again.run().table[["status", "attempts"]].to_numpy().tolist() == [["done", 2]]
    assert sweeping.prepare("logistic", private_data, **grouped(plan, direct=LISTS)).total.fits == 2


@pytest.mark.thorough
@pytest.mark.whole_fit
def test_batches_of_a_group_share_one_program(monkeypatch):
    compiled = []
    compile_steps = BatchedProgram._compiled
    monkeypatch.setattr(
        BatchedProgram, "_compiled", lambda self, *a: compiled.append(1) or compile_steps(self, *a)
    )
    prepared = sweeping.prepare(
        "logistic", "breast_cancer", epsilons=[1.0, 2.0, 4.0, 8.0, 9.0], seeds=[0], iterations=20
    )
    assert set(prepared.run(max_lanes=2).table["status"]) == {"done"}
    assert compiled == [1]


def test_fits_that_the_file_has_of_the_same_records_count(private_data, tmp_path):
    plan = {"seeds": 1, "iterations": STEPS, "store": tmp_path / "fits.sqlite"}
    quietly(wb.sweep, "logistic", private_data, epsilons=1.0, accept_total_epsilon=2, **plan)
    more = sweeping.prepare("logistic", private_data, epsilons=2.0, **grouped(plan, direct=LISTS))
    assert more.total.fits == 2
    assert (
        more.total.epsilon
        > sweeping.prepare(
            "logistic", private_data, epsilons=2.0, seeds=1, iterations=STEPS
        ).total.epsilon
    )


def test_repetitions_of_a_private_fit_have_randomness_of_their_own(private_data):
    result = quietly(
        wb.sweep,
        "logistic",
        private_data,
        epsilons=1.0,
        seeds=2,
        iterations=STEPS,
        accept_total_epsilon=5,
        evaluate_private=True,
    )
    one, other = result.fit(0), result.fit(1)
    assert (one.params["weights_loc"] != other.params["weights_loc"]).all()
    assert set(result.table["label"]) == {"outside the guarantee"}
    assert "Choosing the fit with the best score" in result.statement
    assert result.plot()


@pytest.mark.parametrize(
    ("settings", "argument"),
    [
        ({"epsilons": [1.0, -1]}, "epsilons=-1"),
        ({"iterations": [100, 0]}, "iterations=0"),
        ({"num_records": [10**6]}, "num_records=1000000"),
        ({"samplers": ["bernoulli"]}, "samplers='bernoulli'"),
        ({"baselines": ["magic"]}, "baselines='magic'"),
        ({"batch_sizes": 10, "sampling_rates": 0.1}, "batch_sizes="),
        ({"epsilonn": 1}, "epsilonn"),
        ({"model": None}, "model=None"),
        ({"model": "logistics"}, "model"),
        ({"data": 3}, "data='int'"),
        ({"data": lambda seed: seed}, "data="),
    ],
)
def test_bad_input_names_the_argument_and_the_value(settings, argument):
    given = {
        "model": "logistic",
        "data": "breast_cancer",
        "epsilons": [1.0],
        "iterations": STEPS,
        **settings,
    }
    with pytest.raises(ArgumentError) as error:
        quietly(wb.sweep, **given)
    assert argument in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "settings", [{"seeds": [1, 2]}, {"num_records": 50}, {"baselines": ["scikit-learn"]}]
)
def test_what_no_guarantee_covers_is_refused_on_private_records(private_data, settings):
    (name,) = settings
    with pytest.raises(ArgumentError, match=name):
        quietly(wb.sweep, "logistic", private_data, epsilons=1.0, **settings)


def scaled(x, y=None, num_records=None, scale=1.0):
    weights = numpyro.sample("weights", dist.Normal(0.0, scale).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def closed_over(scale):
    def model(x, y=None, num_records=None):
        scaled(x, y, num_records, scale)

    return model


def without_source():
    names = {"scaled": scaled}
    text = (
        "def model(x, y=None, num_records=None):\n    def inner(): return 1.0\n    scaled(x, y, "
        "num_records, inner())"
    )
    exec(text, names)
    return names["model"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (functools.partial(scaled, scale=1.0), functools.partial(scaled, scale=2.0), False),
        (functools.partial(scaled, scale=1.0), functools.partial(scaled, scale=1.0), True),
        (
            functools.partial(scaled, scale=np.ones(3)),
            functools.partial(scaled, scale=np.arange(3.0)),
            False,
        ),
        (closed_over(1.0), closed_over(2.0), False),
        (closed_over(np.ones(2)), closed_over(np.ones(2)), True),
        (without_source(), without_source(), True),
    ],
    ids=[
        "partials",
        "equal partials",
        "arrays",
        "closures",
        "equal closures",
        "nested functions without source",
    ],
)
def test_models_of_one_name_are_told_apart_by_what_they_do(one, other, same):
    """A store would give the other model's fit, or pay for the same one again."""
    identities = [grid._identity(Model("mine", "A model.", each, scaled)) for each in (one, other)]
    assert (identities[0] == identities[1]) == same
