"""A second opinion on an epsilon that is to be promised, by code that shares nothing with what
computed it.

Steps that are sampled by Poisson, and steps that are Gaussian mechanisms, are accounted again by
the package dp-accounting, which is of other authors. Its epsilon is an upper bound, but for errors
of rounding. For other samplers it has no bound. There the second opinion is a lower bound, from an
attack that is computed exactly (``attacker``), and for random allocation also from a smaller law of
the privacy loss (``lower_pld``). It cannot say that a promise is kept, but it finds one that is
broken by more than the distance between the two.

Plans for which it would take long, or outside of what the other accountant can resolve, get no
second opinion.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from workbench._numbers import upper
from workbench.privacy import attacker, lower_pld
from workbench.privacy.steps import Steps

__all__ = ["DisagreementError", "SecondOpinion", "confirm", "second_opinion"]

_ROUNDING = 0.002  # relative, of an epsilon by dp-accounting
_MOST_STEPS, _LEAST_DELTA = 10**5, 1e-12  # of an attack
_EPSILONS = (0.01, 30.0)


class DisagreementError(RuntimeError):
    """Two accountants disagree about a plan by more than rounding, so nothing is promised and
    nothing runs.
    """


@dataclass(frozen=True)
class SecondOpinion:
    """What another computation says of the epsilon of a plan.

    :param epsilon: at the plan's delta.
    :param source: "dp-accounting" or "lower bound".
    """

    epsilon: float
    source: str

    def words(self) -> str:
        """As the end of a sentence about a promise."""
        if self.source == "lower bound":
            return f"no epsilon below {self.epsilon:.4g} holds, by an independent lower bound"
        return f"confirmed by {self.source}: {upper(self.epsilon)}"


@functools.lru_cache(maxsize=256)
def second_opinion(plan: Steps, delta: float) -> SecondOpinion | None:
    """Another computation of epsilon after the steps of ``plan``, one phase and maybe a look before
    it; None where none is made.

    It takes a tenth of a second, and seconds where the sampling rate is tiny.
    """
    *before, phase = plan.phases or (None,)
    if phase is None or (before and (len(before) > 1 or before[0].sampling_rate < 1)):
        return None
    gaussian = plan.law.participation == "known step" or phase.sampling_rate == 1
    if gaussian or plan.law.participation == "coin":
        # imported here because it takes a second
        from workbench.privacy import check_epsilon

        uses = [
            (use.sampling_rate, use.noise_multiplier / plan.sensitivity, use.steps)
            for use in plan.uses_of_a_record
        ]
        epsilon = check_epsilon.epsilon_of(
            [(1.0, *use[1:]) for use in uses] if gaussian else uses, delta
        )
        return None if epsilon is None else SecondOpinion(epsilon, "dp-accounting")
    if phase.steps > _MOST_STEPS or delta < _LEAST_DELTA:
        return None
    # of the sampled steps alone: a look before them only adds to it
    lowest = attacker.epsilon_lower_bound(
        sampler=plan.sampler,
        relation=plan.relation,
        sampling_rate=phase.sampling_rate,
        noise_multiplier=phase.noise_multiplier,
        steps=phase.steps,
        delta=delta,
    )
    if plan.law.participation == "random step":
        alone = Steps(plan.sampler, plan.relation, (phase,))
        lowest = max(lowest, lower_pld.allocation_epsilon(alone, delta))
    return SecondOpinion(lowest, "lower bound")


def confirm(plan: Steps, delta: float, epsilon: float) -> SecondOpinion | None:
    """The second opinion on the promise that ``plan`` keeps ``epsilon`` at ``delta``; None where
    there is none.

    :raises DisagreementError: if it is larger by more than rounding.
    """
    if not _EPSILONS[0] <= epsilon <= _EPSILONS[1]:
        return None
    opinion = second_opinion(plan, delta)
    if opinion is None:
        return None
    rounding = 0.0 if opinion.source == "lower bound" else _ROUNDING
    if opinion.epsilon > epsilon * (1 + rounding):
        raise DisagreementError(
            f"epsilon = {upper(epsilon)} is not promised: by {opinion.source} it is "
            f"{opinion.epsilon:.6g} at delta = {delta:g} for {plan}. Please report this; nothing "
            "was run."
        )
    return opinion
