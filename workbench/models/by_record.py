"""What a fitted model says of records one by one, so that a record's numbers depend on no other
record and not on how many there are: what releases through noise read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench.models.model import inputs_of
from workbench.models.outcomes import Outcome
from workbench.record_model.model import RecordModel

__all__ = ["Said", "has_shape", "in_blocks", "said_of"]

_BLOCK = 1024  # records

Said = tuple[jax.Array | None, jax.Array | None]  # predictions, log densities


def said_of(
    outcome: Outcome,
    predict: Callable[..., jax.Array] | None,
    model: RecordModel,
    values: Mapping[str, jax.Array],
    shared: Mapping[str, jax.Array],
    records: tuple[jax.Array, ...],
) -> Said:
    """Predictions, averaged over draws, and logarithms of predictive densities, nats; None of what
    ``outcome`` does not use.

    :param predict: as of ``Model``. :param values: what it takes, {site: array[draws, ...]}.
    :param shared: what ``RecordModel.record_losses`` takes, likewise. :param records: arrays with
        first axis B.
    """

    def prediction(drawn: Mapping[str, jax.Array], *record: jax.Array) -> jax.Array:
        assert predict is not None
        return predict(drawn, *(array[None] for array in record))[0]

    def predictions(drawn: Mapping[str, jax.Array]) -> jax.Array:
        return jax.vmap(functools.partial(prediction, drawn))(*inputs_of(records))

    def densities(drawn: dict[str, Any]) -> jax.Array:
        return -model.record_losses(drawn, records, jax.random.key(0))

    said, log_densities = None, None
    if outcome.prediction_shape is not None:
        said = jnp.mean(jax.vmap(predictions)(values), axis=0)
    if outcome.uses_densities:
        of_draws = jax.vmap(densities)(dict(shared))
        log_densities = jax.nn.logsumexp(of_draws, axis=0) - jnp.log(len(of_draws))
    return said, log_densities


def has_shape(
    outcome: Outcome, function: Callable[..., Said], arrays: tuple[Any, ...], *arguments: Any
) -> bool:
    """Whether predictions are those of ``outcome``, by the shapes of arrays alone.

    :param function: of ``in_blocks``.
    """
    record = tuple(jax.ShapeDtypeStruct((1, *array.shape[1:]), array.dtype) for array in arrays)
    predictions, _ = jax.eval_shape(function, record, *arguments)
    return predictions is None or predictions.shape == (1, *(outcome.prediction_shape or ()))


def in_blocks(
    function: Callable[..., Any], records: tuple[np.ndarray, ...], *arguments: Any
) -> list[np.ndarray | None]:
    """Results of ``function(block, *arguments)`` of all records, in blocks of one size, so that one
    program makes them all.

    :param function: returns arrays with first axis records, or None, in a tuple.
    """
    made = []
    for start in range(0, len(records[0]), _BLOCK):
        block = tuple(np.asarray(array[start : start + _BLOCK]) for array in records)
        size = len(block[0])
        padded = tuple(
            np.pad(array, [(0, _BLOCK - size), *[(0, 0)] * (array.ndim - 1)]) for array in block
        )
        made.append(
            [None if piece is None else piece[:size] for piece in function(padded, *arguments)]
        )
    return [
        None if pieces[0] is None else np.concatenate([np.asarray(piece) for piece in pieces])
        for pieces in zip(*made, strict=True)
    ]
