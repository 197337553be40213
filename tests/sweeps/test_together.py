"""Sweeps that share a store: no fit runs twice, what a process that is gone had begun counts,
totals are what was spent.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool

import pytest

from tests.conftest import some_of
from workbench import ArgumentError
from workbench.ledger.ledger import Ledger
from workbench.sweeps import executors, sweeping
from workbench.sweeps import prepared as prepared_sweeps
from workbench.sweeps.executors import Processes, Workers
from workbench.sweeps.running import Outcome
from workbench.sweeps.store import LOST, Store

ROOT = pathlib.Path(__file__).parents[2]
PLAN = {"epsilons": [0.5, 1.0], "seeds": 2, "iterations": 30, "delta": 1e-3}
PATIENCE = 120


def by_sqlite(file, statement, *values):
    with contextlib.closing(sqlite3.connect(file)) as database, database:
        return database.execute(statement, values).fetchall()


@pytest.fixture
def make(private_data, tmp_path):
    """Prepares the sweep of four private fits, or another one, with a store and a ledger in the
    test's folder.
    """

    def prepare(**settings):
        given = {
            **PLAN,
            "store": tmp_path / "fits.sqlite",
            "ledger": tmp_path / "book.sqlite",
            **settings,
        }
        return sweeping.prepare("logistic", private_data, **given)

    return prepare


@pytest.fixture
def quick(monkeypatch):
    """Fits without steps: ``quick.hold`` is waited for within each batch; ``quick.ran`` has the
    keys.
    """

    class Quick:
        hold = threading.Event()
        begun = threading.Event()
        ran: list[str]

    quick = Quick()
    quick.ran = []
    quick.hold.set()

    def run_group(group, *, stop, before, **_):
        for run in group:
            if stop():
                return
            before([run])
            quick.begun.set()
            assert quick.hold.wait(PATIENCE)
            quick.ran.append(run.key)
            yield [Outcome(run.key, "done")]

    monkeypatch.setattr(prepared_sweeps, "run_group", run_group)
    monkeypatch.setattr(prepared_sweeps, "_POLL_SECONDS", 0.01)
    return quick


# --- two sweeps, one store ------------------------------------------------------------------------


def test_two_sweeps_pay_once_and_both_report_what_was_spent(make, quick, tmp_path):
    one, other = make(), make()
    quick.hold.clear()
    waiting = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.run)
        assert quick.begun.wait(PATIENCE)
        second = pool.submit(other.run, on_progress=lambda p: p.elsewhere == 4 and waiting.set())
        assert waiting.wait(PATIENCE)
        quick.hold.set()
        results = first.result(PATIENCE), second.result(PATIENCE)
    assert sorted(quick.ran) == sorted(one.cells)
    for result in results:
        assert (result.status, len(result.table)) == ("done", 4)
        assert set(result.table["attempts"]) == {1}
        assert result.total.fits == 4
    spends = Ledger(tmp_path / "book.sqlite").spends()
    assert [spend.status for spend in spends] == ["settled"] * 4


@pytest.mark.thorough
def test_a_sweep_runs_what_another_one_does_not(make, quick):
    one, other = make(), make(epsilons=[1.0, 2.0])
    quick.hold.clear()
    waiting = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.run)
        assert quick.begun.wait(PATIENCE)
        second = pool.submit(other.run, on_progress=lambda p: p.elsewhere == 2 and waiting.set())
        quick.hold.set()
        results = first.result(PATIENCE), second.result(PATIENCE)
    assert sorted(quick.ran) == sorted({**one.cells, **other.cells})
    assert [len(result.table) for result in results] == [4, 4]
    assert results[1].total.fits == 6  # all that the store has of these records


def test_what_another_sweep_is_about_to_run_counts_in_the_total(make, quick):
    make()._claim({}, prepared_sweeps._Report(lambda progress: None, 4, 4))  # and is not over
    assert make(epsilons=[2.0], seeds=1).total.fits == 5
    assert make().total.fits == 4  # the same ones


@pytest.mark.thorough
def test_what_a_stopped_sweep_gave_back_another_one_runs(make, quick):
    one, other = make(), make()
    assert one.run(lambda: len(quick.ran) >= 1).status == "stopped"
    assert len(quick.ran) == 1
    result = other.run()
    assert (result.status, len(quick.ran), set(result.table["attempts"])) == ("done", 4, {1})
    assert one.run().total.fits == result.total.fits == 4


@pytest.mark.thorough
def test_waiting_for_another_sweep_ends_with_a_stop(make, quick, tmp_path):
    one, other = make(), make()
    one._claim({}, prepared_sweeps._Report(lambda progress: None, 4, 4))
    seen = []
    result = other.run(lambda: len(seen) > 3, lambda progress: seen.append(progress.elsewhere))
    assert (result.status, seen[1:4], quick.ran) == ("stopped", [4, 4, 4], [])
    assert Ledger(tmp_path / "book.sqlite").spends() == []


# --- a sweep that is gone -------------------------------------------------------------------------


def leave(prepared, tmp_path, begun):
    """What a process leaves that was killed when ``begun`` of its four fits had begun and the first
    was done.
    """
    runs = list(prepared.runs)
    prepared._claim({}, prepared_sweeps._Report(lambda progress: None, 4, 4))
    prepared._reserve(runs)
    prepared._mark(runs[:begun])
    prepared._settle(runs[0].key, 30)
    prepared.store.add([prepared._row(runs[0], Outcome(runs[0].key, "done"))])
    by_sqlite(tmp_path / "fits.sqlite", "UPDATE claims SET owner = 'gone'")
    by_sqlite(tmp_path / "book.sqlite", "UPDATE spends SET owner = 'gone'")
    return runs[0].key, runs[1].key


@pytest.fixture
def killed(make, quick, tmp_path):
    """Keys of the fit that was done and of the one that had begun."""
    return leave(make(), tmp_path, 2)


def test_a_fit_that_a_killed_sweep_had_begun_counts_and_is_run_again(make, quick, killed, tmp_path):
    done, lost = killed
    again = make()
    assert (again.total.fits, len(again.runs)) == (5, 3)
    result = again.run()
    assert (result.status, result.total.fits) == ("done", 5)
    attempts = {row["key"]: row["attempts"] for row in again.store.rows()}
    assert attempts == {key: 1 + (key == lost) for key in again.cells}
    assert done not in quick.ran
    spends = Ledger(tmp_path / "book.sqlite").spends()
    assert {spend.status for spend in spends} <= {"settled", "recovered"}
    assert sum(spend.counted for spend in spends) == 5 * 30
    assert by_sqlite(tmp_path / "fits.sqlite", "SELECT * FROM claims") == []


def test_a_fit_that_a_killed_sweep_had_begun_counts_also_where_nobody_runs_it_again(make, killed):
    assert make(epsilons=[2.0], seeds=1).total.fits == 3  # done, begun, planned
    with pytest.raises(ArgumentError, match="3 fits together"):
        make(epsilons=[2.0], seeds=1).accept(2.0)


@pytest.mark.parametrize("begun", some_of([1, 2]))
def test_under_a_cap_what_a_killed_sweep_had_reserved_and_not_begun_is_not_reserved_again(
    make, quick, tmp_path, private_data, begun
):
    """The cap allows the sweep as a whole: the three that are left may run, but not one more than
    was planned.
    """
    from workbench.ledger.reservation import id_of

    book, prepared = Ledger(tmp_path / "book.sqlite"), make()
    book.set_cap(book.add(id_of(private_data)).number, prepared.total.epsilon, 1e-3, why="a test")
    leave(prepared, tmp_path, begun)
    again = make()
    if begun == 2:
        with pytest.raises(ArgumentError, match="above its cap"):
            again.run()
    else:
        assert (again.run().status, len(quick.ran)) == ("done", 3)
    assert not [spend for spend in book.spends() if spend.status == "reserved"]
    assert book.budget_status(1).total.fits == (2 if begun == 2 else 4)


def test_a_sweep_whose_claims_were_taken_over_takes_no_further_step(make, quick, tmp_path):
    prepared = make()
    prepared._claim({}, prepared_sweeps._Report(lambda progress: None, 4, 4))
    prepared._reserve(prepared.runs)
    by_sqlite(tmp_path / "fits.sqlite", "UPDATE claims SET sweep = 'another'")
    with pytest.raises(OSError, match=r"fits\.sqlite: .*claims are gone"):
        prepared._mark(prepared.runs)


# --- workers --------------------------------------------------------------------------------------


class Fragile(concurrent.futures.Executor):
    """Ends tasks as a process that was killed does, where ``deaths`` says so by number of
    the task.
    """

    def __init__(self, deaths):
        self.deaths, self.submitted = set(deaths), 0

    def submit(self, function, *arguments, **keywords):
        future = concurrent.futures.Future()
        self.submitted += 1
        if self.submitted - 1 in self.deaths:
            future.set_exception(BrokenProcessPool("a process died"))
        else:
            future.set_result([Outcome(run.key, "done") for run in arguments[1]])
        return future


@pytest.mark.parametrize(
    ("deaths", "fits", "states"), [([0], 5, {"done"}), ([0, 4, 5], 6, {"done", "failed"})]
)
def test_a_task_that_was_lost_with_its_worker_is_run_again_and_counts(
    make, monkeypatch, tmp_path, deaths, fits, states
):
    pool = Fragile(deaths)
    monkeypatch.setattr(
        executors, "as_workers", lambda executor: Workers(executor, lambda: 2, heals=True)
    )
    result = make().run(executor=pool, max_lanes=1)
    assert result.status == "done"
    assert set(result.table["status"]) == states
    assert result.table["attempts"].sum() == result.total.fits == pool.submitted == fits
    spends = Ledger(tmp_path / "book.sqlite").spends()
    assert [spend.counted for spend in spends if spend.counted] == [30] * pool.submitted


def test_a_cap_that_does_not_allow_a_lost_fit_again_says_so_in_its_row(
    make, monkeypatch, tmp_path, private_data
):
    from workbench.ledger.reservation import id_of

    book = Ledger(tmp_path / "book.sqlite")
    prepared = make()
    book.set_cap(book.add(id_of(private_data)).number, prepared.total.epsilon, 1e-3, why="a test")
    monkeypatch.setattr(
        executors, "as_workers", lambda executor: Workers(executor, lambda: 1, heals=True)
    )
    result = prepared.run(executor=Fragile([0]), max_lanes=1)
    assert result.status == "done"
    assert sorted(result.table["status"]) == ["done", "done", "done", "refused"]
    (message,) = set(result.table["message"]) - {""}
    assert message.startswith(LOST)
    assert "cap" in message
    assert result.table["attempts"].tolist() == [1] * 4


def test_an_executor_that_is_lost_costs_what_its_workers_had(make, monkeypatch):
    monkeypatch.setattr(executors, "as_workers", lambda executor: Workers(executor, lambda: 1))
    prepared = make()
    result = prepared.run(executor=Fragile([1]), max_lanes=1)
    assert result.status == "interrupted"
    assert result.table["status"].tolist() == ["done", "failed"]
    assert LOST in set(result.table["message"])
    assert result.total.fits == 5  # one is run again


def test_a_process_that_is_killed_is_replaced():
    with Processes(2) as pool:
        first, second = (pool.submit(os.getpid).result(PATIENCE) for _ in range(2))
        waiting = pool.submit(time.sleep, 60)
        time.sleep(0.2)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            waiting.result(PATIENCE)
        third = pool.submit(os.getpid).result(PATIENCE)
    assert third != first
    assert pool.number == 2
    for process in (first, second, third):
        assert is_gone(process)


def is_gone(process, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":  # nobody asks for it where its parent was killed
            return True
        time.sleep(0.05)
    return False


PARENT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from workbench.sweeps.executors import Processes

if __name__ == "__main__":
    with Processes(2) as pool:
        print(*(pool.submit(os.getpid).result() for _ in range(2)), flush=True)
        pool.submit(time.sleep, 600)
        time.sleep(600)
"""


