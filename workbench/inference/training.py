"""The one training loop: compiled chunks of steps, snapshots out, stop in.

Command line, notebooks, widgets and sweeps all consume the iterator that ``run`` returns.
"""

from __future__ import annotations

import contextlib
import functools
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from workbench._compiler import StoppedError, awaited
from workbench.inference import program_cache
from workbench.inference.bringing import are_at_rest, bringing
from workbench.inference.compiling import Compiling, compile_ahead, interval_of
from workbench.inference.processes import ProcessError
from workbench.inference.recent_mean import RecentMean, copied
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.record_model.model import Record

__all__ = ["EndedError", "Snapshot", "all_finite", "run", "to_the_end"]

Status = Literal["running", "done", "cancelled", "failed"]

_CHUNK_SECONDS = 0.3  # how long a request to stop may have to wait
_FIRST_CHUNK_STEPS = 10  # until a step has been timed
_EVALUATION_SECONDS = (
    0.3  # between two evaluations, or ``interval_of`` steps, whichever comes first;
)
_EVALUATION_SHARE = (
    0.25  # but they may take only this share of the run's time, where one of them is slow,
)
_EVALUATIONS_FREE = 1.0  # and this many seconds
_INTERRUPTED = "interrupted"
_NOT_FINITE = (
    "the parameters were no longer finite after step {}; the values shown are from before. "
    "Try a smaller learning rate, a smaller clip or a larger epsilon."
)


class EndedError(OSError):
    """Why a run cannot go on, in a sentence that is shown as it is."""


@dataclass(frozen=True)
class Snapshot:
    """What a run shows between two chunks.

    >>> steps = []
    >>> note = lambda snapshot: steps.append(snapshot.step)
    >>> execution = wb.Execution(on_snapshot=note)
    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0, execution=execution)
    >>> steps[0], steps[-1]
    (0, 800)

    :param status: "running", or how the run ended.
    :param step: steps taken so far, counting a chunk that failed or was interrupted as taken.
    :param params: constrained parameters, ``{name: numpy array or pytree of them}``: covered by the
        guarantee.
    :param epsilon_so_far: upper bound on epsilon of what was released so far; None where no
        accountant was given.
    :param metrics: the newest values of ``evaluate``; what they may be used for depends on the
        evaluation records. Those of a run that failed, or was interrupted within a chunk, may be of
        the mean of recent iterates.
    :param metrics_step: the step that ``metrics`` belong to.
    :param seconds: time since the first chunk began.
    :param seconds_per_step: of the newest chunk; None until a compiled step has been timed.
    :param compile_seconds: what compiling the steps took, before the run or in it; None until that
        is done.
    :param message: why the run failed, or what else went wrong, for people.
    :param details: the traceback behind it.
    """

    status: Status
    step: int
    params: dict[str, Any]
    epsilon_so_far: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_step: int = 0
    seconds: float = 0.0
    seconds_per_step: float | None = None
    compile_seconds: float | None = None
    message: str = ""
    details: str = ""


def all_finite(params: Any) -> bool:
    """Whether every entry of a pytree of arrays is a finite number."""
    return all(bool(np.all(np.isfinite(value))) for value in jax.tree.leaves(params))


