"""Saving over an older result: loading returns the old one, the new one or an error, wherever a
process died.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import workbench as wb
from workbench import plots
from workbench.results import FitResult, _atomic

FOLLOWED = {
    "open",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.link",
    "os.symlink",
}


class Died(BaseException):
    """The process ended here, and does nothing more on the disk."""


class Disk:
    """Counts what Python does to the files of a folder, by its audit events, and does nothing from
    number ``last`` on.
    """

    def __init__(self):
        self.folder, self.count, self.last = None, 0, None
        sys.addaudithook(self.hear)  # for ever: hooks cannot be taken away

    def hear(self, event, arguments):
        if (
            self.folder is None
            or event not in FOLLOWED
            or not str(arguments[0]).startswith(self.folder)
        ):
            return
        self.count += 1
        if self.last is not None and self.count > self.last:
            raise Died

    @contextlib.contextmanager
    def dies_after(self, count, folder):
        self.folder, self.count, self.last = str(folder), 0, count
        try:
            yield
        except Died:
            pass
        finally:
            self.folder = None


@pytest.fixture(scope="module")
def disk():
    return Disk()


@pytest.fixture
def quick(monkeypatch):
    """Quick pictures and reports that say which result they belong to."""
    monkeypatch.setattr(plots, "png", lambda _: b"a picture")
    monkeypatch.setattr(FitResult, "plot", lambda *_: None)
    monkeypatch.setattr(FitResult, "report", lambda self: f"epsilon = {self.guarantee.epsilon}")


@pytest.fixture(scope="module")
def result_of(done):
    """A result in which every number is its epsilon."""

    def made(epsilon):
        return dataclasses.replace(
            done,
            guarantee=dataclasses.replace(done.guarantee, epsilon=epsilon, epsilon_taken=epsilon),
            params={name: np.full_like(value, epsilon) for name, value in done.params.items()},
            draws={name: np.full_like(value[:9], epsilon) for name, value in done.draws.items()},
        )

    return made


def epsilon_of(folder):
    """The one epsilon in a saved result, its parameters, draws and report."""
    loaded = wb.load(folder)
    numbers = {
        float(each)
        for part in (loaded.params, loaded.draws)
        for value in part.values()
        for each in np.unique(value)
    }
    assert numbers == {loaded.guarantee.epsilon}
    with contextlib.suppress(FileNotFoundError):
        assert (folder / "report.html").read_text() == f"epsilon = {loaded.guarantee.epsilon}"
    return loaded.guarantee.epsilon


def test_a_load_after_a_death_at_any_file_operation_gives_one_result(
    disk, quick, result_of, tmp_path
):
    found, before, new = [], tmp_path / "before", result_of(8.0)
    result_of(2.0).save(before)
    (before / "mine.txt").write_text("mine")
    for count in range(1000):
        folder = shutil.copytree(before, tmp_path / str(count))
        with disk.dies_after(count, folder):
            new.save(folder)
            break
        found.append(epsilon_of(folder))
        if count % 5:
            continue
        new.save(folder)  # nothing that was left keeps the next one from being saved
        assert epsilon_of(folder) == 8.0
        assert {file.name for file in folder.iterdir()} == FILES | {"mine.txt"}
        assert (folder / "mine.txt").read_text() == "mine"
    assert len(found) > 20
    assert found == sorted(found)
    assert set(found) == {2.0, 8.0}


FILES = {"result.json", "params.npz", "posterior.nc", "curves.png", "report.html"}


@pytest.mark.thorough
def test_two_writers_and_a_reader_never_make_a_mixture(quick, result_of, tmp_path):
    result_of(2.0).save(tmp_path)
    seen, stop, problems = [], threading.Event(), []

    def write(epsilon):
        try:
            for _ in range(6):
                result_of(epsilon).save(tmp_path)
        except BaseException as error:
            problems.append(error)

    def read():
        try:
            while not stop.is_set():
                loaded = wb.load(tmp_path)
                numbers = {
                    float(each) for value in loaded.params.values() for each in np.unique(value)
                }
                numbers |= {
                    float(each) for value in loaded.draws.values() for each in np.unique(value)
                }
                seen.append((loaded.guarantee.epsilon, numbers))
        except BaseException as error:
            problems.append(error)

    writers = [threading.Thread(target=write, args=(epsilon,)) for epsilon in (2.0, 8.0)]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert problems == []
    assert len(seen) > 5
    assert all(numbers == {epsilon} for epsilon, numbers in seen)
    assert epsilon_of(tmp_path) in (2.0, 8.0)
    assert {file.name for file in tmp_path.iterdir()} == FILES


@pytest.mark.parametrize("name", sorted(FILES - {"result.json"}))
def test_a_file_of_another_result_is_found_by_its_digest(quick, result_of, tmp_path, name):
    for epsilon in (2.0, 8.0):
        result_of(epsilon).save(tmp_path / str(epsilon))
    content = (tmp_path / "8.0" / name).read_bytes()
    (tmp_path / "2.0" / name).write_bytes(content + b" ")
    with pytest.raises(
        wb.ArgumentError, match=f"{name} is damaged, or not the file that was saved"
    ):
        wb.load(tmp_path / "2.0")


@pytest.mark.parametrize("name", ["curves.png", "report.html"])
def test_a_result_without_its_pictures_is_still_one(quick, result_of, tmp_path, name):
    result_of(2.0).save(tmp_path)
    (tmp_path / name).unlink()
    assert wb.load(tmp_path).guarantee.epsilon == 2.0


@pytest.mark.parametrize(
    "change",
    [("2.0", "1.9"), ('"digest": "', '"digest": "0'), ('"files": {', '"files": {"x": "y", ')],
)
def test_a_result_file_that_was_changed_is_refused(quick, result_of, tmp_path, change):
    result_of(2.0).save(tmp_path)
    file = tmp_path / "result.json"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(wb.ArgumentError, match=r"result\.json is damaged"):
        wb.load(tmp_path)


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("operation", ["replace", "open"])
def test_a_full_disk_leaves_the_old_result_or_the_new_one(
    quick, result_of, tmp_path, monkeypatch, operation, name
):
    result_of(2.0).save(tmp_path)
    whole = {"replace": os.replace, "open": Path.open}[operation]

    def full(path, *rest, **options):
        target = rest[0] if operation == "replace" else path
        if os.path.basename(target) == name and (
            operation == "replace" or "w" in str((rest, options))
        ):
            raise OSError(28, "No space left on device")
        return whole(path, *rest, **options)

    monkeypatch.setattr(*((os, "replace") if operation == "replace" else (Path, "open")), full)
    with contextlib.ExitStack() as expected:
        is_refused = name == "result.json" or (
            operation == "open" and name in ("params.npz", "posterior.nc")
        )
        if is_refused:
            expected.enter_context(pytest.raises(OSError, match="No space left"))
        else:
            expected.enter_context(
                pytest.warns(wb.results.storage.SaveWarning, match="No space left")
            )
        result_of(8.0).save(tmp_path)
    monkeypatch.undo()
    assert wb.load(tmp_path).guarantee.epsilon == (2.0 if is_refused else 8.0)


ON_A_FULL_DISK = """
import gc, sys
from killed_saves import epsilons_of, result_of
for folder in sys.argv[1:]:
    try:
        print("saved in", result_of(2.0).save(folder), epsilons_of(folder))
    except OSError as error:
        print("refused:", error.strerror)
