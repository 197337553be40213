"""The sweep screen: choose model, data and ranges, read what they cost, watch the figure fill, and
open any fit.

The plan, and what all its fits together would spend, are computed beforehand. A sweep starts only
when they are shown, and on private records only when they are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ipywidgets as widgets

from workbench import models, plots
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.fitting.choosing import candidates_of, choose
from workbench.fitting.groups import grouped
from workbench.models.registry import AnyModel, offer
from workbench.results.fit_result import FitResult
from workbench.sweeps.result import SweepResult
from workbench.sweeps.store import Store
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.base import framed
from workbench.widgets.kit.late import send, unsent
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.tabs import Tabs
from workbench.widgets.sweep.best_panel import BestPanel
from workbench.widgets.sweep.ranges_panel import RangesPanel
from workbench.widgets.sweep.session import SweepSession
from workbench.widgets.sweep.settings import SweepSettings, problems_of_ranges
from workbench.widgets.sweep.spending_panel import SpendingPanel
from workbench.widgets.sweep.sweep_panel import SweepPanel, figure_of, table_html
from workbench.widgets.workbench.run_panel import RunPanel
from workbench.widgets.workbench.run_screen import FRAME_SECONDS, RunScreen
from workbench.widgets.workbench.screen import Workbench
from workbench.widgets.workbench.settings import PRIVACY_FIELDS

__all__ = ["Sweep"]

_SCORES_LEAK = (
    "They are computed without noise, so epsilon and delta do not cover them. Choosing the fit "
    "with the best score leaks as well, because the choice depends on the private records."
)
_LATE = ("Model", "Data", "Settings", "Table", "Fits", "Choose", "Export")


class _Ready(NamedTuple):
    """A sweep that could start now."""

    settings: SweepSettings
    dataset: Dataset
    prepared: PreparedSweep


class Sweep(RunScreen):
    """The interactive sweep; display it in a notebook cell.

    ``result`` is the ``SweepResult``, also during a sweep; it is None before the first. ``opened``
    is the ``Workbench`` that shows the fit opened last, or None.

    :param model: the model chosen first: a name, a NumPyro function or a ``Model``.
    :param data: name of a data set, or a ``Dataset``.
    :param epsilons: each > 0.
    :param seeds: number of fits of each combination. Fits of public records get the seeds 0, 1, ...
        and can be repeated.
    :param iterations: planned steps; () for the rule of ``workbench.fitting.defaults``.
    :param store: a file to keep finished fits in; "" for memory.
    """

    @unsent()
    def __init__(
        self,
        *,
        model: AnyModel = "logistic",
        data: str | Dataset = "breast_cancer",
        epsilons: Sequence[float] = (0.5, 1, 2, 4, 8),
        seeds: int = 5,
        iterations: Sequence[int] = (),
        store: str = "",
    ) -> None:
        models.get(model := offer(model))
        start = {
            "epsilons": tuple(epsilons),
            "seeds": seeds,
            "iterations": tuple(iterations),
            "samplers": ("poisson",),
        }
        for name, problem in problems_of_ranges(start).items():
            raise ArgumentError(name, start[name], problem)
        self._plans, self._openings = Latest("dpvi-sweep-plan"), Latest("dpvi-opening")
        self._choices = Latest("dpvi-choice")
        super().__init__(model, data, {}, self._plans, self._openings, self._choices)
        self.opened: Workbench | None = None
        self._last: _Ready | None = None  # the sweep that was started last
        self._stores: dict[str, Store] = {}
        self.ranges = RangesPanel(
            epsilons=epsilons,
            seeds=seeds,
            iterations=iterations,
            store=store,
            on_change=self._controls_changed,
            on_hidden_problem=lambda: self._open_part("Settings"),
        )
        self.run = RunPanel(self._controls_changed, "Start", "sweep")
        self.run.baseline.visible = False  # the ranges have baselines
        self.run.evaluate_private.control.description = (
            "show scores on private evaluation records (outside the guarantee)"
        )
        self.run.evaluate_private.show_help(_SCORES_LEAK)
        self.spending = SpendingPanel(self._show_buttons)
        self.outcome = SweepPanel(self._open)
        self.best = BestPanel(self._keep_best)
        self.run.fit.on_click(lambda _: self.start())
        self.tabs = Tabs(
            {
                "Model": self.model.details,
                "Data": self.data.details,
                "Settings": widgets.VBox([self.ranges.settings, self.run.options]),
                "Table": self.outcome.table,
                "Fits": self.outcome.opening,
                "Choose": self.best.view,
                "Export": self.outcome.export,
            },
            late=_LATE,
        )
        lists = self.ranges.fields
        bar = self._bar(
            (self.model.model, self.data.named, lists["epsilons"]),
            (lists["seeds"], lists["iterations"]),
            self.ranges.errors,
            status=self.outcome.status,
        )
        main = fields.beside(self.outcome.curves, self.spending.view, self.outcome.sentences)
        self._below = widgets.VBox()  # a fit that is opened
        self.view = widgets.VBox([framed(bar, main, self.tabs.view), self._below])
        self._start()
        send(self.view)

    # ---- controls --------------------------------------------------------------------------------

    def settings(self) -> SweepSettings:
        """The settings in the controls."""
        source = self.data.source()
        return SweepSettings(
            model=self.model.name,
            options=self.model.options(),
            data=source,
            ranges=self.ranges.values(),
            store=self.ranges.store,
            device=self.run.device.value or None,
            **self.run.scores(not source.evaluation_is_public),
        )

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without computing the plan."""
        return {**self.model.problems(), **self.data.problems(), **self.ranges.problems()}

    def _follow_problems(self) -> None:
        self._ready = None
        self._show_buttons()
        self._say_ready("Fix the highlighted fields.")
        self.outcome.show_unknown()
        self.spending.show_unknown("Fix the highlighted fields to see the plan.")
        self.best.show_unknown()

    def _say_ready(self, missing: str) -> None:
        if self._session is None:  # else the last sweep's end is shown
            self.outcome.ready(missing)

    def _follow(self, settings: SweepSettings) -> None:
        self._ready = None
        self._show_buttons()
        self.spending.computing()
        self._plans.ask(
            lambda: self._look_ahead(settings), lambda plan: self._show_plan(settings, plan)
        )

    def _show_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, or below the ranges if it has none."""
        remaining = dict(problems)
        options = {
            name: remaining.pop(name)
            for name in problems
            if name == "model" or name in self.model.fields
        }
        device = {name: remaining.pop(name) for name in problems if name == "device"}
        data = {
            name: remaining.pop(name)
            for name in problems
            if name in remaining and not self.ranges.knows(name)
        }
        self.model.show(options)
        self.run.show(device)
        self.data.show(data)
        self.ranges.show(remaining)

    # ---- before a sweep --------------------------------------------------------------------------

    def _look_ahead(self, settings: SweepSettings) -> _Ready:
        last = self._last
        if last is not None and last.settings.key == settings.key:
            return last
        dataset = self._loader.load(settings.data)
        return _Ready(settings, dataset, settings.prepare(dataset, self._store(settings.store)))

    def _store(self, name: str) -> Store:
        """The store in the file ``name``, or this screen's store in memory, so that its sweeps
        share finished fits.
        """
        if name not in self._stores:
            self._stores[name] = Store(name or None)
        return self._stores[name]

    def _show_plan(self, settings: SweepSettings, plan: _Ready | Exception) -> None:
        with self._showing:
            if not self._is_wanted(settings):
                return
            self.data.show_dataset(self._loader.found(settings.data))
            if not isinstance(plan, Exception):
                self._ready = plan
                self._show_ready(plan)
                return
            self._show_refusal(plan)
            self.outcome.show_unknown()
            self.spending.show_unknown(fields.in_words(plan))
            self.best.show_unknown()

    def _show_ready(self, ready: _Ready) -> None:
        """Show the plan: the number of fits, their time, and what they spend together."""
        self.ranges.offer_baselines(ready.dataset.is_public)
        self.ranges.show_automatic(
            {run.spec.privacy.iterations for run in ready.prepared.runs if run.plan is not None}
        )
        self.spending.show(ready.prepared)
        self.best.show(ready.settings, ready.dataset)
        self.outcome.show_plan(ready.prepared)
        if (
            not ready.prepared.runs and self._session is None
        ):  # the store has all fits, which can be opened
            self._last, self.result = ready, ready.prepared.result()
        self.outcome.show_code(ready.settings.as_code(ready.prepared))
        self._show_buttons()

    def _show_buttons(self) -> None:
        """Enable only the buttons that can do something now."""
        with self._showing:
            session, ready, running = self._session, self._ready, self._is_running
            can_resume = session is not None and session.can_resume
            self.run.show_running(running, can_resume=can_resume)
            self.run.stop.disabled = not running or (session is not None and session.stopping)
            must_resume = can_resume and ready is self._last
            may_start = ready is not None and bool(ready.prepared.runs) and self.spending.accepted
            self.run.fit.disabled = running or must_resume or not may_start
            if ready is not None:
                is_done = not ready.prepared.runs
                self._say_ready(
                    ""
                    if may_start
                    else "All fits are in the store."
                    if is_done
                    else "Accept what the fits spend."
                )

    # ---- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the sweep whose plan is shown, as the Start button does; return at once.

        Nothing happens while no plan is shown, or while its spending on private records is not
        accepted.
        """
        with self._showing:
            ready = self._ready
            if (
                ready is None
                or not ready.prepared.runs
                or not self.spending.accepted
                or not self._takes_over()
            ):
                return
            total = ready.prepared.total
            ready.prepared.accept(None if total is None else total.epsilon)
            self._last = ready
            self._begin(SweepSession(ready.prepared), resumed=False)

    def _show_begun(self) -> None:
        self.spending.show_begun()
        self._show_buttons()

    def _show_run(self, session: SweepSession, resumed: bool) -> None:
        self.outcome.begin(session, resumed)
        fits = 0
        while not session.wait(FRAME_SECONDS):
            self._tell_active()
            if session.stopping:
                self.run.stop.disabled = True
            result = None
            if (over := session.now().fits) != fits:
                fits, result = over, session.result
                self.result = result
            self.outcome.show(session, result)
        self.run.stop.disabled = True
        self.result = session.result
        if not self._closed:
            self.outcome.finish(session, self.result)
            self._write_output(session, self.result)

    def _show_ended(self, session: SweepSession, trace: str) -> None:
        super()._show_ended(session, trace)
        if trace:
            self.outcome.show_broken(trace)
        else:
            self.outcome.show_end(session, self.result)

    def _write_output(self, session: SweepSession, result: SweepResult) -> None:
        """Write folded static output under the widget, which stays when the notebook is closed."""
        figure = figure_of(result)
        shown = (
            ""
            if figure is None
            else markup.image(plots.svg(figure), "a score of the sweep's fits", 700)
        )
        now, table = session.now(), result.table
        names = ", ".join(dict.fromkeys(f"{row.model} on {row.data}" for row in table.itertuples()))
        words = (
            f"sweep of {names or 'nothing yet'}, {now.fits} of {now.planned} fits, {result.status}"
        )
        self._output.write(words, shown + markup.sentence(result.statement) + table_html(result))

    # ---- opening a fit ---------------------------------------------------------------------------

    def _open(self, result: SweepResult, number: int) -> None:
        """Show the fit of a row in a Workbench, from a thread. Nothing is fitted again."""
        last = self._last
        assert last is not None
        self._openings.ask(
            lambda: result.fit(number), lambda fit: self._show_fit(fit, last, result, number)
        )

    def _show_fit(
        self, fit: FitResult | Exception, last: _Ready, result: SweepResult, number: int
    ) -> None:
        if isinstance(fit, Exception):
            self.outcome.show_opened(f"{fit}")
            return
        size = int(result.table["num_records"][number])
        self._show_below(fit, last, result.flat_settings_of(number), size)
        self.outcome.show_opened("")

    def _show_below(
        self, fit: FitResult, last: _Ready, fit_settings: Mapping[str, Any], size: int
    ) -> None:
        """Show a fit in a Workbench below the sweep. :param size: number of its records."""
        settings, dataset = last.settings, last.dataset
        if size != dataset.num_train:
            dataset = dataset.subset(size)
        is_whole_named = dataset is last.dataset and settings.data.code == repr(settings.data.name)
        is_first = fit.model == settings.model
        screen = Workbench(
            model=fit.model,
            options=settings.options if is_first else {},
            data=settings.data.name if is_whole_named else dataset,
            iterations=None,
        )
        screen.privacy.fill(
            {name: fit_settings[name] for name in PRIVACY_FIELDS if name in fit_settings}
        )
        for box in screen.run.of_private_records:
            box.value = getattr(settings, box.name)
        screen.show_result(fit, dataset)
        with self._lock:
            old, self.opened = self.opened, screen
            self._below.children = [screen.view]
            closed = self._closed
        if old is not None:
            old.close()
        if closed:
            screen.close()

    # ---- keeping the best ------------------------------------------------------------------------

    def _keep_best(self) -> None:
        """Make the choice in a thread, and show its outcome below."""
        with self._showing:
            ready = self._ready
            if ready is None or self._is_running:
                return
            self.best.show_running()
            settings = {**ready.settings.choice(), "stop": lambda: self._closed}
            candidates = settings.pop("candidates")
            self._choices.ask(
                lambda: choose(candidates, ready.dataset, **grouped(settings)),
                lambda fit: self._show_best(fit, ready),
            )

    def _show_best(self, fit: FitResult | Exception, ready: _Ready) -> None:
        self.best.show_end(fit)
        if not isinstance(fit, Exception):
            arguments = ready.settings.choice()
            chosen = candidates_of(arguments["candidates"])[fit.settings["chosen"] - 1]
            self._show_below(fit, ready, arguments | chosen, ready.dataset.num_train)

    # ---- the end ---------------------------------------------------------------------------------

    def _panels(self) -> Sequence[Any]:
        with self._lock:
            opened = [] if self.opened is None else [self.opened]
        return *opened, self.model, self.data, self.run, self.ranges, self.outcome, self.tabs

    def _forget(self) -> None:
        self._last = None
        self._stores.clear()
        super()._forget()
