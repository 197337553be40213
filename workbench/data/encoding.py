"""How rows of a table become arrays: each row by itself, from what is declared about the columns.

So any part of a table can be encoded by itself, in memory or while a file is packed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._lazy import pd
from workbench.data import missing_values, preprocessing, targets
from workbench.data.columns import Numeric
from workbench.data.groups import checked_group_features, checked_groups, group_codes
from workbench.data.schema import Schema
from workbench.data.units import checked_max_rows

__all__ = ["Encoding"]


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """What is declared about the columns of a table; made by ``of``.

    :param declared: schema of the columns that become features.
    :param target: column, as ``group`` and ``unit_id``; None where there is none.
    :param of_target: the arguments that declare the classes. :param groups: names.
    :param filled: public values for missing ones, by column; None to refuse rows with missing
        values.
    """

    declared: Schema
    target: str | None
    group: str | None
    unit_id: str | None
    of_target: Mapping[str, Any]
    groups: tuple[str, ...]
    group_features: np.ndarray | None
    group_feature_names: tuple[str, ...]
    filled: Mapping[str, Any] | None
    missing: Any

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        names: Mapping[Any, str],
        *,
        target: Hashable = None,
        bounds: Mapping[Any, Sequence[float]] | Sequence[float] | None = None,
        schema: Schema | Mapping[Any, Any] | None = None,
        features: Iterable[Any] | None = None,
        positive: Hashable = None,
        classes: Iterable[Any] | int | None = None,
        threshold: float | None = None,
        target_bounds: Sequence[float] | None = None,
        group: Hashable = None,
        groups: Iterable[Any] | None = None,
        group_features: pd.DataFrame
        | pd.Series
        | Mapping[Any, ArrayLike]
        | ArrayLike
        | None = None,
        unit_id: Hashable = None,
        max_rows: int | None = None,
        unit_mean: bool = False,
        missing: str | Mapping[Any, Any] = "refuse",
    ) -> Encoding:
        """Check the arguments of ``from_frame`` against the columns of ``frame``, whose rows are
        not read.

        :param names: ``{label: text}`` of the columns.
        :raises ArgumentError: naming the argument.
        """
        _check_declaration(bounds, schema)
        of_target = {
            "positive": positive,
            "classes": classes,
            "threshold": threshold,
            "target_bounds": target_bounds,
        }
        target, group = _checked_roles(
            frame,
            names,
            {"target": target, **of_target},
            {"group": group, "groups": groups, "group_features": group_features},
        )
        if target_bounds is not None:
            of_target["target_bounds"] = preprocessing.checked_pair("target_bounds", target_bounds)
        unit_id = _checked_unit(
            frame, names, unit_id, {"max_rows": max_rows, "unit_mean": unit_mean}, (target, group)
        )
        declared = None if schema is None else _declared_schema(schema, features, names)
        chosen = _chosen_columns(frame, names, features, declared, (target, group, unit_id))
        if declared is None:
            declared = _schema_of_bounds(bounds, chosen, names)
        missing, declared = missing_values.with_indicators(missing, declared)
        filled = None
        if not (isinstance(missing, str) and missing == "refuse"):
            filled = missing_values.public_values(missing, declared, names)
        all_groups: tuple[str, ...] = ()
        fact_names: tuple[str, ...] = ()
        facts = None
        if group is not None:
            all_groups = checked_groups(groups, group_features)
            facts, fact_names = checked_group_features(group_features, all_groups)
        return cls(
            declared=declared,
            target=target,
            group=group,
            unit_id=unit_id,
            of_target=of_target,
            groups=all_groups,
            group_features=facts,
            group_feature_names=fact_names,
            filled=filled,
            missing=missing,
        )

    def complete(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        """(the rows that are used, with public values for missing ones; bool[rows], which they
        are).
        """
        if self.filled is None:
            return frame, np.ones(len(frame), bool)
        roles = (self.target, self.group, self.unit_id)
        numbers = [
            name for name, column in self.declared.columns.items() if isinstance(column, Numeric)
        ]
        if (
            self.target is not None
            and self.of_target["classes"] is None
            and self.of_target["positive"] is None
        ):
            numbers.append(self.target)
        return missing_values.without_missing(frame, self.filled, self.declared, roles, numbers)

    def arrays(self, frame: pd.DataFrame) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """(arrays "x", "group", "y" as far as there are any; labels of the target) of complete
        rows.

        :raises ArgumentError: naming a column and its type, never a cell.
        """
        arrays: dict[str, np.ndarray] = {}
        if self.group is not None:
            arrays["group"] = group_codes(frame[self.group], self.groups)
        labels: tuple[str, ...] = ()
        with missing_values.with_remedy():
            if self.target is not None:
                arrays["y"], labels = _target(frame[self.target], self.of_target)
            x = self.declared.encode(frame)
        return {"x": x, **arrays}, labels

    def content(self, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """What decides on which side of the split a record is: another reference level does not
        move it.
        """
        levels = self.declared.all_levels(arrays["x"])
        return [levels, *(array for name, array in arrays.items() if name != "x")]

    def facts(self, arrays: Iterable[str], labels: tuple[str, ...]) -> dict[str, Any]:
        """The public facts of a ``Dataset`` of such rows. :param arrays: their names. :param
        labels: of the target.
        """
        return {
            "description": _description(len(self.declared.columns), self.target, self.missing),
            "feature_names": self.declared.feature_names,
            "target_name": self.target or "",
            "classes": labels,
            "target_bounds": self.of_target["target_bounds"],
            "schema": self.declared,
            "arrays": tuple(arrays),
            "group_name": self.group or "",
            "groups": self.groups,
            "group_features": self.group_features,
            "group_feature_names": self.group_feature_names,
        }


def _description(num_columns: int, target: str | None, missing: str | Mapping[Any, Any]) -> str:
    words = f"{num_columns} features, " + (
        f"target {target!r}." if target is not None else "no target."
    )
    if isinstance(missing, str) and missing == "refuse":
        return words
    if isinstance(missing, str) and missing == "drop":
        return f"{words} Rows with a missing value are left out."
    return (
        f"{words} Some missing values are replaced by public ones; other rows with a missing "
        "value are left out."
    )


def _checked_roles(
    frame: pd.DataFrame,
    names: Mapping[Any, str],
    of_target: Mapping[str, Any],
    of_group: Mapping[str, Any],
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
            raise _validate.ArgumentError(
                "group", group, "is the target column; the group must be another."
            )
    for arguments, role, needs in (
        (of_group, "group", "needs group=, the name of the column of group labels."),
        (of_target, "target", "needs target=, the name of the target column."),
    ):
        for argument, value in arguments.items():
            if arguments[role] is None and value is not None:
                raise _validate.ArgumentError(argument, value, needs)
    return target, group


def _checked_unit(
    frame: pd.DataFrame,
    names: Mapping[Any, str],
    unit_id: Hashable,
    needing: Mapping[str, Any],
    roles: tuple[str | None, ...],
) -> str | None:
    """The column of units, None if it is not given. :param needing: arguments that need it. :param
    roles: other columns.
    """
    _validate.flag("unit_mean", needing["unit_mean"])
    if unit_id is None:
        for argument, value in needing.items():
            if value is not None and value is not False:
                raise _validate.ArgumentError(
                    argument,
                    value,
                    "needs unit_id=, the name of the column that says whose row it is.",
                )
        return None
    column = _known("unit_id", _column(unit_id, names), list(frame.columns))
    if column in roles:
        raise _validate.ArgumentError(
            "unit_id", column, "is the target or group column; it must be another."
        )
    checked_max_rows(needing["max_rows"])
    return column


def _chosen_columns(
    frame: pd.DataFrame,
    names: Mapping[Any, str],
    features: Iterable[Any] | None,
    declared: Schema | None,
    roles: tuple[str | None, ...],
) -> list[str]:
    """The columns that become features: those of the schema, ``features``, or all but target and
    group (``roles``).
    """
    columns, argument = list(frame.columns), "features" if declared is None else "schema"
    if declared is not None:
        chosen = list(declared.columns)
    else:
        chosen = (
            [column for column in columns if column not in roles]
            if features is None
            else _columns(features, names)
        )
    available = dict.fromkeys(columns)
    for column in chosen:
        _known(argument, column, available)
    if not chosen or set(roles).intersection(chosen) or len(set(chosen)) < len(chosen):
        raise _validate.ArgumentError(
            argument,
            chosen,
            "must name at least one column, each once, without target, group and unit_id.",
        )
    return chosen


def _schema_of_bounds(
    bounds: Mapping[Any, Sequence[float]] | Sequence[float] | None,
    chosen: list[str],
    names: Mapping[Any, str],
) -> Schema:
    if isinstance(bounds, Mapping):
        bounds = {_column(label, names): pair for label, pair in bounds.items()}
    limits = preprocessing.checked_bounds(bounds, chosen)
    return Schema({column: Numeric(*limits[column]) for column in chosen})


def _check_declaration(
    bounds: Mapping[Any, Sequence[float]] | Sequence[float] | None,
    schema: Schema | Mapping[Any, Any] | None,
) -> None:
    """Check that the columns are declared, in one way."""
    if bounds is not None and schema is not None:
        raise _validate.ArgumentError(
            "schema", schema, "must be left out if bounds is given: use one of the two."
        )
    if bounds is None and schema is None:
        raise _validate.ArgumentError(
            "bounds",
            None,
            "must declare the public range of every feature, such as bounds={'age': (0, 100)}. "
            "For categories use schema=. A fit of a formula learns ranges that nobody declares, "
            "within its guarantee.",
        )


def _declared_schema(
    schema: Schema | Mapping[Any, Any],
    features: Iterable[Any] | None,
    names: Mapping[Any, str],
) -> Schema:
    """The schema with the text of labels as column names; only the columns ``features``,
    if given.
    """
    if not isinstance(schema, Schema):
        if isinstance(schema, Mapping):
            schema = {_column(label, names): declared for label, declared in schema.items()}
        schema = Schema.from_declaration(schema)
    if features is None:
        return schema
    chosen = _columns(features, names)
    for column in chosen:
        _known("features", column, schema.columns)
    if not chosen or len(set(chosen)) < len(chosen):
        raise _validate.ArgumentError(
            "features", chosen, "must name at least one column, each once."
        )
    return Schema({column: schema.columns[column] for column in chosen})


def _target(column: pd.Series, how: Mapping[str, Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(the target, its classes). :param how: the arguments that say what its values are; one of
    them at most is given.
    """
    several = [
        name
        for name in ("threshold", "classes", "positive", "target_bounds")
        if how[name] is not None
    ]
    if len(several) > 1:
        raise _validate.ArgumentError(
            several[1],
            how[several[1]],
            f"must be left out if {several[0]} is given, which says what the target is.",
        )
    if how["target_bounds"] is not None:
        return targets.numeric_target(column, how["target_bounds"]), ()
    if how["threshold"] is not None:
        return targets.thresholded(column, how["threshold"])
    if how["classes"] is not None:
        return targets.declared_classes(column, how["classes"])
    return targets.binary_target(column, how["positive"])


def _known(argument: str, column: object, columns: Collection[str]) -> str:
    """``column``, checked to be the name of one of ``columns``."""
    if (
        not isinstance(column, str) or column not in columns
    ):  # an array would compare entry by entry
        raise preprocessing.unknown_column(argument, column, columns)
    return str(column)


def _column(label: Hashable, names: Mapping[Any, str]) -> Any:
    """The text of a column label, if ``label`` is a label of the frame or a whole number; otherwise
    ``label``.
    """
    try:
        if label in names:
            return names[label]
    except TypeError:  # not hashable, so not a label
        return label
    is_label = isinstance(label, (str, int)) and not isinstance(label, bool)
    return preprocessing.column_name(label) if is_label else label


def _columns(labels: Iterable[Any], names: Mapping[Any, str]) -> list[Any]:
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise _validate.ArgumentError("features", labels, "must be a list of column names.")
    return [_column(label, names) for label in labels]
