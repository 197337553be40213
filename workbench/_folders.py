"""The user's folders where the workbench keeps files of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache", "state"]

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


def _under(variable: str, otherwise: str) -> Path:
    """The folder that an environment variable names, where it is set."""
    return Path(os.environ.get(variable) or otherwise).expanduser()
