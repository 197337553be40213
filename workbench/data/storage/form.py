"""The form of a file of records: a public header, private facts, and blocks of records of one size.

::

    16 bytes            what the file is
    8 bytes             length of the header
    header              JSON, public: form, file id, layout of a record, numbers of blocks, public facts about the data set
    one block           JSON, private where the file is encrypted: numbers of records, fingerprints
    train blocks        as many as the header says
    evaluation blocks   the same

Where a person or other unit has several rows, a training record is a unit with room for its largest number of rows, and
"present" says which are there. An evaluation record is then a row, and its "rows" is how many rows its unit has, or 0 if it
is not the first of them.

A header is written last, so a file without one is not finished. Where the file is encrypted, the seal of the private facts
covers the header too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import PRESENT, Dataset
from workbench.data.schema import Schema
from workbench.data.storage.blocks import TAG, Blocks, RecordsError, Seal, file_key, read_at, require_cryptography, write_at
from workbench.data.units import MOST_ROWS

__all__ = [
    "EVALUATION", "ROWS", "TRAIN", "Form", "Opened", "dataset_facts", "new_id", "open_file", "public_facts", "record_type",
    "unit_type",
]  # fmt: skip

MAGIC = b"dpvi records\r\n\x1a\n"
VERSION = 1
FACTS, TRAIN, EVALUATION = 0, 1, 2  # parts of a file
ROWS = "rows"  # how many its unit has, at the first of them
_PAGE = 4096
_FACTS_SIZE = 2 * _PAGE
_CHECK = 16  # bytes
_ID_BYTES = 32
_LONGEST_HEADER = 2**28
_MOST = 2**62
# what reading a header raises that somebody wrote by hand
_DAMAGE = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, SyntaxError, RecursionError)
_LISTS = ("feature_names", "classes", "arrays", "groups", "group_feature_names", "image_shape")
_TEXTS = ("name", "description", "target_name", "unit", "licence", "source", "group_name")
_PLAIN = (*_TEXTS, "evaluation_is_public", "is_public", "vocabulary_size")


def record_type(arrays: Mapping[str, np.ndarray]) -> np.dtype:
    """The layout of a record: its entries of the arrays, one after another, least significant byte first."""
    return np.dtype([(name, array.dtype.newbyteorder("<"), array.shape[1:]) for name, array in arrays.items()])


def unit_type(row: np.dtype, max_rows: int) -> np.dtype:
    """The layout of a unit with room for ``max_rows`` rows."""
    fields = [(name, row[name].base, (max_rows, *row[name].shape)) for name in row.names or ()]
    return np.dtype([*fields, (PRESENT, "<f4", (max_rows,))])


def public_facts(dataset: Dataset) -> dict[str, Any]:
    """What the header says about a data set, ready for JSON."""
    return {
        **{name: getattr(dataset, name) for name in _PLAIN},
        **{name: list(getattr(dataset, name)) for name in _LISTS},
        "schema": None if dataset.schema is None else dataset.schema.to_dict(),
        "group_features": None if dataset.group_features is None else dataset.group_features.tolist(),
        "target_bounds": dataset.target_bounds,
        "units": None if dataset.units is None else {"max_rows": dataset.units.max_rows, "mean": dataset.units.mean},
    }


def dataset_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``Dataset`` that ``public_facts`` wrote. :raises TypeError: for facts of other kinds."""
    group_features = facts["group_features"]
    texts = [facts[name] for name in _TEXTS] + [text for name in _LISTS[:-1] for text in facts[name]]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    bounds = facts.get("target_bounds")  # the first files had no target_bounds
    if bounds is not None:
        low, high = map(float, bounds)
        bounds = low, high
    return {
        **{name: facts[name] for name in _PLAIN},
        **{name: tuple(facts[name]) for name in _LISTS},
        "schema": None if facts["schema"] is None else Schema.from_dict(facts["schema"]),
        "group_features": None if group_features is None else np.asarray(group_features, np.float32),
        "target_bounds": bounds,
    }


