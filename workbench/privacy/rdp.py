"""Upper bounds on the Rényi differential privacy of the steps of a run, at one whole order.

At order a, one step M on neighbouring data sets D and D' satisfies D_a(M(D) || M(D')) <= rho for
every D and every outcome of the earlier steps. Such bounds add up even if each step is chosen after
looking at the others (Feldman and Zrnic 2021). ``ledger.renyi_filter`` uses this.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

from workbench.privacy._mean_ratio import mean_ratio
from workbench.privacy.accounting import Plan
from workbench.privacy.steps import Phase, Steps, no_law

__all__ = ["MAX_ORDER", "renyi_loss"]

MAX_ORDER = 4096

_SLACK = 1 + 1e-9  # for the rounding of sums
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_PANELS = 400
_REACH = 40.0  # standard deviations that are integrated over
_INTEGRAL_SLACK = 1 + 1e-6
_SMALLEST_MU = 1e-4  # below it the profile's two terms cancel; a larger one is an upper bound
_NEGLIGIBLE = 40.0  # -log of what an expectation may leave out, and then counts


def renyi_loss(plan: Plan, order: int, *, changes: int = 1) -> float:
    """Upper bound on rho of all steps of ``plan`` at ``order``, a whole number in [2, MAX_ORDER].

    :param changes: 1 for neighbours; 2 for two neighbours of the same data set, such as one record
        removed and another added. ``order`` is then at most MAX_ORDER / 2 (the weak triangle
        inequality of Mironov 2017).
    """
    if changes == 2:
        first, second = renyi_loss(plan, 2 * order), renyi_loss(plan, 2 * order - 1)
        return ((order - 0.5) / (order - 1) * first + second) * _SLACK
    if not isinstance(plan, Steps):
        return plan.renyi_loss(order)
    if plan.law.participation == "random step":
        costs = (  # an epoch that was not finished is charged as a whole one
            epoch.repeated * _of_epoch(epoch.length, 1 / epoch.noise_multiplier, order)
            for epoch in plan.epochs
        )
        return math.fsum(costs) * _SLACK
    return math.fsum(_of_phase(plan, phase, order) for phase in plan.uses_of_a_record) * _SLACK


def _of_phase(plan: Steps, phase: Phase, order: int) -> float:
    mu, participation = plan.sensitivity / phase.noise_multiplier, plan.law.participation
    one_step = {"coin": _poisson, "subset": _without_replacement}.get(participation or "")
    if one_step is None and participation != "known step":
        raise no_law(plan.sampler)
    if one_step is None or phase.sampling_rate == 1:
        return phase.steps * order * mu**2 / 2
    return phase.steps * one_step(phase.sampling_rate, mu, order)


@functools.lru_cache(maxsize=4096)
def _poisson(rate: float, mu: float, order: int) -> float:
    """Poisson subsampled Gaussian, N(0, 1) against (1 - q) N(0, 1) + q N(mu, 1), in both
    directions.

    Mironov, Talwar and Zhang 2019: the sum for whole orders, less the binomial theorem, so that
    nothing cancels.
    """
    k = np.arange(2, order + 1, dtype=np.float64)
    binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    exponent = (k * k - k) * mu**2 / 2
    grown = np.where(exponent > 30, exponent, np.log(np.expm1(np.minimum(exponent, 30.0))))
    logarithm = logsumexp(binomial + (order - k) * math.log1p(-rate) + k * math.log(rate) + grown)
    return _SLACK * float(np.logaddexp(0.0, logarithm)) / (order - 1)


@functools.lru_cache(maxsize=4096)
def _without_replacement(rate: float, mu: float, order: int) -> float:
    """Uniform subsets of a share q of the records, under replace_one.

    The hockey-stick profile of any two neighbours is at most delta(epsilon) = q H(log(1 +
    (e^epsilon - 1) / q)) in both directions, where H is that of N(mu, 1) against N(0, 1) (Zhu, Dong
    and Wang 2022), and

        E_Q[(P / Q)^a] = 1 + a (a - 1) int_0^inf (e^{(a - 1) epsilon} + e^{-a epsilon})
        delta(epsilon) d epsilon

    (Sason and Verdú 2016). With e^epsilon = 1 + q (e^s - 1) the profile of H is taken at s.
    """
    mu = max(mu, _SMALLEST_MU)
    end = mu * (mu / 2 + order * mu + _REACH)  # beyond it the integrand is negligible
    edges = np.linspace(0.0, 1.0, _PANELS + 1) ** 2 * end
    half = np.diff(edges)[:, None] / 2
    s = edges[:-1, None] + half * (1 + _NODES)
    epsilon = np.where(s > 30, s + math.log(rate), np.log1p(rate * np.expm1(np.minimum(s, 30.0))))
    log_slope = math.log(rate) + s - epsilon  # d epsilon / d s
    upper, lower = log_ndtr(mu / 2 - s / mu), log_ndtr(-mu / 2 - s / mu)
    log_profile = upper + np.log(-np.expm1(np.minimum(s + lower - upper, -1e-300)))
    terms = (
        np.logaddexp((order - 1) * epsilon, -order * epsilon)
        + log_slope
        + log_profile
        + np.log(half * _WEIGHTS)
    )
    logarithm = math.log(order * (order - 1) * rate * _INTEGRAL_SLACK) + float(logsumexp(terms))
    return float(np.logaddexp(0.0, logarithm)) / (order - 1)


@functools.lru_cache(maxsize=4096)
def _of_epoch(length: int, mu: float, order: int) -> float:
    """One epoch of random allocation, in both directions: see ``allocated_gaussian`` for P, Q and S
    = dP/dQ.

    It is at most that of the Gaussian mechanism, because the divergence is quasi-convex and P is a
    mean of Gaussians.
    """
    gaussian = order * mu**2 / 2
    if length == 1:
        return gaussian
    return min(
        gaussian,
        max(_log_moment(length, mu, order), _log_inverse_moment(length, mu, order - 1))
        / (order - 1),
    )


def _log_moment(length: int, mu: float, order: int) -> float:
    """log E_Q[S^a], rounded up.

    S is the mean of t independent ratios Y with E[Y^k] = exp(mu^2 k (k - 1) / 2). So E[S^a] is a! /
    t^a times the a-th coefficient of (sum over k of E[Y^k] z^k / k!)^t. All coefficients are
    positive, so their logarithms lose nothing.
    """
    k = np.arange(order + 1, dtype=np.float64)
    single = mu**2 * k * (k - 1) / 2 - gammaln(k + 1)
    power = single
    for digit in f"{length:b}"[1:]:
        power = _product(power, power)
        if digit == "1":
            power = _product(power, single)
    logarithm = float(power[order] + gammaln(order + 1) - order * math.log(length))
    rounding = 1e-14 * (order * math.log(length + order) + float(single.max() - single.min()))
    return logarithm + 64 * rounding


def _product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Logarithms of the coefficients of a product of two power series, from theirs."""
    return np.array(
        [logsumexp(first[: index + 1] + second[index::-1]) for index in range(len(first))]
    )


