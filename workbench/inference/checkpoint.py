"""Saves the state of a run and restores it bit for bit."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _folders, _validate
from workbench.inference.state import DPVIState
from workbench.noise import key_use
from workbench.noise.chacha20 import CHACHA20

__all__ = [
    "arrays_of",
    "by_name",
    "load_arrays",
    "load_facts",
    "load_state",
    "save_arrays",
    "save_state",
    "state_of",
]

_FACTS = "facts"
_DAMAGE = (
    ValueError,
    TypeError,
    EOFError,
    KeyError,
    RuntimeError,
    NotImplementedError,
    SyntaxError,
    zlib.error,
)
_KEY = ".key"  # the name under which ``arrays_of`` has the key


class _Hidden(np.ndarray):
    """The words of a secret key, which tracebacks with local variables do not show."""

    def __repr__(self) -> str:
        return "<secret key>"

    __str__ = __repr__


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _plain(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _form(array: jax.Array | np.ndarray) -> tuple[Any, ...]:
    return tuple(array.shape), np.dtype(array.dtype)


def save_arrays(
    path: str | Path, arrays: Mapping[str, Any], facts: Mapping[str, Any] | None = None
) -> Path:
    """Write arrays and JSON-ready facts to ``path`` (NumPy's npz format): readable for the owner
    alone, whole or not at all.

    What was written is on the disk when this returns.

    :raises OSError: if it cannot be written; what was there before is still there.
    """
    path = _validate.path("path", path, "must be the path of a file.")
    partial = path.with_name(f".{path.name}.partial")
    content = dict(arrays) if facts is None else {**arrays, _FACTS: np.array(json.dumps(facts))}
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            np.savez(file, **content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    with contextlib.suppress(PermissionError):  # Windows does not open folders
        _folders.flush(path.parent)
    return path


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """The archive in ``path``; whatever is wrong with it names ``path``."""
    checked = _validate.path("path", path, "must be the path of a file.")
    try:
        with _folders.open_regular(checked) as file:
            if not zipfile.is_zipfile(file):  # of which NumPy would leave an open file
                raise ValueError
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                yield archive
    except OSError as error:
        raise _validate.ArgumentError(
            "path", str(path), f"holds no saved state ({error.strerror or error})."
        ) from None
    except (
        *_DAMAGE,
        zipfile.BadZipFile,
    ):  # whose words may advise to load the file all the same, with the code in it
        raise _validate.ArgumentError(
            "path", str(path), "holds no saved state: it is damaged, or another file."
        ) from None


def load_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays that ``save_arrays`` wrote.

    :raises ArgumentError: naming ``path``, if the file is missing or damaged.
    """
    with _opened(path) as archive:
        return {
            name: archive[name].view(_Hidden) if name == _KEY else archive[name]
            for name in archive.files
            if name != _FACTS
        }


def load_facts(path: str | Path) -> dict[str, Any]:
    """The facts that ``save_arrays`` wrote, empty where none were given; the arrays are not read.

    :raises ArgumentError: naming ``path``, if the file is missing or damaged.
    """
    with _opened(path) as archive:
        facts = json.loads(str(archive[_FACTS])) if _FACTS in archive.files else {}
        return dict(facts)


def arrays_of(state: DPVIState) -> dict[str, np.ndarray]:
    """``state`` as arrays by name, the words of the secret key among them."""
    named, _ = jax.tree_util.tree_flatten_with_path(state)
    return {
        jax.tree_util.keystr(key_path): np.asarray(_plain(leaf)).view(_Hidden)
        if _is_key(leaf)
        else np.asarray(leaf)
        for key_path, leaf in named
    }


def by_name(params: dict[str, Any]) -> dict[str, np.ndarray]:
    """Parameters as ``{name: array}``; those of networks are named after their place in the
    network.
    """
    return {
        name + jax.tree_util.keystr(path): leaf
        for name, value in params.items()
        for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]
    }


def state_of(arrays: Mapping[str, np.ndarray], like: DPVIState, path: str | Path) -> DPVIState:
    """The inverse of ``arrays_of``; ``like`` as for ``load_state``.

    :raises ArgumentError: naming ``path``, where the arrays came from, if they are no such state.
    """
    named, treedef = jax.tree_util.tree_flatten_with_path(like)
    wanted = {jax.tree_util.keystr(key_path): leaf for key_path, leaf in named}
    for name, leaf in wanted.items():
        if name not in arrays or _form(arrays[name]) != _form(_plain(leaf)):
            raise _validate.ArgumentError(
                "path", str(path), f"is of another model or optimiser: {name} differs."
            )
    if len(arrays) != len(wanted):
        raise _validate.ArgumentError(
            "path", str(path), "is of another model or optimiser, with more in it."
        )
    leaves = [
        jax.random.wrap_key_data(jnp.asarray(arrays[name]), impl=CHACHA20)
        if _is_key(leaf)
        else jnp.asarray(arrays[name])
        for name, leaf in wanted.items()
    ]
    state: DPVIState = jax.tree.unflatten(treedef, leaves)
    key_use.note_loaded(state.key)
    return state


def save_state(state: DPVIState, path: str | Path, facts: Mapping[str, Any] | None = None) -> Path:
    """Write ``state`` to ``path``, as ``save_arrays`` does.

    The file holds the run's secret key: anyone who has it can compute the noise of every step, past
    and future, and take it off again. Keep it as you keep the records, and delete it when the run
    is over. Go on from it once, with the same records and the same model: two runs from one state
    have the same noise, which only calls in one process can be checked for.

    >>> from numpyro.optim import Adam
    >>> data, logistic = wb.data.load("breast_cancer"), wb.models.get("logistic")
    >>> target = {"epsilon": 1.0, "iterations": 100, "sampling_rate": 0.1}
    >>> dpvi = wb.inference.DPVI(logistic.model, logistic.guide, Adam(0.05), **target)
    >>> state = dpvi.init(wb.noise.new_key(), *data.train)
    >>> path = wb.inference.save_state(state, "state.npz")
    """
    return save_arrays(path, arrays_of(state), facts)


def load_state(path: str | Path, like: DPVIState) -> DPVIState:
    """The state that ``save_state`` wrote.

    >>> from numpyro.optim import Adam
    >>> data, logistic = wb.data.load("breast_cancer"), wb.models.get("logistic")
    >>> target = {"epsilon": 1.0, "iterations": 100, "sampling_rate": 0.1}
    >>> dpvi = wb.inference.DPVI(logistic.model, logistic.guide, Adam(0.05), **target)
    >>> state = dpvi.init(wb.noise.new_key(), *data.train)
    >>> path = wb.inference.save_state(state, "state.npz")
    >>> int(wb.inference.load_state(path, like=state).step)
    0

    :param like: a state of the same model, guide and optimiser, from ``DPVI.init`` with any key.
    :raises ArgumentError: if the file holds no state, or one of another shape.
    """
    return state_of(load_arrays(path), like, path)
