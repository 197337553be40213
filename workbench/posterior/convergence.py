"""Convergence: whether a run had arrived when it ended, from its release alone.

Where a run has arrived, its gradients pull the released point u to and fro, and their mean is 0 up
to noise. Where it is still moving, they pull one way. So the test is that of a mean. Each step's
gradient of the parameters, which has prior and entropy in it, is turned into the direction v in
which it moves u. The mean of v over the steps whose iterates are averaged is divided by its
standard error, which the spread of v gives: it holds the noise for privacy, of minibatches and of
the guide.

A run that has arrived corrects what noise did to it. So its mean is nearer to 0 than the error
says, and false alarms are rarer than ``FALSE_ALARMS``. Where noise hides the way, as it may at a
small epsilon, the test says nothing. It is post-processing: the guarantee covers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from workbench.inference.running_moments import Moments

__all__ = ["FALSE_ALARMS", "FEWEST_STEPS", "Convergence", "convergence_of"]

FALSE_ALARMS = 1e-3
"""The most false alarms, as a share of runs, if gradients were independent."""

FEWEST_STEPS = 20
"""Averaged steps below which the test cannot tell: few steps show neither a mean nor its error."""


class Convergence(NamedTuple):
    """Whether a run had arrived where it was going, by the mean of its last directions.

    >>> still = wb.posterior.Convergence(
    ...     steps=1000, score=5.8, site="intercept", threshold=3.9
    ... )
    >>> still.words.split(":")[0]
    'The fit was still moving when it ended'

    :param steps: that were averaged, T / 2 in a run that ended.
    :param score: the largest mean of an entry of v, in its standard errors; 0 of fewer than two
        steps.
    :param site: of u, in which that entry is.
    :param threshold: score from which the fit is taken to be moving still.
    """

    steps: int
    score: float
    site: str
    threshold: float

    @property
    def verdict(self) -> str:
        """``words``, or that there is no sign of a way to go, in a sentence."""
        return self.words or (
            "No sign that the fit was still moving: its mean gradient is at most "
            f"{self.score:.1f} standard errors from 0 (a sign: {self.threshold:.1f})."
        )

    @property
    def words(self) -> str:
        """What is wrong and what to do about it; "" where nothing is."""
        if self.steps < FEWEST_STEPS:
            return (
                f"Only {self.steps} steps show whether the fit had arrived, which is too few to "
                "tell: estimates and intervals may be far off. Give more steps; the default has "
                "hundreds."
            )
        if self.score <= self.threshold:
            return ""
        return (
            f"The fit was still moving when it ended: its mean gradient is {self.score:.0f} "
            "standard "
            f'errors from 0 (in "{self.site}"). Estimates and intervals may be far off. Give more '
            "steps, or another learning rate."
        )


def convergence_of(moments: Moments | None, sizes: Mapping[str, int]) -> Convergence | None:
    """The test of a run with these moments; None where it kept no directions, or was stopped before
    it did.

    >>> flat = np.concatenate([[100.0], [50.0, 0.0], [100.0, 100.0]]).astype(np.float32)
    >>> moments = wb.inference.running_moments.empty(2)._replace(pull=flat)
    >>> found = wb.posterior.convergence_of(moments, {"intercept": 1, "weights": 1})
    >>> round(found.score, 1), found.site
    (5.8, 'intercept')

    :param sizes: of the sites of u, in their order.
    """
    if moments is None or moments.pull is None or not np.asarray(moments.pull)[0]:
        return None
    steps, *sums = np.asarray(moments.pull, float)
    means, squares = np.reshape(sums, (2, -1)) / steps
    threshold = -float(stdtrit(max(steps - 1, 1.0), FALSE_ALARMS / (2 * len(means))))
    sites = [name for name, size in sizes.items() for _ in range(size)]
    if steps < 2:
        return Convergence(int(steps), 0.0, sites[0], threshold)
    # float32 sums leave nothing smaller of a variance; an entry without a gradient has a score of 0
    variances = np.maximum(squares - means**2, 1e-6 * squares)
    scores = np.abs(means) * np.sqrt(steps / np.where(variances > 0, variances, np.inf))
    scores = np.nan_to_num(scores, nan=np.inf)
    worst = int(np.argmax(scores))
    return Convergence(int(steps), float(scores[worst]), sites[worst], threshold)
