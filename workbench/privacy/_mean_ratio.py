"""The law of the mean of n independent likelihood ratios of a Gaussian mechanism, between two laws
that enclose it.

A likelihood ratio is Y = exp(mu X - mu^2 / 2) with X ~ N(0, 1), so E[Y] = 1, and S is the mean of n
independent ones. What an accountant asks of S are means of convex functions. So laws are compared
by the convex order: U <= V if E[f(U)] <= E[f(V)] for all convex f. Three facts suffice (Shaked and
Shanthikumar 2007, chapter 3.A):

1. Values between two points a < b that are moved to a and b, in shares that keep their mean, become
  larger (Jensen).
2. Values that are all moved to their mean become smaller (Jensen).
3. The order is kept by sums of independent variables and by affine maps.

So "upper" laws live on a grid, to whose points the mass of each cell is moved as in 1, and "lower"
laws have one value in each cell, as in 2. The mean of 2 n ratios is that of two independent means
of n. Masses and ratios are positive, and no Fourier transform is used, so all errors of rounding
are relative, even in tails of 1e-30. A cell of width h changes the variance by at most h^2 / 4, and
moves no mean: at 60 points per standard deviation the two laws are very close.

The mass of a tail above every cell goes, in an upper law, to the tail's lower end and to infinity:
an infinite ratio has no mass under Q, and that of P there, which is at most E[Y; tail], is kept
apart. This too is a spread that keeps the mean, in the limit.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from workbench.privacy.sampled_gaussian import REACH, gaussian_mass

__all__ = ["MeanRatio", "mean_ratio"]

# width of cells far from the middle: relative to the distance of the log ratio from there,
_RELATIVE = 0.015
_CENTRAL = 0.015  # and in the middle: relative to the standard deviation of the log ratio
# of the log ratio: relative to mu, but within these limits, so that there are not too many
_WIDEST = (0.025, 0.05, 0.25)
_SMALL_MU = 0.5  # up to here Y - 1 is kept instead of Y, because it has more correct digits
_FORGOTTEN = 1e-36  # tails of less mass share a cell
_UNDERFLOW = 1e-100  # far more than products of masses can lose
_EPS = float(np.finfo(float).eps)
_ROUNDING = (
    1e-12  # relative, of a ratio above 1e-3 in one doubling: 4 roundings, of 1 if Y - 1 is kept
)
_LEAST_RATIO = 1e-3  # smaller ratios are treated as 0 if Y - 1 is kept


@dataclass(frozen=True)
class MeanRatio:
    """A discrete law of the mean S of ``count`` ratios under Q.

    :param origin: 1 if ``values`` are those of S - 1, 0 if they are those of S.
    :param values: float[n], ascending.
    :param masses: float[n], of these values under Q; S times as much under P.
    :param infinite: mass under P of an infinite S; 0 in a lower law.
    :param mass_error: e, such that exact arithmetic would have given masses from 1 - e to 1 / (1 -
        e) times these,
    :param value_error: and ratios that differ by this share of themselves at most.
    """

    count: int
    origin: float
    values: np.ndarray
    masses: np.ndarray
    infinite: float
    mass_error: float
    value_error: float

    def log_ratios(self) -> np.ndarray:
        """log S, float[n]; minus infinity where S is 0, or so small that it is treated as 0."""
        zero = self.values + self.origin <= (_LEAST_RATIO if self.origin else 0.0)
        ratios = np.where(zero, 1 - self.origin, self.values)
        return np.where(zero, -np.inf, np.log1p(ratios) if self.origin else np.log(ratios))


def _edges(
    mu: float, middle: float, scale: float, low: float, high: float, origin: float
) -> np.ndarray:
    """Ends of cells from S = 0 to beyond log S = ``high``, one at ``middle``, minus ``origin``.

    Between ``low`` and ``high`` cells of the log ratio are at most about sqrt(a^2 + b^2) wide,
    where a is a share of ``scale`` and b one of the distance from ``middle``.
    """
    narrow = scale * _CENTRAL / _RELATIVE
    widest = min(max(_WIDEST[0] * mu, _WIDEST[1]), _WIDEST[2])

    def beside(distance: float) -> np.ndarray:
        turn = min(distance, widest / _RELATIVE)
        steps = math.ceil(math.asinh(turn / narrow) / _RELATIVE)
        near = narrow * np.sinh(
            np.arange(1, steps + 1) * (math.asinh(turn / narrow) / max(steps, 1))
        )
        steps = math.ceil((distance - turn) / widest)
        return np.concatenate(
            [near, turn + np.arange(1, steps + 1) * ((distance - turn) / max(steps, 1))]
        )

    below, above = beside(max(middle - low, 0.0)), beside(max(high - middle, 0.0))
    logs = np.concatenate([middle - below[::-1], [middle], middle + above])
    return np.concatenate([[-origin], np.expm1(logs) if origin else np.exp(logs)])


def _single(mu: float, is_upper: bool) -> MeanRatio:
    """The law of one ratio. The outcome with ratio e^l is l / mu + mu / 2."""
    origin = 1.0 if mu < _SMALL_MU else 0.0
    middle = 0.0 if origin else -(mu**2) / 2
    edges = _edges(mu, middle, mu, -REACH * mu - mu**2 / 2, REACH * mu + mu**2 / 2, origin)
    with np.errstate(divide="ignore"):
        outcomes = (np.log1p(edges) if origin else np.log(edges)) / mu + mu / 2
    absent, absent_error = gaussian_mass(outcomes, np.diff(outcomes))
    present, present_error = gaussian_mass(outcomes - mu, np.diff(outcomes))
    # others lose less than is added to an infinite ratio
    used = (absent > 1e-290) & (present > 1e-290)
    error = float(np.maximum(absent_error, present_error)[used].max()) + 64 * _EPS * (
        1 + mu * REACH + mu**2
    )
    offsets = present - absent * (edges[:-1] + origin)
    top = float(edges[-1]), float(ndtr(-outcomes[-1])), float(ndtr(mu - outcomes[-1]))
    law = MeanRatio(1, origin, edges, absent, 0.0, error, 2 * error)
    offsets = np.clip(offsets, 0.0, absent * np.diff(edges))
    return _spread(law, offsets, top) if is_upper else _collapsed(law, offsets, top)


def _spread(
    cells: MeanRatio, offsets: np.ndarray, top: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> MeanRatio:
    """The upper law of masses in cells.

    :param cells: ``values`` are the n + 1 ends of cells, ``masses`` those of the n cells.
    :param offsets: float[n], mass times the mean distance from the lower end.
    :param top: beyond the last cell: where it starts, mass under Q, mass under P.
    """
    ends, masses = cells.values, cells.masses
    present = masses * (ends[:-1] + cells.origin) + offsets
    # cells; those above are a tail
    retained = max(int(np.searchsorted(-np.cumsum(present[::-1])[::-1], -_FORGOTTEN)), 1)
    # all of its mass under P counts as infinite, also what it has at the tail's lower end, which
    # only adds
    infinite = (cells.infinite + float(present[retained:].sum()) + top[2]) * (1 + 1e-9) + _UNDERFLOW
    tail = float(masses[retained:].sum()) + top[1]
    ends, masses, offsets = ends[: retained + 1], masses[:retained], offsets[:retained]
    # the cells below it become one
    first = min(max(int(np.searchsorted(np.cumsum(masses), _FORGOTTEN)), 1), retained)
    offsets = np.append((offsets + masses * (ends[:-1] - ends[0]))[:first].sum(), offsets[first:])
    masses = np.append(masses[:first].sum(), masses[first:])
    ends = np.append(ends[0], ends[first:])
    up = np.clip(offsets / np.diff(ends), 0.0, masses)
    points = np.zeros(len(ends))
    points[1:] += up
    points[:-1] += masses - up
    points[-1] += tail
    some = points > 0
    return replace(cells, values=ends[some], masses=points[some], infinite=infinite)


def _collapsed(
    cells: MeanRatio, offsets: np.ndarray, top: tuple[float, float, float] = (0.0, 0.0, 0.0)
) -> MeanRatio:
    """The lower law of masses in cells; arguments as for ``_spread``. Mass too small for a float64
    is left out.
    """
    some = cells.masses > _UNDERFLOW
    masses = cells.masses[some]
    values = cells.values[:-1][some] + np.minimum(
        offsets[some] / masses, np.diff(cells.values)[some]
    )
    if top[1] > _UNDERFLOW:
        masses, values = (
            np.append(masses, top[1]),
            np.append(values, max(top[2] / top[1] - cells.origin, top[0])),
        )
    tiny = values + cells.origin <= (_LEAST_RATIO if cells.origin else 0.0)
    return replace(cells, values=values[~tiny], masses=masses[~tiny])


def _scale(law: MeanRatio) -> tuple[float, float]:
    """(median, about one standard deviation) of log S under Q. It places cells, which decides only
    how tight a law is.
    """
    cumulative = np.cumsum(law.masses) / law.masses.sum()
    low, median, high = law.log_ratios()[
        np.searchsorted(cumulative, [0.1587, 0.5, 0.8413]).clip(max=len(cumulative) - 1)
    ]
    return float(median), max(float(high - low) / 2, 1e-12)


def _mean_of(first: MeanRatio, second: MeanRatio, mu: float, is_upper: bool) -> MeanRatio:
    """The law of the mean of the ratios of both, which are independent."""
    count = first.count + second.count
    weights = first.count / count, second.count / count
    values = (weights[0] * first.values[:, None] + weights[1] * second.values).ravel()
    masses = (first.masses[:, None] * second.masses).ravel()
    median, deviation = _scale(first)
    finite = [logs[np.isfinite(logs)] for logs in (first.log_ratios(), second.log_ratios())]
    low = min(float(logs[0]) for logs in finite) - math.log(2)
    high = max(float(logs[-1]) for logs in finite)
    shrunk = deviation * math.sqrt(first.count / count)
    ends = _edges(mu, 0.0 if first.origin else median, shrunk, low, high, first.origin)
    ends[-1] = max(float(ends[-1]), float(values.max()) + abs(float(values.max())) * _EPS)
    cell = np.searchsorted(ends, values, side="right") - 1
    cell = np.minimum(np.maximum(cell, 0), len(ends) - 2)
    size = len(ends) - 1
    summed = np.bincount(cell, masses, size)
    offsets = np.bincount(cell, masses * np.maximum(values - ends[cell], 0.0), size)
    # of the sums, whose terms are all positive
    rounding = _EPS * (int(np.bincount(cell).max()) + 8)
    cells = MeanRatio(
        count,
        first.origin,
        ends,
        summed,
        weights[0] * first.infinite + weights[1] * second.infinite,
        first.mass_error + second.mass_error + rounding,
        max(first.value_error, second.value_error) + rounding + _ROUNDING,
    )
    return _spread(cells, offsets) if is_upper else _collapsed(cells, offsets)


@functools.lru_cache(maxsize=64)
def mean_ratio(count: int, mu: float, is_upper: bool) -> MeanRatio:
    """The law of the mean of ``count`` ratios, larger than the true one in the convex order if
    ``is_upper``, else smaller.

    :param count: n >= 1; costs at most 2 log2(n) convolutions of about 10 ms.
    :param mu: of the Gaussian mechanism, > 0.
    """
    single = law = _single(mu, is_upper)
    for digit in f"{count:b}"[1:]:
        law = _mean_of(law, law, mu, is_upper)
        if digit == "1":
            law = _mean_of(law, single, mu, is_upper)
    return law
