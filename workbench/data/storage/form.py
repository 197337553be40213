"""The form of a file of records: a public header, private facts, and blocks of records of one size.

::

    16 bytes            what the file is
    8 bytes             length of the header
    header              JSON, public: form, file id, numbers of blocks, and declarations, which
                        say how a record is laid out
    one block           JSON, private where the file is encrypted: numbers of records, fingerprints
    train blocks        as many as the header says
    evaluation blocks   the same

Where a person or other unit has several rows, a training record is a unit with room for its largest
number of rows, and "present" says which are there. An evaluation record is then a row, and its
"rows" is how many rows its unit has, or 0 if it is not the first of them.

A header is written last, so a file without one is not finished. What guards the private facts, a
seal or a checksum, covers the header too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import PRESENT
from workbench.data.storage.blocks import (
    Blocks,
    Checksum,
    Guard,
    RecordsError,
    Seal,
    file_key,
    read_at,
    require_cryptography,
    write_at,
)
from workbench.data.storage.facts import layout, require, unit_facts

__all__ = ["EVALUATION", "ROWS", "TRAIN", "Form", "Opened", "new_id", "open_file"]

MAGIC = b"dpvi records\r\n\x1a\n"
VERSION = 3
FACTS, TRAIN, EVALUATION = 0, 1, 2  # sections of a file
ROWS = "rows"  # how many its unit has, at the first of them
_PAGE = 4096
_FACTS_SIZE = 2 * _PAGE
_ID_BYTES = 32
_LONGEST_HEADER = 2**28
_MOST = 2**62
_KEYS = {"version", "id", "encryption", "per_block", "blocks", "dataset"}
_CIPHER = "AES-256-GCM"
# what reading a header raises that somebody wrote by hand
_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True)
class Form:
    """What the header of a file says.

    :param file_id: random, also the salt of the file's key. :param is_encrypted: whether blocks are
        sealed.
    :param record: layout of a training record. :param per_block: training records in a block.
    :param blocks: how many there are of training and of evaluation records.
    :param facts: of the data set, public. :param reserved: room for all of this in the file.
    """

    file_id: bytes
    is_encrypted: bool
    record: np.dtype
    per_block: int
    blocks: tuple[int, int]
    facts: Mapping[str, Any]
    reserved: int = 0

    @property
    def block_size(self) -> int:
        """Bytes of training records in a block."""
        return self.per_block * self.record.itemsize

    @property
    def units(self) -> tuple[int, bool] | None:
        """(largest number of rows of a unit, whether they weigh 1 together); None where each row is
        one.
        """
        return unit_facts(self.facts)

    def of_section(self, section: int) -> tuple[np.dtype, int]:
        """(layout of a record, records in a block) of a section."""
        if section == TRAIN or self.units is None:
            return self.record, self.per_block
        names = [name for name in self.record.names or () if name != PRESENT]
        row = np.dtype(
            [
                *((name, self.record[name].base, self.record[name].shape[1:]) for name in names),
                (ROWS, "<i4"),
            ]
        )
        return row, self.block_size // row.itemsize

    def size_of(self, section: int) -> int:
        """Bytes of records in a block of a section."""
        record, per_block = self.of_section(section)
        return record.itemsize * per_block

    def with_room(self) -> Form:
        """The same, with room for its header whatever the numbers of blocks turn out to be."""
        needed = len(replace(self, blocks=(_MOST, _MOST)).header())
        return replace(self, reserved=-(-needed // _PAGE) * _PAGE - len(MAGIC) - 8)

    def header(self) -> bytes:
        """The header with its mark and length, filled up with spaces."""
        said = {
            "version": VERSION,
            "id": self.file_id.hex(),
            "encryption": _CIPHER if self.is_encrypted else None,
            "per_block": self.per_block,
            "blocks": list(self.blocks),
            "dataset": dict(self.facts),
        }
        text = json.dumps(said).encode()
        return MAGIC + self.reserved.to_bytes(8, "little") + text.ljust(self.reserved)

    @property
    def header_size(self) -> int:
        """Bytes of the header with its mark and length."""
        return len(MAGIC) + 8 + self.reserved

    def start_of(self, section: int) -> int:
        """The offset of the first block of a section, or of the end of the file
        behind the last one.
        """
        tag = (Seal if self.is_encrypted else Checksum).tag
        sizes = _FACTS_SIZE, self.block_size, self.size_of(EVALUATION)
        before = zip((1, *self.blocks), sizes, range(section), strict=False)
        return self.header_size + sum(count * (size + tag) for count, size, _ in before)

    def guard(self, key: bytes | None) -> Guard:
        """What guards the blocks. :param key: the user's, where the file is encrypted."""
        assert (key is not None) == self.is_encrypted
        return (
            Checksum(self.file_id)
            if key is None
            else Seal(file_key(key, self.file_id), self.file_id)
        )

    def section(self, section: int, handle: int, path: Path, guard: Guard) -> Blocks:
        """The blocks of one section of the file."""
        size = _FACTS_SIZE if section == FACTS else self.size_of(section)
        return Blocks(handle, path, self.start_of(section), size, section, guard)

    def finish(self, handle: int, path: Path, guard: Guard, private: Mapping[str, Any]) -> None:
        """Write the private facts, and then the header."""
        content, header = json.dumps(private).encode().ljust(_FACTS_SIZE), self.header()
        assert len(content) == _FACTS_SIZE
        write_at(handle, path, self.header_size, guard.close(FACTS, 0, content, header))
        write_at(handle, path, 0, header)

    @classmethod
    def read(cls, handle: int, path: Path, size: int) -> Form:
        """The form of a file. :raises ArgumentError: naming ``path``, if it is no finished file of
        records.
        """
        start = len(MAGIC) + 8
        if size < start or bytes(head := read_at(handle, path, 0, start))[: len(MAGIC)] != MAGIC:
            raise _validate.ArgumentError(
                "path",
                str(path),
                "is no finished file of records: workbench pack writes one from a table.",
            )
        try:
            length = int.from_bytes(head[len(MAGIC) :], "little")
            require(length <= min(size, _LONGEST_HEADER))
            said = json.loads(bytes(read_at(handle, path, start, length)))
            form = cls._of(said, length) if said["version"] == VERSION else None
        except (*_DAMAGE, RecordsError):
            raise _damaged(path) from None
        if form is None:
            raise _validate.ArgumentError(
                "path",
                str(path),
                f"has another format than {VERSION}, the one that is read here: pack the table "
                "again.",
            )
        expected = form.start_of(EVALUATION + 1)
        if expected != size:
            raise _validate.ArgumentError(
                "path",
                str(path),
                f"has {size} bytes instead of {expected}: it was cut short, or never finished.",
            )
        return form

    @classmethod
    def _of(cls, said: Mapping[str, Any], length: int) -> Form:
        """:raises ValueError: or others of ``_DAMAGE``, unless ``header`` wrote it."""
        require(
            said.keys() == _KEYS
            and type(said["version"]) is int
            and said["encryption"] in (None, _CIPHER)
        )
        blocks, per_block = said["blocks"], said["per_block"]
        require(type(blocks) is list and len(blocks) == 2)
        require(
            all(type(number) is int and 0 <= number <= _MOST for number in (*blocks, per_block))
            and per_block > 0
        )
        file_id = bytes.fromhex(said["id"])
        require(len(file_id) == _ID_BYTES)
        record = layout(said["dataset"])
        return cls(
            file_id,
            said["encryption"] is not None,
            record,
            per_block,
            (blocks[0], blocks[1]),
            said["dataset"],
            length,
        )


