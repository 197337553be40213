"""The private regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from workbench.sklearn._estimator import PrivateEstimator
from workbench.sklearn._inputs import bounds_of, drawn_rows, records_of, refuse_foreign

__all__ = ["PrivateRegressor"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateRegressor(RegressorMixin, PrivateEstimator):
    """Private linear regression as a scikit-learn estimator.

    ``PrivateClassifier`` describes what all three estimators share.

    >>> x = np.random.uniform(0, 100, (1000, 2))
    >>> regressor = wb.sklearn.PrivateRegressor(
    ...     epsilon=8, bounds=(0, 100), y_bounds=(0, 200)
    ... )
    >>> regressor.fit(x, x.sum(axis=1)).coef_.shape
    (2,)

    :param y_bounds: public range (low, high) of the target. Values outside are cut. Without it a
        part of epsilon learns the range.
    :param epsilon: this and the others as of ``PrivateClassifier``.

    Attributes of a fitted regressor: ``coef_``, float64[D], and ``intercept_``, posterior means in
    the columns' and the target's own units; ``n_features_in_``, ``feature_names_in_``,
    ``guarantee_`` and ``result_``.
    """

    y_bounds: Any = None

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
        declared: Any = float
        if self.y_bounds is not None:
            declared = bounds_of("y_bounds", self.y_bounds, ["y"])["y"]
        self._keep(self._regression(x, np.asarray(y, np.float64), "gaussian", declared))
        (self.coef_,), (self.intercept_,) = self._weights()
        return self

    def predict(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """The expected target for each row of ``X``, float64[B], in its own units. It costs no
        further privacy.
        """
        return self._predictions(X)
