"""A coordinator and an owner in one notebook; the other owners answer from the command line."""

import os
import subprocess
import sys

import pytest

from tests.browser.conftest import Screen, free_port
from tests.browser.test_ledger import looked_at, says

pytestmark = [pytest.mark.browser, pytest.mark.thorough, pytest.mark.integration]

BEGIN = """import os, pathlib
folder = pathlib.Path({folder!r})
os.environ["WORKBENCH_STATE"] = str(folder / "state")
import numpy as np, pandas as pd, workbench as wb
OWNERS = ["Aarhus", "Bern", "Cork"]
def patients(size, seed):
    random = np.random.default_rng(seed)
    age = random.uniform(18, 90, size)
    ill = random.random(size) < 1 / (1 + np.exp(-(age - 54) / 10))
    return pd.DataFrame({{"age": age, "ill": np.where(ill, "yes", "no")}})
tables = [patients(size, seed) for seed, size in enumerate([2500, 1200, 2300])]
for owner, table in zip(OWNERS, tables):
    table.to_csv(folder / f"{{owner}}.csv", index=False)
plan = wb.owners.plan("ill ~ age", schema={{"ill": ["no", "yes"], "age": (18, 90)}},
  owners=OWNERS, epsilon=1.0, delta=1e-4, num_records=6000, settings={{"iterations": 500}})
plan.save(folder / "plan.json")
keys = [wb.owners.make_key(plan, owner, folder) for owner in OWNERS]
coordinator = wb.widgets.Coordinator(plan, keys, port={port})
coordinator"""
OWNER = """wb.widgets.Owner(plan, "Cork", tables[2], keys, "http://127.0.0.1:{port}")"""


def test_a_coordinator_and_an_owner_see_the_rounds(notebook, page, screenshots, tmp_path):
    port = free_port()
    book = notebook(
        BEGIN.format(folder=str(tmp_path), port=port), OWNER.format(port=port), name="owners"
    )
    book.run(0)
    screen = Screen(page)
    says(screen, "Press Listen")
    says(screen, "read this code to each other")
    screen.button("Listen").click()
    says(screen, "Waiting for Aarhus, Bern, Cork")
    looked_at(page, screen, screenshots, "owners-waiting")
    book.run(1)
    owner = Screen(page, place=1)
    owner.button("Answer").click()
    says(owner, "The ledger is charged once all owners are here, not before")
    says(screen, "Cork joined")
    words = [sys.executable, "-m", "workbench", "owners", "answer", tmp_path / "plan.json"]
    words += ["--server", f"http://127.0.0.1:{port}", "--keys", *tmp_path.glob("*.key.json")]
    programs = []
    for name in ("Aarhus", "Bern"):
        asked = [*words, "--owner", name, "--data", tmp_path / f"{name}.csv"]
        asked += ["--ledger", tmp_path / f"{name}.sqlite"]
        state = {"WORKBENCH_STATE": str(tmp_path / "state")}
        programs.append(subprocess.Popen(asked, env={**os.environ, **state}))
    says(owner, "The ledger has the charge. Round")
    looked_at(page, screen, screenshots, "owners-fitting")
    looked_at(page, owner, screenshots, "owner-answering")
    screen.headline("Done")
    says(owner, "Done. Round 500 of 500")
    assert [program.wait(60) for program in programs] == [0, 0]
    says(screen, "How, and on what conditions")
    looked_at(page, screen, screenshots, "owners-done")
    looked_at(page, owner, screenshots, "owner-done")
