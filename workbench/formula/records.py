"""From tables and data sets to the arrays of a formula's model, row by row from declarations."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset, from_frame
from workbench.data.columns import Boolean, Categorical, Column, Numeric
from workbench.data.dataset import is_at_rest
from workbench.data.missing_values import INDICATOR
from workbench.data.preprocessing import (
    DECLARATION,
    MISSING,
    as_truth,
    column_name,
    listed,
    may_hold_numbers,
    numbers_in,
    texts_of,
    two_values,
    unfit,
)
from workbench.data.schema import Schema, as_table, columns_of, with_index
from workbench.formula.design import Design, design_of
from workbench.formula.factors import declared_column, level_names
from workbench.formula.families import Family, Response
from workbench.formula.hints import ROLES
from workbench.formula.parsing import Parsed, refused

__all__ = ["Columns", "CutWarning", "columns_of_formula", "schema_of"]

_OPTIONS = (
    "evaluation",
    "evaluation_fraction",
    "evaluation_is_public",
    "max_rows",
    "missing",
    "name",
    "split_seed",
    "unit",
    "unit_id",
    "unit_mean",
)
_CENSORED = ("none", "right")  # as bambi's ``censored`` names them


class CutWarning(UserWarning):
    """Values that belong together, such as a count and its exposure, were cut to their bounds one
    by one.
    """


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a formula, and how they become arrays.

    :param design: of the terms. :param response: its public facts.
    :param schema: of all columns: those of the design, the response and the extras.
    :param extras: ``{role: column}`` of what the family takes besides the response.
    """

    design: Design
    family: Family
    response: Response
    schema: Schema
    extras: Mapping[str, str]

    @property
    def features(self) -> Schema:
        """All columns but the response."""
        return Schema(
            {
                name: column
                for name, column in self.schema.columns.items()
                if name != self.response.name
            }
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the arrays that a prediction takes, in order."""
        groups = [
            name
            for effects in self.design.groups
            for name in (effects.name, *([f"{effects.name}_x"] if effects.block.columns else []))
        ]
        return ("x", *groups, *(role for role in self.family.extras if role in self.extras))

    @property
    def arrays(self) -> tuple[str, ...]:
        """Names of the arrays of a record."""
        return (*self.input_names, "y")

    @property
    def target_words(self) -> str:
        """What the predictor describes, such as "probability of ill = yes"."""
        words = self.family.target_words(self.response)
        if "observed" not in self.extras:
            return words
        event = "1 or True" if self._status[1] is True else self._status[1]
        return f"{words}, a time of an event where {self.extras['observed']} = {event}"

    # ---- tables ----------------------------------------------------------------------------------

    def dataset(self, frame: pd.DataFrame, **options: Any) -> Dataset:
        """The data set of a table: its columns as declared, and the response. Others of the table
        are not kept.

        :param options: those of ``from_frame`` about units, missing values, evaluation records and
            names.
        """
        for name in options:
            if name not in _OPTIONS:
                raise _validate.unknown_name("options", name, _OPTIONS)
        missing = options.get("missing")
        treatments = missing.values() if isinstance(missing, Mapping) else [missing]
        if any(isinstance(treatment, str) and treatment == INDICATOR for treatment in treatments):
            raise _validate.ArgumentError(
                "missing",
                INDICATOR,
                "is for the schema of the formula: declare such columns as Numeric(low, high, "
                "missing=True).",
                code=DECLARATION,
            )
        declared = self.schema.columns[self.response.name]
        how: dict[str, Any] = {}
        if isinstance(declared, Numeric) and self.family.kind != "class":
            low, high = declared.low, declared.high
            # a count that is cut to a bound is still whole
            how["target_bounds"] = (
                (math.ceil(low), math.floor(high)) if self.family.kind == "count" else (low, high)
            )
        elif self.response.levels and not isinstance(declared, Boolean):
            how["classes"] = self.response.levels
        if isinstance(options.get("evaluation"), pd.DataFrame):
            options["evaluation"] = self._cut_together(self._with_truth(options["evaluation"]))
        table = self._cut_together(self._with_truth(frame))
        try:
            made = from_frame(
                table, target=self.response.name, schema=self.features, **how, **options
            )
            return dataclasses.replace(made, cut_together=tuple(self.extras.values()))
        except _validate.ArgumentError as error:
            if error.argument not in ("positive", "target") or error.code == MISSING:
                raise
            column = columns_of(frame, [self.response.name])[self.response.name]
            if isinstance(declared, Boolean):
                words = (
                    "has other values than 0 and 1, or False and True, in some row. "
                    f"{two_values(column)}"
                )
            else:
                words = (
                    "has none of the declared levels, or no value, in some row: declare all of "
                    "its levels."
                )
            raise unfit(column, words) from None

    def inputs(self, frame: pd.DataFrame) -> dict[str, np.ndarray]:
        """The arrays that a prediction takes, of a table in its own units."""
        values = self.design.values(frame)
        return self.design.encode(values) | self._encoded(frame, None)

    def _with_truth(self, frame: pd.DataFrame) -> Any:
        """A table whose response, if it is boolean, has 1 and 0 for the words that other boolean
        columns take.
        """
        if not isinstance(self.schema.columns[self.response.name], Boolean):
            return frame
        frame = with_index(as_table("frame", frame), [self.response.name]).copy(deep=False)
        for position, label in enumerate(frame.columns):
            if column_name(label) == self.response.name:
                frame.isetitem(position, as_truth(frame.iloc[:, position]))
        return frame

    def _cut_together(self, frame: pd.DataFrame) -> Any:
        """A table in which values that belong together are cut together (``Family.cut_together``),
        row by row.

        Cells that are missing, no numbers or no declared levels stay, and are refused or left out
        where all others are.
        """
        if not self.extras or not isinstance(frame, pd.DataFrame):
            return frame
        names = {"y": self.response.name, **self.extras}
        series = columns_of(frame, names.values())
        if not all(
            may_hold_numbers(series[name].dtype)
            for role, name in names.items()
            if role != "observed"
        ):
            return frame
        before = {
            role: self._events(series[name]) if role == "observed" else numbers_in(series[name])
            for role, name in names.items()
        }
        after = self.family.cut_together(self.response, before)
        frame = frame.copy(deep=False)
        positions = {str(label): position for position, label in enumerate(frame.columns)}
        for role, name in names.items():
            same = (after[role] == before[role]) | np.isnan(before[role])
            cells = np.where(same, None, self._status[0]) if role == "observed" else after[role]
            merged = np.where(same, series[name].to_numpy(object), cells)
            frame.isetitem(positions[name], pd.Series(merged, series[name].index, object))
        return frame

    def beside_target(self, y: np.ndarray) -> dict[str, np.ndarray]:
        """The column of ``observed`` for times of events, of which those above their bound are
        censored there.
        """
        if "observed" not in self.extras:
            return {}
        censored, event = self._status
        return {self.extras["observed"]: np.where(y > self.response.bounds[1], censored, event)}

    @property
    def _status(self) -> tuple[Any, Any]:
        """The values of ``observed`` for a censored time and for one of an event."""
        column = self.schema.columns[self.extras["observed"]]
        if isinstance(column, Boolean):
            return False, True
        assert isinstance(column, Categorical)
        first, second = column.labels
        return (second, first) if first == _CENSORED[0] else (first, second)

    def _events(self, column: pd.Series) -> np.ndarray:
        """float64[N]: 1 for the value of an event, 0 for any other; NaN where it is missing."""
        event = self._status[1]
        if isinstance(event, str):
            events = np.array([text == event for text in texts_of(column)], np.float64)
        else:
            events = (numbers_in(as_truth(column)) == 1).astype(np.float64)
        events[column.isna().to_numpy()] = np.nan
        return events

    def _encoded(self, frame: pd.DataFrame, y: pd.Series | None) -> dict[str, np.ndarray]:
        """Extras, and the response unless ``y`` is None, as the family encodes them."""
        series = columns_of(frame, self.extras.values())
        values: dict[str, Any] = {}
        for role, name in self.extras.items():
            declared = self.schema.columns[name]
            if isinstance(declared, Categorical):
                values[role] = declared.codes(series[name]) == declared.labels.index(
                    self._status[1]
                )
            elif isinstance(declared, Boolean):
                values[role] = declared.encode(series[name])[:, 0] > 0
            else:
                values[role] = series[name]
        if y is not None:
            return self.family.encode(self.response, {"y": y, **values})
        return {role: self.response.extra(role, value) for role, value in values.items()}

    # ---- data sets -------------------------------------------------------------------------------

    def view(self, dataset: Dataset) -> Dataset:
        """``dataset`` with the design's arrays. :raises ArgumentError: naming ``data``, if it does
        not have the columns.
        """
        if not isinstance(dataset, Dataset) or "x" not in dataset.arrays or dataset.schema is None:
            raise _validate.ArgumentError(
                "data",
                getattr(dataset, "name", type(dataset).__name__),
                "must be a table with declared columns.",
            )
        if any(map(is_at_rest, dataset.train)):
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                "stays in a file, and a formula makes columns of it: open it with "
                "reading='memory'.",
            )
        if dataset.target_name != self.response.name or "y" not in dataset.arrays:
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                f"must have the target {self.response.name!r}, the response of the formula.",
            )
        available = {*dataset.schema.columns, *([dataset.group_name] if dataset.group_name else [])}
        missing = [name for name in self.needed if name not in available]
        if missing:
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                f"has no column {missing[0]!r}, which the formula uses; it has "
                f"{listed(sorted(available))}.",
            )
        is_together = set(self.extras.values()) <= set(dataset.cut_together)
        if not is_together:
            warnings.warn(
                f"{dataset.name}: {listed([self.response.name, *self.extras.values()])} belong "
                "together, but each was cut to its own bounds as this data set was made. If a "
                "value was outside them, the fit is wrong: pass the table itself, or "
                "model.dataset(table), which cut them together.",
                CutWarning,
                stacklevel=2,
            )
        train, evaluation = (
            self._arrays(dataset, arrays, is_together)
            for arrays in (dataset.train, dataset.evaluation)
        )
        return dataclasses.replace(
            dataset,
            arrays=self.arrays,
            train=train,
            evaluation=evaluation,
            feature_names=self.design.block.names,
            classes=self.response.levels or dataset.classes,
            schema=self.features,
            group_name="",
            groups=(),
            group_features=None,
            group_feature_names=(),
        )

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of design and extras."""
        design = () if self.design.schema is None else tuple(self.design.schema.columns)
        return tuple(dict.fromkeys((*design, *self.extras.values())))

    def _arrays(
        self, dataset: Dataset, arrays: tuple[np.ndarray, ...], is_together: bool
    ) -> tuple[np.ndarray, ...]:
        by_name = dict(zip(dataset.arrays, arrays, strict=True))
        assert dataset.schema is not None
        frame = dataset.schema.decode(by_name["x"])
        for name, column in dataset.schema.columns.items():
            if isinstance(column, Numeric) and not column.whole:
                frame[name] = _as_given(frame[name].to_numpy(), column)
        if dataset.group_name and dataset.group_name in self.needed:
            frame[dataset.group_name] = np.asarray(dataset.groups, object)[by_name["group"]]
        y = by_name["y"]
        if self.response.levels:
            is_boolean = isinstance(self.schema.columns[self.response.name], Boolean)
            y = np.asarray(self.response.levels if is_boolean else dataset.classes, object)[y]
        encoded = self.design.encode(self.design.values(frame)) | self._encoded(frame, y)
        if "observed" in encoded and not is_together:  # a time at its bound may have been cut to it
            encoded["observed"] = encoded["observed"] * (
                encoded["y"] < np.float32(self.response.bounds[1])
            )
        return tuple(encoded[name] for name in self.arrays)


def _as_given(numbers: np.ndarray, column: Numeric) -> np.ndarray:
    """Decoded numbers without what float32 added, which is at most 2^-25 of half the range: rounded
    to a decimal of at least 1e-7 of it. So ``I(age >= 65)`` is true of 65, which was scaled to [-1,
    1] and back.
    """
    return np.round(numbers, math.floor(7 - math.log10(column.reach)))


def columns_of_formula(
    parsed: Parsed,
    family: Family,
    schema: Schema,
    extras: Mapping[str, str],
    named: Collection[str] | None = (),
) -> Columns:
    """The columns of a formula for a declaration.

    :param extras: ``{role: column}`` as arguments give them, in addition to those of the formula.
    :param named: the names of ``priors=``, as for ``Design.orthogonal``; None for columns that are
        fitted as scaled.
    :raises ArgumentError: naming ``formula``, ``schema``, or the role.
    """
    parsed = parsed.matched(schema.columns)
    for role in extras:
        if role in parsed.extras:
            raise _validate.ArgumentError(
                role, extras[role], "must not be given; the formula already specifies it."
            )
    roles = {**parsed.extras, **extras}
    columns = dict(schema.columns)
    if "status" in roles:
        roles["observed"] = _censored(parsed, columns, roles.pop("status"))
    for role in roles:
        if role not in family.extras:
            hint = f": {ROLES[role]}." if role in ROLES else "."
            raise _validate.ArgumentError(
                role, roles[role], f"is not for the family {family.name}{hint}"
            )
    if "observed" in roles:
        columns[roles["observed"]] = _status(
            roles["observed"], columns.get(roles["observed"], Boolean())
        )
    if family.name == "bernoulli":
        columns.setdefault(parsed.response, Boolean())
    for name in (parsed.response, *roles.values()):  # which nothing can stand for
        if isinstance(column := columns.get(name), Numeric):
            columns[name] = dataclasses.replace(column, missing=False)
    used = {
        role: declared_column(parsed, columns, name)
        for role, name in {"y": parsed.response, **roles}.items()
    }
    needed = [role for role in family.extras if role not in (*family.optional, *roles)]
    if needed:
        raise _validate.ArgumentError(
            needed[0], None, f"must name a column, because the family is {family.name}."
        )
    design = design_of(parsed, Schema(columns))
    if named is not None:
        design = design.orthogonal(named)
    names = {
        parsed.response,
        *roles.values(),
        *(() if design.schema is None else design.schema.columns),
    }
    if names == {parsed.response}:  # a table has one column besides, which the model does not see
        names |= set([name for name in columns if name != parsed.response][:1])
    response = dataclasses.replace(
        _response(parsed.response, used, family), through_origin=not design.block.has_constant
    )
    family.check(response)
    of_design = () if design.schema is None else design.schema.columns
    for name in (parsed.response, *roles.values()):
        if (
            name in of_design
        ):  # a value that is cut together with another would change as a column of the design, too
            raise refused(
                parsed.text,
                f"has {name!r} on both sides of the ~; for a column of the design pass a copy of "
                "it.",
            )
    has_predictor = (
        (design.block.intercept and family.has_intercept) or design.block.columns or design.groups
    )
    if not has_predictor and not family.parameters(response):
        raise refused(
            parsed.text,
            "leaves nothing to learn: add a column, or leave out the 0 for an intercept.",
        )
    _check_names(parsed, design, family, response)
    design.announce(has_cutpoints=not family.has_intercept)
    used_schema = Schema({name: column for name, column in columns.items() if name in names})
    if len(used_schema.columns) < 2:
        words = (
            "needs one more declared column of the table besides the response, which the model "
            "does not use."
        )
        raise refused(parsed.text, words)
    return Columns(design, family, response, used_schema, roles)


def _check_names(parsed: Parsed, design: Design, family: Family, response: Response) -> None:
    taken = {
        "x",
        "y",
        "weights",
        "intercept",
        "mean_intercept",
        "mean_weights",
        "records",
        *family.extras,
        *family.parameters(response),
    }
    for effects in design.groups:
        # arrays and sites
        names = {
            effects.name,
            *(f"{effects.name}_{suffix}" for suffix in ("x", "sd", "mean", "contrasts")),
        }
        if names & taken:
            raise refused(
                parsed.text,
                f"has groups of {effects.name!r}, for which the model needs the name "
                f"{min(names & taken)!r}, and it has that already: rename the column.",
            )
        taken |= names


def _status(name: str, column: Column) -> Boolean | Categorical:
    """The column that says whether an event was seen: bool, or two levels, of which the second is
    the event.
    """
    levels = level_names(column)
    if isinstance(column, Numeric) and (column.low, column.high) == (0, 1):
        levels = ("0", "1")
    if isinstance(column, Boolean):
        return column
    if levels == _CENSORED[:1]:  # a time that is cut to its bound is censored
        return Categorical(_CENSORED)
    if levels is None or len(levels) != 2 or getattr(column, "other", False):
        raise _validate.ArgumentError(
            f"schema[{name!r}]",
            None if levels is None else list(levels),
            "must be bool, where True or 1 is an event, or have two levels, of which the second "
            "is the event, such as ['alive', 'dead']; (1, 2, int) is 1 for a censored time and 2 "
            "for an event.",
            code=DECLARATION,
        )
    return column if isinstance(column, Categorical) else Categorical(levels)


def _censored(parsed: Parsed, columns: Mapping[str, Column], name: str) -> str:
    """The column of ``censored(time, status)``, whose values are bambi's words."""
    column = declared_column(parsed, columns, name)
    if (
        not isinstance(column, Categorical)
        or not set(column.labels) <= set(_CENSORED)
        or "none" not in column.labels
    ):
        raise refused(
            parsed.text,
            f"has censored(..., {name}), where {name} must be declared as ['none', 'right']. For "
            f"a column that is 1 where the event was seen write Surv({parsed.response}, {name}).",
        )
    return name


def _response(name: str, used: Mapping[str, Column], family: Family) -> Response:
    column = used["y"]
    extras = {
        role: (declared.low, declared.high)
        for role, declared in used.items()
        if role != "y" and isinstance(declared, Numeric)
    }
    extras.pop("observed", None)
    levels = level_names(column)
    if isinstance(column, Numeric) and (
        family.kind != "class" or (column.low, column.high) == (0, 1) or levels is None
    ):
        return Response(name, column.low, column.high, extras=extras)
    if isinstance(column, Boolean) and family.name == "bernoulli":
        return Response(name, 0, 1, extras=extras)
    return Response(name, levels=levels or (), extras=extras)


def schema_of(dataset: Dataset) -> Schema:
    """What a data set declares, its target and groups among it. :raises ArgumentError: naming
    ``data``.
    """
    if dataset.schema is None:
        raise _validate.ArgumentError(
            "data", dataset.name, "must be a table with declared columns."
        )
    columns: dict[str, Column] = dict(dataset.schema.columns)
    if dataset.group_name:
        columns[dataset.group_name] = Categorical(dataset.groups)
    if dataset.target_bounds is not None:
        columns[dataset.target_name] = Numeric(*dataset.target_bounds)
    elif dataset.classes:
        columns[dataset.target_name] = Categorical(dataset.classes)
    return Schema(columns)
