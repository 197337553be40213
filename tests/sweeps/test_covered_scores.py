"""Scores of private evaluation records that the fits of a sweep release through noise."""

import dataclasses
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.ledger.composition import total
from workbench.models import covered_scores as module
from workbench.models import outcomes
from workbench.sweeps.store import Store

COVERED = {"privacy": wb.Privacy(covered_scores=True), "ledger": False, "accept_total_epsilon": 900}
SCORES = ("log_likelihood", "auc", "accuracy")


def swept(data, **more):
    return wb.sweep(
        "logistic", data, **{"epsilons": [1.0, 2.0], "iterations": 20, **COVERED, **more}
    )


@pytest.fixture
def releases(monkeypatch):
    """A list of the noise multipliers with which scores were released."""
    released = []
    release = outcomes.covered_scores

    def noted(*arguments, **more):
        released.append(more["noise_multiplier"])
        return release(*arguments, **more)

    monkeypatch.setattr(outcomes, "covered_scores", noted)
    return released


@pytest.mark.usefixtures("made_up_steps")
def test_each_fit_releases_scores_once_and_has_its_intervals(private_data, releases, tmp_path):
    result = swept(private_data, store=tmp_path / "fits.sqlite")
    table = result.table
    assert set(table["label"]) == {"covered"}
    assert result.metrics == ("auc", "accuracy", "log_likelihood")  # no ELBO, which has no noise
    for name in SCORES:
        assert table[f"{name}_low"].le(table[name]).all()
        assert table[f"{name}_high"].ge(table[name]).all()
    assert result.plot()
    assert result.plot(x="iterations")
    fit = result.fit(0)
    assert fit.metrics_label == "covered"
    assert fit.metrics == {name: table[name][0] for name in SCORES}
    assert fit.metric_intervals["auc"] == (table["auc_low"][0], table["auc_high"][0])
    assert fit.history == ()
    again = swept(private_data, store=tmp_path / "fits.sqlite")
    assert again.table.equals(table)
    assert releases == [guarantee.score_noise for guarantee in result.guarantees]


@pytest.mark.usefixtures("made_up_steps")
def test_the_total_counts_them(private_data):
    result = swept(private_data)
    single = wb.fit(
        "logistic", private_data, epsilon=2.0, iterations=20, privacy=COVERED["privacy"]
    )
    assert result.guarantees[1] == single.guarantee
    assert result.total.epsilon == total(result.guarantees).epsilon > 2
    assert "this total covers a choice by them" in result.statement
    assert "leaks" not in result.statement


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.whole_fit
@pytest.mark.parametrize("executor", some_of([False, True]))
def test_they_are_scores_of_the_parameters_that_the_fit_releases(
    private_data, executor, monkeypatch
):
    monkeypatch.setattr(module, "with_noise", lambda counts, spacings, key: counts / spacings)
    with ThreadPoolExecutor(1) as pool:
        more = {"executor": pool} if executor else {}
        result = swept(private_data, epsilons=100.0, learning_rates=[1e-6, 1.0], delta=1e-3, **more)
    for number in range(2):
        fit = result.fit(number)
        exact = fit.score(private_data)["log_likelihood"]
        assert fit.metrics["log_likelihood"] == pytest.approx(exact, abs=0.02)
    first, second = (result.table["log_likelihood"][number] for number in range(2))
    assert abs(first - second) > 0.1  # so neither has the other's


@pytest.mark.usefixtures("made_up_steps")
def test_an_error_in_a_score_loses_no_fit_and_quotes_no_record(private_data, monkeypatch):
    def fails(target, *_, **__):
        raise ValueError(str(target))

    monkeypatch.setattr(outcomes, "covered_scores", fails)
    table = swept(private_data).table
    assert set(table["status"]) == {"done"}
    assert set(table["message"]) == {"Scores could not be released (ValueError)."}


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.parametrize(
    ("change", "more", "reason"),
    [
        ({"evaluation_is_public": True}, {}, "those of public ones are exact"),
        ({}, {"samplers": "shuffle"}, "may change sides"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_a_step(private_data, change, more, reason):
    with pytest.raises(ArgumentError, match=reason):
        swept(dataclasses.replace(private_data, **change), **more)


@pytest.mark.usefixtures("made_up_steps")
def test_a_fit_of_a_sweep_knows_its_row_of_the_ledger(private_data, tmp_path):
    book, file = wb.ledger.Ledger(tmp_path / "ledger.sqlite"), tmp_path / "fits.sqlite"
    fit = swept(private_data, ledger=book, store=file).fit(1)
    assert {spend.key: spend.guarantee for spend in book.spends()}[fit.spend] == fit.guarantee
    assert fit.ledger.path == book.path
    answer = wb.verify(wb.release(fit, tmp_path / "out", ledger=book))
    assert answer.status != "failed"
    assert "All 2 fits on these records together" in str(answer)


def test_made_up_records_have_no_private_scores():
    with pytest.raises(ArgumentError, match="those of public ones are exact"):
        wb.sweep("hierarchical_logistic", wb.data.hierarchical, epsilons=1.0, **COVERED)


@pytest.mark.usefixtures("made_up_steps")
def test_sizes_of_public_records_are_scored_on_the_same_private_ones(private_data):
    data = dataclasses.replace(private_data, is_public=True)
    table = swept(data, num_records=[50, 100], seeds=[1, 2], epsilons=1.0).table
    assert set(table["label"]) == {"covered"}
    assert len(set(table["log_likelihood"])) == 4


@pytest.mark.whole_fit
@pytest.mark.thorough
@pytest.mark.parametrize("reading", ["oblivious", "direct"])
def test_records_that_stay_in_their_file_are_scored_too(private_frame, tmp_path, reading):
    private_frame.to_parquet(tmp_path / "t.parquet")
    place, key = tmp_path / "t.wbr", tmp_path / "key"
    bounds = {"dose": (0, 200), "age": (0, 100)}
    wb.data.pack(
        tmp_path / "t.parquet", place, encrypt=True, key_file=key, target="ill", bounds=bounds
    )
    table = swept(wb.data.open(place, key_file=key, reading=reading)).table
    assert set(table["label"]) == {"covered"}
    assert np.isfinite(table[["auc", "auc_low", "auc_high"]]).all().all()


@pytest.mark.usefixtures("made_up_steps")
def test_a_store_of_before_gets_the_column_and_keeps_its_fits(private_data, tmp_path):
    file, plain = tmp_path / "fits.sqlite", wb.Privacy()
    former = swept(private_data, store=file, privacy=plain).table
    with sqlite3.connect(file) as database:
        for name in ("intervals", "spend"):
            database.execute(f"ALTER TABLE fits DROP COLUMN {name}")
            database.execute("DELETE FROM columns WHERE name = ?", (name,))
        database.execute("PRAGMA user_version = 2")
    assert swept(private_data, store=file, privacy=plain).table.equals(former)
    assert len(swept(private_data, store=file).table) == 2
    assert len(Store(file).rows()) == 4


@pytest.mark.usefixtures("made_up_steps")
def test_an_error_in_a_score_shows_no_exact_one_as_covered(private_data, monkeypatch):
    def fails(*_, **__):
        raise ValueError

    monkeypatch.setattr(outcomes, "covered_scores", fails)
    both = wb.Privacy(covered_scores=True, evaluate_private=True)
    result = swept(private_data, epsilons=[1.0], privacy=both)
    assert result.metrics == ()
    assert result.fit(0).metrics == {}