def _log_inverse_moment(length: int, mu: float, power: int) -> float:
    """Upper bound on log E_Q[S^-p].

    Below some c, S^-p is continued by its tangent. What that leaves out is at most E[S^-p; S < c],
    which for every v >= p is at most c^(v - p) E[S^-v]. The mean S is at least the geometric mean,
    so E[S^-v] is at most exp(v mu^2 / 2 + v^2 mu^2 / (2 t)), and c is such that the best v makes
    this negligible. The continued function is convex and decreasing, so a law that is larger in the
    convex order bounds its mean from above.
    """
    step = mu / math.sqrt(length)
    far = power * step + math.sqrt((power * step) ** 2 + power * mu**2 + 2 * _NEGLIGIBLE)
    log_c = -(mu**2) / 2 - far * step
    law = mean_ratio(length, mu, True)
    logs = law.log_ratios()
    below = -power * log_c + np.log1p(-power * np.expm1(np.minimum(logs - log_c, 0.0)))
    with np.errstate(divide="ignore"):
        terms = np.where(logs < log_c, below, -power * logs) + np.log(law.masses)
    logarithm = (
        float(logsumexp(terms)) - math.log1p(-law.mass_error) - power * math.log1p(-law.value_error)
    )
    return float(np.logaddexp(logarithm, -_NEGLIGIBLE))
