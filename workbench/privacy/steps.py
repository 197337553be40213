"""The steps of a run, which accountants take: phases by one sampler under one neighbouring relation."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate

__all__ = ["SAMPLERS", "SENSITIVITY", "Phase", "Steps", "first_steps", "steps_per_epoch"]

# the relations that a sampler has accountants for; by default a guarantee uses the first
SAMPLERS = {
    "poisson": ("add_or_remove_one",),
    "without_replacement": ("replace_one",),
    "shuffle": ("replace_one", "replace_special"),
}

# how far a neighbouring data set can move the clipped sum, in units of the clipping norm
SENSITIVITY = {"add_or_remove_one": 1.0, "replace_special": 1.0, "replace_one": 2.0}


class Phase(NamedTuple):
    """Consecutive steps at one sampling rate q and one noise multiplier sigma."""

    sampling_rate: float
    noise_multiplier: float
    steps: int


@dataclass(frozen=True)
class Steps:
    """The steps of a run as phases, by one sampler under one relation. ``checked`` makes them from public arguments."""

    sampler: str
    relation: str
    phases: tuple[Phase, ...]

    @classmethod
    def checked(
        cls,
        sampler: str,
        relation: str | None,
        sampling_rate: Any,
        noise_multiplier: Any,
        steps: Any,
        *,
        relations: Sequence[str] = (),
    ) -> Steps:
        """From public arguments: numbers, or sequences of equal length for schedules.

        :param relations: further relations to allow for "poisson".
        :raises ArgumentError: naming the argument and its value.
        """
        _validate.choice("sampler", sampler, SAMPLERS)
        known = (*SAMPLERS[sampler], *(relations if sampler == "poisson" else ()))
        relation = known[0] if relation is None else _validate.choice("relation", relation, known)
        columns = {"sampling_rate": sampling_rate, "noise_multiplier": noise_multiplier, "steps": steps}
        lists = {name: list(value) for name, value in columns.items() if isinstance(value, (list, tuple, np.ndarray))}
        length = max((len(values) for values in lists.values()), default=1)
        for name, values in lists.items():
            if len(values) != length or not values:
                raise _validate.ArgumentError(
                    name, values, f"must have as many entries as the other schedules, which have {length}; at least one."
                )
        rows = zip(*(lists.get(name, [value] * length) for name, value in columns.items()), strict=True)
        phases = [
            Phase(
                _validate.number("sampling_rate", rate, above=0, at_most=1),
                # below .1 one step alone costs an epsilon in the hundreds
                _validate.number("noise_multiplier", sigma, at_least=0.1, at_most=1e5),
                _validate.integer("steps", count, at_least=0, at_most=10**12),
            )
            for rate, sigma, count in rows
        ]
        return cls(sampler, relation, tuple(phase for phase in phases if phase.steps))

    @property
    def sensitivity(self) -> float:
        """How far neighbouring data sets can move the clipped sum, in units of the clipping norm."""
        return SENSITIVITY[self.relation]

    @functools.cached_property
    def uses_of_a_record(self) -> tuple[Phase, ...]:
        """The steps that can contain one given record in the worst case, whatever the draws.

        These are all steps, or for shuffled records one step per epoch, the one with the least noise. Epochs continue from
        phase to phase, and a new one begins where the sampling rate changes.
        """
        if self.sampler != "shuffle":
            return self.phases
        uses: list[Phase] = []
        left = 0  # remaining steps of the current epoch
        for phase in self.phases:
            steps = phase.steps
            if left and phase.sampling_rate == uses[-1].sampling_rate:
                uses[-1] = min(uses[-1], phase._replace(steps=1), key=lambda use: use.noise_multiplier)
                within = min(left, steps)
                left, steps = left - within, steps - within
            if steps:
                epochs, begun = divmod(steps, steps_per_epoch(phase.sampling_rate))
                uses += [phase._replace(steps=count) for count in (epochs, min(begun, 1)) if count]
                left = steps_per_epoch(phase.sampling_rate) - begun if begun else 0
        return tuple(uses)


def steps_per_epoch(sampling_rate: float) -> int:
    """Whole minibatches in an epoch of shuffled records at rate q = batch size / N, which may be rounded."""
    return max(1, math.floor((1 + 1e-12) / sampling_rate))


def first_steps(plan: Steps, count: int) -> Steps:
    """The first ``count`` steps of ``plan``."""
    phases, left = [], count
    for phase in plan.phases:
        if left > 0:
            phases.append(phase._replace(steps=min(phase.steps, left)))
        left -= phase.steps
    return Steps(plan.sampler, plan.relation, tuple(phases))
