"""Several fits on the same records: cross-validation, searches and pipelines, with the ledger that
counts them.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import workbench as wb
from workbench import ArgumentError
from workbench.ledger import Ledger
from workbench.ledger.budget import CapError

DELTA = 1e-3
PLAN = {"bounds": (0, 100), "epsilon": 0.5, "delta": DELTA, "iterations": 20, "name": "clinic"}
pytestmark = [
    pytest.mark.usefixtures("made_up_steps"),
    pytest.mark.filterwarnings("ignore:There are too few records for this epsilon"),
    # of made-up steps, and of what noise shows of binary columns
    pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning"),
]


def records(count=300, seed=0):
    x = np.random.default_rng(seed).uniform(0, 100, (count, 3))
    return x, (x[:, 0] > 50).astype(int)


def classifier(**options):
    return wb.sklearn.PrivateClassifier(**PLAN | options)


def spends():
    return [] if not Ledger().exists() else Ledger().spends()


def test_cross_validation_without_a_cap_is_refused_before_anything_is_spent():
    for estimator in (
        classifier(),
        make_pipeline(PolynomialFeatures(include_bias=False), classifier()),
    ):
        with pytest.raises(
            ArgumentError, match=r"^cap=None: .*this is a clone, as cross-validation makes them"
        ) as caught:
            cross_val_score(estimator, *records(), cv=3, error_score="raise")
        assert caught.value.code == "no cap"
    with pytest.raises(ArgumentError, match=r"^cap="):
        GridSearchCV(classifier(), {"epsilon": [0.1, 0.5]}, cv=3, error_score="raise").fit(
            *records()
        )
    with pytest.raises(ArgumentError, match=r"^cap="):
        BaggingClassifier(classifier(), n_estimators=2, bootstrap=False).fit(*records())
    assert spends() == []


@pytest.mark.thorough
def test_cross_validation_under_a_cap_counts_each_fit():
    cross_val_score(classifier(cap=(3.0, DELTA)), *records(), cv=3, error_score="raise")
    found = spends()
    assert [spend.rule for spend in found] == ["filter"] * 3
    assert len({spend.dataset for spend in found}) == 3  # each fold's rows
    status = Ledger().budget_status(1)
    assert len(status.parts) == 3  # which share rows with the others
    assert 0.5 < status.total.epsilon <= 1.5
    assert [(entry.cap.epsilon, entry.cap.delta, entry.why) for entry in status.caps] == [
        (3.0, DELTA, "given to a PrivateClassifier")
    ]


def test_the_fit_that_would_exceed_the_cap_is_refused():
    with pytest.raises(
        CapError,
        match=r"^epsilon=0.5: this fit would raise what is spent on 'clinic' above its cap",
    ):
        cross_val_score(classifier(cap=(1.0, DELTA)), *records(), cv=5, error_score="raise")
    taken = len(spends())
    assert 1 <= taken < 5
    assert Ledger().budget_status(1).total.epsilon <= 1.0
    allowed = classifier(cap=(1.0, DELTA), over_cap="the board's decision of May").fit(*records())
    assert allowed.result_.budget_status.spends[-1].why == "the board's decision of May"
    assert len(spends()) == taken + 1


@pytest.mark.thorough
def test_a_search_counts_its_last_fit_too():
    search = GridSearchCV(
        classifier(cap=(9.0, DELTA)), {"clip": [0.5, 1.0]}, cv=3, error_score="raise"
    ).fit(*records())
    assert len(spends()) == 2 * 3 + 1
    assert len(Ledger().budget_status(1).parts) == 7
    assert search.best_estimator_.guarantee_.epsilon == 0.5


@pytest.mark.thorough
def test_rows_that_were_fitted_before_need_a_cap():
    x, y = records()
    classifier().fit(x, y)
    with pytest.raises(
        ArgumentError, match=r"^cap=None: .*these records were fitted before"
    ) as caught:
        classifier().fit(x, y)
    assert caught.value.code == "no cap"
    assert len(spends()) == 1
    classifier(cap=(2.0, DELTA)).fit(x, y)
    classifier().fit(x[:200], y[:200])  # the cap counts for this name
    assert len(Ledger().budget_status(1).parts) == 3


def test_a_fit_of_the_workbench_counts_as_one_before():
    x, y = records()
    frame = pd.DataFrame(x, columns=["x1", "x2", "x3"]).assign(y=y == 1)
    wb.fit(
        "y ~ x1 + x2 + x3",
        frame,
        family="bernoulli",
        schema={**dict.fromkeys(("x1", "x2", "x3"), (0, 100)), "y": bool},
        table=wb.Table(name="clinic"),
        epsilon=0.5,
        delta=DELTA,
        iterations=20,
    )
    with pytest.raises(ArgumentError, match="these records were fitted before"):
        classifier().fit(x, y)


def test_other_rows_need_no_cap():
    classifier().fit(*records())
    classifier(name="another").fit(*records(seed=1))
    assert len(Ledger().budget_status(1).parts) == 1


def test_a_cap_in_the_ledger_is_kept_and_no_other_takes_its_place():
    x, y = records()
    classifier(cap=(1.0, DELTA)).fit(x, y)
    with pytest.raises(
        ArgumentError, match=r"^cap=\(9.0, 0.001\): is not the cap of these records"
    ) as caught:
        classifier(cap=(9.0, DELTA)).fit(x, y)
    assert caught.value.code == "another cap"
    assert len(spends()) == 1
    clone(classifier(epsilon=0.1)).fit(x, y)  # it is under the cap that is there
    assert len(spends()) == 2


def test_a_cap_is_of_the_samplers_relation():
    classifier(cap=(2.0, DELTA), sampler="without_replacement").fit(*records())
    assert Ledger().entry("clinic").cap.relation == "replace_one"


@pytest.mark.parametrize(
    ("first", "second", "remedy"),
    [
        ("replace_one", "add_or_remove_one", "Leave it out to keep that one"),
        ("add_or_remove_one", "replace_one", "Give a sampler of that relation"),
    ],
)
def test_of_caps_with_equal_numbers_the_relations_are_named(first, second, remedy):
    samplers = {"replace_one": "without_replacement", "add_or_remove_one": "poisson"}
    one = classifier(cap=(2.0, DELTA), sampler=samplers[first]).fit(*records())
    reason = (
        rf"^cap=\(2.0, 0.001\): is under {second}, and the cap of these records in the "
        rf"ledger is under {first}: "
    )
    with pytest.raises(
        ArgumentError, match=rf"{reason}epsilon = 2 at delta = 0.001. {remedy}, or change"
    ):
        clone(one).set_params(sampler=samplers[second]).fit(*records())


@pytest.mark.thorough
def test_without_a_ledger_nothing_is_counted():
    cross_val_score(classifier(ledger=False), *records(), cv=3, error_score="raise")
    assert spends() == []


@pytest.mark.thorough
def test_a_ledger_can_be_chosen(tmp_path):
    path = tmp_path / "own.sqlite"
    cross_validate(classifier(ledger=path, cap=(3.0, DELTA)), *records(), cv=3, error_score="raise")
    assert len(Ledger(path).spends()) == 3
    assert spends() == []


def test_pipelines_reach_the_estimator():
    x, y = records()
    steps = make_pipeline(PolynomialFeatures(include_bias=False), classifier(bounds=(0, 100**2)))
    fitted = steps.fit(x, y)
    assert fitted[-1].n_features_in_ == 9
    assert fitted.predict_proba(x).shape == (300, 2)
    assert len(spends()) == 1


@pytest.mark.parametrize("kind", ["PrivateRegressor", "PrivateClusterer"])
@pytest.mark.thorough
def test_the_other_estimators_too(kind):
    own = {"y_bounds": (0, 1)} if kind == "PrivateRegressor" else {"n_clusters": 2}
    estimator = getattr(wb.sklearn, kind)(**PLAN, **own)
    with pytest.raises(ArgumentError, match=r"^cap="):
        cross_val_score(estimator, *records(), cv=3, error_score="raise")
    scores = cross_val_score(
        estimator.set_params(cap=(3.0, DELTA)), *records(), cv=3, error_score="raise"
    )
    assert np.all(np.isfinite(scores))
    assert len(spends()) == 3
