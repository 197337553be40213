"""Figures of posteriors: intervals, pairs of scalars and coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from workbench._intervals import narrowest_interval
from workbench._lazy import pd
from workbench._numbers import decimals, fixed
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes, columns_of, interval_columns
from workbench.plots.style import (
    COLOURS,
    INK,
    LARGE_ENOUGH,
    MARKERS,
    QUIET,
    SHADE,
    WIDTH,
    dress,
    label_ticks,
    largest,
    legend_above,
    new_figure,
    plain,
    short_names,
    use_line,
    wrapped,
)

__all__ = ["answers_figure", "coefficients_figure", "forest_figure", "pair_figure"]

_MOST_PAIRED = 6
_MOST_POINTS = 1000  # in a scatter plot
_ROW = 0.21  # inches
_LINE = 0.65  # height of each further line of a name, in rows
_WIDE, _MOST_LINES = 30, 4  # characters and lines of a row's name


def forest_figure(table: pd.DataFrame, label: str, title: str = "posterior") -> Figure:
    """Mean and interval of every quantity, in the order of ``table``; 7.0 inches wide, 1.1 + 0.21
    per row high (more for names of several lines).

    >>> table = pd.DataFrame(
    ...     {"mean": [1.2], "sd": [0.3], "hdi_90%_low": [0.7], "hdi_90%_high": [1.7]},
    ...     index=["slope"],
    ... )
    >>> figure = wb.plots.forest_figure(table, "covered")

    :param table: rows are quantities; columns are "mean", "sd" and the two ends of an interval,
        such as "hdi_90%_low" and "hdi_90%_high". Only the 60 rows with the largest absolute mean
        are shown; the title says so.
    :param label: "covered", "public data" or "outside the guarantee", as in all figures.
    :raises ArgumentError: if a column is missing or not finite.
    """
    low, high, words = interval_columns("table", table)
    columns_of("table", table, ("mean", "sd", low, high))
    rows = largest(np.abs(table["mean"].to_numpy(float)))
    shown, row_labels = table.iloc[rows], _row_names(list(map(str, table.index)))
    names = [row_labels[row] for row in rows]
    heading = title + _left_out(len(table), "quantities")
    figure = new_figure(WIDTH, 1.1 + _ROW * _heights(names).sum(), heading, use_line(label))
    axes, positions = _rows(figure, names, f"posterior mean and {words}")
    means = shown["mean"].to_numpy(float)
    axes.hlines(
        positions,
        shown[low].to_numpy(float),
        shown[high].to_numpy(float),
        color=COLOURS[0],
        linewidth=2,
    )
    axes.plot(means, positions, linestyle="none", marker="o", markersize=5, color=COLOURS[0])
    deviations = shown["sd"].to_numpy(float)
    texts = [
        f"{fixed(mean, decimals(sd))} ± {fixed(sd, decimals(sd))}"
        for mean, sd in zip(means, deviations, strict=True)
    ]
    _numbers(axes, positions, texts, "mean ± sd")
    _zero_line(axes)
    return figure


def pair_figure(draws: Mapping[str, Any], label: str, title: str = "posterior draws") -> Figure:
    """Every scalar against every other: histograms on the diagonal, draws below it, correlations
    above it.

    At most 1,000 draws, evenly chosen, are plotted. The width is 1.4 inches per scalar, between 4.2
    and 7.0.

    >>> draws = {
    ...     "slope": np.random.normal(size=500),
    ...     "intercept": np.random.normal(size=500),
    ... }
    >>> figure = wb.plots.pair_figure(draws, "covered")

    :param draws: ``{name: float[draws]}``, one to six scalars.
    :raises ArgumentError: for no scalar or more than six, or if the draws are not finite or differ
        in number.
    """
    if not 1 <= len(draws) <= _MOST_PAIRED:
        raise ArgumentError(
            "draws", list(draws), f"must be 1 to {_MOST_PAIRED} scalars, not {len(draws)}."
        )
    shapes = Shapes()
    columns = [shapes.array(f"draws[{name!r}]", value, "draws") for name, value in draws.items()]
    wide = 22 if len(columns) < 5 else 13  # characters beside a panel
    names = [plain(wrapped(name, wide)) for name in short_names(list(draws), 4 * wide)]
    side = min(max(1.4 * len(columns), 4.2), 7.0)
    figure = new_figure(side, side + 0.4, title, use_line(label))
    grid: Any = figure.subplots(len(columns), len(columns), squeeze=False)
    chosen = np.linspace(0, len(columns[0]) - 1, min(len(columns[0]), _MOST_POINTS)).astype(int)
    for row, column in np.ndindex(grid.shape):
        axes = dress(grid[row, column])
        axes.grid(False)
        x, y = columns[column], columns[row]
        if column > row:
            axes.axis("off")
            axes.text(
                0.5,
                0.5,
                _correlation(x, y),
                ha="center",
                va="center",
                fontsize=9,
                color=INK,
                transform=axes.transAxes,
            )
            continue
        if column == row:
            axes.hist(x, bins=24, color=COLOURS[0], edgecolor="white", linewidth=0.3)
            axes.set_yticks([])
            axes.spines["left"].set_visible(False)
        else:
            axes.sharex(grid[column, column])
            axes.plot(
                x[chosen],
                y[chosen],
                linestyle="none",
                marker="o",
                markersize=2.2,
                alpha=0.3,
                color=COLOURS[0],
                mew=0,
            )
            if column > 0:
                axes.tick_params(labelleft=False)
        axes.locator_params(nbins=3)
        axes.tick_params(labelsize=8)
        axes.tick_params(axis="x", rotation=30, labelbottom=row == len(columns) - 1)
        if row == len(columns) - 1:
            axes.set_xlabel(names[column], fontsize=8.5, color=INK)
        if column == 0 and (row > 0 or len(columns) == 1):
            axes.set_ylabel(names[row] if row > 0 else "draws", fontsize=8.5, color=INK)
    return figure


def coefficients_figure(
    names: Sequence[str] | None,
    coefficients: Any,
    label: str,
    *,
    title: str = "coefficients",
    xlabel: str = "logits per unit of the scaled feature",
    probability: float = 0.9,
    largest_first: bool = True,
    verdict: bool = True,
) -> Figure:
    """Coefficients with intervals; 7.0 inches wide, 1.4 + 0.21 per row high (more for names of
    several lines).

    Markers are filled where the interval excludes zero and hollow where it contains zero. Only the
    60 largest coefficients are shown.

    >>> draws = np.random.normal([1.2, -0.4], 0.3, (1000, 2))
    >>> figure = wb.plots.coefficients_figure(["age", "dose"], draws, "covered")

    :param names: of the features; None to use the table's index, or numbers.
    :param coefficients: a table as for ``forest_figure``, or draws, float[draws, features].
    :param probability: of the intervals of draws, which are the narrowest ones.
    :param largest_first: True sorts by absolute mean; False keeps the given order, such as that of
        groups.
    :param verdict: False says of no interval whether it excludes zero, because the intervals are
        known to be too narrow.
    :raises ArgumentError: if lengths disagree or a value is not finite.
    """
    shapes = Shapes()
    if hasattr(coefficients, "columns"):
        low_name, high_name, words = interval_columns("coefficients", coefficients)
        columns_of("coefficients", coefficients, ("mean", low_name, high_name))
        means = shapes.array("coefficients", coefficients["mean"], "features")
        low, high = coefficients[low_name].to_numpy(float), coefficients[high_name].to_numpy(float)
        names = list(map(str, coefficients.index)) if names is None else names
    else:
        draws = shapes.array("coefficients", coefficients, "draws", "features")
        means, (low, high) = draws.mean(axis=0), narrowest_interval(draws, probability)
        words = f"{100 * probability:g} % highest-density interval"
    row_labels = _row_names(shapes.names("names", names, "features", "feature "))
    order = (
        np.argsort(-np.abs(means), kind="stable")[:LARGE_ENOUGH]
        if largest_first
        else largest(np.abs(means))
    )
    heading, rows = (
        title + _left_out(len(means), "coefficients"),
        [row_labels[index] for index in order],
    )
    figure = new_figure(WIDTH, 1.4 + _ROW * _heights(rows).sum(), heading, use_line(label))
    axes, positions = _rows(figure, rows, f"{xlabel}: mean and {words}")
    axes.axvline(0, color=INK, linewidth=1)
    excludes = (low[order] > 0) | (high[order] < 0)
    axes.hlines(positions, low[order], high[order], color=COLOURS[0], linewidth=1.8)
    kinds = [
        (excludes, COLOURS[0], "own interval excludes zero"),
        (~excludes, "white", "contains zero"),
    ]
    if not verdict:
        kinds = [
            (np.ones_like(excludes), COLOURS[0], "the interval does not include the privacy noise")
        ]
    for kind, face, meaning in kinds:
        axes.plot(
            means[order][kind],
            positions[kind],
            linestyle="none",
            marker="o",
            markersize=6,
            markerfacecolor=face,
            markeredgecolor=COLOURS[0],
            markeredgewidth=1.4,
            label=f"{meaning} ({kind.sum()})",
        )
    digits = decimals(float(np.median(high - low)) / 10)
    ends = zip(means[order], low[order], high[order], strict=True)
    _numbers(
        axes,
        positions,
        [f"{fixed(mean, digits)}  [{_end(a, digits)}, {_end(b, digits)}]" for mean, a, b in ends],
        "mean [interval]",
    )
    legend_above(axes)
    return figure


def answers_figure(
    answers: Mapping[str, pd.DataFrame],
    label: str,
    title: str = "answers",
    xlabel: str = "estimate",
) -> Figure:
    """The intervals of the same quantities from several sources, such as twins, the posterior and,
    of public data, the analysis without privacy; 7.0 inches wide, 1.4 + 0.42 per quantity high.

    >>> answer = wb.combine([[0.9], [1.3], [1.0]] * 10, [[[0.01]]] * 30)
    >>> figure = wb.plots.answers_figure({"twins": answer}, "covered")

    :param answers: ``{source: table}``, up to five tables with the same rows, as of ``combine`` or
        ``FitResult.coefficients``; their columns are two ends of an interval, such as "95%_low" and
        "95%_high", and others.
    :param label: of all sources together, so of an analysis without privacy "public data".
    :raises ArgumentError: naming ``answers``, where rows differ or a number is not finite.
    """
    if not answers or len(answers) > len(COLOURS):
        raise ArgumentError("answers", list(answers), "must be one to five tables.")
    names = list(next(iter(answers.values())).index)
    rows = _row_names(list(map(str, names)))
    figure = new_figure(WIDTH, 1.4 + 2 * _ROW * _heights(rows).sum(), title, use_line(label))
    words = {
        source: interval_columns(f"answers[{source!r}]", answers[source]) for source in answers
    }
    level = next(iter(words.values()))[2].partition("%")[0].strip()
    axes, positions = _rows(figure, rows, f"{xlabel} and {level} % interval")
    for number, (source, table) in enumerate(answers.items()):
        if list(table.index) != names:
            raise ArgumentError(
                f"answers[{source!r}]", list(table.index), f"must have the rows {names}."
            )
        low, high, _ = words[source]
        columns_of(f"answers[{source!r}]", table, (low, high))
        ends = table[[low, high]].to_numpy(float)
        axes.errorbar(
            ends.mean(axis=1),
            positions + 0.8 * ((number + 0.5) / len(answers) - 0.5),
            xerr=np.ptp(ends, axis=1) / 2,
            linestyle="",
            marker=MARKERS[number],
            markersize=4.5,
            elinewidth=1.8,
            color=COLOURS[number],
            label=source,
        )
    _zero_line(axes)
    legend_above(axes)
    return figure


def _end(value: float, digits: int) -> str:
    """An end of an interval, with more decimals where it would be 0 in print and is not: the mark
    says if 0 is excluded.
    """
    return fixed(value, digits if round(value, digits) or not value else decimals(abs(value), 1))


def _row_names(names: Sequence[str]) -> list[str]:
    """Names of rows in full, in several lines if they are long; what fills even those
    is shortened.
    """
    return [wrapped(name, _WIDE) for name in short_names(names, _MOST_LINES * _WIDE)]


def _heights(names: Sequence[str]) -> np.ndarray:
    """Heights of the rows, in rows of one line."""
    return np.array([1 + _LINE * name.count("\n") for name in names])


def _rows(figure: Figure, names: Sequence[str], xlabel: str) -> tuple[Axes, np.ndarray]:
    """Axes with a row for each name, the first at the top, and the rows' places. Every other row is
    shaded.
    """
    axes = dress(figure.add_subplot(), "", xlabel)
    axes.grid(visible=False, axis="y")
    heights = _heights(names)
    ends = np.cumsum(heights) - 0.5
    for end, height in zip(ends[::2], heights[::2], strict=True):
        axes.axhspan(end - height, end, color=SHADE, zorder=0, linewidth=0)
    axes.set_ylim(ends[-1], -0.5)
    axes.spines["left"].set_visible(False)
    positions = ends - heights / 2
    label_ticks(axes, positions.tolist(), names)
    return axes, positions


def _numbers(axes: Axes, positions: np.ndarray, texts: Sequence[str], heading: str = "") -> None:
    """Write a text for each row at the right of the axes."""
    for position, text in zip(positions, texts, strict=True):
        axes.text(
            1.015,
            position,
            text,
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=INK,
        )
    if heading:
        axes.annotate(
            heading,
            (1.015, 1),
            xycoords="axes fraction",
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8,
            color=QUIET,
            va="bottom",
        )


def _zero_line(axes: Axes) -> None:
    """Draw a line at zero if zero is inside the axes."""
    low, high = axes.get_xlim()
    if low < 0 < high:
        axes.axvline(0, color=INK, linewidth=1)


def _left_out(count: int, words: str) -> str:
    return (
        ""
        if count <= LARGE_ENOUGH
        else f" ({LARGE_ENOUGH} of {count} {words}: those with the largest absolute mean)"
    )


def _correlation(x: np.ndarray, y: np.ndarray) -> str:
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return "correlation\nunknown"
    return f"correlation\n{fixed(np.corrcoef(x, y)[0, 1], 2)}"
