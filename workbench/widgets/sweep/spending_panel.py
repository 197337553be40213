"""The plan of a sweep: the number of fits, their time, what they spend together, and the checkbox
that accepts it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ipywidgets as widgets

from workbench._numbers import duration, upper
from workbench.sweeps.request import DP
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets.kit import fields, markup
from workbench.widgets.sweep.session import iterations_of, pace_of

__all__ = ["SpendingPanel"]


class SpendingPanel:
    """The plan of a sweep; ``view`` is the widget to display.

    ``accept`` is the checkbox that accepts spending on private records.

    :param on_accept: called after a change of the checkbox.
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
        """Whether the shown plan may run, because it spends nothing or is accepted."""
        prepared = self._prepared
        return prepared is not None and (
            prepared.total is None or (self.accept.visible and bool(self.accept.value))
        )

    def computing(self) -> None:
        """Show that another plan is being computed."""
        self._clear()
        self._plan.value = markup.note("computing the plan…")

    def show_unknown(self, reason: str) -> None:
        """Show why there is no plan."""
        self._clear()
        self._plan.value = markup.note("The plan is not known.", reason)

    def _clear(self) -> None:
        """Hide the plan and untick the checkbox, which was ticked for another plan."""
        self._prepared = None
        self.accept.visible = False
        self.accept.value = False
        fields.say(self._spent, "")

    def show_begun(self) -> None:
        """Leave out what was said about the time: from now on the sweep itself tells it."""
        if self._prepared is not None:
            self._plan.value = markup.note(_plan_words(self._prepared)[0])

    def show(self, prepared: PreparedSweep) -> None:
        """Show what ``prepared`` would run and spend."""
        self._clear()
        self._prepared = prepared
        self._plan.value = markup.note(*_plan_words(prepared)) + markup.problem(_refused(prepared))
        total, statement = prepared.total, prepared.statement()
        if total is None:
            fields.say(self._spent, markup.quiet(statement))
            return
        first = (
            f"epsilon = {upper(total.epsilon)} and delta = {upper(total.delta)} for {total.fits} "
            "fits in total"
        )
        finished = total.fits - sum(run.method == DP for run in prepared.runs)
        spends = "spends" if prepared.runs else "spent"
        made = (
            f" {finished} of these fits have already been made."
            if finished and prepared.runs
            else ""
        )
        fields.say(
            self._spent,
            markup.paragraphs(
                {f"What this sweep {spends}:": f"{first}.{made}", "\N{WARNING SIGN}": statement}
            ),
        )
        self.accept.control.description = (
            f"I accept that these fits together spend epsilon {upper(total.epsilon)}"
        )
        self.accept.visible = bool(prepared.runs) and math.isfinite(total.epsilon)


def _plan_words(prepared: PreparedSweep) -> tuple[str, str]:
    """The number of fits, and the time that they take."""
    planned, remaining = len(prepared.cells), len(prepared.runs)
    if not remaining:
        return (
            f"All {planned} fits are done.",
            "For more, increase the repetitions or add to a list.",
        )
    pace = pace_of(prepared)
    if pace is None:
        time = "The time will be known after the first steps."
    else:
        seconds = pace * sum(iterations_of(prepared.runs).values())
        time = (
            f"About {duration(max(1, seconds))} of steps at the speed of earlier fits, plus "
            "compilation."
        )
    return (
        f"{planned} fits." if remaining == planned else f"{remaining} of {planned} fits remain.",
        time,
    )


def _refused(prepared: PreparedSweep) -> str:
    messages = [row["message"] for row in prepared.refused]
    fits = "1 fit" if len(messages) == 1 else f"{len(messages)} fits"
    return f"{fits} cannot run with these settings: {messages[0]}" if messages else ""
