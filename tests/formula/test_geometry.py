"""Columns that are nearly the same within the declared bounds: the same space, other columns,
coefficients as written.
"""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import workbench as wb
from workbench.data import Schema
from workbench.formula.design import DesignWarning, design_of
from workbench.formula.parsing import parse

BOUNDS = [(1990, 2020), (0, 1e6), (18, 90)]
WIDE = (0, 4000)  # of years: no record is near the ends
# what a formula of ours is for patsy
RIGHTS = {
    "x + I(x**2)": "",
    "x + I(x**2) + I(x**3)": "",
    "poly(x, 2, raw=True)": "x + I(x**2)",
    "poly(x, 3, raw=True)": "x + I(x**2) + I(x**3)",
    "0 + x + I(x**2)": "",
    "0 + I(x**2)": "",
    "x:g": "",
    "x:z": "",
    "x*z": "",
    "x + z + I(x*z)": "",
    "0 + x + z": "",
    "0 + g + x:g": "",
    "x*g + I(x**2):g": "",
    "log(x + 1) + x": "np.log(x + 1) + x",
    "g + I(x**2) + x + I(z**2) + z + x:z": "",
    "bs(x, knots=[2000, 2010])": "bs(x, knots=[2000, 2010], lower_bound=1990, upper_bound=2020)",
}


def made(bounds, within=None, rows=600, seed=0):
    random = np.random.default_rng(seed)
    x, z = random.uniform(*(within or bounds), (2, rows))
    frame = pd.DataFrame({"x": x, "z": z, "g": random.choice(list("abc"), rows)})
    return frame, {"x": bounds, "z": bounds, "g": ["a", "b", "c"], "y": (-50, 50)}


def designs(right, schema):
    as_written = design_of(parse(f"y ~ {right}"), Schema.from_declaration(schema))
    return as_written, as_written.orthogonal(())


def columns(design, frame, form="fitted"):
    block = design.block
    first = np.ones((len(frame), int(block.intercept)))
    return np.hstack([first, block.encode(design.values(frame), form=form, dtype=np.float64)])


def replaced(design):
    """The columns that are replaced, of the design and of the effects of groups."""
    return [
        place
        for block in (design.block, *(groups.block for groups in design.groups))
        for place in block.residuals
    ]


def condition(x):
    return np.linalg.cond(x / np.linalg.norm(x, axis=0))


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_the_space_stays_and_its_columns_are_far_from_each_other(right, bounds):
    if "bs" in right and bounds != (1990, 2020):
        return
    frame, schema = made(bounds)
    design = designs(right, schema)[1]
    fitted, own = columns(design, frame), columns(design, frame, "own")
    assert condition(fitted) < 15
    assert np.abs(fitted).max() <= 1 + 1e-9
    np.testing.assert_allclose(own @ design.own_units, fitted, atol=2e-7)


@pytest.mark.parametrize("right", RIGHTS)
@pytest.mark.parametrize(
    ("bounds", "within"), [(each, None) for each in BOUNDS] + [(WIDE, (1990, 2020))]
)
def test_least_squares_on_fitted_columns_is_that_of_statsmodels(right, bounds, within):
    """The conversion is exact, also where declared bounds are far too wide. Other programs compute
    in own units.
    """
    if "bs" in right and bounds != (1990, 2020):
        return
    frame, schema = made(bounds, within)
    centred = (frame[["x", "z"]] - np.mean(within or bounds)) / 15
    frame["y"] = (
        3 + centred["x"] - 2 * centred["z"] + (frame["g"] == "b") + np.sin(np.arange(len(frame)))
    )
    design = designs(right, schema)[1]
    fitted = columns(design, frame)
    own = design.own_units @ np.linalg.lstsq(fitted, frame["y"], rcond=None)[0]
    known = smf.ols(f"y ~ {RIGHTS[right] or right}", frame).fit(method="qr")
    size = np.ptp(known.fittedvalues)
    np.testing.assert_allclose(
        columns(design, frame, "own") @ own, known.fittedvalues, atol=1e-5 * size
    )
    names = (["Intercept"] if design.block.intercept else []) + list(design.block.names)
    if set(names) == set(known.params.index) and condition(known.model.exog) < 1e8:
        errors = known.bse[names].to_numpy()
        np.testing.assert_allclose((own - known.params[names].to_numpy()) / errors, 0, atol=1e-3)


def test_a_planted_error_of_the_conversion_would_be_seen():
    """The tests above can fail: without the columns that a residual takes off, the curve is another
    one.
    """
    frame, schema = made((1990, 2020))
    as_written, design = designs("x + I(x**2)", schema)
    fitted, own = columns(design, frame), columns(design, frame, "own")
    assert np.abs(own @ as_written.own_units - fitted).max() > 0.5
    assert condition(columns(as_written, frame, "scaled")) > 900


SIMPLE = [
    "x",
    "x + z + g",
    "x*z",
    "x*g",
    "0 + x",
    "g",
    "poly(x, 3)",
    "bs(x, df=5)",
    "I(x > 65) + x",
    "center(x) + I(center(x)**2)",
]


@pytest.mark.parametrize("right", SIMPLE)
def test_simple_designs_stay_as_they_are(right):
    as_written, design = designs(right, made((18, 90))[1])
    assert not replaced(design)
    np.testing.assert_array_equal(design.own_units, as_written.own_units)


def _map(model, frame, sigma):
    """The weights of the largest posterior density at a known sigma, in own units; priors are
    normal.
    """
    response, design = model.columns.response, model.columns.design
    x = columns(design, frame)
    priors = [line.prior for line in model.lines if line.site in ("intercept", "weights")]
    shift, scale = model.columns.family.units(response)
    precision = np.diag([float(prior.scale) ** -2 * sigma**2 / scale**2 for prior in priors])
    weights = np.linalg.solve(x.T @ x + precision, x.T @ (frame["y"] - shift) / scale)
    own = model.linear.own_units
    return columns(design, frame, "own") @ (own.matrix @ weights + own.shift)


