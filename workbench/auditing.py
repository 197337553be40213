"""An empirical audit: the real core is run on records of the auditor's own, and attacked.

A canary is a record whose presence the attacker tries to tell from what the run released. The attack is white-box, as the
guarantee allows: the attacker knows model, settings and all other records, and sees the noised sum of every step. Only the
minibatches and the noise are secret. Runs go through ``DPVI.draw`` and ``DPVI.step`` as every fit does; a mechanism that
also notes what it returns is all that is added.

A run that leaks more than (epsilon, delta) allows is told from one that does not by ``workbench.privacy.audit``. The planted
bugs are there to show that the audit can fail, and can be reached from here only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import lax
from jax.flatten_util import ravel_pytree

from workbench import _validate
from workbench.data import Dataset
from workbench.inference.clipping import clipped_sum
from workbench.inference.dpvi import DPVI, DPVIState, Draws
from workbench.inference.gradients import RecordLoss
from workbench.models import Model
from workbench.privacy import accounting
from workbench.privacy.audit import epsilon_lower_bound, one_run_epsilon_lower_bound
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.plan import PrivacySettings, make_plan
from workbench.privacy.randomness import key_from_seed, new_key
from workbench.sampling import Minibatch, Sampler
from workbench.settling import data_named, model_named

__all__ = ["MODES", "PLANTED_BUGS", "AuditResult", "audit", "audit_release"]

MODES = ("many_runs", "one_run")
PLANTED_BUGS = ("half_noise", "no_clipping", "realised_size")

Rows = tuple[np.ndarray, ...]  # record arrays, first axis: records

_RELATIONS = ("add_or_remove_one", "replace_one", "replace_special")
_SCORES = ("alignment of the noised sums with the canary's gradient", "smallness of the noised sums")
_AT_ONCE, _NUMBERS_AT_ONCE = 500, 2**24  # runs in one vectorised run, and numbers in their per-record gradients
_LEARNING_RATE = 1e-3
_OWN_DRAWS = 8  # of a record's own base noise, for its mean gradient
_OTHERS, _FEATURES, _LENGTH = 9, 10, 10.0  # of records made for the audit


@dataclass(frozen=True)
class AuditResult:
    """What an audit found.

    :param model: its name. :param data: whose records stood beside the canaries.
    :param claimed_epsilon: what the guarantee promises. :param delta: for both bounds. :param relation: of the promise.
    :param sampler: its name. :param sampling_rate: q. :param noise_multiplier: sigma. :param iterations: T.
    :param mode: "many_runs" or "one_run". :param canaries: how many in a run. :param trials: runs with and as many
        without the canary; 1 in the mode "one_run".
    :param lower_bound: on epsilon, holds with ``confidence``. :param score: what gave it. :param evidence: counts, in words.
    :param bug: the planted bug, or None.
    """

    model: str
    data: str
    claimed_epsilon: float
    delta: float
    relation: str
    sampler: str
    sampling_rate: float
    noise_multiplier: float
    iterations: int
    mode: str
    canaries: int
    trials: int
    lower_bound: float
    confidence: float
    score: str
    evidence: str
    bug: str | None

    @property
    def passed(self) -> bool:
        """Whether the lower bound stays under the claim."""
        return self.lower_bound <= self.claimed_epsilon

    def statement(self) -> str:
        """The result in plain words."""
        runs = (
            f"{self.trials} runs with and {self.trials} without one canary"
            if self.mode == "many_runs"
            else f"One run with {self.canaries} canaries, each in or out by a coin,"
        )
        planted = f" The bug {self.bug!r} was planted." if self.bug else ""
        finding = (
            f"The claim stands: epsilon = {self.claimed_epsilon:g} is not refuted. That proves nothing: other records or a "
            "better attack may leak more, and a bug that this attack does not touch stays unseen."
            if self.passed
            else f"The claim is refuted: epsilon = {self.claimed_epsilon:g} at delta = {self.delta:g} does not hold."
        )
        return (
            f"{runs} of {self.model} ({self.iterations} steps, sampler {self.sampler}, relation {self.relation}).{planted} "
            f"With {self.confidence:.4g} confidence epsilon is at least {self.lower_bound:.3g} at delta = {self.delta:g} "
            f"({self.score}: {self.evidence}). {finding}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All fields, with ``passed`` and ``statement``, for JSON."""
        return {**dataclasses.asdict(self), "passed": self.passed, "statement": self.statement()}


