"""Models from formulas: priors by name, and one way of fitting for all."""

import itertools
import json
import pickle

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers

import workbench as wb
from tests.conftest import some_of
from tests.formula.tables import SCHEMA, made
from workbench import ArgumentError
from workbench.fitting.groups import grouped
from workbench.formula.families import FAMILIES
from workbench.formula.priors import Beside, prior_of, side_by_side, text_of
from workbench.formula.records import CutWarning

PLAIN = {"formula": "ill ~ age + ward", "family": "bernoulli", "schema": SCHEMA}


@pytest.mark.thorough
def test_priors_are_listed_and_replaced_by_name():
    formula = "cost ~ age + ward + poly(bmi, 2) + (1 + age | site)"
    priors = {
        "age": dist.StudentT(3, 0, 1.5),
        "ward": "Normal(0, 0.5)",
        "poly(bmi, 2)[1]": dist.Laplace(0, 1.0),
        "Intercept": dist.Normal(0.25, 3),
        "site_sd": dist.HalfNormal(0.2),
        "site_sd[age]": "HalfCauchy(0.1)",
        "sigma": dist.Exponential(2.0),
    }
    model = wb.models.formula(formula, family="gaussian", schema=SCHEMA, priors=priors)
    assert model.priors["prior"].to_dict() == {
        "Intercept": "Normal(0.25, 3)",
        "age": "StudentT(3, 0, 1.5)",
        "ward=b": "Normal(0, 0.5)",
        "ward=c": "Normal(0, 0.5)",
        "poly(bmi, 2)[1]": "Laplace(0, 1)",
        "poly(bmi, 2)[2]": "Normal(0, 2)",
        "site_sd[Intercept]": "HalfNormal(0.2)",
        "site_sd[age]": "HalfCauchy(0.1)",
        "sigma": "Exponential(2)",
    }
    data = model.view(model.dataset(made(50)))
    trace = handlers.trace(handlers.seed(model.model, 0)).get_trace(
        *data.train, num_records=100, **model.options
    )
    weights = trace["weights"]
    expected = [
        dist.StudentT(3, 0, 1.5),
        dist.Normal(0, 0.5),
        dist.Normal(0, 0.5),
        dist.Laplace(0, 1.0),
        dist.Normal(0, 2),
    ]
    density = sum(
        float(prior.log_prob(value))
        for prior, value in zip(expected, weights["value"], strict=True)
    )
    total = trace["mean_weights"]  # has the density of the weights, moved by effects of sites
    assert float(total["fn"].log_prob(total["value"])) == pytest.approx(density, rel=1e-5)


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ({"agee": "Normal(0, 1)"}, "did you mean 'age'"),
        ({"age": "HalfNormal(1)"}, "on all real numbers"),
        ({"age": "Normal(0)) or exit("}, "such as"),
        ({"age": "Normal(0, -1)"}, "such as"),
        ({"age": "__import__('os').system('true')"}, "such as"),
        ({"age": 3}, "such as"),
        ({"age": dist.Normal(np.zeros(2), 1)}, "such as"),
        ({"age": dist.Poisson(3)}, "such as"),
        (["age"], "must be a mapping"),
    ],
)
def test_priors_that_cannot_be(priors, words):
    with pytest.raises(ArgumentError, match=words) as caught:
        wb.models.formula(**PLAIN, priors=priors)
    assert caught.value.argument.startswith("priors")


def test_priors_as_text_and_back():
    for prior in (
        dist.Normal(0, 2),
        dist.StudentT(3.0, 0.1, 1 / 3),
        dist.HalfCauchy(0.7),
        dist.Gamma(2, 0.5),
    ):
        again = prior_of("priors", text_of(prior))
        assert type(again) is type(prior)
        assert float(again.log_prob(0.3)) == pytest.approx(float(prior.log_prob(0.3)), rel=1e-6)


