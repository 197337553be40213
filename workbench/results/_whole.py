"""Files of one folder that change together: a reader finds all of the old ones, all of the new ones, or a sentence.

``INDEX`` holds the digests of the others. New files are written into a hidden folder beside the old ones, then the new index
replaces the old one, and only then the others are moved to their places.

*Why no reader takes a mixture.* One rename decides: before it the index and all that it names are untouched, after it each
file is in the hidden folder until it is moved. A reader takes a file only by its digest, from its place or from the hidden
folder, and only if the index is the same before and after, so a process that is killed anywhere leaves the old files or the
new ones. Results of earlier versions have no digests: their files change after their index did, which the second look at the
index notices. Writers wait for each other; where files cannot be locked (Windows, some network drives), two that write at
once can leave files of which a reader says that they do not belong together.

Files of other names are left alone. A folder cannot replace another that is not empty, may be where another drive is
mounted, or the one that a program works in: that is why not the folder itself is exchanged.
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

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["INDEX", "SaveWarning", "Torn", "digest", "read", "replace"]

INDEX = "result.json"

_HIDDEN = ".saving-"
_PATIENCE = 60.0  # seconds for another process that writes
_LOOKS = 50  # at a folder that others write into


class SaveWarning(UserWarning):
    """Something beside the numbers of a result could not be saved."""


class Torn(Exception):
    """A file is not the one that the index names; the message is the file's name."""


def digest(content: bytes) -> str:
    """SHA-256, 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


# ---- writing --------------------------------------------------------------------------------------------------------------


def replace(
    folder: Path,
    writers: Mapping[str, Callable[[Path], object]],
    index: Callable[[dict[str, str]], bytes],
    *,
    without: Iterable[str] = (),
    after: bytes | None = None,
) -> bytes | None:
    """Put new files and the index in place of old ones.

    :param writers: by name, what writes a file to a path.
    :param index: the new index, from the digests of what was written.
    :param without: files of the old index that the new one has none of; they are deleted.
    :param after: do nothing unless this is the index.
    :return: the new index; None where there was another one than ``after``.
    :raises OSError: if it cannot be written: the old files are still there. What cannot be moved to its place afterwards
        is a ``SaveWarning``: ``read`` takes it from where it is.
    """
    with _locked(folder) as alone:
        if after is not None and (folder / INDEX).read_bytes() != after:
            return None
        hidden = folder / f"{_HIDDEN}{uuid.uuid4().hex}"
        hidden.mkdir()
        try:
            digests = {}
            for name, write in writers.items():
                write(hidden / name)
                digests[name] = digest((hidden / name).read_bytes())
                _on_disk(hidden / name)
            content = index(digests)
            (hidden / INDEX).write_bytes(content)
            _on_disk(hidden / INDEX)
            _on_disk(hidden)
            for name in without:
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
            _on_disk(folder)
            for name in writers:
                os.replace(hidden / name, folder / name)
            hidden.rmdir()
        except OSError as error:
            reason = f"stays in {hidden}: {error.strerror or error}. wb.load finds it there."
            warnings.warn(f"a file of this result {reason}", SaveWarning, stacklevel=4)
            return content
        if alone and after is None:  # no file but the new ones is named now
            for left in folder.glob(f"{_HIDDEN}*"):  # by writers that were killed
                shutil.rmtree(left, ignore_errors=True)
        return content


def _on_disk(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    with contextlib.suppress(PermissionError):  # Windows does not open folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Wait until no other process writes into ``folder``; whether that can be known.

    :raises OSError: if another one does for more than a minute.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        yield _lock(handle)
    finally:
        os.close(handle)  # which gives the lock back, as the end of the process does


def _lock(handle: int) -> bool:
    until = time.monotonic() + _PATIENCE
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


# ---- reading --------------------------------------------------------------------------------------------------------------


def read(folder: Path, files_of: Callable[[bytes], Mapping[str, str | None]]) -> tuple[bytes, dict[str, bytes]]:
    """The index and the files that belong to it.

    :param files_of: names and digests that an index states, a digest None where it states none.
    :return: the index, and of the files those that are there.
    :raises Torn: naming a file that is not the one that belongs to the index.
    :raises OSError: if something cannot be read.
    """
    problem: Torn | None = None
    for _ in range(_LOOKS):
        index = (folder / INDEX).read_bytes()
        try:
            found = {name: _content(folder, name, known) for name, known in files_of(index).items()}
        except Torn as torn:
            problem, found = torn, {}
        if (folder / INDEX).read_bytes() == index:
            if problem is not None:
                raise problem
            return index, {name: content for name, content in found.items() if content is not None}
        problem = None
    raise Torn(INDEX)


def _content(folder: Path, name: str, known: str | None) -> bytes | None:
    """A file by its digest, from its place, or from where it waits to be moved there; None where there is no such file."""
    there = False
    # a second look at its place finds what was moved between the first one and the look at the hidden folders
    for place in (folder, *folder.glob(f"{_HIDDEN}*"), folder) if known is not None else (folder,):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            content = (place / name).read_bytes()
            if known is None or digest(content) == known:
                return content
            there = there or place == folder
    if there:
        raise Torn(name)
    return None
