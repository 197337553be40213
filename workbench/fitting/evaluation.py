"""Metrics of a fit on the evaluation records: one definition for single fits and for the lanes of a
sweep.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench.inference.state import Purpose, fast_child
from workbench.inference.step import PrivateStep
from workbench.models import Model
from workbench.models.model import inputs_of
from workbench.record_model.elbo import held_out

__all__ = [
    "Outputs",
    "evaluation_key",
    "evaluation_of",
    "in_blocks",
    "metrics_of",
    "predictor_of",
]

_DRAWS = 50  # of the guide; fewer where they would take seconds:
_BLOCK = 1024  # records
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


def predictor_of(step: PrivateStep, model: Model) -> Callable[..., jax.Array]:
    """``predictions(params, records, key)``, a function for jit: as of ``evaluation_of``, but those
    of a record depend on no other and not on how many there are.

    :param step: of the fit. :param model: with ``predict``.
    """
    affordable = _WORK / (step.model.num_records * max(1000, step.noise_size))
    num_draws = int(np.clip(affordable, 1, _DRAWS))

    def predictions(
        params: dict[str, Any], records: tuple[jax.Array, ...], key: jax.Array
    ) -> jax.Array:
        assert model.predict is not None
        predict = model.predict
        fitted = step.model.constrain(params)

        def one(values: dict[str, Any], *record: jax.Array) -> jax.Array:
            return predict(values, *(array[None] for array in record))[0]

        def of_draw(draw: jax.Array) -> jax.Array:
            values = fitted | step.model.latents(params, draw)
            return jax.vmap(functools.partial(one, values))(*inputs_of(records))

        return jnp.mean(jax.vmap(of_draw)(jax.random.split(key, num_draws)), axis=0)

    return predictions


def in_blocks(
    predictions: Callable[..., jax.Array],
    params: Mapping[str, Any],
    records: tuple[np.ndarray, ...],
    key: jax.Array,
) -> np.ndarray:
    """Predictions of all records, in blocks of one size, so that one program makes them all.

    :param predictions: of ``predictor_of``, jitted.
    """
    made = []
    for start in range(0, len(records[0]), _BLOCK):
        block = tuple(np.asarray(array[start : start + _BLOCK]) for array in records)
        size = len(block[0])
        padded = tuple(
            np.pad(array, [(0, _BLOCK - size), *[(0, 0)] * (array.ndim - 1)]) for array in block
        )
        made.append(np.asarray(predictions(params, padded, key))[:size])
    return np.concatenate(made)


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
