"""``PrivateSearchCV``: what it chooses, what it spends with its copies, and what it refuses."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import workbench as wb
from workbench import ArgumentError
from workbench.fitting import choosing
from workbench.ledger import Ledger
from workbench.ledger.budget import CapError

GRID = {"learning_rate": [0.01, 0.03], "clip": [0.5, 1.0]}
PLAN = {"bounds": (0, 100), "iterations": 20}

pytestmark = [
    pytest.mark.usefixtures("made_up_steps"),
    pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning"),
    pytest.mark.filterwarnings("ignore:There are too few records for this epsilon"),
]


def records(count=600, seed=0):
    random = np.random.default_rng(seed)
    x = random.uniform(0, 100, (count, 2))
    return x, (x[:, 0] + random.normal(0, 20, count) > 50).astype(int)


def search(grid=None, *, epsilon=1.0, runs=3, of_search=None, **options):
    classifier = wb.sklearn.PrivateClassifier(**PLAN | options)
    more = of_search or {}
    grid = GRID if grid is None else grid
    return wb.sklearn.PrivateSearchCV(classifier, grid, epsilon=epsilon, runs=runs, **more)


def test_one_fit_is_one_choice_under_one_promise():
    x, y = records()
    fitted = search(epsilon=1.5, name="clinic").fit(x, y)
    assert fitted.guarantee_.epsilon == 1.5
    assert len(fitted.guarantee_.candidates) == 4
    assert set(fitted.best_params_) == set(GRID)
    for name, value in fitted.best_params_.items():
        assert getattr(fitted.best_estimator_, name) == fitted.result_.settings[name] == value
    assert fitted.best_score_ == fitted.result_.metrics["log_likelihood"]
    assert fitted.result_.labels["metrics"] == "covered"
    low, high = fitted.result_.metric_intervals["log_likelihood"]
    assert low <= fitted.best_score_ <= high
    (row,) = Ledger().spends()
    assert (row.guarantee.epsilon, row.status) == (1.5, "settled")
    assert (row.key, row.model) == (fitted.result_.spend, f"choice of {fitted.result_.model}")


def test_it_predicts_as_a_classifier_does():
    x, y = records()
    names = np.array(["no", "yes"])
    frame = pd.DataFrame(x, columns=["dose", "age"])
    fitted = search(classes=["yes", "no"], of_search={"scoring": "auc"}).fit(frame, names[y])
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.feature_names_in_.tolist() == ["dose", "age"]
    assert (fitted.n_features_in_, is_classifier(fitted)) == (2, True)
    assert fitted.best_score_ == fitted.result_.metrics["auc"]
    probabilities = fitted.predict_proba(frame)
    assert probabilities.shape == (600, 2)
    np.testing.assert_array_equal(probabilities, fitted.best_estimator_.predict_proba(frame))
    assert set(fitted.predict(frame)) <= {"no", "yes"}
    assert 0 <= fitted.score(frame, names[y]) <= 1
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(frame), probabilities)
    assert x.tobytes() not in pickle.dumps(fitted)


def test_rows_are_held_out_one_by_one(monkeypatch):
    """Which rows are does not depend on the others, nor on their order."""
    kept = []
    planned_of = choosing.fits.planned_of

    def noted(request):
        kept.append(request.data)
        return planned_of(request)

    monkeypatch.setattr(choosing.fits, "planned_of", noted)
    x, y = records()
    order = np.random.default_rng(3).permutation(600)[:500]
    for rows in (np.arange(600), order):
        search(ledger=False, of_search={"evaluation_fraction": 0.4}).fit(x[rows], y[rows])
    whole, part = ({row.tobytes() for row in data.evaluation[0]} for data in (kept[0], kept[-1]))
    assert part < whole
    assert 0.3 < len(whole) / 600 < 0.5


def test_parameters_as_scikit_learn_has_them():
    one = search()
    assert one.get_params()["estimator__iterations"] == 20
    one.set_params(runs=4, estimator__iterations=30)
    twin = clone(one)
    assert (twin.runs, twin.estimator.iterations) == (4, 30)
    assert twin.param_grid == GRID
    assert "PrivateSearchCV(" in repr(one)
    assert not hasattr(one, "classes_")


def test_it_is_the_last_step_of_a_pipeline_and_of_columns_that_reach_it():
    x, y = records()
    steps = make_pipeline(PolynomialFeatures(2, include_bias=False), search(bounds=(0, 1e4)))
    assert steps.fit(x, y).predict_proba(x).shape == (600, 2)
    assert steps[-1].n_features_in_ == 5


# ---- the ledger ----------------------------------------------------------------------------------


def test_copies_share_one_cap_with_the_fits_of_their_estimator():
    x, y = records()
    cap = (2.5, 1e-2)
    one = search(cap=cap)
    one.fit(x, y)
    other, others_y = records(seed=5)  # of the same people, for all that anybody knows
    clone(one).fit(other, others_y)
    for further in (clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        with pytest.raises(CapError):
            further.fit(*records(seed=6))
    with pytest.raises(CapError):
        one.estimator.set_params(epsilon=2.4).fit(x, y)
    assert len(Ledger().spends()) == 2
    search(name="elsewhere").fit(*records(seed=7))  # constructed anew


def test_several_fits_need_a_cap():
    x, y = records()
    one = search()
    with pytest.raises(ArgumentError, match="this is a clone") as raised:
        clone(one).fit(x, y)
    assert raised.value.argument == "cap"
    with pytest.raises(ArgumentError, match="this is a clone"):
        cross_val_score(one, x, y, cv=2, error_score="raise")
    assert not Ledger().spends()
    one.fit(x, y)
    with pytest.raises(ArgumentError, match="fitted before"):
        one.fit(x, y)
    assert len(Ledger().spends()) == 1


def test_cross_validation_counts_each_fold():
    x, y = records()
    cross_val_score(search(cap=(3.0, 1e-2)), x, y, cv=2, error_score="raise")
    spends = Ledger().spends()
    assert len(spends) == 2
    total = Ledger().budget_status(spends[0].dataset).total
    assert total.fits == 2
    assert 1.0 < total.epsilon <= 3.0


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "made"),
    [
        ("estimator", lambda: wb.sklearn.PrivateSearchCV(LogisticRegression(), GRID, epsilon=1.0)),
        ("param_grid", lambda: search({"epsilon": [1.0, 2.0]})),
        ("param_grid", lambda: search({"bounds": [(0, 1), (0, 2)]})),
        ("param_grid", lambda: search({"clip": 1.0})),
        ("param_grid", lambda: search([])),
        ("clip", lambda: search({"clip": [-1.0]})),
        ("scoring", lambda: search(of_search={"scoring": "roc_auc"})),
        ("runs", lambda: search(runs=1)),
        ("epsilon", lambda: search(epsilon=0)),
        ("delta", lambda: search(of_search={"delta": 2})),
        ("evaluation_fraction", lambda: search(of_search={"evaluation_fraction": 1.0})),
        ("data", lambda: search(of_search={"evaluation_fraction": 0})),
        ("bounds", lambda: search(bounds=None)),
        ("classes", lambda: search(classes=[0, 1, 2])),
        ("sampler", lambda: search(sampler="shuffle")),
    ],
)
def test_what_cannot_be_searched_is_named_and_spends_nothing(argument, made):
    with pytest.raises(ArgumentError) as refused:
        made().fit(*records())
    assert refused.value.argument == argument
    assert not Ledger().spends()


def test_folds_are_refused_with_the_reason():
    with pytest.raises(ArgumentError, match="a splitter moves records") as refused:
        search(of_search={"cv": 5})
    assert refused.value.argument == "cv"
    with pytest.raises(ArgumentError, match="cv=3"):
        search().set_params(cv=3)
    with pytest.raises(ArgumentError, match="sample_weight"):
        search().fit(*records(), sample_weight=np.full(600, 0.5))
    with pytest.raises(TypeError, match="groups"):
        search().fit(*records(), groups=np.arange(600))


def test_scores_of_other_fits_are_not_there():
    assert hasattr(GridSearchCV(LogisticRegression(), {"C": [1]}).fit(*records()), "cv_results_")
    fitted = search().fit(*records())
    assert not hasattr(fitted, "cv_results_")
    with pytest.raises(AttributeError, match="are not published"):
        fitted.cv_results_  # noqa: B018
