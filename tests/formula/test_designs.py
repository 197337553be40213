"""Designs: the columns are those of patsy, another program, up to the scaling; and nothing but
declarations is looked at.
"""

import re
import warnings

import numpy as np
import pandas as pd
import patsy
import pytest
from numpy.polynomial import legendre

from workbench import ArgumentError
from workbench.data import Schema
from workbench.formula.design import DesignWarning, design_of
from workbench.formula.families import get
from workbench.formula.parsing import Group, parse
from workbench.formula.records import columns_of_formula

DECLARED = {
    "age": (0, 120),
    "bmi": (10, 50),
    "ward": ["a", "b", "c"],
    "sex": ["f", "m"],
    "smoker": bool,
    "year": (2018, 2021, int),
    "site": ["u", "v", "w"],
    "one": ["only"],
    "income": (1, 1e6),
    "my column": (-1, 1),
}
SCHEMA = Schema.from_declaration(DECLARED)


def made(rows=300, seed=0):
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": random.uniform(20, 80, rows),
            "bmi": random.uniform(15, 40, rows),
            "ward": random.choice(list("abc"), rows),
            "sex": random.choice(["f", "m"], rows),
            "smoker": random.random(rows) < 0.3,
            "year": random.integers(2018, 2022, rows),
            "site": random.choice(list("uvw"), rows),
            "one": "only",
            "income": random.uniform(100, 1e5, rows),
            "my column": random.uniform(-1, 1, rows),
        }
    )


def design(right):
    return design_of(parse(f"y ~ {right}"), SCHEMA)


def whole(design, frame, **options):
    """The design matrix with the column of the intercept."""
    x = design.block.encode(design.values(frame), dtype=np.float64, **options)
    return np.hstack([np.ones((len(frame), int(design.block.intercept))), x])


AS_PATSY = [
    "age + ward",
    "age * ward",
    "age:ward",
    "0 + ward + age",
    "0 + ward:sex",
    "ward * sex * age",
    "age + age:ward",
    "0 + age",
    "0 + age:ward",
    "age:bmi",
    "age * bmi",
    "ward:sex",
    "I(age**2) + age",
    "np.log(bmi) + np.sqrt(bmi)",
    "0 + ward + sex",
    "ward + ward:sex",
    "C(year) + age",
    "smoker * age",
    "C(ward, Treatment('b')) + sex",
    "age * bmi * ward",
    "0 + smoker",
    "smoker:age:ward",
    "I(age / 10):ward + bmi",
    "0 + C(year):age",
    "age:bmi:ward + bmi",
    "(age + ward + sex)**2 - age:sex",
    "ward / age",
    "bs(age, knots=[30, 50], lower_bound=0, upper_bound=120)",
    "1",
    "year + C(year):age",
    "age + I(age > 65)",
    "bs(bmi, df=4, degree=1, lower_bound=10, upper_bound=50, knots=[20, 30, 40]):sex",
]


@pytest.mark.parametrize("right", AS_PATSY)
def test_columns_are_those_of_patsy(right):
    frame, ours = (
        made(),
        re.sub(r", (lower|upper)_bound=\d+", "", right).replace(
            "df=4, degree=1, knots", "degree=1, knots"
        ),
    )
    found = design(ours)
    known = np.asarray(patsy.dmatrix(right, frame), float)
    own, scaled = whole(found, frame, form="own"), whole(found, frame)
    as_rows = [sorted(map(tuple, np.round(x, 7).T)) for x in (known, own)]
    np.testing.assert_allclose(*as_rows, atol=1e-6)
    assert np.abs(scaled).max() <= 1
    # the scaled columns are combinations of those in their own units, which own_units says
    np.testing.assert_allclose(own @ found.own_units, scaled, atol=1e-9)
    assert np.linalg.matrix_rank(scaled) == np.linalg.matrix_rank(
        known / np.maximum(np.abs(known).max(axis=0), 1e-9)
    )


def test_a_line_through_the_origin_stays_one():
    frame = made()
    assert np.linalg.matrix_rank(np.hstack([whole(design("0 + age"), frame), frame[["age"]]])) == 1
    both = np.hstack([whole(design("age"), frame), frame[["age"]], np.ones((len(frame), 1))])
    assert np.linalg.matrix_rank(both) == 2


