"""What the private estimators share: their settings, one fit with its place in the ledger, and
predictions.
"""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from workbench import _validate
from workbench._lazy import pd
from workbench.data import Dataset
from workbench.fitting.fits import DeltaWarning, prepare
from workbench.fitting.groups import grouped
from workbench.ledger.budget import BudgetStatus
from workbench.ledger.entries import CLONES
from workbench.ledger.reservation import Reservation
from workbench.models import Model
from workbench.results.fit_result import FitResult, IntervalWarning
from workbench.sklearn._inputs import (
    bounds_of,
    features_of,
    records_of,
    refuse_foreign,
)

__all__ = ["Make", "OwnArguments", "PrivateEstimator"]

Make = Callable[[Any, Any, Mapping[str, Any]], FitResult]

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
    "ledger",
    "over_cap",
)


class OwnArguments(BaseEstimator):
    """An estimator that says why it does not take arguments of scikit-learn's own ones."""

    def __new__(cls, *args: Any, **settings: Any) -> Any:
        """An estimator. Not in ``__init__``, which subclasses may replace. :raises ArgumentError:
        for such an argument.
        """
        refuse_foreign(settings)
        return super().__new__(cls)

    def set_params(self, **params: Any) -> Any:
        """Change settings. :raises ArgumentError: for one that only scikit-learn's own estimators
        have.
        """
        refuse_foreign(params)
        return super().set_params(**params)


@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(OwnArguments):
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
        estimator = super().__new__(cls, *args, **settings)
        estimator._token = secrets.token_hex(16)
        return estimator

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

    def _regression(
        self, x: np.ndarray, y: Any, family: str, declared: Any, make: Make | None = None
    ) -> FitResult:
        """A fit of the regression of ``y`` on all columns of ``x``.

        :param declared: of ``y``, as a schema has it. :param make: as of ``_fit``.
        """
        frame = self._frame(x)
        target = "y"
        while target in frame:
            target += "_"
        schema: dict[str, Any] = dict.fromkeys(frame, float)
        if self.bounds is not None:
            schema = dict(bounds_of("bounds", self.bounds, list(frame)))
        return self._fit(
            f"`{target}` ~ {' + '.join(f'`{name}`' for name in frame)}",
            frame.assign(**{target: y}),
            make,
            family=family,
            schema={**schema, target: declared},
            unit=_validate.label("unit", self.unit),
            name=_validate.label("name", self.name),
        )

    def _frame(self, x: np.ndarray) -> pd.DataFrame:
        """Records with the names of their columns."""
        return pd.DataFrame(x, columns=features_of(self))

    def _fit(
        self,
        model: Model | str,
        data: Dataset | pd.DataFrame,
        make: Make | None = None,
        **of_table: Any,
    ) -> FitResult:
        """What is released, which the ledger counts.

        :param make: makes it of model, data and settings; by default ``_one_fit``. :param of_table:
            what a formula and a table need.
        """
        settings = {
            name: value for name, value in self.get_params(deep=False).items() if name in _SETTINGS
        }
        result = (make or self._one_fit)(model, data, {**settings, **of_table, "checkpoint": False})
        if result.status != "done":
            raise RuntimeError(f"the fit ended early: {result.message or result.status}")
        for caution in result.cautions:
            warnings.warn(caution, IntervalWarning, stacklevel=3)
        return result

    def _one_fit(
        self, model: Model | str, data: Dataset | pd.DataFrame, settings: Mapping[str, Any]
    ) -> FitResult:
        prepared = prepare(model, data, **grouped(settings))
        relation = str(prepared.privacy.relation)
        self._count_with_others(prepared.run_log.reservation, relation, prepared.cautions)
        for _ in prepared.run():
            pass
        return prepared.result()

    def _count_with_others(
        self, reservation: Reservation, relation: str, cautions: Iterable[str]
    ) -> None:
        """See to it that one of several fits on the same records is under a cap.

        Scikit-learn repeats fits by cloning, so a clone is one of several. Another estimator is if
        the ledger knows of fits of its copies, on these records, or on others that count together
        with them.

        :param relation: of the fits that are counted. :param cautions: about them, which are shown.
        :raises ArgumentError: naming ``cap``; or ``estimator``, for one whose copies cannot be
            told.
        """
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
            try:
                epsilon, delta = self.cap
            except (TypeError, ValueError):
                raise _validate.ArgumentError(
                    "cap", self.cap, "must be a pair (epsilon, delta)."
                ) from None
            why = f"given to a {type(self).__name__}"
            reservation.keep_cap(epsilon, delta, relation, why)
        else:
            reservation.check_before(self._check_alone)
        for caution in cautions:
            warnings.warn(caution, DeltaWarning, stacklevel=5)

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

    def _predictions(self, x: ArrayLike) -> np.ndarray:
        """What a regression predicts for each record, float64."""
        check_is_fitted(self)
        frame = self._frame(records_of(self, x, reset=False))
        return np.asarray(self.result_.predict(frame), np.float64)

    def _weights(self, predictors: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """(weights, float64[predictors, D]; intercepts, float64[predictors]) of a regression,
        posterior means in the columns' own units.
        """
        means = self.result_.coefficients()["mean"].to_numpy(np.float64)
        size = 1 + self.n_features_in_
        rows = means[: predictors * size].reshape(predictors, size)  # others are of the residuals
        return rows[:, 1:], rows[:, 0]
