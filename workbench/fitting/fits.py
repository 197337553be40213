"""One private fit: ``prepare`` checks and calibrates it, ``fit`` also trains.

The command line, the screens and notebooks all come through here, so a privacy number has one origin.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import _compiled, _validate
from workbench._limits import MAX_EPSILON
from workbench.fitting.baseline import prepare_without_privacy, refuse_terms_of_privacy
from workbench.fitting.functions import CompiledFunctions
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.progress import ProgressLine
from workbench.fitting.run_log import RunLog
from workbench.fitting.settings import LedgerSettings, about, setting, takes
from workbench.fitting.spec import FitRequest, FitSpec, resolve
from workbench.fitting.tables import FormulaSettings, model_and_data
from workbench.inference.training import Snapshot
from workbench.privacy.plan import PrivacyPlan
from workbench.results import FitResult

__all__ = ["DeltaWarning", "fit", "planned", "prepare"]


class DeltaWarning(UserWarning):
    """delta is so large that the guarantee allows one record in the data set to be published outright."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Logged(FormulaSettings, LedgerSettings, FitRequest):
    checkpoint: bool | str | Path = setting(
        True, "write checkpoints for ``workbench.resume``: True for the workbench's own folder, another folder, or False"
    )

    epsilon: float | None = setting(  # type: ignore[assignment]
        None, about("epsilon").help, about("epsilon").check, otherwise="none: it must be given, or private=False",
        changes_guarantee=True,
    )  # fmt: skip
    private: bool = setting(
        True, "False fits public or made-up records without clipping and noise, to check a model; the result says so",
        _validate.flag, changes_guarantee=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Prepared(_Logged):
    origin: Mapping[str, Any] | None = setting(
        None, "JSON-ready facts that checkpoints keep, by which the caller can ask for the fit again"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Fitted(_Logged):
    on_snapshot: Callable[[Snapshot], None] | None = setting(None, "called with every ``Snapshot``", _validate.function)
    stop: Callable[[], bool] = setting(
        lambda: False, "called between chunks of steps; True ends the run and keeps the partial result", _validate.function
    )
    progress: bool | None = setting(
        None, "show a line that follows the fit", _validate.flag, otherwise="in a notebook yes, elsewhere no"
    )


@takes(_Prepared)
def prepare(asked: _Prepared) -> PreparedFit:
    """Check every setting, calibrate the noise and read the model, before any private record is touched.

    ``workbench.fit`` does the same and then trains.

    >>> target = {"epsilon": 1.0, "iterations": 1000, "sampling_rate": 0.1}
    >>> prepared = wb.prepare("logistic", "breast_cancer", **target)
    >>> prepared.plan.mechanism.noise_multiplier
    8.2022

    :raises ArgumentError: naming the argument and its value.
    :raises PrivacyModelError: naming the site of the model that cannot be fitted.
    """
    if not asked.private:
        refuse_terms_of_privacy(asked)
        asked = dataclasses.replace(asked, epsilon=MAX_EPSILON, estimator=asked.estimator or "aligned")
        return prepare_without_privacy(_resolved(asked)[0])
    spec, plan, again = _planned(asked)
    with _compiled.kept(spec.data.is_public and spec.data.evaluation_is_public):
        key = spec.new_key()
        step = spec.private_step(plan, key)
        if (affordable := plan.for_noise_in(step.noised_coordinates)) is not plan:
            plan, step = affordable, spec.private_step(affordable, key)
        step, state = spec.begin(plan, key, step)
    writes = spec.processes.is_first  # the ledger and checkpoints
    run_log = RunLog(
        spec,
        plan,
        step.noised_coordinates,
        ledger=asked.ledger if writes else False,
        over_cap=asked.over_cap,
        checkpoint=asked.checkpoint if writes else False,
        origin={**asked.origin, **again} if isinstance(asked.origin, Mapping) else asked.origin or again,
    )
    plan.noise_delta(step.noised_coordinates)  # refuses what the noise cannot promise, before it is drawn
    program = CompiledFunctions(step, spec.model, spec.data.num_evaluation, spec.device)
    return PreparedFit(spec, plan, step, state, key, run_log, program)


@takes(_Prepared)
def planned(asked: _Prepared) -> tuple[FitSpec, PrivacyPlan]:
    """Check every setting and calibrate the noise, as ``prepare`` does before it reads the model, which takes longer.

    :raises ArgumentError: naming the argument and its value.
    """
    return _planned(asked)[:2]


def _planned(asked: _Prepared) -> tuple[FitSpec, PrivacyPlan, Mapping[str, Any]]:
    """What a fit is made of, and facts by which it can be asked for again."""
    if asked.epsilon is None:
        raise _validate.ArgumentError(
            "epsilon", None, "must say how much privacy loss the whole run may have, as in epsilon=1.0.",
            remedy="Give epsilon; for public or made-up data, wb.fit(..., private=False) fits without noise.",
            code="no epsilon",
        )  # fmt: skip
    spec, again = _resolved(asked)
    return spec, spec.plan(), again


def _resolved(asked: _Prepared) -> tuple[FitSpec, Mapping[str, Any]]:
    """As ``_planned``, without the plan."""
    model, data, again = model_and_data(asked.model, asked.data, asked)
    return resolve(**{**asked.passed_to(FitRequest), "model": model, "data": data}), again


@takes(_Fitted)
def fit(asked: _Fitted) -> FitResult:
    """Fit a model by differentially private variational inference.

    The release (parameters, posterior draws and everything computed from them and from public data) is
    (epsilon, delta)-differentially private for training records under the sampler's neighbouring relation:
    "add_or_remove_one" for "poisson" and "random_allocation", "replace_one" for the others. ``result.guarantee`` states it
    with its conditions. A ``DeltaWarning`` explains what is wrong with delta >= 1/N.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> result.status, result.guarantee.epsilon, result.guarantee.delta
    ('done', 1.0, 0.001)

    A formula and a table are a model and a data set, too (``wb.models.formula``):

    >>> frame = pd.DataFrame({"age": np.arange(80), "ill": [0, 1] * 40})
    >>> schema = {"ill": bool, "age": (0, 120)}
    >>> result = wb.fit("ill ~ age", frame, family="bernoulli", schema=schema, epsilon=1)
    >>> list(result.coefficients().index)
    ['intercept', 'age']

    :return: ``FitResult``, whose ``status`` is "done", "cancelled" or "failed".
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not allow the fit.
    :raises PrivacyModelError: naming the site of the model that cannot be fitted.
    """
    prepared = prepare(**asked.passed_to(_Prepared))
    for caution in prepared.privacy.cautions():  # those of a model were shown when it was made
        warnings.warn(caution, DeltaWarning, stacklevel=3)
    line = ProgressLine(prepared, asked.progress if prepared.spec.processes.is_first else False)
    line.begin()
    try:
        for snapshot in prepared.run(asked.stop):
            line.update(snapshot)
            if asked.on_snapshot is not None:
                asked.on_snapshot(snapshot)
        result = prepared.result()
    except BaseException as error:
        line.broke(error)
        raise
    line.end(result)
    return result
