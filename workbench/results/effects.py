"""What a fitted regression expects over public values of its columns: effects, comparisons and
intervals of predictions.

Rows are made of declarations alone: the middle of a column's declared range, a category's reference
level. Every number is a function of the release (``result.draws``), so it costs no further privacy
and has the label of the release.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _html, _validate
from workbench._lazy import pd
from workbench.data.preprocessing import listed, text_of
from workbench.data.schema import Boolean, Categorical, Column, Numeric
from workbench.results import summaries

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.formula.model import FormulaModel
    from workbench.results.fit_result import FitResult
    from workbench.results.prediction import Records

__all__ = [
    "Comparisons",
    "Effects",
    "comparisons",
    "effects",
    "formula_of",
    "interval_table",
    "intervals",
]

_POINTS = 41  # of a grid over a declared range
_MOST_ROWS = 2000
_AT_ONCE = 2**24  # numbers of predictions that are held at the same time


@dataclass(frozen=True, eq=False)
class Effects:
    """The expected response over the values of one column; made by ``FitResult.effects``.

    :param column: its name.
    :param values: of the column.
    :param series: classes of the response, or levels of another column.
    :param draws: float[draws, values, series], in the response's own units; probabilities of
        classes.
    :param at: the values of all other columns.
    :param label: as of the release.
    :param table: mean, sd and interval of each.
    :param interval: its probability.
    :param warning: ``FitResult.interval_warning``.
    :param response: what is expected, in words.
    """

    column: str
    values: tuple[Any, ...]
    series: tuple[str, ...]
    draws: np.ndarray
    at: Mapping[str, Any]
    label: str
    table: pd.DataFrame
    interval: float
    warning: str
    response: str

    def plot(self) -> Figure:
        """A figure with bands for numbers, and intervals for levels."""
        from workbench.plots import effect_figure

        return effect_figure(
            self.values,
            self.draws if len(self.series) > 1 else self.draws[..., 0],
            self.label,
            series=self.series if len(self.series) > 1 else None,
            xlabel=self.column,
            ylabel=self.response,
            title=f"effect of {self.column}",
            probability=self.interval,
        )

    def _repr_html_(self) -> str:
        return _html.box(
            self.table.to_html(float_format="{:.4g}".format), _html.quiet(self._words())
        )

    def __repr__(self) -> str:
        return f"{self.table.to_string(float_format='{:.4g}'.format)}\n{self._words()}"

    def _words(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.at.items())
        warning = f" {self.warning}" if self.warning else ""
        quantity = self.response[0].upper() + self.response[1:]
        return f"{quantity} ({self.label}){' at ' + settings if settings else ''}.{warning}"


class Comparisons(Effects):
    """Differences of the expected response between values of one column; made by
    ``FitResult.comparisons``.
    """

    def plot(self) -> Figure:
        """A figure with a row for each difference."""
        from workbench.plots import coefficients_figure

        rows = self.table.set_axis(
            [" ".join(map(str, np.atleast_1d(name))) for name in self.table.index], axis=0
        )
        return coefficients_figure(
            None,
            rows.drop(columns="share above 0"),
            self.label,
            title=f"differences between values of {self.column}",
            xlabel=f"difference of the {self.response}",
            largest_first=False,
            verdict=not self.warning,
        )

    def _words(self) -> str:
        return "Differences of the expected response. " + super()._words()


def effects(
    result: FitResult,
    column: str,
    values: Sequence[Any] | None,
    by: str | None,
    at: Mapping[str, Any] | None,
    interval: float,
    kind: str,
    new_groups: bool = False,
) -> Effects:
    """See ``FitResult.effects``."""
    columns = _columns(result)
    new = dict.fromkeys(_columns_of_groups(result), _validate.flag("new_groups", new_groups))
    chosen = _values_of(columns, column, values, new)
    if by is not None and (by == column or isinstance(columns.get(by), Numeric)):
        raise _validate.ArgumentError("by", by, "must be another column, one of levels.")
    lines = () if by is None else _values_of(columns, by, None)
    draws, classes, fixed = _expected(result, columns, column, chosen, by, lines, at, new)
    if classes and by is not None:
        raise _validate.ArgumentError(
            "by", by, "must be left out: there is a probability for each class already."
        )
    series = classes or tuple(map(str, lines)) or ("",)
    names = {column: chosen} | ({by or "class": series} if len(series) > 1 or by else {})
    table = interval_table(draws, names, interval, kind)
    return Effects(column, chosen, series, draws, fixed, *_facts(result, table, interval))


def comparisons(
    result: FitResult,
    column: str,
    values: Sequence[Any] | None,
    at: Mapping[str, Any] | None,
    interval: float,
    kind: str,
) -> Comparisons:
    """See ``FitResult.comparisons``."""
    columns = _columns(result)
    is_numeric = isinstance(columns.get(column), Numeric)
    if values is None and is_numeric:
        raise _validate.ArgumentError(
            "values", None, f"must be the values of {column} to compare, such as (20, 60)."
        )
    chosen = _values_of(columns, column, values)
    if len(chosen) < 2:
        raise _validate.ArgumentError("values", list(chosen), "must be at least two.")
    draws, classes, fixed = _expected(result, columns, column, chosen, None, (), at)
    pairs = list(itertools.combinations(range(len(chosen)), 2))
    differences = np.stack([draws[:, later] - draws[:, first] for first, later in pairs], axis=1)
    words = tuple(f"{chosen[later]} - {chosen[first]}" for first, later in pairs)
    series = classes or ("",)
    names = {"difference": words} | ({"class": series} if len(series) > 1 else {})
    table = interval_table(differences, names, interval, kind)
    table["share above 0"] = np.mean(differences > 0, axis=0).ravel()
    return Comparisons(column, words, series, differences, fixed, *_facts(result, table, interval))


def intervals(
    result: FitResult, records: Records, interval: float, kind: str, new_groups: bool = False
) -> pd.DataFrame:
    """See ``FitResult.intervals``."""
    from workbench.results.new_groups import predictor_for

    _, inputs, drawn = predictor_for(result, records, new_groups)
    draws = _predicted(result, inputs, drawn)
    classes = _classes(result, draws)
    index = records.index if isinstance(records, pd.DataFrame) else range(draws.shape[1])
    names = {"record": index} | ({"class": classes} if classes else {})
    return interval_table(draws, names, interval, kind)


# ---- rows of declarations ------------------------------------------------------------------------


def formula_of(result: FitResult) -> FormulaModel | None:
    """The model, if it is one of a formula."""
    from workbench.formula.model import FormulaModel

    model = result.predictor.model
    return model if isinstance(model, FormulaModel) else None


def _columns(result: FitResult) -> dict[str, Column]:
    """The declared columns that a prediction takes."""
    model = formula_of(result)
    if model is not None:
        return {name: model.columns.features.columns[name] for name in model.columns.needed}
    schema = result.predictor.schema
    if schema is None:
        raise _validate.ArgumentError(
            "model", result.model, "has no declared columns here: give a table with a schema."
        )
    facts = result.data
    groups: dict[str, Column] = (
        {facts["group"]: Categorical(facts["groups"])} if facts["groups"] else {}
    )
    return {**schema.columns, **groups}


def _middle(column: Column) -> Any:
    """A column's value in the rows of other columns: the middle of its range, its reference level,
    or no.
    """
    if isinstance(column, Numeric):
        return float(np.floor(column.middle)) if column.whole else column.middle
    return False if isinstance(column, Boolean) else column.reference or column.labels[0]


def _columns_of_groups(result: FitResult) -> frozenset[str]:
    """Columns that name groups, which may be ones that were not declared."""
    from workbench.formula.new_groups import columns_of_groups

    model = formula_of(result)
    return frozenset() if model is None else columns_of_groups(model.columns.design)


def _checked(argument: str, column: Column, value: Any, new: bool | None) -> Any:
    """A value of a column, within what is declared.

    :param new: of a column of groups, whether others are allowed; None for other columns.
    """
    if new is not None and not np.isscalar(value) and value is not None:
        raise _validate.ArgumentError(argument, value, "must be a group's name, or None.")
    if new:
        return None if pd.isna(value) else value
    if new is False:
        _check_declared(argument, column, value)
    if isinstance(column, Numeric):
        return _validate.number(argument, value, at_least=column.low, at_most=column.high)
    if isinstance(column, Boolean):
        return _validate.flag(argument, bool(value) if value in (0, 1) else value)
    return _validate.choice(argument, text_of(value), column.labels)


def _check_declared(argument: str, column: Column, value: Any) -> None:
    """:raises ArgumentError: for a group that was not declared."""
    if isinstance(column, Categorical):
        is_declared, groups = text_of(value) in column.labels, listed(column.labels)
    elif isinstance(column, Numeric):
        is_number = isinstance(value, (int, float, np.number))
        is_declared = is_number and column.low <= value <= column.high
        groups = f"{column.low:.12g} to {column.high:.12g}"
    else:
        return
    if not is_declared:
        raise _validate.ArgumentError(
            argument,
            value,
            f"must be a declared group: {groups}.",
            remedy="Pass new_groups=True for another one, or None, a declared one at random.",
        )


def _values_of(
    columns: Mapping[str, Column],
    name: str,
    values: Sequence[Any] | None,
    new: Mapping[str, bool] = MappingProxyType({}),
) -> tuple[Any, ...]:
    """The values of a column to go through; by default all levels, or a grid over the declared
    range.
    """
    if name not in columns:
        raise _validate.unknown_name("column", name, columns)
    column = columns[name]
    if values is not None:
        if isinstance(values, str) or not len(values):
            raise _validate.ArgumentError("values", values, f"must be a list of values of {name}.")
        checked = tuple(_checked("values", column, value, new.get(name)) for value in values)
        if len(set(checked)) < len(checked):
            raise _validate.ArgumentError("values", list(values), "must have each value once.")
        return checked
    if isinstance(column, Numeric):
        grid = np.linspace(column.low, column.high, _POINTS)
        return tuple(np.unique(np.round(grid)).tolist() if column.whole else grid.tolist())
    return (False, True) if isinstance(column, Boolean) else column.labels


def _expected(
    result: FitResult,
    columns: Mapping[str, Column],
    column: str,
    chosen: tuple[Any, ...],
    by: str | None,
    lines: tuple[Any, ...],
    at: Mapping[str, Any] | None,
    new: Mapping[str, bool] = MappingProxyType({}),
) -> tuple[np.ndarray, tuple[str, ...], dict[str, Any]]:
    """(Expected responses, float[draws, values, series]; the classes, if these are the series;
    values of other columns).
    """
    settings = dict(at or {})
    moved = {column, *([by] if by is not None else [])}
    for name in settings:
        if name not in columns:
            raise _validate.unknown_name("at", name, columns)
        if name in moved:
            raise _validate.ArgumentError("at", name, "must be a column that stays the same.")
    fixed = {
        name: _checked(f"at[{name!r}]", columns[name], value, new.get(name))
        for name, value in settings.items()
    }
    unset = {
        name: _middle(declared)
        for name, declared in columns.items()
        if name not in moved and name not in fixed
    }
    model = formula_of(result)
    extras = {} if model is None else dict(model.columns.extras)
    unset |= {name: 1 for role, name in extras.items() if role != "observed" and name in unset}
    frame = pd.DataFrame(
        list(itertools.product(chosen, lines or (None,))), columns=[column, by or "series"]
    )
    frame = frame.assign(
        **{name: [value] * len(frame) for name, value in {**unset, **fixed}.items()}
    )
    if len(frame) > _MOST_ROWS:
        raise _validate.ArgumentError(
            "values", len(frame), f"make more than {_MOST_ROWS} rows; choose fewer."
        )
    inputs, values, typical = _inputs(result, frame, {*moved, *fixed})
    told = {
        name: value for name, value in {**unset, **fixed}.items() if name not in typical
    } | typical
    told.pop(extras.get("observed", ""), None)  # an expected time does not depend on it
    drawn = _predicted(result, inputs, values)
    return drawn.reshape(len(drawn), len(chosen), -1), _classes(result, drawn), told


def _inputs(
    result: FitResult, frame: pd.DataFrame, supplied: set[str]
) -> tuple[tuple[np.ndarray, ...], dict[str, np.ndarray], dict[str, Any]]:
    """(Arrays of a prediction; draws; in words, what stands for columns that are not ``supplied``).

    With a formula, groups that are not known have no effects of their own.
    """
    model, draws = formula_of(result), dict(result.draws)
    if model is None:
        group = result.data["group"]
        if result.data["groups"] and group not in supplied:
            raise _validate.ArgumentError(
                "at", sorted(supplied), f"must name a group: at={{{group!r}: ...}}."
            )
        return result.predictor.inputs(frame), draws, {}
    columns, typical = model.columns, dict[str, Any]()
    new = model.new_groups(frame)
    arrays = new.arrays(columns.inputs(new.frame))
    draws = new.draws(draws)
    for groups in columns.design.groups:
        names = {factor.column for factor in groups.by}
        if not names <= supplied:
            draws[groups.name] = np.zeros_like(draws[groups.name])
            used = {
                name for factor in columns.design.block.factors.values() for name in factor.columns
            }
            typical |= dict.fromkeys(names - supplied - used, "(typical group)")
    return tuple(arrays[name] for name in columns.input_names), draws, typical


# ---- predictions ---------------------------------------------------------------------------------


def _predicted(
    result: FitResult, inputs: tuple[np.ndarray, ...], draws: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Predictions under each draw of the posterior, float64[draws, records, ...]."""
    predictor = result.predictor
    predict, params = predictor.model.predict, predictor.params
    if predict is None or not draws:
        raise _validate.ArgumentError("model", result.model, "has no posterior of predictions.")
    count = min(len(value) for value in draws.values())
    of_draws = jax.jit(
        lambda drawn, arrays: jax.vmap(lambda draw: predict(params | draw, *arrays))(drawn)
    )
    most = max(1, _AT_ONCE // max(1, len(inputs[0])))
    batches = [
        np.asarray(
            of_draws(
                {name: jnp.asarray(value[start : start + most]) for name, value in draws.items()},
                inputs,
            )
        )
        for start in range(0, count, most)
    ]
    return np.concatenate(batches).astype(np.float64)


def _facts(
    result: FitResult, table: pd.DataFrame, interval: float
) -> tuple[str, pd.DataFrame, float, str, str]:
    """The fields of ``Effects`` from ``label`` on."""
    return result.release_label, table, interval, result.interval_warning, _response(result)


def _response(result: FitResult) -> str:
    """What is expected, in words."""
    classes = result.data["classes"]
    if classes:
        return (
            f"probability of {result.data['target']} = {classes[1]}"
            if len(classes) == 2
            else "probability"
        )
    model = formula_of(result)
    return "expected response" if model is None else f"expected {model.columns.response.name}"


def _classes(result: FitResult, draws: np.ndarray) -> tuple[str, ...]:
    """Names of the classes, if predictions are a probability for each; else (). :param draws: with
    an axis of rows.
    """
    count = len(result.data["classes"])
    return (
        tuple(map(str, result.data["classes"]))
        if count and draws.shape[-1] == count and draws.ndim == 3
        else ()
    )


def interval_table(
    draws: np.ndarray, axes: Mapping[str, Iterable[Any]], interval: float, kind: str
) -> pd.DataFrame:
    """Mean, sd and interval of each entry behind the axis of draws.

    :param axes: the entries' names along each further axis.
    """
    flat = draws.reshape(len(draws), -1)
    index = pd.MultiIndex.from_product(axes.values(), names=list(axes))
    entries = index if len(axes) > 1 else index.get_level_values(0)
    return summaries.moments(flat, range(len(entries)), interval, kind).set_axis(entries, axis=0)
