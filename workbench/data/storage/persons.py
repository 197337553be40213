"""Persons with several rows, packed: a person's rows are brought together in memory that does not
grow with the rows.

Persons are numbered by their first rows, as in memory (``units.divided``), by one pass over the
identifiers. A second pass sorts encoded rows into buckets of persons, in a scratch file without a
name, sealed where the packed file is encrypted. Then a bucket at a time is read, or all rows of a
person who has more. Up to 250 bytes are taken for each person meanwhile, and none for a row.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import splits
from workbench.data.dataset import PRESENT
from workbench.data.storage.blocks import Guard, RecordsError, read_at, write_at
from workbench.data.storage.form import ROWS
from workbench.data.units import coded, in_both_tables, padded, sample

__all__ = ["Gathered", "Persons"]

_MOST_PERSONS = 2**24
_MERGED = 2**20  # entries that wait at most before they are merged, or as many as are known
_BUCKET = 2**25  # bytes of rows that are sorted in memory
_DIGEST = splits.digests([], 0).dtype


class Persons:
    """Who has the rows of a table, numbered by first rows from 0.

    Identifiers are known by a keyed hash with a key that is forgotten. No two of one table have the
    same: that is checked.

    :param columns: of identifiers, part by part. :param like: those of another table, which has
        nobody of this one.
    :raises ArgumentError: naming ``unit_id``, as ``units.checked_identifiers``, or for more persons
        than 2^24.
    """

    def __init__(self, columns: Iterable[pd.Series], like: Persons | None = None) -> None:
        self._key: bytes = os.urandom(32) if like is None else like._key
        self._kinds: set[str] = set() if like is None else like._kinds
        self.rows, self.name = 0, ""
        entries = _entries(
            np.zeros((0, 2), np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        )
        waiting: list[np.ndarray] = []
        for column in columns:
            self.name = str(column.name)
            codes, hashes = self._hashed(column)
            _, firsts, counts = np.unique(codes, return_index=True, return_counts=True)
            waiting.append(_entries(hashes, self.rows + firsts, counts))
            self.rows += len(codes)
            if sum(map(len, waiting)) > max(_MERGED, len(entries)):
                entries, waiting = _merged([entries, *waiting]), []
                self._check_number(len(entries))
        entries = _merged([entries, *waiting])
        self._check_number(len(entries))
        if np.any(entries["high"][1:] == entries["high"][:-1]):
            raise _validate.ArgumentError(
                "unit_id", self.name, "has two identifiers with one hash, by chance: pack it again."
            )
        if like is not None and np.intersect1d(entries["high"], like._hashes).size:
            raise in_both_tables(self.name)
        order = np.argsort(entries["first"])
        self.counts: np.ndarray = entries["count"][order]
        self._hashes: np.ndarray = entries["high"].copy()
        self._numbers = np.empty(len(entries), np.int32)
        self._numbers[order] = np.arange(len(entries))

    def __len__(self) -> int:
        return len(self.counts)

    def numbers(self, column: pd.Series) -> np.ndarray:
        """int32[rows], whose row each is. :raises KeyError: for somebody who was not in
        the table.
        """
        codes, hashes = self._hashed(column)
        positions = np.minimum(np.searchsorted(self._hashes, hashes[:, 0]), len(self) - 1)
        if np.any(self._hashes[positions] != hashes[:, 0]):
            raise KeyError
        return self._numbers[positions][codes]

    def _hashed(self, column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
        """(int64[rows], a number for each unit of this part; uint64[units, 2], hashes)."""
        codes, identifiers = coded(column)
        values = identifiers.tolist()
        is_number = pd.api.types.is_numeric_dtype(identifiers.dtype)
        self._kinds.update("number" if is_number else type(value).__name__ for value in values[:1])
        if len(self._kinds) > 1:
            raise _validate.ArgumentError(
                "unit_id", str(column.name), "has values of several types: convert it to one type."
            )
        texts = (
            str(int(value)) if is_number else value if isinstance(value, str) else repr(value)
            for value in values
        )
        hashes = b"".join(
            hashlib.blake2b(
                text.encode("utf-8", "surrogatepass"), digest_size=16, key=self._key
            ).digest()
            for text in texts
        )
        return codes, np.frombuffer(hashes, np.uint64).reshape(-1, 2)

    def _check_number(self, number: int) -> None:
        if number > _MOST_PERSONS:
            raise _validate.ArgumentError(
                "unit_id",
                self.name,
                f"names more than {_MOST_PERSONS} units, which is the most that can be packed.",
            )


def _entries(hashes: np.ndarray, firsts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    entries = np.empty(
        len(hashes), [("high", "u8"), ("low", "u8"), ("first", "i8"), ("count", "i8")]
    )
    entries["high"], entries["low"], entries["first"], entries["count"] = (
        hashes[:, 0],
        hashes[:, 1],
        firsts,
        counts,
    )
    return entries


def _merged(batches: list[np.ndarray]) -> np.ndarray:
    """One entry for each hash, sorted by it: its first row, and the sum of its counts."""
    entries = np.concatenate(batches)
    entries = entries[np.lexsort((entries["first"], entries["low"], entries["high"]))]
    differs = (entries["high"][1:] != entries["high"][:-1]) | (
        entries["low"][1:] != entries["low"][:-1]
    )
    starts = np.flatnonzero(np.concatenate([[True], differs])[: len(entries)])
    merged = entries[starts]
    if len(entries):
        merged["count"] = np.add.reduceat(entries["count"], starts)
    return merged


class Gathered:
    """Encoded rows of persons in a scratch file, from which some persons at a time are read with
    all their rows.

    :param handle: of the open scratch file. :param path: for errors. :param guard: of that file.
    :param row: layout of an encoded row. :param max_rows: of a training record. :param seed: of the
        split.
    """

    def __init__(
        self,
        handle: int,
        path: Path,
        guard: Guard,
        persons: Persons,
        row: np.dtype,
        max_rows: int,
        seed: int,
    ) -> None:
        self.persons, self._max_rows, self._seed = persons, max_rows, seed
        self._handle, self._path, self._guard = handle, path, guard
        self._entry = np.dtype([("person", "<i4"), ("digest", _DIGEST), ("row", row)])
        before = np.cumsum(persons.counts) - persons.counts
        self._bucket_of = (before // max(1, _BUCKET // self._entry.itemsize)).astype(np.int32)
        self._chunks: list[list[tuple[int, int, int]]] = [
            [] for _ in range(1 + self._bucket_of.max(initial=0))
        ]
        self._waiting: list[
            np.ndarray
        ] = []  # entries, as many as make chunks worth a call of the system each
        self._written = self._end = 0

    def add(self, numbers: np.ndarray, content: list[np.ndarray], rows: np.ndarray) -> None:
        """Take some rows. :param numbers: whose they are. :param content: decides about the split.
        :param rows: encoded.
        """
        entries = np.empty(len(rows), self._entry)
        entries["person"], entries["digest"], entries["row"] = (
            numbers,
            splits.digests(content, self._seed),
            rows,
        )
        self._waiting.append(entries)
        if sum(batch.nbytes for batch in self._waiting) >= _BUCKET:
            self._write()

    def _write(self) -> None:
        entries, self._waiting = np.concatenate([np.empty(0, self._entry), *self._waiting]), []
        if not len(entries):
            return
        buckets = self._bucket_of[entries["person"]]
        order = np.argsort(buckets, kind="stable")
        occupied, starts = np.unique(buckets[order], return_index=True)
        for bucket, members in zip(occupied.tolist(), np.split(order, starts[1:]), strict=True):
            chunk = entries[members].tobytes()
            guarded = self._guard.close(0, self._written, chunk)
            write_at(self._handle, self._path, self._end, guarded)
            self._chunks[bucket].append((self._written, self._end, len(guarded)))
            self._written, self._end = self._written + 1, self._end + len(guarded)

    def _buckets(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """(number of the first person, entries by person and within one by content, int64[n + 1]:
        where each begins).
        """
        self._write()
        first = 0
        for chunks in filter(None, self._chunks):
            chunk_entries = [self._read(*chunk) for chunk in chunks]
            entries = np.concatenate(chunk_entries)
            entries = entries[
                np.lexsort((entries["digest"]["low"], entries["digest"]["high"], entries["person"]))
            ]
            bounds = np.append(np.flatnonzero(np.diff(entries["person"], prepend=-1)), len(entries))
            yield first, entries, bounds
            first += len(bounds) - 1

    def _read(self, number: int, offset: int, size: int) -> np.ndarray:
        content = self._guard.open(0, number, read_at(self._handle, self._path, offset, size))
        if content is None:
            raise RecordsError(
                self._path, f"a block {self._guard.refusal} while a table was packed."
            )
        return np.frombuffer(content, self._entry)

    def held_out(self, fraction: float) -> np.ndarray:
        """bool[persons], True for those of evaluation: the result of ``splits.by_unit``."""
        contents = np.empty(len(self.persons), _DIGEST)
        for first, digests in self._contents():
            hashes = b"".join(
                hashlib.blake2b(digest, digest_size=16).digest() for digest in digests
            )
            contents[first : first + len(digests)] = np.frombuffer(hashes, _DIGEST)
        numbers, coins = splits.numbers_of(contents), np.empty(len(self.persons))
        for first, digests in self._contents():
            persons = slice(first, first + len(digests))
            coins[persons] = splits.numbered_coins(digests, numbers[persons], self._seed)
        return coins < fraction

    def _contents(self) -> Iterator[tuple[int, list[bytes]]]:
        for first, entries, bounds in self._buckets():
            digests = np.ascontiguousarray(entries["digest"])
            yield first, [digests[begin:end].tobytes() for begin, end in itertools.pairwise(bounds)]

    def packed(
        self, held_out: np.ndarray, unit: np.dtype, row: np.dtype
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(training records, evaluation records), some at a time, in the order of persons.

        :param unit: layout of a training record, ``facts.layout``. :param row: of an evaluation
            record.
        """
        at_once = max(1, _BUCKET // unit.itemsize)
        for first, entries, bounds in self._buckets():
            counts, is_held_out = np.diff(bounds), held_out[first : first + len(bounds) - 1]
            of_evaluation = np.repeat(is_held_out, counts)
            is_kept = ~of_evaluation
            for person in np.flatnonzero((counts > self._max_rows) & ~is_held_out):
                rows = np.arange(bounds[person], bounds[person + 1])
                is_kept[rows] = False
                is_kept[sample(entries["digest"][rows], rows, self._max_rows, self._seed)] = True
            evaluated = _records(entries["row"][of_evaluation], row)
            evaluated[ROWS] = 0
            evaluated[ROWS][(np.cumsum(counts[is_held_out]) - counts[is_held_out])] = counts[
                is_held_out
            ]
            training, used = (
                entries["row"][is_kept],
                np.minimum(counts[~is_held_out], self._max_rows),
            )
            ends = np.cumsum(used)
            for begin in range(0, max(1, len(used)), at_once):
                some = used[begin : begin + at_once]
                rows = (
                    training[ends[begin] - used[begin] : ends[begin] + some[1:].sum()]
                    if len(some)
                    else training
                )
                yield self._whole(rows, some, unit), evaluated[:0] if begin else evaluated

    def _whole(self, rows: np.ndarray, counts: np.ndarray, unit: np.dtype) -> np.ndarray:
        records, names = np.zeros(len(counts), unit), rows.dtype.names or ()
        if len(counts):
            arrays = padded([rows[name] for name in names], counts, self._max_rows)
            for name, array in zip((*names, PRESENT), arrays, strict=True):
                records[name] = array
        return records


def _records(rows: np.ndarray, record: np.dtype) -> np.ndarray:
    """Rows with the fields of ``record``."""
    records = np.zeros(len(rows), record)
    for name in rows.dtype.names or ():
        records[name] = rows[name]
    return records
