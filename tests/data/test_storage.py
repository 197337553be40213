"""Files of records: what is packed is what is in memory, and what was altered is refused."""

import base64
import dataclasses
import errno
import fcntl
import functools
import hashlib
import inspect
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench.cli.fit import fit_arguments, fit_words
from workbench.cli.main import main
from workbench.cli.table import dataset
from workbench.data.storage import blocks, form, keys, packing
from workbench.data.storage.blocks import Checksum, RecordsError, Seal, file_key
from workbench.data.storage.reading import READINGS, open_records
from workbench.ledger.fingerprint import fingerprint

N = 3000
SCHEMA = {"age": (0, 120), "sex": ["f", "m", "x"], "smoker": bool}
OPTIONS = {"target": "ill", "schema": SCHEMA}
SMALL = {"block_size": 2**16}


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "state"))
    return tmp_path


def table(num_rows=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 100, num_rows),
            "sex": rng.choice(["f", "m", "x"], num_rows),
            "smoker": rng.random(num_rows) < 0.3,
            "ill": rng.integers(0, 2, num_rows),
        }
    )
    # equal records are numbered by the split
    return pd.concat([frame, frame[: num_rows // 10]], ignore_index=True)


def same(one, other):
    sides = [
        [np.asarray(array) for array in (*data.train, *data.evaluation)] for data in (one, other)
    ]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(*sides, strict=True))


def packed(encrypt=True, out="t.wbr", frame=None, **options):
    (table() if frame is None else frame).to_parquet("t.parquet")
    key = {"key_file": "k"} if encrypt else {}
    return wb.data.pack("t.parquet", out, encrypt=encrypt, **{**key, **OPTIONS, **SMALL, **options})


def opened(path="t.wbr", **options):
    return wb.data.open(path, **{"key_file": "k", **options})


# --- what is packed -------------------------------------------------------------------------------


@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_a_packed_table_is_the_table_in_memory(suffix, encrypt, monkeypatch):
    monkeypatch.setattr(packing, "_ROWS", 257)
    path = f"t{suffix}"
    table().to_parquet(path) if suffix == ".parquet" else table().to_csv(path, index=False)
    in_memory = wb.data.from_file(path, **OPTIONS)
    wb.data.pack(
        path, "t.wbr", encrypt=encrypt, key_file="k" if encrypt else None, **OPTIONS, **SMALL
    )
    for reading in ("memory", "direct"):
        data = opened(reading=reading, key_file="k" if encrypt else None)
        assert same(data, in_memory)
        assert data.declarations() == in_memory.declarations()
        assert (data.name, data.classes, data.schema) == ("t", in_memory.classes, in_memory.schema)
        assert fingerprint(data) == fingerprint(in_memory)
        data.check()


def test_arrays_with_groups_and_bounds_are_packed(monkeypatch):
    monkeypatch.setattr(packing, "_ROWS", 100)
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.random((500, 3)),
        "y": rng.integers(0, 2, 500),
        "group": rng.integers(0, 4, 500),
    }
    np.savez_compressed("a.npz", **arrays)
    options = {"bounds": (0, 1), "groups": [0, 1, 2, 3]}
    in_memory = wb.data.from_npz("a.npz", **options)
    wb.data.pack("a.npz", "a.wbr", target="y", group="group", **options)
    data = wb.data.open("a.wbr")
    assert same(data, in_memory)
    assert data.groups == in_memory.groups
    np.testing.assert_array_equal(data.group_features, in_memory.group_features)


@pytest.mark.parametrize(
    "target",
    [{"target": "income", "target_bounds": (0, 1000)}, {"target": "income", "threshold": 300.0}],
)
def test_all_that_is_declared_is_in_the_file(target):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 100, N), "income": rng.uniform(0, 1000, N)})
    options, of_privacy = (
        {"bounds": {"age": (0, 120)}, "name": "claims", **target},
        {"unit": "household"},
    )
    of_privacy["evaluation_is_public"] = True
    frame.to_parquet("t.parquet")
    wb.data.pack("t.parquet", "t.wbr", **options)
    in_memory = wb.data.from_parquet("t.parquet", **options, **of_privacy)
    data = opened(key_file=None, **of_privacy)
    for each in dataclasses.fields(in_memory):
        if each.name not in ("train", "evaluation", "stored"):
            assert getattr(data, each.name) == getattr(in_memory, each.name), each.name
    assert fingerprint(data) == fingerprint(in_memory)