class _Display:
    """The progress of a run, as it is shown."""

    def __init__(
        self,
        private_step: PrivateStep,
        averaged: bool,
        recent: RecentMean,
        evaluate: Callable[[dict[str, jax.Array]], dict[str, float]] | None,
        epsilon_at: Callable[[int], float] | None,
    ) -> None:
        self._private_step, self._averaged, self._recent = private_step, averaged, recent
        self._evaluate, self._epsilon_at = evaluate, epsilon_at
        self._constrain = program_cache.jit(
            functools.partial(private_step.get_params, averaged=averaged)
        )
        self.step = 0
        self.params: dict[str, Any] = {}
        self.seconds_per_step: float | None = None
        self.compile_seconds: float | None = None
        self.metrics_step = 0
        self._metrics: dict[str, float] = {}
        self.message = self.details = ""
        self._evaluating = 0.0  # seconds
        self._started = self._measured = time.perf_counter()

    def host_params(self, state: DPVIState) -> dict[str, Any]:
        """Constrained parameters; copies, because the next chunk reuses the state's memory."""
        return jax.tree.map(lambda value: np.array(value, copy=True), self._constrain(state))

    def end_of_chunk(self, steps: int, interval: int) -> int:
        """The step at which the next chunk ends."""
        per_step = self.seconds_per_step
        affordable = (
            _FIRST_CHUNK_STEPS if per_step is None else max(1, int(_CHUNK_SECONDS / per_step))
        )
        return min(steps, self.step + min(affordable, interval - self.step % interval))

    def is_due(self, interval: int) -> bool:
        """Whether an evaluation is due, and may be afforded."""
        now = time.perf_counter()
        due = self.step % interval == 0 or now - self._measured > _EVALUATION_SECONDS
        return (
            due
            and self._evaluating <= _EVALUATION_SHARE * (now - self._started) + _EVALUATIONS_FREE
        )

    def follow(self, state: DPVIState, steps: int) -> None:
        """Take in ``state``, which is ``steps`` newer than the last one."""
        self._recent.follow(self._private_step.unconstrained(state), self.step, steps)

    def measure(self, state: DPVIState, *, is_last: bool = False) -> None:
        """Evaluate at ``state``; the first evaluation that fails is the last one.

        :param is_last: whether the run returns what ``state`` has.
        """
        began = self._measured = time.perf_counter()
        if self._evaluate is None:
            return
        try:
            returned = self._private_step.unconstrained(state, self._averaged)
            self._metrics = self._evaluate(
                returned if is_last else self._recent.at(self.step, returned)
            )
            self.metrics_step, self._measured = self.step, time.perf_counter()
            self._evaluating += (self._measured - began) * (self.step > 0)  # the first one compiles
        except (
            Exception
        ) as error:  # whatever a model's own score raises must not lose what epsilon was spent on
            self._evaluate = None
            self.message = (
                f"metrics could not be computed from step {self.step} on "
                f"({type(error).__name__}: {error})."
            )
            self.details = traceback.format_exc()

    def snapshot(self, status: Status) -> Snapshot:
        return Snapshot(
            status=status,
            step=self.step,
            params=self.params,
            epsilon_so_far=self._epsilon_at(self.step) if self._epsilon_at else None,
            metrics=dict(self._metrics),
            metrics_step=self.metrics_step,
            seconds=time.perf_counter() - self._started,
            seconds_per_step=self.seconds_per_step,
            compile_seconds=self.compile_seconds,
            message="" if status == "running" else self.message,
            details=self.details,
        )


