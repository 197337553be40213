"""The ledger below the Fit button, and fits that are resumed after their process has ended."""

import dataclasses
import html
import os
import re
import time
import warnings

import ipywidgets
import numpy as np
import pytest

import workbench as wb
from tests.conftest import rewrite
from tests.widget_tree import inside
from workbench import ArgumentError
from workbench._numbers import count
from workbench.fitting import fits, resuming
from workbench.fitting.groups import grouped
from workbench.ledger import ledger as books
from workbench.ledger.reservation import id_of
from workbench.widgets import Workbench
from workbench.widgets.ledger import panel as ledger_panel
from workbench.widgets.ledger.panel import LedgerPanel, prepare_saved
from workbench.widgets.ledger.words import number, percent, result_words

pytestmark = pytest.mark.usefixtures("made_up_steps")

PATIENCE = 180


@pytest.fixture
def book(tmp_path, monkeypatch):
    """This test's own ledger instead of the user's."""
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path))
    return books.Ledger()


@pytest.fixture
def screens():
    made = []

    def make(**options):
        made.append(Workbench(**options))
        return settled(made[-1])

    yield make
    for screen in made:
        screen.close()
        assert screen.wait(PATIENCE)


def prepared(data, epsilon=1.0, **options):
    return fits.prepare("logistic", data, epsilon=epsilon, iterations=40, **grouped(options))


def looked(fit, *arguments, **options):
    """What a panel finds, and the panel."""
    panel = LedgerPanel(lambda: None, lambda run: None, lambda: None)
    seen = panel.look(fit, *arguments, **options)
    panel.show(seen)
    return seen, panel


def text(widget):
    parts = [
        part
        for part in inside(widget)
        if isinstance(part, ipywidgets.HTML) and part.layout.display != "none"
    ]
    return html.unescape(re.sub("<[^>]*>", " ", "".join(part.value for part in parts)))


def settled(screen):
    """Wait until the consequences of a change are shown."""
    assert screen.wait(PATIENCE)
    for worker in (screen._outlooks, screen._compilations):
        assert worker.wait(PATIENCE)
    return screen


def fitted(screen):
    screen.fit()
    return settled(screen)


def spend(book, data, *epsilons):
    """Enter fits that have ended."""
    for epsilon in epsilons:
        (key,) = book.reserve(
            id_of(data), [prepared(data, epsilon).guarantee(40)], model="logistic"
        )
        book.settle(key, 40)


def stopped(data, iterations=4000, **options):
    """A fit that an earlier process stopped after some steps."""
    fit = fits.prepare("logistic", data, epsilon=1.0, iterations=iterations, **grouped(options))
    steps = []
    for snapshot in fit.run(lambda: len(steps) > 1):
        steps.append(snapshot.step)
    assert 0 < steps[-1] < iterations
    return fit


# ---- what is said --------------------------------------------------------------------------------


def test_of_records_never_seen_nothing_is_spent(book, private_data):
    seen, panel = looked(prepared(private_data))
    assert "Spent on these records: nothing." in seen.said
    assert "wb.widgets.Ledger(data=...) sets one before the first fit" in seen.said
    assert (seen.fits, seen.problems, seen.runs) == ("", {}, ())
    assert not panel.reason.visible
    assert not book.path.exists()


def test_of_public_records_it_is_said_that_nothing_is_spent(book):
    seen, panel = looked(fits.prepare("logistic", "breast_cancer", epsilon=1.0, iterations=40))
    assert "Public data spend nothing." in seen.said
    panel.outdated()  # a fit begins
    assert "Public data spend nothing." in text(panel.view)
    assert not book.path.exists()


def test_without_a_ledger_that_is_said(book, private_data):
    assert "not recorded in a ledger" in looked(prepared(private_data, ledger=False))[0].said


