"""What follows from a plan, the same for its owners and the coordinator: noise, grids, and what is
promised.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

import jax.numpy as jnp
import numpy as np
import pandas as pd

from workbench import _validate
from workbench._numbers import upper
from workbench._validate import ArgumentError
from workbench.data import Dataset, Schema, from_frame
from workbench.data.counting import Counting, counting_of
from workbench.data.look import Look, learned, scales_from_dict
from workbench.fitting.fits import FlatRequest, begun, planned_of
from workbench.fitting.learned_scales import rows_inside
from workbench.fitting.single_release import SingleRelease, promised
from workbench.fitting.spec import FitSpec
from workbench.fitting.tables import is_formula
from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.ledger.ledger import DatasetId
from workbench.ledger.reservation import id_of
from workbench.models import get
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.integers import COARSEST, FINEST
from workbench.owners.sums import OwnCounts, OwnSums, Sums
from workbench.posterior import statistics
from workbench.privacy import accounting
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.implementation import SHARE, log_factor
from workbench.privacy.plan import PrivacyPlan
from workbench.privacy.steps import Steps

if TYPE_CHECKING:
    from workbench.owners.planning import Plan

__all__ = [
    "LOOK",
    "SETTINGS",
    "Agreement",
    "LookAgreement",
    "Side",
    "against_another_owner",
    "agreement",
    "blank_of",
    "request_of",
    "side_of",
]

LOOK = "look"  # as a plan names it
SETTINGS = ("estimator", "iterations", "sampling_rate", "clip", "learning_rate", "look")
_OF_FORMULA = ("family", "link", "priors")
_MADE_UP = 997  # records; no array of a model has such a side
_FAR = 20  # standard deviations of the noise, beyond which no total is
_WHOLE = 2.0**31


class Side(Protocol):
    """What follows from a plan, with the records of one owner or without any."""

    @property
    def guarantee(self) -> Guarantee:
        """Of all rounds."""

    @property
    def data(self) -> Dataset:
        """The records, or made-up ones."""

    @property
    def released(self) -> str:
        """What is released, in the ledger."""

    @property
    def counts_with(self) -> str:
        """Of a look, what ledgers count together with it; "" for nothing."""

    @property
    def size(self) -> int:
        """How many numbers an owner releases in a round."""

    @property
    def noise_size(self) -> int:
        """How many of them are sums; the others are counts of norms."""

    @property
    def grid(self) -> Mapping[str, float]:
        """What all must have computed alike for their whole numbers to be added up."""

    @property
    def largest(self) -> float:
        """What no total passes, in spacings, whatever the records and the noise."""

    def dataset_id(self) -> DatasetId:
        """How ledgers recognise the records."""

    def sums(self) -> Sums:
        """What this owner releases."""

    def result(self, released: np.ndarray) -> Any:
        """What is made of the total of a plan of one round."""


@dataclass(frozen=True, repr=False)
class Pooled(FitSpec):
    """A fit to the records of all owners: the noise of all is in its sums, and the guarantee counts
    that of some.

    :param terms: the plan.
    """

    terms: Plan = field(kw_only=True)

    @classmethod
    def of(cls, spec: FitSpec, terms: Plan) -> Pooled:
        """``spec`` as it is fitted by the plan."""
        return cls(**{entry.name: getattr(spec, entry.name) for entry in fields(spec)}, terms=terms)

    def hyper(self, plan: PrivacyPlan, step: PrivateStep) -> Hyperparameters:
        in_all = self.terms.shares.in_all(plan.mechanism)
        return super().hyper(replace(plan, mechanism=in_all), step)

    def guarantee(
        self, plan: PrivacyPlan, steps_taken: int, dimension: int, hid_reads: bool = True
    ) -> Guarantee:
        """As of ``FitSpec``, with who learns what.

        :raises ArgumentError: naming ``delta``, if the whole numbers are too coarse for it.
        """
        guarantee = super().guarantee(plan, steps_taken, dimension, hid_reads)
        # the guarantee has the failures of one minibatch a step; here each owner draws one
        of_minibatches = (self.terms.shares.owners - 1) * plan.sampler.total_variation
        draws = int(plan.draws(dimension))
        return _divided(guarantee, self.terms, draws, of_minibatches)


def _divided(
    guarantee: Guarantee, terms: Plan, draws: int, of_minibatches: float = 0.0
) -> Guarantee:
    """The guarantee of noise that several owners add, with who learns what.

    :param draws: of one owner, in all rounds. :param of_minibatches: of a round, total variation.
    :raises ArgumentError: naming ``delta``, if the whole numbers are too coarse for it.
    """
    cost = terms.shares.delta_cost(draws, guarantee.epsilon)
    cost += of_minibatches * math.exp(log_factor(guarantee.epsilon, terms.rounds))
    if not cost <= terms.delta * SHARE:
        raise ArgumentError(
            "delta",
            terms.delta,
            f"is so small that the rounding of the owners' noise alone costs {cost:.1e}: "
            "choose a larger one.",
        )
    of_all = replace(guarantee, noise_delta=cost)
    return replace(of_all, caveats=(*_who_learns_what(terms, of_all), *of_all.caveats))


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """As of ``Side``, of a fit.

    :param request: as a fit is asked for.
    :param spec: with the records of one owner, or with made-up ones.
    :param privacy: the noise that the guarantee counts.
    :param step: whose release is one owner's noised sum, in whole numbers.
    """

    request: FlatRequest
    spec: Pooled
    privacy: PrivacyPlan
    step: PrivateStep
    guarantee: Guarantee

    @property
    def data(self) -> Dataset:
        return self.spec.source

    @property
    def released(self) -> str:
        return self.spec.model.name

    @property
    def counts_with(self) -> str:
        return self.spec.terms.counts_with

    @property
    def size(self) -> int:
        return self.step.noised_coordinates

    @property
    def noise_size(self) -> int:
        return self.step.noise_size

    @functools.cached_property
    def grid(self) -> Mapping[str, float]:
        mechanism = self.step.mechanism
        return {
            "clip": float(mechanism.clip),
            "noise_multiplier": float(mechanism.noise_multiplier),
            "level": int(mechanism.level(self.step.sampler.capacity)),
            "capacity": int(self.step.sampler.capacity),
            "size": self.size,
        }

    @functools.cached_property
    def largest(self) -> float:
        mechanism, terms = self.step.mechanism, self.spec.terms
        sigma = jnp.float32(mechanism.noise_multiplier)
        in_all = terms.shares.in_all(self.privacy.mechanism)
        of_record = float(mechanism.whole_spacings(sigma, jnp.int32(self.grid["level"]))) + 1
        return 1.01 * of_record * (terms.num_records + _FAR * in_all.noise_multiplier)

    def dataset_id(self) -> DatasetId:
        return self.spec.columns.dataset_id

    def sums(self) -> Sums:
        return OwnSums.of(self)

    def result(self, released: np.ndarray) -> Any:
        prepared = begun(self.request, self.spec, self.privacy, self.spec.new_key())
        # a step of SGD from 0 by the mean gradient, as the step of a fit takes it
        mean = -released / self.spec.terms.num_records
        prepared.adopt({statistics.SITE: mean}, {}, 0.0)
        return prepared.result()


@dataclass(frozen=True, eq=False, repr=False)
class LookAgreement:
    """As of ``Side``, of a look at the columns: one round of counts.

    :param terms: the plan. :param counting: what is counted.
    :param noise_multiplier: of the part of one owner.
    :param level: of its noise, and how many spacings a record adds to a count.
    """

    terms: Plan
    data: Dataset
    counting: Counting
    guarantee: Guarantee
    noise_multiplier: float
    level: int
    per_record: int

    released = LOOK

    @property
    def counts_with(self) -> str:
        return self.terms.name

    @classmethod
    def of(cls, terms: Plan, data: Dataset, number: int) -> LookAgreement:
        """That of the first ``number`` records of ``data``.

        :raises ArgumentError: naming the argument and its value.
        """
        counting, division = counting_of(data), terms.shares
        request = SingleRelease(
            epsilon=terms.epsilon, delta=terms.delta, num_records=terms.num_records
        )
        draws = counting.size * division.owners
        plan, guarantee = promised(request, data, counting.sensitivity, draws)
        guarantee = _divided(guarantee, terms, counting.size)
        counted = replace(data, train=tuple(array[:number] for array in data.train))
        sigma = float(division.of(plan.mechanism).noise_multiplier)
        # no draw of an owner is farther from 0 than 11 standard deviations
        for level in range(FINEST, COARSEST - 1, -1):
            deviation = _spacings(level)
            per_record = math.floor(deviation / (sigma * counting.sensitivity * (1 + 1e-9)))
            most = terms.num_records * per_record + 11 * division.owners * deviation
            if per_record and most < _WHOLE:
                return cls(terms, counted, counting, guarantee, sigma, level, per_record)
        raise ArgumentError(
            "num_records",
            terms.num_records,
            "are too many for counts of 32 bits with the noise of one owner.",
            remedy="Choose a larger epsilon or delta, or a smaller bound.",
        )

    @property
    def size(self) -> int:
        return self.counting.size

    @property
    def noise_size(self) -> int:
        return self.size

    @property
    def grid(self) -> Mapping[str, float]:
        return {
            "sensitivity": self.counting.sensitivity,
            "noise_multiplier": self.noise_multiplier,
            "level": self.level,
            "per_record": self.per_record,
            "size": self.size,
        }

    @property
    def _noise_in_all(self) -> float:
        return _spacings(self.level) * math.sqrt(self.terms.shares.owners)

    @property
    def largest(self) -> float:
        return self.terms.num_records * self.per_record + _FAR * self._noise_in_all

    def dataset_id(self) -> DatasetId:
        return id_of(self.data)

    def sums(self) -> Sums:
        return OwnCounts(self, np.zeros(1, np.float32))

    def result(self, released: np.ndarray) -> Look:
        deviation = self._noise_in_all / self.per_record
        taken = Look(self.counting, released, deviation, self.data.unit, schema=self.data.schema)
        return replace(
            taken, guarantee=self.guarantee, token=self.counts_with, owners=self.terms.owners
        )


def _spacings(level: int) -> float:
    """Standard deviation of noise of this level."""
    return float(2.0 ** (11 + level))


def side_of(plan: Plan, frame: Any = None, name: str = "") -> Side:
    """What follows from a plan. Arguments and errors as of ``agreement``."""
    if plan.model != LOOK:
        return agreement(plan, frame, name)
    schema = _schema_of(plan)
    records, number = _filled(frame, blank_of(plan, schema))
    data = from_frame(records, schema=schema, target=None, evaluation=False, name=name or LOOK)
    return LookAgreement.of(plan, data, number)


def _schema_of(plan: Plan) -> Schema:
    """:raises ArgumentError: naming ``delta``, for one with which no fit is private."""
    if plan.delta >= 1 / plan.num_records:
        raise ArgumentError(
            "delta",
            plan.delta,
            f"must be below 1 / num_records = {1 / plan.num_records:.3g}: a larger one allows to "
            "publish a record of somebody else's in full.",
        )
    return Schema.from_dict(plan.schema)


def agreement(plan: Plan, frame: Any = None, name: str = "") -> Agreement:
    """What follows from the plan of a fit. Nothing is computed from records yet.

    :param frame: the table of an owner, and ``name`` its name; without them made-up records, which
        have the same shapes.
    :raises ArgumentError: naming the argument and its value.
    """
    schema = _schema_of(plan)
    blank = blank_of(plan, schema)
    request = request_of(plan, schema, blank, f"records of {', '.join(plan.owners)}")
    spec, privacy, _ = planned_of(request)
    division, key = plan.shares, key_from_seed(0)  # of starting values, which protect nobody
    size = spec.private_step(privacy, key).noised_coordinates
    privacy = privacy.for_noise_in(division.owners * size).confirmed()
    mechanism = division.of(privacy.mechanism)
    # of made-up records, because checks that read a number of records would tell an owner's
    step = spec.private_step(replace(privacy, mechanism=mechanism), key)
    if plan.rounds > 1 and not step.options.keeps_moments:
        reason = "has no intervals that count the noise, and of several owners there is more of it."
        raise ArgumentError("model", plan.model, reason)
    if not mechanism.has_room(step.sampler.capacity, step.noise_size):
        raise ArgumentError(
            "num_records",
            plan.num_records,
            "are too many for whole numbers of 32 bits with the noise of one owner.",
            remedy="Choose a larger delta or colluders=1, or a smaller bound.",
        )
    if frame is not None:
        filled, rows = _filled(frame, blank)
        spec = planned_of(request_of(plan, schema, filled, name))[0]
        if spec.declared is not None and spec.leaves_out:
            source, scales = spec.declared.source, spec.scales
            rows = int(rows_inside(source, spec.declared.model, scales)[:rows].sum())
        of_pool: Any = step.sampler
        sampler = replace(of_pool, num_records=max(rows, 1), is_vacant=not rows)
        step = replace(step, sampler=sampler)
    pooled = Pooled.of(spec, plan)
    guarantee = pooled.guarantee(privacy, plan.rounds, step.noised_coordinates)
    return Agreement(request, pooled, privacy, step, guarantee)


def blank_of(plan: Plan, schema: Schema) -> pd.DataFrame:
    """Made-up records, which have the shapes of all and are within learned scales."""
    within = learned(schema, scales_from_dict(plan.settings.get("look") or {}))
    number = min(plan.num_records, _MADE_UP)
    return within.decode(np.zeros((number, len(schema.feature_names))))


def _filled(frame: Any, blank: pd.DataFrame) -> tuple[Any, int]:
    """(a table of two records at least, as none is smaller; how many of them are of ``frame``)."""
    if frame is None:
        return blank, len(blank)
    rows = len(frame)
    return (pd.concat([frame, blank.head(2 - rows)]) if rows < 2 else frame), rows


def request_of(plan: Plan, schema: Schema, frame: Any, name: str) -> FlatRequest:
    """As a fit of these records is asked for."""
    options = plan.options
    common: dict[str, Any] = {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "num_records": plan.num_records,
        "look": 0.0,
        "ledger": False,
        "checkpoint": False,
        **plan.settings,
    }
    if is_formula(plan.model):
        for option in options:
            _validate.choice("options", option, _OF_FORMULA)
        of_model: dict[str, Any] = {"schema": schema, "name": name, **options}
        return FlatRequest(model=plan.model, data=frame, **of_model, **common)
    records = from_frame(frame, schema=schema, evaluation=False, name=name)
    return FlatRequest(model=get(plan.model, **options), data=records, **common)


def against_another_owner(plan: Plan, guarantee: Guarantee) -> float:
    """epsilon against an owner who knows its own noise, at the delta of ``guarantee``."""
    division = plan.shares
    if division.colluders:
        return guarantee.epsilon
    sigma = division.against_another_owner(guarantee.noise_multiplier)
    rate = guarantee.sampling_rate
    loss = Steps.checked(guarantee.sampler, guarantee.relation, rate, sigma, plan.rounds)
    remaining = guarantee.delta - guarantee.overflow_delta - guarantee.noise_delta
    return accounting.round_up(accounting.bound(loss, remaining), 4)


def _who_learns_what(plan: Plan, guarantee: Guarantee) -> list[str]:
    division = plan.shares
    of_rounds = "" if plan.rounds == 1 else f" of each of {guarantee.steps_taken} rounds"
    sentences = [
        f"The records are those of {division.owners} owners ({', '.join(plan.owners)}), each of "
        "whom summed its own records, added its part of the noise and covered the sum with masks "
        f"that cancel in the total: the coordinator learned the noised total{of_rounds} and "
        "nothing else.",
    ]
    if division.colluders:
        few = "any owner" if division.colluders == 1 else f"any {division.colluders} owners"
        sentences.append(
            f"The guarantee holds against the public, and against the coordinator and {few} "
            "together, who know their own records, noise and masks."
        )
    else:
        who = (
            "An owner who sees the result" if plan.rounds == 1 else "Each owner sees all rounds and"
        )
        sentences.append(
            "The guarantee holds against the public and the coordinator, if no owner tells what "
            f"noise it added. {who} knows its own noise: against it epsilon "
            f"is {upper(against_another_owner(plan, guarantee))} at the same delta."
        )
    sentences.append(
        "Somebody with records at several owners is protected as several persons are. "
        "Everybody is taken to follow the protocol, and to have the others' own public keys; the "
        "masks rest on X25519, HKDF and ChaCha20, so against whoever saw the masked sums the "
        "guarantee is one against attackers with limited computing power."
    )
    return sentences
