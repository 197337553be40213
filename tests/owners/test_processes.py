"""Three owners and a coordinator, each a process of its own; one of them is killed."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import workbench as wb
from tests.owners.test_owners import OWNERS, SCHEMA, TABLES
from tests.owners.test_rounds import a_port, listens
from workbench.ledger.ledger import Ledger

pytestmark = pytest.mark.integration


def started(folder, owner, *words):
    environment = {**os.environ, "WORKBENCH_STATE": str(folder / owner)}
    command = [sys.executable, "-m", "workbench", "owners", *words]
    options = {"cwd": folder, "env": environment, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **options, **pipes)


def done(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.fixture
def place(tmp_path):
    plan = wb.owners.plan(
        "days ~ age", schema=SCHEMA, owners=OWNERS, epsilon=8.0, delta=1e-3, num_records=300
    )
    plan.save(tmp_path / "plan.json")
    for name, frame in zip(OWNERS, TABLES, strict=True):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    for key in [started(tmp_path, name, "key", "plan.json", "--owner", name) for name in OWNERS]:
        assert done(key)[0] == 0
    return tmp_path


def summing(place, name):
    keys = [f"owner-{number}.key.json" for number in (1, 2, 3)]
    words = ["sum", "plan.json", "--owner", name, "--data", f"{name}.csv", "--keys", *keys]
    return started(place, name, *words)


SUMS = [f"owner-{number}.sum.json" for number in (1, 2, 3)]


def test_processes_that_never_met_have_one_result(place):
    for process in [summing(place, name) for name in OWNERS]:
        assert done(process)[0] == 0
    code, out, err = done(started(place, "coordinator", "fit", "plan.json", *SUMS, "--json"))
    assert code == 0, err
    assert json.loads(out)["guarantee"]["epsilon"] == 8.0


def answering(place, name, port):
    keys = [f"owner-{number}.key.json" for number in (1, 2, 3)]
    words = ["answer", "steps.json", "--owner", name, "--data", f"{name}.csv"]
    return started(place, name, *words, "--server", f"http://127.0.0.1:{port}", "--keys", *keys)


@pytest.fixture
def in_rounds(place):
    """(folder, port, the coordinator) of a plan of steps, whose owners have keys."""
    plan = wb.owners.plan(
        "ill ~ age",
        schema={"ill": ["no", "yes"], "age": (18, 90)},
        owners=OWNERS,
        epsilon=8.0,
        delta=1e-3,
        num_records=300,
        settings={"iterations": 200},
    )
    plan.save(place / "steps.json")
    for number, (name, frame) in enumerate(zip(OWNERS, TABLES, strict=True), 1):
        (place / f"owner-{number}.key.json").unlink()
        ill = np.where(frame["age"] > 54, "yes", "no")
        frame.assign(ill=ill).to_csv(place / f"{name}.csv", index=False)
    for key in [started(place, name, "key", "steps.json", "--owner", name) for name in OWNERS]:
        assert done(key)[0] == 0
    port = a_port()
    keys = [f"owner-{number}.key.json" for number in (1, 2, 3)]
    words = ["coordinate", "steps.json", "--port", str(port), "--json", "--patience", "30"]
    words += ["--keys", *keys]
    coordinator = started(place, "coordinator", *words)
    until = time.monotonic() + 120
    while not listens(port) and time.monotonic() < until:
        time.sleep(0.1)
    yield place, port, coordinator
    coordinator.kill()
    done(coordinator)


def test_processes_that_never_met_fit_in_rounds(in_rounds):
    place, port, coordinator = in_rounds
    for owner in [answering(place, name, port) for name in OWNERS]:
        code, out, err = done(owner)
        assert code == 0, err
        assert "of each of 200 rounds" in out
    code, out, err = done(coordinator)
    assert code == 0, err
    assert json.loads(out)["guarantee"]["steps_taken"] == 200


def test_a_killed_owner_ends_the_rounds_of_all(in_rounds, monkeypatch):
    place, port, coordinator = in_rounds
    owners = [answering(place, name, port) for name in OWNERS]
    ledger, until = place / OWNERS[2] / "ledger.sqlite", time.monotonic() + 120
    while not ledger.exists() and time.monotonic() < until:
        time.sleep(0.01)
    owners[2].send_signal(signal.SIGKILL)
    done(owners[2])
    for owner in owners[:2]:
        code, out, err = done(owner)
        assert (code, out) == (1, "")
        assert err.startswith("ill ~ age: 200 releases of sums")  # what it was asked
        assert err.splitlines()[-1].startswith("workbench owners: Cork")
    code, out, err = done(coordinator)
    assert code == 1
    assert "Cork" in out + err
    monkeypatch.setenv("WORKBENCH_STATE", str(place / OWNERS[0]))
    assert [row.guarantee.steps for row in Ledger().spends()] == [200]  # who answered has paid


def test_without_a_killed_owner_there_is_no_result(place, monkeypatch):
    last = summing(place, OWNERS[2])
    until = time.monotonic() + 120
    ledger = place / OWNERS[2] / "ledger.sqlite"
    while not ledger.exists() and last.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    last.send_signal(signal.SIGKILL)
    done(last)
    for process in [summing(place, name) for name in OWNERS[:2]]:
        assert done(process)[0] == 0
    paths = [path for path in SUMS if (place / path).exists()]
    if len(paths) == 3:
        pytest.skip("it was faster than the signal")
    code, out, err = done(started(place, "coordinator", "fit", "plan.json", *paths))
    assert (code, out) == (2, "")
    assert "sums='Cork': its sum is missing, and without it there is no result" in err
    assert err.count("\n") == 1
    monkeypatch.setenv("WORKBENCH_STATE", str(place / OWNERS[0]))
    assert len(Ledger().spends()) == 1  # who answered has paid
