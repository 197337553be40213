"""Private estimators: what they learn beside scikit-learn's, what they are told, what they hold and
what they say.
"""

import inspect
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.validation import has_fit_parameter

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.data.look import PRODUCTS
from workbench.fitting.fits import prepare
from workbench.fitting.groups import GROUPS
from workbench.results.fit_result import IntervalWarning
from workbench.results.prediction import BoundsWarning

pytestmark = [
    pytest.mark.filterwarnings("ignore:There are too few records for this epsilon"),
    pytest.mark.filterwarnings("ignore:About .* of the declared records take no part"),  # made up
]

LOW, HIGH = np.array([0.0, -50.0]), np.array([100.0, 10.0])
BOUNDS = list(zip(LOW.tolist(), HIGH.tolist(), strict=True))
SHORT = {"iterations": 20, "ledger": False, "delta": 0.001}
PRECISE = {
    "epsilon": 8.0,
    "delta": 1e-4,
    "sampling_rate": 0.5,
    "iterations": 800,
    "learning_rate": 0.02,
    "ledger": False,
}
PLANTED = 41.2345678901


def rows(count=200, seed=0):
    return np.random.default_rng(seed).uniform(LOW, HIGH, (count, 2))


def two_classes(count=200, seed=0):
    """Rows and labels of a logistic regression with weights .05 and -.08 and intercept -4."""
    x = rows(count, seed)
    logits = x @ [0.05, -0.08] - 4.0
    return x, (np.random.default_rng(seed + 1).random(count) < 1 / (1 + np.exp(-logits))).astype(
        int
    )


def of(kind, **options):
    """An estimator with what it needs declared."""
    needed = {"PrivateRegressor": {"y_bounds": (0, 1)}, "PrivateClusterer": {"n_clusters": 2}}.get(
        kind, {}
    )
    return getattr(wb.sklearn, kind)(**{"bounds": BOUNDS, **SHORT, **needed, **options})