def test_a_planted_shift_without_its_margin_is_found():
    """The test above can fail: a product of two columns moved to their middles is no combination of
    the raw product.
    """
    frame = made()
    age, bmi = frame["age"], frame["bmi"]
    moved = np.column_stack([np.ones(len(frame)), (age - 60) * (bmi - 30)])
    assert np.linalg.matrix_rank(np.column_stack([moved, age * bmi]) / 1000) == 3
    assert (
        np.linalg.matrix_rank(np.column_stack([whole(design("age:bmi"), frame), age * bmi / 1000]))
        == 2
    )


def test_scaling_takes_declared_bounds():
    frame = made()
    for right, expected in {
        "scale(age)": (frame["age"] - 60) / 60,
        "standardize(age)": (frame["age"] - 60) / 60,
        "center(age)": frame["age"] - 60,
        "I(center(age) ** 2)": (frame["age"] - 60) ** 2,
    }.items():
        np.testing.assert_allclose(whole(design(right), frame, form="own")[:, 1], expected)
    centred = design("center(age)").block.encode(design("center(age)").values(frame))
    np.testing.assert_allclose(centred[:, 0], (frame["age"] - 60) / 60, rtol=1e-6, atol=1e-7)


def test_polynomials_are_orthogonal_over_the_declared_range():
    ages = np.linspace(0, 120, 200_001)
    x = whole(design("poly(age, 4)"), made(len(ages)).assign(age=ages))
    weights = np.full(len(ages), 1 / (len(ages) - 1))
    weights[[0, -1]] /= 2
    np.testing.assert_allclose(
        x.T @ (weights[:, None] * x), np.diag(1 / (2 * np.arange(5) + 1)), atol=1e-9
    )
    np.testing.assert_allclose(x[:, 3], legendre.Legendre([0, 0, 0, 1])(ages / 60 - 1), atol=1e-12)


def test_splines_have_knots_evenly_over_the_declared_range():
    frame = made()
    by_df = whole(design("bs(age, df=6)"), frame, form="own")
    by_knots = whole(design("bs(age, knots=[30, 60, 90])"), frame, form="own")
    np.testing.assert_array_equal(by_df, by_knots)


def test_values_beyond_the_bounds_are_cut():
    frame = made(4).assign(age=[-5.0, 0.0, 120.0, 500.0])
    np.testing.assert_array_equal(whole(design("age"), frame)[:, 1], [-1, -1, 1, 1])
    assert np.abs(whole(design("I(age**2) + bs(age, df=5) + poly(age, 3)"), frame)).max() <= 1


BOUNDED = [
    "I(age - bmi)",
    "I(age * bmi - 3)",
    "I((age - 60) ** 2)",
    "I((age - 60) ** 3)",
    "I(bmi / (age + 1))",
    "abs(age - 60)",
    "log(income)",
    "log1p(age)",
    "exp(age / 60)",
    "sqrt(age)",
    "I(age ** 0.5)",
    "I(bmi ** -2)",
    "I(-age)",
    "log2(bmi)",
    "I(2 ** 3 * age)",
    "expm1(bmi / 50)",
    "log10(bmi)",
    "I(1 / bmi)",
    "poly(bmi, 3, raw=True)",
    "I(center(age) ** 2)",
]


@pytest.mark.parametrize("right", BOUNDED)
def test_derived_bounds_hold_everywhere(right):
    """All corners of the declared box and many points inside: no value is beyond the bounds, and so
    none is cut.
    """
    corners = [
        (age, bmi, income) for age in (0, 60, 120) for bmi in (10, 50) for income in (1, 1e6)
    ]
    inside = made(500)
    inside[["age", "bmi"]] = np.random.default_rng(1).uniform([0, 10], [120, 50], (500, 2))
    outside = made(len(corners))
    outside[["age", "bmi", "income"]] = corners
    frame = pd.concat([outside, inside])
    block = design(right).block
    (factor,) = block.factors.values()
    values = factor.compute(design(right).values(frame))
    low, high = factor.bounds.T
    assert np.all(values >= low)
    assert np.all(values <= high)
    assert np.all(high - low <= 3.1 * np.ptp(values, axis=0))  # and they are of use
    scaled = np.abs(block.encode(design(right).values(frame)))
    assert scaled.max() <= 1


