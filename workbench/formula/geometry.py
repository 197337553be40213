"""Which columns of a design say nearly the same within the declared bounds, and what is fitted in
their place.

``yr + I(yr**2)`` for years from 1990 to 2020 has two columns that differ by 0.4 %: no optimiser
finds the curve, and the default prior of a weight forbids it. So a column that the columns before
it give to nine tenths is replaced by what they leave of it, as Gram and Schmidt do, scaled to [-1,
1]. The space that the columns span stays, so weights of the columns as they are written are a
linear function of those that are fitted.

What the others give is computed over made-up rows, in which numbers are uniform within their
declared bounds and levels are equally likely. No record is looked at.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from workbench.data.preprocessing import listed

__all__ = ["SMALLEST", "Geometry", "Residual", "geometry_of", "left_by_others", "mixture"]

SMALLEST = 1e-9  # of a column's size: less than this is rounding, and the column adds nothing

_LEAST = 0.1  # of a column's squares, that the others must leave: a variance inflation factor of 10
_USED = 0.02  # of what is left: how much a column must take off to count among those that give it
_ILL = 30.0  # a condition number that is announced (Belsley, Kuh and Welsch 1980)
# of a column's size, if the others leave so much of each, products of columns are exact enough
_PLAIN = 1e-2
_DIGITS = 12  # of weights: so they are the same on any machine, whatever its order of sums


@dataclass(frozen=True)
class Residual:
    """What the columns before it leave of a column: (column - constant - sum of weights x these
    columns) x scale.

    :param weights: by the places of columns, which may be residuals themselves.
    """

    constant: float
    weights: Mapping[int, float]
    scale: float

    def of(self, columns: np.ndarray, index: int) -> np.ndarray:
        """float64[N]. :param columns: float64[N, P], replaced up to ``index``. :param index: the
        number of the column.
        """
        residual = columns[:, index] - self.constant
        for (
            regressor,
            weight,
        ) in self.weights.items():  # one by one: a row's bits do not depend on other rows
            residual = residual - weight * columns[:, regressor]
        return residual * self.scale


@dataclass(frozen=True)
class Geometry:
    """The columns that are replaced, and sentences about those that should be and are not.

    :param residuals: by place, in rising order.
    """

    residuals: Mapping[int, Residual] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def geometry_of(
    x: np.ndarray,
    uniform: int,
    names: tuple[str, ...],
    numbers: frozenset[int],
    fixed: frozenset[int],
) -> Geometry:
    """The geometry of a design.

    :param x: float64[rows, 1 + P] on made-up rows, the intercept first: ones, or zeros where there
        is none.
    :param uniform: how many rows, the first, have the uniform distribution. The others reach the
        ends of the bounds.
    :param names: of the columns without the intercept. :param numbers: places of those that may be
        replaced.
    :param fixed: places of those whose weights have priors of the user, which are about the columns
        as written.
    """
    fitted, residuals, warnings = x.copy(), dict[int, Residual](), list[str]()
    # has the products of columns, which are all that is needed of them
    triangle = _triangle(x[:uniform])
    sizes = np.linalg.norm(triangle, axis=0)
    independent = list[int]()
    for index, (size, length) in enumerate(zip(sizes, np.abs(np.diag(triangle)), strict=True)):
        if length <= SMALLEST * size:
            continue  # which a DesignWarning says
        if index - 1 in numbers and length**2 < _LEAST * size**2:
            used = _givers(triangle, independent, index, _USED * length)
            if fixed & {index - 1, *(regressor - 1 for regressor in used)}:
                warnings += _announced(triangle, [*used, index], names)
            else:
                residual = Residual(
                    used.get(0, 0.0),
                    {regressor - 1: used[regressor] for regressor in used if regressor},
                    1.0,
                )
                reached = np.abs(residual.of(fitted[:, 1:], index - 1)).max()
                residuals[index - 1] = residual = replace(residual, scale=_rounded(1 / reached))
                fitted[:, index] = residual.of(fitted[:, 1:], index - 1)
                triangle[:, index] -= triangle[:, list(used)] @ np.array([*used.values()])
                triangle[:, index] *= residual.scale
        independent.append(index)
    return Geometry(residuals, tuple(warnings))


def _givers(
    triangle: np.ndarray, independent: list[int], index: int, least: float
) -> dict[int, float]:
    """The weights of columns that nearly give the one at ``index``. :param least: the size of what
    is left out.
    """
    from scipy.linalg import solve_triangular

    columns = triangle[np.ix_(independent, independent)]
    weights = solve_triangular(columns, triangle[independent, index])
    sizes = np.abs(weights) * np.linalg.norm(columns, axis=0)
    return {
        regressor: _rounded(weight)
        for regressor, weight, size in zip(independent, weights.tolist(), sizes, strict=True)
        if size > least
    }


def left_by_others(x: np.ndarray) -> np.ndarray:
    """float64[P]: the share of each column's squares that the columns before it leave; of a column
    of zeros 0.
    """
    triangle = _triangle(x)
    sizes = np.square(triangle).sum(axis=0)
    return np.diag(triangle) ** 2 / np.where(sizes > 0, sizes, 1.0)


def mixture(residuals: Mapping[int, Residual], count: int) -> np.ndarray:
    """float64[1 + P, 1 + P]: (1, columns as written) times this are (1, columns as fitted)."""
    matrix = np.eye(1 + count)
    for index, residual in residuals.items():
        matrix[0, 1 + index] -= residual.constant
        for regressor, weight in residual.weights.items():
            matrix[:, 1 + index] -= weight * matrix[:, 1 + regressor]
        matrix[:, 1 + index] *= residual.scale
    return matrix


def _triangle(x: np.ndarray) -> np.ndarray:
    """float64[P, P], whose columns have the lengths and products of those of ``x``, the first k of
    them in k dimensions.
    """
    sizes = np.linalg.norm(x, axis=0)
    if sizes.all():
        columns = x / sizes
        with contextlib.suppress(np.linalg.LinAlgError):
            triangle = np.linalg.cholesky(columns.T @ columns).T
            if np.diag(triangle).min(initial=1) > _PLAIN:  # and rounding is small beside it
                return triangle * sizes
    return np.asarray(np.linalg.qr(x, mode="r"))  # as exact as the columns, and takes much longer


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")


def _announced(triangle: np.ndarray, indices: list[int], names: tuple[str, ...]) -> list[str]:
    """A sentence, if the condition number of these columns is notable."""
    columns = triangle[:, indices] / np.linalg.norm(triangle[:, indices], axis=0)
    condition = np.linalg.cond(columns)
    if condition <= _ILL:
        return []
    called = listed([names[index - 1] if index else "the intercept" for index in indices])
    return [
        f"{called} say nearly the same within the declared bounds (condition number "
        f"{condition:.2g}), and priors= keeps them as they are written, so estimates stay near "
        "the priors. Write powers and products of centred columns, as in center(x) + "
        "I(center(x)**2), or leave out these priors."
    ]
