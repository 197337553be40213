"""Lower bounds on epsilon from the scores of an attack.

A guarantee is an upper bound on what leaks. An attack that distinguishes two neighbouring data sets
better than (epsilon, delta) allows refutes it. Both bounds here hold with the stated confidence for
any scores, so a weak attack gives a small bound and never a wrong one. This module does only the
statistics; ``workbench.auditing`` makes the scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta, binom

from workbench import _validate

__all__ = [
    "LowerBound",
    "epsilon_lower_bound",
    "one_run_epsilon_lower_bound",
    "one_run_p_value",
    "usual_guesses",
]

_THRESHOLDS = 120  # tried from each end of the scores
# The event is chosen by a bound whose failure probability is divided by this. Otherwise events with
# few counts win, which fresh trials may not repeat. With 1000 to 10,000 trials of a Gaussian
# mechanism, the lowest bounds of many audits rise by a tenth or more.
_CAUTION = 100
_SHARES = (1 / 2, 1 / 8, 1 / 32)  # of the canaries that are guessed


class LowerBound(NamedTuple):
    """A lower bound on epsilon, with its evidence.

    :param epsilon: the bound, >= 0.
    :param score: column of the score that gave it.
    :param evidence: the counts behind it, in words.
    """

    epsilon: float
    score: int
    evidence: str


class _Test(NamedTuple):
    """A test that says "in" for scores of at least ``threshold``. Its evidence is "in" if
    ``presence``, else "out".
    """

    score: int
    threshold: float
    presence: bool


def _columns(name: str, scores: ArrayLike, smallest: int) -> np.ndarray:
    """``scores`` as float64[trials, scores per trial]."""
    columns = np.asarray(scores, np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or len(columns) < smallest or columns.shape[1] < 1:
        expectation = f"must have at least {smallest} rows, with one or more scores in each."
        raise _validate.ArgumentError(name, np.shape(scores), expectation)
    if np.isnan(columns).any():
        raise _validate.ArgumentError(
            name, math.nan, "must not contain NaN: choose a score for failed runs."
        )
    return columns


def _delta(delta: float) -> float:
    return _validate.number("delta", delta, at_least=0, below=1)


def _log_ratio(
    likely: ArrayLike,
    of_likely: int,
    unlikely: ArrayLike,
    of_unlikely: int,
    delta: float,
    confidence: float,
) -> Any:
    """max(0, log((p - delta) / r)), with one-sided Clopper-Pearson bounds on p (from below) and r
    (from above).

    p and r are the probabilities of an event on the two sides. Each bound fails with probability (1
    - confidence) / 2. The counts may be arrays.
    """
    allowed = (1 - confidence) / 2
    likely, unlikely = np.asarray(likely), np.asarray(unlikely)
    at_least = np.where(
        likely > 0, beta.ppf(allowed, np.maximum(likely, 1), of_likely - likely + 1), 0.0
    )
    at_most = np.where(
        unlikely < of_unlikely,
        beta.isf(allowed, unlikely + 1, np.maximum(of_unlikely - unlikely, 1)),
        1.0,
    )
    return np.log(np.maximum((at_least - delta) / at_most, 1.0))


def _counts(test: _Test, inside: np.ndarray, outside: np.ndarray) -> tuple[int, int, int, int]:
    """Counts of events and trials: on the side where the test's evidence is right, then on the
    other side.
    """
    said_in = [int(np.sum(side[:, test.score] >= test.threshold)) for side in (inside, outside)]
    if test.presence:
        return said_in[0], len(inside), said_in[1], len(outside)
    return len(outside) - said_in[1], len(outside), len(inside) - said_in[0], len(inside)


def _best_test(inside: np.ndarray, outside: np.ndarray, delta: float, confidence: float) -> _Test:
    """The test with the largest bound on these trials, among all scores, both directions and a grid
    of thresholds.
    """
    best, choice = -1.0, _Test(0, math.inf, True)
    for score in range(inside.shape[1]):
        pooled = np.unique(np.concatenate([inside[:, score], outside[:, score]]))
        # dense at both ends, where a single false alarm matters
        ranks = np.geomspace(1, len(pooled), _THRESHOLDS).astype(int) - 1
        thresholds = pooled[np.union1d(ranks, len(pooled) - 1 - ranks)]
        said_in = [
            len(side) - np.searchsorted(np.sort(side[:, score]), thresholds, side="left")
            for side in (inside, outside)
        ]
        presence = _log_ratio(said_in[0], len(inside), said_in[1], len(outside), delta, confidence)
        absence = _log_ratio(
            len(outside) - said_in[1],
            len(outside),
            len(inside) - said_in[0],
            len(inside),
            delta,
            confidence,
        )
        for is_presence, bounds in ((True, presence), (False, absence)):
            index = int(np.argmax(bounds))
            if bounds[index] > best:
                best, choice = (
                    float(bounds[index]),
                    _Test(score, float(thresholds[index]), is_presence),
                )
    return choice


def epsilon_lower_bound(
    scores_in: ArrayLike, scores_out: ArrayLike, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A lower bound on a mechanism's epsilon from many independent runs, which holds with the given
    confidence.

    (epsilon, delta) bounds every event E for both neighbouring data sets, so ``P(E | in) <=
    e^epsilon P(E | out) + delta`` for E = "score >= t" and ``P(E | out) <= e^epsilon P(E | in) +
    delta`` for E = "score < t". Every second trial (0, 2, ...) helps to choose one event: a score,
    a threshold and a direction. Only the other trials are counted. They had no part in the choice,
    so the chosen event needs no correction for the many that were tried. Its two probabilities get
    one-sided Clopper-Pearson bounds, which fail with half of 1 - confidence each.

    :param scores_in: scores of the runs with the canary, float[R] or float[R, K] for K scores per
        run, R >= 4. High scores must indicate the canary; scores that fall with its presence prove
        nothing.
    :param scores_out: scores of the runs without it, float[R'] or float[R', K].
    :param delta: in [0, 1).
    :param confidence: in (0, 1).
    :return: at least 0. The largest value that R runs can prove is about log(R / 8) at 95 %.
    :raises ArgumentError: naming the argument.
    """
    delta, confidence = _delta(delta), _validate.probability("confidence", confidence)
    inside, outside = _columns("scores_in", scores_in, 4), _columns("scores_out", scores_out, 4)
    if inside.shape[1] != outside.shape[1]:
        raise _validate.ArgumentError(
            "scores_out",
            outside.shape,
            f"must have {inside.shape[1]} scores per run, like scores_in.",
        )
    test = _best_test(inside[::2], outside[::2], delta, 1 - (1 - confidence) / _CAUTION)
    counts = _counts(test, inside[1::2], outside[1::2])
    sides = ("with", "without") if test.presence else ("without", "with")
    evidence = (
        f"{'at least' if test.presence else 'less than'} {test.threshold:.4g} in {counts[0]} of "
        f"{counts[1]} runs {sides[0]} the canary and in {counts[2]} of {counts[3]} {sides[1]}"
    )
    return LowerBound(float(_log_ratio(*counts, delta, confidence)), test.score, evidence)


