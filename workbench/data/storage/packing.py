"""Packing: a table becomes a file of records, part by part, in memory that does not grow with the table.

Which records are for evaluation is decided as in memory (``splits.by_record``), where equal records are numbered. Here they
are counted in groups by a hash of their content: as many groups, each with a pass over the table, as keep 16 bytes a record
within bounds.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _folders, _validate
from workbench._lazy import pd
from workbench.data import splits
from workbench.data.dataset import Dataset
from workbench.data.encoding import Encoding
from workbench.data.storage import tables
from workbench.data.storage.blocks import Blocks, RecordsError, Seal, file_key, require_cryptography
from workbench.data.storage.form import EVALUATION, TRAIN, Form, Opened, new_id, public_facts, record_type
from workbench.data.storage.keys import found_key
from workbench.data.storage.reading import Stored
from workbench.data.storage.reading import dataset as dataset_of

__all__ = ["pack"]

_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**16, 2**20
_ROWS = 2**15  # of the table at a time
_MOST_COUNTED = 2**23  # records whose hashes are held at once, of 24 bytes each
_NOT_OF_THE_COLUMNS = ("evaluation_fraction", "split_seed", "evaluation_is_public", "unit", "name", "separator", "decimal")


def pack(
    path: str | Path,
    out: str | Path,
    *,
    encrypt: bool = False,
    key_file: str | Path | None = None,
    keyring: str | None = None,
    block_size: int = 2**18,
    capacity: int | None = None,
    evaluation: str | Path | None = None,
    fingerprints: Callable[[Dataset], Mapping[str, str]] | None = None,
    **options: Any,
) -> Path:
    """Write the records of a table to a file that ``open`` reads, without having them all in memory.

    The records are encoded as ``from_csv``, ``from_parquet`` and ``from_npz`` encode them, and split alike. The file appears
    when it is complete. The table is read twice; three times or more if it has more than eight million records.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_parquet("claims.parquet")
    >>> target = {"target": "ill", "bounds": {"age": (0, 120)}}
    >>> wb.data.pack(
    ...     "claims.parquet", "claims.wbr", encrypt=True, key_file="claims.key", **target
    ... ).name
    'claims.wbr'
    >>> wb.data.open("claims.wbr", key_file="claims.key")
    Dataset('claims', 1 feature, target 'ill')

    :param path: a CSV file, also packed; a Parquet file; or an .npz with arrays x and maybe y and group.
    :param out: a file that does not exist.
    :param encrypt: whether to encrypt each block. Names, bounds and other public facts are not encrypted.
    :param key_file: file with a key of 32 bytes, or 64 hexadecimal digits; it is made if it does not exist. A lost key is a
        lost file. Without ``key_file`` and ``keyring`` the key is in ``$WORKBENCH_RECORDS_KEY``.
    :param keyring: name of the key in the system's keyring instead (package ``keyring``).
    :param block_size: bytes that are encrypted together, 64 KiB to 1 MiB.
    :param capacity: public number of training records, from which the size of the file follows, instead of from their
        number. By default anyone who sees the file learns how many blocks they fill.
    :param evaluation: table of evaluation records with the same columns, instead of a split.
    :param fingerprints: of ``workbench pack``, which keeps the ledger's fingerprint in an encrypted file.
    :param options: those of ``from_frame`` apart from ``unit_id``, ``private_scaling`` and ``evaluation``; ``separator`` and
        ``decimal`` of ``from_csv``.
    :return: the path of the file.
    :raises ArgumentError: naming the argument and its value, never a cell.
    """
    source, target = _validate.location("path", path), _validate.location("out", out)
    block_size = _validate.integer("block_size", block_size, at_least=_SMALLEST_BLOCK, at_most=_LARGEST_BLOCK)
    if capacity is not None:
        capacity = _validate.integer("capacity", capacity, at_least=2)
    fraction, seed = splits.checked(options.get("evaluation_fraction", 0.2), options.get("split_seed", 0))
    _check(options, target)
    key = None
    if _validate.flag("encrypt", encrypt):
        require_cryptography()
        key = found_key(key_file, keyring, make=True)
        if key is None:
            raise _validate.ArgumentError("key_file", None, "is needed: name a file for the key, which is made.")
    elif key_file is not None or keyring is not None:
        raise _validate.ArgumentError("encrypt", False, "must be True where a key is named.")
    table = _Table(source, options)
    if evaluation is None:
        held_out = table.held_out(fraction, seed)
        counts = int(np.sum(~held_out)), int(np.sum(held_out))
        splits.require_both_sides(counts[1], counts[0], fraction)
    else:
        held_out = None
        training = table.count()
        other = _Table(_validate.location("evaluation", evaluation), options, table)
        counts = training, other.count()
        if counts[0] < 2 or counts[1] < 1:
            raise _validate.ArgumentError("evaluation", str(evaluation), "needs 2 training records and 1 of evaluation.")
    form = _form(table, options, counts, block_size, (capacity, fraction if evaluation is None else None), key is not None)
    with _appearing(target) as (handle, partial):
        seal = None if key is None else Seal(file_key(key, form.file_id), form.file_id)
        train = _Writer(form.part(TRAIN, handle, partial, seal), form)
        evaluated = _Writer(form.part(EVALUATION, handle, partial, seal), form)
        for start, arrays in table.parts():
            records = _records(arrays, form.record)
            if held_out is None:
                train.add(records)
            else:
                held = held_out[start : start + len(records)]
                train.add(records[~held])
                evaluated.add(records[held])
        if held_out is None:
            for _, arrays in other.parts():
                evaluated.add(_records(arrays, form.record))
        train.end(form.blocks[0])
        evaluated.end(form.blocks[1])
        if (train.records, evaluated.records) != counts:
            raise _validate.ArgumentError("path", str(path), "was changed while it was packed.")
        private: dict[str, Any] = {"records": counts}
        if fingerprints is not None and seal is not None:
            opened = Opened(partial, os.dup(handle), form, seal, private)
            private["fingerprints"] = dict(fingerprints(dataset_of(Stored(opened, "direct"))))
        form.finish(handle, partial, seal, private)
    return target


def _check(options: Mapping[str, Any], target: Path) -> None:
    """:raises ArgumentError: naming what cannot be packed, or a place where nothing can be written."""
    if options.get("unit_id") is not None:
        raise _validate.ArgumentError("unit_id", options["unit_id"], "cannot be packed yet: a row of the file is a record.")
    if options.get("private_scaling"):
        raise _validate.ArgumentError("private_scaling", True, "cannot be packed: declare bounds or a schema.")
    if target.exists():
        raise _validate.ArgumentError("out", str(target), "exists already: name another file, or delete it.")
    if not target.parent.is_dir():
        raise _validate.ArgumentError("out", str(target), "cannot write there.")


def _form(
    table: _Table,
    options: Mapping[str, Any],
    counts: tuple[int, int],
    block_size: int,
    declared: tuple[int | None, float | None],
    encrypt: bool,
) -> Form:
    """The form of the file. :param declared: number of training records, and share of evaluation records, if public."""
    arrays, (capacity, fraction) = table.example(), declared
    record = record_type(arrays)
    if record.itemsize > block_size:
        raise _validate.ArgumentError("block_size", block_size, f"is less than a record, {record.itemsize} bytes.")
    named = {"name": table.path.name.split(".")[0], **{name: options[name] for name in ("name", "unit") if name in options}}
    facts = public_facts(
        Dataset(
            train=(), evaluation=(), evaluation_is_public=options.get("evaluation_is_public", False),
            **named, **table.encoding.facts(arrays, table.labels),
        )
    )  # fmt: skip
    most = list(counts)
    if capacity is not None:
        if counts[0] > capacity:
            raise _validate.ArgumentError("capacity", capacity, "is less than the number of training records.")
        most[0] = capacity
        if fraction is not None:
            expected = capacity * fraction / (1 - fraction)
            most[1] = int(expected + 12 * np.sqrt(expected) / (1 - fraction) + 12)
            if counts[1] > most[1]:
                raise _validate.ArgumentError("capacity", capacity, "is too small for the number of evaluation records.")
    per_block = block_size // record.itemsize
    blocks = -(-most[0] // per_block), -(-most[1] // per_block)
    return Form(new_id(), encrypt, record, per_block, blocks, facts).with_room()


class _Table:
    """A table in a file, of which a part at a time is encoded."""

    def __init__(self, path: Path, options: Mapping[str, Any], like: _Table | None = None) -> None:
        self.path, self._options = path, options
        self.labels: tuple[str, ...] = ()
        self._example: dict[str, np.ndarray] | None = None
        self.encoding: Encoding
        if like is not None:
            self.encoding, self.labels, self._example = like.encoding, like.labels, like.example()
        else:
            columns = {name: value for name, value in options.items() if name not in _NOT_OF_THE_COLUMNS}
            first = next(self._frames(), None)
            if first is None:
                raise _validate.ArgumentError("path", str(path), "has no records.")
            self.encoding = Encoding.of(first, {label: label for label in first.columns}, **columns)

    def _frames(self) -> Iterator[pd.DataFrame]:
        for frame in tables.parts_of(self.path, self._options, _ROWS):
            yield frame.set_axis([str(label) for label in frame.columns], axis=1)

    def parts(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """(number of the first record, arrays) of each part."""
        start = 0
        for frame in self._frames():
            arrays, labels = self.encoding.arrays(self.encoding.complete(frame)[0])
            if self._example is None:
                self._example, self.labels = {name: array[:0] for name, array in arrays.items()}, labels
            elif labels != self.labels or any(arrays[name].dtype != like.dtype for name, like in self._example.items()):
                raise _validate.ArgumentError(
                    "target", self.encoding.target, "has values of another type further down; declare them with classes=."
                )
            yield start, arrays
            start += len(arrays["x"])

    def example(self) -> dict[str, np.ndarray]:
        """The arrays of no records."""
        assert self._example is not None
        return self._example

    def count(self) -> int:
        """The number of records."""
        return sum(len(arrays["x"]) for _, arrays in self.parts())

    def held_out(self, fraction: float, seed: int) -> np.ndarray:
        """bool[N], True for evaluation records: the result of ``splits.by_record``, in bounded memory."""
        groups, group, held_out = 1, 0, np.zeros(0, bool)
        while group < groups:
            rows, found, number, kept = [np.zeros(0, np.int64)], [splits.digests([], seed)], 0, 0
            for start, arrays in self.parts():
                each = splits.digests(self.encoding.content(arrays), seed)
                mine = np.flatnonzero(each["high"] % np.uint64(groups) == group)
                rows.append(start + mine)
                found.append(each[mine])
                number, kept = start + len(each), kept + len(mine)
                while group == 0 and kept > _MOST_COUNTED:  # those of a group half as large are among these
                    groups *= 2
                    everything, places = np.concatenate(found), np.concatenate(rows)
                    still = everything["high"] % np.uint64(groups) == 0
                    rows, found, kept = [places[still]], [everything[still]], int(still.sum())
            if group == 0:
                held_out = np.zeros(number, bool)
            everything = np.concatenate(found)
            coins = splits.numbered_coins([each.tobytes() for each in everything], splits.numbers_of(everything), seed)
            held_out[np.concatenate(rows)] = coins < fraction
            group += 1
        return held_out


def _records(arrays: Mapping[str, np.ndarray], record: np.dtype) -> np.ndarray:
    """Records, one entry for each, of arrays."""
    packed = np.empty(len(arrays["x"]), record)
    for name, array in arrays.items():
        packed[name] = array
    return packed


class _Writer:
    """Writes records into blocks, the last of which is filled up with zeros."""

    def __init__(self, blocks: Blocks, form: Form) -> None:
        self._blocks, self._form = blocks, form
        self._waiting = np.zeros(form.per_block, form.record)
        self.records = self._filled = self._written = 0

    def add(self, records: np.ndarray) -> None:
        """Write what fills blocks, and keep the rest."""
        self.records += len(records)
        while len(records):
            count = min(len(records), self._form.per_block - self._filled)
            self._waiting[self._filled : self._filled + count] = records[:count]
            records, self._filled = records[count:], self._filled + count
            if self._filled == self._form.per_block:
                self._flush()

    def _flush(self) -> None:
        content = bytearray(self._form.block_size)
        content[: self._waiting.nbytes] = self._waiting.tobytes()
        self._blocks.write(self._written, content)
        self._waiting[:] = np.zeros((), self._form.record)
        self._written, self._filled = self._written + 1, 0

    def end(self, blocks: int) -> None:
        """Write blocks, at last empty ones, until there are ``blocks``."""
        if self._filled:
            self._flush()
        while self._written < blocks:
            self._flush()


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[tuple[int, Path]]:
    """(an open file, its path): a new file that gets the name ``target`` at the end, unless something fails."""
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _validate.ArgumentError("out", str(target), f"cannot write there ({error.strerror}).") from None
    try:
        try:
            yield handle, partial
        except RecordsError as error:
            raise _validate.ArgumentError("out", str(target), error.reason) from None
        finally:
            os.close(handle)
        try:
            is_new = _folders.put_new(partial, target)
        except OSError as error:  # some systems notice only now that a disk is full
            raise _validate.ArgumentError("out", str(target), f"cannot be written ({error.strerror}).") from None
        if not is_new:
            raise _validate.ArgumentError("out", str(target), "exists already: name another file, or delete it.")
    finally:
        partial.unlink(missing_ok=True)
