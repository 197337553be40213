"""A new file that appears under its name when it is complete, and what is left of one that
was not.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from workbench import _folders, _validate
from workbench.data.storage.blocks import RecordsError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["new_file"]


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[tuple[int, Path]]:
    """(an open file, its path): a new file that gets the name ``target`` at the end, unless
    something fails.
    """
    _delete_left_behind(target)
    try:
        handle, partial = _locked_file(target)
    except OSError as error:
        raise _validate.ArgumentError(
            "out", str(target), f"cannot write there ({error.strerror})."
        ) from None
    try:
        try:
            yield handle, partial
        except RecordsError as error:
            raise _validate.ArgumentError("out", str(target), error.reason) from None
        try:
            is_new = _folders.put_new(partial, target)
        except OSError as error:  # some systems notice only now that a disk is full
            raise _validate.ArgumentError(
                "out", str(target), f"cannot be written ({error.strerror})."
            ) from None
        if not is_new:
            raise _validate.ArgumentError(
                "out", str(target), "exists already: name another file, or delete it."
            )
    finally:
        partial.unlink(missing_ok=True)
        os.close(handle)


def _locked_file(target: Path) -> tuple[int, Path]:
    """(a new file, its path), which is locked as long as this process packs it."""
    while True:
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network drives have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if partial.exists():
            return handle, partial
        os.close(handle)  # another packing deleted it before it was locked


def _delete_left_behind(target: Path) -> None:
    """Delete what packings of ``target`` left that were killed: a lock ends with its process,
    however that ends.
    """
    name = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{32}\.partial")
    with contextlib.suppress(OSError):
        for path in filter(lambda path: name.fullmatch(path.name), list(target.parent.iterdir())):
            with contextlib.suppress(OSError), _folders.open_regular(path) as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
