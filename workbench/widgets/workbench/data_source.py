"""Sources of records: users' tables, the data sets made from them, and the code that
makes these.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _folders, _validate
from workbench import data as data_room
from workbench._lazy import pd
from workbench.data import Categorical, Dataset, csv_files, files
from workbench.data.files import UnreadableFileError
from workbench.data.preprocessing import TOO_FEW_ROWS
from workbench.widgets.workbench import roles
from workbench.widgets.workbench.declarations import (
    ABOVE_LIMIT,
    CLASSES,
    FEATURE_ROLES,
    LABELS,
    NUMBER,
    PERSON,
    WITH_COMMA,
    YES_OR_NO,
    ColumnDeclaration,
    TableDeclaration,
    column_argument,
)

__all__ = [
    "DataSource",
    "Loader",
    "Same",
    "Table",
    "array_table",
    "file_table",
    "frame_table",
    "is_table",
    "stamp",
    "tables_in",
    "upload_table",
]

_ARRAY_ROLES = (*FEATURE_ROLES, "leave out")  # an array's target and groups are separate arrays
_SAMPLE_ROWS = 200  # rows of a CSV file from which the types of its columns are guessed


@dataclass(frozen=True)
class DataSource:
    """One choice of the data panel, as plain values that any thread may use.

    :param name: as shown.
    :param code: Python expression for what ``wb.fit`` takes as its data: a quoted name, the name of
        a variable, or a call of ``wb.data``.
    :param load: makes what ``code`` makes; may take a second. Its ``ArgumentError`` quotes no
        record.
    :param key: equal for sources whose ``load`` returns the same, different for others.
    :param evaluation_is_public: whether the evaluation records are declared public.
    :param note: what to do before ``code`` can run; "" for nothing.
    :param settings: of a fit, by name: what is declared of a table that is fitted as it is, because
        the fit learns the rest.
    :param in_public: an error of such a fit in words that quote no record.
    """

    name: str
    code: str
    load: Callable[[], Dataset | pd.DataFrame]
    key: Hashable
    evaluation_is_public: bool
    note: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_public: Callable[[_validate.ArgumentError], _validate.ArgumentError] = lambda error: error

    @property
    def may_score_private(self) -> bool:
        """Whether there may be private evaluation records. None are held out of a table as it
        is.
        """
        return not (self.evaluation_is_public or self.settings)

    def schema_as_code(self) -> str:
        """What is declared of the columns of a table that is fitted as it is, as Python source."""
        return _literal(self.settings["schema"])


class Loader:
    """Loads the data sets and tables of sources and keeps the last few."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Any] = {}
        self._closed = False

    def load(self, source: DataSource) -> Any:
        """Load the data set or table of ``source``. This may take a second."""
        dataset = self._kept.get(source.key)
        if dataset is None:
            dataset = source.load()
            if not self._closed:
                self._kept = {**dict(list(self._kept.items())[-2:]), source.key: dataset}
        return dataset

    def found(self, source: DataSource) -> Dataset | None:
        """The data set of ``source`` if it is kept; None for a table."""
        dataset = self._kept.get(source.key)
        return dataset if isinstance(dataset, Dataset) else None

    def close(self) -> None:
        """Forget all data sets, and keep none from now on."""
        self._closed = True
        self._kept = {}


