"""A fit without privacy where one with a plan is expected: no noise, no clipping, and a statement
that says so.

Public and made-up records are fitted this way to check a model. Epsilon is infinite, so whatever
adds up, compares or prints what fits promise cannot take one for private, and what accounts for
steps refuses.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _schema
from workbench._validate import ArgumentError
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.plan import PrivacyPlan, PrivacySettings
from workbench.privacy.steps import Steps

__all__ = ["NoPrivacy", "NoPrivacyPlan", "NoPrivacySettings"]

_NONE = {"epsilon": math.inf, "delta": 1.0, "clip": math.inf}
_FORMS = {
    "private": _schema.flag,
    **dict.fromkeys(("epsilon", "epsilon_taken", "clip"), _schema.optional(_schema.number())),
    "delta": _schema.number(at_least=1, at_most=1),
    "noise_multiplier": _schema.number(at_least=0, at_most=0),
}
_FACTS_OF_NOISE = ("relation", "clipping", "adapts_clip")


@dataclass(frozen=True)
class NoPrivacy(Guarantee):
    """What a fit without noise and clipping promises: nothing.

    >>> from workbench.privacy.no_privacy import NoPrivacy
    >>> result = wb.fit("logistic", "breast_cancer", private=False)
    >>> isinstance(result.guarantee, NoPrivacy), result.guarantee.epsilon
    (True, inf)
    """

    @property
    def is_private(self) -> bool:
        """False."""
        return False

    def label(self, with_delta: bool = False) -> str:
        """In two words."""
        return "NO PRIVACY"

    def accounted(self, steps: int | None = None) -> Steps:
        """Refuse.

        :raises ArgumentError: always, because no accountant has a number for it.
        """
        raise ArgumentError(
            "guarantee", "no privacy", "is of a fit without noise, which has no finite epsilon."
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON-ready values; None where a number is infinite."""
        values = super().to_dict()
        endless = {
            name: None
            for name, value in values.items()
            if isinstance(value, float) and math.isinf(value)
        }
        return {**values, **endless, "private": False}

    @classmethod
    def forms(cls) -> dict[str, _schema.Form]:
        """As of ``Guarantee``: what is infinite is null."""
        return _FORMS

    @classmethod
    def decoded(cls, values: dict[str, Any]) -> dict[str, Any]:
        """As of ``Guarantee``."""
        fields = {name: value for name, value in values.items() if name != "private"}
        endless = {
            name: math.inf for name, value in fields.items() if value is None and name != "max_rows"
        }
        return {**fields, **endless}

    def attack_bounds(self) -> dict[str, float]:
        """As of ``Guarantee``: nothing is ruled out."""
        names = (
            "true_positive_rate_at_1_percent",
            "true_positive_rate_at_10_percent",
            "belief_from_half",
        )
        return dict.fromkeys(names, 1.0)

    def trade_off(self, false_positive_rates: Sequence[float]) -> np.ndarray:
        """As of ``Guarantee``: ones."""
        return np.ones(len(false_positive_rates))

    def in_brief(self) -> str:
        """That there is no guarantee, in a few words."""
        return "Nothing is promised: no noise was added."

    def headline(self) -> str:
        """That there is no guarantee, in one sentence."""
        return (
            "NO PRIVACY: this fit added no noise and clipped nothing, so nothing limits what it "
            f"tells about any {self.unit}; share it only if the records are public or made up."
        )

    def statement(self) -> str:
        """That there is no guarantee, and what was done instead."""
        return (
            f"{self.headline()}\n\nThe fit took {self.steps_taken} of {self.steps} steps of "
            "variational inference without clipping and noise (private=False). It is in no "
            "ledger, and no epsilon or delta holds for it."
        )


@dataclass(frozen=True)
class NoPrivacySettings(PrivacySettings):
    """Settings of a fit without privacy; epsilon and C are infinite, whatever is given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in _NONE.items():
            object.__setattr__(self, name, value)

    def facts(self) -> dict[str, Any]:
        """The settings that say something about the fit, JSON-ready."""
        facts = super().facts()
        return {**facts, **dict.fromkeys((*_NONE, *_FACTS_OF_NOISE)), "private": False}

    def cautions(self) -> tuple[str, ...]:
        """None: no delta is promised."""
        return ()


@dataclass(frozen=True)
class NoPrivacyPlan(PrivacyPlan):
    """The steps of a fit without privacy: the minibatches of a private plan, without its clipping
    and noise.
    """

    @classmethod
    def of(cls, plan: PrivacyPlan) -> NoPrivacyPlan:
        """The same steps as those of ``plan``."""
        settings = dataclasses.asdict(plan.settings) | {"adapts_clip": False}
        mechanism = GaussianMechanism(math.inf, 0.0)
        return cls(NoPrivacySettings(**settings), plan.sampler, mechanism, 0.0, None, math.inf)

    def for_noise_in(self, dimension: int) -> PrivacyPlan:
        """The plan itself: there is no noise."""
        return self

    def confirmed(self) -> PrivacyPlan:
        """The plan itself: there is nothing to confirm."""
        return self

    def noise_delta(self, dimension: int, *, in_steps: bool = True) -> float:
        """0: there is no noise."""
        return 0.0

    def epsilon_after(self, steps: int) -> float:
        """Infinite."""
        return math.inf

    def epsilon_curve(self) -> list[tuple[int, float]]:
        """Infinite from the first step."""
        return [(1, math.inf), (self.settings.iterations, math.inf)]

    def epsilon_so_far(self) -> Callable[[int], Any]:
        """A function that knows of no epsilon, so that none is shown."""
        return lambda step: None

    def guarantee(self, **facts: Any) -> Guarantee:
        """``NoPrivacy``. :param facts: as of ``PrivacyPlan.guarantee``."""
        promised = dict(vars(super().guarantee(**facts)))
        return NoPrivacy(
            **promised
            | {
                "caveats": (),
                "accountant": "none",
                "arithmetic": "floating point",
                "against_storage": False,
            }
        )
