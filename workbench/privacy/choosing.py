"""The plan of a choice: noise for all candidates, and for their scores, that keeps one promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench._numbers import upper
from workbench._validate import ArgumentError
from workbench.noise.integers import delta_cost
from workbench.privacy import selection
from workbench.privacy.accounting import round_up
from workbench.privacy.calibration import gaussian_mu, largest_kept, noise_of_candidates
from workbench.privacy.chosen import HELD_OUT, Chosen
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan
from workbench.privacy.selection import Runs
from workbench.privacy.steps import Phase, Steps

__all__ = ["ChoicePlan", "plan_choice"]

_IMPLEMENTATION_SHARE = 0.05  # of delta, for minibatches and noise of all fits, at most
_LEAST_NOISE, _MOST_NOISE = 0.2, 1e4


@dataclass(frozen=True)
class ChoicePlan:
    """The plans of all candidates, with noise that keeps one promise for the choice; made by
    ``plan_choice``.

    :param overflow_delta: as of ``Guarantee``, of all fits together.
    :param noise_delta: likewise.
    """

    plans: tuple[PrivacyPlan, ...]
    runs: Runs
    epsilon: float
    delta: float
    score_noise: float
    overflow_delta: float
    noise_delta: float

    def guarantee(self, single: Guarantee) -> Chosen:
        """The guarantee of the choice. :param single: of the fit that was chosen."""
        *caveats, _ = single.caveats  # the last is that it is one fit
        if self.score_noise:
            caveats.append(HELD_OUT)
        caveats += [
            "How long a choice takes tells how many fits there were, and so does what code of "
            "one's own that it calls notices.",
            "This is one choice. The epsilons of several on the same records add up.",
        ]
        return Chosen(
            **vars(single)
            | {
                "epsilon": self.epsilon,
                "epsilon_taken": self.epsilon,
                "delta": self.delta,
                "steps_taken": single.steps,
                "overflow_delta": self.overflow_delta,
                "noise_delta": self.noise_delta,
                "caveats": tuple(caveats),
                "candidates": tuple(plan.accounted.phases for plan in self.plans),
                "runs": self.runs,
                "score_noise": self.score_noise,
            }
        )


def plan_choice(
    plans: Sequence[PrivacyPlan],
    dimensions: Sequence[int],
    *,
    epsilon: float,
    delta: float,
    runs: Runs,
    score_draws: int = 0,
) -> ChoicePlan:
    """Calibrate the noise of all candidates, and of scores, to one promise.

    What the implementation of one fit costs in delta counts E[K] times. Draws of noise are those of
    as many fits as there can be at most.

    :param plans: of the candidates, each at about the epsilon of one run and at delta / E[K]; all
        by one sampler.
    :param dimensions: coordinates that get noise, of each.
    :param score_draws: noised numbers that a score is made of; 0 where scores read public records.
    :raises ArgumentError: naming ``epsilon``, where that would cost more than a twentieth of delta,
        or no noise keeps it.
    """
    draws = [plan.draws(size) for plan, size in zip(plans, dimensions, strict=True)]
    overflow = runs.mean * max(plan.failure_delta(epsilon) for plan in plans)
    # the scores of all runs, and one more of the outcome
    noise = delta_cost(max(runs.most * max(draws), (runs.most + 1) * score_draws), epsilon)
    if overflow + noise > _IMPLEMENTATION_SHARE * delta:
        raise ArgumentError(
            "epsilon",
            epsilon,
            "is so large that the rounding of noise and minibatches of all fits would cost "
            f"a delta of {upper(overflow + noise)}: choose a smaller epsilon or fewer runs.",
        )
    remaining, settings = delta - overflow - noise, plans[0].settings
    calibrated = noise_of_candidates(
        [plan.candidate for plan in plans],
        epsilon=epsilon,
        delta=remaining,
        runs=runs,
        sampler=settings.sampler,
        relation=settings.relation,
    )
    return ChoicePlan(
        tuple(plan.with_noise(sigma) for plan, sigma in zip(plans, calibrated, strict=True)),
        runs,
        epsilon,
        delta,
        _score_noise(epsilon, remaining, runs) if score_draws else 0.0,
        overflow,
        noise,
    )


def _score_noise(epsilon: float, delta: float, runs: Runs) -> float:
    """The smallest noise of a score that keeps ``epsilon``; the outcome is scored once more."""

    def score(sigma: float) -> tuple[Steps, ...]:
        return (Steps("poisson", "add_or_remove_one", (Phase(1.0, sigma, 1),)),)

    def bound(inverse: float, coarse: bool = False) -> float:
        release = score(1 / inverse)
        return selection.bound(release, runs, delta, coarse, release)

    guess = gaussian_mu(epsilon, delta) / 2
    root = largest_kept(bound, epsilon, 1 / _MOST_NOISE, 1 / _LEAST_NOISE, guess)
    if root is None:
        raise ArgumentError(
            "epsilon",
            epsilon,
            "is less than the bound of a choice reaches, about 0.04: choose a larger one.",
        )
    sigma = round_up(1 / root, 4)
    while bound(1 / sigma) > epsilon:
        sigma = round_up(sigma * (1 + 1e-4), 4)
    return sigma
