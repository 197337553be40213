"""The private clusterer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from workbench.data import Schema, from_arrays, preprocessing
from workbench.data.preprocessing import Bounds
from workbench.models import checks, get
from workbench.sklearn._estimator import PrivateEstimator
from workbench.sklearn._inputs import bounds_of, features_of, records_of, refuse_foreign

__all__ = ["PrivateClusterer"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClusterer(ClusterMixin, PrivateEstimator):
    """A private Gaussian mixture as a scikit-learn estimator.

    ``PrivateClassifier`` describes what all three estimators share. There is no ``labels_``: the
    clusters of the private rows are exact functions of them, so a fitted clusterer does not hold
    them. ``fit(x).predict(x)`` gives them to you.

    >>> x = np.random.uniform(0, 10, (60, 2))
    >>> clusterer = wb.sklearn.PrivateClusterer(n_clusters=3, bounds=(0, 10))
    >>> clusterer.fit(x).cluster_centers_.shape
    (3, 2)

    :param n_clusters: number of components. Clusters are numbered by weight, the largest first.
    :param covariance: of a component, "spherical" or "diagonal".
    :param bounds: as of ``PrivateClassifier``, and needed.
    :param epsilon: this and the others as of ``PrivateClassifier``.

    Attributes of a fitted clusterer: ``cluster_centers_``, float64[clusters, D], in the columns'
    own units, and ``weights_``, float64[clusters], posterior means; ``n_features_in_``,
    ``feature_names_in_``, ``guarantee_``, ``result_``.
    """

    n_clusters: int = 5
    covariance: str = "spherical"

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, **foreign: Any) -> PrivateClusterer:  # noqa: N803
        """Fit to all rows, once.

        :param X: array[N, D] or a table of numbers without missing values, N >= 2.
        :param y: not read.
        :param foreign: none; ``sample_weight`` is refused with the reason.
        :raises ArgumentError: naming the parameter; ``CapError`` where the cap does not allow the
            fit.
        """
        refuse_foreign(foreign, "fit")
        x = records_of(self, X, reset=True)
        count = checks.integer("n_clusters", self.n_clusters, at_least=1)
        model = get("gmm", num_components=count, covariance=self.covariance)
        bounds = bounds_of("bounds", self.bounds, features_of(self))
        data = from_arrays(
            x,
            None,
            feature_names=list(bounds),
            bounds=bounds,
            evaluation=False,
            unit=self.unit,
            name=self.name,
        )
        result = self._fit(model, data)
        draws = result.sorted_draws
        self.weights_ = draws["weights"].mean(axis=0).astype(np.float64)
        # a look may have learned others than were declared
        middle, reach = _middles_and_reaches(Schema.from_dict(result.data["schema"]).bounds)
        self.cluster_centers_ = middle + reach * draws["means"].mean(axis=0)
        self._bounds, self._middle, self._reach = bounds, middle, reach
        self._keep(result)
        return self

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:  # noqa: N803
        """``fit(X).predict(X)``: exact functions of the private rows, which the guarantee does not
        cover.
        """
        return self.fit(X).predict(X)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """Probability of each cluster for each row of ``X``, float64[B, clusters]. It costs no
        further privacy.
        """
        features = self._features(X)
        probabilities = np.asarray(self.result_.predict((features,)), np.float64)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def _features(self, x: ArrayLike) -> np.ndarray:
        """Records as the model sees them, cut to the bounds that were declared."""
        check_is_fitted(self)
        low, high = np.array(list(self._bounds.values()), np.float64).T
        values = np.clip(records_of(self, x, reset=False), low, high)
        return ((values - self._middle) / self._reach).astype(np.float32)

    def predict(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """The most probable cluster for each row of ``X``, int64[B]. It costs no
        further privacy.
        """
        return np.argmax(self.predict_proba(X), axis=1)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:  # noqa: N803
        """Mean log-likelihood of the rows of ``X`` in nats, with columns whose bounds are -1 and 1,
        whatever scales the fit has learned.

        :param y: not read.
        """
        features = self._features(X)
        score = self.result_.score((features,))["log_likelihood"]
        _, declared = _middles_and_reaches(self._bounds)
        return score + float(np.log(declared / self._reach).sum())


def _middles_and_reaches(bounds: Bounds) -> tuple[np.ndarray, np.ndarray]:
    """float64[D] both. :param bounds: of all columns."""
    middle, reach = zip(*map(preprocessing.middle_and_reach, bounds.values()), strict=True)
    return np.array(middle, np.float64), np.array(reach, np.float64)
