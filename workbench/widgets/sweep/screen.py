"""The sweep screen: choose model, data and ranges, read what they cost, watch the figure fill, open any of the fits.

As in ``app``, callbacks only set flags and start threads, and one presenter thread writes what a running sweep shows. What
the controls would mean, and what all fits together would spend, is computed in a thread of its own beforehand; nothing
starts before that is on the screen, and nothing over private records before it is accepted there.
"""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ipywidgets as widgets
from IPython.display import display

from workbench import models
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.inference.record_model import PrivacyModelError
from workbench.sweeps.result import SweepResult
from workbench.sweeps.store import Store
from workbench.sweeps.sweeping import PreparedSweep
from workbench.widgets._kit import fields, markup
from workbench.widgets._kit.latest import Latest
from workbench.widgets._kit.memory import give_back
from workbench.widgets._kit.notebook import Record, complete_for_voila, namespace
from workbench.widgets._kit.threads import background
from workbench.widgets.sweep.ranges_panel import RangesPanel
from workbench.widgets.sweep.session import SweepSession
from workbench.widgets.sweep.settings import SweepSettings, problems_of_ranges
from workbench.widgets.sweep.spending_panel import SpendingPanel
from workbench.widgets.sweep.sweep_panel import SweepPanel, table_html
from workbench.widgets.workbench import session as sessions
from workbench.widgets.workbench.data_panel import DataPanel
from workbench.widgets.workbench.data_source import Loader
from workbench.widgets.workbench.model_panel import ModelPanel
from workbench.widgets.workbench.run_panel import RunPanel
from workbench.widgets.workbench.screen import Workbench
from workbench.widgets.workbench.settings import PRIVACY_FIELDS

__all__ = ["Sweep"]

_FRAME_SECONDS = 0.4
_SCORES_LEAK = (
    "They are computed without noise, and epsilon and delta do not cover them. To choose the fit with the best of them "
    "leaks as well: what is chosen follows from the private records."
)


class _Ready(NamedTuple):
    """A sweep that could start now."""

    settings: SweepSettings
    dataset: Dataset
    prepared: PreparedSweep


