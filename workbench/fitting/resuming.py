"""Fits whose process has ended: ``resume`` of a checkpoint, the list of what can be resumed, and ``forget``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench import data as data_room
from workbench import models as models_room
from workbench._validate import ArgumentError
from workbench.data import Dataset
from workbench.fitting import checkpoints, fits
from workbench.fitting.checkpoints import Checkpoint
from workbench.fitting.prepared import PreparedFit
from workbench.inference.training import Snapshot
from workbench.ledger.budget import Spend
from workbench.ledger.ledger import Ledger
from workbench.models import Model
from workbench.results import FitResult

__all__ = ["SavedRun", "forget", "prepare", "resume", "saved_runs", "unusable_runs"]


@dataclass(frozen=True)
class SavedRun:
    """A run of which there are checkpoints.

    :param path: of its folder, for ``resume``. :param step: of the newest checkpoint, of ``steps``.
    :param written: local time. :param fingerprint: of its records. :param spend: key in the ledger, None for public ones.
    """

    path: Path
    model: str
    data: str
    epsilon: float
    step: int
    steps: int
    written: str
    fingerprint: str
    spend: str | None
    is_finished: bool


def saved_runs() -> list[SavedRun]:
    """Runs with checkpoints in the workbench's own folder, the newest first; damaged ones are left out."""
    found = []
    for folder in reversed(checkpoints.saved_runs()):
        try:
            checkpoint = checkpoints.newest(folder)
        except ArgumentError:
            continue
        facts, settings = checkpoint.facts, checkpoint.facts["settings"]
        written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(checkpoint.path.stat().st_mtime))
        found.append(
            SavedRun(
                folder,
                facts["model"]["name"],
                facts["data"],
                settings["epsilon"],
                facts["step"],
                settings["iterations"],
                written,
                facts["fingerprint"],
                facts["spend"],
                checkpoint.is_finished,
            )
        )
    return found


def unusable_runs() -> list[Path]:
    """Folders of runs in the workbench's own folder that may hold a secret key, but no checkpoint that can be resumed."""
    usable = {run.path for run in saved_runs()}
    return [folder for folder in checkpoints.saved_runs() if folder not in usable and checkpoints.holds_key(folder)]


def forget(path: str | Path) -> Spend | None:
    """Delete the checkpoints of a fit that is not to be resumed, with its secret key; what it released stays.

    In the ledger the fit counts the steps that it may have taken, instead of all that were planned.

    :param path: of the run's folder.
    :return: what the ledger says of the fit; None where it is in none.
    :raises ArgumentError: naming ``path``, if it is no such folder, or the fit is running.
    :raises LedgerError: if its ledger cannot be used; nothing is deleted then.
    """
    folder = Path(path).expanduser().absolute()
    if not checkpoints.holds_key(folder):
        raise ArgumentError("path", str(path), "is no folder of a fit with checkpoints that hold a key.")
    spend = None
    entered = checkpoints.spend_of(folder)
    if entered is None and checkpoints.is_running(folder):
        raise ArgumentError("path", str(path), "is of a fit that is running: stop it, or end its process, first.")
    if entered is not None:
        ledger, key = Ledger(entered[0]), entered[1]
        ledger.recover([key])
        spend = ledger.spend(key)
        if spend is not None and spend.status == "reserved":
            raise ArgumentError("path", str(path), "is of a fit that is running: stop it first.")
    checkpoints.forget(folder)
    return spend


def prepare(
    path: str | Path,
    *,
    model: str | Model | None = None,
    data: str | Dataset | None = None,
    optimizer: Any = None,
    over_cap: str | None = None,
) -> PreparedFit:
    """The fit that a checkpoint is of, to be run to its end; the arguments are those of ``resume``."""
    checkpoint = checkpoints.newest(path)
    facts = checkpoint.facts
    if facts["has_optimizer"] and optimizer is None:
        raise ArgumentError("optimizer", None, "the fit had an optimiser of its own: give the same one.")
    if data is None and facts["data"] not in data_room.names():
        raise ArgumentError("data", None, f"the records of {facts['data']!r} are in no checkpoint: give them again.")
    prepared = fits.prepare(
        _model(checkpoint) if model is None else model,
        data_room.load(facts["data"]) if data is None else data,
        optimizer=optimizer,
        ledger=facts["ledger"] or False,
        over_cap=over_cap,
        origin=facts["origin"],
        **facts["settings"],
    )
    prepared.go_on_from(checkpoint)
    return prepared


def _model(checkpoint: Checkpoint) -> Model:
    """The model of the gallery that the fit was of.

    :raises ArgumentError: naming ``model``, for one that was made elsewhere.
    """
    name, options = (checkpoint.facts["model"][part] for part in ("name", "options"))
    if name not in models_room.names():
        file = checkpoint.facts["model"]["file"]
        where = f"run {file}, where it was registered, or give it" if file else "register it again, or give it"
        raise ArgumentError("model", name, f"is not in the gallery here: {where}.")
    return models_room.get(name, **options)


def resume(
    path: str | Path,
    *,
    model: str | Model | None = None,
    data: str | Dataset | None = None,
    optimizer: Any = None,
    over_cap: str | None = None,
    on_snapshot: Callable[[Snapshot], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Go on with a fit that was stopped or interrupted, to the end it would have come to; or give a finished one's result.

    It is the same fit: its epsilon is spent once. Its noise is drawn again for no other records, plan or program: those are
    refused.

    :param path: of the run's folder (``workbench resume`` lists them), or of one of its files.
    :param model: where it was not from the gallery. :param data: the same records; by default those of the name it had.
    :param optimizer: the same one, where the fit had one of its own. :param over_cap: see ``workbench.fit``.
    :param on_snapshot: called with every ``Snapshot``. :param stop: asked between chunks; True keeps the partial result.
    :raises ArgumentError: naming the argument; ``path`` where the checkpoint is of another fit.
    """
    if on_snapshot is not None:
        _validate.function("on_snapshot", on_snapshot)
    _validate.function("stop", stop)
    prepared = prepare(path, model=model, data=data, optimizer=optimizer, over_cap=over_cap)
    if prepared.can_resume:
        for snapshot in prepared.run(stop):
            if on_snapshot is not None:
                on_snapshot(snapshot)
    return prepared.result()
