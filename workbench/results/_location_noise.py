"""How far privacy noise has moved a posterior's location, estimated from public settings and the released spread alone.

A guide's location x of posterior standard deviation s is pulled to its optimum with curvature about 1 / s^2, while each step
adds noise of standard deviation n = sigma C / q to the gradient. Adam divides by the root of the gradient's mean square,
which n dominates, so x follows dx = -(a / (n s^2)) x + a w with learning rate a and white noise w: an Ornstein-Uhlenbeck
process. Its variance after T steps, or that of its mean over the second half of the run, is the estimate. It knows nothing
of clipping bias, of minibatch noise, or of the data.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

__all__ = ["coverage", "location_noise"]

_SMALL = 1e-3  # of k times steps: below it x is a random walk, and the formula would lose its digits


def location_noise(
    spread: np.ndarray, *, step_noise: float, learning_rate: float, iterations: int, averaged: bool
) -> np.ndarray:
    """Standard deviation of a location's privacy noise, in the units of ``spread``.

    :param spread: posterior standard deviations s > 0. :param step_noise: n = sigma C / q.
    :param learning_rate: of Adam. :param iterations: T. :param averaged: whether the second half's iterates are averaged.
    """
    spread = np.asarray(spread, float)
    pull = learning_rate / (step_noise * np.square(spread))  # k: a step takes the location this share of the way
    if not averaged:
        return learning_rate * np.sqrt(-np.expm1(-2 * pull * iterations) / (2 * pull))
    half = iterations / 2
    window = np.maximum(pull * half, _SMALL)  # k times the steps that are averaged
    gone = -np.expm1(-window)
    share = 2 / window * (1 - gone / window) - np.square(np.exp(-window) * gone / window)  # of the stationary variance
    settled = share / (2 * window)
    return learning_rate * np.sqrt(half * np.where(pull * half > _SMALL, settled, 4 / 3))


def coverage(ratio: float, nominal: float) -> float:
    """How often an interval holds the truth if its centre is off by ``ratio`` posterior standard deviations of noise.

    :param nominal: probability in (0, 1) that the interval was made for.
    """
    half_width = ndtri(0.5 + nominal / 2)
    return float(2 * ndtr(half_width / math.hypot(1, ratio)) - 1)
