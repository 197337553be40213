"""A CSV file of which nothing is declared, from the upload to the result."""

import functools
import html
import re

import numpy as np
import pandas as pd
import pytest
from ipywidgets.widgets.widget import _instances

import workbench as wb
from tests import fakes
from tests.widget_tree import seen_by_a_user, settled
from workbench.ledger.ledger import Ledger
from workbench.widgets import Sweep, Workbench
from workbench.widgets.workbench.data_panel import FILE, VARIABLE

pytestmark = pytest.mark.usefixtures("made_up_steps")
PATIENCE = 300
settle = functools.partial(settled, patience=PATIENCE)
RARE = "zebrafish"  # a ward of two records
LARGEST = 98765.4321  # of the stays, one record's
SIZE = 4000


def clinic(size=SIZE):
    random = np.random.default_rng(0)
    age, stay = random.integers(18, 90, size), random.gamma(2.0, 3.0, size)
    stay[7] = LARGEST
    ward = random.choice(["north", "south"], size).astype(object)  # longer words fit
    ward[:2] = RARE
    ill = np.where(random.random(size) < 1 / (1 + np.exp(-0.06 * (age - 50))), "yes", "no")
    table = {"patient_id": np.arange(size), "age": age, "stay": stay, "ward": ward, "ill": ill}
    return pd.DataFrame(table)


@pytest.fixture(scope="module")
def content():
    made = clinic().to_csv(index=False)
    assert made.count(RARE) == 2
    return made.encode()


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.fixture
def screen(book):
    made = seen_by_a_user(Workbench(ledger=book, iterations=200, epsilon=2.0))
    yield made
    made.close()
    assert made.wait(PATIENCE)


def drop(screen, content, name="clinic.csv"):
    """Do what a browser does when a file is chosen."""
    screen.data.named.value = FILE
    entry = {"name": name, "type": "text/csv", "size": len(content), "last_modified": 0}
    screen.data.upload.set_state({"value": [{**entry, "content": memoryview(content)}]})
    return screen.data._editor


def predict(screen, target):
    """Answer the first question, and have the rest learned."""
    screen.data._editor._pickers["target"].value = target
    settle(screen)
    screen.data._editor.learn.click()
    return settle(screen)


def state():
    """The state of all widgets, sent to the browser or not, but for the random names of widgets,
    which can have any digits.
    """
    widgets = list(_instances.values())
    states = html.unescape("".join(repr(widget.get_state()) for widget in widgets))
    return re.sub("[0-9a-f]{32}", "", states)


def said(editor):
    return html.unescape(editor._learned.value)


@pytest.mark.whole_fit
def test_a_csv_is_fitted_with_nothing_declared(screen, content, book, tmp_path, monkeypatch):
    editor = drop(screen, content)
    predict(screen, "ill")
    assert screen.problems() == {}
    assert screen.model.options() == {
        "formula": "ill ~ age + stay + ward",
        "family": "bernoulli",
    }
    price = screen._ready.prepared.plan.settings.look
    assert "Learned in the fit, inside its guarantee: age, stay, ward." in said(editor)
    assert f"takes {round(100 * price)} % of the privacy budget" in said(editor)
    before = state()
    assert RARE not in before
    assert "98765" not in before
    assert not screen.run.evaluate_private.visible
    assert book.spends() == []
    screen.fit()
    assert screen.wait(PATIENCE)
    settle(screen)
    result = screen.result
    assert (result.status, result.release_label) == ("done", "covered")
    assert (result.guarantee.epsilon, result.guarantee.look_noise > 0) == (2.0, True)
    assert result.data["schema"]["ward"]["categories"] == ["north", "south"]
    assert result.coefficients()["mean"]["age"] == pytest.approx(0.06, abs=0.04)
    assert [spend.guarantee.epsilon for spend in book.spends()] == [2.0]
    assert screen.results == [result]
    assert "(other): levels of too few records to show." in screen.outcome.learnt.value
    after = state()
    assert RARE not in after
    assert "98765" not in after
    assert "only the type is declared" in result.data["declarations"][-1]
    (tmp_path / "clinic.csv").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    names = {"wb": wb}
    with fakes.installed():
        exec(screen.settings().as_code(), names)
    again = names["result"]
    assert again.data["name"] == result.data["name"] == "clinic"
    assert again.guarantee.look_noise == result.guarantee.look_noise
    assert len({spend.dataset for spend in book.spends()}) == 1
    assert len(book.spends()) == 2


