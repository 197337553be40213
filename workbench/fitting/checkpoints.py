"""Checkpoints of fits: written while a fit runs, so that a crash does not lose it.

Each fit has its own folder under ``runs()``. Every few seconds a file is written there with the
state (parameters, optimiser, key, step), the plan's digest, and the step up to which the fit may go
before the next file. The two newest are kept. After all steps the released parameters replace them,
without the key.

*Noise is never added to other data.* The noise of a step follows from the run's key and the step's
number alone, and steps between the last checkpoint and a crash may have been seen. Repeating them
bit for bit shows nothing new, but adding the same noise to other sums would: the difference of the
two releases cancels the noise. So a run is resumed only with the same records (by their keyed
fingerprint), the same plan and the same program on the same kind of machine (``digests``), and
after a crash only on a processor that repeats exactly. After a stop no step is repeated, so the run
may go on with another number of devices, which round differently.

Files are sealed with this user's secret key. A file that was edited is not opened, so what a file
says can be trusted.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _folders, _validate
from workbench.fitting.digests import FORMAT, content, keyed
from workbench.inference.checkpoint import arrays_of, load_arrays, load_facts, save_arrays
from workbench.inference.state import DPVIState
from workbench.ledger import owners
from workbench.ledger.fingerprint import key_file, secret_key

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "forget",
    "holds_fit",
    "holds_key",
    "is_running",
    "make_runs",
    "new_folder",
    "newest",
    "runs",
    "saved_runs",
    "spend_of",
]

SECONDS = 10.0  # between two checkpoints,
_SHARE = 0.02  # or more, so that writing takes at most this share of the time
_KEPT = 2  # checkpoints of a run
_RUNS_KEPT = 20  # finished runs, and the same number of unfinished runs of public records
_FIRST_SHARE = 20  # the first checkpoint covers a twentieth of the steps
_AHEAD = 2.0  # a checkpoint covers this many times the steps expected until the next one
_FINISHED = "finished.npz"
_STATES = "step-*.npz"  # with the key,
_PARTIAL = ".*.partial"  # files that a killed process leaves behind, maybe with the key


def runs() -> Path:
    """The folder of all runs that are given no other folder."""
    return _folders.state() / "runs"


def make_runs() -> None:
    """Create the folder of all runs. :raises OSError: if this user may not write there."""
    runs().mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.access(runs(), os.W_OK):
        raise PermissionError(f"{runs()} cannot be written")
    owners.own(_owners_folder())


# ---- writing -------------------------------------------------------------------------------------


class Checkpoints:
    """Writes the checkpoints of one run.

    :param folder: of the run.
    :param facts: JSON-ready facts that ``resuming`` needs besides the state.
    :param iterations: number of planned steps.
    :param mark: called with the step up to which the run may go now, when a checkpoint is on the
        disk.
    :param moved: whether the run's earlier checkpoints were written on other devices. They are
        deleted when there is a new one: the steps after them, taken there again, would have the
        same noise and other sums.
    """

    def __init__(
        self,
        folder: Path,
        facts: Mapping[str, Any],
        iterations: int,
        mark: Callable[[int], None],
        moved: bool = False,
    ) -> None:
        self.folder = folder
        self._former = set(folder.glob(_STATES)) if moved else set[Path]()
        self._facts, self._iterations, self._mark = dict(facts), iterations, mark
        self._seen = int(facts.get("reached", 0))  # before the run was resumed
        self._reached = 0  # the step up to which the newest checkpoint lets the run go
        self._began: tuple[int, float] | None = None
        self._due = -math.inf

    def before(
        self, state: DPVIState, limit: int, progress: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Write a checkpoint if one is due before the chunk that goes to step ``limit``.

        :param progress: returns JSON-ready facts about the run so far.
        :raises OSError: if it cannot be written; the chunk must not run then.
        """
        now = time.perf_counter()
        if limit <= self._reached and now < self._due:
            return
        _running.add(self.folder)
        step = int(state.step)
        if self._began is None:
            self._began = step, now
            reached = max(limit, step + math.ceil(self._iterations / _FIRST_SHARE))
        else:
            pace = (step - self._began[0]) / max(now - self._began[1], 1e-9)
            reached = limit + math.ceil(_AHEAD * SECONDS * pace)
        reached = min(self._iterations, reached)
        self.write(state, reached, progress())
        self._mark(reached)
        self._reached = reached
        after = time.perf_counter()
        self._due = after + max(SECONDS, (after - now) / _SHARE)

    def write(self, state: DPVIState, reached: int, progress: Mapping[str, Any]) -> None:
        """Write a checkpoint of ``state``, from which the run goes no further than step
        ``reached``.
        """
        step = int(state.step)
        name = f"step-{step:012d}.npz"
        facts = {**progress, "step": step, "reached": max(reached, self._seen)}
        try:
            self.save(name, arrays_of(state), {**facts, "owner": owners.own(_owners_folder())})
        except OSError as error:
            raise OSError(
                f"no checkpoint could be written in {self.folder} ({error.strerror or error})."
            ) from error
        former, self._former = self._former - {self.folder / name}, set()
        for old in (
            *former,
            *sorted(self.folder.glob(_STATES))[:-_KEPT],
            *self.folder.glob(_PARTIAL),
        ):
            old.unlink(missing_ok=True)

    def claim(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Write a sealed file, and let nobody else take up the run until ``close``.

        :raises OSError: if it cannot be written.
        """
        _running.add(self.folder)
        self.save(name, arrays, {"owner": owners.own(_owners_folder())})

    def close(self) -> None:
        """Note that the run takes no more steps."""
        _running.discard(self.folder)

    def finish(self, params: Mapping[str, np.ndarray], progress: Mapping[str, Any]) -> None:
        """Keep the release after all steps, and delete the states with their key.

        :raises OSError: if it cannot be written; the states are kept then.
        """
        order = 1 + max((_order(_facts_in(run)) or 0 for run in saved_runs()), default=0)
        facts = {**progress, "step": self._iterations, "reached": self._iterations, "order": order}
        self.save(_FINISHED, params, facts)
        _drop_states(self.folder)
        _prune(self.folder)

    def save(self, name: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> None:
        """Write a sealed file. :raises OSError: if it cannot be written."""
        self.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        # as it will be read
        plain = json.loads(
            json.dumps({**self._facts, **facts, "arrays": content(arrays, secret_key())})
        )
        save_arrays(
            self.folder / name, arrays, {**plain, "seal": keyed(plain, b"checkpoint", secret_key())}
        )


_running: set[Path] = set()  # folders of runs of this process


def _owners_folder() -> Path:
    return _folders.state() / "owners"


def is_running(run: Path) -> bool:
    """Whether the process that wrote the newest checkpoint of a run may still take steps of it."""
    owner = _facts_in(run).get("owner")
    if owner is None or run in _running:
        return run in _running
    folder = _owners_folder()
    return owners.own(folder) != owner and owners.is_alive(folder, owner)


def _drop_states(run: Path) -> None:
    """Delete the states of a run, with their key."""
    for file in (*run.glob(_STATES), *run.glob(_PARTIAL)):
        file.unlink(missing_ok=True)


def _facts_in(run: Path) -> dict[str, Any]:
    """The facts in a run's newest readable file, unchecked; empty if there is none."""
    for file in _files(run):
        with contextlib.suppress(_validate.ArgumentError):
            return load_facts(file)
    return {}


def _files(run: Path) -> list[Path]:
    """The files of a run, newest first."""
    return [run / _FINISHED, *sorted(run.glob(_STATES), reverse=True)]


def _order(facts: Mapping[str, Any]) -> int | None:
    """The place of a finished run among those in ``runs()``, which needs no clock; None if the run
    is unfinished.
    """
    order = facts.get("order")
    return order if isinstance(order, int) else None


def _prune(newest: Path) -> None:
    """Delete all but the newest finished runs in ``runs()``, and old unfinished ones of public
    records.

    Unfinished runs of private records have spent epsilon, so they stay until they are resumed or
    forgotten. Folders that users chose are left as they are.
    """
    if newest.parent != runs():
        return
    finished, unfinished = [], []
    for run in saved_runs():
        facts = _facts_in(run)
        order = _order(facts)
        if order is not None:
            _drop_states(run)  # a kill may have come between the release and this
            finished.append((order, run))
        elif facts.get("is_public"):
            unfinished.append(run)
    for old in (*(run for _, run in sorted(finished)[:-_RUNS_KEPT]), *unfinished[:-_RUNS_KEPT]):
        if old != newest:
            shutil.rmtree(old, ignore_errors=True)


def forget(run: Path) -> None:
    """Delete the states in a run's folder, with the key; a release stays."""
    _drop_states(run)
    with contextlib.suppress(OSError):  # it is not empty, or does not exist
        run.rmdir()


def new_folder(key: str | None = None) -> Path:
    """The folder for a fit with this key in the ledger, or for one without."""
    return runs() / (key or uuid.uuid4().hex)


# ---- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """The newest file of a run.

    :param path: the file.
    :param facts: what it says.
    """

    path: Path
    facts: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a state, or the released parameters by name.

        :raises ArgumentError: naming ``path``, if they are not the arrays that were written.
        """
        arrays = load_arrays(self.path)
        if content(arrays, secret_key()) != self.facts["arrays"]:
            raise _edited(self.path)
        return arrays

    @property
    def is_finished(self) -> bool:
        """Whether all steps were taken."""
        return self.path.name == _FINISHED

    @property
    def repeats(self) -> bool:
        """Whether steps may have been taken after it was written, which resuming would repeat."""
        return bool(self.facts["reached"] > self.facts["step"])


def newest(path: str | Path) -> Checkpoint:
    """Read the newest intact checkpoint in a run's folder, or the one in the file ``path``.

    :raises ArgumentError: naming ``path``, if there is none, it cannot be read, it was edited, or
        another version wrote it.
    """
    location = _validate.path("path", path)
    problem: _validate.ArgumentError | None = None
    with _reading("path", path):
        files = [
            file
            for file in ([location] if location.is_file() else _files(location))
            if file.exists()
        ]
    for file in files:
        try:
            facts = load_facts(file)
        except _validate.ArgumentError as error:
            problem = problem or error
            continue
        if facts.get("format") != FORMAT:
            raise _validate.ArgumentError(
                "path",
                str(path),
                f"must be a checkpoint of format {FORMAT}: start a new fit, and forget this one, "
                "which deletes its key.",
            )
        seal = facts.pop("seal", None)
        if seal != keyed(facts, b"checkpoint", secret_key()):
            raise _edited(file)
        return Checkpoint(file, facts)
    raise problem or _validate.ArgumentError("path", str(path), "contains no checkpoint of a fit.")


def _edited(path: Path) -> _validate.ArgumentError:
    return _validate.ArgumentError(
        "path",
        str(path),
        f"was edited, or was not written with the secret key in {key_file()}: start a new fit.",
    )


def saved_runs() -> list[Path]:
    """The folders of runs in ``runs()``, oldest first.

    :raises ArgumentError: naming ``state folder``, if they may not be read.
    """
    dated = []
    with _reading(
        "state folder",
        _folders.state(),
        "Set $WORKBENCH_STATE to a folder that you may read and write.",
    ):
        for folder in runs().iterdir() if runs().is_dir() else ():
            with contextlib.suppress(FileNotFoundError):  # another process may delete old ones
                dated.append((folder.stat().st_mtime, folder))
        return [folder for _, folder in sorted(dated) if folder.is_dir()]


def holds_fit(run: Path) -> bool:
    """Whether a folder holds checkpoints or a release.

    :raises ArgumentError: naming ``checkpoint``, if it cannot be read.
    """
    with _reading("checkpoint", run, "Name a folder that you may read and write."):
        return any(file.exists() for file in _files(run))


@contextlib.contextmanager
def _reading(argument: str, path: str | Path, remedy: str = "") -> Iterator[None]:
    """Say what cannot be read, and why. :raises ArgumentError: naming ``argument``, for an error of
    the file system.
    """
    try:
        yield
    except OSError as error:
        raise _validate.ArgumentError(
            argument, str(path), f"cannot be read ({error}).", remedy=remedy
        ) from error


def holds_key(run: Path) -> bool:
    """Whether files in the folder of a run may hold its secret key."""
    return any(run.glob(_STATES)) or any(run.glob(_PARTIAL))


def spend_of(run: Path) -> tuple[str, str] | None:
    """(path of the ledger, key in it) of a run, from any of its files that can be read; None if it
    is in no ledger.
    """
    facts = _facts_in(run)
    spend, ledger = facts.get("spend"), facts.get("ledger")
    return (ledger, spend) if isinstance(ledger, str) and isinstance(spend, str) else None
