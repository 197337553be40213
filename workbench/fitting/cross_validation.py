"""``cross_validate``: how well a model predicts records that it did not read, from all records.

The records are divided into folds, each record by itself. Every fit leaves one fold out and
predicts it. Nothing of the fits is published: only one release of scores of all records together.
A record is read by all fits but one and scored once, so with k folds the fits have the noise of
k - 1 fits on the same records.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data import Dataset, splits
from workbench.data.dataset import is_at_rest
from workbench.data.look import Look
from workbench.fitting import fits
from workbench.fitting.choosing import dataset_of
from workbench.fitting.evaluating import Evaluation
from workbench.fitting.groups import flattened
from workbench.fitting.scoring import fields_of, outcome_of, predicted_of
from workbench.fitting.settings import about, described, setting, takes
from workbench.fitting.single_release import charged
from workbench.fitting.spec import FitSpec
from workbench.inference.state import Purpose
from workbench.ledger.reservation import id_of
from workbench.models.outcomes import Outcome, Predicted
from workbench.models.registry import AnyModel
from workbench.noise.chacha20 import child_key, key_from_seed
from workbench.privacy.cross_validated import CrossValidated
from workbench.privacy.implementation import sampler_for
from workbench.privacy.plan import PrivacyPlan, make_plan
from workbench.privacy.steps import LAWS

__all__ = ["CrossValidateArguments", "CrossValidationStopped", "cross_validate"]

_OF_SCORES = 0.1  # share of the budget, as of ``PrivacySettings.look``
_REFUSED = {
    **dict.fromkeys(
        ("evaluate_private", "covered_scores", "on_snapshot", "progress", "devices"),
        "is not for a cross-validation, of which only scores are shown.",
    ),
    **dict.fromkeys(
        ("evaluation", "evaluation_fraction"),
        "is not for a cross-validation, which scores all records.",
    ),
}


class CrossValidationStopped(RuntimeError):
    """A cross-validation was stopped before its end, so nothing of it is shown. Its epsilon is
    spent.
    """


@dataclass(frozen=True, eq=False, repr=False)
class CrossValidateArguments(fits.CommonArguments):
    """The arguments of ``cross_validate``."""

    model: AnyModel = field(metadata=described(about("model", fits.FitRequest).help))
    data: Any = field(
        metadata=described(
            "a name, a ``Dataset``, whose training records are taken, or a table whose columns "
            "``schema`` declares"
        )
    )
    _: KW_ONLY
    epsilon: float = field(
        metadata=described(
            "privacy loss of all fits and scores together",
            about("epsilon").check,
            changes_guarantee=True,
        )
    )
    folds: int = setting(
        5,
        "how many fits there are",
        lambda name, value: _validate.integer(name, value, at_least=2, at_most=20),
        changes_guarantee=True,
    )


@takes(CrossValidateArguments)
def cross_validate(arguments: CrossValidateArguments) -> Evaluation:
    """Score a model on all records by private cross-validation: each record by the fit that did not
    read it.

    All fits and scores together are (epsilon, delta)-differentially private. Each fit has about the
    noise of one with epsilon / sqrt(folds - 1), so the scores are a little below those of one fit
    with all of epsilon. This is for few records; with many, hold some out
    (``wb.Privacy(covered_scores=True)``).

    >>> scores = wb.cross_validate("logistic", "breast_cancer", epsilon=2.0, folds=3)
    >>> sorted(scores.metrics), scores.guarantee.epsilon
    (['accuracy', 'auc', 'log_likelihood'], 2.0)

    :raises ArgumentError: naming the argument and its value; ``CapError`` where a cap does not
        allow it.
    :raises CrossValidationStopped: if ``execution.stop`` stops it.
    """
    flat = flattened(arguments, fits.FlatRequest, "cross_validate", _REFUSED)
    folds = arguments.folds
    flat.pop("folds", None)
    model, stop = flat.pop("model"), flat.pop("stop", None)
    if not isinstance(flat["data"], (str, Dataset)):
        flat["evaluation_fraction"] = 0.0
    data = dataset_of(flat, {"model": model})
    _require_records(data, flat.get("sampler", "poisson"))
    # of all folds, an upper bound for the records of each fit
    number = flat.get("num_records") or data.num_train
    request = fits.FlatRequest(
        **{"look": 0.0, **flat, "ledger": False, "checkpoint": False, "num_records": number},
        model=model,
        data=data,
    )
    LAWS["poisson"].public_size(number, data.num_train)
    planned = [fits.planned_of(replace(request, data=fold)) for fold in _folds(data, folds)]
    total_plan, outcome, guarantee = _promised(request, *planned[0][:2], folds)
    for caution in total_plan.settings.cautions():
        warnings.warn(caution, fits.DeltaWarning, stacklevel=3)
    assert total_plan.look is not None
    name = f"cross-validation of {getattr(model, 'name', model)}"
    look = request.look.token if isinstance(request.look, Look) else ""
    with charged(
        data,
        guarantee,
        name,
        lambda: id_of(data),
        look,
        seed=request.seed,
        ledger=flat.get("ledger"),
        over_cap=flat.get("over_cap"),
    ) as release:
        predicted = []
        for index, (spec, plan, _) in enumerate(planned):
            run_key = child_key(child_key(release.key, Purpose.RUNS), index)
            noisy = plan.with_noise(total_plan.mechanism.noise_multiplier)
            fit = fits.begun(request, spec, _padded(noisy, total_plan), run_key)
            for snapshot in fit.run(stop or (lambda: False)):
                if snapshot.status == "cancelled":
                    raise CrossValidationStopped("stopped, so nothing is shown; it is spent.")
            if spec.data.num_evaluation:
                predicted.append(predicted_of(fit))
        scores_key = child_key(release.key, Purpose.SCORES)
        released = outcome.release(_joined(predicted), scores_key, total_plan.look.noise_multiplier)
    return Evaluation(
        guarantee=guarantee,
        calibration=released.calibration,
        model=name,
        spend=release.spend,
        **fields_of(released.scores),
    )


def _require_records(data: Dataset, sampler: str) -> None:
    """:raises ArgumentError: naming ``data`` or ``sampler``, for what has no such folds."""
    if data.units is not None:
        raise _validate.ArgumentError(
            "data", data.name, f"has several rows of one {data.unit}, of which there are no folds."
        )
    if any(map(is_at_rest, data.train)):
        raise _validate.ArgumentError(
            "data", data.name, "stays in a file: open it with reading='memory'."
        )
    if sampler != "poisson":
        raise _validate.ArgumentError(
            "sampler", sampler, "must be poisson, because a record does not enter the same fits."
        )


def _folds(data: Dataset, folds: int) -> Iterator[Dataset]:
    """The data set without each fold, whose records are for evaluation. In which fold a record is
    depends on it alone.
    """
    records = tuple(map(np.asarray, data.train))
    # other coins than those by which evaluation records may have been held out before; and rows in
    # their order, so that a record leaves the places of all others, also of its equals
    coins = splits.coins(records, "folds")
    order = np.argsort(coins, kind="stable")
    records = tuple(array[order] for array in records)
    fold = np.minimum(coins[order] * folds, folds - 1).astype(int)
    for number in range(folds):
        train, evaluation = (
            tuple(array[rows] for array in records) for rows in (fold != number, fold == number)
        )
        yield replace(data, train=train, evaluation=evaluation, evaluation_is_public=False)


def _padded(plan: PrivacyPlan, total_plan: PrivacyPlan) -> PrivacyPlan:
    """The plan of one fit with the padding of minibatches that all steps together need."""
    sampler: Any = plan.sampler
    size, settings = plan.sampler.num_records, total_plan.settings
    padded: Any = sampler_for(settings, size, settings.epsilon)
    return replace(plan, sampler=replace(padded, is_vacant=sampler.is_vacant))


def _promised(
    request: fits.FlatRequest, spec: FitSpec, plan: PrivacyPlan, folds: int
) -> tuple[PrivacyPlan, Outcome, CrossValidated]:
    """The plan of all fits' steps with the scores as a look, what is predicted, and the guarantee.

    :raises ArgumentError: naming an argument, before anything is spent.
    """
    if spec.privacy.look or spec.settings.estimator == "statistics":
        name = "look" if spec.privacy.look else "estimator"
        raise _validate.ArgumentError(
            name,
            getattr(request, name),
            "is not for a cross-validation, whose fits take steps on declared or given scales.",
            remedy='Give training=wb.Training(estimator="aligned"), or privacy=wb.Privacy('
            "look=wb.look(...)).",
        )
    step = spec.private_step(plan, key_from_seed(0))
    outcome = outcome_of(spec, step, "model")
    total = replace(spec.privacy, iterations=(folds - 1) * spec.privacy.iterations, look=_OF_SCORES)
    size = spec.data.num_train
    total_plan = make_plan(total, size, look_size=outcome.draws)
    dimension = spec.most_coordinates(step)
    total_plan = total_plan.for_noise_in(dimension).confirmed()
    single = spec.guarantee(plan, spec.privacy.iterations, dimension)
    accounted = total_plan.guarantee(
        steps_taken=total.iterations, unit=spec.data.unit, dimension=dimension, caveats=()
    )
    *caveats, _ = single.caveats  # the last is that it is one fit
    caveats.append(
        "This is one cross-validation. The epsilons of several on the same records add up."
    )
    facts = vars(accounted) | {
        "covers_deletion": single.covers_deletion,
        "secure_randomness": single.secure_randomness,
        "caveats": tuple(caveats),
    }
    return total_plan, outcome, CrossValidated(**facts, folds=folds)


def _joined(predicted: list[Predicted]) -> Predicted:
    def joined(arrays: tuple[Any, ...]) -> Any:
        return None if arrays[0] is None else np.concatenate(arrays)

    targets, predictions, densities, *_ = zip(*predicted, strict=True)
    return Predicted(joined(targets), joined(predictions), joined(densities))