def test_a_file_says_nothing_about_privacy():
    packed(False)
    data = opened(key_file=None)
    assert (data.unit, data.is_public, data.evaluation_is_public) == (
        "training record",
        False,
        False,
    )
    for option in ({"unit": "household"}, {"evaluation_is_public": True}):
        with pytest.raises(
            ArgumentError, match=rf"^{next(iter(option))}=.*say it where you open it"
        ):
            packed(False, out="u.wbr", **option)


def test_an_option_that_no_table_has_is_named():
    with pytest.raises(ArgumentError, match=r"^columns=\['age'\]: unknown option; known: bounds,"):
        packed(False, out="u.wbr", columns=["age"])


def test_missing_values_and_evaluation_records_of_another_table():
    frame, other = table(), table(seed=1)
    frame = frame.astype({"age": float})
    frame.loc[::7, "age"] = np.nan
    other.to_parquet("e.parquet")
    packed(frame=frame, evaluation="e.parquet", missing="drop")
    assert same(opened(), wb.data.from_frame(frame, evaluation=other, missing="drop", **OPTIONS))


def test_equal_records_are_numbered_in_as_many_passes_as_memory_takes(monkeypatch):
    monkeypatch.setattr(packing, "_MOST_COUNTED", 500)
    monkeypatch.setattr(packing, "_ROWS", 300)
    frame = pd.DataFrame({"age": np.arange(4000) % 50, "sex": "f", "smoker": False, "ill": 0})
    packed(frame=frame)
    assert same(opened(), wb.data.from_frame(frame, **OPTIONS))


def test_rows_can_be_taken_without_the_others():
    packed()
    data, everything = opened(reading="direct"), opened(reading="memory")
    places = np.random.default_rng(0).integers(0, data.num_train, 100)
    np.testing.assert_array_equal(data.stored.take(places)["x"], everything.train[0][places])


# --- what can be seen -----------------------------------------------------------------------------


def test_a_declared_capacity_hides_the_number_of_records():
    files = [
        packed(out=f"{n}.wbr", frame=table(n), capacity=20_000).read_bytes() for n in (2000, 9000)
    ]
    assert len(files[0]) == len(files[1])
    # besides the header all is encrypted, and a few random digits are somewhere in it
    start = len(form.MAGIC) + 8
    headers = [
        json.loads(file[start : start + int.from_bytes(file[start - 8 : start], "little")])
        for file in files
    ]
    assert {name for name in headers[0] if headers[0][name] != headers[1][name]} == {"id"}
    for n in (2000, 9000):
        assert same(opened(f"{n}.wbr"), wb.data.from_frame(table(n), **OPTIONS))
    with pytest.raises(ArgumentError, match=r"^capacity=100: is less than"):
        packed(out="x.wbr", capacity=100)


def test_an_encrypted_file_shows_nothing_of_the_records():
    age = 77
    frame = table().assign(age=age)
    clear, sealed = (
        packed(encrypt, f"{encrypt}.wbr", frame).read_bytes() for encrypt in (False, True)
    )
    cell = np.float32(2 * age / 120 - 1).tobytes()
    assert clear.count(cell) > N / 2
    assert sealed.count(cell) < 3


def secrets_of(key):
    return [key, key.hex().encode(), key.hex().upper().encode(), base64.b64encode(key)]


def test_the_key_is_written_nowhere_else(place, capfd, made_up_steps):
    packed()
    key = Path("k").read_bytes()
    file = file_key(
        key, bytes.fromhex(json.loads(Path("t.wbr").read_bytes()[24:].split(b"  ")[0])["id"])
    )
    result = wb.fit(
        "logistic", opened(), epsilon=1.0, iterations=20, ledger=str(place / "ledger.db")
    )
    result.save(place / "result")
    assert (
        main(
            [
                "fit",
                "--data",
                "t.wbr",
                "--key-file",
                "k",
                "--epsilon",
                "1",
                "--iterations",
                "20",
                "--quiet",
            ]
        )
        == 0
    )
    written = [
        path.read_bytes() for path in place.rglob("*") if path.is_file() and path.name != "k"
    ]
    written += [part.encode() for part in capfd.readouterr()] + [
        repr(opened()).encode(),
        repr(opened().stored).encode(),
    ]
    assert len(written) > 5
    for secret in (*secrets_of(key), *secrets_of(file)):
        assert not any(secret in content for content in written)
    with pytest.raises(TypeError, match="in the other one"):
        pickle.dumps(opened(reading="direct"))


