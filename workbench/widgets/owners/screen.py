"""What the coordinator of several owners sees, and what an owner sees.

A thread runs the rounds, and another shows how they go. Callbacks only start them and set flags.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import ipywidgets as widgets

from workbench._numbers import count
from workbench._validate import ArgumentError, kind_and_message
from workbench.ledger.ledger import LedgerError
from workbench.owners import OwnersError, Plan, answer, code
from workbench.owners.planning import as_plan
from workbench.owners.rounds import PATIENCE, PORT, Meeting, fit_of, opened
from workbench.privacy.guarantee import Guarantee
from workbench.results import FitResult
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.base import Presenting, framed
from workbench.widgets.kit.threads import Stoppable, background
from workbench.widgets.workbench.live_panel import LivePanel, traceback_fold
from workbench.widgets.workbench.run_screen import FRAME_SECONDS
from workbench.widgets.workbench.session import Session
from workbench.widgets.workbench.subject_panel import SubjectPanel

__all__ = ["Coordinator", "Owner"]

_CODE = "All owners must read this code to each other before they begin: "


class _Fit(Session):
    """A coordinator's fit: it waits for the owners first.

    :param open_meeting: given whether to stop, makes the context of a meeting.
    """

    can_resume = False  # the owners have gone

    def __init__(
        self,
        open_meeting: Callable[[Callable[[], bool]], contextlib.AbstractContextManager[Meeting]],
    ) -> None:
        super().__init__(lambda: None)
        self._open_meeting = open_meeting
        self.meeting: Meeting | None = None

    def _work(self) -> None:
        try:
            with self._open_meeting(self._stop.is_set) as self.meeting:
                prepared = fit_of(self.meeting)
                self.meeting.gather()
                self.prepared = prepared
                super()._work()
        except (ArgumentError, OwnersError) as error:
            self.problem = str(error)
        except Exception as error:  # a thread has no caller to raise to
            self.problem, self.details = kind_and_message(error), traceback.format_exc()
        if self.was_too_early:
            self.was_too_early = False
            self.problem = "Stopped before the first step. What owners were charged stays charged."
        self.steps_ended.set()


class _Answers(Stoppable):
    """An owner's answers. :param answered: ``answer``, but for what follows its rounds."""

    def __init__(self, answered: Callable[..., Guarantee]) -> None:
        super().__init__()
        self._answered = answered
        self.rounds = 0
        self.guarantee: Guarantee | None = None
        self.problem = self.details = ""

    def start(self) -> None:
        """Begin; return at once."""
        self._launch(self._work, "dpvi-owner")

    def _work(self) -> None:
        try:
            self.guarantee = self._answered(stop=self._stop.is_set, on_round=self._note)
        except (ArgumentError, LedgerError, OwnersError) as error:
            self.problem = str(error)
        except Exception as error:  # a thread has no caller to raise to
            self.problem, self.details = kind_and_message(error), traceback.format_exc()

    def _note(self, number: int) -> None:
        self.rounds = number


Run = TypeVar("Run", _Fit, _Answers)


class _Rounds(Presenting, ABC, Generic[Run]):
    """A screen with a button that begins the rounds of a plan, and one that ends them.

    :param label: of the first button, and ``help`` of it.
    """

    status: widgets.HTML

    def __init__(
        self, plan: Plan | str | Path, keys: Iterable[str | Path], label: str, help: str
    ) -> None:
        super().__init__()
        self.plan = as_plan(plan)
        self._is_succeeded = False
        words = _CODE + code(self.plan, keys)
        self.asked = widgets.HTML(markup.sentence(self.plan.question()) + markup.quiet(words))
        self.begin = fields.button(label, self.start, help, icon="play", primary=True)
        self.end = fields.button(
            "Stop", self.stop, "End the rounds, for all owners", icon="stop", disabled=True
        )
        buttons = fields.styled(widgets.HBox([self.begin, self.end]), "dpvi-buttons")
        self.view = framed(self.asked, buttons, *self._parts())

    @abstractmethod
    def _parts(self) -> Sequence[Any]:
        """What stands below the buttons."""

    @abstractmethod
    def _new_run(self) -> Run:
        """What runs in a thread, with ``start``, ``stop`` and ``wait``."""

    @abstractmethod
    def _show(self, run: Run) -> None:
        """Show how far it is."""

    @abstractmethod
    def _show_end(self, run: Run) -> None:
        """Show how it ended."""

    @abstractmethod
    def _is_answered(self, run: Run) -> bool:
        """Whether the plan has been, which it is once."""

    def start(self) -> None:
        """Begin the rounds, as the first button does; return at once."""
        if self._session is None or self._session.ended:
            run = self._new_run()
            run.start()
            self._follow(run)

    def _follow(self, run: Run) -> None:
        self._session = run
        self.begin.disabled, self.end.disabled = True, False
        present = functools.partial(self._present, run)
        self._presenter = background(present, "dpvi-presenter", run.stop)

    def _present(self, run: Run) -> None:
        while not self._closed:
            is_over = run.wait(FRAME_SECONDS)
            with self._showing:
                if self._closed:
                    return
                try:
                    (self._show_end if is_over else self._show)(run)
                except Exception:  # the rounds go on, or have ended as they have
                    problem = markup.problem("The rounds cannot be shown.")
                    self.status.value = problem + traceback_fold(traceback.format_exc())
                if is_over:
                    self.begin.disabled, self.end.disabled = self._is_answered(run), True
                    return

    def _succeed(self, before: Self) -> None:
        before._is_succeeded = True  # to stop would end the rounds for all owners
        super()._succeed(before)
        if before._session is not None and self._session is None:
            self._follow(before._session)

    def close(self) -> None:
        """End the rounds, and remove the view."""
        if not self._is_succeeded:
            self.stop()
        super().close()


