"""What owners and coordinator agree on before anything is computed, and what follows from it."""

from __future__ import annotations

import functools
import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from workbench import _schema, _validate
from workbench._numbers import upper
from workbench._validate import ArgumentError
from workbench.data import Schema, from_frame
from workbench.fitting.fits import FlatRequest, planned_of
from workbench.fitting.one_shot import STATISTICS, OneShot
from workbench.fitting.settings import AUTO
from workbench.fitting.spec import FitSpec
from workbench.fitting.tables import is_formula
from workbench.inference.state import Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.models import get
from workbench.noise.chacha20 import key_from_seed
from workbench.owners import files
from workbench.owners.shares import Shares
from workbench.privacy import accounting
from workbench.privacy.guarantee import Guarantee
from workbench.privacy.implementation import SHARE, log_factor
from workbench.privacy.plan import PrivacyPlan, default_delta
from workbench.privacy.steps import Steps

__all__ = ["Agreement", "Plan", "agreement", "as_plan", "plan", "read_plan"]

_OF_FORMULA = ("family", "link", "priors")
_SETTINGS = ("estimator", "iterations", "sampling_rate", "clip", "learning_rate")
_MADE_UP = 997  # records; no array of a model has such a side
_FORM = _schema.record(
    {
        "model": _schema.text(empty=False),
        "options": _schema.mapped(_schema.anything),
        "schema": _schema.mapped(_schema.mapped(_schema.anything)),
        "owners": _schema.listed(_schema.text(empty=False)),
        "colluders": _schema.whole(),
        "epsilon": _schema.number(above=0),
        "delta": _schema.number(above=0, below=1),
        "num_records": _schema.whole(at_least=2),
        "settings": _schema.mapped(_schema.anything),
        "name": _schema.text(empty=False),
    }
)


