"""The ledger screen through its traits, without a browser."""

import base64
import html
import json
import re
import sqlite3
import threading
import time

import ipywidgets
import pytest

import workbench as wb
from tests.widget_tree import inside
from workbench import ArgumentError
from workbench.fitting import fits
from workbench.ledger import ledger as books
from workbench.ledger.reservation import id_of
from workbench.widgets import Ledger
from workbench.widgets.kit import base, notebook
from workbench.widgets.ledger import words

PATIENCE = 60


@pytest.mark.parametrize("make", [Ledger, wb.teaching.composition])
def test_a_screen_of_any_kind_is_closed_when_its_cell_runs_again(make, book, monkeypatch):
    monkeypatch.setattr(base, "display", lambda _: None)
    before = set(ipywidgets.widgets.widget._instances)
    screens = []
    for execution in (1, 2, 3):
        monkeypatch.setattr(
            notebook, "running_cell", lambda now=execution: notebook.Cell("cell", True, now)
        )
        screens.append(make())
        screens[-1]._ipython_display_()
    assert [screen._closed for screen in screens] == [True, True, False]
    made = set(ipywidgets.widgets.widget._instances) - before
    assert {part.model_id for part in inside(screens[-1].view)} <= made
    screens[-1].close()
    assert set(ipywidgets.widgets.widget._instances) - before == set()


@pytest.fixture(scope="module")
def promise(private_data):
    return fits.prepare("logistic", private_data, epsilon=1.0, iterations=40).guarantee(40)


@pytest.fixture
def book(tmp_path, monkeypatch):
    """This test's own ledger instead of the user's."""
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path))
    return books.Ledger()


@pytest.fixture
def spent(book, private_data, promise):
    """The ledger with one ended fit, and the data set's records."""
    records = id_of(private_data)
    (key,) = book.reserve(records, [promise], model="logistic")
    book.settle(key, 40)
    return book


@pytest.fixture
def screens():
    """Makes screens that are closed when the test ends."""
    made = []

    def make(*arguments, **options):
        made.append(Ledger(*arguments, **options))
        return settled(made[-1])

    yield make
    for screen in made:
        screen.close()


def settled(screen):
    for _ in range(2):  # what is written has the ledger read again
        assert screen.wait(PATIENCE)
    return screen


def press(screen, name):
    getattr(screen, name).click()
    return settled(screen)


def text(screen):
    """The visible HTML as text."""
    parts = [
        part
        for part in inside(screen.view)
        if isinstance(part, ipywidgets.HTML) and part.layout.display != "none"
    ]
    return html.unescape(re.sub("<[^>]*>", " ", "".join(part.value for part in parts)))


def leave_interrupted(book, data, promise):
    """Leave what a killed process leaves."""
    (key,) = book.reserve(id_of(data), [promise], model="logistic")
    book.mark([key], 10)
    with sqlite3.connect(book.path) as database:
        database.execute("UPDATE spends SET owner = 'gone' WHERE key = ?", (key,))


def test_an_empty_ledger_says_so_and_is_not_made(book, screens):
    screen = screens()
    assert "Nothing has been recorded" in text(screen)
    assert screen.set_cap.disabled
    assert screen.remove_cap.disabled
    assert screen.recover.disabled
    assert not book.path.exists()


def test_data_sets_are_listed_with_what_is_spent_on_them(spent, screens):
    screen = screens()
    row = re.findall(r"<td[^>]*>([^<]*)</td>", screen.table.value)
    # nothing is reserved, and there is no cap and no relative
    assert row == ["1", "clinic", "1", "1", "0.001"]
    assert "Spent on clinic: epsilon 1 at delta 0.001" in text(screen)
    assert "The one fit satisfies (epsilon = 1, delta = 0.001)-differential privacy" in text(screen)
    assert "There is no cap" in screen.spent.value
    assert "40 of 40" in screen.fits.value
    screen.tabs.open = "Export"
    assert str(spent.path) in text(screen)


def test_a_cap_is_set_and_its_use_drawn_with_numbers(spent, screens, promise, private_data):
    screen = screens(spent.path)
    screen.epsilon.value, screen.delta.value, screen.why.value = "2", "1e-3", "agreed"
    press(screen, "set_cap")
    entry = spent.entry("clinic")
    assert (entry.cap.epsilon, entry.cap.delta, entry.why) == (2.0, 0.001, "agreed")
    assert "The cap of clinic is epsilon 2 at delta 0.001" in text(screen)
    row = re.findall(r"<td[^>]*>([^<]*)</td>", screen.table.value)
    assert row == [
        "1",
        "clinic",
        "1",
        "1",
        "0.001",
        "2",
        words.percent(spent.budget_status(1).used()),
    ]
    assert "set or changed after fits had begun" in text(screen)
    used = round(100 * spent.budget_status(1).used())
    assert f"spent {used} %" in text(screen)
    assert f"left under the cap {100 - used} %" in text(screen)
    assert screen.why.value == ""
    spent.reserve(id_of(private_data), [promise], model="logistic")
    press(screen, "refresh")
    assert f"spent {used} %" in text(screen)
    assert f"reserved {used} %" in text(screen)
    assert "1 running" in screen.table.value


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("epsilon", "", "epsilon: must be"),
        ("delta", "x", "delta = x: must be"),
        ("why", "yes", "must say why"),
    ],
)
def test_a_cap_that_cannot_be_is_explained_beside_its_field(spent, screens, field, value, told):
    screen = screens()
    screen.epsilon.value, screen.delta.value, screen.why.value = "2", "1e-3", "agreed"
    getattr(screen, field).value = value
    press(screen, "set_cap")
    assert told in html.unescape(getattr(screen, field).error)
    assert spent.entry("clinic").cap is None
    assert "Traceback" not in text(screen)
    assert not screen.set_cap.disabled


