"""The user's folders in which the workbench keeps its files, and files that are read and written
whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

__all__ = ["cache", "content", "flush", "open_regular", "put_new", "state", "title_of"]

_NAME = "dpvi-workbench"


def cache() -> Path:
    """The folder for files that can be made again: ``dpvi-workbench`` under ``$XDG_CACHE_HOME`` or
    ``~/.cache``.
    """
    return _under("XDG_CACHE_HOME", "~/.cache") / _NAME


def state() -> Path:
    """The folder for other files: ``$WORKBENCH_STATE``, or else ``dpvi-workbench`` in the user's
    application data.

    Application data are in ``$XDG_DATA_HOME`` or ``~/.local/share``, on macOS
    ``~/Library/Application Support``, on Windows ``%LOCALAPPDATA%``.
    """
    chosen = os.environ.get("WORKBENCH_STATE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return _under("LOCALAPPDATA", "~/AppData/Local") / _NAME
    return (
        _under(
            "XDG_DATA_HOME",
            "~/Library/Application Support" if sys.platform == "darwin" else "~/.local/share",
        )
        / _NAME
    )


def title_of(path: str | Path) -> str:
    """The name of a file without suffixes, in letters that are printed.

    Its bytes are read as UTF-8 whatever the locale is, which may know no accents; other bytes are
    written as \\xe9.
    """
    return os.fsencode(Path(path).name.split(".")[0]).decode("utf-8", "backslashreplace")


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
    """Wait until a file or folder is on the disk. :raises PermissionError: for a folder on Windows,
    which opens none.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_regular(path: Path) -> BinaryIO:
    """A regular file, also behind a symbolic link, for reading.

    A pipe or a device would be waited for, or read without an end.

    :raises OSError: if it cannot be read, or is no regular file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")


def content(path: Path, most: int | None = None) -> bytes:
    """The bytes of a regular file.

    :param most: how many there may be; None for any number.
    :raises OSError: as ``open_regular``; with ``errno.EFBIG``, if there are more.
    """
    with open_regular(path) as file:
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def _under(variable: str, otherwise: str) -> Path:
    """The folder in an environment variable, if it is set, or else ``otherwise``."""
    return Path(os.environ.get(variable) or otherwise).expanduser()