REFUSED = {
    "mean(age)": "write the public number itself",
    "I(age - mean(age))": "write the public number itself",
    "rank(age)": r"I\(age > 65\)",
    "cut(age, 3)": r"I\(age > 65\)",
    "cr(age, df=3)": "write bs",
    "hashed(ward)": r"write C\(x\)",
    "lag(age)": "before you pass the table",
    "foo(age)": r"unknown; known are I, log",
    "log(age)": "needs numbers above 0",
    "sqrt(my_column)": "is none of the columns",
    "I(1 / age)": "needs a divisor that is not 0",
    "exp(income)": "no finite bounds",
    "I(0 * exp(income) + age)": "no finite bounds",
    "I(ward)": "declared as categories",
    "poly(ward, 2)": "declared as categories",
    "C(age)": "declared as numbers",
    "C(ward, Sum)": "reference level",
    "C(ward, Treatment('z'))": "reference level",
    "C(ward, levels=['a'])": "reference level",
    "bs(age)": "df",
    "bs(age, df=5, knots=[3])": "df",
    "bs(age, knots=[130])": "knots=130",
    "bs(age, knots=[50, 30])": "rising",
    "poly(age, 1.5)": "degree",
    "poly(age, bmi)": "numbers after its column",
    "poly(age, power=3)": "takes degree, raw",
    "I(3)": "uses no column",
    "I(__import__('os').getcwd())": "is unknown",
    "I(age.real)": "not arithmetic",
    "I(age if age else 1)": "not arithmetic",
    "scale(age, 3)": "one argument",
    "nothing": "none of the columns age",
    "age > 3": "comparison outside I",
    "age %in% ward": "write a:b",
    ".": "name the columns",
    "{age + 1}": r"write I\(...\)",
    "age | ward": "stands alone",
    "2 * (1 | ward)": "multiplies a term of groups",
    "age - (1 | ward)": "multiplies a term of groups",
    "(1 | ward | sex)": "two |",
    "(0 | ward)": "without an intercept or a slope",
    "(1 | age)": "names must be public",
    "(1 | nothing)": "names must be public",
    "age +": "cannot be read",
    "age + offset(age)": r"not one offset\(log\(exposure\)\)",
    "offset(log(age)) + offset(log(bmi))": r"not one offset\(log\(exposure\)\)",
    "age:offset(log(bmi))": r"not one offset\(log\(exposure\)\)",
}


@pytest.mark.parametrize("right", REFUSED)
def test_what_cannot_be_is_refused_with_what_to_write(right):
    with pytest.raises(ArgumentError, match=REFUSED[right]) as caught:
        design(right)
    assert caught.value.argument == "formula"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["age", "~ age", "y ~ age ~ ward", "log(y) ~ age", "y + z ~ age", "y[yes] ~ age", "", None, 3],
)
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ArgumentError, match="formula="):
        parse(text)


def test_terms_of_groups():
    assert parse("y ~ (1 | a / b) + x").groups == (
        Group(True, (), ("a",)),
        Group(True, (), ("a", "b")),
    )
    assert parse("y ~ x + (0 + x || g) + (1 | g)").groups == (Group(True, (("x",),), ("g",)),)
    assert parse("y ~ (x | g) - 1").groups == (Group(True, (("x",),), ("g",)),)
    assert parse("y ~ (x | g) - 1").intercept is False
    assert design("`my column` * `my column`").block.names == ("my column",)
    assert design("`age`:age").block.names == ("age",)
    assert parse("y ~ a:a + (a + b):(a + c)").terms == (("a",), ("a", "c"), ("b", "a"), ("b", "c"))
    assert parse("y ~ (1 | g + h)").groups == (Group(True, (), ("g",)), Group(True, (), ("h",)))


@pytest.mark.parametrize(
    ("left", "response", "extras"),
    [
        ("p(s, n)", "s", {"trials": "n"}),
        ("s | trials(n)", "s", {"trials": "n"}),
        ("d | rate(t)", "d", {"exposure": "t"}),
        ("Surv(t, event)", "t", {"observed": "event"}),
        ("censored(t, c)", "t", {"status": "c"}),
        ("`the t`", "the t", {}),
        ("d ~ offset(log(t)) +", "d", {"exposure": "t"}),
        ("d ~ offset(np.log(`the t`)) +", "d", {"exposure": "the t"}),
    ],
)
def test_left_hand_sides(left, response, extras):
    parsed = parse(f"{left} ~ age" if "~" not in left else f"{left} age")
    assert (parsed.response, parsed.extras) == (response, extras)
    assert parsed.terms == (("age",),)


def test_names_in_backticks():
    frame = made()
    found = design("`my column` * age + I(`my column` ** 2)")
    assert found.block.names == ("my column", "age", "I(my column ** 2)", "my column:age")
    np.testing.assert_allclose(whole(found, frame, form="own")[:, 3], frame["my column"] ** 2)