def test_what_is_spent_reserved_and_left_is_said(book, private_data):
    spend(book, private_data, 0.5, 0.5)
    fit = prepared(private_data, 0.5)
    assert "No cap is set" in looked(fit)[0].said
    book.set_cap(1, 3.0, 1e-3, why="a test")
    seen, _ = looked(fit)
    standing = book.budget_status(1)
    more = standing.how_many_more(fit.guarantee(40))
    assert more > 1
    assert (
        f"Spent on these records: epsilon {number(standing.total.epsilon)} at delta 0.001 in 2 fits"
        in seen.said
    )
    assert f"{percent(1 - standing.used())} of it is left, in what it counts" in seen.said
    assert f"(Rényi divergence, not epsilon): {more} more fits like this." in seen.said
    assert "set or changed after fits had begun" in seen.said
    book.reserve(id_of(private_data), [fit.guarantee(40)], model="logistic")
    assert "in 3 fits, if their plans were fixed beforehand; 1 fit running" in looked(fit)[0].said


def test_a_reason_that_is_not_needed_any_more_is_taken_away(book, private_data):
    changes = []
    panel = LedgerPanel(lambda: changes.append(1), lambda run: None, lambda: None)
    panel.reason.value = "the board says so"
    panel.show(panel.look(prepared(private_data)))
    assert panel.reason.value == ""
    assert len(changes) == 2


def test_a_fit_that_no_cap_can_count_is_told_beside_its_relation(book, private_data):
    spend(book, private_data, 0.5)
    book.set_cap(1, 2.0, 1e-3, why="a test")
    seen, _ = looked(prepared(private_data, sampler="without_replacement"))
    assert list(seen.problems) == ["relation"]


def test_data_sets_that_count_too_are_named_with_the_reason(book, private_data, private_frame):
    bounds = {"dose": (0, 200), "age": (0, 100)}
    for rows in (200, 150):
        part = wb.data.from_frame(
            private_frame[:rows], target="ill", bounds=bounds, unit="patient", name="clinic"
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            spend(book, part, 0.1)
    assert "count too" not in looked(prepared(private_data))[0].said
    book.set_cap(1, 3.0, 1e-3, why="a test")
    said = looked(prepared(private_data))[0].said
    assert (
        "Fits on 1 (clinic), 2 (clinic) count too: they have one name, and there is a cap." in said
    )
    book.relate(1, book.add(id_of(private_data)).number, "the same people")
    said = looked(prepared(private_data))[0].said
    assert "Fits on 1 (clinic) count too: they were related in the ledger." in said
    assert "Fits on 2 (clinic) count too: they have one name" in said


def test_a_ledger_that_cannot_be_read_is_told(book, private_data):
    book.path.write_bytes(b"no ledger " * 1000)
    seen, _ = looked(prepared(private_data))
    assert "cannot say what was spent" in seen.said
    assert "damaged or not a ledger" in seen.said


def test_the_table_of_fits_is_there_when_it_is_unfolded(book, private_data):
    spend(book, private_data, 1.0)
    _, panel = looked(prepared(private_data))
    assert "logistic" not in text(panel.fold.box)
    panel.fold.is_open = True
    assert "40 of 40" in text(panel.fold.box)


def test_shares_and_epsilons_are_not_rounded_to_what_they_are_not():
    assert [percent(share) for share in (0, 1e-18, 0.001, 0.614, 0.999, 1)] == [
        "0 %",
        "0 %",
        "less than 1 %",
        "61 %",
        "99 %",
        "100 %",
    ]
    assert [number(epsilon) for epsilon in (1.0, 5.1591, 0.0001)] == ["1", "5.1591", "0.0001"]


# ---- fits that go on -----------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_stopped_fit_of_the_same_records_is_offered_and_others_are_not(
    book, private_data, private_frame
):
    fit = stopped(private_data)
    list(fit.again().run())  # a finished one
    bounds = {"dose": (0, 200), "age": (0, 100)}
    split = wb.data.from_frame(
        private_frame, target="ill", bounds=bounds, unit="patient", name="clinic", split_seed=5
    )
    assert looked(prepared(split))[0].runs == ()
    seen, panel = looked(prepared(private_data))
    assert [run.path for run in seen.runs] == [fit.run_log.folder]
    assert f"stopped at step {count(seen.runs[0].step)} of 4\u202f000" in text(panel.runs)
    assert looked(prepared(private_data), resumable=fit.run_log.folder)[0].runs == ()


