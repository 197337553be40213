"""Steps of a run as events of dp-accounting, and these as JSON, which a ledger keeps and other
programs can read.
"""

from __future__ import annotations

import math
from typing import Any

import attr

from workbench._lazy import dp_event
from workbench.privacy.accounting import Plan
from workbench.privacy.steps import Phase, Steps, no_law

__all__ = ["event_of", "from_json", "of_phase", "to_json"]

_SHARE = 10**9  # stands for N in q N / N; only the quotient counts


def event_of(plan: Plan) -> dp_event.DpEvent:
    """The event of all steps of a run with one phase, and of a look before them.

    dp-accounting has none for a choice, and its accountants refuse the one that stands for it.

    No event says that a record enters one minibatch per epoch, at random or not, so for shuffled
    and allocated records the steps that can hold one record are counted, as if they were known:
    right, but far more than allocated ones cost.
    """
    if not isinstance(plan, Steps):
        return dp_event.UnsupportedDpEvent()
    counts: dict[Phase, int] = {}
    for use in plan.uses_of_a_record:
        step = use._replace(steps=1)
        counts[step] = counts.get(step, 0) + use.steps
    events = [
        dp_event.SelfComposedDpEvent(of_phase(plan, step), count)
        for step, count in counts.items()
        if count
    ]
    if not events:
        return dp_event.NoOpDpEvent()
    return events[0] if len(events) == 1 else dp_event.ComposedDpEvent(events)


def of_phase(plan: Steps, phase: Phase) -> dp_event.DpEvent:
    """The event of one step of a phase of ``plan`` that a record may enter.

    Noise multipliers are in units of the relation's sensitivity, 2 C under replace_one, as
    dp-accounting's Rényi accountant reads them. Its PLD accountant reads them in units of C under
    REPLACE_ONE and doubles the sensitivity again, so its answers there are too large. Under
    REPLACE_SPECIAL they are right for shuffled fits.
    """
    noise = dp_event.GaussianDpEvent(phase.noise_multiplier / plan.sensitivity)
    if plan.law.has_epochs:
        return noise
    if plan.law.participation == "coin":
        return dp_event.PoissonSampledDpEvent(phase.sampling_rate, noise)
    if plan.law.participation == "subset":
        return dp_event.SampledWithoutReplacementDpEvent(
            _SHARE, math.ceil(_SHARE * phase.sampling_rate), noise
        )
    raise no_law(plan.sampler)


def to_json(event: dp_event.DpEvent) -> dict[str, Any]:
    """``{"class": name, field: value, ...}``, and the same for events within it."""
    values = {field.name: getattr(event, field.name) for field in attr.fields(type(event))}
    return {
        "class": type(event).__name__,
        **{name: _plain(value) for name, value in values.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [to_json(event) for event in value]
    return to_json(value) if isinstance(value, dp_event.DpEvent) else value


def _event_or_number(value: Any) -> Any:
    if isinstance(value, list):
        return [from_json(event) for event in value]
    return from_json(value) if isinstance(value, dict) else value


def from_json(values: dict[str, Any]) -> dp_event.DpEvent:
    """The inverse of ``to_json``, for dp-accounting's own accountants."""
    kind = getattr(dp_event, values["class"])
    fields = {name: value for name, value in values.items() if name != "class"}
    return kind(**{name: _event_or_number(value) for name, value in fields.items()})
