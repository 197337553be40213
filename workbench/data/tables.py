"""Data sets from the user's own tables, with their public facts declared."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import missing_values, preprocessing
from workbench.data.dataset import Dataset
from workbench.data.encoding import Encoding
from workbench.data.preprocessing import column_name
from workbench.data.schema import Schema, as_table, with_index
from workbench.data.splits import by_record, checked
from workbench.data.units import Units, checked_identifiers, checked_max_rows, divided, unit_called

__all__ = ["from_frame", "named_columns"]

_ROW = "training record"


def from_frame(
    frame: pd.DataFrame,
    *,
    target: Hashable = None,
    bounds: Mapping[Any, Sequence[float]] | Sequence[float] | None = None,
    schema: Schema | Mapping[Any, Any] | None = None,
    features: Sequence[Any] | None = None,
    positive: Hashable = None,
    classes: Iterable[Any] | int | None = None,
    threshold: float | None = None,
    target_bounds: Sequence[float] | None = None,
    group: Hashable = None,
    groups: Iterable[Any] | None = None,
    group_features: pd.DataFrame | pd.Series | Mapping[Any, ArrayLike] | ArrayLike | None = None,
    unit_id: Hashable = None,
    max_rows: int | None = None,
    unit_mean: bool = False,
    evaluation: pd.DataFrame | bool | None = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = _ROW,
    name: str = "data frame",
    missing: str | Mapping[Any, Any] = "refuse",
) -> Dataset:
    """A data set from a DataFrame: arrays "x", "group" with ``group``, "y" with ``target``.

    A row is a record, which is what the guarantee protects, unless ``unit_id`` says which rows
    belong to one person.

    Either ``bounds`` or ``schema`` says how columns become features. Constant columns are
    accepted, because declarations are not checked against the records' values, which are private.

    >>> frame = pd.DataFrame(
    ...     {"age": np.arange(50), "sex": ["f", "m"] * 25, "ill": [0, 1] * 25}
    ... )
    >>> data = wb.data.from_frame(
    ...     frame, target="ill", schema={"age": (0, 120), "sex": ["f", "m"]}
    ... )
    >>> data.feature_names
    ('age', 'sex=m')

    :param frame: a DataFrame of pandas; or a table of another package with ``to_pandas``, such as
        pyarrow and polars have. A named level of its index is a column where an argument names it.
    :param target: name of the target column; None for a table without a target. The possible values
        are never read off the records: the column has False and True, or 0 and 1, or else one of
        the next four arguments declares them.
    :param bounds: ``{column: (low, high)}``, the publicly known range of every feature in its own
        units, or one pair for all. Values outside are set to the nearest bound: also -999 where it
        stands for a missing value, and all values of a column whose unit is another one than that
        of its bounds. Replace such codes by NaN before. The guarantee would not cover bounds that
        are computed from the private data.
    :param schema: ``Schema``, or ``{column: declaration}`` as for ``Schema.from_declaration``: the
        general form of ``bounds``, with categories and booleans. It also selects the columns.
    :param features: columns to use; by default all but target and group, or those of ``schema``.
    :param positive: the target value that counts as 1, whatever the case of its letters and the
        blanks around it. All other values form one class, "(other)", even a misspelt one.
    :param classes: all values of the target, two or more, in the order 0, 1, ...; K means 0 .. K -
        1. Any other value is an error.
    :param threshold: public number; the target is whether the column is above it.
    :param target_bounds: (low, high), the publicly known range of a target of numbers, for
        regressions. It stays in its own units, and values outside are set to the nearest bound.
    :param group: name of the column of group labels.
    :param groups: all groups, declared publicly; not needed if ``group_features`` names them. A
        record of another group is an error. A group without records is allowed.
    :param group_features: public facts about the groups: a DataFrame with the groups as index, or
        ``{group: [numbers]}``; by default the single feature "intercept", 1. They are used in their
        own units.
    :param unit_id: name of the column that says whose row it is, such as "patient_id". The
        guarantee then protects each patient with all rows. The column is no feature and is not
        kept. All rows of a patient are on one side of the split.
    :param max_rows: how many rows of a unit are used at most, needed with ``unit_id``: a public
        number, not read off the data. Of a unit with more rows a sample is kept, drawn by a hash of
        its own rows.
    :param unit_mean: whether the rows of a unit weigh 1 together. The model is then of the average
        unit, and else of the average row.
    :param evaluation: table of evaluation records with the same columns, instead of a split of
        ``frame``; False for none, so that all rows are training records.
    :param evaluation_fraction: probability of each row to become an evaluation record, in [0, 1).
        Which side a row is on depends only on its encoded values (features, group and target) and
        the seed, so no row moves another.
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public. Otherwise numbers
        computed on them are shown only on request and labelled "outside the guarantee".
    :param unit: what one row is, in words, or with ``unit_id`` one unit. By default "training
        record", or the name of that column without "id".
    :param missing: what happens to a row with a missing value in a column that is used; an infinite
        number is missing too. "refuse" is an error; "drop" leaves the row out; "middle" puts the
        middle of the bounds in place of a missing number, and leaves out rows in which anything
        else is missing. "indicator" does the same and adds a feature for each column of numbers, 1
        where it was missing (``Numeric(missing=True)``). ``{column: value}`` puts a public value
        into each of these columns, or has "indicator" for some, and leaves out rows in which
        anything else is missing. A missing category of ``Categorical(..., other=True)`` is
        "(other)" and not missing. All of this depends on the row itself and on what is declared, so
        it costs no privacy: tables that differ in one row give records that differ in at most one.
        A mean or a most frequent value of the private records would not have this property.
    :raises ArgumentError: naming the argument and the value, or a column and its type, never a
        cell.
    """
    if _validate.flag("evaluation_is_public", evaluation_is_public) and (
        evaluation is False or evaluation_fraction == 0
    ):
        none = "evaluation=False" if evaluation is False else "evaluation_fraction=0"
        raise _validate.ArgumentError(
            "evaluation_is_public", True, f"requires evaluation records, but {none}."
        )
    declared = named_columns(
        target=target, group=group, unit_id=unit_id, features=features, schema=schema, bounds=bounds
    )
    frame, names, held_out = _checked_frame(frame, evaluation, declared)
    encoding = Encoding.of(
        frame,
        names,
        target=target,
        bounds=bounds,
        schema=schema,
        features=features,
        positive=positive,
        classes=classes,
        threshold=threshold,
        target_bounds=target_bounds,
        group=group,
        groups=groups,
        group_features=group_features,
        unit_id=unit_id,
        max_rows=max_rows,
        unit_mean=unit_mean,
        missing=missing,
    )
    unit_id = encoding.unit_id
    if encoding.filled is not None:
        frame, complete = encoding.complete(frame)
        held_out = None if held_out is None else held_out[complete]
        missing_values.check_left(
            len(frame), held_out, missing, least=0 if evaluation is False else 1
        )
    splits_here = held_out is None and checked(evaluation_fraction, split_seed)[0] > 0
    if len(frame) < 2 + splits_here:
        evaluated_too = (
            " and one to evaluate (evaluation_fraction=0 holds out none)" if splits_here else ""
        )
        raise _validate.ArgumentError(
            "frame",
            "DataFrame",
            f"has too few rows: two to train on{evaluated_too} are needed.",
            code=preprocessing.TOO_FEW_ROWS,
        )
    arrays, labels = encoding.arrays(frame)
    content = encoding.content(arrays)
    if unit_id is not None:
        codes, most = checked_identifiers(frame[unit_id], held_out), checked_max_rows(max_rows)
        training, evaluated, *counts = divided(
            content, codes, most, held_out, evaluation_fraction, split_seed
        )
    else:
        held_out = (
            by_record(content, evaluation_fraction, split_seed) if held_out is None else held_out
        )
        training, evaluated = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    return Dataset(
        name=name,
        train=tuple(array[training] for array in arrays.values()),
        evaluation=tuple(array[evaluated] for array in arrays.values()),
        units=None if unit_id is None else Units(counts[0], most, counts[1], bool(unit_mean)),
        unit=unit if unit_id is None or unit != _ROW else unit_called(unit_id),
        evaluation_is_public=evaluation_is_public,
        **encoding.facts(arrays, labels),
    )


def named_columns(**options: Any) -> list[Any]:
    """The columns that these options of ``from_frame`` name."""
    roles = [options.get(name) for name in ("target", "group", "unit_id")]
    several = [options.get(name) for name in ("features", "schema", "bounds")]
    several = [value.columns if isinstance(value, Schema) else value for value in several]
    listed = [
        name for value in several if isinstance(value, (Mapping, list, tuple)) for name in value
    ]
    return [name for name in (*roles, *listed) if isinstance(name, (str, int))]


def _checked_frame(
    frame: pd.DataFrame, evaluation: Any, declared: Sequence[Any]
) -> tuple[pd.DataFrame, dict[Any, str], np.ndarray | None]:
    """(all rows, with text as column names; {label: text}; which rows are evaluation records, if
    that is given).

    :param declared: columns that are declared, which may be in the index.
    """
    frame = with_index(as_table("frame", frame), declared)
    if evaluation is not None and evaluation is not False:
        evaluation = with_index(as_table("evaluation", evaluation), declared)
    names = {label: column_name(label) for label in frame.columns}
    columns = [column_name(label) for label in frame.columns]
    withheld = preprocessing.names_withheld(columns)
    if repeated := sorted(preprocessing.repeated(columns)):
        # a number as label is not from a file
        from_a_file = all(isinstance(label, str) for label in names)
        shown = withheld if from_a_file and withheld else repeated[0]
        raise _validate.ArgumentError("frame", shown, "is the name of more than one column.")
    frame = frame.set_axis(columns, axis=1)
    if evaluation is None:
        return frame, names, None
    if evaluation is False:
        if len(frame) < 2:
            raise _validate.ArgumentError(
                "frame", len(frame), "rows are too few: it needs at least 2 training records."
            )
        return frame, names, np.zeros(len(frame), bool)
    evaluation_columns = [column_name(label) for label in evaluation.columns]
    occurs = collections.Counter(evaluation_columns)
    missing = [column for column in columns if occurs[column] != 1]
    if missing:
        raise _validate.ArgumentError(
            "evaluation",
            withheld or missing[0],
            "is a column of the training table, and must be here exactly once.",
        )
    if len(frame) < 2 or len(evaluation) < 1:
        raise _validate.ArgumentError(
            "evaluation",
            type(evaluation).__name__,
            "needs at least 2 training records and 1 evaluation record.",
        )
    both = pd.concat(
        [frame, evaluation.set_axis(evaluation_columns, axis=1)[columns]], ignore_index=True
    )
    return both, names, np.arange(len(both)) >= len(frame)