# --- what is refused ------------------------------------------------------------------------------


def altered(change):
    content = bytearray(Path("t.wbr").read_bytes())
    change(content)
    Path("t.wbr").write_bytes(bytes(content))


def layout(**options):
    opened_file = opened(reading="direct", **options).stored.opened
    return opened_file.form, opened_file.section(1).start, opened_file.section(1).stride


@pytest.mark.parametrize("place_of", ["content", "tag"])
def test_an_altered_block_is_refused(place_of):
    packed(frame=table(30_000))
    form, start, stride = layout()
    assert form.blocks[0] >= 3
    at = start + stride + (5 if place_of == "content" else stride - 3)
    altered(lambda content: content.__setitem__(at, content[at] ^ 1))
    with pytest.raises(RecordsError, match=r"block 1 was altered"):
        opened(reading="memory")
    data = opened(reading="direct")
    assert len(data.stored.take(np.arange(5))) == 5  # of block 0
    with pytest.raises(RecordsError, match=r"block 1 was altered"):
        data.stored.take(np.array([form.per_block]))


def test_swapped_blocks_are_refused():
    packed(frame=table(30_000))
    _, start, stride = layout()

    def swap(content):
        one, other = (
            slice(start + place * stride, start + (place + 1) * stride) for place in (0, 1)
        )
        content[one], content[other] = content[other], content[one]

    altered(swap)
    with pytest.raises(RecordsError, match=r"block 0 was altered, moved"):
        opened(reading="memory")


def test_blocks_of_another_file_or_part_are_refused():
    packed(frame=table(30_000))
    form, start, stride = layout()
    packed(frame=table(30_000), out="other.wbr")
    other = Path("other.wbr").read_bytes()
    altered(
        lambda content: content.__setitem__(
            slice(start, start + stride), other[start : start + stride]
        )
    )
    with pytest.raises(RecordsError, match="block 0"):
        opened(reading="memory")
    evaluation = start + form.blocks[0] * stride
    altered(
        lambda content: content.__setitem__(
            slice(start, start + stride), content[evaluation : evaluation + stride]
        )
    )
    with pytest.raises(RecordsError, match="block 0"):
        opened(reading="memory")


def test_an_altered_header_is_refused():
    packed(frame=table(30_000))
    altered(
        lambda content: content.__setitem__(slice(None), bytes(content).replace(b'"age"', b'"agf"'))
    )
    with pytest.raises(ArgumentError, match="header was altered"):
        opened()


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_file_that_was_cut_short_is_refused(encrypt):
    packed(encrypt)
    altered(lambda content: content.__delitem__(slice(-1, None)))
    with pytest.raises(ArgumentError, match="cut short"):
        wb.data.open("t.wbr", key_file="k" if encrypt else None)
    Path("t.wbr").write_bytes(b"\0" * 100_000)
    with pytest.raises(ArgumentError, match="no finished file of records"):
        wb.data.open("t.wbr")
    Path("t.wbr").write_bytes(b"")
    with pytest.raises(ArgumentError, match="no finished file of records"):
        wb.data.open("t.wbr")


def test_a_file_in_the_clear_that_is_cut_short_while_it_is_read_is_an_error():
    """The process would be ended by a bus error, because such a file is mapped into memory."""
    packed(False, frame=table(30_000))
    data = opened(key_file=None, reading="direct")
    data.stored.take(np.arange(5))
    os.truncate("t.wbr", 20_000)
    with pytest.raises(RecordsError, match="cut short"):
        data.stored.take(np.array([data.num_train - 1]))


