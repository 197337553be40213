"""The cost of choosing the best of K private runs, where K is random and secret.

A run draws a candidate uniformly from a public list, fits it with noise of its own, and releases a
score with it. The run is repeated K times, each time with fresh randomness, and only the outcome
with the best score is published. The bound below holds for every law of K >= 1.

Let Q and Q' be the laws of one run on two neighbouring data sets, S and S' those of what is
published, delta(e) the supremum of Q(A) - e^e Q'(A) over events A, and T(u) the largest Q'(B) of
all B with Q(B) = u. Let phi be the generating function of K and h(u) = phi'(1 - u). As a power
series with coefficients >= 0 in 1 - u, h falls and is convex, and h(0) = E[K].

1. If no two outcomes tie, S has the density h(u(y)) relative to Q, where u(y) is the probability
   under Q of a better outcome than y: sum_k P(K = k) k (1 - u)^(k - 1). Ties are broken by a
   uniform number that each run draws as well. It is independent of the records, so delta stays the
   same, and it is not published. To take the first of the best runs instead gives the same S,
   because outcomes are independent and alike given their scores. The score need not be published
   either, but delta must cover it.
2. On the other data set, a better outcome than y has a probability of at most T(u). As h falls, S'
   has at least the density h(T(u(y))) relative to Q'.
3. With w = dQ'/dQ, therefore S(A) - e^eps S'(A) is at most the integral of g(e^eps w) over Q,
   where g(v) is the maximum over u of h(u) - v h(T(u)), and at least 0. It falls, is convex, has
   g(0) = E[K], and is 0 from R = max h(u) / h(T(u)) on.
4. Its chords between points 0 < v_1 < ... < v_n = R are above it, and they are the sum of weights
   c_j (1 - v / v_j)_+ with c_j >= 0 that add up to E[K]. The integral of (1 - e^eps w / v_j)_+ is
   delta(eps - log v_j). So **what is published has a delta of at most sum_j c_j delta(eps - log
   v_j)**.

All weight at R instead would be E[K] delta(eps - log R), a larger bound, of the kind that Koskela,
Redberg and Wang 2024 have. The one here is nearly attained where delta is small: a score can put
outcomes that are likelier under Q' first, up to any u, and then those that tell Q from Q'. For the
Rényi bound see Papernot and Steinke 2022.

K has the truncated negative binomial law of that paper, given that it is at most a public number of
runs. Nothing is charged to delta for that, since the bound is that of this very law. It is not
larger than without the largest number: the first terms of h have the larger share of it the larger
u is, and T(u) >= u, so neither h(u) / h(T(u)) nor E[K] grows.

Which candidate was drawn is a part of the outcome, so delta(e) of a run is the mean of that of all
candidates.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import logsumexp

from workbench import _validate
from workbench._lazy import optimize
from workbench.privacy import accounting
from workbench.privacy.known_loss import Profile
from workbench.privacy.pld import LARGEST_EPSILON
from workbench.privacy.steps import Steps

__all__ = ["Runs", "bound", "delta", "epsilon", "profiles", "renyi_excess"]

_BITS = 128
_MOST_RUNS = 10_000
_LEAST_GAMMA = 1e-9
_USUAL_MOST = 10  # times the mean
_POWERS = np.concatenate([[0.0], np.geomspace(1e-3, 60.0, 600)])  # e of the lines that bound T
_RANKS = np.concatenate([[0.0], np.geomspace(1e-12, 1.0, 1500)])  # u
_BENDS = np.append(-np.geomspace(12.0, 1e-3, 200), 0.0)  # log v_j - log R
_LAST_BITS = 1e-12  # relative: of lines that bound T, and of R
_LOST_BITS = 1e-9  # of weights, relative to their sum: they are differences of chords' slopes


@dataclass(frozen=True)
class Runs:
    """The law of K, how often a private fit is run before the best is published.

    P(K = k) is proportional to (1 - gamma)^k prod_{l < k} (l + eta) / (l + 1), for k from 1 to
    ``most`` (Papernot and Steinke 2022, Definition 1, given K <= ``most``). The weights are rounded
    to multiples of 2^-128, and this is the law that is accounted for and drawn from.

    >>> from workbench.privacy.selection import Runs
    >>> runs = Runs.of_mean(20)
    >>> runs, round(runs.mean, 3)
    (Runs(eta=1.0, gamma=0.0499824, most=200), 20.0)

    :param eta: > -1; 0 is the logarithmic law, 1 the geometric one. A larger one makes few runs
        rarer, and costs more at the same mean.
    :param gamma: in [1e-9, 1); the smaller, the more runs.
    :param most: 2 to 10 000, public.
    :raises ArgumentError: naming the argument and its value.
    """

    eta: float
    gamma: float
    most: int

    def __post_init__(self) -> None:
        checked = {
            "eta": _validate.number("eta", self.eta, above=-1, at_most=100),
            "gamma": _validate.number("gamma", self.gamma, at_least=_LEAST_GAMMA, below=1),
            "most": _validate.integer("most", self.most, at_least=2, at_most=_MOST_RUNS),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of_mean(cls, mean: float, eta: float = 1.0, most: int | None = None) -> Runs:
        """The law with E[K] = ``mean``, up to six digits of gamma.

        :param mean: above 1.
        :param eta: 0 costs least at this mean, but then few runs are not rare: at a mean of 20 a
            fifth of all choices has one. With 1 it is a twentieth, and at the same cost more
            choices have a good candidate.
        :param most: the largest K; by default ten times the mean.
        :raises ArgumentError: naming ``most``, if no gamma reaches the mean with so few runs.
        """
        mean = _validate.number("mean", mean, above=1, at_most=_MOST_RUNS / 2)
        most = min(math.ceil(_USUAL_MOST * mean), _MOST_RUNS) if most is None else most
        lowest, highest = math.log(_LEAST_GAMMA), math.log1p(-1e-9)

        def gap(log_gamma: float) -> float:
            return cls(eta, math.exp(log_gamma), most).mean - mean

        if gap(lowest) < 0:
            raise _validate.ArgumentError(
                "most",
                most,
                f"allows a mean of at most {gap(lowest) + mean:.4g} runs at eta={eta:g}, not "
                f"{mean:g}: choose a larger one.",
            )
        root = math.exp(optimize.brentq(gap, lowest, highest, xtol=1e-9))
        return cls(eta, float(f"{root:.6g}"), most)

    @functools.cached_property
    def weights(self) -> tuple[int, ...]:
        """P(K = k) times 2^128 for k = 1 .. ``most``, whole numbers that add up to 2^128."""
        counts = np.arange(1, self.most)
        ratios = np.log((counts + self.eta) / (counts + 1)) + math.log1p(-self.gamma)
        logarithms = np.concatenate([[0.0], np.cumsum(ratios)])
        sizes = [int(size) for size in np.ldexp(np.exp(logarithms - logarithms.max()), _BITS)]
        total = sum(sizes)
        rounded = [size * 2**_BITS // total for size in sizes[1:]]
        return (2**_BITS - sum(rounded), *rounded)  # what rounding leaves is for K = 1

    @functools.cached_property
    def probabilities(self) -> np.ndarray:
        """P(K = k) for k = 1 .. ``most``, float[most]."""
        return np.array([weight / 2**_BITS for weight in self.weights])

    @property
    def mean(self) -> float:
        """E[K]."""
        return float(self.probabilities @ np.arange(1, self.most + 1))

    def draw(self, secret: bytes) -> int:
        """K, exactly by its law if ``secret`` is uniform.

        All weights are looked at, whatever K will be.

        >>> import secrets
        >>> from workbench.privacy.selection import Runs
        >>> 1 <= Runs.of_mean(20).draw(secrets.token_bytes(16)) <= 200
        True

        :param secret: 16 bytes that are used for nothing else, such as four words of
            ``noise.chacha20.stream``. Who knows them, knows K.
        :raises ArgumentError: naming ``secret``, without its value, if they are not 16.
        """
        if len(secret) * 8 != _BITS:
            raise _validate.ArgumentError("secret", len(secret), "must be 16 bytes.")
        number, reached, runs = int.from_bytes(secret, "little"), 0, 1
        for weight in self.weights[:-1]:
            reached += weight
            runs += number >= reached
        return runs

    def _density(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(h, -h') at probabilities u of a better outcome: density of what is published relative to
        one run's outcome.
        """
        counts = np.arange(self.most)
        coefficients = (counts + 1) * self.probabilities
        slopes = (counts * coefficients)[1:]
        return _polynomial(coefficients, 1 - ranks), _polynomial(slopes, 1 - ranks)

    @functools.cached_property
    def _of_ranks(self) -> np.ndarray:
        return self._density(_RANKS)[0]

    def terms(self, forward: np.ndarray, backward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(weights c_j, shifts log v_j) of the bound: what is published has a delta of at most
        sum_j c_j delta(epsilon - log v_j).

        Between neighbouring u a line bounds T, so h(u) and h(T(u)), which are convex, are bounded
        by a chord and by a tangent, and their difference is largest at one of the two.

        :param forward: delta of Q against Q' at ``_POWERS``.
        :param backward: delta of Q' against Q.
        """
        shrink = np.exp(-_POWERS)
        slopes = np.concatenate([[0.0], np.exp(_POWERS), shrink])
        starts = np.concatenate([[1.0], backward, 1 - (1 - forward) * shrink])
        # one row for each u > 0
        lines = starts + slopes * _RANKS[1:, None]
        best = lines.argmin(axis=1)
        largest = lines[np.arange(len(lines)), best]
        largest = np.minimum(largest * (1 + _LAST_BITS) + 1e-300, 1.0)
        density, falls = self._density(largest)
        error = 8 * self.most * np.finfo(float).eps
        above = np.concatenate([self._of_ranks[1:], self._of_ranks[:-1]]) * (1 + error)
        at_the_left = density + falls * slopes[best] * np.diff(_RANKS)
        below = np.concatenate([density, at_the_left]) * (1 - error)
        shifts = math.log((above / below).max()) + _LAST_BITS + _BENDS
        bends = np.concatenate([[0.0], np.exp(shifts)])
        heights = np.maximum((above[:, None] - below[:, None] * bends).max(axis=0), 0.0)
        heights[-1] = 0.0
        chords = np.append(np.diff(heights) / np.diff(bends), 0.0)
        weights = np.maximum(np.diff(chords) * bends[1:], 0.0)
        return weights + _LOST_BITS * heights[0], shifts


def _polynomial(coefficients: np.ndarray, argument: np.ndarray) -> np.ndarray:
    """sum_k coefficients[k] argument^k, by Horner: all >= 0, so errors are relative."""
    total = np.zeros_like(argument)
    for coefficient in coefficients[::-1]:
        total = total * argument + coefficient
    return total


Terms: TypeAlias = tuple[np.ndarray, np.ndarray]


@functools.lru_cache(maxsize=2)  # terms are of the same runs as what they shift
def _profiles(
    candidates: tuple[Steps, ...], beside: tuple[Steps, ...], near: float, coarse: bool
) -> list[Profile]:
    """delta of one run and of what is beside it, in each direction: the mean of that of all
    candidates.
    """
    drawn = Counter(candidates)
    functions = [accounting.profiles((steps, *beside), near, coarse) for steps in drawn]

    def mean(direction: int) -> Profile:
        return lambda epsilons: np.average(
            [both[direction % len(both)](epsilons) for both in functions],
            axis=0,
            weights=list(drawn.values()),
        )

    return [mean(direction) for direction in range(max(map(len, functions)))]


@functools.lru_cache(maxsize=16)
def _terms(candidates: tuple[Steps, ...], runs: Runs, near: float, coarse: bool) -> list[Terms]:
    deltas = [profile(_POWERS) for profile in _profiles(candidates, (), near, coarse)]
    return [
        runs.terms(forward, backward)
        for forward, backward in zip(deltas, deltas[::-1], strict=True)
    ]


def profiles(
    candidates: tuple[Steps, ...],
    runs: Runs,
    near: float,
    coarse: bool = False,
    beside: tuple[Steps, ...] = (),
) -> list[Profile]:
    """delta of all that is published, as functions of many epsilons >= 0, one for each direction.

    :param near: the loss of one run, and of what is beside it, that decides.
    """

    def published(profile: Profile, terms: Terms) -> Profile:
        weights, shifts = terms
        # K runs tell at most E[K] times what one does
        most = 1.0 if beside else min(runs.mean * float(profile(np.zeros(1))[0]), 1.0)

        def deltas(epsilons: np.ndarray) -> np.ndarray:
            powers = epsilons[:, None] - shifts
            of_run = profile(np.maximum(powers, 0.0).ravel()).reshape(powers.shape)
            # below 0 as if all of delta(0) were certain losses: a chord in e^e
            grow = np.exp(np.minimum(powers, 0.0))
            bound = (1 - grow + grow * of_run) @ weights
            return np.minimum(bound, most)

        return deltas

    of_runs = _profiles(candidates, beside, near, coarse)
    terms = _terms(candidates, runs, near, coarse)
    return [published(*both) for both in zip(of_runs, terms, strict=True)]


def _largest_delta(directions: list[Profile], epsilon: float) -> float:
    """delta at one epsilon, the larger of all directions."""
    return max(float(profile(np.array([epsilon]))[0]) for profile in directions)


@functools.lru_cache(maxsize=1024)
def bound(
    candidates: tuple[Steps, ...],
    runs: Runs,
    delta: float,
    coarse: bool = False,
    beside: tuple[Steps, ...] = (),
) -> float:
    """``epsilon`` without checks.

    :param coarse: a little higher and faster.
    """
    near = max(
        accounting.total_epsilon((steps, *beside), delta / runs.mean, True)
        for steps in set(candidates)
    )
    if not near < LARGEST_EPSILON:
        return math.inf
    published = functools.partial(_largest_delta, profiles(candidates, runs, near, coarse, beside))
    if published(0.0) <= delta:
        return 0.0
    low, high = 0.0, 2 * near + 1e-6
    while published(high) > delta:
        low, high = high, 2 * high
        if high > LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if published(middle) > delta else (low, middle)
    return high


def epsilon(
    candidates: tuple[Steps, ...], runs: Runs, delta: float, beside: tuple[Steps, ...] = ()
) -> float:
    """Upper bound on epsilon at ``delta`` of publishing the best of K runs.

    What an implementation of one run costs in delta, because it differs from what is accounted for
    with a small probability, counts E[K] times.

    A score of records that no fit reads is another part of the run: a record is in one of the two,
    so the larger epsilon counts. That of the scores is the one of ``Steps`` with their noise alone.
    Under replace_one the side of a record must not depend on what is in it.

    >>> from workbench.privacy import selection
    >>> fit = wb.privacy.steps.Steps.checked("poisson", None, 0.1, 8.2, 1000)
    >>> round(wb.privacy.accounting.bound(fit, 1e-3), 2)
    1.0
    >>> round(selection.epsilon((fit,), selection.Runs.of_mean(20), 1e-3), 2)
    2.07

    :param candidates: the steps of each one that can be drawn, all under one relation; equal ones
        as often as they are in the list. A score of training records is a phase of these.
    :param delta: in (0, 1).
    :param beside: steps of other fits on the same records. The bound is linear in delta, so it
        composes: delta of a run is then that of the run and of these steps together.
    :raises ArgumentError: if relations differ, or ``delta`` is out of range.
    """
    delta = _validate.probability("delta", delta)
    return bound(_checked(candidates, beside), runs, delta, beside=tuple(beside))


def delta(candidates: tuple[Steps, ...], runs: Runs, epsilon: float) -> float:
    """Upper bound on delta at ``epsilon`` >= 0 of publishing the best of K runs; see
    ``epsilon``.
    """
    epsilon = _validate.number("epsilon", epsilon, at_least=0)
    return _largest_delta(profiles(_checked(candidates), runs, epsilon), epsilon)


def renyi_excess(candidates: tuple[Steps, ...], runs: Runs, order: float) -> float:
    """By how much more the best of K runs costs than one run in Rényi differential privacy of
    ``order`` > 1; see ``epsilon``.

    sum_j c_j delta(eps - log v_j) is the divergence of c_j Q from c_j / v_j Q', all j together. A
    Rényi moment is a positive mixture of such divergences over all eps, so that of S against S' is
    at most sum_j c_j v_j^(order - 1) times that of Q against Q'.
    """
    order = _validate.number("order", order, above=1)
    return max(
        float(logsumexp((order - 1) * shifts, b=weights)) / (order - 1)
        for weights, shifts in _terms(_checked(candidates), runs, 0.0, False)
    )


def _checked(candidates: tuple[Steps, ...], beside: tuple[Steps, ...] = ()) -> tuple[Steps, ...]:
    if not candidates or len({steps.relation for steps in (*candidates, *beside)}) != 1:
        raise _validate.ArgumentError(
            "candidates", candidates, "must be one or more, all under the same relation."
        )
    return tuple(candidates)
