"""One line in a notebook that follows a fit. It never fails the fit, and says nothing that the fit
may not show.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from workbench import _html
from workbench._numbers import count, duration, shown, upper
from workbench.inference.training import Snapshot
from workbench.plots.metrics import in_words

if TYPE_CHECKING:
    from workbench.fitting.prepared import PreparedFit
    from workbench.results.fit_result import FitResult

__all__ = ["ProgressLine", "in_notebook"]

_SECONDS = 0.25  # between two updates
_SHELLS = ("ZMQInteractiveShell", "Shell")  # Jupyter's and Colab's


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython in a terminal is none. Nothing is
    imported to find out.
    """
    ipython = sys.modules.get("IPython")
    try:
        shell = None if ipython is None else ipython.get_ipython()
        return (
            shell is not None
            and type(shell).__name__ in _SHELLS
            and getattr(shell, "kernel", None) is not None
        )
    except Exception:  # a fit must not fail because of it
        return False


class ProgressLine:
    """Shows how far a fit has come, at most four times a second, and at last how it ended.

    :param prepared: the ``PreparedFit``. Metrics are shown where it may show them, with their
        label.
    :param wanted: True to show it, False not to, None to show it in a notebook.
    """

    def __init__(
        self,
        prepared: PreparedFit,
        wanted: bool | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._prepared, self._clock = prepared, clock
        self._is_on = in_notebook() if wanted is None else wanted
        self._handle: Any = None
        self._shown = -_SECONDS
        self._from: tuple[int, float] | None = (
            None  # step and seconds where the compiled steps began
        )

    def begin(self) -> None:
        """Show that the fit begins."""
        self._show(lambda: [self._name(), "compiling"])

    def update(self, snapshot: Snapshot) -> None:
        """Show ``snapshot``, unless the last one was shown just now. The end is left to ``end``."""
        if self._from is None and snapshot.compile_seconds is not None:
            self._from = snapshot.step, snapshot.seconds
        if snapshot.status == "running" and self._is_on and self._clock() - self._shown >= _SECONDS:
            self._show(lambda: self._running(snapshot))

    def end(self, result: FitResult) -> None:
        """Show how the fit ended."""
        self._show(lambda: self._ended(result), last=True)

    def broke(self, error: BaseException) -> None:
        """Show that the fit ended with an error, which its caller sees."""
        self._show(lambda: [self._name(), f"ended with {type(error).__name__}"], last=True)

    def _name(self) -> str:
        return f"{self._prepared.model.name} on {self._prepared.data.name}"

    def _running(self, snapshot: Snapshot) -> list[str]:
        steps = self._prepared.privacy.iterations
        phrases = [self._name(), f"step {count(snapshot.step)} of {count(steps)}"]
        if snapshot.compile_seconds is None:
            phrases.append("compiling")
        elif self._from is not None and snapshot.step > self._from[0]:
            pace = (snapshot.seconds - self._from[1]) / (snapshot.step - self._from[0])
            phrases.append(f"{duration(pace * (steps - snapshot.step), tenths=False)} left")
        if snapshot.epsilon_so_far is not None:
            spent = shown(snapshot.epsilon_so_far, up=True)
            phrases.append(
                f"epsilon spent: at most {spent} of {upper(self._prepared.privacy.epsilon)}"
            )
        return phrases + self._metrics(
            {name: snapshot.metrics[name] for name in ("elbo",) if name in snapshot.metrics}
        )

    def _ended(self, result: FitResult) -> list[str]:
        guarantee = result.guarantee
        steps = f"{count(guarantee.steps_taken)} of {count(guarantee.steps)} steps"
        taken = f"{steps} in {duration(result.seconds)}"
        promise = f"epsilon = {upper(guarantee.epsilon)}, delta = {upper(guarantee.delta)}"
        if math.isinf(guarantee.epsilon):
            promise = "NO PRIVACY"
        return [self._name(), result.status, taken, promise, *self._metrics(result.metrics)]

    def _metrics(self, metrics: dict[str, Any]) -> list[str]:
        if not metrics or not self._prepared.shows_metrics:
            return []
        return [f"{', '.join(in_words(metrics))} ({self._prepared.data.evaluation_label})"]

    def _show(self, phrases_of: Callable[[], list[str]], *, last: bool = False) -> None:
        if not self._is_on:
            return
        try:
            from IPython.display import display

            name, *details = phrases_of()
            suffix = "".join(f" · {detail}" for detail in details)
            words = {"text/html": _html.note(name, suffix.lstrip()), "text/plain": name + suffix}
            if self._handle is None:
                self._handle = display(words, raw=True, display_id=True)
            else:
                self._handle.update(words, raw=True)
            self._shown = self._clock()
        except Exception:  # a frontend that is gone, or a user's model with odd metrics
            self._is_on = False
        if last:
            self._is_on = False