KINDS = ["PrivateClassifier", "PrivateRegressor", "PrivateClusterer"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_without_epsilon_is_told_to_give_one(kind):
    """Not to give an argument that estimators do not take."""
    with pytest.raises(
        ArgumentError, match=r"^epsilon=None: .* Give epsilon; .* wb.fit\(\.\.\., private=False\)"
    ):
        of(kind, epsilon=None).fit(*two_classes())


@pytest.mark.thorough
def test_scikit_learn_is_still_scikit_learn_and_loads_late():
    script = (
        "import sys, workbench as wb; wb.sklearn; assert 'sklearn' not in sys.modules; "
        "wb.sklearn.PrivateClassifier; import sklearn; print(sklearn.__name__, hasattr(sklearn, "
        "'PrivateClassifier'), wb.sklearn is sklearn)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["sklearn", "False", "False"]


# ---- what they learn -----------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_classifier_learns_what_logistic_regression_learns():
    x, y = two_classes(8000)
    fitted = wb.sklearn.PrivateClassifier(bounds=BOUNDS, seed=3, **PRECISE).fit(x, y)
    known = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(x, y)
    assert fitted.coef_.shape == (1, 2)
    # the weights' standard errors are .0012 and .0019
    np.testing.assert_allclose(fitted.coef_, known.coef_, atol=0.002)
    np.testing.assert_allclose(fitted.predict_proba(x), known.predict_proba(x), atol=0.02)
    logits = np.log(fitted.predict_proba(x)[:, 1] / fitted.predict_proba(x)[:, 0])
    np.testing.assert_allclose(x @ fitted.coef_[0] + fitted.intercept_, logits, atol=0.05)


@pytest.mark.thorough
def test_three_classes_are_one_softmax_regression():
    x = rows(8000)
    scores = x @ [[0.0, 0.05, -0.03], [0.0, 0.06, 0.05]] + [0.0, 0.0, 2.0]
    labels = np.array(["low", "middle", "top"])
    gumbel = np.random.default_rng(5).gumbel(size=scores.shape)
    y = labels[np.argmax(scores + gumbel, axis=1)]
    plan = PRECISE | {"iterations": 1500}
    fitted = wb.sklearn.PrivateClassifier(
        bounds=BOUNDS, classes=["top", "low", "middle"], seed=3, **plan
    ).fit(x, y)
    known = LogisticRegression(C=np.inf, tol=1e-8, max_iter=5000).fit(x, y)
    assert fitted.classes_.tolist() == known.classes_.tolist()
    assert fitted.coef_.shape == known.coef_.shape == (3, 2)
    np.testing.assert_allclose(fitted.predict_proba(x), known.predict_proba(x), atol=0.04)
    assert fitted.guarantee_.epsilon == 8.0  # once, and not once for each class
    assert np.mean(fitted.predict(x) == known.predict(x)) > 0.97


@pytest.mark.thorough
def test_a_regressor_learns_what_linear_regression_learns():
    x = rows(8000)
    y = x @ [0.3, -0.2] + 7.0 + np.random.default_rng(2).normal(0, 3.0, len(x))
    plan = PRECISE | {"clip": 200.0}  # a smaller C cuts long gradients, and the noise looks smaller
    fitted = wb.sklearn.PrivateRegressor(bounds=BOUNDS, y_bounds=(-10, 70), seed=3, **plan).fit(
        x, y
    )
    known = LinearRegression().fit(x, y)
    # the weights' standard errors are .0012 and .0019
    np.testing.assert_allclose(fitted.coef_, known.coef_, atol=0.005)
    np.testing.assert_allclose(fitted.intercept_, known.intercept_, atol=0.4)
    assert fitted.score(x, y) == pytest.approx(known.score(x, y), abs=0.005)
    sigma = fitted.result_.coefficients().loc["sigma", "mean"]
    assert sigma == pytest.approx(3.0, rel=0.1)


@pytest.mark.thorough
def test_a_clusterer_finds_clusters():
    random = np.random.default_rng(4)
    centres = np.array([[20.0, -40.0], [80.0, 0.0]])
    which = (random.random(4000) < 0.3).astype(int)
    x = centres[which] + random.normal(0, 3.0, (4000, 2))
    plan = PRECISE | {"iterations": 1500, "clip": 10.0}  # a smaller C makes weights more alike
    fitted = wb.sklearn.PrivateClusterer(
        n_clusters=2, covariance="diagonal", bounds=BOUNDS, seed=3, **plan
    ).fit(x)
    np.testing.assert_allclose(fitted.cluster_centers_, centres, atol=2.0)
    np.testing.assert_allclose(fitted.weights_, [0.7, 0.3], atol=0.03)
    assert np.mean(fitted.predict(x) == which) > 0.99
    assert fitted.score(x) > fitted.score(rows(500))


@pytest.mark.whole_fit
@pytest.mark.parametrize("high", [1000, pytest.param(100, marks=pytest.mark.thorough)])
def test_clusters_and_scores_are_in_the_declared_units_whatever_was_learned(high):
    """Bounds ten times too wide leave two clusters in a corner of what was declared."""
    random = np.random.default_rng(0)
    is_first = random.random(3000) < 0.5
    x = np.where(is_first[:, None], [20, 20], [40, 60]) + random.normal(size=(3000, 2)) * 4
    clusterer = wb.sklearn.PrivateClusterer(
        n_clusters=2, bounds=(0, high), epsilon=4.0, delta=1e-5, seed=1, ledger=False
    ).fit(x)
    centers = clusterer.cluster_centers_[np.argsort(clusterer.cluster_centers_[:, 0])]
    assert centers == pytest.approx(np.array([[20, 20], [40, 60]]), abs=1)
    labels = clusterer.predict(x)
    agrees = np.mean((labels == np.argmin(clusterer.cluster_centers_[:, 0])) == is_first)
    assert agrees > 0.98
    density = 0.5 * sum(norm.pdf(x, center, 4).prod(axis=1) for center in ([20, 20], [40, 60]))
    exact = np.log(density).mean() + 2 * np.log(high / 2)  # in columns from -1 to 1
    assert clusterer.score(x) == pytest.approx(exact, abs=0.15)


# ---- what they are told --------------------------------------------------------------------------


def test_the_settings_are_those_of_fit():
    shown = (inspect.signature(each).parameters.items() for each in (prepare, *GROUPS.values()))
    table = {name: parameter.default for parameters in shown for name, parameter in parameters}
    shared = {
        "delta",
        "iterations",
        "sampling_rate",
        "sampler",
        "clip",
        "learning_rate",
        "seed",
        "ledger",
        "over_cap",
    }
    for kind in KINDS:
        own = inspect.signature(getattr(wb.sklearn, kind)).parameters
        assert own.keys() & table.keys() == shared | {"epsilon", "unit", "name"}
        assert {name: own[name].default for name in shared} == {
            name: table[name] for name in shared
        }
        # one that is set by habit would make the noise predictable
        assert "random_state" not in own


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some_of(KINDS, 3))
def test_settings_reach_the_guarantee(kind, made_up_steps):
    x, y = two_classes(100)
    options = {
        "epsilon": 0.7,
        "sampler": "without_replacement",
        "sampling_rate": 0.2,
        "clip": 2.0,
        "unit": "patient",
    }
    found = of(kind, **options).fit(x, y).guarantee_
    assert (found.epsilon, found.delta, found.steps, found.num_records) == (0.7, 0.001, 20, 100)
    assert (found.sampler, found.relation, found.sampling_rate, found.clip) == (
        "without_replacement",
        "replace_one",
        0.2,
        2.0,
    )
    assert found.unit == "patient"
    assert found.secure_randomness
    seeded = of(kind, seed=1).fit(x, y)
    assert not seeded.guarantee_.secure_randomness
    assert seeded.result_.labels["params"] == "covered"


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some_of(KINDS, 3, 1))
def test_two_fits_differ_and_two_with_one_seed_do_not(kind, made_up_steps):
    x, y = two_classes(100)
    params = [of(kind, seed=seed).fit(x, y).result_.params for seed in (None, None, 5, 5)]
    name = next(iter(params[0]))
    assert not np.array_equal(params[0][name], params[1][name])
    np.testing.assert_array_equal(params[2][name], params[3][name])


