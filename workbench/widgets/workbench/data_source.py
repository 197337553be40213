"""Where the records come from: tables of the user's, the data sets that follow from them, and the code that makes these."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _validate
from workbench import data as data_room
from workbench._lazy import pd
from workbench.data import Categorical, Dataset, files
from workbench.data.files import UnreadableFileError
from workbench.widgets.workbench.declarations import (
    FEATURE_ROLES,
    LABELS,
    ColumnDeclaration,
    TableDeclaration,
    column_argument,
)

__all__ = ["DataSource", "Loader", "Same", "Table", "array_table", "file_table", "frame_table", "stamp", "upload_table"]

_ARRAY_ROLES = (*FEATURE_ROLES, "leave out")  # an array's target and groups come in arrays of their own
_SAMPLE_ROWS = 200  # rows of a CSV file that its columns' types are guessed from


@dataclass(frozen=True)
class DataSource:
    """One choice of the data panel, in plain values that any thread may use.

    :param name: as shown. :param code: Python source of an expression that makes the data set, or that ``wb.fit`` takes in
        its place: a quoted name, the name of a variable, or a call of ``wb.data``.
    :param load: makes the data set; may take a second. Its ``ArgumentError`` quotes no record.
    :param key: equal for sources whose ``load`` returns the same, different for others.
    :param evaluation_is_public: whether the evaluation records are declared public.
    :param note: what somebody has to do before ``code`` runs; "" for nothing.
    """

    name: str
    code: str
    load: Callable[[], Dataset]
    key: Hashable
    evaluation_is_public: bool
    note: str = ""


class Loader:
    """Makes the data sets of sources; the last few are kept."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Dataset] = {}
        self._closed = False

    def load(self, source: DataSource) -> Dataset:
        """The data set of ``source``; may take a second."""
        found = self._kept.get(source.key)
        if found is None:
            found = source.load()
            if not self._closed:
                self._kept = {**dict(list(self._kept.items())[-2:]), source.key: found}
        return found

    def found(self, source: DataSource) -> Dataset | None:
        """The data set of ``source`` if it is kept."""
        return self._kept.get(source.key)

    def close(self) -> None:
        """Forget them all, and keep none from now on."""
        self._closed = True
        self._kept = {}


@dataclass(frozen=True)
class Table:
    """A table of the user's, of which the columns are known and everything else is to be declared.

    :param name: as shown. :param key: of what is declared about it: where it comes from, and its columns.
    :param function: of ``wb.data`` that makes the data set. :param arguments: the first ones, as Python source.
    :param make: the same function with its first arguments, taking the options.
    :param content: a hashable that stands for the records.
    :param columns: with the roles that follow from their types. :param roles: those that a column can have, by its name.
    :param note: as in ``DataSource``.
    """

    name: str
    key: tuple[Any, ...]
    function: str
    arguments: tuple[str, ...]
    make: Callable[..., Dataset]
    content: Callable[[], Hashable]
    columns: tuple[ColumnDeclaration, ...]
    roles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""

    def source(self, declaration: TableDeclaration) -> DataSource:
        """The data source under this declaration; ``ArgumentError`` where it has problems."""
        options = declaration.options(names_columns=not self.roles)
        if self.function in ("from_frame", "from_arrays"):
            options["name"] = self.name
        is_array = bool(self.roles)
        given = [*self.arguments, *(f"{name}={_literal(value)}" for name, value in options.items())]
        code = f"wb.data.{self.function}({', '.join(given)})"

        def load() -> Dataset:
            reason = _validate.ArgumentError(
                "data",
                self.name,
                "cannot be read as it is declared; look for cells that hold lists, objects or huge numbers.",
            )
            try:
                return self.make(**options)
            except _validate.ArgumentError as error:
                reason = _public_error(error, declaration, is_array)
            except Exception:  # its words may quote records, and so it may not be the context of the other either
                pass
            raise reason

        return DataSource(self.name, code, load, (code, self.content()), declaration.evaluation_is_public, self.note)


class Same:
    """Equal to another one of the very same object, which it keeps from being forgotten."""

    def __init__(self, object: Any) -> None:
        self._object = object

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Same) and self._object is other._object

    def __hash__(self) -> int:
        return id(self._object)


