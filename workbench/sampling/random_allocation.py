"""Minibatches by random allocation: in every epoch of t steps each record enters one, which it
draws for itself.

Record i of an epoch has the remainder of a random word by t. Words at or above the largest multiple
of t are drawn again, so every step is exactly equally likely, independently for each record. The
sizes of minibatches are then binomial, as those of Poisson sampling with rate 1 / t, but the
minibatches of an epoch are disjoint and hold every record once.

An epoch is a function of the run's key and of its number. A step can be drawn in two ways, with the
same result:

- ``draw_from`` draws the words of all N records again and keeps those of its step: nothing is
  stored, for N words a step.
- ``prepare`` sorts the records of an epoch, or of a few, by their steps once, and ``draw_prepared``
  takes a step from it in O(M). This is what runs do.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench import _validate
from workbench._limits import MOST_RECORDS
from workbench.noise.chacha20 import stream
from workbench.sampling.minibatch import Minibatch, Preparation, RandomSize

__all__ = ["PreparedEpochs", "RandomAllocationSampler"]

_ALLOCATIONS = (
    3  # the lane of a stream for words of an epoch, and lanes above it for words drawn again
)


class PreparedEpochs(NamedTuple):
    """The records of e epochs by steps: ``order``, int32[e N + M], padded with 0, and ``starts``,
    int32[e t + 1], in it.

    N is the public number of records.
    """

    order: jax.Array
    starts: jax.Array


@dataclass(frozen=True)
class RandomAllocationSampler(RandomSize):
    """Draws each record into one step of each epoch of ``steps_per_epoch`` steps, into ``capacity``
    padded places.

    Step number s is step s mod t of epoch s // t. Neighbouring relation of its accountant:
    add_or_remove_one. If a step has more than ``capacity`` records, the last are dropped. The
    probability of that is charged to delta. As the size of a step is binomial, it is that of
    Poisson sampling (``log_overflow_probability`` at rate 1 / t). At t = 1 every record is in every
    minibatch.

    >>> from workbench.sampling.random_allocation import RandomAllocationSampler
    >>> sampler = RandomAllocationSampler(1000, steps_per_epoch=100, capacity=40)
    >>> sampler.name, sampler.sampling_rate
    ('random_allocation', 0.01)

    :param num_records: N in 1 .. 2^30 - 1.
    :param steps_per_epoch: t in 1 .. 2^31, public.
    :param capacity: M >= 1, places in the padded minibatch.
    :param declared: a public number of records, at least N, where N is not public. Each of
        this many places draws its step, and those without a record stay empty.
    :param is_vacant: whether there is no record: that of ``num_records=1`` enters no minibatch.
    """

    num_records: int
    steps_per_epoch: int
    capacity: int
    declared: int | None = None
    is_vacant: bool = False

    name = "random_allocation"
    ascends = True

    def __post_init__(self) -> None:
        for name, least, most in (
            ("num_records", 1, MOST_RECORDS),
            ("steps_per_epoch", 1, 2**31),
            ("capacity", 1, None),
        ):
            object.__setattr__(
                self,
                name,
                _validate.integer(name, getattr(self, name), at_least=least, at_most=most),
            )
        self._check_declared()
        if self.steps_per_epoch == 1 and self.capacity < self.num_records:
            raise _validate.ArgumentError(
                "capacity",
                self.capacity,
                f"must be at least N = {self.num_records} at one step an epoch.",
            )

    @property
    def sampling_rate(self) -> float:
        """1 / t, the expected share of the records in a minibatch."""
        return 1 / self.steps_per_epoch

    @property
    def words(self) -> int:
        """0: the steps of an epoch's records come from their own lanes, the same for all
        its steps.
        """
        return 0

    @property
    def total_variation(self) -> float:
        """0: every step is exactly equally likely, except for overflow."""
        return 0.0

    @property
    def preparation(self) -> Preparation:
        """Itself: to sort an epoch once costs as much as to draw one of its steps without that."""
        return self

    @property
    def preparing_words(self) -> int:
        """An epoch, and what sorting it takes."""
        return 3 * self.public_size + self.capacity

    def assignment(self, key: jax.Array, epoch: jax.Array) -> jax.Array:
        """The step, 0 .. t - 1, that each record enters in ``epoch``: uint32[``public_size``].

        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        steps, surplus = np.uint32(self.steps_per_epoch), 2**32 % self.steps_per_epoch
        words = stream(key, epoch, self.public_size, _ALLOCATIONS)
        if surplus:
            limit = np.uint32(2**32 - surplus)

            def again(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
                words, attempt = carry
                redrawn = stream(key, epoch, self.public_size, _ALLOCATIONS + attempt)
                return jnp.where(words < limit, words, redrawn), attempt + np.uint32(1)

            words, _ = lax.while_loop(
                lambda carry: jnp.any(carry[0] >= limit), again, (words, jnp.uint32(1))
            )
        # the barrier keeps XLA from computing the keystream again for each use
        return lax.optimization_barrier(words % steps)

    def prepare(self, key: jax.Array, epoch: jax.Array, epochs: int = 1) -> PreparedEpochs:
        """The records of ``epoch`` sorted by their steps, for ``draw_prepared``; a pure function
        for jit, scan and vmap.

        It takes N words and a sort: about 0.1 s for a million records on a core.

        :param epochs: how many to prepare at once; ``epoch`` must then be a multiple of it.
        """
        sorted_epochs = jax.vmap(functools.partial(self._sorted, key))
        orders, starts = sorted_epochs(
            jnp.asarray(epoch).astype(jnp.uint32) + jnp.arange(epochs, dtype=jnp.uint32)
        )
        # each epoch has all
        starts = starts + jnp.arange(epochs, dtype=jnp.int32)[:, None] * np.int32(self.public_size)
        end = jnp.int32(epochs * self.public_size)
        return PreparedEpochs(
            jnp.pad(orders.ravel(), (0, self.capacity)), jnp.append(starts.ravel(), end)
        )

    def _sorted(self, key: jax.Array, epoch: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(records by their steps, int32[``public_size``]; where each step begins, int32[t])."""
        assigned = self.assignment(key, epoch)
        bits = max(1, (self.public_size - 1).bit_length())
        records = jnp.arange(self.public_size, dtype=jnp.uint32)
        if (
            bits + (self.steps_per_epoch - 1).bit_length() <= 32
        ):  # both in a word, which sorts faster than pairs
            packed = jnp.sort((assigned << np.uint32(bits)) | records)
            steps, order = packed >> np.uint32(bits), packed & np.uint32(2**bits - 1)
        else:
            steps, order = lax.sort((assigned, records), num_keys=1, is_stable=True)
        starts = jnp.searchsorted(steps, jnp.arange(self.steps_per_epoch, dtype=jnp.uint32)).astype(
            jnp.int32
        )
        return order.astype(jnp.int32), starts

    def draw_prepared(self, prepared: PreparedEpochs, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from ``prepare`` of its epoch; that of ``draw_from``,
        in O(M).
        """
        step = jnp.asarray(number).astype(jnp.uint32) % np.uint32(len(prepared.starts) - 1)
        start, end = prepared.starts[step], prepared.starts[step + 1]
        order = lax.dynamic_slice_in_dim(prepared.order, start, self.capacity)
        mask = (jnp.arange(self.capacity, dtype=jnp.int32) < end - start) & (order < self.members)
        return Minibatch(jnp.where(mask, order, 0), mask)

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from lanes 3 and up of the stream of ``key`` that has
        the epoch's number.

        Indices ascend, padding last. The draw takes N words, about 1 ms for a million records on a
        core. A run over many records should ``prepare`` its epochs.

        :param words: uint32[0].
        :raises ArgumentError: if there are any words.
        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        self._require(words)
        epoch, step = jnp.divmod(
            jnp.asarray(number).astype(jnp.uint32), np.uint32(self.steps_per_epoch)
        )
        chosen = (self.assignment(key, epoch) == step)[: self.num_records]
        return _members(chosen & np.bool_(not self.is_vacant), self.capacity)


def _members(chosen: jax.Array, capacity: int) -> Minibatch:
    """The first ``capacity`` places where ``chosen``, bool[N], is True, in their order.

    Each finds its word of 32 bits by binary search among running counts, and then its bit. A
    running sum over all N, and a scatter, would take many times as long.
    """
    bits = np.arange(32, dtype=np.uint32)
    rows = jnp.pad(chosen, (0, -chosen.shape[0] % 32)).reshape(-1, 32)
    packed = jnp.sum(rows.astype(jnp.uint32) << bits, axis=1, dtype=jnp.uint32)
    counts = lax.population_count(packed).astype(jnp.int32)
    running = jnp.cumsum(counts)
    position = jnp.arange(capacity, dtype=jnp.int32)
    mask = position < running[-1]
    row = jnp.minimum(jnp.searchsorted(running, position, side="right"), len(running) - 1)
    within = position - (running[row] - counts[row])
    # up to and with each bit
    below = lax.population_count(packed[row, None] & ((np.uint32(2) << bits) - np.uint32(1)))
    bit = jnp.sum(below.astype(jnp.int32) <= within[:, None], axis=1)
    return Minibatch(jnp.where(mask, row * 32 + bit, 0).astype(jnp.int32), mask)
