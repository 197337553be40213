"""One private fit: ``prepare`` checks and calibrates it, ``fit`` also trains.

The command line, the screens and notebooks all come through here, so a privacy number has one
origin.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

import jax

from workbench import _compiled, _validate
from workbench._limits import MAX_EPSILON
from workbench.data import Dataset
from workbench.data.look import Look
from workbench.fitting.baseline import prepare_without_privacy, refuse_terms_of_privacy
from workbench.fitting.functions import CompiledFunctions
from workbench.fitting.groups import Execution, Privacy, Table, Training, flattened, is_a, of
from workbench.fitting.prepared import PreparedFit
from workbench.fitting.progress import ProgressLine
from workbench.fitting.run_log import RunLog
from workbench.fitting.scoring import ScoreWarning
from workbench.fitting.settings import (
    FormulaSettings,
    LedgerSettings,
    Noted,
    RunSettings,
    about,
    check_all,
    described,
    setting,
    takes,
)
from workbench.fitting.spec import FitRequest, FitSpec, resolve
from workbench.fitting.tables import model_and_data
from workbench.inference.step import PrivateStep
from workbench.models.registry import AnyModel
from workbench.privacy.plan import PrivacyPlan
from workbench.results import FitResult

__all__ = ["DeltaWarning", "FlatRequest", "begun", "fit", "planned", "planned_of", "prepare"]


class DeltaWarning(UserWarning):
    """delta is so large that the guarantee allows one record in the data set to be published
    outright.
    """


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FlatRequest(FormulaSettings, RunSettings, LedgerSettings, FitRequest):
    """All settings of a fit, each under its own name."""

    epsilon: float | None = setting(  # type: ignore[assignment]
        None,
        about("epsilon").help,
        about("epsilon").check,
        otherwise="none: it must be given, or private=False",
        changes_guarantee=True,
    )
    private: bool = setting(
        True,
        "False fits public or made-up records without clipping and noise, to check a model; the "
        "result says so",
        _validate.flag,
        changes_guarantee=True,
    )
    origin: Mapping[str, Any] | None = setting(
        None,
        "JSON-ready facts that checkpoints keep, by which the caller can ask for the fit again",
    )


class Frame(Protocol):
    """A table with columns, such as a pandas DataFrame."""

    @property
    def columns(self) -> Any:
        """Their names."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CommonArguments(Noted):
    """What is the same for one fit and for several among which one is chosen."""

    epsilon: float | None = of("epsilon", FlatRequest)
    delta: float | None = of("delta")
    iterations: int | None = of("iterations")
    sampling_rate: float | None = of("sampling_rate")
    batch_size: int | None = of("batch_size")
    clip: float | str | None = of("clip")
    seed: int | None = of("seed")
    learning_rate: float | None = of("learning_rate")
    ledger: Any = of("ledger")
    family: Any = of("family")
    schema: Any = of("schema")
    privacy: Privacy = setting(Privacy(), Privacy.help(), is_a(Privacy), changes_guarantee=True)
    training: Training = setting(Training(), Training.help(), is_a(Training))
    execution: Execution = setting(Execution(), Execution.help(), is_a(Execution))
    table: Table = setting(Table(), Table.help(), is_a(Table))

    def __post_init__(self) -> None:
        """Check every value. :raises ArgumentError: naming the argument and its value."""
        check_all(self)


@dataclass(frozen=True, eq=False, repr=False)
class FitArguments(CommonArguments):
    """The arguments of ``fit``: those that a user of the screen meets, and the others in groups."""

    model: AnyModel = field(metadata=described(about("model", FitRequest).help))
    data: str | Dataset | Frame = field(
        metadata=described(f"{about('data', FitRequest).help}; for a formula also a table")
    )
    _: KW_ONLY
    private: bool = of("private", FlatRequest)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PrepareArguments(FitArguments):
    """The arguments of ``prepare``."""

    origin: Mapping[str, Any] | None = of("origin", FlatRequest)


_OF_RUNS = dict.fromkeys(
    ("on_snapshot", "stop", "progress"),
    "follows a run, which prepare does not begin: give it to wb.fit.",
)


def _flat(
    arguments: FitArguments, function: str, refused: Mapping[str, str] = MappingProxyType({})
) -> FlatRequest:
    return FlatRequest(**flattened(arguments, FlatRequest, function, refused))


@takes(PrepareArguments)
def prepare(arguments: PrepareArguments) -> PreparedFit:
    """Check every setting, calibrate the noise and read the model, before any private record is
    touched.

    ``workbench.fit`` does the same and then trains.

    >>> target = {"epsilon": 1.0, "iterations": 1000, "sampling_rate": 0.1}
    >>> prepared = wb.prepare("logistic", "breast_cancer", **target)
    >>> prepared.plan.mechanism.noise_multiplier
    8.2022

    :raises ArgumentError: naming the argument and its value.
    :raises PrivacyModelError: naming the site of the model that cannot be fitted.
    """
    return _prepare(_flat(arguments, "prepare", _OF_RUNS))