def test_the_bounds_of_a_mixture_must_be_declared(made_up_steps):
    with pytest.raises(ArgumentError, match=r"^bounds=None: .*wb\.look") as caught:
        of("PrivateClusterer", bounds=None).fit(rows(100))
    assert caught.value.code == "no bounds"


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_that_are_none_are_refused(kind, made_up_steps):
    x, y = two_classes(100)
    for wrong in (
        (1, 0),
        [(0, 1)] * 3,
        "no",
        {"x1": (0, 1)},
        {"x1": (0, 1), "x2": (0, 1), "x3": (0, 1)},
        3,
    ):
        with pytest.raises(ArgumentError, match=r"^bounds="):
            of(kind, bounds=wrong).fit(x, y)


@pytest.mark.thorough
def test_bounds_may_be_one_pair_pairs_or_named(made_up_steps):
    x, y = two_classes(100)
    of_each = [
        of("PrivateClassifier", bounds=bounds, seed=1).fit(x, y)
        for bounds in (BOUNDS, np.array(BOUNDS), dict(zip(("x1", "x2"), BOUNDS, strict=True)))
    ]
    for other in of_each[1:]:
        np.testing.assert_array_equal(other.coef_, of_each[0].coef_)
    same = of("PrivateClassifier", bounds=(-50, 100), seed=1).fit(x, y)
    np.testing.assert_allclose(same.coef_[0] * 75, of_each[0].coef_[0] * [50, 30], rtol=1e-6)


def test_values_outside_of_bounds_are_cut(made_up_steps):
    x, y = two_classes(100)
    far = np.array([[1e6, -1e6]])
    for fitted in (of("PrivateClassifier").fit(x, y), of("PrivateRegressor").fit(x, y)):
        with pytest.warns(BoundsWarning, match=r"x1 \(100 % of these rows\)"):
            cut = fitted.predict(far)
        np.testing.assert_array_equal(cut, fitted.predict([[100.0, -50.0]]))


