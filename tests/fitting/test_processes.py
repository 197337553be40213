"""Fits whose steps several processes take together. Each is a process of its own, which XLA's
collectives connect.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.data.storage import packing
from workbench.ledger.ledger import Ledger

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "in_processes.py"
SECONDS = 120  # on a busy machine


def started(place, count, port, parts, devices):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    command = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore:Error reading persistent",
        str(PROGRAM),
        str(place),
        str(count),
    ]
    return subprocess.Popen(
        [*command, str(port), *parts],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(processes):
    """What each printed, in one object a process; they must not fail."""
    found = []
    try:
        for process in processes:
            out, errors = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, errors
            found.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return found


def port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def together(*parts, count=2, devices=1):
    number = port()
    return [started(place, count, number, parts, devices) for place in range(count)]


@pytest.mark.thorough
def test_two_processes_take_the_steps_of_two_devices_and_others_are_refused():
    *of_two, alone = answers([*together("seeded", "refused"), started(0, 1, 0, ["seeded"], 2)])
    assert alone["seeded"]["status"] == "done"
    assert [each["seeded"] for each in of_two] == [alone["seeded"]] * 2  # bit for bit
    for each in of_two:
        for name, message in each["refused"].items():
            assert (
                message
                == f"ArgumentError: processes=2: process 1 has another {name} than process 0."
            )
    # the two, and the one in a process, which repeats them exactly; nothing was reserved for what
    # was refused
    spends = Ledger().spends()
    assert [(spend.status, spend.taken) for spend in spends] == [("settled", 40)] * 2


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 3])
def test_processes_share_a_secret_key_that_is_new_for_each_fit_and_any_of_them_can_stop(count):
    of_all = [each["secret"] for each in answers(together("secret", count=count))]
    assert of_all[1:] == of_all[:1] * (count - 1)
    first, second, stopped = of_all[0]
    assert (first["status"], second["status"], stopped["status"], stopped["step"]) == (
        "done",
        "done",
        "cancelled",
        0,
    )
    assert len({each["key"] for each in of_all[0]}) == 3
    assert len({each["params"] for each in of_all[0]}) == 3
    assert [(spend.status, spend.taken) for spend in Ledger().spends()] == [
        ("settled", 40),
        ("settled", 40),
        ("settled", 0),
    ]


@pytest.mark.thorough
def test_of_a_file_each_process_reads_its_part_and_all_have_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(packing, "_SMALLEST_BLOCK", 128)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.random(200), "ill": rng.random(200) < 0.5})
    for name in ("same", "other"):
        frame.to_parquet("t.parquet")
        wb.data.pack(
            "t.parquet",
            f"{name}.wbr",
            target="ill",
            bounds=(0, 1),
            block_size=128,
            evaluation_fraction=0.2,
        )
        frame["dose"] = frame["dose"].where(frame.index != 7, 0.5)
    *of_two, alone = (
        each["at_rest"]
        for each in answers([*together("at_rest"), started(0, 1, 0, ["at_rest"], 2)])
    )
    assert of_two[0]["params"] == of_two[1]["params"] == alone["params"]
    first, other = (set(map(tuple, each["read"])) for each in of_two)
    assert len(first) == len(other) == 1  # of both arrays the same blocks
    assert first | other == set(map(tuple, alone["read"]))
    for each in of_two:
        assert (
            each["other"]
            == "ArgumentError: processes=2: process 1 has another data set than process 0."
        )


@pytest.mark.thorough
def test_what_is_refused_before_a_step():
    first, other = (each["more_refused"] for each in answers(together("more_refused")))
    for name in ("version of Python or of a package", "precision"):
        assert (
            first[name]
            == other[name]
            == f"ArgumentError: processes=2: process 1 has another {name} than process 0."
        )
    assert first["cap"].startswith("CapError: ")
    assert (
        other["cap"]
        == f"ProcessError: process 0 ended the fit: {first['cap'].removeprefix('CapError: ')}"
    )
    assert first["no devices"] == other["no devices"]
    assert first["no devices"].startswith(
        "ArgumentError: devices=None: must be given with 2 processes"
    )
    assert first["some devices"] == other["some devices"]
    assert "does not say which of 2 processes" in first["some devices"]
    assert Ledger().spends() == []