def run(
    private_step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    records: Record,
    steps: int,
    *,
    stop: Callable[[], bool] = lambda: False,
    evaluate: Callable[[dict[str, jax.Array]], dict[str, float]] | None = None,
    epsilon_at: Callable[[int], float] | None = None,
    averaged: bool = False,
    compiled: Compiling | None = None,
    before_chunk: Callable[[DPVIState, int], None] | None = None,
) -> Generator[Snapshot, None, DPVIState]:
    """Train until step number ``steps`` and yield a ``Snapshot`` before the first chunk and after
    each.

    Chunks take about 0.3 s or end at an evaluation, whichever comes first. The last snapshot's
    status is "done", "cancelled" (``stop()`` was true between two chunks, in any process, or
    KeyboardInterrupt) or "failed" (the parameters are not finite any more, JAX raised or another
    process ended; the snapshot then holds the last good parameters).

    >>> from numpyro.optim import Adam
    >>> data, logistic = wb.data.load("breast_cancer"), wb.models.get("logistic")
    >>> target = {"epsilon": 1.0, "iterations": 100, "sampling_rate": 0.1}
    >>> dpvi = wb.inference.DPVI(logistic.model, logistic.guide, Adam(0.05), **target)
    >>> state = dpvi.init(wb.noise.new_key(), *data.train)
    >>> snapshots = wb.inference.run(
    ...     dpvi.private_step, dpvi.hyper, state, data.train, 100
    ... )
    >>> first = next(snapshots)
    >>> first.status, first.step
    ('running', 0)

    :param state: from ``private_step.init``, or the end of an earlier run.
    :param records: the private records, arrays with first axis N, which may stay in a file
        (``data.open``).
    :param steps: T, the step number to stop at (steps of earlier runs of ``state`` included).
    :param stop: asked between chunks, and while the steps compile.
    :param evaluate: called with the unconstrained parameters every 0.3 s, and 25 times a run or
        more; less often where it would take more than a quarter of the time. With ``averaged`` it
        gets the mean of about the last half of the iterates so far.
    :param epsilon_at: epsilon after a number of steps, for display.
    :param averaged: show and evaluate the mean of the iterates (``PrivateStep.get_params``).
    :param compiled: of ``compile_ahead`` for the same ``private_step`` and ``steps``, to compile
        once for several runs.
    :param before_chunk: called with the state before each chunk and the step that it goes to, to
        write them down. If that fails, with an OSError or a ValueError, the run is cancelled before
        the chunk, with the error as its message.
    :return: the state at the end, as the generator's value, to continue from or to save. If devices
        share the records, it is a copy on one of them; if another process ended within a chunk, it
        is the state before that chunk, of which nobody saw a result.
    :raises ArgumentError: before the first snapshot, if ``records`` or ``hyper`` are not such as
        ``private_step`` was made for.
    """
    if not are_at_rest(records):
        records = tuple(jnp.asarray(array) for array in records)
    private_step.require_records(records)
    private_step.require_noise(hyper)
    recent = RecentMean(int(hyper.average_from or 0) * averaged * (evaluate is not None))
    shown = _Display(private_step, averaged, recent, evaluate, epsilon_at)
    interval = interval_of(steps)
    processes = private_step.source.processes
    status: Status = "running"
    # in JAX's own buffers: donation would free memory that the caller may still hold in a NumPy
    # view
    state = copied(state)
    here = _here(private_step, state)
    shown.step = int(here.step)
    shown.params = shown.host_params(here)
    # in parallel with the evaluation, which compiles in this thread
    compiling = (
        compile_ahead(private_step, hyper, state, records, steps) if compiled is None else compiled
    )
    ends = contextlib.ExitStack()
    try:
        shown.follow(here, shown.step)
        shown.measure(here)
        yield shown.snapshot("running")
        chunk, shown.compile_seconds = awaited(compiling.compilation, stop)
        if are_at_rest(records):
            chunk = ends.enter_context(
                bringing(chunk, private_step, hyper, state, records, steps, interval)
            )
        while shown.step < steps:
            first = shown.step
            limit = 0 if stop() else shown.end_of_chunk(steps, interval)
            if limit and before_chunk is not None:
                try:
                    before_chunk(here, limit)
                except (OSError, ValueError) as error:
                    limit, shown.message = 0, f"stopped before step {first + 1}: {error}"
            limit = processes.agreed(limit)
            if not limit:
                status = "cancelled"
                break
            shown.step = limit  # the chunk counts as taken from the moment it starts
            began = time.perf_counter()
            with processes.exchanging():
                state = jax.block_until_ready(chunk(state, records, jnp.int32(limit), hyper))
            here = _here(private_step, state)
            shown.seconds_per_step = (time.perf_counter() - began) / (limit - first)
            newest = shown.host_params(here)
            if not all_finite(newest):
                status, shown.message = "failed", _NOT_FINITE.format(limit)
                break
            shown.params = newest
            shown.follow(here, limit - first)
            if limit == steps or shown.is_due(interval):
                shown.measure(here, is_last=limit == steps)
            if (
                limit < steps and processes.is_first
            ):  # the others do not know yet whether the first has come as far
                yield shown.snapshot("running")
        else:
            processes.end_together()
            status = "done"
    except StoppedError:
        processes.leave()
        status = "cancelled"
    except EndedError as error:
        status, shown.message = "failed", str(error)
    except KeyboardInterrupt:
        status, shown.message = "cancelled", _INTERRUPTED
    except (
        jax.errors.JaxRuntimeError,
        FloatingPointError,
        MemoryError,
        OSError,
        ProcessError,
    ) as error:
        status, shown.message, shown.details = (
            "failed",
            f"{type(error).__name__}: {error}",
            traceback.format_exc(),
        )
    finally:
        ends.close()
        if status == "running" or shown.message == _INTERRUPTED:
            processes.leave()
    is_measured = shown.metrics_step == shown.step and not averaged
    # an interrupt within a chunk takes the state with it
    leaves = (leaf for leaf in jax.tree.leaves(here) if isinstance(leaf, jax.Array))
    is_intact = not any(leaf.is_deleted() for leaf in leaves)
    if status == "cancelled" and is_intact and not is_measured:
        reason = shown.message
        shown.measure(here, is_last=True)
        shown.message = reason or shown.message
    yield shown.snapshot(status)
    return here


def to_the_end(
    snapshots: Generator[Snapshot, None, DPVIState],
    on_snapshot: Callable[[Snapshot], Any] = lambda snapshot: None,
) -> tuple[Snapshot, DPVIState]:
    """The last snapshot of a ``run`` and the state at its end. :param on_snapshot: called with each
    snapshot.
    """
    while True:
        try:
            last = next(snapshots)
        except StopIteration as ended:
            return last, ended.value
        on_snapshot(last)


def _here(private_step: PrivateStep, state: DPVIState) -> DPVIState:
    """The state for what this process computes by itself.

    With other processes it is a copy, which stays when one of them ends in the middle of a chunk,
    to resume from.
    """
    here: DPVIState = private_step.source.local_copy(state)
    return here if private_step.source.processes.count == 1 else copied(here)
