"""What a sweep would be before it starts: how many fits, how long, what they spend together, and the box that accepts it."""

from __future__ import annotations

import math
from collections.abc import Callable

import ipywidgets as widgets

from workbench.sweeps.plan import DP
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets._kit import fields, markup
from workbench.widgets.sweep.session import pace_of, steps_of
from workbench.widgets.workbench.session import clock

__all__ = ["SpendingPanel"]


class SpendingPanel:
    """``view`` is what to put on the screen. ``accept`` is the box to tick where private records are spent on.

    :param on_accept: called after a change of the box.
    """

    def __init__(self, on_accept: Callable[[], None]) -> None:
        self._prepared: PreparedSweep | None = None
        self._plan = widgets.HTML(markup.note("", ""))
        self._spent = fields.line()
        self.accept = fields.check("accept_total_epsilon", "")
        self.accept.visible = False
        self.accept.on_change(on_accept)
        self.view = widgets.VBox([self._plan, self._spent, self.accept.view])

    @property
    def accepted(self) -> bool:
        """Whether the plan that is shown may be run: it spends nothing, or the box is ticked."""
        prepared = self._prepared
        return prepared is not None and (prepared.total is None or (self.accept.visible and bool(self.accept.value)))

    def computing(self) -> None:
        """Another plan is being computed."""
        self._take_away()
        self._plan.value = markup.note("computing the plan…")

    def show_unknown(self, reason: str) -> None:
        """Say why there is no plan."""
        self._take_away()
        self._plan.value = markup.note("The plan is not known.", reason)

    def _take_away(self) -> None:
        """What was accepted was accepted for another plan."""
        self._prepared = None
        self.accept.visible = False
        self.accept.value = False
        fields.say(self._spent, "")

    def show(self, prepared: PreparedSweep) -> None:
        """Show what ``prepared`` would run and spend."""
        self._take_away()
        self._prepared = prepared
        self._plan.value = markup.note(*_plan_words(prepared)) + markup.problem(_refused(prepared))
        total, statement = prepared.total, prepared.statement()
        if total is None:
            fields.say(self._spent, markup.quiet(statement))
            return
        first = f"epsilon = {total.epsilon:g} and delta = {total.delta:g} for {total.fits} fits in total"
        others = total.fits - sum(run.method == DP for run in prepared.runs)
        cautions = [f"{others} of these fits of the same records are there already."] if others else []
        fields.say(self._spent, markup.card("What this sweep spends", [first, statement, *cautions], warns=True))
        self.accept.control.description = f"I accept that these fits together spend epsilon {total.epsilon:g}"
        self.accept.visible = bool(prepared.runs) and math.isfinite(total.epsilon)


def _plan_words(prepared: PreparedSweep) -> tuple[str, str]:
    """(how many fits, how long they take)."""
    planned, left = len(prepared.cells), len(prepared.runs)
    if not left:
        return f"All {planned} fits are there.", "For more, raise the repetitions or add to a list."
    there = "" if left == planned else f", of which {left} are still to be run"
    pace = pace_of(prepared)
    if pace is None:
        time = "The time is known when the first steps have been taken."
    else:
        seconds = pace * sum(steps_of(prepared.runs).values())
        time = f"About {clock(max(1, seconds))} of steps, as fast as earlier ones; compiling comes on top."
    return f"{planned} fits{there}.", time


def _refused(prepared: PreparedSweep) -> str:
    messages = [row["message"] for row in prepared.refused]
    return f"{len(messages)} fits cannot be run as asked: {messages[0]}" if messages else ""
