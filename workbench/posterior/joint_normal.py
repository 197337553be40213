"""The one-shot release of a table of numbers, and the posterior of its mean and covariance.

For a record x of D columns in [-1, 1] let z = (1, x). The release is the sum of z z' over all
records, with noise: the number of records, and the first and second moments of the columns. Of the
entries that z z' has twice one is kept, times sqrt(2), so a record's statistic has a norm of

    |z|^2 <= 1 + D = C,

and nothing is clipped but values beyond the bounds. Noise and everything else are those of
``statistics``.

The posterior is that of records that are normal with mean m and covariance S, which have the
normal-inverse-Wishart prior

    S ~ InverseWishart(D + 1, diag(s_1^2, ..., s_D^2)),    m given S ~ Normal(0, S / w),

with which all correlations are uniform (Barnard, McCulloch and Meng 2000), and log s_j ~
Normal(log 0.1, 1): of a column that is spread over the bounds or over a hundredth of them.

The sums without noise, A, are unknown. They say n, the mean of the records and their covariance V.
Given these and the s_j, m and S can be integrated out in closed form, or drawn exactly (Gelman et
al. 2013, section 3.6). So Markov chains (``_ellipses``) move n, the mean, V and the s_j alone. V is
written by the logarithms of its deviations and by its canonical partial correlations (Lewandowski,
Kurowicka and Joe 2009), so that all of what moves is possible, however much noise there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.random import Generator
from scipy.special import multigammaln

from workbench.posterior._ellipses import (
    CHAINS,
    Ellipses,
    cholesky,
    draws_of,
    nearest_possible,
)
from workbench.posterior.statistics import model_of_sums, symmetric, triangle

LARGEST = 20  # columns: they have D (D + 3) / 2 unknowns
_FOLLOWED = (60, 100, 150)  # sweeps after which ellipses follow what was seen
_APART = 8  # sweeps between draws
_WIDER = 1.2  # than what was visited are ellipses, because tails are long
_PER_DRAW = 20  # sweeps that count as one independent draw
_LEAST_NOISE = 1e-3  # of the root of n
_SMALLEST = 1e-8  # variance of a column
_FARTHEST = 15.0  # of a state but n; beyond it a hyperbolic tangent is 1

__all__ = [
    "LARGEST",
    "Draws",
    "NormalWishart",
    "draw",
    "model_of",
    "norm_of",
    "prior_draws",
    "statistic",
]


class NormalWishart(NamedTuple):
    """The prior. :param weight: w, in records. :param center: of the s_j, in halves of a column's
    range. :param deviation: of log s_j.
    """

    weight: float = 0.01
    center: float = 0.1
    deviation: float = 1.0


class Draws(NamedTuple):
    """Draws from the posterior.

    :param mean: float[draws, D]. :param covariance: float[draws, D, D]. :param spread: the largest
        R-hat.
    """

    mean: np.ndarray
    covariance: np.ndarray
    spread: float


def norm_of(columns: int) -> float:
    """C: the largest norm of a record's statistic."""
    return 1.0 + columns


def statistic(x: jax.Array) -> Any:
    """The statistics of records, float32[B, (D + 1) (D + 2) / 2]. What is beyond [-1, 1] is cut.

    :param x: [B, D].
    """
    inside = jnp.clip(x.astype(jnp.float32), -1, 1)
    z = jnp.concatenate([jnp.ones_like(inside[:, :1]), inside], axis=1)
    rows, columns, counts = triangle(z.shape[1])
    return counts * z[:, rows] * z[:, columns]


