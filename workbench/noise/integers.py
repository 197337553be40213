"""Integer Gaussian noise of which every bit is accounted for, from words of ChaCha20, in constant
time.

Noise of floating-point numbers has gaps that no proof about the Gaussian mechanism allows for
(Mironov 2012). Here the noise is Y = round(Z) for Z ~ N(0, s^2). For a vector x of integers, x +
round(Z) = round(x + Z) is a function of what the Gaussian mechanism releases, so the accountants of
that mechanism hold as they are. What it costs that draws are not exactly of this law is charged to
delta: ``delta_cost``.

How a draw is made, with s = 2^21:

- A is an odd multiple of 1/2 with a standard deviation of 2^11: a sign, and one of 2^15 values from
  an alias table.
- B is the sum of four uniform draws from {0, ..., 1023}, a discrete cubic B-spline.
- Y = 1024 A + B - 2046 is, up to what is charged, round(Z). Adding 2^(k - 1) and dropping the last
  k bits gives round((Z + 1/2) / 2^k), which is noise of a smaller s.

With sinc(x) = sin(x) / x and means removed, the characteristic function of B is (sinc(512 t) /
sinc(t / 2))^4, and that of round(Z) is exp(-s^2 t^2 / 2) sinc(t / 2). So that of A should be
exp(-2^22 p^2 / 2) sinc(p / 2048)^5 / sinc(p / 2)^4 at p = 1024 t. The factor behind the exponential
is 1 + c2 p^2 + c4 p^4 + ..., so the table has the values of G - c2 G'' + c4 G'''', where G is the
density of N(0, 2^22). Three differences remain:

- Characteristic functions of integers are periodic. The sum has a part near each multiple of 2 pi /
  1024, where that of B has a fourfold zero, that round(Z) does not have. It multiplies the
  probability of y by 1 + r(y). Up to a hundredth, r(y) is He4(y / s) sum_k (-1)^k cos(2 pi k y /
  1024) / (2 s sin(pi k / 1024))^4, with k from 1 to 1023. The terms from p^6 on are 2^20 times
  smaller.
- Probabilities in the table are rounded to multiples of 2^-87, so those beyond 11 standard
  deviations are 0.
- Thresholds have 72 bits, and the number that a draw compares with one has 24 of its own. Only if
  these are those of the threshold, the next 32 matter, which are a sum modulo 2 of words that 32
  draws share; and only if these are the same as well, the last 16, which all 32 draws share.
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

__all__ = [
    "COARSEST",
    "FINEST",
    "delta_cost",
    "rounded_gaussian",
    "rounded_gaussian_from",
    "words_for",
]

FINEST = 10
"""The largest level: noise of standard deviation 2^21."""

COARSEST = -8
"""The smallest level: noise of standard deviation 2^3."""

_COLUMNS = 2**15  # of the alias table
_PRIVATE, _MIXED, _LAST = 24, 32, 16  # bits of a threshold
_THRESHOLD = _PRIVATE + _MIXED + _LAST
_LANES = 32  # draws that share words
# words that sums modulo 2 are made of: one for all lanes, one for each bit of a lane's number
_MIXES = 6
_WORDS = 2 * _LANES + _LANES // 2 + _MIXES + 1  # of one group of them

# see delta_cost
_SQUARE = 2.0**-103.6
_LARGEST = 2.0**-39.9
_FAR = 2.0**-83.2
_TABLE = 2.0**-73
_TIES = math.comb(_LANES, 4) / _LANES * 2.0 ** (-4 * _PRIVATE)
_TIES += math.comb(_LANES, 2) / _LANES * 2.0 ** (-2 * (_PRIVATE + _MIXED))
_UNLIKELY = 1e-40


def delta_cost(draws: float, epsilon: float) -> float:
    """What ``draws`` draws add at most to the delta of an (epsilon, delta) guarantee that holds for
    the stated law.

    It holds for vectors, for many steps, and where what is drawn depends on earlier draws. It is
    infinite if epsilon is above 700.

    >>> from workbench.noise import integers
    >>> integers.delta_cost(3e5, epsilon=8) < 1e-9
    True

    The draws of a whole fit, n of them, are independent whatever depends on them: coarser levels
    are functions of the finest. Let Q be the law of n independent draws of round(Z), which have
    probabilities q(y), P that of independent draws with probabilities (1 + r(y)) q(y), those of a
    table that is not rounded, and R the law of the real draws.

    1. The total variation between R and P is at most n F. The table has 2^15 columns, and the
       probability of each is wrong by at most 2^-87: 2^-73 for each draw. In a group of 32 draws,
       any three sums modulo 2 are independent, because no sum of one, two or three of the vectors
       (1, bits of the lane) is zero modulo 2. So without the events that four draws need them, or
       two the last bits, draws are independent: C(32, 4) / 32 2^-96 + C(32, 2) / 32 2^-112 for each
       draw.
    2. The total variation between P and Q is at most half the square root of (1 + V)^n - 1, where V
       >= E[r^2] under q (Cauchy-Schwarz for the expectation of ``abs(dP/dQ - 1)``). E[r^2] is 24
       sum_k (2 s sin(pi k / 1024))^-8 with k from 1 to 1023, which is 2^-103.62; V is 2^-103.6.
    3. Let a and b be the probabilities of an event for two neighbouring data sets under Q, and a'
       and b' those under R, so a - e^epsilon b <= delta. If they differ by at most d, then a' -
       e^epsilon b' <= delta + (1 + e^epsilon) d.
    4. Or let log dP/dQ be above eta with a probability of at most tau under P, and below -eta with
       one of at most tau under Q. For a' and b' under P, a' <= e^eta a + tau and b' >= e^-eta (b -
       tau). As a <= 1 and e^epsilon b >= a - delta, a' - e^epsilon b' <= (e^eta - e^-eta) a + delta
       + (1 + e^epsilon) tau <= 2 sinh(eta) + delta + (1 + e^epsilon) tau.
    5. Within 10.5 standard deviations r is between -2^-39.95 and 2^-39.95. Beyond are less than
       2^-83.2 of q and of (1 + r) q; leaving the logarithms of these draws out matters with a
       probability of at most n 2^-83.2. For the others r - r^2 <= log(1 + r) <= r <= (1 + r) log(1
       + r) <= r + r^2. So under either law the mean of a term is at most V + sqrt(2^-83.2 V), its
       variance is at most V, and a term is at most 2^-39.9 above or below its mean. Bernstein's
       inequality gives eta for tau = 1e-40 + n 2^-83.2.

    The cost is the smaller of what 3 gives, with d from 1 and 2, and what 4 gives, with n F from 1
    added to tau.

    :param draws: number of coordinates, summed over all steps.
    :param epsilon: that of the guarantee, at least 0.
    :raises ArgumentError: if ``draws`` or ``epsilon`` is negative or not finite.
    """
    draws = _validate.number("draws", draws, at_least=0)
    epsilon = _validate.number("epsilon", epsilon, at_least=0)
    if draws == 0:
        return 0.0
    if epsilon > 700:  # e^710 is too large for a float
        return math.inf
    apart = _TABLE + _TIES
    by_distance = _by_distance(draws, epsilon, _SQUARE, apart)
    by_ratio = _by_ratio(
        draws, epsilon, _SQUARE, apart + _FAR, _LARGEST, math.sqrt(_FAR * _SQUARE), _UNLIKELY
    )
    return min(by_distance, by_ratio) * (1 + 1e-12)


def _by_distance(draws: float, epsilon: float, square: float, apart: float) -> float:
    """``delta_cost`` by steps 1 to 3. If ``draws * square`` is above 2, the total variation is 1
    anyway.

    :param square: V.
    :param apart: F.
    """
    distance = math.sqrt(math.expm1(min(draws * square, 2))) / 2 + draws * apart
    return (1 + math.exp(epsilon)) * min(1.0, distance)


def _by_ratio(
    draws: float,
    epsilon: float,
    square: float,
    apart: float,
    largest: float,
    drift: float,
    unlikely: float,
) -> float:
    """``delta_cost`` by steps 1, 4 and 5. If eta is above 1, so is the cost, which says nothing
    about delta.

    :param square: V.
    :param apart: F, and the probability for each draw that its term of the logarithm is left out.
    :param largest: bound on the other terms less their mean.
    :param drift: bound on the mean of a term, without V.
    :param unlikely: probability that is left to Bernstein's inequality.
    """
    needed = -math.log(unlikely)
    linear = needed * largest / 3
    eta = linear + math.sqrt(linear**2 + 2 * needed * draws * square) + draws * (square + drift)
    return 2 * math.sinh(min(eta, 1)) + (1 + math.exp(epsilon)) * (unlikely + draws * apart)


def words_for(count: int) -> int:
    """How many uint32 words ``count`` draws take: 87 for every 32 of them that are begun."""
    return -(-count // _LANES) * _WORDS


def _unrounded() -> list[int]:
    """P(|A| = a + 1/2) for a = 0, 1, ..., 2^15 - 1, up to a factor: integers of about 192 bits."""
    bits = 192
    # c2 and c4: log(1 + c2 p^2 + c4 p^4 + ...) = p^2 (4 - 5/1024^2) / 24 + p^4 (4 - 5/1024^4) /
    # 2880 + ...
    c2 = (4 - Fraction(5, 1024**2)) / 24
    c4 = c2**2 / 2 + (4 - Fraction(5, 1024**4)) / 2880
    # G''(x) = G(x) (m - 2^24) / 2^46 and G''''(x) = G(x) (m^2 - 6 2^24 m + 3 2^48) / 2^92 for m =
    # (2 x)^2
    constant = int((1 + c2 / 2**22 + 3 * c4 / 2**44) * 2**bits)
    linear = int((c2 / 2**46 + 6 * c4 / 2**68) * 2**bits)
    quadratic = int(c4 / 2**92 * 2**bits)
    # G(a + 1/2) / G(a - 1/2) = exp(-a / 2^22)
    decay = int(
        sum(Fraction((-1) ** n, 2 ** (22 * n) * math.factorial(n)) for n in range(9)) * 2**bits
    )
    density = ratio = 1 << bits
    values = []
    for a in range(_COLUMNS):
        m = (2 * a + 1) ** 2
        values.append(density * (constant - linear * m + quadratic * m * m) >> bits)
        ratio = ratio * decay >> bits
        density = density * ratio >> bits
    return values


def _weights() -> list[int]:
    """2^87 P(|A| = a + 1/2) for a = 0, 1, ..., rounded to integers with the right sum."""
    values = _unrounded()
    total, target = sum(values), _COLUMNS << _THRESHOLD
    weights = []
    below = below_rounded = 0
    for value in values:  # rounds the cumulative sums, so that the last one is right
        below += value
        rounded = (2 * below * target + total) // (2 * total)
        weights.append(rounded - below_rounded)
        below_rounded = rounded
    return weights


@functools.cache
def _table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The alias table (Walker 1977), exact for ``_weights``.

    A number of 72 bits below the threshold of a column means the column's own value, any other the
    column's alias.

    :return: three uint32[2^15]: the high 24 bits of the thresholds, shifted by eight; their next 32
        bits; the alias, shifted by 16, and the thresholds' low 16 bits.
    """
    full = 1 << _THRESHOLD
    masses = _weights()
    thresholds, aliases = [full - 1] * _COLUMNS, list(range(_COLUMNS))
    small = [column for column in range(_COLUMNS) if masses[column] < full]
    large = [column for column in range(_COLUMNS) if masses[column] >= full]
    while small:
        column, alias = small.pop(), large[-1]
        thresholds[column], aliases[column] = masses[column], alias
        masses[alias] -= full - masses[column]
        if masses[alias] < full:
            small.append(large.pop())
    # a full column is its own alias, so its threshold does not matter
    high = [threshold >> 48 << 8 for threshold in thresholds]
    middle = [threshold >> 16 & 0xFFFFFFFF for threshold in thresholds]
    packed = [
        alias << 16 | threshold & 0xFFFF
        for alias, threshold in zip(aliases, thresholds, strict=True)
    ]
    return np.array(high, np.uint32), np.array(middle, np.uint32), np.array(packed, np.uint32)


