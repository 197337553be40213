"""Integer Gaussian noise of which every bit is accounted for, from words of ChaCha20, in constant time.

Noise of floating-point numbers has gaps that no proof about the Gaussian mechanism allows for (Mironov 2012). Here the noise
is Y = round(Z) for Z ~ N(0, s^2). For a vector x of integers, x + round(Z) = round(x + Z) is a function of what the Gaussian
mechanism releases, so the accountants of that mechanism hold as they are. Draws differ from this law by a total variation
that ``total_variation`` bounds and that is charged to delta.

How a draw is made, with s = 2^21:

- A is an odd multiple of 1/2 with a standard deviation of 2^11: a sign, and one of 2^15 values from an alias table.
- B is the sum of four uniform draws from {0, 1, 2, 3}, and C that of three from {0, ..., 255}: discrete B-splines.
- 1024 A + 256 B + C plus a constant is, up to what is charged, the largest integer below Z. Adding 2^(k - 1) and dropping
  the last k bits gives round(Z / 2^k), which is noise of a smaller s.

With sinc(x) = sin(x) / x and means removed, the characteristic functions of B and C are (sinc(2 t) / sinc(t / 2))^4 and
(sinc(128 t) / sinc(t / 2))^3, and that of the integer below Z is exp(-s^2 t^2 / 2) sinc(t / 2). So that of A should be
exp(-2^22 p^2 / 2) sinc(p / 8) sinc(p / 2048)^4 / sinc(p / 2)^4 at p = 1024 t. The factor behind the exponential is
1 + c2 p^2 + c4 p^4 + ..., so the table has the values of G - c2 G'' + c4 G'''', where G is the density of N(0, 2^22). Three
differences remain:

- Characteristic functions of integers are periodic. The sum has a part near each multiple of 2 pi / 256 (and smaller ones
  near those of 2 pi / 1024) that the integer below Z does not have. It multiplies the probability of y by 1 + r(y), where
  r(y) is He3(y / s) / 2^42 times a function of y mod 256. The terms from p^6 on are 2^25 times smaller.
- Probabilities in the table are rounded to multiples of 2^-81, so those beyond 10.5 standard deviations are 0.
- Sixteen draws share the last 32 bits of the number that is compared with a threshold of the table. These bits matter to a
  draw only if the 34 bits before them are those of the threshold.
"""

from __future__ import annotations

import functools
import math
import numbers
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench import _validate
from workbench.noise.chacha20 import require_secure

__all__ = ["FINEST", "rounded_gaussian", "rounded_gaussian_from", "total_variation", "words_for"]

FINEST = 10
"""The largest level: noise of standard deviation 2^21."""

_COLUMNS = 2**15  # of the alias table
_PRIVATE, _SHARED = 34, 32  # bits of a threshold
_LANES = 16  # draws that share a word
_WORDS = 2 * _LANES + _LANES // 2 + 2  # of one group of them

_RELATIVE = 2.0**-90.25  # expectation of r(y)^2, below
_TABLE = 2.0**-67
_TIES = (_LANES - 1) / 2 * 2.0 ** (-2 * _PRIVATE)


def total_variation(draws: float) -> float:
    """A bound on the total variation distance between ``draws`` draws and as many of exactly the stated law.

    It is to be added to delta. It holds for vectors, for many steps, and where what is drawn depends on earlier draws.

    >>> from workbench.noise import integers
    >>> integers.total_variation(1e11) < 1e-8
    True

    The part that grows like the square root is Pinsker's inequality. If a draw has probability (1 + r(y)) q(y) where q(y) is
    the stated law, the Kullback-Leibler divergence of one draw is E[r^2] / 2, that of n is n times as much (chain rule), and
    the total variation is at most the square root of half of that. Here E[r^2] = 6 sum_k (2^14 256 sin(pi k / 256))^-6, with
    k from 1 to 255, which is 2^-90.3. Coarser levels are functions of the finest one, and no farther from their laws.

    The other part is a union bound. Each draw contributes 2^-67 for the rounding of the table. Each
    pair of one group contributes 2^-68, because without the event that both need the bits that they share, the draws are
    independent.

    :param draws: number of coordinates, summed over all steps.
    """
    draws = _validate.number("draws", draws, at_least=0)
    bound = math.sqrt(draws * _RELATIVE) / 2 + draws * (_TABLE + _TIES)
    return min(1.0, bound * (1 + 1e-12))


