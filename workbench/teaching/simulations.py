"""Computations for the teaching screens and notebooks, with the workbench's own accountants,
samplers and clipping.

Everything here uses only made-up records or plans.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from workbench import _validate
from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.clipping.clipped_sums import clipped_sum
from workbench.noise.chacha20 import key_from_seed, new_key, stream
from workbench.noise.normals import normal
from workbench.privacy import accounting, calibration
from workbench.privacy.accounting import round_up
from workbench.privacy.steps import LAWS, Steps
from workbench.sampling import PoissonSampler

__all__ = [
    "CLOUD",
    "Attack",
    "Descent",
    "DescentStep",
    "Several",
    "Spent",
    "attack",
    "clipped_location",
    "minibatches",
    "several_fits",
    "spent",
    "spent_by_steps",
]

# these programs are small and often run only a few hundred times, so they must compile quickly
_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

# ---- one record in or out ------------------------------------------------------------------------

# false-positive rates of the curves: evenly spaced on a linear axis, and on a logarithmic one down
# to 0.01 %
_RATES = np.unique(np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 61), np.linspace(0.02, 1.0, 50)]))


@dataclass(frozen=True)
class Attack:
    """Bounds on the best test for one record's presence, under add_or_remove_one; made by
    ``attack``.

    :param epsilon: of the fit.
    :param delta: of the fit.
    :param sampling_rate: q.
    :param steps: T.
    :param noise_multiplier: sigma, which gives (epsilon, delta).
    :param rates: false-positive rates in [0, 1], float[n].
    :param promised: upper bounds on the true-positive rate from (epsilon, delta) alone, float[n].
    :param accounted: upper bounds from the fit's privacy loss distribution, float[n]; never above
        ``promised``.
    """

    epsilon: float
    delta: float
    sampling_rate: float
    steps: int
    noise_multiplier: float
    rates: np.ndarray
    promised: np.ndarray
    accounted: np.ndarray

    def found(self, rate: float) -> tuple[float, float]:
        """(promised, accounted) true-positive rates at one false-positive rate, rounded up to 4
        decimals.
        """
        promised = float(accounting.region(self.epsilon, self.delta, rate))
        curve = accounting.trade_off(
            sampling_rate=self.sampling_rate,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            false_positive_rates=[rate],
        )
        accounted = min(float(curve[0]), promised)
        return min(1.0, round_up(promised, 4)), min(1.0, round_up(accounted, 4))

    def belief(self, rate: float) -> float:
        """The highest probability, rounded up, to which an accusation at this false-positive rate
        raises one of 50 %.
        """
        accounted = self.found(rate)[1]
        return min(1.0, round_up(accounted / (accounted + rate), 4))


@functools.lru_cache(maxsize=512)
def attack(*, epsilon: float, delta: float, sampling_rate: float, steps: int) -> Attack:
    """The attacker's curves for an (epsilon, delta)-private fit with Poisson minibatches.

    sigma is the smallest that gives (epsilon, delta), so the fit leaks as much as it may. Repeated
    calls are free.

    :param epsilon: > 0.
    :param delta: in (0, 1).
    :param sampling_rate: q in (0, 1].
    :param steps: T >= 1.
    :raises ArgumentError: naming the argument and its value.
    """
    sigma = calibration.noise_multiplier(
        epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps
    )
    corner = (1 - delta) / (1 + math.exp(epsilon))  # where the two lines of ``promised`` meet
    rates = np.union1d(_RATES, [corner])
    promised = accounting.region(epsilon, delta, rates)
    accounted = accounting.trade_off(
        sampling_rate=sampling_rate, noise_multiplier=sigma, steps=steps, false_positive_rates=rates
    )
    return Attack(
        epsilon,
        delta,
        sampling_rate,
        steps,
        sigma,
        rates,
        promised,
        np.minimum(accounted, promised),
    )


# ---- several fits --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Several:
    """Upper bounds on the epsilon of k equal fits on the same records, at k delta; made by
    ``several_fits``.

    :param epsilon: of one fit.
    :param delta: of one fit.
    :param noise_multiplier: sigma.
    :param counts: numbers k of fits, int[n].
    :param added: k epsilon, the sum of the guarantees.
    :param advanced: the bound of advanced composition, where it is below ``added``.
    :param composed: the bound for all steps of all fits, from their privacy loss distribution.
    """

    epsilon: float
    delta: float
    noise_multiplier: float
    counts: np.ndarray
    added: np.ndarray
    advanced: np.ndarray
    composed: np.ndarray

    def of(self, count: int) -> tuple[float, float, float]:
        """(added, advanced, composed) for this number of fits, one of ``counts``, rounded up to 3
        decimals.
        """
        index = int(np.flatnonzero(self.counts == count)[0])
        return tuple(
            round_up(float(values[index]), 3)
            for values in (self.added, self.advanced, self.composed)
        )  # type: ignore[return-value]


@functools.lru_cache(maxsize=512)
def several_fits(
    *,
    epsilon: float,
    delta: float,
    sampling_rate: float,
    steps: int,
    counts: tuple[int, ...] = (1, 2, 5, 10, 20, 50),
) -> Several:
    """Bounds on what k (epsilon, delta)-private fits with Poisson minibatches spend together, under
    add_or_remove_one.

    All three bounds are at the same k delta. "Advanced" is Kairouz, Oh and Viswanath 2015, Theorem
    3.4 (after Dwork, Rothblum and Vadhan 2010): each fit is counted at delta / 2, where its epsilon
    is a little larger, and the theorem needs the other half. "Composed" counts k T steps, with a
    quick accountant that is up to a few percent high.

    :param epsilon: > 0, of one fit.
    :param delta: in (0, 1), of one fit.
    :param sampling_rate: q in (0, 1].
    :param steps: T >= 1, of one fit.
    :param counts: numbers of fits, at most 50, each >= 1 and with k delta < 1.
    :raises ArgumentError: naming the argument and its value.
    """
    delta = _validate.probability("delta", delta)
    for count in counts:
        _validate.integer("counts", count, at_least=1)
        if count * delta >= 1:
            raise _validate.ArgumentError(
                "counts", count, f"fits at delta = {delta:g} together have no guarantee."
            )
    sigma = calibration.noise_multiplier(
        epsilon=epsilon, delta=delta, sampling_rate=sampling_rate, steps=steps
    )
    single = Steps.checked("poisson", None, sampling_rate, sigma, steps)
    of_half = accounting.total_epsilon((single,), delta / 2)
    added, advanced, composed = [], [], []
    for count in counts:
        added.append(count * epsilon)
        advanced.append(min(added[-1], _advanced(of_half, count, count * delta / 2)))
        together = Steps.checked("poisson", None, sampling_rate, sigma, count * steps)
        composed.append(min(added[-1], accounting.total_epsilon((together,), count * delta, True)))
    return Several(
        epsilon, delta, sigma, np.array(counts), *map(np.array, (added, advanced, composed))
    )


def _advanced(epsilon: float, count: int, slack: float) -> float:
    """Epsilon of ``count`` mechanisms with ``epsilon`` each, if ``slack`` is added to the sum of
    their deltas.
    """
    # (e^epsilon - 1) / (e^epsilon + 1) = tanh(epsilon / 2)
    drift = math.tanh(epsilon / 2) * epsilon
    return count * drift + epsilon * math.sqrt(2 * count * math.log(1 / slack))


# ---- minibatches ---------------------------------------------------------------------------------


def minibatches(
    sampler: str, *, num_records: int, batch_size: int, steps: int, key: jax.Array
) -> np.ndarray:
    """Draw the records of each step with the real sampler, bool[steps, num_records].

    :param sampler: "poisson" (q = batch_size / num_records), "without_replacement", "shuffle" or
        "random_allocation" (t = num_records / batch_size, rounded).
    :param num_records: N.
    :param batch_size: b in 1 .. N; the expected size for "poisson" and "random_allocation".
    :param steps: T.
    :param key: a ChaCha20 key.
    :raises ArgumentError: naming the argument and its value.
    :raises TypeError: for another kind of key.
    """
    _validate.choice("sampler", sampler, LAWS)
    num_records = _validate.integer("num_records", num_records, at_least=1, at_most=10_000)
    batch_size = _validate.integer("batch_size", batch_size, at_least=1, at_most=num_records)
    steps = _validate.integer("steps", steps, at_least=1, at_most=10_000)
    return np.asarray(_membership(sampler, num_records, batch_size, steps)(key))


@functools.lru_cache(maxsize=64)
def _membership(sampler: str, num_records: int, batch_size: int, steps: int) -> Any:
    # room for all records: no overflow
    drawn = LAWS[sampler].sampler(num_records, batch_size / num_records, num_records)

    def members(key: jax.Array) -> jax.Array:
        def one(number: jax.Array) -> jax.Array:
            return drawn.draw_from(stream(key, number, drawn.words), key, number).members(
                num_records
            )

        return lax.map(one, jnp.arange(steps, dtype=jnp.uint32))

    return _jit(members)


class Spent(NamedTuple):
    """Epsilon of one plan by one accountant.

    :param curve: ((steps, epsilon), ...); empty if only the last epsilon is known.
    :param epsilon: after all steps, rounded up to 3 decimals; infinite if no bound holds.
    """

    sampler: str
    relation: str
    accountant: str
    curve: tuple[tuple[int, float], ...]
    epsilon: float


@functools.lru_cache(maxsize=4096)
def spent(
    sampler: str,
    relation: str,
    accountant: str,
    *,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
) -> Spent:
    """Epsilon over steps by "pld" (``accounting.epsilon_curve``), or at the end by another
    accountant.

    Repeated calls are free. Epsilon is infinite, and not in the curve, if none up to the
    accountant's limit holds.

    :raises ArgumentError: naming the argument and its value.
    """
    plan = {
        "sampler": sampler,
        "relation": relation,
        "sampling_rate": sampling_rate,
        "noise_multiplier": noise_multiplier,
        "steps": steps,
        "delta": delta,
    }
    if accountant == "pld":
        curve = accounting.epsilon_curve(**plan, points=8)  # type: ignore[arg-type]
        finite = tuple(point for point in curve if math.isfinite(point[1]))
        return Spent(sampler, relation, accountant, finite, curve[-1][1])
    value = accounting.epsilon(**plan, accountant=accountant)  # type: ignore[arg-type]
    return Spent(sampler, relation, accountant, (), round_up(value, 3))


def spent_by_steps(phases: tuple[tuple[float, float, int], ...], delta: float) -> float:
    """Upper bound on epsilon, rounded up to 2 decimals, after phases of (q, sigma, steps) with
    Poisson minibatches.

    Quick: a few per mille above ``accounting.epsilon``. Infinite if a sigma is below 0.1 or no
    bound holds.
    """
    if any(sigma < 0.1 for _, sigma, _ in phases):
        return math.inf
    rates, sigmas, steps = zip(*phases, strict=True)
    return round_up(
        accounting.total_epsilon(
            (Steps.checked("poisson", None, rates, sigmas, steps),), delta, True
        ),
        2,
    )


# ---- a fit in the plane --------------------------------------------------------------------------


def _cloud() -> np.ndarray:
    """Forty made-up records in the plane. A fifth of them are far from the others, so that clipping
    causes a bias.
    """
    random = np.random.default_rng(2)
    near = random.normal((-0.6, -0.4), 0.4, (32, 2))
    far = random.normal((2.4, 1.6), 0.3, (8, 2))
    return np.concatenate([near, far]).astype(np.float32)


CLOUD = _cloud()
CLOUD.setflags(write=False)


def _loss(u: jax.Array, record: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum((u - record) ** 2)


class DescentStep(NamedTuple):
    """All parts of one step. On private records, a step releases only ``noised``.

    :param drawn: bool[N], the minibatch.
    :param pulls: float[N, 2], minus each record's gradient; zero if it is not drawn.
    :param clipped: float[N, 2], the pulls clipped to norm C.
    :param total: float[2], their sum, by ``clipped_sum``.
    :param noise: float[2], N(0, (sigma C)^2) in each coordinate.
    :param noised: float[2], total + noise, the only part that is released.
    :param change: float[2], learning rate * noised / (q N).
    :param before: float[2], the parameters before the step.
    :param after: float[2], the parameters after the step.
    """

    drawn: np.ndarray
    pulls: np.ndarray
    clipped: np.ndarray
    total: np.ndarray
    noise: np.ndarray
    noised: np.ndarray
    change: np.ndarray
    before: np.ndarray
    after: np.ndarray

    @property
    def num_clipped(self) -> int:
        """Number of records in the minibatch whose gradient was longer than C."""
        lengths, cut = (np.linalg.norm(vectors, axis=1) for vectors in (self.pulls, self.clipped))
        return int(np.sum(cut < 0.999 * lengths))


def _descend_once(
    u: jax.Array, records: jax.Array, drawn: jax.Array, normal: jax.Array, numbers: jax.Array
) -> tuple[jax.Array, ...]:
    clip, sigma, rate, learning_rate = numbers
    gradients = jnp.where(drawn[:, None], jax.vmap(jax.grad(_loss), (None, 0))(u, records), 0.0)
    total, _ = clipped_sum(_loss, u, records, drawn, clip)
    # clipped again record by record, to be shown
    clipped = jax.vmap(lambda record, use: clipped_sum(_loss, u, record[None], use[None], clip)[0])(
        records, drawn
    )
    noise = sigma * clip * normal
    noised = total + noise
    change = -learning_rate * noised / (rate * len(records))
    return -gradients, -clipped, -total, -noise, -noised, change, u + change


_descend = _jit(_descend_once)


def _draw(sampling_rate: float) -> Any:
    """A function of key, step and ``fresh``: the minibatch, bool[N], and two standard normals of
    the real generator.
    """
    sampler = PoissonSampler(len(CLOUD), sampling_rate, len(CLOUD))

    def draw(key: jax.Array, number: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        here = jax.random.fold_in(key, number)
        batch = sampler.draw(jax.random.fold_in(here, 0))
        return batch.members(len(CLOUD)), normal(jax.random.fold_in(here, 1 + fresh), (2,))

    return draw


@functools.lru_cache(maxsize=32)
def _compiled_draw(sampling_rate: float) -> Any:
    return _jit(_draw(sampling_rate))


@functools.lru_cache(maxsize=32)
def _many(sampling_rate: float, steps: int) -> Any:
    """A compiled function of u, records, key and numbers: the parameters after each of ``steps``
    steps.
    """
    draw = _draw(sampling_rate)

    def many(u: jax.Array, records: jax.Array, key: jax.Array, numbers: jax.Array) -> jax.Array:
        def one(u: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
            drawn, normal = draw(key, number, jnp.uint32(0))
            after = _descend_once(u, records, drawn, normal, numbers)[-1]
            return after, after

        return lax.scan(one, u, jnp.arange(steps, dtype=jnp.uint32))[1]

    return _jit(many)


class Descent:
    """DP gradient descent to the mean of ``CLOUD``, one step at a time.

    The loss of a record x at u is |u - x|^2 / 2. Its gradient is u - x, so each record pulls u
    towards itself, and without clipping the fit converges to the mean of the records. A step is a
    DP-VI step without prior and guide: a Poisson minibatch; gradients clipped to norm C and summed
    by ``clipped_sum``; noise with standard deviation sigma C in each coordinate, from the generator
    of real fits; division by the public q N.

    :param seed: makes all draws repeatable (anyone who knows it can compute the noise); None takes
        a key from the system.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._key = new_key() if seed is None else key_from_seed(_validate.seed("seed", seed))

    def step(
        self,
        u: ArrayLike,
        number: int,
        *,
        clip: float,
        noise_multiplier: float,
        learning_rate: float,
        sampling_rate: float,
        fresh: int = 0,
    ) -> DescentStep:
        """Take a step from u.

        :param u: float[2].
        :param number: >= 0, of the step. The same number gives the same minibatch and noise.
        :param clip: C >= 1e-12.
        :param noise_multiplier: sigma >= 0; 0 means no noise and no privacy.
        :param learning_rate: > 0.
        :param sampling_rate: q in (0, 1].
        :param fresh: >= 0; another value gives other noise.
        :raises ArgumentError: naming the argument and its value.
        """
        numbers = _numbers(clip, noise_multiplier, sampling_rate, learning_rate)
        number = _validate.integer("number", number, at_least=0, at_most=2**31)
        fresh = _validate.integer("fresh", fresh, at_least=0, at_most=2**31)
        drawn, normal = _compiled_draw(sampling_rate)(
            self._key, np.uint32(number), np.uint32(fresh)
        )
        before = np.asarray(u, np.float32)
        computed = _descend(before, CLOUD, drawn, normal, numbers)
        pulls, clipped, total, noise, noised, change, after = map(np.asarray, computed)
        return DescentStep(
            np.asarray(drawn), pulls, clipped, total, noise, noised, change, before, after
        )

    def run(
        self,
        u: ArrayLike,
        steps: int,
        *,
        clip: float,
        noise_multiplier: float,
        learning_rate: float,
        sampling_rate: float,
    ) -> np.ndarray:
        """Take the steps 0, 1, ... and return the parameters before and after each, float[steps +
        1, 2].

        The arguments are those of ``step``.
        """
        numbers = _numbers(clip, noise_multiplier, sampling_rate, learning_rate)
        steps = _validate.integer("steps", steps, at_least=1, at_most=10_000)
        before = np.asarray(u, np.float32)
        after = _many(sampling_rate, steps)(before, CLOUD, self._key, numbers)
        return np.concatenate([before[None], after])


