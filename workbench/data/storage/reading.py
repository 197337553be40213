"""Reading records at rest: all into memory in one pass, or lazily, as arrays whose rows are brought
when they are needed.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike

from workbench import _validate
from workbench.data.dataset import PRESENT, Dataset
from workbench.data.storage import oblivious
from workbench.data.storage.blocks import RecordsError
from workbench.data.storage.contents import Declared
from workbench.data.storage.facts import dataset_facts
from workbench.data.storage.form import EVALUATION, ROWS, TRAIN, Opened, open_file
from workbench.data.storage.keys import found_key, named_key
from workbench.data.units import Units

__all__ = ["READINGS", "DrawnAhead", "Loaded", "Stored", "StoredArray", "dataset", "open_records"]

READINGS = ("memory", "direct", "oblivious")
_AT_ONCE = (
    2**20
    # bytes of a sequential read: more than that leaves the caches of the processor before it is
    # placed
)


def open_records(
    path: str | Path,
    *,
    key_file: str | Path | None = None,
    keyring: str | None = None,
    reading: str | None = None,
    memory: float = 1.0,
    scratch: str | Path | None = None,
    unit: str | None = None,
    evaluation_is_public: bool = False,
) -> Dataset:
    """The data set in a file that ``pack`` wrote. Its training records stay in the file if they are
    larger than ``memory``.

    See ``pack`` for an example. What each way of reading shows to an observer of the storage is in
    :doc:`/records_at_rest`.

    :param key_file: of an encrypted file. Without it and ``keyring`` the key is in
        ``$WORKBENCH_RECORDS_KEY``. Where a key is named, a file that is not encrypted is refused:
        anybody could have written it.
    :param keyring: name of the key in the system's keyring.
    :param reading: "memory": one pass over the file, now. "direct": each step reads the records of
        its minibatch, so anyone who sees the reads learns who is in it. "oblivious": what is read
        depends on no record and on no draw. By default "memory" if the records fit; otherwise
        "oblivious" for an encrypted file, and "direct" for others.
    :param memory: GiB that records may take in this process, at least 1/64; copies on the device do
        not count.
    :param scratch: folder for the scratch file of "oblivious", which is encrypted; by default that
        of the file.
    :param unit: what a record is, the privacy unit, in words; by default "training record", or
        "unit" where records have several rows. A file says nothing about privacy that would be
        believed: it may be anybody's.
    :param evaluation_is_public: True declares the evaluation records public.
    :raises ArgumentError: naming ``path``, for a file that is not complete, or not of records;
        ``key_file`` for a key that is missing, wrong, or of another file than this one in the
        clear; ``reading``, ``memory`` or ``scratch``.
    :raises RecordsError: where a block was altered or is damaged. "memory" finds it now, "direct"
        where it first reads the block, and "oblivious" each time that it does.
    """
    declared: dict[str, Any] = {
        "evaluation_is_public": _validate.flag("evaluation_is_public", evaluation_is_public)
    }
    if unit is not None:
        declared["unit"] = _validate.text("unit", unit)
    location = _validate.location("path", path)
    allowed = int(_validate.number("memory", memory, at_least=1 / 64) * 2**30)
    if reading is not None:
        _validate.choice("reading", reading, READINGS)
    folder = (
        None if scratch is None else _validate.location("scratch", scratch, "must be a folder.")
    )
    if folder is not None and not folder.is_dir():
        raise _validate.ArgumentError("scratch", str(scratch), "must be a folder.")
    named = named_key(key_file, keyring)
    try:  # O_NONBLOCK: do not block on a pipe
        handle = os.open(
            location, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except OSError as error:
        raise _validate.ArgumentError(
            "path", str(path), f"cannot be read ({error.strerror})."
        ) from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise _validate.ArgumentError("path", str(path), "must be a file.")
        opened = open_file(
            handle, location, about.st_size, lambda: found_key(key_file, keyring), named
        )
    except BaseException:
        os.close(handle)
        raise
    is_encrypted, sizes = opened.form.is_encrypted, map(opened.form.size_of, (TRAIN, EVALUATION))
    size = sum(
        number * bytes_per_block
        for number, bytes_per_block in zip(opened.form.blocks, sizes, strict=True)
    )
    if reading is None:
        reading = "memory" if size <= allowed else "oblivious" if is_encrypted else "direct"
    stored = Stored(opened, reading, allowed, folder)  # which closes the file from now on
    if not is_encrypted and named is not None:
        raise _validate.ArgumentError(
            *named,
            f"is named, but {location.name} is not encrypted: another file may have been put in "
            "place of the one that is.",
        )
    if reading == "oblivious" and not is_encrypted:
        raise _validate.ArgumentError(
            "reading", reading, "hides nothing of a file that is not encrypted."
        )
    if reading == "oblivious" and not os.access(stored.scratch, os.W_OK):
        raise _validate.ArgumentError(
            "scratch", str(stored.scratch), "cannot be written: name another folder."
        )
    return dataset(stored, **declared)


def dataset(stored: Stored, **declared: Any) -> Dataset:
    """The data set of an open file. :param declared: about privacy, by the user."""
    form = stored.opened.form
    facts = dataset_facts(form.facts)
    is_in_memory = stored.reading == "memory"

    def of_section(section: int) -> tuple[tuple[Any, ...], Any]:
        """(arrays, numbers of rows of units)."""
        if is_in_memory:
            return stored.loaded(section)
        arrays: Any = tuple(StoredArray(stored, section, name) for name in facts["arrays"])
        if form.units is None:
            return arrays, None
        if section == EVALUATION:
            return arrays, StoredArray(stored, section, ROWS)
        return arrays, StoredArray(stored, section, PRESENT, _counts, is_rows=False)

    (train, counts), (evaluation, evaluation_counts) = of_section(TRAIN), of_section(EVALUATION)
    storage = Loaded(stored.opened.path, stored.hides_reads) if is_in_memory else stored
    units = (
        None
        if form.units is None
        else Units(counts, form.units[0], evaluation_counts, form.units[1])
    )
    called = {} if units is None else {"unit": "unit"}
    return Dataset(
        train=train,
        evaluation=evaluation,
        stored=storage,
        units=units,
        **{**called, **facts, **declared},
    )


def _put(array: np.ndarray, done: int, rows: np.ndarray) -> int:
    """Write rows behind the first ``done`` of an array, as far as there is room. :return: how many
    there are now.
    """
    array[done : done + len(rows)] = rows[: max(0, len(array) - done)]
    return done + len(rows)


def _counts(present: np.ndarray) -> np.ndarray:
    """int32[N], how many rows units have, of which rows are there."""
    return np.asarray(np.sum(present > 0, axis=1), np.int32)


@dataclass(frozen=True)
class Loaded:
    """A file whose records are in memory; it is closed.

    :param hides_reads: as of ``Stored``.
    """

    path: Path
    hides_reads: bool
    reading: ClassVar[str] = "memory"


class DrawnAhead(Protocol):
    """Minibatches of a run, drawn ahead of its steps."""

    name: str
    capacity: int
    sampling_rate: float
    at_once: int

    def __call__(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """(indices, int32[at_once, M]; mask, bool[at_once, M]) of the steps from ``first`` on."""


class Stored:
    """An open file of records, and how training records are read from it.

    :param reading: one of ``READINGS``. :param memory: bytes that records may take in this process.
    :param scratch: folder for scratch files; None for that of the file.
    """

    def __init__(
        self, opened: Opened, reading: str, memory: int = 2**30, scratch: Path | None = None
    ) -> None:
        self.opened, self.reading, self.memory = opened, reading, memory
        self.scratch = opened.path.absolute().parent if scratch is None else scratch
        fingerprints = opened.private.get("fingerprints", {}) if opened.form.is_encrypted else {}
        self.fingerprints: dict[str, str] = dict(fingerprints)  # of ``ledger.fingerprint``
        # what is sealed is ``pack``'s
        self._declared = None if opened.form.is_encrypted else Declared(opened.form.facts)
        self._mapped: np.ndarray | None = None
        self._is_verified = np.zeros(opened.form.blocks[0], bool)  # blocks of ``_mapped``
        weakref.finalize(self, os.close, opened.handle)

    def __repr__(self) -> str:
        return f"Stored({str(self.opened.path)!r}, reading={self.reading!r})"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.opened.path.name} is open in this process: open it again in the other one."
        )

    @property
    def hides_reads(self) -> bool:
        """Whether an observer of the storage learns nothing about which records are in a minibatch,
        nor what is in them.
        """
        return self.opened.form.is_encrypted and self.reading in ("memory", "oblivious")

    def scan(self, section: int, blocks: range | None = None) -> Iterator[tuple[int, np.ndarray]]:
        """(number of the first one, records) of a section, some at a time, in their order.

        :param blocks: those that are read. By default all are, those without records too: how many
            there are is not seen.
        :raises RecordsError: if a block was altered or is damaged, or a record contradicts what the
            file declares; after all blocks, if units have another number of rows than it says.
        """
        form, number = self.opened.form, self.opened.number(section)
        record, per_block = form.of_section(section)
        at_once = max(1, min(_AT_ONCE, self.memory // 16) // form.size_of(section))
        rows, is_whole = 0, blocks is None
        blocks = range(form.blocks[section - TRAIN]) if blocks is None else blocks
        for first in blocks[::at_once]:
            start, count = first * per_block, min(at_once, blocks.stop - first)
            records = np.frombuffer(self.opened.section(section).read(first, count), record)[
                : max(0, number - start)
            ]
            self._check(records)
            rows += self._rows(section, records)
            yield start, records
        if is_whole and rows != self.opened.rows(section):
            raise RecordsError(self.opened.path, "has another number of rows than it says.")

    def _rows(self, section: int, records: np.ndarray) -> int:
        """How many rows some records of a section have; of evaluation records, how many their
        units are said to have.
        """
        if self.opened.form.units is None:
            return len(records)
        return int(
            np.sum(records[ROWS], dtype=np.int64)
            if section == EVALUATION
            else np.sum(records[PRESENT] > 0)
        )

    def _check(self, records: np.ndarray) -> None:
        if self._declared is not None and not self._declared.allows(records):
            raise RecordsError(
                self.opened.path, "has a record that contradicts its own declarations."
            )

    def units(self, names: tuple[str, ...]) -> Iterator[StoredArray]:
        """The arrays of whole training units, and which rows are there."""
        return (StoredArray(self, TRAIN, name, is_rows=False) for name in (*names, PRESENT))

    def loaded(self, section: int) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
        """(arrays of a section, numbers of rows of units). It takes one pass over the file,
        whichever records there are.
        """
        views = [
            StoredArray(self, section, name)
            for name in dataset_facts(self.opened.form.facts)["arrays"]
        ]
        arrays, counts, done = (
            tuple(np.empty(view.shape, view.dtype) for view in views),
            [np.empty(0, np.int32)],
            0,
        )
        for _, records in self.scan(section):
            ends = [
                _put(array, done, view.rows_of(records))
                for view, array in zip(views, arrays, strict=True)
            ]
            done = ends[0]
            if self.opened.form.units is not None:
                counts.append(
                    records[ROWS][records[ROWS] > 0]
                    if section == EVALUATION
                    else _counts(records[PRESENT])
                )
        return arrays, None if self.opened.form.units is None else np.concatenate(counts)

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The training records at ``indices``, int[M]: each block that has some of them is read
        once.

        :raises RecordsError: as ``scan``, of these blocks. One in the clear is verified where this
            object first reads it.
        """
        form = self.opened.form
        if not form.is_encrypted:
            blocks, mapped = indices // form.per_block, self._map()
            for block in np.unique(blocks[~self._is_verified[blocks]]).tolist():
                records = np.frombuffer(
                    self.opened.section(TRAIN).read(block), form.record, form.per_block
                )
                self._check(records[: max(0, self.opened.number(TRAIN) - block * form.per_block)])
                self._is_verified[block] = True
            return mapped[blocks, indices % form.per_block]
        taken = np.empty(len(indices), form.record)
        order = np.argsort(indices, kind="stable")
        blocks, starts = np.unique(indices[order] // form.per_block, return_index=True)
        for block, members in zip(blocks.tolist(), np.split(order, starts[1:]), strict=True):
            records = np.frombuffer(
                self.opened.section(TRAIN).read(block), form.record, form.per_block
            )
            taken[members] = records[indices[members] - block * form.per_block]
        return taken

    def require_room(self, capacity: int, sampling_rate: float, at_once: int, steps: int) -> None:
        """Check that there is memory to read minibatches of M = ``capacity`` places, ``at_once``
        steps at a time.

        :raises ArgumentError: naming ``memory``, where they cannot be read obliviously.
        """
        if self.reading == "oblivious":
            oblivious.layout_of(
                self.opened.form,
                capacity=capacity,
                rate=sampling_rate,
                at_once=at_once,
                steps=steps,
                memory=self.memory,
            )

    def minibatches(
        self, names: tuple[str, ...], draws: DrawnAhead, first: int, last: int
    ) -> Iterator[tuple[int, list[np.ndarray], np.ndarray]]:
        """(number of the first step, rows of each array, mask) of the steps from ``first`` to
        ``last``, a few at a time.

        Each step has M rows, real ones or not. Those that are not are any record's, or zero.
        """
        if self.reading == "oblivious":
            yield from oblivious.minibatches(self, names, draws, first, last)
            return
        for number in range(first, last, draws.at_once):
            indices, mask = draws(number)
            records = self.take(indices.reshape(-1))
            yield number, [np.ascontiguousarray(records[name]) for name in names], mask

    def _map(self) -> np.ndarray:
        """The training records of a file in the clear by block and place, mapped into memory.

        :raises RecordsError: if the file was cut short, where reading from the map would end the
            process.
        """
        form, train = self.opened.form, self.opened.section(TRAIN)
        if os.fstat(self.opened.handle).st_size < form.start_of(EVALUATION + 1):
            raise RecordsError(self.opened.path, "is cut short.")
        if self._mapped is None:
            block = np.dtype(
                [
                    ("records", form.record, (form.per_block,)),
                    ("checksum", "V", train.stride - train.size),
                ]
            )
            with os.fdopen(os.dup(self.opened.handle), "rb") as file:
                self._mapped = np.memmap(file, block, "r", train.start, (form.blocks[0],))[
                    "records"
                ]
        return self._mapped


class StoredArray:
    """One array of records at rest: shape and type of NumPy's, rows that are read when they are
    asked for.

    ``numpy.asarray`` reads it all. It is refused where that takes more memory than was allowed.

    :param transform: a function of some of the rows, whose rows these are instead; None for the
        rows as they are.
    :param is_rows: where a training record is a unit: whether these are the rows of all units, one
        after another, instead of an entry with room for ``max_rows`` of each.
    """

    def __init__(
        self,
        stored: Stored,
        section: int,
        name: str,
        transform: Callable[[np.ndarray], np.ndarray] | None = None,
        *,
        is_rows: bool = True,
    ) -> None:
        self.stored, self.section, self.name, self.transform = stored, section, name, transform
        self.is_rows = is_rows and section == TRAIN and stored.opened.form.units is not None
        none = self.rows_of(np.empty(0, stored.opened.form.of_section(section)[0]))
        self.dtype: np.dtype = none.dtype
        number = stored.opened.rows(section) if self.is_rows else stored.opened.number(section)
        self.shape: tuple[int, ...] = (number, *none.shape[1:])

    def rows_of(self, records: np.ndarray) -> np.ndarray:
        """The array's rows of some records."""
        rows = records[self.name]
        rows = rows[records[PRESENT] > 0] if self.is_rows else np.ascontiguousarray(rows)
        return rows if self.transform is None else self.transform(rows)

    def mapped(self, transform: Callable[[np.ndarray], np.ndarray]) -> StoredArray:
        """The same records, of which ``transform`` makes other rows, some at a time."""
        return StoredArray(self.stored, self.section, self.name, transform, is_rows=self.is_rows)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(np.prod(self.shape))

    @property
    def most_bytes(self) -> int:
        """What the array takes in memory if all places of the file are filled. What is read may
        follow from it.
        """
        form = self.stored.opened.form
        capacity = form.blocks[self.section - TRAIN] * form.of_section(self.section)[1]
        if self.is_rows and form.units is not None:
            capacity *= form.units[0]
        return capacity * int(np.prod(self.shape[1:])) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"StoredArray({self.name!r}, shape {self.shape}, {self.dtype})"

    def parts(self) -> Iterator[np.ndarray]:
        """The rows in their order, some at a time."""
        for _, records in self.stored.scan(self.section):
            yield self.rows_of(records)

    def rows(self, first: int, last: int) -> np.ndarray:
        """The rows from ``first`` on, without ``last``. Only their blocks are read, and who sees
        the reads learns which.
        """
        per_block = self.stored.opened.form.of_section(self.section)[1]
        array = np.empty((last - first, *self.shape[1:]), self.dtype)
        for start, records in self.stored.scan(
            self.section, range(first // per_block, -(-last // per_block))
        ):
            begin, end = max(first, start), min(last, start + len(records))
            array[begin - first : end - first] = self.rows_of(records[begin - start : end - start])
        return array

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        stored, size = self.stored, self.most_bytes
        if size > stored.memory:
            raise _validate.ArgumentError(
                "memory",
                stored.memory / 2**30,
                f"of {stored.opened.path.name}, {size / 2**30:.3g} GiB would have to be "
                "in memory for this, which takes all records at once.",
            )
        array, done = np.empty(self.shape, self.dtype), 0
        for rows in self.parts():
            done = _put(array, done, rows)
        return array if dtype is None else array.astype(dtype)