@dataclass(frozen=True)
class Plan:
    """What is fitted to whose records, and what it may cost; public. Made by ``plan``.

    >>> schema = {"days": (0, 30), "age": (18, 90)}
    >>> terms = {"epsilon": 1.0, "num_records": 3000}
    >>> plan = wb.owners.plan(
    ...     "days ~ age", schema=schema, owners=["Bern", "Cork"], **terms
    ... )
    >>> plan.owners, len(plan.digest)
    (('Bern', 'Cork'), 64)

    :param model: a formula, or the name of a model of a whole table.
    :param options: of the model. :param schema: of its columns, as ``Schema.to_dict`` has it.
    :param owners: their names. :param colluders: c, how many may tell others what noise they added.
    :param num_records: an upper bound on the records of all owners together, public.
    :param settings: of the fit, as of ``wb.fit``: its estimator, and where that takes steps
        iterations, sampling_rate, clip and learning_rate.
    :param name: one that no other plan has.
    """

    model: str
    options: Mapping[str, Any]
    schema: Mapping[str, Any]
    owners: tuple[str, ...]
    colluders: int
    epsilon: float
    delta: float
    num_records: int
    settings: Mapping[str, Any]
    name: str

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of the whole plan, 64 hexadecimal digits, which all keys and sums name."""
        return files.digest_of(self._content())

    def _content(self) -> dict[str, Any]:
        return {**asdict(self), "owners": list(self.owners)}

    @property
    def shares(self) -> Shares:
        """How the noise is divided."""
        return Shares.checked(len(self.owners), self.colluders)

    @property
    def rounds(self) -> int:
        """How many sums each owner releases: the steps of the fit, or 1."""
        rounds: int = self.settings.get("iterations", 1)
        return rounds

    def question(self) -> str:
        """What an owner is asked, in words."""
        times = "one release" if self.rounds == 1 else f"{self.rounds} releases"
        return (
            f"{self.model}: {times} of sums over the records of {', '.join(self.owners)}, at "
            f"most {self.num_records} together. It costs each owner epsilon = "
            f"{upper(self.epsilon)}, delta = {upper(self.delta)}, and is promised where at most "
            f"{self.colluders} of them tell what noise they added. Columns: "
            f"{', '.join(self.schema)}; the plan has their ranges and levels."
        )

    def save(self, path: str | Path) -> Path:
        """Write the plan to a new file. :raises ArgumentError: naming ``path``."""
        return files.write_new("path", _validate.path("path", path), "plan", self._content())

    def position(self, owner: str) -> int:
        """The place of an owner. :raises ArgumentError: naming ``owner``."""
        if owner not in self.owners:
            raise _validate.unknown_name("owner", owner, self.owners)
        return self.owners.index(owner)

    def require_of(self, argument: str, path: object, content: Mapping[str, Any]) -> None:
        """:raises ArgumentError: if a file is of another plan, or of none of its owners."""
        if content["plan"] != self.digest:
            reason = "belongs to another plan: everybody must have the same file of the plan."
            raise ArgumentError(argument, str(path), reason)
        if content["owner"] not in self.owners:
            raise ArgumentError(argument, str(path), "is of nobody in the plan.")

    def require_all(self, argument: str, owners: Collection[str], missing: str) -> None:
        """:raises ArgumentError: naming an owner of whom something is missing."""
        for owner in self.owners:
            if owner not in owners:
                raise ArgumentError(
                    argument,
                    owner,
                    f"{missing} is missing, and without it there is no result: the plan has "
                    f"{len(self.owners)} owners, {', '.join(self.owners)}.",
                    remedy=f"Wait for it, or agree on a new plan without {owner}.",
                )


def plan(
    model: str,
    *,
    schema: Any,
    owners: Sequence[str],
    epsilon: float,
    num_records: int,
    delta: float | None = None,
    colluders: int = 1,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Plan:
    """A plan for one fit to the records of several owners, checked as far as it can be without
    records.

    Linear regressions and whole tables take one release of sums, which may go by files
    (``write_sum``, ``fit``). All else takes steps, a round of sums each (``answer``,
    ``coordinate``).

    >>> schema = {"days": (0, 30), "age": (18, 90)}
    >>> plan = wb.owners.plan(
    ...     "days ~ age",
    ...     schema=schema,
    ...     owners=["Aarhus", "Bern", "Cork"],
    ...     epsilon=1.0,
    ...     num_records=3000,
    ... )
    >>> plan.colluders, plan.delta
    (1, 0.0001)

    :param model: a formula, such as "days ~ age", or the name of a model.
    :param schema: ranges and levels of all columns that are used, as of ``wb.data.from_frame``.
        Nothing is learned from the records.
    :param owners: a name for each, which the owners recognise.
    :param num_records: an upper bound on the records of all owners together, public.
    :param delta: by default the largest power of ten below 1 / ``num_records``.
    :param colluders: c, of how many owners the promise holds even if they tell others the noise
        that they added. With 0 it does not hold against the owners themselves, as each knows its
        own noise.
    :param options: of a formula family, link and priors, else those of the model.
    :param settings: estimator, iterations, sampling_rate, clip and learning_rate, as of ``wb.fit``;
        what is left out is chosen.
    :raises ArgumentError: naming the argument and its value.
    """
    if isinstance(owners, str) or not isinstance(owners, Sequence):
        raise ArgumentError("owners", owners, "must be a list of names.")
    names = tuple(_validate.label("owners", name) for name in owners)
    if len(set(names)) < len(names):
        raise ArgumentError("owners", list(names), "has a name twice.")
    division = Shares.checked(len(names), colluders)
    number = _validate.integer("num_records", num_records, at_least=2)
    chosen = default_delta(number) if delta is None else delta
    try:
        declared = Schema.from_declaration(schema)
    except ArgumentError as error:
        if not isinstance(schema, Mapping) or not any(isinstance(x, type) for x in schema.values()):
            raise
        raise ArgumentError(
            error.argument,
            error.value,
            f"{error.expectation} Ranges and levels are not learned from several owners.",
        ) from None
    made = Plan(
        _validate.text("model", model),
        dict(options or {}),
        declared.to_dict(),
        names,
        division.colluders,
        _validate.epsilon("epsilon", epsilon),
        _validate.probability("delta", chosen),
        number,
        dict(settings or {}),
        uuid.uuid4().hex,
    )
    try:
        _FORM("", made._content())
        _ = made.digest
    except (_schema.FormError, TypeError, ValueError) as error:
        raise ArgumentError("options", dict(options or {}), f"must fit in JSON: {error}") from None
    return _complete(made)


def _complete(made: Plan) -> Plan:
    """A plan with the settings that it leaves out.

    :raises ArgumentError: as ``agreement``.
    """
    if not made.settings:
        try:
            one = replace(made, settings={"estimator": STATISTICS})
            agreement(one)
        except ArgumentError as error:
            if error.argument != "estimator":
                raise
        else:
            return one
    spec = agreement(made).spec
    fixed, privacy = spec.estimation.fixed_settings, spec.privacy
    clip = AUTO if privacy.adapts_clip else privacy.clip
    values = (fixed["estimator"], privacy.iterations, privacy.sampling_rate, clip)
    chosen = zip(_SETTINGS, (*values, spec.settings.learning_rate), strict=True)
    if isinstance(spec.estimation, OneShot):
        return replace(made, settings={"estimator": STATISTICS})
    return replace(made, settings=dict(chosen))


def read_plan(path: str | Path) -> Plan:
    """The plan that ``Plan.save`` wrote.

    :raises ArgumentError: naming ``plan``, if it cannot be read or is damaged.
    """
    content = files.read("plan", path, "plan", _FORM)
    names = tuple(content["owners"])
    made = Plan(**{**content, "owners": names})
    if len(set(names)) < len(names):
        raise ArgumentError("plan", str(path), "is damaged: it has an owner twice.")
    # what people read before they agree
    composed = {text: _validate.label("plan", text) for text in (*names, made.model, *made.schema)}
    for name in names:
        if composed[name] != name:
            raise ArgumentError("plan", str(path), f"is damaged: {name!r} is written unusually.")
    _ = made.shares
    return made


def as_plan(plan: Plan | str | Path) -> Plan:
    """A plan, or the one in a file, with all settings of its steps.

    :raises ArgumentError: naming ``plan``.
    """
    read = plan if isinstance(plan, Plan) else read_plan(plan)
    is_one = read.settings == {"estimator": STATISTICS}
    is_whole = set(read.settings) == set(_SETTINGS) and type(read.rounds) is int
    if not (is_one or is_whole):
        reason = "is damaged: it must have all settings of its steps, or of none."
        raise ArgumentError("plan", read.model, reason)
    return read


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
        division, terms = self.terms.shares, self.terms
        guarantee = super().guarantee(plan, steps_taken, dimension, hid_reads)
        in_a_run = int(plan.draws(dimension))
        # the guarantee has the failures of one minibatch a step; here each owner draws one
        of_minibatches = (division.owners - 1) * plan.sampler.total_variation
        cost = division.delta_cost(in_a_run, guarantee.epsilon)
        cost += of_minibatches * math.exp(log_factor(guarantee.epsilon, terms.rounds))
        if not cost <= terms.delta * SHARE:
            raise ArgumentError(
                "delta",
                terms.delta,
                f"is so small that the rounding of the owners' noise alone costs {cost:.1e}: "
                "choose a larger one.",
            )
        caveats = (*_who_learns_what(terms, guarantee, cost), *guarantee.caveats)
        return replace(guarantee, noise_delta=cost, caveats=caveats)


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """What follows from a plan: the same for all, with the records of one owner or without any.

    :param request: as a fit is asked for.
    :param spec: with the records of one owner, or with made-up ones.
    :param privacy: the noise that the guarantee counts.
    :param step: whose release is one owner's noised sum, in whole numbers.
    :param guarantee: of all rounds.
    """

    request: FlatRequest
    spec: Pooled
    privacy: PrivacyPlan
    step: PrivateStep
    guarantee: Guarantee

    @property
    def size(self) -> int:
        """How many numbers an owner releases in a round."""
        return self.step.noised_coordinates

    @functools.cached_property
    def grid(self) -> dict[str, Any]:
        """What all must have computed alike for their whole numbers to be added up."""
        mechanism = self.step.mechanism
        return {
            "clip": float(mechanism.clip),
            "noise_multiplier": float(mechanism.noise_multiplier),
            "level": int(mechanism.level(self.step.sampler.capacity)),
            "capacity": int(self.step.sampler.capacity),
            "size": self.size,
        }


def agreement(plan: Plan, frame: Any = None, name: str = "") -> Agreement:
    """What follows from a plan. Nothing is computed from records yet.

    :param frame: the table of an owner, and ``name`` its name; without them made-up records, which
        have the same shapes.
    :raises ArgumentError: naming the argument and its value.
    """
    if plan.delta >= 1 / plan.num_records:
        raise ArgumentError(
            "delta",
            plan.delta,
            f"must be below 1 / num_records = {1 / plan.num_records:.3g}: a larger one allows to "
            "publish a record of somebody else's in full.",
        )
    schema = Schema.from_dict(plan.schema)
    made_up = np.zeros((min(plan.num_records, _MADE_UP), len(schema.feature_names)))
    blank = schema.decode(made_up)
    request = _request_of(plan, schema, blank, f"records of {', '.join(plan.owners)}")
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
        rows = len(frame)
        with_blank = pd.concat([frame, blank.head(2)]) if rows < 2 else frame  # no table is smaller
        spec = planned_of(_request_of(plan, schema, with_blank, name))[0]
        of_pool: Any = step.sampler
        sampler = replace(of_pool, num_records=max(rows, 1), is_vacant=not rows)
        step = replace(step, sampler=sampler)
    pooled = Pooled.of(spec, plan)
    guarantee = pooled.guarantee(privacy, plan.rounds, step.noised_coordinates)
    return Agreement(request, pooled, privacy, step, guarantee)


def _request_of(plan: Plan, schema: Schema, frame: Any, name: str) -> FlatRequest:
    """As a fit of these records is asked for."""
    for setting in plan.settings:
        _validate.choice("settings", setting, _SETTINGS)
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


def _who_learns_what(plan: Plan, guarantee: Guarantee, cost: float) -> list[str]:
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
        sigma = division.against_another_owner(guarantee.noise_multiplier)
        rate = guarantee.sampling_rate
        loss = Steps.checked(guarantee.sampler, guarantee.relation, rate, sigma, plan.rounds)
        remaining = guarantee.delta - guarantee.overflow_delta - cost
        epsilon = accounting.round_up(accounting.bound(loss, remaining), 4)
        who = (
            "An owner who sees the result" if plan.rounds == 1 else "Each owner sees all rounds and"
        )
        sentences.append(
            "The guarantee holds against the public and the coordinator, if no owner tells what "
            f"noise it added. {who} knows its own noise: against it epsilon "
            f"is {upper(epsilon)} at the same delta."
        )
    sentences.append(
        "Somebody with records at several owners is protected as several persons are. "
        "Everybody is taken to follow the protocol, and to have the others' own public keys; the "
        "masks rest on X25519, HKDF and ChaCha20, so against whoever saw the masked sums the "
        "guarantee is one against attackers with limited computing power."
    )
    return sentences
