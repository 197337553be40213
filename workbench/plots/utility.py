"""Figures of experiments: utility over epsilon, trends, and coverage over the clipping norm."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from workbench import _validate
from workbench._lazy import pd
from workbench._validate import ArgumentError
from workbench.plots._arrays import columns_of
from workbench.plots.style import (
    COLOURS,
    INK,
    LINES,
    MARKERS,
    WIDTH,
    dress,
    label_ticks,
    legend_above,
    new_figure,
    shortened,
    use_line,
    whole_ticks,
)

__all__ = ["calibration_figure", "trend_figure", "utility_figure"]

_FEWEST_BOXED = 5  # runs; fewer are shown as points
_MOST_SERIES = 8
_BASELINES = ((0, (7, 3)), (0, (2, 2)), (0, (7, 2, 1, 2)), (0, (1, 3)))


def utility_figure(
    table: pd.DataFrame,
    metric: str,
    label: str,
    *,
    baselines: Mapping[str, float] | None = None,
    ylabel: str = "",
    title: str = "",
    logx: bool = True,
) -> Figure:
    """A metric over epsilon for several methods, with lines for baselines; 7.0 x 4.0 inches.

    If every level of every method has at least five runs, they are shown as box plots (whiskers to
    the farthest runs within 1.5 interquartile ranges, other runs as points); else each run is a
    dash. A line connects the means. Columns ``{metric}_low`` and ``{metric}_high`` are ends of
    intervals, drawn beside dashes.

    >>> table = pd.DataFrame(
    ...     {"epsilon": [1, 2, 4], "method": "aligned", "auc": [0.95, 0.97, 0.98]}
    ... )
    >>> figure = wb.plots.utility_figure(
    ...     table, "auc", "public data", baselines={"non-private": 0.99}
    ... )

    :param table: one row per run; columns "epsilon", "method" and ``metric``. An infinite epsilon
        means no noise.
    :param baselines: values of methods without epsilon, by name.
    :param logx: True to space the levels of epsilon evenly, in order; False for a linear axis
        (finite levels only).
    :raises ArgumentError: if a column is missing or not finite, or there are more than eight
        methods.
    """
    columns_of("table", table, ("epsilon", metric), may_be_infinite=("epsilon",))
    columns_of("table", table, ("method",), numbers=False)
    lines = {
        name: _validate.number(f"baselines[{name!r}]", value)
        for name, value in (baselines or {}).items()
    }
    if len(lines) > len(_BASELINES):
        raise ArgumentError(
            "baselines", list(lines), f"must be at most {len(_BASELINES)}, not {len(lines)}."
        )
    methods = _series("table", table, "method")
    levels = sorted({float(level) for level in table["epsilon"]})
    if not logx and math.isinf(levels[-1]):
        raise ArgumentError("logx", logx, "must be True if an epsilon is infinite.")
    positions = dict(zip(levels, range(len(levels)) if logx else levels, strict=True))
    step = 1.0 if logx else min(np.diff(levels), default=1.0)
    width = 0.72 * step / len(methods)
    cells_of = dict(iter(table.groupby(["method", "epsilon"], sort=False)))
    groups = {key: rows[metric].to_numpy(float) for key, rows in cells_of.items()}
    boxed = min(map(len, groups.values())) >= _FEWEST_BOXED
    has_intervals = not boxed and f"{metric}_low" in table
    dashes = (
        "dashes: runs, 90 % intervals; lines: means"
        if has_intervals
        else "dashes: runs; lines: means"
    )
    note = "boxes: quartiles of runs; lines: means" if boxed else dashes
    figure = new_figure(WIDTH, 4.0, title, use_line(label))
    axes = dress(figure.add_subplot(), "", f"epsilon ({note})", ylabel or metric.replace("_", " "))
    axes.grid(visible=False, axis="x")
    handles: list[Any] = []
    for number, method in enumerate(methods):
        shift = (number - (len(methods) - 1) / 2) * width
        cells = [
            (positions[level] + shift, groups[method, level])
            for level in levels
            if (method, level) in groups
        ]
        handles.append(_method(axes, cells, number, 0.82 * width, boxed, shortened(str(method))))
        for level in levels if has_intervals else ():
            if (method, level) in groups:
                rows = cells_of[method, level]
                _intervals(axes, positions[level] + shift, 0.2 * width, rows, metric, number)
    for (name, value), style in zip(lines.items(), _BASELINES, strict=False):
        axes.axhline(value, color=INK, linewidth=1.2, linestyle=style)
        handles.append(
            Line2D(
                [],
                [],
                color=INK,
                linewidth=1.2,
                linestyle=style,
                label=f"{shortened(name)} ({value:.3g})",
            )
        )
    label_ticks(
        axes,
        list(positions.values()),
        ["∞ (no noise)" if math.isinf(level) else f"{level:g}" for level in levels],
        "x",
    )
    axes.set_xlim(min(positions.values()) - 0.55 * step, max(positions.values()) + 0.55 * step)
    for position in list(positions.values())[1:] if logx else ():
        axes.axvline(position - 0.5, color="#e6e9ed", linewidth=0.8, zorder=0)
    legend_above(axes, handles)
    return figure


def trend_figure(
    table: pd.DataFrame,
    x: str,
    y: str,
    by: str,
    label: str,
    *,
    xlabel: str = "",
    ylabel: str = "",
    title: str = "",
    logx: bool = True,
) -> Figure:
    """Mean of ``y`` over ``x`` for each value of ``by``, with bands of one standard deviation; 7.0
    x 3.9 inches. Columns ``{y}_low`` and ``{y}_high`` are ends of runs' intervals, drawn as bars.

    >>> table = pd.DataFrame(
    ...     {"steps": [100, 1000], "auc": [0.95, 0.98], "sampler": "poisson"}
    ... )
    >>> figure = wb.plots.trend_figure(table, "steps", "auc", "sampler", "public data")

    :param table: one row per run; several runs may share ``x`` and ``by``.
    :param logx: whether the x axis is logarithmic; ``x`` must then be above 0.
    :raises ArgumentError: if a column is missing or not finite, or ``by`` has more than eight
        values.
    """
    columns_of("table", table, (x, y))
    columns_of("table", table, (by,), numbers=False)
    if logx and (table[x] <= 0).any():
        raise ArgumentError("table", table, f"column {x!r} must be above 0 for a logarithmic axis.")
    figure = new_figure(WIDTH, 3.9, title, use_line(label))
    axes = dress(
        figure.add_subplot(), "", xlabel or x.replace("_", " "), ylabel or y.replace("_", " ")
    )
    if logx:
        axes.set_xscale("log")
    spread = False
    for number, value in enumerate(_series("table", table, by)):
        runs = table[table[by] == value].groupby(x)[y]
        means, deviations = runs.mean(), runs.std().fillna(0.0)
        at = means.index.to_numpy(float)
        spread = spread or bool((deviations > 0).any())
        axes.fill_between(
            at,
            means - deviations,
            means + deviations,
            color=_colour(number),
            alpha=0.15,
            linewidth=0,
        )
        axes.plot(at, means, label=shortened(_word(by, value)), **_line(number))
        for level, rows in table[table[by] == value].groupby(x) if f"{y}_low" in table else ():
            _intervals(axes, level, 0.0, rows, y, number)
    whole_ticks(axes, sorted({float(value) for value in table[x]}))
    axes.set_xlabel(
        f"{axes.get_xlabel()} (lines: means over "
        f"runs{'; bands: ± 1 standard deviation' if spread else ''}"
        f"{'; bars: 90 % intervals' if f'{y}_low' in table else ''})"
    )
    legend_above(axes)
    return figure


def calibration_figure(
    table: pd.DataFrame,
    label: str,
    *,
    nominal: float = 0.9,
    xlabel: str = "clipping norm",
    title: str = "coverage of posterior intervals",
) -> Figure:
    """How often intervals contain the truth, over the clipping norm, with a line for each epsilon;
    7.0 x 3.9 inches.

    >>> table = pd.DataFrame(
    ...     {"clip": [0.3, 1, 2], "epsilon": 1.0, "coverage": [0.41, 0.63, 0.71]}
    ... )
    >>> figure = wb.plots.calibration_figure(table, "public data")

    :param table: columns "clip", "epsilon", "coverage" (a share) and, if known, "standard_error"
        (for error bars of two).
    :param nominal: the probability that the intervals claim.
    :raises ArgumentError: if a column is missing, not finite or out of range, or there are more
        than eight epsilons.
    """
    errors = "standard_error" in getattr(table, "columns", ())
    columns = ["clip", "coverage", *["standard_error"] * errors]
    columns_of("table", table, ("epsilon", *columns), may_be_infinite=("epsilon",))
    nominal = _validate.probability("nominal", nominal)
    if (table["clip"] <= 0).any() or not table["coverage"].between(0, 1).all():
        raise ArgumentError(
            "table", table, "column 'clip' must be above 0 and 'coverage' in [0, 1]."
        )
    figure = new_figure(WIDTH, 3.9, title, use_line(label))
    axes = dress(
        figure.add_subplot(),
        "",
        f"{xlabel} (bars: ± 2 standard errors)" if errors else xlabel,
        f"coverage of {100 * nominal:g} % intervals",
    )
    axes.set_xscale("log")
    for number, level in enumerate(_series("table", table, "epsilon")):
        rows = table[table["epsilon"] == level].sort_values("clip")
        # so that bars do not overlap
        factor = 1.02 ** (number - (table["epsilon"].nunique() - 1) / 2)
        bars = 2 * rows["standard_error"].to_numpy(float) if errors else None
        words = "epsilon ∞ (no noise)" if math.isinf(level) else f"epsilon {level:g}"
        axes.errorbar(
            rows["clip"] * factor,
            rows["coverage"],
            bars,
            label=words,
            elinewidth=1,
            capsize=2.5,
            **_line(number),
        )
    axes.axhline(
        nominal, color=INK, linewidth=1.3, linestyle=_BASELINES[0], label=f"nominal ({nominal:g})"
    )
    whole_ticks(axes, sorted({float(value) for value in table["clip"]}))
    axes.set_ylim(-0.03, 1.05)
    (*_, nominal_line), *drawn = axes.get_lines(), *axes.containers
    legend_above(axes, [*drawn, nominal_line])
    return figure


def _method(
    axes: Axes,
    cells: Sequence[tuple[float, np.ndarray]],
    number: int,
    width: float,
    boxed: bool,
    name: str,
) -> Line2D:
    """Draw boxes or dashes of one method and the line through its means; return the legend's
    handle.
    """
    colour = _colour(number)
    at, means = [position for position, _ in cells], [float(values.mean()) for _, values in cells]
    if boxed:
        axes.boxplot(
            [values for _, values in cells],
            positions=at,
            widths=width,
            manage_ticks=False,
            patch_artist=True,
            boxprops={"facecolor": "white", "edgecolor": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
            medianprops={"color": colour, "linewidth": 1.8},
            flierprops={
                "marker": ".",
                "markersize": 3,
                "markerfacecolor": colour,
                "markeredgecolor": colour,
            },
        )
    else:
        for position, values in cells:
            axes.plot(
                np.full(len(values), position),
                values,
                linestyle="none",
                marker="_",
                markersize=7,
                color=colour,
                alpha=0.6,
            )
    axes.plot(at, means, **_line(number))
    return Line2D([], [], label=name, **_line(number))


def _intervals(
    axes: Axes, at: float, width: float, rows: pd.DataFrame, metric: str, number: int
) -> None:
    """Draw the interval of each run as a bar. :param width: over which the bars are spread."""
    low, high = rows[f"{metric}_low"], rows[f"{metric}_high"]
    beside = at + width * (np.linspace(-0.5, 0.5, len(rows)) if len(rows) > 1 else np.zeros(1))
    axes.vlines(beside, low, high, color=_colour(number), alpha=0.35, linewidth=1.5)


def _series(name: str, table: pd.DataFrame, column: str) -> list[Any]:
    """Distinct values of ``column``, at most eight. Numbers are sorted; other values keep their
    order.
    """
    values = list(dict.fromkeys(table[column].tolist()))
    if len(values) > _MOST_SERIES:
        raise ArgumentError(
            name,
            table,
            f"column {column!r} has {len(values)} values; a figure can show at most "
            f"{_MOST_SERIES}.",
        )
    return sorted(values) if all(isinstance(value, (int, float)) for value in values) else values


def _line(number: int) -> dict[str, Any]:
    """Style of one series' line: colour, marker and dashes."""
    return {
        "color": _colour(number),
        "marker": MARKERS[number],
        "markersize": 5,
        "linewidth": 1.5,
        "linestyle": LINES[(number + number // len(COLOURS)) % len(LINES)],
    }


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _word(column: str, value: object) -> str:
    """A value of ``column`` for a legend. A number gets the column's name before it."""
    shown = f"{value:g}" if isinstance(value, (int, float)) else str(value)
    return shown if isinstance(value, str) else f"{column.replace('_', ' ')} {shown}"