@dataclass(frozen=True)
class Table:
    """A user's table, whose columns are known; everything else must be declared.

    :param name: as shown.
    :param key: under which its declaration is kept: its origin and its columns.
    :param function: the function of ``wb.data`` that makes the data set.
    :param arguments: the first arguments of that function, as Python source.
    :param make: that function with its first arguments, taking the options.
    :param content: returns a hashable that identifies the records.
    :param columns: with the roles that follow from their types.
    :param roles: the roles that each column can have, by name; empty if every column can have every
        role.
    :param note: as in ``DataSource``.
    :param dialect: how the file was read, a sentence; "" for other tables.
    :param count: returns the number of rows, which is private and may take a second; None if nobody
        can ask.
    :param missing: what happens to rows with missing values until somebody chooses otherwise.
    :param read: returns the table itself, given the declaration of its columns and, if there is
        one, ``unit_id=``; None for arrays.
    :param read_code: the Python expression for that, with ``schema`` for the declaration.
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
    dialect: str = ""
    count: Callable[[], int] | None = None
    missing: str = "refuse"
    read: Callable[..., pd.DataFrame] | None = None
    read_code: str = ""

    def source(self, declaration: TableDeclaration) -> DataSource:
        """The data source with this declaration.

        :raises ArgumentError: if the declaration has problems.
        """
        if declaration.learned and self.read is not None:
            return self._as_it_is(declaration, self.read)
        options = declaration.options(names_columns=not self.roles)
        if self.function in ("from_frame", "from_arrays"):
            options["name"] = self.name
        is_array = bool(self.roles)
        arguments = [
            *self.arguments,
            *(f"{name}={_literal(value)}" for name, value in options.items()),
        ]
        code = f"wb.data.{self.function}({', '.join(arguments)})"

        def load() -> Dataset:
            reason = _validate.ArgumentError(
                "data",
                self.name,
                "cannot be read as declared: look for cells that contain lists, objects or huge "
                "numbers.",
            )
            try:
                return self.make(**options)
            except _validate.ArgumentError as error:
                reason = _public_error(error, declaration, is_array)
            except Exception:
                # its message may quote records, so it must not be the context of the new error
                # either
                pass
            raise reason

        return DataSource(
            self.name,
            code,
            load,
            (code, self.content()),
            declaration.evaluation_is_public,
            self.note,
        )

    def _as_it_is(
        self, declaration: TableDeclaration, read: Callable[..., pd.DataFrame]
    ) -> DataSource:
        """The table for a fit that learns what is not declared."""
        is_file = self.function != "from_frame"
        name = _folders.title_of(self.name) if is_file else self.name
        settings = {**declaration.fit_settings(), "name": name}
        unit = {"unit_id": settings["unit_id"]} if "unit_id" in settings else {}
        code = self.read_code
        if is_file:
            in_code = "".join(f", {option}={value!r}" for option, value in unit.items())
            code = f"{code.removesuffix(')')}{in_code})"

        def load() -> pd.DataFrame:
            try:
                return read(settings["schema"], **unit)
            except _validate.ArgumentError as error:
                reason = _public_error(error, declaration)
            raise reason

        def in_public(error: _validate.ArgumentError) -> _validate.ArgumentError:
            is_of_records = error.argument in _OF_RECORDS or declaration.kind_of(error.argument)
            return _public_error(error, declaration) if is_of_records else error

        return DataSource(
            self.name,
            code,
            load,
            (code, repr(settings), self.content()),
            False,
            self.note,
            settings,
            in_public,
        )


def tables_in(variables: Mapping[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Menus of a notebook's tables and data sets, and of arrays that may be targets. Numbers of
    rows are private.
    """
    tables, targets = [], []
    # to import pandas for this takes a third of a second, and without it nobody has such tables
    frames, columns = (pd.DataFrame, pd.Series) if "pandas" in sys.modules else ((), ())
    for name, value in sorted(list(variables.items())):
        if name.startswith("_") or not name.isidentifier() or keyword.iskeyword(name):
            continue
        if isinstance(value, Dataset):
            tables.append((f"{name} (data set)", name))
        elif isinstance(value, frames) and len(value.columns):
            tables.append((f"{name} (table, {len(value.columns)} columns)", name))
        elif is_table(value):
            tables.append((f"{name} (array, {value.shape[1]} columns)", name))
        elif isinstance(value, (np.ndarray, columns)) and value.ndim == 1:
            targets.append((name, name))
    return tables, targets


def is_table(value: object) -> bool:
    """Whether ``value`` is an array of rows and columns."""
    return isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] > 0


class Same:
    """A hashable that equals another only if both hold the same object, which it keeps alive."""

    def __init__(self, object: object) -> None:
        self._object = object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._object is other._object

    def __hash__(self) -> int:
        return id(self._object)


def frame_table(name: str, frame: pd.DataFrame) -> Table:
    """The table of the DataFrame in the variable ``name``.

    :raises ArgumentError: naming ``variable``, if two columns have the same name.
    """
    columns = _columns_of(frame)
    names = [column.name for column in columns]
    repeated = next((label for label in names if names.count(label) > 1), None)
    if repeated is not None:
        raise _validate.ArgumentError(
            "variable", name, f"has two columns named {repeated!r}: rename one."
        )
    return Table(
        name,
        ("variable", name, *names),
        "from_frame",
        (name,),
        partial(data_room.from_frame, frame),
        partial(_content_of, frame),
        columns,
        count=partial(len, frame),
        read=lambda schema, unit_id=None: frame,
        read_code=name,
    )


