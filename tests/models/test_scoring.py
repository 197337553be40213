"""Scores of predicted probabilities."""

import numpy as np
import pytest

from workbench.models.scoring import binary_scores


def test_perfect_ranking_has_an_auc_of_one():
    assert binary_scores(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.6, 0.7]))["auc"] == 1.0


def test_reversed_ranking_has_an_auc_of_zero():
    assert binary_scores(np.array([1, 0]), np.array([0.2, 0.8]))["auc"] == 0.0


def test_auc_is_the_share_of_pairs_in_the_right_order():
    # pairs (positive, negative): .4 > .1, .4 < .5, .9 > .1, .9 > .5
    assert binary_scores(np.array([0, 1, 0, 1]), np.array([0.1, 0.4, 0.5, 0.9]))[
        "auc"
    ] == pytest.approx(3 / 4)


def test_a_constant_prediction_is_no_better_than_chance():
    assert binary_scores(np.array([0, 1, 1]), np.full(3, 0.3))["auc"] == 0.5


def test_log_likelihood_is_the_mean_over_records():
    scores = binary_scores(np.array([0, 1, 1]), np.array([0.2, 0.5, 0.9]))
    assert scores["log_likelihood"] == pytest.approx(np.mean(np.log([0.8, 0.5, 0.9])))


def test_certain_and_wrong_predictions_have_a_finite_log_likelihood():
    assert binary_scores(np.array([0, 1]), np.array([1.0, 0.0]))["log_likelihood"] == pytest.approx(
        np.log(1e-7), rel=1e-6
    )


@pytest.mark.parametrize("label", [0, 1])
def test_a_target_of_one_class_has_no_auc(label):
    scores = binary_scores(np.full(4, label), np.full(4, 0.25))
    assert set(scores) == {"log_likelihood"}
    assert scores["log_likelihood"] == pytest.approx(np.log(0.25 if label else 0.75))


def test_single_precision_predictions_are_scored():
    scores = binary_scores(np.array([0, 1]), np.array([0.25, 0.75], np.float32))
    assert {type(value) for value in scores.values()} == {float}