def test_a_cap_is_taken_away_for_a_reason_only(spent, screens):
    spent.set_cap("clinic", 2.0, 1e-3, why="a test")
    screen = screens()
    assert screen.epsilon.value == "2"
    press(screen, "remove_cap")
    assert "must say why" in screen.why.error
    assert spent.entry("clinic").cap is not None
    screen.why.value = "the study was approved anew"
    press(screen, "remove_cap")
    assert spent.entry("clinic").cap is None
    assert screen.why.error == ""
    assert "The cap of clinic is removed" in text(screen)
    assert screen.remove_cap.disabled


@pytest.mark.thorough
def test_interrupted_fits_are_recovered(spent, screens, private_data, promise):
    screen = screens()
    assert screen.recover.disabled
    leave_interrupted(spent, private_data, promise)
    press(screen, "refresh")
    assert "1 fit was interrupted" in text(screen)
    assert "at most 10 of 40" in screen.fits.value
    assert [word in screen.fits.value for word in ("settled", "interrupted", "recovered")] == [
        True,
        True,
        False,
    ]
    press(screen, "recover")
    assert [word in screen.fits.value for word in ("settled", "interrupted", "recovered")] == [
        True,
        False,
        True,
    ]
    assert "1 fit recovered" in text(screen)
    assert [spend.status for spend in spent.spends()] == ["settled", "recovered"]
    assert screen.recover.disabled


def test_everything_can_be_taken_away_as_a_file(spent, screens):
    screen = press(screens(), "export")
    content = re.search(r'base64,([^"]*)"', screen.link.value).group(1)
    assert json.loads(base64.b64decode(content)) == spent.export()
    assert "Download ledger.html" in screen.link.value


def test_relatives_are_named_and_their_fits_shown(spent, screens, private_frame, promise):
    part = wb.data.from_frame(
        private_frame[:200],
        target="ill",
        bounds={"dose": (0, 200), "age": (0, 100)},
        unit="patient",
        name="part",
    )
    spent.reserve(id_of(part), [promise], model="gmm")
    spent.relate("clinic", "part", "200 of them")
    screen = screens()
    assert "2 (part)" in screen.table.value
    screen.dataset.value = 2
    assert "Spent on part" in screen.spent.value
    assert "1: clinic" in screen.fits.value


def test_a_data_set_can_be_entered_before_its_first_fit(book, screens, private_data):
    screen = screens(data=private_data)
    assert screen.dataset.value == 1
    assert "clinic is data set 1 of the ledger" in text(screen)
    assert "Spent on clinic: nothing" in text(screen)
    screen.epsilon.value, screen.delta.value, screen.why.value = "1", "1e-3", "agreed"
    press(screen, "set_cap")
    assert book.budget_status(1).cautions() == ()
    assert "spent 0 %" in text(screen)


def test_a_damaged_ledger_is_told_in_a_line(book, screens, private_data):
    book.path.write_bytes(b"no ledger " * 1000)
    screen = screens()
    assert "damaged or not a ledger" in text(screen)
    press(screen, "export")
    assert "damaged or not a ledger" in text(screen)
    assert screen.link.value == ""
    assert "Traceback" not in text(screen)


@pytest.mark.parametrize(("argument", "value"), [("path", 3), ("data", "clinic")])
def test_what_is_no_ledger_and_no_data_set_is_refused(argument, value):
    with pytest.raises(ArgumentError) as caught:
        Ledger(**{argument: value})
    assert caught.value.argument == argument


def test_public_records_have_no_entry():
    with pytest.raises(ArgumentError, match="private records"):
        Ledger(data=wb.data.load("breast_cancer"))


def test_no_private_value_is_on_the_screen(spent, screens, planted):
    screen = press(screens(), "export")
    states = repr([part.get_state() for part in inside(screen.view)])
    assert all(str(value) not in states for value in planted)


def test_every_control_is_described(spent, screens):
    screen = screens()
    screen.tabs.open = "Cap"
    screen.tabs.open = "Export"
    controls = [
        part
        for part in inside(screen.view)
        if hasattr(part, "description") and not isinstance(part, ipywidgets.HTML)
    ]
    assert len(controls) == 13
    assert all(control.description for control in controls)
    assert all(part.tooltip for part in controls if isinstance(part, ipywidgets.Button))


def test_closing_leaves_no_widget_and_no_thread(spent):
    widgets, threads = set(ipywidgets.widgets.widget._instances), set(threading.enumerate())
    screen = settled(Ledger())
    screen.close()
    assert set(ipywidgets.widgets.widget._instances) - widgets == set()
    deadline = time.monotonic() + PATIENCE
    while left := [
        thread.name
        for thread in set(threading.enumerate()) - threads
        if thread.name.startswith("dpvi-")
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    screen.look()
