"""Predictions for groups of a formula that were not declared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.formula.regression import Regression
from workbench.results.effects import formula_of
from workbench.results.prediction import Predictor

if TYPE_CHECKING:
    from workbench.results.fit_result import FitResult
    from workbench.results.prediction import Records

__all__ = ["predictor_for"]


def predictor_for(
    result: FitResult, records: Records, new_groups: bool
) -> tuple[Predictor, tuple[np.ndarray, ...], Mapping[str, np.ndarray]]:
    """(A predictor that has effects of all groups of ``records``; its arrays of them; the result's
    draws with these effects).

    :param new_groups: whether groups may be new or missing (``formula.NewGroups``).
    :raises ArgumentError: naming ``new_groups``, unless they are groups of a formula in a table.
    """
    if not _validate.flag("new_groups", new_groups):
        return result.predictor, result.predictor.inputs(records), result.draws
    predictor = _OfNewGroups(result, records)
    return predictor, predictor.arrays, predictor.groups.draws(result.draws)


class _OfNewGroups(Predictor):
    """With draws of the effects of new groups."""

    def __init__(self, result: FitResult, records: Records) -> None:
        super().__init__(result)
        model = formula_of(result)
        if (
            model is None
            or not model.columns.design.groups
            or not isinstance(records, pd.DataFrame)
        ):
            raise _validate.ArgumentError(
                "new_groups",
                True,
                "is for a formula with groups, such as (1 | hospital), and records in a DataFrame.",
            )
        assert isinstance(model.model, Regression)
        self._regression, self.groups = model.model, model.new_groups(records)
        names = model.columns.input_names
        declared = dict(zip(names, self.inputs(self.groups.frame), strict=True))
        self.arrays = tuple(self.groups.arrays(declared).values())
        self._draws = self.groups.draws(self._draws)

    @functools.cached_property
    def _drawn_record(self) -> Callable[..., jax.Array]:
        def drawn_record(
            drawn: Mapping[str, jax.Array], key: jax.Array, record: tuple[jax.Array, ...]
        ) -> Any:
            inputs = (array[None] for array in record)
            return self._regression.outcome(drawn, *inputs).sample(key)[0]

        return drawn_record
