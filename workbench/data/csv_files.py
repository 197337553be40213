"""CSV files: what separates their columns, how their text is decoded, and cells that become numbers
one by one.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import re
import types
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.preprocessing import column_name, names_withheld, repeated
from workbench.data.unreadable import UnreadableFileError, existing, read_or_refuse

__all__ = ["EXCEL", "SEPARATORS", "csv_parts", "csv_separator", "read_csv"]

# the first wins a tie
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_DECIMALS = (".", ",")
_NUMBER = re.compile(r"\s*[-+]?(\d+([.,]\d*)?|[.,]\d+)([eE][-+]?\d+)?\s*")
_WHOLE = re.compile(r"\s*[-+]?\d{1,15}\s*")  # float64 has them all
_TRUTH = {"true": True, "false": False}
# a line before the names, as Excel reads it
_DECLARED_SEPARATOR = re.compile(r'"?sep=([,;\t|])"?\s*', re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_MISSING = {
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
}
_UTF_16 = ("ÿþ", "þÿ")  # how such a file begins, read as Windows' text


EXCEL = "it is a file of a spreadsheet, such as Excel's: save the sheet as CSV there"
_OTHER_FORMATS = {
    b"PK\x03\x04": EXCEL,
    b"\xd0\xcf\x11\xe0": EXCEL,
    b"PAR1": "it is a Parquet file: name it .parquet",
    b"\x1f\x8b\x08\x00": "it is packed: name it .csv.gz",
    b"\x1f\x8b\x08\x08": "it is packed: name it .csv.gz",
}
_PACKED = (".gz", ".bz2", ".zip", ".xz", ".zst", ".tar")  # which pandas unpacks


def _as_windows_text(error: UnicodeError) -> tuple[str, int]:
    """Characters of the bytes that are not UTF-8. A byte counts for itself, so no record changes
    how another is read.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in bad), error.end


codecs.register_error("workbench.windows", _as_windows_text)


def read_csv(
    path: str | Path | BinaryIO,
    text: Mapping[str, Collection[str]] = types.MappingProxyType({}),
    rows: int | None = None,
    *,
    separator: str | None = None,
    decimal: str | None = None,
) -> pd.DataFrame:
    """The table of a CSV file or of an open binary file.

    :param text: the columns to read as text, each with words that are values in it although they
        mean missing elsewhere.
    :param rows: number of rows to read, from the first; None for all.
    :param separator: as in ``from_csv``.
    :param decimal: as in ``from_csv``.
    :raises ArgumentError: naming ``path``, if the file is missing or not a table, two columns have
        the same name or one has none, or the first line seems to be a record instead of names;
        naming ``separator`` or ``decimal``.
    """
    _check_signs(separator, decimal)
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
    """The table of ``read_csv`` in parts of ``rows`` rows. :raises ArgumentError:
    as ``read_csv``.
    """
    _check_signs(separator, decimal)
    file = existing(path)

    def opened() -> tuple[dict[str, Any], Any]:
        with _strict():
            how = _how_to_read(file, path, text, separator, decimal)
            return how, pd.read_csv(file, chunksize=rows, **how)

    def following() -> pd.DataFrame | None:
        with _strict():
            table = next(tables, None)
            return (
                None if table is None else _checked(table, path, text, how).reset_index(drop=True)
            )

    how, tables = read_or_refuse(path, "CSV", opened)
    with tables:
        while (table := read_or_refuse(path, "CSV", following)) is not None:
            yield table


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
    # files with semicolons have them because commas are taken
    commas = decimal == "," or (decimal is None and between == ";")
    if commas and between == ",":
        raise _validate.ArgumentError(
            "decimal", decimal, "is already the separator of the columns."
        )
    # pandas would rename columns with the same name, or without one
    _refuse_other_formats(file, shown)
    encoding = _encoding_of(file)
    how: dict[str, Any] = {"sep": between, "index_col": False, "keep_default_na": False, **encoding}
    # pandas would choose types by blocks of rows: in a column of text, whether "01" stays so would
    # depend on the other records of its block
    how["low_memory"] = False
    how["skiprows"] = 1 if _DECLARED_SEPARATOR.fullmatch(_first_line(file, **encoding)) else 0
    labels = pd.read_csv(file, header=None, nrows=1, dtype=str, **how).iloc[0].tolist()
    labels = [column_name(label).strip() for label in labels]  # blanks often follow the separator
    _rewind(file)
    _refuse_comments(shown, labels)
    _check_names(shown, labels)
    how |= {"header": 0, "names": labels}
    # without index_col, additional fields of a row would become an index and shift the others
    how["dtype"] = str if commas else dict.fromkeys(text, str)
    how["na_values"] = {label: _MISSING.difference(text.get(label, ())) for label in labels}
    return how


