"""Packing: a table becomes a file of records, part by part, in memory that does not grow with the
table.

Which records are for evaluation is decided as in memory (``splits.by_record``), where equal records
are numbered. Here they are counted in groups by a hash of their content: as many groups, each with
a pass over the table, as keep 16 bytes a record within bounds. Persons with several rows are
brought together first (``persons``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _folders, _validate
from workbench._lazy import pd
from workbench.data import splits
from workbench.data.dataset import Dataset
from workbench.data.encoding import Encoding
from workbench.data.preprocessing import column_name
from workbench.data.storage import tables
from workbench.data.storage.blocks import Blocks, Checksum, Guard, Seal, require_cryptography
from workbench.data.storage.facts import layout, public_facts
from workbench.data.storage.form import EVALUATION, ROWS, TRAIN, Form, Opened, new_id
from workbench.data.storage.keys import found_key
from workbench.data.storage.new_file import new_file
from workbench.data.storage.oblivious import scratch_file
from workbench.data.storage.persons import Gathered, Persons
from workbench.data.storage.reading import Stored
from workbench.data.storage.reading import dataset as dataset_of
from workbench.data.units import Units, check_several, checked_max_rows

__all__ = ["pack"]

_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**16, 2**20
_ROWS = 2**15  # of the table at a time
_MOST_COUNTED = 2**23  # records whose hashes are held at once, of 24 bytes each
_NOT_OF_THE_COLUMNS = ("evaluation_fraction", "split_seed", "name", "separator", "decimal")
_OF_OPENING = ("unit", "evaluation_is_public")  # about privacy, which a file cannot vouch for


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
    """Write the records of a table to a file that ``open`` reads, without having them all in
    memory.

    The records are encoded as ``from_csv``, ``from_parquet`` and ``from_npz`` encode them, and
    split alike. The file appears when it is complete. The table is read twice; three times or more
    if it has more than eight million records. With ``unit_id`` a record of the file is a unit with
    room for ``max_rows`` rows, so that neither the file nor what is read of it tells how many rows
    a unit has. Up to 250 bytes of memory are taken for each of at most 2^24 units, and a scratch
    file beside ``out`` holds the encoded rows meanwhile.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_parquet("claims.parquet")
    >>> target = {"target": "ill", "bounds": {"age": (0, 120)}}
    >>> wb.data.pack(
    ...     "claims.parquet", "claims.wbr", encrypt=True, key_file="claims.key", **target
    ... ).name
    'claims.wbr'
    >>> wb.data.open("claims.wbr", key_file="claims.key")
    Dataset('claims', 1 feature, target 'ill')

    :param path: a CSV file, also packed; a Parquet file; or an .npz with arrays x and maybe y and
        group.
    :param out: a file that does not exist.
    :param encrypt: whether to encrypt each block. Names, bounds and other public facts are not
        encrypted.
    :param key_file: file with a key of 32 bytes, or 64 hexadecimal digits; it is made if it does
        not exist. A lost key is a lost file. Without ``key_file`` and ``keyring`` the key is in
        ``$WORKBENCH_RECORDS_KEY``.
    :param keyring: name of the key in the system's keyring instead (package ``keyring``).
    :param block_size: bytes that are encrypted together, 64 KiB to 1 MiB.
    :param capacity: public number of training records, from which the size of the file follows,
        instead of from their number. By default anyone who sees the file learns how many blocks
        they fill.
    :param evaluation: table of evaluation records with the same columns, instead of a split.
    :param fingerprints: of ``workbench pack``, which keeps the ledger's fingerprint in an encrypted
        file.
    :param options: those of ``from_frame`` apart from ``evaluation``, and
        from ``unit`` and ``evaluation_is_public``, which ``open`` takes; ``separator`` and
        ``decimal`` of ``from_csv``.
    :return: the path of the file.
    :raises ArgumentError: naming the argument and its value, never a cell.
    """
    source, target = _validate.location("path", path), _validate.location("out", out)
    block_size = _validate.integer(
        "block_size", block_size, at_least=_SMALLEST_BLOCK, at_most=_LARGEST_BLOCK
    )
    if capacity is not None:
        capacity = _validate.integer("capacity", capacity, at_least=2)
    fraction, seed = splits.checked(
        options.get("evaluation_fraction", 0.2), options.get("split_seed", 0)
    )
    _check(options, target)
    key = None
    if _validate.flag("encrypt", encrypt):
        require_cryptography()
        key = found_key(key_file, keyring, make=True)
        if key is None:
            raise _validate.ArgumentError(
                "key_file", None, "is needed: name a file for the key, which is made."
            )
    elif key_file is not None or keyring is not None:
        raise _validate.ArgumentError("encrypt", False, "must be True where a key is named.")
    table = _Table(source, options)
    evaluation_table = (
        None
        if evaluation is None
        else _Table(_validate.location("evaluation", evaluation), options, table)
    )
    with new_file(target) as (handle, partial), contextlib.ExitStack() as ends:
        if table.encoding.unit_id is None:
            sides: _Rows | _Units = _Rows(table, evaluation_table, (fraction, seed))
        else:
            scratch = functools.partial(
                _scratch_for, target.absolute().parent, key is not None, ends
            )
            sides = _Units(
                table,
                evaluation_table,
                (fraction, seed),
                checked_max_rows(options["max_rows"]),
                scratch,
            )
        form = _form(
            table,
            options,
            sides,
            block_size,
            (capacity, fraction if evaluation_table is None else None),
            key is not None,
        )
        guard = form.guard(key)
        private = _written(sides, form, handle, partial, guard)
        if private["records"] != sides.records:
            raise _validate.ArgumentError("path", str(path), "was changed while it was packed.")
        if fingerprints is not None and form.is_encrypted:
            opened = Opened(partial, os.dup(handle), form, guard, private)
            private["fingerprints"] = dict(fingerprints(dataset_of(Stored(opened, "direct"))))
        form.finish(handle, partial, guard, private)
    return target


def _written(
    sides: _Rows | _Units, form: Form, handle: int, path: Path, guard: Guard
) -> dict[str, Any]:
    """The private facts of a file of which the blocks were written here."""
    writers = [
        _Writer(form.section(section, handle, path, guard), *form.of_section(section))
        for section in (TRAIN, EVALUATION)
    ]
    for records in sides.packed(form):
        for writer, some in zip(writers, records, strict=True):
            writer.add(some)
    for writer, blocks in zip(writers, form.blocks, strict=True):
        writer.end(blocks)
    private: dict[str, Any] = {"records": tuple(writer.records for writer in writers)}
    if isinstance(sides, _Units):
        private[ROWS] = sides.rows
    return private


def _scratch_for(
    folder: Path, encrypt: bool, ends: contextlib.ExitStack
) -> tuple[int, Path, Guard]:
    """A scratch file until ``ends``, and what guards it."""
    handle, path = ends.enter_context(scratch_file(folder))
    return (
        handle,
        path,
        Seal(os.urandom(32), os.urandom(32)) if encrypt else Checksum(os.urandom(32)),
    )


def _check(options: Mapping[str, Any], target: Path) -> None:
    """:raises ArgumentError: naming what cannot be packed, or a place where nothing can
    be written.
    """
    for name in _OF_OPENING:
        if name in options:
            raise _validate.ArgumentError(
                name,
                options[name],
                f"is not kept in a file: say it where you open it, wb.data.open(..., {name}=...).",
            )
    columns = list(inspect.signature(Encoding.of).parameters)[2:]
    for name in options:
        if name not in (*columns, *_NOT_OF_THE_COLUMNS):
            names = ", ".join(sorted((*columns, *_NOT_OF_THE_COLUMNS)))
            raise _validate.ArgumentError(name, options[name], f"unknown option; known: {names}.")
    if target.exists():
        raise _validate.ArgumentError(
            "out", str(target), "exists already: name another file, or delete it."
        )
    if not target.parent.is_dir():
        raise _validate.ArgumentError("out", str(target), "cannot write there.")


def _form(
    table: _Table,
    options: Mapping[str, Any],
    sides: _Rows | _Units,
    block_size: int,
    declared: tuple[int | None, float | None],
    encrypt: bool,
) -> Form:
    """The form of the file. :param declared: number of training records, and share of evaluation
    records, if public.
    """
    arrays, (capacity, fraction), encoding, units = table.example(), declared, table.encoding, None
    if encoding.unit_id is not None:
        none = np.empty(0, np.int32)
        units = Units(
            none, checked_max_rows(options["max_rows"]), none, bool(options.get("unit_mean", False))
        )
    name, described = (
        options.get("name", _folders.title_of(table.path)),
        encoding.facts(arrays, table.labels),
    )
    facts = public_facts(Dataset(name=name, train=(), evaluation=(), units=units, **described))
    record = layout(facts)
    if record.itemsize > block_size:
        raise _validate.ArgumentError(
            "block_size", block_size, f"is less than a record, {record.itemsize} bytes."
        )
    most = list(sides.counts)
    if capacity is not None:
        if most[0] > capacity:
            raise _validate.ArgumentError(
                "capacity", capacity, "is less than the number of training records."
            )
        most[0] = capacity
        if fraction is not None:
            expected = capacity * fraction / (1 - fraction)
            most[1] = int(expected + 12 * np.sqrt(expected) / (1 - fraction) + 12)
            if sides.counts[1] > most[1]:
                raise _validate.ArgumentError(
                    "capacity", capacity, "is too small for the number of evaluation records."
                )
    if units is not None:
        # so that the size of the file follows from the number of units, unless they have far more
        # rows
        most[1] *= units.max_rows
        while most[1] < sides.records[1]:
            most[1] *= 2
    form = Form(new_id(), encrypt, record, block_size // record.itemsize, (0, 0), facts)
    blocks = -(-most[0] // form.per_block), -(-most[1] // form.of_section(EVALUATION)[1])
    return dataclasses.replace(form, blocks=blocks).with_room()


class _Rows:
    """The rows of a table as records, and those of evaluation.

    :param counts: of both sides. :param records: the same.
    """

    def __init__(self, table: _Table, evaluation: _Table | None, split: tuple[float, int]) -> None:
        self._table, self._other = table, evaluation
        self._held_out = (
            table.held_out(*split) if evaluation is None else np.zeros(table.count(), bool)
        )
        num_evaluation = int(np.sum(self._held_out)) if evaluation is None else evaluation.count()
        self.counts = self.records = int(np.sum(~self._held_out)), num_evaluation
        _check_sides(self.counts, split[0], evaluation)

    def packed(self, form: Form) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(training records, evaluation records), some at a time."""
        for start, arrays, _ in self._table.parts():
            records = _records(arrays, form.record)
            held_out = self._held_out[start : start + len(records)]
            yield records[: len(held_out)][~held_out], records[: len(held_out)][held_out]
        if self._other is not None:
            for _, arrays, _ in self._other.parts():
                records = _records(arrays, form.record)
                yield records[:0], records


