"""Regressions of bambi's gallery: without privacy they have the estimates of other programs."""

import pathlib

import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from tests.formula import examples_of_bambi
from tests.formula.examples_of_bambi import EXAMPLES, FURTHER, NEAR
from tests.formula.noiseless import without_privacy
from tests.formula.references import row_name
from workbench.fitting.groups import grouped

QUICK = [
    pytest.param(name, marks=() if each.quick else pytest.mark.thorough)
    for name, each in EXAMPLES.items()
]


def fitted(example, frame):
    options = {"family": example.family, "schema": example.schema, **example.options}
    return without_privacy(example.formula, frame, example.iterations, **options).coefficients()


def far(table, known):
    """Standard errors of the reference between its estimates and those of a table: (of
    coefficients, of further ones).
    """
    known = pd.DataFrame(known, index=["estimate", "error"]).T
    is_coefficient = table["share above 0"].notna()
    parts = [table["mean"][is_coefficient], table["mean"][~is_coefficient]]
    assert set(known.index) <= set(table.index)
    assert set(parts[0].index) <= set(known.index)
    return [((part - known["estimate"]).abs() / known["error"]).dropna() for part in parts]


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_estimates_without_privacy_are_those_of_another_program(name):
    example = EXAMPLES[name]
    frame = example.frame()
    coefficients, further = far(fitted(example, frame), example.reference(frame))
    assert coefficients.max() < NEAR, coefficients.to_string()
    assert (further < FURTHER).all(), further.to_string()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", some_of(list(EXAMPLES), len(EXAMPLES), first=list(EXAMPLES).index("roaches"))
)
@pytest.mark.usefixtures("made_up_steps")
def test_with_privacy_nothing_changes_but_bounds_and_epsilon(name):
    """The formula and the family as bambi has them, bounds and levels, and epsilon."""
    example = EXAMPLES[name]
    frame = example.frame()
    link = {each: value for each, value in example.options.items() if each == "link"}
    result = wb.fit(
        example.formula,
        frame,
        family=example.family,
        schema=example.schema,
        epsilon=1,
        **grouped(link),
    )
    assert result.guarantee.epsilon == 1
    assert example.formula in str(result.coefficients())


def test_estimates_that_are_off_would_be_seen():
    """The test above can fail: an offset that is forgotten is many standard errors."""
    example = EXAMPLES["roaches"]
    frame = example.frame()
    known, forgotten = example.reference(frame), example.reference(frame.assign(exposure2=1.0))
    assert abs(known["intercept"][0] - forgotten["intercept"][0]) > 20 * known["intercept"][1]


def test_the_page_of_the_documentation_has_these_examples():
    """It is what ``page`` says."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "examples_of_bambi.md"
    assert page.read_text(encoding="utf-8") == examples_of_bambi.page()
    assert len(EXAMPLES) >= 12
    assert len({each.family for each in EXAMPLES.values()}) == 12


def test_names_of_rows():
    names = [
        "Intercept",
        "C(ward)[T.b]",
        "ward[b]:age",
        "age:C(sex)[T.m]",
        "bs(year, knots=[3, 4])[0]",
    ]
    assert [row_name(name) for name in names] == [
        "intercept",
        "ward=b",
        "ward=b:age",
        "age:sex=m",
        "bs(year, knots=[3, 4])[0]",
    ]
