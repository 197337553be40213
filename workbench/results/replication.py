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
        result, arrays, lambda values, given, key: regression.likelihood(values, given).sample(key)
    )


def means(result: FitResult, arrays: Arrays) -> np.ndarray:
    """The expected response of each record under each of up to 100 draws, float[draws, records]."""
    regression = _regression(result)
    return _for_each_draw(
        result,
        arrays,
        lambda values, given, _: regression.predict(
            values, *(given[name] for name in regression.arrays[:-1])
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

    def curve(values: Mapping[str, Any], given: Mapping[str, Any], _: Any) -> Any:
        parameters = {name: values[name] for name in regression.parameters}
        predictor = regression.predictor(values, given)
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
    kept = min(len(value) for value in result.draws.values())
    places = np.unique(np.linspace(0, kept - 1, min(_SETS, kept)).round().astype(int))
    values = {name: jnp.asarray(value[places]) for name, value in result.draws.items()}
    given = {name: jnp.asarray(array) for name, array in arrays.items()}
    keys = jax.random.split(synthetic_key(0), len(places))
    # one draw at a time: all of them for all records would fill the memory
    of_all = jax.jit(
        lambda values, given, keys: jax.lax.map(
            lambda one: function(one[0], given, one[1]), (values, keys)
        )
    )
    return np.asarray(of_all(values, given, keys))
