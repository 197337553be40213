"""Groups of fits on other processes or machines: a concurrent.futures executor or a dask.distributed Client.

Pieces of groups are tasks. Whoever works on one draws its own secret keys; records go out with the task, and only releases
and metrics come back. A worker that dies takes its task along, which is given out again and counts twice.
"""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax

from workbench import _validate, _workers
from workbench.fitting.devices import device_named
from workbench.models import registry
from workbench.sweeps.running import Outcome, Run, run_group
from workbench.sweeps.store import LOST

__all__ = ["LostExecutorError", "Processes", "Workers", "as_workers", "run_on"]

_RETRIES = 3  # of a task whose worker died
_POLL_SECONDS = 0.1
_ASK_SECONDS, _PATIENCE_SECONDS = 2.0, 30.0  # how often workers are counted, and how long for one to come back


class LostExecutorError(ConnectionError):
    """The executor is gone. What had finished is kept; a sweep with the same store goes on from there."""


class Workers(NamedTuple):
    """Who does the work. ``pool``: takes tasks; ``number()``: how many there are now.

    ``queues``: takes any number of tasks, as a scheduler does that moves them; else it gets one a worker, so that no more
    than these can be lost. ``heals``: whether a task that is lost leaves the others alone.
    """

    pool: Executor
    number: Callable[[], int]
    queues: bool = False
    heals: bool = False


class Processes(Executor):
    """Processes of this machine, each a pool of its own: one that dies takes its own task along, and another begins.

    They end with this object, and with this process however it ends.

    :param number: how many.
    """

    def __init__(self, number: int) -> None:
        self._before = set(multiprocessing.active_children())
        self._slots: list[tuple[ProcessPoolExecutor | None, Future[Any] | None]] = [(None, None)] * number

    @property
    def number(self) -> int:
        """How many there are."""
        return len(self._slots)

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Future[Any]:
        """As any executor's, but one task a process: there must be one that is free."""
        place = next(place for place, (_, task) in enumerate(self._slots) if task is None or task.done())
        pool, _ = self._slots[place]
        try:
            if pool is None:
                raise BrokenProcessPool
            task = pool.submit(function, *arguments, **keywords)
        except BrokenProcessPool:
            pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),  # a fork would share JAX's locks
                initializer=_workers.begin,
            )
            task = pool.submit(function, *arguments, **keywords)
        self._slots[place] = pool, task
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all of them, also amid a task."""
        for process in set(multiprocessing.active_children()) - self._before:
            process.terminate()
        for pool, _ in self._slots:
            if pool is not None:
                pool.shutdown(wait=wait, cancel_futures=True)


def as_workers(executor: Any) -> Workers:
    """The workers of an executor or of a dask Client.

    :raises ArgumentError: naming ``executor``.
    """
    if hasattr(executor, "get_executor") and hasattr(executor, "scheduler_info"):

        def count() -> int:
            return len(executor.scheduler_info(n_workers=-1)["workers"])

        if not count():
            raise _validate.ArgumentError("executor", executor, "has no workers.")
        return Workers(executor.get_executor(pure=False, retries=_RETRIES), count, queues=True)
    if isinstance(executor, Processes):
        return Workers(executor, lambda: executor.number, heals=True)
    if isinstance(executor, Executor):
        return Workers(executor, lambda: getattr(executor, "_max_workers", None) or 1)
    raise _validate.ArgumentError(
        "executor", executor, "must be a dask.distributed Client or a concurrent.futures executor, or None."
    )


def run_on(
    workers: Workers,
    groups: Sequence[Sequence[Run]],
    *,
    max_lanes: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    device: Any = None,
    before: Callable[[Sequence[Run]], None] = lambda runs: None,
    lost: Callable[[Sequence[Run]], None] = lambda runs: None,
) -> Iterator[list[Outcome]]:
    """Run all groups and yield what came of each piece, as they come; ends early after a stop.

    :param device: as ``workbench.fit`` takes it; None for each worker's first one.
    :param before: called with each piece before it is sent. :param lost: called with each one that was lost, before it is
        sent again or the executor is given up.
    :raises LostExecutorError: if the executor is gone. :raises ArgumentError: if a model cannot be sent.
    """
    patience = _Patience(workers.number)
    _check_models(workers.pool, groups)
    size = max(1, workers.number())
    queue = deque((piece, 0) for group in groups for piece in _pieces(group, size, max_lanes))
    room = len(queue) if workers.queues else size
    options = max_lanes, f"{device.platform}:{device.id}" if isinstance(device, jax.Device) else device
    waiting: dict[Future[list[Outcome]], tuple[Sequence[Run], int]] = {}
    try:
        while queue or waiting:
            if stop():
                return
            while queue and len(waiting) < room:
                piece, deaths = queue.popleft()
                try:
                    before(piece)
                except _validate.ArgumentError as error:
                    if not deaths:
                        raise
                    yield [Outcome(run.key, "refused", f"{LOST} {error}") for run in piece]
                    continue
                waiting[_submit(workers.pool, piece, options)] = piece, deaths
            done = [future for future in waiting if future.done()]
            if not done:
                patience.ask()
                time.sleep(_POLL_SECONDS)
            for future in done:
                piece, deaths = waiting[future]
                try:
                    outcomes = future.result()
                except Exception as error:
                    outcomes = [
                        Outcome(run.key, "failed", f"{type(error).__name__}: {error}".splitlines()[0]) for run in piece
                    ]
                    if isinstance(error, (BrokenProcessPool, CancelledError, ConnectionError)) and not workers.heals:
                        raise LostExecutorError(f"{type(error).__name__}: {error}") from error
                    if _is_death(error) and deaths + 1 < _RETRIES:
                        lost(piece)
                        queue.append((piece, deaths + 1))
                        outcomes = []
                del waiting[future]
                if outcomes:
                    yield outcomes
    except LostExecutorError:
        for piece, _ in () if workers.queues else waiting.values():
            lost(piece)
        raise
    finally:
        for future in waiting:
            future.cancel()


def _is_death(error: Exception) -> bool:
    """Whether a task is over because its worker is: of one process, or as distributed calls it."""
    return isinstance(error, BrokenProcessPool) or type(error).__name__ == "KilledWorker"


class _Patience:
    """Whether there is anybody left to wait for: tasks that no worker can take would wait for ever."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._asked = self._seen = time.monotonic()

    def ask(self) -> None:
        """:raises LostExecutorError: if no worker was there for a while."""
        now = time.monotonic()
        if now - self._asked < _ASK_SECONDS:
            return
        self._asked = now
        try:
            there = self._count()
        except Exception as error:  # whatever a client without its scheduler raises
            raise LostExecutorError(f"{type(error).__name__}: {error}") from error
        if there:
            self._seen = now
        elif now - self._seen > _PATIENCE_SECONDS:
            raise LostExecutorError(f"no worker has been there for {_PATIENCE_SECONDS:.0f} s")


