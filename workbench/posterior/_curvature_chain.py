"""Draws of the curvature H of the log-likelihood, from the slopes that a run's released gradients
show.

What is known of H, a definite matrix, float[d, d]:

- The regression of gradients on points: if P are the sums of squares of the centred points, X those
  of points times gradients, and r the variance of a gradient's noise, H has the log-likelihood
  -tr(H P H + 2 H X) / (2 r).
- The prior: H = A K A' and K = S (W + v v') S, where W is Wishart with mean 1 and nu degrees of
  freedom, v is normal, and S is diagonal. v is what all columns have in common, such as the size of
  a person. nu decides between columns that are independent otherwise and ones of which little more
  than a few combinations are seen. log S^2 is normal around a common level plus what is expected of
  each entry (``expected_curvature``, which has A). nu, the scale of v, the level, and the spread
  around it are unknown.

The mean of the gradients is left out on purpose. The run itself sought a point where it is nearly
zero, so how small it is there says nothing about H.

Hamiltonian Monte Carlo moves log S, v, and the Cholesky factor of W, with its diagonal as
logarithms. The others are drawn in between, on a grid; nu also moves together with the factor,
because each leaves the other little room. Many short chains move together.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from scipy.special import digamma, multigammaln, polygamma

from workbench.posterior.expected_curvature import ExpectedCurvature, nothing_known
from workbench.posterior.joint_prior import NoNoiseAwarePosterior

__all__ = ["CHAINS", "CURVATURES", "MANY", "curvatures"]

CHAINS = 16
# transitions before any is kept, between two that are kept of a chain, and how many are
_ADAPTED, _APART, _KEPT = (60, 2, 32)
CURVATURES = CHAINS * _KEPT
_ROUNDS = 12  # of these, until the chains settle
_LEAPS = 16  # of a transition
# share of proposals that tuning aims to accept, and below which chains hardly move
_ACCEPTED, _FEWEST_ACCEPTED = (0.7, 0.3)
_STAYS = 0.1  # by what share of their 90 % range medians may differ between two rounds
_FARTHEST = 12.0  # of logarithms from where they begin
_BEYOND = np.array([0.3, 1, 2, 4, 8, 16, 32, 64, 128])  # nu less d - 1
MANY = 40  # quantities; points of more are not moved (``noise_aware.dither``)
# Where d is more than that, nu of columns that are independent otherwise is several d. Points whose
# median axis shows less than this, in units of the prior, do not tell such columns from correlated
# ones, of which intervals would be a third as wide as they must be: nu is then at most the second.
_BEYOND_MANY = np.append(_BEYOND, [256, 512, 1024])
_SHOWN, _UNSHOWN_BEYOND = 1.5, 32
# The prior of nu falls with this power of 1 + _BEYOND, or intervals of columns alike would be too
# narrow. What is known of a design takes its columns to be independent of each other. With the
# other power, effects of a category that another decides in .95 of the records were held in .50
# instead of .62.
_TOWARDS_FEW, _OF_DESIGN = 0.5, 2.0
_MEASURED_BEYOND = 8  # at least, where products of the design's columns were measured
_COMMON = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0])  # scale of v
_SPREADS, _SPREAD_SD = np.array([0.2, 0.3, 0.45, 0.6, 0.8, 1.1]), 0.5
# logarithm of the level over the one that is guessed
_LEVELS, _LEVEL_SD = (np.linspace(-2.0, 2.0, 49), 0.5)


def curvatures(
    points: np.ndarray,
    products: np.ndarray,
    noise: float,
    level: float,
    precision: np.ndarray,
    generator: Generator,
    expected: ExpectedCurvature | None = None,
) -> np.ndarray:
    """Draws of H, float[512, d, d].

    :param points: P, float[d, d]. :param products: X, float[d, d]. :param noise: r.
    :param level: a guess of the mean of the diagonal of H. :param precision: of the prior of what H
        is the curvature for, float[d]; where H is much smaller, its value does not matter.
    :param expected: what is known of H beforehand; by default nothing.
    :raises NoNoiseAwarePosterior: if the chains do not settle.
    """
    chains = _Chains(
        points * (level**2 / noise),
        (products + products.T) * (level / (2 * noise)),
        expected or nothing_known(len(points)),
        generator,
    )
    before = None
    for _ in range(_ROUNDS):
        chains.adapt()
        draws, accepted = chains.some()
        curvature = chains.mixed(draws)
        sizes = _sizes(curvature, precision / level, chains.misfit(draws))
        if before is not None and accepted >= _FEWEST_ACCEPTED and _settled(before, sizes):
            return level * curvature
        before = sizes
    raise NoNoiseAwarePosterior("the Markov chains for it did not settle")


def _sizes(curvature: np.ndarray, precision: np.ndarray, misfit: np.ndarray) -> np.ndarray:
    """log trace, log determinant with the prior, and misfit of curvatures, float[3, s]."""
    determinant = np.linalg.slogdet(curvature + np.diag(precision))[1]
    return np.stack([np.log(np.einsum("sii->s", curvature)), determinant, misfit])


def _settled(before: np.ndarray, after: np.ndarray) -> bool:
    """Whether medians of ``_sizes`` stay from one round to the next, within what chance moves.

    Within a round, a slow drift would pass for chance: at d = 20, widths were then 6 to 10 % too
    small.
    """
    low, middle, high = np.quantile(after, [0.05, 0.5, 0.95], axis=1)
    return bool(np.all(np.abs(np.median(before, axis=1) - middle) <= _STAYS * (high - low)))


def _drawn(logits: np.ndarray, generator: Generator) -> np.ndarray:
    """Places on the last axis, drawn with these unnormalised log probabilities."""
    below = np.cumsum(np.exp(logits - logits.max(axis=-1, keepdims=True)), axis=-1)
    return np.sum(below < below[..., -1:] * generator.random((*logits.shape[:-1], 1)), axis=-1)


class _Chains:
    """Where all chains are: z = (entries of the factor of W, v, log S), float[chains, d (d + 1) / 2
    + 2 d].

    Units are such that the guessed level is 1. Gradients have single precision and densities
    double: how exact a gradient is decides how many proposals are accepted, and not what the
    chains' distribution is.

    :param points: P / r. :param products: the symmetric part of X / r. :param expected: as of
        ``curvatures``.
    """

    def __init__(
        self,
        points: np.ndarray,
        products: np.ndarray,
        expected: ExpectedCurvature,
        generator: Generator,
    ) -> None:
        self._generator = generator
        self._mixing = expected.mixing
        self._is_mixed = np.count_nonzero(self._mixing) > len(points)  # not by the diagonal alone
        # of log S^2
        self._offsets = expected.logarithms
        self._variances = np.square(expected.errors)
        self._size = size = len(points)
        rows, columns = np.tril_indices(size)
        # in [W's, v]
        self._places = np.concatenate(
            [rows * (size + 1) + columns, np.arange(size) * (size + 1) + size]
        )
        is_log = np.concatenate([rows == columns, np.zeros(size, bool), np.ones(size, bool)])
        self._logs, self._farthest = np.flatnonzero(is_log), np.where(is_log, _FARTHEST, 1e3)
        spread, axes = np.linalg.eigh(points)
        beyond = _BEYOND if size <= MANY else _BEYOND_MANY
        if expected.is_measured:
            beyond = beyond[beyond >= _MEASURED_BEYOND]
        if size > MANY and np.median(spread) < _SHOWN:
            beyond = beyond[beyond <= _UNSHOWN_BEYOND]
        self._all_degrees = degrees = size - 1 + beyond
        halves = (
            degrees[:, None] - np.arange(size)
        ) / 2  # a diagonal entry of the factor is chi over the root of nu
        self._of_logs = np.stack(
            [
                (digamma(halves) - np.log(degrees / 2)[:, None]) / 2,
                np.sqrt(polygamma(1, halves)) / 2,
            ]
        )
        self._below = np.flatnonzero(~is_log[: len(rows)])
        self._constant = degrees * size / 2 * np.log(degrees / 2) - [
            multigammaln(nu / 2, size) for nu in degrees
        ]
        self._constant -= (_OF_DESIGN if self._is_mixed else _TOWARDS_FEW) * np.log1p(beyond)
        # begin at a ridge regression, and take steps of about its errors; in these axes, each entry
        # of H has its own equation
        slopes = axes.T @ (self.mixed(np.diag(np.exp(self._offsets))) - products) @ axes
        slopes /= 1 + (spread[:, None] + spread) / 2
        unmixed = np.linalg.solve(self._mixing, axes)
        slopes = unmixed @ slopes @ unmixed.T
        # of K, as P and X are those of H
        of_h = points, products, np.eye(size)
        points, products, metric = (self._mixing.T @ array @ self._mixing for array in of_h)
        self._of = {
            kind: (points.astype(kind), products.astype(kind), metric.astype(kind))
            for kind in (np.dtype(float), np.dtype(np.float32))
        }
        # errors of entries
        of_points, of_metric = np.diag(points), np.diag(metric)
        squares = of_points[rows] * of_metric[columns] + of_points[columns] * of_metric[rows]
        ridge_errors = 1 / np.sqrt(size + squares / 2)
        roots = np.sqrt(np.maximum(np.diag(slopes), ridge_errors[rows == columns]))
        values, vectors = np.linalg.eigh(slopes / roots[:, None] / roots)
        # what is not seen begins well below its error: from there the chains need fewer rounds than
        # from above
        values = np.maximum(
            values, 0.1 * np.clip(np.median(ridge_errors / roots[rows] / roots[columns]), 1e-4, 0.1)
        )
        common = vectors[:, -1] * np.sqrt(0.8 * max(values[-1] - np.median(values), 0.0))
        first = (vectors * values) @ vectors.T - np.outer(common, common)
        deviations = np.sqrt(np.diag(first))
        factor, roots, common = (
            np.linalg.cholesky(first / deviations[:, None] / deviations),
            roots * deviations,
            common / deviations,
        )
        errors = np.minimum(
            ridge_errors / (roots[rows] * roots[columns] * np.diag(factor)[columns]),
            1 / np.sqrt(2 * size),
        )
        diagonal = errors[rows == columns]
        start = np.where(
            rows == columns, np.log(np.abs(factor[rows, columns]) + 1e-300), factor[rows, columns]
        )
        start = np.concatenate([start, common, np.log(roots)])
        self._scale = np.concatenate([errors, diagonal, np.minimum(diagonal, 0.3)])
        self._middle = np.where(is_log, start, 0.0)
        self._z = start + self._scale * generator.normal(size=(CHAINS, len(start)))
        self._length, self._moved = 0.2, np.zeros(CHAINS, bool)
        self._choose()

    def _split(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z with logarithms undone; factors of W with v as a last column, float[chains, d, d + 1];
        S, float[chains, d]).
        """
        size = self._size
        entries = z.copy()
        entries[:, self._logs] = np.exp(z[:, self._logs])
        factor = np.zeros((len(z), size * (size + 1)), z.dtype)
        factor[:, self._places] = entries[:, :-size]
        return entries, factor.reshape(len(z), size, size + 1), entries[:, -size:]

    def mixed(self, unmixed: np.ndarray) -> np.ndarray:
        """H of K, float[..., d, d]."""
        return self._mixing @ unmixed @ self._mixing.T

    def misfit(self, unmixed: np.ndarray) -> np.ndarray:
        """Less the log-likelihoods of K, float[chains]."""
        image, products = self._image(unmixed)
        return np.einsum("sij,sij->s", unmixed, 0.5 * image + products)

    def _image(self, unmixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(A'A K A'P A, A'X A), in the precision of K."""
        points, products, metric = self._of[unmixed.dtype]
        image = (unmixed.reshape(-1, self._size) @ points).reshape(unmixed.shape)
        return metric @ image if self._is_mixed else image, products

    def unmixed(self) -> np.ndarray:
        """K of each chain, float[chains, d, d]."""
        _, factor, scale = self._split(self._z)
        scaled = scale[:, :, None] * factor
        return scaled @ np.swapaxes(scaled, 1, 2)

    @property
    def _degrees(self) -> np.ndarray:
        return self._all_degrees[self._nu]

    def _choose(self) -> None:
        """Draw nu (its place), the scale of v, and mean and standard deviation of log S, given the
        rest.
        """
        size, generator = self._size, self._generator
        entries, _, _ = self._split(self._z)
        of_w, of_v = (
            np.square(entries[:, : -2 * size]).sum(1),
            np.square(entries[:, -2 * size : -size]).sum(1),
        )
        log_roots = self._z[:, self._logs[:size]].sum(1)
        degrees = self._all_degrees
        logits = (
            (degrees - size - 1) * log_roots[:, None] - degrees / 2 * of_w[:, None] + self._constant
        )
        self._nu = _drawn(logits, generator)
        logits = (
            -0.5 * of_v[:, None] / _COMMON**2 - size * np.log(_COMMON) - 2 * np.log1p(_COMMON**2)
        )
        self._common = _COMMON[_drawn(logits, generator)]
        spreads, levels = (grid.ravel() for grid in np.meshgrid(_SPREADS, _LEVELS, indexing="ij"))
        logs = 2 * self._z[:, -size:] - self._offsets
        means = levels - 0.5 * spreads**2
        precisions = 1 / (spreads[:, None] ** 2 + self._variances)
        distances = np.square(logs) @ precisions.T - 2 * (logs @ precisions.T) * means
        logits = np.log(precisions).sum(1) - distances - precisions.sum(1) * means**2
        logits = 0.5 * (logits - (spreads / _SPREAD_SD) ** 2 - (levels / _LEVEL_SD) ** 2)
        pairs = _drawn(logits, generator)
        self._means, self._spreads = means[pairs, None] / 2, precisions[pairs] ** -0.5 / 2
        self._scale_factor()

    def _scale_factor(self) -> None:
        """Propose another nu, and a factor of W that is as likely under it as the present one is
        under the present nu.
        """
        size, generator, current = self._size, self._generator, self._nu
        proposed = current + generator.choice([-1, 1], len(current))
        inside = (proposed >= 0) & (proposed < len(self._all_degrees))
        proposed = np.where(inside, proposed, current)
        z, before = self._z.copy(), self._density(self._z) + self._constant[current]
        (mean, spread), (new_mean, new_spread) = (
            self._of_logs[:, index] for index in (current, proposed)
        )
        diagonal, entries = self._logs[:size], self._below
        z[:, diagonal] = new_mean + (z[:, diagonal] - mean) * new_spread / spread
        ratio = np.sqrt(self._all_degrees[current] / self._all_degrees[proposed])
        z[:, entries] *= ratio[:, None]
        inside &= self._is_inside(z)
        self._nu = proposed
        gain = self._density(z) + self._constant[proposed] - before
        gain += np.log(new_spread / spread).sum(1) + len(entries) * np.log(ratio)
        goes = inside & (np.log(generator.random(len(z))) < gain)
        self._z, self._nu = np.where(goes[:, None], z, self._z), np.where(goes, proposed, current)

    def _shrunk(self, entries: np.ndarray) -> np.ndarray:
        """The gradient of half of what the prior says of W and v, like ``entries`` without S."""
        size = self._size
        of_w, of_v = entries[:, : -2 * size], entries[:, -2 * size : -size]
        return np.concatenate(
            [self._degrees[:, None] * of_w, self._common[:, None] ** -2 * of_v], axis=1
        )

    def _from_means(self, z: np.ndarray) -> np.ndarray:
        """log S less its means, float[chains, d]."""
        return z[:, -self._size :] - self._means - self._offsets / 2

    def _density(self, z: np.ndarray) -> np.ndarray:
        """Log density at z, float[chains]."""
        (entries, factor, scale), size = self._split(z), self._size
        scaled = scale[:, :, None] * factor
        powers = self._degrees[:, None] - np.arange(size)
        offset = self._from_means(z) / self._spreads
        density = (powers * z[:, self._logs[:size]]).sum(1) - 0.5 * np.square(offset).sum(1)
        density -= 0.5 * np.einsum("sk,sk->s", self._shrunk(entries), entries[:, :-size])
        return density - self.misfit(scaled @ np.swapaxes(scaled, 1, 2))

    def _gradient(self, z: np.ndarray, precision: type = np.float32) -> np.ndarray:
        """Of ``_density``, like z."""
        (entries, factor, scale), size = self._split(z.astype(precision)), self._size
        scaled = scale[:, :, None] * factor
        curvature = scaled @ np.ascontiguousarray(np.swapaxes(scaled, 1, 2))
        image, products = self._image(curvature)
        slope = -0.5 * (image + np.swapaxes(image, 1, 2)) - products  # with respect to K
        of_factor = (2 * scale[:, :, None] * (slope @ scaled)).reshape(len(z), -1)[:, self._places]
        offset = self._from_means(z) / self._spreads**2
        of_scale = 2 * np.einsum("sij,sij->si", slope, curvature) - offset
        gradient = np.concatenate([of_factor - self._shrunk(entries), of_scale], axis=1)
        diagonal = self._logs[:size]
        gradient[:, diagonal] = (
            gradient[:, diagonal] * entries[:, diagonal] + self._degrees[:, None] - np.arange(size)
        )
        return gradient

    def _is_inside(self, z: np.ndarray) -> np.ndarray:
        return np.all(np.abs(z - self._middle) < self._farthest, axis=1)

    def _move(self) -> float:
        """All chains by one proposal each, and the others' draws. :return: the share that was
        accepted.
        """
        generator, shape = self._generator, self._z.shape
        steps = self._length * (0.1 + 1.3 * generator.random((len(self._z), 1))) * self._scale
        speed, z = generator.normal(size=shape), self._z
        before = self._density(z) - 0.5 * np.square(speed).sum(1)
        with np.errstate(over="ignore", invalid="ignore"):
            speed += 0.5 * steps * self._gradient(z)
            for leap in range(_LEAPS):
                z = z + steps * speed
                speed += (0.5 if leap == _LEAPS - 1 else 1.0) * steps * self._gradient(z)
            gain = (
                np.where(self._is_inside(z), self._density(z), -np.inf)
                - 0.5 * np.square(speed).sum(1)
                - before
            )
        accepted = np.where(np.isnan(gain), 0.0, np.exp(np.minimum(gain, 0.0)))
        goes = generator.random(len(z)) < accepted
        self._z, self._moved = np.where(goes[:, None], z, self._z), self._moved | goes
        self._choose()
        return float(accepted.mean())

    def adapt(self) -> None:
        """Move all chains, and tune lengths of steps to what they find. One that is stuck goes on
        from where another is.
        """
        for number in range(_ADAPTED):
            self._length *= np.exp(
                (self._move() - _ACCEPTED) * (0.5 if number < _ADAPTED / 2 else 0.2)
            )
            if number in (_ADAPTED // 3, 2 * _ADAPTED // 3):
                spread = self._z.std(axis=0)
                scale = np.sqrt(spread * self._scale) if number == _ADAPTED // 3 else spread
                self._length *= np.median(self._scale / scale)
                self._scale = scale
            if number % (_ADAPTED // 3) == _ADAPTED // 3 - 1 and self._moved.any():
                replacements = self._generator.choice(np.flatnonzero(self._moved), len(self._z))
                self._z = self._z[np.where(self._moved, np.arange(len(self._z)), replacements)]
                self._moved = np.zeros(len(self._z), bool)
                self._choose()

    def some(self) -> tuple[np.ndarray, float]:
        """(draws of K of all chains, float[512, d, d]; the share of proposals that
        was accepted).
        """
        draws, accepted = [], []
        for _ in range(_KEPT):
            accepted += [self._move() for _ in range(_APART)]
            draws.append(self.unmixed())
        return np.concatenate(draws), float(np.mean(accepted))