def words_for(count: int) -> int:
    """How many uint32 words ``count`` draws take: 42 for every 16 of them that are begun."""
    return -(-count // _LANES) * _WORDS


def _weights() -> list[int]:
    """2^81 P(|A| = a + 1/2) for a = 0, 1, ..., rounded to integers with the right sum."""
    bits = 192
    # c2 and c4: log(1 + c2 p^2 + c4 p^4 + ...) = p^2 (4 - 1/4^2 - 4/1024^2) / 24 + p^4 (4 - 1/4^4 - 4/1024^4) / 2880 + ...
    c2 = (4 - Fraction(1, 4**2) - Fraction(4, 1024**2)) / 24
    c4 = c2**2 / 2 + (4 - Fraction(1, 4**4) - Fraction(4, 1024**4)) / 2880
    # G''(x) = G(x) (m - 2^24) / 2^46 and G''''(x) = G(x) (m^2 - 6 2^24 m + 3 2^48) / 2^92 for m = (2 x)^2
    constant = int((1 + c2 / 2**22 + 3 * c4 / 2**44) * 2**bits)
    linear = int((c2 / 2**46 + 6 * c4 / 2**68) * 2**bits)
    quadratic = int(c4 / 2**92 * 2**bits)
    # G(a + 1/2) / G(a - 1/2) = exp(-a / 2^22)
    decay = int(sum(Fraction((-1) ** n, 2 ** (22 * n) * math.factorial(n)) for n in range(9)) * 2**bits)
    density = ratio = 1 << bits
    values = []
    for a in range(_COLUMNS):
        m = (2 * a + 1) ** 2
        values.append(density * (constant - linear * m + quadratic * m * m) >> bits)
        ratio = ratio * decay >> bits
        density = density * ratio >> bits
    total, whole = sum(values), _COLUMNS << (_PRIVATE + _SHARED)
    weights = []
    below = below_rounded = 0
    for value in values:  # rounds the cumulative sums, so that the last one is right
        below += value
        rounded = (2 * below * whole + total) // (2 * total)
        weights.append(rounded - below_rounded)
        below_rounded = rounded
    return weights


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The alias table (Walker 1977), exact for ``_weights``.

    A number of 66 bits below the threshold of a column means the column's own value, any other the column's alias.

    :return: three uint32[2^15]: the high 32 bits of the thresholds; the alias, shifted by two, and the thresholds' next two
        bits; their low 32 bits.
    """
    full = 1 << (_PRIVATE + _SHARED)
    left = _weights()
    thresholds, aliases = [full - 1] * _COLUMNS, list(range(_COLUMNS))
    small = [column for column in range(_COLUMNS) if left[column] < full]
    large = [column for column in range(_COLUMNS) if left[column] >= full]
    while small:
        column, alias = small.pop(), large[-1]
        thresholds[column], aliases[column] = left[column], alias
        left[alias] -= full - left[column]
        if left[alias] < full:
            small.append(large.pop())
    # a full column is its own alias, so its threshold does not matter
    high = np.array([threshold >> 34 for threshold in thresholds], np.uint32)
    middle = np.array([alias << 2 | threshold >> 32 & 3 for alias, threshold in zip(aliases, thresholds, strict=True)])
    low = np.array([threshold & 0xFFFFFFFF for threshold in thresholds], np.uint32)
    return high, middle.astype(np.uint32), low


def _grouped(words: jax.Array, groups: int, level: Any) -> jax.Array:
    """Draws of ``rounded_gaussian_from``, a column for each group: uint32[42 groups] -> int32[16, groups]."""
    first, second, halves, pairs, shared = jnp.split(words.reshape(_WORDS, groups), (16, 32, 40, 41))
    column = (first >> 16) & np.uint32(0x7FFF)
    # a word of halves serves lanes 8 apart; a concatenation would take as long as all the rest
    half = (halves >> np.array([0, 16], np.uint32)[:, None, None]).reshape(_LANES, groups) & np.uint32(0xFFFF)
    private = (first << 16) | half
    pair = (pairs >> np.arange(0, 32, 2, dtype=np.uint32)[:, None]) & np.uint32(3)
    looked_up = tuple(jnp.asarray(part).at[column].get(mode="promise_in_bounds") for part in _table())
    # on a CPU the whole is a twentieth faster if XLA does not fuse the look-ups with what follows
    threshold, packed, threshold_end = lax.optimization_barrier(looked_up)
    threshold_pair = packed & np.uint32(3)
    same = private == threshold
    tie = same & (pair == threshold_pair)
    own = (private < threshold) | (same & (pair < threshold_pair)) | (tie & (shared < threshold_end))
    coarse = jnp.where(own, column, packed >> 2).astype(jnp.int32) ^ -(first >> 31).astype(jnp.int32)
    two_bits = (second >> 24 & np.uint32(0x33)) + (second >> 26 & np.uint32(0x33))
    b = (two_bits & np.uint32(15)) + (two_bits >> 4)
    c = (second & np.uint32(255)) + (second >> 8 & np.uint32(255)) + (second >> 16 & np.uint32(255))
    # coarse is A - 1/2, and the means of B and C are 6 and 382.5
    finest = coarse * np.int32(1024) + ((b << 8) + c).astype(jnp.int32) + np.int32(512 - 6 * 256 - 383)
    dropped = np.int32(FINEST) - level
    return (finest + ((np.int32(1) << dropped) >> np.int32(1))) >> dropped


def _checked(level: Any) -> Any:
    if isinstance(level, numbers.Real):
        return np.int32(_validate.integer("level", level, at_least=0, at_most=FINEST))
    return jnp.asarray(level).astype(jnp.int32)


def rounded_gaussian_from(words: jax.Array, count: int, level: Any) -> jax.Array:
    """Independent draws of round(Z), Z ~ N(0, s^2) with s = 2^(11 + level), int32[count].

    At level ``FINEST`` a draw is the largest integer below Z instead, which is less by half a unit on average. Added to an
    integer x it is a function of x + Z as well. No draw is farther from 0 than 10.5 s.

    There are no branches and no rejections, so the time depends on the draws only through the cache that the table is in.
    The same words give the same draws on all devices.

    :param words: uint32[``words_for(count)``], of ``chacha20.stream`` for example. Use them for nothing else.
    :param level: a whole number from 0 to ``FINEST``, or an int32 array of shape () with one, which may be traced and is not
        checked.
    :raises ArgumentError: if ``level`` is out of range.
    """
    return _grouped(words, -(-count // _LANES), _checked(level)).reshape(-1)[:count]


# A CPU keeps words and draws of a chunk in its L2 cache. 584 groups take 24 528 words, and six of the tiles in which it
# computes ChaCha20 have 24 576, so hardly any are wasted.
_CHUNK = 584 * _LANES


def rounded_gaussian(key: jax.Array, count: int, level: Any) -> jax.Array:
    """``rounded_gaussian_from`` words of a key, for many coordinates, int32[count].

    >>> from workbench.noise import integers
    >>> integers.rounded_gaussian(wb.noise.new_key(), 3, level=4).shape
    (3,)

    The same key gives the same draws on all devices. Those of another ``count`` are others.

    :param key: a typed ChaCha20 key (use ``new_key``).
    :raises TypeError: if ``key`` is not a ChaCha20 key.
    :raises ArgumentError: if ``level`` is out of range.
    """
    require_secure(key)
    level = _checked(level)
    if count < 2 * _CHUNK:
        return rounded_gaussian_from(jax.random.bits(key, (words_for(count),), jnp.uint32), count, level)

    def chunk(key: jax.Array) -> jax.Array:
        # not flat: XLA would flatten the index of its loops as well, and divide in each turn
        return _grouped(jax.random.bits(key, (words_for(_CHUNK),), jnp.uint32), _CHUNK // _LANES, level)

    def in_turn(keys: jax.Array) -> jax.Array:
        return lax.map(chunk, keys)

    keys = jax.random.split(key, -(-count // _CHUNK))
    return lax.platform_dependent(keys, cpu=in_turn, default=jax.vmap(chunk)).reshape(-1)[:count]
