"""The base class of the Workbench and Sweep screens, which run one fit or sweep at a time."""

from __future__ import annotations

import functools
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import ipywidgets as widgets
from IPython.display import display

from workbench._memory import give_back
from workbench._validate import ArgumentError
from workbench.clipping.separation import PrivacyModelError
from workbench.data import Dataset
from workbench.widgets.kit import fields
from workbench.widgets.kit.base import Presenting
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.notebook import NotebookOutput, complete_for_voila, namespace
from workbench.widgets.kit.tabs import Tabs
from workbench.widgets.kit.threads import background
from workbench.widgets.workbench import session as sessions
from workbench.widgets.workbench import suitability
from workbench.widgets.workbench.data_panel import DataPanel
from workbench.widgets.workbench.data_source import Loader
from workbench.widgets.workbench.learning import Learning
from workbench.widgets.workbench.model_panel import ModelPanel
from workbench.widgets.workbench.run_panel import RunPanel
from workbench.widgets.workbench.settings import FORMULA

__all__ = ["FRAME_SECONDS", "RunScreen"]

FRAME_SECONDS = 0.4
_ACTIVE_SECONDS = 30.0
# models of a target with classes, which a formula has too
_CLASSIFIERS = ("logistic", "hierarchical_logistic", "neural_classifier")


