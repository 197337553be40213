"""Groups of fits on other processes or machines: a concurrent.futures executor or a
dask.distributed Client.

A task is a piece of a group. The worker that runs it draws its own secret keys. Records go out with
the task, and only releases and metrics come back. If a worker dies, its task is submitted again and
its fits are charged twice.
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
from workbench.fitting.spec import FitSpec
from workbench.ledger.ledger import LedgerError
from workbench.models import files
from workbench.sweeps.running import Outcome, Run, run_group
from workbench.sweeps.store import LOST

__all__ = ["LostExecutorError", "Processes", "Workers", "as_workers", "run_on"]

_RETRIES = 3  # runs of a task whose workers die
_POLL_SECONDS = 0.1
# between two counts of workers, and until one must be back
_ASK_SECONDS, _PATIENCE_SECONDS = (2.0, 30.0)


class LostExecutorError(ConnectionError):
    """The executor is gone. Finished fits are kept; another sweep with the same store continues
    from there.
    """


class Workers(NamedTuple):
    """The workers that run tasks.

    :param pool: takes tasks.
    :param number: returns how many workers there are now.
    :param queues: whether the pool may get any number of tasks, like a scheduler that moves them.
        Otherwise it gets one for each worker, so that no more can be lost.
    :param heals: whether the loss of a task leaves the other tasks alone.
    """

    pool: Executor
    number: Callable[[], int]
    queues: bool = False
    heals: bool = False


class Processes(Executor):
    """Processes on this machine. If one dies, only its own task is lost, and another process
    begins.

    They end with this object, and with this process however it ends.

    :param number: the number of processes.
    """

    def __init__(self, number: int) -> None:
        self._before = set(multiprocessing.active_children())
        self._slots: list[tuple[ProcessPoolExecutor | None, Future[Any] | None]] = [
            (None, None)
        ] * number

    @property
    def number(self) -> int:
        """The number of processes."""
        return len(self._slots)

    def submit(
        self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any
    ) -> Future[Any]:
        """Submit a task to a process that is free; there must be one."""
        slot = next(
            slot for slot, (_, task) in enumerate(self._slots) if task is None or task.done()
        )
        pool, _ = self._slots[slot]
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
        self._slots[slot] = pool, task
        return task

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, even in the middle of a task."""
        for process in set(multiprocessing.active_children()) - self._before:
            process.terminate()
        for pool, _ in self._slots:
            if pool is not None:
                pool.shutdown(wait=wait, cancel_futures=True)


def as_workers(executor: Any) -> Workers:
    """The workers of an executor or a dask Client.

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
        "executor",
        executor,
        "must be a dask.distributed Client, a concurrent.futures executor or None.",
    )


def run_on(
    workers: Workers,
    groups: Sequence[Sequence[Run]],
    *,
    max_lanes: int | None = None,
    stop: Callable[[], bool] = lambda: False,
    device: str | jax.Device | None = None,
    before: Callable[[Sequence[Run]], None] = lambda runs: None,
    lost: Callable[[Sequence[Run]], None] = lambda runs: None,
) -> Iterator[list[Outcome]]:
    """Run all groups and yield the outcomes of each piece when it ends. A stop ends it early.

    :param max_lanes: the most fits in a piece.
    :param stop: returns True to end early.
    :param device: as for ``workbench.fit``; None for each worker's first device.
    :param before: called with each piece before it is sent.
    :param lost: called with each piece that was lost, before it is sent again or the executor is
        given up.
    :raises LostExecutorError: if the executor is gone. :raises ArgumentError: if a model cannot be
        sent.
    """
    patience = _Patience(workers.number)
    _check_models(workers.pool, groups)
    size = max(1, workers.number())
    queue = deque((piece, 0) for group in groups for piece in _pieces(group, size, max_lanes))
    room = len(queue) if workers.queues else size
    options = (
        max_lanes,
        f"{device.platform}:{device.id}" if isinstance(device, jax.Device) else device,
    )
    waiting: dict[Future[list[Outcome]], tuple[Sequence[Run], int]] = {}
    try:
        while queue or waiting:
            if stop():
                return
            while queue and len(waiting) < room:
                piece, deaths = queue.popleft()
                try:
                    before(piece)
                except (_validate.ArgumentError, LedgerError) as error:
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
                outcomes = _outcomes_of(
                    future, piece, heals=workers.heals, is_last=deaths + 1 == _RETRIES
                )
                if outcomes is None:
                    lost(piece)
                    queue.append((piece, deaths + 1))
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


def _outcomes_of(
    task: Future[list[Outcome]], piece: Sequence[Run], *, heals: bool, is_last: bool
) -> list[Outcome] | None:
    """The outcomes of a task that has ended; None if its worker died and its piece is to be sent
    again.

    :param heals: as of ``Workers``. :param is_last: whether the piece is not sent again.
    :raises LostExecutorError: if the executor is gone with it.
    """
    try:
        return task.result()
    except Exception as error:
        if isinstance(error, (BrokenProcessPool, CancelledError, ConnectionError)) and not heals:
            raise LostExecutorError(_validate.kind_and_message(error)) from error
        # of its worker, in a pool of one process or in dask
        is_death = isinstance(error, BrokenProcessPool) or type(error).__name__ == "KilledWorker"
        if is_death and not is_last:
            return None
        return [
            Outcome(run.key, "failed", f"{type(error).__name__}: {error}".splitlines()[0])
            for run in piece
        ]


class _Patience:
    """Decides when to give up: tasks that no worker can take would wait forever."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._asked = self._seen = time.monotonic()

    def ask(self) -> None:
        """Check for workers. :raises LostExecutorError: if there was none for a while."""
        now = time.monotonic()
        if now - self._asked < _ASK_SECONDS:
            return
        self._asked = now
        try:
            there = self._count()
        except Exception as error:  # a client without its scheduler may raise anything
            raise LostExecutorError(_validate.kind_and_message(error)) from error
        if there:
            self._seen = now
        elif now - self._seen > _PATIENCE_SECONDS:
            raise LostExecutorError(f"there was no worker for {_PATIENCE_SECONDS:.0f} s")