def frame_table(name: str, frame: pd.DataFrame) -> Table:
    """The table of the DataFrame in the variable ``name``; ``ArgumentError`` naming ``variable`` for repeated columns."""
    columns = _columns_of(frame)
    names = [column.name for column in columns]
    repeated = next((each for each in names if names.count(each) > 1), None)
    if repeated is not None:
        raise _validate.ArgumentError("variable", name, f"two of its columns are named {repeated!r}: rename one.")
    return Table(
        name, ("variable", name, *names), "from_frame", (name,), partial(data_room.from_frame, frame),
        partial(_content_of, frame), columns,
    )  # fmt: skip


def array_table(name: str, x: np.ndarray, y_name: str = "", y: Any = None) -> Table:
    """The table of the array[N, D] in the variable ``name``, with the target y[N] of another variable where it is named."""
    columns, roles = _array_columns(x, [] if y is None else ["y"])
    return Table(
        name, ("variable", name, y_name, len(columns)), "from_arrays", (name, *([] if y is None else [y_name])),
        partial(data_room.from_arrays, x, y), lambda: (_content_of(x), _content_of(y)), columns, roles,
    )  # fmt: skip


def upload_table(name: str, content: bytes) -> Table:
    """The table of an uploaded CSV file; ``ArgumentError`` naming ``path`` where it is none."""
    columns = _columns_of(_first_rows(io.BytesIO(content)))
    stem = Path(name).name.split(".")[0]

    def make(**options: Any) -> Dataset:
        return data_room.from_csv(io.BytesIO(content), name=stem, **options)

    key = ("upload", name, *(column.name for column in columns))
    note = f"save the uploaded file as {name!r} where this code runs"
    return Table(name, key, "from_csv", (repr(name),), make, lambda: hashlib.sha256(content).digest(), columns, note=note)


def file_table(path: str) -> Table:
    """The table, or the images, of a file of the kernel's machine; ``ArgumentError`` naming ``path`` where it is neither."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    roles: dict[str, tuple[str, ...]] = {}
    try:
        if ".csv" in suffixes[-2:]:
            function, columns = "from_csv", _columns_of(_first_rows(path))
        elif suffixes[-1:] in ([".parquet"], [".pq"]):
            function, columns = "from_parquet", _columns_of(files.empty_parquet(path))
        elif suffixes[-1:] == [".npz"]:
            function, (columns, roles) = "from_npz", _npz_columns(path)
        else:
            raise _validate.ArgumentError("path", path, "the name must end in .csv, .csv.gz, .parquet, .pq or .npz.")
    except _validate.ArgumentError as error:
        raise _public_error(error) from None
    key = ("file", path, *(column.name for column in columns))
    make = partial(getattr(data_room, function), path)
    return Table(path, key, function, (repr(path),), make, partial(stamp, path), columns, roles)


def stamp(path: str) -> Hashable:
    """What changes when the file is written again; None where there is none."""
    file = Path(path).expanduser()
    try:
        stat = file.stat()
    except OSError:
        return None
    return str(file.resolve()), stat.st_mtime_ns, stat.st_size


def _columns_of(frame: pd.DataFrame) -> tuple[ColumnDeclaration, ...]:
    return tuple(ColumnDeclaration(str(name), _role(kind)) for name, kind in zip(frame.columns, frame.dtypes, strict=True))


def _array_columns(x: np.ndarray, others: list[str]) -> tuple[tuple[ColumnDeclaration, ...], dict[str, tuple[str, ...]]]:
    """(columns x1, x2, ... and ``others``, the roles that each can have)."""
    role = _role(x.dtype)
    roles: dict[str, tuple[str, ...]] = {f"x{number + 1}": _ARRAY_ROLES for number in range(x.shape[1])}
    columns = [ColumnDeclaration(name, role) for name in roles]
    for name in others:
        roles[name] = ("target",) if name == "y" else ("group",)
        columns.append(ColumnDeclaration(name, roles[name][0]))
    return tuple(columns), roles


def _npz_columns(path: str) -> tuple[tuple[ColumnDeclaration, ...], dict[str, tuple[str, ...]]]:
    arrays = files.read_npz(path)
    x = next((arrays[name] for name in ("x", "x_train") if name in arrays), None)
    if x is None:
        raise _validate.ArgumentError("path", path, "must hold an array 'x' or 'x_train'.")
    if x.ndim != 2:  # images
        labels = [ColumnDeclaration("y", LABELS)] if {"y", "y_train"} & arrays.keys() else []
        return tuple(labels), {"x": (), "y": (LABELS,)}
    return _array_columns(x, [name for name in ("group", "y") if name in arrays or f"{name}_train" in arrays])


def _role(kind: Any) -> str:
    """The role that a column of this type begins with; its values are not looked at."""
    types = pd.api.types
    if types.is_bool_dtype(kind):
        return "yes / no"
    if types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind):
        return "number"
    texts = isinstance(kind, pd.CategoricalDtype) or types.is_object_dtype(kind) or types.is_string_dtype(kind)
    return "category" if texts else "leave out"


def _first_rows(file: Any) -> pd.DataFrame:
    try:
        return files.read_csv(file, rows=_SAMPLE_ROWS)
    except _validate.ArgumentError as error:
        raise _public_error(error) from None


def _content_of(records: Any) -> Hashable:
    """A digest of a table or an array, so that changes in place are seen; 0.4 s for 30 million numbers."""
    if records is None:
        return None
    try:
        table = records if isinstance(records, pd.DataFrame) else pd.DataFrame(np.asarray(records))
        rows = pd.util.hash_pandas_object(table, index=False).to_numpy()
    except Exception:  # it holds lists, say, or objects that cannot be hashed, whatever these raise
        return Same(records)
    return hashlib.sha256(rows.tobytes()).digest(), *map(str, table.columns), *map(str, table.dtypes)


def _literal(value: Any) -> str:
    """Python source of an option's value."""
    if isinstance(value, Categorical):
        return f"wb.data.Categorical({list(value.categories)!r}, other=True)"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))})"
    return value.__name__ if isinstance(value, type) else repr(value)


