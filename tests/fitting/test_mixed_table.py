"""A decomposable model of a table's columns, fitted from one release of their marginals."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.results.code import code_of

pytestmark = pytest.mark.usefixtures("checked_models")

SCHEMA = {
    "ill": bool,
    "ward": ["a", "b", "c", "d"],
    "age": (0, 100, int),
    "stay": wb.data.Numeric(0, 30, missing=True),
}


def frame(size=3000, seed=0):
    random = np.random.default_rng(seed)
    ill = random.random(size) < 0.3
    ward = np.where(ill, random.choice(list("aab"), size), random.choice(list("abc"), size))
    age = random.normal(50 + 8 * ill, 12).clip(0, 100).round()
    stay = np.where(random.random(size) < 0.1, np.nan, random.uniform(0, 30, size))
    return pd.DataFrame({"ill": ill, "ward": ward, "age": age, "stay": stay})


def data_of(table, schema=SCHEMA, **options):
    return wb.data.from_frame(table, schema=schema, **{"evaluation": False, **options})


SETTINGS = {"epsilon": 4.0, "delta": 1e-5, "ledger": False, "seed": 1}


def fit(data, marginals="ill", bins=10, **options):
    execution = wb.Execution(progress=False, checkpoint=False)
    model = wb.models.mixed_table(marginals, bins)
    return wb.fit(model, data, **{**SETTINGS, "execution": execution, **options})


@pytest.fixture(scope="module")
def fitted():
    return fit(data_of(frame(), evaluation_is_public=True, evaluation=frame(100, 1)))


def test_it_is_one_release_of_all_records(fitted):
    guarantee = fitted.guarantee
    assert (guarantee.steps, guarantee.sampling_rate, guarantee.released) == (1, 1.0, "sums")
    assert guarantee.clip == pytest.approx(np.sqrt(3))
    assert fitted.params["sums"].shape == (2 * 4 + 2 * 10 + 2 * 11,)
    assert fitted.settings["estimator"] == "statistics"
    assert fitted.posterior_kind == "noise-aware"
    assert fitted.cautions == ()
    assert list(fitted.metrics) == ["log_likelihood"]


@pytest.mark.parametrize("size", [2, 4])
def test_tables_of_as_many_records_as_levels_are_fitted(size):
    table = frame(size)[["ill", "ward"]]
    data = data_of(table, {name: SCHEMA[name] for name in table})
    prepared = wb.prepare(wb.models.mixed_table("ill"), data, **{**SETTINGS, "delta": 1e-3})
    *_, last = prepared.run()
    assert (last.status, last.params["sums"].shape) == ("done", (8,))


def test_what_is_released_is_the_counts_up_to_the_noise(fitted):
    """With a noise of about 2 records; a false alarm in a million."""
    table = frame()
    counts = pd.crosstab(table["ill"], pd.Categorical(table["ward"], list("abcd")), dropna=False)
    released = fitted.params["sums"][:8] * 3000
    noise = fitted.guarantee.noise_multiplier * fitted.guarantee.clip
    assert np.all(np.abs(released - counts.to_numpy().ravel()) < 5.5 * noise + 0.01)


def test_the_posterior_has_probabilities_by_name(fitted):
    posterior = fitted.posterior.posterior
    assert set(posterior.data_vars) == {"probability", "joint_probability"}
    table = fitted.summary()
    assert "probability[ill = True]" in table.index
    assert "joint_probability[ill = True, age = 50 to 60]" in table.index
    shares = frame()["ward"].value_counts(normalize=True)
    for ward in "abc":
        row = table.loc[f"probability[ward = {ward}]"]
        assert abs(row["mean"] - shares[ward]) < 5 * row["sd"]
    assert table.loc["probability[stay = missing]", "mean"] == pytest.approx(0.1, abs=0.02)


def test_metrics_are_log_likelihoods_of_public_records(fitted):
    table, mean = frame(100, 1), fitted.summary()["mean"]
    expected = np.zeros(len(table))
    given = {ill: mean[f"probability[ill = {ill}]"] for ill in (True, False)}
    levels = {
        "ward": table["ward"],
        "stay": [
            "missing" if np.isnan(stay) else f"{3 * (stay // 3):g} to {3 * (stay // 3) + 3:g}"
            for stay in table["stay"]
        ],
    }
    for number, ill in enumerate(table["ill"]):
        expected[number] = np.log(given[ill])
        for name, column in levels.items():
            level = list(column)[number]
            joint = mean[f"joint_probability[ill = {ill}, {name} = {level}]"]
            expected[number] += np.log(joint / given[ill]) - np.log(0.2) * (
                name == "stay" and level != "missing"
            )
    without_age = fit(
        data_of(
            frame().drop(columns="age"),
            {name: column for name, column in SCHEMA.items() if name != "age"},
            evaluation_is_public=True,
            evaluation=table.drop(columns="age"),
        )
    )
    assert without_age.metrics["log_likelihood"] == pytest.approx(expected.mean(), abs=0.02)


def test_twins_have_declared_columns_levels_types_and_missing_values(fitted, tmp_path):
    twins = fitted.twins(sets=20, rows=3000, seed=1)
    table = twins[0]
    assert list(table.columns) == ["ill", "ward", "age", "stay"]
    assert table.dtypes.astype(str).tolist()[::2] == ["bool", "int64"]
    assert set(table["ward"]) <= set("abcd")
    assert table["age"].between(0, 100).all()
    assert (table["stay"].dropna() == table["stay"].dropna().round(5)).all()
    assert table["stay"].isna().mean() == pytest.approx(0.1, abs=0.03)
    assert twins.warning == ""
    differences = [one.groupby("ill")["age"].mean().diff().iloc[1] for one in twins]
    actual = frame().groupby("ill")["age"].mean().diff().iloc[1]
    assert np.mean(differences) == pytest.approx(actual, abs=1.0)
    loaded = wb.load(fitted.save(tmp_path / "result"))
    assert loaded.twins(sets=3, rows=50, seed=1)[2].equals(fitted.twins(3, 50, seed=1)[2])
    assert "mixed_table(marginals='ill', bins=10)" in code_of(loaded)
    readme = (twins.save(tmp_path / "twins") / "README.txt").read_text()
    assert "the pairs of ill with each other column" in readme


def test_columns_of_one_marginal_keep_any_dependence():
    random = np.random.default_rng(3)
    a, b = random.random((2, 4000)) < 0.5
    table = pd.DataFrame({"a": a, "b": b, "c": a ^ b, "d": random.choice(list("uv"), 4000)})
    schema = {"a": bool, "b": bool, "c": bool, "d": ["u", "v"]}
    twin = fit(data_of(table, schema), [("d", "a"), ("c", "b", "a")]).twins(2, 2000)[0]
    assert np.mean(twin["c"] == (twin["a"] ^ twin["b"])) > 0.97


def test_bins_are_where_they_were_put_and_whole_numbers_of_one_are_even():
    random = np.random.default_rng(4)
    table = pd.DataFrame({"gain": np.where(random.random(2000) < 0.9, 0, 700), "x": 0.5})
    data = data_of(table, {"gain": (0, 1000, int), "x": (0, 1)})
    result = fit(data, [("gain",), ("x",)], {"gain": [1, 500], "x": 2})
    assert {"probability[gain = 0]", "probability[gain = 500 to 1000]"} <= {*result.summary().index}
    gain = pd.concat([one["gain"] for one in result.twins(20, 4000, seed=1)])
    assert np.mean(gain == 0) == pytest.approx(0.9, abs=0.02)
    assert np.mean(gain[gain >= 500]) == pytest.approx(750, abs=40)
    with pytest.raises(ArgumentError, match=r"^bins\['gain'\]=.*must ascend"):
        fit(data, [("gain",), ("x",)], {"gain": [500, 1]})
    with pytest.raises(ArgumentError, match=r"^bins='z'"):
        fit(data, [("gain",), ("x",)], {"z": 3})


@pytest.mark.parametrize(
    ("marginals", "words"),
    [
        ("no", "unknown name"),
        (3, "must be the name of a column, or a list"),
        ([], "must be the name of a column, or a list"),
        ([("ill", "ill")], "different names"),
        ([("ill", "ward"), ("ward",)], "is in another marginal"),
        ([("ill", "ward"), ("age",)], "has no marginal with stay"),
        (
            [("ill", "ward"), ("ward", "age"), ("age", "ill"), ("stay", "ill")],
            r"have a cycle.*\('age', 'ill', 'ward'\)",
        ),
        ([("age", "ill", "stay", "ward")], "at most 5000"),
    ],
)
def test_other_marginals_are_refused(marginals, words):
    with pytest.raises(ArgumentError, match=f"^marginals.*{words}"):
        fit(data_of(frame(100)), marginals, 30)


def test_other_tables_and_settings_of_steps_are_refused():
    with pytest.raises(ArgumentError, match=r"^data=.*declared columns and no target"):
        fit(wb.data.load("breast_cancer"))
    with pytest.raises(ArgumentError, match=r"^clip"):
        fit(data_of(frame(100)), clip=1.0)
    persons = frame(100).assign(person=np.arange(100) // 2)
    with pytest.raises(ArgumentError, match=r"^model='mixed_table': .* may have several rows"):
        fit(data_of(persons, unit_id="person", max_rows=2))


@pytest.mark.parametrize(
    ("column", "bins"),
    [
        ((0, 10**9, int), {"x": [1]}),
        ((0, 10**8), {"x": [1.0, 100.0]}),
        ((10**15, 10**15 + 10**9), {"x": [10**15 + 1]}),
    ],
)
def test_bins_that_encoded_records_do_not_have_are_refused(column, bins):
    """Else all records at 0 would be counted as above 1."""
    data = data_of(pd.DataFrame({"x": [column[0]] * 50}), {"x": column})
    with pytest.raises(ArgumentError, match=r"^bins\['x'\]=.*too narrow for the bounds"):
        fit(data, [("x",)], bins)


@pytest.mark.parametrize("bins", [10**9, {"x": 10**9}])
def test_more_bins_than_memory_has_are_refused_at_once(bins):
    data = data_of(pd.DataFrame({"x": [0.5] * 50}), {"x": (0, 1)})
    with pytest.raises(ArgumentError, match=r"^bins.*=1000000000: must be .*5000"):
        fit(data, [("x",)], bins)


def test_more_levels_than_memory_has_are_refused_at_once():
    levels = [f"place {number}" for number in range(100_000)]
    data = data_of(pd.DataFrame({"x": [True] * 9}), {"x": bool})
    schema = wb.data.Schema({"x": wb.data.Categorical(levels)})
    with pytest.raises(ArgumentError, match=r"^schema\['x'\]=100000: levels are too many"):
        fit(dataclasses.replace(data, schema=schema), [("x",)])


def test_all_pictures_can_be_drawn(fitted):
    for name in set(fitted.pictures) - {"check"}:
        assert fitted.plot(name) is not None
