"""Poisson minibatches: every record is included independently with probability q.

The gaps between included records are geometric, so a minibatch costs O(q N) draws instead of N coin
flips. Gaps come from 96-bit integer thresholds, without floating-point uniforms. One table of about
67 / q thresholds is used while it is small. For smaller q a gap G with P(G = g) = q (1 - q)^g is
split as G = a B + b, where a (geometric with ratio (1 - q)^B) and b (geometric, cut to 0..B-1) are
independent, so two tables of about sqrt(67 / q) thresholds serve any q.

The first 32 of the 96 bits nearly always decide, and the other 64 are then not even drawn.

With 64 bits, the rounding of the thresholds would cost up to 2e-14 per minibatch (q = 0.01, 177
places). Multiplied by (1 + e^epsilon) and 100 000 steps, that is a delta of 6e-6 at epsilon 8. With
96 bits it is 3e-24 per minibatch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from scipy.special import betainc

from workbench import _validate
from workbench._limits import MOST_RECORDS
from workbench.noise.chacha20 import CHACHA20, stream
from workbench.sampling.minibatch import Minibatch, RandomSize

__all__ = ["SMALLEST_RATE", "PoissonSampler", "log_overflow_probability", "overflow_capacity"]

SMALLEST_RATE = 2.0**-32  # its tables hold a million thresholds and are made in seconds

_WORDS = 3
_BITS = 32 * _WORDS
_LOW_WORDS = 1  # the lane of a stream that has words which are rarely needed
_ONE_TABLE = 2**16


def log_overflow_probability(num_records: int, sampling_rate: float, capacity: int) -> float:
    """log P(K > M) for K ~ Binomial(N + 1, q). N + 1, because under add_or_remove_one a neighbour
    has one record more.
    """
    if capacity >= num_records + 1:
        return -math.inf
    # P(K > M) as a regularised incomplete beta function; scipy.stats has it too, and takes a second
    # to import
    with np.errstate(divide="ignore"):
        return float(np.log(betainc(capacity + 1, num_records + 1 - capacity, sampling_rate)))


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


def _thresholds(cumulative: list[int]) -> list[int]:
    """round(2^96 CDF) of all outcomes but the last; outcome = number of thresholds <= a random
    96-bit number.
    """
    shift = 256 - _BITS
    return [min((value + (1 << (shift - 1))) >> shift, 2**_BITS - 1) for value in cumulative[:-1]]


@functools.lru_cache(maxsize=32)
def _gap_tables(sampling_rate: float) -> tuple[int, list[list[int]]]:
    """B, and the thresholds of the remainder b and, if one table is not enough, of the multiple a,
    at rate q.
    """
    exact = Fraction(sampling_rate)
    keep = _ONE - _ONE * exact.numerator // exact.denominator
    # beyond this gap less than 2^-97 of the mass is left; it goes to the last outcome
    longest = math.ceil(-(_BITS + 1) * math.log(2) / math.log1p(-sampling_rate))
    base = longest + 1 if longest < _ONE_TABLE else math.isqrt(longest)
    powers = [keep]  # keep^1 .. keep^B
    for _ in range(base - 1):
        powers.append(powers[-1] * keep >> 256)
    ratio = powers[-1]
    tables = [_thresholds([(_ONE - power) * _ONE // (_ONE - ratio) for power in powers])]
    if base <= longest:
        across, survival = [], ratio
        for _ in range(longest // base + 1):
            across.append(_ONE - survival)
            survival = survival * ratio >> 256
        tables.append(_thresholds(across))
    return base, tables


def _columns(table: list[int]) -> list[jax.Array]:
    """The thresholds as three arrays of 32-bit words, high words first."""
    return [
        jnp.asarray(np.array([(value >> shift) & 0xFFFFFFFF for value in table], np.uint32))
        for shift in range(_BITS - 32, -1, -32)
    ]


def _search(words: jax.Array, table: list[int]) -> jax.Array:
    """Number of thresholds t with t <= number, for numbers of 3 words (uint32[3, ...], high word
    first): a binary search.
    """
    levels = len(table).bit_length()
    columns = _columns(table + [2**_BITS - 1] * (2**levels - 1 - len(table)))

    def probe(level: jax.Array, index: jax.Array) -> jax.Array:
        middle = index + (jnp.int32(1) << (levels - 1 - level)) - 1
        below = jnp.ones(middle.shape, bool)
        for column, word in zip(
            reversed(columns), words[::-1], strict=True
        ):  # lexicographic, low word first
            entry = column[middle]
            below = (entry < word) | ((entry == word) & below)
        return jnp.where(below, middle + 1, index)

    # a loop, not unrolled levels: XLA fuses unrolled probes into one kernel that repeats them (3
    # times slower)
    index = lax.fori_loop(0, levels, probe, jnp.zeros(words.shape[1:], jnp.int32))
    return jnp.minimum(index, len(table))


def _guess(high: jax.Array, table: list[int], log_ratio: float) -> tuple[jax.Array, jax.Array]:
    """(``_search`` by the high words alone, whether that is certain), for a geometric table:
    P(outcome >= g) = ratio^g.

    A float32 logarithm finds the outcome to within one, and comparisons with the thresholds around
    it decide. They do not decide if a high word equals that of a threshold, which happens once in
    2^32 / table size.
    """
    bounds = jnp.concatenate(
        [jnp.zeros(1, jnp.uint32), _columns(table)[0], jnp.full(1, 2**32 - 1, jnp.uint32)]
    )
    survival = ((~high).astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-32)
    near = jnp.floor(jnp.log(survival) * np.float32(1 / log_ratio) - np.float32(0.25)).astype(
        jnp.int32
    )
    near = jnp.clip(near, 0, len(table) - 1)
    index = near + (high > bounds[near + 1]).astype(jnp.int32)
    is_certain = ((bounds[index] < high) | (index == 0)) & (high < bounds[index + 1])
    return index, is_certain


@functools.lru_cache(maxsize=32)
def _single_outcomes(sampling_rate: float) -> Callable[..., jax.Array]:
    """A function of high words uint32[..., M], key words uint32[..., 8] and numbers uint32[...]:
    outcomes int32[..., M].

    The low words of the numbers are drawn only if some high word does not decide its outcome. Under
    vmap this is decided for all draws together, because plain vmap would always take the branch.
    """
    _, (table,) = _gap_tables(sampling_rate)

    @custom_vmap
    def outcomes(high: jax.Array, key_words: jax.Array, number: jax.Array) -> jax.Array:
        guess, is_certain = _guess(high, table, math.log1p(-sampling_rate))

        def searched() -> jax.Array:
            size = high.shape[-1]

            def low_words(words: jax.Array, number: jax.Array) -> jax.Array:
                return stream(
                    jax.random.wrap_key_data(words, impl=CHACHA20), number, 2 * size, _LOW_WORDS
                )

            low = jax.vmap(low_words)(key_words.reshape(-1, 8), number.reshape(-1))
            low = jnp.moveaxis(low.reshape(*high.shape[:-1], 2, size), -2, 0)
            return _search(jnp.concatenate([high[None], low]), table)

        return lax.cond(jnp.all(is_certain), lambda: guess, searched)

    @outcomes.def_vmap
    def batched(size: int, in_batched: list[bool], *arguments: jax.Array) -> tuple[jax.Array, bool]:
        spread = [
            array if is_batched else jnp.broadcast_to(array, (size, *array.shape))
            for array, is_batched in zip(arguments, in_batched, strict=True)
        ]
        return outcomes(*spread), True

    return outcomes


@dataclass(frozen=True)
class PoissonSampler(RandomSize):
    """Draws Poisson minibatches from ``num_records`` records at rate q into ``capacity`` padded
    places.

    Neighbouring relation of its accountant: add_or_remove_one. If more than ``capacity`` records
    are included, the surplus is dropped; the probability of that is charged to delta
    (``log_overflow_probability``). An empty minibatch is a normal outcome. At q = 1 every record is
    in every minibatch.

    >>> sampler = wb.sampling.PoissonSampler(
    ...     num_records=1000, sampling_rate=0.01, capacity=40
    ... )
    >>> sampler.name, sampler.usual_size()
    ('poisson', 18)

    :param num_records: N in 1 .. 2^30 - 1.
    :param sampling_rate: q in [2^-32, 1], public.
    :param capacity: M >= 1, places in the padded minibatch.
    :param declared: a public number of records, at least N, where N is not public; ``usual_size``
        follows from it.
    :param is_vacant: whether there is no record: that of ``num_records=1`` enters no minibatch.
    """

    num_records: int
    sampling_rate: float
    capacity: int
    declared: int | None = None
    is_vacant: bool = False

    name = "poisson"
    ascends = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "num_records",
            _validate.integer("num_records", self.num_records, at_least=1, at_most=MOST_RECORDS),
        )
        _validate.number("sampling_rate", self.sampling_rate, at_least=SMALLEST_RATE, at_most=1)
        object.__setattr__(
            self, "capacity", _validate.integer("capacity", self.capacity, at_least=1)
        )
        self._check_declared()
        if self.sampling_rate == 1 and self.capacity < self.num_records:
            raise _validate.ArgumentError(
                "capacity", self.capacity, f"must be at least N = {self.num_records} at q = 1."
            )

    @property
    def words(self) -> int:
        """Number of random 32-bit words that ``draw_from`` takes for a minibatch."""
        if self.sampling_rate == 1:
            return 0
        tables = len(_gap_tables(self.sampling_rate)[1])
        return self.capacity if tables == 1 else tables * _WORDS * self.capacity

    @property
    def total_variation(self) -> float:
        """Upper bound on the total variation distance of a minibatch from exact Poisson sampling,
        not counting overflow.

        Each of n thresholds is off by at most 2^-97, so one gap by at most (n + 1) 2^-97. There are
        M gaps.
        """
        if self.sampling_rate == 1:
            return 0.0
        thresholds = sum(len(table) + 1 for table in _gap_tables(self.sampling_rate)[1])
        return self.capacity * thresholds * 2.0 ** -(_BITS + 1)

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from the first words of stream ``number`` of ``key``,
        lane 0.

        Indices ascend and are distinct, padding last. In the rare case that the words do not decide
        a gap, more come from lane 1 of the stream.

        :param words: uint32[``self.words``]; use them for nothing else, because draws that share a
            word are not independent.
        :raises ArgumentError: if there are more or fewer words.
        """
        self._require(words)
        if self.sampling_rate == 1:
            positions = np.arange(self.capacity)
            return Minibatch(
                jnp.asarray(np.where(positions < self.members, positions, 0), jnp.int32),
                jnp.asarray(positions < self.members),
            )
        base, tables = _gap_tables(self.sampling_rate)
        # the barrier keeps XLA from computing the keystream again inside each probe of a search
        words = lax.optimization_barrier(words)
        multiple: Any = 0
        if len(tables) == 1:
            outcomes = _single_outcomes(self.sampling_rate)
            remainder = outcomes(
                words, jax.random.key_data(key), jnp.asarray(number).astype(jnp.uint32)
            )
        else:
            several = words.reshape(len(tables), _WORDS, self.capacity)
            remainder, multiple = (
                _search(several[digit], table) for digit, table in enumerate(tables)
            )
        limit = self.members
        # cut before multiplying, so that int32 cannot wrap: from `limit` on, all gaps mean "past
        # the end"
        multiple = jnp.minimum(multiple, limit // base + 1)
        steps = jnp.minimum(multiple * base + remainder + 1, limit + 1)
        steps = lax.optimization_barrier(steps)
        ends = lax.associative_scan(
            lambda first, second: jnp.minimum(first + second, limit + 1), steps
        )
        mask = ends <= limit
        return Minibatch(jnp.where(mask, ends - 1, 0), mask)
