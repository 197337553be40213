"""Poisson minibatches: every record is included independently with probability q.

The gaps between included records are geometric, so a minibatch costs O(q N) draws instead of N coin flips. Gaps come
from 64-bit integer thresholds (no floating-point uniforms): one table of about 45 / q thresholds while that is small. For
smaller q a gap G with P(G = g) = q (1 - q)^g is split as G = a B + b, where a (geometric with ratio (1 - q)^B) and b
(geometric cut to 0..B-1) are independent, so two tables of about sqrt(45 / q) thresholds serve any q.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.stats import binom

from workbench import _validate

__all__ = ["Minibatch", "PoissonSampler", "log_overflow_probability", "overflow_capacity"]

_BITS = 64
_ONE_TABLE = 2**16


class Minibatch(NamedTuple):
    """A padded minibatch. ``indices``: int32[M], row numbers; ``mask``: bool[M], False on padding (index 0 there)."""

    indices: jax.Array
    mask: jax.Array


def log_overflow_probability(num_records: int, sampling_rate: float, capacity: int) -> float:
    """log P(K > M) for K ~ Binomial(N + 1, q): the larger of two neighbouring data sets decides (design: add_or_remove_one)."""
    if capacity >= num_records + 1:
        return -math.inf
    return float(binom.logsf(capacity, num_records + 1, sampling_rate))


def overflow_capacity(num_records: int, sampling_rate: float, log_tolerance: float) -> int:
    """The smallest capacity M with log P(K > M) <= log_tolerance, K ~ Binomial(N + 1, q).

    :param num_records: N, number of records that are sampled from.
    :param sampling_rate: q in (0, 1].
    :param log_tolerance: natural logarithm of the probability that a minibatch may overflow.
    """
    low, high = 0, num_records + 1
    while low < high:
        middle = (low + high) // 2
        if log_overflow_probability(num_records, sampling_rate, middle) <= log_tolerance:
            high = middle
        else:
            low = middle + 1
    return max(low, 1)


_ONE = 1 << 256  # fixed-point arithmetic for the tables: 256 binary places in Python's integers


def _thresholds(cumulative: list[int]) -> np.ndarray:
    """uint64 values round(2^64 CDF), all but the last outcome's; outcome = number of thresholds <= a 64-bit word."""
    shift = 256 - _BITS
    rounded = [(value + (1 << (shift - 1))) >> shift for value in cumulative[:-1]]
    return np.array([min(value, 2**_BITS - 1) for value in rounded], dtype=np.uint64)


@functools.lru_cache(maxsize=32)
def _gap_tables(sampling_rate: float) -> tuple[int, np.ndarray, np.ndarray]:
    """(B, thresholds of the multiple a, thresholds of the remainder b) for gaps with success probability q."""
    exact = Fraction(sampling_rate)
    keep = _ONE - _ONE * exact.numerator // exact.denominator
    # beyond this gap less than 2^-65 of the mass is left; it goes to the last outcome
    longest = math.ceil(-(_BITS + 1) * math.log(2) / math.log1p(-sampling_rate))
    base = longest + 1 if longest < _ONE_TABLE else math.isqrt(longest)
    powers = [keep]  # keep^1 .. keep^B
    for _ in range(base - 1):
        powers.append(powers[-1] * keep >> 256)
    ratio = powers[-1]
    within = [(_ONE - power) * _ONE // (_ONE - ratio) for power in powers]
    across, left = [], ratio
    for _ in range(longest // base + 1):
        across.append(_ONE - left)
        left = left * ratio >> 256
    # `across` is empty where one table does: its only outcome is zero
    return base, _thresholds(across), _thresholds(within)


def _outcome(high: jax.Array, low: jax.Array, table: np.ndarray) -> jax.Array:
    """Number of thresholds t with t <= word, for words (high, low); a binary search over the sorted table."""
    size = len(table)
    levels = size.bit_length()
    padded = np.full(2**levels - 1, np.uint64(2**_BITS - 1))
    padded[:size] = table
    table_high = jnp.asarray((padded >> np.uint64(32)).astype(np.uint32))
    table_low = jnp.asarray((padded & np.uint64(2**32 - 1)).astype(np.uint32))

    def probe(level: jax.Array, found: jax.Array) -> jax.Array:
        place = found + (jnp.int32(1) << (levels - 1 - level)) - 1
        at_high, at_low = table_high[place], table_low[place]
        below = (at_high < high) | ((at_high == high) & (at_low <= low))
        return jnp.where(below, place + 1, found)

    # a loop, not unrolled levels: XLA fuses unrolled probes into one kernel that repeats them (3 times slower)
    found = lax.fori_loop(0, levels, probe, jnp.zeros(high.shape, jnp.int32))
    return jnp.minimum(found, size)


@dataclass(frozen=True)
class PoissonSampler:
    """Draws Poisson minibatches from ``num_records`` records at rate q into ``capacity`` padded places.

    Neighbouring relation of its accountant: add_or_remove_one. If more than ``capacity`` records are included, the
    surplus is dropped; the probability of that belongs into delta (``log_overflow_probability``). An empty minibatch is
    a normal outcome. At q = 1 every record is in every minibatch.

    :param num_records: N >= 1.
    :param sampling_rate: q in (0, 1], public.
    :param capacity: M >= 1, places in the padded minibatch.
    """

    num_records: int
    sampling_rate: float
    capacity: int

    name = "poisson"
    relation = "add_or_remove_one"

    def __post_init__(self) -> None:
        # positions are int32 and one addition must not wrap
        _validate.integer("num_records", self.num_records, at_least=1, at_most=2**30 - 1)
        _validate.number("sampling_rate", self.sampling_rate, above=0, at_most=1)
        _validate.integer("capacity", self.capacity, at_least=1)
        if self.sampling_rate == 1 and self.capacity < self.num_records:
            raise _validate.ArgumentError("capacity", self.capacity, f"q = 1 needs all {self.num_records} records.")

    def draw(self, key: jax.Array) -> Minibatch:
        """One minibatch; a pure function of ``key`` for jit, scan and vmap. Indices ascend and are distinct."""
        if self.sampling_rate == 1:
            places = np.arange(self.capacity)
            return Minibatch(
                jnp.asarray(np.where(places < self.num_records, places, 0), jnp.int32),
                jnp.asarray(places < self.num_records),
            )
        base, across, within = _gap_tables(self.sampling_rate)
        tables = [within, across] if len(across) else [within]
        # the barrier keeps XLA from computing the keystream again inside each probe of the search
        words = lax.optimization_barrier(jax.random.bits(key, (len(tables), 2, self.capacity), jnp.uint32))
        outcomes = [_outcome(high, low, table) for (high, low), table in zip(words, tables, strict=True)]
        remainder, multiple = outcomes if len(across) else (outcomes[0], 0)
        limit = self.num_records
        # cut before multiplying, so that int32 cannot wrap: from `limit` on, all gaps mean "past the end"
        multiple = jnp.minimum(multiple, limit // base + 1)
        steps = jnp.minimum(multiple * base + remainder + 1, limit + 1)
        steps = lax.optimization_barrier(steps)
        ends = lax.associative_scan(lambda left, right: jnp.minimum(left + right, limit + 1), steps)
        mask = ends <= limit
        return Minibatch(jnp.where(mask, ends - 1, 0), mask)
