"""The harness of the experiments: rows of both iterates, and fits without privacy."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fits import Job, non_private, run

import workbench as wb


@pytest.mark.integration
def test_a_job_gives_a_row_for_each_iterate():
    settings = {"epsilon": 4.0, "delta": 1e-2, "iterations": 60, "seed": 3}
    data = {"num_records": 100, "num_evaluation": 100, "seed": 5}
    last, average = run(
        Job("hierarchical_logistic", "hierarchical", data, settings, about={"seed": 5})
    )
    assert (last["iterate"], average["iterate"], last["seed"]) == ("last", "average", 5)
    assert last["sigma"] == average["sigma"] > 0
    assert last["auc"] != average["auc"]


@pytest.mark.integration
def test_without_privacy_a_fit_is_better():
    data = wb.data.hierarchical(num_records=200, seed=5)
    found = non_private(wb.models.get("hierarchical_logistic"), data, steps=500)
    assert found["auc"] > 0.93
    assert set(found) == {"auc", "log_likelihood"}


@pytest.mark.parametrize(
    "name", ["hierarchical", "mixture", "autoencoder", "adult", "calibration", "rule"]
)
def test_every_experiment_that_make_runs_is_there(name):
    assert list(inspect.signature(importlib.import_module(name).main).parameters) == ["full"]
    assert f'"{name}"' in (Path(__file__).parent / "run.py").read_text()