@pytest.mark.thorough
def test_distributions_side_by_side():
    parts = [dist.Normal(1, 2), dist.Cauchy(0, 1), dist.Laplace(3, 0.5)]
    both = Beside(parts, 2)
    drawn = both.sample(jax.random.key(0), (5,))
    assert drawn.shape == (5, 3, 2)
    expected = sum(part.log_prob(drawn[:, place]).sum(-1) for place, part in enumerate(parts))
    np.testing.assert_allclose(both.log_prob(drawn), expected, rtol=1e-5)
    normal = side_by_side([dist.Normal(1, 2), dist.Normal(0, 3)], 2)
    assert normal.event_shape == (2, 2)
    assert float(normal.log_prob(np.ones((2, 2)))) == pytest.approx(
        2 * float(dist.Normal(1, 2).log_prob(1) + dist.Normal(0, 3).log_prob(1)), rel=1e-5
    )


# ---- one way of fitting --------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.thorough
def test_a_formula_and_a_table_are_a_model_and_a_data_set():
    frame, settings = made(300), {"epsilon": 1.0, "iterations": 20, "seed": 1}
    model = wb.models.formula(**PLAIN)
    one = wb.fit("ill ~ age + ward", frame, family="bernoulli", schema=SCHEMA, **grouped(settings))
    two = wb.fit(model, frame, **grouped(settings))
    three = wb.fit(model, model.dataset(frame), **grouped(settings))
    declared = wb.Schema if hasattr(wb, "Schema") else wb.data.Schema
    plain = wb.data.from_frame(
        frame,
        target="ill",
        schema=declared.from_declaration({k: SCHEMA[k] for k in ("age", "ward")}),
    )
    four = wb.fit(model, plain, **grouped(settings))
    five = wb.fit("ill ~ age + ward", plain, family="bernoulli", **grouped(settings))
    for other in (two, three, four, five):
        assert other.guarantee.to_dict() == one.guarantee.to_dict()
        for name, value in one.params.items():
            np.testing.assert_array_equal(other.params[name], value)


def test_the_same_columns_are_the_same_records_whatever_the_formula():
    """The ledger counts what several formulas spend on one table, and no formula moves a row to the
    other side.
    """
    from workbench.ledger.fingerprint import fingerprint

    frame = made(200)
    one, two = (
        wb.models.formula(f"ill ~ {right}", family="bernoulli", schema=SCHEMA).dataset(frame)
        for right in ("age + ward", "poly(age, 3) * C(ward, Treatment('b')) - 1")
    )
    assert fingerprint(one) == fingerprint(two)
    assert fingerprint(one) != fingerprint(wb.models.formula(**PLAIN).dataset(frame.iloc[1:]))


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"schema": None}, "epsilon"),  # 60 records are too few to learn one
        ({"family": "poison"}, "family"),
        ({"link": "probitt"}, "link"),
        ({"trials": "n"}, "trials"),
        ({"observed": "sex"}, "observed"),
        ({"priors": {"nothing": "Normal(0, 1)"}}, "priors"),
        ({"missing": "sometimes"}, "missing"),
        ({"max_rows": 3}, "max_rows"),
        ({"unit_id": "nobody"}, "unit_id"),
        ({"evaluation_is_public": "no"}, "evaluation_is_public"),
        ({"model": "ill ~ nothing"}, "formula"),
        ({"model": "ill ~ ill"}, "formula"),
        (
            {
                "model": "days ~ (1 | weights)",
                "schema": {"days": (0, 9), "weights": ["a", "b"]},
                "family": "poisson",
            },
            "formula",
        ),
        (
            {
                "model": "cost ~ (1 + age | g) + (1 | g_x)",
                "schema": {**SCHEMA, "g": ["a", "b"], "g_x": ["a", "b"]},
                "family": None,
            },
            "formula",
        ),
        (
            {
                "model": "cost ~ (1 | g) + (1 | g_sd)",
                "schema": {**SCHEMA, "g": ["a", "b"], "g_sd": ["a", "b"]},
                "family": None,
            },
            "formula",
        ),
        ({"data": made(60).assign(ill="Zorblax")}, "ill"),
        ({"data": made(60).drop(columns="ill")}, "frame"),
        ({"data": [1, 2]}, "data"),
        (
            {
                "model": "grade ~ age",
                "data": made(60).assign(grade="Zorblax"),
                "family": "cumulative",
            },
            "grade",
        ),
        (
            {
                "model": "cost ~ sigma",
                "schema": {"cost": (-20, 60), "sigma": (0, 1)},
                "family": None,
                "priors": {"sigma": "HalfNormal(1)"},
            },
            "priors",
        ),
        ({"data": "breast_cancer", "unit_id": "person", "schema": SCHEMA}, "unit_id"),
        ({"model": "logistic"}, "family"),
        ({"model": "logistic", "family": None, "schema": None}, "data"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, argument):
    given = {
        "model": "ill ~ age",
        "data": made(60),
        "family": "bernoulli",
        "schema": SCHEMA,
        "epsilon": 1.0,
        **changes,
    }
    with pytest.raises(ArgumentError) as caught:
        wb.prepare(**grouped({name: value for name, value in given.items() if value is not None}))
    assert caught.value.argument == argument
    assert "Zorblax" not in str(caught.value)