def _numbers(
    clip: float, noise_multiplier: float, sampling_rate: float, learning_rate: float
) -> np.ndarray:
    """The checked hyperparameters of a step, float32[4]."""
    checked = (
        _validate.number("clip", clip, at_least=SMALLEST_CLIP, at_most=LARGEST_CLIP),
        _validate.number("noise_multiplier", noise_multiplier, at_least=0),
        _validate.number("sampling_rate", sampling_rate, above=0, at_most=1),
        _validate.number("learning_rate", learning_rate, above=0),
    )
    return np.array(checked, np.float32)


@_jit
def _location(records: jax.Array, clip: jax.Array) -> jax.Array:
    def closer(_: jax.Array, u: jax.Array) -> jax.Array:
        away = records - u
        weight = jnp.minimum(1.0, clip / jnp.maximum(jnp.linalg.norm(away, axis=1), 1e-12))
        return (weight[:, None] * records).sum(0) / weight.sum()

    return lax.fori_loop(0, 500, closer, records.mean(0))


def clipped_location(records: ArrayLike, clip: float) -> np.ndarray:
    """Where the descent settles without noise: float[2], the point at which the clipped pulls
    cancel.

    This is the mean for large C, the geometric median for small C, and Huber's M-estimator in
    between. It is computed by 500 steps of iterative reweighting.

    :param records: float[N, 2].
    :param clip: C > 0.
    """
    return np.asarray(
        _location(jnp.asarray(records, jnp.float32), _validate.number("clip", clip, above=0))
    )
