"""Standard normal draws whose tails reach nine standard deviations, from any JAX key.

``jax.random.normal`` in float32 stops at 5.4 standard deviations, which no proof about the Gaussian
mechanism allows for.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["NORMAL_BOUND", "normal", "normal_from"]

# Phi^{-1}(1 - p) = (1 - 2 p) * f(w) with w = -log(4 p (1 - p)); f fitted by weighted least squares
# against 200-bit arithmetic (tests/noise/test_noise.py measures the result against scipy). Centre:
# w < 6.25, in w - 2.5, relative error 8e-8. Tail: 6.25 <= w <= 44.2, in sqrt(w) - 4.2, relative
# error 4e-7.
_CENTRE = (
    -7.155987802320851e-09, 2.7909610622600667e-08, 5.771020710199082e-07,
    -4.8374972820921505e-06, -6.5793060457508545e-06, 0.0003085768548771739,
    -0.001772544695995748, -0.005907515995204449, 0.3488025367259979, 2.1233134269714355,
)  # fmt: skip
_TAIL = (
    -3.7572626752080396e-06, 2.3005628463579342e-05, -4.1425002564210445e-05,
    1.4350923265737947e-05, -4.577000072458759e-05, 0.00034233584301546216, -0.000969588989391923,
    0.0011344602098688483, 1.428228497505188, 5.715865135192871,
)  # fmt: skip

# The largest draw: p = 2**-65. P(|N(0,1)| > NORMAL_BOUND) is about 6e-20.
NORMAL_BOUND = 9.15


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + np.float32(coefficient)
    return value


def upper_tail_quantile(p: jax.Array) -> jax.Array:
    """Phi^{-1}(1 - p) for float32 p in [2**-65, 1/2]."""
    w = -jnp.log(4 * p * (1 - p))
    centre = _polynomial(_CENTRE, w - np.float32(2.5))
    tail = _polynomial(_TAIL, jnp.sqrt(w) - np.float32(4.2))
    return (1 - 2 * p) * jnp.where(w < 6.25, centre, tail)


def normal_from(sign_and_high: jax.Array, low: jax.Array) -> jax.Array:
    """Standard normal draws, float32, from two uint32 words each (of ``stream``).

    The words are the sign bit and the 31 high bits of a probability in (0, 1/2), and its 32 low
    bits.
    """
    high = (sign_and_high >> 1).astype(jnp.float32)
    p = (high + (low.astype(jnp.float32) + np.float32(0.5)) * np.float32(2.0**-32)) * np.float32(
        2.0**-32
    )
    magnitude = upper_tail_quantile(p)
    return jnp.where((sign_and_high & 1) == 1, magnitude, -magnitude)


# On a CPU the keystream is half of the cost, and low bits matter only in the tail: if the high bits
# are 2**20 or more (|z| < 3.49), a step of 2**-32 in p moves the draw by less than float32
# resolves. So eight draws share one word of low bits, for the one of them that is in the tail. A
# chunk in which two are (one in forty) draws 32 bits for each.
_CHUNK, _SHARING, _TAIL_BELOW, _MIDDLE = 2**15, 8, np.uint32(2**20), np.uint32(2**31)


def _normal_chunk(key: jax.Array) -> jax.Array:
    words = jax.random.bits(key, (_CHUNK + _CHUNK // _SHARING,), jnp.uint32)
    sign_and_high, shared = words[:_CHUNK].reshape(-1, _SHARING), words[_CHUNK:, None]
    in_tail = (sign_and_high >> 1) < _TAIL_BELOW
    low = lax.cond(
        jnp.any(jnp.sum(in_tail, axis=1) > 1),
        lambda: jax.random.bits(jax.random.fold_in(key, 1), sign_and_high.shape, jnp.uint32),
        lambda: jnp.broadcast_to(shared, sign_and_high.shape),
    )
    return normal_from(sign_and_high, jnp.where(in_tail, low, _MIDDLE)).reshape(-1)


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent standard normal draws, float32, from a sign bit and a 63-bit probability each.

    ``jax.random.normal`` in float32 inverts 23 bits and never leaves (-5.42, 5.22). In hundreds of
    thousands of coordinates over thousands of steps, that missing tail is a privacy loss that delta
    does not count. Here a draw reaches ``NORMAL_BOUND``. The gaps between floating-point numbers
    remain (Mironov 2012).

    On a CPU, draws of many coordinates take the low 32 bits only where they change the result,
    which takes three quarters of the time. So the same key gives other draws there than on other
    devices.

    >>> wb.noise.normal(wb.noise.new_key(), (3, 2)).shape
    (3, 2)

    :param key: a typed key (use ``new_key``).
    :param shape: shape of the result.
    """
    count = math.prod(shape)

    def at_once(key: jax.Array) -> jax.Array:
        words = jax.random.bits(key, (2, *shape), jnp.uint32)
        return normal_from(words[0], words[1])

    def in_chunks(key: jax.Array) -> jax.Array:
        keys = jax.random.split(key, -(-count // _CHUNK))
        return lax.map(_normal_chunk, keys).reshape(-1)[:count].reshape(shape)

    if count < 2 * _CHUNK:
        return at_once(key)
    return lax.platform_dependent(key, cpu=in_chunks, default=at_once)
