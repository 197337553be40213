"""CSV files that are safe in spreadsheets: text that a spreadsheet would run as a formula stays
text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["inert", "to_csv"]

# the last four: full-width
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def inert(value: Any) -> Any:
    """A cell's value. Text that begins like a formula, and is not a number, gets a leading
    apostrophe.

    The characters are from OWASP's page on CSV injection.
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def to_csv(table: pd.DataFrame, **options: Any) -> str:
    """A table as the text of a CSV file, with ``inert`` cells and column names.

    :param options: of ``DataFrame.to_csv``.
    """
    shown = table.apply(
        lambda column: (
            column
            if column.dtype.kind in "biufc"
            # not map, which makes numbers with a fraction of whole ones beside missing values
            else type(column)([inert(value) for value in column], column.index, dtype=object)
        )
    )
    return str(shown.set_axis(list(map(inert, table.columns)), axis=1).to_csv(**options))