def test_what_is_no_file_is_refused(place):
    os.mkfifo("pipe")
    for path in (".", "pipe", "/dev/null"):
        with pytest.raises(ArgumentError, match=r"^path=.* must be a file"):
            opened(path)
    Path("link").symlink_to("t.parquet")
    Path("small").write_bytes(bytes(32))
    Path("to the key").symlink_to("small")
    packed(key_file="to the key")
    for key, words in (
        ("/dev/zero", "no regular file"),
        ("pipe", "no regular file"),
        ("link", "must hold a key"),
        (".", "irect"),
    ):
        for call in (opened, functools.partial(packed, out="u.wbr")):
            with pytest.raises(ArgumentError, match=rf"^key_file='{key}': .*{words}"):
                call(key_file=key)
    for table_path in ("pipe.csv", "zero.csv", "pipe.parquet", "pipe.npz"):
        Path(table_path).symlink_to("/dev/zero" if "zero" in table_path else "pipe")
        with pytest.raises(ArgumentError, match=r"^path=.* is no regular file"):
            wb.data.from_file(table_path, **OPTIONS)
        with pytest.raises(ArgumentError, match=r"^path=.* is no regular file"):
            wb.data.pack(table_path, "u.wbr", **OPTIONS)
    Path("t.wbr").unlink()
    Path("k").symlink_to("nowhere")
    with pytest.raises(ArgumentError, match=r"^key_file='k': cannot be read \(k was deleted"):
        packed()


def test_a_damaged_header_is_refused():
    """Also without encryption, where nothing keeps somebody from altering it on purpose."""
    start = packed(False) and opened(key_file=None, reading="direct").stored.opened.section(1).start
    whole, rng = Path("t.wbr").read_bytes(), np.random.default_rng(0)
    for _ in range(100):
        content = bytearray(whole)
        content[rng.integers(0, start)] ^= 1 << rng.integers(8)
        Path("t.wbr").write_bytes(content)
        with pytest.raises(ArgumentError, match="path"):
            wb.data.open("t.wbr")


def forged(whole, said, private=b""):
    """Write a file in the clear with another header, of which anybody can compute the checksum."""
    room = int.from_bytes(whole[16:24], "little")
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    header = whole[:16] + max(room, len(text)).to_bytes(8, "little") + text.ljust(room)
    private = (
        json.dumps(private).encode() if private != b"" else whole[24 + room :][: form._FACTS_SIZE]
    )
    guarded = Checksum(bytes.fromhex(header_of(whole)["id"])).close(
        0, 0, private.ljust(form._FACTS_SIZE), header
    )
    Path("t.wbr").write_bytes(header + guarded + whole[24 + room + len(guarded) :])


def header_of(whole):
    return json.loads(whole[24 : 24 + int.from_bytes(whole[16:24], "little")])


OTHER_VALUES = (
    None,
    True,
    0,
    1,
    -1,
    2**63,
    1.5,
    math.inf,
    "",
    "a",
    "x\0",
    [],
    [0],
    [0, 0],
    ["a", "a"],
    {},
    {"a": 1},
    [[1.0]],
)


@pytest.mark.parametrize("case", ["rows", "persons", "groups", "numbers"])
def test_a_header_that_was_written_by_hand_is_refused(case):
    """Each fact is exchanged for values of other types and ranges, left out, doubled, and
    contradicted.
    """
    options = {
        "rows": {},
        "persons": {"unit_id": "age", "max_rows": 3, "schema": {"sex": ["f", "m", "x"]}},
        "groups": {"group": "sex", "groups": ["f", "m", "x"], "schema": {"age": (0, 120)}},
        "numbers": {"target": "age", "target_bounds": (0, 120), "schema": {"sex": ["f", "m", "x"]}},
    }[case]
    packed(False, **options)
    whole = Path("t.wbr").read_bytes()
    said = header_of(whole)
    forged(whole, said)
    assert opened(key_file=None).num_train > 0  # so what follows is refused for what it says
    facts, changes = said["dataset"], []
    for name, value in said.items():
        changes += [{**said, name: other} for other in OTHER_VALUES if other != value]
        changes.append({other: value for other, value in said.items() if other != name})
    for name, value in facts.items():
        others = [other for other in OTHER_VALUES if type(other) is not type(value)]
        others += (
            [[*value, *value[:1]], [*value, "more"], value[:-1]]
            if isinstance(value, list) and value
            else []
        )
        changes += [{**said, "dataset": {**facts, name: other}} for other in others]
        changes.append(
            {**said, "dataset": {other: value for other, value in facts.items() if other != name}}
        )
    claims = (
        "is_public",
        "evaluation_is_public",
        "unit",
        "vocabulary_size",
        "feature_names",
        "arrays",
    )
    changes += [
        {**said, "dataset": {**facts, name: value}}
        for name in claims
        for value in (True, "patient", ["x"])
    ]
    changes += [{**said, name: 1} for name in ("record", "is_public", "seed")]
    names = list(facts["schema"])
    columns = [{names[0]: value} for value in OTHER_VALUES] + [
        {"x" * 9: facts["schema"][names[0]], **facts["schema"]}
    ]
    columns += [
        {names[0]: {**facts["schema"][names[0]], "surplus": 1}},
        {name: facts["schema"][name] for name in names[1:]},
    ]
    changes += [
        {**said, "dataset": {**facts, "schema": {**facts["schema"], **other}}}
        for other in columns[: len(OTHER_VALUES)]
    ]
    changes += [
        {**said, "dataset": {**facts, "schema": other}} for other in columns[len(OTHER_VALUES) :]
    ]
    is_accepted, refusals = [], set()
    for change in changes:
        forged(whole, change)
        try:
            opened(key_file=None)
        except ArgumentError as error:
            refusals.add(error.explained())
        else:
            is_accepted.append(change)
    assert all(
        re.search(r"damaged|instead of|another format|is encrypted", refusal)
        for refusal in refusals
    )
    # one class more contradicts nothing
    assert [each["dataset"]["classes"] for each in is_accepted] == [["0", "1", "more"]] * (
        case != "numbers"
    )


