"""Fits and ledger writes that are killed: no spend is lost or counted twice; what goes on ends as
if nothing had been.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent


def environment(state):
    return {**os.environ, "WORKBENCH_STATE": str(state)}


def killed(count, seed, state):
    done = subprocess.run(
        [sys.executable, HERE / "killed_fits.py", str(count), str(seed)],
        env=environment(state),
        capture_output=True,
        text=True,
        timeout=150 + 30 * count,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.integration  # tests/cli/test_cli_resume.py kills one
def test_fits_killed_at_fifty_moments_end_as_if_nothing_had_been(tmp_path):
    """Bit for bit, wherever they were."""
    report = killed(50, 2, tmp_path)
    assert report["equal"] >= 30
    assert len(set(report["resumed_from"])) >= 10
    assert set(report["states"]) <= {"settled", "recovered"}
    print(report)


@pytest.mark.integration
def test_ledger_writes_killed_at_fifty_moments_lose_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "killed_writers.py", tmp_path / "ledger.sqlite", "50", "1"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["fits"] > 50
    assert report["recovered"] > 5
