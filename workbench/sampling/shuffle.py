"""Minibatches by shuffling: in every epoch a new random order of the records is cut into
minibatches of fixed size.

The order is never stored. A keyed permutation of 0 .. N - 1, the swap-or-not shuffle (Hoang, Morris
and Rogaway 2012, "An enciphering scheme based on a card shuffle"), gives the record at a place. So
a minibatch costs O(b) time and memory at any N, and is a pure function of key and step number, like
those of the other samplers.

A round pairs each x with K - x mod N, and swaps the two or leaves them by a bit that depends on the
pair. K and the key of the bits come from ChaCha20. The bits are mixed quickly instead of drawn,
because privacy does not depend on the order.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.noise.chacha20 import require_secure, stream
from workbench.sampling._integers import mixed, modulo
from workbench.sampling.minibatch import FixedSize, Minibatch

__all__ = ["ShuffleSampler"]

_EPOCHS = 2  # the lane of a stream for words of an epoch; its number is the epoch's, not the step's
_WORDS_A_ROUND = 3
_PAIR_DISTANCE = 1e-9


def _pair_distance(num_records: int, rounds: int) -> float:
    """Bound on the total variation distance of the records at two places from uniform ones, for
    ideal bits.

    Given the records at l places, a further round shrinks the expected squared distance of the next
    place's law from uniform by (N + l) / (2 N) (theorem 2 of the paper and its proof); with N - l
    records left that law is at distance sqrt(N - l) / 2 times its root or less, and with one left
    it is certain.
    """
    distance = 0.0
    for placed in range(min(2, num_records - 1)):
        shrinking = (num_records + placed) / (2 * num_records)
        distance += math.sqrt(num_records - placed) / 2 * shrinking ** (rounds / 2)
    return distance


@functools.lru_cache(maxsize=256)
def _rounds(num_records: int) -> int:
    """Fewest rounds that keep any two places within 1e-9 of uniform: 59 to 101 (and 1 for a single
    record).
    """
    rounds = 1
    while _pair_distance(num_records, rounds) > _PAIR_DISTANCE:
        rounds += 1
    return rounds


def _at(positions: jax.Array, words: jax.Array, num_records: int) -> jax.Array:
    """The records at ``positions``, uint32[...] below N, in the order that ``words``, uint32[3,
    rounds], make.
    """
    sums = lax.optimization_barrier(modulo(words[0], words[1], num_records))

    def swap_or_not(number: jax.Array, here: jax.Array) -> jax.Array:
        total = sums[number]
        partner = jnp.where(here <= total, total - here, total + np.uint32(num_records) - here)
        swapped = mixed(jnp.maximum(here, partner), words[2, number]) >= np.uint32(2**31)
        return jnp.where(swapped, partner, here)

    return lax.fori_loop(0, words.shape[1], swap_or_not, positions)


@dataclass(frozen=True)
class ShuffleSampler(FixedSize):
    """Takes ``batch_size`` records per step, in epochs of floor(N / b) steps, each epoch in a new
    order.

    Step t is step t mod ``steps_per_epoch`` of epoch t // ``steps_per_epoch``. If b does not divide
    N, an epoch leaves out the last ``left_out`` = N mod b records of its order, and the next epoch
    leaves out others.

    Neighbouring relation of its accountant: replace_one, without amplification by sampling. That
    only requires that a record enters at most one step of an epoch, and that the order does not
    depend on the records. Both hold exactly, because the order is a permutation for any keys. How
    uniform the order is matters only for learning: the records at any two places of an epoch are
    within 1e-9 of a uniform pair (for ideal bits). No such claim is made for large sets of places.

    >>> sampler = wb.sampling.ShuffleSampler(1000, 10)
    >>> sampler.name, sampler.sampling_rate
    ('shuffle', 0.01)

    :param num_records: N in 1 .. 2^30 - 1.
    :param batch_size: b in 1 .. N.
    """

    name = "shuffle"

    @property
    def steps_per_epoch(self) -> int:
        """floor(N / b)."""
        return self.num_records // self.batch_size

    @property
    def left_out(self) -> int:
        """N mod b, the number of records that enter no step of an epoch."""
        return self.num_records % self.batch_size

    @property
    def remark(self) -> str:
        """That an epoch leaves out some records, if it does."""
        if not self.left_out:
            return ""
        return (
            f"{self.num_records} is not a multiple of the minibatch size {self.batch_size}: each "
            f"epoch leaves out {self.left_out} records, different ones each time."
        )

    @property
    def words(self) -> int:
        """0: the order of an epoch comes from its own lane, the same for all its steps."""
        return 0

    @property
    def total_variation(self) -> float:
        """0: what the accountant assumes of minibatches (see the class) holds exactly."""
        return 0.0

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from lane 2 of the stream of ``key`` that has the
        epoch's number.

        :param words: uint32[0].
        :raises ArgumentError: if there are any words.
        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        self._require(words)
        require_secure(key)
        number = jnp.asarray(number).astype(jnp.uint32)
        epoch, step = jnp.divmod(number, np.uint32(self.steps_per_epoch))
        positions = step * np.uint32(self.batch_size) + jnp.arange(
            self.batch_size, dtype=jnp.uint32
        )
        rounds = _rounds(self.num_records)
        order = lax.optimization_barrier(stream(key, epoch, _WORDS_A_ROUND * rounds, _EPOCHS))
        records = _at(positions, order.reshape(_WORDS_A_ROUND, rounds), self.num_records)
        return Minibatch(records.astype(jnp.int32), jnp.ones(self.batch_size, bool))
