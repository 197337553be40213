"""Integer arithmetic that samplers share: remainders without bias to speak of, and keyed mixing of words."""

from __future__ import annotations

import jax
import numpy as np

__all__ = ["mixed", "modulo"]


def modulo(high: jax.Array, low: jax.Array, modulus: int) -> jax.Array:
    """(2^32 high + low) mod ``modulus``, uint32: JAX has no 64-bit integers unless they are switched on.

    Of 64 random bits, the remainder's total variation distance from uniform is at most modulus / 2^64.

    :param modulus: in 1 .. 2^30 - 1, so that a remainder with two more bits is still a word.
    """
    at_once = 32 - modulus.bit_length()
    remainder = high % np.uint32(modulus)
    left = 32
    while left:
        taken = min(at_once, left)
        left -= taken
        digits = (low >> np.uint32(left)) & np.uint32(2**taken - 1)
        remainder = ((remainder << np.uint32(taken)) | digits) % np.uint32(modulus)
    return remainder


def mixed(values: jax.Array, key: jax.Array) -> jax.Array:
    """A word for each of ``values``, uint32, that changes throughout with ``key``; its high bits are the best mixed.

    Three rounds of multiplying by an odd constant, two of them followed by a shift: enough to pass statistical tests, but no
    cipher, so no guarantee may rest on it.
    """
    word = (values ^ key) * np.uint32(0x9E3779B1)
    word = (word ^ (word >> np.uint32(15))) * np.uint32(0x85EBCA77)
    return (word ^ (word >> np.uint32(13))) * np.uint32(0xC2B2AE3D)
