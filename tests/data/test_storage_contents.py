"""Records in the clear that somebody wrote by hand, with right checksums, are refused before
epsilon is spent on them.
"""

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench.data.storage.blocks import Checksum, RecordsError
from workbench.data.storage.form import EVALUATION, ROWS, TRAIN
from workbench.ledger.ledger import Ledger

N = 4000
SCHEMA = {"age": wb.data.Numeric(0, 120, missing=True), "sex": ["f", "m", "x"], "smoker": bool}
SEVERAL_ROWS = {"unit_id": "who", "max_rows": 3}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))


def packed(**options):
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.integers(0, 100, N),
        "smoker": rng.random(N) < 0.3,
        "ill": rng.integers(0, 2, N),
    }
    columns |= {name: rng.choice(["f", "m", "x"], N) for name in ("sex", "ward")}
    columns |= {"who": rng.integers(0, N // 2, N), "cost": rng.uniform(0, 10, N)}
    pd.DataFrame(columns).to_parquet("t.parquet")
    return wb.data.pack(
        "t.parquet", "t.wbr", **{"target": "ill", "schema": SCHEMA, "block_size": 2**16, **options}
    )


def forge(change, part=TRAIN):
    """Change the first records of a file, and write the checksum that anybody can compute."""
    stored = wb.data.open(
        "t.wbr", reading="direct"
    ).stored  # which closes the file where it is deleted
    opened = stored.opened
    blocks, form = opened.section(part), opened.form
    records = np.frombuffer(bytes(blocks.read(0)), *form.of_section(part)).copy()
    change(records)
    guarded = Checksum(form.file_id).close(part, 0, records.tobytes().ljust(blocks.size, b"\0"))
    with open("t.wbr", "r+b") as file:
        file.seek(blocks.start)
        file.write(guarded)


def put(name, place, value):
    return lambda records: records[name].__setitem__(place, value)


AGE, IS_MISSING, SEX_M, SEX_X, SMOKER = range(5)
CASES = {
    "not a number": ({}, put("x", (0, AGE), np.nan)),
    "outside the bounds": ({}, put("x", (1, AGE), 1.001)),
    "half missing": ({}, put("x", (0, IS_MISSING), 0.5)),
    "half a level": ({}, put("x", (0, SEX_M), 0.5)),
    "two levels": ({}, put("x", (0, slice(SEX_M, SEX_X + 1)), 1)),
    "neither yes nor no": ({}, put("x", (0, SMOKER), 0)),
    "no class": ({}, put("y", 0, 2)),
    "a class below 0": ({}, put("y", 0, -1)),
    "a target outside its bounds": (
        {"target": "cost", "target_bounds": (0, 10)},
        put("y", 3, 10.01),
    ),
    "a target that is infinite": (
        {"target": "cost", "target_bounds": (0, 10)},
        put("y", 3, np.inf),
    ),
    "no group": ({"group": "ward", "groups": ["f", "m", "x"]}, put("group", 0, 3)),
    "a row that weighs more": (SEVERAL_ROWS, put("present", (0, 0), 7)),
    "nobody": (SEVERAL_ROWS, put("present", 0, 0)),
    "a gap": (SEVERAL_ROWS, put("present", 0, (1, 0, 1))),
    "a row more": (SEVERAL_ROWS, put("present", slice(0, 9), 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_records_that_contradict_their_declarations_are_refused(case, made_up_steps):
    options, change = CASES[case]
    packed(**options)
    forge(lambda records: None)
    whole = wb.data.open("t.wbr", reading="memory")
    assert whole.num_train > 1000  # so what follows is refused for its records
    forge(change)
    with pytest.raises(
        RecordsError, match=r"contradicts its own declarations|another number of rows"
    ):
        wb.data.open("t.wbr", reading="memory")
    data, ledger = wb.data.open("t.wbr", reading="direct"), Ledger("ledger.db")
    if case != "a row more":  # which no record shows alone
        for _ in range(2):
            with pytest.raises(RecordsError, match="contradicts its own declarations"):
                data.stored.take(np.arange(5))
    model = "gmm" if "target" in options else "logistic"
    with pytest.raises(RecordsError):
        wb.fit(model, data, epsilon=1.0, delta=1e-5, iterations=4, ledger=ledger)
    assert ledger.datasets() == []


@pytest.mark.parametrize(
    "change",
    [put(ROWS, 0, -1), put(ROWS, 0, 10**6), put("x", (0, AGE), 2), put("y", 0, 5)],
    ids=["-1", "many", "x", "y"],
)
def test_evaluation_records_that_contradict_their_declarations_are_refused(change):
    packed(**SEVERAL_ROWS, evaluation_fraction=0.3)
    assert wb.data.open("t.wbr", reading="memory").num_evaluation > 500
    forge(change, EVALUATION)
    for reading in ("memory", "direct"):
        with pytest.raises(
            RecordsError, match=r"contradicts its own declarations|another number of rows"
        ):
            np.asarray(wb.data.open("t.wbr", reading=reading).evaluation[0])


def test_every_encoding_is_allowed():
    """Levels with and without a reference and "(other)", gaps, and numbers at and beyond their
    bounds.
    """
    schema = {
        "a": wb.data.Numeric(-1, 3, missing=True),
        "b": wb.data.Categorical(["f", "m"], reference=None),
        "c": wb.data.Categorical(["f"], other=True),
        "d": wb.data.Boolean(),
        "e": wb.data.Categorical(["only"]),
    }
    rng = np.random.default_rng(1)
    columns = {"a": rng.choice([-9, -1, 0.3, 3, 1e300, np.nan], N), "b": rng.choice(["f", "m"], N)}
    columns |= {"c": rng.choice(["f", "q"], N), "d": rng.random(N) < 0.5, "e": "only"}
    frame = pd.DataFrame({**columns, "y": rng.choice([-1e9, 0.1, 0.7, 1e9], N)})
    frame.to_parquet("t.parquet")
    options = {
        "target": "y",
        "target_bounds": (0.1, 0.7),
        "schema": schema,
        "evaluation_fraction": 0.2,
    }
    wb.data.pack("t.parquet", "t.wbr", block_size=2**16, **options)
    one, other = (wb.data.open("t.wbr", reading=reading) for reading in ("memory", "direct"))
    assert len(one.train[0]) == len(other.stored.take(np.arange(one.num_train)))
