"""Arguments that name a file or folder: what is no path, no regular file or a stranger's is refused
in one sentence.
"""

import os
import pickle
import signal
import zipfile

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError, _validate
from workbench.inference import checkpoint
from workbench.ledger.fingerprint import key_file, secret_key
from workbench.ledger.ledger import Ledger
from workbench.sweeps import plan_file
from workbench.sweeps.store import Store

DOORS = {
    "load": wb.load,
    "resume": wb.resume,
    "forget": wb.forget,
    "ledger": lambda path: Ledger(path).datasets(),
    "load_state": checkpoint.load_arrays,
    "save_state": lambda path: checkpoint.save_arrays(path, {"a": np.zeros(2)}),
    "open": wb.data.open,
    "csv": lambda path: wb.data.from_csv(path, target="y"),
    "any file": lambda path: wb.data.from_file(path, target="y"),
    "model": wb.models.from_file,
    "plan": plan_file.read,
    "store": lambda path: Store(path).close(),
}
NO_PATHS = (
    True,
    3,
    1.5,
    b"x",
    [],
    ["a"],
    {},
    object(),
    np.zeros(3),
    float("nan"),
    "",
    "  ",
    "a\0b",
    "x" * 5000,
    len,
    ("a", "b"),
    "~nobody-of-this-name/x",
)


@pytest.fixture(autouse=True)
def quickly():
    """Ends a test that waits for a pipe, which no signal of pytest's would."""

    def too_long(*_):
        raise TimeoutError

    previous = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("door", DOORS)
def test_what_is_no_path_is_refused_in_one_sentence(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in NO_PATHS if door in ("ledger", "store") else (None, *NO_PATHS):
        with pytest.raises(ArgumentError) as error:
            DOORS[door](value)
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_result_is_saved_in_no_such_place(done):
    for value in (None, *NO_PATHS):
        with pytest.raises(ArgumentError, match=r"^out="):
            done.save(value)


@pytest.mark.parametrize("door", sorted(DOORS.keys() - {"save_state"}))
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_and_a_device_are_refused_at_once(door, kind, tmp_path):
    path = tmp_path / ("odd.csv" if door in ("csv", "any file") else "odd")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(ArgumentError) as error:
        DOORS[door](path)
    assert "damaged" not in str(error.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "name", ["result.json", "params.npz", "posterior.nc", "key", "step-000000000001.npz"]
)
def test_a_pipe_and_a_device_in_the_place_of_a_file_are_refused_at_once(
    done, tmp_path, quick_report, kind, name
):
    done.save(tmp_path)
    path = key_file() if name == "key" else tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    try:
        with pytest.raises(ArgumentError, match="regular file"):
            secret_key() if name == "key" else wb.resume(tmp_path) if name.startswith(
                "step"
            ) else wb.load(tmp_path)
    finally:
        path.unlink()


class Code:
    """What pickle would run."""

    def __reduce__(self):
        return os.mkdir, ("was run",)


@pytest.mark.parametrize(
    "form", ["pickle", "objects", "an archive of text", "zip of a pickle", "npy", "text"]
)
def test_a_file_of_somebody_else_is_refused_without_advice_to_run_it(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step-000000000001.npz"
    if form == "pickle":
        path.write_bytes(pickle.dumps(Code()))
    elif form == "objects":
        np.savez(path, facts=np.array([Code()], object))
    elif form == "npy":
        np.save(tmp_path / "a.npy", np.zeros(3))
        (tmp_path / "a.npy").rename(path)
    elif form == "text":
        path.write_text("hello")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "facts.npy", b"hello" if form == "an archive of text" else pickle.dumps(Code())
            )
    for door in (wb.resume, checkpoint.load_facts):
        with pytest.raises(ArgumentError, match=r"^path=") as error:
            door(path)
        assert not any(
            word in str(error.value).lower() for word in ("pickle", "unsafe", "trust", "object")
        )
    assert not (tmp_path / "was run").exists()


def test_a_path_may_be_of_any_kind_of_path(tmp_path):
    class Own:
        def __fspath__(self):
            return str(tmp_path)

    assert _validate.path("x", Own()) == _validate.path("x", str(tmp_path)) == tmp_path
    assert _validate.path("x", "no").name == "no"
