"""What an audit found, in numbers and in words."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

__all__ = ["PARTS", "AuditResult", "Check"]

PARTS = ("attack", "paths", "sensitivity", "arrays", "accountant", "resume")


@dataclass(frozen=True)
class Check:
    """What one deterministic part found.

    :param part: its name in ``PARTS``. :param passed: whether nothing was found. :param finding: in one sentence.
    :param worst: the largest ratio of what was found to what is allowed, where there is such a number.
    """

    part: str
    passed: bool
    finding: str
    worst: float | None = None


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    :param model: its name. :param data: whose records stood beside the canaries.
    :param claimed_epsilon: what the guarantee promises. :param delta: for both bounds. :param relation: of the promise.
    :param sampler: its name. :param sampling_rate: q. :param noise_multiplier: sigma. :param iterations: T.
    :param mode: "many_runs" or "one_run". :param canaries: how many in a run. :param trials: runs with and as many
        without the canary; 1 in the mode "one_run", 0 where the part "attack" was left out.
    :param lower_bound: on epsilon, holds with ``confidence``. :param score: what gave it. :param evidence: counts, in words.
    :param bug: the planted bug, or None. :param checks: what the other parts found.
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
        # as JSON gives them back
        checks = tuple(Check(**check) if isinstance(check, dict) else check for check in self.checks)
        object.__setattr__(self, "checks", checks)

    @property
    def passed(self) -> bool:
        """Whether the lower bound stays under the claim and no other part found anything."""
        return self.lower_bound <= self.claimed_epsilon and all(check.passed for check in self.checks)

    def statement(self) -> str:
        """The result in plain words."""
        planted = f" The bug {self.bug!r} was planted." if self.bug else ""
        sentences = [self._of_the_attack(planted)] if self.trials else [f"{self.model} was not attacked.{planted}"]
        sentences += [f"{check.part}, {'passed' if check.passed else 'FAILED'}: {check.finding}" for check in self.checks]
        return "\n".join(sentences)

    def _of_the_attack(self, planted: str) -> str:
        runs = (
            f"{self.trials} runs with and {self.trials} without one canary"
            if self.mode == "many_runs"
            else f"One run with {self.canaries} canaries, each in or out by a coin,"
        )
        finding = (
            f"The claim stands: epsilon = {self.claimed_epsilon:g} is not refuted. That proves nothing: other records or a "
            "better attack may leak more, and a bug that this attack does not touch stays unseen."
            if self.lower_bound <= self.claimed_epsilon
            else f"The claim is refuted: epsilon = {self.claimed_epsilon:g} at delta = {self.delta:g} does not hold."
        )
        return (
            f"{runs} of {self.model} ({self.iterations} steps, sampler {self.sampler}, relation {self.relation}).{planted} "
            f"With {self.confidence:.4g} confidence epsilon is at least {self.lower_bound:.3g} at delta = {self.delta:g} "
            f"({self.score}: {self.evidence}). {finding}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, with ``passed`` and ``statement``, for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed, "statement": self.statement()}
