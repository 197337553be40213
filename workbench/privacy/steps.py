"""The laws of the samplers, and the steps of a run, which accountants take: phases by one sampler
under one neighbouring relation.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from workbench import _validate

if TYPE_CHECKING:
    from workbench.privacy.known_loss import KnownLoss

__all__ = [
    "LAWS",
    "MOST_STEPS_PER_EPOCH",
    "NEIGHBOURS",
    "SENSITIVITY",
    "Epochs",
    "Phase",
    "Repeated",
    "SamplerLaw",
    "Schedule",
    "Steps",
    "first_steps",
    "looked",
    "no_law",
]

# of random allocation: as far as the rounding of its accountant has been tested
MOST_STEPS_PER_EPOCH = 10**7


@dataclass(frozen=True)
class SamplerLaw:
    """What the package knows of minibatches by one sampler. Code that knows nothing of its
    ``participation`` refuses it.

    :param name: of the sampler, as users and ``Sampler.name`` write it.
    :param relations: neighbouring relations that it has accountants for; by default a guarantee
        uses the first. Sweeps store fits under keys that do not say the first, so it stays.
    :param kind: the class in ``workbench.sampling`` that draws the minibatches.
    :param label: its name in figures.
    :param minibatches: its minibatches in a guarantee, of ``rate`` and ``epoch``.
    :param option: its name on the screen. :param help: what it does, for the screen.
    :param participation: how one record enters the steps: each by a "coin" of its own, or with a
        uniform "subset" of one size; or one of each epoch, a "known step" in the worst case, or a
        "random step" that it draws for itself. None if nobody wrote it.
    :param fourier: neighbouring relations of the Fourier accountant.
    """

    name: str
    relations: tuple[str, ...]
    kind: str
    label: str
    minibatches: str
    option: str
    help: str
    participation: Literal["coin", "subset", "known step", "random step"] | None = None
    fourier: tuple[str, ...] = ()

    @property
    def has_epochs(self) -> bool:
        """Whether a record enters one step of each epoch."""
        return self.participation in ("known step", "random step")

    def steps_per_epoch(self, sampling_rate: float) -> int:
        """t, the number of steps of an epoch at rate q.

        Where the step is known it is the number of whole minibatches, floor(1 / q), where q = batch
        size / N may be rounded. Where it is random it is 1 / q rounded to the nearest whole number
        (the larger of two), and the rate is 1 / t.
        """
        if self.participation == "known step":
            return max(1, math.floor((1 + 1e-12) / sampling_rate))
        if self.participation == "random step":
            return max(1, math.floor(1 / sampling_rate + 0.5))
        raise no_law(self.name)

    @property
    def hides_size(self) -> bool:
        """Whether the number of records is private."""
        return "add_or_remove_one" in self.relations

    def public_size(self, declared: int, num_train: int) -> int:
        """The number of records that shapes and settings may follow from: the declared one where
        the exact one is private.

        :raises ArgumentError: naming ``num_records``, if there are more private records than
            declared: shapes would have to follow from their number.
        """
        if not self.hides_size:
            return num_train
        if num_train > declared:
            raise _validate.ArgumentError(
                "num_records",
                declared,
                "is less than there are training records. It must be an upper bound, known without "
                "counting them: declare a larger number, or leave it out, which publishes the "
                "exact one.",
            )
        return declared

    def rate(self, sampling_rate: float) -> float:
        """The sampling rate that is used for one that was asked for: 1 / t where a record enters a
        random step of t.

        :raises ArgumentError: naming ``sampling_rate``, if epochs are too long.
        """
        if self.participation != "random step":
            return sampling_rate
        length = self.steps_per_epoch(sampling_rate)
        if length > MOST_STEPS_PER_EPOCH:
            raise _validate.ArgumentError(
                "sampling_rate",
                sampling_rate,
                f"makes epochs of more than {MOST_STEPS_PER_EPOCH:,} steps, which random "
                "allocation has no accountant for: choose a larger rate, or Poisson sampling.",
            )
        return 1 / length

    def sampler(self, num_records: int, sampling_rate: float, *padding: int) -> Any:
        """What draws the minibatches.

        :param padding: capacity and declared number of records, where minibatches have random
            sizes; others have round(q N) records, at least one.
        """
        from workbench import sampling  # here, because accountants need no JAX

        kind = getattr(sampling, self.kind)
        if not self.hides_size:
            return kind(num_records, max(1, round(sampling_rate * num_records)))
        if self.participation == "coin":
            return kind(num_records, sampling_rate, *padding)
        return kind(num_records, self.steps_per_epoch(sampling_rate), *padding)


LAWS = {
    law.name: law
    for law in (
        SamplerLaw(
            name="poisson",
            relations=("add_or_remove_one",),
            kind="PoissonSampler",
            label="Poisson",
            minibatches="Poisson minibatches at sampling rate {rate:g}",
            option="at random (Poisson)",
            help="Each record enters each step with probability q, independently of the others.",
            participation="coin",
            fourier=("add_or_remove_one", "replace_one"),
        ),
        SamplerLaw(
            name="without_replacement",
            relations=("replace_one",),
            kind="WithoutReplacementSampler",
            label="without replacement",
            minibatches="minibatches without replacement, each with a share of {rate:g} of the "
            "records",
            option="without replacement",
            help="Each step draws a fixed number of q N different records.",
            participation="subset",
        ),
        SamplerLaw(
            name="shuffle",
            relations=("replace_one", "replace_special"),
            kind="ShuffleSampler",
            label="shuffle",
            minibatches="shuffled minibatches, each with a share of {rate:g} of the records",
            option="shuffled, in epochs",
            help="Each epoch shuffles the records and takes them in turn. This needs more noise.",
            participation="known step",
        ),
        SamplerLaw(
            name="random_allocation",
            relations=("add_or_remove_one",),
            kind="RandomAllocationSampler",
            label="random allocation",
            minibatches="minibatches by random allocation, each record in one step of every "
            "{epoch}",
            option="allocated, in epochs",
            help="In each epoch of 1/q steps every record enters one step, which it draws for "
            "itself. Noise is about as for Poisson.",
            participation="random step",
        ),
    )
}

# the neighbouring relations in words
NEIGHBOURS = {
    "add_or_remove_one": "add or remove one",
    "replace_one": "replace one",
    "replace_special": "blank one in place",
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


class Repeated(Protocol):
    """What is composed like ``Steps`` but is not a sequence of them, such as the best of several
    runs (``chosen.EitherSide``).
    """

    def __hash__(self) -> int: ...

    @property
    def relation(self) -> str:
        """Its neighbouring relation."""

    def epsilon(self, delta: float) -> float:
        """Upper bound on epsilon, of it alone."""

    def renyi_loss(self, order: int) -> float:
        """As of ``rdp.renyi_loss``."""

    def loss(self, direction: str) -> KnownLoss:
        """A privacy loss that dominates its own. :param direction: of ``SampledGaussian``."""


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
        accountant: str = "pld",
    ) -> Steps:
        """From public arguments: numbers, or sequences of equal length for schedules.

        :param accountant: whose relations to allow.
        :raises ArgumentError: naming the argument and its value.
        """
        law = LAWS[_validate.choice("sampler", sampler, LAWS)]
        allowed = (accountant == "fourier" and law.fourier) or law.relations
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
            law.rate(phase.sampling_rate)
        return cls(sampler, relation, tuple(phase for phase in phases if phase.steps))

    @property
    def sensitivity(self) -> float:
        """How far neighbouring data sets can move the clipped sum, in units of the
        clipping norm.
        """
        return SENSITIVITY[self.relation]

    @property
    def law(self) -> SamplerLaw:
        """That of the sampler. :raises NotImplementedError: if nobody wrote it."""
        if self.sampler not in LAWS:
            raise no_law(self.sampler)
        return LAWS[self.sampler]

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
            length = self.law.steps_per_epoch(phase.sampling_rate)
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
        if not self.law.has_epochs:
            return self.phases
        return tuple(
            Phase(epoch.sampling_rate, epoch.noise_multiplier, epoch.repeated)
            for epoch in self.epochs
        )


def no_law(sampler: str) -> NotImplementedError:
    """The error of code that knows nothing of a sampler: a new one must not be priced as another.

    >>> from workbench.privacy.steps import no_law
    >>> no_law("mine")
    NotImplementedError("no law of the sampler 'mine' is written here")
    """
    return NotImplementedError(f"no law of the sampler {sampler!r} is written here")


def first_steps(plan: Steps, count: int) -> Steps:
    """The first ``count`` steps of ``plan``."""
    phases, remaining = [], count
    for phase in plan.phases:
        if remaining > 0:
            phases.append(phase._replace(steps=min(phase.steps, remaining)))
        remaining -= phase.steps
    return Steps(plan.sampler, plan.relation, tuple(phases))