def test_a_header_of_another_kind_is_refused():
    packed(False)
    whole = Path("t.wbr").read_bytes()
    said = header_of(whole)
    for text in (
        b"[" * 10**5,
        b"",
        b"[]",
        b"7",
        b"null",
        b'"a"',
        b"\xff",
        json.dumps({**said, "id": said["id"] + "00"}).encode(),
    ):
        forged(whole, text)
        with pytest.raises(ArgumentError, match="damaged header"):
            opened(key_file=None)
    for version in (0, 1, 2, "3", None):
        forged(whole, {**said, "version": version})
        with pytest.raises(
            ArgumentError,
            match=r"^path='t.wbr': has another format than 3, .*: pack the table again\.$",
        ):
            opened(key_file=None)


@pytest.mark.parametrize("value", OTHER_VALUES, ids=repr)
def test_private_facts_that_were_written_by_hand_are_refused(value):
    packed(False)
    whole = Path("t.wbr").read_bytes()
    counts = [opened(key_file=None).num_train, opened(key_file=None).num_evaluation]
    forged(whole, header_of(whole), {"records": counts})
    assert same(opened(key_file=None), wb.data.from_frame(table(), **OPTIONS))
    for private in (
        value,
        {"records": value},
        {"records": [value, 1]},
        {"records": counts, "rows": value},
    ):
        if private not in ({"records": [0, 0]}, {"records": [0, 1]}, {"records": [1, 1]}):
            forged(whole, header_of(whole), private)
            with pytest.raises(ArgumentError, match="damaged header"):
                opened(key_file=None, reading="direct")


def test_any_damage_of_a_file_in_the_clear_is_noticed():
    """Flipped bits, and blocks of zeros or in the place of others; where it is read into memory and
    where it is mapped.
    """
    packed(False, frame=table(30_000))
    whole, rng = Path("t.wbr").read_bytes(), np.random.default_rng(0)
    _, start, stride = layout(key_file=None)
    flips = [(place, 1 << rng.integers(8)) for place in rng.integers(0, len(whole), 150)]

    def is_noticed(content):
        Path("t.wbr").write_bytes(content)
        refused = []
        for reading in ("memory", "direct"):
            try:
                data = opened(key_file=None, reading=reading)
                data.stored.take(np.arange(data.num_train)) if reading == "direct" else None
                np.asarray(data.evaluation[0])
            except (ArgumentError, RecordsError) as error:
                refused.append(
                    re.search(r"damaged|no finished file|instead of|another format", str(error))
                    is not None
                )
        return refused == [True, True]

    for place, bit in flips:
        content = bytearray(whole)
        content[place] ^= bit
        assert is_noticed(content)
    for begin in range(start, len(whole), stride):
        assert is_noticed(whole[:begin] + bytes(stride) + whole[begin + stride :])
    one, other = whole[start : start + stride], whole[start + stride : start + 2 * stride]
    assert is_noticed(whole[:start] + other + one + whole[start + 2 * stride :])


