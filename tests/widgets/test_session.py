"""One fit in the background, seen from other threads."""

import threading
import time
import warnings

import pytest

from workbench import ArgumentError, fitting
from workbench.inference.training import Snapshot
from workbench.widgets.session import Session, clock
from workbench.widgets.settings import Settings

PATIENCE = 120


class FakeFit:
    """Yields prepared snapshots, the next one whenever ``step`` is set."""

    def __init__(self, snapshots, error=None):
        self.snapshots, self.error, self.cautions = snapshots, error, ("take care",)
        self.go = threading.Semaphore(0)

    def run(self, stop):
        self.stop = stop
        for snapshot in self.snapshots:
            assert self.go.acquire(timeout=PATIENCE)
            yield snapshot
        if self.error is not None:
            raise self.error

    def result(self):
        return "the result"


def snapshot(step, seconds, **metrics):
    return Snapshot(status="running", step=step, params={}, metrics=metrics, metrics_step=step, seconds=seconds)


def until(session, condition):
    """Wait until ``condition`` holds for the session's progress."""
    deadline = time.monotonic() + PATIENCE
    while not condition(session.progress()):
        assert not session.ended, session.details
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def faked(monkeypatch, private_data):
    def start(fit):
        monkeypatch.setattr(fitting, "prepare", lambda *_, **__: fit)
        session = Session(Settings(iterations=100), private_data)
        session.start()
        return session

    return start


def test_a_new_session_is_preparing(private_data):
    progress = Session(Settings(), private_data).progress()
    assert (progress.stage, progress.snapshot, progress.history, progress.seconds_left) == ("preparing", None, (), None)


def test_stages_speed_and_time_left(faked):
    fit = FakeFit([snapshot(0, 0.0), snapshot(10, 3.0), snapshot(30, 4.0), snapshot(100, 7.5)])
    session = faked(fit)
    assert session.progress().stage == "preparing"
    fit.go.release()
    until(session, lambda progress: progress.stage == "compiling")
    assert session.progress().seconds_left is None
    fit.go.release()
    until(session, lambda progress: progress.stage == "fitting")
    # the chunk that was compiled says nothing about speed
    assert session.progress().steps_per_second is None
    fit.go.release()
    until(session, lambda progress: progress.snapshot.step == 30)
    assert session.progress().steps_per_second == 20
    assert session.progress().seconds_left == 3.5
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.progress().stage == "ended"
    assert session.result == "the result"


def test_each_evaluation_enters_the_history_once(faked):
    again = Snapshot(status="running", step=5, params={}, metrics={"auc": 0.5}, metrics_step=0)
    fit = FakeFit([snapshot(0, 0.0, auc=0.5), again, snapshot(10, 1.0, auc=0.7)])
    session = faked(fit)
    fit.go.release(3)
    assert session.wait(PATIENCE)
    assert [(point.step, point.metrics) for point in session.progress().history] == [(0, {"auc": 0.5}), (10, {"auc": 0.7})]


def test_cautions_are_those_of_the_prepared_fit(faked):
    session = faked(FakeFit([]))
    assert session.wait(PATIENCE)
    assert session.cautions == ("take care",)


def test_an_argument_error_is_the_problem_without_a_traceback(monkeypatch, private_data):
    def refuse(*_, **__):
        raise ArgumentError("delta", 2, "is no delta.")

    monkeypatch.setattr(fitting, "prepare", refuse)
    session = Session(Settings(), private_data)
    session.start()
    assert session.wait(PATIENCE)
    assert session.problem == "delta=2: is no delta."
    assert session.details == ""
    assert session.result is None


def test_any_other_error_is_told_with_its_traceback_apart(faked):
    session = faked(FakeFit([], RuntimeError("boom")))
    assert session.wait(PATIENCE)
    assert session.problem == "The fit ended with an error (RuntimeError: boom)."
    assert "Traceback" in session.details
    assert "\n" not in session.problem


def test_an_error_after_the_first_steps_says_that_epsilon_is_spent(faked):
    fit = FakeFit([snapshot(10, 1.0)], RuntimeError("boom"))
    session = faked(fit)
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.problem.endswith("Count epsilon = 1 as spent.")


def test_waiting_gives_up_after_its_time(faked):
    fit = FakeFit([snapshot(0, 0.0)])
    session = faked(fit)
    assert not session.wait(0.05)
    assert not session.ended
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.ended


def test_a_stop_reaches_the_fit(faked):
    fit = FakeFit([snapshot(0, 0.0), snapshot(10, 1.0)])
    session = faked(fit)
    fit.go.release()
    until(session, lambda progress: progress.snapshot is not None)
    assert (session.stopping, fit.stop()) == (False, False)
    session.stop()
    assert (session.stopping, fit.stop()) == (True, True)
    fit.go.release()
    assert session.wait(PATIENCE)


def test_two_preparations_at_once_leave_the_warnings_machinery_alone(monkeypatch, private_data):
    first_inside, second_inside = threading.Event(), threading.Event()
    sessions = []

    def prepare(*_, epsilon, **__):
        if epsilon == 1.0:
            first_inside.set()
            assert second_inside.wait(PATIENCE)
        else:
            second_inside.set()
            assert sessions[0].wait(PATIENCE)
        return FakeFit([])

    monkeypatch.setattr(fitting, "prepare", prepare)
    filters, show = list(warnings.filters), warnings.showwarning
    sessions += [Session(Settings(epsilon=epsilon), private_data) for epsilon in (1.0, 2.0)]
    sessions[0].start()
    assert first_inside.wait(PATIENCE)
    sessions[1].start()
    assert all(session.wait(PATIENCE) for session in sessions)
    assert [session.problem for session in sessions] == ["", ""]
    assert warnings.filters == filters
    assert warnings.showwarning is show


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (8.4, "8 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (3599.7, "1 h 00 min"), (3780, "1 h 03 min")],
)
def test_times_are_written_as_on_a_clock(seconds, text):
    assert clock(seconds) == text