def _grouped(words: jax.Array, groups: int, level: int | jax.Array) -> jax.Array:
    """Draws of ``rounded_gaussian_from``, a column for each group: uint32[87 groups] -> int32[32,
    groups].
    """
    boundaries = (_LANES, 2 * _LANES, 5 * _LANES // 2, _WORDS - 1)
    first, second, halves, mixes, last = jnp.split(words.reshape(_WORDS, groups), boundaries)
    column = (first >> 16) & np.uint32(0x7FFF)
    # a word of halves serves lanes 16 apart; a concatenation would take as long as all the rest
    half = (halves >> np.array([0, 16], np.uint32)[:, None, None]).reshape(_LANES, groups)
    private = (first << 16) | (half & np.uint32(0xFC00)) | (second & np.uint32(3)) << 8
    lane = np.arange(_LANES, dtype=np.uint32)[:, None]
    mixed = mixes[0]
    for bit in range(_MIXES - 1):
        mixed = mixed ^ (mixes[bit + 1] & -(lane >> np.uint32(bit) & np.uint32(1)))
    looked_up = tuple(
        jnp.asarray(entries).at[column].get(mode="promise_in_bounds") for entries in _table()
    )
    # on a CPU the whole is faster if XLA does not fuse the look-ups with what follows
    threshold, threshold_mixed, packed = lax.optimization_barrier(looked_up)
    below_last = (last & np.uint32(0xFFFF)) < (packed & np.uint32(0xFFFF))
    below_mixed = (mixed < threshold_mixed) | ((mixed == threshold_mixed) & below_last)
    is_below = (private < threshold) | ((private == threshold) & below_mixed)
    coarse = jnp.where(is_below, column, packed >> 16).astype(jnp.int32) ^ -(first >> 31).astype(
        jnp.int32
    )
    b = (
        (second >> 22)
        + (second >> 12 & np.uint32(1023))
        + (second >> 2 & np.uint32(1023))
        + (half & np.uint32(1023))
    )
    # coarse is A - 1/2
    finest = coarse * np.int32(1024) + b.astype(jnp.int32) + np.int32(512 - 2046)
    dropped = np.int32(FINEST) - level
    return (finest + ((np.int32(1) << dropped) >> np.int32(1))) >> dropped


def _checked(level: int | jax.Array) -> Any:
    if isinstance(level, numbers.Real):
        return np.int32(_validate.integer("level", level, at_least=COARSEST, at_most=FINEST))
    return jnp.asarray(level).astype(jnp.int32)


def rounded_gaussian_from(words: jax.Array, count: int, level: int | jax.Array) -> jax.Array:
    """Independent draws of round(Z), Z ~ N(0, s^2) with s = 2^(11 + level), int32[count].

    At other levels than ``FINEST`` the mean of Z is not 0 but 2^-22 s, half a unit of the finest
    level. Added to an integer x, a draw is a function of x + Z all the same. No draw is farther
    from 0 than 11 s.

    There are no branches and no rejections, so the time depends on the draws only through the cache
    that the table is in. The same words give the same draws on all devices.

    :param words: uint32[``words_for(count)``], of ``chacha20.stream`` for example. Use them for
        nothing else.
    :param level: a whole number from ``COARSEST`` to ``FINEST``, or an int32 array of shape () with
        one, which may be traced and is not checked.
    :raises ArgumentError: if ``level`` is out of range.
    """
    return _grouped(words, -(-count // _LANES), _checked(level)).reshape(-1)[:count]


# A CPU keeps words and draws of a chunk in its L2 cache. 282 groups take 24 534 words, and six of
# the tiles in which it computes ChaCha20 have 24 576, so hardly any are wasted.
_CHUNK = 282 * _LANES


def rounded_gaussian(key: jax.Array, count: int, level: int | jax.Array) -> jax.Array:
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
        return rounded_gaussian_from(
            jax.random.bits(key, (words_for(count),), jnp.uint32), count, level
        )
    return _of_keys(jax.random.split(key, -(-count // _CHUNK)), level)[:count]


def _of_keys(keys: jax.Array, level: int | jax.Array) -> jax.Array:
    """The draws of chunks, one after the other."""

    def chunk(key: jax.Array) -> jax.Array:
        # not flat: XLA would flatten the index of its loops as well, and divide in each turn
        return _grouped(
            jax.random.bits(key, (words_for(_CHUNK),), jnp.uint32), _CHUNK // _LANES, level
        )

    def in_turn(keys: jax.Array) -> jax.Array:
        return lax.map(chunk, keys)

    return lax.platform_dependent(keys, cpu=in_turn, default=jax.vmap(chunk)).reshape(-1)
