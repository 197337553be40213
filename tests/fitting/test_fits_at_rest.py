"""Fits of records that stay in a file: the same bits as from memory, resumed too; what is altered
meanwhile ends them.
"""

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpyro.optim import Adam

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.fitting.groups import grouped
from workbench.inference import bringing
from workbench.ledger.fingerprint import fingerprint
from workbench.noise.chacha20 import key_from_seed

pytestmark = pytest.mark.usefixtures("at_home")
PLAN = {"epsilon": 1.0, "delta": 1e-5, "iterations": 60, "sampling_rate": 0.05}
SAMPLERS = ("poisson", "random_allocation", "without_replacement", "shuffle")


@pytest.fixture
def at_home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (900, 3)), columns=list("abc"))
    frame["ill"] = rng.random(900) < frame["a"]
    frame["ward"] = rng.choice(["n", "s"], 900)
    frame.to_parquet("t.parquet")


DECLARED = {"target": "ill", "bounds": (0, 1), "features": list("abc")}


def packed(encrypt=True, **options):
    declared = {**DECLARED, **options}
    wb.data.pack(
        "t.parquet",
        "t.wbr",
        encrypt=encrypt,
        key_file="k" if encrypt else None,
        block_size=2**16,
        **declared,
    )
    return wb.data.from_parquet("t.parquet", **declared)


def opened(reading, encrypt=True, **options):
    return wb.data.open("t.wbr", key_file="k" if encrypt else None, reading=reading, **options)


def same(one, other):
    assert one.status == other.status == "done", (one.message, other.message)
    assert one.params.keys() == other.params.keys()
    for name, value in one.params.items():
        np.testing.assert_array_equal(value, other.params[name])


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", some_of(SAMPLERS, len(SAMPLERS)))
@pytest.mark.parametrize("encrypt", some_of((True, False)))
def test_a_fit_from_the_file_is_the_fit_from_memory(sampler, encrypt, monkeypatch):
    monkeypatch.setattr(bringing, "_MOST_STEPS", 7)  # so that blocks end elsewhere than chunks
    in_memory = packed(encrypt)
    plan = {**PLAN, "sampler": sampler, "seed": 1, "ledger": False, "evaluate_private": True}
    one, other = (
        wb.fit("logistic", data, **grouped(plan)) for data in (in_memory, opened("direct", encrypt))
    )
    same(one, other)
    assert one.metrics == other.metrics
    assert one.guarantee == other.guarantee


@pytest.mark.thorough
def test_groups_and_several_draws_are_the_same():
    in_memory = packed(group="ward", groups=["n", "s"])
    plan = {**PLAN, "seed": 1, "ledger": False, "iterations": 30}
    same(
        *(
            wb.fit("hierarchical_logistic", data, **grouped(plan))
            for data in (in_memory, opened("direct"))
        )
    )


@pytest.mark.thorough
def test_a_fit_that_was_stopped_resumes_bit_for_bit():
    packed()
    plan = {**PLAN, "iterations": 120, "seed": 5}
    whole = wb.fit("logistic", opened("direct"), ledger=False, **grouped(checkpoint=False, **plan))
    taken = []
    part = wb.fit(
        "logistic",
        opened("direct"),
        **grouped(on_snapshot=lambda s: taken.append(s.step), stop=lambda: len(taken) > 1, **plan),
    )
    assert part.status == "cancelled"
    assert 0 < part.guarantee.steps_taken < 120
    (folder,) = (Path("state") / "runs").iterdir()
    same(whole, wb.resume(folder, model="logistic", data=opened("direct")))


def stopped(data, folder, **plan):
    """A fit that was stopped after its first steps."""
    taken = []
    stop = {
        "on_snapshot": lambda snapshot: taken.append(snapshot.step),
        "stop": lambda: len(taken) > 1,
    }
    return wb.fit(
        "logistic", data, **PLAN, ledger=False, **grouped(checkpoint=folder, **plan, **stop)
    )


@pytest.mark.thorough
def test_steps_whose_reads_were_seen_stay_seen_when_a_fit_is_resumed():
    packed()
    part = stopped(opened("direct"), "runs/seen")
    assert 0 < part.guarantee.steps_taken < PLAN["iterations"]
    for reading in ("oblivious", "direct"):  # the second time it is finished
        result = wb.resume("runs/seen", model="logistic", data=opened(reading))
        assert result.status == "done"
        assert not result.guarantee.against_storage
        assert "observer of the storage" not in result.guarantee.statement()


@pytest.mark.thorough
def test_steps_whose_reads_were_hidden_are_not_followed_by_others():
    packed()
    assert stopped(opened("oblivious"), "runs/hidden").guarantee.against_storage
    with pytest.raises(ArgumentError, match=r"^data='t': was read so far so that an observer"):
        wb.resume("runs/hidden", model="logistic", data=opened("direct"))
    again = wb.resume("runs/hidden", model="logistic", data=opened("oblivious"))
    assert again.status == "done"
    assert again.guarantee.against_storage


@pytest.mark.thorough
def test_the_ledger_knows_the_file_as_the_table():
    in_memory = packed()
    ledger = wb.ledger.Ledger("ledger.db")
    for data in (in_memory, opened("direct")):
        assert (
            wb.fit("logistic", data, **{**PLAN, "iterations": 5}, ledger="ledger.db").status
            == "done"
        )
    assert fingerprint(in_memory) == fingerprint(opened("direct"))
    assert len(ledger.datasets()) == 1


def test_a_file_that_is_altered_while_it_is_read_ends_the_fit(made_up_steps):
    packed()
    data = opened("direct")
    start = data.stored.opened.section(1).start

    def alter(snapshot):
        if snapshot.step:
            content = bytearray(Path("t.wbr").read_bytes())
            content[start + 100] ^= 1
            with Path("t.wbr").open("r+b") as file:
                file.write(content)

    result = wb.fit(
        "logistic",
        data,
        **{**PLAN, "iterations": 2000},
        ledger=False,
        execution=wb.Execution(on_snapshot=alter),
    )
    assert result.status == "failed"
    assert "was altered" in result.message
    assert result.guarantee.steps_taken < 2000
    assert all(np.isfinite(value).all() for value in result.params.values())


@pytest.mark.thorough
def test_what_needs_all_records_says_so():
    packed()
    data = opened("direct")
    data.stored.memory = 100  # bytes
    with pytest.raises(ArgumentError, match="takes all records at once"):
        np.asarray(data.train[0])
    with pytest.raises(ArgumentError, match="cannot be reduced for records that stay in a file"):
        data.subset(50)
    # with a ledger, which knows it
    assert wb.fit("logistic", data, **{**PLAN, "iterations": 5}).status == "done"


@pytest.mark.thorough
def test_other_processes_take_records_that_were_read_into_memory():
    in_memory = packed()
    data = opened("memory")
    assert pickle.loads(pickle.dumps(data)).stored == data.stored
    np.testing.assert_array_equal(data.train[0], in_memory.train[0])


@pytest.mark.thorough
def test_the_core_takes_records_from_the_file():
    in_memory = packed()
    model = wb.models.get("logistic")
    ends = []
    for data in (in_memory, opened("direct"), opened("oblivious")):
        dpvi = wb.inference.DPVI(
            model.model,
            model.new_guide(),
            Adam(0.05),
            epsilon=1.0,
            iterations=30,
            sampling_rate=0.1,
        )
        ends.append(dpvi.run(key_from_seed(11), 30, *data.train, progress_bar=False))
    for end in ends[1:]:
        assert end.status == "done"
        for name, value in ends[0].params.items():
            np.testing.assert_array_equal(value, end.params[name])
