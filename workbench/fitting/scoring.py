"""Scores of private evaluation records through noise, which the guarantee covers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np

from workbench import _validate
from workbench._numbers import count
from workbench.data import Dataset
from workbench.fitting.evaluation import evaluation_key, predictor_of
from workbench.inference.state import Purpose
from workbench.inference.step import PrivateStep
from workbench.models.by_record import has_shape, in_blocks
from workbench.models.estimates import Estimate
from workbench.models.outcomes import Outcome, Predicted, Released
from workbench.noise.chacha20 import child_key, key_from_seed
from workbench.privacy.chosen import Scored
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan
from workbench.privacy.steps import LAWS

if TYPE_CHECKING:
    from workbench.fitting.functions import CompiledFunctions
    from workbench.fitting.spec import FitSpec

__all__ = [
    "NO_SCORES",
    "SCORES",
    "CoveredScorer",
    "Ended",
    "ScoreWarning",
    "Scorer",
    "fields_of",
    "outcome_of",
    "predicted_of",
    "release_of",
    "require_private_evaluation",
    "scores_ahead",
]

_OF_AUC = 3  # times as many records as for the log-likelihood: the noise of 40 counts is in it

SCORES = ("log_likelihood", "auc", "accuracy", "rmse", "mae")
NO_SCORES = (
    "has no scores that can be released through noise: it must predict the probability of yes, of "
    "each class, or the mean of a number in declared bounds, each of one row."
)


class ScoreWarning(UserWarning):
    """Noise will hide scores of so few held-out records."""


def scores_ahead(outcome: Outcome, noise_multiplier: float, num_records: int) -> tuple[str, ...]:
    """What to expect of scores through noise before the fit, if a fifth of the records is held out
    and these are few.

    A record's log-likelihood is taken to vary by half a nat. AUC needs about three times as many
    records: its noise is in all counts. Nothing here depends on how many are held out, which is
    private.

    :param num_records: that are fitted, as declared publicly.
    """
    of_sum = outcome.log_range * math.sqrt(outcome.squared_distance) * noise_multiplier
    fewest = (of_sum / (2 * 0.5)) ** 2
    needed = fewest * (_OF_AUC if "auc" in outcome.scores else 1)
    if num_records / 4 >= needed:
        return ()
    auc = f"; for AUC about {_rounded(_OF_AUC * fewest)}" if "auc" in outcome.scores else ""
    return (
        "Noise is more than twice the sampling error in the log-likelihood of fewer than about "
        f"{_rounded(fewest)} held-out records{auc}.",
    )


def _rounded(number: float) -> str:
    return count(int(float(f"{number:.2g}")))


class Ended(Protocol):
    """A run that ended, of which scores are released if it took all its steps."""

    @property
    def is_done(self) -> bool:
        """Whether it took all its steps."""

    @property
    def spec(self) -> FitSpec:
        """Its records and settings."""

    @property
    def plan(self) -> PrivacyPlan:
        """With the noise of scores."""

    @property
    def key(self) -> jax.Array:
        """Of the run."""

    @property
    def functions(self) -> CompiledFunctions:
        """Of its program."""

    @property
    def unconstrained(self) -> dict[str, Any]:
        """The parameters that it released."""


class Scorer:
    """What a fit releases about private evaluation records when it ends: nothing."""

    def require(self, spec: FitSpec, step: PrivateStep) -> None:
        """:raises ArgumentError: if the model has no such scores."""

    def cautions(self, spec: FitSpec, plan: PrivacyPlan) -> tuple[str, ...]:
        """As of ``scores_ahead``."""
        return ()

    def promised(self, plan: PrivacyPlan, guarantee: Guarantee) -> Guarantee:
        """The guarantee of a fit and its scores. :param guarantee: of the fit alone."""
        return guarantee

    def released(self, run: Ended) -> Mapping[str, Any]:
        """Fields of ``FitResult`` about scores; called once a run."""
        return {}


class CoveredScorer(Scorer):
    """Releases scores through noise, after all steps.

    It does so once for each run: with the same noise, those of other parameters would show what the
    noise hides.
    """

    def require(self, spec: FitSpec, step: PrivateStep) -> None:
        require_private_evaluation(spec.source, spec.privacy.sampler, "covered_scores")
        outcome_of(spec, step, "covered_scores")

    def cautions(self, spec: FitSpec, plan: PrivacyPlan) -> tuple[str, ...]:
        outcome = spec.model.outcome(spec.data)
        assert outcome is not None
        return scores_ahead(outcome, plan.score_noise, plan.settings.num_records)

    def promised(self, plan: PrivacyPlan, guarantee: Guarantee) -> Guarantee:
        return Scored.of(guarantee, plan.score_noise)

    def released(self, run: Ended) -> Mapping[str, Any]:
        if not run.is_done:
            return {}
        key = child_key(run.key, Purpose.SCORES)
        try:
            fields = fields_of(release_of(run, run.plan.score_noise, key).scores)
        except Exception as error:  # which may quote records, and must lose no fit
            words = f"Scores could not be released ({type(error).__name__})."
            fields = fields_of({}) | {"message": words}
        return fields | {"history": ()}  # curves have no noise, and would get this label


def predicted_of(run: Ended) -> Predicted:
    """What a run says of its evaluation records: private, and for a release alone."""
    data = run.spec.data
    held_out = tuple(map(np.asarray, data.evaluation))
    key = evaluation_key(run.key)
    predictions, densities = in_blocks(run.functions.said, held_out, run.unconstrained, key)
    counts = None if data.units is None else np.asarray(data.units.evaluation_counts)
    rows = None if counts is None else counts[counts > 0]
    return Predicted(held_out[-1], predictions, densities, rows)


def release_of(run: Ended, noise_multiplier: float, key: jax.Array) -> Released:
    """The scores of a run. :param key: which nothing else uses."""
    outcome = run.spec.model.outcome(run.spec.data)
    assert outcome is not None
    return outcome.release(predicted_of(run), key, noise_multiplier)


def fields_of(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    """Fields of ``FitResult`` about scores with noise."""
    return {
        "metrics": {name: float(estimate.value) for name, estimate in estimates.items()},
        "metric_intervals": {
            name: (float(estimate.low), float(estimate.high))
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
    if not LAWS[sampler].hides_size:
        raise _validate.ArgumentError(
            "sampler",
            sampler,
            "has a guarantee for replaced records, and a replaced record may change sides between "
            "fit and scores: choose poisson or random_allocation.",
        )


def outcome_of(spec: FitSpec, step: PrivateStep, argument: str) -> Outcome:
    """What a fit predicts, checked by public facts alone.

    :raises ArgumentError: naming ``argument``, which asks for scores, where there are none.
    """
    model, data = spec.model, spec.data
    outcome = model.outcome(data)
    if outcome is not None and (data.units is None or not data.units.are_padded):
        is_read = not (outcome.uses_densities and step.model.uses_base_noise)
        if is_read and not (outcome.prediction_shape is not None and model.predict is None):
            said = predictor_of(step, model, outcome)
            key = evaluation_key(key_from_seed(0))
            if has_shape(outcome, said, data.evaluation, step.model.initial, key):
                return outcome
    raise _validate.ArgumentError(
        argument,
        model.name,
        NO_SCORES,
        remedy="Declare the evaluation records public, if they are (evaluation_is_public).",
    )