def test_a_mapped_block_is_verified_where_it_is_first_read(monkeypatch):
    packed(False, frame=table(30_000))
    form, start, stride = layout(key_file=None)
    altered(
        lambda content: content.__setitem__(start + stride + 5, content[start + stride + 5] ^ 1)
    )
    data, read = opened(key_file=None, reading="direct"), []
    by_block = blocks.Blocks.read
    monkeypatch.setattr(
        blocks.Blocks,
        "read",
        lambda self, position, *more: read.append(position) or by_block(self, position, *more),
    )
    for _ in range(3):
        assert len(data.stored.take(np.arange(5))) == 5
    assert read == [0]
    for _ in range(2):
        with pytest.raises(RecordsError, match=r"block 1 is damaged"):
            data.stored.take(np.array([2, form.per_block]))


def test_a_file_in_the_clear_does_not_pass_for_one_that_was_encrypted(monkeypatch):
    packed()
    key = Path("k").read_bytes().hex()
    Path("t.wbr").unlink()
    packed(False)
    for options in (
        {"key_file": "k"},
        {"key_file": "missing"},
        {"key_file": None, "keyring": "mine"},
    ):
        for reading in (None, *READINGS):
            with pytest.raises(ArgumentError, match=r"^key.*is named, but t.wbr is not encrypted"):
                opened(**options, reading=reading)
    monkeypatch.setenv(keys.VARIABLE, key)
    with pytest.raises(ArgumentError, match=r"^key_file='\$WORKBENCH_RECORDS_KEY': is named"):
        opened(key_file=None)


def test_another_key_no_key_and_a_damaged_key(monkeypatch):
    packed()
    Path("other").write_bytes(bytes(32))
    for options, words in (
        ({"key_file": None}, "is encrypted"),
        ({"key_file": "other"}, r"^key_file='other': does not open t.wbr: it is another key"),
        ({"key_file": "missing"}, "cannot be read"),
        ({"key_file": "t.parquet"}, "must hold a key of 32 bytes"),
        ({"key_file": "k", "keyring": "k"}, "must be left out"),
    ):
        with pytest.raises(ArgumentError, match=words):
            opened(**options)
    monkeypatch.setenv(keys.VARIABLE, Path("k").read_bytes().hex())
    assert opened(key_file=None).num_train > 0
    monkeypatch.setenv(keys.VARIABLE, "a secret that must not be quoted")
    with pytest.raises(ArgumentError) as error:
        opened(key_file=None)
    assert "secret" not in str(error.value)


def test_a_key_in_the_keyring(monkeypatch):
    kept = {}

    class Keyring:
        get_password = staticmethod(lambda service, name: kept.get((service, name)))
        set_password = staticmethod(
            lambda service, name, text: kept.__setitem__((service, name), text)
        )

    monkeypatch.setitem(sys.modules, "keyring", Keyring)
    packed(key_file=None, keyring="claims")
    assert same(opened(key_file=None, keyring="claims"), wb.data.from_frame(table(), **OPTIONS))
    with pytest.raises(ArgumentError, match="no name in the system's keyring"):
        opened(key_file=None, keyring="others")
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ArgumentError, match="pip install keyring"):
        opened(key_file=None, keyring="claims")


def test_what_cannot_be_packed(place):
    table().to_parquet("t.parquet")
    frame = table().astype({"age": object})
    frame.loc[3, "age"] = "SECRET"
    frame.to_csv("bad.csv", index=False)
    frame[:0].to_csv("empty.csv", index=False)
    packed(out="there.wbr")
    for path, out, options, argument in (
        ("t.parquet", "there.wbr", {}, "out"),
        ("t.parquet", "nowhere/t.wbr", {}, "out"),
        ("t.parquet", "t.wbr", {"unit_id": "age", "max_rows": 2}, "unit_id"),
        ("t.parquet", "t.wbr", {"schema": {"weight": (0, 1)}}, "schema"),
        ("t.parquet", "t.wbr", {"schema": {"sex": ["f", "m"]}}, "sex"),
        ("t.parquet", "t.wbr", {"block_size": 1000}, "block_size"),
        ("t.parquet", "t.wbr", {"encrypt": True}, "key_file"),
        ("t.parquet", "t.wbr", {"key_file": "k"}, "encrypt"),
        ("t.parquet", "t.wbr", {"evaluation_fraction": 2}, "evaluation_fraction"),
        ("t.parquet", "t.wbr", {"surplus": 1}, "surplus"),
        ("bad.csv", "t.wbr", {}, "age"),
        ("empty.csv", "t.wbr", {}, "evaluation_fraction"),
        ("missing.csv", "t.wbr", {}, "path"),
        ("t.wbr", "t.wbr", {}, "path"),
    ):
        with pytest.raises((ArgumentError, TypeError)) as error:
            wb.data.pack(path, out, **{**OPTIONS, **options})
        assert getattr(error.value, "argument", "surplus") == argument or argument in str(
            error.value
        )
        assert "SECRET" not in str(error.value)
    assert not [path for path in place.iterdir() if "partial" in path.name]
    assert not Path("t.wbr").exists()


