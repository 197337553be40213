"""Files of persons with several rows: what is in memory, packed part by part, and of one size
whoever has how many rows.
"""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.cli.main import main
from workbench.data.storage import packing, persons
from workbench.data.storage.persons import Persons
from workbench.ledger.fingerprint import fingerprint

SCHEMA = {"age": (18, 100), "dose": (0, 4), "sex": ["f", "m"]}
OPTIONS = {"target": "ill", "schema": SCHEMA, "unit_id": "patient_id", "max_rows": 5}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(packing, "_ROWS", 700)  # so that there are many parts, merges and buckets
    monkeypatch.setattr(persons, "_MERGED", 50)
    monkeypatch.setattr(persons, "_BUCKET", 20_000)
    return tmp_path


def table(num_persons=300, most=12, seed=0, identifier=int):
    """Rows in no order, and persons who are equal but for their names."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(num_persons), rng.integers(1, most + 1, num_persons)))
    frame = pd.DataFrame(
        {"age": rng.integers(20, 90, num_persons)[who], "dose": rng.integers(0, 5, len(who))}
    )
    frame["sex"], frame["ill"] = rng.choice(["f", "m"], len(who)), rng.random(len(who)) < 0.3
    frame["patient_id"] = who
    twins = [
        frame[frame.patient_id < count].assign(patient_id=lambda f: f.patient_id + 1000)
        for count in (30, 10)
    ]
    twins[1]["patient_id"] += 1000
    whole = pd.concat([frame, *twins], ignore_index=True)
    return whole.assign(patient_id=whole["patient_id"].map(identifier))


def packed(frame=None, name="t", **options):
    (table() if frame is None else frame).to_parquet(f"{name}.parquet")
    declared = {**OPTIONS, **{each: value for each, value in options.items() if each != "capacity"}}
    wb.data.pack(
        f"{name}.parquet",
        f"{name}.wbr",
        encrypt=True,
        key_file="k",
        block_size=2**16,
        **{**declared, **({"capacity": options["capacity"]} if "capacity" in options else {})},
    )
    return declared


def opened(name="t", **options):
    return wb.data.open(f"{name}.wbr", key_file="k", **options)


def same(data, expected):
    """Whether rows, numbers of rows, and whole persons are the same."""
    assert (data.num_train, data.num_evaluation) == (expected.num_train, expected.num_evaluation)
    assert (data.units.max_rows, data.units.mean) == (expected.units.max_rows, expected.units.mean)
    assert fingerprint(data) == fingerprint(expected)
    data.check()
    pairs = list(
        zip((*data.train, *data.evaluation), (*expected.train, *expected.evaluation), strict=True)
    )
    pairs += [(data.units.counts, expected.units.counts)]
    if not expected.units.mean:
        views = [each.select(("x", "present", "y")) for each in (data, expected)]
        views[0].check()
        pairs += list(zip(*((*view.train, *view.evaluation) for view in views), strict=True))
    for found, known in pairs:
        assert found.dtype == known.dtype
        np.testing.assert_array_equal(np.asarray(found), known)


@pytest.mark.parametrize("max_rows", some_of([5, 1, 40]))
@pytest.mark.parametrize("identifier", some_of([int, "p{}".format], 2))
def test_packed_persons_are_those_in_memory(max_rows, identifier):
    declared = packed(table(identifier=identifier), max_rows=max_rows, unit_mean=max_rows == 1)
    expected = wb.data.from_parquet("t.parquet", **declared)
    for reading in ("memory", "direct"):
        same(opened(reading=reading), expected)


def test_identifiers_in_a_csv_file_are_text():
    # 7, 07 and 007
    frame = table().assign(
        patient_id=lambda f: f.patient_id.map(lambda n: f"{'0' * (n % 3)}{n // 3}")
    )
    frame.to_csv("t.csv", index=False)
    wb.data.pack("t.csv", "t.wbr", **OPTIONS)
    same(wb.data.open("t.wbr"), wb.data.from_csv("t.csv", **OPTIONS))


def test_persons_of_an_npz_and_of_another_table_for_evaluation():
    frame, others = table(seed=1), table(seed=2).assign(patient_id=lambda f: f.patient_id + 10_000)
    for name, each in (("a", frame), ("b", others)):
        each.to_parquet(f"{name}.parquet")
        np.savez(
            f"{name}.npz",
            x=np.ascontiguousarray(each[["age", "dose"]]),
            y=each["ill"].astype(int),
            patient_id=each["patient_id"],
        )
    wb.data.pack("a.parquet", "t.wbr", evaluation="b.parquet", **OPTIONS)
    same(wb.data.open("t.wbr"), wb.data.from_frame(frame, evaluation=others, **OPTIONS))
    of_arrays = {"bounds": (0, 100), "unit_id": "patient_id", "max_rows": 5}
    wb.data.pack("a.npz", "n.wbr", target="y", **of_arrays)
    same(wb.data.open("n.wbr"), wb.data.from_npz("a.npz", **of_arrays))
    with pytest.raises(ArgumentError, match="rows of one unit in both tables"):
        wb.data.pack("a.parquet", "u.wbr", evaluation="a.parquet", **OPTIONS)


def test_rows_that_are_left_out_may_leave_out_a_person():
    frame = table().astype({"age": float})
    frame.loc[frame["patient_id"] % 7 == 0, "age"] = np.nan
    frame.loc[::9, "age"] = np.nan
    declared = packed(frame, missing="drop")
    same(opened(), wb.data.from_parquet("t.parquet", **declared))


@pytest.mark.thorough
def test_a_person_with_very_many_rows():
    frame = table(100)
    many = pd.DataFrame(
        {"age": np.arange(10**5) % 60 + 20, "dose": 1, "sex": "f", "ill": True, "patient_id": 5000}
    )
    declared = packed(pd.concat([frame, many], ignore_index=True))
    same(opened(), wb.data.from_parquet("t.parquet", **declared))


def test_the_size_of_a_file_does_not_tell_how_many_rows_persons_have():
    sizes = set()
    for name, most, seed in (("few", 1, 1), ("many", 5, 2), ("some", 3, 3)):
        rng = np.random.default_rng(seed)
        frames = [
            table(600, most, seed),
            table(200, most, seed + 10).assign(patient_id=lambda f: f.patient_id + 10**6),
        ]
        for label, frame in zip((name, f"{name}-held"), frames, strict=True):
            one_more = frame[frame["patient_id"] == frame["patient_id"].iloc[0]].head(1)
            shuffled = pd.concat([frame, one_more], ignore_index=True).sample(
                frac=1, random_state=rng.integers(100)
            )
            shuffled.to_parquet(f"{label}.parquet")
        wb.data.pack(
            f"{name}.parquet",
            f"{name}.wbr",
            evaluation=f"{name}-held.parquet",
            block_size=2**16,
            **OPTIONS,
        )
        sizes.add(Path(f"{name}.wbr").stat().st_size)
        assert wb.data.open(f"{name}.wbr").num_train == 640
    assert len(sizes) == 1


def test_a_capacity_counts_persons():
    frame = table()
    declared = packed(frame, capacity=600)
    same(opened(), wb.data.from_parquet("t.parquet", **declared))
    with pytest.raises(
        ArgumentError, match=r"^capacity=50: is less than the number of training records"
    ):
        packed(frame, "u", capacity=50)


def test_evaluation_rows_get_more_room_where_persons_have_far_more_than_max_rows():
    declared = packed(table(most=40), max_rows=2)
    same(opened(), wb.data.from_parquet("t.parquet", **declared))


def refused(frame, words, **options):
    with pytest.raises(ArgumentError, match=words):
        packed(frame, **options)
    assert not [name for name in os.listdir() if name.endswith((".wbr", ".partial", ".scratch"))]


def test_what_does_not_identify_is_refused():
    frame = table()
    refused(
        frame.assign(patient_id=frame["patient_id"].where(frame.index != 1500)),
        "unit_id.*missing values",
    )
    refused(frame.assign(patient_id=np.arange(len(frame))), "unit_id.*unique in every row")
    refused(frame.assign(patient_id=frame["patient_id"] + 0.5), "unit_id.*fractions")
    refused(frame, "unit_id='nobody'", unit_id="nobody")
    refused(frame, "max_rows=None", max_rows=None)
    refused(frame, "max_rows=0", max_rows=0)
    refused(frame, "unit_id='ill'", unit_id="ill")
    refused(frame, r"block_size=65536: is less than a record, \d+ bytes", max_rows=10_000)
    refused(table(2, 3)[lambda f: f["patient_id"] < 2], "evaluation_fraction")  # two persons


def test_identifiers_of_several_types_are_refused_wherever_they_are():
    parts = [pd.Series([1, 2, 2], name="id"), pd.Series(["1", "2", "3"], name="id")]
    with pytest.raises(ArgumentError, match=r"^unit_id='id': has values of several types"):
        Persons(parts)
    # 2 and 2.0 are one
    assert len(Persons([pd.Series([1, 2], name="id"), pd.Series([2.0, 3.0], name="id")])) == 3


def test_more_persons_than_may_be_packed_are_refused(monkeypatch):
    monkeypatch.setattr(persons, "_MOST_PERSONS", 100)
    refused(table(), "unit_id='patient_id': names more than 100 units")


@pytest.mark.parametrize("person", range(4))
def test_a_table_in_which_one_person_gets_a_row_meanwhile_is_refused(person, monkeypatch):
    frame, real = table(), packing._gathered
    row = frame[frame["patient_id"] == person].head(1)
    pd.concat([frame, row]).to_parquet("more.parquet")

    def late(*arguments):
        os.replace("more.parquet", "t.parquet")
        return real(*arguments)

    monkeypatch.setattr(packing, "_gathered", late)
    with pytest.raises(ArgumentError, match=r"^path='t.parquet': was changed while"):
        packed(frame)
    assert not Path("t.wbr").exists()


def test_a_disk_that_fills_with_scratch_leaves_nothing(monkeypatch):
    os_pwrite, written = os.pwrite, []

    def full(handle, content, offset):
        written.append(len(content))
        if sum(written) > 30_000:
            raise OSError(28, "No space left on device")
        return os_pwrite(handle, content, offset)

    monkeypatch.setattr(os, "pwrite", full)
    refused(table(), r"^out='t.wbr': cannot be written \(No space left on device\)")


def test_scratch_of_an_encrypted_file_shows_nothing(monkeypatch):
    os_pwrite, written = os.pwrite, []
    monkeypatch.setattr(
        os,
        "pwrite",
        lambda handle, content, at: (
            written.append(bytes(content)),
            os_pwrite(handle, content, at),
        )[1],
    )
    frame = table().assign(dose=3)
    packed(frame)
    encoded = np.float32(0.5).tobytes()  # of a dose of 3 between 0 and 4
    rows = np.asarray(opened().train[0])
    assert (rows[:, 1] == 0.5).all()
    assert not any(
        encoded * 2 in content or content.count(encoded) > 3
        for content in written
        if len(content) > 500
    )


def test_identifiers_are_kept_nowhere(monkeypatch):
    os_pwrite, written = os.pwrite, []

    def noted(handle, content, offset):
        written.append(bytes(content))
        return os_pwrite(handle, content, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    table(identifier="person-{}".format).to_parquet("t.parquet")
    wb.data.pack("t.parquet", "t.wbr", **OPTIONS)  # in the clear
    assert len(written) > 5
    assert not any(b"person-" in content for content in written)


def test_a_header_with_other_units_is_refused():
    packed()
    content = Path("t.wbr").read_bytes()
    for old, new in (
        (b'"max_rows": 5', b'"max_rows": 6'),
        (b'"max_rows": 5', b'"max_rows": 0'),
        (b'"mean": false', b'"mean":     7'),
    ):
        assert content.count(old) == 1
        Path("u.wbr").write_bytes(content.replace(old, new))
        with pytest.raises(ArgumentError, match=r"has a damaged header|instead of"):
            opened("u")


def test_who_opens_a_file_says_what_a_record_is():
    packed()
    assert (opened().unit, opened(unit="patient").unit) == ("unit", "patient")
    with pytest.raises(ArgumentError, match=r"^unit='': must be text"):
        opened(unit="")


def test_the_command_packs_persons(capsys):
    frame = table()
    frame.to_csv("t.csv", index=False)
    numbers = {
        name: {"kind": "numeric", "low": low, "high": high}
        for name, (low, high) in (("age", (18, 100)), ("dose", (0, 4)))
    }
    Path("columns.json").write_text(
        json.dumps({"patient_id": {"kind": "unit", "max_rows": 5}, **numbers, "sex": ["f", "m"]})
    )
    assert main(["pack", "t.csv", "--schema", "columns.json", "--target", "ill"]) == 0
    same(wb.data.open("t.wbr"), wb.data.from_csv("t.csv", **OPTIONS))
    given = [
        "--bounds",
        "age=18:100",
        "dose=0:4",
        "--features",
        "age",
        "dose",
        "--unit-id",
        "patient_id",
    ]
    assert (
        main(
            [
                "pack",
                "t.csv",
                "--out",
                "u.wbr",
                "--target",
                "ill",
                *given,
                "--max-rows",
                "3",
                "--unit-mean",
            ]
        )
        == 0
    )
    units = wb.data.open("u.wbr").units
    assert (units.max_rows, units.mean) == (3, True)
