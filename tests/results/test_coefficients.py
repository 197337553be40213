"""Coefficients in the columns' own units."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.schema import Schema
from workbench.results.coefficients import clearest, ranked
from workbench.results.report import coefficient_rows

SCHEMA = Schema(
    {
        "age": Numeric(20, 80),
        "ward": Categorical(["a", "b"], other=True),
        "smoker": Boolean(),
        "one": Categorical(["x"]),
    }
)
ROWS = pd.DataFrame(
    {
        "age": [20.0, 37.0, 80.0],
        "ward": ["a", "b", "?"],
        "smoker": [True, False, True],
        "one": ["x", "x", "x"],
    }
)


@pytest.fixture
def tabled(done):
    """``done`` as if it were of a table with ``SCHEMA``, with made-up draws."""
    random = np.random.default_rng(0)
    size = len(SCHEMA.feature_names)
    draws = {"weights": random.normal(size=(500, size)), "intercept": random.normal(size=500)}
    return dataclasses.replace(
        done,
        draws=draws,
        coordinates={"weights": list(SCHEMA.feature_names)},
        data={**done.data, "schema": SCHEMA.to_dict()},
    )


def test_coefficients_predict_what_the_model_predicts(tabled):
    """Each row's linear predictor, from its own values and the table's contrasts."""
    mean = tabled.coefficients()["mean"]
    by_hand = [
        mean["intercept"] + 20 * mean["age"] + mean["smoker"] + mean["one=x"],
        mean["intercept"] + 37 * mean["age"] + mean["ward=b"] + mean["one=x"],
        mean["intercept"]
        + 80 * mean["age"]
        + mean["ward=(other)"]
        + mean["smoker"]
        + mean["one=x"],
    ]
    draws = tabled.draws
    wanted = (draws["weights"] @ SCHEMA.encode(ROWS).T + draws["intercept"][:, None]).mean(0)
    np.testing.assert_allclose(by_hand, wanted, atol=1e-6)


def test_rows_say_what_they_compare(tabled):
    table = tabled.coefficients()
    assert table["contrast"].to_dict() == {
        "intercept": "all columns 0 or at reference",
        "age": "1 more",
        "ward=b": "b against a",
        "ward=(other)": "(other), if there are any, against a",
        "smoker": "yes against no",
        "one=x": "x against none of them",
    }


def test_ratios_are_exponents_and_shares_count_draws(tabled):
    table = tabled.coefficients(0.5, "eti")
    assert list(table.columns) == [
        "contrast",
        "mean",
        "sd",
        "eti_50%_low",
        "eti_50%_high",
        "odds ratio",
        "odds ratio low",
        "odds ratio high",
        "share above 0",
        "scaled mean",
        "scaled sd",
    ]
    smoker = 2 * tabled.draws["weights"][:, -2]
    row = table.loc["smoker"]
    assert row["mean"] == pytest.approx(smoker.mean())
    assert row["eti_50%_low"] == pytest.approx(np.quantile(smoker, 0.25))
    assert row["odds ratio high"] == pytest.approx(np.exp(np.quantile(smoker, 0.75)))
    assert row["share above 0"] == np.mean(smoker > 0)


def test_without_declared_columns_units_are_those_of_the_model(done):
    table = dataclasses.replace(done, data={**done.data, "schema": None}).coefficients()
    assert set(table["contrast"][1:]) == {"1 more, as the model saw it"}
    mean = done.draws["weights"].mean(0, dtype=float)
    np.testing.assert_allclose(table["mean"][1:], mean, rtol=1e-5)


def test_a_model_without_intercept_has_no_row_for_it(tabled):
    without = wb.models.get("logistic", intercept=False)
    other = dataclasses.replace(
        tabled, draws={"weights": tabled.draws["weights"]}, definition=without
    )
    assert list(other.coefficients().index) == list(SCHEMA.feature_names)


def test_a_column_called_intercept_does_not_hide_the_intercept(tabled):
    schema = Schema({"intercept": Numeric(0, 5), "age": Numeric(20, 80)})
    draws = {"weights": tabled.draws["weights"][:, :2], "intercept": tabled.draws["intercept"]}
    other = dataclasses.replace(
        tabled,
        draws=draws,
        coordinates={"weights": ["intercept", "age"]},
        data={**tabled.data, "schema": schema.to_dict()},
    )
    assert list(other.coefficients().index) == ["intercept", "intercept", "age"]


def test_features_without_names_are_numbered(tabled):
    other = dataclasses.replace(tabled, coordinates={}, data={**tabled.data, "feature_names": []})
    assert list(other.coefficients().index)[1:3] == ["feature 0", "feature 1"]


@pytest.mark.parametrize(
    "linear",
    [("gone", "intercept"), ("weights", "gone"), ("intercept", ""), ("weights", "weights")],
)
def test_wrong_sites_are_refused_and_the_report_is_made_without_them(tabled, linear):
    model = dataclasses.replace(
        wb.models.get("logistic"), linear=wb.models.LinearPredictor(*linear)
    )
    other = dataclasses.replace(tabled, definition=model)
    with pytest.raises(wb.ArgumentError, match=r"linear=.*must be a latent site"):
        other.coefficients()
    with pytest.warns(UserWarning, match="coefficients are left out"):
        assert coefficient_rows(other) == ([], [])


def test_a_linear_predictor_is_declared_by_its_own_type():
    with pytest.raises(wb.ArgumentError, match="LinearPredictor or None"):
        dataclasses.replace(wb.models.get("logistic"), linear=("weights", "intercept"))


def test_only_regressions_have_coefficients(done):
    other = dataclasses.replace(done, definition=wb.models.get("gmm"))
    with pytest.raises(wb.ArgumentError, match="no linear predictor"):
        other.coefficients()
    assert coefficient_rows(other) == ([], [])


def test_a_report_shows_ratios_that_people_can_read(tabled):
    draws = {name: 100 * values for name, values in tabled.draws.items()}
    head, rows = coefficient_rows(dataclasses.replace(tabled, draws=draws))
    assert head == ["coefficient", "for", "mean", "90 % interval", "odds ratio", "90 % interval"]
    assert [len(row) for row in rows] == [6] * 6
    assert "below 0.001 to over 1000" in {row[-1] for row in rows}


def test_coefficients_that_are_zero_are_seldom_clear_of_it():
    """Six estimates of 0: one of six 90 % intervals excludes it in 1 - .9^6 = .47 of tables."""
    random, any_alone, any_jointly = np.random.default_rng(0), 0, 0
    for _ in range(400):
        draws = random.normal(size=6) + random.normal(size=(1000, 6))
        low, high = np.quantile(draws, [0.05, 0.95], axis=0)
        any_alone += bool(np.any((low > 0) | (high < 0)))
        any_jointly += bool(len(clearest(draws, 0.9)))
    assert any_alone > 150
    assert any_jointly <= 40 + 3 * 6  # .1, and three standard errors


def clear_of_zero(result):
    """(names of the coefficients that are clear of zero, how many there are)."""
    coefficients = ranked(result, 0.9)
    return [entry.name for entry in coefficients if entry.is_clear], len(coefficients)


def test_the_clearest_coefficient_comes_first_and_one_that_does_not_vary_is_clear():
    random = np.random.default_rng(1)
    means, deviations = np.array([0.0, 5.0, -40.0, 0.3, 2.0]), np.array([1, 1, 10, 0.01, 0])
    draws = means + deviations * random.normal(size=(1000, 5))
    assert clearest(draws, 0.9).tolist()[:2] == [4, 3]
    assert set(clearest(draws, 0.9)) == {1, 2, 3, 4}
    assert clearest(np.zeros((10, 2)), 0.9).tolist() == []


def test_intercepts_and_undeclared_levels_are_not_among_the_clear_coefficients(tabled):
    """There may be no record of an undeclared level: in 2 of 9 fits its interval excluded 0."""
    moved = {"weights": tabled.draws["weights"] + 9.0, "intercept": tabled.draws["intercept"] + 99}
    names, total = clear_of_zero(dataclasses.replace(tabled, draws=moved))
    assert sorted([*names, "ward=(other)"]) == sorted(SCHEMA.feature_names)
    assert total == len(SCHEMA.feature_names)
    few = {name: values[:50] for name, values in moved.items()}
    assert clear_of_zero(dataclasses.replace(tabled, draws=few)) == ([], total)


def test_a_column_called_intercept_is_a_coefficient_and_a_site_of_any_name_an_intercept(tabled):
    draws = {"weights": tabled.draws["weights"][:, :1] + 9.0, "level": tabled.draws["intercept"]}
    linear = wb.models.LinearPredictor("weights", "level")
    other = dataclasses.replace(
        tabled,
        draws=draws,
        coordinates={"weights": ["intercept"]},
        definition=dataclasses.replace(tabled.definition, linear=linear),
    )
    assert clear_of_zero(other) == (["intercept"], 1)
