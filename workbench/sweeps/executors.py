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
from concurrent.futures import CancelledError, Executor, Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from workbench import _validate
from workbench.settling import device_named
from workbench.sweeps.running import Outcome, Run, run_group

__all__ = ["LostExecutorError", "as_executor", "run_on"]

_RETRIES = 3  # of a task whose worker died
_POLL_SECONDS = 0.1


class LostExecutorError(ConnectionError):
    """The executor is gone. What had finished is kept; a sweep with the same store goes on from there."""


def as_executor(executor: Any) -> tuple[Executor, int]:
    """(a concurrent.futures executor, its number of workers) for an executor or a dask Client.

    :raises ArgumentError: naming ``executor``.
    """
    if hasattr(executor, "get_executor") and hasattr(executor, "scheduler_info"):
        workers = len(executor.scheduler_info(n_workers=-1)["workers"])
        if not workers:
            raise _validate.ArgumentError("executor", executor, "has no workers.")
        return executor.get_executor(pure=False, retries=_RETRIES), workers
    if isinstance(executor, Executor):
        return executor, getattr(executor, "_max_workers", None) or 1
    raise _validate.ArgumentError(
        "executor", executor, "must be a dask.distributed Client or a concurrent.futures executor, or None."
    )


def run_on(
    executor: Executor,
    workers: int,
    groups: Sequence[Sequence[Run]],
    *,
    max_lanes: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[list[Outcome]]:
    """Run all groups and yield what came of each piece, as they come; ends early after a stop.

    :raises LostExecutorError: if the executor is gone.
    """
    pieces = [piece for group in groups for piece in _pieces(group, workers, max_lanes)]
    waiting = {_submit(executor, piece, max_lanes): (piece, 0) for piece in pieces}
    try:
        while waiting:
            if stop():
                return
            done = [future for future in waiting if future.done()]
            if not done:
                time.sleep(_POLL_SECONDS)
            for future in done:
                piece, deaths = waiting.pop(future)
                try:
                    yield future.result()
                except (BrokenProcessPool, CancelledError, ConnectionError) as error:
                    raise LostExecutorError(f"{type(error).__name__}: {error}") from error
                except Exception as error:
                    if type(error).__name__ == "KilledWorker" and deaths + 1 < _RETRIES:
                        waiting[_submit(executor, piece, max_lanes)] = piece, deaths + 1
                        continue
                    message = f"{type(error).__name__}: {error}".splitlines()[0]
                    yield [Outcome(run.key, "failed", message) for run in piece]
    finally:
        for future in waiting:
            future.cancel()


def _pieces(group: Sequence[Run], workers: int, max_lanes: int | None) -> list[Sequence[Run]]:
    """A part of the group for each worker: each compiles the steps once."""
    size = max(1, min(math.ceil(len(group) / workers), max_lanes or len(group)))
    return [group[first : first + size] for first in range(0, len(group), size)]


def _submit(executor: Executor, piece: Sequence[Run], max_lanes: int | None) -> Future[list[Outcome]]:
    # a device is an object of this process
    packed = [dataclasses.replace(run, settled=dataclasses.replace(run.settled, device=None)) for run in piece]
    try:
        return executor.submit(_work, packed, max_lanes)
    except (BrokenProcessPool, RuntimeError) as error:
        raise LostExecutorError(f"{type(error).__name__}: {error}") from error
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise _validate.ArgumentError(
            "executor", executor, f"the model or the data cannot be sent to another process ({error}): put the model into a "
            "module that workers can import.",
        ) from error  # fmt: skip


def _work(runs: Sequence[Run], max_lanes: int | None) -> list[Outcome]:
    """What a worker does."""
    device = device_named(None)
    own = [dataclasses.replace(run, settled=dataclasses.replace(run.settled, device=device)) for run in runs]
    return [outcome for outcomes in run_group(own, max_lanes=max_lanes) for outcome in outcomes]
