"""Fits of persons whose rows stay in a file: those from memory, with one trace whoever has how many
rows.
"""

import dataclasses
import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpyro.optim import Adam

import workbench as wb
from tests.conftest import some_of
from tests.data.test_oblivious import Trace
from tests.fitting.test_units import own_intercepts, own_intercepts_guide
from workbench import ArgumentError
from workbench.data import units
from workbench.data.storage.reading import READINGS
from workbench.fitting.groups import grouped
from workbench.inference import bringing
from workbench.inference.units import UnitRows
from workbench.ledger.reservation import LedgerWarning
from workbench.noise.chacha20 import key_from_seed

PLAN = {"epsilon": 1.0, "delta": 1e-5, "iterations": 40, "sampling_rate": 0.1, "clip": 2.0}
DECLARED = {"target": "ill", "bounds": (-1, 1), "unit_id": "patient_id", "max_rows": 5}
SAMPLERS = ("poisson", "without_replacement", "random_allocation", "shuffle")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    return tmp_path


def table(num_persons=300, most=9, seed=0, lowest=1):
    rng = np.random.default_rng(seed)
    ids = rng.permutation(
        np.repeat(np.arange(num_persons), rng.integers(lowest, most + 1, num_persons))
    )
    x = rng.uniform(-1, 1, (len(ids), 2))
    ill = rng.random(len(ids)) < 1 / (1 + np.exp(-2 * x[:, 0]))
    return pd.DataFrame({"patient_id": ids, "a": x[:, 0], "b": x[:, 1], "ill": ill})


def packed(name="t", frame=None, **options):
    (table() if frame is None else frame).to_parquet(f"{name}.parquet")
    wb.data.pack(
        f"{name}.parquet",
        f"{name}.wbr",
        encrypt=True,
        key_file="k",
        block_size=2**16,
        **{**DECLARED, **options},
    )


def in_memory(**options):
    return wb.data.from_parquet("t.parquet", **{**DECLARED, **options})


def opened(reading, name="t"):
    return wb.data.open(f"{name}.wbr", key_file="k", reading=reading, memory=1 / 64, unit="patient")


def same(one, other):
    assert one.status == other.status == "done", (one.message, other.message)
    assert one.params.keys() == other.params.keys()
    for name, value in one.params.items():
        np.testing.assert_array_equal(value, other.params[name])


@pytest.fixture
def one_stratum(monkeypatch):
    """Persons in memory are computed as those of a file are: all with room for ``max_rows`` rows,
    in one order.
    """
    monkeypatch.setattr(units, "strata_widths", lambda max_rows: (max_rows,))


@pytest.mark.thorough
@pytest.mark.parametrize("mean", some_of((False, True)))
@pytest.mark.parametrize("sampler", some_of(SAMPLERS, 4))
def test_a_fit_from_the_file_is_the_fit_from_memory(sampler, mean, one_stratum, monkeypatch):
    monkeypatch.setattr(bringing, "_MOST_STEPS", 7)  # so that blocks end elsewhere than chunks
    packed(unit_mean=mean)
    plan = {**PLAN, "sampler": sampler, "seed": 1, "ledger": False, "evaluate_private": True}
    known = wb.fit("logistic", in_memory(unit_mean=mean), **grouped(plan))
    for reading in READINGS if sampler != "shuffle" else READINGS[:2]:
        found = wb.fit("logistic", opened(reading), **grouped(plan))
        same(known, found)
        assert found.metrics == known.metrics
        promised = found.guarantee
        assert (promised.unit, promised.max_rows) == ("patient", 5)
        assert promised.against_storage == (reading != "direct")
        assert ("observer of the storage" in promised.statement()) == (reading != "direct")
        if reading != "oblivious":  # which is charged for cells that might overflow
            assert dataclasses.replace(promised, against_storage=False) == known.guarantee


@pytest.mark.thorough
def test_strata_and_one_stratum_differ_by_rounding_where_all_are_drawn():
    """With everybody in every step, it does not matter in which order they are drawn. Noise and
    draws are the same.
    """
    packed()
    plan = {
        **PLAN,
        "epsilon": 20.0,
        "iterations": 30,
        "sampling_rate": 1.0,
        "seed": 1,
        "ledger": False,
    }
    one, other = (
        wb.fit("logistic", data, **grouped(plan)) for data in (in_memory(), opened("direct"))
    )
    assert in_memory().units.widths == (5, 2, 1)
    for name, value in one.params.items():
        np.testing.assert_allclose(value, other.params[name], atol=1e-5)
    assert one.guarantee == other.guarantee


@pytest.mark.thorough
@pytest.mark.parametrize("reading", ["oblivious", "direct", "memory"])
def test_models_of_whole_persons_take_them_from_the_file(reading):
    packed()
    own = wb.models.Model(
        "own", "Own intercepts.", own_intercepts, own_intercepts_guide, arrays=("x", "present", "y")
    )
    plan = {**PLAN, "seed": 1, "ledger": False}
    same(*(wb.fit(own, data, **grouped(plan)) for data in (in_memory(), opened(reading))))


