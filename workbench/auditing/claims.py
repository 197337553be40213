"""The part "accountant": claims as fits make them, compared with lower bounds that share no code
with the accountant.
"""

from __future__ import annotations

from typing import NamedTuple

from workbench import _validate
from workbench.auditing.result import Check
from workbench.privacy import attacker, calibration
from workbench.privacy.steps import LAWS

__all__ = ["LARGE", "Claim", "applies", "check"]

# further numbers of steps that are checked, because accountants err most easily at many steps
LARGE = (10**5, 10**6)


class Claim(NamedTuple):
    """The claim that T steps with this noise are (epsilon, delta)-private."""

    sampler: str
    relation: str
    sampling_rate: float
    noise_multiplier: float
    steps: int
    epsilon: float
    delta: float

    @property
    def _plan(self) -> dict:
        return {
            name: value
            for name, value in self._asdict().items()
            if name not in ("epsilon", "delta")
        }

    def excess(self) -> float:
        """A lower bound on the plan's delta at the claimed epsilon, relative to the claimed delta:
        above 1 refutes it.
        """
        return attacker.delta_lower_bound(**self._plan, epsilon=self.epsilon) / self.delta

    def __str__(self) -> str:
        """The claim in words."""
        return (
            f"epsilon = {self.epsilon:g} at delta = {self.delta:g} for {self.steps:,} steps "
            f"({self.sampler}, q = {self.sampling_rate:g}, sigma = {self.noise_multiplier:g})"
        )


# the claim of an accountant that counted a node of its quadrature on both sides
_LENIENT = Claim("without_replacement", "replace_one", 0.1, 102.25, 10**5, 1.0, 1e-5)


def check(claim: Claim, bug: str | None = None, large: tuple[int, ...] = LARGE) -> Check:
    """Check that the claim, and those that calibration makes for many steps, are above the lower
    bounds.

    :param large: these numbers of steps.
    """
    claims, left_out = [claim], []
    for steps in large:
        wanted = {
            name: getattr(claim, name)
            for name in ("sampler", "relation", "sampling_rate", "epsilon", "delta")
        }
        try:
            sigma = calibration.noise_multiplier(**wanted, steps=steps)
        except _validate.ArgumentError:  # no noise is enough, so there is no claim
            left_out.append(f"{steps:,}")
            continue
        claims.append(claim._replace(noise_multiplier=sigma, steps=steps))
    if bug == "lenient_accountant":
        claims.append(_LENIENT)
    excesses = [candidate.excess() for candidate in claims]
    worst = float(max(excesses))
    if worst > 1:
        refuted = claims[excesses.index(worst)]
        least = attacker.epsilon_lower_bound(**refuted._plan, delta=refuted.delta)
        return Check(
            "accountant",
            False,
            f"{refuted} is refuted: it is at least {least:.4g}.",
            worst,
        )
    counts = ", ".join(f"{candidate.steps:,}" for candidate in claims)
    note = f" (no noise is enough for {', '.join(left_out)} steps)" if left_out else ""
    return Check(
        "accountant",
        True,
        f"at {counts} steps, no lower bound on delta is above the promised one{note}.",
        worst,
    )


def applies(sampler: str, relation: str) -> bool:
    """Whether there is an accountant for the sampler and relation, and so something to check."""
    return sampler in LAWS and relation in LAWS[sampler].relations