def _prepare(request: FlatRequest) -> PreparedFit:
    if not request.private:
        refuse_terms_of_privacy(request)
        request = dataclasses.replace(
            request, epsilon=MAX_EPSILON, estimator=request.estimator or "aligned", look=0.0
        )
        return prepare_without_privacy(_resolved(request)[0])
    spec, plan, again = planned_of(request)
    with _compiled.kept(spec.data.is_public and spec.data.evaluation_is_public):
        key = spec.new_key()
        step = spec.private_step(plan, key)
        if (affordable := plan.for_noise_in(spec.most_coordinates(step))) is not plan:
            plan, step = affordable, spec.private_step(affordable, key)
        spec.scorer.require(spec, step)
    return begun(request, spec, plan, key, step, again)


def begun(
    request: FlatRequest,
    spec: FitSpec,
    plan: PrivacyPlan,
    key: jax.Array,
    step: PrivateStep | None = None,
    again: Mapping[str, Any] | None = None,
) -> PreparedFit:
    """The fit of ``plan`` with ``key``, before its first step.

    :param step: of ``spec.private_step`` for them, where it has been made. :param again: facts by
        which the fit can be asked for again.
    """
    again = again or {}
    with _compiled.kept(spec.data.is_public and spec.data.evaluation_is_public):
        step, state = spec.begin(plan, key, step)
    writes = spec.processes.is_first  # the ledger and checkpoints
    run_log = RunLog(
        spec,
        plan,
        step.noised_coordinates,
        ledger=request.ledger if writes else False,
        over_cap=request.over_cap,
        checkpoint=request.checkpoint if writes else False,
        origin={**request.origin, **again}
        if isinstance(request.origin, Mapping)
        else request.origin or again,
    )
    if isinstance(request.look, Look) and request.look.token:
        run_log.reservation.count_with(request.look.token)
    # refuses what the noise cannot promise, before it is drawn
    plan.noise_delta(step.noised_coordinates)
    program = CompiledFunctions(step, spec)
    return PreparedFit(spec, plan, step, state, key, run_log, program)


@takes(PrepareArguments)
def planned(arguments: PrepareArguments) -> tuple[FitSpec, PrivacyPlan]:
    """Check every setting and calibrate the noise, as ``prepare`` does before it reads the model,
    which takes longer.

    :raises ArgumentError: naming the argument and its value.
    """
    return planned_of(_flat(arguments, "planned"))[:2]


def planned_of(request: FlatRequest) -> tuple[FitSpec, PrivacyPlan, Mapping[str, Any]]:
    """What a fit is made of, and facts by which it can be asked for again."""
    if request.epsilon is None:
        raise _validate.ArgumentError(
            "epsilon",
            None,
            "must say how much privacy loss the whole run may have, as in epsilon=1.0.",
            remedy="Give epsilon; for public or made-up data, wb.fit(..., private=False) fits "
            "without noise.",
            code="no epsilon",
        )
    spec, again = _resolved(request)
    return spec, spec.plan(), again


def _resolved(request: FlatRequest) -> tuple[FitSpec, Mapping[str, Any]]:
    """As ``planned_of``, without the plan."""
    model, data, again = model_and_data(request.model, request.data, request)
    return resolve(**{**request.passed_to(FitRequest), "model": model, "data": data}), again


@takes(FitArguments)
def fit(arguments: FitArguments) -> FitResult:
    """Fit a model by differentially private variational inference.

    The release (parameters, posterior draws and everything computed from them and from public data)
    is (epsilon, delta)-differentially private for training records under the sampler's neighbouring
    relation: "add_or_remove_one" for "poisson" and "random_allocation", "replace_one" for the
    others. ``result.guarantee`` states it with its conditions. A ``DeltaWarning`` explains what is
    wrong with delta >= 1/N.

    >>> result = wb.fit("logistic", "breast_cancer", epsilon=1.0)
    >>> result.status, result.guarantee.epsilon, result.guarantee.delta
    ('done', 1.0, 0.001)

    A formula and a table are a model and a data set, too (``wb.models.formula``):

    >>> frame = pd.DataFrame({"age": np.arange(80), "ill": [0, 1] * 40})
    >>> schema = {"ill": bool, "age": (0, 120)}
    >>> result = wb.fit("ill ~ age", frame, family="bernoulli", schema=schema, epsilon=1)
    >>> list(result.coefficients().index)
    ['intercept', 'age']

    Without a schema, the ranges and levels of the columns are learned inside the guarantee
    (``docs/declaring.md``).

    :return: ``FitResult``, whose ``status`` is "done", "cancelled" or "failed".
    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow the fit.
    :raises PrivacyModelError: naming the site of the model that cannot be fitted.
    """
    request = _flat(arguments, "fit")
    prepared = _prepare(request)
    for caution in prepared.privacy.cautions():  # those of a model were shown when it was made
        warnings.warn(caution, DeltaWarning, stacklevel=3)
    for caution in prepared.spec.scorer.cautions(prepared.spec, prepared.plan):
        warnings.warn(caution, ScoreWarning, stacklevel=3)
    line = ProgressLine(prepared, request.progress if prepared.spec.processes.is_first else False)
    line.begin()
    try:
        for snapshot in prepared.run(request.stop):
            line.update(snapshot)
            if request.on_snapshot is not None:
                request.on_snapshot(snapshot)
        result = prepared.result()
    except BaseException as error:
        line.broke(error)
        raise
    line.end(result)
    return result