gc.collect()  # which closes what is still open
print("alive")
"""


@pytest.mark.integration
def test_a_disk_that_is_full_is_an_error_and_not_the_end_of_the_process(tmp_path):
    """HDF5 crashes the process with SIGSEGV when it cannot write the rest of a file."""
    with contextlib.ExitStack() as mounted:
        for size in ("8k", "16k", "20k", "60k"):
            (tmp_path / size).mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(tmp_path / size)]
            if (
                shutil.which("mount") is None
                or subprocess.run(mount, capture_output=True).returncode
            ):
                pytest.skip("no small file system can be mounted here")
            mounted.callback(subprocess.run, ["umount", str(tmp_path / size)], check=True)
        folders = [str(tmp_path / size / "run") for size in ("8k", "16k", "20k", "60k")]
        program = [sys.executable, "-W", "ignore", "-c", ON_A_FULL_DISK, *folders]
        found = {
            "PYTHONPATH": os.pathsep.join(
                [str(Path(__file__).parent), *filter(None, [os.getenv("PYTHONPATH")])]
            )
        }
        answer = subprocess.run(
            program, capture_output=True, text=True, timeout=300, env={**os.environ, **found}
        )
    assert answer.returncode == 0, answer.stderr[-3000:]
    *lines, last = answer.stdout.splitlines()
    assert last == "alive"
    assert lines[:2] == ["refused: No space left on device"] * 2
    assert all(line.startswith("refused") or line.endswith("{2.0}") for line in lines)
    assert lines[3].endswith("{2.0}")


def test_another_process_that_writes_is_waited_for(quick, result_of, tmp_path, monkeypatch):
    if _atomic.fcntl is None:
        pytest.skip("no locks here")
    result_of(2.0).save(tmp_path)
    monkeypatch.setattr(_atomic, "_LOCK_TIMEOUT", 0.1)
    with _atomic._locked(tmp_path), pytest.raises(BlockingIOError):
        result_of(8.0).save(tmp_path)
    assert epsilon_of(tmp_path) == 2.0


def test_without_locks_saving_goes_on(quick, result_of, tmp_path, monkeypatch):
    monkeypatch.setattr(_atomic, "fcntl", None)
    result_of(2.0).save(tmp_path)
    result_of(8.0).save(tmp_path)
    assert epsilon_of(tmp_path) == 8.0


@pytest.mark.integration
def test_processes_that_are_killed_and_race_leave_whole_results():
    program = Path(__file__).parent / "killed_saves.py"
    answer = subprocess.run(
        [sys.executable, str(program), "40", "1"], capture_output=True, text=True, timeout=900
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    report = json.loads(answer.stdout)
    assert report["killed"] >= 20
    assert report["mixtures"] == []
    assert report["loads_while_two_write"] >= 20
