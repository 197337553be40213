"""Fits of a sweep share one look at their columns: its scales, and what it spent."""

import warnings

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError, sweeps
from workbench.ledger.ledger import Ledger
from workbench.sweeps import running, sweeping

pytestmark = pytest.mark.usefixtures("made_up_steps")

SCHEMA = {"age": (0, 1000), "ward": ["a", "b", "c"], "ill": bool}
SWEPT = {"epsilons": [0.5, 2.0], "seeds": 2, "iterations": 40, "delta": 1e-4}


@pytest.fixture(scope="module")
def model():
    return wb.models.formula("ill ~ age + ward", schema=SCHEMA, family="bernoulli")


@pytest.fixture(scope="module")
def data(model):
    random = np.random.default_rng(0)
    age = random.normal(50, 15, 3000)
    age[:20] = 900.0  # outside every scale that is learned
    frame = pd.DataFrame({"age": age, "ward": random.choice(list("abc"), 3000)})
    frame["ill"] = random.random(3000) < 1 / (1 + np.exp(-(age - 50) / 15))
    return model.dataset(frame, name="clinic", evaluation_is_public=True)


@pytest.fixture(scope="module")
def look(data):
    return wb.look(data, epsilon=1.0, delta=1e-4, ledger=False, seed=5)


def prepared(model, data, look, **settings):
    return sweeping.prepare(model, data, privacy=wb.Privacy(look=look), **SWEPT, **settings)


def test_a_share_of_each_fit_is_refused(model, data):
    with pytest.raises(ArgumentError, match=r"^look=0\.1: would be paid for by each fit"):
        prepared(model, data, 0.1)


def test_bounds_that_are_kept_are_said_unless_that_was_asked_for(model, data, look):
    words = "keep the declared bounds"
    assert words in prepared(model, data, None).statement()
    assert words not in prepared(model, data, 0).statement()
    assert words not in prepared(model, data, look).statement()
    assert "that they use spent epsilon = 1 besides" in prepared(model, data, look).statement()
    public = sweeping.prepare("logistic", "breast_cancer", epsilons=1.0, iterations=20)
    assert words not in public.statement()


def test_fits_on_one_look_are_stepped_together_and_on_the_same_arrays(model, data, look):
    sweep = prepared(model, data, look)
    assert len(running.groups_of(sweep.runs)) == 1
    first, *others = (run.spec for run in sweep.runs)
    assert set(first.scales) == {"age", "ward"}
    # the number of records that take part is private, so it is not what is declared
    assert len(first.records[0]) < data.num_train == first.privacy.num_records
    for spec in others:
        assert all(one is other for one, other in zip(spec.records, first.records, strict=True))
    kept = {run.key for run in prepared(model, data, 0).runs}
    assert kept.isdisjoint(run.key for run in sweep.runs)


@pytest.mark.whole_fit
@pytest.mark.thorough
def test_a_fit_of_the_sweep_is_the_fit_alone(model, data, look):
    public = wb.data.Dataset(**{**vars(data), "is_public": True})
    settings = {"privacy": wb.Privacy(look=look), "delta": 1e-4, "iterations": 40}
    swept = wb.sweep(
        model, public, epsilons=[1.0, 2.0], seeds=[3], on_progress=lambda _: None, **settings
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = wb.fit(model, public, epsilon=2.0, seed=3, **settings)
    (number,) = swept.numbers(epsilon=2.0)
    ours = swept.fit(number)
    assert ours.guarantee == alone.guarantee
    assert ours.data["scales"] == alone.data["scales"]
    for name, value in alone.params.items():
        np.testing.assert_allclose(ours.params[name], value, rtol=2e-4, atol=2e-4)


@pytest.mark.whole_fit
@pytest.mark.thorough
@pytest.mark.parametrize("executor", [None, sweeps.executors.Processes])
def test_baselines_and_fits_in_other_processes_use_the_look(model, data, look, executor):
    if executor is not None:
        executor = executor(1)
    swept = wb.sweep(
        model,
        wb.data.Dataset(**{**vars(data), "is_public": True}),
        epsilons=[2.0],
        seeds=[3],
        iterations=20,
        baselines=["non-private"],
        privacy=wb.Privacy(look=look),
        executor=executor,
        on_progress=lambda _: None,
    )
    assert list(swept.table["status"]) == ["done", "done"], list(swept.table["message"])
    if executor is not None:
        executor.shutdown()


def test_a_model_of_categories_alone_needs_no_scale(model, data, look):
    wards = wb.models.formula("ill ~ ward", schema=SCHEMA, family="bernoulli")
    sweep = prepared(None, data, look, models=[model, wards])
    assert not sweep.refused
    assert {len(run.spec.scales) for run in sweep.runs} == {0, 2}


def test_a_look_at_rows_is_none_at_persons(model):
    frame = pd.DataFrame({"age": np.linspace(20, 80, 2000), "pid": np.arange(2000) // 2})
    frame = frame.assign(ward="a", ill=np.arange(2000) % 3 == 0)
    seen = wb.look(model.dataset(frame), epsilon=1.0, ledger=False)
    persons = model.dataset(frame, unit_id="pid", max_rows=2)
    privacy = wb.Privacy(look=seen)
    with pytest.raises(ArgumentError, match=r"^look=.*protects each training record, but a pid"):
        wb.prepare(model, persons, epsilon=1.0, privacy=privacy)


def test_the_ledger_counts_the_look_with_the_fits(model, data, tmp_path):
    book = Ledger(tmp_path / "book.sqlite")
    seen = wb.look(data, epsilon=1.0, delta=1e-4, ledger=book)
    spent = wb.sweep(
        model,
        data,
        privacy=wb.Privacy(look=seen),
        accept_total_epsilon=10.0,
        ledger=book,
        on_progress=lambda _: None,
        **SWEPT,
    )
    both = book.budget_status("clinic").total
    assert both.fits == spent.total.fits + 1
    assert spent.total.epsilon < both.epsilon < spent.total.epsilon + 1.0
