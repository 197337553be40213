"""The private search of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset
from workbench.fitting.choosing import SCORES, ChooseArguments, planned
from workbench.fitting.groups import grouped
from workbench.models import Model
from workbench.results.fit_result import FitResult
from workbench.sklearn._estimator import OwnArguments
from workbench.sklearn._inputs import bounds_of, features_of, refuse_foreign
from workbench.sklearn.classifier import PrivateClassifier

__all__ = ["PrivateSearchCV"]

_OF_THE_BEST = ("classes_", "result_", "guarantee_", "n_features_in_", "feature_names_in_")
_SEARCHED = ("iterations", "sampling_rate", "clip", "learning_rate")


@dataclass(eq=False, repr=False)
class PrivateSearchCV(ClassifierMixin, OwnArguments):
    """The best of a secret number of fits of a ``PrivateClassifier``, with the choice inside the
    guarantee, as a scikit-learn estimator.

    One call of ``fit`` is one choice of ``workbench.choose``: settings are drawn at random from the
    grid, each fit is scored on records that no fit reads, through noise, and only the best leaves.
    It spends epsilon once, and the ledger counts it, with all fits of the estimator and its copies.
    There are no folds, and so no ``cv``: whether a record is held out depends on it alone.

    >>> x, y = np.random.uniform(0, 100, (5000, 2)), np.arange(5000) % 2
    >>> classifier = wb.sklearn.PrivateClassifier(bounds=(0, 100), iterations=20)
    >>> grid = {"learning_rate": [0.01, 0.1]}
    >>> search = wb.sklearn.PrivateSearchCV(classifier, grid, epsilon=2.0, runs=3)
    >>> search.fit(x, y).predict_proba(x).shape
    (5000, 2)
    >>> list(search.best_params_), search.guarantee_.epsilon
    (['learning_rate'], 2.0)

    :param estimator: a ``PrivateClassifier`` of two classes, which declares bounds, classes, cap,
        ledger and name for all fits. Its epsilon is not used.
    :param param_grid: ``{setting: values}`` as ``GridSearchCV`` takes it, of iterations,
        sampling_rate, clip and learning_rate.
    :param epsilon: privacy loss of the whole choice.
    :param runs: how many fits there are on average; there are at most ten times as many. By
        default 20, or one and a half times the number of combinations where that is more.
    :param scoring: log_likelihood, auc, accuracy, rmse or mae, by which the best fit is chosen.
    :param delta: of the whole choice; by default that of the estimator.
    :param evaluation_fraction: share of the rows held out.

    Attributes of a fitted search: ``best_estimator_``, a fitted copy of the estimator;
    ``best_params_``; ``best_score_``, which is covered by the guarantee and not flattered by the
    choice; ``classes_``, ``n_features_in_``, ``feature_names_in_``, ``guarantee_`` and ``result_``
    as those of a ``PrivateClassifier``. Scores of the other fits are not published, so there is no
    ``cv_results_``.
    """

    estimator: Any
    param_grid: Any
    _: KW_ONLY
    epsilon: float
    runs: float | None = None
    scoring: str = "log_likelihood"
    delta: float | None = None
    evaluation_fraction: float = 0.2
    best_estimator_: PrivateClassifier = field(init=False)
    result_: FitResult = field(init=False)

    def __sklearn_tags__(self) -> Any:
        """Two classes, and no fit without a seed comes out the same way again."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.non_deterministic = getattr(self.estimator, "seed", None) is None
        return tags

    def fit(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **foreign: Any,
    ) -> PrivateSearchCV:
        """Choose among fits, once. The arguments are those of ``PrivateClassifier.fit``.

        :raises ArgumentError: naming the parameter; ``CapError`` where the cap does not allow it.
        """
        refuse_foreign(foreign, "fit")
        if not isinstance(self.estimator, PrivateClassifier):
            raise _validate.ArgumentError(
                "estimator",
                self.estimator,
                "must be a PrivateClassifier; others have no score yet.",
            )
        scoring = _validate.choice("scoring", self.scoring, SCORES)
        grid = _checked_grid(self.param_grid)
        best = clone(self.estimator)
        best._is_clone = self.estimator._is_clone  # one that nobody else fits

        def make(
            model: Model | str, data: Dataset | pd.DataFrame, settings: Mapping[str, Any]
        ) -> FitResult:
            """One choice of ``workbench.choose``."""
            if settings["family"] != "bernoulli":
                raise _validate.ArgumentError(
                    "classes",
                    best.classes,
                    "Only binary classification is supported. Others have no private score yet.",
                )
            bounds_of("bounds", best.bounds, features_of(best))  # of which a choice learns nothing
            of_search = {
                "epsilon": self.epsilon,
                "delta": best.delta if self.delta is None else self.delta,
                "runs": self.runs,
                "by": scoring,
                "evaluation_fraction": self.evaluation_fraction,
            }
            candidates = [{"model": model, **entry} for entry in grid]
            choice = planned(
                ChooseArguments(candidates, data, **grouped({**settings, **of_search}))
            )
            relation = str(choice.candidates[0].plan.settings.relation)
            best._count_with_others(choice.reservation, relation, choice.cautions)
            return choice.outcome(lambda: False)

        best._fitted(make, X, y, sample_weight)
        self.best_estimator_ = best
        for name in _OF_THE_BEST:
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))
        self.best_params_ = grid[self.result_.settings["chosen"] - 1]
        self.best_score_ = self.result_.metrics[scoring]
        best.set_params(epsilon=self.epsilon, **self.best_params_)
        return self

    @property
    def cv_results_(self) -> NoReturn:
        """None. :raises AttributeError: with the reason."""
        raise AttributeError(
            "There is no cv_results_: scores of the other fits are not published, nor how many "
            "there were. best_score_ is that of the best, and the guarantee covers it."
        )

    def predict(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """The most probable class for each row of ``X``. It costs no further privacy."""
        return self._best().predict(X)

    def predict_proba(self, X: ArrayLike) -> np.ndarray:  # noqa: N803
        """Probability of each class for each row of ``X``, float64[B, 2]. It costs no further
        privacy.
        """
        return self._best().predict_proba(X)

    def _best(self) -> PrivateClassifier:
        check_is_fitted(self)
        return self.best_estimator_


def _checked_grid(param_grid: Any) -> list[dict[str, Any]]:
    """All combinations. :raises ArgumentError: naming ``param_grid``."""
    try:
        grid = list(ParameterGrid(param_grid))
    except (TypeError, ValueError) as error:
        raise _validate.ArgumentError("param_grid", param_grid, f"{error}") from None
    unsearched = {name for entry in grid for name in entry} - {*_SEARCHED}
    if unsearched or not grid:
        raise _validate.ArgumentError(
            "param_grid",
            sorted(unsearched) or param_grid,
            f"must have values of {', '.join(_SEARCHED)}; others are the same for all fits.",
        )
    return grid
