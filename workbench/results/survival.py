"""Survival curves and cumulative incidences of a whole table that was fitted from one release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench import _validate
from workbench.data.schema import Boolean, Categorical, Column, Numeric
from workbench.models.model import CellTable
from workbench.results.effects import Effects, interval_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure

    from workbench.results.fit_result import FitResult

__all__ = ["survival"]

_LEAST = 1e-30  # of a probability by which is divided


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalCurves(Effects):
    """Survival or a cumulative incidence over time; made by ``survival``.

    :param start: the time and the value where all curves begin.
    """

    start: tuple[float, float]

    def plot(self) -> Figure:
        """A figure with a band around each curve."""
        from workbench.plots import effect_figure

        time, value = self.start
        before = np.full_like(self.draws[:, :1], value)
        figure = effect_figure(
            (time, *self.values),
            np.concatenate([before, self.draws], axis=1),
            self.label,
            series=self.series if len(self.series) > 1 else None,
            xlabel=self.column,
            ylabel=self.response,
            title=self.response,
            probability=self.interval,
        )
        figure.axes[0].set_ylim(0, 1)
        return figure


def survival(
    result: FitResult,
    time: str,
    event: str,
    *,
    by: str | None = None,
    cause: str | None = None,
    interval: float = 0.9,
    kind: str = "hdi",
) -> SurvivalCurves:
    """Survival curves, or cumulative incidences of competing causes, of a ``mixed_table`` that
    counts times and events together.

    They are life tables of the posterior's draws, so intervals count sampling and the privacy
    noise. A curve has a value at the end of each bin of the time. The last bin is left out, because
    longer times were cut to the declared range. Records whose time is missing, or whose event is
    "(other)" as it was not declared, are left out, too.

    >>> random = np.random.default_rng(0)
    >>> waited, leaves = random.exponential(4, 900), random.uniform(2, 12, 900)
    >>> frame = pd.DataFrame(
    ...     {"years": np.minimum(waited, leaves), "died": waited < leaves}
    ... )
    >>> schema = {"years": (0, 10), "died": bool}
    >>> data = wb.data.from_frame(frame, schema=schema, evaluation=False)
    >>> model = wb.models.mixed_table([("years", "died")])
    >>> result = wb.fit(model, data, epsilon=1.0, delta=1e-4)
    >>> wb.survival(result, "years", "died").values[:3]
    (1.0, 2.0, 3.0)

    :param time: the column of times until an event, or until somebody was last seen without one.
    :param event: a column of True and False, or of levels: the first one says that nothing was seen
        until then, and the others are causes.
    :param by: another column of levels, with a curve for each of them.
    :param cause: a level of ``event``, for its cumulative incidence among all who start while other
        causes compete; None for survival without any event.
    :param interval: probability, in (0, 1).
    :param kind: as of ``FitResult.summary``.
    :raises ArgumentError: naming a column that is not in the table, or a marginal that it lacks.
    """
    columns = _columns(result)
    for argument, name in (("time", time), ("event", event), ("by", by)):
        if name is not None and name not in columns:
            raise _validate.unknown_name(argument, name, columns)
    if by in (time, event):
        raise _validate.ArgumentError("by", by, "must be another column.")
    if not isinstance(columns[time], Numeric):
        raise _validate.ArgumentError("time", time, "must be a column of numbers.")
    causes = _levels(event, columns[event], "event")[1:]
    if getattr(columns[event], "other", False):  # which says nothing of the event
        causes = causes[:-1]
    groups = () if by is None else _levels(by, columns[by], "by")
    chosen = slice(None)
    if cause is not None:
        index = causes.index(_validate.choice("cause", cause, causes))
        chosen = slice(index, index + 1)
    (start, *ends), joint = _joint(result, [time, event, *([] if by is None else [by])])
    joint = joint.reshape(*joint.shape[:3], -1)[:, : len(ends), : 1 + len(causes)]
    curves = _life_table(joint, chosen, is_incidence=cause is not None)
    # whoever was followed up for longer than the declared range is cut to its end, so the last bin
    # has events that were later
    curves, values = curves[:, :-1], tuple(ends[:-1])
    if not values:
        raise _validate.ArgumentError(
            "time",
            time,
            "has one bin, and the last one is left out: times beyond the bounds were cut to it.",
            remedy="Fit the table with more bins of the time.",
        )
    names = {time: values} | ({by: groups} if by is not None else {})
    table = interval_table(curves, names, interval, kind)
    return SurvivalCurves(
        column=time,
        values=values,
        series=groups or ("",),
        draws=curves,
        at={},
        label=result.release_label,
        table=table,
        interval=interval,
        warning=result.interval_warning,
        response=f"survival without {event}"
        if cause is None
        else f"cumulative incidence of {event} = {cause}",
        start=(start, 1.0 if cause is None else 0.0),
    )


def _columns(result: FitResult) -> Mapping[str, Column]:
    """The columns of a whole table."""
    predictor = result.predictor
    if not isinstance(predictor.model.table, CellTable) or predictor.schema is None:
        raise _validate.ArgumentError(
            "model",
            result.model,
            "has no joint counts of a time and an event.",
            remedy="Fit wb.models.mixed_table([('time', 'event')]) to a table of these columns, or "
            "a regression of Surv(time, event).",
        )
    return predictor.schema.columns


def _levels(name: str, column: Column, argument: str) -> tuple[str, ...]:
    if isinstance(column, Boolean):
        return ("False", "True")
    if isinstance(column, Categorical):
        return tuple(column.labels)
    raise _validate.ArgumentError(
        argument, name, "must be a column of levels, or of True and False."
    )


def _joint(result: FitResult, names: list[str]) -> tuple[list[float], np.ndarray]:
    """(Ends between the bins of the first column; draws of the joint probability, float[draws, bins
    and missing, ...] with an axis for each column).
    """
    columns, levels = _columns(result), result.constants["levels"]
    indices, start = [list(columns).index(name) for name in names], 0
    for clique in result.constants["cliques"]:
        shape = [len(levels[column]["labels"]) for column in clique]
        cells = math.prod(shape)
        if {*indices} <= {*clique}:
            break
        start += cells
    else:
        raise _validate.ArgumentError(
            "by" if len(names) > 2 else "event",
            names[-1],
            "is in no marginal with " + " and ".join(names[:-1]) + ".",
            remedy=f"Fit mixed_table with the marginal {tuple(names)}.",
        )
    table = result.predictor.model.table
    assert isinstance(table, CellTable)
    drawn = result.draws[table.site][:, start : start + cells]
    axes = [clique.index(index) + 1 for index in indices]
    joint = np.moveaxis(drawn.reshape(len(drawn), *shape), axes, range(1, len(axes) + 1))
    joint = joint.sum(axis=tuple(range(len(axes) + 1, joint.ndim)))
    time = columns[names[0]]
    assert isinstance(time, Numeric)
    return _ends(time, levels[indices[0]]), joint


def _ends(column: Numeric, level: Mapping[str, Any]) -> list[float]:
    """Where a column's bins begin and end, in its own units; of whole numbers the last one in each
    bin.
    """
    widths = np.array([width for width in level["widths"] if width > 0])
    lows = np.array([features[0] for features in level["features"][: len(widths)]])
    ends = column.middle + column.reach * np.append(lows[:1], lows + widths)
    # encoded edges are off by rounding alone
    ends = np.round(ends, 9 - math.ceil(math.log10(column.high - column.low)))
    return (np.floor(ends) if column.whole else ends).tolist()


def _life_table(joint: np.ndarray, causes: slice, *, is_incidence: bool) -> np.ndarray:
    """Survival, or the cumulative incidence of some causes, at the ends of bins, float[draws, bins,
    groups]. Whoever was censored in a bin counts as at risk for half of it.

    :param joint: float[draws, bins, censored or causes, groups].
    """
    censored, events = joint[:, :, 0], joint[:, :, 1:]
    ended = joint.sum(axis=2)
    at_risk = np.cumsum(ended[:, ::-1], axis=1)[:, ::-1] - censored / 2
    hazard = events / np.maximum(at_risk, _LEAST)[:, :, None]
    survived = np.cumprod(1 - hazard.sum(axis=2), axis=1)
    if not is_incidence:
        return survived
    before = np.concatenate([np.ones_like(survived[:, :1]), survived[:, :-1]], axis=1)
    return np.cumsum(before * hazard[:, :, causes].sum(axis=2), axis=1)
