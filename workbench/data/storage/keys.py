"""Keys of records at rest: 32 bytes in a file, in the environment, or in the system's keyring."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path

from workbench import _folders, _validate
from workbench._keys import KEY_BYTES, MOST_BYTES, make_key

__all__ = ["VARIABLE", "found_key", "key_in_file", "named_key"]

VARIABLE = "WORKBENCH_RECORDS_KEY"
_SERVICE = "dpvi-workbench records"


def found_key(
    key_file: str | Path | None = None, keyring: str | None = None, *, make: bool = False
) -> bytes | None:
    """The user's key: in ``key_file``, in the keyring under the name ``keyring``, or in
    ``$WORKBENCH_RECORDS_KEY``.

    :param make: whether a key that is missing in the named place is made there.
    :return: None if no place is named and the variable is not set.
    :raises ArgumentError: naming ``key_file`` or ``keyring``; the key itself is never quoted.
    """
    if key_file is not None and keyring is not None:
        raise _validate.ArgumentError(
            "keyring", keyring, "must be left out, because key_file is given."
        )
    if key_file is not None:
        return key_in_file(
            _validate.location("key_file", key_file, "must be the path of a file with a key."),
            make=make,
        )
    if keyring is not None:
        return _in_keyring(
            _validate.text("keyring", keyring, "must be a name in the system's keyring."), make=make
        )
    text = os.environ.get(VARIABLE)
    return None if not text else _from_text("key_file", f"${VARIABLE}", text)


def named_key(
    key_file: str | Path | None = None, keyring: str | None = None
) -> tuple[str, str] | None:
    """(argument, place) where the user says that a key is; None if no place is named."""
    for argument, source in (("key_file", key_file), ("keyring", keyring)):
        if source is not None:
            return argument, str(source)
    return ("key_file", f"${VARIABLE}") if os.environ.get(VARIABLE) else None


def key_in_file(path: Path, *, make: bool = False) -> bytes:
    """The key in a regular file of 32 bytes, or of 64 hexadecimal digits.

    :raises ArgumentError: naming ``key_file``.
    """
    try:
        content = (
            _folders.content(path, MOST_BYTES) if path.exists() or not make else make_key(path)
        )
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _no_key("key_file", str(path)) from None
        raise _validate.ArgumentError(
            "key_file", str(path), f"cannot be read ({error.strerror or error})."
        ) from None
    if len(content) == KEY_BYTES:
        return content
    return _from_text("key_file", str(path), content.decode("ascii", "replace"))


def _in_keyring(name: str, *, make: bool) -> bytes:
    try:
        keyring = importlib.import_module("keyring")
    except ImportError:
        raise _validate.ArgumentError(
            "keyring", name, "needs a package: pip install keyring."
        ) from None
    try:
        text = keyring.get_password(_SERVICE, name)
        if text is None and make:
            text = os.urandom(KEY_BYTES).hex()
            keyring.set_password(_SERVICE, name, text)
    except Exception as error:  # of whichever backend there is; its words may not be shown
        reason = f"the system's keyring cannot be used ({type(error).__name__})."
    else:
        if text is None:
            raise _validate.ArgumentError("keyring", name, "is no name in the system's keyring.")
        return _from_text("keyring", name, text)
    raise _validate.ArgumentError("keyring", name, reason)


def _from_text(argument: str, source: str, text: str) -> bytes:
    """:raises ArgumentError: naming ``argument`` and the place, without the text."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise _no_key(argument, source)
    return key


def _no_key(argument: str, source: str) -> _validate.ArgumentError:
    return _validate.ArgumentError(
        argument,
        source,
        f"must hold a key of {KEY_BYTES} bytes, or {2 * KEY_BYTES} hexadecimal digits.",
    )
