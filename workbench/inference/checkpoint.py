"""Saving a run's state and going on from it, bit for bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench.inference.dpvi import DPVIState
from workbench.privacy.randomness import CHACHA20

__all__ = ["load_state", "save_state"]


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def save_state(state: DPVIState, path: str | Path) -> Path:
    """Write ``state`` to ``path`` (NumPy's npz format), readable for its owner alone, whole or not at all.

    The file holds the run's secret key: whoever has it can compute the noise of every step, past and future, and take it
    off again. Keep it as you keep the records, and delete it when the run is over.
    """
    path = Path(path).expanduser()
    named, _ = jax.tree_util.tree_flatten_with_path(state)
    arrays: dict[str, Any] = {jax.tree_util.keystr(place): np.asarray(_plain(leaf)) for place, leaf in named}
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez(file, **arrays)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def load_state(path: str | Path, like: DPVIState) -> DPVIState:
    """The state that ``save_state`` wrote.

    :param like: a state of the same model, guide and optimiser, from ``DPVI.init`` with any key.
    :raises ArgumentError: if the file holds no state, or one of another shape.
    """
    named, treedef = jax.tree_util.tree_flatten_with_path(like)
    try:
        with np.load(Path(path).expanduser(), allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, EOFError) as error:
        raise _validate.ArgumentError("path", str(path), f"holds no saved state ({error}).") from None
    leaves = []
    for place, leaf in named:
        name = jax.tree_util.keystr(place)
        expected = _plain(leaf)
        if name not in arrays or arrays[name].shape != expected.shape or arrays[name].dtype != expected.dtype:
            raise _validate.ArgumentError("path", str(path), f"is of another model or optimiser: {name} differs.")
        value = jnp.asarray(arrays[name])
        leaves.append(jax.random.wrap_key_data(value, impl=CHACHA20) if _is_key(leaf) else value)
    if len(arrays) != len(leaves):
        raise _validate.ArgumentError("path", str(path), "is of another model or optimiser, with more in it.")
    return jax.tree.unflatten(treedef, leaves)
