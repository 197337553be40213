"""The role that a column begins with on the screen, from its type and its name.

A role that followed from values could reveal a record. So no values are looked at beyond what gives
a column its type, and names and types are public. In a file of text the first rows give the type:
numbers, truth values, dates or other text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from workbench._lazy import pd

if TYPE_CHECKING:
    import numpy as np
    from pandas.api.extensions import ExtensionDtype

__all__ = ["is_text", "of_type", "plain", "suggested", "typed", "with_codes"]

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_IDS = {"id", "ids", "uuid", "guid", "identifier"}
_DATES = {"date", "datetime", "timestamp", "dob", "birthday", "birthdate", "datum"}
_FREE_TEXTS = {
    "address",
    "comment",
    "comments",
    "description",
    "email",
    "firstname",
    "lastname",
    "message",
    "name",
    "note",
    "notes",
    "remark",
    "remarks",
    "surname",
    "text",
    "title",
    "url",
}
_DATE = re.compile(
    r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4}|\d{1,2}\.\d{1,2}\.\d{2})"
    r"([ T]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[-+]\d{2}:?\d{2})?)?\s*"
)

_AN_ID = "Left out: its name is that of an id. Where persons have several rows, choose “person id”."
_A_DATE = "Left out: dates. To use them, count days since a public date, for example."
_A_TEXT = "Left out: its name is that of free text."
_UNKNOWN = "Left out: it is empty in the first rows, which show the types of columns."


def suggested(name: str, kind: ExtensionDtype | np.dtype | None) -> tuple[str, str]:
    """(role, note) of a column of a table: why it is left out, or ""."""
    if kind is None:
        return "leave out", _UNKNOWN
    words = [word.lower() for word in _WORDS.findall(name)]
    if pd.api.types.is_datetime64_any_dtype(kind):
        return "leave out", _A_DATE
    if words and (words[-1] in _IDS or words[0] in _IDS):
        return "leave out", _AN_ID
    if is_text(kind) and not isinstance(kind, pd.CategoricalDtype):
        if _DATES.intersection(words):
            return "leave out", _A_DATE
        if _FREE_TEXTS.intersection(words):
            return "leave out", _A_TEXT
    return of_type(kind), ""


def of_type(kind: ExtensionDtype | np.dtype | None) -> str:
    """The role of a column by its type alone. :param kind: None where the type is unknown."""
    types = pd.api.types
    if kind is None:
        return "leave out"
    if types.is_bool_dtype(kind):
        return "yes / no"
    if types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind):
        return "number"
    return "category" if is_text(kind) else "leave out"


def plain(kind: ExtensionDtype | np.dtype | None) -> type | None:
    """``bool``, ``int``, ``float`` or ``str``, whichever a column of this type has; None for
    others.
    """
    number = int if kind is not None and pd.api.types.is_integer_dtype(kind) else float
    return {"yes / no": bool, "number": number, "category": str}.get(of_type(kind))


def is_text(kind: ExtensionDtype | np.dtype | None) -> bool:
    """Whether a column of this type has text."""
    types = pd.api.types
    return (
        isinstance(kind, pd.CategoricalDtype)
        or types.is_object_dtype(kind)
        or types.is_string_dtype(kind)
    )


def typed(column: pd.Series) -> Any:
    """The type of a column that was read from text: missing values do not hide truth values, and
    dates are dates.

    It is None for a column without values.
    """
    cells = column.dropna().tolist()
    if not cells:
        return None
    if not is_text(column.dtype):
        return column.dtype
    if all(isinstance(cell, bool) for cell in cells):
        return pd.api.types.pandas_dtype(bool)
    if all(isinstance(cell, str) and _DATE.fullmatch(cell) for cell in cells):
        return pd.api.types.pandas_dtype("datetime64[ns]")
    return column.dtype


def with_codes(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """``rows`` with text where whole numbers have leading zeros, as postal codes do.

    :param cells: the same rows, all read as text.
    """
    rows = rows.copy()
    for name in rows.columns:
        is_number = of_type(rows[name].dtype) == "number"
        if is_number and cells[name].str.fullmatch(r"\s*0\d+\s*").eq(True).any():
            rows[name] = cells[name]
    return rows
