"""Bases of several columns for one number: polynomials and splines over its declared range."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.preprocessing import DECLARATION
from workbench.formula.expressions import Bounded, constant, function_name
from workbench.formula.parsing import refused

__all__ = ["BASES", "basis"]

_MOST_DEGREES, _MOST_COLUMNS = 20, 100

# labels, values of columns, (low, high) of each
Basis = tuple[list[str], Callable[[np.ndarray], np.ndarray], np.ndarray]


def basis(formula: str, call: ast.Call, number: Bounded) -> Basis:
    """(labels of the columns, function from float64[N] to float64[N, K], bounds float64[K, 2]).

    ``poly(x, 3)`` has Legendre's polynomials, which are orthogonal over the declared range and lie
    in [-1, 1]; ``poly(x, 3, raw=True)`` has powers. ``bs(x, df=5)`` has B-splines with knots that
    divide the declared range evenly, or ``knots=[...]``; its other arguments are those of patsy:
    ``degree=3`` and ``include_intercept=False``.

    :param number: the first argument, with its bounds.
    :raises ArgumentError: naming ``formula``.
    """
    name, signature = function_name(call), BASES[function_name(call)]
    names = list(signature)
    try:
        by_place = dict(zip(names, map(constant, call.args[1:]), strict=False))
        settings = by_place | {
            str(keyword.arg): constant(keyword.value) for keyword in call.keywords
        }
    except ValueError:
        raise refused(
            formula, f"must give {name}() numbers after its column, no columns and expressions."
        ) from None
    unknown = [keyword for keyword in settings if keyword not in signature]
    if unknown or len(call.args) > len(names) + 1:
        raise refused(
            formula,
            f"{name}() takes {', '.join(names)} after its column; knots are public numbers.",
        )
    if not number.high > number.low:
        raise refused(formula, f"{name}() needs a column that is not constant.")
    try:
        return (_polynomials if name == "poly" else _splines)(number, **{**signature, **settings})
    except _validate.ArgumentError as error:
        raise refused(formula, f"{name}() has {error}", error.code) from None


# arguments after the column, with their defaults
BASES: dict[str, dict[str, Any]] = {
    "poly": {"degree": 1, "raw": False},
    "bs": {"df": None, "knots": None, "degree": 3, "include_intercept": False},
}


def _polynomials(number: Bounded, degree: int, raw: bool) -> Basis:
    degree = _validate.integer("degree", degree, at_least=1, at_most=_MOST_DEGREES)
    labels = [str(power) for power in range(1, degree + 1)]
    low, high = number.low, number.high
    if _validate.flag("raw", raw):
        ends = np.array([[low**power, high**power] for power in range(1, degree + 1)])
        if low < 0 < high:
            ends[1::2] = [[0.0, max(pair)] for pair in ends[1::2].tolist()]
        return (
            labels,
            lambda values: values[:, None] ** np.arange(1, degree + 1),
            np.sort(ends, axis=1),
        )

    def legendre(values: np.ndarray) -> np.ndarray:
        scaled = (values - (low / 2 + high / 2)) / (high / 2 - low / 2)
        return np.polynomial.legendre.legvander(scaled, degree)[:, 1:]

    return labels, legendre, np.tile([-1.0, 1.0], (degree, 1))


def _splines(
    number: Bounded,
    df: int | None,
    knots: Sequence[float] | None,
    degree: int,
    include_intercept: bool,
) -> Basis:
    degree = _validate.integer("degree", degree, at_least=0, at_most=5)
    first = 0 if _validate.flag("include_intercept", include_intercept) else 1
    if (df is None) == (knots is None):
        raise _validate.ArgumentError(
            "df", df, "must be given, or else knots=[...], public numbers."
        )
    if knots is None:
        inner = (
            _validate.integer("df", df, at_least=degree + 1 - first, at_most=_MOST_COLUMNS)
            - degree
            - 1
            + first
        )
        inner_knots = np.linspace(number.low, number.high, inner + 2)[1:-1]
    else:
        knot_list = knots if isinstance(knots, (list, tuple)) else [knots]
        for knot in knot_list:
            if not number.low < _validate.number("knots", knot) < number.high:
                raise _validate.ArgumentError(
                    "knots",
                    knot,
                    "must lie between the declared bounds of its column.",
                    code=DECLARATION,
                )
        inner_knots = np.array(knot_list, np.float64)
        if len(inner_knots) > _MOST_COLUMNS or np.any(np.diff(inner_knots) <= 0):
            raise _validate.ArgumentError(
                "knots", knots, f"must be at most {_MOST_COLUMNS} rising numbers."
            )
    all_knots = np.concatenate(
        [[number.low] * (degree + 1), inner_knots, [number.high] * (degree + 1)]
    )
    count = len(all_knots) - degree - 1

    def splines(values: np.ndarray) -> np.ndarray:
        from scipy.interpolate import BSpline

        if not len(values):  # which SciPy takes no minimum of
            return np.zeros((0, count - first))
        return BSpline.design_matrix(values, all_knots, degree).toarray()[:, first:]

    labels = [str(spline) for spline in range(1, count - first + 1)]
    return labels, splines, np.tile([0.0, 1.0], (count - first, 1))