def _checked(
    table: pd.DataFrame,
    shown: str | Path,
    text: Mapping[str, Collection[str]],
    how: Mapping[str, Any],
) -> pd.DataFrame:
    if how["dtype"] is str:  # commas are decimal marks
        table = table.assign(
            **{label: _typed(table[label]) for label in table.columns if label not in text}
        )
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
    """The one that a first line "sep=;" declares, or else the one that occurs most often in it,
    outside quotation marks.

    A comma if there is none.
    """
    first = _first_line(file, **_encoding_of(file))
    declared = _DECLARED_SEPARATOR.fullmatch(first)
    return declared[1] if declared else max(SEPARATORS, key=_QUOTED.sub("", first).count)


def _encoding_of(file: Path | BinaryIO) -> dict[str, str]:
    """How pandas is to decode a file, by its first bytes alone."""
    is_utf_16 = _first_line(file, encoding="latin-1").startswith(_UTF_16)
    return {"encoding": "utf-16" if is_utf_16 else "utf-8", "encoding_errors": "workbench.windows"}


def _refuse_other_formats(file: Path | BinaryIO, shown: str | Path) -> None:
    """:raises UnreadableFileError: for the first bytes of formats that are often taken for CSV."""
    if isinstance(file, Path):
        with file.open("rb") as opened:
            first = opened.read(4)
        is_packed = file.suffix.lower() in _PACKED
    else:
        first, is_packed = file.read(4), False
        _rewind(file)
    if first in _OTHER_FORMATS and not is_packed:
        raise UnreadableFileError(shown, "CSV", _OTHER_FORMATS[first])


def _first_line(file: Path | BinaryIO, **encoding: str) -> str:
    # a separator that no text has, so that the whole line is one cell
    how: Any = {
        "sep": "\x1f",
        "header": None,
        "nrows": 1,
        "dtype": str,
        "quoting": csv.QUOTE_NONE,
        **encoding,
    }
    line = pd.read_csv(file, keep_default_na=False, **how)
    _rewind(file)
    return str(line.iloc[0, 0])


def _rewind(file: Path | BinaryIO) -> None:
    if not isinstance(file, Path):
        file.seek(0)


def _check_signs(separator: str | None, decimal: str | None) -> None:
    for name, sign, signs in (
        ("separator", separator, SEPARATORS),
        ("decimal", decimal, _DECIMALS),
    ):
        if sign is not None and not (isinstance(sign, str) and sign in signs):
            choices = ", ".join(map(repr, signs))
            raise _validate.ArgumentError(
                name, sign, f"must be one of {choices}, or None for the usual one."
            )


def _typed(column: pd.Series) -> pd.Series:
    """A column of text as numbers or as False and True, if all its cells are, and otherwise as it
    is.

    pandas takes either the comma or the point, and rounds numbers in text differently from those in
    columns of numbers. Here each cell becomes the same number whatever is in the others.
    """
    is_given = column.notna().to_numpy()
    present = column.to_numpy(object)[is_given]
    cells = set(present)
    if all(cell.lower() in _TRUTH for cell in cells) and cells:
        truth = column.map({cell: _TRUTH[cell.lower()] for cell in cells})
        return truth.astype(bool if is_given.all() else object)
    if not all(_NUMBER.fullmatch(cell) for cell in cells):
        return column
    numbers = np.full(len(column), np.nan)
    numbers[is_given] = [float(cell.replace(",", ".")) for cell in present]
    is_whole = cells and is_given.all() and all(_WHOLE.fullmatch(cell) for cell in cells)
    return pd.Series(numbers.astype(np.int64) if is_whole else numbers, column.index)


def _refuse_comments(path: str | Path, labels: list[str]) -> None:
    """Refuse a file that begins with a comment. A column may be called "#", and names may begin
    with it.
    """
    if re.match(r"#\s+\S", labels[0]) or (len(labels) == 1 and re.match(r"#.|%|//", labels[0])):
        raise _validate.ArgumentError(
            "path",
            str(path),
            "begins with a comment: the first line must hold the column names, and no # before "
            "them.",
        )


def _check_names(path: str | Path, labels: list[str]) -> None:
    if any("\0" in label for label in labels):
        raise UnreadableFileError(path, "CSV", "it is not text")
    unnamed = [number for number, label in enumerate(labels, 1) if not label.strip()]
    if unnamed:
        raise _validate.ArgumentError(
            "path",
            str(path),
            f"has no name for column {unnamed[0]} in the first line (in pandas: save with "
            "index=False).",
        )
    if same := repeated(labels):
        withheld = names_withheld(labels)
        shown = f"the same name, {withheld}" if withheld else f"the name {same[0]!r}"
        raise _validate.ArgumentError(
            "path", str(path), f"has two columns with {shown}: rename one."
        )


def _check_header(path: str | Path, table: pd.DataFrame) -> None:
    """Refuse a table whose names are values of their own columns: they would be a record, and names
    are public.
    """
    texts = [
        label for label in table.columns if not pd.api.types.is_numeric_dtype(table[label].dtype)
    ]
    if (
        sum(bool((table[label] == label).any()) for label in texts) >= 2
    ):  # one may be by chance, as "female" in "female"
        raise _validate.ArgumentError(
            "path",
            str(path),
            "the first line seems to be a record, because some of its fields occur below it in "
            "the same columns. Add a line with the names of the columns.",
            code="no header",
        )