def test_without_bounds_ranges_are_learned_within_the_guarantee(made_up_steps):
    x, y = two_classes(5000)
    fitted = of("PrivateClassifier", bounds=None, delta=None).fit(x, y)
    assert fitted.result_.labels["params"] == "covered"
    assert fitted.guarantee_.epsilon == 1.0
    assert set(fitted.result_.data["scales"]) - {PRODUCTS} == {"x1", "x2"}
    fitted = of("PrivateRegressor", bounds=None, y_bounds=None, delta=None).fit(x, x[:, 0])
    assert fitted.result_.labels["params"] == "covered"
    assert fitted.predict([[50.0, 0.0]]).shape == (1,)
    with pytest.raises(ArgumentError, match=r"^epsilon=1.0: is too small for 100 records"):
        of("PrivateClassifier", bounds=None).fit(*two_classes(100))


@pytest.mark.thorough
def test_what_is_learned_without_bounds_is_near_to_what_is_learned_with_them():
    x, y = two_classes(8000)
    plan = {"epsilon": 8.0, "delta": 1e-4, "ledger": False, "seed": 3}
    known = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(x, y)
    fitted = wb.sklearn.PrivateClassifier(**plan).fit(x, y)
    # the weights' standard errors are .0012 and .0019
    np.testing.assert_allclose(fitted.coef_, known.coef_, atol=0.006)
    target = x @ [0.3, -0.2] + 7.0 + np.random.default_rng(2).normal(0, 3.0, len(x))
    line = wb.sklearn.PrivateRegressor(**plan).fit(x, target)
    np.testing.assert_allclose(line.coef_, [0.3, -0.2], atol=0.01)


def test_a_range_of_the_target_that_is_none_is_refused():
    x, y = two_classes(100)
    for wrong in ((1, 0), "no", [(0, 1), (0, 1)]):
        with pytest.raises(ArgumentError, match=r"^y_bounds="):
            of("PrivateRegressor", y_bounds=wrong).fit(x, y)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (np.zeros(60, int), [0, 1]),
        (np.ones(60), [0.0, 1.0]),
        (np.zeros(60, bool), [False, True]),
    ],
)
def test_two_classes_need_no_declaration_and_none_is_read(made_up_steps, y, expected):
    fitted = of("PrivateClassifier").fit(rows(60), y)
    assert fitted.classes_.tolist() == expected
    assert fitted.predict(rows(5)).dtype == fitted.classes_.dtype


@pytest.mark.parametrize(
    "classes", [None, ["a"], "a", ["a", "a", "b"], {"a": 1}, 3, [["a", "b"]], ["a", 1, None], []]
)
def test_other_classes_must_be_declared(classes):
    y = np.array(["a", "b"] * 30)
    with pytest.raises(ArgumentError, match=r"^classes="):
        of("PrivateClassifier", classes=classes).fit(rows(60), y)


def test_a_label_that_is_not_declared_is_refused_and_not_quoted():
    y = np.array(["a", "b"] * 30, object)
    y[7] = "SECRET"
    with pytest.raises(
        ArgumentError, match=r"^classes=\['a', 'b'\]: lacks the label of some record"
    ) as caught:
        of("PrivateClassifier", classes=["b", "a"]).fit(rows(60), y)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(ArgumentError, match=r"^classes=") as caught:
        of("PrivateClassifier").fit(rows(60), np.where(y == "a", 0, 41))
    assert "41" not in str(caught.value)


def test_how_many_labels_the_rows_have_is_not_said(made_up_steps, recwarn):
    """scikit-learn warns of many different labels, which only private rows can show."""
    of("PrivateClassifier", classes=range(60)).fit(rows(40), np.arange(40))
    with pytest.raises(ArgumentError, match="lacks the label"):
        of("PrivateClassifier").fit(rows(40), np.arange(40))
    assert not [str(each.message) for each in recwarn if "classes" in str(each.message)]


