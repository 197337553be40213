"""Results of fits."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from matplotlib.figure import Figure

import workbench as wb
from workbench.results.fit_result import IntervalWarning


def test_parameters_are_named_finite_arrays(done):
    assert set(done.params) == {"weights_loc", "weights_scale", "intercept_loc", "intercept_scale"}
    assert all(np.all(np.isfinite(value)) for value in done.params.values())
    assert np.all(done.params["weights_scale"] > 0)


def test_draws_come_from_the_fitted_guide(done):
    draws = done.guide_draws["weights"]
    assert draws.shape == (1000, 30)
    # thirty means and thirty spreads at five standard errors: false alarms below 1e-4, and the seed
    # is fixed
    error = done.params["weights_scale"] / np.sqrt(1000)
    assert np.all(np.abs(draws.mean(0) - done.params["weights_loc"]) < 5 * error)
    assert draws.std(0) == pytest.approx(done.params["weights_scale"], rel=5 / np.sqrt(2000))


def test_intervals_count_the_noise_and_predictions_are_the_guides(done, guided):
    assert (done.posterior_kind, done.posterior_note, done.interval_warning) == (
        "noise-aware",
        "",
        "",
    )
    assert "counts the privacy noise" in done.posterior["posterior"].attrs["inference"]
    assert "variational" in done.variational_posterior["posterior"].attrs["inference"]
    assert done.draws["weights"].shape == done.guide_draws["weights"].shape == (1000, 30)
    wide, narrow = (np.median(draws["weights"].std(0)) for draws in (done.draws, done.guide_draws))
    # most of what is known of 30 columns that are alike comes from the prior
    assert wide > 3 * narrow
    assert np.array_equal(done.predict(), guided.predict())
    assert "intervals count the privacy noise" in done.interval_words
    assert "the guide's own (a test)" in guided.interval_words


def test_posterior_says_what_it_is_covered_by(done):
    attributes = done.posterior["posterior"].attrs
    assert attributes["label"] == "covered"
    assert attributes["guarantee"] == done.guarantee.headline()


def test_summary_has_a_row_for_each_quantity(done):
    labels = [f"weights[{name}]" for name in wb.data.load("breast_cancer").feature_names]
    assert sorted(done.summary_table().index) == sorted([*labels, "intercept"])


def test_summary_warns_where_noise_makes_intervals_too_narrow(guided):
    with pytest.warns(IntervalWarning, match="they are too narrow") as caught:
        table = guided.summary()
    assert str(caught[0].message) == guided.interval_warning
    assert table.equals(guided.summary_table())
    assert "noise_sd" in table


def test_noise_is_not_estimated_for_an_optimiser_that_nobody_knows(guided):
    other = dataclasses.replace(guided, settings={**guided.settings, "learning_rate": None})
    assert other.interval_warning == ""
    assert other.summary()["noise_sd"].isna().all()


@pytest.mark.parametrize("kind", ["hdi", "eti"])
def test_interval_and_its_kind_may_be_chosen(done, kind):
    wide, narrow = done.summary_table(0.9, kind), done.summary_table(0.5, kind)
    assert list(narrow.columns) == ["mean", "sd", f"{kind}_50%_low", f"{kind}_50%_high"]
    assert np.all(narrow[f"{kind}_50%_low"] > wide[f"{kind}_90%_low"])


@pytest.mark.parametrize(
    ("options", "argument"), [({"interval": 1.5}, "interval"), ({"kind": "sd"}, "kind")]
)
def test_a_bad_interval_is_refused(done, options, argument):
    with pytest.raises(wb.ArgumentError, match=f"^{argument}="):
        done.summary(**options)


def test_metrics_are_the_last_of_the_history(done):
    assert done.history[-1].metrics == done.metrics
    assert done.history[-1].step == 300
    assert {"elbo", "auc", "log_likelihood"} == set(done.metrics)


def test_history_begins_before_the_first_step_and_goes_forward(done):
    steps = [point.step for point in done.history]
    assert steps[0] == 0
    assert steps == sorted(set(steps))


def test_training_improves_on_the_start(done):
    assert done.metrics["elbo"] > done.history[0].metrics["elbo"]
    assert done.metrics["auc"] > 0.9


def test_data_facts_are_public_facts(done, secret):
    for result in (done, secret[1]):
        assert set(result.data) == {
            "name",
            "description",
            "unit",
            "num_evaluation",
            "target",
            "classes",
            "declarations",
            "licence",
            "source",
            "arrays",
            "record_shapes",
            "record_types",
            "schema",
            "feature_names",
            "group",
            "groups",
            "image_shape",
            "vocabulary_size",
            "target_bounds",
            "scales",
        }


def test_plot_is_a_figure(done):
    assert isinstance(done.plot(), Figure)


def test_repr_is_one_line_with_state_and_epsilon(done, cancelled):
    assert repr(done).startswith("FitResult(done, logistic on breast_cancer, epsilon=1, elbo=")
    assert repr(cancelled).startswith("FitResult(cancelled, ")
    assert "\n" not in repr(done)


def test_a_result_cannot_be_rewritten(done):
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.guarantee = None


def test_a_result_can_be_pickled_after_it_predicted(done):
    x = done.public_records[0]
    known = done.predict((x,))
    again = pickle.loads(pickle.dumps(done))
    np.testing.assert_array_equal(again.predict((x,)), known)
    assert again.guarantee == done.guarantee
    assert copy.copy(done).params.keys() == done.params.keys()