def _pieces(group: Sequence[Run], workers: int, max_lanes: int | None) -> list[Sequence[Run]]:
    """One part of the group for each worker, which compiles the steps once."""
    size = max(1, min(math.ceil(len(group) / workers), max_lanes or len(group)))
    return [group[first : first + size] for first in range(0, len(group), size)]


def _submit(
    executor: Executor, piece: Sequence[Run], options: tuple[int | None, str | None]
) -> Future[list[Outcome]]:
    packed: Any = [dataclasses.replace(run, spec=_to_send(run.spec)) for run in piece]
    file = files.source_file(piece[0].spec.model)
    if file is not None:  # its functions can be unpickled only after it has run
        packed = pickle.dumps(packed)
    try:
        return executor.submit(
            _work, file, packed, *options, is_process=isinstance(executor, ProcessPoolExecutor)
        )
    except (BrokenProcessPool, RuntimeError) as error:
        raise LostExecutorError(_validate.kind_and_message(error)) from error


def _to_send(spec: FitSpec) -> FitSpec:
    """The fit without devices, which are objects of this process, and with one copy of the records:
    after a look there are those before it, too.
    """
    request = dataclasses.replace(spec.request, data=spec.source, look=0.0)
    return dataclasses.replace(spec, devices=(), declared=None, request=request)


def _check_models(executor: Executor, groups: Sequence[Sequence[Run]]) -> None:
    """Check that the models can be sent. Dask can send what pickle alone cannot.

    :raises ArgumentError: naming ``executor``.
    """
    for group in groups if isinstance(executor, (ProcessPoolExecutor, Processes)) else ():
        try:
            pickle.dumps(group[0].spec.model)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _validate.ArgumentError(
                "executor",
                executor,
                f"the model cannot be sent to another process ({error}): put its functions in a "
                "module that can be imported.",
            ) from None


def _work(
    file: Path | None,
    packed: bytes | Sequence[Run],
    max_lanes: int | None,
    device_name: str | None,
    is_process: bool = False,
) -> list[Outcome]:
    """Run a task in a worker.

    :param file: the model's file, if the worker has to run one.
    :param is_process: whether the worker is a process of a pool on this machine.
    """
    if is_process:
        _workers.end_with_parent()
    if file is not None:
        files.run_source(file)
    runs = pickle.loads(packed) if isinstance(packed, bytes) else packed
    device = device_named("device", device_name)
    local_runs = [
        dataclasses.replace(run, spec=dataclasses.replace(run.spec, devices=(device,)))
        for run in runs
    ]
    return [
        outcome for outcomes in run_group(local_runs, max_lanes=max_lanes) for outcome in outcomes
    ]