def test_a_formula_that_was_offered_follows_columns_files_and_targets(screen, content):
    editor = drop(screen, content)
    predict(screen, "ill")

    def formula():
        return screen.model.options()["formula"], screen.problems()

    assert formula() == ("ill ~ age + stay + ward", {})
    editor._rows["ward"]._role.value = "leave out"
    assert formula() == ("ill ~ age + stay", {})
    other = pd.DataFrame({"dose": [1.0, 2.0, 3.0], "cured": ["yes", "no", "yes"]})
    drop(screen, other.to_csv(index=False).encode(), "other.csv")
    screen.data._editor._pickers["target"].value = "cured"
    assert formula() == ("cured ~ dose", {})
    assert screen.data._editor.learn.layout.display == "none"
    screen.model.fields["formula"].value = "cured ~ 1"  # somebody's own stays
    screen.data._editor._rows["dose"]._role.value = "leave out"
    assert formula()[0] == "cured ~ 1"


def test_the_code_declares_what_was_typed_and_types_for_the_rest(screen, content):
    editor = drop(screen, content)
    predict(screen, "ill")
    row = {part.description: part for part in editor.row("age").children[0].children[1].children}
    row["lowest"].value, row["highest"].value = "0", "120"
    editor.unit.value = "patient"
    settle(screen)
    assert "inside its guarantee: stay, ward." in said(editor)
    assert screen.settings().as_code().splitlines() == [
        "# save the uploaded file as 'clinic.csv' where this code runs",
        "schema = {'age': (0, 120), 'stay': float, 'ward': str, 'ill': str}",
        "data = wb.data.read_table('clinic.csv', schema)",
        "result = wb.fit('ill ~ age + stay + ward', data, schema=schema, family='bernoulli', "
        f"epsilon=2, iterations=200, ledger={screen._book!r}, table=wb.Table(missing='drop', "
        "unit='patient', name='clinic'))",
    ]
    assert screen._ready.prepared.data.unit == "patient"


def test_a_model_of_the_gallery_needs_declarations_and_says_so(screen, content):
    editor = drop(screen, content)
    editor._pickers["target"].value = "ill"
    settle(screen)
    assert set(screen.problems()) == {
        "schema['age']",
        "schema['stay']",
        "schema['ward']",
        "positive",
    }
    assert "lowest and highest of age, stay; all values of ward" in editor._needed.value
    assert editor.learn.layout.display is None
    screen.fit()
    assert screen.result is None
    predict(screen, "ill")
    assert screen.problems() == {}
    screen.model.model.value = "gmm"
    assert "schema['age']" in settle(screen).problems()


def test_a_column_of_persons_makes_them_the_unit(screen, book):
    frame = clinic(2000)
    frame["patient_id"] = frame.index // 2
    editor = drop(screen, frame.to_csv(index=False).encode())
    editor.row("patient_id").children[0].children[0].value = "person id"
    (most,) = editor.row("patient_id").children[0].children[1].children
    most.value = "2"
    predict(screen, "ill")
    assert screen.problems() == {}
    assert "schema, unit_id='patient_id')" in screen.settings().as_code()
    prepared = screen._ready.prepared
    assert prepared.data.units.max_rows == 2
    assert prepared.data.num_train == 1000


@pytest.mark.parametrize("target", ["ward", "stay"])
def test_a_target_of_other_values_is_refused_without_showing_one(screen, content, target):
    editor = drop(screen, content)
    predict(screen, target)
    screen.model.fields["family"].value = "bernoulli"
    settle(screen)
    assert "must contain 0 and 1" in html.unescape(editor.row(target).children[1].value)
    assert RARE not in state()
    assert screen.result is None


def test_text_among_numbers_is_refused_without_showing_it(screen):
    frame = clinic().astype({"stay": object})
    frame.loc[3000, "stay"] = RARE  # beyond the rows that show the types
    editor = drop(screen, frame.to_csv(index=False).encode())
    predict(screen, "ill")
    assert "not a number" in html.unescape(editor.row("stay").children[1].value)
    assert RARE not in state()


def test_noise_that_would_hide_the_columns_is_told_before_a_fit(screen, book):
    drop(screen, clinic(60).to_csv(index=False).encode())
    predict(screen, "ill")
    assert "too small" in html.unescape(screen.privacy.epsilon.error)
    assert book.spends() == []


def test_a_table_of_the_notebook_is_fitted_as_it_is(screen, monkeypatch):
    frame = clinic()
    monkeypatch.setattr(screen.data, "_namespace", lambda: {"frame": frame})
    screen.data.named.value = VARIABLE
    screen.data.refresh()
    predict(screen, "ill")
    code = screen.settings().as_code()
    assert "data = " not in code
    assert "wb.fit('ill ~ age + stay + ward', frame, schema=schema" in code
    assert screen.problems() == {}


def test_sweeps_need_declarations(content):
    sweep = Sweep()
    try:
        editor = drop(sweep, content)
        editor._pickers["target"].value = "ill"
        assert "schema['age']" in sweep.problems()
        assert editor.learn.layout.display == "none"
    finally:
        sweep.close()
