"""The one training loop: compiled chunks of steps, snapshots out, stop in.

Command line, notebooks, widgets and sweeps all consume the iterator that ``run`` returns.
"""

from __future__ import annotations

import functools
import time
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from workbench.inference.compiling import Compiling, compile_ahead, interval_of
from workbench.inference.record_model import Record
from workbench.inference.step import DPVIState, Hyperparameters, PrivateStep

__all__ = ["Snapshot", "all_finite", "run"]

Status = Literal["running", "done", "cancelled", "failed"]

_CHUNK_SECONDS = 0.3  # how long a request to stop may have to wait
_FIRST_CHUNK_STEPS = 10  # until a step has been timed
_EVALUATION_SECONDS = 0.3  # between two evaluations, or ``interval_of`` steps, whichever comes first;
_EVALUATION_SHARE = 0.25  # but they may take only this share of the run's time, where one of them is slow,
_EVALUATIONS_FREE = 1.0  # and this many seconds


@dataclass(frozen=True)
class Snapshot:
    """What a run shows between two chunks.

    :param status: "running", or how the run ended.
    :param step: steps taken so far, counting a chunk that failed or was interrupted as taken.
    :param params: constrained parameters, ``{name: numpy array or pytree of them}``: covered by the guarantee.
    :param epsilon_so_far: what an observer of the run up to here has been told at most, None where no accountant was given.
    :param metrics: the newest values of ``evaluate``; what they may be used for depends on the evaluation records.
    :param metrics_step: the step that ``metrics`` belong to.
    :param seconds: time since the first chunk began.
    :param seconds_per_step: of the newest chunk; None until a compiled step has been timed.
    :param compile_seconds: what compiling the steps took, before the run or in it; None until that is done.
    :param message: why the run failed, or what else went wrong, for people. :param details: the traceback behind it.
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
    """Train until step number ``steps`` and yield a ``Snapshot`` before the first chunk and after each.

    Chunks take about 0.3 s or end at an evaluation, whichever comes first. The last snapshot's status is "done",
    "cancelled" (``stop()`` was true between two chunks, or KeyboardInterrupt) or "failed" (the parameters are not finite
    any more, or JAX raised; the snapshot then holds the last good parameters).

    :param state: from ``private_step.init``, or the end of an earlier run.
    :param records: the private records, arrays with first axis N.
    :param steps: T, the step number to stop at (steps of earlier runs of ``state`` included).
    :param stop: asked between chunks.
    :param evaluate: called with the unconstrained parameters every .3 s, and 25 times a run or more; less often where it
        would take more than a quarter of the time.
    :param epsilon_at: epsilon after a number of steps, for display.
    :param averaged: show and evaluate the mean of the iterates (``PrivateStep.get_params``).
    :param compiled: of ``compile_ahead`` for the same ``private_step`` and ``steps``, to compile once for several runs.
    :param before_chunk: called with the state before each chunk and the step that it goes to, to write them down. If that
        fails, with an OSError or a ValueError, the run is cancelled before the chunk, with the error as its message.
    :return: the state at the end, as the generator's value, to continue from or to save.
    :raises ArgumentError: before the first snapshot, if ``records`` are not such as ``private_step`` was made for.
    """
    records = tuple(jnp.asarray(array) for array in records)
    private_step.require_records(records)
    constrain = jax.jit(functools.partial(private_step.get_params, averaged=averaged))
    interval = interval_of(steps)
    status: Status = "running"
    message = details = ""
    metrics: dict[str, float] = {}
    metrics_step = 0
    seconds_per_step: float | None = None
    compile_seconds: float | None = None
    evaluating = 0.0  # seconds
    started = measured = time.perf_counter()

    def host_params(state: DPVIState) -> dict[str, Any]:
        # a copy: the next chunk reuses the state's memory, which jit may have handed through
        return jax.tree.map(lambda value: np.array(value, copy=True), constrain(state))

    def measure(state: DPVIState) -> None:
        nonlocal evaluate, message, details, metrics, metrics_step, measured, evaluating
        began = measured = time.perf_counter()
        if evaluate is None:
            return
        try:
            metrics, metrics_step = evaluate(private_step.unconstrained(state, averaged)), step
            measured = time.perf_counter()
            evaluating += (measured - began) * (step > 0)  # the first one compiles
        except Exception as error:  # whatever a model's own score raises must not lose what epsilon was spent on
            evaluate = None
            message = f"metrics could not be computed from step {step} on ({type(error).__name__}: {error})."
            details = traceback.format_exc()

    def snapshot(status: Status, message: str = "") -> Snapshot:
        return Snapshot(
            status=status,
            step=step,
            params=params,
            epsilon_so_far=epsilon_at(step) if epsilon_at else None,
            metrics=dict(metrics),
            metrics_step=metrics_step,
            seconds=time.perf_counter() - started,
            seconds_per_step=seconds_per_step,
            compile_seconds=compile_seconds,
            message=message,
            details=details,
        )

    # in JAX's own buffers: donation would free memory that the caller may still hold in a NumPy view
    state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
    step = int(state.step)
    params = host_params(state)
    # beside the evaluation, which compiles in this thread
    compiling = compile_ahead(private_step, hyper, state, records, steps) if compiled is None else compiled
    try:
        measure(state)
        yield snapshot("running")
        chunk, compile_seconds = compiling.compiled.result()
        while step < steps:
            if stop():
                status = "cancelled"
                break
            affordable = _FIRST_CHUNK_STEPS if seconds_per_step is None else max(1, int(_CHUNK_SECONDS / seconds_per_step))
            until_evaluation = interval - step % interval
            limit = min(steps, step + min(affordable, until_evaluation))
            if before_chunk is not None:
                try:
                    before_chunk(state, limit)
                except (OSError, ValueError) as error:
                    status, message = "cancelled", f"stopped before step {step + 1}: {error}"
                    break
            first_step, step = step, limit  # the chunk counts as taken from the moment it starts
            began = time.perf_counter()
            state = jax.block_until_ready(chunk(state, records, jnp.int32(limit), hyper))
            duration = time.perf_counter() - began
            seconds_per_step = duration / (limit - first_step)
            newest = host_params(state)
            if not all_finite(newest):
                status = "failed"
                message = (
                    f"the parameters were no longer finite after step {step}; the values shown are older. "
                    "A smaller learning rate or clip, or a larger epsilon, helps."
                )
                break
            params = newest
            now = time.perf_counter()
            due = step % interval == 0 or now - measured > _EVALUATION_SECONDS
            if step == steps or (due and evaluating <= _EVALUATION_SHARE * (now - started) + _EVALUATIONS_FREE):
                measure(state)
            if step < steps:
                yield snapshot("running")
        else:
            status = "done"
    except KeyboardInterrupt:
        status, message = "cancelled", "interrupted"
    except (jax.errors.JaxRuntimeError, FloatingPointError, MemoryError) as error:
        status, message, details = "failed", f"{type(error).__name__}: {error}", traceback.format_exc()
    if status == "cancelled" and metrics_step != step and message != "interrupted":
        ended = message
        measure(state)
        message = ended or message
    yield snapshot(status, message)
    return state
