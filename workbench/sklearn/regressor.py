"""The private regressor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from workbench.data import Dataset
from workbench.models import checks
from workbench.sklearn._estimator import PrivateEstimator
from workbench.sklearn._inputs import (
    FROM_DATA,
    Scaling,
    bounds_of,
    drawn_rows,
    records_of,
    refuse_foreign,
)
from workbench.sklearn._linear import linear

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["PrivateRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):
    """Private linear regression as a scikit-learn estimator.

    ``PrivateClassifier`` describes what all three estimators share. Clipping cuts the gradients of
    rows far from the line, so that the noise of the target looks smaller than it is, and intervals
    in ``result_`` are too narrow for that reason.

    >>> x = np.random.uniform(0, 100, (60, 2))
    >>> regressor = wb.sklearn.PrivateRegressor(bounds=(0, 100), y_bounds=(0, 200))
    >>> regressor.fit(x, x.sum(axis=1)).coef_.shape
    (2,)

    :param y_bounds: public range (low, high) of the target. Values outside are cut. "data" scales
        by mean and standard deviation of the private target, outside the guarantee.
    :param prior_scale: standard deviation of the normal prior of weights, for columns and target
        scaled to [-1, 1].
    :param epsilon: this and the others as of ``PrivateClassifier``.

    Attributes of a fitted regressor: ``coef_``, float64[D], and ``intercept_``, posterior means in
    the columns' and the target's own units; ``n_features_in_``, ``feature_names_in_``,
    ``guarantee_`` and ``result_``, in which the target is scaled.
    """

    y_bounds: Any = None
    prior_scale: float = 5.0

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **foreign: Any,
    ) -> PrivateRegressor:
        """Fit to all rows, once.

        :param X: array[N, D] or a table of numbers without missing values, N >= 2.
        :param y: array[N] of numbers.
        :param sample_weight: array[N] of 0 and 1, by which ensembles of scikit-learn leave rows
            out. Others are refused: a weight would multiply what one row can change, and a
            bootstrap has a person's row in a fit several times
            (``BaggingClassifier(bootstrap=False)`` has not).
        :param foreign: none; other arguments of scikit-learn's own estimators are refused with the
            reason.
        :raises ArgumentError: naming the parameter; ``CapError`` where the cap does not allow the
            fit.
        """
        refuse_foreign(foreign, "fit")
        x, y = records_of(self, X, y, reset=True, numbers=True)
        x, y = drawn_rows(x, y, sample_weight)
        data = self._with_target(self._table(x), y)
        result = self._fit(linear(checks.number("prior_scale", self.prior_scale, above=0)), data)
        weights, intercept = (
            result.guide_draws[site].mean(axis=0) for site in ("weights", "intercept")
        )
        slopes, constant = self._in_own_units(weights, intercept)
        reach, middle = self._y_scaling.reach[0], self._y_scaling.middle[0]
        self.coef_, self.intercept_ = reach * slopes, float(middle + reach * constant)
        self._keep(result)
        return self

    def _with_target(self, data: Dataset, y: np.ndarray) -> Dataset:
        column = np.asarray(y, np.float64)[:, None]
        read_off = isinstance(self.y_bounds, str) and self.y_bounds == FROM_DATA
        if read_off:
            self._y_scaling = Scaling.by_records(column)
        else:
            self._y_scaling = Scaling.by_bounds(bounds_of("y_bounds", self.y_bounds, ["y"]))
        target = self._y_scaling.features(column)[:, 0]
        return replace(
            data,
            arrays=("x", "y"),
            train=(*data.train, target),
            evaluation=(*data.evaluation, target[:0]),
            target_name="y",
            undeclared=("target",) if read_off else (),
        )

    def predict(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """The expected target for each row of ``X``, float64[B], in its own units. It costs no
        further privacy.
        """
        return self._cut(X) @ self.coef_ + self.intercept_
