"""Fingerprints of records, and the secret key of those that are private."""

import os
import pathlib
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError, _folders
from workbench.data.columns import Categorical, Numeric
from workbench.data.dataset import Dataset
from workbench.data.schema import Schema
from workbench.ledger import fingerprint as module
from workbench.ledger.fingerprint import fingerprint, key_file

NUMBER = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def state(monkeypatch, tmp_path):
    """The folder of the secret key, which is not there yet."""
    folder = tmp_path / "below" / "state"
    monkeypatch.setenv("WORKBENCH_STATE", str(folder))
    return folder


def small(**changes):
    fields = {
        "name": "tiny",
        "description": "Three records.",
        "train": (NUMBER, np.array([0, 1, 1], np.int32), np.array([0, 1, 0], np.int32)),
        "evaluation": (NUMBER[:1], np.array([1], np.int32), np.array([1], np.int32)),
        "feature_names": ("a", "b"),
        "target_name": "y",
        "classes": ("no", "yes"),
        "schema": Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}),
        "arrays": ("x", "group", "y"),
        "group_name": "ward",
        "groups": ("east", "west"),
        "group_features": np.ones((2, 1), np.float32),
        "group_feature_names": ("intercept",),
    }
    return Dataset(**{**fields, **changes})


X, GROUP, Y = small().train


@pytest.mark.parametrize("public", [False, True])
def test_the_same_records_are_known_again(public):
    first = fingerprint(small(is_public=public))
    assert first == fingerprint(small(is_public=public))
    assert first == fingerprint(
        small(is_public=public, name="other", description="", unit="patient", source="elsewhere")
    )
    assert len(first) == 32
    assert set(first) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    "changes",
    [
        {"train": (X + np.eye(3, 2, dtype=np.float32) * 1e-6, GROUP, Y)},
        {"train": (X.astype(np.float64), GROUP, Y)},
        {"train": (X.reshape(2, 3), GROUP, Y)},
        {"train": (X[::-1], GROUP, Y)},
        {"train": (X, Y, GROUP)},
        {"train": (X[:2], GROUP[:2], Y[:2])},
        {"evaluation": (X[1:2], GROUP[:1], Y[:1])},
        {"train": (X, GROUP), "evaluation": (Y, NUMBER[:1], *small().evaluation[1:])},
        {"feature_names": ("a", "c")},
        {"feature_names": ("ab",)},
        {"target_name": "z"},
        {"classes": ("yes", "no")},
        {"schema": None},
        {"schema": Schema({"a": Numeric(0, 2), "b": Numeric(0, 1)})},
        {"schema": Schema({"b": Numeric(0, 1), "a": Numeric(0, 1)})},
        {"arrays": ("x", "y", "group")},
        {"group_name": "school"},
        {"groups": ("east", "south")},
        {"group_features": np.zeros((2, 1), np.float32)},
        {"group_features": None},
        {"group_feature_names": ("wealth",)},
        {"image_shape": (2,)},
    ],
)
def test_whatever_else_differs_is_seen(changes):
    assert fingerprint(small(is_public=True)) != fingerprint(small(is_public=True, **changes))


def test_how_an_array_lies_in_memory_does_not_matter():
    plain = fingerprint(small())
    assert plain == fingerprint(small(train=(np.asfortranarray(X), GROUP, Y)))
    assert plain == fingerprint(small(train=(X.astype(">f4"), GROUP, Y)))


def test_named_data_sets_have_fingerprints_without_a_key(state):
    found = {
        fingerprint(wb.data.load(name))
        for name in ("breast_cancer", "hierarchical", "mixture", "digits")
    }
    assert len(found) == 4
    assert not state.exists()


def test_arrays_of_objects_are_refused():
    with pytest.raises(ArgumentError, match=r"^data='tiny': .*Python objects"):
        fingerprint(small(train=(X.astype(object), GROUP, Y)))


# --- the secret key -------------------------------------------------------------------------------


def test_private_records_cannot_be_recognised_without_the_key(monkeypatch, tmp_path):
    first = fingerprint(small())
    assert first != fingerprint(small(is_public=True))
    monkeypatch.setenv("WORKBENCH_STATE", str(tmp_path / "another user's"))
    assert first != fingerprint(small())


def test_the_key_is_the_users_alone(state):
    fingerprint(small())
    assert key_file() == state / "fingerprint.key"
    assert len(key_file().read_bytes()) == 32
    assert [path.name for path in state.iterdir()] == ["fingerprint.key"]
    if os.name == "posix":
        assert stat.S_IMODE(key_file().stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700


def test_another_process_finds_the_same_key():
    code = """
import numpy as np
from workbench.data.dataset import Dataset
from workbench.ledger.fingerprint import fingerprint
arrays = (np.zeros((3, 1)),), (np.zeros((1, 1)),)
print(fingerprint(Dataset("points", "Points.", *arrays, arrays=("x",))))
"""
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    same = Dataset("points", "Points.", (np.zeros((3, 1)),), (np.zeros((1, 1)),), arrays=("x",))
    assert other.stdout.strip() == fingerprint(same)


def test_of_many_that_make_a_key_at_once_one_succeeds(state):
    with ThreadPoolExecutor(16) as pool:
        keys = set(pool.map(module.make_key, [key_file()] * 64))
    assert keys == {key_file().read_bytes()}
    assert [path.name for path in state.iterdir()] == ["fingerprint.key"]


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_damaged_key_is_named_and_kept(state, size):
    state.mkdir(parents=True)
    key_file().write_bytes(b"k" * size)
    with pytest.raises(
        ArgumentError, match=rf"^key file='.*fingerprint\.key': holds {size} bytes instead of 32"
    ):
        fingerprint(small())
    assert key_file().read_bytes() == b"k" * size
    assert len(fingerprint(small(is_public=True))) == 32


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, "~/.local/share"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data"),
        ("darwin", {}, "~/Library/Application Support"),
        ("darwin", {"XDG_DATA_HOME": "/data"}, "/data"),
        ("win32", {}, "~/AppData/Local"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local"),
    ],
)
def test_the_key_lies_where_the_system_keeps_such_files(monkeypatch, platform, variables, folder):
    for name in ("WORKBENCH_STATE", "XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert _folders.state() == pathlib.Path(folder).expanduser() / "dpvi-workbench"


def test_reference_levels_do_not_change_what_a_data_set_is():
    frame = pd.DataFrame(
        {"age": np.linspace(20, 60, 40), "ward": list("abca") * 10, "y": [0, 1] * 20}
    )
    widths, prints = set(), set()
    for reference in (None, "a", "c"):
        schema = {"age": (0, 100), "ward": Categorical(["a", "b", "c"], reference=reference)}
        dataset = wb.data.from_frame(frame, evaluation=frame[:1], target="y", schema=schema)
        widths.add(len(dataset.feature_names))
        prints.add(fingerprint(dataset, bytes(32)))
    assert widths == {3, 4}
    assert len(prints) == 1
