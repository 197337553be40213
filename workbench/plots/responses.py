"""Figures of a regression's response: effects of columns, and checks of counts, levels and times
against records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from workbench._intervals import narrowest_interval
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes
from workbench.plots.style import (
    BAND,
    COLOURS,
    INK,
    LINES,
    MARKERS,
    WIDTH,
    dress,
    label_ticks,
    legend_above,
    new_figure,
    plain,
    short_names,
    use_line,
)

__all__ = ["effect_figure", "proportions_figure", "rootogram_figure", "survival_check_figure"]

_MOST_SERIES, _MOST_BARS = 5, 40
_MOST_LEVELS = 30  # of an axis


def effect_figure(
    values: Sequence[Any],
    draws: ArrayLike,
    label: str,
    *,
    series: Sequence[str] | None = None,
    xlabel: str = "",
    ylabel: str = "expected response",
    title: str = "effect",
    probability: float = 0.9,
) -> Figure:
    """Expected responses over the values of one column: lines with bands for numbers, points with
    intervals for levels; 7.0 x 3.9 inches.

    >>> draws = np.random.normal([1.0, 1.5, 2.5], 0.2, (500, 3))
    >>> figure = wb.plots.effect_figure([20, 40, 60], draws, "covered", xlabel="age")

    :param values: numbers that increase, or levels, at most 30.
    :param draws: float[draws, values], or float[draws, values, series], for at most five series.
    :param label: as in all figures.
    :param series: names of the series, such as classes or levels of another column.
    :param probability: of the intervals, which are the narrowest ones.
    :raises ArgumentError: if lengths disagree, a value is not finite, or there are too many levels
        or series.
    """
    shapes = Shapes()
    array = np.asarray(draws, np.float64)
    array = shapes.array(
        "draws", array[..., None] if array.ndim == 2 else array, "draws", "values", "series"
    )
    names = short_names(shapes.names("series", series, "series", "series "), 24)
    if len(names) > _MOST_SERIES:
        raise ArgumentError("series", len(names), f"must be at most {_MOST_SERIES}.")
    is_numeric = all(
        isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        for value in values
    )
    positions = (
        shapes.array("values", values, "values", increases=True)
        if is_numeric
        else np.arange(len(values), dtype=float)
    )
    if len(values) != array.shape[1]:
        raise ArgumentError("values", len(values), f"must be {array.shape[1]}, as in draws.")
    if not is_numeric and len(values) > _MOST_LEVELS:
        raise ArgumentError("values", len(values), f"must be at most {_MOST_LEVELS} levels.")
    words = f"mean and {100 * probability:g} % interval"
    heading = f"{title}: {words}" if len(names) > 1 else title
    figure = new_figure(WIDTH, 3.9, heading, use_line(label))
    axes = dress(figure.add_subplot(), "", plain(xlabel), plain(ylabel))
    means, (low, high) = array.mean(axis=0), narrowest_interval(array, probability)
    for index, name in enumerate(names):
        style: dict[str, Any] = {
            "color": COLOURS[index],
            "label": plain(name) if len(names) > 1 else words,
        }
        ends = low[:, index], high[:, index]
        if is_numeric:
            axes.fill_between(positions, *ends, color=COLOURS[index], alpha=0.18, linewidth=0)
            axes.plot(positions, means[:, index], linewidth=1.8, linestyle=LINES[index], **style)
        else:
            at = positions + 0.14 * (index - (len(names) - 1) / 2)
            axes.vlines(at, *ends, color=COLOURS[index], linewidth=1.8)
            axes.plot(
                at, means[:, index], linestyle="none", marker=MARKERS[index], markersize=6, **style
            )
    if is_numeric:
        axes.set_xlim(positions[0], positions[-1])
    else:
        _label_levels(axes, [str(value) for value in values])
    legend_above(axes)
    return figure


def rootogram_figure(
    observed: ArrayLike,
    replicated: ArrayLike,
    label: str,
    *,
    xlabel: str = "count",
    title: str = "",
) -> Figure:
    """A hanging rootogram: square roots of how often each count was observed hang from those of how
    often the model expects it; 7.0 x 3.9 inches.

    A bar that hangs too low shows a count that occurred more often than expected. Feet of the bars
    of 90 % of the replicated data sets lie in the band. With more than 40 counts, ranges of equal
    width are shown.

    >>> counts = np.random.poisson(3.0, (51, 200))
    >>> figure = wb.plots.rootogram_figure(counts[0], counts[1:], "public data")

    :param observed: whole numbers of at least 0, [records].
    :param replicated: the same from the model, [draws, records].
    :param label: of the records.
    :raises ArgumentError: if shapes disagree, or a value is no count.
    """
    shapes = Shapes()
    ours = shapes.array("observed", observed, "records", at_least=0)
    theirs = shapes.array("replicated", replicated, "draws", "records", at_least=0)
    for name, counts in (("observed", ours), ("replicated", theirs)):
        if (counts != np.floor(counts)).any():
            raise ArgumentError(name, counts, "must contain only whole numbers.")
    top = int(max(ours.max(), np.quantile(theirs, 0.995)))
    width = math.ceil((top + 1) / _MOST_BARS)
    edges = np.arange(0, top + width + 1, width) - 0.5
    frequency = np.histogram(ours, edges)[0]
    copies = np.stack([np.histogram(copy, edges)[0] for copy in theirs])
    expected = np.sqrt(copies.mean(axis=0))
    feet, bands = (
        expected - np.sqrt(frequency),
        np.quantile(expected - np.sqrt(copies), (0.05, 0.95), axis=0),
    )
    figure = new_figure(
        WIDTH, 3.9, title or "posterior predictive check: rootogram", use_line(label)
    )
    axes = dress(figure.add_subplot(), "", plain(xlabel), "square root of frequency")
    axes.axhline(0, color=INK, linewidth=1)
    middles = edges[:-1] + width / 2
    axes.stairs(
        bands[1],
        edges,
        baseline=bands[0],
        fill=True,
        color=BAND,
        alpha=0.75,
        zorder=1,
        label="feet in 90 % of replicated data sets",
    )
    axes.bar(
        middles,
        np.sqrt(frequency),
        0.62 * width,
        bottom=feet,
        color=COLOURS[0],
        alpha=0.55,
        edgecolor=COLOURS[0],
        zorder=2,
        label="observed, hanging from the expected",
    )
    axes.plot(
        middles,
        expected,
        color=COLOURS[1],
        marker="o",
        markersize=3.5,
        linewidth=1.6,
        zorder=3,
        label="expected",
    )
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    axes.set_xlim(edges[0] - 0.5, edges[-1] + 0.5)
    lowest, highest = min(feet.min(), bands[0].min()), max(expected.max(), bands[1].max())
    axes.set_ylim(lowest - 0.04 * (highest - lowest), highest + 0.04 * (highest - lowest))
    legend_above(axes)
    return figure


def proportions_figure(
    observed: ArrayLike, replicated: ArrayLike, names: Sequence[str], label: str, *, title: str = ""
) -> Figure:
    """The share of records in each class, beside its range in replicated data sets; 7.0 x 3.5
    inches.

    >>> classes = np.random.randint(0, 3, (51, 200))
    >>> figure = wb.plots.proportions_figure(
    ...     classes[0], classes[1:], ["a", "b", "c"], "public data"
    ... )

    :param observed: codes of the classes, int[records].
    :param replicated: the same from the model, int[draws, records].
    :param names: of the classes, at most 30.
    :param label: of the records.
    :raises ArgumentError: if shapes disagree, or a code has no class.
    """
    shapes = Shapes()
    ours = shapes.array("observed", observed, "records", at_least=0, at_most=len(names) - 1)
    theirs = shapes.array(
        "replicated", replicated, "draws", "records", at_least=0, at_most=len(names) - 1
    )
    if len(names) > _MOST_LEVELS:
        raise ArgumentError("names", len(names), f"must be at most {_MOST_LEVELS}.")
    kinds = np.arange(len(names))
    frequencies = (ours[:, None] == kinds).mean(axis=0)
    copies = np.stack([(copy[:, None] == kinds).mean(axis=0) for copy in theirs])
    low, middle, high = np.quantile(copies, (0.05, 0.5, 0.95), axis=0)
    figure = new_figure(
        WIDTH, 3.5, title or "posterior predictive check: proportions", use_line(label)
    )
    axes = dress(figure.add_subplot(), "", "", "share of the records")
    axes.bar(kinds, high - low, 0.5, bottom=low, color=BAND, label="90 % of replicated data sets")
    axes.hlines(
        middle,
        kinds - 0.25,
        kinds + 0.25,
        color=COLOURS[0],
        linewidth=1.6,
        linestyle="--",
        label="their median",
    )
    axes.plot(
        kinds,
        frequencies,
        linestyle="none",
        marker="o",
        markersize=7,
        color=COLOURS[1],
        label="observed",
    )
    _label_levels(axes, list(names))
    axes.set_ylim(0, 1.08 * max(high.max(), frequencies.max()))
    legend_above(axes)
    return figure


def _label_levels(axes: Axes, names: list[str]) -> None:
    """An x axis of levels at 0, 1, ..., whose names are upright only where there is room."""
    label_ticks(axes, range(len(names)), short_names(names, 60 // max(3, len(names)) + 6), "x")
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.grid(visible=False, axis="x")
    if len(names) > 8:
        axes.tick_params(axis="x", labelrotation=45)


def survival_check_figure(
    times: ArrayLike,
    observed: ArrayLike,
    grid: ArrayLike,
    curves: ArrayLike,
    label: str,
    *,
    xlabel: str = "time",
    title: str = "",
) -> Figure:
    """The Kaplan-Meier estimate of records over the model's mean survival curve of them; 7.0 x 3.9
    inches.

    >>> times, grid = np.random.exponential(10.0, 200), np.linspace(0, 60, 61)
    >>> curves = np.exp(-grid / np.random.normal(10.0, 0.5, (100, 1)))
    >>> figure = wb.plots.survival_check_figure(
    ...     times, np.ones(200), grid, curves, "public data"
    ... )

    :param times: positive numbers, [records].
    :param observed: 1 where the event was seen, 0 where the time was censored.
    :param grid: increasing times, [points].
    :param curves: probabilities of no event until then, averaged over the records, float[draws,
        points].
    :param label: of the records.
    :raises ArgumentError: if shapes disagree, or a value is no time or no probability.
    """
    shapes = Shapes()
    ends = shapes.array("times", times, "records", at_least=0)
    is_event = shapes.array("observed", observed, "records", at_least=0, at_most=1)
    at = shapes.array("grid", grid, "points", at_least=0, increases=True)
    lines = shapes.array("curves", curves, "draws", "points", at_least=0, at_most=1)
    figure = new_figure(
        WIDTH, 3.9, title or "posterior predictive check: survival", use_line(label)
    )
    axes = dress(figure.add_subplot(), "", plain(xlabel), "share without an event")
    low, high = narrowest_interval(lines)
    axes.fill_between(
        at, low, high, color=BAND, alpha=0.75, linewidth=0, label="model: 90 % interval"
    )
    axes.plot(
        at, lines.mean(axis=0), color=COLOURS[0], linewidth=1.6, linestyle="--", label="model: mean"
    )
    _kaplan_meier(axes, ends, is_event > 0)
    axes.set(ylim=(0, 1.02), xlim=(0, at[-1]))
    legend_above(axes)
    return figure


def _kaplan_meier(axes: Axes, times: np.ndarray, is_event: np.ndarray) -> None:
    from scipy.stats import CensoredData, ecdf  # takes long to import

    estimate = ecdf(CensoredData.right_censored(times, ~is_event)).sf
    axes.step(
        np.append(0.0, estimate.quantiles),
        np.append(1.0, estimate.probabilities),
        where="post",
        color=COLOURS[1],
        linewidth=1.8,
        label="records (Kaplan-Meier)",
    )
    censored = times[~is_event]
    if censored.size:
        axes.plot(
            censored,
            estimate.evaluate(censored),
            linestyle="none",
            marker="|",
            markersize=6,
            color=COLOURS[1],
            label="censored",
        )
