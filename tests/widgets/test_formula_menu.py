"""A regression from a formula on the screen."""

import functools
import html

import pytest

from tests.widget_tree import seen_by_a_user, settled
from workbench import ArgumentError
from workbench.widgets import Sweep, Workbench
from workbench.widgets.workbench import formula_menu

pytestmark = pytest.mark.usefixtures("made_up_steps")
PATIENCE = 180
settle = functools.partial(settled, patience=PATIENCE)


@pytest.fixture
def screen(private_data):
    made = seen_by_a_user(Workbench(model="logistic", data=private_data, iterations=20))
    yield made
    made.close()
    assert made.wait(PATIENCE)


def write(screen, formula, family="bernoulli"):
    screen.model.model.value = "formula"
    screen.model.fields["formula"].value = formula
    screen.model.fields["family"].value = family
    return settle(screen)


def test_the_entry_asks_for_a_formula_and_opens_the_form(screen):
    screen.model.model.value = "formula"
    settle(screen)
    assert screen.tabs.open == "Model"
    assert "write one, such as y ~ a + b" in screen.problems()["formula"]
    assert list(screen.model.fields)[:3] == ["formula", "family", "link"]
    formula = screen.model.fields["formula"]
    assert formula.control.placeholder.startswith("Such as readmitted ~ age")
    assert "formula: write one, such as y ~ a + b" in formula.error
    assert "⚠" not in formula.error
    formula.value = "y"
    formula.value = ""
    assert "⚠ formula: write one" in formula.error


@pytest.mark.parametrize(
    ("formula", "family", "field", "reason"),
    [
        ("ill ~ nowhere", "bernoulli", "formula", "nowhere"),
        ("ill ~ dose", "beta_binomial", "trials", "trials"),
    ],
)
def test_an_error_stands_beside_its_field(screen, formula, family, field, reason):
    write(screen, formula, family)
    assert reason in html.unescape(screen.model.fields[field].error)


@pytest.mark.thorough
def test_a_screen_may_begin_with_one(private_data):
    made = Workbench(
        model="formula",
        data=private_data,
        options={"formula": "ill ~ age", "family": "bernoulli"},
        iterations=20,
    )
    try:
        assert settle(made).model.fields["formula"].value == "ill ~ age"
        assert not made.problems()
    finally:
        made.close()
        assert made.wait(PATIENCE)
    with pytest.raises(ArgumentError, match="formula"):
        Workbench(model="formula", data=private_data, options={"formula": "no formula"})


def test_the_family_on_screen_is_the_one_that_is_fitted(screen):
    """By default it follows from the response's type, and nothing else is shown."""
    write(screen, "ill ~ dose", None)
    assert screen.model.fields["family"].value is None
    assert "family" not in screen.model.options()
    write(screen, "ill ~ dose", "gaussian")
    assert screen.model.options()["family"] == "gaussian"
    formula_menu.check({"formula": "ill ~ dose", "link": "probit"})


def test_sweeps_offer_no_formula(private_data):
    sweep = Sweep(data=private_data)
    try:
        assert "logistic" in dict(sweep.model.model.control.options)
        assert "formula" not in dict(sweep.model.model.control.options)
    finally:
        sweep.close()


def test_a_link_that_the_family_does_not_have_is_refused_early():
    with pytest.raises(ArgumentError, match=r"link='log': must be one of logit, probit, cloglog"):
        formula_menu.check({"formula": "y ~ x", "family": "bernoulli", "link": "log"})