@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_processes_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        children = [int(text) for text in parent.stdout.readline().split()]
        assert children
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert all(is_gone(child) for child in children)


@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_sweep_that_is_killed_leaves_no_worker_and_another_one_finishes_it(
    private_frame, tmp_path
):
    """With -9 amid its fits; then one worker of the second sweep is killed, which goes on and
    counts.
    """
    private_frame.to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "plan.yaml").write_text(
        "model: logistic\nepsilons: [0.5, 1]\nseeds: 2\niterations: 200000\nledger: "
        "book.sqlite\nstore: fits.sqlite\ndata: {file: clinic.csv, target: ill, bounds: {dose: "
        "[0, 200], age: [0, 100]}}\n"
    )
    words = [
        sys.executable,
        "-m",
        "workbench",
        "sweep",
        tmp_path / "plan.yaml",
        "--workers",
        "2",
        "--max-lanes",
        "1",
    ]
    words += ["--accept-total-epsilon", "90", "--quiet"]

    def begin():
        process = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        deadline = time.monotonic() + 300
        while True:  # until both workers are at steps
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline
            children = (
                pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            )
            busy = [
                int(child)
                for child in children
                if "spawn_main" in pathlib.Path(f"/proc/{child}/cmdline").read_text()
            ]
            if len(busy) == 2 and all(seconds_of(child) > 4 for child in busy):
                return process, busy
            time.sleep(0.1)

    process, workers = begin()
    process.kill()
    process.wait()
    process.stdout.close()
    assert all(is_gone(worker) for worker in workers)
    process, workers = begin()
    os.kill(workers[0], signal.SIGKILL)
    out, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, out
    rows = by_sqlite(tmp_path / "fits.sqlite", "SELECT status, attempts FROM fits")
    assert {status for status, _ in rows} == {"done"}
    assert sum(attempts for _, attempts in rows) == 4 + 2 + 1
    said = int(re.search(r"All (\d+) fits together", out)[1])
    spends = Ledger(tmp_path / "book.sqlite").spends()
    assert said == 7 == sum(spend.counted > 0 for spend in spends)
    assert not [spend for spend in spends if spend.status == "reserved"]


