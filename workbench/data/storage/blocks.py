"""Blocks of a file at rest, sealed or in the clear. Every read and write of records at rest goes
through this module.

A sealed block is AES-256-GCM of its content under a nonce of its section (of the file) and its
position there, and additional data that name the file too. So a block is refused if it was altered,
moved, or taken from another section, pass or file.

A block in the clear has a checksum of the same instead, against damage: anybody who alters a block
can compute it.
"""

from __future__ import annotations

import importlib
import os
import zlib
from pathlib import Path
from typing import Any, ClassVar

from workbench import _validate

__all__ = [
    "Blocks",
    "Checksum",
    "Guard",
    "RecordsError",
    "Seal",
    "file_key",
    "require_cryptography",
]

_PURPOSE = b"dpvi-workbench records at rest 1"
_MOST_BLOCKS = 2**32  # under one key: far below what AES-GCM allows with nonces that count


class RecordsError(OSError):
    """Raised when records at rest can no longer be read or written: damaged, altered, or on a full
    disk.

    :param path: of the file. :param reason: quotes nothing of it.
    """

    def __init__(self, path: str | Path, reason: str) -> None:
        self.path, self.reason = str(path), reason
        super().__init__(f"{path}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.reason)


def require_cryptography() -> None:
    """:raises ArgumentError: naming ``encrypt``, if the package that encrypts is not installed."""
    try:
        importlib.import_module("cryptography")
    except ImportError:
        raise _validate.ArgumentError(
            "encrypt", True, "needs a package: pip install cryptography."
        ) from None


def file_key(key: bytes, salt: bytes) -> bytes:
    """The key of one file: HKDF-SHA256 (RFC 5869) of the user's ``key`` with the file's own random
    ``salt``.

    Nonces may thus begin at 0 in every file.
    """
    hashes = importlib.import_module("cryptography.hazmat.primitives.hashes")
    hkdf = importlib.import_module("cryptography.hazmat.primitives.kdf.hkdf")
    return bytes(hkdf.HKDF(hashes.SHA256(), len(key), salt, _PURPOSE).derive(key))


class Checksum:
    """The CRC-32 of a block in the clear, of its place and of its file.

    It notices any damage within 32 neighbouring bits, and other damage but for a probability of
    2^-32. It is no seal.

    :param name: of the file, random.
    """

    tag: ClassVar[int] = 4  # bytes that it adds to a block
    refusal: ClassVar[str] = "is damaged"  # what happened to a block that is refused

    def __init__(self, name: bytes) -> None:
        self._name = name

    def close(self, section: int, position: int, content: Any, further: bytes = b"") -> bytes:
        """``content`` and its checksum.

        :param content: whatever has a buffer, for which Python 3.11 has no type. :param further:
            public bytes that are guarded too, but not written.
        """
        return bytes(content) + self._of(section, position, content, further)

    def open(
        self, section: int, position: int, guarded: bytes | memoryview, further: bytes = b""
    ) -> Any:
        """The content of a block; None if it is damaged or belongs in another place."""
        view = memoryview(guarded)
        content = view[: -self.tag]
        return (
            content if self._of(section, position, content, further) == view[-self.tag :] else None
        )

    def _of(self, section: int, position: int, content: Any, further: bytes) -> bytes:
        return zlib.crc32(
            content, zlib.crc32(self._name + _nonce(section, position) + further)
        ).to_bytes(self.tag, "little")


class Seal:
    """Seals and opens the blocks of one file. It writes the blocks of a section once, in their
    order: no nonce is used twice.

    :param key: of this file alone, 32 bytes. :param name: of the file, random.
    """

    tag: ClassVar[int] = 16
    refusal: ClassVar[str] = "was altered, moved or replaced"

    def __init__(self, key: bytes, name: bytes) -> None:
        aead = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        self._refused = importlib.import_module("cryptography.exceptions").InvalidTag
        self._cipher, self._name = aead.AESGCM(key), name
        self._next: dict[int, int] = {}
        self._sealed = 0

    def __reduce__(self) -> Any:
        raise TypeError(
            "a key of records at rest is not sent to other processes: open the file there."
        )

    def close(self, section: int, position: int, content: Any, further: bytes = b"") -> bytes:
        """``content`` sealed, ``tag`` bytes longer.

        :param section: of the file, or the pass over a scratch file.
        :param position: 0, 1, 2, ... within the section.
        :param further: public bytes that the seal covers too.
        :raises RuntimeError: if ``position`` is not the next one of its section, because a nonce
            might then be used twice.
        """
        if position != self._next.get(section, 0) or self._sealed >= _MOST_BLOCKS:
            raise RuntimeError(
                f"block {position} of section {section} is not the next one to be sealed."
            )
        self._next[section] = position + 1
        self._sealed += 1
        return bytes(
            self._cipher.encrypt(
                _nonce(section, position), content, self._bound(section, position, further)
            )
        )

    def open(
        self, section: int, position: int, sealed: bytes | memoryview, further: bytes = b""
    ) -> Any:
        """The content of a sealed block; None if it is not the one that was sealed for
        this place.
        """
        try:
            bound = self._bound(section, position, further)
            return bytes(self._cipher.decrypt(_nonce(section, position), sealed, bound))
        except self._refused:
            return None

    def _bound(self, section: int, position: int, further: bytes) -> bytes:
        return self._name + _nonce(section, position) + further


# what is written with each block, by which reading it finds out that it is another one
Guard = Checksum | Seal


def _nonce(section: int, position: int) -> bytes:
    # 12 bytes, the length for which AES-GCM takes a nonce as it is
    return section.to_bytes(4, "big") + position.to_bytes(8, "big")


class Blocks:
    """Equal blocks of an open file, one after another.

    :param handle: of the open file. :param path: for errors. :param start: offset of the first
        block.
    :param size: bytes of content in a block. :param section: of the file.
    """

    def __init__(
        self, handle: int, path: Path, start: int, size: int, section: int, guard: Guard
    ) -> None:
        self.handle, self.path, self.start, self.size, self.section, self.guard = (
            handle,
            path,
            start,
            size,
            section,
            guard,
        )

    @property
    def stride(self) -> int:
        """Bytes in the file from one block to the next."""
        return self.size + self.guard.tag

    def end(self, count: int) -> int:
        """The offset behind ``count`` blocks."""
        return self.start + count * self.stride

    def write(self, position: int, content: Any) -> None:
        """Write one block. :raises RecordsError: if the disk is full or fails."""
        assert len(content) == self.size
        write_at(
            self.handle,
            self.path,
            self.end(position),
            self.guard.close(self.section, position, content),
        )

    def read(self, position: int, count: int = 1) -> bytearray:
        """The content of ``count`` blocks from ``position`` on, in one read.

        :raises RecordsError: if one is not the block that was written in its place.
        """
        view = memoryview(read_at(self.handle, self.path, self.end(position), count * self.stride))
        contents = bytearray(count * self.size)
        for number in range(count):
            guarded = view[number * self.stride : (number + 1) * self.stride]
            content = self.guard.open(self.section, position + number, guarded)
            if content is None:
                raise RecordsError(
                    self.path,
                    f"block {position + number} {self.guard.refusal}, so nothing of it is used.",
                )
            contents[number * self.size : (number + 1) * self.size] = content
        return contents


# ---- the storage ---------------------------------------------------------------------------------


def read_at(handle: int, path: Path, offset: int, length: int) -> bytes:
    """``length`` bytes from ``offset``. :raises RecordsError: if there are fewer, or the disk
    fails.
    """
    chunks, done = [], 0
    try:
        while done < length:
            chunk = os.pread(handle, length - done, offset + done)
            if not chunk:
                raise RecordsError(path, "is cut short.")
            chunks.append(chunk)
            done += len(chunk)
    except RecordsError:
        raise
    except OSError as error:
        raise RecordsError(path, f"cannot be read ({error.strerror}).") from error
    return b"".join(chunks)  # of a single chunk that very chunk


def write_at(handle: int, path: Path, offset: int, content: Any) -> None:
    """Write ``content`` at ``offset``. :raises RecordsError: if the disk is full or fails."""
    view, done = memoryview(content), 0
    try:
        while done < len(view):
            done += os.pwrite(handle, view[done:], offset + done)
    except OSError as error:
        raise RecordsError(path, f"cannot be written ({error.strerror}).") from error