def array_table(name: str, x: np.ndarray, y_name: str = "", y: np.ndarray | None = None) -> Table:
    """The table of the array[N, D] in the variable ``name``, with an optional target y[N] from
    another variable.
    """
    columns, kinds = _array_columns(x, [] if y is None else ["y"])
    return Table(
        name,
        ("variable", name, y_name, len(columns)),
        "from_arrays",
        (name, *([] if y is None else [y_name])),
        partial(data_room.from_arrays, x, y),
        lambda: (_content_of(x), _content_of(y)),
        columns,
        kinds,
    )


def upload_table(name: str, content: bytes, separator: str | None = None) -> Table:
    """The table of an uploaded CSV file.

    :param separator: None to find it.
    :raises ArgumentError: naming ``path``, if it is not a CSV file.
    """

    def make(**options: Any) -> Dataset:
        return data_room.from_csv(
            io.BytesIO(content), **{"name": _folders.title_of(name), **options}
        )

    def opened() -> io.BytesIO:
        return io.BytesIO(content)

    table = _csv_table(name, "upload", opened, make, separator)
    note = f"save the uploaded file as {name!r} where this code runs"
    return replace(table, content=lambda: hashlib.sha256(content).digest(), note=note)


def file_table(path: str, separator: str | None = None) -> Table:
    """The table or images in a file on the kernel's machine.

    :param separator: of a CSV file; None to find it.
    :raises ArgumentError: naming ``path``, if the file has neither.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    kinds: dict[str, tuple[str, ...]] = {}
    if ".csv" in suffixes[-2:]:
        return _csv_table(path, "file", lambda: path, partial(data_room.from_csv, path), separator)
    try:
        if suffixes[-1:] in ([".parquet"], [".pq"]):
            function, columns = "from_parquet", _columns_of(files.empty_parquet(path))
        elif suffixes[-1:] == [".npz"]:
            function, (columns, kinds) = "from_npz", _npz_columns(path)
        else:
            raise _validate.ArgumentError(
                "path", path, "must end in .csv, .csv.gz, .parquet, .pq or .npz."
            )
    except _validate.ArgumentError as error:
        raise _public_error(error) from None
    key = ("file", path, *(column.name for column in columns))
    make = partial(getattr(data_room, function), path)
    table = Table(path, key, function, (repr(path),), make, partial(stamp, path), columns, kinds)
    if function == "from_npz":
        return table
    read = partial(data_room.read_table, path)
    return replace(table, read=read, read_code=f"wb.data.read_table({path!r}, schema)")


def _csv_table(
    name: str,
    origin: str,
    file: Callable[[], Any],
    make: Callable[..., Dataset],
    separator: str | None,
) -> Table:
    """The table of a CSV file.

    :param file: returns what ``csv_files.read_csv`` reads, from its beginning.
    """
    delimiter, rows, decimal_commas = _first_rows(file, separator)
    columns = _columns_of(rows, is_parsed=True)
    decimal = "," if delimiter == ";" else "."
    options = {} if delimiter == "," else {"separator": delimiter, "decimal": decimal}
    in_code = "".join(f", {option}={value!r}" for option, value in options.items())

    def read(schema: Mapping[str, Any], unit_id: str | None = None) -> pd.DataFrame:
        text = files.text_columns({"schema": schema, "unit_id": unit_id})
        decimal = options.get("decimal")
        return csv_files.read_csv(file(), text, separator=options.get("separator"), decimal=decimal)

    def count() -> int:
        try:
            # commas are slow to read
            return len(csv_files.read_csv(file(), separator=delimiter, decimal="."))
        except _validate.ArgumentError as error:
            raise _public_error(error) from None

    return Table(
        name,
        (origin, name, *(column.name for column in columns)),
        "from_csv",
        (repr(name), *(f"{option}={value!r}" for option, value in options.items())),
        partial(make, **options),
        partial(stamp, name),
        columns,
        dialect=_in_words(delimiter, decimal_commas, len(columns)),
        count=count,
        # empty cells are common in files, and a refusal would be the first thing that is seen
        missing="drop",
        read=read,
        read_code=f"wb.data.read_table({name!r}, schema{in_code})",
    )


def stamp(path: str) -> Hashable:
    """A hashable that changes when the file is written again; None if there is no file."""
    file = Path(path).expanduser()
    try:
        stat = file.stat()
    except OSError:
        return None
    return str(file.resolve()), stat.st_mtime_ns, stat.st_size


def _columns_of(frame: pd.DataFrame, *, is_parsed: bool = False) -> tuple[ColumnDeclaration, ...]:
    """The columns with the roles that their names and types suggest.

    :param is_parsed: whether the types were read off the first rows of a file, and not declared in
        memory or in the file.
    """
    columns = []
    for index, label in enumerate(frame.columns):
        column = frame.iloc[:, index]
        kind = roles.typed(column) if is_parsed else column.dtype
        role, note = roles.suggested(str(label), kind)
        columns.append(ColumnDeclaration(str(label), role, kind=roles.plain(kind), note=note))
    return tuple(columns)


def _array_columns(
    x: np.ndarray, further: list[str]
) -> tuple[tuple[ColumnDeclaration, ...], dict[str, tuple[str, ...]]]:
    """The columns x1, x2, ... and ``further``, and the roles that each can have."""
    role = roles.of_type(x.dtype)
    kinds: dict[str, tuple[str, ...]] = {
        f"x{number + 1}": _ARRAY_ROLES for number in range(x.shape[1])
    }
    columns = [ColumnDeclaration(name, role) for name in kinds]
    for name in further:
        kinds[name] = {"y": ("target",), "group": ("group",)}.get(name, ("leave out", PERSON))
        columns.append(ColumnDeclaration(name, kinds[name][0]))
    return tuple(columns), kinds


def _npz_columns(path: str) -> tuple[tuple[ColumnDeclaration, ...], dict[str, tuple[str, ...]]]:
    arrays = files.read_npz(path)
    x = next((arrays[name] for name in ("x", "x_train") if name in arrays), None)
    if x is None:
        raise _validate.ArgumentError("path", path, "must contain an array 'x' or 'x_train'.")
    if x.ndim != 2:  # images
        labels = [ColumnDeclaration("y", LABELS)] if {"y", "y_train"} & arrays.keys() else []
        return tuple(labels), {"x": (), "y": (LABELS,)}
    rows = {
        name.removesuffix("_train"): arrays[name].ndim == 1
        for name in arrays
        if not name.endswith("_test")
    }
    return _array_columns(
        x, [name for name, is_column in rows.items() if is_column or name in ("group", "y")]
    )


def _first_rows(file: Callable[[], Any], separator: str | None) -> tuple[str, pd.DataFrame, bool]:
    """(separator, first rows, whether some of their numbers have decimal commas) of a CSV file."""

    def read(**how: Any) -> pd.DataFrame:
        return csv_files.read_csv(file(), rows=_SAMPLE_ROWS, separator=delimiter, **how)

    try:
        delimiter = separator or csv_files.csv_separator(file())
        rows = read()
        points = read(decimal=".") if delimiter == ";" else rows
        cells = read(text=dict.fromkeys(rows.columns, ()))
    except _validate.ArgumentError as error:
        raise _public_error(error) from None
    commas = any(_is_number(rows[name]) and not _is_number(points[name]) for name in rows.columns)
    return delimiter, roles.with_codes(rows, cells), commas


def _is_number(column: pd.Series) -> bool:
    return roles.of_type(column.dtype) == "number"


def _in_words(separator: str, decimal_commas: bool, num_columns: int) -> str:
    """What was found in a CSV file; the number of rows is private."""
    commas = ", decimal commas" if decimal_commas else ""
    between = csv_files.SEPARATORS[separator].capitalize()
    return (
        f"{between} between the columns{commas}, {num_columns} "
        f"column{'s' if num_columns != 1 else ''}."
    )


def _content_of(records: pd.DataFrame | np.ndarray | None) -> Hashable:
    """A digest of a table or array, which detects changes in place. 30 million numbers take
    0.4 s.
    """
    if records is None:
        return None
    try:
        table = records if isinstance(records, pd.DataFrame) else pd.DataFrame(np.asarray(records))
        rows = pd.util.hash_pandas_object(table, index=False).to_numpy()
    except Exception:  # lists and other objects that cannot be hashed raise errors of many types
        return Same(records)
    return (
        hashlib.sha256(rows.tobytes()).digest(),
        *map(str, table.columns),
        *map(str, table.dtypes),
    )


def _literal(value: Any) -> str:
    """Python source of an option's value."""
    if isinstance(value, Categorical):
        return f"wb.data.Categorical({list(value.categories)!r}, other=True)"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))})"
    return value.__name__ if isinstance(value, type) else repr(value)