SHAPES = [
    ("cost ~ 1", "gaussian", {}, ()),
    ("cost ~ (1 | site)", "student_t", {}, ()),
    ("ill ~ 0 + age", "bernoulli", {}, ()),
    ("p(wins, n) ~ age", "binomial", {}, ()),
    ("wins ~ age", "binomial", {"trials": "n"}, ()),
    ("days | rate(risk) ~ sex", "negative_binomial", {}, ()),
    ("grade ~ age + (1 + age | site)", "categorical", {}, (3,)),
    ("grade ~ age * sex", "cumulative", {}, (3,)),
    ("Surv(risk, ill) ~ age", "weibull", {}, ()),
    ("risk ~ age", "exponential", {"observed": "ill"}, ()),
    ("risk ~ age + (0 + age | site:sex)", "gamma", {}, ()),
]


@pytest.mark.parametrize(("formula", "family", "options", "shape"), some_of(SHAPES, 16))
def test_families_and_shapes(formula, family, options, shape):
    """Every record has a likelihood and an expected response, and the core finds the records' part
    of the model.
    """
    frame = made(60)
    model = wb.models.formula(formula, family=family, schema=SCHEMA, **options)
    data = model.view(model.dataset(frame))
    data.check()
    assert data.arrays == model.arrays
    trace = handlers.trace(handlers.seed(model.model, 0)).get_trace(
        *data.train, num_records=100, **model.options
    )
    observed = trace["y"]["fn"].log_prob(trace["y"]["value"])
    assert observed.shape == (data.num_train,)
    assert np.isfinite(observed).all()
    values = {
        name: site["value"]
        for name, site in trace.items()
        if site["type"] in ("sample", "deterministic")
    }
    inputs = model.arrays_of(frame.drop(columns=model.columns.response.name))
    assert tuple(inputs) == model.arrays[:-1]
    assert model.predict(values, *inputs.values()).shape == (60, *shape)
    prepared = wb.prepare(model, frame, epsilon=1.0, iterations=10, ledger=False)
    assert prepared.step.noised_coordinates > 0


def test_the_largest_gradient_is_not_exceeded():
    """The advice on C for yes or no: no record within the bounds has a longer gradient than
    ``largest_clip``.
    """
    model = wb.models.formula(
        "ill ~ age * sex + poly(bmi, 2) + ward", family="bernoulli", schema=SCHEMA
    )
    frame = pd.concat(
        [made(200), made(200).assign(age=120.0, bmi=50.0), made(200).assign(age=0.0, bmi=10.0)]
    )
    data = model.view(model.dataset(frame))
    largest = model.advice(data, 1000, 1.0)["largest_clip"]
    x = data.train[0]
    # of one whose response is the opposite of what is predicted
    norms = np.sqrt(1 + np.square(x).sum(axis=1))
    assert norms.max() <= largest * (1 + 1e-6)
    assert norms.max() > 0.8 * largest


