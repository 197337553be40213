"""Epochs of allocated records that are prepared once each, however many chunks take their steps."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from workbench.inference.state import DPVIState, Hyperparameters
    from workbench.record_model.model import Record

__all__ = ["by_epochs"]


def by_epochs(
    steps: Callable[..., Any], prepare: Callable[..., Any], length: int
) -> Callable[..., Any]:
    """``chunk(state, records, limit, hyper)`` as of ``compiling.chunk_of``, which remembers the
    epoch that it prepared last.

    Each thread remembers one of its own, by the epoch's number and a digest of the run's key, from
    which it follows. The key itself is not kept: a chunk may outlive its run.

    :param steps: ``steps(state, records, limit, hyper, prepared)`` within one epoch.
    :param prepare: of the sampler: of a key and the number of an epoch. :param length: steps of an
        epoch.
    """
    cache = threading.local()

    def chunk(
        state: DPVIState, records: Record, limit: int | jax.Array, hyper: Hyperparameters
    ) -> Any:
        step, end = int(state.step), int(limit)
        key = hashlib.blake2b(np.asarray(jax.random.key_data(state.key)).tobytes()).digest()
        while step < end:
            epoch = step // length
            if getattr(cache, "of", None) != (key, epoch):
                cache.of = cache.prepared = (
                    None  # its memory is free before the next one takes as much
                )
                cache.prepared = prepare(state.key, np.uint32(epoch))
                cache.of = key, epoch
            step = min(end, (epoch + 1) * length)
            state = steps(state, records, jnp.int32(step), hyper, cache.prepared)
        return state

    return chunk
