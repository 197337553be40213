"""The estimators keep scikit-learn's conventions, as its own checks find them, apart from the
exceptions that are named.

Most checks are about interfaces and look at fits whose steps are made up. In the long run all steps
are real, also for the checks that ask for accuracy. Classes are read off the checks' data, of which
scikit-learn declares nothing, bounds hold most of it, and epsilon is 20, because some checks ask
for accuracy on fifty rows.
"""

import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.multiclass import check_classification_targets

import workbench as wb
from workbench.sklearn import classifier

PLAN = {
    "bounds": (-5, 5),
    "epsilon": 20.0,
    "delta": 0.01,
    "sampling_rate": 1.0,
    "iterations": 60,
    "learning_rate": 0.1,
    "ledger": False,
    "seed": 1,
}

ESTIMATORS = {
    "PrivateClassifier": lambda: wb.sklearn.PrivateClassifier(**PLAN),
    "PrivateRegressor": lambda: wb.sklearn.PrivateRegressor(y_bounds=(-5, 5), **PLAN),
    "PrivateClusterer": lambda: wb.sklearn.PrivateClusterer(n_clusters=3, **PLAN),
    "PrivateSearchCV": lambda: wb.sklearn.PrivateSearchCV(
        wb.sklearn.PrivateClassifier(**PLAN), {"clip": [1.0]}, epsilon=20.0, runs=2
    ),
}
_NO_LABELS = (
    "asks for labels_: they are exact functions of the private rows, which a fitted estimator "
    "does not hold"
)
_NO_WEIGHTS = (
    "gives weights above 1: a weight would multiply what one row can change, so rows count once "
    "or not at all"
)
_WEIGHTED = (
    "check_sample_weights_list",
    "check_sample_weights_not_overwritten",
    "check_sample_weight_equivalence_on_dense_data",
)
EXCEPTIONS = {  # docs/scikit_learn.md has the same
    "PrivateClassifier": dict.fromkeys(_WEIGHTED, _NO_WEIGHTS),
    "PrivateRegressor": dict.fromkeys(_WEIGHTED, _NO_WEIGHTS),
    "PrivateClusterer": {"check_clustering": _NO_LABELS},
    "PrivateSearchCV": dict.fromkeys(_WEIGHTED, _NO_WEIGHTS),
}


@pytest.fixture(autouse=True)
def classes_of_the_data(monkeypatch):
    def classes_of(declared, y):
        check_classification_targets(y)
        if len(np.unique(y)) < 2:
            raise ValueError("y has only one class")
        return np.unique(y)

    monkeypatch.setattr(classifier, "classes_of", classes_of)


def unexpected(name, expected):
    """What did not come out as it should: {check: how}. Checks that need an optional package are
    skipped.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(ESTIMATORS[name](), expected_failed_checks=expected, on_fail=None)
    assert len(found) > 40
    wanted = {
        each["check_name"]: {"xfail"} if each["check_name"] in expected else {"passed", "skipped"}
        for each in found
    }
    assert set(expected) <= set(wanted)
    return {
        each["check_name"]: f"{each['status']}: {each['exception']}"
        for each in found
        if each["status"] not in wanted[each["check_name"]]
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_checks_of_scikit_learn(name):
    assert unexpected(name, EXCEPTIONS[name]) == {}
