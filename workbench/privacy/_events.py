"""Steps of a run as dp-accounting's events, and those as JSON that outlives this package: what a ledger keeps of a fit."""

from __future__ import annotations

from typing import Any

import attr
from dp_accounting import dp_event

from workbench.privacy.accounting import steps_per_epoch
from workbench.privacy.guarantee import Guarantee

__all__ = ["event_of", "from_json", "to_json"]

_SHARE = 10**9  # records in a whole, of which only the quotient counts


def event_of(fit: Guarantee) -> dp_event.DpEvent:
    """All planned steps. Noise multipliers are in units of the clipping norm, whatever the relation's sensitivity.

    A shuffled record enters one minibatch an epoch, which no event says: its steps are those that can hold one record.
    """
    noise = dp_event.GaussianDpEvent(fit.noise_multiplier)
    if fit.sampler == "shuffle":
        return dp_event.SelfComposedDpEvent(noise, -(-fit.steps // steps_per_epoch(fit.sampling_rate)))
    if fit.sampler == "poisson":
        step: dp_event.DpEvent = dp_event.PoissonSampledDpEvent(fit.sampling_rate, noise)
    else:
        step = dp_event.SampledWithoutReplacementDpEvent(_SHARE, round(_SHARE * fit.sampling_rate), noise)
    return dp_event.SelfComposedDpEvent(step, fit.steps)


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
