"""What an attacker achieves at least against compositions of sampled Gaussian mechanisms: lower
bounds on delta.

Of each step's outcome the attacker keeps a whole number, its rounded loss, adds these up and
accuses from a threshold on. Whatever is kept and whatever the threshold, delta(epsilon) >=
P(accused) - e^epsilon Q(accused), P and Q being what two neighbouring data sets make of the
release. Both distributions of the sum are powers of a discrete Fourier transform; what the
transforms round is subtracted. Nothing of the accountant is used.
"""

import math

import numpy as np
from scipy.special import ndtr

NODES = 4001
ROUNDING = 1e-11, 2e-16  # of sums of probabilities, and for every step


class Attack:
    """The best threshold on summed losses, for pairs of neighbours of ``phases``: (q, shift, steps)
    each.

    :param phases: a record enters with probability q and moves the sum by ``shift`` standard
        deviations of the noise.
    :param direction: "remove": (1 - q) N(0, 1) + q N(shift, 1) against N(0, 1); "add": the other
        way round; "swap": (1 - q) N(0, 1) + q N(shift / 2, 1) against (1 - q) N(0, 1) + q N(-shift
        / 2, 1).
    """

    def __init__(self, phases, direction, points=20):
        cells = [(_cells(q, shift, direction), steps) for q, shift, steps in phases]
        moments = [
            (_moments(losses, mass), steps) for (losses, *masses), steps in cells for mass in masses
        ]
        mean, variance = (
            sum(steps * abs(one[place]) for one, steps in moments) for place in range(2)
        )
        deviation = math.sqrt(max(one[1] for one, _ in moments))
        width = math.sqrt(variance / sum(steps for _, steps in moments)) / points
        # larger losses count as this
        most = min(200 * deviation, max(np.abs(losses).max() for (losses, *_), _ in cells))
        # by Bernstein's inequality less than 2e-13 of either distribution wraps around
        half = mean + 20 * most + math.sqrt(400 * most**2 + 90 * variance)
        size = 2 ** math.ceil(math.log2(2 * half / width))
        self.rounding = ROUNDING[0] + ROUNDING[1] * sum(steps for _, steps in cells)
        spectra = [np.ones(size // 2 + 1, complex), np.ones(size // 2 + 1, complex)]
        for (losses, *masses), steps in cells:
            kept = np.rint(np.clip(losses, -most, most) / width).astype(int) % size
            for place, mass in enumerate(masses):
                spectra[place] *= np.fft.rfft(np.bincount(kept, mass / mass.sum(), size)) ** steps
        rolled = [np.roll(np.fft.irfft(spectrum, size), size // 2) for spectrum in spectra]
        self.accused = [np.cumsum(each[::-1])[::-1] for each in rolled]

    def delta(self, epsilon):
        """Lower bound on delta at ``epsilon``."""
        present, absent = self.accused
        return float(np.max(present - math.exp(epsilon) * absent)) - self.rounding * (
            1 + math.exp(epsilon)
        )


def _cells(q, shift, direction):
    """(loss, mass under P, mass under Q) of small cells of a step's outcome."""
    ends = np.linspace(-9 - shift / 2, 9 + 1.5 * shift, NODES)
    if direction == "swap":
        ends = np.linspace(-9 - shift / 2, 9 + shift / 2, NODES)
        present = [
            (1 - q) * _mass(ends, 0.0) + q * _mass(ends, centre)
            for centre in (shift / 2, -shift / 2)
        ]
    else:
        absent = _mass(ends, 0.0)
        present = [(1 - q) * absent + q * _mass(ends, shift), absent]
    if direction == "add":
        present.reverse()
    return np.log(present[0] / present[1]), *present


def _mass(ends, centre):
    low, high = ends[:-1] - centre, ends[1:] - centre
    side = np.where(low > 0, -1.0, 1.0)
    return np.abs(ndtr(side * high) - ndtr(side * low)) + 1e-300


def _moments(losses, mass):
    mean = float(mass @ losses)
    return mean, float(mass @ (losses - mean) ** 2)