class Sweep:
    """The interactive sweep; display it in a notebook cell.

    :param model: name of the model chosen first. :param data: name of an embedded data set, or a ``Dataset``.
    :param epsilons: each > 0. :param seeds: how many times each combination is fitted; fits of public records get the seeds
        from 0 on, and can be repeated.
    :param iterations: planned steps; () for the rule of ``workbench.fitting.defaults``.
    :param store: a file to keep finished fits in; "" for memory.

    ``result`` is the ``SweepResult``, also of a sweep that runs; it is None before. ``opened`` is the ``Workbench`` that
    shows the fit opened last, or None.
    """

    def __init__(
        self,
        *,
        model: str = "logistic",
        data: str | Dataset = "breast_cancer",
        epsilons: Sequence[float] = (0.5, 1, 2, 4, 8),
        seeds: int = 5,
        iterations: Sequence[int] = (),
        store: str = "",
    ) -> None:
        models.get(model)
        start = {"epsilons": tuple(epsilons), "seeds": seeds, "iterations": tuple(iterations), "samplers": ("poisson",)}
        for name, problem in problems_of_ranges(start).items():
            raise ArgumentError(name, start[name], problem)
        self.result: SweepResult | None = None
        self.opened: Workbench | None = None
        self._session: SweepSession | None = None
        self._presenter: threading.Thread | None = None
        self._ready: _Ready | None = None
        self._last: _Ready | None = None  # of the last run
        self._stores: dict[str, Store] = {}
        self._data_key: Any = None
        self._wanted: Any = None  # key of the settings whose plan is to be shown; None while they have problems
        self._showing = threading.RLock()  # controls are read, and plans shown, by one thread at a time
        self._closed = self._loud = self._is_running = False
        self._lock = threading.Lock()  # starting, ending and closing exclude each other
        self._loader, self._record = Loader(), Record()
        self._plans, self._openings = Latest("dpvi-sweep-plan"), Latest("dpvi-opening")
        self.model = ModelPanel(model, {}, self._controls_changed)
        self.data = DataPanel(data, self._controls_changed, namespace)
        self.ranges = RangesPanel(
            epsilons=epsilons, seeds=seeds, iterations=iterations, store=store, on_change=self._controls_changed
        )
        self.run = RunPanel(self._controls_changed, "Start", "sweep")
        self.run.baseline.visible = False  # the ranges have theirs
        self.run.evaluate_private.control.description = "show scores on private evaluation records (outside the guarantee)"
        self.run.evaluate_private.show_help(_SCORES_LEAK)
        self.spending = SpendingPanel(self._show_buttons)
        self.outcome = SweepPanel(self._open)
        self.run.fit.on_click(lambda _: self.start())
        self.run.stop.on_click(lambda _: self.stop())
        self.run.resume.on_click(lambda _: self.resume())
        self.view = self._arranged()
        self._loud = True
        self._controls_changed()
        sessions.warm_up()
        self.run.find_devices()

    def _arranged(self) -> Any:
        """Controls beside what a sweep shows, as in the Workbench; a fit that is opened stands below both."""
        chosen = [self.model.view, self.data.view, self.ranges.view]
        for part in chosen:
            part.layout.flex, part.layout.min_width = "1 1 300px", "0"
        controls = fields.row(*chosen, flex="1 1 340px")
        more = widgets.Tab(
            [self.outcome.table, self.outcome.opening, self.outcome.export], titles=("Table", "Open a fit", "Export")
        )
        shown = widgets.VBox(
            [fields.section("Sweep", self.spending.view, self.run.view, self.outcome.live), more],
            layout=widgets.Layout(flex="1.7 1 480px", min_width="0", grid_gap="10px"),
        )
        screen = widgets.VBox(
            [widgets.HTML(markup.STYLE_SHEET), fields.row(controls, shown, flex="0 0 auto")],
            layout=widgets.Layout(width="100%", max_width="1500px", padding="8px"),
        )
        screen.add_class("dpvi-workbench")
        self._below = widgets.VBox()
        return widgets.VBox([screen, self._below])

    # ---- controls -------------------------------------------------------------------------------------------------

    def settings(self) -> SweepSettings:
        """What the controls say now."""
        source = self.data.source()
        return SweepSettings(
            model=self.model.name,
            options=self.model.options(),
            data=source,
            ranges=self.ranges.values(),
            store=self.ranges.store,
            device=self.run.device.value or None,
            evaluate_private=bool(self.run.evaluate_private.value) and not source.evaluation_is_public,
        )

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as it can be told at once."""
        return {**self.model.problems(), **self.data.problems(), **self.ranges.problems()}

    def _controls_changed(self) -> None:
        if not self._loud or self._closed:
            return
        with self._showing:
            self._ready = None
            problems = self.problems()
            self._show_problems(problems)
            self._show_buttons()
            if problems:
                self._wanted = None
                self._plans.drop()
                self.spending.show_unknown("Mend what is marked, and the plan is shown here.")
                return
            settings = self.settings()
            if settings.data.key != self._data_key:  # what was ticked was ticked for other records
                self._data_key = settings.data.key
                if self.run.evaluate_private.value:
                    self.run.evaluate_private.value = False  # which calls this again
                    return
            self._wanted = settings.key
            self.run.evaluate_private.visible = not settings.data.evaluation_is_public
            self.spending.computing()
            self._plans.ask(lambda: self._look_ahead(settings), lambda found: self._show_plan(settings, found))

    def _show_problems(self, problems: Mapping[str, str]) -> None:
        """Each problem beside the field it is about; what no panel knows below the ranges."""
        left = dict(problems)
        options = {name: left.pop(name) for name in problems if name == "model" or name in self.model.fields}
        device = {name: left.pop(name) for name in problems if name == "device"}
        data = {name: left.pop(name) for name in problems if name in left and not self.ranges.knows(name)}
        self.model.show(options)
        self.run.show(device)
        self.data.show(data)
        self.ranges.show(left)

    # ---- before a sweep -------------------------------------------------------------------------------------------

    def _look_ahead(self, settings: SweepSettings) -> _Ready:
        last = self._last
        if last is not None and last.settings.key == settings.key:
            return last
        dataset = self._loader.load(settings.data)
        return _Ready(settings, dataset, settings.prepare(dataset, self._store(settings.store)))

    def _store(self, name: str) -> Store:
        """The file ``name``, or what this screen has in memory, so that its sweeps know of each other."""
        if name not in self._stores:
            self._stores[name] = Store(name or None)
        return self._stores[name]

    def _show_plan(self, settings: SweepSettings, found: _Ready | Exception) -> None:
        with self._showing:
            if self._closed or settings.key != self._wanted:  # the controls have changed since
                return
            self.data.show_dataset(self._loader.found(settings.data))
            if not isinstance(found, Exception):
                self._ready = found
                self._show_ready(found)
                return
            if isinstance(found, ArgumentError):
                self._show_problems({found.argument: found.expectation})
            elif isinstance(found, PrivacyModelError):
                self._show_problems({"model": str(found)})
            self.spending.show_unknown(fields.in_words(found))

    def _show_ready(self, ready: _Ready) -> None:
        """What the plan means: how many fits, how long, what they spend together."""
        self.ranges.offer_baselines(ready.dataset.is_public)
        self.spending.show(ready.prepared)
        self.outcome.show_code(ready.settings.as_code(ready.prepared))
        self._show_buttons()

    def _show_buttons(self) -> None:
        """Let only those buttons be pressed that do something now."""
        with self._showing:
            session, ready, running = self._session, self._ready, self._is_running
            can_resume = session is not None and session.can_resume
            self.run.show_running(running, can_resume=can_resume)
            self.run.stop.disabled = not running or (session is not None and session.stopping)
            goes_on = can_resume and ready is self._last
            may_start = ready is not None and bool(ready.prepared.runs) and self.spending.accepted
            self.run.fit.disabled = running or goes_on or not may_start

    # ---- screen ---------------------------------------------------------------------------------------------------

    def _ipython_display_(self) -> None:
        self.model.refresh()
        self.data.refresh()
        complete_for_voila(self._plans.wait)
        display(self.view)
        self._record.put(display(self._record.content, display_id=True))

    # ---- running --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the sweep whose plan is shown, as the Start button does; returns at once.

        Nothing happens while no plan is shown, or while what it spends on private records is not accepted there.
        """
        with self._showing:
            ready = self._ready
            if ready is None or not ready.prepared.runs or not self.spending.accepted or not self._takes_over():
                return
            total = ready.prepared.total
            ready.prepared.accept(None if total is None else total.epsilon)
            self._last, self._session = ready, SweepSession(ready.prepared)
            self._begin(self._session, resumed=False)

    def resume(self) -> None:
        """Run what is missing of a sweep that has ended early, as the Resume button does; returns at once."""
        session = self._session
        if session is not None and session.can_resume and self._takes_over():
            self._begin(session, resumed=True)

    def _takes_over(self) -> bool:
        """Whether a sweep may begin now; if so, no other one may until it has ended."""
        with self._lock:
            may = not (self._is_running or self._closed)
            self._is_running = self._is_running or may
        return may

    def _begin(self, session: SweepSession, *, resumed: bool) -> None:
        session.start()
        self._show_buttons()
        self._presenter = background(functools.partial(self._present, session, resumed), "dpvi-presenter", session.stop)

    def stop(self) -> None:
        """Ask the sweep to end with the fits that it has, as the Stop button does; returns at once."""
        if self._session is not None:
            self._session.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no sweep runs and its end is on the screen; False after ``timeout`` seconds."""
        if self._presenter is not None:
            self._presenter.join(timeout)
            return not self._presenter.is_alive()
        return True

    def _present(self, session: SweepSession, resumed: bool) -> None:
        """Write everything that a sweep shows; the only writer of these traits until it has ended."""
        try:
            self.outcome.begin(resumed)
            fits = 0
            while not session.wait(_FRAME_SECONDS):
                if session.stopping:
                    self.run.stop.disabled = True
                found = None
                if (over := session.now().fits) != fits:
                    fits, found = over, session.result
                    self.result = found
                self.outcome.show(session, found)
            self.result = session.result
            if not self._closed:
                self.outcome.finish(session, self.result)
                self._leave_record(session, self.result)
        except Exception:  # what cannot be shown must not lock the screen
            session.wait()
            self.result = session.result
            self.outcome.show_broken(traceback.format_exc())
        with self._lock:
            self._is_running = False
        if self._closed:
            self._forget()
            return
        give_back()
        self._controls_changed()  # the next sweep counts what this one has spent

    def _leave_record(self, session: SweepSession, result: SweepResult) -> None:
        """Ordinary static output under the widget, folded: it stays when the notebook is closed."""
        picture = bytes(self.outcome.picture.value)
        shown = markup.image(picture, "a score of the sweep's fits", 700) if picture else ""
        now, table = session.now(), result.table
        names = ", ".join(dict.fromkeys(f"{row.model} on {row.data}" for row in table.itertuples()))
        words = f"sweep of {names or 'nothing yet'}, {now.fits} of {now.planned} fits, {result.state}"
        self._record.leave(words, shown + markup.sentence(result.statement) + table_html(result))

    # ---- opening a fit --------------------------------------------------------------------------------------------

    def _open(self, result: SweepResult, number: int) -> None:
        """Have a Workbench show the fit of a row, in a thread: nothing is fitted again."""
        last = self._last
        assert last is not None
        self._openings.ask(lambda: result.fit(number), lambda found: self._show_fit(found, last, result, number))

    def _show_fit(self, found: Any, last: _Ready, result: SweepResult, number: int) -> None:
        if isinstance(found, Exception):
            self.outcome.show_opened(f"{found}")
            return
        settings, dataset, given = last.settings, last.dataset, result.settings_of(number)
        size = int(result.table["num_records"][number])
        if size != dataset.num_train:
            dataset = dataset.subset(size)
        is_whole_named = dataset is last.dataset and settings.data.code == repr(settings.data.name)
        screen = Workbench(
            model=settings.model, options=settings.options, data=settings.data.name if is_whole_named else dataset,
            iterations=None,
        )  # fmt: skip
        screen.privacy.fill({name: given[name] for name in PRIVACY_FIELDS if name in given})
        screen.run.evaluate_private.value = settings.evaluate_private
        screen.show_result(found, dataset)
        with self._lock:
            old, self.opened = self.opened, screen
            self._below.children = [screen.view]
            closed = self._closed
        if old is not None:
            old.close()
        if closed:
            screen.close()
        self.outcome.show_opened("")

    # ---- the end --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop a running sweep, remove the view and forget data; ``result`` stays."""
        with self._lock:
            self._closed = True
            running, opened = self._is_running, self.opened
        self.stop()
        for worker in (self._plans, self._openings):
            worker.close()
        if opened is not None:
            opened.close()
        for panel in (self.model, self.data, self.ranges, self.outcome):
            panel.close()
        fields.close_all(self.view)
        if not running:  # else the presenter does when the sweep has ended
            self._forget()

    def _forget(self) -> None:
        self._session = self._ready = self._last = None
        self._stores.clear()
        self._loader.close()
        self._record.close()
        give_back()
