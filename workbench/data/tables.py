"""Data sets from the user's own tables, with their public facts declared."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import missing_values, preprocessing, targets
from workbench.data.columns import Numeric
from workbench.data.dataset import Dataset
from workbench.data.groups import checked_group_features, checked_groups, group_codes
from workbench.data.schema import Schema
from workbench.data.splits import by_record
from workbench.data.units import Units, checked_identifiers, checked_max_rows, divided, unit_called

__all__ = ["from_frame"]

_ROW = "training record"


def from_frame(
    frame: pd.DataFrame,
    *,
    target: Any = None,
    bounds: Any = None,
    schema: Any = None,
    private_scaling: bool = False,
    features: Sequence[Any] | None = None,
    positive: Any = None,
    classes: Any = None,
    threshold: float | None = None,
    target_bounds: Any = None,
    group: Any = None,
    groups: Iterable[Any] | None = None,
    group_features: Any = None,
    unit_id: Any = None,
    max_rows: int | None = None,
    unit_mean: bool = False,
    evaluation: pd.DataFrame | None = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = _ROW,
    name: str = "data frame",
    missing: Any = "refuse",
) -> Dataset:
    """A data set from a DataFrame: arrays "x", "group" with ``group``, "y" with ``target``.

    A row is a record, which is what the guarantee protects, unless ``unit_id`` says which rows belong to one person.

    Exactly one of ``bounds``, ``schema`` and ``private_scaling`` says how columns become features. Constant columns are
    accepted, because declarations are not checked against the records' values, which are private.

    >>> frame = pd.DataFrame(
    ...     {"age": np.arange(50), "sex": ["f", "m"] * 25, "ill": [0, 1] * 25}
    ... )
    >>> data = wb.data.from_frame(
    ...     frame, target="ill", schema={"age": (0, 120), "sex": ["f", "m"]}
    ... )
    >>> data.feature_names
    ('age', 'sex=m')

    :param target: name of the target column; None for a table without a target. The possible values are never read off the
        records: the column has False and True, or 0 and 1, or else one of the next four arguments declares them.
    :param bounds: ``{column: (low, high)}``, the publicly known range of every feature in its own units, or one pair for
        all. Values outside are cut. The guarantee would not cover bounds that are computed from the private data.
    :param schema: ``Schema``, or ``{column: declaration}`` as for ``Schema.from_declaration``: the general form of
        ``bounds``, with categories and booleans. It also selects the columns.
    :param private_scaling: True scales every feature by the exact mean and standard deviation of the private training
        records, instead of ``bounds``. Every guarantee for this data set then says that it does not cover these.
    :param features: columns to use; by default all but target and group, or those of ``schema``.
    :param positive: the target value that counts as 1. All other values form one class, "(other)", even a misspelt one.
    :param classes: all values of the target, two or more, in the order 0, 1, ...; K means 0 .. K - 1. Any other value is an
        error.
    :param threshold: public number; the target is whether the column is above it.
    :param target_bounds: (low, high), the publicly known range of a target of numbers, for regressions. It stays in its own
        units, and values outside are cut.
    :param group: name of the column of group labels.
    :param groups: all groups, declared publicly; not needed if ``group_features`` names them. A record of another group
        is an error. A group without records is allowed.
    :param group_features: public facts about the groups: a DataFrame with the groups as index, or ``{group: [numbers]}``; by
        default the single feature "intercept", 1. They are used in their own units.
    :param unit_id: name of the column that says whose row it is, such as "patient_id". The guarantee then protects each
        patient with all rows. The column is no feature and is not kept. All rows of a patient are on one side of the split.
    :param max_rows: how many rows of a unit are used at most, needed with ``unit_id``: a public number, not read off the
        data. Of a unit with more rows a sample is kept, drawn by a hash of its own rows.
    :param unit_mean: whether the rows of a unit weigh 1 together. The model is then of the average unit, and else of the
        average row.
    :param evaluation: table of evaluation records with the same columns, instead of a split of ``frame``.
    :param evaluation_fraction: probability of each row to become an evaluation record, in (0, 1). Which side a row is on
        depends only on its encoded values (features, group and target) and the seed, so no row moves another.
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public. Otherwise numbers computed on them are shown
        only on request and labelled "outside the guarantee".
    :param unit: what one row is, in words, or with ``unit_id`` one unit. By default "training record", or the name of
        that column without "id".
    :param missing: what happens to a row with a missing value in a column that is used. "refuse" is an error; "drop" leaves
        the row out; "middle" puts the middle of the declared bounds in place of a missing number, and leaves out rows in
        which anything else is missing. "indicator" does the same and adds a feature for each column of numbers, 1 where it
        was missing (``Numeric(missing=True)``). ``{column: value}`` puts a public value into each of these columns, or has
        "indicator" for some, and leaves out rows in which anything else is missing. A missing category of
        ``Categorical(..., other=True)`` is "(other)" and not missing. All of this depends on the row itself and on what is
        declared, so it costs no privacy: tables that differ in one row give records that differ in at most one. A mean or a
        most frequent value of the private records would not have this property.
    :raises ArgumentError: naming the argument and the value, or a column and its type, never a cell.
    """
    _validate.flag("evaluation_is_public", evaluation_is_public)
    frame, names, held_out = _checked_frame(frame, evaluation)
    _check_scaling(bounds, schema, private_scaling)
    how = {"positive": positive, "classes": classes, "threshold": threshold, "target_bounds": target_bounds}
    of_group = {"group": group, "groups": groups, "group_features": group_features}
    target, group = _checked_roles(frame, names, {"target": target, **how}, of_group)
    if target_bounds is not None:
        how["target_bounds"] = preprocessing.checked_pair("target_bounds", target_bounds)
    unit_id = _checked_unit(frame, names, unit_id, {"max_rows": max_rows, "unit_mean": unit_mean}, (target, group))
    declared = None if schema is None else _declared_schema(schema, features, names)
    chosen = _chosen_columns(frame, names, features, declared, (target, group, unit_id))
    if declared is None and not private_scaling:
        declared = _schema_of_bounds(bounds, chosen, names)
    missing, declared = missing_values.with_indicators(missing, declared)
    if not (isinstance(missing, str) and missing == "refuse"):
        filled = missing_values.public_values(missing, declared, chosen, names)
        frame, complete = missing_values.without_missing(frame, filled, declared, chosen, (target, group, unit_id))
        held_out = _left(len(frame), None if held_out is None else held_out[complete], missing)
    arrays: dict[str, np.ndarray] = {}
    if group is not None:
        all_groups = checked_groups(groups, group_features)
        facts, fact_names = checked_group_features(group_features, all_groups)
        arrays["group"] = group_codes(frame[group], all_groups)
    labels: tuple[str, ...] = ()
    with _remedy_for_missing():
        if target is not None:
            arrays["y"], labels = _target(frame[target], how)
        x = preprocessing.numeric_features(frame, chosen) if declared is None else declared.encode(frame)
    arrays = {"x": x, **arrays}
    # another reference level does not move a record to the other side
    content = [x if declared is None else declared.all_levels(x), *list(arrays.values())[1:]]
    if unit_id is not None:
        codes, most = checked_identifiers(frame[unit_id], held_out), checked_max_rows(max_rows)
        training, evaluated, *counts = divided(content, codes, most, held_out, evaluation_fraction, split_seed)
    else:
        held_out = by_record(content, evaluation_fraction, split_seed) if held_out is None else held_out
        training, evaluated = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if private_scaling:
        arrays["x"] = preprocessing.standardise(x, x[training])
    return Dataset(
        name=name,
        description=_description(chosen, target, missing),
        train=tuple(array[training] for array in arrays.values()),
        evaluation=tuple(array[evaluated] for array in arrays.values()),
        units=None if unit_id is None else Units(counts[0], most, counts[1], bool(unit_mean)),
        feature_names=tuple(chosen) if declared is None else declared.feature_names,
        target_name=target or "",
        classes=labels,
        target_bounds=how["target_bounds"],
        schema=declared,
        unit=unit if unit_id is None or unit != _ROW else unit_called(unit_id),
        evaluation_is_public=evaluation_is_public,
        private_scaling=private_scaling,
        arrays=tuple(arrays),
        group_name=group or "",
        groups=all_groups if group is not None else (),
        group_features=facts if group is not None else None,
        group_feature_names=fact_names if group is not None else (),
    )


@contextlib.contextmanager
def _remedy_for_missing() -> Iterator[None]:
    try:
        yield
    except _validate.ArgumentError as error:
        if error.code != preprocessing.MISSING:
            raise
        remedy = "missing='drop' leaves them out; missing='middle' puts the middle of the declared bounds."
        raise _validate.ArgumentError(
            error.argument, error.value, error.expectation, code=error.code, remedy=remedy
        ) from None


def _left(rows: int, held_out: np.ndarray | None, missing: Any) -> np.ndarray | None:
    """``held_out`` of the rows that are left, checked to have both sides, or that there can be two."""
    if rows < 3 or (held_out is not None and (np.sum(~held_out) < 2 or np.sum(held_out) < 1)):
        raise _validate.ArgumentError("missing", missing, "leaves fewer than 2 training records or no evaluation record.")
    return held_out


def _description(chosen: list[str], target: str | None, missing: Any) -> str:
    words = f"{len(chosen)} features, " + (f"target {target!r}." if target is not None else "no target.")
    if isinstance(missing, str) and missing == "refuse":
        return words
    if isinstance(missing, str) and missing == "drop":
        return f"{words} Rows with a missing value are left out."
    return f"{words} Some missing values are replaced by public ones; other rows with a missing value are left out."


def _checked_roles(
    frame: pd.DataFrame, names: Mapping[Any, str], of_target: Mapping[str, Any], of_group: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """The columns of target and group, None for those that are not given.

    :param of_target: the argument ``target`` and those that need it.
    :param of_group: ``group`` and those that need it.
    """
    columns, target, group = list(frame.columns), of_target["target"], of_group["group"]
    if target is not None:
        target = _known("target", _column(target, names), columns)
    if group is not None:
        group = _known("group", _column(group, names), columns)
        if group == target:
            raise _validate.ArgumentError("group", group, "is the target column; the group must be another.")
    for arguments, role, needs in (
        (of_group, "group", "needs group=, the name of the column of group labels."),
        (of_target, "target", "needs target=, the name of the target column."),
    ):
        for argument, value in arguments.items():
            if arguments[role] is None and value is not None:
                raise _validate.ArgumentError(argument, value, needs)
    return target, group


def _checked_unit(
    frame: pd.DataFrame, names: Mapping[Any, str], unit_id: Any, needing: Mapping[str, Any], roles: tuple[str | None, ...]
) -> str | None:
    """The column of units, None if it is not given. :param needing: arguments that need it. :param roles: other columns."""
    _validate.flag("unit_mean", needing["unit_mean"])
    if unit_id is None:
        for argument, value in needing.items():
            if value is not None and value is not False:
                raise _validate.ArgumentError(
                    argument, value, "needs unit_id=, the name of the column that says whose row it is."
                )
        return None
    found = _known("unit_id", _column(unit_id, names), list(frame.columns))
    if found in roles:
        raise _validate.ArgumentError("unit_id", found, "is the target or group column; it must be another.")
    checked_max_rows(needing["max_rows"])
    return found


def _chosen_columns(
    frame: pd.DataFrame, names: Mapping[Any, str], features: Any, declared: Schema | None, roles: tuple[str | None, ...]
) -> list[str]:
    """The columns that become features: those of the schema, ``features``, or all but target and group (``roles``)."""
    columns, argument = list(frame.columns), "features" if declared is None else "schema"
    if declared is not None:
        chosen = list(declared.columns)
    else:
        chosen = [column for column in columns if column not in roles] if features is None else _columns(features, names)
    known = dict.fromkeys(columns)
    for column in chosen:
        _known(argument, column, known)
    if not chosen or set(roles).intersection(chosen) or len(set(chosen)) < len(chosen):
        raise _validate.ArgumentError(
            argument, chosen, "must name at least one column, each once, without target, group and unit_id."
        )
    return chosen


def _schema_of_bounds(bounds: Any, chosen: list[str], names: Mapping[Any, str]) -> Schema:
    if isinstance(bounds, Mapping):
        bounds = {_column(label, names): pair for label, pair in bounds.items()}
    limits = preprocessing.checked_bounds(bounds, chosen)
    return Schema({column: Numeric(*limits[column]) for column in chosen})


def _checked_frame(frame: Any, evaluation: Any) -> tuple[pd.DataFrame, dict[Any, str], np.ndarray | None]:
    """(all rows, with text as column names; {label: text}; which rows are evaluation records, if given)."""
    for argument, table in (("frame", frame), ("evaluation", evaluation)):
        if not isinstance(table, pd.DataFrame) and not (argument == "evaluation" and table is None):
            raise _validate.ArgumentError(argument, type(table).__name__, "must be a pandas DataFrame.")
    names = {label: str(label) for label in frame.columns}
    columns = [str(label) for label in frame.columns]
    repeated = sorted(column for column, times in collections.Counter(columns).items() if times > 1)
    withheld = preprocessing.names_withheld(columns)
    if repeated:
        from_a_file = all(isinstance(label, str) for label in names)  # a number as label is not from a file
        shown = withheld if from_a_file and withheld else repeated[0]
        raise _validate.ArgumentError("frame", shown, "is the name of more than one column.")
    frame = frame.set_axis(columns, axis=1)
    if evaluation is None:
        return frame, names, None
    others = [str(label) for label in evaluation.columns]
    occurs = collections.Counter(others)
    missing = [column for column in columns if occurs[column] != 1]
    if missing:
        raise _validate.ArgumentError(
            "evaluation", withheld or missing[0], "is a column of the training table, and must be here exactly once."
        )
    if len(frame) < 2 or len(evaluation) < 1:
        raise _validate.ArgumentError(
            "evaluation", type(evaluation).__name__, "needs at least 2 training records and 1 evaluation record."
        )
    both = pd.concat([frame, evaluation.set_axis(others, axis=1)[columns]], ignore_index=True)
    return both, names, np.arange(len(both)) >= len(frame)


def _check_scaling(bounds: Any, schema: Any, private_scaling: Any) -> None:
    """Check that the user chose exactly one way of scaling."""
    _validate.flag("private_scaling", private_scaling)
    if bounds is not None and schema is not None:
        raise _validate.ArgumentError("schema", schema, "must be left out if bounds is given: use one of the two.")
    for argument, value in (("bounds", bounds), ("schema", schema)):
        if private_scaling and value is not None:
            raise _validate.ArgumentError(
                argument, value, "must be left out if private_scaling=True, which scales by the private records instead."
            )
    if not private_scaling and bounds is None and schema is None:
        raise _validate.ArgumentError(
            "bounds",
            None,
            "must declare the public range of every feature, such as bounds={'age': (0, 100)}. For categories use schema=. "
            "private_scaling=True scales without a declaration, but no guarantee covers it.",
        )


def _declared_schema(schema: Any, features: Any, names: Mapping[Any, str]) -> Schema:
    """The schema with the text of labels as column names; only the columns ``features``, if given."""
    if not isinstance(schema, Schema):
        if isinstance(schema, Mapping):
            schema = {_column(label, names): given for label, given in schema.items()}
        schema = Schema.from_declaration(schema)
    if features is None:
        return schema
    chosen = _columns(features, names)
    for column in chosen:
        _known("features", column, schema.columns)
    if not chosen or len(set(chosen)) < len(chosen):
        raise _validate.ArgumentError("features", chosen, "must name at least one column, each once.")
    return Schema({column: schema.columns[column] for column in chosen})


def _target(column: pd.Series, how: Mapping[str, Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(the target, its classes). :param how: the arguments that say what its values are; one of them at most is given."""
    several = [name for name in ("threshold", "classes", "positive", "target_bounds") if how[name] is not None]
    if len(several) > 1:
        raise _validate.ArgumentError(
            several[1], how[several[1]], f"must be left out if {several[0]} is given, which says what the target is."
        )
    if how["target_bounds"] is not None:
        return targets.numeric_target(column, how["target_bounds"]), ()
    if how["threshold"] is not None:
        return targets.thresholded(column, how["threshold"])
    if how["classes"] is not None:
        return targets.declared_classes(column, how["classes"])
    return targets.binary_target(column, how["positive"])


def _known(argument: str, column: Any, columns: Collection[str]) -> str:
    """``column``, checked to be the name of one of ``columns``."""
    if not isinstance(column, str) or column not in columns:  # an array would compare entry by entry
        raise preprocessing.unknown_column(argument, column, columns)
    return str(column)


def _column(given: Any, names: Mapping[Any, str]) -> Any:
    """The text of a column label, if ``given`` is a label of the frame or a whole number; otherwise ``given``."""
    try:
        if given in names:
            return names[given]
    except TypeError:  # not hashable, so not a label
        return given
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def _columns(given: Any, names: Mapping[Any, str]) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise _validate.ArgumentError("features", given, "must be a list of column names.")
    return [_column(each, names) for each in given]