def one_run_p_value(
    canaries: int, guesses: int, correct: int, epsilon: float, delta: float
) -> float:
    """Upper bound on the probability of at least this many correct guesses in one run with many
    canaries.

    Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846, theorem 5.2 and corollary 5.4). Each of m
    canaries is in or out by its own fair coin. The attacker sees the output and guesses r of the
    coins. Under pure epsilon, each guess is right with probability at most p = e^epsilon / (1 +
    e^epsilon) whatever the coins before it, so the number of right guesses is stochastically below
    B ~ Binomial(r, p). Under (epsilon, delta), a random number F of further guesses may be right,
    with E[F] <= 2 m delta. The worst F puts its mass on one value i, which gives P(B >= v) + 2 m
    delta max_i P(v > B >= v - i) / i.

    :param canaries: m.
    :param guesses: r <= m, fixed in advance.
    :param correct: v <= r.
    :param epsilon: the claim.
    :param delta: of the claim.
    """
    accuracy = 1 / (1 + math.exp(-epsilon))
    # P(v > B >= v - i) for i = 1 .. v
    missing = np.cumsum(binom.pmf(np.arange(correct - 1, -1, -1), guesses, accuracy))
    most = float(np.max(missing / np.arange(1, correct + 1), initial=0.0))
    return min(1.0, float(binom.sf(correct - 1, guesses, accuracy)) + 2 * canaries * delta * most)