def test_labels_of_several_kinds_are_refused_by_name(made_up_steps):
    labels = np.array(["yes", "no"] * 20, object)
    labels[3] = 41
    with pytest.raises(ArgumentError, match="lacks the label") as caught:
        of("PrivateClassifier", classes=["no", "yes"]).fit(rows(40), labels)
    assert caught.value.argument == "classes"
    assert "41" not in str(caught.value)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", some_of(KINDS, 3))
def test_settings_are_refused_by_name_before_anything_is_fitted(kind):
    x, y = two_classes(60)
    wrong = {
        "epsilon": (-1, "no"),
        "delta": (2,),
        "iterations": (0,),
        "sampling_rate": (1.5,),
        "sampler": ("no",),
        "clip": (0,),
        "learning_rate": (-1,),
        "seed": (-1, "no"),
        "ledger": ("no", 3),
        "over_cap": ("no", " "),
        "unit": ("", 3),
        "name": ("", None),
        "cap": ("no", 3, (1,), (-1, 1e-5), (1, 2)),
        "n_clusters": (0, 2.5),
        "covariance": ("full",),
    }
    for name in wrong.keys() & inspect.signature(getattr(wb.sklearn, kind)).parameters.keys():
        for value in wrong[name]:
            with pytest.raises(ArgumentError, match=f"^{name}="):
                of(kind, **{name: value}).fit(x, y)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_values_of_masked_arrays_are_refused(kind):
    """scikit-learn forgets the mask and uses what is below it."""
    x, y = two_classes(40)
    targets = () if kind == "PrivateClusterer" else (y,)
    with pytest.raises(ArgumentError, match=r"^X='MaskedArray': has masked entries"):
        of(kind).fit(np.ma.masked_greater(x, 50), *targets)
    for _ in targets:
        with pytest.raises(ArgumentError, match=r"^y='MaskedArray': has masked entries"):
            of(kind).fit(x, np.ma.masked_equal(y, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_what_only_other_estimators_take_is_refused_with_what_to_do(kind):
    """By habit, from scikit-learn's own estimators: a bare TypeError would not say why, and what is
    to be done.
    """
    x, y = two_classes(60)
    with pytest.raises(
        ArgumentError,
        match=r"^sample_weight=ndarray of shape \(60,\): .*multiply what one row can change",
    ):
        of(kind).fit(x, y, sample_weight=np.full(60, 0.5))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        of(kind).fit(x, y, weights=np.ones(60))
    for name, said in {
        "random_state": "seed=",
        "class_weight": "threshold",
        "max_iter": "iterations=",
    }.items():
        for construct in (
            lambda name=name: of(kind, **{name: 0}),
            lambda name=name: of(kind).set_params(**{name: 0}),
        ):
            with pytest.raises(ArgumentError, match=f"^{name}=0: is not taken: .*{said}"):
                construct()
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        of(kind, weights=1)
    # by it ensembles say how often they draw each row; without it they would repeat rows and not
    # say so
    assert has_fit_parameter(of(kind), "sample_weight") == (kind != "PrivateClusterer")


def test_tables_keep_the_names_of_their_columns(made_up_steps):
    x, y = two_classes(60)
    frame = pd.DataFrame(x, columns=["age", "y"])  # as the target is called elsewhere
    fitted = of("PrivateClassifier", bounds={"y": BOUNDS[1], "age": BOUNDS[0]}).fit(
        frame, pd.Series(y, name="ill")
    )
    assert fitted.feature_names_in_.tolist() == ["age", "y"]
    assert fitted.result_.coordinates["weights"] == ["age", "y"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame[["y", "age"]])


# ---- what they hold and say ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_estimator_holds_no_record_and_can_be_sent(kind, made_up_steps):
    x, y = two_classes(100)
    x[3, 0] = PLANTED
    target = y.astype(float)
    target[3] = PLANTED / 100
    fitted = of(kind).fit(x, target if kind == "PrivateRegressor" else y)
    fitted.predict(x)  # whatever this keeps
    sent = pickle.dumps(fitted)
    as_seen = wb.data.from_arrays(
        x, bounds=dict(zip(("x1", "x2"), BOUNDS, strict=True)), evaluation=False
    ).train[0][3, 0]
    secrets = [
        np.float64(PLANTED),
        np.float32(PLANTED),
        as_seen,
        np.float64(PLANTED / 100),
        np.float32(PLANTED / 50 - 1),
    ]
    for secret in secrets:
        assert secret.tobytes() not in sent
    assert np.float64(PLANTED).tobytes() in pickle.dumps(x)  # where it would be found
    assert as_seen.tobytes() in pickle.dumps(np.float32(x[:, 0] / 50 - 1))
    again = pickle.loads(sent)
    np.testing.assert_array_equal(again.predict(x), fitted.predict(x))
    assert again.guarantee_ == fitted.guarantee_


QUOTABLE = {
    "text": lambda x: np.where(np.arange(len(x))[:, None] == 3, "SECRET", x.astype(str)),
    "objects": lambda x: np.where(np.arange(len(x))[:, None] == 3, "SECRET", x.astype(object)),
    "a table": lambda x: pd.DataFrame(
        np.where(np.arange(len(x))[:, None] == 3, "SECRET", x.astype(object))
    ),
    "complex": lambda x: x.astype(complex),
    "one axis": lambda x: x[:, 0],
    "ragged": lambda x: [*x.tolist(), [PLANTED]],
    "dates": lambda x: np.full(x.shape, "2003-04-05", "datetime64[D]"),
    "missing": lambda x: np.where(np.arange(len(x))[:, None] == 3, np.nan, x),
    "dictionaries": lambda x: np.where(
        np.arange(len(x))[:, None] == 3, {"SECRET": 1}, x.astype(object)
    ),
    "three axes": lambda x: x[..., None],
}


@pytest.mark.parametrize("form", QUOTABLE)
def test_no_error_quotes_a_cell(form, made_up_steps):
    x, y = two_classes(60)
    x[3, 0] = PLANTED
    fitted = of("PrivateClassifier").fit(rows(60), y)
    given = QUOTABLE[form](x)
    for call in (lambda: of("PrivateRegressor").fit(given, y), lambda: fitted.predict(given)):
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        shown = "".join(map(str, (caught.value, caught.value.__cause__)))
        assert not re.search(r"SECRET|41\.2|2003", shown), shown


def test_no_error_quotes_a_target(made_up_steps):
    x, y = two_classes(60)
    text = y.astype(object)
    text[3] = "SECRET"
    for target in (
        text,
        text.astype(str),
        y + 1j * PLANTED,
        np.where(np.arange(60) == 3, np.inf, PLANTED),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            of("PrivateRegressor").fit(x, target)
        assert not re.search(r"SECRET|41\.2", str(caught.value))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_fitted_says_so(kind):
    methods = {
        "PrivateClassifier": ["predict_proba"],
        "PrivateClusterer": ["predict_proba", "score"],
    }.get(kind, [])
    for method in ["predict", *methods]:
        with pytest.raises(NotFittedError):
            getattr(of(kind), method)(rows(5))


def test_a_copy_of_a_fitted_estimator_is_not_fitted(made_up_steps):
    x, y = two_classes(60)
    twin = clone(of("PrivateClassifier").fit(x, y))
    assert not hasattr(twin, "result_")
    assert twin.get_params() == of("PrivateClassifier").get_params()


def test_a_fit_that_cannot_be_trusted_says_so():
    """As scikit-learn's own ConvergenceWarning does: ``coef_`` and ``predict`` would not."""
    x, y = two_classes(60)
    with warnings.catch_warnings(record=True) as caught:  # the noise may bring other cautions too
        warnings.simplefilter("always")
        of("PrivateClassifier").fit(x, y)
    said = [str(each.message) for each in caught if each.category is IntervalWarning]
    assert any(words.startswith("Only 10 steps show whether the fit had arrived") for words in said)
