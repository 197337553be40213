"""Tables in files, read part by part: CSV, Parquet and NumPy's .npz."""

from __future__ import annotations

import contextlib
import functools
import zipfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.csv_files import csv_parts
from workbench.data.files import of_parquet, text_columns
from workbench.data.schema import with_index
from workbench.data.tables import named_columns
from workbench.data.units import named_array
from workbench.data.unreadable import existing, read_or_refuse

__all__ = ["parts_of"]


def parts_of(path: Path, options: Mapping[str, Any], rows: int) -> Iterator[pd.DataFrame]:
    """The table in a file as parts of about ``rows`` rows.

    :param options: of ``from_frame``, and ``separator`` and ``decimal`` for a CSV file.
    :raises ArgumentError: naming ``path``, if it is not such a file.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".csv" in suffixes[-2:]:
        of_csv = {name: options.get(name) for name in ("separator", "decimal")}
        return csv_parts(path, text_columns(options), rows, **of_csv)
    if suffixes[-1:] in ([".parquet"], [".pq"]):
        return _parquet_parts(path, rows, named_columns(**options))
    if suffixes[-1:] == [".npz"]:
        return _npz_parts(path, rows, options.get("unit_id"))
    raise _validate.ArgumentError(
        "path", str(path), "must have one of the suffixes .csv, .parquet, .pq, .npz."
    )


def _parquet_parts(path: Path, rows: int, labels: Sequence[Any]) -> Iterator[pd.DataFrame]:
    with of_parquet(path, lambda parquet, file: parquet.ParquetFile(file)) as opened:
        batches = opened.iter_batches(batch_size=rows)
        while (batch := read_or_refuse(path, "Parquet", lambda: next(batches, None))) is not None:
            yield with_index(batch.to_pandas(), labels).reset_index(drop=True)


def _npz_parts(path: Path, rows: int, unit_id: Hashable) -> Iterator[pd.DataFrame]:
    """The arrays x, group and y of an .npz as a table: with columns x1, x2, ..., "group", "y", and
    that of units.
    """
    file = existing(path)
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(
            read_or_refuse(path, ".npz", functools.partial(zipfile.ZipFile, file))
        )
        members = [name.removesuffix(".npy") for name in archive.namelist()]
        names = [name for name in ("x", "group", "y") if name in members]
        if unit_id is not None:
            names.append(named_array(unit_id, members))
        if "x" not in names:
            raise _validate.ArgumentError(
                "path", str(path), "must have an array 'x'. Those packed are x, group and y."
            )

        def opened() -> dict[str, _Stream]:
            return {
                name: _Stream(stack.enter_context(archive.open(f"{name}.npy"))) for name in names
            }

        streams = read_or_refuse(path, ".npz", opened)
        x = streams["x"]
        if len(x.shape) != 2 or any(
            stream.shape != x.shape[:1] for name, stream in streams.items() if name != "x"
        ):
            raise _validate.ArgumentError(
                "path",
                str(path),
                "must have x of shape (records, features), and one entry of y and group for each "
                "record.",
            )
        if x.by_columns:
            raise _validate.ArgumentError(
                "path",
                str(path),
                "has x stored by columns, not by rows: save np.ascontiguousarray(x) instead.",
            )
        labels = [f"x{number + 1}" for number in range(x.shape[1])]
        for start in range(0, x.shape[0], rows):
            following = functools.partial(_next_of, streams, min(rows, x.shape[0] - start))
            arrays = read_or_refuse(path, ".npz", following)
            frame = pd.DataFrame(arrays.pop("x"), columns=labels)
            yield frame.assign(**arrays)


def _next_of(streams: Mapping[str, _Stream], count: int) -> dict[str, np.ndarray]:
    return {name: stream.next(count) for name, stream in streams.items()}


class _Stream:
    """An array in an .npz, read row by row. :raises ValueError: if that is impossible."""

    def __init__(self, file: BinaryIO) -> None:
        self._file: BinaryIO = file
        version = np.lib.format.read_magic(self._file)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        self.shape, self.by_columns, self.dtype = read(self._file)
        if self.dtype.hasobject or not self.shape:
            raise ValueError("objects")

    def next(self, count: int) -> np.ndarray:
        """The next ``count`` rows."""
        size = count * int(np.prod(self.shape[1:])) * self.dtype.itemsize
        content = self._file.read(size)
        if len(content) != size:
            raise EOFError
        return np.frombuffer(content, self.dtype).reshape(count, *self.shape[1:])