def _damaged(path: Path) -> _validate.ArgumentError:
    return _validate.ArgumentError("path", str(path), "has a damaged header.")


@dataclass(frozen=True, eq=False)
class Opened:
    """An open file of records.

    :param form: of the header. :param private: the private facts.
    """

    path: Path
    handle: int
    form: Form
    guard: Guard
    private: Mapping[str, Any]

    def section(self, section: int) -> Blocks:
        """The blocks of training or evaluation records."""
        return self.form.section(section, self.handle, self.path, self.guard)

    def number(self, section: int) -> int:
        """How many records there are."""
        return int(self.private["records"][section - TRAIN])

    def rows(self, section: int) -> int:
        """How many rows they have; with units a training record has several."""
        return (
            self.number(section)
            if section == EVALUATION or self.form.units is None
            else int(self.private[ROWS])
        )


def open_file(
    handle: int,
    path: Path,
    size: int,
    find_key: Callable[[], bytes | None],
    named: tuple[str, str] | None,
) -> Opened:
    """Check header and private facts of an open file.

    :param find_key: returns the user's key, None if there is none; called where the file is
        encrypted.
    :param named: (argument, place) of that key, for errors.
    :raises ArgumentError: naming ``path`` for another or damaged file; ``key_file`` for a key that
        is missing, and the argument of ``named`` for one that is wrong.
    """
    form, key = Form.read(handle, path, size), None
    if form.is_encrypted:
        require_cryptography()
        key = find_key()
        if key is None:
            raise _validate.ArgumentError(
                "key_file",
                None,
                f"{path.name} is encrypted: name the file with its key.",
                code="no key",
            )
    guard = form.guard(key)
    facts = form.section(FACTS, handle, path, guard)
    header = bytes(read_at(handle, path, 0, form.header_size))
    content = guard.open(FACTS, 0, read_at(handle, path, facts.start, facts.stride), header)
    if content is None and form.is_encrypted:
        argument, key_source = named or ("key_file", None)
        raise _validate.ArgumentError(
            argument,
            key_source,
            f"does not open {path.name}: it is another key, or the header was altered.",
            code="wrong key",
        )
    try:
        require(content is not None)
        private = json.loads(bytes(content))
        _check_private(form, private)
    except _DAMAGE:
        raise _damaged(path) from None
    return Opened(path, handle, form, guard, private)


def _check_private(form: Form, private: Mapping[str, Any]) -> None:
    """:raises ValueError: or others of ``_DAMAGE``, unless ``pack`` wrote these private facts of a
    file.
    """
    counts, prints = private["records"], private.get("fingerprints", {})
    require(
        private.keys() <= {"records", "fingerprints", ROWS}
        and (ROWS in private) == (form.units is not None)
    )
    require(type(counts) is list and len(counts) == 2 and type(prints) is dict)
    require(all(type(text) is str for text in prints.values()))
    for section, count in zip((TRAIN, EVALUATION), counts, strict=True):
        require(
            type(count) is int
            and 0 <= count <= form.blocks[section - TRAIN] * form.of_section(section)[1]
        )
    if form.units is not None:
        require(
            type(private[ROWS]) is int and counts[0] <= private[ROWS] <= counts[0] * form.units[0]
        )


def new_id() -> bytes:
    """A name that no other file has, and the salt of its key."""
    return os.urandom(_ID_BYTES)