# Errors from reading the records, in the screen's words
_BY_ROLE = {
    "number": "a row has a missing or infinite value, or one that is not a number: clean the "
    "data, or choose another role.",
    "category": "a row has a missing value or one that is not declared: declare it, or tick that "
    f"others are allowed. {WITH_COMMA}",
    "yes / no": "a row has a value other than True and False or 1 and 0: clean the data, or choose "
    "another role.",
    "group": f"a row has no group, or one that is not declared: declare all groups. {WITH_COMMA}",
    YES_OR_NO: "must contain 0 and 1, none missing; or type the value that means yes.",
    ABOVE_LIMIT: "a row has no value, or one that is not a number.",
    CLASSES: f"a row has no value, or one that is not declared: declare all classes. {WITH_COMMA}",
    NUMBER: "must be a number in every row; for yes or no, it must contain 0 and 1.",
}
# said of every column, whatever its rows hold
_REMEDY = " All rows with missing values can be left out at once: choose so under the columns."
# arguments of errors that depend on the records of a table, besides its columns
_OF_RECORDS = ("frame", "positive", "target", "unit_id", "path")
_KINDS = {
    "CSV": ": it must be text, with the names of the columns in its first line, in no row more "
    "fields than names, and a second quotation mark after each first one",
}
_BY_ARGUMENT = {
    "target": _BY_ROLE[YES_OR_NO],
    "positive": "type the value of the target that means yes, as it is written in the table, or "
    "choose what else the target is.",
    "unit_id": "must say of every row whose it is, several rows of some persons: in text or whole "
    "numbers, none missing.",
    "evaluation_fraction": "leaves too few records on one side of the split.",
}
_OF_ARRAYS = {
    "x": "must be numbers in rows and columns.",
    "y": "must have one entry per record, 0 or 1; otherwise choose what else it is.",
    "group": "must have one entry per record, each a declared group.",
    "labels": "must have one whole number per image, at least 0 and less than the number of "
    "classes.",
    "images": "must be whole numbers from 0 to 255, or numbers from 0 to 1.",
}
_DECLARED = {
    "bounds",
    "classes",
    "features",
    "frame",
    "groups",
    "max_rows",
    "missing",
    "schema",
    "threshold",
    "unit",
    "name",
}


