"""Predictions, scores and synthetic records of a result, in memory and loaded again."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import workbench as wb
from tests import fakes
from workbench import ArgumentError
from workbench.results.prediction import BoundsWarning

SCHEMA = {"age": (0, 100, int), "sex": ["f", "m"], "smoker": bool}


@pytest.fixture(scope="module")
def patients():
    random = np.random.default_rng(3)
    age, sex, smoker = (
        random.integers(20, 90, 400),
        random.choice(["f", "m"], 400),
        random.random(400) < 0.3,
    )
    ill = random.random(400) < 1 / (1 + np.exp(-(age - 55) / 8 - 2 * smoker + 1))
    return pd.DataFrame(
        {"age": age, "sex": sex, "smoker": smoker, "ill": np.where(ill, "yes", "no")}
    )


@pytest.fixture(scope="module")
def table(patients):
    classes = ["no", "yes"]
    return wb.data.from_frame(
        patients,
        target="ill",
        classes=classes,
        schema=SCHEMA,
        evaluation_is_public=True,
        name="ward",
    )


@pytest.fixture(scope="module")
def fitted(table):
    return wb.fit("logistic", table, epsilon=8.0, iterations=200, seed=1)


@pytest.fixture(scope="module")
def loaded(fitted, tmp_path_factory):
    return wb.load(fitted.save(tmp_path_factory.mktemp("runs") / "ward"))


@pytest.fixture(scope="module")
def grouped():
    with fakes.installed():
        return wb.fit("hierarchical_logistic", "hierarchical", epsilon=8.0, iterations=100, seed=1)


# ---- predict -------------------------------------------------------------------------------------


def test_a_table_in_its_own_units_is_encoded_by_the_declared_schema(fitted, table):
    people = pd.DataFrame({"age": [25, 85], "sex": ["f", "m"], "smoker": [False, True]})
    young, old = fitted.predict(people)
    assert young < old
    assert fitted.predict(table.schema.encode(people)) == pytest.approx([young, old])


def test_a_table_with_values_outside_the_bounds_is_told_so(fitted):
    """Their share is a number about the rows that are passed; a cell is not quoted."""
    people = pd.DataFrame(
        {"age": [25, 50, 123456, -999], "sex": ["f", "m", "f", "m"], "smoker": False}
    )
    with pytest.warns(BoundsWarning, match=r"age \(50\.?0? % of these rows\)") as said:
        predicted = fitted.predict(people)
    assert not {"123456", "999"} & set(str(said[0].message).replace(",", " ").split())
    assert predicted[2:] == pytest.approx(fitted.predict(people[2:].assign(age=[100, 0])))
    with pytest.warns(BoundsWarning):
        fitted.intervals(people)
    assert len(fitted.predict(people.head(2))) == 2


def test_a_table_with_values_that_are_no_level_is_told_so(private_frame):
    frame = private_frame.assign(ward=np.where(private_frame["age"] > 50, "a", "b"))
    ward = wb.data.Categorical(["a", "b"], other=True)
    schema = {"ill": bool, "age": (0, 100), "ward": ward}
    options = {"epsilon": 8.0, "iterations": 20, "ledger": False, "schema": schema}
    fit = wb.fit("ill ~ age + ward", frame, privacy=wb.Privacy(look=0), **options)
    people = pd.DataFrame({"age": [25.0, 50.0, 30.0, 40.0], "ward": ["a", "b", "A", None]})
    with pytest.warns(BoundsWarning, match=r"no level .*ward \(50\.?0? % of these rows\)"):
        fit.predict(people)
    with warnings.catch_warnings():
        warnings.simplefilter("error", BoundsWarning)
        fit.predict(people.head(2))


def test_predictions_are_means_over_posterior_draws(fitted, table):
    x = table.evaluation[0][:5]
    drawn = fitted.guide_draws
    logits = drawn["weights"] @ x.T + drawn["intercept"][:, None]
    exact = (1 / (1 + np.exp(-logits))).mean(axis=0)
    assert fitted.predict(x) == pytest.approx(exact, abs=0.02)  # 200 of 1000 draws


def test_without_records_the_public_evaluation_records_are_taken(fitted, table):
    assert np.array_equal(fitted.predict(), fitted.predict(table))
    assert len(fitted.predict()) == table.num_evaluation


def test_a_loaded_result_predicts_the_same(fitted, loaded, table):
    assert loaded.predict(table.evaluation[0]) == pytest.approx(fitted.predict(), rel=1e-6)


def test_a_loaded_result_keeps_no_records(loaded):
    with pytest.raises(
        ArgumentError, match=r"^records=None: give the records.* loaded from a folder"
    ) as caught:
        loaded.predict()
    assert caught.value.argument == "records"


def test_a_result_says_why_it_keeps_no_records(fitted):
    private = dataclasses.replace(
        fitted, public_records=None, metrics_label="outside the guarantee"
    )
    with pytest.raises(ArgumentError, match="those that were held out are private"):
        private.predict()
    without = dataclasses.replace(
        fitted, public_records=None, data={**fitted.data, "num_evaluation": None}
    )
    with pytest.raises(ArgumentError, match="none were held out that are declared public"):
        without.predict()


def test_what_samples_are_given_is_called_so(loaded):
    with pytest.raises(
        ArgumentError, match=r"^given=None: give the records: this result keeps none"
    ):
        loaded.sample()
    with pytest.raises(ArgumentError, match=r"^given=.*must hold at least one record"):
        loaded.sample(given=pd.DataFrame())


def test_groups_are_places_among_the_declared_ones(grouped):
    x, group, _ = wb.data.load("hierarchical").evaluation
    some = grouped.predict((x[:4], group[:4]))
    assert some.shape == (4,)
    with pytest.raises(ArgumentError, match=r"^group='int64': must be whole numbers from 0 to 2"):
        grouped.predict((x[:4], np.full(4, 3)))


@pytest.mark.parametrize(
    ("records", "argument"),
    [
        (np.zeros((2, 5)), "x"),
        (np.array([[0.0, 1.0, np.nan]]), "x"),
        ((np.zeros((2, 3)), np.zeros(2)), "records"),
        (pd.DataFrame({"age": [1]}), "frame"),
        (pd.DataFrame({"age": [1], "sex": ["x"], "smoker": [True]}), "sex"),
        (np.array(["a", "b"]), "x"),
        (np.zeros((0, 3)), "records"),
        (pd.DataFrame({"age": [], "sex": [], "smoker": []}), "records"),
    ],
)
def test_records_of_another_form_are_refused(fitted, records, argument):
    with pytest.raises(ArgumentError) as caught:
        fitted.predict(records)
    assert caught.value.argument == argument


@pytest.mark.thorough
@pytest.mark.usefixtures("made_up_steps")
def test_a_model_without_predict_predicts_the_mean_of_its_target(table):
    def model(x, y=None, num_records=None):
        weights = numpyro.sample("weights", dist.Normal(0, 1).expand([x.shape[-1]]).to_event(1))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    result = wb.fit(
        wb.models.Model("bare", "Bare.", model), table, epsilon=8.0, iterations=5, seed=1
    )
    features = np.eye(3, dtype=np.float32)
    places = np.unique(np.linspace(0, len(result.draws["weights"]) - 1, 200).round().astype(int))
    expected = 1 / (1 + np.exp(-features @ result.draws["weights"][places].T))
    np.testing.assert_allclose(result.predict(features), expected.mean(axis=1), rtol=1e-4)
    assert set(result.score()) == {"elbo", "log_likelihood"}
    assert set(result.sample(3)["ill"]) <= {"yes", "no"}


def test_a_result_of_a_model_that_is_gone_names_it(loaded):
    orphan = dataclasses.replace(loaded, model="lost")
    assert "forest" in orphan.pictures
    assert len(orphan.summary_table()) == 4
    with pytest.raises(ArgumentError, match="'lost'"):
        orphan.predict(np.zeros((1, 3)))


def test_parameters_of_another_model_are_refused(loaded):
    other = dataclasses.replace(loaded, params={"weights_loc": loaded.params["weights_loc"]})
    with pytest.raises(
        ArgumentError, match=r"is not the model that was fitted: it has a parameter"
    ):
        other.sample(3, given=np.zeros((3, 3)))


# ---- score ---------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_scores_are_those_of_the_run_up_to_draws(fitted):
    scores = fitted.score()
    assert set(scores) == set(fitted.metrics)
    for name, value in fitted.metrics.items():
        assert scores[name] == pytest.approx(value, abs=0.03)


def test_scores_of_other_records(fitted, table):
    x, y = table.evaluation
    assert fitted.score((x, 1 - y))["auc"] == pytest.approx(
        1 - fitted.score((x, y))["auc"], abs=1e-6
    )


def test_scores_are_labelled_by_the_records_they_are_computed_on(fitted, table):
    private = dataclasses.replace(table, evaluation_is_public=False)
    assert fitted.score().label == fitted.score(table).label == "public data"
    assert (
        fitted.score(private).label
        == fitted.score(table.evaluation).label
        == "outside the guarantee"
    )
    assert fitted.score(table.evaluation, public=True).label == "public data"
    assert repr(fitted.score(private)).endswith("(outside the guarantee)")


def test_scores_of_a_data_set_with_other_reference_levels_are_refused(fitted, patients):
    schema = {**SCHEMA, "sex": wb.data.Categorical(SCHEMA["sex"], reference="m")}
    other = wb.data.from_frame(patients, target="ill", classes=["no", "yes"], schema=schema)
    with pytest.raises(
        ArgumentError,
        match=r"^records=.*reference levels \{'sex': 'm'\}, and the fit had \{'sex': 'f'\}",
    ):
        fitted.score(other)


@pytest.mark.parametrize("label", [2, -1, 0.5])
def test_a_label_out_of_range_is_refused(fitted, table, label):
    x, y = table.evaluation
    with pytest.raises(
        ArgumentError, match=r"^y='(int|float)(32|64)': must be whole numbers from 0 to 1"
    ):
        fitted.score((x, np.where(np.arange(len(y)) == 3, label, y)))


def test_scores_need_the_target(fitted, table):
    with pytest.raises(ArgumentError, match=r"^records=1: must be a tuple of the arrays x, y"):
        fitted.score(table.evaluation[0])


# ---- sample --------------------------------------------------------------------------------------


def test_synthetic_records_are_a_table_in_its_own_units(fitted, patients):
    twin = fitted.sample(50, seed=4)
    assert list(twin.columns) == ["age", "sex", "smoker", "ill"]
    assert len(twin) == 50
    assert twin["age"].between(0, 100).all()
    assert set(twin["sex"]) <= {"f", "m"}
    assert set(twin["ill"]) == {"yes", "no"}


@pytest.mark.thorough
def test_a_seed_repeats_them_and_none_does_not(fitted):
    assert fitted.sample(40, seed=4).equals(fitted.sample(40, seed=4))
    assert not fitted.sample(40).equals(fitted.sample(40))


def test_targets_of_given_records_follow_the_predicted_probability(fitted):
    people = pd.DataFrame({"age": [30, 70], "sex": ["f", "m"], "smoker": [False, True]})
    many = pd.concat([people] * 1000, ignore_index=True)
    drawn = fitted.sample(given=many, seed=2)
    shares = (drawn["ill"] == "yes").groupby(drawn["age"]).mean()
    # a share of 1000 draws has an error of at most .016
    assert shares.to_numpy() == pytest.approx(fitted.predict(people), abs=0.08)


def test_groups_come_back_under_their_names(grouped):
    twin = grouped.sample(20, seed=1)
    assert set(twin.iloc[:, -2]) <= set(wb.data.load("hierarchical").groups)


@pytest.mark.thorough
def test_whole_records_are_drawn_where_the_model_has_no_target():
    result = wb.fit("gmm", "mixture", epsilon=8.0, iterations=300, seed=1)
    twin = result.sample(2000, seed=1)
    assert twin.shape == (2000, 2)
    centres = [(0, 0), (2, 2), (-2, 2), (2, -2), (-2, -2)]
    near = np.min([np.hypot(*(twin.to_numpy() - centre).T) for centre in centres], axis=0)
    assert np.mean(near < 2.5) > 0.9  # of the real points 99.9 %
    with pytest.raises(ArgumentError, match=r"given=[\s\S]*is for models that predict a target"):
        result.sample(2, given=np.zeros((2, 2)))


@pytest.mark.parametrize("count", [0, 2.5, "many"])
def test_a_bad_count_is_refused(fitted, count):
    with pytest.raises(ArgumentError, match=r"^count="):
        fitted.sample(count)


@pytest.mark.thorough
def test_images_come_back_as_images():
    result = wb.fit("vae", "digits", epsilon=8.0, iterations=20, seed=1)
    assert result.sample(3, seed=1).shape == (3, 8, 8)
    assert result.predict().shape == (wb.data.load("digits").num_evaluation, 8, 8)
    assert set(result.metrics) == {"elbo", "reconstruction_error"}
    assert len(result.summary()) == 0
    with pytest.raises(
        ArgumentError,
        match=r"^x=ndarray of shape \(2, 28, 28\): must have the shape \(records, 8, 8\)",
    ):
        result.predict(np.zeros((2, 28, 28)))


@pytest.mark.thorough
def test_predictions_of_networks_survive_a_file(tmp_path):
    data = wb.data.load("digits")
    result = wb.fit("vae", data, epsilon=8.0, iterations=5, seed=1)
    again = wb.load(result.save(tmp_path / "vae"))
    images = data.evaluation[0][:4]
    assert jnp.allclose(again.predict(images), result.predict(images))


@pytest.mark.thorough
def test_components_keep_their_order_in_a_file(tmp_path):
    data = wb.data.mixture(seed=1)
    result = wb.fit("gmm", data, epsilon=8.0, iterations=100, seed=1)
    again = wb.load(result.save(tmp_path / "gmm"))
    # or the test would show nothing
    assert not np.array_equal(result.sorted_draws["means"], result.draws["means"])
    assert again.predict(data.evaluation[0]) == pytest.approx(result.predict(), abs=1e-6)
    assert again.summary_table().equals(result.summary_table())
