"""Several files of a folder replaced together: ``read`` returns all old files, all new files, or
raises an error.

The file ``INDEX`` holds the digests of the others. ``replace`` writes the new files into a hidden
folder beside the old ones, then replaces the index, and only then moves the other files to their
places.

*Why old and new files are never mixed.* One rename decides. Before it, the index and every file
that it names are unchanged. After it, each new file stays in the hidden folder until it is moved.
``read`` accepts a file only by its digest, from its place or from the hidden folder, and only if
the index is the same before and after. So a process that is killed at any point leaves the old
files or the new ones. Processes that write wait for each other. Where files cannot be locked
(Windows, some network drives), two that write at once can leave files that ``read`` rejects because
they do not belong together.

Files with other names are left alone. The folder itself is not swapped: a folder cannot replace
another that is not empty, and it may be a mount point or a program's working directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from workbench import _folders

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["INDEX", "SaveWarning", "TornError", "digest", "read", "replace"]

INDEX = "result.json"

_HIDDEN = ".saving-"
_LOCK_TIMEOUT = 60.0  # seconds to wait for another process that writes
_READ_ATTEMPTS = 50  # while other processes write into the folder


class SaveWarning(UserWarning):
    """The numbers of a result were saved, but another of its files was not."""


class TornError(Exception):
    """A file that is not the one the index names. The message is the file's name."""


def digest(content: bytes) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


# ---- writing -------------------------------------------------------------------------------------


def replace(
    folder: Path,
    writers: Mapping[str, Callable[[Path], object]],
    index: Callable[[dict[str, str]], bytes],
    *,
    delete: Iterable[str] = (),
    expected: bytes | None = None,
) -> bytes | None:
    """Replace files and the index that names them.

    :param writers: ``{name: write}``, where ``write(path)`` writes the file.
    :param index: makes the new index from the digests of the files.
    :param delete: files of the old index that are not in the new one.
    :param expected: do nothing unless this is the present index.
    :return: the new index; None if the present one is not ``expected``.
    :raises OSError: if a file cannot be written; the old files are then unchanged. A file that was
        written but cannot be moved to its place causes a ``SaveWarning``; ``read`` finds it in the
        hidden folder.
    """
    with _locked(folder) as is_exclusive:
        if expected is not None and (folder / INDEX).read_bytes() != expected:
            return None
        hidden = folder / f"{_HIDDEN}{uuid.uuid4().hex}"
        hidden.mkdir()
        try:
            digests = {}
            for name, write in writers.items():
                write(hidden / name)
                digests[name] = digest((hidden / name).read_bytes())
                _flush(hidden / name)
            content = index(digests)
            (hidden / INDEX).write_bytes(content)
            _flush(hidden / INDEX)
            _flush(hidden)
            for name in delete:
                (folder / name).unlink(missing_ok=True)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        try:
            os.replace(hidden / INDEX, folder / INDEX)
        except OSError:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        try:
            _flush(folder)
            for name in writers:
                os.replace(hidden / name, folder / name)
            hidden.rmdir()
        except OSError as error:
            reason = f"stays in {hidden}: {error.strerror or error}. wb.load finds it there."
            warnings.warn(f"a file of this result {reason}", SaveWarning, stacklevel=4)
            return content
        if is_exclusive and expected is None:  # the index names no file in a hidden folder any more
            for leftover in folder.glob(f"{_HIDDEN}*"):  # by processes that were killed
                shutil.rmtree(leftover, ignore_errors=True)
        return content


def _flush(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    with contextlib.suppress(PermissionError):  # Windows does not open folders
        _folders.flush(path)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Wait until no other process writes into ``folder``; yield False where files cannot be locked.

    :raises OSError: if another process writes for more than a minute.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(handle)
    finally:
        os.close(handle)  # releases the lock, as the end of the process does


def _lock(handle: int) -> bool:
    until = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False


# ---- reading -------------------------------------------------------------------------------------


def read(
    folder: Path, files_of: Callable[[bytes], Mapping[str, str]]
) -> tuple[bytes, dict[str, bytes]]:
    """Read the index and the files that belong to it.

    :param files_of: returns the names and digests in an index.
    :return: the index, and the files that exist.
    :raises TornError: naming a file that does not belong to the index.
    :raises OSError: if a file cannot be read.
    """
    problem: TornError | None = None
    for _ in range(_READ_ATTEMPTS):
        index = _folders.content(folder / INDEX)
        try:
            files = {
                name: _content(folder, name, wanted) for name, wanted in files_of(index).items()
            }
        except TornError as torn:
            problem, files = torn, {}
        if _folders.content(folder / INDEX) == index:
            if problem is not None:
                raise problem
            return index, {name: content for name, content in files.items() if content is not None}
        problem = None
    raise TornError(INDEX)


def _content(folder: Path, name: str, wanted: str) -> bytes | None:
    """The file with the digest ``wanted``, from its place or from a hidden folder; None if there is
    no such file.
    """
    exists = False
    # The place is searched twice, because a file may be moved there while the hidden folders are
    # searched.
    for directory in (folder, *folder.glob(f"{_HIDDEN}*"), folder):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            content = _folders.content(directory / name)
            if digest(content) == wanted:
                return content
            exists = exists or directory == folder
    if exists:
        raise TornError(name)
    return None
