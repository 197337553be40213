"""Metrics of a fit on the evaluation records: one definition for single fits and for the lanes of a
sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench.inference.state import Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.models import Model
from workbench.models.by_record import Said, said_of
from workbench.models.model import inputs_of
from workbench.models.outcomes import Outcome
from workbench.record_model.elbo import held_out

__all__ = [
    "Outputs",
    "evaluation_key",
    "evaluation_of",
    "metrics_of",
    "predictor_of",
]

_DRAWS = 50  # of the guide; fewer where they would take seconds:
_WORK = 2e10  # draws x evaluation records x coordinates of the release point

Outputs = tuple[jax.Array, jax.Array | None, jax.Array | None]  # ELBO, log-likelihood, predictions


def evaluation_key(key: jax.Array) -> jax.Array:
    """The key of a run's evaluations, from the run's key."""
    return fast_child(key, Purpose.METRICS)


def evaluation_of(step: PrivateStep, model: Model, num_evaluation: int) -> Callable[..., Outputs]:
    """``outputs(params, records, key, constants)``, a function for jit and vmap.

    ``params``: unconstrained parameters; ``records``: the evaluation records; ``key``: of
    ``evaluation_key``; ``constants``: arrays instead of those that the model was split with, if any
    differ.

    :param step: of the fit. :param num_evaluation: number of evaluation records.
    """
    affordable = _WORK / (num_evaluation * max(1000, step.noise_size))
    num_draws = int(np.clip(affordable, 1, _DRAWS))

    def outputs(
        params: dict[str, Any],
        records: tuple[jax.Array, ...],
        key: jax.Array,
        constants: dict[str, Any] | None = None,
    ) -> Outputs:
        by_record = step.model.with_static(constants) if constants else step.model
        elbo, log_likelihood = held_out(by_record, params, key, records, num_draws)
        predict = model.predict
        if predict is None:  # a model of the user's need not predict
            return elbo, log_likelihood, None
        inputs = inputs_of(records)
        keys = jax.random.split(key, num_draws)
        fitted = by_record.constrain(params)
        predictions = jax.vmap(
            lambda draw: predict(fitted | by_record.latents(params, draw), *inputs)
        )(keys)
        return elbo, log_likelihood, jnp.mean(predictions, axis=0)

    return outputs


def predictor_of(step: PrivateStep, model: Model, outcome: Outcome) -> Callable[..., Said]:
    """``said_of(records, params, key)``, a function for jit, with draws as of ``evaluation_of``.

    :param step: of the fit. :param model: with ``predict``, if the outcome has predictions.
    """
    by_record = step.model
    affordable = _WORK / (by_record.num_records * max(1000, step.noise_size))
    num_draws = int(np.clip(affordable, 1, _DRAWS))

    def said(records: tuple[jax.Array, ...], params: dict[str, Any], key: jax.Array) -> Said:
        fitted = by_record.constrain(params)
        draws = jax.random.split(key, num_draws)
        values = jax.vmap(lambda draw: fitted | by_record.latents(params, draw))(draws)
        shared = jax.vmap(lambda draw: by_record.release_point(params, draw)[0])(draws)
        return said_of(outcome, model.predict, by_record, values, shared, records)

    return said


def metrics_of(model: Model, target: np.ndarray, outputs: Outputs) -> dict[str, float]:
    """ELBO, log-likelihood and the model's scores, by name.

    :param target: the last array of the evaluation records.
    """
    elbo, log_likelihood, predictions = outputs
    metrics = {"elbo": float(elbo)}
    if log_likelihood is not None:
        metrics["log_likelihood"] = float(log_likelihood)
    scores: Mapping[str, float] = (
        {} if predictions is None else model.score(target, np.asarray(predictions))
    )
    return metrics | dict(scores)
