"""What is said where the disk is full or the state folder may not be used: the cause, and nothing
is lost.
"""

import contextlib
import errno
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import pytest

from tests.privacy.promises import promise
from workbench.ledger import Ledger
from workbench.ledger._errors import ledger_error
from workbench.ledger.ledger import DatasetId, LedgerError


def records(name="clinic"):
    return DatasetId(name, "patient", lambda key: f"{name:0<32}")


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "disk full"),
        (errno.EDQUOT, "disk full"),
        (errno.EROFS, "not writable"),
        (None, "disk error"),
    ],
)
@pytest.mark.parametrize(
    "reported", [sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CANTOPEN]
)
def test_the_system_is_asked_for_the_cause_that_sqlite_does_not_say(
    tmp_path, monkeypatch, reported, number, code
):
    """A full disk is an I/O error to SQLite if its index of the write-ahead log does not fit."""
    (tmp_path / "ledger.sqlite").touch()
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = reported

    def failing(handle):
        if number is not None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", failing)
    expected = "not reachable" if reported == sqlite3.SQLITE_CANTOPEN and number is None else code
    assert ledger_error(tmp_path / "ledger.sqlite", error).code == expected
    assert list(tmp_path.iterdir()) == [tmp_path / "ledger.sqlite"]


@pytest.fixture
def small_disk():
    """An empty folder with room for 256 KiB."""
    folder = pathlib.Path(tempfile.mkdtemp())
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        folder.rmdir()
        pytest.skip("only the superuser can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)  # this process locks a file there
    folder.rmdir()


@pytest.mark.integration
@pytest.mark.parametrize("left", [0, 4096, 16384, 32768, 65536])
@pytest.mark.parametrize("when", ["new", "closed", "read elsewhere"])
def test_a_real_disk_that_is_full_is_said_to_be_full(small_disk, left, when):
    book, filler, reader = Ledger(small_disk / "ledger.sqlite"), small_disk / "filler", None
    if when != "new":
        book.reserve(records(), [promise()], model="m")
    if when == "read elsewhere":
        reader = sqlite3.connect(book.path)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM spends").fetchall()
        book.reserve(records(), [promise()], model="m")
    before = len(book.spends())
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    os.truncate(filler, max(0, filler.stat().st_size - left))
    with pytest.raises(LedgerError) as caught:
        book.reserve(records("ward"), [promise()] * 60, model="m")
    assert caught.value.code == "disk full"
    assert "what was recorded before is safe. Make room." in str(caught.value)
    filler.unlink()
    if reader is not None:
        reader.close()
    assert len(book.spends()) == before
    book.reserve(records("ward"), [promise()] * 3, model="m")
    assert len(book.spends()) == before + 3


SCRIPT = """
import contextlib, os, pathlib
from workbench.cli import main
from workbench.fitting import checkpoints
from workbench.ledger import Ledger
state = pathlib.Path(os.environ["WORKBENCH_STATE"])
doors = [
    Ledger().exists, Ledger().datasets, checkpoints.saved_runs,
    lambda: checkpoints.newest(state / "runs" / "one"),
    lambda: checkpoints.holds_fit(state / "runs" / "one"), lambda: main.main(["ledger", "list"]),
    lambda: main.main(["resume"]),
]
for door in doors:  # loads what it needs, while it may
    with contextlib.suppress(ValueError), open(os.devnull, "w") as nowhere:
        with contextlib.redirect_stdout(nowhere):
            door()
state.chmod(0)
if os.geteuid() == 0:  # who may read and write everything
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
for door in doors:
    try:
        assert door() == 2, door  # of a command, which prints a line
    except ValueError as error:  # also an ArgumentError
        print(type(error).__name__, getattr(error, "code", ""), error)
"""


def test_a_state_folder_without_rights_is_said_in_a_sentence():
    """At every door, to a user who may not look into it: there was a traceback."""
    base = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    state = base / "state"
    try:
        (state / "runs").mkdir(parents=True)
        Ledger(state / "ledger.sqlite").add(records())
        base.chmod(0o755)
        environment = os.environ | {
            "WORKBENCH_STATE": str(state),
            "XDG_CACHE_HOME": str(base / "cache"),
        }
        environment.pop("WORKBENCH_LEDGER", None)
        script = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
    finally:
        state.chmod(0o700)
        shutil.rmtree(base)
    said, commands = done.stdout.splitlines(), done.stderr.splitlines()
    kinds = ["LedgerFileError not writable ledger="] * 2 + [
        f"ArgumentError  {name}=" for name in ("state folder", "path", "checkpoint")
    ]
    assert [line.startswith(kind) for line, kind in zip(said, kinds, strict=True)] == [True] * 5
    assert [line.partition("=")[0] for line in commands] == [
        "workbench ledger: ledger",
        "workbench resume: state folder",
    ]
    assert all("Permission denied" in line for line in (*said, *commands))
    assert "Get the right to read and write it" in said[0]
    assert "neither what was spent before nor any cap" in said[0]
    assert "Set $WORKBENCH_STATE to a folder that you may read and write." in said[2]


def test_a_link_to_a_disk_that_is_not_there_is_no_empty_ledger(tmp_path):
    link = tmp_path / "ledger.sqlite"
    link.symlink_to(tmp_path / "share" / "ledger.sqlite")
    book = Ledger(link)
    for call in (
        book.exists,
        book.spends,
        book.begin_anew,
        lambda: book.reserve(records(), [promise(1.0)], model="logistic"),
    ):
        with pytest.raises(LedgerError, match=r"is a link to .*, which is not there") as caught:
            call()
        assert caught.value.code == "broken link"
    (tmp_path / "share").mkdir()
    assert not link.exists()


def test_without_free_file_handles_no_other_ledger_is_advised(tmp_path):
    resource = pytest.importorskip("resource")
    book = Ledger(tmp_path / "ledger.sqlite")
    book.reserve(records(), [promise(1.0)], model="logistic")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    handles = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (handles, limits[1]))
    files = []
    try:
        with contextlib.suppress(OSError):
            while True:
                files.append(open(os.devnull))  # noqa: SIM115
        with pytest.raises(LedgerError) as caught:
            book.spends()
    finally:
        for file in files:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.code == "used up"
    assert "other file" not in str(caught.value)
    assert len(book.spends()) == 1


def test_a_folder_in_the_place_of_a_log_is_named_and_no_other_ledger_is_advised(tmp_path):
    path = tmp_path / "ledger.sqlite"
    Ledger(path).reserve(records(), [promise(1.0)], model="logistic")
    for end in ("-wal", "-shm"):
        pathlib.Path(f"{path}{end}").unlink(missing_ok=True)
    pathlib.Path(f"{path}-wal").mkdir()
    with pytest.raises(LedgerError, match=r"ledger.sqlite-wal.*neither what was spent") as caught:
        Ledger(path).spends()
    assert caught.value.code == "not reachable"


@pytest.mark.parametrize("path", ["/", "////"])
def test_the_root_folder_is_no_ledger(path):
    with pytest.raises(ValueError, match=r"^ledger='/+': must be the path of a file"):
        Ledger(path)
