"""The user's folders where the workbench keeps files of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

__all__ = ["cache", "put_new", "state"]

_NAME = "dpvi-workbench"


def cache() -> Path:
    """What can be made again: ``dpvi-workbench`` under ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    return _under("XDG_CACHE_HOME", "~/.cache") / _NAME


def state() -> Path:
    """What cannot: ``$WORKBENCH_STATE``, else ``dpvi-workbench`` in the user's folder of application data.

    That is ``$XDG_DATA_HOME`` or ``~/.local/share``, on macOS ``~/Library/Application Support``, on Windows
    ``%LOCALAPPDATA%``.
    """
    chosen = os.environ.get("WORKBENCH_STATE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return _under("LOCALAPPDATA", "~/AppData/Local") / _NAME
    return _under("XDG_DATA_HOME", "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share") / _NAME


def put_new(partial: Path, path: Path) -> bool:
    """Give a finished file its name, whole or not at all and never over another; returns whether it was the first there.

    :param partial: in the same folder; it is gone afterwards.
    """
    try:
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # where folders cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # or a power cut may take the name away
        finally:
            os.close(folder)
    return True


def _under(variable: str, otherwise: str) -> Path:
    """The folder that an environment variable names, where it is set."""
    return Path(os.environ.get(variable) or otherwise).expanduser()
