"""Coefficients in own units: those of other programs without privacy, and those that the predictor
has.
"""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from scipy import special

import workbench as wb
from tests.formula.noiseless import without_privacy
from tests.formula.references import least_squares
from tests.formula.tables import SCHEMA, made

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(-1, 1, 3000)
EXPOSURE, TRIALS = RANDOM.uniform(0.5, 30, 3000), RANDOM.integers(1, 100, 3000)
WIDE = pd.DataFrame(
    {
        "x": X,
        "e": EXPOSURE,
        "n": TRIALS,
        "time": np.maximum(RANDOM.exponential(np.exp(1 - X)), 0.01),
        "seen": "dead",
        "count": RANDOM.poisson(EXPOSURE * np.exp(0.2 + 0.5 * X)),
        "wins": RANDOM.binomial(TRIALS, special.expit(0.2 + X)),
    }
)
NARROW = {
    "exponential": (
        "Surv(time, seen) ~ x",
        {"time": (0.01, 3), "seen": ["alive", "dead"]},
        (1.0, -1.0),
    ),
    "poisson": ("count | rate(e) ~ x", {"e": (0.5, 10), "count": (0, 200)}, (0.2, 0.5)),
    "binomial": ("p(wins, n) ~ x", {"n": (1, 30, int), "wins": (0, 30, int)}, (0.2, 1.0)),
}


@pytest.mark.thorough
@pytest.mark.parametrize("family", NARROW)
def test_bounds_that_cut_most_records_leave_the_coefficients(family):
    """Cut one by one, the slope of the times is -.66 and the rate a third of the truth. Within four
    standard errors of what is left of the records: a false alarm in thousands of tests.
    """
    formula, schema, truth = NARROW[family]
    table = without_privacy(
        formula, WIDE, family=family, schema={"x": (-1, 1), **schema}
    ).coefficients()
    # of x; of the intercept they are smaller
    errors = {"exponential": 0.045, "poisson": 0.02, "binomial": 0.02}[family]
    np.testing.assert_allclose(table.loc[["intercept", "x"], "mean"], truth, atol=4 * errors)


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{"estimator": "statistics", "epsilon": 20.0}, {}])
def test_a_line_through_the_origin_is_that_of_least_squares(options):
    """Neither of its bounds is symmetric."""
    random = np.random.default_rng(0)
    x = random.uniform(0, 10, 1500)
    frame = pd.DataFrame({"x": x, "y": np.clip(3 * x + random.normal(0, 2, 1500), 0, 60)})
    schema = {"x": (0, 10), "y": (0, 60)}
    table = without_privacy(
        "y ~ 0 + x", frame, family="gaussian", schema=schema, **options
    ).coefficients()
    known, error = least_squares("y ~ 0 + x")(frame)["x"]
    assert table.loc["x", "mean"] == pytest.approx(known, abs=0.25 * error)
    assert table.loc["sigma", "mean"] == pytest.approx(2.0, abs=0.15)


def test_a_planted_factor_of_two_would_be_seen():
    """The test above can fail: with the units of a column wrong by a factor its difference is many
    standard deviations.
    """
    frame = made()
    known = smf.glm("cost ~ age", frame).fit()
    assert known.params["age"] / known.bse["age"] > 10


RIGHTS = [
    "age * sex + ward",
    "0 + age",
    "0 + ward + age:ward",
    "0 + ward:sex",
    "0 + age:bmi",
    "age + poly(bmi, 3, raw=True) + I(age**2)",
]
LINKS = [
    ("cost", "gaussian", "identity"),
    ("days", "poisson", "log"),
    ("risk", "gamma", "log"),
    ("risk", "gamma", "inverse"),
    ("risk", "gaussian", "identity"),
    ("risk", "gaussian", "inverse"),
    ("ill", "bernoulli", "logit"),
]
OF_MEAN = {"identity": np.asarray, "log": np.log, "inverse": np.reciprocal, "logit": special.logit}


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize(("response", "family", "link"), LINKS)
def test_coefficients_in_own_units_times_own_columns_are_the_link_of_the_mean(
    response, family, link, right
):
    """Also without an intercept: "y ~ 0 + x" goes through the origin, and "y ~ 0 + ward" has a
    level for each ward.
    """
    frame = made(40)
    model = wb.models.formula(f"{response} ~ {right}", family=family, link=link, schema=SCHEMA)
    linear, design = model.linear, model.columns.design
    size = len(design.block.columns)
    values = {
        "weights": np.full(size, 0.3, np.float32) * np.sin(np.arange(1, size + 1)),
        "intercept": np.float32(0.2),
    }
    if right.startswith("0"):
        del values["intercept"]
        values["weights"] = np.abs(values["weights"])  # so that a mean that must be positive is
    parameters = {"sigma": 0.1, "shape": 1.0}
    inputs = model.arrays_of(frame.drop(columns=response))
    mean = model.predict({**parameters, **values}, *inputs.values())
    drawn = np.concatenate(
        [np.atleast_1d(values[name]) for name in ("intercept", "weights") if name in values]
    )
    own = linear.own_units.matrix @ drawn + linear.own_units.shift
    columns = design.block.encode(design.values(frame), form="own", dtype=np.float64)
    columns = np.column_stack([np.ones(len(frame)), columns]) if "intercept" in values else columns
    np.testing.assert_allclose(
        columns @ own, OF_MEAN[link](np.asarray(mean, np.float64)), rtol=2e-4, atol=2e-5
    )
