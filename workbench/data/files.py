"""Data sets from the user's own files: CSV, Parquet and NumPy's .npz."""

from __future__ import annotations

import codecs
import collections
import contextlib
import csv
import importlib
import re
import types
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.arrays import from_arrays
from workbench.data.columns import Categorical
from workbench.data.dataset import Dataset
from workbench.data.images import from_images
from workbench.data.preprocessing import names_withheld
from workbench.data.schema import Schema
from workbench.data.sequences import from_tokens
from workbench.data.tables import from_frame
from workbench.data.units import named_array, unit_called
from workbench.data.unreadable import UnreadableFileError, existing, read_or_refuse

__all__ = [
    "SEPARATORS", "UnreadableFileError", "csv_parts", "csv_separator", "empty_parquet", "from_csv", "from_file", "from_npz",
    "from_parquet", "read_csv", "read_npz", "read_table", "text_columns",
]  # fmt: skip

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # the first wins a tie
_DECIMALS = (".", ",")
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")
_WHOLE = re.compile(r"\s*[-+]?\d{1,15}\s*")  # float64 has them all
_TRUTH = {"true": True, "false": False}
_DECLARED_SEPARATOR = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)  # a line before the names, as Excel reads it
_QUOTED = re.compile(r'"[^"]*"')
_MISSING = {
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA", "NULL",
    "NaN", "None", "n/a", "nan", "null",
}  # fmt: skip
_UTF_16 = ("ÿþ", "þÿ")  # how such a file begins, read as Windows' text


