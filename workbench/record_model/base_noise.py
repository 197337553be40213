"""Base noise: the randomness from which a guide draws latents. It protects nobody.

Records of a minibatch share the draws of global latents. A local latent is drawn for its record
alone, with the key of its site and the record's place in the minibatch. Site keys are the same for
all records, so under vmap only the last step of their derivation is computed for each record; a key
for each record would repeat the whole of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from numpyro import handlers

__all__ = ["Key", "RecordKey", "record_keys", "seeded", "two_of"]


class RecordKey(NamedTuple):
    """The base noise of one record.

    :param key: that all records share. :param position: in the minibatch, int32 scalar.
    """

    key: Any
    position: Any


Key = jax.Array | RecordKey


def record_keys(key: jax.Array, positions: jax.Array) -> RecordKey:
    """Base noise of the records at ``positions`` (int32, of any shape): under vmap, its key is
    shared and its place is not.

    It comes from a third child of ``key``. The first two make the draws that records share.
    """
    return RecordKey(jax.random.split(key, 3)[2], positions)


def signs(key: jax.Array, size: int) -> jax.Array:
    """+1 or -1 for each coordinate of u, float32[size], from a fourth child of ``key``."""
    return jax.random.rademacher(jax.random.split(key, 4)[3], (size,), jnp.float32)


def two_of(key: Key) -> tuple[Key, Key]:
    """Independent children of ``key``, for the guide and for the model."""
    if isinstance(key, RecordKey):
        first, second = jax.random.split(key.key)
        return RecordKey(first, key.position), RecordKey(second, key.position)
    first, second = jax.random.split(key)
    return first, second


def seeded(fn: Callable, key: Key) -> Callable:
    """``fn``, a NumPyro model or guide, for one call: its sites are drawn with children
    of ``key``.
    """
    return _RecordSeed(fn, key) if isinstance(key, RecordKey) else handlers.seed(fn, key)


class _RecordSeed(handlers.seed):
    """NumPyro's own seeds, with the record's place folded into each."""

    stateful = True  # it is made for one call, so numpyro need not copy it

    def __init__(self, fn: Callable, key: RecordKey) -> None:
        super().__init__(fn, key.key)
        self._position = key.position

    def process_message(self, msg: dict[str, Any]) -> None:
        kwargs = msg.get("kwargs", {})
        before = kwargs.get("rng_key")
        super().process_message(msg)
        if kwargs.get("rng_key") is not before:
            kwargs["rng_key"] = jax.random.fold_in(kwargs["rng_key"], self._position)
