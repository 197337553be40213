"""One fit in a background thread: its progress, its end, and flags to stop and resume it. No
widgets here.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _validate
from workbench._compiler import StoppedError, awaited
from workbench._numbers import count, upper
from workbench.clipping.separation import PrivacyModelError
from workbench.inference.training import Snapshot
from workbench.ledger.ledger import LedgerError
from workbench.results import FitResult, HistoryPoint
from workbench.results.entries import entry_names
from workbench.widgets.kit.threads import Stoppable, background
from workbench.widgets.ledger.words import REMEDIES

__all__ = ["Progress", "Session", "warm_up"]

_MOST_FOLLOWED = 5000  # coordinates
_MOST_POINTS = 200
_SUFFIX = re.compile("(_auto)?_(loc|scale)$")


@dataclass(frozen=True)
class Progress:
    """The progress of a fit at one moment.

    :param stage: "preparing", "compiling", "fitting", "drawing" (the posterior), "comparing" (the
        fit without privacy) or "ended".
    :param snapshot: the newest one; None before the first.
    :param history: metrics so far.
    :param seconds_left: None while unknown.
    :param steps_per_second: None while unknown.
    :param stage_seconds: how long this stage has lasted.
    :param spent: (step, upper bound on epsilon so far), ascending.
    :param followed: (step, released parameters as one vector); none of a large model.
    :param followed_names: of the entries of these vectors.
    """

    stage: str
    snapshot: Snapshot | None
    history: tuple[HistoryPoint, ...]
    seconds_left: float | None
    steps_per_second: float | None
    stage_seconds: float = 0.0
    spent: tuple[tuple[int, float], ...] = ()
    followed: tuple[tuple[int, np.ndarray], ...] = ()
    followed_names: tuple[str, ...] = ()


class Session(Stoppable):
    """One fit in a daemon thread. Other threads read ``progress()`` and may call ``stop()``.

    :param prepare: makes the ``PreparedFit``, in the fit's thread.
    :param baseline: whether to fit without privacy afterwards (``workbench.fitting.baseline``).
    :param records: equal for sessions on the same records, whose curves may be compared.
    :param settings: of the fit.
    """

    def __init__(
        self,
        prepare: Callable[[], Any],
        *,
        baseline: bool = False,
        records: Hashable = None,
        settings: Any = None,
    ) -> None:
        super().__init__()
        self.records, self.settings = records, settings
        self.prepared: Any = None
        self.result: FitResult | None = None
        self.baseline: dict[str, float] | None = None
        self.problem = ""
        self.argument = self.expectation = ""  # the argument that was rejected, and why
        self.details = ""
        self.cautions: tuple[str, ...] = ()
        self._prepare = prepare
        self.compares = baseline
        self._stage = "preparing"
        self._stage_began = time.perf_counter()
        self._snapshot: Snapshot | None = None
        self._history: tuple[HistoryPoint, ...] = ()
        self._timed_from: tuple[int, float] | None = None
        self._spent: list[tuple[int, float]] = []
        self._followed: list[tuple[int, np.ndarray]] = []
        self._followed_names: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self.was_too_early = False  # whether it was stopped before its first step
        self.steps_ended = threading.Event()  # before the posterior is drawn, or with the fit

    def start(self) -> None:
        """Begin the fit, or resume it if ``can_resume``; return at once."""
        with self._lock:
            self._enter("preparing")
            self._timed_from = None
        self.steps_ended.clear()
        self.was_too_early = False
        self.result, self.problem, self.argument, self.expectation, self.details = (
            None,
            "",
            "",
            "",
            "",
        )
        self._launch(self._work, "dpvi-fit")

    @property
    def can_resume(self) -> bool:
        """Whether ``start`` would resume a stopped fit."""
        return (
            self.ended
            and self.prepared is not None
            and (self.was_too_early or bool(self.prepared.can_resume))
        )

    @property
    def resumes(self) -> str:
        """What ``start`` would resume and what that costs, in a sentence; "" for nothing."""
        if not self.can_resume:
            return ""
        named = f"Resume continues {self.prepared.model.name} on {self.prepared.data.name}"
        if self.result is None:
            return f"{named} before its first step."
        taken = self.result.guarantee
        steps = f"{count(taken.steps_taken)} of {count(taken.steps)}"
        return f"{named} at step {steps}; costs nothing more."

    def progress(self) -> Progress:
        """A consistent view of this moment."""
        with self._lock:
            snapshot, history, origin = self._snapshot, self._history, self._timed_from
            stage, began = self._stage, self._stage_began
            spent, followed, names = tuple(self._spent), tuple(self._followed), self._followed_names
        speed = remaining = None
        if (
            snapshot is not None
            and origin is not None
            and snapshot.step > origin[0]
            and snapshot.seconds > origin[1]
        ):
            speed = (snapshot.step - origin[0]) / (snapshot.seconds - origin[1])
            remaining = (self.prepared.privacy.iterations - snapshot.step) / speed
        if self.ended:
            stage = "ended"
        return Progress(
            stage,
            snapshot,
            history,
            remaining,
            speed,
            time.perf_counter() - began,
            spent,
            followed,
            names,
        )

    @property
    def promise(self) -> Any:
        """The guarantee of all planned steps; None before they are known."""
        fit = self.prepared
        return None if fit is None else fit.guarantee(fit.privacy.iterations)

    def _enter(self, stage: str) -> None:
        self._stage, self._stage_began = stage, time.perf_counter()

    def _work(self) -> None:
        try:
            if self.prepared is None:
                self.prepared = self._prepare()
                if self.prepared.can_resume:  # its process has ended; continue its curves
                    self._history = self.prepared.result().history
            with self._lock:
                self._enter("compiling")
            self._compile()
            self.cautions = self.prepared.cautions
            for snapshot in self.prepared.run(self._stop.is_set):
                self._show(snapshot)
                self.details = snapshot.details
            last = self._snapshot
            if last is not None and last.status == "cancelled" and not last.step:
                raise StoppedError
            with self._lock:
                self._enter("drawing")
            self.steps_ended.set()
            self.result = self.prepared.result()
            if self.compares and self.baseline is None and self.result.status == "done":
                self._compare()
        except StoppedError:
            partial = self.prepared.result() if self.prepared.can_resume else None
            if partial is not None and partial.guarantee.steps_taken:  # of an earlier process
                self.result = partial
            else:
                self.was_too_early = True
        except (_validate.ArgumentError, LedgerError, PrivacyModelError) as error:
            self.argument, self.problem, self.expectation = (
                getattr(error, "argument", "model"),
                str(error),
                str(error),
            )
            if isinstance(error, _validate.ArgumentError):
                self.problem, self.expectation = error.worded(REMEDIES), error.explained(REMEDIES)
        except (
            Exception
        ) as error:  # a thread has no caller to raise to, so the screen shows the error
            self.problem = f"The fit ended with an error ({_validate.kind_and_message(error)})."
            if self._snapshot is not None and self._snapshot.step:
                self.problem += f" Count epsilon = {upper(self.prepared.privacy.epsilon)} as spent."
                self.result = self.prepared.result()
            self.details = traceback.format_exc()
        finally:
            self.steps_ended.set()

    def _compile(self) -> None:
        """:raises StoppedError: after a stop."""
        compiled: Future[None] = Future()

        def work() -> None:
            try:
                compiled.set_result(self.prepared.compile())
            except BaseException as error:
                compiled.set_exception(error)

        background(work, "dpvi-compile")
        awaited(compiled, self._stop.is_set)
        if self.stopping:
            raise StoppedError

    def _compare(self) -> None:
        from workbench.fitting.baseline import without_privacy

        with self._lock:
            self._enter("comparing")
        try:
            self.baseline = without_privacy(self.prepared, self._stop.is_set)
            if self.baseline is None and not self.stopping:
                self.problem = "There is no comparison without privacy: " + (
                    "its values became infinite or NaN."
                    if self.prepared.shows_metrics
                    else "the evaluation records are private, and their curves were not requested."
                )
        except Exception as error:  # a failed comparison must not lose the private fit
            self.problem = (
                f"The comparison without privacy failed ({_validate.kind_and_message(error)})."
            )
            self.details = traceback.format_exc()

    def _show(self, snapshot: Snapshot) -> None:
        with self._lock:
            if self._timed_from is None and snapshot.compile_seconds is not None:
                self._timed_from = (snapshot.step, snapshot.seconds)
            if self._stage != "fitting":
                self._enter("fitting")
            self._snapshot = snapshot
            if snapshot.metrics:
                point = HistoryPoint(snapshot.metrics_step, dict(snapshot.metrics))
                before = (past for past in self._history if past.step < point.step)
                self._history = (*before, point)
            if snapshot.epsilon_so_far is not None:
                self._spent.append((snapshot.step, snapshot.epsilon_so_far))
            self._follow(snapshot)

    def _follow(self, snapshot: Snapshot) -> None:
        from workbench.fitting.prepared import by_name

        params = by_name(snapshot.params)
        if 0 < sum(map(np.size, params.values())) <= _MOST_FOLLOWED:
            if not self._followed:
                self._followed_names = self._names(params)
            self._followed.append(
                (snapshot.step, np.concatenate([np.ravel(value) for value in params.values()]))
            )
            if len(self._followed) > _MOST_POINTS:
                del self._followed[1::2]

    def _names(self, params: Mapping[str, np.ndarray]) -> tuple[str, ...]:
        """Names of the entries of all parameters, such as "weights_loc[age]"."""
        try:
            coordinates = self.prepared.model.coordinates(self.prepared.data)
            return _named(params, coordinates)
        except Exception:  # of a user's own function or labels: a fit does not end for names
            return _named(params, {})


def _named(params: Mapping[str, np.ndarray], coordinates: Mapping[str, Any]) -> tuple[str, ...]:
    """:param coordinates: labels of the entries of latents, with whose names those of their
    parameters begin.
    """
    entries = (
        entry_names(name, coordinates.get(_SUFFIX.sub("", name)), np.shape(value))
        for name, value in params.items()
    )
    return tuple(itertools.chain.from_iterable(entries))


def warm_up() -> threading.Thread:
    """Import the modules for a first fit in the background, so that the first click is fast."""

    def load() -> None:
        from workbench.fitting import fits  # noqa: F401

    return background(load, "dpvi-warm-up")
