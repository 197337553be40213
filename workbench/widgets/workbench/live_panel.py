"""The part of the screen that shows a running fit: progress, speed, spent privacy and curves.

Only one presenter thread at a time calls its methods and so writes its traits.
"""

from __future__ import annotations

import time
from typing import Any

import ipywidgets as widgets

from workbench.plots import TrainingCurves
from workbench.plots.curves import score_name
from workbench.widgets._kit import markup
from workbench.widgets.workbench.session import Progress, Session, clock

__all__ = ["LivePanel", "metric_name", "metric_texts", "traceback_fold"]

_STAGES = {
    "preparing": "Preparing...", "compiling": "Compiling...", "fitting": "Fitting...",
    "comparing": "Fitting without privacy, for comparison...", "ended": "Finishing...",
}  # fmt: skip
_ENDS = {"done": "Done.", "cancelled": "Cancelled.", "failed": "Failed."}
_EMPTY = "they appear here during a fit"
_NAMES = {"elbo": "ELBO", "auc": "AUC", "log_likelihood": "log-likelihood"}


class LivePanel:
    """Progress bars, a line of facts, and the curves. ``view`` is the widget to display."""

    def __init__(self) -> None:
        self.progress = self._bar("steps taken")
        self.spent = self._bar("epsilon spent")
        self.spent_text = widgets.HTML(markup.quiet("nothing spent yet"))
        self.status = widgets.HTML(markup.note("Ready.", "Set epsilon and press Fit."))
        self.label = widgets.HTML()
        self._curves = TrainingCurves(0, _EMPTY)
        self.picture = widgets.Image(
            value=self._curves.frame(), format="png", layout=widgets.Layout(width="100%", max_width="700px", height="auto")
        )
        self.picture.add_class("dpvi-curves")
        self._drawn: tuple[int | None, bool] | None = None
        self.drawing_seconds = 0.0  # in the present run, for measurements
        self.frames = 0
        self.view = widgets.VBox(
            [
                self.status,
                self.progress,
                widgets.HBox(
                    [self.spent, self.spent_text], layout=widgets.Layout(align_items="center", flex_flow="row wrap")
                ),
                self.label,
                self.picture,
            ],
            layout=widgets.Layout(width="auto"),
        )

    @staticmethod
    def _bar(description: str) -> Any:
        return widgets.FloatProgress(
            value=0.0, min=0.0, max=1.0, description=description, style={"description_width": "96px"},
            layout=widgets.Layout(width="100%" if description == "steps taken" else "340px", height="18px"),
        )  # fmt: skip

    def begin(self, resumed: bool) -> None:
        """Show that a fit begins. A resumed fit keeps its curves."""
        self.progress.bar_style = self.spent.bar_style = ""
        self.drawing_seconds, self.frames = 0.0, 0
        if not resumed:
            self._drawn = None
            self._curves = TrainingCurves(0, _EMPTY)
            self.picture.value = self._curves.frame()
            self.picture.layout.display = None
            self.progress.value = self.spent.value = 0.0
            self.spent_text.value = markup.quiet("nothing spent yet")
            self.label.value = ""

    def show(self, session: Session, now: Progress) -> None:
        """Show the progress ``now``, and redraw the curves if they have changed."""
        headline = "Stopping..." if session.stopping else _STAGES[now.stage]
        snapshot, prepared = now.snapshot, session.prepared
        if snapshot is None or prepared is None:
            words = "calibrating the noise and reading the model"
            if now.stage == "compiling":
                words = f"{now.stage_seconds:.0f} s so far; the first step follows"
            self.status.value = markup.note(headline, words)
            return
        total, epsilon = prepared.privacy.iterations, prepared.privacy.epsilon
        self.progress.value = snapshot.step / total
        facts = [f"step {snapshot.step:,} of {total:,}"]
        if now.stage == "comparing":
            facts.append(f"{now.stage_seconds:.0f} s so far")
        elif now.stage == "fitting":
            if now.steps_per_second is not None:
                facts.append(f"{now.steps_per_second:,.0f} steps/s")
            if now.seconds_left is not None:
                facts.append(f"{clock(now.seconds_left)} left")
        if snapshot.compile_seconds is not None:
            facts.append(f"compiled in {snapshot.compile_seconds:.1f} s")
        facts += metric_texts(snapshot.metrics)
        self.status.value = markup.note(headline, " · ".join(facts))
        self._show_spent(snapshot.epsilon_so_far, epsilon)
        self._draw(session, now.history)

    def _show_spent(self, spent: float | None, planned: float) -> None:
        if spent is not None:
            self.spent.value = spent / planned
            self.spent_text.value = markup.quiet(f"at most {spent:.3g} of {planned:g}")

    def _draw(self, session: Session, history: Any) -> None:
        newest = (history[-1].step if history else None, session.baseline is not None)
        if newest == self._drawn or not history:
            return
        began = time.perf_counter()
        prepared = session.prepared
        if self._drawn is None:
            label = prepared.data.evaluation_label
            self._curves = TrainingCurves(prepared.privacy.iterations, label)
            self.label.value = f"Curves: {markup.badge(label)}"
        note = f"epsilon {prepared.privacy.epsilon:g}, delta {prepared.privacy.delta:g}"
        self._curves.draw(history, note)
        if session.baseline is not None and not (self._drawn and self._drawn[1]):
            self._curves.compare(session.baseline)
            self._curves.draw(history, note)
        self.picture.value = self._curves.frame()
        self._drawn = newest
        self.drawing_seconds += time.perf_counter() - began
        self.frames += 1

    def finish(self, session: Session) -> None:
        """Show how the fit ended: its last curves and numbers, or the error with a folded traceback."""
        result = session.result
        folded = traceback_fold(session.details)
        if result is None:
            self.progress.bar_style = "danger"
            self.status.value = markup.note("Failed.") + markup.problem(session.problem) + folded
            return
        self._draw(session, session.progress().history)
        self._show_end(result, session.problem, folded)

    def show_result(self, result: Any) -> None:
        """Show the last numbers of a fit that ran elsewhere, without curves."""
        self.begin(resumed=False)
        self.picture.layout.display = "none"
        self.label.value = markup.quiet("Only the last numbers of this fit were kept, not its curves.")
        self._show_end(result, "", "")

    def _show_end(self, result: Any, problem: str, folded: str) -> None:
        guarantee = result.guarantee
        self.progress.value = guarantee.steps_taken / guarantee.steps
        self.progress.bar_style = {"done": "success", "cancelled": "warning"}.get(result.status, "danger")
        self._show_spent(guarantee.epsilon_taken, guarantee.epsilon)
        facts = [
            f"{guarantee.steps_taken:,} of {guarantee.steps:,} steps in {clock(result.seconds)}",
            *metric_texts(result.metrics),
        ]
        if not result.metrics:
            facts.append("no curves: the evaluation records are private")
        problems = dict.fromkeys(text for text in (result.message, problem) if text)
        self.status.value = (
            markup.note(_ENDS[result.status], " · ".join(facts)) + "".join(map(markup.problem, problems)) + folded
        )

    def show_broken(self, details: str) -> None:
        """Show that the screen failed and not the fit, with a folded traceback."""
        self.status.value = markup.note(
            "The fit has ended, but it cannot be shown.", "Its result, if any, is in the screen's attribute result."
        ) + traceback_fold(details)

    def close(self) -> None:
        """Forget the figure."""
        self._curves = TrainingCurves(0, "closed")


def traceback_fold(details: str) -> str:
    """A folded traceback; "" for an empty one."""
    return markup.fold("traceback", f"<pre style='white-space:pre-wrap'>{markup.escape(details)}</pre>") if details else ""


def metric_texts(metrics: dict[str, float]) -> list[str]:
    """The last numbers of the two curves."""
    return [f"{metric_name(name)} {_number(metrics[name])}" for name in ("elbo", score_name(metrics)) if name in metrics]


def metric_name(metric: str) -> str:
    """The usual spelling of a metric's name."""
    return _NAMES.get(metric, metric.replace("_", " "))


def _number(value: Any) -> str:
    """``value`` with four decimals; unchanged if it is not a number, as a user's own score may be."""
    return f"{value:.4f}" if isinstance(value, (int, float)) else str(value)