def _pieces(group: Sequence[Run], workers: int, max_lanes: int | None) -> list[Sequence[Run]]:
    """A part of the group for each worker: each compiles the steps once."""
    size = max(1, min(math.ceil(len(group) / workers), max_lanes or len(group)))
    return [group[first : first + size] for first in range(0, len(group), size)]


def _submit(executor: Executor, piece: Sequence[Run], options: tuple[int | None, str | None]) -> Future[list[Outcome]]:
    # a device is an object of this process
    packed: Any = [dataclasses.replace(run, spec=dataclasses.replace(run.spec, device=None)) for run in piece]
    file = registry.source_file(piece[0].spec.model)
    if file is not None:  # the functions in it can be unpickled when it has run
        packed = pickle.dumps(packed)
    try:
        return executor.submit(_work, file, packed, *options, is_process=isinstance(executor, ProcessPoolExecutor))
    except (BrokenProcessPool, RuntimeError) as error:
        raise LostExecutorError(f"{type(error).__name__}: {error}") from error


def _check_models(executor: Executor, groups: Sequence[Sequence[Run]]) -> None:
    """That the models can be sent; dask sends what pickle alone cannot.

    :raises ArgumentError: naming ``executor``.
    """
    for group in groups if isinstance(executor, (ProcessPoolExecutor, Processes)) else ():
        try:
            pickle.dumps(group[0].spec.model)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _validate.ArgumentError(
                "executor", executor, f"the model cannot be sent to another process ({error}): put its functions into a "
                "module that can be imported.",
            ) from None  # fmt: skip


def _work(
    file: Path | None, packed: Any, max_lanes: int | None, device_name: str | None, is_process: bool = False
) -> list[Outcome]:
    """What a worker does.

    :param file: of the model, where it is in one that the worker has to run. :param is_process: of a pool on this machine.
    """
    if is_process:
        _workers.end_with_parent()
    if file is not None:
        registry.run_source(file)
    runs = pickle.loads(packed) if isinstance(packed, bytes) else packed
    device = device_named(device_name)
    own = [dataclasses.replace(run, spec=dataclasses.replace(run.spec, device=device)) for run in runs]
    return [outcome for outcomes in run_group(own, max_lanes=max_lanes) for outcome in outcomes]
