"""The attack: runs with and without canaries, and what each step's noised sum reveals about them.

Runs go through ``PrivateStep.draw`` and ``PrivateStep.step``, with a mechanism that also keeps what
it returns. tests/auditing/test_paths.py shows that fits release the same.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from workbench.auditing.bugs import watched
from workbench.auditing.canaries import Canaries, Rows
from workbench.auditing.units import whole
from workbench.clipping.clipped_sums import clipped_sum
from workbench.inference import adaptive_clip, norm_counts
from workbench.inference.state import DPVIState, Draws, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.noise.key_use import throw_away
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.estimators import RecordLoss

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["SCORES", "Attack", "clipped_gradients", "evidence_of"]

SCORES = ("alignment of the noised sums with the canary's gradient", "smallness of the noised sums")

# runs in one vectorised run, and numbers in their per-record gradients
_AT_ONCE, _NUMBERS_AT_ONCE = (500, 2**24)
_OWN_DRAWS = 8  # draws of a record's own base noise, for its mean gradient


def clipped_gradients(
    step: PrivateStep, clip: float | jax.Array, params: PyTree, draws: Draws, canaries: Canaries
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Clipped gradients at this step's release point: of ``present``, of ``absent`` and the sum of
    those of ``others``.

    The first two are float[m, d], with zeros where there is no record; the sum is float[d]. Where
    the step counts norms, d is followed by the ranges of norms. If a record's loss has its own base
    noise, that noise is as secret as the minibatch, so the attacker averages over independent draws
    of it.
    """
    caught: list[tuple[jax.Array, jax.Array, jax.Array]] = []
    keys = jax.random.split(
        jax.random.key(0), _OWN_DRAWS if step.estimator.needs_own_keys(step.model) else 1
    )

    def release(loss: RecordLoss, u: PyTree) -> Any:
        def total(records: Any) -> jax.Array:
            mask = jnp.ones(records[0].shape[0], bool)

            def with_own(key: jax.Array) -> jax.Array:
                of_record = lambda u, record: loss(u, (record, key))  # noqa: E731
                clipping = step.mechanism.clipping
                clipped, norms = clipped_sum(
                    of_record, u, whole(step, records), mask, clip, clipping=clipping
                )
                counts = [
                    norm_counts.counts_of(norms, mask, jnp.float32(clip)).astype(jnp.float32)
                ] * step.options.counts_norms
                return ravel_pytree([clipped, *counts])[0]

            return jnp.mean(jax.vmap(with_own)(keys), axis=0)

        def each(records: Rows) -> jax.Array:
            return jax.vmap(lambda record: total(tuple(array[None] for array in record)))(records)

        present = each(canaries.present)
        absent = jnp.zeros_like(present) if canaries.absent is None else each(canaries.absent)
        caught.append((present, absent, total(canaries.others)))
        return jax.tree.map(jnp.zeros_like, u)

    # the estimator chooses the loss and where it is differentiated, so the audit works for every
    # estimator
    step.estimator.gradient(
        step.model, params, draws.base_noise, step.sampler.sampling_rate, release
    )
    return caught[0]


