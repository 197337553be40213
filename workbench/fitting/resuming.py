"""Fits whose process has ended: resume one, list them, or forget one."""

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
from workbench.fitting import checkpoints, fits
from workbench.fitting.checkpoints import Checkpoint
from workbench.fitting.devices import check_devices
from workbench.fitting.groups import grouped
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.tables import again_of
from workbench.inference.training import Snapshot
from workbench.ledger.entries import Spend
from workbench.ledger.ledger import Ledger
from workbench.models import Model
from workbench.models.registry import AnyModel, is_known
from workbench.results import FitResult

__all__ = ["SavedRun", "forget", "prepare", "resume", "saved_runs", "unusable_runs"]


@dataclass(frozen=True)
class SavedRun:
    """A run that has checkpoints.

    :param path: its folder, for ``resume``.
    :param step: the step of its newest checkpoint.
    :param steps: the number of planned steps.
    :param written: when that checkpoint was written, in local time.
    :param fingerprint: of its records.
    :param spend: its key in the ledger; None for public records.
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
    """List the runs with checkpoints in the workbench's own folder, newest first. Damaged ones are
    left out.
    """
    saved = []
    for folder in reversed(checkpoints.saved_runs()):
        try:
            checkpoint = checkpoints.newest(folder)
        except ArgumentError:
            continue
        facts, settings = checkpoint.facts, checkpoint.facts["settings"]
        written = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(checkpoint.path.stat().st_mtime))
        run = SavedRun(
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
        saved.append(run)
    return saved


def unusable_runs() -> list[Path]:
    """List folders of runs that may hold a secret key but have no checkpoint that can
    be resumed.
    """
    usable = {run.path for run in saved_runs()}
    return [
        folder
        for folder in checkpoints.saved_runs()
        if folder not in usable and checkpoints.holds_key(folder)
    ]


def forget(path: str | Path) -> Spend | None:
    """Delete the checkpoints and the secret key of a fit that will not be resumed. A finished fit's
    release stays.

    The ledger then charges the fit only the steps that it may have taken, instead of all planned
    steps.

    >>> execution = wb.Execution(checkpoint="runs/mine", stop=lambda: True)
    >>> stopped = wb.fit("logistic", "breast_cancer", epsilon=1.0, execution=execution)
    >>> wb.forget("runs/mine")

    :param path: the run's folder.
    :return: what the ledger has of the fit; None if it is in no ledger.
    :raises ArgumentError: naming ``path``, if it is no such folder, or the fit is running.
    :raises LedgerError: if its ledger cannot be used; nothing is deleted then.
    """
    folder = _validate.path("path", path).absolute()
    if not checkpoints.holds_key(folder):
        raise ArgumentError(
            "path", str(path), "must be the folder of a fit with checkpoints that hold a key."
        )
    spend = None
    recorded = checkpoints.spend_of(folder)
    if recorded is None and checkpoints.is_running(folder):
        raise ArgumentError(
            "path", str(path), "belongs to a fit that is running: stop it or end its process first."
        )
    if recorded is not None:
        ledger, key = Ledger(recorded[0]), recorded[1]
        ledger.recover([key])
        spend = ledger.spend(key)
        if spend is not None and spend.status == "reserved":
            raise ArgumentError(
                "path", str(path), "belongs to a fit that is running: stop it first."
            )
    checkpoints.forget(folder)
    return spend


def prepare(
    path: str | Path,
    *,
    model: AnyModel | None = None,
    data: Any = None,
    optimizer: Any = None,
    over_cap: str | None = None,
    devices: Any = None,
) -> PreparedFit:
    """Prepare the fit of a checkpoint to be run to its end. The arguments are those
    of ``resume``.
    """
    checkpoint = checkpoints.newest(path)
    facts = checkpoint.facts
    if "has_optimizer" not in facts:
        raise ArgumentError(
            "path", str(path), "is of a choice, which the same call of wb.choose continues."
        )
    if facts["has_optimizer"] and optimizer is None:
        raise ArgumentError("optimizer", None, "the fit had its own optimiser: give the same one.")
    if data is None and facts["data"] not in data_room.names():
        raise ArgumentError(
            "data",
            None,
            f"checkpoints do not contain the records of {facts['data']!r}: give them again.",
        )
    settings = dict(facts["settings"])
    if devices is not None:
        settings |= {"devices": devices, "device": None}
    else:
        _check_devices(settings.get("devices"))
    text, again = again_of(facts, data)
    model = (text or _model(checkpoint)) if model is None else model
    data = data_room.load(facts["data"]) if data is None else data
    prepared = fits.prepare(
        model,
        data,
        ledger=facts["ledger"] or False,
        origin=facts["origin"],
        **grouped(settings, optimizer=optimizer, over_cap=over_cap, **again),
    )
    prepared.resume_from(checkpoint)
    return prepared


def _check_devices(names: list[str] | None) -> None:
    """:raises ArgumentError: naming ``devices``, if those that a fit had are not there."""
    try:
        check_devices("devices", names)
    except ArgumentError:
        raise ArgumentError(
            "devices",
            names,
            "are those of the fit, and not all here.",
            code="other devices",
            remedy="Give devices=.",
        ) from None


def _model(checkpoint: Checkpoint) -> Model:
    """The fit's model from the gallery.

    :raises ArgumentError: naming ``model``, if it is not in the gallery.
    """
    name, options = (checkpoint.facts["model"][key] for key in ("name", "options"))
    if not is_known(name):
        file = checkpoint.facts["model"]["file"]
        remedy = f"run {file}, which registered it" if file else "register it again"
        raise ArgumentError(
            "model", name, f"is not in the gallery: {remedy}, or pass the model itself."
        )
    return models_room.get(name, **options)


def resume(
    path: str | Path,
    *,
    model: AnyModel | None = None,
    data: Any = None,
    optimizer: Any = None,
    over_cap: str | None = None,
    devices: Any = None,
    on_snapshot: Callable[[Snapshot], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Resume a fit that was stopped or interrupted, and run it to its end; return the result if it
    is finished already.

    It is the same fit, so its epsilon is spent once. Other records, another plan or another program
    are refused, because the same noise must not be added to other sums.

    >>> execution = wb.Execution(checkpoint="runs/mine", stop=lambda: True)
    >>> stopped = wb.fit("logistic", "breast_cancer", epsilon=1.0, execution=execution)
    >>> stopped.status
    'cancelled'
    >>> wb.resume("runs/mine").status
    'done'

    :param path: the run's folder (``workbench resume`` lists them), or one of its files.
    :param model: the same model, if it is not from the gallery.
    :param data: the same records, of a formula also as the same table; by default the data set of
        the same name.
    :param optimizer: the same optimiser, if the fit had its own.
    :param over_cap: as for ``workbench.fit``.
    :param devices: other devices than the run had, as for ``workbench.fit``. Sums are rounded
        differently there, so the same promise is kept with other last digits; after a crash, which
        may lose steps that were seen, it is refused.
    :param on_snapshot: called with every ``Snapshot``.
    :param stop: called between chunks of steps; True ends the run and keeps the partial result.
    :raises ArgumentError: naming the argument; ``path`` if the checkpoint belongs to another fit.
    """
    if on_snapshot is not None:
        _validate.function("on_snapshot", on_snapshot)
    _validate.function("stop", stop)
    prepared = prepare(
        path, model=model, data=data, optimizer=optimizer, over_cap=over_cap, devices=devices
    )
    if prepared.can_resume:
        for snapshot in prepared.run(stop):
            if on_snapshot is not None:
                on_snapshot(snapshot)
    return prepared.result()
