"""What the private estimators share: their settings, one fit with its place in the ledger, and
predictions.
"""

from __future__ import annotations

import inspect
import secrets
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from workbench import _validate
from workbench.data import Dataset, from_arrays
from workbench.fitting.fits import DeltaWarning, prepare
from workbench.fitting.groups import group_of, grouped
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.entries import CLONES
from workbench.models import Model
from workbench.results.fit_result import FitResult, IntervalWarning
from workbench.sklearn._inputs import (
    FROM_DATA,
    Scaling,
    bounds_of,
    features_of,
    records_of,
    refuse_foreign,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


__all__ = ["PrivateEstimator"]

# as of ``workbench.fit``, whose table checks them
_SETTINGS = (
    "epsilon",
    "delta",
    "iterations",
    "sampling_rate",
    "sampler",
    "clip",
    "learning_rate",
    "seed",
)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator):
    """A model that is fitted by ``workbench.fit``, with the parameters that all have.

    A fitted estimator holds the release and public facts, and no record, so it can be pickled and
    sent as far as ``result_.labels`` says "covered".

    Each estimator that is constructed has a random token, which all copies of it share: clones,
    deep copies and pickles. The ledger counts fits with one token together. Scikit-learn repeats
    fits by copying, and so the records of two folds count together. A subclass that has its own
    ``__sklearn_clone__`` must call the one here, which keeps the token.
    """

    epsilon: float = 1.0
    delta: float | None = None
    bounds: Any = None
    iterations: int | None = None
    sampling_rate: float | None = None
    sampler: str = "poisson"
    clip: float | str | None = None
    learning_rate: float | None = None
    seed: int | None = None
    cap: tuple[float, float] | None = None
    ledger: Any = None
    over_cap: str | None = None
    unit: str = "training record"
    name: str = "arrays"
    n_features_in_: int = field(init=False)
    result_: FitResult = field(init=False)
    # no fields: ``__new__`` and ``__sklearn_clone__`` set them
    _is_clone = False
    _token = ""

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        """An estimator with a new token. Not in ``__init__``, which subclasses may replace; a
        pickle brings its own.
        """
        refuse_foreign(settings)
        estimator = super().__new__(cls)
        estimator._token = secrets.token_hex(16)
        return estimator

    def set_params(self, **params: Any) -> Any:
        """Change settings. :raises ArgumentError: for one that only scikit-learn's own estimators
        have.
        """
        refuse_foreign(params)
        return super().set_params(**params)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the token from the state. A pickle of an earlier version has none, and nobody can
        tell its copies.
        """
        self._token = ""
        super().__setstate__(state)

    def __sklearn_clone__(self) -> Any:
        """A copy without a fit, with the same token. It knows that it is a clone: several of them
        are fitted.
        """
        twin = super().__sklearn_clone__()
        twin._token, twin._is_clone = self._token, True
        return twin

    def __sklearn_tags__(self) -> Any:
        """A fit without a seed never comes out the same way again."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.seed is None
        return tags

    def _table(self, x: np.ndarray, y: np.ndarray | None = None, **options: Any) -> Dataset:
        """The data set of all rows of ``x``, and how its columns are scaled as ``_scaling``.

        :param y: the target as whole numbers. :param options: of ``from_arrays``.
        """
        names, read_off = (
            features_of(self),
            isinstance(self.bounds, str) and self.bounds == FROM_DATA,
        )
        target = "y"
        while target in names:
            target += "_"
        if read_off:
            options["private_scaling"] = True
            scaling = Scaling.by_records(x)
        else:
            options["bounds"] = bounds_of("bounds", self.bounds, names)
            scaling = Scaling.by_bounds(options["bounds"])
        data = from_arrays(
            x,
            y,
            feature_names=names,
            target_name=target,
            evaluation=False,
            unit=self.unit,
            name=self.name,
            **options,
        )
        self._scaling = scaling
        return data

    def _fit(self, model: Model | str, data: Dataset) -> FitResult:
        """One fit, which the ledger counts."""
        named = inspect.signature(prepare).parameters
        settings = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in named or group_of(name)
        }
        prepared = prepare(model, data, **grouped(settings, checkpoint=False))
        self._count_with_others(prepared)
        for caution in prepared.cautions:
            warnings.warn(caution, DeltaWarning, stacklevel=3)
        for _ in prepared.run():
            pass
        result = prepared.result()
        if result.status != "done":
            raise RuntimeError(f"the fit ended early: {result.message or result.status}")
        for caution in result.cautions:
            warnings.warn(caution, IntervalWarning, stacklevel=3)
        return result

    def _count_with_others(self, prepared: Any) -> None:
        """See to it that one of several fits on the same records is under a cap.

        Scikit-learn repeats fits by cloning, so a clone is one of several. Another estimator is if
        the ledger knows of fits of its copies, on these records, or on others that count together
        with them.

        :raises ArgumentError: naming ``cap``; or ``estimator``, for one whose copies cannot be
            told.
        """
        reservation = prepared.run_log.reservation
        if self._token:
            reservation.count_with(self._token)
        elif reservation.ledger is not None:
            raise _validate.ArgumentError(
                "estimator",
                type(self).__name__,
                "has no token, as one that an earlier version pickled, and the ledger cannot "
                "tell which others are copies of it, so no cap is kept.",
                code="no token",
                remedy="Construct it anew, and copy that one.",
            )
        if self.cap is not None:
            epsilon, delta = _pair(self.cap)
            why = f"given to a {type(self).__name__}"
            reservation.keep_cap(epsilon, delta, prepared.privacy.relation, why)
        else:
            reservation.check_before(self._check_alone)

    def _check_alone(self, status: BudgetStatus) -> None:
        """Refuse one of several fits where no cap counts for it. :raises ArgumentError: naming
        ``cap``.
        """
        if status.caps or not (self._is_clone or status.parts):
            return
        copies = {entry.number for entry, how in status.relatives if how == CLONES}
        reason = "these records were fitted before"
        if self._is_clone:
            reason = "this is a clone, as cross-validation makes them"
        elif all(spend.dataset in copies for spend in status.spends):
            reason = (
                "this estimator, or a copy of it, was fitted before, and some people may be in "
                "both tables"
            )
        raise _validate.ArgumentError(
            "cap",
            None,
            f"must say what all fits on these records may spend together: {reason}, and what "
            "each spends adds up.",
            code="no cap",
            remedy="Give cap=(epsilon, delta). Each fit then counts, and the one that would exceed "
            "it is refused. For records of other people, construct another estimator.",
        )

    def _keep(self, result: FitResult) -> None:
        self.result_, self.guarantee_ = result, result.guarantee

    def _features(self, x: ArrayLike) -> np.ndarray:
        """Records as the model sees them."""
        check_is_fitted(self)
        return self._scaling.features(records_of(self, x, reset=False))

    def _cut(self, x: ArrayLike) -> np.ndarray:
        """Records within the bounds, in their own units."""
        check_is_fitted(self)
        return self._scaling.cut(records_of(self, x, reset=False))

    def _predictions(self, x: ArrayLike) -> np.ndarray:
        """What the model predicts for each record, float64."""
        features = self._features(x)
        return np.asarray(self.result_.predict((features,)), np.float64)

    def _in_own_units(
        self, weights: np.ndarray, intercept: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the columns, [..., D], and intercept, from those of the features."""
        slopes = np.asarray(weights, np.float64) / self._scaling.reach
        return slopes, intercept - slopes @ self._scaling.middle


def _pair(cap: tuple[float, float]) -> tuple[Any, Any]:
    try:
        epsilon, delta = cap
    except (TypeError, ValueError):
        raise _validate.ArgumentError("cap", cap, "must be a pair (epsilon, delta).") from None
    return epsilon, delta
