"""Combining the answers of the same analysis of several twins into one.

Set j is drawn at one draw theta_j of a posterior with variance V, and the analyst's estimate q_j
has the variance u of its sampling besides, so the q_j have the variance B = V + u around the
posterior's mean, which is where their own mean is, up to B / m. The answer's variance is therefore

    T = V + B / m = (1 + 1 / m) B - u,

the rule of Raghunathan, Reiter and Rubin 2003 for fully synthetic data. It holds for sets of any
size, because nothing in it relates u to the private records. The rule T = u + B / m (Reiter 2003)
takes u for V, which privacy noise makes false: with sets of N rows and a posterior of four times
the sampling variance, its 95 % intervals hold the truth in .69 of cases.

B is not known, but estimated from m sets. With a flat prior, (m - 1) b / B is chi-squared, cut off
where B would be less than u; so the answer is a mixture of normals over B, and T is never negative.

The other rule, of Räisä, Jälkö and Honkela 2025, mixes the sets' posteriors Normal(q_j, u_j). It
has the posterior's shape, needs many sets, and is as much too wide as u / V.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from workbench import _validate
from workbench._lazy import pd
from workbench._numbers import shown

__all__ = ["CombineWarning", "combine"]

RULES = ("variance", "mixture")
_FEWEST = 2
_NODES = 2000  # of the distribution of B
_WIDER = 1.15  # than with many large sets, from which on it is worth a warning
_MIXED = 30  # sets, of which fewer show no tails
_HALVINGS = 80


class CombineWarning(UserWarning):
    """Few or small sets: intervals are wider than they had to be, or too narrow."""


class _Answers(NamedTuple):
    """Of the sets. :param estimates: float[m, d]. :param variances: float[m, d]."""

    names: list[Any]
    estimates: np.ndarray
    variances: np.ndarray


def combine(
    estimates: Sequence[Any] | np.ndarray,
    covariances: Sequence[ArrayLike] | np.ndarray | None = None,
    *,
    interval: float = 0.95,
    rule: Literal["variance", "mixture"] = "variance",
) -> pd.DataFrame:
    """One answer from those of the same analysis of each of several twins (``FitResult.twins``).

    The intervals count what the data leave open and the privacy noise, as the posterior from which
    the twins were drawn does. Twins of a posterior that does not count the noise give intervals
    that do not either. Nothing private is used.

    >>> wb.combine([[0.9], [1.3], [1.0], [1.2]] * 10, [[[0.01]]] * 40)["estimate"].round(
    ...     2
    ... ).tolist()
    [1.1]

    :param estimates: of each set: results of statsmodels, or anything with ``params`` and
        ``cov_params()``; or arrays or Series of d estimates.
    :param covariances: of each set's estimates, d x d, which the analysis itself reports; None for
        results that have them.
    :param interval: probability of the intervals, in (0, 1).
    :param rule: "variance" is right for sets of any size; intervals are symmetric. "mixture" has
        the posterior's shape, for at least 30 sets with ten times as many rows as the private table
        or more.
    :return: a row for each estimate, with its standard error ("se") and the ends of its interval.
    :raises ArgumentError: naming ``estimates`` or ``covariances`` and the set.
    """
    answers = _answers(estimates, covariances)
    tail = 0.5 + _validate.probability("interval", interval) / 2
    chosen = _validate.choice("rule", rule, RULES)
    means, variances = (
        _of_variance(answers) if chosen == "variance" else (answers.estimates, answers.variances)
    )
    center = answers.estimates.mean(axis=0)
    low, high = (_quantile(means, variances, level) for level in (1 - tail, tail))
    se = np.sqrt(
        np.median(variances, axis=0)
        if chosen == "variance"
        else variances.mean(axis=0) + means.var(axis=0)
    )
    _warn(answers, chosen, (high - low) / 2, tail)
    words = [f"{100 * interval:g}%_{end}" for end in ("low", "high")]
    table = [center, se, low, high]
    return pd.DataFrame(
        np.stack(table, axis=1), index=answers.names, columns=["estimate", "se", *words]
    )


def _of_variance(answers: _Answers) -> tuple[np.ndarray, np.ndarray]:
    """Means, float[1, d], and variances, float[nodes, d], of the normals over B."""
    count = len(answers.estimates)
    freedom, within = count - 1, answers.variances.mean(axis=0)
    squares = np.square(answers.estimates - answers.estimates.mean(axis=0)).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.where(within > 0, squares / within, np.inf)
        levels = (np.arange(_NODES)[:, None] + 0.5) / _NODES
        quantiles = 2 * special.gammaincinv(
            freedom / 2, levels * special.gammainc(freedom / 2, most / 2)
        )
        between = np.where(quantiles > 0, squares / quantiles, within)
    between = np.maximum(between, within)
    return answers.estimates.mean(axis=0)[None], (1 + 1 / count) * between - within


def _quantile(means: np.ndarray, variances: np.ndarray, level: float) -> np.ndarray:
    """Of mixtures of normals, float[d]. :param means: float[k, d]. :param variances: float[k, d].

    Found by halving an interval that must have it.
    """
    deviations = np.sqrt(variances)
    z = special.ndtri(level)
    ends = means + z * deviations
    low, high = ends.min(axis=0), ends.max(axis=0)
    safe = np.where(deviations > 0, deviations, np.finfo(float).tiny)
    for _ in range(_HALVINGS):
        middle = low / 2 + high / 2
        with np.errstate(over="ignore"):
            below = special.ndtr((middle - means) / safe).mean(axis=0) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low / 2 + high / 2


def _warn(answers: _Answers, rule: str, reach: np.ndarray, tail: float) -> None:
    """Says whether there were too few sets, or too few rows in them."""
    count = len(answers.estimates)
    if rule == "mixture":
        if count < _MIXED:
            warnings.warn(
                f"The mixture of {count} sets is too narrow: it takes at least {_MIXED} sets. Use "
                'rule="variance", or draw more sets.',
                CombineWarning,
                stacklevel=3,
            )
        return
    between = answers.estimates.var(axis=0, ddof=1)
    posterior = between - answers.variances.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = reach / (special.ndtri(tail) * np.sqrt(np.maximum(posterior, 0)))
    worst = float(np.max(np.where(reach > 0, ratios, 1.0)))
    if worst <= _WIDER:
        return
    much = (
        f"about {100 * (worst - 1):.0f} % wider than"
        if worst < 3
        else f"{shown(worst)} times as wide as"
        if math.isfinite(worst)
        else "far wider than"
    )
    warnings.warn(
        f"{count} sets of this size are few: the widest interval is {much} with many large sets. "
        "It is valid. Draw more sets, or sets of more rows, for a narrower one.",
        CombineWarning,
        stacklevel=3,
    )


# ---- the analyst's answers -----------------------------------------------------------------------


def _answers(
    estimates: Sequence[Any] | np.ndarray,
    covariances: Sequence[ArrayLike] | np.ndarray | None,
) -> _Answers:
    if isinstance(estimates, (str, bytes, dict)) or not isinstance(
        estimates, (Sequence, np.ndarray)
    ):
        raise _validate.ArgumentError(
            "estimates",
            type(estimates).__name__,
            "must be a list with the result, or the estimates, of each set.",
        )
    if len(estimates) < _FEWEST:
        raise _validate.ArgumentError(
            "estimates",
            len(estimates),
            "is the number of sets, of which it takes at least 2.",
            remedy="Analyse each set of result.twins(sets=30), and combine all answers.",
        )
    if covariances is None:
        for index, entry in enumerate(estimates):
            if not (hasattr(entry, "params") and callable(getattr(entry, "cov_params", None))):
                raise _validate.ArgumentError(
                    f"estimates[{index}]",
                    type(entry).__name__,
                    "has no params and cov_params(): give covariances= for estimates that are "
                    "arrays.",
                )
        covariances = [entry.cov_params() for entry in estimates]
        estimates = [entry.params for entry in estimates]
    elif len(covariances) != len(estimates):
        raise _validate.ArgumentError(
            "covariances",
            len(covariances),
            f"is the number of covariances, and there are estimates of {len(estimates)} sets.",
        )
    names = _names(list(estimates))
    width = len(names)
    values = _stacked("estimates", list(estimates), (width,), np.atleast_1d)
    matrices = _stacked("covariances", list(covariances), (width, width), np.atleast_2d)
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    negative = np.flatnonzero((variances < 0).any(axis=1))
    if len(negative):
        raise _validate.ArgumentError(
            f"covariances[{negative[0]}]", matrices[negative[0]], "has a variance below 0."
        )
    return _Answers(names, values, variances)


def _names(estimates: Sequence[Any]) -> list[Any]:
    """Names of the estimates, which all sets have alike; numbers where there are none."""
    labels = [
        list(entry.index) if isinstance(entry, pd.Series) else list(range(np.size(entry)))
        for entry in estimates
    ]
    for index, names in enumerate(labels):
        if names != labels[0]:
            differing = sorted(map(str, set(names) ^ set(labels[0])))
            raise _validate.ArgumentError(
                f"estimates[{index}]",
                len(names),
                f"are other estimates than those of the first set ({', '.join(differing[:5])}): a "
                "level may be missing in a set.",
                remedy="Declare all levels in the analysis, or draw sets of more rows.",
            )
    if not labels[0]:
        raise _validate.ArgumentError("estimates", 0, "has no estimate in a set.")
    return labels[0]


def _stacked(
    argument: str,
    entries: Sequence[Any],
    shape: tuple[int, ...],
    shaped: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """The arrays of all sets, float[m, ...]. :param shaped: makes arrays of numbers."""
    arrays = []
    for index, entry in enumerate(entries):
        try:
            array = shaped(np.asarray(entry, float))
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != shape:
            size = " x ".join(map(str, shape))
            raise _validate.ArgumentError(
                f"{argument}[{index}]", np.asarray(entry), f"must be {size} numbers."
            )
        if not np.all(np.isfinite(array)):
            raise _validate.ArgumentError(
                f"{argument}[{index}]",
                array,
                "has numbers that are not finite: the analysis of this set failed.",
                remedy="Do not leave the set out, which would bias the answer; analyse sets of "
                "more rows, or fewer terms.",
            )
        arrays.append(array)
    return np.stack(arrays)
