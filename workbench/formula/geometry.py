"""Which columns of a design say nearly the same within the declared bounds, and what is fitted in their place.

``yr + I(yr**2)`` for years from 1990 to 2020 has two columns that differ by 0.4 %: no optimiser finds the curve, and the
default prior of a weight forbids it. So a column that the columns before it give to nine tenths is replaced by what they
leave of it, as Gram and Schmidt do, scaled to [-1, 1]. The space that the columns span stays, so weights of the columns as
they are written are a linear function of those that are fitted.

What the others give is computed over made-up rows, in which numbers are uniform within their declared bounds and levels are
equally likely. No record is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from workbench.data.preprocessing import listed

__all__ = ["SMALLEST", "Geometry", "Residual", "geometry_of"]

SMALLEST = 1e-9  # of a column's size: less than this is rounding, and the column adds nothing

_LEAST = 0.1  # of a column's squares, that the others must leave: a variance inflation factor of 10
_USED = 0.02  # of what is left: how much a column must take off to count among those that give it
_ILL = 30.0  # a condition number that is announced (Belsley, Kuh and Welsch 1980)
_DIGITS = 12  # of weights: so they are the same on any machine, whatever its order of sums


@dataclass(frozen=True)
class Residual:
    """What the columns before it leave of a column: (column - constant - sum of weights x these columns) x scale.

    :param weights: by the places of columns, which may be residuals themselves.
    """

    constant: float
    weights: Mapping[int, float]
    scale: float

    def of(self, columns: np.ndarray, place: int) -> np.ndarray:
        """float64[N]. :param columns: float64[N, P], replaced up to ``place``. :param place: the number of the column."""
        left = columns[:, place] - self.constant
        for other, weight in self.weights.items():  # one by one: a row's bits do not depend on other rows
            left = left - weight * columns[:, other]
        return left * self.scale


@dataclass(frozen=True)
class Geometry:
    """The columns that are replaced, and sentences about those that should be and are not.

    :param residuals: by place, in rising order.
    """

    residuals: Mapping[int, Residual] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def geometry_of(
    x: np.ndarray, uniform: int, names: tuple[str, ...], numbers: frozenset[int], fixed: frozenset[int]
) -> Geometry:
    """The geometry of a design.

    :param x: float64[rows, 1 + P] on made-up rows, the intercept first: ones, or zeros where there is none.
    :param uniform: how many rows, the first, have the uniform distribution. The others reach the ends of the bounds.
    :param names: of the columns without the intercept. :param numbers: places of those that may be replaced.
    :param fixed: places of those whose weights have priors of the user, which are about the columns as written.
    """
    fitted, residuals, warnings = x.copy(), dict[int, Residual](), list[str]()
    basis, triangle = np.empty((uniform, 0)), np.empty((0, 0))  # fitted[:uniform, independent] = basis @ triangle
    independent = list[int]()
    for place in range(x.shape[1]):
        column = fitted[:uniform, place]
        size = float(np.linalg.norm(column))
        shares, rest = _projected(basis, column)
        left = float(np.linalg.norm(rest))
        if left <= SMALLEST * size:
            continue  # which a DesignWarning says
        if place - 1 in numbers and left**2 < _LEAST * size**2:
            weights = np.linalg.solve(triangle, shares)
            sizes = np.linalg.norm(triangle, axis=0)
            used = {
                other: _rounded(weight)
                for other, weight, length in zip(independent, weights, sizes, strict=True)
                if abs(weight) * length > _USED * left
            }
            if fixed & {place - 1, *(other - 1 for other in used)}:
                warnings += _announced(fitted[:uniform], [*used, place], names)
            else:
                residual = Residual(used.pop(0, 0.0), {other - 1: weight for other, weight in used.items()}, 1.0)
                reached = np.abs(residual.of(fitted[:, 1:], place - 1)).max()
                residuals[place - 1] = residual = _scaled(residual, 1 / reached)
                fitted[:, place] = residual.of(fitted[:, 1:], place - 1)
        shares, rest = _projected(basis, fitted[:uniform, place])
        left = float(np.linalg.norm(rest))
        triangle = np.block([[triangle, shares[:, None]], [np.zeros((1, len(shares))), np.array([[left]])]])
        basis = np.column_stack([basis, rest / left])
        independent.append(place)
    return Geometry(residuals, tuple(warnings))


def mixture(residuals: Mapping[int, Residual], count: int) -> np.ndarray:
    """float64[1 + P, 1 + P]: (1, columns as written) times this are (1, columns as fitted)."""
    found = np.eye(1 + count)
    for place, residual in residuals.items():
        found[0, 1 + place] -= residual.constant
        for other, weight in residual.weights.items():
            found[:, 1 + place] -= weight * found[:, 1 + other]
        found[:, 1 + place] *= residual.scale
    return found


def _projected(basis: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(shares of the orthonormal columns of ``basis``, what they leave), twice for what rounding left."""
    shares = basis.T @ column
    rest = column - basis @ shares
    more = basis.T @ rest
    return shares + more, rest - basis @ more


def _scaled(residual: Residual, scale: float) -> Residual:
    return Residual(residual.constant, residual.weights, _rounded(scale))


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _announced(x: np.ndarray, places: list[int], names: tuple[str, ...]) -> list[str]:
    """A sentence, if the condition number of these columns is notable."""
    columns = x[:, places] / np.linalg.norm(x[:, places], axis=0)
    condition = np.linalg.cond(columns)
    if condition <= _ILL:
        return []
    called = listed([names[place - 1] if place else "the intercept" for place in places])
    return [
        f"{called} say nearly the same within the declared bounds (condition number {condition:.2g}), and priors= keeps "
        "them as they are written, so estimates stay near the priors. Write powers and products of centred columns, as "
        "in center(x) + I(center(x)**2), or leave out these priors."
    ]
