"""The Gaussian mechanism in closed form: N(mu, 1) against N(0, 1), where mu is sensitivity / noise
standard deviation.

A composition of Gaussian mechanisms is one Gaussian mechanism, with mu^2 the sum of theirs (Dong,
Roth and Su 2022, Corollary 3.3). So shuffled epochs and steps without sampling need no
discretisation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

__all__ = ["GaussianLoss"]

# relative: covers the rounding of log_ndtr and of the subtraction, as tests with 60 digits show; of
# small mu the two terms are nearly equal
_SLACK = 1e-9
_NEARLY_EQUAL = 1e-11
_SMALL = 1e-4  # mu up to which the difference is a series


@dataclass(frozen=True)
class GaussianLoss:
    """The privacy loss of N(mu, 1) against N(0, 1); answers are rounded to the safe side.

    :param mu: >= 0; 0 means that nothing was released.
    """

    mu: float

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at ``epsilon`` >= 0 (Balle and Wang 2018, Theorem 8)."""
        return float(self.profile()(np.asarray(epsilon)))

    def profile(self, near: float = 0.0) -> Callable[[np.ndarray], np.ndarray]:
        """``delta`` as a function of many epsilons, float[n]; equally accurate everywhere."""
        if self.mu == 0:
            return np.zeros_like
        slack = _SLACK + (_NEARLY_EQUAL / self.mu if self.mu > _SMALL else 0.0)
        return lambda epsilons: np.minimum(1.0, np.exp(self._log_deltas(epsilons)) * (1 + slack))

    def _log_deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """log(Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)), both terms and their
        ratio in logarithms.
        """
        middle, half = -epsilons / self.mu, self.mu / 2
        if self.mu > _SMALL:
            first = log_ndtr(middle + half)
            # e^-1000: without the second term, which rounding could make the larger one
            is_tail = middle + half < -45
            ratios = epsilons + log_ndtr(middle - half) - np.where(is_tail, 0.0, first)
            return np.asarray(first + np.log(-np.expm1(np.where(is_tail, -np.inf, ratios))))
        # e^-1000: the first of the two terms below alone, from above
        is_tail = middle < -45
        tail = math.log(self.mu) - (middle + half) ** 2 / 2
        middle, epsilons = (np.where(is_tail, 0.0, values) for values in (middle, epsilons))
        # Phi(m + mu/2) - Phi(m - mu/2) by Taylor, less (e^epsilon - 1) Phi(m - mu/2), both in units
        # of phi(m)
        log_densities = -(middle**2) / 2 - math.log(math.sqrt(2 * math.pi))
        between = self.mu * (1 + self.mu**2 * (middle**2 - 1) / 24)
        second = np.exp(log_ndtr(middle - half) - log_densities)
        close = log_densities + np.log(between - np.expm1(epsilons) * second)
        return np.where(is_tail, tail, close)

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta`` in (0, 1): bisection, the upper end."""
        if self.mu == 0 or self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, self.mu * (self.mu / 2 + math.sqrt(-2 * math.log(delta))) + 1e-300
        while self.delta(high) > delta:
            low, high = high, 2 * high
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high
