"""Every declaration that is accepted ends in a fit whose tables, predictions and synthetic records
can be had, and every other one in an error that names an argument. With the fewest levels, without
covariates, and with groups alone.
"""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpyro import handlers

import workbench as wb
from tests import fakes
from tests.conftest import examples, some_of
from workbench.data.columns import Numeric
from workbench.fitting.groups import grouped
from workbench.formula.design import DesignWarning
from workbench.formula.families import FAMILIES
from workbench.results.prediction import BoundsWarning
from workbench.results.report import coefficient_rows

ROWS = 24
RANDOM = np.random.default_rng(5)
YES = RANDOM.random(ROWS) < 0.5
COLUMNS = {
    "x": (RANDOM.normal(size=ROWS), (-2, 2)),
    "g": (RANDOM.choice(["a", "b"], ROWS), ["a", "b"]),
    "n": (RANDOM.integers(3, 9, ROWS), (1, 7, int)),
    "e": (RANDOM.uniform(0.5, 4, ROWS), (0.5, 2)),
}
# {name: (values, declaration)}
RESPONSES = {
    "number": (RANDOM.normal(size=ROWS) * 3, (-4, 4)),
    "positive": (RANDOM.gamma(2, 2, ROWS), (0.1, 5)),
    "share": (RANDOM.uniform(0.05, 0.95, ROWS), (0.01, 0.9)),
    "count": (RANDOM.integers(0, 4, ROWS), (0, 3)),
    "whole": (RANDOM.integers(0, 4, ROWS), (0, 3, int)),
    "ill": (YES, bool),
    "zero or one": (YES.astype(int), (0, 1)),
    "1 or 2": (YES + 1, (1, 2, int)),
    "two": (np.where(YES, "yes", "no"), ["yes", "no"]),
    "codes": (YES + 1, wb.data.Categorical([1, 2])),
    "three": (RANDOM.choice(["low", "mid", "high"], ROWS), ["low", "mid", "high"]),
    "one": (np.full(ROWS, "a"), ["a"]),
    "censoring": (np.where(YES, "none", "right"), ["none", "right"]),
    "all seen": (np.full(ROWS, "none"), ["none"]),
    "other": (np.where(YES, "a", "?"), wb.data.Categorical(["a"], other=True)),
}
RIGHTS = [
    "1",
    "x",
    "(1 | g)",
    "0 + (1 | g)",
    "0 + x",
    "0 + g",
    "x + g",
    "x + (1 + x | g)",
    "0 + (0 + x | g)",
    "0",
]
FRAME = pd.DataFrame({name: values for name, (values, _) in (COLUMNS | RESPONSES).items()})
SCHEMA = {name: declared for name, (_, declared) in (COLUMNS | RESPONSES).items()}
QUICK = {
    "epsilon": 1.0,
    "iterations": 8,
    "seed": 1,
    "ledger": False,
    "training": wb.Training(draws=20),
    "execution": wb.Execution(checkpoint=False),
}


def lefts():
    """What may stand before the ~, with the families that can have it or not."""
    quoted = [f"`{name}`" if " " in name else name for name in RESPONSES]
    plain = [(name, family) for name in quoted for family in FAMILIES]
    counts = [
        (f"p({name}, n)", family)
        for name in ("count", "whole", "number")
        for family in ("binomial", "beta_binomial")
    ]
    rates = [
        (f"{name} | rate(e)", family)
        for name in ("count", "whole")
        for family in FAMILIES
        if "exposure" in FAMILIES[family].extras
    ]
    status = [f"{call}(positive, {name})" for call in ("Surv", "censored") for name in quoted]
    times = [(name, family) for name in status for family in ("exponential", "weibull")]
    return plain + counts + rates + times