class Coordinator(_Rounds[_Fit]):
    """A screen of a coordinator: which owners are there, the fit as it goes, and its result.

    >>> wb.widgets.Coordinator("plan.json", [])
    Traceback (most recent call last):
    workbench._validate.ArgumentError: plan='plan.json': no such file.

    :param plan: of steps, or its file. :param keys: and all others as of ``wb.owners.coordinate``.
    :raises ArgumentError: naming the argument and its value.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        keys: Iterable[str | Path],
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        certificate: str | Path | None = None,
        private_key: str | Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        agreed, files = as_plan(plan), list(keys)
        if agreed.rounds == 1:
            reason = "has one round, of which there is nothing to see: use wb.owners.coordinate."
            raise ArgumentError("plan", agreed.model, reason)
        self._open_meeting = functools.partial(
            opened,
            agreed,
            files,
            host=host,
            port=port,
            certificate=certificate,
            private_key=private_key,
            patience=patience,
        )
        super().__init__(agreed, files, "Listen", "Wait for the owners, and fit with their sums")

    @property
    def result(self) -> FitResult | None:
        """What the last fit has come to so far."""
        return None if self._session is None else self._session.result

    def _parts(self) -> Sequence[Any]:
        self._live, self._subject = LivePanel(), SubjectPanel()
        self.status, self.promise = self._live.status, widgets.HTML()
        self._live.status.value = markup.status(markup.note("Ready.", "Press Listen."), 0.0)
        return (self.status, fields.beside(self._subject.view, self._live.score), self.promise)

    def _new_run(self) -> _Fit:
        open_meeting = self._open_meeting
        return _Fit(lambda stop: open_meeting(stop=stop))

    def _follow(self, run: _Fit) -> None:
        self._live.begin(resumed=False)
        self._subject.begin()
        self.promise.value = ""
        super()._follow(run)

    def _show(self, run: _Fit) -> None:
        meeting = run.meeting
        if meeting is not None and meeting.has_begun:
            now = run.progress()
            self._live.show(run, now)
            self._subject.show(run, now)
        elif meeting is not None:
            owners, joined = self.plan.owners, meeting.joined
            missing = ", ".join(owner for owner in owners if owner not in joined)
            said = f"{', '.join(joined)} joined" if joined else "nobody has joined yet"
            line = markup.note(f"Waiting for {missing}." if missing else "All are here.", said)
            self._live.begin(resumed=False)  # its time is that of the steps
            self.status.value = markup.status(line, 0.0)

    def _show_end(self, run: _Fit) -> None:
        self._live.finish(run)
        if run.result is not None:
            self._subject.show_result(run.result)
            cautions = "".join(map(markup.problem, run.result.cautions))
            self.promise.value = cautions + _promise(run.result.guarantee)

    def _is_answered(self, run: _Fit) -> bool:
        return run.result is not None

    def _panels(self) -> Sequence[Any]:
        return (self._live, self._subject)


class Owner(_Rounds[_Answers]):
    """A screen of an owner: what is asked of its records and what it costs, its rounds, and Stop.

    >>> wb.widgets.Owner("plan.json", "Bern", None, [], "http://127.0.0.1:8920")
    Traceback (most recent call last):
    workbench._validate.ArgumentError: plan='plan.json': no such file.

    :param plan: and all others as of ``wb.owners.answer``.
    :raises ArgumentError: naming the argument and its value.
    """

    def __init__(
        self,
        plan: Plan | str | Path,
        owner: str,
        data: Any,
        keys: Iterable[str | Path],
        server: str,
        *,
        certificate: str | Path | None = None,
        name: str | None = None,
        ledger: Any = None,
        over_cap: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        agreed, files = as_plan(plan), list(keys)
        agreed.position(owner)
        self._answered = functools.partial(
            answer,
            agreed,
            owner,
            data,
            files,
            server,
            certificate=certificate,
            name=name,
            ledger=ledger,
            over_cap=over_cap,
            patience=patience,
        )
        tip = "Answer with noised and masked sums of your records; the ledger has the charge first"
        super().__init__(agreed, files, "Answer", tip)

    def _parts(self) -> Sequence[Any]:
        self.status = widgets.HTML(markup.status(markup.note("Ready.", "Press Answer."), 0.0))
        self.promise = widgets.HTML()
        return (self.status, self.promise)

    def _new_run(self) -> _Answers:
        return _Answers(self._answered)

    def _show(self, run: _Answers) -> None:
        # the charge is made in the first round, of which there is no sign
        first, facts = "Waiting.", "The ledger is charged once all owners are here, not before."
        if run.rounds:
            first, facts = "Answering…", f"The ledger has the charge. {self._done(run)}"
        self._say(markup.note("Stopping…" if run.stopping else first, facts), run)

    def _done(self, run: _Answers) -> str:
        return f"Round {count(run.rounds)} of {count(self.plan.rounds)}."

    def _say(self, line: str, run: _Answers, end: str = "") -> None:
        self.status.value = markup.status(line, run.rounds / self.plan.rounds, end)

    def _show_end(self, run: _Answers) -> None:
        if run.guarantee is not None:
            self._say(markup.note("Done.", self._done(run)), run)
            self.promise.value = _promise(run.guarantee)
            return
        line = markup.note("Ended.", self._done(run) if run.rounds else "")
        self._say(line + markup.problem(run.problem) + traceback_fold(run.details), run, "failed")

    def _is_answered(self, run: _Answers) -> bool:
        return run.rounds > 0


def _promise(guarantee: Guarantee) -> str:
    first, *others = map(markup.sentence, guarantee.statement().split("\n\n"))
    return first + markup.fold("How, and on what conditions", "<br>".join(others))
