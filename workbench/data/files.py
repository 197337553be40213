"""Data sets from the user's own files: CSV, Parquet and NumPy's .npz."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from workbench import _folders, _validate
from workbench._lazy import pd
from workbench.data.arrays import from_arrays
from workbench.data.columns import Categorical
from workbench.data.csv_files import EXCEL, read_csv
from workbench.data.dataset import Dataset
from workbench.data.images import from_images
from workbench.data.preprocessing import column_name
from workbench.data.schema import Schema
from workbench.data.sequences import from_tokens
from workbench.data.tables import from_frame
from workbench.data.undeclared import types_in
from workbench.data.units import named_array, unit_called
from workbench.data.unreadable import UnreadableFileError, existing, read_or_refuse

__all__ = [
    "UnreadableFileError",
    "empty_parquet",
    "from_csv",
    "from_file",
    "from_npz",
    "from_parquet",
    "of_parquet",
    "read_npz",
    "read_table",
    "text_columns",
]

_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".ods"), EXCEL),
    ".tsv": "it has columns between tabs: name it .csv",
}


def from_file(path: str | Path, **options: Any) -> Dataset:
    """A data set from a file, by its suffix: .csv (also packed, such as .csv.gz), .parquet or .pq,
    .npz.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_csv("patients.csv.gz", index=False)
    >>> wb.data.from_file("patients.csv.gz", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :param options: those of ``from_csv``, ``from_parquet`` or ``from_npz``.
    :raises ArgumentError: naming ``path``, for any other suffix.
    """
    suffixes = [suffix.lower() for suffix in _validate.path("path", path).suffixes]
    for suffix, read in _READERS.items():
        if suffix in suffixes[-1:] or (suffix == ".csv" and suffix in suffixes[-2:]):
            return read(path, **options)
    reason = f"; {_SUFFIXES[suffixes[-1]]}" if suffixes[-1:] and suffixes[-1] in _SUFFIXES else ""
    raise _validate.ArgumentError(
        "path", str(path), f"must have one of the suffixes {', '.join(_READERS)}{reason}."
    )


def from_csv(
    path: str | Path | BinaryIO,
    *,
    separator: str | None = None,
    decimal: str | None = None,
    **options: Any,
) -> Dataset:
    """A data set from a CSV file (packed files such as ``.gz`` too). The other arguments are those
    of ``from_frame``.

    The separator is found in the first line, whose names are public, and never in the records below
    it.

    Columns that are declared categorical, those of groups and ``unit_id``, and a target with
    ``positive`` or ``classes`` are read as text, so that "01" and "True" are unchanged, whatever is
    in the other rows. Empty cells are missing, and so are "NA", "None" and the like, unless they
    are declared: as a category, a class, ``positive`` or a group. The first line names the columns,
    each once. A row with more fields than names is an error. The text is UTF-8, or UTF-16 with a
    mark at its beginning; whatever is not UTF-8 is read as the text of Windows in Western Europe
    (cp1252).

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_csv("patients.csv", index=False)
    >>> wb.data.from_csv("patients.csv", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    >>> frame.to_csv("patients.csv", index=False, sep=";", decimal=",")
    >>> wb.data.from_csv("patients.csv", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :param path: or an open binary file that is not packed, whose data set is named "table" unless
        ``name`` is given.
    :param separator: what is between two columns: "," or ";" or a tab or "|". By default the one
        that occurs most often between the names in the first line, or what a line "sep=;" before
        them says, as spreadsheets write it.
    :param decimal: "," reads 3,5 as a number, as well as 3.5; "." only the latter. By default ","
        in files with semicolons, otherwise ".". Each cell is read by itself, so no record changes
        how another is read.
    :raises ArgumentError: if the file is missing or not a table, naming ``path``; naming
        ``separator`` or ``decimal``, if it is none of these.
    """
    frame = read_csv(path, text=text_columns(options), separator=separator, decimal=decimal)
    name = _folders.title_of(path) if isinstance(path, (str, Path)) else "table"
    return from_frame(frame, **{"name": name, **options})


def from_parquet(path: str | Path, **options: Any) -> Dataset:
    """A data set from a Parquet file. The other arguments are those of ``from_frame``. It needs the
    package pyarrow.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_parquet("patients.parquet")
    >>> wb.data.from_parquet("patients.parquet", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :raises ArgumentError: if the file is missing or not a table, or pyarrow is not installed,
        naming ``path``.
    """
    frame = of_parquet(path, lambda _, file: pd.read_parquet(file, engine="pyarrow"))
    return from_frame(frame, **{"name": _folders.title_of(path), **options})


def read_table(
    path: str | Path,
    schema: Schema | Mapping[str, Any] | None = None,
    *,
    unit_id: Hashable = None,
    separator: str | None = None,
    decimal: str | None = None,
) -> pd.DataFrame:
    """The table in a CSV or Parquet file, as ``workbench.fit`` and ``workbench.look`` take it.

    Of a CSV file the columns that are declared as categories or as ``str``, and ``unit_id``, are
    read as text, so that no row changes how the others are read.

    >>> frame = pd.DataFrame({"stay": np.arange(50.0), "ward": ["01", "02"] * 25})
    >>> frame.to_csv("stays.csv", index=False)
    >>> wb.data.read_table("stays.csv", {"stay": float, "ward": str})["ward"][0]
    '01'

    :param schema: the declaration of the columns, as a fit takes it: some by their type alone;
        None for no declaration.
    :param unit_id: name of the column that says whose row it is.
    :param separator: as in ``from_csv``. :param decimal: as in ``from_csv``.
    :raises ArgumentError: as ``from_csv`` and ``from_parquet``; naming ``path``, for other kinds of
        files.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes[-1:] in ([".parquet"], [".pq"]):
        return of_parquet(path, lambda _, file: pd.read_parquet(file, engine="pyarrow"))
    if ".csv" in suffixes[-2:]:
        text = text_columns({"schema": schema, "unit_id": unit_id})
        return read_csv(path, text=text, separator=separator, decimal=decimal)
    raise _validate.ArgumentError(
        "path", str(path), "must be a table, with one of the suffixes .csv, .parquet, .pq."
    )


def from_npz(path: str | Path, **options: Any) -> Dataset:
    """A data set from NumPy's .npz, with an array "x", and "y" and "group" if there are any.

    "x_train", "y_train", "x_test" and "y_test" are a table or images with their own evaluation
    records. A table is passed to ``from_arrays``, images (more than two axes) to ``from_images``,
    and x with ``vocabulary_size`` to ``from_tokens``. The other arguments are theirs. Of a table,
    ``unit_id`` is the name of the array that says whose row each is.

    >>> np.savez(
    ...     "patients.npz", x=np.random.uniform(0, 100, (50, 2)), y=np.arange(50) % 2
    ... )
    >>> wb.data.from_npz("patients.npz", bounds=(0, 100))
    Dataset('patients', 2 features, target 'y')

    :raises ArgumentError: if the file is missing or has no such arrays, naming ``path``; naming
        ``unit_id``.
    """
    arrays = read_npz(path)
    unit_id = options.pop("unit_id", None)
    names = ("x", "group", *([] if unit_id is None else [named_array(unit_id, arrays)]), "y")
    columns = {
        name: arrays[label]
        for name in names
        for label in (name, f"{name}_train")
        if label in arrays
    }
    if "x" not in columns:
        raise _validate.ArgumentError(
            "path",
            str(path),
            f"must have an array 'x' or 'x_train'; it has {', '.join(sorted(arrays)) or 'none'}.",
        )
    settings: dict[str, Any] = {"name": _folders.title_of(path)} | (
        {} if unit_id is None else {"unit": unit_called(unit_id)}
    )
    if "x_test" in arrays:
        missing = [f"{name}_test" for name in columns if f"{name}_test" not in arrays]
        if missing:
            raise _validate.ArgumentError("path", str(path), f"has 'x_test' but no {missing[0]!r}.")
        settings["evaluation"] = tuple(arrays[f"{name}_test"] for name in columns)
    settings.update(options)
    tokens, images = "vocabulary_size" in settings, np.ndim(columns["x"]) > 2
    if tokens or images:
        content = "tokens" if tokens else "images"
        if "group" in columns:
            raise _validate.ArgumentError(
                "path", str(path), f"has {content} with groups, which no model takes."
            )
        if unit_id is not None:
            raise _validate.ArgumentError(
                "unit_id", unit_id, f"is for tables; {str(path)!r} has {content}."
            )
    if tokens:
        return from_tokens(columns["x"], columns.get("y"), **settings)
    if images:
        return from_images(columns["x"], columns.get("y"), **settings)
    return from_arrays(
        columns["x"],
        columns.get("y"),
        **{"group": columns.get("group"), "unit_id": columns.get(unit_id), **settings},
    )


_READERS: dict[str, Callable[..., Dataset]] = {
    ".csv": from_csv,
    ".parquet": from_parquet,
    ".pq": from_parquet,
    ".npz": from_npz,
}


def empty_parquet(path: str | Path) -> pd.DataFrame:
    """The table of a Parquet file without its rows, which are not read: the names and types of its
    columns.

    :raises ArgumentError: as ``from_parquet``.
    """
    return of_parquet(
        path, lambda parquet, file: parquet.read_schema(file).empty_table().to_pandas()
    )


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name. Pickled objects are refused, because reading them would
    run their code.

    :raises ArgumentError: if the file is missing or not of that kind, naming ``path``.
    """
    file = existing(path)

    def read() -> dict[str, np.ndarray]:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UnreadableFileError(
                path, ".npz", "it has a single array; save several by name with numpy.savez"
            )
        with archive:
            return {name: archive[name] for name in archive.files}

    return read_or_refuse(path, ".npz", read)


def of_parquet(path: str | Path, read: Callable[[Any, Path], Any]) -> Any:
    """What ``read`` makes of ``pyarrow.parquet`` and a Parquet file.

    :raises ArgumentError: as ``from_parquet``.
    """
    file = existing(path)
    try:
        _, parquet = (importlib.import_module(name) for name in ("pyarrow", "pyarrow.parquet"))
    except ImportError:
        raise _validate.ArgumentError(
            "path", str(path), "is a Parquet file, which needs a package: pip install pyarrow."
        ) from None
    return read_or_refuse(path, "Parquet", lambda: read(parquet, file))


def text_columns(options: Mapping[str, Any]) -> dict[str, set[str]]:
    """The columns that are read as text, each with the values that are declared in it."""
    settings = {name: value for name, value in options.items() if value is not None}
    columns: dict[str, set[str]] = {}
    if "group" in settings:
        groups = settings.get(
            "groups",
            getattr(settings.get("group_features"), "index", settings.get("group_features", ())),
        )
        columns[column_name(settings["group"])] = _as_text(groups)
    # 7 and 007 are two people
    columns |= {column_name(settings[name]): set() for name in ("unit_id",) if name in settings}
    if "target" in settings and {"positive", "classes"} & settings.keys():
        columns[column_name(settings["target"])] = _as_text(settings.get("classes", ())) | _as_text(
            [settings.get("positive")]
        )
    if "schema" in settings:
        types, others = types_in(settings["schema"])
        columns |= {column_name(name): set() for name, how in types.items() if how is str}
        declared = Schema.from_declaration(others).columns if others else {}
        columns |= {
            name: set(column.labels)
            for name, column in declared.items()
            if isinstance(column, Categorical)
        }
    return columns


def _as_text(values: Iterable[Any] | int | None) -> set[str]:
    """Those of ``values`` that are text; none for a number of classes, or what is refused later."""
    return (
        {value for value in values if isinstance(value, str)}
        if isinstance(values, Iterable)
        else set()
    )
