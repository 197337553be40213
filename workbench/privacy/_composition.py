"""Composition of privacy loss distributions over very many steps, in two stages so that it stays quick.

Composing T steps in one go needs buckets that are narrow beside the spread of one step's loss and a range as wide as
all T together, which for T = 1e6 is hundreds of thousands of buckets. Composing about sqrt(T) steps, widening the buckets,
and composing the result needs a few thousand. Widening only ever raises delta: a loss l between two wide buckets
a < b moves to them with weights that keep both its mass and its e^-l. delta(epsilon) is the mean of (1 - e^(epsilon - l))_+,
which is convex in e^-l, so by Jensen's inequality it can only grow (Doroshenko et al. 2022, "Connect the Dots").
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["self_compose"]

_DIRECT = 2**15  # up to so many steps one stage is as quick, and tighter


def self_compose(one_step: PrivacyLossDistribution, steps: int) -> PrivacyLossDistribution:
    """An upper bound on the privacy loss distribution of ``steps`` >= 1 independent repetitions, in both directions."""
    if steps <= _DIRECT:
        return PrivacyLossDistribution(*(_dense(pmf).self_compose(steps) for pmf in _directions(one_step)))
    inner = 2 ** round(math.log2(steps) / 2)
    outer, rest = divmod(steps, inner)
    factor = max(1, math.isqrt(inner))

    def both_stages(pmf: DensePLDPmf) -> DensePLDPmf:
        composed = widened(pmf.self_compose(inner), factor).self_compose(outer)
        return composed.compose(widened(pmf.self_compose(rest), factor)) if rest else composed

    return PrivacyLossDistribution(*(both_stages(_dense(pmf)) for pmf in _directions(one_step)))


def _directions(distribution: PrivacyLossDistribution) -> list:
    if distribution._symmetric:
        return [distribution._pmf_remove]
    return [distribution._pmf_remove, distribution._pmf_add]


def _dense(pmf: DensePLDPmf) -> DensePLDPmf:
    return pmf.to_dense_pmf()


def widened(pmf: DensePLDPmf, factor: int) -> DensePLDPmf:
    """``pmf`` on buckets ``factor`` times as wide; its delta is nowhere smaller."""
    if factor == 1:
        return pmf
    narrow = pmf._discretization
    wide = narrow * factor
    losses = pmf._lower_loss + np.arange(pmf.size)  # in units of `narrow`
    below = losses // factor
    offset = losses - below * factor
    # weight on the upper neighbour: (1 - e^-(l - a)) / (1 - e^-(b - a))
    upper = np.expm1(-offset * narrow) / math.expm1(-wide)
    first = int(below[0])
    probabilities = np.zeros(int(below[-1]) - first + 2)
    np.add.at(probabilities, below - first, pmf._probs * (1 - upper))
    np.add.at(probabilities, below - first + 1, pmf._probs * upper)
    return DensePLDPmf(wide, first, probabilities, pmf._infinity_mass, pmf._pessimistic_estimate)
