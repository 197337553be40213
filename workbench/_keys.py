"""Files with a secret key of 32 bytes."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from workbench import _folders, _validate

__all__ = ["KEY_BYTES", "MOST_BYTES", "make_key", "read_key"]

KEY_BYTES = 32
MOST_BYTES = 4096  # of a file with a key, which may be written in hexadecimal digits


def read_key(path: Path) -> bytes | None:
    """The 32 bytes in ``path``, None if there is no such file.

    :raises ArgumentError: naming ``key file``, if that is damaged. :raises OSError: if it cannot be
        read.
    """
    try:
        key = _folders.content(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        key, size = b"", f"more than {MOST_BYTES}"
    else:
        size = str(len(key))
    if len(key) != KEY_BYTES:
        raise _validate.ArgumentError(
            "key file",
            str(path),
            f"holds {size} bytes instead of {KEY_BYTES}.",
            remedy="Restore it. Or delete it: a new key is made then, which does not recognise "
            "private records seen before.",
        )
    return key


def make_key(path: Path, key: bytes | None = None, mode: int = 0o600) -> bytes:
    """The key in ``path``, which is created if it is missing. Of several processes that create it
    at once, one succeeds.

    :param key: to keep there; None for a new one. :param mode: permissions of the file.
    :raises ArgumentError, OSError: as ``read_key``, and if it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(key or os.urandom(KEY_BYTES))
        os.chmod(partial, mode)
        _folders.put_new(Path(partial), path)
    finally:
        Path(partial).unlink(missing_ok=True)
    stored = read_key(path)
    if stored is None:
        raise FileNotFoundError(f"{path} was deleted while it was created")
    return stored