def test_rows_of_unequal_size_are_refused():
    Path("uneven.csv").write_text("age,sex,smoker,ill\n1,f,True,0\n1,f,True,0,7\n")
    with pytest.raises(ArgumentError, match="more fields than there are column names"):
        wb.data.pack("uneven.csv", "t.wbr", **OPTIONS)
    np.savez("uneven.npz", x=np.zeros((5, 2)), y=np.zeros(4))
    with pytest.raises(ArgumentError, match="one entry of y"):
        wb.data.pack("uneven.npz", "t.wbr", bounds=(0, 1), target="y")
    np.savez("columns.npz", x=np.asfortranarray(np.zeros((5, 2))))
    with pytest.raises(ArgumentError, match=r"save np\.ascontiguousarray"):
        wb.data.pack("columns.npz", "t.wbr", bounds=(0, 1))
    np.savez("cut.npz", x=np.zeros((500, 2)))
    whole = Path("cut.npz").read_bytes()
    Path("cut.npz").write_bytes(whole.replace(b"(500, 2)", b"(501, 2)"))
    with pytest.raises(ArgumentError, match="damaged"):
        wb.data.pack("cut.npz", "t.wbr", bounds=(0, 1))


def test_an_unencrypted_file_hides_no_reads():
    packed(False)
    with pytest.raises(ArgumentError, match=r"^reading='oblivious': hides nothing"):
        wb.data.open("t.wbr", reading="oblivious")
    assert not wb.data.open("t.wbr", reading="memory").stored.hides_reads


# --- seals ----------------------------------------------------------------------------------------


def test_no_nonce_is_used_twice(monkeypatch):
    used = set()
    close = Seal.close

    def watched(self, part, position, content, further=b""):
        assert (self._name, part, position) not in used
        used.add((self._name, part, position))
        return close(self, part, position, content, further)

    monkeypatch.setattr(Seal, "close", watched)
    packed(frame=table(30_000))
    assert len(used) > 5
    monkeypatch.undo()
    seal = Seal(bytes(32), b"name")
    sealed = seal.close(1, 0, b"content")
    with pytest.raises(RuntimeError, match="not the next one"):
        seal.close(1, 0, b"other")
    assert seal.open(1, 0, sealed) == b"content"
    for part, position, name in ((2, 0, b"name"), (1, 1, b"name"), (1, 0, b"none")):
        assert Seal(bytes(32), name).open(part, position, sealed) is None


def test_keys_of_files_are_those_of_rfc_5869():
    import hmac

    key, salt = bytes(range(32)), bytes(range(32, 64))
    extracted = hmac.new(salt, key, hashlib.sha256).digest()
    expected = hmac.new(extracted, blocks._PURPOSE + b"\x01", hashlib.sha256).digest()
    assert file_key(key, salt) == expected


# --- packing that is interrupted ------------------------------------------------------------------


def test_a_full_disk_leaves_nothing(monkeypatch, place):
    written = []

    def full(handle, content, offset):
        written.append(len(content))
        if len(written) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os_pwrite(handle, content, offset)

    os_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        ArgumentError, match=r"^out='t.wbr': cannot be written \(No space left on device\)"
    ):
        packed(frame=table(30_000))
    assert not list(place.glob("*.wbr")) + list(place.glob(".*partial"))


def test_a_disk_that_is_found_to_be_full_at_the_end_leaves_nothing(monkeypatch, place):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    Path("k").write_bytes(bytes(32))
    with pytest.raises(
        ArgumentError, match=r"^out='t.wbr': cannot be written \(No space left on device\)"
    ):
        packed()
    assert not list(place.glob("*.wbr")) + list(place.glob(".*partial"))


