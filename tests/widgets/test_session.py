"""One fit in the background, seen from other threads."""

import dataclasses
import threading
import time
import types

import numpy as np
import pytest

from workbench import ArgumentError
from workbench._numbers import duration
from workbench.fitting import baseline
from workbench.inference.training import Snapshot
from workbench.widgets.workbench.session import Session

PATIENCE = 120


class FakeFit:
    """Yields prepared snapshots, the next one whenever ``step`` is set."""

    def __init__(self, snapshots, error=None):
        self.snapshots, self.error, self.cautions = snapshots, error, ("take care",)
        self.go = threading.Semaphore(0)
        self.privacy = types.SimpleNamespace(iterations=100, epsilon=1.0)
        self.can_resume = False
        self.outcome = types.SimpleNamespace(status="done")
        self.compiled = threading.Event()
        self.compiled.set()

    def compile(self):
        assert self.compiled.wait(PATIENCE)

    def run(self, stop):
        self.stop = stop
        for snapshot in self.snapshots:
            assert self.go.acquire(timeout=PATIENCE)
            yield snapshot
        if self.error is not None:
            raise self.error

    def result(self):
        return self.outcome


def snapshot(step, seconds, compiled=2.5, **metrics):
    return Snapshot(
        status="running",
        step=step,
        params={},
        metrics=metrics,
        metrics_step=step,
        seconds=seconds,
        compile_seconds=compiled,
    )


def until(session, condition):
    """Wait until ``condition`` holds for the session's progress."""
    deadline = time.monotonic() + PATIENCE
    while not condition(session.progress()):
        assert not session.ended, session.details
        assert time.monotonic() < deadline
        time.sleep(0.005)


def started(fit, **options):
    session = Session(lambda: fit, **options)
    session.start()
    return session


def test_a_new_session_is_preparing():
    progress = Session(lambda: None).progress()
    assert (progress.stage, progress.snapshot, progress.history, progress.seconds_left) == (
        "preparing",
        None,
        (),
        None,
    )


def test_stages_speed_and_time_left():
    fit = FakeFit(
        [snapshot(0, 0.0, None), snapshot(10, 0.5), snapshot(30, 1.5), snapshot(100, 5.0)]
    )
    compiling, compiled = threading.Event(), threading.Event()

    def compile():
        compiling.set()
        assert compiled.wait(PATIENCE)

    fit.compile = compile
    session = started(fit)
    assert compiling.wait(PATIENCE)
    assert session.progress().stage == "compiling"
    assert session.progress().stage_seconds > 0
    compiled.set()
    fit.go.release()
    until(session, lambda progress: progress.stage == "fitting")
    assert session.progress().seconds_left is None
    fit.go.release()
    until(session, lambda progress: progress.snapshot.step == 10)
    # speed is counted from the first chunk on
    assert session.progress().steps_per_second is None
    fit.go.release()
    until(session, lambda progress: progress.snapshot.step == 30)
    assert session.progress().steps_per_second == 20
    assert session.progress().seconds_left == 3.5
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.progress().stage == "ended"
    assert session.result is fit.outcome


def test_each_evaluation_enters_the_history_once():
    again = Snapshot(status="running", step=5, params={}, metrics={"auc": 0.5}, metrics_step=0)
    fit = FakeFit([snapshot(0, 0.0, auc=0.5), again, snapshot(10, 1.0, auc=0.7)])
    session = started(fit)
    fit.go.release(3)
    assert session.wait(PATIENCE)
    assert [(point.step, point.metrics) for point in session.progress().history] == [
        (0, {"auc": 0.5}),
        (10, {"auc": 0.7}),
    ]


def test_cautions_are_those_of_the_prepared_fit():
    session = started(FakeFit([]))
    assert session.wait(PATIENCE)
    assert session.cautions == ("take care",)


def test_an_argument_error_is_the_problem_without_a_traceback():
    def refuse():
        raise ArgumentError("delta", 2, "is no delta.")

    session = Session(refuse)
    session.start()
    assert session.wait(PATIENCE)
    assert (session.problem, session.argument) == ("delta=2: is no delta.", "delta")
    assert session.details == ""
    assert session.result is None


def test_any_other_error_is_told_with_its_traceback_apart():
    session = started(FakeFit([], RuntimeError("boom")))
    assert session.wait(PATIENCE)
    assert session.problem == "The fit ended with an error (RuntimeError: boom)."
    assert "Traceback" in session.details
    assert "\n" not in session.problem


def test_an_error_after_the_first_steps_says_that_epsilon_is_spent():
    fit = FakeFit([snapshot(10, 1.0)], RuntimeError("boom"))
    session = started(fit)
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.problem.endswith("Count epsilon = 1 as spent.")
    assert session.result is fit.outcome
    assert "Traceback" in session.details


def test_a_traceback_of_the_run_itself_is_kept():
    fit = FakeFit(
        [
            dataclasses.replace(
                snapshot(10, 1.0), status="failed", details="Traceback: out of memory"
            )
        ]
    )
    session = started(fit)
    fit.go.release()
    assert session.wait(PATIENCE)
    assert (session.details, session.problem) == ("Traceback: out of memory", "")