# Errors that come from looking at the records, in the words of the screen
_BY_ROLE = {
    "number": "in some row it is missing, infinite or no plain number: clean it, or choose another role.",
    "category": "some row has a value that is not declared, or none: declare it, or tick that others are allowed.",
    "yes / no": "some row holds something else than True and False or 1 and 0: clean it, or choose another role.",
    "target": "it must hold 0 and 1 or False and True, none missing; or else declare its positive value, all its classes "
    "or a threshold.",
    "group": "some row is of a group that is not declared, or of none: declare all groups.",
}
_BY_ARGUMENT = {
    "target": _BY_ROLE["target"],
    "positive": "say which of the target's values counts as 1, as it is written in the table, or list all its classes.",
    "evaluation_fraction": "leaves too few records on one side of the split.",
}
_OF_ARRAYS = {
    "x": "must be numbers in rows and columns.",
    "y": "must have one entry a row of the records, 0 or 1, or else with a positive value, all classes or a threshold.",
    "group": "must have one entry a row of the records, each a declared group.",
    "labels": "must be whole numbers from 0, one an image, less than the number of classes.",
    "images": "must be whole numbers from 0 to 255, or numbers from 0 to 1.",
}
_DECLARED = {"bounds", "classes", "features", "frame", "groups", "schema", "threshold", "private_scaling", "unit", "name"}


def _public_error(
    error: _validate.ArgumentError, declaration: TableDeclaration | None = None, is_array: bool = False
) -> _validate.ArgumentError:
    """The error in words that depend on what was declared alone, not on the records."""
    argument = error.argument
    role = "" if declaration is None else declaration.role_of(argument)
    if isinstance(error, UnreadableFileError):  # its reason depends on the records
        return _validate.ArgumentError("path", error.value, f"cannot be read as {error.kind}.")
    if is_array and argument in _OF_ARRAYS:
        return _validate.ArgumentError(argument, "", _OF_ARRAYS[argument])
    if role in _BY_ROLE:
        return _validate.ArgumentError(column_argument(argument), role, _BY_ROLE[role])
    if argument in ("path", *_DECLARED) or argument.startswith("schema["):
        return error
    reason = _BY_ARGUMENT.get(argument, "does not fit the records; the code, run by itself, tells more.")
    return _validate.ArgumentError(argument, "", reason)
