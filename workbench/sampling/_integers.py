"""Integer arithmetic that samplers share: almost unbiased remainders, and keyed mixing of words."""

from __future__ import annotations

import jax
import numpy as np

__all__ = ["mixed", "modulo"]


def modulo(high: jax.Array, low: jax.Array, modulus: int) -> jax.Array:
    """(2^32 high + low) mod ``modulus``, uint32, without 64-bit integers, which JAX has only if
    they are enabled.

    For 64 random bits, the total variation distance of the remainder from uniform is at most
    modulus / 2^64.

    :param modulus: in 1 .. 2^30 - 1, so that a remainder with two more bits still fits a word.
    """
    at_once = 32 - modulus.bit_length()
    remainder = high % np.uint32(modulus)
    shift = 32
    while shift:
        taken = min(at_once, shift)
        shift -= taken
        digits = (low >> np.uint32(shift)) & np.uint32(2**taken - 1)
        remainder = ((remainder << np.uint32(taken)) | digits) % np.uint32(modulus)
    return remainder


def mixed(values: jax.Array, key: jax.Array) -> jax.Array:
    """A word for each of ``values``, uint32, all of whose bits depend on ``key``. The high bits are
    mixed best.

    Three multiplications by odd constants, with shifts: enough to pass statistical tests. It is not
    a cipher, so no guarantee may depend on it.
    """
    word = (values ^ key) * np.uint32(0x9E3779B1)
    word = (word ^ (word >> np.uint32(15))) * np.uint32(0x85EBCA77)
    return (word ^ (word >> np.uint32(13))) * np.uint32(0xC2B2AE3D)