def _smallest_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, allowed: float
) -> float:
    """The largest epsilon that is refuted with a p-value of at most ``allowed``, or 0. The p-value
    grows with epsilon.
    """

    def refuted(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) <= allowed

    low, high = 0.0, 1.0
    if not refuted(low):
        return 0.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def usual_guesses(canaries: int) -> tuple[tuple[int, int], ...]:
    """Default numbers (k_in, k_out) of canaries that are guessed in and out, for m canaries.

    They are a half, an eighth and a 32nd of m, either all "in" or half of each. Few guesses suit a
    large epsilon and many a small one. A subsampled step says little about a canary that it left
    out, so guesses of "out" are often worse.
    """
    pairs = []
    for fraction in _SHARES:
        count = max(1, round(fraction * canaries))
        pairs += [(count, 0), (count - count // 2, count // 2)]
    return tuple(dict.fromkeys(pairs))


def one_run_epsilon_lower_bound(
    scores: ArrayLike,
    included: ArrayLike,
    delta: float,
    confidence: float = 0.95,
    guesses: Sequence[tuple[int, int]] | None = None,
) -> LowerBound:
    """A lower bound on epsilon from a single run with m canaries, each in or out by an independent
    fair coin.

    The k_in canaries with the highest scores are guessed "in" and the k_out with the lowest "out"
    (see ``one_run_p_value``). Each pair (k_in, k_out) with each score is a separate test, and 1 -
    confidence is divided among them (Bonferroni).

    :param scores: of the canaries, from the output of the run, float[m] or float[m, K]; ties are
        broken by position.
    :param included: the coins, bool[m].
    :param delta: in [0, 1). The bound says nothing unless 2 m delta is small.
    :param confidence: in (0, 1).
    :param guesses: pairs chosen before the scores were seen; ``usual_guesses(m)`` by default.
    :return: at least 0. m canaries prove at most about log(m / 10) at 95 %.
    :raises ArgumentError: naming the argument.
    """
    delta, confidence = _delta(delta), _validate.probability("confidence", confidence)
    columns, coins = _columns("scores", scores, 2), np.asarray(included)
    if coins.shape != (len(columns),) or coins.dtype != bool:
        raise _validate.ArgumentError(
            "included", coins.shape, f"must be one bool for each of {len(columns)} canaries."
        )
    size = len(columns)
    pairs = usual_guesses(size) if guesses is None else tuple(guesses)
    for pair in pairs:
        if min(pair) < 0 or not 1 <= sum(pair) <= size:
            raise _validate.ArgumentError(
                "guesses", pair, f"must be two counts with a sum of 1 to {size}."
            )
    allowed = (1 - confidence) / (len(pairs) * columns.shape[1])
    best = LowerBound(0.0, 0, "no more right guesses than chance explains")
    for score in range(columns.shape[1]):
        order = np.argsort(-columns[:, score], kind="stable")
        for said_in, said_out in pairs:
            right_in = int(np.sum(coins[order[:said_in]]))
            right_out = int(np.sum(~coins[order[size - said_out :]]))
            epsilon = _smallest_epsilon(
                size, said_in + said_out, right_in + right_out, delta, allowed
            )
            if epsilon > best.epsilon:
                evidence = (
                    f"{right_in} of {said_in} guesses that a canary is in and {right_out} of "
                    f"{said_out} that it is out are right, of {size} canaries"
                )
                best = LowerBound(epsilon, score, evidence)
    return best
