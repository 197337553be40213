"""Training curves as matplotlib Figures without pyplot: drawn once, then updated in place."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["INK", "QUIET", "NotebookFigure", "TrainingCurves", "png", "training_figure"]

INK, QUIET = "#1b1f24", "#57606a"
_ELBO, _AUC = "#0550ae", "#953800"
_DOTS_PER_INCH = 120
_SMALLEST_RANGE = 0.02  # of a y axis: smaller changes are not blown up to look large


def png(figure: Figure) -> bytes:
    """``figure`` as PNG bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH)
    return buffer.getvalue()


class NotebookFigure(Figure):
    """A Figure that a notebook shows by itself, without pyplot's inline backend."""

    def _repr_png_(self) -> bytes:
        return png(self)


class TrainingCurves:
    """ELBO and AUC over steps in one Figure of two panels, 7.0 x 2.85 inches.

    :param steps: the width of the x axes.
    :param label: what the curves are: "public data" or "outside the guarantee"; stands in the picture.
    """

    def __init__(self, steps: int, label: str) -> None:
        self.figure = NotebookFigure(figsize=(7.0, 2.85), layout="constrained")
        FigureCanvasAgg(self.figure)
        self._heading = self.figure.suptitle("", fontsize=10, color=INK, x=0.01, ha="left")
        self._label = label
        self._axes = {}
        self._lines = {}
        names = (("elbo", "evaluation ELBO (nats per record)", _ELBO), ("auc", "evaluation AUC", _AUC))
        for place, (name, title, colour) in enumerate(names, start=1):
            axes = self.figure.add_subplot(1, 2, place)
            axes.set_title(title, fontsize=9.5, loc="left", color=INK)
            axes.set_xlim(0, max(steps, 1))
            axes.set_xlabel("step", fontsize=9, color=QUIET)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.grid(color="#d0d7de", linewidth=0.6)
            axes.tick_params(labelsize=8.5, colors=QUIET)
            for side in ("top", "right"):
                axes.spines[side].set_visible(False)
            (line,) = axes.plot([], [], color=colour, linewidth=1.6, marker="o", markersize=2.5)
            (tip,) = axes.plot([], [], color=colour, marker="o", markersize=5, linestyle="none")
            axes.set_yticks([])  # until there are values
            self._axes[name], self._lines[name] = axes, (line, tip)
        self.draw(())

    def draw(self, history: Sequence[HistoryPoint], note: str = "") -> None:
        """Show ``history``; ``note`` stands beside the label above the panels."""
        for name, (line, tip) in self._lines.items():
            points = [(point.step, point.metrics[name]) for point in history if name in point.metrics]
            steps, values = [step for step, _ in points], [value for _, value in points]
            line.set_data(steps, values)
            tip.set_data(steps[-1:], values[-1:])
            values = [value for value in values if math.isfinite(value)]
            if values:
                self._axes[name].yaxis.set_major_locator(MaxNLocator(6))
                # the first tenth of a run can be far off: leave it out of the range, so that the rest is readable
                later = values[len(values) // 10 :]
                low, high = min(later), max(values)
                low = min(low, high - _SMALLEST_RANGE)
                margin = 0.08 * (high - low)
                self._axes[name].set_ylim(low - margin, min(high + margin, 1.002) if name == "auc" else high + margin)
        self._heading.set_text(f"curves: {self._label}" + (f"   ·   {note}" if note else ""))


def training_figure(result: FitResult) -> Figure:
    """The curves of a finished fit."""
    guarantee = result.guarantee
    curves = TrainingCurves(guarantee.steps_taken, result.metrics_label)
    stopped = "" if result.state == "done" else f", {result.state} at step {guarantee.steps_taken:,}"
    curves.draw(result.history, f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}{stopped}")
    return curves.figure