RESPONSES = {
    "gaussian": "cost",
    "student_t": "cost",
    **dict.fromkeys(("gamma", "inverse_gaussian", "lognormal", "exponential", "weibull"), "cost"),
    "beta": "share",
    "bernoulli": "ill",
    **dict.fromkeys(("binomial", "beta_binomial"), "successes"),
    "categorical": "grade",
    "cumulative": "grade",
}


@pytest.mark.parametrize("family", FAMILIES)
def test_c_is_adapted_by_default_where_gradients_have_no_bound_and_noise_leaves_them_visible(
    family,
):
    """Only for the logit families does the declaration bound every gradient."""
    schema = {
        **SCHEMA,
        "cost": (1, 50),
        "share": (0.01, 0.99),
        "visits": (0, 30),
        "successes": (0, 8),
        "trials": (1, 8),
        "grade": ["a", "b", "c"],
        "ill": bool,
    }
    response = RESPONSES.get(family, "visits")  # of all families of counts
    trials = {"trials": "trials"} if response == "successes" else {}
    is_bound = family in ("bernoulli", "binomial", "categorical", "cumulative")
    for link in FAMILIES[family].links:
        model = wb.models.formula(f"{response} ~ age + bmi", family, schema, link=link, **trials)
        for num_records, epsilon in ((1000, 0.1), (1000, 1.0), (20_000, 0.1), (1000, 8.0)):
            # |x|^2 is at most 2
            needed = 2 * (1000 if family in ("gaussian", "student_t", "lognormal") else 100)
            expected = not (is_bound and link == "logit") and num_records * epsilon >= needed
            assert model.advice(None, num_records, epsilon)["adapts_clip"] == expected


@pytest.mark.usefixtures("made_up_steps")
def test_a_c_that_is_given_is_not_adapted():
    model = wb.models.formula("visits ~ age", "poisson", {**SCHEMA, "visits": (0, 30)})
    data = model.dataset(made(60).assign(visits=3), evaluation=False)
    some = {"epsilon": 8.0, "iterations": 10, "ledger": False, "delta": 1e-3}
    chosen = [
        wb.prepare(model, data, **grouped(**some, **more)).privacy
        for more in ({}, {"clip": 2.0}, {"clipping": "automatic"})
    ]
    assert [privacy.adapts_clip for privacy in chosen] == [True, False, False]


@pytest.mark.parametrize(
    ("right", "largest"),
    [
        ("age * bmi", 3),
        ("poly(age, 3) * ward", 7),
        ("bs(age, df=6):ward", 1),
        ("0 + ward:sex", 1),
        ("ward:sex", 2),
        ("ward:sex:smoker", 4),
        ("ward * sex", 3),
        ("0 + bs(age, df=5):poly(bmi, 2)", 2),
        ("age:ward", 1),
    ],
)
def test_the_largest_sum_of_squares_is_reached_and_not_exceeded(right, largest):
    """Which the norm of the one release and the largest gradient take it to be."""
    schema = {**SCHEMA, "smoker": bool, "cost": (-40, 40)}
    cells = itertools.product([0, 30, 120], [10, 25, 50], "abc", "fm", [0, 1])
    frame = pd.DataFrame(cells, columns=["age", "bmi", "ward", "sex", "smoker"])
    model = wb.models.formula(f"cost ~ {right}", "gaussian", schema)
    x = model.arrays_of(frame)["x"]
    assert np.square(x).sum(axis=1).max() == pytest.approx(largest, rel=1e-6)
    assert model.linear.residuals.squares == largest