def evidence_of(
    noised: jax.Array,
    gradients: tuple[jax.Array, jax.Array, jax.Array],
    rate: float,
    deviation: float | jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Each canary's log-likelihood ratio of presence in one step, float[m], and the step's log mean
    square.

    The contribution of all other records, including other canaries, is replaced by its mean. A row
    is in the minibatch with probability q, so what remains has the density (1 - q) N(0, s^2) + q
    N(g, s^2), and the ratio is that of two such mixtures. Where this is an approximation (several
    rows, other samplers) the attack is weaker but valid: any score is.
    """
    present, absent, background = gradients
    means = rate * (present + absent) / 2
    residual = noised - rate * background - jnp.sum(means, axis=0)
    unexplained = residual + means  # for each canary, what the other records do not explain

    def mixture(gradient: jax.Array) -> jax.Array:
        exponent = jnp.sum((gradient * unexplained - gradient**2 / 2) / deviation**2, axis=1)
        out = math.log1p(-rate) if rate < 1 else -math.inf
        return jnp.logaddexp(out, math.log(rate) + exponent)

    return mixture(present) - mixture(absent), jnp.log(jnp.mean(residual**2))


@dataclass(frozen=True)
class Attack:
    """An attack: everything except the coins and keys of its runs.

    :param make_step: ``make_step(mechanism, key, records)`` is the step for these records.
    :param claimed: the mechanism of the claim.
    :param expected: public expected size of a minibatch.
    :param adapts_clip: whether runs adapt C, as fits with clip="auto" do, and release counts of
        norms for it.
    """

    make_step: Callable[[GaussianMechanism, jax.Array, Rows], PrivateStep]
    canaries: Canaries
    claimed: GaussianMechanism
    bug: str | None
    expected: float
    iterations: int
    start_key: jax.Array
    adapts_clip: bool = False

    def scorer(
        self, rows: Rows
    ) -> tuple[Callable[[jax.Array, Rows], tuple[jax.Array, jax.Array]], int]:
        """A function that trains on records and attacks what the run releases, and how many such
        runs fit into memory.

        The function takes a run's key and records shaped like ``rows``. It returns the scores: the
        evidence for each canary, float[m], and the smallness of the noised sums, float.
        """
        watcher = watched(self.claimed, self.bug, self.expected)
        throw_away(self.start_key)
        step = self.make_step(watcher, self.start_key, rows)
        hyper = Hyperparameters.of(watcher)
        if self.adapts_clip:
            step = step.with_options(counts_norms=True, keeps_moments=False)
            hyper = hyper._replace(
                moments_from=jnp.int32(self.iterations), adaptive=adaptive_clip.of(self.iterations)
            )
        start = step.init(self.start_key, hyper, step.model.initial)

        def scores(key: jax.Array, records: Rows) -> tuple[jax.Array, jax.Array]:
            arrays = tuple(jnp.asarray(array) for array in records)

            def one_step(
                carry: tuple[DPVIState, jax.Array, jax.Array], _: None
            ) -> tuple[Any, None]:
                state, evidence, log_sizes = carry
                draws = step.draw(state.key, state.step, hyper)
                watcher.begin(draws.minibatch)
                following = step.step(state, arrays, draws, hyper)
                # what the claim is about; after a planted bug, the step's own may be other ones
                clip, deviation = self._claimed_for(step, state, hyper)
                gradients = clipped_gradients(
                    step, clip, step.unconstrained(state), draws, self.canaries
                )
                noised = jnp.concatenate([watcher.noised_sum(), watcher.noised_counts()])
                ratios, log_size = evidence_of(
                    noised, gradients, step.sampler.sampling_rate, deviation
                )
                # a step that is not finite gives no evidence; that, too, is a function of the
                # release
                return (
                    following,
                    evidence + jnp.nan_to_num(ratios),
                    log_sizes + jnp.nan_to_num(log_size),
                ), None

            first = (start._replace(key=key), jnp.zeros(self.canaries.count), jnp.zeros(()))
            (_, evidence, log_sizes), _ = lax.scan(one_step, first, length=self.iterations)
            return evidence, -log_sizes / self.iterations

        # of a run's per-record gradients
        numbers = step.noise_size * (len(rows[0]) + self.canaries.count)
        return scores, max(1, min(_AT_ONCE, _NUMBERS_AT_ONCE // numbers))

    def _claimed_for(
        self, step: PrivateStep, state: DPVIState, hyper: Hyperparameters
    ) -> tuple[Any, Any]:
        """C of the step after ``state``, and standard deviations of the noise in each coordinate of
        what it releases.
        """
        if not self.adapts_clip:
            return self.claimed.clip, self.claimed.standard_deviation
        clip, sigma = (
            step.clip(state, hyper._replace(clip=jnp.float32(self.claimed.clip))),
            self.claimed.noise_multiplier,
        )
        of_sum, of_norms = step.shares(state.step, hyper)
        sizes = np.array([step.noise_size, step.noised_coordinates - step.noise_size])
        return clip, jnp.repeat(
            jnp.stack([clip * sigma / of_sum, sigma / of_norms]),
            sizes,
            total_repeat_length=sizes.sum(),
        )

    def many_runs(self, keys: dict[bool, jax.Array]) -> dict[bool, np.ndarray]:
        """Scores of independent runs with (True) and without (False) the canary, float[number of
        keys, 2].
        """
        compiled: dict[int, Callable[..., tuple[jax.Array, jax.Array]]] = {}
        scores = {}
        for present, run_keys in keys.items():
            rows = self.canaries.rows(np.array([present]))
            size = len(rows[0])
            if size not in compiled:  # under replace_one both sides have the same size
                compiled[size] = jax.jit(functools.partial(_for_each_key, *self.scorer(rows)))
            evidence, smallness = compiled[size](run_keys, rows)
            scores[present] = np.stack([evidence[:, 0], smallness], axis=1)
        return scores

    def one_run(self, coins: np.ndarray, key: jax.Array) -> np.ndarray:
        """Scores of the canaries in one run, float[m]."""
        rows = self.canaries.rows(coins)
        scores, _ = self.scorer(rows)
        return np.asarray(jax.jit(scores)(key, rows)[0])


def _for_each_key(scores: Callable[..., Any], at_once: int, keys: jax.Array, records: Rows) -> Any:
    return lax.map(lambda key: scores(key, records), keys, batch_size=at_once)
