"""Sweeps of records that stay in a file: its fits are single fits, one after another."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.cli.main import main
from workbench.fitting.groups import grouped
from workbench.sweeps import plan_file
from workbench.sweeps.request import LISTS

PLAN = {"delta": 1e-5, "iterations": 40, "sampling_rates": 0.1, "ledger": False}
ASKED = {"model": "logistic", "epsilons": [1.0, 4.0], "accept_total_epsilon": 20.0}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"id": np.arange(900) // 3, "a": rng.uniform(0, 1, 900), "b": rng.uniform(0, 1, 900)}
    )
    frame.assign(ill=rng.random(900) < frame["a"]).to_parquet("t.parquet")


def opened(reading, public=False, **options):
    declared = {"target": "ill", "bounds": (0, 1), "features": ["a", "b"], **options}
    if not Path("t.wbr").exists():
        wb.data.pack("t.parquet", "t.wbr", encrypt=True, key_file="k", block_size=2**16, **declared)
    data = wb.data.open("t.wbr", key_file="k", reading=reading)
    return dataclasses.replace(data, is_public=True, evaluation_is_public=True) if public else data


@pytest.mark.thorough
@pytest.mark.parametrize("reading", ["oblivious", "direct"])
@pytest.mark.parametrize("units", [{"unit_id": "id", "max_rows": 2}, {}])
def test_fits_of_a_sweep_are_single_fits_bit_for_bit(reading, units):
    data = opened(reading, public=True, **units)
    result = wb.sweep(data=data, seeds=[1, 2], **ASKED, **PLAN)
    assert list(result.table["status"]) == ["done"] * 4
    for number in (0, 3):
        single = wb.fit("logistic", data, **result.settings_of(number), ledger=False)
        found = result.fit(number)
        for name, value in single.params.items():
            np.testing.assert_array_equal(value, found.params[name])
        assert found.metrics == single.metrics
        assert found.guarantee == single.guarantee
        assert found.guarantee.against_storage == (reading == "oblivious")
        for name, draws in single.draws.items():
            np.testing.assert_array_equal(draws, found.draws[name])


@pytest.mark.thorough
def test_baselines_of_records_in_a_file_are_those_of_memory():
    asked = {
        "baselines": ["non-private", "scikit-learn"],
        "epsilons": 1.0,
        "seeds": [1],
        "model": "logistic",
    }
    tables = [
        wb.sweep(
            data=opened(reading, public=True), **PLAN, **grouped(asked, direct=LISTS)
        ).table.set_index("method")
        for reading in ("memory", "direct")
    ]
    for method in ("dp-vi", "non-private", "scikit-learn"):
        assert tables[0]["auc"][method] == pytest.approx(tables[1]["auc"][method], abs=1e-4)


@pytest.mark.thorough
def test_a_stopped_sweep_goes_on_and_the_ledger_counts_each_fit_once():
    asked = {**ASKED, **PLAN, "seeds": 2, "store": "store.sqlite", "ledger": "ledger.db"}
    ended = []

    def note(progress):
        ended.extend(progress.newest)

    part = wb.sweep(
        data=opened("direct"),
        on_progress=note,
        **grouped({"stop": lambda: len(ended) > 0, **asked}, direct=LISTS),
    )
    assert part.status == "stopped"
    assert list(part.table["status"]) == ["done"]
    whole = wb.sweep(data=opened("oblivious"), **grouped(asked, direct=LISTS))
    assert list(whole.table["status"]) == ["done"] * 4
    promised = [whole.fit(number).guarantee.against_storage for number in range(4)]
    # the first one's reads were seen, whoever asks for it
    assert sorted(promised) == [False, True, True, True]
    spends = wb.ledger.Ledger("ledger.db").spends()
    assert [spend.reached for spend in spends if spend.reached] == [40] * 4


@pytest.mark.thorough
def test_evaluation_records_that_do_not_fit_into_memory_are_refused_before_a_step_is_taken():
    data = opened("direct")
    data.stored.memory = data.evaluation[0].most_bytes - 1
    asked = {**ASKED, **PLAN, "data": data, "evaluate_private": True, "ledger": "ledger.db"}
    result = wb.sweep(**grouped(asked, direct=LISTS))
    assert list(result.table["status"]) == ["refused"] * 2
    assert result.table["message"][0].startswith("memory=")
    assert [spend.reached for spend in wb.ledger.Ledger("ledger.db").spends()] == [0] * 2


@pytest.mark.thorough
def test_what_other_processes_or_devices_would_need_is_refused():
    asked = {"data": opened("direct"), **ASKED, **PLAN}
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(ArgumentError, match=r"^executor=.*stay in a file of this process"),
    ):
        wb.sweep(executor=pool, **grouped(asked, direct=LISTS))
    with pytest.raises(ArgumentError, match=r"^devices=.*one fit after another"):
        wb.sweep(**grouped({"devices": "all", **asked}, direct=LISTS))


@pytest.mark.thorough
def test_the_command_names_a_file_for_a_plan_without_data(capsys):
    opened("direct")
    Path("plan.yaml").write_text("model: logistic\nepsilons: [1, 2]\niterations: 20\n")
    words = [
        "sweep",
        "plan.yaml",
        "--data",
        "t.wbr",
        "--key-file",
        "k",
        "--reading",
        "oblivious",
        "--dry-run",
    ]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("2 fits: 0 in the store, 2 to run")
    Path("plan.yaml").write_text("model: logistic\nepsilons: [1, 2]\ndata: breast_cancer\n")
    assert main(words) == 2
    assert "the plan names data too" in capsys.readouterr().err
    assert main(["sweep", "plan.yaml", "--reading", "oblivious"]) == 2
    assert "reading='oblivious': is for --data" in capsys.readouterr().err


def test_a_plan_names_a_file_and_how_it_is_read():
    opened("direct")
    folder = Path("plans")
    folder.mkdir()
    for name in ("t.wbr", "k"):
        Path(name).rename(folder / name)
    plan = folder / "plan.yaml"
    words = (
        "model: logistic\nepsilons: [1, 2]\ndata: {file: t.wbr, key_file: k, reading: oblivious, "
        "memory: 0.25"
    )
    plan.write_text(f"{words}}}\n")
    data = plan_file.read(plan)["data"]
    assert data.stored.reading == "oblivious"
    assert data.stored.memory == 2**28
    plan.write_text(f"{words}, target: ill}}\n")
    with pytest.raises(ArgumentError, match=r"^data='target'"):
        plan_file.read(plan)
