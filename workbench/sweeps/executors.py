"""Groups of fits on other processes or machines: a concurrent.futures executor or a dask.distributed Client.

Pieces of groups are tasks. Whoever works on one draws its own secret keys; records go out with the task, and only releases
and metrics come back. A worker that dies takes its task along, which is given out again.
"""

from __future__ import annotations

import dataclasses
import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import jax

from workbench import _validate
from workbench.models import registry
from workbench.settling import device_named
from workbench.sweeps.running import Outcome, Run, run_group

__all__ = ["LostExecutorError", "Workers", "as_workers", "run_on"]

_RETRIES = 3  # of a task whose worker died
_POLL_SECONDS = 0.1
_ASK_SECONDS, _PATIENCE_SECONDS = 2.0, 30.0  # how often workers are counted, and how long for one to come back


class LostExecutorError(ConnectionError):
    """The executor is gone. What had finished is kept; a sweep with the same store goes on from there."""


class Workers(NamedTuple):
    """Who does the work. ``pool``: takes tasks; ``number()``: how many there are now."""

    pool: Executor
    number: Callable[[], int]


def as_workers(executor: Any) -> Workers:
    """The workers of an executor or of a dask Client.

    :raises ArgumentError: naming ``executor``.
    """
    if hasattr(executor, "get_executor") and hasattr(executor, "scheduler_info"):

        def count() -> int:
            return len(executor.scheduler_info(n_workers=-1)["workers"])

        if not count():
            raise _validate.ArgumentError("executor", executor, "has no workers.")
        return Workers(executor.get_executor(pure=False, retries=_RETRIES), count)
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
) -> Iterator[list[Outcome]]:
    """Run all groups and yield what came of each piece, as they come; ends early after a stop.

    :param device: as ``workbench.fit`` takes it; None for each worker's first one.
    :raises LostExecutorError: if the executor is gone. :raises ArgumentError: if a model cannot be sent.
    """
    executor, patience = workers.pool, _Patience(workers.number)
    _check_models(executor, groups)
    size = max(1, workers.number())
    pieces = [piece for group in groups for piece in _pieces(group, size, max_lanes)]
    options = max_lanes, f"{device.platform}:{device.id}" if isinstance(device, jax.Device) else device
    waiting = {_submit(executor, piece, options): (piece, 0) for piece in pieces}
    try:
        while waiting:
            if stop():
                return
            done = [future for future in waiting if future.done()]
            if not done:
                patience.ask()
                time.sleep(_POLL_SECONDS)
            for future in done:
                piece, deaths = waiting.pop(future)
                try:
                    yield future.result()
                except (BrokenProcessPool, CancelledError, ConnectionError) as error:
                    raise LostExecutorError(f"{type(error).__name__}: {error}") from error
                except Exception as error:
                    if type(error).__name__ == "KilledWorker" and deaths + 1 < _RETRIES:
                        waiting[_submit(executor, piece, options)] = piece, deaths + 1
                        continue
                    message = f"{type(error).__name__}: {error}".splitlines()[0]
                    yield [Outcome(run.key, "failed", message) for run in piece]
    finally:
        for future in waiting:
            future.cancel()


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
    packed: Any = [dataclasses.replace(run, settled=dataclasses.replace(run.settled, device=None)) for run in piece]
    file = registry.source_file(piece[0].settled.model)
    if file is not None:  # the functions in it can be unpickled when it has run
        packed = pickle.dumps(packed)
    try:
        return executor.submit(_work, file, packed, *options)
    except (BrokenProcessPool, RuntimeError) as error:
        raise LostExecutorError(f"{type(error).__name__}: {error}") from error


def _check_models(executor: Executor, groups: Sequence[Sequence[Run]]) -> None:
    """That the models can be sent; dask sends what pickle alone cannot.

    :raises ArgumentError: naming ``executor``.
    """
    for group in groups if isinstance(executor, ProcessPoolExecutor) else ():
        try:
            pickle.dumps(group[0].settled.model)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise _validate.ArgumentError(
                "executor", executor, f"the model cannot be sent to another process ({error}): put its functions into a "
                "module that can be imported.",
            ) from None  # fmt: skip


def _work(file: Path | None, packed: Any, max_lanes: int | None, device_name: str | None) -> list[Outcome]:
    """What a worker does. :param file: of the model, where it is in one that the worker has to run."""
    if file is not None:
        registry.run_source(file)
    runs = pickle.loads(packed) if isinstance(packed, bytes) else packed
    device = device_named(device_name)
    own = [dataclasses.replace(run, settled=dataclasses.replace(run.settled, device=device)) for run in runs]
    return [outcome for outcomes in run_group(own, max_lanes=max_lanes) for outcome in outcomes]
