"""Minibatches of fixed size without replacement: every set of b of the N records is equally likely.

Each random word gives an index. It is exactly uniform, because words at or above the largest
multiple of N are rejected. The first b distinct indices are the minibatch. The number of words that
this takes is random, but a compiled draw takes a fixed number m: the smallest for which Chernoff's
bound keeps the probability of fewer than b distinct indices below 2^-110. If more than half of the
records are drawn, the same method finds the records that are left out, so m stays below about 1.4 b
+ 80.

Repeats are found in expected O(b) time and memory at any N: each index goes into one of about 8 m
buckets, where the index that was drawn first stays. Indices that meet a different index there try
again, until none is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from workbench.sampling.minibatch import FixedSize, Minibatch

__all__ = ["WithoutReplacementSampler"]

_LOG_FAILURE = -110 * math.log(2)
_GROUPS = 4096


@functools.lru_cache(maxsize=256)
def _words_for(num_records: int, count: int) -> tuple[int, float]:
    """(words m that contain ``count`` distinct indices almost surely, upper bound on log P(they do
    not)).

    After i distinct indices a word brings a new one with probability p_i = (N - i) floor(2^32 / N)
    / 2^32, so the words that it takes are a sum W of independent geometric numbers. For every theta
    > 0 with (1 - p_i) e^theta < 1 for all i, P(W > m) <= e^(-theta (m + 1)) prod_i p_i e^theta / (1
    - (1 - p_i) e^theta).
    """
    # a large number of i is grouped, and a group takes its smallest p_i, which can only make W
    # larger
    ends = np.unique(np.linspace(0, count, min(count, _GROUPS) + 1).astype(np.int64))
    sizes = np.diff(ends)
    hits = (num_records - (ends[1:] - 1)) * (2**32 // num_records) / 2**32  # exact in 64-bit floats
    misses = 1 - hits
    if misses[-1] == 0:
        return count, -math.inf
    thetas = -math.log(misses[-1]) * np.arange(1, 256)[:, None] / 256
    log_moments = np.sum(
        sizes * (np.log(hits) + thetas - np.log1p(-misses * np.exp(thetas))), axis=1
    )
    thetas = thetas[:, 0]
    words = max(count, math.ceil(np.min((log_moments - _LOG_FAILURE) / thetas)) - 1)
    return words, float(np.min(log_moments - thetas * (words + 1)))


def _buckets(words: int) -> int:
    """Number of buckets that finds repeats among ``words`` words quickly: a power of two, at least
    eight per word.
    """
    return 2 ** (8 * words - 1).bit_length()


def _first_drawn(indices: jax.Array, num_records: int) -> jax.Array:
    """Which of ``indices``, uint32[m] up to N, do not occur before them: bool[m]."""
    size = indices.shape[0]
    positions = jnp.arange(size, dtype=jnp.int32)
    buckets = _buckets(size)
    if num_records < buckets:  # each index has its own bucket
        return (
            jnp.full(num_records + 1, size, jnp.int32).at[indices].min(positions)[indices]
            == positions
        )
    bucket = indices & np.uint32(buckets - 1)

    def attempt(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        waiting, first = carry
        lowest = (
            jnp.full(buckets, size, jnp.int32)
            .at[bucket]
            .min(jnp.where(waiting, positions, size))[bucket]
        )
        is_done = indices[lowest] == indices
        return waiting & ~is_done, first | (lowest == positions)

    nobody = jnp.zeros(size, bool)
    return lax.while_loop(lambda carry: jnp.any(carry[0]), attempt, (~nobody, nobody))[1]


def _ranks(mask: jax.Array) -> jax.Array:
    """How many of ``mask``, bool[m], are True before each: int32[m].

    Bits of a word are counted at once; a running sum over all m takes three times as long.
    """
    size, bits = mask.shape[0], np.arange(32, dtype=np.uint32)
    rows = jnp.pad(mask, (0, -size % 32)).reshape(-1, 32)
    packed = jnp.sum(rows.astype(jnp.uint32) << bits, axis=1, dtype=jnp.uint32)
    counts = lax.population_count(packed).astype(jnp.int32)
    within = lax.population_count(packed[:, None] & ((np.uint32(1) << bits) - np.uint32(1))).astype(
        jnp.int32
    )
    return (within + (jnp.cumsum(counts) - counts)[:, None]).reshape(-1)[:size]


def _front(values: jax.Array, mask: jax.Array, count: int) -> jax.Array:
    """The first ``count`` of the kept values in their order, filled up with zeros."""
    positions = jnp.where(mask, _ranks(mask), count)
    return jnp.zeros(count, jnp.int32).at[positions].set(values.astype(jnp.int32), mode="drop")


@functools.lru_cache(maxsize=32)
def _chooser(
    num_records: int, batch_size: int
) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    """A function of words uint32[m]: indices and mask of a minibatch of part of the records.

    Under vmap a CPU draws one minibatch after another, because tables of all together would not fit
    its cache (half the speed).
    """
    drawn = min(batch_size, num_records - batch_size)
    surplus = 2**32 % num_records

    def choose(words: jax.Array) -> tuple[jax.Array, jax.Array]:
        modulus = np.uint32(num_records)
        indices = words % modulus
        if surplus:
            indices = jnp.where(words < np.uint32(2**32 - surplus), indices, modulus)
        # the barriers keep XLA from computing keystream and remainders again for each use
        indices = lax.optimization_barrier(indices)
        distinct = lax.optimization_barrier(
            _first_drawn(indices, num_records) & (indices < modulus)
        )
        if drawn == batch_size:
            return _front(indices, distinct, batch_size), jnp.arange(batch_size) < jnp.sum(distinct)
        left_out = jnp.where(distinct & (_ranks(distinct) < drawn), indices, modulus)
        complement = jnp.ones(num_records, bool).at[left_out].set(False, mode="drop")
        return _front(jnp.arange(num_records), complement, batch_size), jnp.ones(batch_size, bool)

    chooser = custom_vmap(choose)

    @chooser.def_vmap
    def batched(
        size: int, in_batched: list[bool], words: jax.Array
    ) -> tuple[Any, tuple[bool, bool]]:
        in_turn = functools.partial(lax.map, choose)
        return lax.platform_dependent(words, cpu=in_turn, default=jax.vmap(choose)), (True, True)

    return chooser


@dataclass(frozen=True)
class WithoutReplacementSampler(FixedSize):
    """Draws minibatches of ``batch_size`` distinct records, all sets of that size equally likely.

    Neighbouring relation of its accountant: replace_one (Zhu, Dong and Wang 2022; the size is
    public, so no neighbour has a record more). No minibatch overflows. All places are used, unless
    m words do not contain enough distinct indices. Then the remaining places are masked, or, if
    more than half of the records are drawn, the last records are left out. ``total_variation``
    bounds the probability of that.

    >>> sampler = wb.sampling.WithoutReplacementSampler(1000, 10)
    >>> sampler.name, sampler.sampling_rate
    ('without_replacement', 0.01)

    :param num_records: N in 1 .. 2^30 - 1.
    :param batch_size: b in 1 .. N; with b = N every record is in every minibatch.
    """

    name = "without_replacement"

    @property
    def _drawn(self) -> int:
        """Number of distinct indices that are drawn: of the minibatch, or of the records left out
        if they are fewer.
        """
        return min(self.batch_size, self.num_records - self.batch_size)

    @property
    def words(self) -> int:
        """m, the number of random 32-bit words that ``draw_from`` takes for a minibatch."""
        return _words_for(self.num_records, self._drawn)[0] if self._drawn else 0

    @property
    def total_variation(self) -> float:
        """Upper bound on the total variation distance of a minibatch from a uniformly random
        subset.

        This is the probability that m words contain too few distinct indices. If they contain
        enough, all subsets are equally likely.
        """
        return math.exp(_words_for(self.num_records, self._drawn)[1]) if self._drawn else 0.0

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from the first words of stream ``number`` of ``key``,
        lane 0.

        Indices are distinct.

        :param words: uint32[``self.words``]; use them for nothing else, because draws that share a
            word are not independent.
        :raises ArgumentError: if there are more or fewer words.
        """
        self._require(words)
        if self._drawn == 0:
            return Minibatch(
                jnp.arange(self.num_records, dtype=jnp.int32), jnp.ones(self.num_records, bool)
            )
        return Minibatch(*_chooser(self.num_records, self.batch_size)(words))
