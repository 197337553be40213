"""The part of the screen that shows how a running fit does: progress, speed and curves.

Only one presenter thread at a time calls its methods and so writes its traits.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import numpy as np

from workbench._numbers import count, duration, shown, upper
from workbench.plots.metrics import labelled, limits, of_score, score_name, words_of
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.chart import Levels, Panel, chart
from workbench.widgets.workbench.session import Progress, Session

if TYPE_CHECKING:
    from workbench.fitting.prepared import PreparedFit
    from workbench.results.fit_result import FitResult

__all__ = ["LivePanel", "traceback_fold"]

_STAGES = {
    "preparing": "Preparing…",
    "compiling": "Compiling…",
    "fitting": "Fitting…",
    "drawing": "Drawing the posterior…",
    "comparing": "Fitting without privacy, for comparison…",
    "ended": "Finishing…",
}
_ENDS = {"done": "Done.", "cancelled": "Stopped.", "failed": "Failed."}
_IN_BAR = ("epsilon", "delta", "iterations")  # fields with their problems just above
_EMPTY = "Curves appear here during a fit."
_NOT_KEPT = "The curves of this fit were not kept."
_KEEP = "The dashed lines are outside the guarantee: keep them to yourself."
_EARLIER = 3  # fits whose curves stay as faint lines
_TALL, _LOW, _SCORE, _PRICE = 92, 46, 96, 48  # pixels
_AROUND = 44  # of the words around a curve


class LivePanel:
    """A line of facts over a bar of progress, the price of another epsilon, the score with what is
    spent, and all curves: ``status``, ``price``, ``score`` and ``curves`` are its widgets.
    """

    def __init__(self, button: Callable[..., str] | None = None) -> None:
        """``button(number, label, tooltip)`` makes the HTML of what shows an earlier fit again."""
        self._button = button
        self.status = widgets.HTML()
        self.price = widgets.HTML()
        self.score = widgets.HTML()
        self.curves = widgets.HTML()
        # (name, history, number) of fits with the same records and score
        self._earlier: list[tuple[str, tuple[Any, ...], int]] = []
        self._about: Any = None  # what the curves are of
        self._planned = _room(_SCORE)  # what stands where there is no curve
        self._drawn: Any = None
        self._began, self._waited = time.perf_counter(), ""
        self.drawing_seconds = 0.0  # in the present run, for measurements
        self.frames = 0
        self._clear()
        self.show_price()
        self.ready()

    def ready(self, missing: str = "") -> None:
        """Show that a fit can begin. :param missing: what must be done before, a sentence; "" for
        nothing.
        """
        if missing:
            self.refuse(missing)
        else:
            self._say(markup.note("Ready.", "Press Fit."), 0.0)
        if missing and self._is_planned:
            self._clear()

    def refuse(self, missing: str) -> None:
        """Say that no fit can begin. :param missing: what must be done before, a sentence."""
        self._say(markup.note("Not ready yet.", missing), 0.0)

    def begin(self, resumed: bool) -> None:
        """Show that a fit begins. A resumed fit keeps its curves; those of another one fade until
        there are new ones.
        """
        self.drawing_seconds, self.frames, self._drawn = 0.0, 0, None
        self._began, self._waited = time.perf_counter(), ""
        if not (resumed or self._is_planned):
            self.mark(is_old=True)

    def mark(self, *, is_old: bool) -> None:
        """Fade curves that are of another fit, model or data set than the next ones will be."""
        for curves in (self.score, self.curves):
            fields.set_style(curves, "dpvi-old", is_old)

    def _clear(self) -> None:
        self._is_planned = True
        self._show_planned()
        self.curves.value = markup.quiet(_EMPTY)

    def show_plan(self, prepared: PreparedFit) -> None:
        """Until a fit has curves, show the epsilon that is planned after each step."""
        spent = _spent(prepared, (), None)
        spent = dataclasses.replace(spent, unit="planned, at most", height=_SCORE)
        steps = prepared.privacy.iterations
        self._planned = chart([spent], steps, "Planned epsilon over the steps.")
        self._show_planned()

    def show_price(self, near: Sequence[tuple[float, float]] = ()) -> None:
        """Show how the noise of intervals depends on epsilon, for the fit that comes next.

        :param near: as ``Outlook.noise_near``; empty where that is not known.
        """
        self.price.value = _noise_near(near) if near else _room(_PRICE)

    def forget_plan(self) -> None:
        """Show no plan, until another one is known."""
        self._planned = _room(_SCORE)
        self._show_planned()
        self.show_price()

    def _show_planned(self) -> None:
        if self._is_planned:
            self.score.value = self._planned

    def _say(self, line: str, fraction: float, status: str = "") -> None:
        self.status.value = markup.status(line, fraction, status)

    def show(self, session: Session, now: Progress) -> None:
        """Show the progress ``now``, and redraw the curves if they have changed."""
        headline = "Stopping…" if session.stopping else _STAGES[now.stage]
        snapshot, prepared = now.snapshot, session.prepared
        if snapshot is None or prepared is None:
            words = "calibrating the noise and reading the model"
            if now.stage == "compiling":
                words = f"{now.stage_seconds:.0f} s so far; the first step follows"
            self._say(markup.note(headline, words), 0.0)
            return
        total = prepared.privacy.iterations
        facts = [f"step {count(snapshot.step)} of {count(total)}"]
        if now.stage == "comparing":
            facts.append(f"{now.stage_seconds:.0f} s so far")
        elif now.stage == "fitting":
            if now.steps_per_second is not None:
                facts.append(f"{count(now.steps_per_second)} steps/s")
            if now.seconds_left is not None:
                facts.append(f"{duration(now.seconds_left)} left")
        if snapshot.epsilon_so_far is not None:
            spent = shown(prepared.plan.epsilon_after(snapshot.step), up=True)
            facts.append(f"epsilon spent: at most {spent} of {upper(prepared.privacy.epsilon)}")
        self._say(markup.note(headline, " · ".join(facts)), snapshot.step / total)
        self._draw(session, now)

    # ---- curves ----------------------------------------------------------------------------------

    def _draw(
        self, session: Session, now: Progress, spent: tuple[int, float] | None = None
    ) -> None:
        """Draw the curves, if there is something new.

        :param spent: (steps, epsilon) at the end.
        """
        frames = len(now.history) or len(now.spent)
        newest = (frames, session.baseline is not None, spent)
        if newest == self._drawn or not (now.history or now.spent):
            return
        began = time.perf_counter()
        prepared = session.prepared
        steps = prepared.privacy.iterations
        score = score_name(now.history[-1].metrics) if now.history else ""
        about = (session.records, score, prepared.data.evaluation_label)
        if about != self._about:
            self._about, self._earlier = about, []
        curves = [
            self._panel(name, about[2], now.history, session.baseline)
            for name in ("elbo", score)
            if name and now.history
        ]
        epsilon = _spent(prepared, now.spent, spent)
        marks = {steps // 2: "averaging"} if prepared.spec.averages else {}
        if prepared.hyper.dither is not None and np.any(prepared.hyper.dither):
            marks[int(prepared.hyper.moments_from)] = "exploring"
        note = (
            markup.quiet(_KEEP)
            if session.baseline is not None and not prepared.data.is_public
            else ""
        )
        marked = "\N{WARNING SIGN} " * (about[2] == "outside the guarantee") + about[2]
        beside = [dataclasses.replace(panel, unit=marked, height=_SCORE) for panel in curves[-1:]]
        below = _spent_bar(epsilon, prepared.privacy.epsilon) if beside else ""
        beside = beside or [dataclasses.replace(epsilon, height=_SCORE)]
        self.score.value = chart(beside, steps, _described(beside, steps)) + below + note
        panels = [*curves, epsilon]
        self.curves.value = chart(panels, steps, _described(panels, steps), marks=marks) + note
        self._drawn, self._is_planned = newest, False
        self.mark(is_old=False)
        self.drawing_seconds += time.perf_counter() - began
        self.frames += 1

    def _panel(
        self, name: str, label: str, history: Sequence[Any], baseline: dict[str, float] | None
    ) -> Panel:
        points = _points(history, name)
        before = {named: _points(earlier, name) for named, earlier, _ in self._earlier}
        links = {
            named: self._button(number, named, "Show this fit again")
            for named, _, number in self._earlier
            if self._button is not None
        }
        values = [value for _, value in points if value == value and abs(value) < np.inf]
        level = None
        # the ends of fits before, whose names stand there
        ends = [points[-1][1] for points in before.values() if points]
        within = limits(name, [*ends, *values]) if values else None
        if within is not None and baseline is not None and np.isfinite(baseline.get(name, np.nan)):
            level = baseline[name], f"without privacy {of_score(name, baseline[name])}"
            margin = 0.14 * (within[1] - within[0])
            within = min(within[0], level[0] - margin), max(within[1], level[0] + margin)
        words, unit = words_of(name)
        return Panel(
            words,
            labelled(unit, label),
            points,
            within,
            "" if name == "elbo" else "second",
            level=level,
            height=_TALL,
            words=functools.partial(of_score, name),
            names=before,
            links=links,
        )

    def draw_end(self, session: Session) -> None:
        """Draw the last curves of a fit, if it has a result."""
        if session.result is not None:
            taken = session.result.guarantee
            seconds = time.perf_counter() - self._began  # with compiling and drawing
            self._waited = self._waited or f", {duration(seconds)}"
            self._draw(session, session.progress(), (taken.steps_taken, taken.epsilon_taken))

    def finish(self, session: Session, number: int = 0) -> None:
        """Show how the fit ended, now that another may begin: its last curves and numbers, or the
        error with a folded traceback.

        :param number: of its result, for the button that shows it again.
        """
        result = session.result
        folded = traceback_fold(session.details)
        if session.was_too_early:
            looked = session.prepared.spec.declared is not None
            spent = "The look at the columns is spent" if looked else "Nothing was spent"
            self._say(markup.note("Stopped.", f"Before the first step. {spent}."), 0.0)
            return
        if result is None:
            stands_above = session.argument in _IN_BAR
            told = "The reason stands above." if stands_above else ""
            problem = "" if stands_above else markup.problem(session.problem)
            is_refused = session.argument and session.progress().snapshot is None
            self._say(
                markup.note("Refused." if is_refused else "Failed.", told) + problem + folded, 0.0
            )
            return
        self.draw_end(session)
        history = session.progress().history
        if history and result.status == "done":
            named = f"epsilon {upper(result.guarantee.epsilon)}"
            same = sum(name.startswith(named) for name, *_ in self._earlier)
            named += f" ({same + 1})" if same else ""
            self._earlier = [*self._earlier[1 - _EARLIER :], (named, history, number)]
        self._show_end(result, session.problem, folded, can_resume=session.can_resume)

    @property
    def drawn(self) -> tuple[str, str, str]:
        """What ``show_result`` takes to show the last fit again, with how long it took."""
        return str(self.score.value), str(self.curves.value), self._waited

    def draw_again(self, drawn: tuple[str, str, str] | None) -> None:
        """Show the curves of an earlier fit. :param drawn: None where they were not kept."""
        self._is_planned = False
        self.mark(is_old=False)
        nothing = markup.quiet(_NOT_KEPT)
        self.score.value, self.curves.value, self._waited = drawn or (nothing, nothing, "")

    def show_result(self, result: FitResult, drawn: tuple[str, str, str] | None = None) -> None:
        """Show a fit that ran before or elsewhere. :param drawn: its curves, if they were kept."""
        self.begin(resumed=False)
        self.draw_again(drawn)
        self._show_end(result)

    def _show_end(
        self,
        result: FitResult,
        problem: str = "",
        folded: str = "",
        *,
        can_resume: bool = False,
    ) -> None:
        guarantee = result.guarantee
        facts = [
            f"{count(guarantee.steps_taken)} of {count(guarantee.steps)} steps"
            f"{self._waited or f' in {duration(result.seconds)}'}",
            *["Resume costs nothing more"] * can_resume,
        ]
        problems = dict.fromkeys(text for text in (result.message, problem) if text)
        self._say(
            markup.note(_ENDS[result.status], " · ".join(facts))
            + "".join(map(markup.problem, problems))
            + folded,
            guarantee.steps_taken / guarantee.steps,
            "" if result.status == "done" else result.status,
        )

    def show_broken(self, details: str) -> None:
        """Show that the screen failed and not the fit, with a folded traceback."""
        told = markup.note(
            "The fit has ended, but it cannot be shown.",
            "Its result, if any, is in the screen's attribute result.",
        )
        self._say(told + traceback_fold(details), 0.0)

    def close(self) -> None:
        """Forget the curves."""
        self._earlier = []


def _points(history: Sequence[Any], name: str) -> list[tuple[float, float]]:
    return [
        (point.step, float(point.metrics[name]))
        for point in history
        if isinstance(point.metrics.get(name), (int, float))
    ]


def _room(height: int) -> str:
    """Nothing, as high as a chart, so that what stands below does not move."""
    return f'<div class="dpvi-room" style="height:{height + _AROUND}px"></div>'


def _noise_near(near: Sequence[tuple[float, float]]) -> str:
    """How the noise in intervals depends on epsilon, from the plan alone."""
    points = [(index + 0.5, times) for index, (_, times) in enumerate(near)]
    levels = Levels(
        "epsilon", {index + 0.5: f"{epsilon:.4g}" for index, (epsilon, _) in enumerate(near)}
    )
    most = max(times for _, times in near)
    panel = Panel(
        "relative interval noise",
        limits=(0.0, 1.12 * most),
        names={"": points},
        has_keys=True,
        dots={"": points},
        height=_PRICE,
        ticks=(1.0, float(shown(most))),
    )
    here = next(index + 0.5 for index, (_, times) in enumerate(near) if times == 1)
    told = ", ".join(f"{shown(times)} times at epsilon {epsilon:.4g}" for epsilon, times in near)
    return chart(
        [panel],
        0,
        f"The noise in intervals, in that of this plan: {told}",
        marks={here: ""},
        levels=levels,
    )


def _spent(
    prepared: PreparedFit, points: Sequence[tuple[int, float]], end: tuple[int, float] | None
) -> Panel:
    """Epsilon of the steps taken and of those planned. What the newest step has spent is computed
    as after a stop, so that it does not fall then; fewer steps never spend more, so it bounds what
    came before.
    """
    if end is None and points:
        newest = points[-1][0]
        end = newest, prepared.plan.epsilon_after(newest)
    if end is not None:
        points = [*((step, min(value, end[1])) for step, value in points if step < end[0]), end]
    planned = prepared.privacy.epsilon
    curve = ((0, 0.0), *prepared.plan.epsilon_curve())
    return Panel(
        "epsilon",
        "spent, at most",
        points,
        (0.0, 1.1 * planned),
        "third",
        (curve,),
        height=_LOW,
        stairs=True,
        words=functools.partial(shown, up=True),
        ticks=(0.0, planned),
    )


def _spent_bar(spent: Panel, planned: float) -> str:
    """The epsilon that is spent, of that planned."""
    value = spent.points[-1][1] if spent.points else 0.0
    return markup.meter(
        "epsilon spent", f"\N{LESS-THAN OR EQUAL TO} {spent.words(value)}", value / planned
    )


def _described(panels: Sequence[Panel], steps: int) -> str:
    last = [f"{panel.title} {panel.words(panel.points[-1][1])}" for panel in panels if panel.points]
    return f"Curves over {count(steps)} steps. Newest values: " + ", ".join(last)


def traceback_fold(details: str) -> str:
    """A folded traceback; "" for an empty one."""
    return (
        markup.fold(
            "traceback", f"<pre style='white-space:pre-wrap'>{markup.escape(details)}</pre>"
        )
        if details
        else ""
    )