def test_a_fit_that_a_process_runs_is_not_offered_but_one_whose_process_is_gone(book, private_data):
    stopped(private_data)
    rewrite(book.path, status="reserved", taken=None, ended=None)
    assert looked(prepared(private_data))[0].runs == ()
    rewrite(book.path, owner="gone")
    (run,) = looked(prepared(private_data))[0].runs
    rewrite(book.path, owner=books.owners.own(book._file.owners))
    with pytest.raises(ArgumentError, match="is running") as caught:
        prepare_saved(run, private_data, None)
    assert caught.value.argument == "run"


@pytest.mark.thorough
def test_a_fit_in_no_ledger_is_offered_when_it_has_been_quiet(book):
    fit = stopped(wb.data.load("breast_cancer"))
    another = fits.prepare("logistic", "breast_cancer", epsilon=1.0, iterations=40)
    assert looked(another)[0].runs == ()
    before = time.time() - 1000
    os.utime(fit.run_log.folder, (before, before))
    assert [run.path for run in looked(another)[0].runs] == [fit.run_log.folder]


@pytest.mark.thorough
def test_the_rest_of_a_fit_that_would_go_over_the_cap_asks_for_a_reason(book, private_data):
    fit = stopped(private_data)
    spend(book, private_data, 1.0)
    book.set_cap(1, 1.5, 1e-3, why="a test")
    seen, panel = looked(prepared(private_data, 0.05))
    assert seen.problems == {}
    assert seen.refused == seen.runs != ()
    assert panel.reason.visible
    assert "remaining steps would now exceed the cap" in text(panel.runs)
    assert looked(prepared(private_data), resumable=fit.run_log.folder)[0].runs == seen.runs


def test_of_many_stopped_fits_the_newest_are_offered(book, private_data):
    seen, panel = looked(prepared(private_data))
    run = resuming.SavedRun(
        book.path, "logistic", "clinic", 1.0, 10, 40, "2026-01-01 10:00:00", "", None, False
    )
    panel.show(seen._replace(runs=tuple(dataclasses.replace(run, step=step) for step in range(5))))
    assert [len(row.children) for row in panel.runs.children[:3]] == [3, 3, 3]
    assert "And 2 older fits" in text(panel.runs)
    panel.enable(False)
    assert all(row.children[1].disabled for row in panel.runs.children[:3])


def test_a_stopped_fit_that_is_dismissed_is_offered_by_no_screen_again(
    book, private_data, monkeypatch
):
    monkeypatch.setattr(ledger_panel, "_DISMISSED", set())
    stopped(private_data)
    seen, panel = looked(prepared(private_data))
    panel.show(seen)
    (row,) = panel.runs.children
    row.children[2].click()
    assert panel.runs.children == ()
    assert looked(prepared(private_data))[0].runs == ()


@pytest.mark.thorough
@pytest.mark.whole_fit  # its end is compared with the real one
def test_the_button_goes_on_with_the_fit_to_the_end_it_would_have_come_to(
    book, screens, private_data
):
    left = stopped(private_data, evaluate_private=True)
    before = [point.step for point in left.result().history]
    screen = screens(data=private_data, iterations=40)
    row = screen.ledger.runs.children[0]
    steps = []
    screen.live.status.observe(lambda change: steps.append(change.new), names="value")
    row.children[1].click()
    settled(screen)
    result = screen.result
    assert (result.status, result.guarantee.steps_taken) == ("done", 4000)
    assert [point.step for point in result.history][: len(before)] == before
    assert [point.step for point in screen._session.progress().history][: len(before)] == before
    (entered,) = book.spends()
    assert (entered.status, entered.taken, entered.planned) == ("settled", 4000, 4000)
    assert "Spent on these records: epsilon 1 at delta 0.001 in 1 fit." in text(screen.ledger.view)
    assert screen.ledger.runs.children == ()
    list(left.run())
    for name, value in left.result().params.items():
        np.testing.assert_array_equal(value, result.params[name])


@pytest.mark.thorough
def test_a_fit_of_another_program_is_told_and_does_not_lock_the_screen(
    book, screens, private_data, monkeypatch
):
    stopped(private_data)
    screen = screens(data=private_data, iterations=40)
    for name in ("of_steps", "anywhere"):
        monkeypatch.setattr(f"workbench.fitting.digests.Digests.{name}", lambda *_: "another")
    screen.ledger.runs.children[0].children[1].click()
    settled(screen)
    assert "Refused." in screen.live.status.value
    assert "belongs to another plan" in text(screen.ledger.view)
    assert screen.result is None
    assert not screen.run.fit.disabled