KILLED = """
import os, sys, time
from workbench.data.storage import blocks
import workbench as wb
write = blocks.write_at
def slowly(*arguments):
    print("written", flush=True)
    time.sleep(.2)
    write(*arguments)
blocks.write_at = slowly
wb.data.pack("t.parquet", "killed.wbr", encrypt=True, key_file="k", target="ill",
             schema={"age": (0, 120), "sex": ["f", "m", "x"], "smoker": bool}, block_size=2**16)
"""


@pytest.mark.integration
def test_a_killed_process_leaves_no_file_that_opens(place):
    packed(frame=table(60_000))
    for blocks_written in (1, 3, 6):
        with subprocess.Popen(
            [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True
        ) as process:
            for _ in range(blocks_written):
                assert process.stdout.readline() == "written\n"
            process.send_signal(signal.SIGKILL)
        assert not Path("killed.wbr").exists()
        # of this process; the one before was cleaned up
        (left,) = place.glob(".killed.wbr.*.partial")
        with pytest.raises(ArgumentError, match="no finished file of records"):
            wb.data.open(left, key_file="k")


def test_packing_deletes_what_killed_packings_left_and_nothing_else(place):
    left = place / f".t.wbr.{'0a' * 16}.partial"
    left.touch()
    others = [
        place / f".u.wbr.{'0a' * 16}.partial",
        place / ".t.wbr.mine.partial",
        place / f".t.wbr.{'0a' * 16}.partial.bak",
    ]
    for other in others:
        other.touch()
    living = place / f".t.wbr.{'0b' * 16}.partial"
    with living.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as another process that is packing
        packed(False)
    assert not left.exists()
    assert all(path.exists() for path in (*others, living))
    Path("t.wbr").unlink()
    packed(False)
    assert not living.exists()


def test_a_new_file_that_another_packing_deleted_before_it_was_locked_is_made_again(monkeypatch):
    lock, times = fcntl.flock, []

    def late(file, how):
        times.append(how)
        if len(times) == 1:
            (partial,) = Path().glob(".t.wbr.*.partial")
            partial.unlink()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    packed(False)
    assert opened(key_file=None).num_train > 0
    assert times == [fcntl.LOCK_EX] * 2


# --- the command ----------------------------------------------------------------------------------


def test_the_command_packs_with_the_fingerprint(monkeypatch, capsys):
    table().to_csv("t.csv", index=False)
    Path("s.json").write_text(json.dumps(wb.data.Schema.from_declaration(SCHEMA).to_dict()))
    words = [
        "pack",
        "t.csv",
        "--schema",
        "s.json",
        "--target",
        "ill",
        "--encrypt",
        "--key-file",
        "k",
    ]
    assert main(words) == 0
    assert "t.wbr" in capsys.readouterr().err
    in_memory = wb.data.from_csv("t.csv", **OPTIONS)
    data = opened(reading="direct")
    monkeypatch.setattr(type(data.stored), "scan", None)  # the fingerprint is there already
    assert fingerprint(data) == fingerprint(in_memory)
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_command_takes_whatever_opening_takes(monkeypatch, place):
    """Also a key in the keyring, which ``workbench pack`` makes there; and from any folder, when it
    is asked for again.
    """
    arguments = fit_arguments(
        [
            "--data",
            "t.wbr",
            "--epsilon",
            "1",
            "--keyring",
            "claims",
            "--scratch",
            "there",
            "--unit",
            "patient",
        ]
    )
    asked = {}
    monkeypatch.setattr(wb.data, "open", lambda path, **options: asked.update(options))
    dataset(arguments)
    taken = set(inspect.signature(open_records).parameters) - {"path"}
    assert asked.keys() == taken
    assert (asked["keyring"], asked["scratch"]) == ("claims", "there")
    assert f"--scratch={place / 'there'}" in fit_words(arguments)


@pytest.mark.parametrize("reading", some_of(READINGS, 3))
def test_the_command_says_in_one_line_that_a_block_was_altered(reading, capsys):
    packed()
    start = opened(reading="direct").stored.opened.section(1).start
    altered(lambda content: content.__setitem__(start, content[start] ^ 1))
    assert (
        main(["fit", "--data", "t.wbr", "--key-file", "k", "--reading", reading, "--epsilon", "1"])
        == 1
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("workbench fit: t.wbr: block 0 was altered")


def test_the_command_offers_every_way_of_reading():
    assert set(READINGS) == {
        reading
        for reading in READINGS
        if fit_arguments(["--data", "t.wbr", "--epsilon", "1", "--reading", reading]).reading
    }