@pytest.mark.parametrize(
    ("right", "truth"),
    [
        ("x + I(x**2)", lambda u, g: 10 + 5 * u**2),
        ("poly(x, 2, raw=True)", lambda u, g: 10 + 5 * u**2),
        ("x:g", lambda u, g: 10 + 2.475 * u),
    ],
)
@pytest.mark.parametrize("basis", ["orthogonal", "scaled"])
def test_default_priors_allow_what_is_plausible(right, truth, basis):
    """The years of issue 49: 15, 10, 15. As written, the prior itself forbids such a curve."""
    frame, schema = made((1990, 2020))
    expected = truth((frame["x"] - 2005) / 15, frame["g"])
    frame["y"] = expected + np.random.default_rng(1).normal(0, 1, len(frame))
    model = wb.models.formula(f"y ~ {right}", schema=schema | {"y": (0, 20)}, basis=basis)
    error = np.sqrt(np.mean((_map(model, frame, 1.0) - expected) ** 2))
    assert (error < 0.15) == (basis == "orthogonal")


def test_powers_that_double_precision_cannot_tell_apart_are_announced():
    schema = made((1990, 2020))[1]
    with pytest.warns(
        DesignWarning, match=r"raw=True\)\[4\] adds nothing to .* I\(center\(x\)\*\*4\)"
    ):
        wb.models.formula("y ~ poly(x, 4, raw=True) + poly(z, 3, raw=True)", schema=schema)


# ---- priors of the user --------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["x", "I(x ** 2)"])
def test_columns_with_priors_stay_as_they_are_written_and_that_is_said(named):
    schema = made((1990, 2020))[1]
    with pytest.warns(
        DesignWarning, match=r"x, I\(x \*\* 2\) say nearly the same .* number 1e\+03.*center\(x\)"
    ):
        model = wb.models.formula(
            "y ~ x + I(x**2) + z", schema=schema, priors={named: "Normal(0, 1)"}
        )
    assert not replaced(model.columns.design)
    (caution,) = model.cautions
    assert "leave out these priors" in caution


def test_priors_of_other_columns_do_not_matter():
    schema = made((1990, 2020))[1]
    model = wb.models.formula(
        "y ~ x + I(x**2) + z",
        schema=schema,
        priors={"z": "Normal(0, 1)", "Intercept": "Normal(0, 3)"},
    )
    assert list(model.columns.design.block.residuals) == [1]
    assert model.priors.loc["I(x ** 2)", "of"] == "the most that it adds to x"
    assert model.priors.loc["I(x ** 2)", "prior"] == "Normal(0, 2)"
    assert not model.cautions


def test_powers_of_a_centred_column_take_priors():
    schema = made((1990, 2020))[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.models.formula(
            "y ~ center(x) + I(center(x)**2)",
            schema=schema,
            priors={"I(center(x) ** 2)": "Normal(0, 1)"},
        )


def test_priors_of_deviations_between_groups():
    schema = made((1990, 2020))[1]
    formula = "y ~ z + (x + I(x**2) | g)"
    design = wb.models.formula(formula, schema=schema).columns.design
    assert list(design.groups[0].block.residuals) == [1]
    with pytest.warns(DesignWarning, match="In the effects of g: "):
        fixed = wb.models.formula(
            formula, schema=schema, priors={"g_sd": "HalfNormal(1)"}
        ).columns.design
    assert not replaced(fixed)


def test_deviations_between_groups_are_those_of_effects_in_own_units():
    schema = made((1990, 2020))[1]
    (effects,) = designs("(x + I(x**2) | g)", schema)[1].groups
    fitted = np.array([[0.5, 0.2, 0.3], [1.0, 0.1, 0.2]])
    drawn = np.random.default_rng(0).normal(size=(2, 100_000, 3)) * fitted[:, None]
    design = designs("x + I(x**2)", schema)[1]
    own = (drawn @ design.own_units.T).std(axis=1)
    np.testing.assert_allclose(effects.deviations(fitted)[:, 1:], own[:, 1:], rtol=0.02)
    np.testing.assert_array_equal(effects.deviations(fitted)[:, 0], fitted[:, 0])


# ---- records and files ---------------------------------------------------------------------------


def test_rows_are_encoded_one_by_one():
    frame, schema = made((1990, 2020))
    design = designs("x*g + I(x**2):g + poly(z, 3, raw=True)", schema)[1]
    together = design.encode(design.values(frame))["x"]
    assert together.dtype == np.float32
    for row in range(0, 600, 97):
        np.testing.assert_array_equal(
            design.encode(design.values(frame.iloc[[row]]))["x"][0], together[row]
        )


@pytest.mark.usefixtures("made_up_steps")
@pytest.mark.thorough
def test_a_saved_result_keeps_its_basis(tmp_path):
    frame, schema = made((1990, 2020))
    frame["y"] = 0.0
    model = wb.models.formula("y ~ x + I(x**2)", schema=schema)
    assert model.options["basis"] == "orthogonal"
    result = wb.fit(model, frame, epsilon=1, iterations=10, seed=0)
    path = result.save(tmp_path / "now")
    again = wb.load(path)
    pd.testing.assert_frame_equal(
        pd.DataFrame(again.coefficients()), pd.DataFrame(result.coefficients())
    )
    np.testing.assert_allclose(again.predict(frame), result.predict(frame), rtol=1e-5)
