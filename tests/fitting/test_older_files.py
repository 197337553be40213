"""What an earlier version wrote still opens: tests/fitting/files_of_0_1 was made before the package was laid out anew.

One fit of 60 steps, one of 400 that was stopped at step 4, and a sweep of two fits of 40 steps, on ``clinic.csv``. Together
they were said to spend epsilon = 1.5573.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.fitting import checkpoints
from workbench.ledger.ledger import Ledger
from workbench.sweeps import sweeping

MADE = Path(__file__).parent / "files_of_0_1"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A copy of the folder, whose ledger is the user's own."""
    copy = shutil.copytree(MADE, tmp_path / "files")
    for path in (copy / "state").iterdir():  # git keeps no modes; a ledger is refused where others could write to it
        os.chmod(path, 0o600)
    monkeypatch.setenv("WORKBENCH_STATE", str(copy / "state"))
    return copy


@pytest.fixture
def clinic(files):
    return wb.data.from_csv(files / "clinic.csv", target="ill", bounds={"dose": (0, 200), "age": (0, 100)}, name="clinic")


def test_a_result(files):
    result = wb.load(files / "result")
    assert (result.status, result.guarantee.epsilon, result.guarantee.delta) == ("done", 1.0, 1e-4)
    assert result.guarantee.noise_multiplier == 2.7144
    assert result.draws["weights"].shape == (50, 2)
    written = json.loads((files / "result" / "result.json").read_text())["guarantee"]
    written["noise_delta"] = written.pop("truncation_delta")  # as it was called
    assert {**result.guarantee.to_dict(), **written} == result.guarantee.to_dict()
    assert result.guarantee.arithmetic == "floating point"
    assert np.all(np.isfinite(result.predict(pd.DataFrame({"dose": [10.0, 190.0], "age": [30.0, 60.0]}))))
    result.save(files / "again")
    assert wb.load(files / "again").guarantee == result.guarantee


def test_a_ledger_knows_the_same_records(files, clinic):
    spends = Ledger().spends()
    assert sorted(spend.counted for spend in spends) == [4, 40, 40, 60]
    assert "(epsilon = 1.9144, delta = 0.0001)" in Ledger().budget_status("clinic").statement()


def test_a_ledger_goes_on(files, clinic):
    wb.fit("logistic", clinic, epsilon=0.5, delta=1e-4, iterations=10, draws=20, checkpoint=False)
    assert len(Ledger().datasets()) == 1
    assert len(Ledger().spends()) == 5
    assert Ledger().budget_status("clinic").total.epsilon > 1.9144


def test_the_fits_of_a_store_are_not_repeated(files, clinic):
    given = {"epsilons": [0.5, 1.0], "iterations": 40, "delta": 1e-4, "store": files / "fits.sqlite"}
    assert sweeping.prepare("logistic", clinic, **given).runs == []
    table = wb.sweep("logistic", clinic, **given, accept_total_epsilon=10.0).table
    assert sorted(table["epsilon"]) == [0.5, 1.0]
    assert set(table["status"]) == {"done"}


def test_a_checkpoint(files):
    """It goes on only with the very program that it ran, which another machine may not have; what it says can be read."""
    facts = checkpoints.newest(files / "stopped").facts
    assert (facts["model"]["name"], facts["data"], facts["settings"]["iterations"]) == ("logistic", "clinic", 400)
