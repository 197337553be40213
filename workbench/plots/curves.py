"""Training curves: metrics over the steps of one run, or of several."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from workbench._numbers import brief, count
from workbench.plots.metrics import limits, score_name, title_of
from workbench.plots.style import (
    COLOURS,
    HALO,
    INK,
    LINES,
    MARKERS,
    QUIET,
    WIDTH,
    dress,
    legend_above,
    new_figure,
    plain,
    use_line,
)

__all__ = ["training_figure", "two_runs_figure"]


# ``result`` is of a room that comes after this one
def training_figure(result: Any) -> Figure:
    """ELBO and one score over the steps of a fit; 7.0 x 2.85 inches.

    The score is ``metrics.score_name`` of the first point that has one. A line marks where the mean
    of the iterates takes the place of the last one, if the fit averages them.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> figure = wb.plots.training_figure(result)

    :param result: a ``FitResult``.
    """
    guarantee = result.guarantee
    stopped = (
        ""
        if result.status == "done"
        else f", {result.status} at step {count(guarantee.steps_taken)}"
    )
    title = f"{guarantee.label(with_delta=True)}{stopped}"
    if not result.history:
        figure = new_figure(WIDTH, 2.85, title)
        figure.text(
            0.01, 0.5, "No curves: the evaluation records were not used.", fontsize=9, color=INK
        )
        return figure
    figure = new_figure(WIDTH, 2.85, title, use_line(result.metrics_label))
    score = next(filter(None, (score_name(point.metrics) for point in result.history)), "")
    metrics = [
        name for name in ("elbo", score) if any(name in point.metrics for point in result.history)
    ]
    mark = guarantee.steps // 2 if result.settings.get("average") else guarantee.steps
    for number, (metric, colour) in enumerate(zip(metrics, COLOURS, strict=False), start=1):
        axes = _step_axes(figure, number, len(metrics), metric)
        axes.set_xlim(0, max(guarantee.steps_taken, 1))
        points = _points(result, metric)
        axes.plot(
            *zip(*points, strict=True), color=colour, linewidth=1.6, marker="o", markersize=2.5
        )
        axes.plot(*points[-1], color=colour, marker="o", markersize=5, linestyle="none")
        if finite := [value for _, value in points if math.isfinite(value)]:
            axes.set_ylim(*limits(metric, finite))
        if mark < guarantee.steps_taken:
            _mark(axes, mark, "averaging begins")
    return figure


def _points(result: Any, metric: str) -> list[tuple[int, float]]:
    return [
        (point.step, point.metrics[metric]) for point in result.history if metric in point.metrics
    ]


def _step_axes(figure: Figure, number: int, panels: int, metric: str, **title: Any) -> Axes:
    """The axes of one metric over steps."""
    axes = dress(figure.add_subplot(1, panels, number), "", "step")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: brief(step)))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set_title(plain(title_of(metric)), fontsize=9.5, loc="left", color=INK, **title)
    return axes


def _mark(axes: Axes, step: int, words: str) -> None:
    """A vertical line at ``step``, with its meaning beside its lower end."""
    axes.axvline(step, color=QUIET, linewidth=1, linestyle=LINES[1])
    axes.annotate(
        words,
        (step, 0),
        xycoords=axes.get_xaxis_transform(),
        xytext=(3, 4),
        textcoords="offset points",
        fontsize=8,
        color=INK,
        path_effects=HALO,
    )


def two_runs_figure(results: Mapping[str, Any]) -> Figure:
    """ELBO and score of several runs in one figure; 7.0 x 3.0 inches.

    Runs with different scores are compared only by their ELBO.

    :param results: two to four ``FitResult``, by the name that the legend shows.
    """
    labels = {result.metrics_label for result in results.values()}
    label = "outside the guarantee" if "outside the guarantee" in labels else "public data"
    figure = new_figure(WIDTH, 3.0, use=f"curves: {label}")
    scores = {score_name(result.metrics) for result in results.values()}
    shown = ["elbo", *(filter(None, scores) if len(scores) == 1 else ())]
    for panel, metric in enumerate(shown, start=1):
        axes = _step_axes(figure, panel, len(shown), metric, pad=20)
        drawn = []
        for number, (name, result) in enumerate(results.items()):
            points = _points(result, metric)
            drawn += [value for _, value in points[len(points) // 10 :] if math.isfinite(value)]
            axes.plot(
                *(zip(*points, strict=True) if points else ([], [])),
                color=COLOURS[number],
                linestyle=LINES[number],
                linewidth=1.6,
                label=name,
                marker=MARKERS[number],
                markersize=4,
                markevery=max(1, len(points) // 8),
            )
        if drawn:
            axes.set_ylim(*limits(metric, drawn))
        legend_above(axes, width=WIDTH / 2)
    return figure
