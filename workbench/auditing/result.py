"""Results of audits, in numbers and in words."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["PARTS", "AuditResult", "Check"]

PARTS = ("attack", "sensitivity", "accountant")


@dataclass(frozen=True)
class Check:
    """The result of one deterministic part.

    :param part: its name in ``PARTS``.
    :param passed: whether it found no violation.
    :param finding: what it found, in one sentence.
    :param worst: the largest ratio of what was found to what is allowed; None where there is no
        such number.
    """

    part: str
    passed: bool
    finding: str
    worst: float | None = None


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    :param model: its name.
    :param data: name of the data whose records were used besides the canaries.
    :param claimed_epsilon: what the guarantee promises.
    :param delta: of the claim and of the lower bound.
    :param relation: of the claim.
    :param sampler: its name.
    :param sampling_rate: q.
    :param noise_multiplier: sigma.
    :param iterations: T.
    :param mode: "many_runs" or "one_run".
    :param canaries: number of canaries in a run.
    :param trials: number of runs on each side; 1 in the mode "one_run", 0 without the part
        "attack".
    :param lower_bound: on epsilon; it holds with ``confidence``.
    :param confidence: of the lower bound.
    :param score: the score that gave the lower bound.
    :param evidence: the counts behind the lower bound, in words.
    :param bug: the planted bug, or None.
    :param checks: results of the other parts.
    """

    model: str
    data: str
    claimed_epsilon: float
    delta: float
    relation: str
    sampler: str
    sampling_rate: float
    noise_multiplier: float
    iterations: int
    mode: str
    canaries: int
    trials: int
    lower_bound: float
    confidence: float
    score: str
    evidence: str
    bug: str | None
    checks: tuple[Check, ...] = ()

    def __post_init__(self) -> None:
        # JSON returns them as dicts
        checks = tuple(
            Check(**check) if isinstance(check, dict) else check for check in self.checks
        )
        object.__setattr__(self, "checks", checks)

    @property
    def passed(self) -> bool:
        """Whether the lower bound is not above the claim and every other part passed."""
        return self.lower_bound <= self.claimed_epsilon and all(
            check.passed for check in self.checks
        )

    def statement(self) -> str:
        """The result in plain words."""
        planted = f" The bug {self.bug!r} was planted." if self.bug else ""
        sentences = (
            [self._of_the_attack(planted)]
            if self.trials
            else [f"{self.model} was not attacked.{planted}"]
        )
        sentences += [
            f"{check.part}, {'passed' if check.passed else 'FAILED'}: {check.finding}"
            for check in self.checks
        ]
        return "\n".join(sentences)

    def _of_the_attack(self, planted: str) -> str:
        runs = (
            f"{self.trials} runs with and {self.trials} without one canary"
            if self.mode == "many_runs"
            else f"One run with {self.canaries} canaries, each in or out by a coin flip,"
        )
        finding = (
            f"The audit found no violation of epsilon = {self.claimed_epsilon:g}. This proves "
            "nothing: other records or a better attack may leak more, and some bugs are out of "
            "this attack's reach."
            if self.lower_bound <= self.claimed_epsilon
            else f"The claim is refuted: epsilon = {self.claimed_epsilon:g} at delta = "
            f"{self.delta:g} does not hold."
        )
        return (
            f"{runs} of {self.model} ({self.iterations} steps, sampler {self.sampler}, relation "
            f"{self.relation}).{planted} With {self.confidence:.4g} confidence, epsilon is at "
            f"least {self.lower_bound:.3g} at delta = {self.delta:g} ({self.score}: "
            f"{self.evidence}). {finding}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, with ``passed`` and ``statement``, for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed, "statement": self.statement()}
