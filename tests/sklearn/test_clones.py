"""Copies of one estimator spend under one cap, whatever they are fitted to, and whoever makes or
fits them.
"""

import copy
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.ledger import Ledger
from workbench.ledger.budget import CapError
from workbench.ledger.composition import total
from workbench.ledger.entries import CLONES, NAMESAKES
from workbench.ledger.reservation import Reservation

CAP = (0.8, 1e-3)
PLAN = {"bounds": (0, 100), "epsilon": 0.5, "delta": 1e-4, "iterations": 10, "cap": CAP}
pytestmark = [
    pytest.mark.usefixtures("made_up_steps"),
    pytest.mark.filterwarnings("ignore:There are too few records for this epsilon"),
    # of made-up steps, and of what noise shows of binary columns
    pytest.mark.filterwarnings("ignore::workbench.results.fit_result.IntervalWarning"),
]
RANDOM = np.random.default_rng(0)
# rows of one are in every fold
TABLES = {
    "age in years and four binary columns": np.column_stack(
        [RANDOM.integers(18, 91, 2000), *RANDOM.integers(0, 2, (4, 2000))]
    ),
    "three binary columns": RANDOM.integers(0, 2, (600, 3)),
    "two columns of five levels": RANDOM.integers(0, 5, (600, 2)),
}


def classifier(**options):
    return wb.sklearn.PrivateClassifier(**PLAN | options)


def target(x):
    return (x.sum(axis=1) > np.median(x.sum(axis=1))).astype(int)


def records(count=240, seed=1):
    x = np.random.default_rng(seed).integers(0, 2, (count, 3)).astype(float)
    return x, target(x)


def spent():
    """Epsilon of somebody whose record is in all fits of the ledger, whatever the
    ledger relates.
    """
    fits = [spend.guarantee for spend in Ledger().spends()]
    return total(fits, CAP[1]).epsilon if fits else 0.0


