"""The small files that owners and coordinator exchange: JSON, of one form each."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench import _folders, _json, _schema, _validate
from workbench._validate import ArgumentError

__all__ = [
    "FORMAT",
    "MOST_BYTES",
    "checked",
    "digest_of",
    "is_of",
    "read",
    "read_bytes",
    "text_with",
    "write_new",
]

FORMAT = 3
MOST_BYTES = 2**26


def text_of(content: Mapping[str, Any]) -> str:
    """JSON of which there is one text for equal contents."""
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def text_with(kind: str, content: Mapping[str, Any]) -> str:
    """What ``checked`` takes."""
    return text_of({"format": FORMAT, "kind": kind, **content})


def is_of(kind: str, text: str | bytes) -> bool:
    """Whether a text says that it is of this kind."""
    try:
        content = _json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("kind") == kind


def digest_of(content: Mapping[str, Any]) -> str:
    """SHA-256 of ``text_of``, 64 hexadecimal digits."""
    return hashlib.sha256(text_of(content).encode()).hexdigest()


def read(argument: str, path: str | Path, kind: str, form: _schema.Form) -> dict[str, Any]:
    """The content of a file of this kind.

    :param argument: for errors. :param form: of all but ``format`` and ``kind``.
    :raises ArgumentError: if it cannot be read, or is another kind of file or damaged.
    """
    return checked(argument, path, read_bytes(argument, path), kind, form)


def read_bytes(argument: str, path: str | Path) -> bytes:
    """The bytes of a file. :param argument: for errors. :raises ArgumentError: if it has none."""
    try:
        return _folders.content(_validate.path(argument, path), MOST_BYTES)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})."
        raise ArgumentError(argument, str(path), reason) from None


def checked(
    argument: str, path: object, text: str | bytes, kind: str, form: _schema.Form
) -> dict[str, Any]:
    """The content of a text as of ``read``, with its errors. :param path: where it is from."""
    try:
        content = _json.loads(text)
    except (ValueError, RecursionError):
        raise ArgumentError(argument, str(path), "is no JSON file, or damaged.") from None
    said = content.get("kind") if isinstance(content, dict) else None
    if said != kind:
        raise ArgumentError(argument, str(path), f"is not a file of an owners' {kind}.")
    if content.pop("format", None) != FORMAT:
        reason = "was written by another version of the workbench: all must use the same."
        raise ArgumentError(argument, str(path), reason)
    del content["kind"]
    try:
        form("", content)
    except _schema.FormError as error:
        raise ArgumentError(argument, str(path), f"is damaged: {error}") from None
    return content


def write_new(argument: str, path: Path, kind: str, content: Mapping[str, Any]) -> Path:
    """Write a file that is not there yet, at once and complete.

    :raises ArgumentError: if there is one of that name, or it cannot be written.
    """
    text = text_with(kind, content)
    try:
        handle, partial = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(partial, 0o644)
        is_new = _folders.put_new(Path(partial), path)
    except OSError as error:
        reason = f"cannot be written ({error.strerror})."
        raise ArgumentError(argument, str(path), reason) from None
    if not is_new:
        raise ArgumentError(argument, str(path), "is there already: name another folder.")
    return path
