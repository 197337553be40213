"""Responses that a regression's posterior makes for records: replicated data sets, means, and
survival curves.

They use ``result.draws``, one draw for each data set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench.results.prediction import synthetic_key

if TYPE_CHECKING:
    from workbench.formula.regression import Regression
    from workbench.results.fit_result import FitResult

__all__ = ["means", "responses", "survival"]

_SETS = 100  # draws of the posterior that replicated data sets are made from

Arrays = Mapping[str, np.ndarray]


def responses(result: FitResult, arrays: Arrays) -> np.ndarray:
    """One replicated response of each record for each of up to 100 draws, [draws, records].

    :param arrays: of the records, by name.
    """
    regression = _regression(result)
    return _for_each_draw(
        result,
        arrays,
        lambda values, records, key: regression.likelihood(values, records).sample(key),
    )


def means(result: FitResult, arrays: Arrays) -> np.ndarray:
    """The expected response of each record under each of up to 100 draws, float[draws, records]."""
    regression = _regression(result)
    return _for_each_draw(
        result,
        arrays,
        lambda values, records, _: regression.predict(
            values, *(records[name] for name in regression.arrays[:-1])
        ),
    )


def survival(result: FitResult, arrays: Arrays, times: np.ndarray) -> np.ndarray:
    """The share of the records without an event until each of ``times``, as each of up to 100 draws
    expects it.
    """
    from workbench.formula.survival import Exponential

    regression = _regression(result)
    family, response = regression.family, regression.response
    assert isinstance(family, Exponential), "the families of times derive from it"

    def curve(values: Mapping[str, Any], records: Mapping[str, Any], _: jax.Array) -> Any:
        parameters = {name: values[name] for name in regression.parameters}
        predictor = regression.predictor(values, records)
        at = jnp.asarray(np.maximum(times, 1e-12), jnp.float32)
        return jax.lax.map(
            lambda time: jnp.mean(family.survival(response, predictor, parameters, time)), at
        )

    return _for_each_draw(result, arrays, curve)


def _regression(result: FitResult) -> Regression:
    from workbench.formula.regression import Regression

    regression = result.predictor.model.model
    assert isinstance(regression, Regression), "callers ask for a formula's"
    return regression


def _for_each_draw(result: FitResult, arrays: Arrays, function: Callable[..., Any]) -> np.ndarray:
    available = min(len(value) for value in result.draws.values())
    indices = np.unique(np.linspace(0, available - 1, min(_SETS, available)).round().astype(int))
    values = {name: jnp.asarray(value[indices]) for name, value in result.draws.items()}
    records = {name: jnp.asarray(array) for name, array in arrays.items()}
    keys = jax.random.split(synthetic_key(0), len(indices))
    # one draw at a time: all of them for all records would fill the memory
    of_all = jax.jit(
        lambda values, records, keys: jax.lax.map(
            lambda draw: function(draw[0], records, draw[1]), (values, keys)
        )
    )
    return np.asarray(of_all(values, records, keys))