@pytest.mark.thorough
def test_the_core_takes_whole_persons_from_the_file_and_no_rows_of_them():
    packed()
    ends = []
    for data in (in_memory(), opened("oblivious")):
        dpvi = wb.inference.DPVI(
            own_intercepts,
            own_intercepts_guide,
            Adam(0.05),
            epsilon=1.0,
            iterations=20,
            sampling_rate=0.1,
        )
        ends.append(
            dpvi.run(
                key_from_seed(1), 20, *data.select(("x", "present", "y")).train, progress_bar=False
            )
        )
    for name, value in ends[0].params.items():
        np.testing.assert_array_equal(value, ends[1].params[name])
    model = wb.models.get("logistic")
    dpvi = wb.inference.DPVI(
        model.model, model.new_guide(), Adam(0.05), epsilon=1.0, iterations=20, sampling_rate=0.1
    )
    with pytest.raises(ArgumentError, match="are the rows of units in a file"):
        dpvi.run(key_from_seed(2), 20, *opened("direct").train, progress_bar=False)


@pytest.mark.thorough
@pytest.mark.parametrize("reading", some_of(["oblivious", "memory"]))
def test_fits_of_tables_with_other_numbers_of_rows_leave_one_trace(
    reading, monkeypatch, made_up_steps
):
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs Linux's list of open files")
    plan = {**PLAN, "iterations": 12, "checkpoint": False}
    traces, trace = [], Trace(monkeypatch)
    for name, most, lowest in (("few", 2, 1), ("many", 30, 20), ("some", 5, 5)):
        held = table(50, 3, lowest=2).assign(patient_id=lambda frame: frame["patient_id"] + 10**6)
        held.to_parquet("held.parquet")
        packed(name, table(300, most, lowest=lowest), evaluation="held.parquet")
        for ledger in (False, f"{name}.db"):
            run = functools.partial(wb.fit, "logistic", ledger=ledger, **grouped(plan))
            traces.append(trace.of(lambda run=run, name=name: run(opened(reading, name))))
    assert traces[0] == traces[2] == traces[4]
    assert traces[1] == traces[3] == traces[5]
    assert len(traces[0]) > 3


@pytest.mark.thorough
def test_a_fit_that_was_stopped_resumes_bit_for_bit():
    packed()
    plan = {**PLAN, "iterations": 100, "seed": 5}
    whole = wb.fit(
        "logistic", opened("oblivious"), ledger=False, **grouped(checkpoint=False, **plan)
    )
    taken = []
    stop = {
        "on_snapshot": lambda snapshot: taken.append(snapshot.step),
        "stop": lambda: len(taken) > 1,
    }
    assert (
        wb.fit("logistic", opened("oblivious"), ledger=False, **grouped(**plan, **stop)).status
        == "cancelled"
    )
    (folder,) = (Path("state") / "runs").iterdir()
    with pytest.raises(ArgumentError, match=r"^data='t': was read so far so that an observer"):
        wb.resume(folder, model="logistic", data=opened("direct"))
    again = wb.resume(folder, model="logistic", data=opened("oblivious"))
    same(whole, again)
    assert again.guarantee.against_storage


@pytest.mark.thorough
def test_the_ledger_knows_the_persons_in_the_file(made_up_steps):
    packed()
    ledger = wb.ledger.Ledger("ledger.db")
    for data in (in_memory(), *(opened(reading) for reading in READINGS)):
        assert (
            wb.fit("logistic", data, **{**PLAN, "iterations": 5}, ledger="ledger.db").status
            == "done"
        )
    (known,) = ledger.datasets()
    assert known.unit == "patient"
    rows = wb.data.from_parquet("t.parquet", target="ill", bounds=(-1, 1), features=["a", "b"])
    with pytest.warns(LedgerWarning, match="also called 't'"):
        wb.fit("logistic", rows, **{**PLAN, "iterations": 5}, ledger="ledger.db")
    assert len(ledger.datasets()) == 2


def test_a_person_who_is_missing_leaves_an_empty_place():
    """What is computed for the others is the same, bit for bit, and so is a place that the file
    brings as zeros.
    """
    whole = UnitRows((5,))
    rng = np.random.default_rng(0)
    counts = np.array([3, 5, 1, 2], np.int32)
    rows = rng.normal(size=(counts.sum(), 2)).astype(np.float32)
    brought = units.padded((rows,), counts, 5)
    without = [array.copy() for array in brought]
    for array in without:
        array[1] = 0
    found, left = (whole.in_rows(tuple(map(jnp.asarray, arrays))) for arrays in (brought, without))
    np.testing.assert_array_equal(found[-1], counts)
    np.testing.assert_array_equal(left[-1], [3, 0, 1, 2])
    for first, count, of_person in zip(
        *map(np.asarray, found[1:]), np.split(rows, np.cumsum(counts)[:-1]), strict=True
    ):
        np.testing.assert_array_equal(np.asarray(found[0])[first : first + count], of_person)
    others = [0, 2, 3]
    np.testing.assert_array_equal(np.asarray(found[1])[others], np.asarray(left[1])[others])