@pytest.mark.thorough
def test_missing_numbers_get_a_column_of_the_design():
    frame = made(200)
    frame.loc[::10, "age"] = np.nan
    frame.loc[3, "ward"] = None
    given = {
        "model": "ill ~ age * ward + log(bmi)",
        "data": frame,
        "family": "bernoulli",
        "schema": SCHEMA,
        "epsilon": 1.0,
    }
    with pytest.raises(ArgumentError, match=r"^age=") as caught:
        wb.prepare(**grouped(given))
    assert caught.value.code == "missing"
    dropped = wb.prepare(**grouped(missing="drop", **given)).data
    assert dropped.num_train + dropped.num_evaluation == 179
    prepared = wb.prepare(**grouped(missing="indicator", **given))
    names = prepared.data.feature_names
    assert [name for name in names if name.startswith("missing")] == [
        "missing(age)",
        "missing(bmi)",
    ]
    x = np.concatenate([prepared.data.train[0], prepared.data.evaluation[0]])
    assert len(x) == 199
    is_missing = x[:, names.index("missing(age)")]
    assert is_missing.sum() == 20
    assert np.all(x[is_missing == 1][:, names.index("age")] == 0)
    inputs = prepared.model.arrays_of(frame.dropna(subset="ward"))
    assert inputs["x"][:, names.index("missing(age)")].sum() == 20
    again = wb.models.get("formula", **json.loads(json.dumps(prepared.model.options)))
    np.testing.assert_array_equal(again.arrays_of(frame.dropna(subset="ward"))["x"], inputs["x"])


@pytest.mark.parametrize("bounds", [(0, 120), (0.1, 99.7), (-3, 1e6), (0, 1e-3)])
def test_comparisons_see_numbers_as_they_were_given(bounds):
    """A number that was scaled to float32 and back is on the same side of a public limit."""
    low, high = bounds
    limits = np.array(
        [float(f"{low + share * (high - low):.5g}") for share in (0.1, 0.31, 0.5, 0.77, 0.99)]
    )
    frame = pd.DataFrame({"a": np.repeat(limits, 12), "ill": [0, 1] * 30})
    for limit in limits.tolist():
        model = wb.models.formula(
            f"ill ~ I(a >= {limit!r})", "bernoulli", {"a": bounds, "ill": bool}
        )
        data = model.view(model.dataset(frame))
        seen = np.concatenate([data.train[0], data.evaluation[0]])[:, 0]
        assert seen.sum() == (frame["a"] >= limit).sum()


def test_numbers_of_trials_need_not_be_declared_whole():
    schema = {"wins": (0, 20), "n": (1, 20), "age": (0, 120)}
    model = wb.models.formula("p(wins, n) ~ age", "binomial", schema)
    frame = made(200)
    data = model.view(model.dataset(frame, evaluation=frame.head(2)))
    np.testing.assert_array_equal(data.train[1], frame["n"])
    np.testing.assert_array_equal(data.train[2], frame["wins"])
    with pytest.raises(ArgumentError, match="not whole"):
        model.view(model.dataset(frame.assign(n=frame["n"] + 0.5)))


def test_successes_are_cut_with_the_trials():
    """The proportion of a row whose trials are beyond their bound stays."""
    schema = {"wins": (0, 20, int), "n": (1, 10, int), "age": (0, 120)}
    frame = made(200).assign(n=20, wins=lambda table: 11 + np.arange(len(table)) % 5)
    model = wb.models.formula("p(wins, n) ~ age", "binomial", schema)
    data = model.view(model.dataset(frame, evaluation=frame.head(2)))
    np.testing.assert_array_equal(data.train[1], 10)
    np.testing.assert_array_equal(data.train[2], frame["wins"] / 2)
    np.testing.assert_array_equal(data.evaluation[2], frame["wins"].head(2) / 2)
    with pytest.raises(ArgumentError, match="more successes than trials"):
        model.view(model.dataset(frame.assign(n=9)))


