"""Steps of a run as dp-accounting's events, and those as JSON that outlives this package: what a ledger keeps of a fit."""

from __future__ import annotations

import math
from typing import Any

import attr

from workbench._lazy import dp_event
from workbench.privacy.steps import SENSITIVITY, Phase, Steps

__all__ = ["event_of", "from_json", "of_step", "to_json"]

_SHARE = 10**9  # records in a whole, of which only the quotient counts


def event_of(plan: Steps) -> dp_event.DpEvent:
    """All steps of a run of one phase, as ``of_step`` has each.

    A shuffled record enters one minibatch an epoch, which no event says: its steps are those that can hold one record.
    """
    steps = sum(phase.steps for phase in plan.uses_of_a_record)
    if not steps:
        return dp_event.NoOpDpEvent()
    return dp_event.SelfComposedDpEvent(of_step(plan.sampler, plan.relation, plan.phases[0]), steps)


def of_step(sampler: str, relation: str, phase: Phase) -> dp_event.DpEvent:
    """One step that a record may enter.

    Noise multipliers are in units of the relation's sensitivity, 2 C under replace_one: that is how dp-accounting's Renyi
    accountant reads them. Its PLD accountant reads units of C under REPLACE_ONE and doubles the sensitivity once more, so
    its answers there are too large; under REPLACE_SPECIAL they are those of shuffled fits.
    """
    noise = dp_event.GaussianDpEvent(phase.noise_multiplier / SENSITIVITY[relation])
    if sampler == "shuffle":
        return noise
    if sampler == "poisson":
        return dp_event.PoissonSampledDpEvent(phase.sampling_rate, noise)
    return dp_event.SampledWithoutReplacementDpEvent(_SHARE, math.ceil(_SHARE * phase.sampling_rate), noise)


def to_json(event: dp_event.DpEvent) -> dict[str, Any]:
    """``{"class": name, field: value, ...}``, events within it likewise."""
    values = {field.name: getattr(event, field.name) for field in attr.fields(type(event))}
    return {
        "class": type(event).__name__,
        **{name: to_json(value) if isinstance(value, dp_event.DpEvent) else value for name, value in values.items()},
    }


def from_json(values: dict[str, Any]) -> dp_event.DpEvent:
    """The inverse of ``to_json``, for dp-accounting's own accountants."""
    kind = getattr(dp_event, values["class"])
    fields = {name: value for name, value in values.items() if name != "class"}
    return kind(**{name: from_json(value) if isinstance(value, dict) else value for name, value in fields.items()})
