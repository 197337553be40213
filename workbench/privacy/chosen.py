"""Guarantees of fits with scores of held-out records, and of the best of a secret number of them.

A record is read by the fits or by the scores, never by both, so the larger cost of the two counts.
"""

from __future__ import annotations

import functools
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from workbench import _schema
from workbench._validate import ArgumentError
from workbench.noise.integers import delta_cost
from workbench.privacy import accounting, rdp, selection
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.known_loss import KnownLoss, Profile
from workbench.privacy.selection import Runs
from workbench.privacy.steps import Phase, Steps

__all__ = ["HELD_OUT", "Best", "Chosen", "EitherSide", "Once", "Scored"]

_NEAR = 1e-6  # delta around whose epsilon a composition is accurate
_SCORE_DRAWS = 10_000  # noised numbers that scores are made of, at most
HELD_OUT = (
    "No record may be both fitted and held out, and which of the two must depend on it alone, as "
    "where the workbench splits a table."
)
_PARALLEL = (
    "A record is read by fits or by scores, never by both, so the larger cost of the two counts "
    "(parallel composition)."
)

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
class Once:
    """Steps that are taken once."""

    steps: Steps

    def epsilon(self, delta: float, coarse: bool = False) -> float:
        """Upper bound on epsilon."""
        return accounting.bound(self.steps, delta, coarse)

    def profiles(self, near: float) -> list[Profile]:
        """delta in each direction. :param near: as of ``accounting.profiles``."""
        return accounting.profiles((self.steps,), near)

    def renyi_loss(self, order: int) -> float:
        """As of ``rdp.renyi_loss``."""
        return rdp.renyi_loss(self.steps, order)


@dataclass(frozen=True)
class Best:
    """The best of several runs (``selection``).

    :param candidates: the steps of each one that can be drawn, all under one relation.
    :param runs: the law of how often one is drawn.
    :param beside: steps that are taken once, beside the runs.
    """

    candidates: tuple[Steps, ...]
    runs: Runs
    beside: tuple[Steps, ...] = ()

    def epsilon(self, delta: float, coarse: bool = False) -> float:
        """As of ``Once``."""
        return selection.bound(self.candidates, self.runs, delta, coarse, self.beside)

    def profiles(self, near: float) -> list[Profile]:
        """As of ``Once``."""
        return selection.profiles(self.candidates, self.runs, near, False, self.beside)

    def renyi_loss(self, order: int) -> float:
        """As of ``Once``."""
        return (
            max(rdp.renyi_loss(steps, order) for steps in self.candidates)
            + selection.renyi_excess(self.candidates, self.runs, order)
            + sum(rdp.renyi_loss(steps, order) for steps in self.beside)
        )


@dataclass(frozen=True)
class EitherSide:
    """What is done to records that are split in two, as accountants take it beside ``Steps``: to a
    record that fits read, or to one that scores read.
    """

    relation: str
    sides: tuple[Once | Best, ...]

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon at ``delta``."""
        return max(side.epsilon(delta) for side in self.sides)

    def renyi_loss(self, order: int) -> float:
        """As of ``rdp.renyi_loss``."""
        return max(side.renyi_loss(order) for side in self.sides)

    def loss(self, direction: str) -> KnownLoss:
        """A loss that dominates that of both sides. :param direction: of ``SampledGaussian``."""
        return _loss(self, direction == "add")

    @functools.cached_property
    def _profiles(self) -> list[Profile]:
        """delta in the directions "remove" and "add"."""
        of_sides = [side.profiles(side.epsilon(_NEAR, True)) for side in self.sides]

        def largest(direction: int) -> Profile:
            chosen = [profiles[min(direction, len(profiles) - 1)] for profiles in of_sides]
            return lambda epsilons: np.max([profile(epsilons) for profile in chosen], axis=0)

        return [largest(0), largest(1)]


@functools.lru_cache(maxsize=64)
def _loss(plan: EitherSide, reverse: bool) -> KnownLoss:
    forward, backward = plan._profiles
    return KnownLoss.of(backward, forward) if reverse else KnownLoss.of(forward, backward)


def _score(relation: str, noise_multiplier: float) -> Steps:
    """One release from all held-out records."""
    return Steps("poisson", relation, (Phase(1.0, noise_multiplier, 1),))


@dataclass(frozen=True)
class Scored(Guarantee):
    """The guarantee of a fit that releases scores of records that it does not read.

    :param score_noise: standard deviation of the noise in counts that make scores, over what a
        record moves them by.
    """

    _: KW_ONLY
    score_noise: float

    @classmethod
    def of(cls, fit: Guarantee, score_noise: float) -> Scored:
        """The guarantee of ``fit`` with its scores."""
        noise_delta = max(fit.noise_delta, delta_cost(_SCORE_DRAWS, fit.epsilon))
        ended = fit.steps_taken == fit.steps  # and scores were released
        facts = {
            "score_noise": score_noise,
            "epsilon_taken": fit.epsilon if ended else fit.epsilon_taken,
            "noise_delta": noise_delta,
            "caveats": (*fit.caveats, HELD_OUT),
        }
        return cls(**vars(fit) | facts)

    @classmethod
    def forms(cls) -> dict[str, _schema.Form]:
        """As of ``Guarantee``."""
        return {"score_noise": _schema.number(at_least=0.1)}

    def accounted(self, steps: int | None = None) -> accounting.Plan:
        """As of ``Guarantee``; scores are released after all steps."""
        fit = super().accounted(steps)
        if steps not in (None, self.steps):
            return fit
        assert isinstance(fit, Steps)
        score = _score(self.relation, self.score_noise)
        return EitherSide(self.relation, (Once(fit), Once(score)))

    def origin(self) -> list[str]:
        """As of ``Guarantee``."""
        return [
            *super().origin(),
            "It covers scores of private records that no step reads, too, and holds for each of "
            f"these: counts with Gaussian noise of {self.score_noise:g} times what one of them "
            "moves them by.",
        ]

    def composition(self) -> str:
        """As of ``Guarantee``."""
        return f"{super().composition()} {_PARALLEL}"


@dataclass(frozen=True)
class Chosen(Guarantee):
    """The guarantee of the best of several private fits.

    Sampler, noise, C and steps are those of the fit that was chosen.

    :param candidates: phases of each candidate's steps.
    :param runs: the law of how often one was drawn and fitted.
    :param score_noise: standard deviation of the noise in counts that make scores, over what a
        record moves them by; 0 where scores read public records alone.
    """

    _: KW_ONLY
    candidates: tuple[tuple[Phase, ...], ...]
    runs: Runs
    score_noise: float

    def accounted(self, steps: int | None = None) -> Any:
        """The whole choice, whatever ``steps``: it is published as a whole or not at all."""
        drawn = tuple(Steps(self.sampler, self.relation, phases) for phases in self.candidates)
        sides = [Best(drawn, self.runs)]
        if self.score_noise:  # of each run, and once more of the outcome
            score = (_score(self.relation, self.score_noise),)
            sides.append(Best(score, self.runs, score))
        return EitherSide(self.relation, tuple(sides))

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
            "by scores of private records that no fit reads, for each of which the promise holds "
            f"too: counts with Gaussian noise of {self.score_noise:g} times what one of them moves "
            "them by"
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

    def composition(self) -> str:
        """As of ``Guarantee``: of one run, and of the choice."""
        choice = (
            "The best of a secret number of runs costs more than one: a bound on private selection "
            "for the law of that number (after Papernot and Steinke 2022)."
        )
        return " ".join([super().composition(), choice, *([_PARALLEL] if self.score_noise else [])])
