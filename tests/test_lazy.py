"""What takes long to import is imported where it is needed, and is then the same."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, roc_auc_score

from workbench import _lazy
from workbench.data import published
from workbench.models.scoring import binary_scores

SLOW = {
    "arviz",
    "sklearn",
    "pandas",
    "IPython",
    "ipywidgets",
    "matplotlib",
    "scipy.stats",
    "scipy.signal",
    "dp_accounting",
}


@pytest.mark.thorough
def test_a_fit_can_be_asked_for_without_them():
    script = (
        "import sys, workbench as wb; wb.fit, wb.prepare, wb.sweep, wb.sklearn; print(*sys.modules)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert SLOW & set(loaded) == set()


@pytest.mark.thorough
def test_the_screen_is_there_without_figures():
    script = "import sys; from workbench.widgets.workbench import screen; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"matplotlib", "pandas", "arviz", "sklearn"} & set(loaded) == set()


def test_a_package_is_passed_on():
    assert _lazy.pd.DataFrame is pd.DataFrame


def test_the_table_of_scikit_learn_is_read_without_it():
    known, values = load_breast_cancer(), published.breast_cancer()
    np.testing.assert_array_equal(values[list(known.feature_names)], known.data)
    assert (values["diagnosis"] == known.target_names[known.target]).all()
    assert list(published.BREAST_CANCER) == list(known.feature_names)


@pytest.mark.parametrize("records", [2, 3, 50, 1000])
def test_scores_are_those_of_scikit_learn(records):
    random = np.random.default_rng(records)
    target, probability = np.arange(records) % 2, np.round(random.random(records), 2)  # with ties
    scores = binary_scores(target, probability)
    assert scores["auc"] == pytest.approx(roc_auc_score(target, probability), abs=1e-12)
    known = log_loss(target, np.clip(probability, 1e-7, 1 - 1e-7), labels=[0, 1])
    assert scores["log_likelihood"] == pytest.approx(-known, rel=1e-9)


@pytest.mark.parametrize(
    ("target", "probability"), [([0, 1], [0.5, np.nan]), ([0, 2], [0.5, 0.5]), ([0, 1], [0.5])]
)
def test_scores_of_what_has_none_are_an_error(target, probability):
    with pytest.raises(ValueError, match="finite probability"):
        binary_scores(np.array(target), np.array(probability))