def _public_error(
    error: _validate.ArgumentError,
    declaration: TableDeclaration | None = None,
    is_array: bool = False,
) -> _validate.ArgumentError:
    """The error in words that depend only on what was declared, not on the records."""
    # the screen tells nothing about how many rows there are
    argument = "evaluation_fraction" if error.code == TOO_FEW_ROWS else error.argument
    role = "" if declaration is None else declaration.kind_of(argument)
    if isinstance(error, UnreadableFileError):  # its reason depends on the records
        return _validate.ArgumentError(
            "path", error.value, f"cannot be read as {error.kind}{_KINDS.get(error.kind, '')}."
        )
    if is_array and argument in _OF_ARRAYS:
        return _validate.ArgumentError(argument, "", _OF_ARRAYS[argument])
    remedy = _REMEDY if declaration is not None and declaration.missing == "refuse" else ""
    if role in _BY_ROLE:
        return _validate.ArgumentError(column_argument(argument), role, _BY_ROLE[role] + remedy)
    if argument in ("path", *_DECLARED) or argument.startswith("schema["):
        return error
    reason = _BY_ARGUMENT.get(
        argument, "does not fit the records. Run the copied code to see the full message."
    )
    return _validate.ArgumentError(argument, "", reason + (remedy if argument == "target" else ""))
