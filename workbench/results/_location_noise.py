"""Estimate of how far privacy noise moves a posterior's location, from public settings and the
released spread.

A guide's location x with posterior standard deviation s is pulled to its optimum with curvature
about 1 / s^2, while each step adds noise of standard deviation n = sigma C / q to the gradient.
Adam divides by the root of the gradient's mean square, which n dominates. So x follows dx = -(a /
(n s^2)) x + a w with learning rate a and white noise w: an Ornstein-Uhlenbeck process. The estimate
is the variance of x after T steps, or of its mean over the second half of the run. It ignores
clipping bias, minibatch noise and the data.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from workbench.results.fit_result import FitResult

__all__ = ["coverage", "location_noise", "noise_sd", "step_noise", "warning"]

_NOTABLE = (
    0.5  # posterior standard deviations of privacy noise from which intervals come with a warning
)
_SMALL = 1e-3  # k times steps; below it x is a random walk, and the formula loses its digits


def location_noise(
    spread: np.ndarray, *, step_noise: float, learning_rate: float, iterations: int, averaged: bool
) -> np.ndarray:
    """Standard deviation of a location's privacy noise, in the units of ``spread``.

    :param spread: posterior standard deviations s > 0. :param step_noise: n = sigma C / q.
    :param learning_rate: of Adam. :param iterations: T. :param averaged: whether the second half's
        iterates are averaged.
    """
    spread = np.asarray(spread, float)
    # k: the share of the way to the optimum that a step covers
    pull = learning_rate / (step_noise * np.square(spread))
    if not averaged:
        return learning_rate * np.sqrt(-np.expm1(-2 * pull * iterations) / (2 * pull))
    half = iterations / 2
    window = np.maximum(pull * half, _SMALL)  # k times the number of averaged steps
    decay = -np.expm1(-window)
    # of the stationary variance
    fraction = 2 / window * (1 - decay / window) - np.square(np.exp(-window) * decay / window)
    return learning_rate * np.sqrt(
        half * np.where(pull * half > _SMALL, fraction / (2 * window), 4 / 3)
    )


def coverage(ratio: float, nominal: float) -> float:
    """How often an interval contains the truth when noise moves its centre by ``ratio`` posterior
    standard deviations.

    :param nominal: how often it does without noise, in (0, 1).
    """
    half_width = ndtri(0.5 + nominal / 2)
    return float(2 * ndtr(half_width / math.hypot(1, ratio)) - 1)


def step_noise(result: FitResult) -> float | None:
    """Standard deviation of one step's noise on the summed gradient; None if the optimiser is not
    the built-in one.
    """
    settings, guarantee = result.settings, result.guarantee
    is_known = settings.get("learning_rate") is not None and guarantee.is_private
    if not is_known or settings.get("estimator") != "aligned":
        return None
    # it may have been adapted
    clip = settings["clip"] if result.gradient_norms is None else result.gradient_norms.clip
    return guarantee.noise_multiplier * clip / settings["sampling_rate"]


def noise_sd(result: FitResult, quantity: str, spread: float) -> float:
    """Standard deviation of the privacy noise of one quantity of a result's summary; NaN where
    there is no estimate.

    :param quantity: its name, a site's name with the place in brackets. :param spread: its
        posterior standard deviation.
    """
    noise = step_noise(result)
    if noise is None or quantity.partition("[")[0] not in result.released or not spread > 0:
        return float("nan")
    return float(
        location_noise(
            np.asarray(spread),
            step_noise=noise,
            learning_rate=result.settings["learning_rate"],
            iterations=max(1, result.guarantee.steps_taken),
            averaged=result.settings["average"],
        )
    )


def warning(result: FitResult) -> str:
    """A warning if privacy noise makes a guide's intervals too narrow, estimated from public
    settings; else "".
    """
    ratios = []
    for name in result.released:
        for sd in np.ravel(np.std(result.draws[name], axis=0)) if name in result.draws else ():
            ratios.append(noise_sd(result, name, float(sd)) / sd if sd > 0 else np.nan)
    typical = float(np.nanmedian(ratios)) if np.any(np.isfinite(ratios)) else 0.0
    if typical < _NOTABLE:
        return ""
    return (
        f"Privacy noise moves the posterior's location by about {typical:.1f} posterior standard "
        "deviations (estimated from the settings). The intervals do not include this noise, so "
        "they are too narrow: with it, a 90 % interval contains the truth in about "
        f"{100 * coverage(typical, 0.9):.0f} % of repetitions, and in fewer where columns are "
        "strongly correlated. Larger epsilon or more records help."
    )
