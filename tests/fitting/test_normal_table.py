"""A joint normal distribution of a table's columns, fitted from one release of its moments."""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.results.code import code_of

pytestmark = pytest.mark.usefixtures("checked_models")

BOUNDS = {"age": (0, 100), "stay": (0, 20)}


def frame(size=3000, seed=0):
    random = np.random.default_rng(seed)
    age = random.normal(50, 12, size)
    return pd.DataFrame({"age": age, "stay": 0.1 * age + 5 + random.normal(0, 2, size)})


def data_of(table, **options):
    return wb.data.from_frame(table, bounds=BOUNDS, **{"evaluation": False, **options})


def fit(data, **options):
    execution = wb.Execution(progress=False, checkpoint=False)
    settings = {"epsilon": 4.0, "ledger": False, "execution": execution, "seed": 1}
    return wb.fit("normal_table", data, **{**settings, **options})


@pytest.fixture(scope="module")
def fitted():
    return fit(data_of(frame(), evaluation_is_public=True, evaluation=frame(100, 1)))


def test_it_is_one_release_of_all_records(fitted):
    guarantee = fitted.guarantee
    assert (guarantee.steps, guarantee.sampling_rate, guarantee.released) == (1, 1.0, "sums")
    assert guarantee.clip == 3.0
    assert fitted.params["sums"].shape == (6,)
    assert fitted.settings["estimator"] == "statistics"
    assert fitted.posterior_kind == "noise-aware"
    assert fitted.cautions == ()


def test_the_posterior_is_in_the_columns_own_units(fitted):
    posterior, table = fitted.posterior.posterior, frame()
    assert set(posterior.data_vars) == {"mean", "covariance", "correlation"}
    assert list(posterior["mean"].coords["mean_entry"].values) == ["age", "stay"]
    means = fitted.draws["mean"]
    assert np.all(np.abs(means.mean(axis=0) - table.mean().to_numpy()) < 5 * means.std(axis=0))
    covariances = fitted.draws["covariance"]
    actual, spread = table.cov().to_numpy(), covariances.std(axis=0)
    assert np.all(np.abs(covariances.mean(axis=0) - actual) < 5 * spread)
    assert np.all(spread < 0.2 * actual)
    assert "age" in " ".join(fitted.summary().index)


def test_metrics_are_log_likelihoods_of_public_records(fitted):
    from scipy import stats

    rows = fitted.public_records[0]
    assert list(fitted.metrics) == ["log_likelihood"]
    reach = np.array([50.0, 10.0])
    covariance = fitted.draws["covariance"].mean(axis=0) / np.outer(reach, reach)
    mean = fitted.draws["mean"].mean(axis=0) / reach - 1
    expected = stats.multivariate_normal(mean, covariance).logpdf(rows).mean()
    assert fitted.metrics["log_likelihood"] == pytest.approx(expected, abs=0.02)


def test_twins_are_whole_tables_with_the_declared_columns(fitted, tmp_path):
    twins = fitted.twins(sets=20, rows=2000, seed=1)
    table = twins[0]
    assert list(table.columns) == ["age", "stay"]
    assert table["age"].between(0, 100).all()
    assert (table["age"] == table["age"].round(4)).all()
    assert twins.warning == ""
    slopes = [np.polyfit(table["age"], table["stay"], 1)[0] for table in twins]
    assert np.mean(slopes) == pytest.approx(0.1, abs=0.01)
    loaded = wb.load(fitted.save(tmp_path / "result"))
    assert loaded.twins(sets=3, rows=50, seed=1)[2].equals(fitted.twins(3, 50, seed=1)[2])
    assert loaded.summary().equals(fitted.summary())
    assert "normal_table()" in code_of(loaded)


def test_whole_columns_come_back_whole():
    schema = {"age": (0, 100, int), "stay": (0, 20)}
    data = wb.data.from_frame(frame().round(), schema=schema, evaluation=False)
    table = fit(data).twins(sets=2, rows=100)[0]
    assert (table["age"] == table["age"].round()).all()


def test_a_fit_without_privacy_says_that_there_is_none():
    with pytest.raises(ArgumentError, match="A fit without privacy takes steps too"):
        wb.fit("normal_table", data_of(frame(100)), private=False)


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"training": wb.Training(estimator="aligned")}, "estimator"),
        ({"iterations": 100}, "iterations"),
        ({"clip": 1.0}, "clip"),
        ({"clip": "auto"}, "clip"),
    ],
)
def test_settings_of_steps_are_refused(options, argument):
    with pytest.raises(ArgumentError) as caught:
        fit(data_of(frame(100)), **options)
    assert caught.value.argument == argument


def test_other_tables_are_refused():
    with_level = frame(100).assign(ward="a")
    data = wb.data.from_frame(with_level, schema={**BOUNDS, "ward": ["a", "b"]}, evaluation=False)
    with pytest.raises(ArgumentError, match=r"^data=.*numbers with declared bounds and no target"):
        fit(data)
    with pytest.raises(ArgumentError, match=r"^data=.*numbers with declared bounds"):
        fit(wb.data.load("breast_cancer"))
    wide = pd.DataFrame(np.zeros((50, 21)), columns=[f"x{number}" for number in range(21)])
    with pytest.raises(ArgumentError, match="more than 20 columns"):
        fit(wb.data.from_frame(wide, bounds=(-1, 1), evaluation=False))
    persons = frame(100).assign(person=np.arange(100) // 2)
    data = data_of(persons, unit_id="person", max_rows=2)
    with pytest.raises(ArgumentError, match="may have several rows"):
        fit(data)


def test_all_pictures_can_be_drawn(fitted):
    for name in set(fitted.pictures) - {"check"}:
        assert fitted.plot(name) is not None
