"""The closed form of a Gaussian mechanism (Balle and Wang 2018), without any accountant."""

import math

from scipy.special import ndtr


def gaussian_delta(mu, epsilon):
    """The smallest delta at ``epsilon``. :param mu: sensitivity over noise."""
    above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return ndtr(above) - math.exp(epsilon) * ndtr(below)