class _Units:
    """Persons as records, and the rows of those of evaluation.

    :param scratch: makes a scratch file, and what guards it.
    :param counts: of persons on both sides. :param records: of training and of evaluation. :param
        rows: of training.
    """

    def __init__(
        self,
        table: _Table,
        evaluation: _Table | None,
        split: tuple[float, int],
        max_rows: int,
        scratch: Callable[[], tuple[int, Path, Guard]],
    ) -> None:
        fraction, seed = split
        people = [Persons(table.identifiers())]
        if evaluation is not None:
            people.append(Persons(evaluation.identifiers(), people[0]))
        check_several(
            people[0].name, sum(map(len, people)), sum(persons.rows for persons in people)
        )
        tables = [table] if evaluation is None else [table, evaluation]
        self._gathered = [
            _gathered(*source, max_rows, seed, scratch)
            for source in zip(tables, people, strict=True)
        ]
        self._held_out = [
            np.full(len(persons), is_other)
            for persons, is_other in zip(people, (False, True), strict=False)
        ]
        if evaluation is None:
            self._held_out = [self._gathered[0].held_out(fraction)]
        held_out = np.concatenate(self._held_out)
        rows = np.concatenate([gathered.persons.counts for gathered in self._gathered])
        self.counts = int(np.sum(~held_out)), int(np.sum(held_out))
        self.records = self.counts[0], int(np.sum(rows[held_out]))
        self.rows = int(np.sum(np.minimum(rows[~held_out], max_rows)))
        _check_sides(self.counts, fraction, evaluation)

    def packed(self, form: Form) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(training records, evaluation records), some at a time."""
        for gathered, held_out in zip(self._gathered, self._held_out, strict=True):
            yield from gathered.packed(held_out, form.record, form.of_section(EVALUATION)[0])


def _gathered(
    table: _Table,
    persons: Persons,
    max_rows: int,
    seed: int,
    scratch: Callable[[], tuple[int, Path, Guard]],
) -> Gathered:
    """The rows of a table by persons. :raises ArgumentError: naming ``path``, if they are not those
    that were counted.
    """
    gathered, counts = None, np.zeros(len(persons), np.int64)
    changed = _validate.ArgumentError("path", str(table.path), "was changed while it was packed.")
    for _, arrays, column in table.parts():
        if gathered is None:
            gathered = Gathered(*scratch(), persons, _row_type(arrays), max_rows, seed)
        try:
            numbers = persons.numbers(column)
        except KeyError:
            raise changed from None
        np.add.at(counts, numbers, 1)
        gathered.add(numbers, table.encoding.content(arrays), _records(arrays, _row_type(arrays)))
    if gathered is None or not np.array_equal(counts, persons.counts):
        raise changed
    return gathered


def _check_sides(counts: tuple[int, int], fraction: float, evaluation: _Table | None) -> None:
    """:raises ArgumentError: naming ``evaluation_fraction`` or ``evaluation``, if there are too few
    records.
    """
    if evaluation is None:
        splits.require_both_sides(counts[1], counts[0], fraction)
    elif counts[0] < 2 or counts[1] < 1:
        raise _validate.ArgumentError(
            "evaluation", str(evaluation.path), "needs 2 training records and 1 of evaluation."
        )


class _Table:
    """A table in a file, of which a part at a time is encoded."""

    def __init__(self, path: Path, options: Mapping[str, Any], like: _Table | None = None) -> None:
        self.path, self._options = path, options
        self.labels: tuple[str, ...] = ()
        self._example: dict[str, np.ndarray] | None = None
        self.encoding: Encoding
        if like is not None:
            self.encoding, self._example, self.labels = like.encoding, like.example(), like.labels
        else:
            columns = {
                name: value for name, value in options.items() if name not in _NOT_OF_THE_COLUMNS
            }
            first = next(self._frames(), None)
            if first is None:
                raise _validate.ArgumentError("path", str(path), "has no records.")
            self.encoding = Encoding.of(first, {label: label for label in first.columns}, **columns)

    def _frames(self) -> Iterator[pd.DataFrame]:
        for frame in tables.parts_of(self.path, self._options, _ROWS):
            yield frame.set_axis([column_name(label) for label in frame.columns], axis=1)

    def identifiers(self) -> Iterator[pd.Series]:
        """Whose the rows are that are used, part by part."""
        for frame in self._frames():
            yield self.encoding.complete(frame)[0][self.encoding.unit_id]

    def parts(self) -> Iterator[tuple[int, dict[str, np.ndarray], Any]]:
        """(number of the first row, arrays, whose the rows are if they are persons') of
        each part.
        """
        start, unit_id = 0, self.encoding.unit_id
        for frame in self._frames():
            complete = self.encoding.complete(frame)[0]
            arrays, labels = self.encoding.arrays(complete)
            if self._example is None:
                self._example, self.labels = (
                    {name: array[:0] for name, array in arrays.items()},
                    labels,
                )
            elif labels != self.labels or any(
                arrays[name].dtype != like.dtype for name, like in self._example.items()
            ):
                raise _validate.ArgumentError(
                    "target",
                    self.encoding.target,
                    "has values of another type further down; declare them with classes=.",
                )
            yield start, arrays, None if unit_id is None else complete[unit_id]
            start += len(arrays["x"])

    def example(self) -> dict[str, np.ndarray]:
        """The arrays of no records. The table is looked at if that was not done."""
        if self._example is None:
            next(self.parts(), None)
        assert self._example is not None
        return self._example

    def count(self) -> int:
        """The number of records."""
        return sum(len(arrays["x"]) for _, arrays, _ in self.parts())

    def held_out(self, fraction: float, seed: int) -> np.ndarray:
        """bool[N], True for evaluation records: the result of ``splits.by_record``, in bounded
        memory.
        """
        groups, group, held_out = 1, 0, np.zeros(0, bool)
        while group < groups:
            rows, digests, number, counted = (
                [np.zeros(0, np.int64)],
                [splits.digests([], seed)],
                0,
                0,
            )
            for start, arrays, _ in self.parts():
                hashes = splits.digests(self.encoding.content(arrays), seed)
                mine = np.flatnonzero(hashes["high"] % np.uint64(groups) == group)
                rows.append(start + mine)
                digests.append(hashes[mine])
                number, counted = start + len(hashes), counted + len(mine)
                while (
                    group == 0 and counted > _MOST_COUNTED
                ):  # those of a group half as large are among these
                    groups *= 2
                    everything, numbers = np.concatenate(digests), np.concatenate(rows)
                    still = everything["high"] % np.uint64(groups) == 0
                    rows, digests, counted = [numbers[still]], [everything[still]], int(still.sum())
            if group == 0:
                held_out = np.zeros(number, bool)
            everything = np.concatenate(digests)
            coins = splits.numbered_coins(
                [hashes.tobytes() for hashes in everything], splits.numbers_of(everything), seed
            )
            held_out[np.concatenate(rows)] = coins < fraction
            group += 1
        return held_out


def _row_type(arrays: Mapping[str, np.ndarray]) -> np.dtype:
    """The layout of a row in a scratch file."""
    return np.dtype([(name, array.dtype, array.shape[1:]) for name, array in arrays.items()])


def _records(arrays: Mapping[str, np.ndarray], record: np.dtype) -> np.ndarray:
    """Records, one entry for each, of arrays."""
    packed = np.empty(len(arrays["x"]), record)
    for name, array in arrays.items():
        packed[name] = array
    return packed


class _Writer:
    """Writes records into blocks, the last of which is filled up with zeros."""

    def __init__(self, blocks: Blocks, record: np.dtype, per_block: int) -> None:
        self._blocks, self._waiting = blocks, np.zeros(per_block, record)
        self.records = self._filled = self._written = 0

    def add(self, records: np.ndarray) -> None:
        """Write what fills blocks, and keep the rest."""
        self.records += len(records)
        while len(records):
            count = min(len(records), len(self._waiting) - self._filled)
            self._waiting[self._filled : self._filled + count] = records[:count]
            records, self._filled = records[count:], self._filled + count
            if self._filled == len(self._waiting):
                self._flush()

    def _flush(self) -> None:
        self._blocks.write(self._written, self._waiting.tobytes())
        self._waiting[:] = np.zeros((), self._waiting.dtype)
        self._written, self._filled = self._written + 1, 0

    def end(self, blocks: int) -> None:
        """Write blocks, at last empty ones, until there are ``blocks``."""
        if self._filled:
            self._flush()
        while self._written < blocks:
            self._flush()
