"""The posterior of a linear regression given noised sums of products (``statistics``), by Markov
chains.

The sums without noise, A = sum w z z', h = sum w z y and c = sum w y^2, are unknown. Given A,
coefficients theta and the residuals' standard deviation s (Bernstein and Sheldon 2019, section 3)::

    h ~ Normal(A theta, rho s^2 A)
    c - h' A^-1 h = s^2 q,    q ~ rho chi^2 with f / rho degrees of freedom

where n = sum w, rho = sum w^2 / n, which is 1 without weights, f = n - rho p, and p is the number
of coefficients. A has the flat prior on positive definite matrices; theta and s have the model's.

With q as a function of a standard normal number (Wilson and Hilferty 1931), all that is unknown is
normal before the release is seen: the noise of each sum, and that number. s follows from them, and
theta is integrated out. So elliptical slices (``_ellipses``) move everything at once. Chains start
at the nearest possible sums.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from workbench.posterior._ellipses import (
    CHAINS,
    SETTLED,
    Ellipses,
    cholesky,
    draws_of,
    nearest_possible,
)
from workbench.posterior.statistics import LinearGaussian, NoisedSums, symmetric

__all__ = ["CHAINS", "SETTLED", "Draws", "draw"]

_LEAST_SHARE = 0.1  # of w^2 in w
_LOG_SCALES = np.linspace(-16.0, 6.0, 4401)
_ANY = 1e150  # the corner of a matrix that is bordered with a vector


class Draws(NamedTuple):
    """Draws from the posterior.

    :param coefficients: float[draws, p]. :param scale: float[draws]. :param spread: the largest
        R-hat.
    """

    coefficients: np.ndarray
    scale: np.ndarray
    spread: float


def draw(sums: NoisedSums, regression: LinearGaussian, count: int, generator: Generator) -> Draws:
    """``count`` draws, from chains that run until they agree or took too long."""
    chain = _Chain(sums, regression, min(CHAINS, count), generator)

    def quantities() -> np.ndarray:
        theta, scale = chain.draw()
        return np.column_stack([theta, np.log(scale)])

    flat, spread = draws_of(chain.ellipses, quantities, count)
    return Draws(flat[:, :-1], np.exp(flat[:, -1]), spread)


class _Factors(NamedTuple):
    """Of a symmetric A and vectors r: log det A and r' A^-1 r, float[chains] each; NaN where A is
    not positive definite.
    """

    log_determinant: np.ndarray
    squares: np.ndarray


def _factors(matrices: np.ndarray, vectors: np.ndarray) -> _Factors:
    """Of the leading blocks that are as wide as the vectors. :param matrices: float[chains, m, m],
    m >= p.
    """
    chains, width = matrices.shape[0], matrices.shape[1]
    bordered = np.zeros((chains, width + 1, width + 1))
    bordered[:, :width, :width] = matrices
    used = vectors.shape[1]
    bordered[:, width, :used] = bordered[:, :used, width] = vectors
    bordered[:, width, width] = _ANY
    factor = cholesky(bordered)
    diagonal = np.diagonal(factor, axis1=1, axis2=2)[:, :used]
    return _Factors(
        2 * np.log(diagonal).sum(axis=1), np.square(factor[:, width, :used]).sum(axis=1)
    )


class _Chain:
    """Chains that step together. Their states are noises of A and h and c, and the number that q
    depends on.
    """

    def __init__(
        self, sums: NoisedSums, regression: LinearGaussian, chains: int, generator: Generator
    ) -> None:
        self._sums, self._prior, self._random = sums, regression.prior, generator
        # once: JAX would compile it for each number of chains
        self._of_scale = regression.log_prior(_LOG_SCALES)
        # the constant is the last, so a model without intercept uses all but it
        self._used = len(regression.prior.mean)
        self._rows, self._columns = np.triu_indices(len(sums.products))
        beside = sums.noise / math.sqrt(2)
        blocks: list[np.ndarray] = [
            np.where(self._rows == self._columns, sums.noise, beside),
            np.full(self._used, beside / sums.target),
            np.array([sums.noise / sums.target**2, 1.0]),
        ]
        self._deviations = np.concatenate(blocks)
        self._rho = float(
            np.clip(sums.squared_weights / max(sums.products[-1, -1], 1.0), _LEAST_SHARE, 1.0)
        )
        self.ellipses = Ellipses(
            self._deviations, self._start(), self._log_density, chains, generator
        )

    def _start(self) -> np.ndarray:
        """A possible state."""
        products = nearest_possible(self._sums.products, self._sums.noise)
        used, with_target = self._used, self._sums.with_target[: self._used]
        explained = with_target @ np.linalg.solve(products[:used, :used], with_target)
        residual = self._sums.of_target - explained
        least = max(1e-3 * products[-1, -1], 1e-9)  # what residuals leave of c
        noise = (self._sums.products - products)[self._rows, self._columns]
        return np.concatenate([noise, np.zeros(used), [min(residual - least, 0.0), 0.0]])

    def _without(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, float[chains, m, m], h, float[chains, p], and c, float[chains]."""
        width = len(self._rows)
        values = self._sums.products[self._rows, self._columns] - states[:, :width]
        return (
            symmetric(values, len(self._sums.products)),
            self._sums.with_target[: self._used] - states[:, width:-2],
            self._sums.of_target - states[:, -2],
        )

    def _variance(
        self, products: np.ndarray, residual: np.ndarray, number: np.ndarray
    ) -> np.ndarray:
        """s^2. :param residual: c - h' A^-1 h. :param number: that q depends on."""
        freedom = np.maximum(products[:, -1, -1] - self._rho * self._used, 1.0)
        unit = 2 * self._rho / (9 * freedom)
        return residual / (freedom * (1 - unit + number * np.sqrt(unit)) ** 3)

    def _residual(
        self, products: np.ndarray, shifted: np.ndarray, squares: np.ndarray, of_target: np.ndarray
    ) -> np.ndarray:
        """c - h' A^-1 h, of r = h - A m and r' A^-1 r."""
        mean = self._prior.mean
        return (
            of_target
            - squares
            - 2 * shifted @ mean
            - np.einsum("i,nij,j->n", mean, self._block(products), mean)
        )

    def _block(self, products: np.ndarray) -> np.ndarray:
        return products[:, : self._used, : self._used]

    def _log_density(self, states: np.ndarray) -> np.ndarray:
        """Log density with theta integrated out, over the normal one of the states; -inf where they
        are impossible.
        """
        products, with_target, of_target = self._without(states)
        used, (mean, precision) = self._used, self._prior
        shifted = with_target - self._block(products) @ mean
        with np.errstate(invalid="ignore", divide="ignore"):
            first = _factors(products, shifted)
            residual = self._residual(products, shifted, first.squares, of_target)
            variance = self._variance(products, residual, states[:, -1])
        possible = (residual > 0) & (variance > 0)
        densities = np.full(len(states), -np.inf)
        first, residual, variance = (
            _Factors(*(array[possible] for array in first)),
            residual[possible],
            variance[possible],
        )
        scaled_variance = self._rho * variance
        # h ~ Normal(A m, A V A + rho s^2 A), by the matrix inversion lemma
        second = _factors(
            self._block(products[possible]) / scaled_variance[:, None, None] + np.diag(precision),
            shifted[possible],
        )
        determinant = (
            used * np.log(scaled_variance) + first.log_determinant + second.log_determinant
        )
        density = -0.5 * (
            determinant + first.squares / scaled_variance - second.squares / scaled_variance**2
        )
        # a density of c, over that of the number that q depends on
        of_scale = np.interp(np.log(variance) / 2, _LOG_SCALES, self._of_scale)
        densities[possible] = density + of_scale - np.log(residual)
        return np.where(np.isfinite(densities), densities, -np.inf)

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """theta, float[chains, p], which is normal given the state, and s, float[chains]."""
        products, with_target, of_target = self._without(self.ellipses.states)
        mean, precision = self._prior
        shifted = with_target - self._block(products) @ mean
        residual = self._residual(products, shifted, _factors(products, shifted).squares, of_target)
        variance = self._variance(products, residual, self.ellipses.states[:, -1])
        scaled_variance = self._rho * variance
        factor = np.linalg.cholesky(
            self._block(products) / scaled_variance[:, None, None] + np.diag(precision)
        )
        solved = np.linalg.solve(factor, (shifted / scaled_variance[:, None])[..., None])
        white = solved + self._random.standard_normal(solved.shape)
        return mean + np.linalg.solve(np.swapaxes(factor, 1, 2), white)[..., 0], np.sqrt(variance)
