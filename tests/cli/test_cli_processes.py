"""``workbench fit --processes``: real processes on this machine, some of which are killed."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import PRIVATE_BOUNDS

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SECONDS = 240  # on a busy machine
LONG = 1_000_000  # steps that nobody waits for
ALONE = [
    "fit",
    "--data",
    "clinic.csv",
    "--target",
    "ill",
    "--epsilon",
    "1",
    "--bounds",
    *(f"{name}={low}:{high}" for name, (low, high) in PRIVATE_BOUNDS.items()),
]
FIT = [*ALONE, "--processes", "2"]


@pytest.fixture
def place(tmp_path, monkeypatch, private_frame):
    """A folder with records and a state of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("XLA_FLAGS", "")
    private_frame.to_csv("clinic.csv", index=False)
    return tmp_path


def command(*words):
    return [sys.executable, "-m", "workbench", *words]


def answer(*words):
    """(exit code, JSON object on standard output, standard error) of a command."""
    done = subprocess.run(
        command(*words, "--json"), capture_output=True, text=True, timeout=SECONDS
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@contextlib.contextmanager
def amid(*words, steps):
    """The command's process amid its steps, and those that it started."""
    with open("out.json", "w") as out, open("errors", "w") as errors:
        process = subprocess.Popen(command(*words, "--json"), stdout=out, stderr=errors)
    try:
        wait_for(lambda: len(list(steps.glob("*/step-*[1-9]*.npz"))) > 0, process)
        yield process, children(process.pid)
        process.wait(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()


def wait_for(condition, process=None):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process is None or process.poll() is None, Path("errors").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid):
    return (
        not Path(f"/proc/{pid}").exists()
        or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    )


def listening(pids):
    """Addresses, in hexadecimal, at which processes wait for connections."""
    sockets = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(handle).removeprefix("socket:[").removesuffix("]"))
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}


def spends():
    _, facts, _ = answer("ledger", "show", "clinic")
    return facts["spends"]


LOCAL = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1, for IPv4 and for IPv6


def test_a_fit_has_one_result_and_one_entry(place):
    code, facts, errors = answer(*FIT, "--iterations", "60", "--out", "saved")
    assert (code, facts["status"]) == (0, "done"), errors
    assert facts["guarantee"]["epsilon"] == 1.0
    (spend,) = spends()
    assert (spend["status"], spend["taken"], spend["result"]) == (
        "settled",
        60,
        str(place / "saved"),
    )
    saved = json.loads((place / "saved" / "result.json").read_text())
    assert len(saved["settings"]["devices"]) == 2
    assert len(list((place / "state" / "runs").iterdir())) == 1  # of checkpoints


def test_when_a_process_is_killed_the_others_stop_and_one_device_can_go_on(place):
    runs = place / "state" / "runs"
    with amid(*FIT, "--iterations", "20000", steps=runs) as (process, others):
        assert len(others) == 1
        assert listening([process.pid, *others]) <= LOCAL
        os.kill(others[0], signal.SIGKILL)
        process.wait(timeout=SECONDS)
    assert process.returncode == 1, Path("errors").read_text()
    facts = json.loads(Path("out.json").read_text())
    assert facts["status"] == "failed"
    assert "a process of this fit has ended" in facts["message"]
    assert "process 1 ended with code -9" in Path("errors").read_text()
    (spend,) = spends()
    taken = facts["guarantee"]["steps_taken"]
    assert (spend["status"], spend["taken"]) == ("settled", taken)
    assert 0 < taken < 20_000
    assert facts["guarantee"]["epsilon"] == 1.0  # the promise stays

    (run,) = runs.iterdir()
    code, _, errors = answer("resume", str(run))
    assert code == 2
    assert "Give --devices or --processes." in errors
    code, facts, errors = answer("resume", str(run), "--devices", "1")
    assert (code, facts["status"]) == (0, "done"), errors
    (spend,) = spends()
    assert (spend["status"], spend["taken"]) == ("settled", 20_000)


def test_when_the_first_process_is_killed_the_others_end_and_as_many_go_on(place):
    runs = place / "state" / "runs"
    with amid(*FIT, "--iterations", str(LONG), steps=runs) as (process, others):
        process.kill()
        wait_for(lambda: all(map(is_gone, others)))
    (spend,) = spends()
    assert (spend["status"], spend["interrupted"]) == ("reserved", True)  # all planned steps count
    (run,) = runs.iterdir()
    code, _, errors = answer("resume", str(run), "--devices", "1")
    assert code == 2
    assert "interrupted on other devices, which round differently" in errors

    with amid("resume", str(run), "--processes", "2", steps=runs) as (process, others):
        wait_for(lambda: "fitting" in Path("errors").read_text(), process)
        # only the first learns of it, and asks the others to stop
        process.send_signal(signal.SIGINT)
        process.wait(timeout=SECONDS)
        wait_for(lambda: all(map(is_gone, others)))
    assert process.returncode == 130, Path("errors").read_text()
    (spend,) = spends()
    assert (spend["status"], spend["interrupted"]) == ("settled", False)


def test_a_process_that_cannot_begin_ends_the_command(place, monkeypatch):
    monkeypatch.setenv("WORKBENCH_PROCESS", "1")
    code, _, errors = answer(*FIT)
    assert (code, errors) == (
        2,
        "workbench fit: processes=2: needs both $WORKBENCH_COORDINATOR and $WORKBENCH_PROCESS, "
        "or neither.\n",
    )
    monkeypatch.setenv("WORKBENCH_COORDINATOR", "127.0.0.1:1")
    monkeypatch.setenv("WORKBENCH_PROCESS", "2")
    assert "must be a whole number below the number of processes, not '2'" in answer(*FIT)[2]
    monkeypatch.delenv("WORKBENCH_PROCESS")
    monkeypatch.delenv("WORKBENCH_COORDINATOR")
    assert "cannot be combined with --processes" in answer(*FIT, "--devices", "1")[2]
    assert "neither a number from 1" in answer(*ALONE, "--processes", "0")[2]


def by_address(place, count, number):
    return {"WORKBENCH_COORDINATOR": f"127.0.0.1:{number}", "WORKBENCH_PROCESS": str(place)}, str(
        count
    )


def by_slurm(place, count, number):
    job = {
        "JOB_ID": number,
        "STEP_NODELIST": "localhost",
        "NTASKS": count,
        "PROCID": place,
        "LOCALID": place,
    }
    return {
        f"SLURM_{name}": str(value) for name, value in {**job, "STEP_NUM_NODES": 1}.items()
    }, "auto"


@pytest.mark.parametrize("start", [by_address, by_slurm])
def test_a_cluster_starts_the_processes(place, start):
    with socket.create_server(("127.0.0.1", 0)) as found:
        number = found.getsockname()[1]
    processes = []
    for each in range(2):
        variables, count = start(each, 2, number)
        words = command(*ALONE, "--iterations", "40", "--processes", count, "--json")
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        processes.append(process)
    try:
        (first, errors), (other, _) = (
            process.communicate(timeout=SECONDS) for process in processes
        )
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], errors
    assert json.loads(first)["status"] == "done"
    assert other == ""
    (spend,) = spends()
    assert (spend["status"], spend["taken"]) == ("settled", 40)
