"""The workbench screen: choose model, data and privacy, watch a private fit, and read its
guarantee.

Whenever the controls have stopped changing, the consequences of the plan are computed and the fit
is compiled, so that it starts as soon as Fit is pressed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import ipywidgets as widgets

from workbench import models
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.models import registry
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.base import framed
from workbench.widgets.kit.late import send, unsent
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.tabs import Tabs
from workbench.widgets.ledger.panel import PROBLEMS, LedgerPanel, Seen, prepare_saved
from workbench.widgets.ledger.words import result_words
from workbench.widgets.workbench.fits import (
    End,
    Ready,
    automatic_values,
    be_ready,
    planned,
    ready_of,
)
from workbench.widgets.workbench.history_panel import HistoryPanel
from workbench.widgets.workbench.learning import price_words
from workbench.widgets.workbench.live_panel import LivePanel
from workbench.widgets.workbench.privacy_panel import PrivacyPanel
from workbench.widgets.workbench.result_panel import ResultPanel, written
from workbench.widgets.workbench.run_panel import RunPanel
from workbench.widgets.workbench.run_screen import FRAME_SECONDS, RunScreen
from workbench.widgets.workbench.session import Progress, Session
from workbench.widgets.workbench.settings import FORMULA, Settings, ledger_in_code, problems_of
from workbench.widgets.workbench.subject_panel import SubjectPanel

if TYPE_CHECKING:
    from workbench.fitting.resuming import SavedRun
    from workbench.ledger.ledger import Ledger
    from workbench.results.fit_result import FitResult

__all__ = ["Workbench"]

_PAUSE_SECONDS = 0.05  # fields report what was typed when they are left, so changes come one by one
_LATE = ("Model", "Data", "Settings", "Fits", "Export")  # which have most widgets


class Workbench(RunScreen):
    """The interactive workbench; display it in a notebook cell.

    After a fit, ``result`` is its ``FitResult``. It is None before and during a fit, and after one
    that raised an error. ``results`` has the results of all fits of this screen.

    :param model: the model chosen first: a name, a NumPyro function or a ``Model``.
    :param data: name of a data set, or a ``Dataset``.
    :param epsilon: > 0.
    :param delta: None for the largest power of ten below 1/N.
    :param iterations: planned steps; None for the rule of ``workbench.fitting.defaults``.
    :param options: options of the model that differ from their defaults.
    :param ledger: where fits of private records are recorded, as ``workbench.fit`` takes it.
    """

    offers_formulas = True

    @unsent()
    def __init__(
        self,
        *,
        model: registry.AnyModel = "logistic",
        data: str | Dataset = "breast_cancer",
        epsilon: float = 1.0,
        delta: float | None = None,
        iterations: int | None = None,
        options: Mapping[str, Any] | None = None,
        ledger: str | Path | Ledger | Literal[False] | None = None,
    ) -> None:
        if (model := registry.offer(model)) != FORMULA:
            models.get(model, **(options or {}))
        start = {"epsilon": epsilon, "delta": delta, "iterations": iterations}
        for name, problem in problems_of(start).items():
            raise ArgumentError(name, start[name], problem)
        self._outlooks = Latest("dpvi-outlook", pause=_PAUSE_SECONDS)
        self._compilations = Latest("dpvi-ahead")
        self._words, self._prices = Latest("dpvi-words", pause=0.0), Latest("dpvi-prices")
        workers = self._outlooks, self._compilations, self._words, self._prices
        super().__init__(model, data, options or {}, *workers)
        self._book = ledger_in_code(ledger)
        self._begun: Any = None  # settings of the fit that began last
        self._fitted: Any = None  # and of the fit that is shown
        self._to_do = ""  # before a fit can begin
        self._last_ready: Ready | None = None  # of the last fit, for another run of the same plan
        self.privacy = PrivacyPanel(
            epsilon=epsilon,
            delta=delta,
            iterations=iterations,
            on_change=self._controls_changed,
            on_hidden_problem=lambda: self._open_part("Settings"),
        )
        self.run = RunPanel(self._controls_changed)
        self.ledger = LedgerPanel(self._controls_changed, self.resume_saved, self._look_again)
        self.history, self.outcome = HistoryPanel(self.show_again), ResultPanel()
        self.live = LivePanel(self.history.presses.button)
        self._ends: dict[int, End] = {}  # by the identity of results in the history
        self._kept: Any = None  # the session of the last result
        self.subject = SubjectPanel()
        self.run.fit.on_click(lambda _: self.fit())
        self.model.model.on_change(self._open_formula)
        self.tabs = Tabs(
            {
                "Plan": self.privacy.consequences,
                "Model": self.model.details,
                "Data": self.data.details,
                "Settings": widgets.VBox([self.privacy.settings, self.run.options]),
                "Curves": self.live.curves,
                "Guarantee": self.outcome.guarantee,
                "Posterior": self.outcome.posterior,
                "Pictures": self.outcome.pictures,
                "Fits": self.history.view,
                "Export": self.outcome.export,
            },
            self._opened,
            late=_LATE,
        )
        bar = self._bar(
            (self.model.model, self.data.named),
            (self.privacy.epsilon, self.privacy.delta, self.privacy.iterations),
            self.privacy.errors,
            status=self.live.status,
            words=(self.subject.aim, widgets.HTML("from"), widgets.HTML("epsilon")),
        )
        main = fields.beside(self.subject.view, self.live.price, self.live.score)
        facts = fields.abreast(
            [self.outcome.learnt],
            [self.outcome.promised, self.privacy.promise],
            [widgets.HTML(markup.fact("Budget", "")), self.ledger.view],
        )
        self.view = framed(
            bar,
            self.outcome.warnings,
            main,
            facts,
            self.tabs.view,
            self.history.presses.view,
        )
        self._start()
        send(self.view)  # last: what starting makes is not sent by itself either

    def _opened(self, title: str) -> None:
        if title == "Fits":
            self.history.compare()

    def _open_formula(self) -> None:
        if self.model.name == FORMULA:
            self._open_part("Model")

    @property
    def results(self) -> list[Any]:
        """The results of this screen's fits, oldest first."""
        return list(self.history.results)

    # ---- controls --------------------------------------------------------------------------------

    def settings(self) -> Settings:
        """The settings in the controls."""
        source = self.data.source()
        return Settings(
            model=self.model.name,
            options=self.model.options(),
            data=source,
            privacy=self.privacy.values(),
            device=self.run.device.value or None,
            **self.run.scores(source.may_score_private),
            baseline=bool(self.run.baseline.value),
            ledger=self._book,
            over_cap=self.ledger.over_cap(source.key),
        )

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without computing the plan."""
        return {**self.model.problems(), **self.data.problems(), **self.privacy.problems()}

    def _follow_problems(self) -> None:
        self._words.drop()
        to_do = "Fix the highlighted fields"
        if self.data.is_incomplete:
            is_wrong = {**self.model.problems(), **self.privacy.problems()}
            to_do = "Complete Data" + (", and what is highlighted," if is_wrong else "")
        self._to_do = f"{to_do.rstrip(',')}."
        if self._has_shown_nothing:
            self.live.ready(self._to_do)
        if self.data.is_incomplete:
            self._mark_old()
            self.subject.show_aim()
        self.privacy.show_unknown(f"{to_do} to see what this plan implies.")
        self.live.forget_plan()
        self.ledger.show_unknown()

    def _follow(self, settings: Settings) -> None:
        self.outcome.show_code(settings.as_code(), settings.as_cells())
        self._mark_old(settings)
        session = self._session
        failed = session is not None and session.ended and session.result is None
        if self._has_shown_nothing or (failed and settings.key != self._begun.key):
            self.live.ready()  # an error does not outlive its cause
        self.ledger.computing(settings.data.key)
        if self._ready is not None and self._ready.fits(settings):
            self._show_ready(self._ready)
            self._look_again()
            return
        self.privacy.computing()
        related = self._known(settings)
        if related is None:  # what stands there is of another model or other records
            self.subject.show_aim()
            self.outcome.show_ahead("")
        if related is None or related.settings.key != settings.key:
            self.live.forget_plan()
        self._words.ask(lambda: self._say_ahead(settings), lambda _: None)
        self._outlooks.ask(
            lambda: self._look_ahead(settings), lambda ready: self._show_outlook(settings, ready)
        )

    def _mark_old(self, settings: Settings | None = None) -> None:
        """Fade a fit that is shown where the controls have another model or other records.

        :param settings: of the controls; None where the records are not known yet.
        """
        if self.outcome.says_what_ended:
            keys = [chosen and chosen.model_key for chosen in (self._fitted, settings)]
            is_old = None in keys or keys[0] != keys[1]
            for panel in (self.subject, self.live, self.outcome):
                panel.mark(is_old=is_old)

    @property
    def _has_shown_nothing(self) -> bool:
        return self._session is None and self.result is None

    def _show_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, or beside the data if it has none."""
        privacy_names = {*self.privacy.values(), "device"}
        mine = {name: text for name, text in problems.items() if name in privacy_names}
        options = {
            name: text
            for name, text in problems.items()
            if name == "model" or name in self.model.fields
        }
        spending = {name: text for name, text in problems.items() if name in PROBLEMS}
        data_problems = {
            name: text
            for name, text in problems.items()
            if name not in {**mine, **options, **spending}
        }
        self.ledger.show_problems(spending)
        self.privacy.show({name: text for name, text in mine.items() if name != "device"})
        self.run.show(mine)
        self.model.show(options)
        self.data.show(data_problems)

    # ---- before a fit ----------------------------------------------------------------------------

    def _look_ahead(self, settings: Settings) -> Ready:
        self._words.wait()  # both need the same noise, which is kept
        last = self._last_ready
        if last is not None and last.settings.key == settings.key and last.prepared.has_begun:
            return last._replace(prepared=last.prepared.again())
        related = self._known(settings)
        prepared = settings.prepare(self._loader.load(settings.data))
        return ready_of(settings, prepared, None if related is None else related.diagram)

    def _known(self, settings: Settings) -> Ready | None:
        """What is known of another fit of the same model and records."""
        related = self._ready or self._last_ready
        return (
            related
            if related is not None and related.settings.model_key == settings.model_key
            else None
        )

    def _say_ahead(self, settings: Settings) -> None:
        """Show in words what a plan means before the model is read again; nothing where that was
        never read.

        Another fit of the same model and records tells how many coordinates the noise has.
        """
        related = self._known(settings)
        if related is None:
            return
        preview, promise = planned(settings, self._loader.load(settings.data), related.prepared)
        with self._showing:
            if self._is_wanted(settings):
                self.privacy.show_words(
                    preview,
                    None if self._shows_fit_of(settings) else promise,
                    another=self.outcome.says_what_ended,
                )

    def _shows_fit_of(self, settings: Settings) -> bool:
        """Whether the last fit's promise is shown, and it had these settings."""
        fitted = self._fitted
        return self.outcome.says_what_ended and fitted is not None and fitted.key == settings.key

    def _show_outlook(self, settings: Settings, ready: Ready | Exception) -> None:
        with self._showing:
            if not self._is_wanted(settings):
                return
            if isinstance(ready, Exception):
                self._show_unknown(settings, ready)
                return
            self._ready = ready
            self._show_ready(ready)
        self._show_spent(ready, self._look_up(ready))

    def _show_unknown(self, settings: Settings, error: Exception) -> None:
        self._ready = None
        self.data.show_dataset(self._loader.found(settings.data))
        self.ledger.show_unknown()
        self._show_refusal(error)
        self.privacy.show_unknown(fields.in_words(error))

    def _show_ready(self, ready: Ready) -> None:
        prepared = ready.prepared
        columns, spec = prepared.spec.columns, prepared.spec
        self.subject.show_aim(prepared.model, prepared.data)
        self.data.show_dataset(
            prepared.data, columns.declarations(spec), price_words(columns.price(spec))
        )
        ahead = None if self._shows_fit_of(ready.settings) else ready.promise
        ended, of_scores = self.outcome.says_what_ended, spec.scorer.cautions(spec, prepared.plan)
        self.privacy.show_outlook(
            ready.outlook, automatic_values(prepared), ahead, another=ended, about_scores=of_scores
        )
        self.model.show_diagram(*ready.diagram)
        if not self._is_running:  # a running fit needs the processor more
            self.live.show_plan(prepared)
            self.outcome.show_ahead(ready.outlook.verdict)
            if not self.outcome.says_what_ended:
                self.subject.show_plan(prepared, ready.diagram)
            self._prices.ask(lambda: ready.outlook.noise_near, self._show_price(ready))
            self._compilations.ask(lambda: be_ready(prepared), lambda _: None)

    def _show_price(self, ready: Ready) -> Callable[[Sequence[Any] | Exception], None]:
        """What shows the noise at other epsilons once it is known, which takes calibrations."""

        def show(near: Sequence[Any] | Exception) -> None:
            with self._showing:
                if self._is_wanted(ready.settings):
                    self.live.show_price(() if isinstance(near, Exception) else near)

        return show

    def _look_up(self, ready: Ready) -> Seen:
        """Read what the ledger says about the records of ``ready``. This may take seconds."""
        session = self._session
        resumable = (
            session.prepared.run_log.folder if session is not None and session.can_resume else None
        )
        return self.ledger.look(ready.prepared, ready.settings.over_cap, resumable)

    def _look_again(self) -> None:
        """Read the ledger again in the background; a plan that is being computed does so itself."""
        ready = self._ready
        if ready is not None and self._is_wanted(ready.settings):
            self._outlooks.ask(
                lambda: self._look_up(ready), lambda report: self._show_spent(ready, report)
            )

    def _show_spent(self, ready: Ready, report: Seen | Exception) -> None:
        with self._showing:
            if not self._is_wanted(ready.settings) or isinstance(report, Exception):
                return
            # what forbids the same fit again does not stand above the result of the one that has
            # just ended
            if self.ledger.show(report) and not self._shows_fit_of(ready.settings):
                self._show_problems(report.problems)

    # ---- running ---------------------------------------------------------------------------------

    def fit(self) -> None:
        """Start a fit with the settings in the controls, as the Fit button does; return at once."""
        problems = self.problems()
        if problems:
            self.model.insist()
            self._show_problems(problems)
            self.live.refuse(self._to_do)
            if self.data.is_incomplete:
                self._open_part("Data")
            return
        settings = self.settings()
        if not self._takes_over():
            return
        ready, self._ready = self._ready, None
        if ready is not None and ready.fits(settings):
            self._last_ready = ready
            prepare = lambda: ready.prepared  # noqa: E731
        else:
            prepare = lambda: settings.prepare(self._loader.load(settings.data))  # noqa: E731
        self._begin(self._session_of(prepare, settings), resumed=False)

    def _session_of(self, prepare: Callable[[], Any], settings: Settings) -> Session:
        return Session(
            prepare, baseline=settings.baseline, records=settings.data.key, settings=settings
        )

    def resume(self) -> None:
        """Resume a stopped fit, as the Resume button does; return at once."""
        if self._session is not None:
            self._session.compares = bool(self.run.baseline.value)
        super().resume()

    def resume_saved(self, run: SavedRun) -> None:
        """Resume a fit whose process has ended, as the button beside it does; return at once.

        :param run: a ``resuming.SavedRun`` of the chosen records.
        """
        if self.problems():
            return
        settings = self.settings()
        if self._takes_over():

            def prepare() -> Any:
                return prepare_saved(run, self._loader.load(settings.data), settings.over_cap)

            self._begin(self._session_of(prepare, settings), resumed=False)

    def _succeed(self, before: Self) -> None:
        for result in before.results:
            self.history.add(result)
        self._ends = dict(before._ends)
        super()._succeed(before)

    def _begin(self, session: Session, *, resumed: bool) -> None:
        self.result = None
        super()._begin(session, resumed=resumed)

    def _show_begun(self) -> None:
        self._begun = self._fitted = self._session.settings
        self.ledger.outdated()
        self.privacy.show_begun(self._session.promise)
        self._show_running(True)

    def _show_running(self, running: bool, *, resumes: str = "") -> None:
        self.run.show_running(running, can_resume=bool(resumes), resumes=resumes)
        self.ledger.enable(not running)
        self.privacy.runs = running

    def show_result(self, result: FitResult, dataset: Dataset) -> None:
        """Show the result of a fit that ran elsewhere, as if it were this screen's last fit.

        Nothing is fitted. While a fit runs on this screen, nothing happens.

        :param dataset: the data set of the fit.
        """
        if not self._takes_over():
            return
        self.result, self._session = result, None
        self.outcome.clear()
        # or the plan's promise would be shown again
        chosen = None if self.problems() else self.settings()
        shows_metrics = dataset.evaluation_is_public or result.settings["evaluate_private"]
        model = result.definition
        beside = model.view(dataset) if shows_metrics and model is not None else None
        self.history.keep(result)
        self._show_end(End(result, beside, fitted=chosen))
        self.live.show_result(result)
        self._is_running = False
        self._show_running(False)

    def show_again(self, index: int) -> None:
        """Show an earlier fit of the table of fits, as the button in its row does. While a fit runs
        nothing happens.

        :param index: in ``results``.
        """
        result = self.results[index]
        if not self._takes_over():
            return
        end = self._ends.get(id(result)) or End(result, None)
        try:
            self.outcome.clear()
            self._show_end(end)
            self.live.show_result(result, end.drawn)
        finally:
            with self._lock:
                self._is_running = False
        self._controls_changed()  # which fades it where other settings are chosen

    def _show_before(self) -> None:
        """After a fit that has no result, show again what was shown before it."""
        self.outcome.clear()
        self.subject.clear()
        end = self._ends.get(id(self.history.selected))
        if end is not None and not self._closed:
            self._show_end(end)
            self.live.draw_again(end.drawn)

    def _show_end(self, end: End) -> None:
        """Show what a fit has learnt and promised; its curves are there or follow."""
        self._ends[id(end.result)] = end
        self._fitted = end.fitted
        fields.say(self.privacy.promise, "")
        self.outcome.show(end.result, end.beside, end.cautions, end.spent, number=end.number)
        self.subject.show_result(end.result, end.beside)
        self.history.selected = end.result
        self.history.show(compares=self.tabs.open == "Fits")

    def _show_run(self, session: Session, resumed: bool) -> None:
        self.outcome.clear()
        results = self.history.results
        shows_it = session is self._kept and self.history.selected is results[-1]
        self.live.begin(resumed and shows_it)
        self.subject.begin()
        ended = reached = False
        while not ended:
            ended = (
                session.wait(FRAME_SECONDS)
                if reached
                else session.steps_ended.wait(FRAME_SECONDS) and session.ended
            )
            self._tell_active()
            if session.stopping:
                self.run.stop.disabled = True
            has_steps = session.steps_ended.is_set()  # before now, which then says what follows
            now = session.progress()
            self.live.show(session, now)
            self.subject.show(session, now)
            if not reached:
                self.privacy.show_begun(session.promise)
            if has_steps and not reached:
                reached = True
                self._show_reached(session, now)
        self.run.stop.disabled = True
        self._finish(session, resumed)

    def _show_reached(self, session: Session, now: Progress) -> None:
        """Show what is known after the last step, as the posterior takes longer to draw than a
        short fit takes.
        """
        if (
            now.snapshot is not None
            and now.snapshot.status == "done"
            and now.stage != "ended"
            and not self._closed
        ):
            fields.say(self.privacy.promise, "")
            self.outcome.show_reached(session.prepared, now.snapshot.metrics, now.snapshot.step)

    def _show_ended(self, session: Session, trace: str) -> None:
        self._show_running(False, resumes=session.resumes)
        if trace:
            self.live.show_broken(trace)
        else:
            self.live.finish(session, len(self.history.results) - 1)
        if session.was_too_early and not session.prepared.has_begun:
            self._ready = self._last_ready  # which goes on compiling
        elif session.was_too_early or session.result is not None:
            self.ledger.forget_reason()
        super()._show_ended(session, trace)  # prepares the next fit
        if session.argument:
            self._show_problems({session.argument: session.expectation})
        end = self._ends.get(id(session.result))
        if end is not None:  # last, as its picture takes long
            # static output under the widget stays when the notebook is closed
            self._output.write(*written(end.result, end.cautions, end.spent))

    def _panels(self) -> Sequence[Any]:
        return (
            self.model,
            self.data,
            self.privacy,
            self.run,
            self.outcome,
            self.history,
            self.live,
            self.subject,
            self.ledger,
            self.tabs,
        )

    def _forget(self) -> None:
        self._last_ready = None
        self._ends.clear()
        super()._forget()

    def _finish(self, session: Session, resumed: bool) -> None:
        self.live.draw_end(session)
        result = session.result
        if result is None:
            self._show_before()
            return
        self.result = result
        if self._closed:
            return
        spent = result_words(result)
        self.history.keep(result, continues=resumed and session is self._kept)
        self._kept = session
        end = End(
            result,
            session.prepared.data if session.prepared.shows_metrics else None,
            session.cautions,
            spent,
            len(self.history.results),
            self.live.drawn,
            session.settings,
        )
        self._show_end(end)
