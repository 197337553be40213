"""Persons, or other privacy units, that have several rows of a table each.

Which rows are used, and on which side of the split a unit is, depends on that unit's rows alone and
on public numbers. So tables that differ in one unit, with all its rows, give data sets that differ
in that unit. Identifiers decide which rows belong together, and nothing else. They are kept
nowhere.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import splits

__all__ = [
    "MOST_ROWS",
    "Units",
    "check_several",
    "checked_identifiers",
    "checked_max_rows",
    "coded",
    "divided",
    "in_both_tables",
    "named_array",
    "padded",
    "sample",
    "strata_widths",
    "unit_called",
]

_RATIO = 4  # between the rows for which one stratum has room and the next one
_MOST_STRATA = 4
MOST_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Units:
    """Which rows of the training arrays belong together. The rows of a unit follow one another.

    A step computes as many rows for a unit as its stratum has room for, so units with few rows have
    strata of their own. A unit's stratum follows from its own number of rows and from ``max_rows``.

    >>> frame = pd.DataFrame(
    ...     {"patient_id": np.arange(60) // 3, "age": np.arange(60), "ill": [0, 1] * 30}
    ... )
    >>> data = wb.data.from_frame(
    ...     frame, target="ill", bounds=(0, 60), unit_id="patient_id", max_rows=2
    ... )
    >>> data.unit, data.units.max_rows, data.units.widths
    ('patient', 2, (2, 1))

    :param counts: int32[N], how many rows each unit has, in the order of their rows. Private, and
        not shown. As the rows, they may be in a file.
    :param max_rows: the largest number of rows of a unit that are used, public.
    :param evaluation_counts: the same of the evaluation units, all of whose rows are used; zeros do
        not count.
    :param mean: whether the rows of a unit weigh 1 together, so that every unit counts alike; else
        every row weighs 1.
    :param are_padded: whether the arrays have an entry for each unit, as from ``padded``, instead
        of one for each row.
    """

    counts: np.ndarray = field(repr=False)
    max_rows: int
    evaluation_counts: np.ndarray = field(repr=False)
    mean: bool = False
    are_padded: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """How many rows the strata have room for, descending."""
        return strata_widths(self.max_rows)

    @functools.cached_property
    def in_place(self) -> tuple[np.ndarray, np.ndarray]:
        """The first row and the number of rows of each unit, int32[N] both. No unit's rows move
        another unit.
        """
        counts = np.asarray(self.counts, np.int32)
        return (np.cumsum(counts) - counts).astype(np.int32), counts

    @functools.cached_property
    def index(self) -> tuple[np.ndarray, np.ndarray]:
        """The same by strata, narrowest first: for relations under which a unit may be missing, but
        never another one.
        """
        order = np.argsort(np.searchsorted(self.widths[::-1], self.counts), kind="stable")
        firsts, counts = self.in_place
        return firsts[order], counts[order]


def padded(
    arrays: Sequence[np.ndarray], counts: np.ndarray, max_rows: int
) -> tuple[np.ndarray, ...]:
    """Arrays [units, max_rows, ...] of each unit's rows, and which are there, float32[units,
    max_rows] of 0 and 1.

    Rows that are missing repeat the unit's last one.
    """
    used, number = np.minimum(counts, max_rows)[:, None], np.arange(max_rows)
    indices = (np.cumsum(counts) - counts)[:, None] + np.minimum(number, used - 1)
    return (*(array[indices] for array in arrays), (number < used).astype(np.float32))


def strata_widths(max_rows: int) -> tuple[int, ...]:
    """How many rows strata have room for, descending, where a unit has up to ``max_rows``."""
    widths = [max_rows]
    while widths[-1] > 1 and len(widths) < _MOST_STRATA:
        widths.append(-(-widths[-1] // _RATIO))
    return tuple(widths)


def unit_called(column: str) -> str:
    """What a unit is, from the name of the column that identifies it: "patient"
    from "patient_id".
    """
    for ending in ("_id", " id", "-id", ".id", "_ID", " ID", "Id", "ID"):
        if column.endswith(ending) and len(column) > len(ending):
            return column[: -len(ending)].replace("_", " ").strip() or column
    return column


def named_array(unit_id: Hashable, names: Iterable[str]) -> str:
    """The array of a file that says whose row each is. :raises ArgumentError: naming ``unit_id``,
    if there is no such.
    """
    known_as = dict.fromkeys(
        name.removesuffix("_train") for name in names if not name.endswith("_test")
    )
    candidates = [name for name in known_as if name not in ("x", "group", "y")]
    if unit_id not in candidates:
        options = ", ".join(candidates) or "none"
        raise _validate.ArgumentError(
            "unit_id", unit_id, f"must name an array of the file besides x, group and y: {options}."
        )
    return str(unit_id)


def checked_identifiers(column: pd.Series, held_out: np.ndarray | None) -> np.ndarray:
    """int64[rows]: a number for each unit.

    :param held_out: which rows are evaluation records, if that is given.
    :raises ArgumentError: naming ``unit_id``, for identifiers that are missing, of several types,
        or all different; and for a unit with rows on both sides.
    """
    codes, identifiers = coded(column)
    check_several(column.name, len(identifiers), len(codes))
    if held_out is not None and np.intersect1d(codes[held_out], codes[~held_out]).size:
        raise in_both_tables(column.name)
    return codes


def coded(column: pd.Series) -> tuple[np.ndarray, Any]:
    """(int64[rows], a number for each unit, from 0; their identifiers) of a table or a part of it.

    :raises ArgumentError: naming ``unit_id``, for identifiers that are missing, of several types,
        or not whole numbers.
    """
    name = str(column.name)
    if column.isna().any():
        raise _validate.ArgumentError(
            "unit_id", name, "has missing values: every row needs to say whose it is."
        )
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    values = column.cat.categories if is_category else column
    types = {type(value) for value in values} if values.dtype == object else set()
    if len(types) > 1:
        raise _validate.ArgumentError(
            "unit_id",
            name,
            f"has values of {len(types)} types, so that 1 and '1' would be two: convert it to "
            "one type.",
        )
    if pd.api.types.is_float_dtype(values.dtype):
        numbers = np.asarray(values, float)
        if np.any(
            np.abs(numbers) >= 2.0 ** np.finfo(values.to_numpy().dtype).nmant
        ):  # two people may be one number
            raise _validate.ArgumentError(
                "unit_id", name, "has numbers too large for their type: use integers or text."
            )
        if np.any(numbers % 1 != 0):
            raise _validate.ArgumentError(
                "unit_id", name, "has fractions, which identify nobody: use integers or text."
            )
    try:
        codes, identifiers = pd.factorize(column)
    except TypeError:
        raise _validate.ArgumentError(
            "unit_id", name, "has values that are no identifiers, such as lists."
        ) from None
    return codes.astype(np.int64), identifiers


def check_several(name: object, units: int, rows: int) -> None:
    """:raises ArgumentError: naming ``unit_id``, if there are as many units as rows."""
    if units == rows:
        raise _validate.ArgumentError(
            "unit_id",
            str(name),
            "is unique in every row, so each row is its own unit: leave unit_id out.",
        )


def in_both_tables(name: object) -> _validate.ArgumentError:
    """What is raised about a unit with rows in two tables."""
    return _validate.ArgumentError(
        "unit_id", str(name), "has rows of one unit in both tables, for training and evaluation."
    )


def divided(
    arrays: Sequence[np.ndarray],
    codes: np.ndarray,
    max_rows: int,
    held_out: np.ndarray | None,
    fraction: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(training rows by unit, evaluation rows by unit, int32[N] counts as of ``Units``, those of
    the evaluation units).

    A unit that has more than ``max_rows`` rows keeps a sample of them that a hash of their own
    content draws, with a public seed. Evaluation units keep all rows.

    :param arrays: row i is entry i of each. :param codes: int64[rows], whose row it is.
    :param held_out: bool[rows], which rows are for evaluation; None to decide by coins, one a unit.
    :param fraction: as of ``splits.by_record``. :param seed: likewise.
    """
    digests = splits.digests(arrays, seed)
    order = np.lexsort((digests["low"], digests["high"], codes))
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    rows_of = np.split(order, starts[1:])
    if held_out is None:
        is_held_out = splits.by_unit([digests[rows].tobytes() for rows in rows_of], fraction, seed)
    else:
        is_held_out = np.array([bool(held_out[rows[0]]) for rows in rows_of])
    training_rows = [
        sample(digests[rows], rows, max_rows, seed)
        for rows, out in zip(rows_of, is_held_out, strict=True)
        if not out
    ]
    counts = np.array([len(rows) for rows in training_rows], np.int32)
    training = np.concatenate(training_rows)
    evaluation_rows = [rows for rows, out in zip(rows_of, is_held_out, strict=True) if out]
    evaluated = np.concatenate(evaluation_rows) if evaluation_rows else np.empty(0, np.int64)
    return training, evaluated, counts, np.array([len(rows) for rows in evaluation_rows], np.int32)


def sample(digests: np.ndarray, rows: np.ndarray, max_rows: int, seed: int) -> np.ndarray:
    """``max_rows`` of a unit's rows, in their order, by coins of their own."""
    if len(rows) <= max_rows:
        return rows
    coins = splits.coins_of([b"of a unit" + digest.tobytes() for digest in digests], seed)
    return rows[np.sort(np.argsort(coins, kind="stable")[:max_rows])]


def checked_max_rows(max_rows: Any) -> int:
    """:raises ArgumentError: naming ``max_rows``."""
    if max_rows is None:
        raise _validate.ArgumentError(
            "max_rows",
            None,
            "must say how many rows of a unit are used at most. It is public: do not read it off "
            "the data.",
        )
    return _validate.integer("max_rows", max_rows, at_least=1, at_most=MOST_ROWS)
