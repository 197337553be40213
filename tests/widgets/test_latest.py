"""Only the newest request counts."""

import logging
import threading

import pytest

from workbench.widgets.kit.latest import Latest

PATIENCE = 20


@pytest.fixture
def latest():
    runner = Latest(pause=0.02)
    yield runner
    runner.close()


class Blocked:
    """Work that signals when it has begun and ends when it is released."""

    def __init__(self, outcome):
        self.outcome = outcome
        self.begun, self.let_go = threading.Event(), threading.Event()

    def __call__(self):
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return self.outcome


def fail():
    raise ValueError("no such plan")


def test_the_outcome_is_handed_over_in_one_daemon_thread(latest):
    seen = []
    for number in range(2):
        latest.ask(
            lambda number=number: number,
            lambda outcome: seen.append((outcome, threading.current_thread())),
        )
        assert latest.wait(PATIENCE)
    assert [outcome for outcome, _ in seen] == [0, 1]
    (thread,) = {thread for _, thread in seen}
    assert thread.daemon
    assert thread is not threading.current_thread()


def test_of_many_requests_only_the_newest_starts(latest):
    started, seen = [], []
    for number in range(50):
        latest.ask(lambda number=number: started.append(number) or number, seen.append)
    assert latest.wait(PATIENCE)
    assert started == seen == [49]


def test_asking_again_starts_the_pause_anew():
    """Together they take longer than one pause: if it ran from the first request on, one before the
    last would start.
    """
    runner, started = Latest(pause=0.3), []
    gap = threading.Event()
    for number in range(6):
        runner.ask(lambda number=number: started.append(number), lambda _: None)
        gap.wait(0.08)
    assert runner.wait(PATIENCE)
    runner.close()
    assert started == [5]


def test_what_is_replaced_while_it_runs_ends_unseen(latest):
    seen, first = [], Blocked("first")
    latest.ask(first, seen.append)
    assert first.begun.wait(PATIENCE)
    latest.ask(lambda: "second", seen.append)
    first.let_go.set()
    assert latest.wait(PATIENCE)
    assert seen == ["second"]


def test_an_exception_of_the_work_is_its_outcome(latest):
    seen = []
    latest.ask(fail, seen.append)
    assert latest.wait(PATIENCE)
    assert isinstance(seen[0], ValueError)
    assert str(seen[0]) == "no such plan"


def test_an_exception_of_done_does_not_end_the_thread(latest, caplog):
    seen = []
    with caplog.at_level(logging.ERROR):
        latest.ask(lambda: 1, lambda _: fail())
        assert latest.wait(PATIENCE)
    assert "no such plan" in caplog.text
    latest.ask(lambda: 2, seen.append)
    assert latest.wait(PATIENCE)
    assert seen == [2]


def test_done_may_ask_again(latest):
    seen = []

    def again(outcome):
        seen.append(outcome)
        if outcome < 3:
            latest.ask(lambda: outcome + 1, again)

    latest.ask(lambda: 1, again)
    assert latest.wait(PATIENCE)
    assert seen == [1, 2, 3]


def test_closing_ends_the_thread_and_what_it_runs_is_not_shown(latest):
    seen, work = [], Blocked("late")
    latest.ask(work, seen.append)
    assert work.begun.wait(PATIENCE)
    thread = latest._thread
    latest.close()
    latest.ask(lambda: "after", seen.append)
    work.let_go.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert seen == []


def test_closing_drops_what_waits():
    runner, started = Latest(pause=60), []
    runner.ask(lambda: started.append(1), lambda _: None)
    thread = runner._thread
    assert not runner.wait(0.01)
    runner.close()
    assert runner.wait(PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert started == []


def test_nothing_asked_is_nothing_to_wait_for():
    runner = Latest()
    assert runner.wait(0)
    runner.close()


def test_what_is_dropped_is_neither_started_nor_told(latest):
    running, seen = Blocked("old"), []
    latest.ask(running, seen.append)
    assert running.begun.wait(PATIENCE)
    latest.ask(fail, seen.append)
    latest.drop()
    running.let_go.set()
    assert latest.wait(PATIENCE)
    assert seen == []
    latest.ask(lambda: "new", seen.append)
    assert latest.wait(PATIENCE)
    assert seen == ["new"]