def declared(formula, family):
    """(model, data set, view) of a declaration; the name of the argument for which it
    is refused.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DesignWarning)
        try:
            model = wb.models.formula(formula, family, SCHEMA)
            data = model.dataset(FRAME, evaluation=FRAME.head(6), evaluation_is_public=True)
            return model, data, model.view(data)
        except wb.ArgumentError as error:
            return error.argument


def check_model(model, view):
    """Every record has a density, and the table of priors and the summary say what is modelled."""
    trace = handlers.trace(handlers.seed(model.model, 0)).get_trace(
        *view.train, num_records=ROWS, **model.options
    )
    density = trace["y"]["fn"].log_prob(trace["y"]["value"])
    assert density.shape == (ROWS,)
    assert np.isfinite(density).all()
    assert model.target_words in model.summary
    assert model.columns.response.name in model.target_words
    if "Intercept" in model.priors.index:
        assert (
            model.columns.family.target_words(model.columns.response)
            in model.priors.loc["Intercept", "of"]
        )


def check_fit(model, data):
    """All that can be had of a result can be had."""
    result = wb.fit(
        model,
        data,
        **QUICK,
    )
    assert result.status == "done"
    response, several = model.columns.response, len(model.columns.response.levels) or 1
    table = result.coefficients()
    assert len(table)
    assert np.isfinite(table[["mean", "sd", "scaled mean", "scaled sd"]].to_numpy(float)).all()
    assert table.heading["Response"] == model.target_words
    assert all(str(name) in str(table) for name in (*table.index, *table.columns))
    assert len(result.summary_table())
    assert len(coefficient_rows(result)[1]) == len(table)
    inputs = FRAME.drop(columns=response.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundsWarning)
        assert np.isfinite(result.predict(inputs)).all()
        drawn = result.sample(given=inputs, seed=1)
        assert len(result.intervals(inputs)) in (ROWS, ROWS * several)
    made = model.dataset(drawn)
    # every synthetic row is one that the declaration has
    assert made.num_train + made.num_evaluation == ROWS
    kept = model.columns.schema.columns[response.name]
    if isinstance(kept, Numeric):
        assert drawn[response.name].astype(float).between(kept.low, kept.high).all()
    if "x" in model.columns.needed:
        assert len(result.effects("x", [0, 1]).table) in (2, 2 * several)


CASES = [
    (f"{left} ~ {right}", family) for (left, family), right in itertools.product(lefts(), RIGHTS)
]
SMALLEST = [
    ("number ~ 1", "gaussian"),
    ("number ~ 0 + (1 | g)", "gaussian"),
    ("two ~ x", "categorical"),
    ("Surv(positive, two) ~ (1 | g)", "weibull"),
    ("count | rate(e) ~ 1", "poisson"),
    ("number ~ (1 | g)", "student_t"),
    ("p(count, n) ~ 1", "binomial"),
    ("codes ~ 0 + (1 | g)", "bernoulli"),
    ("two ~ 1", "cumulative"),
    ("codes ~ (1 | g)", "categorical"),
    ("three ~ (1 | g)", "categorical"),
    ("three ~ 1", "cumulative"),
    ("share ~ 1", "beta"),
    ("positive ~ (1 | g)", "gamma"),
    ("`zero or one` ~ 1", "bernoulli"),
    ("`1 or 2` ~ 1", "bernoulli"),
    ("censored(positive, censoring) ~ 1", "exponential"),
    ("positive ~ 1", "exponential"),
    ("Surv(positive, `1 or 2`) ~ 0 + x", "weibull"),
    ("whole ~ (1 | g)", "negative_binomial"),
    ("p(count, n) ~ 1", "beta_binomial"),
    ("positive ~ 1", "inverse_gaussian"),
    ("positive ~ (1 | g)", "lognormal"),
    ("count | rate(e) ~ 1", "zero_inflated_poisson"),
    ("whole ~ (1 | g)", "hurdle_negative_binomial"),
]


@given(st.sampled_from(CASES))
@examples(600, 60)
def test_a_declaration_is_refused_by_name_or_has_a_model(case):
    found = declared(*case)
    if isinstance(found, str):
        assert found
    else:
        check_model(found[0], found[2])


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.parametrize(("formula", "family"), some_of(SMALLEST, 7, 6))
def test_the_smallest_declarations_end_in_a_fit(formula, family):
    model, data, view = declared(formula, family)
    check_model(model, view)
    check_fit(model, data)


@pytest.mark.thorough
@given(st.sampled_from(CASES))
@examples(100, 10)
def test_an_accepted_declaration_ends_in_a_fit(case):
    found = declared(*case)
    with fakes.installed():
        if not isinstance(found, str):
            check_fit(*found[:2])


@pytest.mark.usefixtures("made_up_steps")
def test_synthetic_values_are_cut_as_those_of_a_table_are():
    """The made-up posterior is wide: without a cut, most values would be outside."""
    options = {
        "epsilon": 1.0,
        "iterations": 8,
        "draws": 20,
        "seed": 1,
        "ledger": False,
        "checkpoint": False,
    }
    result = wb.fit("number ~ x", FRAME, schema=SCHEMA, **grouped(options))
    drawn = result.sample(given=FRAME.assign(x=np.clip(FRAME["x"], -2, 2)), seed=1)["number"]
    assert drawn.between(-4, 4).all()
    assert {-4.0, 4.0} & set(drawn)
    inside = FRAME.assign(x=np.clip(FRAME["x"], -2, 2), two="yes")
    timed = wb.fit(
        "Surv(positive, two) ~ x", FRAME, family="weibull", schema=SCHEMA, **grouped(options)
    )
    made = timed.sample(given=pd.concat([inside] * 10), seed=1)
    is_late = made["positive"] >= 5
    assert 0 < is_late.sum() < len(made)
    assert made["positive"].between(0.1, 5).all()
    # the second level is the event
    assert made["two"].tolist() == np.where(is_late, "yes", "no").tolist()


@pytest.mark.usefixtures("made_up_steps")
def test_a_prediction_for_twice_the_exposure_is_twice_as_large():
    """Also beyond the bounds, at which only records are cut."""
    result = wb.fit(
        "count | rate(e) ~ 1",
        FRAME,
        family="poisson",
        schema=SCHEMA,
        **QUICK,
    )
    one, ten, little = (result.predict(FRAME.assign(e=e)) for e in (1.0, 10.0, 0.01))
    np.testing.assert_allclose(ten, 10 * one, rtol=1e-5)
    np.testing.assert_allclose(little, 0.01 * one, rtol=1e-5)


@pytest.mark.usefixtures("made_up_steps")
def test_a_probability_of_zeros_is_fitted_by_its_logit():
    model = wb.models.formula("count ~ x", "hurdle_poisson", SCHEMA)
    assert model.priors.loc["zero_probability", "of"].startswith("logit of zero_probability")
    with pytest.raises(wb.ArgumentError, match="all real numbers"):
        wb.models.formula(
            "count ~ x", "hurdle_poisson", SCHEMA, priors={"zero_probability": "Beta(2, 8)"}
        )
    result = wb.fit(model, model.dataset(FRAME, evaluation=False), **QUICK)
    logits = result.draws["zero_probability"].astype(float)
    table = result.coefficients().loc["zero_probability"]
    assert table["scaled mean"] == pytest.approx(logits.mean(), abs=1e-4)
    assert table["mean"] == pytest.approx(np.mean(1 / (1 + np.exp(-logits))), abs=1e-4)


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.parametrize(
    ("formula", "family", "words"),
    [
        ("two ~ x", "bernoulli", "probability of two = no"),
        ("two ~ x", "categorical", "odds of two = no against yes"),
        (
            "three ~ x",
            "cumulative",
            "probability of later levels of three, in the order low, mid, high",
        ),
        ("ill ~ x", "bernoulli", "probability of ill = 1 or True"),
        (
            "Surv(positive, two) ~ x",
            "weibull",
            "mean of positive, a time of an event where two = no",
        ),
        ("count | rate(e) ~ x", "poisson", "mean of count per unit of exposure"),
        ("count ~ x", "zero_inflated_poisson", "mean of count, without the extra zeros"),
        ("count ~ x", "hurdle_poisson", "mean of count, before truncation at 0"),
        ("positive ~ x", "lognormal", "median of positive"),
    ],
)
def test_a_model_says_what_it_is_of(formula, family, words):
    model = wb.models.formula(formula, family, SCHEMA)
    assert model.target_words == words
    assert model.summary.endswith(f": {words}.")
    assert words in repr(wb.prepare(model, FRAME, epsilon=1.0, iterations=8, ledger=False))


def test_a_status_or_a_yes_that_is_neither_of_two_is_refused_and_not_cut():
    for formula, family in (
        ("`zero or one` ~ x", "bernoulli"),
        ("Surv(positive, `zero or one`) ~ x", "weibull"),
    ):
        model = wb.models.formula(formula, family, SCHEMA)
        with pytest.raises(wb.ArgumentError) as caught:
            model.dataset(FRAME.assign(**{"zero or one": YES + 1}))
        assert caught.value.argument == "zero or one"


@pytest.mark.parametrize(
    ("declared", "event", "censored"),
    [
        (bool, True, False),
        (bool, 1, 0),
        (bool, "yes", "no"),
        (bool, "True", "False"),
        (bool, "1", "0"),
        ((1, 2, int), 2, 1),
        (["alive", "dead"], "dead", "alive"),
        (["alive", "dead"], " dead", "alive "),
    ],
)
def test_a_time_above_its_bound_is_censored_however_its_event_is_written(declared, event, censored):
    frame = pd.DataFrame(
        {
            "t": [0.5, 9.0, 0.7, 8.0],
            "s": [event, event, censored, censored],
            "x": [0.1, 0.2, 0.3, 0.4],
        }
    )
    model = wb.models.formula(
        "Surv(t, s) ~ x", "weibull", {"t": (0.1, 2), "s": declared, "x": (0, 1)}
    )
    arrays = dict(
        zip(model.arrays, model.view(model.dataset(frame, evaluation=False)).train, strict=True)
    )
    rows = sorted(zip(arrays["y"].tolist(), arrays["observed"].tolist(), strict=True))
    assert rows == [(0.5, 1.0), (pytest.approx(0.7), 0.0), (2.0, 0.0), (2.0, 0.0)]


def test_bounds_of_an_exposure_that_float32_cannot_tell_apart_are_refused():
    schema = {"n": (0, 9, int), "e": (0.01, 1e6), "x": (0, 1)}
    with pytest.raises(
        wb.ArgumentError, match=r"^exposure=\(0\.01, 1000000\.0\): has bounds too far apart"
    ):
        wb.models.formula("n ~ x", "poisson", schema, exposure="e")
