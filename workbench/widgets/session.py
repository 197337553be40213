"""One fit in a background thread: what it last showed, how it ended, and a flag to stop it. No widgets here."""

from __future__ import annotations

import threading
import traceback
from dataclasses import dataclass
from typing import Any

from workbench import _validate
from workbench.data import Dataset
from workbench.inference.records import PrivacyModelError
from workbench.inference.training import Snapshot
from workbench.results import FitResult, HistoryPoint
from workbench.widgets.settings import Settings

__all__ = ["Progress", "Session", "clock", "warm_up"]


@dataclass(frozen=True)
class Progress:
    """What a screen needs to know at one moment.

    :param stage: "preparing", "compiling", "fitting" or "ended".
    :param snapshot: the newest, None before the first. :param history: metrics so far.
    :param seconds_left: None while unknown.
    """

    stage: str
    snapshot: Snapshot | None
    history: tuple[HistoryPoint, ...]
    seconds_left: float | None
    steps_per_second: float | None


class Session:
    """Runs one fit in a daemon thread; other threads read ``progress()`` and may call ``stop()``."""

    def __init__(self, settings: Settings, dataset: Dataset) -> None:
        self.settings = settings
        self.dataset = dataset
        self.result: FitResult | None = None
        self.problem = ""
        self.details = ""
        self.cautions: tuple[str, ...] = ()
        self._prepared: Any = None
        self._snapshot: Snapshot | None = None
        self._history: tuple[HistoryPoint, ...] = ()
        self._timed_from: tuple[int, float] | None = None
        self._stop = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="dpvi-fit", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the fit to end with what it has; returns at once."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether the fit is over, however it went."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False after ``timeout`` seconds."""
        return self._ended.wait(timeout)

    def progress(self) -> Progress:
        """A consistent view of this moment."""
        with self._lock:
            snapshot, history, origin = self._snapshot, self._history, self._timed_from
        speed = None
        if snapshot is not None and origin is not None and snapshot.step > origin[0] and snapshot.seconds > origin[1]:
            speed = (snapshot.step - origin[0]) / (snapshot.seconds - origin[1])
        left = None if speed is None or snapshot is None else (self.settings.iterations - snapshot.step) / speed
        if self.ended:
            stage = "ended"
        elif snapshot is None:
            stage = "preparing"
        else:
            stage = "compiling" if origin is None else "fitting"
        return Progress(stage, snapshot, history, left, speed)

    def _work(self) -> None:
        try:
            self._prepared = self.settings.prepare(self.dataset)
            self.cautions = self._prepared.cautions
            for snapshot in self._prepared.run(self._stop.is_set):
                self._show(snapshot)
            self.result = self._prepared.result()
        except (_validate.ArgumentError, PrivacyModelError) as error:
            self.problem = str(error)
        except Exception as error:  # a thread has no caller to raise to: the screen tells, with the traceback folded
            spent = self._snapshot.step if self._snapshot is not None else 0
            self.problem = f"The fit ended with an error ({type(error).__name__}: {error})."
            if spent:
                self.problem += f" Count epsilon = {self.settings.epsilon:g} as spent."
            self.details = traceback.format_exc()
        finally:
            self._ended.set()

    def _show(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._snapshot = snapshot
            if snapshot.step > 0 and self._timed_from is None:  # the first chunk is mostly compilation
                self._timed_from = (snapshot.step, snapshot.seconds)
            if snapshot.metrics and (not self._history or self._history[-1].step != snapshot.metrics_step):
                self._history = (*self._history, HistoryPoint(snapshot.metrics_step, dict(snapshot.metrics)))


def warm_up() -> threading.Thread:
    """Import what a first fit needs in the background, so that the first click finds it there."""

    def load() -> None:
        import sklearn.metrics  # noqa: F401

        from workbench import fitting  # noqa: F401

    thread = threading.Thread(target=load, name="dpvi-warm-up", daemon=True)
    thread.start()
    return thread


def clock(seconds: float) -> str:
    """ "8 s", "2 min 05 s", "1 h 03 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
