"""Each owner's part of the noise, and the law of what the parts add up to.

Of M owners up to c may tell what noise they added. So each adds a rounded normal of variance s^2 =
sigma^2 / (M - c), in units of the sensitivity, and those of any h = M - c owners are enough.

The sum of h draws of round(Z), Z ~ N(mu, s^2) in spacings, is no rounded normal, but nearly round(W
+ U), with W ~ N(h mu, h s^2) and U the sum of h - 1 numbers that are uniform on [-1/2, 1/2]. As x +
round(W + U) = round(x + W + U) for whole x, what is released is then a function of the Gaussian
mechanism's release x + W, and its accountants hold as they are.

Let f be the density of Z plus a uniform number, and F its characteristic function, |F(t)| <= exp(-
s^2 t^2 / 2). One draw is y with probability f(y), and round(W + U) of k draws with probability
P_k(y) = f^(*k)(y). By Poisson's summation formula the characteristic functions of these laws are
sum_m F(t + 2 pi m) and sum_m F(t + 2 pi m)^k. So for one draw p more

    |P_k * p - P_(k+1)|(y) <= (1 / 2 pi) sum_(m != 0) int |F(t)|^k |F(t + 2 pi m)| dt
                           <= 2 q / ((1 - q) s sqrt(2 pi (k + 1))),   q = exp(-2 pi^2 s^2 k/(k+1)).

Both laws have less than 2 exp(-72) beyond R = 12 s sqrt(k+1) + (k+1)/2 + 1 from their mean. So
their total variation distance is at most (R + 1/2) times that bound, plus 2 exp(-72). That of h
draws from P_h is at most the sum of these over k = 1 .. h - 1, because a further draw moves no laws
apart. The exponents are those of sums of discrete Gaussians (Kairouz, Liu and Steinke 2021).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate
from workbench.noise.integers import COARSEST, delta_cost
from workbench.noise.mechanism import GaussianMechanism, Noise, OnGrid

__all__ = ["MOST_OWNERS", "ShareOfNoise", "Shares", "distance"]

MOST_OWNERS = 100
_FAR = 12  # standard deviations
_COARSEST_DEVIATION = 2.0 ** (11 + COARSEST)  # spacings, of the coarsest noise that there is


class ShareOfNoise(GaussianMechanism):
    """The mechanism of one owner: its sum stays in whole numbers, as others are added to it."""

    @staticmethod
    def add(total: Any, noise: Noise | None) -> OnGrid:
        """As ``GaussianMechanism.on_grid``."""
        return GaussianMechanism.on_grid(total, noise)


class Shares(NamedTuple):
    """How the noise of a release is divided. :param owners: M. :param colluders: c."""

    owners: int
    colluders: int

    @classmethod
    def checked(cls, owners: int, colluders: Any) -> Shares:
        """:raises ArgumentError: naming ``owners`` or ``colluders``."""
        count = _validate.integer("owners", owners, at_least=2, at_most=MOST_OWNERS)
        return cls(count, _validate.integer("colluders", colluders, at_least=0, at_most=count - 1))

    @property
    def counted(self) -> int:
        """h = M - c, the owners whose noise the guarantee counts."""
        return self.owners - self.colluders

    def of(self, mechanism: GaussianMechanism) -> ShareOfNoise:
        """What each owner adds: ``counted`` of them add up to the noise of ``mechanism``."""
        # more by far than the last bit of the division
        sigma = mechanism.noise_multiplier / math.sqrt(self.counted) * (1 + 1e-12)
        return ShareOfNoise(mechanism.clip, sigma, mechanism.clipping)

    def in_all(self, mechanism: GaussianMechanism) -> GaussianMechanism:
        """The mechanism with the noise that the shares of all owners add up to."""
        sigma = mechanism.noise_multiplier * math.sqrt(self.owners / self.counted)
        return dataclasses.replace(mechanism, noise_multiplier=sigma)

    def against_another_owner(self, noise_multiplier: float) -> float:
        """sigma of what is left where one owner more than c knows its own noise; 0 for nothing."""
        return noise_multiplier * math.sqrt((self.counted - 1) / self.counted)

    def delta_cost(self, dimension: int, epsilon: float) -> float:
        """What it costs in delta that draws are not exactly rounded normals, and their sum not
        exactly a rounded sum.

        :param dimension: number of coordinates.
        """
        of_draws = delta_cost(float(self.owners) * dimension, epsilon)
        # at the coarsest grid, because it is finer for the others
        of_sums = dimension * distance(self.counted, _COARSEST_DEVIATION)
        return of_draws + float(np.exp(np.logaddexp(0.0, epsilon))) * of_sums


def distance(count: int, deviation: float) -> float:
    """Bound on the total variation distance of the sum of rounded normals from the rounded sum of
    the normals and of uniform numbers (see above).

    :param count: h, of shares. :param deviation: s, of each before it is rounded, in spacings.
    """
    total = 0.0
    for k in range(1, count):
        q = math.exp(-2 * math.pi**2 * deviation**2 * k / (k + 1))
        highest = 2 * q / ((1 - q) * deviation * math.sqrt(2 * math.pi * (k + 1)))
        reach = _FAR * deviation * math.sqrt(k + 1) + (k + 1) / 2 + 1
        total += (reach + 0.5) * highest + 2 * math.exp(-(_FAR**2) / 2)
    return min(total, 1.0)
