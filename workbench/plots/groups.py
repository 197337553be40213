"""Effects of groups plotted against a public feature of the groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from workbench._intervals import narrowest_interval
from workbench._validate import ArgumentError
from workbench.plots._arrays import Shapes
from workbench.plots.style import (
    COLOURS,
    INK,
    WIDTH,
    annotate_apart,
    dress,
    legend_above,
    new_figure,
    short_names,
    use_line,
)

__all__ = ["group_effects_figure"]

_MOST_NAMED = 12


def group_effects_figure(
    effects: ArrayLike,
    group_feature: ArrayLike,
    label: str,
    *,
    fitted: ArrayLike | None = None,
    grid: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    xlabel: str = "group feature",
    ylabel: str = "effect of the group",
    title: str = "effects of groups",
    probability: float = 0.9,
) -> Figure:
    """Effects of groups with intervals, plotted against a public feature of the groups; 7.0 x 4.2
    inches.

    >>> effects = np.random.normal([0.2, 0.5, 1.1], 0.3, (1000, 3))
    >>> figure = wb.plots.group_effects_figure(
    ...     effects, [1, 2, 3], "covered", names=["a", "b", "c"]
    ... )

    :param effects: float[draws, groups], draws of one coefficient for each group.
    :param group_feature: float[groups].
    :param fitted: float[draws, points], draws of the regression line at ``grid``; None for no line.
    :param grid: float[points], increasing.
    :param names: of the groups; shown if there are at most 12.
    :param probability: of the intervals and the line's band, which are the narrowest ones.
    :raises ArgumentError: if lengths disagree, a value is not finite, or one of ``fitted`` and
        ``grid`` is missing.
    """
    shapes = Shapes()
    draws = shapes.array("effects", effects, "draws", "groups")
    x = shapes.array("group_feature", group_feature, "groups")
    group_names = shapes.names("names", names, "groups", "group ")
    if (fitted is None) != (grid is None):
        raise ArgumentError(
            "grid" if grid is None else "fitted", None, "pass both fitted and grid, or neither."
        )
    figure = new_figure(WIDTH, 4.2, title, use_line(label))
    axes = dress(figure.add_subplot(), "", xlabel, ylabel)
    words = f"{100 * probability:g} % interval"
    if fitted is not None and grid is not None:
        lines = Shapes()
        curves, at = (
            lines.array("fitted", fitted, "draws", "points"),
            lines.array("grid", grid, "points", increases=True),
        )
        axes.plot(
            at,
            curves.mean(axis=0),
            color=COLOURS[1],
            linewidth=1.8,
            linestyle="--",
            label="regression on the feature",
        )
        axes.fill_between(
            at,
            *narrowest_interval(curves, probability),
            color=COLOURS[1],
            alpha=0.18,
            linewidth=0,
            label=f"its {words}",
        )
    axes.axhline(0, color=INK, linewidth=0.8)
    means, (low, high) = draws.mean(axis=0), narrowest_interval(draws, probability)
    axes.vlines(x, low, high, color=COLOURS[0], linewidth=1.6)
    axes.plot(
        x,
        means,
        linestyle="none",
        marker="o",
        markersize=5.5,
        color=COLOURS[0],
        label=f"group: mean and {words}",
    )
    axes.margins(x=0.08)
    legend_above(axes)
    if len(x) <= _MOST_NAMED:
        ends = np.column_stack([x, low]), np.column_stack([x, high])
        annotate_apart(axes, np.column_stack([x, means]), short_names(group_names, 22), bars=ends)
    return figure
