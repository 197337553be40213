"""Audits: from settings to a result."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import jax
import numpy as np
import numpyro
from numpy.typing import ArrayLike
from numpyro.infer.autoguide import AutoGuide

from workbench import _validate
from workbench.auditing import claims, sensitivity
from workbench.auditing.attack import SCORES, Attack
from workbench.auditing.bounds import LowerBound, epsilon_lower_bound, one_run_epsilon_lower_bound
from workbench.auditing.bugs import Watched, clipping_by_row, watched
from workbench.auditing.canaries import Canaries, Rows, arrays_of, blank, made_table, table_canaries
from workbench.auditing.claims import Claim
from workbench.auditing.request import AuditRequest, ReleaseRequest
from workbench.auditing.result import AuditResult, Check
from workbench.auditing.units import EqualRows, in_rows
from workbench.data import Dataset
from workbench.data.units import strata_widths
from workbench.fitting.columns import data_named
from workbench.fitting.devices import devices_named
from workbench.fitting.settings import takes
from workbench.inference.assemble import assemble
from workbench.inference.sharding import source_on
from workbench.inference.state import Performance
from workbench.inference.step import PrivateStep
from workbench.inference.units import UnitRows
from workbench.models import Model
from workbench.models.registry import as_model
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy.plan import PrivacySettings, make_plan

__all__ = ["audit", "audit_release"]

_LEARNING_RATE = 1e-3
_FIRST_CLIP = 1.0  # of runs that adapt it


@dataclass(frozen=True)
class _Training:
    """The audited training, for data sets of any size. ``num_records`` is the number that the model
    is given.
    """

    request: ReleaseRequest
    num_records: int
    devices: tuple[jax.Device, ...]

    def step(self, mechanism: GaussianMechanism, key: jax.Array, records: Rows) -> PrivateStep:
        """The step for ``records``."""
        request, size = self.request, len(records[0])
        sizes = {"num_records": size}
        if getattr(request.sampler, "batch_size", 0) > size:
            sizes["batch_size"] = size
        source = (
            source_on(self.devices)
            if request.max_rows is None
            else UnitRows(strata_widths(request.max_rows))
        )
        guide = request.guide
        step = assemble(
            request.model,
            copy.deepcopy(guide) if isinstance(guide, AutoGuide) else guide,
            numpyro.optim.Adam(_LEARNING_RATE) if request.optim is None else request.optim,
            key,
            records if request.max_rows is None else in_rows(records, request.max_rows),
            sampler=dataclasses.replace(request.sampler, **sizes),  # type: ignore[type-var]  # they are dataclasses
            mechanism=mechanism,
            num_records=self.num_records,
            estimator=request.estimator,
            performance=Performance(request.strategy, None, request.microbatch_size),
            static=dict(request.static or {}),
            source=source,
        )
        if request.max_rows is None:
            return step
        return EqualRows(**vars(clipping_by_row(step) if request.bug == "clip_by_row" else step))

    def watched_step(
        self, mechanism: GaussianMechanism, key: jax.Array, records: Rows
    ) -> tuple[PrivateStep, Watched]:
        """The step for ``records`` with the claimed mechanism or the planted bug's, and that
        mechanism.
        """
        expected = self.request.sampler.sampling_rate * self.num_records
        watcher = watched(mechanism, self.request.bug, expected)
        return self.step(watcher, key, records), watcher


def _attacked(training: _Training, canaries: Canaries, claim: Claim, key: jax.Array) -> LowerBound:
    """Run the part "attack"."""
    request = training.request
    start_key, coin_key, first_key, second_key = jax.random.split(key, 4)
    expected = claim.sampling_rate * training.num_records
    attack = Attack(
        training.step,
        canaries,
        request.mechanism,
        request.bug,
        expected,
        claim.steps,
        start_key,
        request.adapts_clip,
    )
    if request.mode == "many_runs":
        keys = {
            present: jax.random.split(side_key, request.trials)
            for present, side_key in ((True, first_key), (False, second_key))
        }
        scores = attack.many_runs(keys)
        return epsilon_lower_bound(scores[True], scores[False], claim.delta, request.confidence)
    coins = np.asarray(jax.random.bernoulli(coin_key, shape=(canaries.count,)))
    return one_run_epsilon_lower_bound(
        attack.one_run(coins, first_key), coins, claim.delta, request.confidence
    )


def _checks(
    training: _Training, canaries: Canaries, claim: Claim, key: jax.Array
) -> tuple[Check, ...]:
    """Run the deterministic ones of the parts."""
    request, checks = training.request, []
    if "sensitivity" in request.parts:
        step = functools.partial(training.watched_step, request.mechanism)
        checks.append(sensitivity.check(step, canaries, request.mechanism.clip, key))
    if "accountant" in request.parts and claims.applies(claim.sampler, claim.relation):
        checks.append(claims.check(claim, request.bug))
    return tuple(checks)


def _checked_canaries(
    present: Iterable[ArrayLike],
    absent: Iterable[ArrayLike] | None,
    other_records: Iterable[ArrayLike],
    relation: str,
    mode: str,
) -> Canaries:
    """The records that ``audit_release`` was given, as arrays that fit together."""
    if (absent is not None) != (relation == "replace_one"):
        value = None if absent is None else "records"
        expectation = (
            f"must be records under replace_one and None otherwise; the relation is {relation}."
        )
        raise _validate.ArgumentError("absent", value, expectation)
    present, other_records = arrays_of("present", present), arrays_of("others", other_records)
    if absent is not None:
        absent = arrays_of("absent", absent)
        if [array.shape for array in absent] != [array.shape for array in present]:
            raise _validate.ArgumentError(
                "absent", len(absent[0]), "must be arrays of the same shapes as present."
            )
    elif relation == "replace_special":
        absent = blank(present)
    canaries = Canaries(present, absent, other_records)
    if mode == "many_runs" and canaries.count != 1:
        raise _validate.ArgumentError(
            "present", canaries.count, "canaries: the mode many_runs takes one."
        )
    return canaries


@takes(ReleaseRequest)
def audit_release(request: ReleaseRequest) -> AuditResult:
    """Audit the claim that T steps of DP-VI with this sampler and mechanism are (epsilon,
    delta)-private.

    Both sides of a comparison run the same code. Only their records differ, and under
    add_or_remove_one how many there are.

    "many_runs": one canary; ``trials`` runs with it and ``trials`` without, each with its own key.
    Each run gets two scores: the log-likelihood ratio of presence, summed over steps, and the
    smallness of the noised sums, which reveals a division by the realised minibatch size.
    "one_run": m canaries in a single run, each in or out by a fair coin, and only the first score.
    It is cheap and proves less: about log(m / 10) at best, nothing unless 2 m delta is small, and
    nothing about a bug that no single canary shows.

    The result is an exact function of the records, without noise. Audit on public or made-up
    records.

    :raises ArgumentError: naming the argument and its value.
    """
    canaries = _checked_canaries(
        request.present, request.absent, request.others, request.relation, request.mode
    )
    num_records = len(canaries.others[0]) + canaries.count
    devices = devices_named(request.devices)
    source_on(devices).processes.require_one("an audit")
    if len(devices) > 1 and request.max_rows is not None:
        raise _validate.ArgumentError(
            "devices",
            request.devices,
            "cannot be used when a record has several rows; leave it out.",
        )
    training = _Training(request, num_records, devices)
    sampler, mechanism = request.sampler, request.mechanism
    claim = Claim(
        sampler.name,
        request.relation,
        sampler.sampling_rate,
        mechanism.noise_multiplier,
        request.iterations,
        request.epsilon,
        request.delta,
    )
    key = new_key() if request.seed is None else key_from_seed(request.seed)
    bound, runs = LowerBound(0.0, 0, "no runs"), 0
    if "attack" in request.parts:
        bound = _attacked(training, canaries, claim, key)
        runs = request.trials if request.mode == "many_runs" else 1
    checks = _checks(training, canaries, claim, jax.random.fold_in(key, 0))
    return AuditResult(
        model=request.model_name,
        data=request.data_name,
        claimed_epsilon=claim.epsilon,
        delta=claim.delta,
        relation=claim.relation,
        sampler=claim.sampler,
        sampling_rate=claim.sampling_rate,
        noise_multiplier=claim.noise_multiplier,
        iterations=claim.steps,
        mode=request.mode,
        canaries=canaries.count,
        trials=runs,
        lower_bound=bound.epsilon,
        confidence=request.confidence,
        score=SCORES[bound.score],
        evidence=bound.evidence,
        bug=request.bug,
        checks=checks,
    )


def _records(
    model: Model, data: str | Dataset | None, canaries: Any, count: int, num_others: int
) -> tuple[str, Rows, Rows]:
    """The name of the data that ``audit`` was given, the other records, and the canaries."""
    made = None
    if data is None:
        dataset, made = made_table(num_others, count)
    else:
        dataset = data_named(data)
        if dataset.units is not None:
            raise _validate.ArgumentError(
                "data",
                dataset.name,
                "has several rows for a unit, which an audit does not take: give max_rows "
                "without data.",
            )
    model.check(dataset)
    if canaries is not None:
        present = arrays_of("canaries", canaries)
    else:
        present = table_canaries(dataset, count) if made is None else made
    return dataset.name, tuple(array[:num_others] for array in dataset.train), present


@takes(AuditRequest)
def audit(request: AuditRequest) -> AuditResult:
    """Audit what ``fit`` would promise: calibrate the noise as it does, run its steps on canaries,
    and attack them.

    See ``audit_release`` for the attack and its modes. A strong audit has a delta of 0.01 or more,
    because only events that happen in many runs can be counted (clipping, noise and scaling do not
    depend on delta); an epsilon well below log(trials / 8), the most that the runs can prove; many
    trials; and a small clip.

    :raises ArgumentError: naming the argument and its value.
    """
    count = (
        1
        if request.mode == "many_runs"
        else _validate.integer("num_canaries", request.num_canaries, at_least=20)
    )
    model = as_model(request.model)
    data_name, other_records, present = _records(
        model, request.data, request.canaries, count, request.num_others
    )
    num_records = len(other_records[0]) + len(present[0])
    plain = {
        entry.name: getattr(request, entry.name)
        for entry in fields(PrivacySettings)
        if hasattr(request, entry.name)
    }
    if adapts_clip := isinstance(request.clip, str):
        plain["clip"] = _FIRST_CLIP
    settings = PrivacySettings(**plain, num_records=num_records, adapts_clip=adapts_clip)
    plan = make_plan(settings, num_records)
    absent = None
    if settings.relation == "replace_one":
        absent = (
            (*present[:-1], 1 - present[-1])
            if request.replacements is None
            else request.replacements
        )
    return audit_release(
        model.model,
        model.new_guide(),
        other_records,
        present,
        absent,
        relation=str(settings.relation),
        sampler=plan.sampler,
        mechanism=plan.mechanism,
        epsilon=settings.epsilon,
        delta=settings.delta,
        iterations=settings.iterations,
        optim=None if request.learning_rate is None else numpyro.optim.Adam(request.learning_rate),
        static=model.options,
        adapts_clip=adapts_clip,
        model_name=model.name,
        data_name=data_name,
        **request.of_attack(),
    )