def test_a_stopped_fit_goes_on_in_the_same_session():
    fit = FakeFit([snapshot(10, 1.0, auc=0.5), snapshot(20, 1.0, auc=0.5)])
    session = started(fit)
    fit.go.release()
    until(session, lambda now: now.snapshot is not None)
    session.stop()
    fit.go.release()
    assert session.wait(PATIENCE)
    assert not session.can_resume
    fit.can_resume, fit.snapshots = True, [snapshot(10, 1.0, auc=0.5), snapshot(30, 2.0, auc=0.6)]
    assert session.can_resume
    session.start()
    assert (session.ended, session.stopping, session.result) == (False, False, None)
    fit.go.release(2)
    assert session.wait(PATIENCE)
    assert [point.step for point in session.progress().history] == [10, 30]
    assert session.prepared is fit


def test_a_stop_does_not_wait_for_the_compiler_and_leaves_no_result():
    fit = FakeFit([snapshot(10, 1.0, auc=0.5)])
    fit.compiled.clear()
    session = started(fit)
    until(session, lambda now: now.stage == "compiling")
    session.stop()
    assert session.wait(5)
    assert (session.was_too_early, session.result, session.problem) == (True, None, "")
    assert session.can_resume
    fit.compiled.set()
    fit.go.release()
    session.start()
    assert session.wait(PATIENCE)
    assert (session.was_too_early, session.result) == (False, fit.outcome)


def test_a_stop_after_the_look_and_before_the_steps_leaves_no_result():
    stopped = dataclasses.replace(snapshot(0, 0.0), status="cancelled")
    fit = FakeFit([stopped])
    session = started(fit)
    fit.go.release()
    assert session.wait(PATIENCE)
    assert (session.was_too_early, session.result) == (True, None)


def test_an_error_of_the_compiler_is_told():
    fit = FakeFit([])
    fit.compile = lambda: [][0]
    session = started(fit)
    assert session.wait(PATIENCE)
    assert "IndexError" in session.problem


@pytest.mark.parametrize("status", ["done", "cancelled"])
def test_the_comparison_comes_after_a_whole_fit_alone(monkeypatch, status):
    monkeypatch.setattr(baseline, "without_privacy", lambda prepared, stop: {"auc": 0.75})
    fit = FakeFit([])
    fit.outcome.status = status
    session = started(fit, baseline=True)
    assert session.wait(PATIENCE)
    assert session.baseline == ({"auc": 0.75} if status == "done" else None)


def test_a_fit_without_metrics_is_followed_by_the_names_of_its_parameters():
    labels = {
        "weights": ["age", "dose"],
        "matrix": (["a", "b"], ["c"]),
        "other": ["one", "two", "three"],
    }
    params = {
        "intercept_loc": np.float32(1),
        "weights_loc": np.array([2.0, 3.0]),
        "matrix_scale": np.array([[4.0], [5.0]]),
        "other_loc": np.zeros(2),
        "net": {"kernel": np.ones(1)},
    }
    fit = FakeFit([dataclasses.replace(snapshot(10, 3.0), params=params)])
    fit.model, fit.data = types.SimpleNamespace(coordinates=lambda data: labels), None
    session = started(fit)
    fit.go.release()
    session.wait()
    now = session.progress()
    assert now.followed_names == (
        "intercept_loc",
        "weights_loc[age]",
        "weights_loc[dose]",
        "matrix_scale[a, c]",
        "matrix_scale[b, c]",
        "other_loc[0]",
        "other_loc[1]",
        "net['kernel'][0]",
    )
    assert [(step, values.tolist()) for step, values in now.followed] == [
        (10, [1, 2, 3, 4, 5, 0, 0, 1])
    ]


def test_a_comparison_that_breaks_leaves_the_private_fit(monkeypatch):
    def explode(prepared, stop):
        raise MemoryError("too large")

    monkeypatch.setattr(baseline, "without_privacy", explode)
    session = started(FakeFit([]), baseline=True)
    assert session.wait(PATIENCE)
    assert session.result is session.prepared.outcome
    assert session.problem == "The comparison without privacy failed (MemoryError: too large)."
    assert "Traceback" in session.details


def test_waiting_gives_up_after_its_time():
    fit = FakeFit([snapshot(0, 0.0)])
    session = started(fit)
    assert not session.wait(0.05)
    assert not session.ended
    fit.go.release()
    assert session.wait(PATIENCE)
    assert session.ended


def test_a_stop_reaches_the_fit():
    fit = FakeFit([snapshot(0, 0.0), snapshot(10, 1.0)])
    session = started(fit)
    fit.go.release()
    until(session, lambda progress: progress.snapshot is not None)
    assert (session.stopping, fit.stop()) == (False, False)
    session.stop()
    assert (session.stopping, fit.stop()) == (True, True)
    fit.go.release()
    assert session.wait(PATIENCE)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "under 0.1 s"),
        (0.21, "0.2 s"),
        (8.4, "8.4 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.7, "1 h 00 min"),
        (3780, "1 h 03 min"),
    ],
)
def test_times_are_written_as_on_a_clock(seconds, text):
    assert duration(seconds) == text
