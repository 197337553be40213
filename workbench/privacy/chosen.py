"""The guarantee of a choice: the best of a secret number of private fits, by scores with noise.

A record is read by the fits or by the scores, never by both, so the larger cost of the two counts.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _schema
from workbench._validate import ArgumentError
from workbench.privacy import rdp, selection
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.known_loss import KnownLoss, Profile
from workbench.privacy.selection import Runs
from workbench.privacy.steps import Phase, Steps

__all__ = ["BestOf", "Chosen"]

_NEAR = 1e-6  # delta around whose epsilon a composition is accurate
_UNSAMPLED = "poisson"  # at q = 1

_FORMS: dict[str, _schema.Form] = {
    "candidates": _schema.listed(_schema.listed(_schema.listed(_schema.number(above=0), 3))),
    "runs": _schema.record(
        {
            "eta": _schema.number(above=-1),
            "gamma": _schema.number(above=0, below=1),
            "most": _schema.whole(at_least=2),
        }
    ),
    "score_noise": _schema.number(at_least=0),
}


@dataclass(frozen=True)
class BestOf:
    """What a choice does to records, as accountants take it beside ``Steps``.

    :param candidates: the steps of each one that can be drawn, all under one relation.
    :param runs: the law of how often one is drawn.
    :param score: a run's release from records that no fit reads, and that of the outcome, which is
        scored once more; None where scores read no private record.
    """

    candidates: tuple[Steps, ...]
    runs: Runs
    score: Steps | None = None

    @property
    def relation(self) -> str:
        """The neighbouring relation."""
        return self.candidates[0].relation

    @property
    def _sides(self) -> list[tuple[tuple[Steps, ...], tuple[Steps, ...]]]:
        """(what a run does, what is done once beside), to a record of either kind."""
        sides: list[Any] = [(self.candidates, ())]
        return sides + ([] if self.score is None else [((self.score,), (self.score,))])

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta``."""
        return max(
            selection.bound(of_run, self.runs, delta, beside=beside)
            for of_run, beside in self._sides
        )

    def renyi_loss(self, order: int) -> float:
        """As of ``rdp.renyi_loss``."""
        return max(
            max(rdp.renyi_loss(steps, order) for steps in of_run)
            + selection.renyi_excess(of_run, self.runs, order)
            + sum(rdp.renyi_loss(steps, order) for steps in beside)
            for of_run, beside in self._sides
        )

    def loss(self, direction: str) -> KnownLoss:
        """A loss that dominates that of both kinds of records. :param direction: of
        ``SampledGaussian``.
        """
        forward, backward = self._profiles
        return _loss(self, direction == "add") if forward is not backward else _loss(self, False)

    @functools.cached_property
    def _profiles(self) -> tuple[Profile, Profile]:
        """delta in the directions "remove" and "add", or the same twice."""
        sides = []
        for of_run, beside in self._sides:
            near = selection.bound(of_run, self.runs, _NEAR, True, beside)
            sides.append(selection.profiles(of_run, self.runs, near, False, beside))

        def largest(direction: int) -> Profile:
            chosen = [side[min(direction, len(side) - 1)] for side in sides]
            return lambda epsilons: np.max([profile(epsilons) for profile in chosen], axis=0)

        remove = largest(0)
        return remove, largest(1) if max(map(len, sides)) > 1 else remove


@functools.lru_cache(maxsize=64)
def _loss(plan: BestOf, reverse: bool) -> KnownLoss:
    forward, backward = plan._profiles
    return KnownLoss.of(backward, forward) if reverse else KnownLoss.of(forward, backward)


@dataclass(frozen=True)
class Chosen(Guarantee):
    """The guarantee of the best of several private fits.

    Sampler, noise, C and steps are those of the fit that was chosen.

    :param candidates: phases of each candidate's steps.
    :param runs: the law of how often one was drawn and fitted.
    :param score_noise: standard deviation of the noise in counts that make scores, over what a
        record moves them by; 0 where scores read public records alone.
    """

    candidates: tuple[tuple[Phase, ...], ...] = ()
    runs: Runs = dataclasses.field(default_factory=lambda: Runs.of_mean(20))
    score_noise: float = 0.0

    def accounted(self, steps: int | None = None) -> Any:
        """The whole choice, whatever ``steps``: it is published as a whole or not at all."""
        return BestOf(
            tuple(Steps(self.sampler, self.relation, phases) for phases in self.candidates),
            self.runs,
            Steps(_UNSAMPLED, self.relation, (Phase(1.0, self.score_noise, 1),))
            if self.score_noise
            else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-ready values."""
        listed = [[list(phase) for phase in phases] for phases in self.candidates]
        return {**super().to_dict(), "candidates": listed}

    @classmethod
    def forms(cls) -> dict[str, _schema.Form]:
        """As of ``Guarantee``."""
        return _FORMS

    @classmethod
    def decoded(cls, values: dict[str, Any]) -> dict[str, Any]:
        """As of ``Guarantee``.

        :raises FormError: naming what no accountant takes.
        """
        try:
            runs = Runs(**values["runs"])
            law = values["sampler"], values["relation"]
            candidates = tuple(
                Steps.checked(*law, rates, noise, [int(count) for count in steps]).phases
                for rates, noise, steps in (
                    zip(*rows, strict=True) for rows in values["candidates"]
                )
            )
        except (ArgumentError, TypeError, ValueError) as error:
            raise _schema.FormError("candidates", f"must be those of a choice: {error}") from None
        if not candidates:
            raise _schema.FormError("candidates", "must be one or more.")
        return {**values, "candidates": candidates, "runs": runs}

    @property
    def expected_steps(self) -> float:
        """As of ``Guarantee``: of all fits together."""
        most = max(sum(phase.steps for phase in phases) for phases in self.candidates)
        return self.runs.mean * most

    @property
    def sampling_rates(self) -> set[float]:
        """As of ``Guarantee``: of all candidates."""
        return {phases[-1].sampling_rate for phases in self.candidates}

    def origin(self) -> list[str]:
        """As of ``Guarantee``: what one fit did, and how it was chosen."""
        number = len(self.candidates)
        scored = (
            "by scores of private records that no fit reads, whose counts have Gaussian noise of "
            f"{self.score_noise:g} times what one of them moves them by"
            if self.score_noise
            else "by scores of public records"
        )
        return [
            f"It covers a choice: a secret number of fits, {self.runs.mean:.3g} on average and at "
            f"most {self.runs.most}, each of one of {number} candidates drawn at random, "
            f"were compared {scored}. Only the best is published, and nothing of the others. What "
            "follows is about each single fit.",
            *super().origin(),
        ]
