"""Training curves as matplotlib Figures without pyplot: drawn once, then updated in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator

from workbench.plots.style import COLOURS, INK, WIDTH, dress, new_figure

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult, HistoryPoint

__all__ = ["TrainingCurves", "training_figure"]

# the second panel shows the first of these that a run has
_SCORES = {
    "auc": "evaluation AUC",
    "log_likelihood": "evaluation log-likelihood (nats per record)",
    "reconstruction_error": "reconstruction error (RMSE per pixel)",
}
_FALLING = ("reconstruction_error",)  # better when smaller
_SMALLEST_RANGE = 0.02  # of a y axis: smaller changes are not blown up to look large


class TrainingCurves:
    """ELBO and one score over steps in one Figure of two panels, 7.0 x 2.85 inches.

    The score is AUC where the model has it, else the log-likelihood, else the reconstruction error, else whatever the
    model's own first metric is; the first points that hold one decide.

    :param steps: the width of the x axes.
    :param label: what the curves are: "public data" or "outside the guarantee"; stands in the picture.
    """

    def __init__(self, steps: int, label: str) -> None:
        self.figure = new_figure(WIDTH, 2.85)
        self._heading = self.figure.suptitle("", fontsize=10, color=INK, x=0.01, ha="left")
        self._label = label
        self._panels = [self._panel(1, steps, COLOURS[0]), self._panel(2, steps, COLOURS[1])]
        self._panels[0][0].set_title("evaluation ELBO (nats per record)", fontsize=9.5, loc="left", color=INK)
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
        return axes, line, tip

    def draw(self, history: Sequence[HistoryPoint], note: str = "") -> None:
        """Show ``history``; ``note`` stands beside the label above the panels."""
        self._choose_score(history)
        for name, (axes, line, tip) in zip(("elbo", self._score), self._panels, strict=True):
            points = [(point.step, point.metrics[name]) for point in history if name in point.metrics]
            steps, values = [step for step, _ in points], [value for _, value in points]
            line.set_data(steps, values)
            tip.set_data(steps[-1:], values[-1:])
            values = [value for value in values if math.isfinite(value)]
            if values:
                axes.yaxis.set_major_locator(MaxNLocator(6))
                axes.set_ylim(*_limits(name, values))
        self._heading.set_text(f"curves: {self._label}" + (f"   ·   {note}" if note else ""))

    def _choose_score(self, history: Sequence[HistoryPoint]) -> None:
        """Settle what the second panel shows at the first point that says so; its title is empty until then."""
        for point in history if not self._score else ():
            own = [name for name in point.metrics if name != "elbo"]
            known = [name for name in _SCORES if name in own]
            if own:
                self._score = (known or own)[0]
                title = _SCORES.get(self._score, f"evaluation {self._score.replace('_', ' ')}")
                self._panels[1][0].set_title(title, fontsize=9.5, loc="left", color=INK)
                return


def _limits(name: str, values: Sequence[float]) -> tuple[float, float]:
    """The y range: the first tenth of a run can be far off, and is left out so that the rest is readable."""
    later = values[len(values) // 10 :]
    if name in _FALLING:
        low, high = min(values), max(later)
        high = max(high, low + _SMALLEST_RANGE)
    else:
        low, high = min(later), max(values)
        low = min(low, high - _SMALLEST_RANGE)
    margin = 0.08 * (high - low)
    return low - margin, min(high + margin, 1.002) if name == "auc" else high + margin


def training_figure(result: FitResult) -> Figure:
    """The curves of a finished fit."""
    guarantee = result.guarantee
    curves = TrainingCurves(guarantee.steps_taken, result.metrics_label)
    stopped = "" if result.state == "done" else f", {result.state} at step {guarantee.steps_taken:,}"
    curves.draw(result.history, f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}{stopped}")
    return curves.figure