def seconds_of(process):
    """That a process has computed for."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture
def kept(make, quick, tmp_path):
    make().run()
    return tmp_path / "fits.sqlite"


@pytest.mark.parametrize(
    ("column", "value"),
    some_of(
        [
            ("metrics", "{"),
            ("metrics", "[1]"),
            ("metrics", None),
            ("options", "}{"),
            ("guarantee", "{}"),
            ("guarantee", '{"epsilon": 1}'),
            ("attempts", "many"),
            ("attempts", -1),
            ("attempts", 10**15),
            ("epsilon", "high"),
            ("status", b"done"),
            ("seconds", "long"),
            ("fingerprint", b"x"),
            ("guarantee", "[" * 100_000),
            ("metrics", 3),
        ],
        8,
    ),
)
def test_a_damaged_row_is_one_sentence(make, kept, column, value):
    by_sqlite(kept, "CREATE TABLE copy AS SELECT * FROM fits")  # which has no constraints
    by_sqlite(kept, "DROP TABLE fits")
    by_sqlite(kept, "ALTER TABLE copy RENAME TO fits")
    by_sqlite(kept, f"UPDATE fits SET {column} = ?", value)
    with pytest.raises(ArgumentError, match=r"^store=.*fits\.sqlite.*is damaged \(") as error:
        make()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_damaged_parameters_are_one_sentence(kept):
    store = Store(kept)
    (key, *_) = (row["key"] for row in store.rows())
    for content in (b"", b"PK\x03\x04nothing", b"\x93NUMPY", 3, "text"):
        by_sqlite(kept, "UPDATE fits SET parameters = ?", content)
        with pytest.raises(ArgumentError, match="is damaged"):
            store.parameters(key)


def test_a_table_that_is_missing_or_another_one_is_one_sentence(make, kept):
    by_sqlite(kept, "ALTER TABLE fits DROP COLUMN metrics")
    with pytest.raises(ArgumentError, match="is damaged"):
        make()
    by_sqlite(kept, "DROP TABLE fits")
    with pytest.raises(ArgumentError, match="is damaged"):
        make()


def test_bytes_that_were_overwritten_never_end_in_a_traceback(make, kept):
    """120 places of the file, each with 1, 8 or 64 bytes of noise."""
    import numpy as np

    random = np.random.default_rng(11)
    whole = kept.read_bytes()
    said = []
    for trial in range(120):
        content = bytearray(whole)
        place, size = int(random.integers(len(whole))), (1, 8, 64)[trial % 3]
        content[place : place + size] = random.bytes(len(content[place : place + size]))
        kept.write_bytes(content)
        for journal in kept.parent.glob("fits.sqlite-*"):
            journal.unlink()
        try:
            prepared = make(epsilons=[0.5], seeds=1)
            for row in prepared.store.rows():
                prepared.store.parameters(row["key"])
            prepared.store.close()
        except ArgumentError as error:
            said.append(str(error))
    assert len(said) > 5
    assert not any("\n" in text for text in said)