TOGETHER = [
    ("days | rate(risk) ~ age", "poisson", {"risk": (0.5, 1), "days": (0, 40, int)}),
    ("days | rate(risk) ~ age", "negative_binomial", {"risk": (0.1, 3), "days": (0, 2)}),
    ("days ~ age + offset(log(risk))", "poisson", {"risk": (1, 2), "days": (0, 3, int)}),
    ("p(wins, n) ~ age", "binomial", {"n": (1, 7), "wins": (0, 3)}),
    ("Surv(risk, ill) ~ age", "weibull", {"risk": (0.5, 2), "ill": bool}),
    ("Surv(risk, sex) ~ age", "exponential", {"risk": (0.5, 2), "sex": ["f", "m"]}),
    ("censored(risk, why) ~ age", "exponential", {"risk": (0.5, 2), "why": ["none", "right"]}),
]


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize(("formula", "family", "bounds"), TOGETHER)
def test_a_row_is_cut_by_itself_as_a_whole(formula, family, bounds, missing):
    """A rate and a proportion stay, and a time that is cut is censored: in all rows, also those
    that are held out. Each row of a table becomes what it becomes alone, so neighbouring tables
    stay neighbours.
    """
    frame = made(60).assign(why=lambda table: np.where(table["ill"], "none", "right"))
    model = wb.models.formula(formula, family, {**SCHEMA, **bounds})
    kept = frame
    if missing == "drop":
        frame = frame.astype({"risk": object, "days": float})
        frame.loc[[3, 7], ["risk", "days", "wins"]] = None
        kept = frame.drop(index=[3, 7])

    def arrays(rows, evaluation):
        data = model.view(model.dataset(rows, evaluation=evaluation, missing=missing))
        return [dict(zip(data.arrays, side, strict=True)) for side in (data.train, data.evaluation)]

    train, held_out = arrays(frame, frame.head(3))
    for name, whole in train.items():
        np.testing.assert_array_equal(whole[:3], held_out[name])
        halves = [
            arrays(part, frame.head(3))[0][name] for part in (frame.iloc[:30], frame.iloc[30:])
        ]
        np.testing.assert_array_equal(np.concatenate(halves), whole)
    role = model.arrays[-2]
    if role == "observed":
        event = {"ill": kept["ill"], "sex": kept["sex"] == "m", "why": kept["why"] == "none"}
        late = (kept["risk"] > 2).to_numpy(bool)
        expected = event[model.columns.extras["observed"]].to_numpy(bool) & ~late
        np.testing.assert_array_equal(train["observed"], expected)
        assert late.any()
        assert (train["y"][late] == 2).all()
    else:
        before = (kept[model.columns.response.name] / kept[model.columns.extras[role]]).to_numpy(
            float
        )
        np.testing.assert_allclose(
            train["y"] / train[role], before, rtol=1e-5, atol=0.12 if role == "trials" else 0
        )
        assert (train["y"] <= model.columns.response.high).all()


def test_a_data_set_whose_columns_were_cut_one_by_one_says_so():
    """Of a time at its bound it is not known any more whether it was cut, so it is censored."""
    frame = made(60)
    plain = wb.data.from_frame(
        frame,
        target="risk",
        target_bounds=(0.5, 2),
        schema={"age": (0, 120), "ill": bool},
        evaluation=frame.head(2),
    )
    model = wb.models.formula("Surv(risk, ill) ~ age", "weibull", {**SCHEMA, "risk": (0.5, 2)})
    with pytest.warns(CutWarning, match="risk, ill belong together"):
        view = model.view(plain)
    for one, other in zip(
        view.train, model.view(model.dataset(frame, evaluation=frame.head(2))).train, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    without = wb.models.formula("risk ~ age", "weibull", {**SCHEMA, "risk": (0.5, 2)})
    # nothing belongs together: a time at its bound is censored
    assert without.view(plain).arrays == ("x", "y")


@pytest.mark.parametrize(
    "column",
    [["alive"], ["a", "b", "c"], (0, 3, int), (0, 2), wb.data.Categorical(["a"], other=True)],
)
def test_a_status_has_two_values(column):
    with pytest.raises(ArgumentError, match="of which the second is the event"):
        wb.models.formula("Surv(risk, s) ~ age", "weibull", {**SCHEMA, "s": column})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (["alive", "dead"], ("alive", "dead")),
        (wb.data.Categorical([1, 2]), (1, 2)),
        ((1, 2, int), (1, 2)),
        (bool, (0, 1)),
        ((0, 1), (0.0, 1.0)),
        ((0, 1, int), (0, 1)),
        (["yes", "no"], ("yes", "no")),
        (bool, (False, True)),
    ],
)
def test_the_second_value_of_a_status_is_the_event(column, values):
    frame = made(60)
    status = np.asarray(values, object)[frame["ill"].to_numpy(int)]
    model = wb.models.formula("Surv(risk, s) ~ age", "weibull", {**SCHEMA, "s": column})
    data = model.view(
        model.dataset(frame.assign(s=status), evaluation=frame.assign(s=status).head(2))
    )
    np.testing.assert_array_equal(data.train[1], frame["ill"])
    for other in (3, None, "unheard of"):
        with pytest.raises(ArgumentError):
            model.view(model.dataset(frame.assign(s=status).replace({"s": {values[1]: other}})))


