"""The user's folders in which the workbench keeps its files."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

__all__ = ["cache", "flush", "put_new", "state"]

_NAME = "dpvi-workbench"


def cache() -> Path:
    """The folder for files that can be made again: ``dpvi-workbench`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return _under("XDG_CACHE_HOME", "~/.cache") / _NAME


def state() -> Path:
    """The folder for other files: ``$WORKBENCH_STATE``, or else ``dpvi-workbench`` in the user's application data.

    Application data are in ``$XDG_DATA_HOME`` or ``~/.local/share``, on macOS ``~/Library/Application Support``, on Windows
    ``%LOCALAPPDATA%``.
    """
    chosen = os.environ.get("WORKBENCH_STATE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return _under("LOCALAPPDATA", "~/AppData/Local") / _NAME
    return _under("XDG_DATA_HOME", "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share") / _NAME


def put_new(partial: Path, path: Path) -> bool:
    """Give a finished file its name, atomically and never over another file.

    :param partial: the file, in the same folder; it does not exist afterwards.
    :return: False if there was a file of that name.
    """
    try:
        flush(partial)
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # some systems cannot open folders
        flush(path.parent)  # otherwise the name may be lost in a power cut
    return True


def flush(path: Path) -> None:
    """Wait until a file or folder is on the disk. :raises PermissionError: for a folder on Windows, which opens none."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _under(variable: str, otherwise: str) -> Path:
    """The folder in an environment variable, if it is set, or else ``otherwise``."""
    return Path(os.environ.get(variable) or otherwise).expanduser()
