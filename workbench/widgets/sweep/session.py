"""One sweep in a background thread: its progress, its speed, and flags to stop and resume it. No
widgets here.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workbench._validate import kind_and_message
from workbench.sweeps.result import SweepResult
from workbench.sweeps.running import Run
from workbench.sweeps.sweeping import PreparedSweep, Progress
from workbench.widgets.kit.threads import Stoppable

__all__ = ["Moment", "SweepSession", "iterations_of", "pace_of"]

_BATCHES = {"cpu": 6}  # batches of fits in which a figure fills
_FEWEST_BATCHES = 2  # on other devices, where more lanes take hardly more time


class Moment(NamedTuple):
    """The progress of a sweep at one moment.

    :param fits: number of ended fits.
    :param planned: number of planned fits.
    :param step: steps taken by the running fits.
    :param steps: planned steps of the running fits.
    :param fraction: share of this run's work that is done, from 0 to 1.
    :param seconds: of the sweep so far, without the time between a stop and what resumed it.
    :param seconds_left: None while unknown.
    """

    fits: int
    planned: int
    step: int
    steps: int
    fraction: float
    seconds: float
    seconds_left: float | None


def pace_of(prepared: PreparedSweep) -> float | None:
    """Average seconds per step of one fit among others, from the store's fits of this model and
    these records.

    None if there are no such fits. Compilation is not included.
    """
    grid = prepared.grid
    names = {model.name for model in grid.models}
    records = {grid.fingerprint_of(cell) for cell in prepared.cells.values()}
    rows = prepared.store.rows()
    finished = [
        row
        for row in rows
        if row["status"] == "done" and row["model"] in names and row["fingerprint"] in records
    ]
    finished = [row for row in finished if row["iterations"] is not None]
    steps = sum(row["iterations"] for row in finished)
    return sum(row["seconds"] for row in finished) / steps if steps else None


def iterations_of(runs: Iterable[Run]) -> dict[str, int]:
    """Planned steps by key; 0 for runs that take no steps."""
    return {run.key: 0 if run.plan is None else run.spec.privacy.iterations for run in runs}


class SweepSession(Stoppable):
    """One prepared sweep in a daemon thread. Other threads read ``now()`` and may call ``stop()``.

    ``result`` is the table so far. ``problem`` is the error that ended the sweep, and ``details``
    its traceback.
    """

    def __init__(self, prepared: PreparedSweep) -> None:
        super().__init__()
        self.prepared = prepared
        self.problem = self.details = ""
        # seconds of runs that ended, and when this one began
        self._clock: tuple[float, float | None] = (0.0, None)
        self._begin()

    def start(self) -> None:
        """Run the missing fits; return at once."""
        self._begin()
        self._clock = self._clock[0], time.perf_counter()
        self._launch(self._work, "dpvi-sweep")

    def _begin(self) -> None:
        prepared = self.prepared
        self.problem = self.details = ""
        self._left = iterations_of(prepared.runs)
        self._whole = max(1, sum(self._left.values()))
        self._lanes = self._lanes_for(prepared.runs)
        self._progress = Progress(len(prepared.cells) - len(prepared.runs), len(prepared.cells))
        self._first: tuple[int, float] | None = None  # step and time of the first report
        self._pace: float | None = None

    def _lanes_for(self, runs: Sequence[Run]) -> int:
        """Number of fits to step together: all levels of epsilon in a few repetitions, so that a
        figure fills in batches.
        """
        platform = next((run.spec.device.platform for run in runs), "cpu")
        levels = len(self.prepared.grid.epsilons)
        return levels * max(
            1, math.ceil(len(runs) / levels / _BATCHES.get(platform, _FEWEST_BATCHES))
        )

    @property
    def result(self) -> SweepResult:
        """The table so far."""
        return self.prepared.result()

    @property
    def can_resume(self) -> bool:
        """Whether ``start`` would run the rest of a sweep that ended early."""
        return self.ended and bool(self.prepared.runs)

    def now(self) -> Moment:
        """The progress at this moment."""
        progress, (earlier, began) = self._progress, self._clock
        under_way = min(progress.step * self._lanes, sum(self._left.values()))
        remaining = sum(self._left.values()) - under_way
        return Moment(
            progress.fits,
            progress.planned,
            progress.step,
            progress.steps,
            1 - remaining / self._whole,
            earlier + (0.0 if began is None else time.perf_counter() - began),
            None if self._pace is None else self._pace * remaining,
        )

    def _work(self) -> None:
        try:
            self._pace = pace_of(self.prepared)
            self.prepared.run(self._stop.is_set, self._show, max_lanes=self._lanes)
            self.problem = self.prepared.message
        except (
            Exception
        ) as error:  # a thread has no caller to raise to, so the screen shows the error
            self.problem = (
                f"The sweep ended with an error ({kind_and_message(error)}). Finished fits "
                "are kept."
            )
            self.details = traceback.format_exc()
        finally:
            earlier, began = self._clock
            self._clock = earlier + time.perf_counter() - (began or 0.0), None

    def _show(self, progress: Progress) -> None:
        now = time.perf_counter()
        for key in progress.newest:
            self._left.pop(key, None)
        if progress.newest:
            self._pace = pace_of(self.prepared)
        elif progress.step and self._first is None:
            self._first = progress.step, now
        elif self._first is not None and self._pace is None and progress.step > self._first[0]:
            self._pace = (now - self._first[1]) / (progress.step - self._first[0]) / self._lanes
        self._progress = progress
