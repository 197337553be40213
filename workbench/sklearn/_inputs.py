"""What estimators are given: records, declared bounds and classes. No error quotes a cell, which
scikit-learn's own may.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from workbench import _validate
from workbench.data import preprocessing
from workbench.data.preprocessing import Bounds

__all__ = [
    "bounds_of",
    "classes_of",
    "codes_of",
    "drawn_rows",
    "features_of",
    "records_of",
    "refuse_foreign",
]

NO_TARGET = "no_validation"  # scikit-learn's word
_COMPLEX = (
    "Complex data not supported"  # scikit-learn's words, after which it would quote the array
)


_FOREIGN = {  # arguments of scikit-learn's estimators that these do not have: why, and what to do
    "random_state": (
        "is not taken: noise and minibatches come from secret randomness; who knows a fixed "
        "state could remove the noise.",
        "Leave it out. seed= repeats a fit in tests, and the guarantee says what that does to it.",
    ),
    "sample_weight": (
        "is not taken: a weight would multiply what one row can change, and the noise is made "
        "for rows that count once.",
        "Leave it out. For counts and trials see the families of wb.fit with a formula.",
    ),
    "class_weight": (
        "is not taken: a weight would multiply what one row can change, and the noise is made "
        "for rows that count once.",
        "Leave it out, and choose another threshold on predict_proba, which costs no privacy.",
    ),
    "max_iter": (
        "is not taken: the number of steps is planned before the fit, because each one spends.",
        "Give iterations=.",
    ),
    "cv": (
        "is not taken: with folds each record would be read by many fits, which all count, and a "
        "splitter moves records to other folds when one of them is left out.",
        "A choice holds records out once, each by itself: give evaluation_fraction=.",
    ),
}


def refuse_foreign(arguments: Mapping[str, Any], method: str = "") -> None:
    """Refuse arguments that scikit-learn's own estimators take, with what to do instead.

    :param method: which takes none of ``arguments``; "" if it takes others.
    :raises ArgumentError: naming the first of these. :raises TypeError: for another one that
        ``method`` does not take.
    """
    for name, value in arguments.items():
        if name in _FOREIGN:
            reason, remedy = _FOREIGN[name]
            raise _validate.ArgumentError(name, value, reason, code="foreign", remedy=remedy)
        if method:
            raise TypeError(f"{method}() got an unexpected keyword argument {name!r}")


def drawn_rows(
    x: np.ndarray, y: Any, sample_weight: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """The rows whose weight is 1. Weights are 0 or 1, as scikit-learn's ensembles give them where
    they draw rows once.

    A bootstrap is refused. It enters a row, and so the person in it, several times. A person who is
    entered k times would be promised what a group of k people is promised (group privacy), and the
    ledger would count it as the promise of one row. It is recognised by these weights, and not by
    equal rows: two people may have equal rows, and whether any do is private.

    :param sample_weight: array[N], None for all rows.
    :raises ArgumentError: naming ``sample_weight``; with the code "repeated rows" for whole numbers
        above 1.
    """
    if sample_weight is None:
        return x, y
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        weights = np.empty(())
    if weights.shape != (len(x),):
        raise _validate.ArgumentError(
            "sample_weight", sample_weight, "must have one number, 0 or 1, for each row."
        )
    if np.any(weights > 1) and np.all((weights >= 0) & (weights == np.round(weights))):
        raise _validate.ArgumentError(
            "sample_weight",
            weights,
            "draws rows with replacement, as a bootstrap does. A person whose row is drawn k times "
            "would only be promised what a group of k people is promised (group privacy), and no "
            "cap would count that.",
            code="repeated rows",
            remedy="Draw without replacement: BaggingClassifier(..., bootstrap=False, "
            "max_samples=0.5).",
        )
    if not np.all((weights == 0) | (weights == 1)):
        refuse_foreign({"sample_weight": weights})
    if np.sum(weights) < 2:
        raise _validate.ArgumentError(
            "sample_weight", weights, "leaves fewer than two rows: the others are zero."
        )
    return x[weights == 1], y[weights == 1]


def bounds_of(
    argument: str,
    bounds: Mapping[str, Sequence[float]] | Sequence[Any] | str | None,
    names: Sequence[str],
) -> Bounds:
    """``{name: (low, high)}`` of all columns, from one pair, a pair for each, or ``{name: pair}``.

    :raises ArgumentError: naming ``argument``. It is also refused to leave it out.
    """
    if bounds is None or isinstance(bounds, (str, bytes)):
        raise _validate.ArgumentError(
            argument,
            bounds,
            "must declare the public range: a pair (low, high), a list with a pair for each "
            "column, or {name: (low, high)}.",
            code="no bounds",
            remedy="wb.look(table, epsilon=0.1) shows ranges within a guarantee of its own.",
        )
    if not isinstance(bounds, Mapping):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            pairs = np.asarray(bounds, np.float64)
            if pairs.shape == (len(names), 2):
                bounds = {
                    name: tuple(pair) for name, pair in zip(names, pairs.tolist(), strict=True)
                }
            elif pairs.ndim > 1:
                raise _validate.ArgumentError(
                    argument,
                    bounds,
                    f"must have the shape ({len(names)}, 2), a pair for each column, or be one "
                    "pair.",
                )
    try:
        return preprocessing.checked_bounds(bounds, list(names))
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError(
            argument, error.value, f"{error.argument}: {error.expectation}"
        ) from None


def records_of(
    estimator: BaseEstimator,
    x: ArrayLike,
    y: ArrayLike = NO_TARGET,
    *,
    reset: bool,
    numbers: bool = False,
) -> Any:
    """float64[N, D], and the target if one is given, as scikit-learn checks them.

    :param reset: whether to note the names of the columns, as ``fit`` does, or to compare them.
    :param numbers: whether the target must be numbers.
    :raises ValueError, TypeError: as scikit-learn, but without the cell that it would quote.
    """
    for argument, values in (("X", x), ("y", y)):
        preprocessing.refuse_masked(argument, values)  # scikit-learn would use what is hidden
    _refuse_quotable("X", x, columns=True)
    if y is not None and numbers:
        _refuse_quotable("y", y, columns=False)
    checks: dict[str, Any] = {
        "dtype": np.float64,
        "reset": reset,
        "ensure_min_samples": 2 if reset else 1,
    }
    if not isinstance(y, str):  # NO_TARGET, or what scikit-learn refuses
        checks["y_numeric"] = numbers
    return validate_data(estimator, x, y, **checks)


def _refuse_quotable(argument: str, values: ArrayLike, *, columns: bool) -> None:
    """Refuse what scikit-learn would refuse with a message that shows cells."""
    with warnings.catch_warnings():
        # of objects on the way to an array; scikit-learn repeats it
        warnings.simplefilter("ignore")
        try:
            array = np.asarray(values)
        except (TypeError, ValueError):  # rows of different lengths
            raise _validate.ArgumentError(
                argument, type(values).__name__, "must be an array with rows of one length."
            ) from None
    form = f"{type(values).__name__} of shape {array.shape}"
    if array.dtype.kind == "c" or (
        array.dtype == object and any(isinstance(cell, complex) for cell in array.flat)
    ):
        raise _validate.ArgumentError(argument, form, f"{_COMPLEX}: give real numbers.")
    if array.dtype.kind in "OUSVmM" and array.ndim:
        ok = array.dtype.kind in "OUS"
        try:
            with contextlib.suppress(TypeError):  # scikit-learn's shows a type and no cell
                array.astype(np.float64)
        except (ValueError, OverflowError):
            ok = False
        if not ok:
            raise _validate.ArgumentError(
                argument,
                form,
                "must hold plain numbers: encode text, categories and dates with public "
                "categories and origins.",
            )
    if columns and array.ndim == 1:
        raise _validate.ArgumentError(
            argument,
            form,
            "must have two axes, records and columns. Reshape your data: X.reshape(-1, 1) is one "
            "column, X.reshape(1, -1) one record.",
        )


def features_of(estimator: BaseEstimator) -> list[str]:
    """Names of the columns: those of the table that was fitted, else x1, x2, ..."""
    named = getattr(estimator, "feature_names_in_", None)
    return (
        [f"x{index + 1}" for index in range(estimator.n_features_in_)]
        if named is None
        else [str(name) for name in named]
    )


def classes_of(classes: Sequence[Any] | str | None, y: np.ndarray) -> np.ndarray:
    """The classes in ascending order, from their declaration.

    :param classes: all labels; None for 0 and 1, or False and True.
    :raises ArgumentError: naming ``classes``, without a label of ``y``.
    """
    if classes is None:
        if y.dtype.kind not in "biuf":
            raise _validate.ArgumentError("classes", None, _DECLARE, code="no classes")
        return np.array([False, True]) if y.dtype.kind == "b" else np.array([0, 1], y.dtype)
    labels = np.empty(0) if isinstance(classes, (str, bytes, Mapping)) else np.asarray(classes)
    if labels.ndim != 1 or not labels.size:
        raise _validate.ArgumentError("classes", classes, _DECLARE, code="no classes")
    try:
        distinct = np.unique(labels)
    except TypeError:  # labels without an order, such as numbers mixed with text
        distinct = labels[:0]
    if len(distinct) < max(2, len(labels)):
        raise _validate.ArgumentError(
            "classes", list(classes), "must be two labels or more of one kind, each once."
        )
    return distinct


_DECLARE = (
    "must declare all labels that can occur, as in classes=['no', 'yes']; they may be left out "
    "for 0 and 1."
)


def codes_of(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """int64[N]: the place of each label in ``classes``.

    :raises ArgumentError: naming ``classes``, if some label is none of them; it is not quoted.
        ``ValueError`` as scikit-learn, if the labels are no classes at all.
    """
    place_of = {label: code for code, label in enumerate(classes.tolist())}
    codes = np.array(
        [place_of.get(label, -1) if isinstance(label, Hashable) else -1 for label in y.tolist()],
        np.int64,
    )
    if np.any(codes < 0):
        with (
            warnings.catch_warnings(),
            contextlib.suppress(TypeError),
        ):  # of labels of several kinds
            warnings.simplefilter("ignore")  # that there are many labels is a private fact
            check_classification_targets(y)
        raise _validate.ArgumentError(
            "classes",
            list(place_of),
            "lacks the label of some record.",
            code="no classes",
            remedy=f"It {_DECLARE}",
        )
    return codes