# ---- in the Workbench ----------------------------------------------------------------------------


def test_a_fit_is_entered_and_the_guarantee_says_what_the_ledger_counts(
    book, screens, private_data
):
    screen = screens(data=private_data, iterations=40)
    assert "Spent on these records: nothing." in text(screen.ledger.view)
    screen.fit()
    # from now on it would be false
    assert "Spent on these records: nothing." not in text(screen.ledger.view)
    settled(screen)
    assert "Spent on these records: epsilon 1 at delta 0.001 in 1 fit." in text(screen.ledger.view)
    words = result_words(screen.result)
    assert (
        words
        == "According to the ledger, epsilon 1 at delta 0.001 was spent on these records in 1 fit."
    )
    assert words in html.unescape(screen.outcome.guarantee.value)


def test_a_cap_refuses_beforehand_and_a_reason_holds_for_one_fit(book, screens, private_data):
    spend(book, private_data, 1.0)
    book.set_cap(1, 2.0, 1e-3, why="a test")
    screen = screens(data=private_data, epsilon=5.0, iterations=40)
    told = html.unescape(screen.privacy.epsilon.error)
    assert "epsilon = 5: this fit would raise" in told
    assert re.search(r"The same with epsilon=[\d.]+ would fit", told)
    assert "write why in “reason to exceed the cap”" in told
    assert "is refused" in text(screen.ledger.view)
    assert screen.ledger.reason.visible
    fitted(screen)
    assert screen.result is None
    assert "The reason stands above." in screen.live.status.value
    assert "epsilon = 5: this fit would raise" in html.unescape(screen.privacy.epsilon.error)
    screen.ledger.reason.value = "the board says so"
    assert "over_cap='the board says so'" in html.unescape(screen.outcome.code.value)
    settled(screen)
    assert screen.privacy.epsilon.error == ""
    assert "keeps your reason" in text(screen.ledger.view)
    fitted(screen)
    assert screen.result.status == "done"
    assert [(each.rule, each.why) for each in book.spends()] == [
        ("no cap", ""),
        ("override", "the board says so"),
    ]
    assert screen.ledger.reason.value == ""
    assert "over_cap" not in screen.outcome.code.value
    assert "this fit would raise" in html.unescape(screen.privacy.epsilon.error)
    book.remove_cap(1, "the study has ended")
    screen.ledger.refresh.click()
    settled(screen)
    assert screen.privacy.epsilon.error == ""
    assert not screen.ledger.reason.visible


def test_reading_the_ledger_again_does_not_drop_the_plan_that_is_being_computed(
    book, screens, private_data
):
    screen = screens(data=private_data, epsilon=5.0, iterations=40)
    screen.privacy.epsilon.value = "2"
    screen.ledger.refresh.click()
    settled(screen)
    assert "epsilon 2" in screen.privacy._headline.value


@pytest.mark.thorough
def test_a_reason_for_one_data_set_does_not_hold_for_another(book, screens, private_data):
    spend(book, private_data, 1.0)
    book.set_cap(1, 1.0, 1e-3, why="a test")
    screen = screens(data=private_data, iterations=40)
    screen.ledger.reason.value = "the board says so"
    screen.data.named.value = "breast_cancer"
    assert screen.settings().over_cap is None
    settled(screen)
    assert "Public data spend nothing." in text(screen.ledger.view)
    assert not screen.ledger.reason.visible
    screen.data.named.value = private_data.name
    assert settled(screen).ledger.reason.value == ""


def test_what_is_no_ledger_is_refused(private_data):
    with pytest.raises(ArgumentError, match=r"^ledger=3: "):
        Workbench(data=private_data, ledger=3)


def test_a_ledger_that_cannot_be_written_stops_the_fit_and_is_told(book, screens, private_data):
    screen = screens(data=private_data, iterations=40)
    book.path.write_bytes(b"no ledger " * 1000)
    fitted(screen)
    assert screen.result is None
    assert "damaged or not a ledger" in screen.live.status.value
    assert "damaged or not a ledger" in text(screen.ledger.view)
    assert not screen.run.fit.disabled
