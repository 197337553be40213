"""Steps on a grid, their convolution, and the window of losses that answers are read from.

The rounding errors of a transform are bounded relative to what it transforms. ``pld`` tilts
distributions, so that this is small.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy import fft
from scipy.linalg import blas

from workbench.privacy.allocated_gaussian import AllocatedGaussian
from workbench.privacy.known_loss import KnownLoss
from workbench.privacy.sampled_gaussian import SampledGaussian

__all__ = ["STEP_ERROR", "SUM_ERROR", "Grid", "GridStep", "Step", "Window", "convolved"]

# of a transform of length n, times log2(n), relative to the sum of its entries
_FFT_ERROR = 8 * np.finfo(float).eps
SUM_ERROR = 4 * np.finfo(float).eps  # of sums over a grid, times its length, relative to them
# of one step's probabilities and of their moment, relative to them
STEP_ERROR = 64 * np.finfo(float).eps
_UNDERFLOW = 746.0  # e^-746 is 0 in float64

Step: TypeAlias = SampledGaussian | AllocatedGaussian | KnownLoss


class Grid(NamedTuple):
    """How fine a grid is: at least this many points, and this many per standard deviation of one
    step's (tilted) loss.
    """

    points: int
    per_deviation: float


@dataclass(frozen=True)
class GridStep:
    """One phase on a grid: its probabilities at multiples ``first``, ``first + 1``, ... of
    ``width``.
    """

    first: int
    width: float
    probabilities: np.ndarray
    infinite: float
    count: int
    tilted: np.ndarray

    @classmethod
    def of(cls, step: Step, count: int, width: float, tilt: float) -> GridStep:
        first, probabilities, infinite = step.on_grid(width)
        exponents = tilt * (first + np.arange(len(probabilities))) * width
        weights = probabilities * np.exp(exponents - exponents.max())
        return cls(first, width, probabilities, infinite, count, weights / weights.sum())

    def log_moment(self, tilt: float) -> float:
        """log E[e^(tilt l)] of all repetitions, rounded up."""
        exponents = tilt * (self.first + np.arange(len(self.probabilities))) * self.width
        largest = float(exponents.max())
        moment = math.log(float((self.probabilities * np.exp(exponents - largest)).sum())) + largest
        return self.count * (moment + STEP_ERROR * (1 + abs(largest)))


def convolved(steps: Sequence[GridStep], size: int) -> tuple[np.ndarray, float]:
    """(tilted probabilities of all repetitions of all steps, float[size], indices modulo ``size``;
    the error of each).
    """
    spectrum = np.ones(size // 2 + 1, np.complex128)
    error = float(_FFT_ERROR * math.log2(size))  # of each entry of a transform
    # how much such errors, also of the last transform, move the product, relatively
    sensitivity = np.ones(size // 2 + 1)
    most = np.zeros(size // 2 + 1)  # the logarithm of the largest product that they can make
    for step in steps:
        folded = np.bincount(
            np.arange(len(step.tilted)) % size, weights=step.tilted, minlength=size
        )
        transform = fft.rfft(folded)
        magnitude = np.abs(transform)
        # a complex power is slow, and powers of many steps are mostly smaller than any float64 but
        # 0
        some = magnitude > math.exp(-_UNDERFLOW / step.count)
        spectrum[some] *= transform[some] ** step.count
        spectrum[~some] = 0.0
        most += step.count * np.log(magnitude + error)
        sensitivity += step.count / np.maximum(magnitude, error)
    error = float(np.mean(np.exp(most) * np.minimum(error * sensitivity, 1.0)))
    return fft.irfft(spectrum, size), error


@dataclass(frozen=True)
class Window:
    """Upper bounds of a composed loss distribution around the losses that matter.

    A window has no probabilities below its first loss. There delta is bounded by its convexity in
    e^epsilon alone.

    :param losses: ascending, ``width`` apart.
    :param probabilities: of these losses.
    :param elsewhere: probability of larger and of infinite losses.
    """

    losses: np.ndarray
    width: float
    probabilities: np.ndarray
    elsewhere: float

    @functools.cached_property
    def sums(self) -> tuple[np.ndarray, np.ndarray]:
        """For each loss x, the sums over losses l >= x of p(l) and of p(l) e^(x - l), rounded to
        the safe side.
        """
        backwards = self.probabilities[::-1]
        total = np.cumsum(backwards)[::-1]
        # a[i] = p[i] + e^-width a[i - 1]: a triangular system of two diagonals
        diagonals = np.array([[1.0], [-math.exp(-self.width)]]).repeat(len(backwards), axis=1)
        discounted = blas.dtbsv(1, np.asfortranarray(diagonals), backwards, lower=1, diag=1)[::-1]
        error = SUM_ERROR * (len(backwards) + float(np.abs(self.losses[[0, -1]]).max()))
        return total * (1 + error), discounted * (1 - error)

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta at ``epsilon``."""
        return float(self.deltas(np.array([epsilon]))[0])

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta at many epsilons."""
        total, discounted = self.sums
        index = np.searchsorted(self.losses, epsilons, side="right")
        inside = np.minimum(index, len(self.losses) - 1)
        tail = (
            total[inside]
            - np.exp(np.minimum(epsilons - self.losses[inside], 0.0)) * discounted[inside]
        )
        deltas = np.minimum(1.0, self.elsewhere + np.where(index < len(self.losses), tail, 0.0))
        # as if all mass outside the window had its first loss: a chord of delta, which is 1 at
        # e^epsilon = 0
        first = min(1.0, self.elsewhere + float(total[0] - discounted[0]))
        chord = first - (1 - first) * np.expm1(np.minimum(epsilons - self.losses[0], 0.0))
        return np.where(epsilons < self.losses[0], chord, deltas)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= the first loss with delta(epsilon) <= ``delta``; infinite if
        there is none.
        """
        remaining = delta - self.elsewhere
        total, discounted = self.sums
        if not (remaining >= 0 and np.isfinite(total[0])):
            return math.inf
        # beyond the last loss only `elsewhere` is left
        suffices = np.append((total - discounted)[:-1] <= remaining, True)
        index = int(np.argmax(suffices))
        if index == 0:
            return float(self.losses[0])
        if total[index] <= remaining or discounted[index] == 0:
            return float(self.losses[index - 1])
        exact = float(self.losses[index]) + math.log((total[index] - remaining) / discounted[index])
        return min(max(exact, float(self.losses[index - 1])), float(self.losses[index]))
