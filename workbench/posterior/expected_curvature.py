"""What is known of the curvature of a likelihood before any gradient shows it.

A regression's curvature is a weighted sum of squares of its design's columns. Where these are known
on average, G = E[x x'], so is which directions hardly any record speaks of: levels that few records
have, and all levels against a reference that few have. G = A D A' with ones on the diagonal of A is
its Cholesky factorisation, and H = A K A', where log K_ii is log D_i up to a common number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["ExpectedCurvature", "nothing_known", "of_moments"]

_LEAST = 1e-6  # of the largest mean square, which is added to all
_RARE = 1e-3  # of the same, below which priors curve more than records do


class ExpectedCurvature(NamedTuple):
    """H = A K A', where only the diagonal of K is expected to differ from that of other models.

    :param mixing: A, float64[d, d]; its inverse exists.
    :param logarithms: means of log K_ii, float64[d], where that of log H_ii is 0 on average.
    :param errors: their standard deviations, float64[d].
    :param is_measured: whether G was, so that K is hardly more than its diagonal.
    """

    mixing: np.ndarray
    logarithms: np.ndarray
    errors: np.ndarray
    is_measured: bool = False


def nothing_known(size: int) -> ExpectedCurvature:
    """That H is like K."""
    return ExpectedCurvature(np.eye(size), np.zeros(size), np.zeros(size))


def of_moments(
    moments: np.ndarray, order: np.ndarray, *, are_measured: bool = False
) -> ExpectedCurvature:
    """:param moments: draws of G, float64[draws, d, d], as far as it is known.
    :param order: of the factorisation, int[d]: the intercept last, so that what it is apart from
        all levels is a diagonal entry of its own.
    :param are_measured: whether they come from the records, and not from what is supposed of them.
    """
    ordered = moments[:, order[:, None], order]
    diagonal = np.einsum("sii->si", ordered)
    jitter = _LEAST * diagonal.max() * np.eye(len(order))
    squares = diagonal.mean(axis=0)
    level = np.log(np.maximum(squares, _RARE * squares.max())).mean()
    logarithms = 2 * np.log(np.einsum("sii->si", np.linalg.cholesky(ordered + jitter))) - level
    triangle = np.linalg.cholesky(ordered.mean(axis=0) + jitter)
    back = np.argsort(order)
    return ExpectedCurvature(
        (triangle / np.diag(triangle))[back[:, None], back],
        logarithms.mean(axis=0)[back],
        logarithms.std(axis=0)[back],
        are_measured,
    )