def _as_windows_text(error: UnicodeError) -> tuple[str, int]:
    """Characters of the bytes that are not UTF-8. A byte counts for itself, so no record changes how another is read."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in bad), error.end


codecs.register_error("workbench.windows", _as_windows_text)


def from_file(path: str | Path, **options: Any) -> Dataset:
    """A data set from a file, by its suffix: .csv (also packed, such as .csv.gz), .parquet or .pq, .npz.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_csv("patients.csv.gz", index=False)
    >>> wb.data.from_file("patients.csv.gz", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :param options: those of ``from_csv``, ``from_parquet`` or ``from_npz``.
    :raises ArgumentError: naming ``path``, for any other suffix.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    for suffix, read in _READERS.items():
        if suffix in suffixes[-1:] or (suffix == ".csv" and suffix in suffixes[-2:]):
            return read(path, **options)
    raise _validate.ArgumentError("path", str(path), f"must have one of the suffixes {', '.join(_READERS)}.")


def from_csv(
    path: str | Path | BinaryIO, *, separator: str | None = None, decimal: str | None = None, **options: Any
) -> Dataset:
    """A data set from a CSV file (packed files such as ``.gz`` too). The other arguments are those of ``from_frame``.

    The separator is found in the first line, whose names are public, and never in the records below it.

    Columns that are declared categorical, those of groups and ``unit_id``, and a target with ``positive`` or ``classes`` are
    read as text, so that "01" and "True" are unchanged, whatever is in the other rows. Empty cells are missing, and so are
    "NA", "None" and the like, unless they are declared: as a category, a class, ``positive`` or a group. The first line
    names the columns, each once. A row with more fields than names is an error. The text is UTF-8, or UTF-16 with a mark at
    its beginning; whatever is not UTF-8 is read as the text of Windows in Western Europe (cp1252).

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_csv("patients.csv", index=False)
    >>> wb.data.from_csv("patients.csv", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    >>> frame.to_csv("patients.csv", index=False, sep=";", decimal=",")
    >>> wb.data.from_csv("patients.csv", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :param path: or an open binary file that is not packed, whose data set is named "table" unless ``name`` is given.
    :param separator: what is between two columns: "," or ";" or a tab or "|". By default the one that occurs most often
        between the names in the first line, or what a line "sep=;" before them says, as spreadsheets write it.
    :param decimal: "," reads 3,5 as a number, as well as 3.5; "." only the latter. By default "," in files with semicolons,
        otherwise ".". Each cell is read by itself, so no record changes how another is read.
    :raises ArgumentError: if the file is missing or not a table, naming ``path``; naming ``separator`` or ``decimal``, if it
        is none of these.
    """
    frame = read_csv(path, text=text_columns(options), separator=separator, decimal=decimal)
    name = _name(path) if isinstance(path, (str, Path)) else "table"
    return from_frame(frame, **{"name": name, **options})


def from_parquet(path: str | Path, **options: Any) -> Dataset:
    """A data set from a Parquet file. The other arguments are those of ``from_frame``. It needs the package pyarrow.

    >>> frame = pd.DataFrame({"age": np.arange(50), "ill": [0, 1] * 25})
    >>> frame.to_parquet("patients.parquet")
    >>> wb.data.from_parquet("patients.parquet", target="ill", bounds={"age": (0, 120)})
    Dataset('patients', 1 feature, target 'ill')

    :raises ArgumentError: if the file is missing or not a table, or pyarrow is not installed, naming ``path``.
    """
    frame = _parquet(path, lambda file: pd.read_parquet(file, engine="pyarrow"))
    return from_frame(frame, **{"name": _name(path), **options})


def read_table(path: str | Path, schema: Schema) -> pd.DataFrame:
    """The table in a CSV or Parquet file. Declared categories are read as text.

    :raises ArgumentError: as ``from_csv`` and ``from_parquet``; naming ``path``, for other kinds of files.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes[-1:] in ([".parquet"], [".pq"]):
        return _parquet(path, lambda file: pd.read_parquet(file, engine="pyarrow"))
    if ".csv" in suffixes[-2:]:
        return read_csv(path, text=text_columns({"schema": schema}))
    raise _validate.ArgumentError("path", str(path), "must be a table, with one of the suffixes .csv, .parquet, .pq.")


def from_npz(path: str | Path, **options: Any) -> Dataset:
    """A data set from NumPy's .npz, with an array "x", and "y" and "group" if there are any.

    "x_train", "y_train", "x_test" and "y_test" are a table or images with their own evaluation records. A table is passed to
    ``from_arrays``, images (more than two axes) to ``from_images``, and x with ``vocabulary_size`` to ``from_tokens``. The
    other arguments are theirs. Of a table, ``unit_id`` is the name of the array that says whose row each is.

    >>> np.savez(
    ...     "patients.npz", x=np.random.uniform(0, 100, (50, 2)), y=np.arange(50) % 2
    ... )
    >>> wb.data.from_npz("patients.npz", bounds=(0, 100))
    Dataset('patients', 2 features, target 'y')

    :raises ArgumentError: if the file is missing or has no such arrays, naming ``path``; naming ``unit_id``.
    """
    arrays = read_npz(path)
    unit_id = options.pop("unit_id", None)
    names = ("x", "group", *([] if unit_id is None else [named_array(unit_id, arrays)]), "y")
    held = {name: arrays[label] for name in names for label in (name, f"{name}_train") if label in arrays}
    if "x" not in held:
        raise _validate.ArgumentError(
            "path", str(path), f"must have an array 'x' or 'x_train'; it has {', '.join(sorted(arrays)) or 'none'}."
        )
    settings: dict[str, Any] = {"name": _name(path)} | ({} if unit_id is None else {"unit": unit_called(unit_id)})
    if "x_test" in arrays:
        missing = [f"{name}_test" for name in held if f"{name}_test" not in arrays]
        if missing:
            raise _validate.ArgumentError("path", str(path), f"has 'x_test' but no {missing[0]!r}.")
        settings["evaluation"] = tuple(arrays[f"{name}_test"] for name in held)
    settings.update(options)
    tokens, images = "vocabulary_size" in settings, np.ndim(held["x"]) > 2
    if tokens or images:
        what = "tokens" if tokens else "images"
        if "group" in held:
            raise _validate.ArgumentError("path", str(path), f"has {what} with groups, which no model takes.")
        if unit_id is not None:
            raise _validate.ArgumentError("unit_id", unit_id, f"is for tables; {str(path)!r} has {what}.")
    if tokens:
        return from_tokens(held["x"], held.get("y"), **settings)
    if images:
        return from_images(held["x"], held.get("y"), **settings)
    return from_arrays(held["x"], held.get("y"), **{"group": held.get("group"), "unit_id": held.get(unit_id), **settings})


_READERS: dict[str, Callable[..., Dataset]] = {
    ".csv": from_csv,
    ".parquet": from_parquet,
    ".pq": from_parquet,
    ".npz": from_npz,
}


def read_csv(
    path: str | Path | BinaryIO,
    text: Mapping[str, Collection[str]] = types.MappingProxyType({}),
    rows: int | None = None,
    *,
    separator: str | None = None,
    decimal: str | None = None,
) -> pd.DataFrame:
    """The table of a CSV file or of an open binary file.

    :param text: the columns to read as text, each with words that are values in it although they mean missing elsewhere.
    :param rows: number of rows to read, from the first; None for all.
    :param separator: as in ``from_csv``.
    :param decimal: as in ``from_csv``.
    :raises ArgumentError: naming ``path``, if the file is missing or not a table, two columns have the same name or one has
        none, or the first line seems to be a record instead of names; naming ``separator`` or ``decimal``.
    """
    separator, decimal = _checked_separator(separator), _checked_decimal(decimal)
    file = existing(path) if isinstance(path, (str, Path)) else path
    shown = path if isinstance(path, (str, Path)) else "open file"

    def read() -> pd.DataFrame:
        with _strict():
            how = _how_to_read(file, shown, text, separator, decimal)
            return _checked(pd.read_csv(file, nrows=rows, **how), shown, text, how)

    return read_or_refuse(shown, "CSV", read)


def csv_parts(
    path: str | Path,
    text: Mapping[str, Collection[str]],
    rows: int,
    *,
    separator: str | None = None,
    decimal: str | None = None,
) -> Iterator[pd.DataFrame]:
    """The table of ``read_csv`` in parts of ``rows`` rows. :raises ArgumentError: as ``read_csv``."""
    separator, decimal = _checked_separator(separator), _checked_decimal(decimal)
    file = existing(path)

    def opened() -> tuple[dict[str, Any], Any]:
        with _strict():
            how = _how_to_read(file, path, text, separator, decimal)
            return how, pd.read_csv(file, chunksize=rows, **how)

    def following() -> pd.DataFrame | None:
        with _strict():
            part = next(parts, None)
            return None if part is None else _checked(part, path, text, how).reset_index(drop=True)

    how, parts = read_or_refuse(path, "CSV", opened)
    with parts:
        while (part := read_or_refuse(path, "CSV", following)) is not None:
            yield part


@contextlib.contextmanager
def _strict() -> Iterator[None]:
    """Within it, fields that would be dropped are an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        yield


def _how_to_read(
    file: Path | BinaryIO,
    shown: str | Path,
    text: Mapping[str, Collection[str]],
    separator: str | None,
    decimal: str | None,
) -> dict[str, Any]:
    """The arguments with which pandas reads a CSV file, whose names are checked."""
    between = separator or _separator_of(file)
    commas = (decimal or _usual_decimal(between)) == ","
    if commas and between == ",":
        raise _validate.ArgumentError("decimal", decimal, "is already the separator of the columns.")
    # pandas would rename columns with the same name, or without one
    encoding = _encoding_of(file)
    how: dict[str, Any] = {"sep": between, "index_col": False, "keep_default_na": False, **encoding}
    how["skiprows"] = 1 if _DECLARED_SEPARATOR.fullmatch(_first_line(file, **encoding)) else 0
    labels = pd.read_csv(file, header=None, nrows=1, dtype=str, **how).iloc[0].tolist()
    _rewind(file)
    _check_names(shown, labels)
    # without index_col, additional fields of a row would become an index and shift the others
    how["dtype"] = str if commas else dict.fromkeys(text, str)
    how["na_values"] = {label: _MISSING.difference(text.get(label, ())) for label in labels}
    return how


def _checked(
    table: pd.DataFrame, shown: str | Path, text: Mapping[str, Collection[str]], how: Mapping[str, Any]
) -> pd.DataFrame:
    if how["dtype"] is str:  # commas are decimal marks
        table = table.assign(**{label: _typed(table[label]) for label in table.columns if label not in text})
    _check_header(shown, table)
    return table


def csv_separator(path: str | Path | BinaryIO) -> str:
    """What is between the columns of a CSV file or of an open binary file: a key of ``SEPARATORS``.

    :raises ArgumentError: naming ``path``, if the file is missing or not text.
    """
    file = existing(path) if isinstance(path, (str, Path)) else path
    shown = path if isinstance(path, (str, Path)) else "open file"
    return str(read_or_refuse(shown, "CSV", lambda: _separator_of(file)))


def _separator_of(file: Path | BinaryIO) -> str:
    """The one that a first line "sep=;" declares, or else the one that occurs most often in it, outside quotation marks.

    A comma if there is none.
    """
    first = _first_line(file, **_encoding_of(file))
    declared = _DECLARED_SEPARATOR.fullmatch(first)
    return declared[1] if declared else max(SEPARATORS, key=_QUOTED.sub("", first).count)


def _encoding_of(file: Path | BinaryIO) -> dict[str, str]:
    """How pandas is to decode a file, by its first bytes alone."""
    is_utf_16 = _first_line(file, encoding="latin-1").startswith(_UTF_16)
    return {"encoding": "utf-16" if is_utf_16 else "utf-8", "encoding_errors": "workbench.windows"}


def _first_line(file: Path | BinaryIO, **encoding: str) -> str:
    # a separator that no text has, so that the whole line is one cell
    how: Any = {"sep": "\x1f", "header": None, "nrows": 1, "dtype": str, "quoting": csv.QUOTE_NONE, **encoding}
    line = pd.read_csv(file, keep_default_na=False, **how)
    _rewind(file)
    return str(line.iloc[0, 0])


def _rewind(file: Path | BinaryIO) -> None:
    if not isinstance(file, Path):
        file.seek(0)


def _checked_separator(separator: Any) -> str | None:
    if separator is not None and not (isinstance(separator, str) and separator in SEPARATORS):
        known = ", ".join(map(repr, SEPARATORS))
        raise _validate.ArgumentError("separator", separator, f"must be one of {known}, or None to find it.")
    return separator


def _checked_decimal(decimal: Any) -> str | None:
    if decimal is not None and not (isinstance(decimal, str) and decimal in _DECIMALS):
        raise _validate.ArgumentError("decimal", decimal, "must be '.' or ',', or None for the usual one.")
    return decimal


def _usual_decimal(separator: str) -> str:
    """The decimal mark of a file with this separator. Files with semicolons have them because commas are taken."""
    return "," if separator == ";" else "."


def _typed(column: pd.Series) -> pd.Series:
    """A column of text as numbers or as False and True, if all its cells are, and otherwise as it is.

    pandas takes either the comma or the point, and rounds numbers in text differently from those in columns of numbers. Here
    each cell becomes the same number whatever is in the others.
    """
    is_given = column.notna().to_numpy()
    given = column.to_numpy(object)[is_given]
    cells = set(given)
    if all(cell.lower() in _TRUTH for cell in cells) and cells:
        truth = column.map({cell: _TRUTH[cell.lower()] for cell in cells})
        return truth.astype(bool if is_given.all() else object)
    if not all(_NUMBER.fullmatch(cell) for cell in cells):
        return column
    numbers = np.full(len(column), np.nan)
    numbers[is_given] = [float(cell.replace(",", ".")) for cell in given]
    is_whole = cells and is_given.all() and all(_WHOLE.fullmatch(cell) for cell in cells)
    return pd.Series(numbers.astype(np.int64) if is_whole else numbers, column.index)


def _check_names(path: str | Path, labels: list[str]) -> None:
    if any("\0" in label for label in labels):
        raise UnreadableFileError(path, "CSV", "it is not text")
    unnamed = [place for place, label in enumerate(labels, 1) if not label.strip()]
    if unnamed:
        raise _validate.ArgumentError(
            "path", str(path), f"has no name for column {unnamed[0]} in the first line (in pandas: save with index=False)."
        )
    repeated = [label for label, times in collections.Counter(labels).items() if times > 1]
    if repeated:
        withheld = names_withheld(labels)
        shown = f"the same name, {withheld}" if withheld else f"the name {repeated[0]!r}"
        raise _validate.ArgumentError("path", str(path), f"has two columns with {shown}: rename one.")


def _check_header(path: str | Path, table: pd.DataFrame) -> None:
    """Refuse a table whose names are values of their own columns: they would be a record, and names are public."""
    texts = [label for label in table.columns if not pd.api.types.is_numeric_dtype(table[label].dtype)]
    if sum(bool((table[label] == label).any()) for label in texts) >= 2:  # one may be by chance, as "female" in "female"
        raise _validate.ArgumentError(
            "path",
            str(path),
            "the first line seems to be a record, because some of its fields occur below it in the same columns. Add a line "
            "with the names of the columns.",
            code="no header",
        )


def empty_parquet(path: str | Path) -> pd.DataFrame:
    """The table of a Parquet file without its rows, which are not read: the names and types of its columns.

    :raises ArgumentError: as ``from_parquet``.
    """

    def read(file: Path) -> pd.DataFrame:
        return importlib.import_module("pyarrow.parquet").read_schema(file).empty_table().to_pandas()

    return _parquet(path, read)


def read_npz(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name. Pickled objects are refused, because reading them would run their code.

    :raises ArgumentError: if the file is missing or not of that kind, naming ``path``.
    """
    file = existing(path)

    def read() -> dict[str, np.ndarray]:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise UnreadableFileError(path, ".npz", "it has a single array; save several by name with numpy.savez")
        with archive:
            return {name: archive[name] for name in archive.files}

    return read_or_refuse(path, ".npz", read)


def _parquet(path: str | Path, read: Callable[[Path], pd.DataFrame]) -> pd.DataFrame:
    file = existing(path)
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        raise _validate.ArgumentError(
            "path", str(path), "is a Parquet file, which needs a package: pip install pyarrow."
        ) from None
    return read_or_refuse(path, "Parquet", lambda: read(file))


def text_columns(options: Mapping[str, Any]) -> dict[str, set[str]]:
    """The columns that are read as text, each with the values that are declared in it."""
    given = {name: value for name, value in options.items() if value is not None}
    columns: dict[str, set[str]] = {}
    if "group" in given:
        groups = given.get("groups", getattr(given.get("group_features"), "index", given.get("group_features", ())))
        columns[str(given["group"])] = _as_text(groups)
    columns |= {str(given[name]): set() for name in ("unit_id",) if name in given}  # 7 and 007 are two people
    if "target" in given and {"positive", "classes"} & given.keys():
        columns[str(given["target"])] = _as_text(given.get("classes", ())) | _as_text([given.get("positive")])
    if "schema" in given:
        declared = Schema.from_declaration(given["schema"]).columns
        columns |= {name: set(each.labels) for name, each in declared.items() if isinstance(each, Categorical)}
    return columns


def _as_text(values: Any) -> set[str]:
    """Those of ``values`` that are text; none for a number of classes, or what is refused later."""
    return {value for value in values if isinstance(value, str)} if isinstance(values, Iterable) else set()


def _name(path: str | Path) -> str:
    return Path(path).name.split(".")[0]
