"""Audits: from settings to a result."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpyro
from numpyro.infer.autoguide import AutoGuide

from workbench import _validate
from workbench.auditing import claims, crash, paths, sensitivity
from workbench.auditing.attack import SCORES, Attack
from workbench.auditing.bounds import LowerBound, epsilon_lower_bound, one_run_epsilon_lower_bound
from workbench.auditing.bugs import PLANTED_BUGS, ClampedIndices, Watched, watched
from workbench.auditing.canaries import Canaries, Rows, arrays_of, blank, made_table, table_canaries
from workbench.auditing.claims import Claim
from workbench.auditing.result import PARTS, AuditResult, Check
from workbench.data import Dataset
from workbench.fitting.spec import data_named, model_named
from workbench.inference.assemble import assemble
from workbench.inference.step import Performance, PrivateStep
from workbench.models import Model
from workbench.noise.chacha20 import key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.steps import SAMPLERS
from workbench.sampling import Sampler

__all__ = ["MODES", "audit", "audit_release"]

MODES = ("many_runs", "one_run")

_RELATIONS = ("add_or_remove_one", "replace_one", "replace_special")
_LEARNING_RATE = 1e-3
_OTHERS = 9  # records beside the canaries


@dataclass(frozen=True)
class _Release:
    """The audited training, for data sets of any size. ``num_records`` is the number that the model is given."""

    model: Callable
    guide: Callable
    sampler: Sampler
    num_records: int
    estimator: str
    strategy: str
    microbatch_size: int | None
    static: dict[str, Any]
    bug: str | None
    optim: Any

    def step(self, mechanism: GaussianMechanism, key: jax.Array, records: Rows, optim: Any = None) -> PrivateStep:
        """The step for ``records``."""
        size = len(records[0])
        sizes = {"num_records": size}
        if getattr(self.sampler, "batch_size", 0) > size:
            sizes["batch_size"] = size
        sound = assemble(
            self.model,
            copy.deepcopy(self.guide) if isinstance(self.guide, AutoGuide) else self.guide,
            self.optim if optim is None else optim,
            key,
            records,
            sampler=dataclasses.replace(self.sampler, **sizes),  # type: ignore[type-var]  # they are dataclasses
            mechanism=mechanism,
            num_records=self.num_records,
            estimator=self.estimator,
            performance=Performance(self.strategy, None, self.microbatch_size),
            static=self.static,
        )
        return ClampedIndices(**vars(sound)) if self.bug == "clamped_indices" else sound


def _attacked(
    release: _Release,
    canaries: Canaries,
    mechanism: GaussianMechanism,
    claim: Claim,
    mode: str,
    trials: int,
    confidence: float,
    key: jax.Array,
) -> LowerBound:
    """Run the part "attack"."""
    start_key, coin_key, first_key, second_key = jax.random.split(key, 4)
    expected = claim.sampling_rate * release.num_records
    attack = Attack(release.step, canaries, mechanism, release.bug, expected, claim.steps, start_key)
    if mode == "many_runs":
        keys = {present: jax.random.split(own, trials) for present, own in ((True, first_key), (False, second_key))}
        scores = attack.many_runs(keys)
        return epsilon_lower_bound(scores[True], scores[False], claim.delta, confidence)
    coins = np.asarray(jax.random.bernoulli(coin_key, shape=(canaries.count,)))
    return one_run_epsilon_lower_bound(attack.one_run(coins, first_key), coins, claim.delta, confidence)


def _checks(
    parts: Sequence[str], release: _Release, canaries: Canaries, mechanism: GaussianMechanism, claim: Claim, key: jax.Array
) -> tuple[Check, ...]:
    """Run the deterministic ones of ``parts``."""
    bug = release.bug
    rows = tuple(np.concatenate([others, own[:1]]) for others, own in zip(canaries.others, canaries.present, strict=True))

    def watched_step(key: jax.Array, records: Rows) -> tuple[PrivateStep, Watched]:
        mechanism_seen = watched(mechanism, bug, release.sampler.sampling_rate * release.num_records)
        return release.step(mechanism_seen, key, records), mechanism_seen

    def step_of(optim: Any, key: jax.Array, records: Rows) -> PrivateStep:
        return release.step(mechanism, key, records, optim)

    checks: dict[str, Callable[[], Check]] = {
        "paths": lambda: paths.check(step_of, rows, key, _LEARNING_RATE, bug),
        "sensitivity": lambda: sensitivity.check(watched_step, canaries, mechanism.clip, key),
        "arrays": lambda: sensitivity.check_arrays(watched_step, canaries, mechanism.clip, key),
        "accountant": lambda: claims.check(claim, bug),
        "resume": lambda: crash.check(bug),
    }
    if not claims.applies(claim.sampler, claim.relation):
        del checks["accountant"]
    return tuple(check() for part, check in checks.items() if part in parts)


def _checked_canaries(present: Any, absent: Any, others: Any, relation: str, mode: str) -> Canaries:
    """The records that ``audit_release`` was given, as arrays that fit together."""
    if (absent is not None) != (relation == "replace_one"):
        value = None if absent is None else "records"
        expectation = f"must be records under replace_one and None otherwise; the relation is {relation}."
        raise _validate.ArgumentError("absent", value, expectation)
    present, others = arrays_of("present", present), arrays_of("others", others)
    if absent is not None:
        absent = arrays_of("absent", absent)
        if [array.shape for array in absent] != [array.shape for array in present]:
            raise _validate.ArgumentError("absent", len(absent[0]), "must be arrays of the same shapes as present.")
    elif relation == "replace_special":
        absent = blank(present)
    canaries = Canaries(present, absent, others)
    if mode == "many_runs" and canaries.count != 1:
        raise _validate.ArgumentError("present", canaries.count, "canaries: the mode many_runs takes one.")
    return canaries


def audit_release(
    model: Callable,
    guide: Callable,
    others: Rows,
    present: Rows,
    absent: Rows | None = None,
    *,
    relation: str,
    sampler: Sampler,
    mechanism: GaussianMechanism,
    epsilon: float,
    delta: float,
    iterations: int,
    mode: str = "many_runs",
    trials: int = 10_000,
    confidence: float = 0.95,
    estimator: str = "aligned",
    strategy: str = "auto",
    microbatch_size: int | None = None,
    optim: Any = None,
    static: Mapping[str, Any] | None = None,
    seed: int | None = None,
    bug: str | None = None,
    parts: Sequence[str] = PARTS,
    model_name: str = "the model",
    data_name: str = "the caller's records",
) -> AuditResult:
    """Audit the claim that T steps of DP-VI with this sampler and mechanism are (epsilon, delta)-private.

    Both sides of a comparison run the same code. Only their records differ, and under add_or_remove_one how many there are.

    "many_runs": one canary; ``trials`` runs with it and ``trials`` without, each with its own key. Each run gets two scores:
    the log-likelihood ratio of presence, summed over steps, and the smallness of the noised sums, which reveals a division
    by the realised minibatch size. "one_run": m canaries in a single run, each in or out by a fair coin, and only the first
    score. It is cheap and proves less: about log(m / 10) at best, nothing unless 2 m delta is small, and nothing about a bug
    that no single canary shows.

    The result is an exact function of the records, without noise. Audit on public or made-up records.

    :param model: NumPyro model.
    :param guide: NumPyro guide.
    :param others: arrays of records that are in every data set, first axis n >= 1.
    :param present: arrays of the canaries, first axis m (1 for "many_runs").
    :param absent: under replace_one, the records that replace absent canaries, first axis m; gradients opposite to the
        canary's make the strongest attack. None under the other relations: an absent canary leaves no row under
        add_or_remove_one, and a blank row under replace_special (its numbers are NaN, and its gradient counts as zero).
    :param relation: of the claim.
    :param sampler: a frozen dataclass; under add_or_remove_one it is used with as many records as a data set has.
    :param mechanism: the claimed C and sigma > 0.
    :param epsilon: the claim, > 0.
    :param delta: of the claim, in (0, 1).
    :param iterations: T >= 1.
    :param mode: "many_runs" or "one_run".
    :param trials: runs on each side, >= 100.
    :param confidence: of the lower bound.
    :param estimator: "aligned" or "vanilla".
    :param strategy: as for ``DPVI``.
    :param microbatch_size: as for ``DPVI``.
    :param optim: as for ``DPVI``; by default Adam with steps so small that the canaries' gradients stay long.
    :param static: further keyword arguments of model and guide.
    :param seed: None for secret randomness; a whole number >= 0 makes the audit reproducible.
    :param bug: one of ``PLANTED_BUGS``, to audit a run that is broken on purpose.
    :param parts: some of ``PARTS``.
    :param model_name: in the result's statement.
    :param data_name: in the result.
    :raises ArgumentError: naming the argument and its value.
    """
    epsilon = _validate.number("epsilon", epsilon, above=0)
    delta, confidence = _validate.probability("delta", delta), _validate.probability("confidence", confidence)
    iterations = _validate.integer("iterations", iterations, at_least=1)
    trials = _validate.integer("trials", trials, at_least=100)
    sigma = mechanism.noise_multiplier
    _validate.number("noise_multiplier", sigma, above=0)
    _validate.choice("mode", mode, MODES)
    for part in parts:
        _validate.choice("parts", part, PARTS)
    if bug is not None:
        _validate.choice("bug", bug, PLANTED_BUGS)
    if bug == "realised_size" and relation != "add_or_remove_one":
        raise _validate.ArgumentError("bug", bug, "changes nothing where every minibatch has the same public size.")
    # a sampler that the caller wrote has no accountant here, so it allows every relation
    _validate.choice("relation", relation, SAMPLERS.get(sampler.name, _RELATIONS))
    canaries = _checked_canaries(present, absent, others, relation, mode)
    num_records = len(canaries.others[0]) + canaries.count

    release = _Release(
        model, guide, sampler, num_records, estimator, strategy, microbatch_size, dict(static or {}), bug,
        numpyro.optim.Adam(_LEARNING_RATE) if optim is None else optim,
    )  # fmt: skip
    claim = Claim(sampler.name, relation, sampler.sampling_rate, sigma, iterations, epsilon, delta)
    key = new_key() if seed is None else key_from_seed(_validate.seed("seed", seed))
    bound, runs = LowerBound(0.0, 0, "no runs"), 0
    if "attack" in parts:
        bound = _attacked(release, canaries, mechanism, claim, mode, trials, confidence, key)
        runs = trials if mode == "many_runs" else 1
    return AuditResult(
        model=model_name,
        data=data_name,
        claimed_epsilon=epsilon,
        delta=delta,
        relation=relation,
        sampler=sampler.name,
        sampling_rate=sampler.sampling_rate,
        noise_multiplier=sigma,
        iterations=iterations,
        mode=mode,
        canaries=canaries.count,
        trials=runs,
        lower_bound=bound.epsilon,
        confidence=confidence,
        score=SCORES[bound.score],
        evidence=bound.evidence,
        bug=bug,
        checks=_checks(parts, release, canaries, mechanism, claim, jax.random.fold_in(key, 0)),
    )


def _records(model: Model, data: str | Dataset | None, canaries: Any, count: int, num_others: int) -> tuple[str, Rows, Rows]:
    """The name of the data that ``audit`` was given, the other records, and the canaries."""
    made = None
    if data is None:
        dataset, made = made_table(num_others, count)
    else:
        dataset = data_named(data)
    model.check(dataset)
    if canaries is not None:
        present = arrays_of("canaries", canaries)
    else:
        present = table_canaries(dataset, count) if made is None else made
    return dataset.name, tuple(array[:num_others] for array in dataset.train), present


def audit(
    model: str | Model = "logistic",
    data: str | Dataset | None = None,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-2,
    iterations: int = 20,
    sampling_rate: float = 0.5,
    sampler: str = "poisson",
    relation: str | None = None,
    clip: float = 1.0,
    clipping: str = "flat",
    estimator: str = "aligned",
    strategy: str = "auto",
    microbatch_size: int | None = None,
    mode: str = "many_runs",
    trials: int = 10_000,
    num_canaries: int = 1000,
    num_others: int = _OTHERS,
    canaries: Rows | None = None,
    replacements: Rows | None = None,
    confidence: float = 0.95,
    learning_rate: float | None = None,
    seed: int | None = None,
    bug: str | None = None,
    parts: Sequence[str] = PARTS,
) -> AuditResult:
    """Audit what ``fit`` would promise: calibrate the noise as it does, run its steps on canaries, and attack them.

    See ``audit_release`` for the attack and its modes. A strong audit has a delta of 0.01 or more, because only events that
    happen in many runs can be counted (clipping, noise and scaling do not depend on delta); an epsilon well below
    log(trials / 8), the most that the runs can prove; many trials; and a small clip.

    :param model: name in the registry, or a ``Model``.
    :param data: name, ``Dataset``, or None for records made for the audit (for models of a table with a binary target). The
        result is an exact function of its training records, so use public ones.
    :param epsilon: the claim.
    :param delta: of the claim.
    :param iterations: T.
    :param sampling_rate: q.
    :param sampler: its name, as in ``fit``.
    :param relation: as in ``fit``; None for the sampler's own.
    :param clip: C > 0.
    :param clipping: as in ``fit``.
    :param estimator: as in ``fit``.
    :param strategy: as in ``fit``.
    :param microbatch_size: as in ``fit``.
    :param mode: "many_runs" or "one_run".
    :param trials: runs on each side, for "many_runs".
    :param num_canaries: m, for "one_run" without ``canaries``.
    :param num_others: n, the number of records of ``data`` beside the canaries; the first n are used. A guarantee holds for
        every data set, so the attacker chooses a small one, which hides a canary least.
    :param canaries: record arrays, first axis m (1 for "many_runs"); by default rows at the bounds of their features.
    :param replacements: what replaces absent canaries under replace_one; by default the same features with the other target.
    :param confidence: of the lower bound.
    :param learning_rate: of Adam; very small by default.
    :param seed: None for secret randomness.
    :param bug: one of ``PLANTED_BUGS``.
    :param parts: some of ``workbench.auditing.PARTS``. T may be large without "attack", because no other part takes T steps.
    :raises ArgumentError: naming the argument and its value.
    """
    _validate.choice("mode", mode, MODES)
    count = 1 if mode == "many_runs" else _validate.integer("num_canaries", num_canaries, at_least=20)
    chosen = model_named(model)
    if learning_rate is not None:
        learning_rate = _validate.number("learning_rate", learning_rate, above=0)
    num_others = _validate.integer("num_others", num_others, at_least=1)
    data_name, others, present = _records(chosen, data, canaries, count, num_others)
    num_records = len(others[0]) + len(present[0])
    settings = PrivacySettings(
        epsilon=epsilon,
        delta=delta,
        iterations=iterations,
        sampling_rate=sampling_rate,
        sampler=sampler,
        relation=relation,
        clip=clip,
        clipping=clipping,
        num_records=num_records,
        seed=seed,
    )
    absent = None
    if settings.relation == "replace_one":
        absent = (*present[:-1], 1 - present[-1]) if replacements is None else replacements
    plan = make_plan(settings, num_records)
    return audit_release(
        chosen.model,
        chosen.new_guide(),
        others,
        present,
        absent,
        relation=str(settings.relation),
        sampler=plan.sampler,
        mechanism=plan.mechanism,
        epsilon=settings.epsilon,
        delta=settings.delta,
        iterations=settings.iterations,
        mode=mode,
        trials=trials,
        confidence=confidence,
        estimator=estimator,
        strategy=strategy,
        microbatch_size=microbatch_size,
        optim=None if learning_rate is None else numpyro.optim.Adam(learning_rate),
        static=chosen.options,
        seed=seed,
        bug=bug,
        parts=parts,
        model_name=chosen.name,
        data_name=data_name,
    )