# --- watching the mechanism ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Watched(GaussianMechanism):
    """The mechanism itself; while a step is traced it notes the noised sum.

    ``add`` is called once a step and outside of inner loops, so what it returns may leave the trace of the step.
    """

    seen: list[Any] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Called before each step is traced."""
        self.seen.clear()

    def add(self, total: Any, noise: jax.Array) -> Any:  # type: ignore[override]
        """As ``GaussianMechanism.add``."""
        noised = super().add(total, noise)
        self.seen.append(noised)
        return noised

    def noised_sum(self) -> jax.Array:
        """What the step released, float[size of u]."""
        (noised,) = self.seen
        return ravel_pytree(noised)[0]


@dataclass(frozen=True, eq=False)
class _DividesByRealisedSize(_Watched):
    """PLANTED BUG: the noised sum is rescaled from the realised to the expected minibatch size, as a mean would be."""

    expected: float = math.nan
    realised: list[jax.Array] = field(default_factory=list)

    def begin(self, minibatch: Minibatch) -> None:
        """Notes how many records the step will see."""
        super().begin(minibatch)
        self.realised[:] = [jnp.sum(minibatch.mask)]

    def add(self, total: Any, noise: jax.Array) -> Any:  # type: ignore[override]
        """Noised sum times expected / realised size."""
        factor = self.expected / jnp.maximum(self.realised[0], 1)
        noised = jax.tree.map(lambda leaf: leaf * factor, GaussianMechanism.add(total, noise))
        self.seen.append(noised)
        return noised


def _watched(claimed: GaussianMechanism, bug: str | None, expected: float) -> _Watched:
    """The mechanism as claimed, or with a bug planted. ``expected``: minibatch size that "realised_size" scales to."""
    clip, sigma, clipping = claimed.clip, claimed.noise_multiplier, claimed.clipping
    if bug == "half_noise":
        return _Watched(clip, sigma / 2, clipping)
    if bug == "no_clipping":  # noise as for C, but no gradient is as long as what it is cut to
        return _Watched(clip * 1e9, sigma / 1e9, "flat")
    if bug == "realised_size":
        return _DividesByRealisedSize(clip, sigma, clipping, expected=expected)
    return _Watched(clip, sigma, clipping)


# --- the attack --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Canaries:
    """m pairs of records; a coin each decides whether ``present`` or ``absent`` stands in the data set.

    ``absent`` is None where a canary that is out leaves no row. ``others`` are in every data set.
    """

    present: Rows
    absent: Rows | None
    others: Rows

    @property
    def count(self) -> int:
        return len(self.present[0])

    def rows(self, coins: np.ndarray) -> Rows:
        """The data set for bool[m] coins."""
        if self.absent is None:
            chosen = tuple(array[coins] for array in self.present)
        else:
            chosen = tuple(
                np.where(coins.reshape(-1, *[1] * (there.ndim - 1)), there, instead)
                for there, instead in zip(self.present, self.absent, strict=True)
            )
        return tuple(np.concatenate(parts) for parts in zip(self.others, chosen, strict=True))


def _clipped_gradients(
    trainer: DPVI, clip: float, params: Any, draws: Draws, canaries: _Canaries
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """At this step's release point: clipped gradients of ``present`` and ``absent``, float[m, d] each (zeros for no
    record), and the sum of those of ``others``, float[d].

    Where a record's loss has base noise of its own, that is as secret as the minibatch: the attacker takes the mean over
    draws of its own, not the step's.
    """
    caught: list[tuple[jax.Array, jax.Array, jax.Array]] = []
    keys = jax.random.split(jax.random.key(0), _OWN_DRAWS if trainer.estimator.base_noise(trainer.split) else 1)

    def release(loss: RecordLoss, u: Any) -> Any:
        def total(records: Any) -> jax.Array:
            mask = jnp.ones(records[0].shape[0], bool)

            def with_own(key: jax.Array) -> jax.Array:
                clipped, _ = clipped_sum(
                    lambda u, record: loss(u, (record, key)), u, records, mask, clip, clipping=trainer.mechanism.clipping
                )
                return ravel_pytree(clipped)[0]

            return jnp.mean(jax.vmap(with_own)(keys), axis=0)

        def each(records: Rows) -> jax.Array:
            return jax.vmap(lambda record: total(tuple(array[None] for array in record)))(records)

        present = each(canaries.present)
        absent = jnp.zeros_like(present) if canaries.absent is None else each(canaries.absent)
        caught.append((present, absent, total(canaries.others)))
        return jax.tree.map(jnp.zeros_like, u)

    # the estimator itself says which loss is differentiated where, so an audit follows it whatever it is
    trainer.estimator.gradient(trainer.split, params, draws.base_noise, trainer.sampler.sampling_rate, release)
    return caught[0]


def _evidence(
    noised: jax.Array, gradients: tuple[jax.Array, jax.Array, jax.Array], rate: float, deviation: float
) -> tuple[jax.Array, jax.Array]:
    """For each canary the log-likelihood ratio of present to absent in one step, float[m], and the step's log mean square.

    The other records' part, canaries among them, counts with its mean. A row is in the minibatch with probability q, so
    what it has the density (1 - q) N(0, s^2) + q N(g, s^2) and the ratio has one such mixture above and one below. Where
    these are approximations (several rows, other samplers) the attack is weaker, not wrong: any score is allowed.
    """
    present, absent, others = gradients
    means = rate * (present + absent) / 2
    rest = noised - rate * others - jnp.sum(means, axis=0)
    left = rest + means  # for each canary: what the others do not explain

    def mixture(gradient: jax.Array) -> jax.Array:
        exponent = jnp.sum(gradient * left - gradient**2 / 2, axis=1) / deviation**2
        out = math.log1p(-rate) if rate < 1 else -math.inf
        return jnp.logaddexp(out, math.log(rate) + exponent)

    return mixture(present) - mixture(absent), jnp.log(jnp.mean(rest**2))


@dataclass(frozen=True)
class _Attack:
    """One way of running and attacking: everything but the coins and the keys of runs.

    ``make_trainer(size, mechanism)`` trains on ``size`` records. ``expected``: public expected size of a minibatch.
    """

    make_trainer: Callable[[int, GaussianMechanism], DPVI]
    canaries: _Canaries
    claimed: GaussianMechanism
    bug: str | None
    expected: float
    iterations: int
    start_key: jax.Array

    def scorer(self, rows: Rows) -> tuple[Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]], int]:
        """A function of a run's key and of records shaped as ``rows``: it trains on them and attacks what it sees.

        It returns the scores: evidence for each canary, float[m], and smallness of the noised sums, float. The second
        result is how many runs fit into memory at once.
        """
        watched = _watched(self.claimed, self.bug, self.expected)
        trainer = self.make_trainer(len(rows[0]), watched)
        start = trainer.init(self.start_key, *rows)

        def scores(key: jax.Array, records: Rows) -> tuple[jax.Array, jax.Array]:
            arrays = tuple(jnp.asarray(array) for array in records)

            def one_step(carry: tuple[DPVIState, jax.Array, jax.Array], _: None) -> tuple[Any, None]:
                state, evidence, log_sizes = carry
                draws = trainer.draw(state.key, state.step)
                watched.begin(draws.minibatch)
                following = trainer.step(state, arrays, draws)
                params = trainer.optim.get_params(state.optim_state)
                gradients = _clipped_gradients(trainer, self.claimed.clip, params, draws, self.canaries)
                ratios, log_size = _evidence(
                    watched.noised_sum(), gradients, trainer.sampler.sampling_rate, self.claimed.standard_deviation
                )
                # a step that broke says nothing; that too is a function of what was released
                return (following, evidence + jnp.nan_to_num(ratios), log_sizes + jnp.nan_to_num(log_size)), None

            first = (start._replace(key=key), jnp.zeros(self.canaries.count), jnp.zeros(()))
            (_, evidence, log_sizes), _ = lax.scan(one_step, first, length=self.iterations)
            return evidence, -log_sizes / self.iterations

        numbers = trainer.noise_size * (len(rows[0]) + self.canaries.count)  # of a run's per-record gradients
        return scores, max(1, min(_AT_ONCE, _NUMBERS_AT_ONCE // numbers))

    def many_runs(self, keys: dict[bool, jax.Array]) -> dict[bool, np.ndarray]:
        """Scores of independent runs with (True) and without (False) the one canary, float[number of keys, 2]."""
        compiled: dict[int, Callable[..., tuple[jax.Array, jax.Array]]] = {}
        found = {}
        for present, own in keys.items():
            rows = self.canaries.rows(np.array([present]))
            size = len(rows[0])
            if size not in compiled:  # under replace_one both sides have one size
                compiled[size] = jax.jit(functools.partial(_for_each_key, *self.scorer(rows)))
            evidence, smallness = compiled[size](own, rows)
            found[present] = np.stack([evidence[:, 0], smallness], axis=1)
        return found

    def one_run(self, coins: np.ndarray, key: jax.Array) -> np.ndarray:
        """Scores of the canaries of one run, float[m]."""
        rows = self.canaries.rows(coins)
        scores, _ = self.scorer(rows)
        return np.asarray(jax.jit(scores)(key, rows)[0])


def _for_each_key(scores: Callable[..., Any], at_once: int, keys: jax.Array, records: Rows) -> Any:
    return lax.map(lambda key: scores(key, records), keys, batch_size=at_once)


def _arrays(name: str, records: Any) -> Rows:
    """``records`` as NumPy arrays, checked to be one or more of one length."""
    arrays = tuple(np.asarray(array) for array in records)
    sizes = [array.shape[0] if array.ndim else 0 for array in arrays]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise _validate.ArgumentError(name, tuple(sizes), "must be record arrays with the same first axis, of 1 or more.")
    return arrays


def _blank(records: Rows) -> Rows:
    """Records that contribute nothing to a clipped sum."""
    kinds = [str(array.dtype) for array in records]
    if not any(np.issubdtype(array.dtype, np.floating) for array in records):
        raise _validate.ArgumentError("present", kinds, "whole numbers alone, where NaN cannot mark a blank record.")
    return tuple(np.full_like(array, np.nan) if np.issubdtype(array.dtype, np.floating) else array for array in records)


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
    gradient: str = "aligned",
    optim: Any = None,
    static: Mapping[str, Any] | None = None,
    seed: int | None = None,
    bug: str | None = None,
    model_name: str = "the model",
    data_name: str = "the caller's records",
) -> AuditResult:
    """Audit the claim that T steps of DP-VI with this sampler and this mechanism are (epsilon, delta)-private.

    Both sides of a comparison run the same code and differ in their records (and in how many there are, under
    add_or_remove_one) alone.

    "many_runs": one canary, ``trials`` runs with and as many without it, each with a key of its own, and two scores for each
    run: the log-likelihood ratio of presence, summed over steps, and the smallness of the noised sums, which betrays a
    division by the realised minibatch size. "one_run": m canaries in a single run, each in or out by a fair coin, and the
    first score alone. It is cheap and proves less: about log(m / 10) at best, nothing where 2 m delta is not small, and
    nothing of a bug that shows no single canary.

    The result is a function of the records without noise: audit on public or made-up ones.

    :param model: NumPyro model. :param guide: NumPyro guide. :param others: arrays of records that are in every data set,
        first axis n >= 1.
    :param present: arrays of the canaries, first axis m (1 for "many_runs").
    :param absent: under replace_one the records that stand in the rows of canaries that are out, first axis m; gradients
        opposite to the canary's make the strongest attack. None under other relations: under add_or_remove_one such a
        canary leaves no row, under replace_special a blank one (its numbers are NaN, and its gradient counts as zero).
    :param relation: of the claim.
    :param sampler: a frozen dataclass; under add_or_remove_one it is used with as many records as a data set has.
    :param mechanism: C and sigma > 0 as claimed.
    :param epsilon: the claim, > 0. :param delta: its delta, in (0, 1). :param iterations: T >= 1.
    :param trials: runs on each side, >= 100. :param confidence: of the lower bound.
    :param gradient: "aligned" or "vanilla". :param optim: as for ``DPVI``; by default Adam with a step so small that
        canaries keep their long gradients.
    :param static: further keyword arguments of model and guide.
    :param seed: None for secret randomness; a whole number >= 0 makes the audit reproducible.
    :param bug: one of ``PLANTED_BUGS`` to audit a run that is broken on purpose.
    :raises ArgumentError: naming the argument and its value.
    """
    epsilon = _validate.number("epsilon", epsilon, above=0)
    delta, confidence = _validate.probability("delta", delta), _validate.probability("confidence", confidence)
    iterations = _validate.integer("iterations", iterations, at_least=1)
    trials = _validate.integer("trials", trials, at_least=100)
    _validate.number("noise_multiplier", mechanism.noise_multiplier, above=0)
    _validate.choice("mode", mode, MODES)
    if bug is not None:
        _validate.choice("bug", bug, PLANTED_BUGS)
    if bug == "realised_size" and relation != "add_or_remove_one":
        raise _validate.ArgumentError("bug", bug, "changes nothing where every minibatch has the same public size.")
    # a sampler of the caller's own has no accountant here to disagree with
    _validate.choice("relation", relation, accounting.SAMPLERS.get(sampler.name, _RELATIONS))
    if (absent is not None) != (relation == "replace_one"):
        given = None if absent is None else "records"
        raise _validate.ArgumentError("absent", given, f"records stand in for canaries under replace_one, not {relation}.")
    present, others = _arrays("present", present), _arrays("others", others)
    if absent is not None:
        absent = _arrays("absent", absent)
        if [array.shape for array in absent] != [array.shape for array in present]:
            raise _validate.ArgumentError("absent", len(absent[0]), "must be arrays of the same shapes as present.")
    elif relation == "replace_special":
        absent = _blank(present)
    canaries = _Canaries(present, absent, others)
    if mode == "many_runs" and canaries.count != 1:
        raise _validate.ArgumentError("present", canaries.count, "canaries: many runs audit one.")
    num_records = len(canaries.others[0]) + canaries.count

    def make_trainer(size: int, watched: GaussianMechanism) -> DPVI:
        return DPVI(
            model,
            guide,
            numpyro.optim.Adam(_LEARNING_RATE) if optim is None else optim,
            sampler=dataclasses.replace(sampler, num_records=size),  # type: ignore[type-var]  # they are dataclasses
            mechanism=watched,
            num_records=num_records,
            gradient=gradient,
            **(static or {}),
        )

    key = new_key() if seed is None else key_from_seed(_validate.seed("seed", seed))
    start_key, coin_key, first_key, second_key = jax.random.split(key, 4)
    expected = sampler.sampling_rate * num_records
    attack = _Attack(make_trainer, canaries, mechanism, bug, expected, iterations, start_key)
    if mode == "many_runs":
        keys = {present: jax.random.split(own, trials) for present, own in ((True, first_key), (False, second_key))}
        scores = attack.many_runs(keys)
        bound = epsilon_lower_bound(scores[True], scores[False], delta, confidence)
    else:
        coins = np.asarray(jax.random.bernoulli(coin_key, shape=(canaries.count,)))
        bound = one_run_epsilon_lower_bound(attack.one_run(coins, first_key), coins, delta, confidence)
    return AuditResult(
        model=model_name,
        data=data_name,
        claimed_epsilon=epsilon,
        delta=delta,
        relation=relation,
        sampler=sampler.name,
        sampling_rate=sampler.sampling_rate,
        noise_multiplier=mechanism.noise_multiplier,
        iterations=iterations,
        mode=mode,
        canaries=canaries.count,
        trials=trials if mode == "many_runs" else 1,
        lower_bound=bound.epsilon,
        confidence=confidence,
        score=_SCORES[bound.score],
        evidence=bound.evidence,
        bug=bug,
    )


# --- records made for the audit ----------------------------------------------------------------------------------------


def _made_table(num_others: int, num_canaries: int) -> tuple[Dataset, Rows]:
    """A table whose records have no features, and canaries with one long feature each, of its own where there are many.

    The others' gradients and those of further canaries are then nearly orthogonal to a canary's, and hide little of it.
    """
    width = max(num_canaries, _FEATURES)
    target = (np.arange(max(num_canaries, num_others)) % 2).astype(np.int32)
    train = (np.zeros((num_others, width), np.float32), target[:num_others])
    features = np.eye(num_canaries, width, dtype=np.float32) * _LENGTH
    data = Dataset(
        name="made for the audit",
        description="Records without features, for canaries to stand out from.",
        train=train,
        evaluation=tuple(array[:0] for array in train),
        feature_names=tuple(f"feature {number}" for number in range(width)),
        target_name="target",
        classes=("0", "1"),
        evaluation_is_public=True,
        licence="public domain",
        source="the audit",
    )
    return data, (features, target[:num_canaries])


def _table_canaries(data: Dataset, num_canaries: int) -> Rows:
    """Canaries for a table with a binary target: every feature at one of its bounds, by a coin each."""
    train = data.train
    if len(train) != 2 or train[0].ndim != 2 or not np.isin(train[1], (0, 1)).all():
        raise _validate.ArgumentError(
            "canaries", None, f"{data.name} is no table with a binary target: give canaries, a tuple of record arrays."
        )
    signs = np.random.default_rng(0).choice([-1, 1], (num_canaries, train[0].shape[1]))
    return signs.astype(train[0].dtype), (np.arange(num_canaries) % 2).astype(train[1].dtype)


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
    gradient: str = "aligned",
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
) -> AuditResult:
    """Audit what ``fit`` would promise: calibrate the noise as it does, run its steps on canaries, and attack them.

    See ``audit_release`` for the attack and its modes. What makes a strong audit: a delta of a hundredth or more, because
    only events that happen in many runs can be counted (a step is clipped, noised and scaled alike whatever delta is); an
    epsilon well below log(trials / 8), the most that runs can prove; many trials; a small clip.

    :param model: name in the registry, or a ``Model``.
    :param data: name, ``Dataset``, or None for records made for the audit (models of a table with a binary target). The
        result is a function of its training records without noise: take public ones.
    :param epsilon: the claim. :param delta: of the claim. :param iterations: T. :param sampling_rate: q.
    :param sampler: its name, as in ``fit``. :param relation: as in ``fit``; None for the sampler's own.
    :param clip: C > 0. :param clipping: as in ``fit``. :param gradient: as in ``fit``.
    :param mode: "many_runs" or "one_run". :param trials: runs on each side, for "many_runs".
    :param num_canaries: m, for "one_run", where ``canaries`` is None.
    :param num_others: n, how many records of ``data`` stand beside the canaries: the first ones. A promise holds for every
        data set, so the attacker takes a small one, which hides a canary worst.
    :param canaries: record arrays, first axis m (1 for "many_runs"); by default rows at the bounds of their features.
    :param replacements: what stands in the place of a canary that is out, under replace_one; by default the same
        features with the other target.
    :param confidence: of the lower bound. :param learning_rate: of Adam; very small by default.
    :param seed: None for secret randomness. :param bug: one of ``PLANTED_BUGS``.
    :raises ArgumentError: naming the argument and its value.
    """
    _validate.choice("mode", mode, MODES)
    count = 1 if mode == "many_runs" else _validate.integer("num_canaries", num_canaries, at_least=20)
    chosen = model_named(model)
    if learning_rate is not None:
        learning_rate = _validate.number("learning_rate", learning_rate, above=0)
    num_others = _validate.integer("num_others", num_others, at_least=1)
    if data is None:
        dataset, made = _made_table(num_others, count)
        chosen.check(dataset)
    else:
        dataset = data_named(data)
        chosen.check(dataset)
        made = _table_canaries(dataset, count) if canaries is None else canaries
    others = tuple(array[:num_others] for array in dataset.train)
    present = made if canaries is None else _arrays("canaries", canaries)
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
        gradient=gradient,
        optim=None if learning_rate is None else numpyro.optim.Adam(learning_rate),
        static=chosen.options,
        seed=seed,
        bug=bug,
        model_name=chosen.name,
        data_name=dataset.name,
    )
