"""The steps of a run, which accountants take: phases by one sampler under one neighbouring
relation.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench import _validate

__all__ = [
    "MOST_STEPS_PER_EPOCH",
    "SAMPLERS",
    "SENSITIVITY",
    "Epochs",
    "Phase",
    "Schedule",
    "Steps",
    "check_epoch",
    "first_steps",
    "looked",
    "no_law",
    "steps_per_epoch",
]

# of random allocation: as far as the rounding of its accountant has been tested
MOST_STEPS_PER_EPOCH = 10**7

# the relations that a sampler has accountants for; by default a guarantee uses the first
SAMPLERS = {
    "poisson": ("add_or_remove_one",),
    "without_replacement": ("replace_one",),
    "shuffle": ("replace_one", "replace_special"),
    "random_allocation": ("add_or_remove_one",),
}

# how far a neighbouring data set can move the clipped sum, in units of the clipping norm
SENSITIVITY = {"add_or_remove_one": 1.0, "replace_special": 1.0, "replace_one": 2.0}


class Phase(NamedTuple):
    """Consecutive steps at one sampling rate q and one noise multiplier sigma."""

    sampling_rate: float
    noise_multiplier: float
    steps: int


def looked(look: float, sampling_rate: float, noise_multiplier: float, steps: int) -> Schedule:
    """The schedules of a run, as accountants take them.

    :param look: sigma of a release from all records before the first step; 0 for none.
    """
    if not look:
        return Schedule(sampling_rate, noise_multiplier, steps)
    return Schedule((1.0, sampling_rate), (look, noise_multiplier), (1, steps))


class Schedule(NamedTuple):
    """Numbers, or a number for each phase."""

    sampling_rate: float | tuple[float, ...]
    noise_multiplier: float | tuple[float, ...]
    steps: int | tuple[int, ...]


class Epochs(NamedTuple):
    """Consecutive epochs that are alike.

    :param sampling_rate: q, as given.
    :param length: t, steps of a whole epoch.
    :param released: how many of them are taken.
    :param noise_multiplier: sigma, the least of the epoch's steps.
    :param repeated: how many epochs.
    """

    sampling_rate: float
    length: int
    released: int
    noise_multiplier: float
    repeated: int


@dataclass(frozen=True)
class Steps:
    """The steps of a run as phases, by one sampler under one relation. ``checked`` makes them from
    public arguments.
    """

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
        allowed = (*SAMPLERS[sampler], *(relations if sampler == "poisson" else ()))
        relation = (
            allowed[0] if relation is None else _validate.choice("relation", relation, allowed)
        )
        columns = {
            "sampling_rate": sampling_rate,
            "noise_multiplier": noise_multiplier,
            "steps": steps,
        }
        lists = {
            name: list(value)
            for name, value in columns.items()
            if isinstance(value, (list, tuple, np.ndarray))
        }
        length = max((len(values) for values in lists.values()), default=1)
        for name, values in lists.items():
            if len(values) != length or not values:
                raise _validate.ArgumentError(
                    name,
                    values,
                    f"must have as many entries as the other schedules, which have {length}; at "
                    "least one.",
                )
        rows = zip(
            *(lists.get(name, [value] * length) for name, value in columns.items()), strict=True
        )
        phases = [
            Phase(
                _validate.number("sampling_rate", rate, above=0, at_most=1),
                # below 0.1 one step alone costs an epsilon in the hundreds
                _validate.number("noise_multiplier", sigma, at_least=0.1, at_most=1e5),
                _validate.integer("steps", count, at_least=0, at_most=10**12),
            )
            for rate, sigma, count in rows
        ]
        for phase in phases:
            check_epoch(sampler, phase.sampling_rate)
        return cls(sampler, relation, tuple(phase for phase in phases if phase.steps))

    @property
    def sensitivity(self) -> float:
        """How far neighbouring data sets can move the clipped sum, in units of the
        clipping norm.
        """
        return SENSITIVITY[self.relation]

    @property
    def has_epochs(self) -> bool:
        """Whether a record enters one step of each epoch."""
        return self.sampler in ("shuffle", "random_allocation")

    @functools.cached_property
    def epochs(self) -> tuple[Epochs, ...]:
        """The epochs of shuffled or allocated records.

        They continue from phase to phase, and a new one begins where the sampling rate changes.
        """
        epochs: list[Epochs] = []
        for phase in self.phases:
            steps = phase.steps
            if (
                epochs
                and epochs[-1].released < epochs[-1].length
                and phase.sampling_rate == epochs[-1].sampling_rate
            ):
                last = epochs[-1]
                within = min(last.length - last.released, steps)
                sigma = min(last.noise_multiplier, phase.noise_multiplier)
                epochs[-1] = last._replace(released=last.released + within, noise_multiplier=sigma)
                steps -= within
            length = steps_per_epoch(self.sampler, phase.sampling_rate)
            complete, begun = divmod(steps, length)
            for released, count in ((length, complete), (begun, 1 if begun else 0)):
                if count:
                    epochs.append(
                        Epochs(phase.sampling_rate, length, released, phase.noise_multiplier, count)
                    )
        return tuple(epochs)

    @functools.cached_property
    def uses_of_a_record(self) -> tuple[Phase, ...]:
        """The steps that can contain one given record in the worst case, whatever the draws.

        These are all steps, or one step per epoch, the one with the least noise.
        """
        if not self.has_epochs:
            return self.phases
        return tuple(
            Phase(epoch.sampling_rate, epoch.noise_multiplier, epoch.repeated)
            for epoch in self.epochs
        )


def steps_per_epoch(sampler: str, sampling_rate: float) -> int:
    """t, the number of steps of an epoch at rate q.

    For "shuffle" it is the number of whole minibatches, floor(1 / q), where q = batch size / N may
    be rounded. For "random_allocation" it is 1 / q rounded to the nearest whole number (the larger
    of two), and the rate is 1 / t.
    """
    if sampler == "shuffle":
        return max(1, math.floor((1 + 1e-12) / sampling_rate))
    if sampler == "random_allocation":
        return max(1, math.floor(1 / sampling_rate + 0.5))
    raise no_law(sampler)


def no_law(sampler: str) -> NotImplementedError:
    """The error of code that knows nothing of a sampler: a new one must not be priced as another.

    >>> from workbench.privacy.steps import no_law
    >>> no_law("mine")
    NotImplementedError("no law of the sampler 'mine' is written here")
    """
    return NotImplementedError(f"no law of the sampler {sampler!r} is written here")


def check_epoch(sampler: str, sampling_rate: float) -> None:
    """Refuse epochs that are too long. :raises ArgumentError: naming ``sampling_rate``."""
    if (
        sampler == "random_allocation"
        and steps_per_epoch(sampler, sampling_rate) > MOST_STEPS_PER_EPOCH
    ):
        raise _validate.ArgumentError(
            "sampling_rate",
            sampling_rate,
            f"makes epochs of more than {MOST_STEPS_PER_EPOCH:,} steps, which random allocation "
            "has no accountant for: choose a larger rate, or Poisson sampling.",
        )


def first_steps(plan: Steps, count: int) -> Steps:
    """The first ``count`` steps of ``plan``."""
    phases, remaining = [], count
    for phase in plan.phases:
        if remaining > 0:
            phases.append(phase._replace(steps=min(phase.steps, remaining)))
        remaining -= phase.steps
    return Steps(plan.sampler, plan.relation, tuple(phases))
