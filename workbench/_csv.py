"""CSV files that people open in spreadsheets: a text that a spreadsheet would compute as a formula stays a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["inert", "to_csv"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: full-width
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def inert(value: Any) -> Any:
    """A cell's value; a text that begins like a formula gets an apostrophe before it, unless it is a number.

    The characters are those of OWASP's page on CSV injection.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def to_csv(table: pd.DataFrame, **options: Any) -> str:
    """A table as the text of a CSV file, its cells and columns' names ``inert``.

    :param options: of ``DataFrame.to_csv``.
    """
    shown = table.apply(lambda column: column if column.dtype.kind in "biufc" else column.astype(object).map(inert))
    return str(shown.set_axis(list(map(inert, table.columns)), axis=1).to_csv(**options))
