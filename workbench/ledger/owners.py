"""Which processes are still running. Each holds a lock on a small file, and the lock ends with the
process, however it ends.

Clocks and process numbers, which the operating system reuses, do not decide whether a reservation's
fit is still running.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be deleted
    fcntl = None  # type: ignore[assignment]

__all__ = ["is_alive", "own"]

_lock = threading.Lock()
_locked_files: dict[
    Path, tuple[int, str, int]
] = {}  # folder: process, owner, handle of the locked file


def own(folder: Path) -> str:
    """The name of this process in ``folder``, which is created if it is missing. It stays the same
    for the whole process.

    :raises OSError: if the folder cannot be written to.
    """
    folder = folder.resolve()
    with _lock:
        process, owner, _ = _locked_files.get(folder, (0, "", 0))
        if (
            process == os.getpid() and (folder / owner).exists()
        ):  # a forked child inherits the entry
            return owner
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = uuid.uuid4().hex
        handle = os.open(folder / owner, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        _locked_files[folder] = os.getpid(), owner, handle
        return owner


def is_alive(folder: Path, owner: str) -> bool:
    """Whether the process called ``owner`` is still running. Deletes its file if it is not."""
    path = folder / owner
    if fcntl is None:
        with contextlib.suppress(FileNotFoundError):
            try:
                path.unlink()
            except PermissionError:
                return True
        return False
    try:
        handle = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(handle)
