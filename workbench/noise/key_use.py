"""What this process knows about keys: which are secret, and which steps' noise was drawn with them.

The noise of a step follows from its run's key and its number. Two runs with the same key, or a step
that is taken twice with other records or another model, have the same noise, and the difference of
their releases shows what the noise hides. So a secret key starts one run, and no step is drawn
twice, as far as this process can see. It does not see other processes, nor traced keys.

Only digests are kept. Keys from seeds have no guarantee and are exempt.
"""

from __future__ import annotations

import hashlib
import os
import threading

import jax
import numpy as np

from workbench import _validate

__all__ = [
    "begin_run",
    "check_steps",
    "draw_steps",
    "has_begun",
    "is_secret",
    "note_child",
    "note_loaded",
    "note_made",
    "throw_away",
]

_secret: set[bytes] = set()
_from_seeds: set[bytes] = set()
_drawn: dict[
    bytes, int
] = {}  # keys that began a run, and the number of the step up to which its noise was drawn
_lock = threading.RLock()

if hasattr(
    os, "register_at_fork"
):  # a forked child has its parent's keys, and neither sees what the other draws
    os.register_at_fork(after_in_child=_secret.clear)


def _digest(key: jax.Array) -> bytes:
    """SHA-256 of one concrete key; empty, which is no key's, for traced keys and for arrays of
    keys.
    """
    if isinstance(key, jax.core.Tracer) or key.shape != ():
        return b""
    with (
        jax.ensure_compile_time_eval()
    ):  # a concrete key stays one where a function around it is traced
        words = np.asarray(jax.random.key_data(key))
    return hashlib.sha256(words.astype("<u4").tobytes()).digest()


def note_made(key: jax.Array, *, secret: bool) -> None:
    """Record that a concrete key was made, by the operating system or from a seed."""
    (_secret if secret else _from_seeds).add(_digest(key))


def note_child(key: jax.Array, child: jax.Array) -> None:
    """Record that ``child`` was made from ``key``, and is as secret."""
    for digests in (_secret, _from_seeds):
        if _digest(key) in digests:
            digests.add(_digest(child))


def throw_away(key: jax.Array) -> None:
    """Record that releases with ``key`` are thrown away, as in an audit, so runs may repeat one
    another.
    """
    _from_seeds.add(_digest(key))


def _counts(digest: bytes) -> bool:
    """Whether runs with the key are recorded: concrete keys that are not from seeds, also children
    of other keys.
    """
    return bool(digest) and digest not in _from_seeds


def is_secret(key: jax.Array) -> bool:
    """Whether the operating system made ``key`` in this process."""
    return _digest(key) in _secret


def has_begun(key: jax.Array) -> bool:
    """Whether this process saw a run begin with ``key``. Runs with keys from seeds are not
    recorded.
    """
    return _digest(key) in _drawn


def begin_run(key: jax.Array) -> None:
    """Record that a run begins with ``key``.

    :raises ArgumentError: naming ``key``, if a run began with it before.
    """
    digest = _digest(key)
    with _lock:
        if digest in _drawn:
            raise _validate.ArgumentError(
                "key",
                key,
                "has already begun a run in this process, and a second run would have the same "
                "noise: give new_key(), or the state of the first run as init_state.",
            )
        if _counts(digest):
            _drawn[digest] = 0


def note_loaded(key: jax.Array) -> None:
    """Record that a saved state was read, so a run began with its ``key``, here or elsewhere."""
    digest = _digest(key)
    if _counts(digest):
        _drawn.setdefault(digest, 0)


def check_steps(key: jax.Array, first: int) -> None:
    """Refuse to draw the noise of step number ``first`` (from 0) of the run with ``key`` again.

    :raises ArgumentError: naming ``state``.
    """
    drawn = _drawn.get(_digest(key), 0)
    if first < drawn:
        raise _validate.ArgumentError(
            "state",
            f"step {first}",
            f"is not the newest state: the run has already reached step {drawn}, and steps from "
            "here would have the same noise with any records and model. Use the newest state, or "
            "begin a run with new_key().",
        )


def draw_steps(key: jax.Array, first: int, last: int) -> None:
    """Record that steps ``first`` .. ``last - 1`` of the run with ``key`` are about to be taken.

    :raises ArgumentError: as ``check_steps``.
    """
    digest = _digest(key)
    with _lock:
        if _counts(digest):
            check_steps(key, first)
            _drawn[digest] = last