class RunScreen(Presenting, ABC):
    """A screen that runs a fit or a sweep with the settings in its controls. Callbacks only set
    flags and start threads.

    During a run, only one presenter thread updates what is shown about it. It shows the newest
    state a few times a second and skips those in between. Another thread computes the consequences
    of the controls, once they have stopped changing. Subclasses make ``run`` and ``tabs``, and end
    ``__init__`` with ``_start``.

    :param ahead: computes the consequences.
    :param workers: further threads.
    """

    run: RunPanel
    tabs: Tabs
    offers_formulas = False

    def __init__(
        self,
        model: str,
        data: str | Dataset,
        options: Mapping[str, Any],
        ahead: Latest,
        *workers: Latest,
    ) -> None:
        self._ahead, self._suits = ahead, Latest("dpvi-suits", pause=0.0)
        super().__init__(ahead, *workers, self._suits)
        self.result: Any = None
        self._ready: Any = None  # what could start now
        self._data_key: Any = None
        # key of the settings whose consequences are wanted; None if the settings have problems
        self._wanted: Any = None
        self._is_complete = self._is_running = False
        self._active_until = 0.0
        # held while a run starts or ends, and while the screen closes
        self._lock = threading.Lock()
        self._loader, self._output = Loader(), NotebookOutput()
        self.model = ModelPanel(
            model,
            options,
            self._controls_changed,
            formulas=self.offers_formulas,
            namespace=namespace,
        )
        self._offered = ""  # the formula of the declared columns that was chosen last
        learning = Learning(
            self._learns,
            self._formula,
            self._choose_formula,
        )
        self.data = DataPanel(
            data, self._controls_changed, namespace, learning if self.offers_formulas else None
        )

    def _start(self) -> None:
        """Begin to react to the controls, when the screen is complete."""
        self.run.stop.on_click(lambda _: self.stop())
        self.run.resume.on_click(lambda _: self.resume())
        self.data.named.on_change(self._open_own_data)
        self.model.model.on_change(lambda: self._mark("model"))
        self.data.named.on_change(lambda: self._mark("data"))
        self._is_complete = True
        self._controls_changed()
        sessions.warm_up()
        self.run.find_devices()

    def _bar(
        self,
        long: Sequence[fields.Field],
        short: Sequence[fields.Field],
        *errors: widgets.Widget,
        status: widgets.HTML,
        words: Sequence[widgets.HTML] = (),
    ) -> Any:
        """What is run, the problems of its fields, and the buttons beside what the run does.

        :param long: fields that need more room. :param errors: further lines below, also for those
            of ``short``; one line has its room always, so that nothing moves. :param words: that
            stand before the first fields and make a sentence of them, so that their labels are for
            screen readers alone.
        """
        boxes = [field.box for field in (*long, *short)]
        for index, box in enumerate(boxes):
            fields.set_style(fields.styled(box, "dpvi-field"), "dpvi-long", index < len(long))
            fields.set_style(box, "dpvi-worded", index < len(words))
        sentence = [widget for pair in zip(words, boxes, strict=False) for widget in pair]
        bar = fields.styled(widgets.Box([*sentence, *boxes[len(words) :]]), "dpvi-bar")
        fields.set_style(bar, "dpvi-sentence", bool(words))
        lines = [*(field.error_line for field in long), *errors]
        problems = fields.styled(widgets.Box(lines), "dpvi-problems")
        actions = fields.styled(widgets.Box([self.run.buttons, status]), "dpvi-actions")
        return widgets.VBox([bar, problems, actions])

    def _open_part(self, title: str) -> None:
        """Show a part of the screen, such as one whose field has a problem."""
        self.tabs.open = title

    def _mark(self, changed: str = "") -> None:
        """Grey the data sets that the model cannot fit and the models that cannot fit the data,
        once they are known.

        :param changed: "model" or "data", which the other then follows; "" if nobody has chosen
            yet.
        """
        model, data = self.model.name, self.data.named_set

        def find() -> tuple[dict[str, str], dict[str, str]]:
            if not changed:
                self._ahead.wait()  # what is shown first needs the processor more
            return suitability.unsuitable_data(model), suitability.unsuitable_models(data)

        self._suits.ask(find, lambda reasons: self._show_marks(reasons, changed))

    def _show_marks(
        self, reasons: tuple[dict[str, str], dict[str, str]] | Exception, changed: str
    ) -> None:
        with self._showing:
            if self._closed or isinstance(reasons, Exception):
                return
            of_data, of_models = reasons
            self.data.mark(of_data, changed == "model")
            if changed == "data" and self.model.name in of_models:
                self.model.model.value = suitability.first_model(of_models) or self.model.name
            self.model.mark(of_models)

    # ---- columns that a fit learns ---------------------------------------------------------------

    def _learns(self) -> bool:
        """Whether the chosen model learns what is not declared."""
        return self.model.name == FORMULA

    def _formula(self) -> str:
        return str(self.model.options().get("formula", "")) if self._learns() else ""

    def _choose_formula(self, formula: str, family: str) -> None:
        """Choose the regression of a formula. :param family: "" for that of the chosen model."""
        chosen = self.model.options() if self._learns() else {}
        if not family and self.model.name in _CLASSIFIERS:
            family = "bernoulli"
        options = {**chosen, "formula": formula}
        before, self._offered = self._offered, formula
        if formula == before == self._formula():
            return
        self.model.choose(FORMULA, options | ({"family": family} if family else {}))

    def _follow_columns(self) -> None:
        """Choose the regression of the declared columns anew where the one before was chosen and
        nobody has changed it.
        """
        regression = self.data.regression
        if self._offered and regression is not None and self._formula() == self._offered:
            formula, family = regression
            is_same = formula.partition("~")[0] == self._offered.partition("~")[0]
            self._choose_formula(formula, "" if is_same else family)

    def _open_own_data(self) -> None:
        if self.data.has_own_source:
            self._open_part("Data")

    # ---- controls --------------------------------------------------------------------------------

    @abstractmethod
    def settings(self) -> Any:
        """The settings in the controls."""

    @abstractmethod
    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``, as far as is known without computing the plan."""

    @abstractmethod
    def _show_problems(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field."""

    @abstractmethod
    def _follow_problems(self) -> None:
        """Show that the consequences are unknown, because the controls have problems."""

    # settings and sessions are of classes of their own in each screen
    @abstractmethod
    def _follow(self, settings: Any) -> None:
        """Start to compute and show the consequences of ``settings``."""

    def _controls_changed(self) -> None:
        if not self._is_complete or self._closed:
            return
        with self._showing:
            self._follow_columns()
            problems = self.problems()
            self._show_problems(problems)
            if problems:
                self._wanted = None
                self._ahead.drop()
                self._follow_problems()
                return
            settings, boxes = self.settings(), self.run.of_private_records
            if settings.data.key != self._data_key:  # the boxes were ticked for other records
                self._data_key = settings.data.key
                if ticked := [box for box in boxes if box.value]:
                    for box in ticked:
                        box.value = False  # which calls this again
                    return
            self._wanted = settings.key
            for box in boxes:
                box.visible = settings.data.may_score_private
            self._follow(settings)

    def _is_wanted(self, settings: Any) -> bool:
        """Whether the controls still have these settings."""
        return not self._closed and settings.key == self._wanted

    def _show_refusal(self, error: Exception) -> None:
        """Show an error beside its field, if it has one."""
        if isinstance(error, ArgumentError):
            self._show_problems({error.argument: error.expectation})
        elif isinstance(error, PrivacyModelError):
            self._show_problems({"model": str(error)})

    def _ipython_display_(self) -> None:
        self._replace()
        self.model.refresh()
        self.data.refresh()
        complete_for_voila(self._ahead.wait)
        display(self.view)
        self._output.add(display(self._output.content, display_id=True))
        self._mark()

    # ---- running ---------------------------------------------------------------------------------

    def resume(self) -> None:
        """Resume the stopped run, as the Resume button does; return at once."""
        session = self._session
        if session is not None and session.can_resume and self._takes_over():
            self._begin(session, resumed=True)

    def _takes_over(self) -> bool:
        """Reserve the screen for a new run; return False if a run is active or the screen is
        closed.
        """
        with self._lock:
            may = not (self._is_running or self._closed)
            self._is_running = self._is_running or may
        return may

    def _begin(self, session: Any, *, resumed: bool) -> None:
        session.start()
        self._follow_run(session, resumed=resumed)

    def _follow_run(self, session: Any, *, resumed: bool) -> None:
        self._session = session
        self._show_begun()
        self._presenter = background(
            functools.partial(self._present, session, resumed), "dpvi-presenter", session.stop
        )

    @abstractmethod
    def _show_begun(self) -> None:
        """Show that a run has begun."""

    @abstractmethod
    def _show_run(self, session: Any, resumed: bool) -> None:
        """Show a run until it has ended. Nothing else may write the traits of these widgets."""

    def _tell_active(self) -> None:
        """Tell the server now and then that this kernel is at work. It may end idle ones, and a
        thread's work looks idle.
        """
        if time.monotonic() >= self._active_until:
            self._active_until = time.monotonic() + _ACTIVE_SECONDS
            self.run.stop.send_state("disabled")  # any message does

    def _show_ended(self, session: Any, trace: str) -> None:
        """Show how the run has ended, now that another may begin.

        :param trace: the traceback of an error of the screen while it showed the run; "" for none.
        """
        self._controls_changed()

    def _present(self, session: Any, resumed: bool) -> None:
        trace = ""
        try:
            self._show_run(session, resumed)
        except Exception:  # an error while showing a run must not lock the screen
            session.wait()
            self.result, trace = session.result, traceback.format_exc()
        with self._lock:
            self._is_running = False
        if self._closed:
            self._forget()
            return
        give_back()
        self._show_ended(session, trace)

    def _succeed(self, before: Self) -> None:
        """Take over the run of a screen whose cell was run again and made this one, and close that
        screen.
        """
        session = before.release()
        if session is not None and self._takes_over():
            self._follow_run(session, resumed=False)

    def release(self) -> Any:
        """Close this screen without stopping its run; return the run's session, None if none is
        active.
        """
        with self._lock:
            session = self._session if self._is_running else None
        self.close(stop=session is None)
        return session

    # ---- the end ---------------------------------------------------------------------------------

    def close(self, *, stop: bool = True) -> None:
        """Stop the run, remove the view and forget data and runs; ``result`` stays.

        :param stop: False to let the run go on without this screen.
        """
        with self._lock:
            self._closed = True
            running = self._is_running
        if stop:
            self.stop()
        super().close()
        if not running:  # otherwise the presenter forgets them when the run has ended
            self._forget()

    def _forget(self) -> None:
        self._session = self._ready = None
        self._loader.close()
        self._output.close()
        give_back()