def refusals(call):
    """How often ``call`` runs into the cap: it ends there, or scikit-learn warns of each fit that
    failed.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
        except ValueError as error:  # also of scikit-learn, where all fits failed
            return str(error).count("above its cap")
    return sum("above its cap" in str(warning.message) for warning in caught)


@pytest.mark.parametrize("table", some_of(list(TABLES), 3))
def test_cross_validation_keeps_the_cap_of_every_table(table):
    x = TABLES[table].astype(float)
    with pytest.raises(
        CapError,
        match=r"^epsilon=1.0: this fit would raise what is spent on 'arrays' above its cap",
    ):
        cross_val_score(
            classifier(epsilon=1.0, cap=(1.2, 1e-3)), x, target(x), cv=5, error_score="raise"
        )
    assert len(Ledger().spends()) == 1


def two_targets(x):
    return np.column_stack([target(x), target(x[:, :2])])


REPEATED = {
    "cross_validate": lambda one, x: cross_validate(one, x, target(x), cv=5),
    "grid": lambda one, x: GridSearchCV(one, {"clip": [0.5, 1.0]}, cv=3).fit(x, target(x)),
    "grid over names and plans": lambda one, x: GridSearchCV(
        one, {"name": ["a", "b"], "bounds": [(0, 1), (0, 2)]}, cv=3
    ).fit(x, target(x)),
    "random search": lambda one, x: RandomizedSearchCV(
        one, {"clip": [0.5, 1.0, 2.0]}, n_iter=3, cv=2
    ).fit(x, target(x)),
    "halving": lambda one, x: HalvingGridSearchCV(
        one, {"clip": [0.5, 1.0, 2.0]}, cv=2, min_resources=60
    ).fit(x, target(x)),
    "bagging": lambda one, x: BaggingClassifier(
        one, n_estimators=5, bootstrap=False, max_samples=0.5
    ).fit(x, target(x)),
    "bagging of columns": lambda one, x: BaggingClassifier(
        one, n_estimators=5, bootstrap=False, max_features=2
    ).fit(x, target(x)),
    "bagging of a pipeline": lambda one, x: BaggingClassifier(
        make_pipeline(PolynomialFeatures(), one), n_estimators=5
    ).fit(x, target(x)),
    "stacking": lambda one, x: StackingClassifier(
        [("a", one), ("b", LogisticRegression())], cv=5
    ).fit(x, target(x)),
    "voting for one": lambda one, x: VotingClassifier([(str(k), one) for k in range(5)]).fit(
        x, target(x)
    ),
    "calibration": lambda one, x: CalibratedClassifierCV(one, cv=5).fit(x, target(x)),
    "several targets": lambda one, x: MultiOutputClassifier(one).fit(x, np.tile(two_targets(x), 3)),
    "one class at a time": lambda one, x: OneVsRestClassifier(one).fit(
        x, (x @ [1, 2, 1]).astype(int)
    ),
    "choice of columns": lambda one, x: SequentialFeatureSelector(
        one, n_features_to_select=1, cv=2
    ).fit(x, target(x)),
    "a pipeline": lambda one, x: cross_val_score(
        make_pipeline(PolynomialFeatures(), one), x, target(x), cv=5
    ),
    "nested searches": lambda one, x: cross_val_score(
        GridSearchCV(one, {"clip": [0.5, 1.0]}, cv=2), x, target(x), cv=3
    ),
    "parts of growing size": lambda one, x: learning_curve(
        one, x, target(x), train_sizes=[0.3, 0.6, 1.0], cv=3
    ),
    "deep copies": lambda one, x: [
        copy.deepcopy(one).fit(x[k::7], target(x)[k::7]) for k in range(7)
    ],
    "shallow copies with other settings": lambda one, x: [
        copy.copy(one).set_params(clip=1.0 + k, name=str(k)).fit(x[k::7], target(x)[k::7])
        for k in range(7)
    ],
    "pickled copies": lambda one, x: [
        pickle.loads(pickle.dumps(one)).fit(x[k::7], target(x)[k::7]) for k in range(7)
    ],
    "itself": lambda one, x: [one.fit(x[k::7], target(x)[k::7]) for k in range(7)],
    "clones of what was fitted": lambda one, x: [
        clone(one.fit(x[:80], target(x)[:80])).fit(x[k::7], target(x)[k::7]) for k in range(7)
    ],
}


@pytest.mark.parametrize("way", some_of(list(REPEATED), 12, 7))
def test_every_way_to_copy_an_estimator_stays_under_its_cap(way):
    assert refusals(lambda: REPEATED[way](classifier(), records()[0])) > 0
    assert 0 < spent() <= CAP[0]


def test_threads_share_the_cap():
    """Two fits that begin at once must not both take what is left."""
    with joblib.parallel_backend("threading"):
        assert refusals(lambda: cross_val_score(classifier(), *records(), cv=6, n_jobs=3)) > 0
    assert 0 < spent() <= CAP[0]


@pytest.mark.thorough
@pytest.mark.whole_fit
@pytest.mark.parametrize("way", ["cross_validate", "bagging"])
def test_workers_in_other_processes_share_the_cap(way):
    """Copies are made here or there: bagging sends one estimator, and each worker clones it."""
    # workers keep the environment of the first test
    (x, y), one = (records(), classifier(ledger=Ledger().path))
    several = {
        "cross_validate": lambda: cross_val_score(one, x, y, cv=6, n_jobs=2),
        "bagging": lambda: BaggingClassifier(one, n_estimators=6, bootstrap=False, n_jobs=2).fit(
            x, y
        ),
    }
    with joblib.parallel_backend("loky"):
        assert refusals(several[way]) > 0
    assert 0 < spent() <= CAP[0]


def test_the_ledger_says_what_counts_together_and_why(command):
    cross_val_score(classifier(epsilon=0.1), *records(), cv=3, error_score="raise")
    status = Ledger().budget_status(1)
    assert [(entry.number, how) for entry, how in status.relatives] == [(2, CLONES), (3, CLONES)]
    assert len(status.spends) == status.total.fits == 3
    assert [(entry.cap.epsilon, entry.cap.delta) for entry in status.caps] == [CAP]
    assert status.mix_ups() == ()  # data sets of one name that count together need no decision
    _, shown, _ = command("ledger", "show", "1")
    assert (
        "Fits on 2 (arrays), 3 (arrays) count too: copies of one estimator were fitted there and "
        "here" in shown
    )


def test_estimators_that_were_constructed_apart_share_a_cap_for_one_name():
    x, y = records()
    classifier(cap=None).fit(x, y)
    with pytest.raises(ArgumentError, match="were fitted before"):
        classifier(cap=None).fit(x, y)
    with pytest.warns(
        UserWarning,
        match="is also called 'arrays' and is counted separately, because there is no cap",
    ):
        classifier(cap=None).fit(x[:100], y[:100])
    assert [len(Ledger().budget_status(number).spends) for number in (1, 2)] == [1, 1]
    with pytest.raises(CapError):  # two fits of .5 were there before
        classifier(epsilon=0.7).fit(x[:50], y[:50])
    classifier(epsilon=0.01).fit(x[:50], y[:50])
    assert {entry.number: why for entry, why in Ledger().budget_status(3).relatives} == {
        1: NAMESAKES,
        2: NAMESAKES,
    }
    classifier(cap=None, name="ward").fit(*records(seed=2))
    assert len(Ledger().budget_status("ward").spends) == 1


def test_a_token_joins_what_two_estimators_were_fitted_to():
    """The same records under both: whoever is in them may be in all the others."""
    x, y = records()
    one, two = classifier(epsilon=0.1, name="one"), classifier(epsilon=0.1, name="two")
    one.fit(x[:100], y[:100])
    two.fit(x[100:], y[100:])
    assert len(Ledger().budget_status(1).spends) == 1
    one.fit(x, y)
    two.fit(x, y)
    assert len(Ledger().budget_status(1).spends) == len(Ledger().budget_status(2).spends) == 4


def test_one_estimator_on_other_peoples_records_can_be_separated_pair_by_pair():
    one, (x, y), (other_x, other_y) = classifier(epsilon=0.1), records(), records(seed=2)
    one.fit(x, y)
    one.fit(other_x, other_y)
    assert len(Ledger().budget_status(1).spends) == 2
    Ledger().separate(1, 2, "two hospitals")
    assert len(Ledger().budget_status(1).spends) == 1
    one.fit(other_x[:100], other_y[:100])  # of one of them, or of both, as far as anybody said
    assert len(Ledger().budget_status(1).spends) == 3
    Ledger().separate(1, 3, "two hospitals")
    assert [len(Ledger().budget_status(number).spends) for number in (1, 2, 3)] == [1, 2, 2]


def test_one_estimator_that_is_fitted_to_other_records_needs_a_cap():
    one, (x, y), (other_x, other_y) = classifier(cap=None), records(), records(seed=2)
    one.fit(x, y)
    for again in (one, copy.deepcopy(one)):
        with pytest.raises(
            ArgumentError,
            match=r"^cap=None: .*a copy of it, was fitted before.* construct another estimator",
        ):
            again.fit(other_x, other_y)
    assert len(Ledger().spends()) == 1


def test_of_copies_without_a_cap_that_begin_at_once_one_is_fitted(monkeypatch):
    """Each saw that nothing was spent, if it looks before it reserves."""
    one, (x, y), all_ready = classifier(cap=None), records(), threading.Barrier(3, timeout=60)
    reserve = Reservation.reserve
    monkeypatch.setattr(
        Reservation, "reserve", lambda self, keys=None: (all_ready.wait(), reserve(self, keys))[1]
    )

    def code_of(part):
        try:
            copy.copy(one).fit(x[part::3], y[part::3])
        except ArgumentError as error:
            return error.code
        return "fitted"

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(code_of, range(3))) == ["fitted", "no cap", "no cap"]
    assert len(Ledger().spends()) == 1


def test_a_copy_that_lost_its_token_is_refused():
    """As one that an earlier version pickled."""
    one = classifier()
    state = {name: value for name, value in one.__getstate__().items() if name != "_token"}
    other = type(one).__new__(type(one))
    other.__setstate__(state)
    for again in (other, clone(other), copy.copy(other), pickle.loads(pickle.dumps(other))):
        with pytest.raises(
            ArgumentError, match=r"^estimator=.*cannot tell which others are copies"
        ) as caught:
            again.fit(*records())
        assert caught.value.code == "no token"
    assert not Ledger().exists()


def test_an_empty_token_is_none():
    """Or one more fit runs under a cap that is used up."""
    emptied, deleted = classifier(), classifier()
    emptied._token = ""
    del deleted._token
    for one in (emptied, deleted, clone(emptied), copy.deepcopy(deleted)):
        with pytest.raises(
            ArgumentError, match=r"^estimator=.*cannot tell which others are copies"
        ) as caught:
            one.fit(*records())
        assert caught.value.code == "no token"
    assert not Ledger().exists()


# ---- rows that are drawn -------------------------------------------------------------------------


def test_a_bagged_estimator_is_refused_once_its_cap_is_spent():
    x, y = records()
    one = classifier(epsilon=0.5, delta=1e-5, cap=(1.0, 1e-4), name="clinic")
    bagged = BaggingClassifier(one, n_estimators=20, bootstrap=False, max_samples=0.5)
    with pytest.raises(CapError, match=r"above its cap of epsilon = 1 at delta = 0\.0001"):
        bagged.fit(x, y)
    spends = Ledger().spends()
    assert 2 < len(spends) < 20
    assert len({spend.dataset for spend in spends}) == len(spends)  # each of other rows
    assert total([spend.guarantee for spend in spends], 1e-4).epsilon <= 1.0


@pytest.mark.parametrize("table", ["discrete", "continuous"])
def test_a_bootstrap_is_refused_before_anything_is_spent(table):
    """Whoever is drawn k times would have the promise of k rows, and the cap would count one."""
    x, y = records()
    if table == "continuous":
        x = np.random.default_rng(1).uniform(0, 1, x.shape)
    one = classifier(epsilon=0.3, delta=1e-5, cap=(1.0, 1e-4), name="clinic")
    with pytest.raises(
        ArgumentError, match=r"^sample_weight=.*group privacy.*bootstrap=False, max_samples=0.5"
    ) as caught:
        BaggingClassifier(one, n_estimators=20).fit(x, y)
    assert caught.value.code == "repeated rows"
    assert not Ledger().exists()


def test_an_ensemble_that_weighs_rows_is_refused():
    with pytest.raises(ArgumentError, match="a weight would multiply what one row can change"):
        AdaBoostClassifier(classifier(), n_estimators=2).fit(*records())
    assert not Ledger().exists()


def test_equal_rows_are_no_bootstrap():
    """Of two people, as far as anybody knows: whether rows are equal is private, and decides
    nothing.
    """
    x, y = np.tile(records(20)[0], (10, 1)), np.tile(records(20)[1], 10)
    clone(classifier()).fit(x, y)
    clone(classifier(name="weighted")).fit(x, y, sample_weight=np.ones(200))
    assert len(Ledger().datasets()) == 1  # the same rows


def test_a_weight_of_zero_leaves_a_row_out():
    x, y = records()
    weights = (np.arange(len(x)) % 3 > 0).astype(float)
    classifier(epsilon=0.1).fit(x, y, sample_weight=weights)
    classifier(epsilon=0.1).fit(x[weights > 0], y[weights > 0])
    assert len(Ledger().datasets()) == 1


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full(240, 0.5), "a weight would multiply what one row can change"),
        (-np.ones(240), "a weight would multiply"),
        (np.full(240, np.nan), "a weight would multiply"),
        (np.ones(239), "0 or 1, for each row"),
        (np.ones((240, 1)), "0 or 1, for each row"),
        ("balanced", "0 or 1, for each row"),
        (np.eye(1, 240)[0], "leaves fewer than two rows"),
        (np.zeros(240), "leaves fewer than two rows"),
    ],
)
def test_other_weights_are_refused(weights, words):
    with pytest.raises(ArgumentError, match=words):
        classifier().fit(*records(), sample_weight=weights)
    assert not Ledger().exists()


def test_the_ledger_says_what_a_cap_of_copies_does_not_count():
    cross_val_score(classifier(epsilon=0.1), *records(), cv=2, error_score="raise")
    assert (
        "where rows were drawn with replacement, it promises less"
        in Ledger().budget_status(1).statement()
    )


def test_a_search_over_one_column_keeps_the_cap():
    """500 ages, of which no two folds differ much."""
    x = RANDOM.integers(18, 91, (500, 1)).astype(float)
    one = classifier(epsilon=0.8, delta=1e-4, cap=(1.5, 1e-3), name="clinic")
    search = GridSearchCV(one, {"clip": [0.5, 1.0, 2.0]}, cv=5, error_score="raise")
    with pytest.raises(CapError):
        search.fit(x, (x[:, 0] > 50).astype(int))
    spends = Ledger().spends()
    assert 1 < len(spends) < 16
    assert total([spend.guarantee for spend in spends], 1e-3).epsilon <= 1.5


def test_a_cap_without_a_ledger_is_refused():
    with pytest.raises(
        ArgumentError, match=r"^cap=\(0.8, 0.001\): cannot be kept, because ledger=False"
    ):
        classifier(ledger=False).fit(*records())


def test_of_two_caps_given_at_once_the_first_decides():
    """Or a thread that saw no cap would replace one that another has set meanwhile."""
    caps = [CAP, (50.0, 1e-3)]
    search = GridSearchCV(classifier(epsilon=0.1), {"cap": caps}, cv=2, n_jobs=4, refit=False)
    with joblib.parallel_backend("threading"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(*records())
    scores = np.array([search.cv_results_[f"split{fold}_test_score"] for fold in range(2)])
    assert np.isnan(scores).sum() == 2
    assert len(Ledger().export()["caps"]) == 1


def test_scikit_learn_sees_nothing_of_a_token():
    one = classifier()
    assert repr(one) == repr(classifier())
    assert one.get_params() == classifier().get_params() == clone(one).get_params()
    assert one._token not in repr(vars(type(one)))
    tokens = {
        copied._token
        for copied in (one, clone(one), copy.copy(one), clone(clone(one)), classifier())
    }
    assert len(tokens) == 2
