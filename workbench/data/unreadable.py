"""Files that cannot be read: what is said about them quotes nothing of them."""

from __future__ import annotations

import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench._lazy import pd

__all__ = ["UnreadableFileError", "existing", "read_or_refuse"]

_DAMAGED = (EOFError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
_UNREADABLE = (*_DAMAGED, ValueError, TypeError, OverflowError, OSError)


class UnreadableFileError(_validate.ArgumentError):
    """A file is not of the kind that it should be.

    :param kind: such as "CSV".
    :param reason: quotes nothing of the file.
    """

    def __init__(self, path: str | Path, kind: str, reason: str) -> None:
        self.kind = kind
        super().__init__("path", str(path), f"cannot be read as {kind}: {reason}.")


def read_or_refuse(path: str | Path, kind: str, read: Callable[[], Any]) -> Any:
    """What ``read`` returns. Its errors are replaced, because their words quote cells of
    the file.
    """
    try:
        return read()
    except _validate.ArgumentError:
        raise
    except (*_UNREADABLE, pd.errors.ParserWarning) as error:  # including errors of pyarrow
        reason = _reason(error)
    # raised outside the handler, which would keep the first error as context
    raise UnreadableFileError(path, kind, reason)


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):  # of UTF-16, as anything else can be read
        return "its text is cut short"
    if isinstance(error, pd.errors.EmptyDataError):
        return "it is empty"
    if isinstance(error, (pd.errors.ParserError, pd.errors.ParserWarning)):
        return (
            "some row has more fields than there are column names, or a quotation mark is not "
            "closed"
        )
    if isinstance(error, _DAMAGED):
        return "it is damaged or cut short"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it is damaged or in another format, or contains objects"


def existing(path: str | Path) -> Path:
    """The path of a regular file that exists. :raises ArgumentError: naming ``path``."""
    file = _validate.path("path", path)
    if not file.is_file():  # a pipe would be waited for, and a device read without an end
        is_other = file.exists() and not file.is_dir()
        raise _validate.ArgumentError(
            "path", str(path), "is no regular file." if is_other else "no such file."
        )
    return file
