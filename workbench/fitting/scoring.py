"""Scores of private evaluation records through noise, which the guarantee covers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from workbench import _validate
from workbench.data import Dataset
from workbench.fitting.evaluation import evaluation_key, in_blocks, predictor_of
from workbench.inference.state import Purpose
from workbench.inference.step import PrivateStep
from workbench.models.covered_scores import CoveredScores, covered_scores
from workbench.noise.chacha20 import child_key, key_from_seed
from workbench.privacy.chosen import Scored
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan
from workbench.privacy.steps import LAWS

if TYPE_CHECKING:
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.spec import FitSpec

__all__ = [
    "SCORES",
    "CoveredScorer",
    "NoScorer",
    "Scorer",
    "fields_of",
    "release_of",
    "require_private_evaluation",
    "require_yes_or_no",
]

SCORES = ("log_likelihood", "auc", "accuracy")


class Scorer(Protocol):
    """What a fit releases about private evaluation records when it ends."""

    def require(self, spec: FitSpec, step: PrivateStep) -> None:
        """:raises ArgumentError: if the model has no such scores."""

    def promised(self, plan: PrivacyPlan, guarantee: Guarantee) -> Guarantee:
        """The guarantee of a fit and its scores. :param guarantee: of the fit alone."""

    def released(self, fit: PreparedFit) -> Mapping[str, Any]:
        """Fields of ``FitResult`` about scores of a run that ended; called once a run."""


class NoScorer(Scorer):
    """Releases nothing."""

    def require(self, spec: FitSpec, step: PrivateStep) -> None:
        pass

    def promised(self, plan: PrivacyPlan, guarantee: Guarantee) -> Guarantee:
        return guarantee

    def released(self, fit: PreparedFit) -> Mapping[str, Any]:
        return {}


class CoveredScorer(Scorer):
    """Releases scores through noise, after all steps.

    It does so once for each run: with the same noise, those of other parameters would show what the
    noise hides.
    """

    def require(self, spec: FitSpec, step: PrivateStep) -> None:
        require_private_evaluation(spec.source, spec.privacy.sampler, "covered_scores")
        require_yes_or_no(spec, step, "covered_scores")

    def promised(self, plan: PrivacyPlan, guarantee: Guarantee) -> Guarantee:
        return Scored.of(guarantee, plan.score_noise)

    def released(self, fit: PreparedFit) -> Mapping[str, Any]:
        if not fit.is_done:
            return {}
        key = child_key(fit.key, Purpose.SCORES)
        return fields_of(release_of(fit, fit.plan.score_noise, key))


def release_of(fit: PreparedFit, noise_multiplier: float, key: jax.Array) -> CoveredScores:
    """The release of scores of a run that ended. :param key: which nothing else uses."""
    held_out = tuple(map(np.asarray, fit.data.evaluation))
    predict, params = fit.functions.predict, fit.unconstrained
    probabilities = in_blocks(predict, params, held_out, evaluation_key(fit.key))
    return covered_scores(held_out[-1], probabilities, key, noise_multiplier=noise_multiplier)


def fields_of(scores: CoveredScores) -> dict[str, Any]:
    """Fields of ``FitResult`` about scores with noise."""
    estimates = {name: getattr(scores, name)() for name in SCORES}
    return {
        "metrics": {name: float(estimate.value) for name, estimate in estimates.items()},
        "metric_intervals": {
            name: (round(float(estimate.low), 6), round(float(estimate.high), 6))
            for name, estimate in estimates.items()
        },
        "metrics_label": "covered",
    }


def require_private_evaluation(data: Dataset, sampler: str, argument: str) -> None:
    """Check that scores of evaluation records can be covered.

    :raises ArgumentError: naming ``data``, ``sampler`` or ``argument``, which asks for them.
    """
    if not data.num_evaluation:
        raise _validate.ArgumentError(
            "data",
            data.name,
            "has no evaluation records, of which there could be scores.",
            remedy="Hold some out, as in from_frame(..., evaluation_fraction=0.2).",
        )
    if data.evaluation_is_public:
        raise _validate.ArgumentError(
            argument, True, "is for private evaluation records: those of public ones are exact."
        )
    if data.units is not None:
        raise _validate.ArgumentError(
            "data", data.name, f"has several rows of one {data.unit}, whose scores have no noise."
        )
    if not LAWS[sampler].hides_size:
        raise _validate.ArgumentError(
            "sampler",
            sampler,
            "has a guarantee for replaced records, and a replaced record may change sides between "
            "fit and scores: choose poisson or random_allocation.",
        )


def require_yes_or_no(spec: FitSpec, step: PrivateStep, argument: str) -> None:
    """Check that a model predicts probabilities of class 1, by public facts alone.

    :raises ArgumentError: naming ``argument``, which asks for scores.
    """
    model, data = spec.model, spec.data
    shape: tuple[int, ...] = ()
    is_binary = len(data.classes) == 2 or model.options.get("family") == "bernoulli"
    if is_binary and model.predict is not None and data.evaluation[-1].ndim == 1:
        record = tuple(
            jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for array in data.evaluation
        )
        key = evaluation_key(key_from_seed(0))
        shape = jax.eval_shape(predictor_of(step, model), step.model.initial, record, key).shape
    if shape != (1,):
        raise _validate.ArgumentError(
            argument,
            model.name,
            "does not predict a probability of yes or no, and others have no private score yet.",
            remedy="Declare the evaluation records public, if they are (evaluation_is_public).",
        )
