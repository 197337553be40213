"""One private fit from settings to result: ``prepare`` checks and calibrates, ``fit`` trains as well.

The command line, the widgets and notebooks all come through here, so a privacy number has one origin.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workbench import _compiled, _validate
from workbench.data import Dataset
from workbench.fitting.prepared import PreparedFit, Program
from workbench.fitting.run_log import RunLog
from workbench.fitting.settings import resolve
from workbench.inference.training import Snapshot
from workbench.models import Model
from workbench.results import FitResult

__all__ = ["DeltaWarning", "fit", "prepare"]


class DeltaWarning(UserWarning):
    """delta is so large that the guarantee allows one record in the data set to be published outright."""


def prepare(
    model: str | Model,
    data: str | Dataset,
    *,
    ledger: Any = None,
    over_cap: str | None = None,
    checkpoint: bool | str | Path = True,
    origin: Mapping[str, Any] | None = None,
    **settings: Any,
) -> PreparedFit:
    """Check every setting, calibrate the noise and read the model, before any private record is touched.

    The arguments are those of ``fit``. :param origin: JSON-ready, kept with checkpoints for whoever asked for the fit.
    """
    spec = resolve(model, data, **settings)
    plan = spec.plan()
    with _compiled.kept(spec.data.is_public):
        key = spec.new_key()
        step, state = spec.begin(plan, key)
    recording = RunLog(spec, plan, step.noise_size, ledger=ledger, over_cap=over_cap, checkpoint=checkpoint, origin=origin)
    plan.truncation_delta(step.noise_size)  # refuses what the noise cannot promise, before it is drawn
    return PreparedFit(spec, plan, step, state, key, recording, Program(step, spec.model, spec.data.num_evaluation))


def fit(
    model: str | Model,
    data: str | Dataset,
    *,
    epsilon: float,
    delta: float | None = None,
    iterations: int | None = None,
    sampling_rate: float | None = None,
    batch_size: int | None = None,
    sampler: str = "poisson",
    relation: str | None = None,
    clip: float | None = None,
    clipping: str = "flat",
    gradient: str = "aligned",
    optimizer: Any = None,
    learning_rate: float | None = None,
    average: bool | None = None,
    strategy: str = "auto",
    physical_size: int | None = None,
    num_records: int | None = None,
    evaluate_private: bool = False,
    draws: int = 1000,
    device: Any = None,
    seed: int | None = None,
    ledger: Any = None,
    over_cap: str | None = None,
    checkpoint: bool | str | Path = True,
    on_snapshot: Callable[[Snapshot], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Fit a model by differentially private variational inference.

    The release (parameters, posterior draws and whatever is computed from them and from public data) satisfies
    (epsilon, delta)-differential privacy under the sampler's neighbouring relation: "add_or_remove_one" training record
    for "poisson", "replace_one" for the others. ``result.guarantee`` states it with its conditions.

    :param model: a name from ``workbench.models.names()`` or a ``workbench.models.Model``.
    :param data: a name from ``workbench.data.names()`` or a ``Dataset``.
    :param epsilon: > 0, for the whole run. :param delta: in (0, 1); the largest power of ten below 1/N by default. A
        ``DeltaWarning`` explains what is wrong with delta >= 1/N.
    :param iterations: T >= 1, planned steps; the noise is calibrated for all of them. Its default, and those of the
        sampling rate, clip, learning_rate and average, follow the rule of ``workbench.fitting.defaults``.
    :param sampling_rate: q in (0, 1], each record's chance to enter a step.
    :param batch_size: in the place of q, the (for "poisson": expected) number of records in a minibatch.
    :param sampler: "poisson" (default), "without_replacement" or "shuffle"; each comes with its own neighbouring relation
        and accountant. :param relation: another relation of the sampler's: "replace_special" for "shuffle".
    :param clip: C > 0, largest norm of one record's gradient.
    :param clipping: how a record's gradient is brought to it: "flat" (longer ones are cut), "automatic" (all are scaled to
        nearly C) or "per_leaf" (each parameter to its share of C); see ``inference.clipped_sum``. The guarantee is the same.
    :param gradient: "aligned", or "vanilla" for comparison. :param optimizer: a numpyro.optim or optax optimiser; Adam by
        default. :param learning_rate: of Adam.
    :param average: give the mean of the iterates of the run's second half in the place of the last one (Polyak); it costs
        no privacy.
    :param strategy: how clipped sums are computed (``inference.clipped_sum``); speed and memory only.
    :param physical_size: records held at once; larger minibatches are summed in parts.
    :param num_records: N as publicly declared; the number of training records by default.
    :param evaluate_private: also compute metrics on private evaluation records, outside the guarantee.
    :param draws: posterior draws to keep. :param device: None, "cpu", "gpu", "gpu:1" or a ``jax.Device``.
    :param seed: None (secret randomness), or a whole number for a reproducible run whose noise is predictable.
    :param ledger: where the spend on private records is entered: None for the user's own (``workbench.ledger``), a path or a
        ``Ledger``, or False for nowhere. :param over_cap: why the records' cap may be overrun this time; it is recorded.
    :param checkpoint: write checkpoints for ``workbench.resume`` while it runs, into a folder of the workbench's own (True),
        another one, or none (False).
    :param on_snapshot: called with every ``Snapshot``. :param stop: asked between chunks; True keeps the partial result.
    :return: ``FitResult``, whose ``state`` is "done", "cancelled" or "failed".
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not allow the fit.
    :raises PrivacyModelError: naming the site.
    """
    if on_snapshot is not None:
        _validate.function("on_snapshot", on_snapshot)
    _validate.function("stop", stop)
    prepared = prepare(
        model,
        data,
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        sampling_rate=sampling_rate,
        batch_size=batch_size,
        sampler=sampler,
        relation=relation,
        clip=clip,
        clipping=clipping,
        gradient=gradient,
        optimizer=optimizer,
        learning_rate=learning_rate,
        average=average,
        strategy=strategy,
        physical_size=physical_size,
        num_records=num_records,
        evaluate_private=evaluate_private,
        draws=draws,
        device=device,
        seed=seed,
        ledger=ledger,
        over_cap=over_cap,
        checkpoint=checkpoint,
    )
    for caution in prepared.cautions:
        warnings.warn(caution, DeltaWarning, stacklevel=2)
    for snapshot in prepared.run(stop):
        if on_snapshot is not None:
            on_snapshot(snapshot)
    return prepared.result()
