"""The private classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin

from workbench.data.columns import Boolean
from workbench.data.preprocessing import text_of
from workbench.sklearn._estimator import Make, PrivateEstimator
from workbench.sklearn._inputs import classes_of, codes_of, drawn_rows, records_of, refuse_foreign

__all__ = ["PrivateClassifier"]


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    """Private logistic regression, for three classes or more softmax regression, as a scikit-learn
    estimator.

    One call of ``fit`` is one fit of ``workbench.fit``. It spends epsilon, and the ledger counts
    it. Under the sampler's relation, what a fitted estimator holds is (epsilon,
    delta)-differentially private for one row; ``guarantee_`` states this in words. Noise and
    minibatches come from secret randomness, so two fits differ. There is no ``random_state``: one
    that is set by habit would let anybody remove the noise.

    >>> x, y = np.random.uniform(0, 100, (5000, 2)), np.arange(5000) % 2
    >>> classifier = wb.sklearn.PrivateClassifier(epsilon=1.0, bounds=(0, 100))
    >>> classifier.fit(x, y).predict_proba(x).shape
    (5000, 2)
    >>> classifier.guarantee_.epsilon
    1.0

    :param epsilon: privacy loss of one fit.
    :param delta: allowance for outcomes that reveal more than a factor of e^epsilon; by default the
        largest power of ten below 1/N.
    :param bounds: public range of the columns: one pair (low, high), array[D, 2], or ``{name: (low,
        high)}``. Values outside are cut. Without it a part of epsilon learns the ranges.
    :param classes: all labels that can occur, which are public; not needed for 0 and 1, or False
        and True.
    :param iterations: number of steps; this and the next four as of ``workbench.fit``, also by
        default.
    :param sampling_rate: probability with which a row enters a step.
    :param sampler: how minibatches are drawn, which decides the neighbouring relation.
    :param clip: clipping norm C of one row's gradient, or "auto".
    :param learning_rate: of Adam.
    :param seed: of a reproducible fit, whose noise anyone who knows it can predict. The guarantee
        states this.
    :param cap: (epsilon, delta), what all fits of this estimator and of its copies (clones, copies,
        pickles) may spend together, whatever records each is fitted to, and with them all other
        fits on these records and on records of the same ``name``. The ledger keeps it. A clone
        needs one, and so do records that were fitted before, because what several fits spend adds
        up. It is a promise for one row of each fit: rows that you draw with replacement yourself
        are in a fit several times, and what is promised for them is weaker (group privacy).
    :param ledger: path or ``Ledger`` in which fits are recorded; your own by default. False for
        none: then nothing is counted and no cap is needed, as for public and made-up rows.
    :param over_cap: reason to exceed the cap; the ledger keeps it.
    :param unit: what one row is, in words.
    :param name: of the records in the ledger. Give records of other people another name.

    Attributes of a fitted classifier: ``classes_``; ``coef_``, float64[1, D] or float64[classes,
    D], and ``intercept_``, posterior means in the columns' own units; ``n_features_in_`` and
    ``feature_names_in_``; ``guarantee_``; and ``result_``, the ``FitResult`` with posterior,
    intervals and labels.
    """

    classes: Any = None

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **foreign: Any,
    ) -> PrivateClassifier:
        """Fit to all rows, once.

        :param X: array[N, D] or a table of numbers without missing values, N >= 2.
        :param y: array[N] of labels.
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
        return self._fitted(None, X, y, sample_weight)

    def _fitted(
        self,
        make: Make | None,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None,
    ) -> PrivateClassifier:
        """Fit to all rows by ``make``, as of ``_fit``. The others are as of ``fit``."""
        x, y = records_of(self, X, y, reset=True)
        x, y = drawn_rows(x, y, sample_weight)
        classes = classes_of(self.classes, y)
        codes = codes_of(y, classes)
        if len(classes) == 2:
            result = self._regression(x, codes == 1, "bernoulli", Boolean(), make)
        else:
            levels = list(map(text_of, classes.tolist()))
            labels = np.array(levels, object)[codes]
            result = self._regression(x, labels, "categorical", levels, make)
        self._keep(result)
        self.classes_ = classes
        self.coef_, self.intercept_ = self._weights(len(classes) - 1)
        if len(classes) > 2:  # those of the first class are 0
            self.coef_ = np.insert(self.coef_, 0, 0.0, 0)
            self.intercept_ = np.insert(self.intercept_, 0, 0.0)
        return self

    def predict_proba(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """Probability of each class for each row of ``X``, float64[B, classes], averaged over
        posterior draws.

        It costs no further privacy.
        """
        probabilities = self._predictions(X)
        if probabilities.ndim == 1:
            return np.column_stack([1 - probabilities, probabilities])
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def predict(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """The most probable class for each row of ``X``. It costs no further privacy."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]