@dataclass(frozen=True)
class Form:
    """What the header of a file says.

    :param file_id: random, also the salt of the file's key. :param is_encrypted: whether blocks are sealed.
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
        """(largest number of rows of a unit, whether they weigh 1 together); None where each row is one."""
        said = self.facts.get("units")  # the first files had no units
        return None if said is None else (said["max_rows"], said["mean"])

    def of_part(self, part: int) -> tuple[np.dtype, int]:
        """(layout of a record, records in a block) of a part."""
        if part == TRAIN or self.units is None:
            return self.record, self.per_block
        names = [name for name in self.record.names or () if name != PRESENT]
        row = np.dtype([*((name, self.record[name].base, self.record[name].shape[1:]) for name in names), (ROWS, "<i4")])
        return row, self.block_size // row.itemsize

    def size_of(self, part: int) -> int:
        """Bytes of records in a block of a part."""
        record, per_block = self.of_part(part)
        return record.itemsize * per_block

    @property
    def slots(self) -> int:
        """Places for training records, those that are filled and those that are not."""
        return self.blocks[0] * self.per_block

    def with_room(self) -> Form:
        """The same, with room for its header whatever the numbers of blocks turn out to be."""
        needed = len(replace(self, blocks=(_MOST, _MOST)).header())
        return replace(self, reserved=-(-needed // _PAGE) * _PAGE - len(MAGIC) - 8)

    def header(self) -> bytes:
        """The header with its mark and length, filled up with spaces."""
        fields = [[name, self.record[name].base.str, list(self.record[name].shape)] for name in self.record.names or ()]
        said = {
            "version": VERSION,
            "id": self.file_id.hex(),
            "encryption": "AES-256-GCM" if self.is_encrypted else None,
            "record": fields,
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

    def part(self, part: int, handle: int, path: Path, seal: Seal | None) -> Blocks:
        """The blocks of one part of the file."""
        facts = Blocks(handle, path, self.header_size, _FACTS_SIZE, FACTS, seal)
        if part == FACTS:
            return facts
        train = Blocks(handle, path, facts.end(1), self.block_size, TRAIN, seal)
        return train if part == TRAIN else Blocks(
            handle, path, train.end(self.blocks[0]), self.size_of(part), part, seal
        )  # fmt: skip

    def end(self, seal: Seal | None) -> int:
        """The size of the whole file."""
        return self.part(EVALUATION, -1, Path(), seal).end(self.blocks[1])

    def finish(self, handle: int, path: Path, seal: Seal | None, private: Mapping[str, Any]) -> None:
        """Write the private facts, and then the header."""
        text, header = json.dumps(private).encode().ljust(_FACTS_SIZE - _CHECK), self.header()
        content = text + _check_of(header, text)
        assert len(content) == _FACTS_SIZE
        sealed = content if seal is None else seal.close(FACTS, 0, content, header)
        write_at(handle, path, self.header_size, sealed)
        write_at(handle, path, 0, header)

    def check_units(self) -> None:
        """:raises ValueError: unless units have the layout that ``pack`` gives them."""
        assert self.units is not None
        most, mean = self.units
        if not (type(most) is int and 1 <= most <= MOST_ROWS and type(mean) is bool):
            raise ValueError
        if any(self.record[name].shape[:1] != (most,) for name in self.record.names or ()):
            raise ValueError
        if self.record[PRESENT] != np.dtype(("<f4", (most,))):
            raise ValueError

    @classmethod
    def read(cls, handle: int, path: Path, size: int) -> Form:
        """The form of a file. :raises ArgumentError: naming ``path``, if it is no finished file of records."""
        start = len(MAGIC) + 8
        if size < start or bytes(head := read_at(handle, path, 0, start))[: len(MAGIC)] != MAGIC:
            raise _validate.ArgumentError(
                "path", str(path), "is no finished file of records: workbench pack writes one from a table."
            )
        try:
            length = int.from_bytes(head[len(MAGIC) :], "little")
            if length > min(size, _LONGEST_HEADER):
                raise ValueError
            said = json.loads(bytes(read_at(handle, path, start, length)))
            if said["version"] != VERSION:
                raise _validate.ArgumentError("path", str(path), "was written by another version of the workbench.")
            record = np.dtype([(name, kind, tuple(shape)) for name, kind, shape in said["record"]])
            encrypted = said["encryption"] is not None
            blocks = tuple(map(int, said["blocks"]))
            form = cls(
                bytes.fromhex(said["id"]), encrypted, record, int(said["per_block"]), (blocks[0], blocks[1]),
                said["dataset"], length,
            )  # fmt: skip
            named = tuple(dataset_facts(form.facts)["arrays"])
            if form.units is not None:
                named = (*named, PRESENT)
                form.check_units()
            if form.per_block < 1 or min(blocks) < 0 or len(form.file_id) != _ID_BYTES or named != record.names:
                raise ValueError
            if not record.itemsize or any(record[name].base.kind not in "fi" for name in named):
                raise ValueError
            expected = form.part(EVALUATION, handle, path, None).end(form.blocks[1])
            expected += TAG * (1 + sum(blocks)) * encrypted
        except _validate.ArgumentError:
            raise
        except (*_DAMAGE, RecordsError):
            raise _validate.ArgumentError("path", str(path), "has a damaged header.") from None
        if expected != size:
            raise _validate.ArgumentError(
                "path", str(path), f"has {size} bytes instead of {expected}: it was cut short, or never finished."
            )
        return form


@dataclass(frozen=True, eq=False)
class Opened:
    """An open file of records.

    :param form: of the header. :param seal: None for a file in the clear. :param private: the private facts.
    """

    path: Path
    handle: int
    form: Form
    seal: Seal | None
    private: Mapping[str, Any]

    def part(self, part: int) -> Blocks:
        """The blocks of training or evaluation records."""
        return self.form.part(part, self.handle, self.path, self.seal)

    def number(self, part: int) -> int:
        """How many records there are."""
        return int(self.private["records"][part - TRAIN])

    def rows(self, part: int) -> int:
        """How many rows they have; with units a training record has several."""
        return self.number(part) if part == EVALUATION or self.form.units is None else int(self.private[ROWS])


def open_file(
    handle: int, path: Path, size: int, find_key: Callable[[], bytes | None], named: tuple[str, str] | None
) -> Opened:
    """Check header and private facts of an open file.

    :param find_key: returns the user's key, None if there is none; called where the file is encrypted.
    :param named: (argument, place) of that key, for errors.
    :raises ArgumentError: naming ``path`` for another or damaged file; ``key_file`` for a key that is missing, and the
        argument of ``named`` for one that is wrong.
    """
    form = Form.read(handle, path, size)
    seal = None
    if form.is_encrypted:
        require_cryptography()
        key = find_key()
        if key is None:
            raise _validate.ArgumentError(
                "key_file", None, f"{path.name} is encrypted: name the file with its key.", code="no key"
            )
        seal = Seal(file_key(key, form.file_id), form.file_id)
    facts = form.part(FACTS, handle, path, seal)
    content: Any = read_at(handle, path, facts.start, facts.stride)
    header = bytes(read_at(handle, path, 0, form.header_size))
    if seal is not None:
        content = seal.open(FACTS, 0, content, header)
        if content is None:
            argument, place = named or ("key_file", None)
            raise _validate.ArgumentError(
                argument,
                place,
                f"does not open {path.name}: it is another key, or the header was altered.",
                code="wrong key",
            )
    try:
        if bytes(content[-_CHECK:]) != _check_of(header, content[:-_CHECK]):
            raise ValueError
        private = json.loads(bytes(content[:-_CHECK]))
        counts = [int(count) for count in private["records"]]
        places = [number * form.of_part(part)[1] for number, part in zip(form.blocks, (TRAIN, EVALUATION), strict=True)]
        if not all(0 <= count <= number for count, number in zip(counts, places, strict=True)):
            raise ValueError
        if form.units is not None and not counts[0] <= int(private[ROWS]) <= counts[0] * form.units[0]:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise _validate.ArgumentError("path", str(path), "has a damaged header.") from None
    return Opened(path, handle, form, seal, private)


def _check_of(header: bytes, text: Any) -> bytes:
    """A checksum against damage, which anybody can compute."""
    return hashlib.blake2b(header + bytes(text), digest_size=_CHECK).digest()


def new_id() -> bytes:
    """A name that no other file has, and the salt of its key."""
    return os.urandom(_ID_BYTES)
