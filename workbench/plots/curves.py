"""Training curves, drawn once and then updated in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from workbench.plots.metrics import limits, score_name, title_of
from workbench.plots.style import COLOURS, INK, LINES, MARKERS, WIDTH, dress, legend_above, new_figure, plain

__all__ = ["TrainingCurves", "training_figure", "two_runs_figure"]


class Point(Protocol):
    """Metrics at one step of a run, such as a ``results.HistoryPoint``."""

    @property
    def step(self) -> int: ...
    @property
    def metrics(self) -> Mapping[str, float]: ...


class TrainingCurves:
    """ELBO and one score over steps, in a Figure with two panels, 7.0 x 2.85 inches.

    The score is ``score_name`` of the first point that has one.

    >>> curves = wb.plots.TrainingCurves(100, "public data")
    >>> point = wb.results.HistoryPoint
    >>> curves.draw([point(0, {"elbo": -0.7}), point(100, {"elbo": -0.2})])
    >>> len(curves.figure.axes)
    2

    :param steps: the right end of the x axes; 0 for empty panels.
    :param label: of the metrics, shown in the figure: "public data" or "outside the guarantee".
    """

    def __init__(self, steps: int, label: str) -> None:
        self.figure = new_figure(WIDTH, 2.85)
        # These margins suit every label. Computing a layout would take half of a frame's time.
        self.figure.set_layout_engine(None)
        self.figure.subplots_adjust(left=0.085, right=0.975, bottom=0.17, top=0.8, wspace=0.22)
        self._heading = self.figure.suptitle("", fontsize=10, color=INK, x=0.01, ha="left")
        self._label = label
        self._panels = [self._panel(1, steps, COLOURS[0]), self._panel(2, steps, COLOURS[1])]
        self._panels[0][0].set_title(title_of("elbo"), fontsize=9.5, loc="left", color=INK)
        self._score = ""  # the metric of the second panel
        self.draw(())

    def _panel(self, place: int, steps: int, colour: str) -> tuple[Axes, Line2D, Line2D]:
        axes = dress(self.figure.add_subplot(1, 2, place), "", "step")
        axes.set_xlim(0, max(steps, 1))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        (line,) = axes.plot([], [], color=colour, linewidth=1.6, marker="o", markersize=2.5)
        (tip,) = axes.plot([], [], color=colour, marker="o", markersize=5, linestyle="none")
        axes.set_yticks([])  # until there are values
        if not steps:
            axes.set_xticks([])
        return axes, line, tip

    def draw(self, history: Sequence[Point], note: str = "") -> None:
        """Show ``history``, and ``note`` beside the label above the panels."""
        self._choose_score(history)
        for name, (axes, line, tip) in zip(("elbo", self._score), self._panels, strict=True):
            points = [(point.step, point.metrics[name]) for point in history if name in point.metrics]
            steps, values = [step for step, _ in points], [value for _, value in points]
            line.set_data(steps, values)
            tip.set_data(steps[-1:], values[-1:])
            values = [value for value in values if math.isfinite(value)]
            if values:
                axes.yaxis.set_major_locator(MaxNLocator(6))
                axes.set_ylim(*limits(name, values))
        self._heading.set_text(f"curves: {self._label}" + (f"   ·   {note}" if note else ""))

    def _choose_score(self, history: Sequence[Point]) -> None:
        """Choose the second panel's score from the first point that has one; until then its title is empty."""
        for point in history if not self._score else ():
            self._score = score_name(point.metrics)
            if self._score:
                self._panels[1][0].set_title(plain(title_of(self._score)), fontsize=9.5, loc="left", color=INK)
                return


def training_figure(result: Any) -> Figure:
    """The training curves of a finished fit.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> figure = wb.plots.training_figure(result)

    :param result: a ``FitResult``.
    """
    guarantee = result.guarantee
    curves = TrainingCurves(guarantee.steps_taken, result.metrics_label)
    stopped = "" if result.status == "done" else f", {result.status} at step {guarantee.steps_taken:,}"
    curves.draw(result.history, f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}{stopped}")
    return curves.figure


def two_runs_figure(results: Mapping[str, Any]) -> Figure:
    """ELBO and score of several runs in one figure; 7.0 x 3.0 inches.

    Runs with different scores are compared only by their ELBO.

    :param results: two to four ``FitResult``, by the name that the legend shows.
    """
    labels = {result.metrics_label for result in results.values()}
    label = "outside the guarantee" if "outside the guarantee" in labels else "public data"
    figure = new_figure(WIDTH, 3.0, use=f"curves: {label}")
    scores = {score_name(result.metrics) for result in results.values()}
    shown = ["elbo", *(scores if len(scores) == 1 else ())]
    for place, metric in enumerate(name for name in shown if name):
        axes = dress(figure.add_subplot(1, len(shown), place + 1), "", "step")
        drawn = []
        for number, (name, result) in enumerate(results.items()):
            points = [(point.step, point.metrics[metric]) for point in result.history if metric in point.metrics]
            drawn += [value for _, value in points[len(points) // 10 :] if math.isfinite(value)]
            axes.plot(
                *(zip(*points, strict=True) if points else ([], [])), color=COLOURS[number], linestyle=LINES[number],
                linewidth=1.6, label=name, marker=MARKERS[number], markersize=4, markevery=max(1, len(points) // 8),
            )  # fmt: skip
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.xaxis.set_major_locator(MaxNLocator(5))
        if drawn:
            axes.set_ylim(*limits(metric, drawn))
        axes.set_title(plain(title_of(metric)), fontsize=9.5, loc="left", color=INK, pad=20)
        legend_above(axes, width=WIDTH / 2)
    return figure
