"""Errors of the ledger. Programs decide by their class and ``code``, and no code looks at the words
of a message.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

from workbench import _validate

__all__ = [
    "DamageError",
    "LedgerDiskError",
    "LedgerError",
    "LedgerFileError",
    "LostLedgerError",
    "is_locked",
    "ledger_error",
]

RESTORE = (
    "Restore a copy, because what the ledger recorded is spent. If there is no copy, workbench "
    "ledger begin-anew begins an empty ledger, which knows neither what was spent before nor any "
    "cap."
)
OTHER_FILE = "Name another file with ledger= or $WORKBENCH_LEDGER"
NO_OTHER_FILE = "Another file would know neither what was spent before nor any cap."

_PROBED = 64 * 1024  # bytes
_OF_ERRNO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "disk full"),
    errno.EIO: "disk error",
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "used up"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "not writable"),
}
# https://www.sqlite.org/rescode.html; ``sqlite_errorcode`` is extended, and its lowest 8 bits are
# the primary code
_OF_SQLITE = {
    sqlite3.SQLITE_FULL: "disk full",
    sqlite3.SQLITE_IOERR: "disk error",
    sqlite3.SQLITE_CANTOPEN: "not reachable",
    **dict.fromkeys(
        (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH), "not writable"
    ),
    **dict.fromkeys(
        (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL), "locked"
    ),
    **dict.fromkeys((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB), "damaged"),
}


class LedgerError(Exception):
    """The ledger cannot be used, and nothing in it was changed.

    ``path`` is its file. ``code`` names the problem: "disk full" and "disk error"
    (``LedgerDiskError``); "gone" and "damaged" (``LostLedgerError``); "not writable", "not
    reachable", "broken link", "used up", "no folder", "locked", "another format", "another
    database", "not done", "key", "in order", "never there", "unknown fit", "running" and "no
    reservation" (``LedgerFileError``).
    """

    argument = "ledger"
    path: Path
    code: str


class LedgerFileError(LedgerError, _validate.ArgumentError):
    """The file that ``ledger`` names cannot be used, or not for what was asked."""

    def __init__(self, path: Path, expectation: str, *, code: str, remedy: str = "") -> None:
        self.path = path
        super().__init__("ledger", str(path), expectation, code=code, remedy=remedy)


class LostLedgerError(LedgerFileError):
    """The ledger's file is gone or damaged, and with it what was spent and allowed."""


class LedgerDiskError(LedgerError, OSError):
    """The disk is full or does not work. ``errno`` is that of the operating system, or says what
    SQLite reported.
    """

    def __init__(self, path: Path, number: int, reason: str, *, code: str) -> None:
        self.path = path
        self.code = code
        super().__init__(number, reason, str(path))

    def __str__(self) -> str:
        return f"ledger={self.filename!r}: {self.strerror}"


class DamageError(Exception):
    """A file is not a sound ledger of this version.

    :param code: "damaged", "another database" or "another format". :param reason: the evidence.
    """

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


def is_locked(error: sqlite3.Error) -> bool:
    """Whether the database is temporarily locked by another connection."""
    return _code(error)[0] == "locked"


def ledger_error(
    path: Path, error: OSError | sqlite3.Error | UnicodeDecodeError | DamageError
) -> LedgerError:
    """The error of the ledger in ``path`` that an error of SQLite or of the file system
    stands for.
    """
    code, number = _code(error)
    if code in ("disk error", "not reachable") and isinstance(error, sqlite3.Error):
        cause = _cause(path)
        if cause is not None and not isinstance(cause, FileNotFoundError):
            error, (code, number) = cause, _code(cause)
    if code == "disk full":
        reason = (
            f"the disk is full, or its files may not grow ({error}). Nothing was recorded, and "
            "what was recorded before is safe. Make room."
        )
        return LedgerDiskError(path, number, reason, code=code)
    if code == "disk error":
        return LedgerDiskError(
            path, number, f"could not be read or written ({error}). Check the disk.", code=code
        )
    if code in _LOST:
        return LostLedgerError(path, _LOST[code].format(error), code=code, remedy=RESTORE)
    expectation, remedy = _UNUSABLE[code]
    return LedgerFileError(path, expectation.format(error), code=code, remedy=remedy)


def _cause(path: Path) -> OSError | None:
    """Why the files of a ledger cannot be used, as the operating system says it; None if it lets
    everything be done.

    SQLite does not tell. It needs room in the folder even to read: its index of the write-ahead log
    takes 32 KiB.
    """
    try:
        beside = [Path(f"{path}{end}") for end in ("-wal", "-shm")]
        for used in (path, *(name for name in beside if name.exists())):
            os.close(os.open(used, os.O_RDWR))
        with tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(_PROBED))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error
    return None


_LOST = {
    "gone": "is not there ({}).",
    "damaged": "is damaged or not a ledger ({}). It was left as it is.",
}
_UNUSABLE = {
    "not writable": (
        "cannot be read and written ({}).",
        f"Get the right to read and write it, the files beside it and its folder. {NO_OTHER_FILE}",
    ),
    "not reachable": ("cannot be opened ({}).", f"Make it a file that opens. {NO_OTHER_FILE}"),
    "used up": (
        "cannot be opened now ({}). Nothing was recorded.",
        "Close files, or allow this process more of them.",
    ),
    "locked": ("is locked by another process ({}).", "Try again when that has ended."),
    "not done": ("could not do what was asked ({}). Nothing was changed.", ""),
    "another format": ("was written by another version ({}).", "Use that version."),
    "another database": (
        "is not a ledger ({}). It was left as it is.",
        "Move it away, or restore a copy of the ledger.",
    ),
}


def _code(error: OSError | sqlite3.Error | UnicodeDecodeError | DamageError) -> tuple[str, int]:
    """The code of a ``LedgerError``, and the error number of a ``LedgerDiskError``."""
    if isinstance(error, DamageError):
        return error.code, 0
    if isinstance(error, UnicodeDecodeError):
        return "damaged", 0
    if isinstance(error, FileNotFoundError):
        return "gone", 0
    if isinstance(error, OSError):
        number = error.errno or 0
        return _OF_ERRNO.get(number, "not reachable"), number
    # an error of Python's has no code of SQLite; a value that cannot be bound, or a statement that
    # fails, says nothing about the file
    code = _OF_SQLITE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "not done")
    return code, errno.ENOSPC if code == "disk full" else errno.EIO