@pytest.mark.parametrize(
    "name", ["100 %", "{a}", "a ~ b", "class", "None", "log.radon", "a | b", "x y"]
)
def test_any_name_can_stand_in_backticks(name):
    schema = Schema.from_declaration({"y": (0, 1), name: (0, 1)})
    assert design_of(parse(f"y ~ `{name}` + I(`{name}` ** 2)"), schema).block.names == (
        name,
        f"I({name} ** 2)",
    )
    assert parse(f"`{name}` ~ 1").response == name


@pytest.mark.parametrize("name", ["class", "None", "log.radon"])
def test_a_column_that_needs_backticks_is_told_so(name):
    schema = Schema.from_declaration({"y": (0, 1), name: (0, 1)})
    with pytest.raises(
        ArgumentError, match=f"without backticks, which a name like this needs: `{name}`"
    ):
        design_of(parse(f"y ~ {name}"), schema)


def test_indices_and_slopes_of_groups():
    frame = made()
    found = design("age + (1 + age | site:sex)")
    (effects,) = found.groups
    arrays = found.encode(found.values(frame))
    assert effects.labels == ("u:f", "u:m", "v:f", "v:m", "w:f", "w:m")
    assert effects.columns == ("Intercept", "age")
    names = np.array(effects.labels)[arrays["site:sex"]]
    np.testing.assert_array_equal(names, frame["site"] + ":" + frame["sex"])
    np.testing.assert_allclose(
        arrays["site:sex_x"][:, 0], (frame["age"] - 60) / 60, rtol=1e-6, atol=1e-6
    )
    unmoved = design("(0 + age | site)")
    # no intercept to take up a shift
    np.testing.assert_allclose(
        unmoved.encode(unmoved.values(frame))["site_x"][:, 0], frame["age"] / 120, rtol=1e-6
    )


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ("age + I(2 * age)", r"I\(2 \* age\) adds nothing to age"),
        ("age + scale(age)", r"scale\(age\) adds nothing to age"),
        ("poly(bmi, 3) + bmi", r"bmi adds nothing to poly\(bmi, 3\)\[1\]"),
        ("bs(bmi, df=5, include_intercept=True)", "adds nothing to the intercept, bs"),
        ("one + age", "one has no columns, because one level is declared"),
        ("I(age > 200) + age", r"I\(age > 200\) is always 0|adds nothing"),
        ("(1 + age + I(age - 1) | site)", "in the effects of site"),
    ],
)
def test_columns_that_add_nothing_are_announced(right, words):
    with pytest.warns(DesignWarning, match=words):
        design(right).announce()


def test_all_levels_beside_cutpoints_are_announced():
    schema = Schema.from_declaration(
        {"grade": ["low", "mid", "high"], "ward": ["a", "b"], "age": (0, 120)}
    )
    with pytest.warns(DesignWarning, match="add nothing to the cutpoints"):
        columns_of_formula(parse("grade ~ 0 + ward"), get("cumulative"), schema, {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in ("ward + age", "0 + age"):
            columns_of_formula(parse(f"grade ~ {right}"), get("cumulative"), schema, {})


def test_others_are_not_announced():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for right in AS_PATSY[:26]:
            design(re.sub(r", (lower|upper)_bound=\d+", "", right)).announce()


def test_a_row_is_encoded_by_itself():
    """Rows of a table and each row alone give the same bits: nothing of another row is
    looked at.
    """
    frame = made(40)
    found = design(
        "ward * poly(age, 3) + bs(bmi, df=5) + log(income) + scale(age):sex + C(year) + smoker + "
        "(1 + age | site)"
    )
    together = found.encode(found.values(frame))
    for row in range(0, 40, 7):
        alone = found.encode(found.values(frame.iloc[[row]]))
        for name, array in alone.items():
            np.testing.assert_array_equal(array[0], together[name][row])


@pytest.mark.parametrize(
    ("column", "value"),
    [("age", "secret"), ("ward", "secret"), ("smoker", 7), ("site", None), ("age", np.nan)],
)
def test_errors_quote_no_cell(column, value):
    frame = made(5)
    frame[column] = frame[column].astype(object)
    frame.loc[2, column] = value
    found = design("age + ward + smoker + (1 | site)")
    with pytest.raises(ArgumentError, match=f"^{column}=") as caught:
        found.values(frame)
    assert "secret" not in str(caught.value)
    assert "7" not in str(caught.value)
