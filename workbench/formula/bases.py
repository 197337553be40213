"""Bases of several columns for one number over its declared range: polynomials, splines, smooths.

A smooth is a smoothing spline, whose prior prefers curves f with a small integral of f''^2, in the
basis of Demmler and Reinsch: the line, and the modes in which a free beam vibrates. They are
orthogonal over the beam, and so are their second derivatives, so weights are independent::

    f(x) = w_0 x + sum_j w_j mode_j(x),    w_j ~ Normal(0, sd (b_1 / b_j)^2)

with rates b_j of about (2j + 1) pi / 4 on [-1, 1]. The first modes are the best basis of their
number (Wood 2003, "Thin plate regression splines").
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate
from workbench.data.preprocessing import DECLARATION, middle_and_reach
from workbench.formula.expressions import Bounded, constant, function_name
from workbench.formula.parsing import refused

__all__ = ["BASES", "Basis", "basis"]

_MOST_DEGREES, _MOST_COLUMNS = 20, 100
_FEWEST_OF_CURVE, _MOST_OF_CURVE = 3, 30


class Basis(NamedTuple):
    """The columns that stand for a number.

    :param labels: of the columns. :param compute: from float64[N] to float64[N, K].
    :param bounds: float64[K, 2].
    :param scales: of a smooth, the standard deviations of the columns' weights as multiples of one
        that is learnt; 0 for a weight that has a prior of its own.
    """

    labels: list[str]
    compute: Callable[[np.ndarray], np.ndarray]
    bounds: np.ndarray
    scales: tuple[float, ...] = ()


def basis(formula: str, call: ast.Call, number: Bounded) -> Basis:
    """The columns of a call.

    ``poly(x, 3)`` has Legendre's polynomials, which are orthogonal over the declared range and lie
    in [-1, 1]; ``poly(x, 3, raw=True)`` has powers. ``bs(x, df=5)`` has B-splines with knots that
    divide the declared range evenly, or ``knots=[...]``; its other arguments are those of patsy:
    ``degree=3`` and ``include_intercept=False``. ``s(x, k=10)`` has the line and k - 2 modes.

    :param number: the first argument, with its bounds.
    :raises ArgumentError: naming ``formula``.
    """
    name, signature = function_name(call), BASES[function_name(call)]
    names = list(signature)
    if name == "s":
        _check_smooth(formula, call)
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
        return _MAKERS[name](number, **{**signature, **settings})
    except _validate.ArgumentError as error:
        raise refused(formula, f"{name}() has {error}", error.code) from None


# arguments after the column, with their defaults
BASES: dict[str, dict[str, Any]] = {
    "poly": {"degree": 1, "raw": False},
    "bs": {"df": None, "knots": None, "degree": 3, "include_intercept": False},
    "s": {"k": 10},
}


def _polynomials(number: Bounded, degree: int, raw: bool) -> Basis:
    degree = _validate.integer("degree", degree, at_least=1, at_most=_MOST_DEGREES)
    labels = [str(power) for power in range(1, degree + 1)]
    low, high = number.low, number.high
    if _validate.flag("raw", raw):
        ends = np.array([[low**power, high**power] for power in range(1, degree + 1)])
        if low < 0 < high:
            ends[1::2] = [[0.0, max(pair)] for pair in ends[1::2].tolist()]
        return Basis(
            labels,
            lambda values: values[:, None] ** np.arange(1, degree + 1),
            np.sort(ends, axis=1),
        )

    def legendre(values: np.ndarray) -> np.ndarray:
        scaled = (values - (low / 2 + high / 2)) / (high / 2 - low / 2)
        return np.polynomial.legendre.legvander(scaled, degree)[:, 1:]

    return Basis(labels, legendre, np.tile([-1.0, 1.0], (degree, 1)))


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
    return Basis(labels, splines, np.tile([0.0, 1.0], (count - first, 1)))


# ---- smooths -------------------------------------------------------------------------------------


def _check_smooth(formula: str, call: ast.Call) -> None:
    """:raises ArgumentError: for what mgcv and brms have besides k, with what to write instead."""
    if any(not isinstance(argument, ast.Constant) for argument in call.args[1:]):
        raise refused(formula, "has s() of several columns: write a curve for each, s(x) + s(z).")
    for keyword in call.keywords:
        if keyword.arg == "by":
            raise refused(formula, "has s(by=...): all levels share a curve, as in C(g) + s(x).")
        if keyword.arg != "k":
            raise refused(
                formula,
                f"has s({keyword.arg}=...): write s(x, k=10), the only smooth here, whose basis is "
                "public and whose smoothness is learnt.",
            )


def _smooth(number: Bounded, k: int) -> Basis:
    count = _validate.integer("k", k, at_least=_FEWEST_OF_CURVE, at_most=_MOST_OF_CURVE) - 2
    middle, reach = middle_and_reach((number.low, number.high))
    # longer than the range by about half a bend: a curve that bends at its end takes fewer modes
    rates, beam = _rates(count), reach * k / (k - 1)

    def columns(values: np.ndarray) -> np.ndarray:
        return np.column_stack([values - middle, _modes((values - middle) / beam, rates)])

    labels = ["linear", *(str(mode) for mode in range(1, count + 1))]
    bounds = np.vstack([[-reach, reach], np.tile([-1.0, 1.0], (count, 1))])
    return Basis(labels, columns, bounds, (0.0, *((rates[0] / rates) ** 2).tolist()))


def _rates(count: int) -> np.ndarray:
    """b_j, float64[count]: the solutions of tan b = -tanh b and tan b = tanh b in turn."""
    number = np.arange(1, count + 1)
    rates = (number + 0.5) * np.pi / 2
    sign = np.where(number % 2, -1.0, 1.0)
    for _ in range(4):  # Newton's steps towards sin b -+ tanh b cos b = 0
        sine, cosine, tanh = np.sin(rates), np.cos(rates), sign * np.tanh(rates)
        slope = cosine + tanh * sine - sign * cosine / np.cosh(rates) ** 2
        rates = rates - (sine - tanh * cosine) / slope
    return rates


def _modes(values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The modes at numbers in [-1, 1], float64[N, K]: at most 1, which they reach at 1, with mean
    squares of 1/4.
    """
    x = values[:, None]
    growing = np.exp(rates * (np.abs(x) - 1))  # cosh(b x) / cosh(b) without large numbers
    shrinking, full = np.exp(-rates * (np.abs(x) + 1)), np.exp(-2 * rates)
    is_odd = np.arange(len(rates)) % 2 > 0
    sign = np.where(is_odd, -1.0, 1.0)
    beam = np.where(is_odd, np.sign(x), 1.0) * (growing + sign * shrinking) / (1 + sign * full)
    wave = np.where(is_odd, np.sin(rates * x) / np.sin(rates), np.cos(rates * x) / np.cos(rates))
    return (wave + beam) / 2


_MAKERS: dict[str, Callable[..., Basis]] = {"poly": _polynomials, "bs": _splines, "s": _smooth}
