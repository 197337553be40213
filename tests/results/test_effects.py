"""Effects, comparisons, intervals and checks of regressions, against closed forms of
made-up draws.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

import workbench as wb
from tests import fakes
from tests.conftest import some_of
from workbench.formula.families import get
from workbench.results import replication

RANDOM = np.random.default_rng(7)
ROWS, DRAWS = 300, 400
SCHEMA = {
    "age": (20, 80),
    "ward": ["a", "b", "c"],
    "smoker": bool,
    "hospital": ["h1", "h2"],
    "days": (2, 10),
    "seen": bool,
    "visits": wb.data.Numeric(0, 40, whole=True),
    "cost": (-20, 60),
    "time": (0.5, 50),
    "grade": ["low", "mid", "top"],
    "ill": bool,
    "size": wb.data.Numeric(0, 5, whole=True),
}
FRAME = pd.DataFrame(
    {
        "age": RANDOM.uniform(20, 80, ROWS),
        "ward": RANDOM.choice(list("abc"), ROWS),
        "smoker": RANDOM.random(ROWS) < 0.4,
        "hospital": RANDOM.choice(["h1", "h2"], ROWS),
        "days": RANDOM.uniform(2, 10, ROWS),
        "seen": RANDOM.random(ROWS) < 0.7,
        "visits": RANDOM.poisson(4, ROWS),
        "cost": RANDOM.normal(20, 9, ROWS),
        "time": RANDOM.uniform(0.5, 50, ROWS),
        "grade": RANDOM.choice(["low", "mid", "top"], ROWS),
        "ill": RANDOM.random(ROWS) < 0.5,
        "size": RANDOM.integers(0, 6, ROWS),
    }
)
# (formula, family, extras)
MODELS = {
    "poisson": ("visits ~ age + ward + (1 | hospital)", "poisson", {"exposure": "days"}),
    "gaussian": ("cost ~ age + smoker", "gaussian", {}),
    "weibull": ("time ~ age", "weibull", {"observed": "seen"}),
    "cumulative": ("grade ~ age", "cumulative", {}),
    "categorical": ("grade ~ age", "categorical", {}),
    "bernoulli": ("ill ~ size", "bernoulli", {}),
}
DRAWN = {
    "weights": (0.4, 0.2),
    "intercept": (0.1, 0.2),
    "hospital": (0.5, 0.2),
    "hospital_mean": (0.5, 0.2),
    "hospital_contrasts": (0.5, 0.2),
    "mean_intercept": (0.1, 0.2),
    "hospital_sd": None,
    "sigma": None,
    "log_shape": (-0.5, 0.2),
    "shape": None,
    "cutpoints": None,
}


@pytest.fixture(scope="module")
def fitted():
    """Results of short fits whose draws are made up, as those of a fit with a posterior that counts
    the noise.
    """
    kept = {}

    def of(name, *, public=True):
        if name not in kept:
            formula, family, extras = MODELS[name]
            model = wb.models.formula(formula, family=family, schema=SCHEMA, **extras)
            data = model.dataset(FRAME, evaluation_is_public=public)
            with fakes.installed():
                done = wb.fit(
                    model, data, epsilon=5.0, delta=1e-4, iterations=5, seed=1, ledger=False
                )
            random, draws = np.random.default_rng(0), {}
            for site, old in done.draws.items():
                shape = (DRAWS, *old.shape[1:])
                draws[site] = (
                    random.normal(*DRAWN[site], shape)
                    if DRAWN[site]
                    else np.exp(random.normal(-0.5, 0.2, shape))
                )
            if "log_shape" in draws:
                draws["shape"] = np.exp(draws["log_shape"])
            if "cutpoints" in draws:
                draws["cutpoints"] = np.cumsum(draws["cutpoints"], axis=1) - 1
            kept[name] = dataclasses.replace(done, draws=draws, posterior_kind="noise-aware")
        return kept[name]

    return of


def scaled(age):
    return (np.asarray(age, float) - 50) / 30


def units(result):
    columns = result.definition.columns
    return columns.family.units(columns.response)


# ---- effects -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_an_effect_is_the_expected_response_at_declared_middles_and_references(fitted):
    result = fitted("poisson")
    found, draws = result.effects("age", [20, 35, 80]), result.draws
    shift, _ = units(result)
    by_hand = np.exp(
        shift + draws["intercept"][:, None] + draws["weights"][:, :1] * scaled([20, 35, 80])
    )
    np.testing.assert_allclose(found.draws[..., 0], by_hand, rtol=1e-5)
    assert found.at == {"ward": "a", "days": 1, "hospital": "(typical group)"}
    assert found.label == "covered"
    np.testing.assert_allclose(found.table["mean"], by_hand.mean(axis=0), rtol=1e-5)
    assert list(found.table.index) == [20, 35, 80]


@pytest.mark.thorough
def test_other_columns_move_where_they_are_told(fitted):
    result = fitted("poisson")
    draws, (shift, _) = result.draws, units(result)
    found = result.effects(
        "ward", at={"age": 65, "days": 4, "hospital": "h2"}, interval=0.5, kind="eti"
    )
    predictor = draws["intercept"] + draws["weights"][:, 0] * 0.5 + draws["hospital"][:, 1, 0]
    levels = np.column_stack([np.zeros(DRAWS), draws["weights"][:, 1:]])
    by_hand = 4 * np.exp(shift + predictor[:, None] + levels)
    np.testing.assert_allclose(found.draws[..., 0], by_hand, rtol=1e-5)
    np.testing.assert_allclose(
        found.table["eti_50%_high"], np.quantile(by_hand, 0.75, axis=0), rtol=1e-5
    )
    assert found.values == ("a", "b", "c")


@pytest.mark.thorough
def test_a_group_has_its_own_effect_and_lines_are_levels_of_another_column(fitted):
    result = fitted("poisson")
    draws, (shift, _) = result.draws, units(result)
    groups = result.effects("hospital").draws[..., 0]
    np.testing.assert_allclose(
        groups, np.exp(shift + draws["intercept"][:, None] + draws["hospital"][:, :, 0]), rtol=1e-5
    )
    lines = result.effects("age", [20, 50], by="ward")
    assert lines.series == ("a", "b", "c")
    np.testing.assert_allclose(
        lines.draws[:, 1, 2], np.exp(shift + draws["intercept"] + draws["weights"][:, 2]), rtol=1e-5
    )
    assert lines.table.index[:3].tolist() == [(20, "a"), (20, "b"), (20, "c")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "column"), some_of([("gaussian", "smoker"), ("bernoulli", "size")])
)
def test_booleans_and_whole_numbers_have_the_values_that_they_can_have(fitted, name, column):
    result = fitted(name)
    found, draws = result.effects(column), result.draws
    assert found.values == {"smoker": (False, True), "size": (0, 1, 2, 3, 4, 5)}[column]
    if name == "gaussian":
        linear = draws["intercept"][:, None] + draws["weights"][:, 1:] * np.array([0.0, 1.0])
        np.testing.assert_allclose(found.draws[..., 0], 20 + 40 * linear, rtol=1e-4)
    else:
        linear = draws["intercept"][:, None] + draws["weights"] * (np.arange(6) / 2.5 - 1)
        np.testing.assert_allclose(found.draws[..., 0], special.expit(linear), rtol=1e-4)


@pytest.mark.thorough
def test_classes_have_a_probability_each(fitted):
    result = fitted("cumulative")
    found, draws = result.effects("age", [35, 80]), result.draws
    assert found.series == ("low", "mid", "top")
    np.testing.assert_allclose(found.draws.sum(axis=2), 1, rtol=1e-5)
    below = special.expit(
        draws["cutpoints"][:, None] - (draws["weights"] * scaled([35, 80]))[..., None]
    )
    np.testing.assert_allclose(found.draws[..., 0], below[..., 0], rtol=1e-4)
    assert found.table.index.names == ["age", "class"]
    with pytest.raises(wb.ArgumentError, match="by="):
        result.effects("age", by="age")


@pytest.mark.thorough
def test_an_expected_time_does_not_depend_on_whether_events_were_seen(fitted):
    result = fitted("weibull")
    found = result.effects("age", [50])
    assert found.at == {}
    np.testing.assert_allclose(
        found.draws[:, 0, 0], np.exp(units(result).shift + result.draws["intercept"]), rtol=1e-5
    )


def test_models_of_the_gallery_have_effects_too(done):
    column = "mean radius"
    low, high = wb.data.load("breast_cancer").schema.bounds[column]
    middles = done.effects(column, [low, high]).draws[..., 0]
    place = done.coordinates["weights"].index(column)
    assert done.effects(column).values[0] == low
    logits = done.draws["intercept"][:, None] + done.draws["weights"][
        :, place : place + 1
    ] * np.array([-1, 1])
    np.testing.assert_allclose(middles, special.expit(logits), rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"column": "agee"}, "did you mean 'age'"),
        ({"column": "visits"}, "column='visits'"),
        ({"column": "age", "values": [10]}, "at least 20"),
        ({"column": "age", "values": []}, "list of values"),
        ({"column": "age", "values": [30, 30]}, "once"),
        ({"column": "age", "by": "days"}, "by='days'.*one of levels"),
        ({"column": "age", "at": {"age": 30}}, "stays the same"),
        ({"column": "age", "at": {"wards": "a"}}, "did you mean 'ward'"),
        ({"column": "age", "at": {"ward": "z"}}, r"at\['ward'\]='z'"),
        ({"column": "age", "values": list(np.linspace(20, 80, 2500))}, "more than 2000"),
        ({"column": "age", "interval": 1.0}, "interval="),
        ({"column": "age", "kind": "median"}, "kind="),
    ],
)
def test_what_was_not_declared_has_no_effect(fitted, arguments, message):
    with pytest.raises(wb.ArgumentError, match=message):
        fitted("poisson").effects(**arguments)


# ---- comparisons and intervals -------------------------------------------------------------------


@pytest.mark.thorough
def test_comparisons_are_differences_of_effects(fitted):
    result = fitted("poisson")
    found, levels = result.comparisons("ward"), result.effects("ward").draws[..., 0]
    assert list(found.table.index) == ["b - a", "c - a", "c - b"]
    by_hand = np.stack(
        [levels[:, 1] - levels[:, 0], levels[:, 2] - levels[:, 0], levels[:, 2] - levels[:, 1]],
        axis=1,
    )
    np.testing.assert_allclose(found.draws[..., 0], by_hand, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.table["share above 0"], np.mean(by_hand > 0, axis=0))
    np.testing.assert_allclose(found.table["sd"], by_hand.std(axis=0, ddof=1), rtol=5e-3)
    assert result.comparisons("age", (30, 60)).values == ("60.0 - 30.0",)
    assert result.comparisons("hospital").values == ("h2 - h1",)
    of_classes = fitted("cumulative").comparisons("age", (30, 60)).table
    assert of_classes.groupby("difference")["mean"].sum().to_numpy() == pytest.approx([0], abs=1e-6)


def test_numbers_to_compare_must_be_named(fitted):
    with pytest.raises(wb.ArgumentError, match=r"values=None: must be the values of age"):
        fitted("poisson").comparisons("age")
    with pytest.raises(wb.ArgumentError, match="at least two"):
        fitted("poisson").comparisons("age", [30])


def test_intervals_are_those_of_each_records_expected_response(fitted):
    result = fitted("poisson")
    rows = FRAME.iloc[:3]
    draws, (shift, _) = result.draws, units(result)
    hospital = draws["hospital"][:, [int(name[1]) - 1 for name in rows["hospital"]], 0]
    ward = np.column_stack([np.zeros(DRAWS), draws["weights"][:, 1:]])[
        :, ["abc".index(name) for name in rows["ward"]]
    ]
    linear = (
        shift
        + draws["intercept"][:, None]
        + draws["weights"][:, :1] * scaled(rows["age"])
        + ward
        + hospital
    )
    by_hand = rows["days"].to_numpy() * np.exp(linear)
    found = result.intervals(rows, 0.8, "eti")
    np.testing.assert_allclose(found["mean"], by_hand.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found["eti_80%_low"], np.quantile(by_hand, 0.1, axis=0), rtol=1e-4)
    assert list(found.index) == list(rows.index)


@pytest.mark.thorough
def test_effects_show_themselves(fitted):
    result = fitted("poisson")
    effect, difference = result.effects("age"), result.comparisons("ward")
    assert "Expected visits (covered) at ward=a, days=1, hospital=(typical group)." in repr(effect)
    assert "<table" in effect._repr_html_()
    assert repr(difference).startswith("  ") or "share above 0" in repr(difference)
    for figure in (effect.plot(), difference.plot(), fitted("cumulative").effects("age").plot()):
        assert figure.get_supxlabel().startswith("covered")
    warned = dataclasses.replace(effect, warning="Privacy noise moves it.")
    assert "Privacy noise moves it." in repr(warned)


# ---- coefficients --------------------------------------------------------------------------------


def test_a_formulas_coefficients_are_in_own_units_and_scaled(fitted):
    result = fitted("gaussian")
    table, draws = result.coefficients(), result.draws
    assert table.loc["age", "mean"] == pytest.approx(
        40 * draws["weights"][:, 0].mean() / 30, rel=1e-5
    )
    assert table.loc["age", "scaled mean"] == pytest.approx(draws["weights"][:, 0].mean())
    assert table.loc["age", "scaled sd"] == pytest.approx(draws["weights"][:, 0].std(ddof=1))
    assert table.loc["sigma", "mean"] == pytest.approx(40 * draws["sigma"].mean(), rel=1e-5)
    predicted = table.loc["intercept", "mean"] + 62 * table.loc["age", "mean"]
    assert predicted == pytest.approx(
        result.effects("age", [62], at={"smoker": False}).table["mean"].item(), rel=1e-4
    )


def test_groups_have_their_deviations_below(fitted):
    result = fitted("poisson")
    row = result.coefficients().iloc[-1]
    assert row.name == "sd of Intercept by hospital"
    for name in ("mean", "scaled mean"):
        assert row[name] == pytest.approx(result.draws["hospital_sd"].mean(), rel=1e-5)
    assert row[["share above 0", "rate ratio", "rate ratio low"]].isna().all()


def test_a_slopes_deviation_is_of_1_more_of_its_column(fitted):
    """Half the range of age is 30. Products with wards have no margin here, so they are not moved:
    the largest is 80.
    """
    result = fitted("poisson")
    slopes = wb.models.formula(
        "visits ~ (1 + age + age:ward | hospital)", family="poisson", schema=SCHEMA
    )
    draws = {"hospital_sd": np.exp(np.random.default_rng(1).normal(-1, 0.2, (DRAWS, 4)))}
    own = dataclasses.replace(result, definition=slopes, draws=draws, model_options=slopes.options)
    means = own.coefficients()["mean"]
    found = [
        means[f"sd of {name} by hospital"]
        for name in ("Intercept", "age", "age:ward=b", "age:ward=c")
    ]
    np.testing.assert_allclose(
        found, draws["hospital_sd"].mean(axis=0) / [1, 30, 80, 80], rtol=1e-5
    )


@pytest.mark.thorough
def test_cutpoints_are_those_where_all_columns_are_0(fitted):
    result = fitted("cumulative")
    at_zero = result.draws["cutpoints"] + result.draws["weights"] * 50 / 30
    np.testing.assert_allclose(
        result.coefficients()["mean"].filter(like="cutpoints"), at_zero.mean(axis=0), rtol=1e-4
    )


@pytest.mark.thorough
def test_a_categorical_response_has_coefficients_for_each_level(fitted):
    result = fitted("categorical")
    table, weights = result.coefficients(), result.draws["weights"]
    assert list(table.index) == ["mid: intercept", "mid: age", "top: intercept", "top: age"]
    assert table.loc["top: age", "mean"] == pytest.approx(weights[:, 0, 1].mean() / 30, rel=1e-5)
    at_zero = result.draws["intercept"][:, 0] - weights[:, 0, 0] * 50 / 30
    assert table.loc["mid: intercept", "mean"] == pytest.approx(at_zero.mean(), rel=1e-4)
    assert table.loc["mid: age", "odds ratio"] == pytest.approx(
        np.exp(weights[:, 0, 0].mean() / 30), rel=1e-5
    )


def test_the_table_says_what_it_is_of_and_what_was_promised(fitted):
    result = fitted("poisson")
    table = result.coefficients()
    text = str(table)
    assert "visits ~ age + ward + (1 | hospital)" in text.replace("(1|hospital)", "(1 | hospital)")
    for words in (
        "mean of visits per unit of exposure",
        "poisson, link log",
        "(declared)",
        "epsilon = 5",
        "90 %, highest-density",
        "sd of Intercept by hospital",
    ):
        assert words in text, words
    assert str(result.settings["num_records"]) in text
    assert max(map(len, text.splitlines())) <= max(80, len(text.splitlines()[-2]) + 100)
    page = (
        dataclasses.replace(result, data={**result.data, "name": "<script>"})
        .coefficients()
        ._repr_html_()
    )
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert type(table.loc[["age"], ["mean"]]) is pd.DataFrame  # parts are plain tables


@pytest.mark.parametrize("name", ["poisson", "gaussian"])
def test_what_is_printed_are_the_columns_and_rows_of_the_table(fitted, name):
    table = fitted(name).coefficients(0.8, "eti")
    head, *rows = str(table).split("\n---")[1].split("\n")[1:]
    place = 0
    for column in table.columns:
        place = head.index(column, place) + len(column)
    assert [row.split("  ")[0] for row in rows] == [str(name) for name in table.index]
    assert {"eti_80%_low", "eti_80%_high"} <= set(table.columns)


def test_the_tables_of_gallery_models_have_a_heading_too(done):
    text = str(done.coefficients())
    assert text.startswith("Coefficients: logistic\n")
    assert "of breast_cancer" in text


# ---- predictive checks ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", some_of(list(MODELS), 6))
def test_every_kind_of_family_has_its_check(fitted, name):
    figure = fitted(name).plot("check")
    kind = {
        "poisson": "rootogram",
        "weibull": "survival",
        "cumulative": "proportions",
        "categorical": "proportions",
    }
    assert kind.get(name, "posterior predictive check") in figure.get_suptitle()
    assert figure.get_supxlabel().startswith("public data")


def test_a_check_against_private_records_is_outside_the_guarantee(fitted):
    result = dataclasses.replace(fitted("poisson"), public_records=None)
    with pytest.raises(wb.ArgumentError, match="pass a Dataset"):
        result.plot("check")
    private = result.definition.dataset(FRAME)
    assert not private.evaluation_is_public
    assert result.plot("check", private).get_supxlabel().startswith("outside the guarantee")
    assert result.plot("check", FRAME).get_supxlabel().startswith("outside the guarantee")
    with pytest.raises(wb.ArgumentError, match=r"^data='str': must be a Dataset, .*model\.dataset"):
        result.plot("check", "FRAME")


def test_replicated_responses_have_the_families_mean_and_variance(fitted):
    """Over 100 draws of 60 records: within five standard errors, a false alarm in a million."""
    result = fitted("poisson")
    arrays = dict(zip(result.definition.columns.arrays, result.public_records, strict=True))
    replicated, means = replication.responses(result, arrays), replication.means(result, arrays)
    assert replicated.shape == means.shape == (100, len(arrays["y"]))
    gap = np.sum(replicated - means) / np.sqrt(np.sum(means))
    assert abs(gap) < 5
    deviations = (replicated - means) ** 2 - means
    assert abs(deviations.sum()) < 5 * np.sqrt(np.sum(means + 2 * means**2))


@pytest.mark.thorough
def test_survival_curves_are_means_of_the_records(fitted):
    result = fitted("weibull")
    arrays = dict(zip(result.definition.columns.arrays, result.public_records, strict=True))
    times = np.array([0.0, 5.0, 20.0])
    found = replication.survival(result, arrays, times)
    places = np.unique(np.linspace(0, DRAWS - 1, 100).round().astype(int))
    shape = result.draws["shape"][places][:, None, None]
    linear = (
        result.draws["intercept"][places][:, None] + result.draws["weights"][places] @ arrays["x"].T
    )
    mean = np.exp(units(result).shift + linear)[:, None]
    scale = mean / special.gamma(1 + 1 / shape)
    by_hand = stats.weibull_min.sf(times[None, :, None], shape, scale=scale).mean(axis=2)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4, atol=1e-5)
    assert get("weibull").kind == "time"


def test_lines_of_two_levels_are_not_two_classes(made_up_steps):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": random.uniform(0, 10, 60), "g": ["a", "b"] * 30, "ill": random.random(60) < 0.5}
    )
    schema = {"x": (0, 10), "g": ["a", "b"], "ill": ["no", "yes"]}
    frame["ill"] = np.where(frame["ill"], "yes", "no")
    result = wb.fit(
        "ill ~ x + g",
        frame,
        family="bernoulli",
        schema=schema,
        epsilon=1,
        delta=1e-3,
        iterations=10,
    )
    lines = result.effects("x", [0, 10], by="g")
    assert lines.series == ("a", "b")
    assert lines.table.index.names == ["x", "g"]