def test_indicators_are_declared_for_a_model():
    model = wb.models.formula(**PLAIN)
    with pytest.raises(ArgumentError, match="missing=True"):
        model.dataset(made(50), missing="indicator")


def test_a_model_can_be_sent_to_another_process():
    cloudpickle = pytest.importorskip("cloudpickle")
    model = wb.models.formula(
        "ill ~ age + bs(bmi, df=5) + (1 | site)", family="bernoulli", schema=SCHEMA
    )
    again = pickle.loads(cloudpickle.dumps(model))
    frame = made(30)
    for name, array in model.arrays_of(frame).items():
        np.testing.assert_array_equal(again.arrays_of(frame)[name], array)


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.parametrize(
    ("options", "held_out"),
    [
        ({}, 0),
        ({"evaluation_fraction": 0.5}, 0.5),
        ({"evaluate_private": True}, 0.2),
        ({"evaluation_is_public": True}, 0.2),
        ({"evaluation_is_public": True, "evaluation_fraction": 0.5}, 0.5),
    ],
)
def test_rows_of_a_table_are_held_out_only_where_they_can_be_used(options, held_out):
    asked = {
        "family": "bernoulli",
        "schema": SCHEMA,
        "epsilon": 1.0,
        "iterations": 5,
        "ledger": False,
        "checkpoint": False,
    }
    data = wb.prepare("ill ~ age", made(400), **grouped(**asked, **options)).data
    assert data.num_train + data.num_evaluation == 400
    assert data.num_evaluation == pytest.approx(400 * held_out, abs=40 * bool(held_out))


@pytest.mark.usefixtures("made_up_steps")
def test_without_evaluation_records_all_that_would_use_them_says_what_to_do():
    asked = {
        "family": "bernoulli",
        "schema": SCHEMA,
        "epsilon": 1.0,
        "iterations": 5,
        "ledger": False,
        "checkpoint": False,
    }
    with pytest.raises(
        ArgumentError,
        match=r"^evaluate_private=True: needs evaluation records.*evaluation_fraction=0\.2",
    ):
        wb.prepare(
            "ill ~ age", made(400), **grouped(evaluation_fraction=0, evaluate_private=True, **asked)
        )
    result = wb.fit("ill ~ age", made(400), **grouped(asked))
    data = wb.models.formula("ill ~ age", family="bernoulli", schema=SCHEMA).dataset(
        made(40), evaluation_fraction=0
    )
    for use in (result.predict, result.score, result.sample):
        with pytest.raises(ArgumentError, match="none were held out"):
            use()
    with pytest.raises(ArgumentError, match=r"Pass the inputs, as in result.sample\(given=frame\)"):
        result.sample(5)
    assert len(result.sample(given=made(40))) == 40
    for use in (result.predict, result.score):
        with pytest.raises(
            ArgumentError,
            match=r"^records=.* has no evaluation records: .* evaluation_fraction=0\.2",
        ):
            use(data)
    with pytest.raises(
        ArgumentError, match=r"^data=None: .* pass a Dataset that has evaluation records"
    ):
        result.plot("check")
    assert result.predict(made(3)).shape == (3,)
    assert result.history == ()
    assert "evaluation" not in result.metrics