def model_of(columns: int) -> Callable[..., None]:
    """As ``statistics.model_of_sums``, of records x."""
    return model_of_sums((columns + 1) * (columns + 2) // 2, statistic)


def draw(
    released: np.ndarray, noise: float, prior: NormalWishart, count: int, generator: Generator
) -> Draws:
    """``count`` draws, from chains that run until they agree or took too long.

    :param released: the noised sum of statistics. :param noise: standard deviation in each of them.
    """
    chain = _Chain(released, noise, prior, min(CHAINS, count), generator)
    size = chain.columns

    def quantities() -> np.ndarray:
        mean, covariance = chain.draw()
        return np.column_stack([mean, covariance.reshape(len(mean), -1)])

    flat, spread = draws_of(chain.ellipses, quantities, count, burn_in=(), apart=_APART)
    return Draws(flat[:, :size], flat[:, size:].reshape(-1, size, size), spread)


def prior_draws(
    columns: int, prior: NormalWishart, count: int, generator: Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of mean and covariance, as of ``draw``, before there is a release."""
    logs = prior.deviation * generator.standard_normal((count, columns))
    squares = prior.center**2 * np.exp(2 * logs)
    scale = squares[:, :, None] * np.eye(columns)
    freedom, weight = np.full(count, columns + 1.0), np.full(count, prior.weight)
    return _normal_wishart(np.zeros((count, columns)), weight, scale, freedom, generator)


def _normal_wishart(
    middle: np.ndarray,
    weight: np.ndarray,
    scale: np.ndarray,
    freedom: np.ndarray,
    generator: Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """A draw for each; the covariance by Bartlett's decomposition of its inverse.

    :param middle: float[k, D]. :param weight: float[k]. :param scale: float[k, D, D]. :param
        freedom: float[k].
    """
    count, size = middle.shape
    root = np.tril(generator.standard_normal((count, size, size)), -1)
    order = np.arange(size)
    root[:, order, order] = np.sqrt(generator.chisquare(freedom[:, None] - order))
    # the inverse of root root' is a draw for the unit matrix
    half = np.swapaxes(np.linalg.solve(root, np.swapaxes(np.linalg.cholesky(scale), 1, 2)), 1, 2)
    shift = (half @ generator.standard_normal((count, size, 1)))[..., 0]
    return middle + shift / np.sqrt(weight)[:, None], half @ np.swapaxes(half, 1, 2)


def _root_of(states: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """A root of the covariance of states, drawn towards its diagonal as far as there are few.

    :param states: float[m, k]. :param spread: of which no entry has less than a thousandth.
    """
    covariance = np.cov(states.T)
    drawn = states.shape[1] / (states.shape[1] + len(states) / _PER_DRAW)
    variances = np.maximum(np.diagonal(covariance), np.square(1e-3 * spread))
    root: np.ndarray = np.linalg.cholesky((1 - drawn) * covariance + drawn * np.diag(variances))
    return root


class _Table(NamedTuple):
    """What is unknown of the records, for each chain.

    :param size: n, float[chains]. :param mean: float[chains, D]. :param deviations: of the records,
        float[chains, D]. :param partial: canonical partial correlations, float[chains, D (D - 1) /
        2]. :param squares: s_j^2, float[chains, D].
    """

    size: np.ndarray
    mean: np.ndarray
    deviations: np.ndarray
    partial: np.ndarray
    squares: np.ndarray


class _Chain:
    """Chains whose states are n, the mean, log deviations, inverse hyperbolic tangents of partial
    correlations, and log s_j from their middle.
    """

    def __init__(
        self,
        released: np.ndarray,
        noise: float,
        prior: NormalWishart,
        chains: int,
        generator: Generator,
    ) -> None:
        width = (math.isqrt(8 * len(released) + 1) - 1) // 2
        self._triangle, counts = triangle(width)[:2], triangle(width)[2]
        self._released = np.asarray(released, float) / counts
        self.columns, self._prior, self._random = width - 1, prior, generator
        # of correlations: rows and columns below the diagonal, and exponents of 1 - square
        self._below = np.tril_indices(self.columns, -1)
        self._exponents = (self.columns - self._below[1]) / 2
        self._freedom = self.columns + 1.0
        matrix = symmetric(self._released, width)
        # without privacy it is far less than what records differ by
        self._noise = np.maximum(noise, _LEAST_NOISE * math.sqrt(max(matrix[0, 0], 1.0))) / counts
        start, spread = self._start(nearest_possible(matrix, noise), float(self._noise.max()))
        self._center, self._root = start, np.diag(spread)
        self._follow(np.tile(start, (chains, 1)))
        for sweeps in _FOLLOWED:
            visited = []
            for _ in range(sweeps):
                self.ellipses.sweep(1)
                visited.append(self.states)
            self._center = np.concatenate(visited).mean(axis=0)
            self._root = _WIDER * _root_of(np.concatenate(visited), spread)
            self._follow(visited[-1])

    @property
    def states(self) -> np.ndarray:
        """What moves, float[chains, k]: the ellipses' states are uncorrelated."""
        return self._center + self.ellipses.states @ self._root.T

    def _follow(self, states: np.ndarray) -> None:
        """Make ellipses around the centre and as wide as the root says, at these states."""
        start = np.linalg.solve(self._root, (states - self._center).T).T
        free, unit = np.full(states.shape[1], np.inf), np.ones(states.shape[1])
        self.ellipses = Ellipses(
            free,
            start,
            lambda at: self._log_density(self._center + at @ self._root.T),
            len(states),
            self._random,
            unit,
        )

    def _start(self, products: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """A state, and about how far the noise moves each of its entries."""
        size = max(products[0, 0], self.columns + 2.0)
        mean = products[0, 1:] / size
        scatter = products[1:, 1:] / size - np.outer(mean, mean)
        least = max(noise / size, _SMALLEST)  # a deviation below which noise hides all
        values, vectors = np.linalg.eigh(scatter)
        covariance = (vectors * np.maximum(values, 0.3 * least)) @ vectors.T
        deviations = np.sqrt(np.diagonal(covariance))
        factor = np.linalg.cholesky(covariance / np.outer(deviations, deviations))
        partial, remaining = np.zeros_like(factor), np.ones(self.columns)
        for column in range(self.columns):
            partial[:, column] = factor[:, column] / np.sqrt(remaining)
            remaining = np.maximum(remaining - factor[:, column] ** 2, 1e-12)
        correlations = np.clip(partial[self._below], -0.99, 0.99)
        logs = np.clip(np.log(deviations / self._prior.center), -2, 2)
        rows, columns = self._below
        relative = noise / size / np.outer(deviations, deviations)
        spread = np.concatenate(
            [
                [noise],
                np.full(self.columns, noise / size) + deviations / np.sqrt(size),
                np.minimum(np.diagonal(relative), 1.0) + 1 / np.sqrt(size),
                np.minimum(relative[rows, columns], 1.0) + 1 / np.sqrt(size),
                np.full(self.columns, self._prior.deviation),
            ]
        )
        start = [[size], mean, np.log(deviations), np.arctanh(correlations), logs]
        return np.concatenate(start), spread

    def _table(self, states: np.ndarray) -> _Table:
        size = self.columns
        ends = np.cumsum([1, size, size, len(self._below[0])])
        count, mean, logs, hyperbolic, scales = np.split(states, ends, axis=1)
        return _Table(
            count[:, 0],
            mean,
            np.exp(logs),
            np.tanh(hyperbolic),
            self._prior.center**2 * np.exp(2 * scales),
        )

    def _covariance(self, table: _Table) -> np.ndarray:
        """V, float[chains, D, D]."""
        partial = np.zeros((len(table.size), self.columns, self.columns))
        partial[:, self._below[0], self._below[1]] = table.partial
        factor, remaining = np.zeros_like(partial), np.ones(partial.shape[:2])
        for column in range(self.columns):
            after = slice(column + 1, None)
            factor[:, column, column] = np.sqrt(remaining[:, column])
            factor[:, after, column] = partial[:, after, column] * np.sqrt(remaining[:, after])
            remaining[:, after] *= 1 - np.square(partial[:, after, column])
        factor = factor * table.deviations[:, :, None]
        return factor @ np.swapaxes(factor, 1, 2)

    def _scale(self, table: _Table, covariance: np.ndarray) -> np.ndarray:
        """The scale matrix of S given A and the s_j, float[chains, D, D]."""
        size = table.size[:, None, None]
        weight = self._prior.weight * size / (self._prior.weight + size)
        outer = table.mean[:, :, None] * table.mean[:, None, :]
        unit = table.squares[:, :, None] * np.eye(self.columns)
        return unit + size * covariance + weight * outer

    def _log_density(self, states: np.ndarray) -> np.ndarray:
        """Log density of the states given the release, with m and S integrated out; -inf where
        there are too few records.
        """
        densities = np.full(len(states), -np.inf)
        possible = states[:, 0] > self.columns + 1
        possible &= np.abs(states[:, 1:]).max(axis=1) < _FARTHEST
        if not possible.any():
            return densities
        table, columns = self._table(states[possible]), self.columns
        covariance, size = self._covariance(table), table.size
        of_partial = np.log1p(-np.square(table.partial))
        of_deviations = np.log(table.deviations).sum(axis=1)
        of_scatter = columns * np.log(size) + 2 * of_deviations + of_partial.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            factor = cholesky(self._scale(table, covariance))
            of_scale = 2 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        freedom = self._freedom + size
        density = (
            self._freedom / 2 * np.log(table.squares).sum(axis=1)
            + columns / 2 * (np.log(size) - np.log(size + self._prior.weight))
            + (size - columns - 2) / 2 * of_scatter
            - freedom / 2 * of_scale
            + multigammaln(freedom / 2, columns)
            - multigammaln((size - 1) / 2, columns)
        )
        # from the mean and n V to what moves
        density += columns * (columns + 1) / 2 * np.log(size) + (columns + 1) * of_deviations
        density += of_partial @ self._exponents
        products = np.empty((len(size), columns + 1, columns + 1))
        products[:, 0, 0] = 1.0
        products[:, 0, 1:] = table.mean
        products[:, 1:, 1:] = covariance + table.mean[:, :, None] * table.mean[:, None, :]
        rows, columns_of_rows = self._triangle
        expected = size[:, None] * products[:, rows, columns_of_rows]
        density -= 0.5 * np.square((self._released - expected) / self._noise).sum(axis=1)
        scales = states[possible, -columns:] / self._prior.deviation
        density -= 0.5 * np.square(scales).sum(axis=1)
        densities[possible] = np.where(np.isfinite(density), density, -np.inf)
        return densities

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance given the states, float[chains, D] and float[chains, D, D]."""
        table = self._table(self.states)
        weight = self._prior.weight + table.size
        scale = self._scale(table, self._covariance(table))
        middle = table.mean * (table.size / weight)[:, None]
        return _normal_wishart(middle, weight, scale, self._freedom + table.size, self._random)
