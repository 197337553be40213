"""Markov chains of elliptical slices, for unknowns that are normal before something is seen.

Slices (Murray, Adams and MacKay 2010) move everything at once. They come from a normal distribution
that follows what was seen in the burn-in (Nishihara, Murray and Adams 2014). Chains step together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.random import Generator
from scipy.linalg.lapack import dpotrf

__all__ = ["CHAINS", "SETTLED", "Ellipses", "cholesky", "draws_of", "nearest_possible", "r_hat"]

CHAINS = 25
# sweeps before the first draw that is kept, and from one to the next
_BURN_IN, _APART = ((60, 100, 150), 3)
# R-hat (Gelman and Rubin 1992) up to which chains are taken to agree; else all is run longer,
SETTLED = 1.1
_LONGER, _RUNS = 3, 3  # times as long; runs at most
_MOST_PROPOSALS = 60  # then an ellipse has shrunk to a point


def draws_of(
    chains: Ellipses,
    quantities: Callable[[], np.ndarray],
    count: int,
    burn_in: Sequence[int] = _BURN_IN,
    apart: int = _APART,
) -> tuple[np.ndarray, float]:
    """``count`` draws of quantities, float[count, k], and their largest R-hat, from chains that run
    until they agree or took too long.

    :param quantities: draws them given the states, float[chains, k].
    :param burn_in: sweeps after which the chains adapt. :param apart: sweeps between draws.
    """
    for sweeps in burn_in:
        chains.adapt(sweeps)
    length, per_chain = 1, math.ceil(count / len(chains.states))
    for _ in range(_RUNS):
        draws = []
        for _ in range(per_chain):
            chains.sweep(apart * length)
            draws.append(quantities())
        stacked = np.stack(draws)
        spread = r_hat(stacked)
        if spread <= SETTLED:
            break
        length *= _LONGER
    return stacked.reshape(-1, stacked.shape[2])[:count], spread


def r_hat(draws: np.ndarray) -> float:
    """The largest of all quantities. :param draws: float[draws, chains, quantities]."""
    length, chains, _ = draws.shape
    if length < 2 or chains < 2:
        return 1.0
    within = draws.var(axis=0, ddof=1).mean(axis=0)
    between = draws.mean(axis=0).var(axis=0, ddof=1)
    return float(np.sqrt(np.max((length - 1) / length + between / within)))


class Ellipses:
    """Chains whose states are normal around 0 before anything is seen.

    :ivar states: float[chains, k].
    :param deviations: of the states, float[k]; infinite where the density says all.
    :param start: possible states, float[k] or float[chains, k].
    :param log_density: of states, float[chains], over the normal one; -inf where impossible.
    :param spread: of the normal distribution from which slices come at first, float[k]; by default
        the deviations.
    """

    def __init__(
        self,
        deviations: np.ndarray,
        start: np.ndarray,
        log_density: Callable[[np.ndarray], np.ndarray],
        chains: int,
        generator: Generator,
        spread: np.ndarray | None = None,
    ) -> None:
        self._deviations, self._log_density, self._random = deviations, log_density, generator
        self._least = deviations if spread is None else spread
        self.states = np.broadcast_to(start, (chains, len(deviations)))
        self._center, self._spread = np.zeros_like(deviations), self._least
        self._densities = self._log_weight(self.states)

    def adapt(self, count: int) -> None:
        """Take ``count`` slices, and centre all later ones on what they saw, as wide as it was."""
        states = []
        for _ in range(count):
            self.sweep(1)
            states.append(self.states)
        flat = np.concatenate(states)
        self._center, self._spread = (
            flat.mean(axis=0),
            np.maximum(flat.std(axis=0), 1e-3 * self._least),
        )
        self._densities = self._log_weight(self.states)

    def _log_weight(self, states: np.ndarray) -> np.ndarray:
        """Log density over that of the normal distribution from which slices are made."""
        with np.errstate(invalid="ignore", divide="ignore"):
            standard = np.where(self._deviations > 0, states / self._deviations, 0.0)
            made = np.where(self._spread > 0, (states - self._center) / self._spread, 0.0)
        return self._log_density(states) + 0.5 * (np.square(made) - np.square(standard)).sum(axis=1)

    def sweep(self, count: int) -> None:
        """Take ``count`` elliptical slices."""
        random, chains = self._random, len(self.states)
        for _ in range(count):
            moved, densities = self.states.copy(), self._densities.copy()
            start = self.states - self._center
            direction = random.standard_normal(moved.shape) * self._spread
            least = self._densities + np.log(random.random(chains))
            angle = random.random(chains) * 2 * np.pi
            low, high, active = angle - 2 * np.pi, angle.copy(), np.arange(chains)
            for _ in range(_MOST_PROPOSALS):
                turned = (
                    start[active] * np.cos(angle[active])[:, None]
                    + direction[active] * np.sin(angle[active])[:, None]
                )
                proposed = self._center + turned
                density = self._log_weight(proposed)
                taken = density >= least[active]
                moved[active[taken]], densities[active[taken]] = proposed[taken], density[taken]
                active = active[~taken]
                if not len(active):
                    break
                below = angle[active] < 0
                low[active] = np.where(below, angle[active], low[active])
                high[active] = np.where(below, high[active], angle[active])
                angle[active] = low[active] + (high[active] - low[active]) * random.random(
                    len(active)
                )
            self.states, self._densities = moved, densities


def cholesky(matrices: np.ndarray) -> np.ndarray:
    """Lower factors, NaN for a matrix that is not positive definite."""
    try:
        return np.linalg.cholesky(matrices)
    except np.linalg.LinAlgError:
        factors = np.empty_like(matrices)
        for index, matrix in enumerate(matrices):
            factor, failed = dpotrf(matrix, lower=1, clean=1)
            factors[index] = np.nan if failed else factor
        return factors


def nearest_possible(products: np.ndarray, noise: float) -> np.ndarray:
    """The nearest sums that could be without noise."""
    values, vectors = np.linalg.eigh(products)
    least = max(0.05 * noise, 1e-9 * abs(values).max(), 1e-9)
    return (vectors * np.maximum(values, least)) @ vectors.T
