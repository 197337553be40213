"""The part "paths": chunks, checkpoints and lanes release the same as single steps, which the attack runs.

The optimiser of a fit sees what was released; this audit's optimiser keeps every gradient. Runs with the same keys and
records take each path, and their gradients are compared step by step. Missing noise, repeated noise and another lane's
noise are obvious, because noise is large compared with the tolerance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from workbench.auditing.canaries import Rows
from workbench.auditing.result import Check
from workbench.inference.batched import BatchedProgram, stacked
from workbench.inference.checkpoint import load_state, save_state
from workbench.inference.compiling import lower
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.noise._key_use import throw_away

__all__ = ["check", "logging_sgd"]

_LANES = 3
_INTERVAL, _STEPS = 4, 6  # steps per chunk, and in all: the second chunk is cut short
_TOLERANCE = 1e-3  # of the noise's standard deviation


def logging_sgd(steps: int, learning_rate: float) -> optax.GradientTransformation:
    """Gradient descent that keeps the gradients of the first ``steps`` steps, in float32 or wider."""

    def init(params: Any) -> Any:
        kept = lambda leaf: jnp.zeros((steps, *leaf.shape), jnp.promote_types(leaf.dtype, jnp.float32))  # noqa: E731
        return jnp.zeros((), jnp.int32), jax.tree.map(kept, params)

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        count, log = state
        log = jax.tree.map(lambda kept, new: kept.at[count].set(new.astype(kept.dtype)), log, gradient)
        return jax.tree.map(lambda leaf: -learning_rate * leaf, gradient), (count + 1, log)

    return optax.GradientTransformation(init, update)


def _log_of(state: DPVIState) -> jax.Array:
    """The gradients that ``logging_sgd`` kept in the state of one run, float[T, size of psi]."""
    _, (_, (_, log)) = state.optim_state
    return jax.vmap(lambda tree: ravel_pytree(tree)[0])(log)


def _copy(state: DPVIState) -> DPVIState:
    """A copy in its own memory, because compiled chunks reuse the memory of their argument."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def _single_steps(step: PrivateStep, hyper: Hyperparameters, state: DPVIState, records: Any) -> np.ndarray:
    once = jax.jit(lambda state: step.step(state, records, step.draw(state.key, state.step, hyper), hyper))
    for _ in range(_STEPS):
        state = once(state)
    return np.asarray(_log_of(state))


def _chunks(
    step: PrivateStep, hyper: Hyperparameters, starts: list[DPVIState], records: Any
) -> tuple[list[np.ndarray], np.ndarray]:
    """Releases of a fit's chunks from every start, and from the first start with a checkpoint on the way."""
    chunk = lower(step, hyper, starts[0], records, _INTERVAL).compile()
    whole = [np.asarray(_log_of(chunk(_copy(state), records, jnp.int32(_STEPS), hyper))) for state in starts]
    half = chunk(_copy(starts[0]), records, jnp.int32(_STEPS // 2), hyper)
    with tempfile.TemporaryDirectory() as folder:
        restored = load_state(save_state(half, Path(folder) / "state.npz"), starts[0])
    return whole, np.asarray(_log_of(chunk(restored, records, jnp.int32(_STEPS), hyper)))


def _lanes(step: PrivateStep, hyper: Hyperparameters, starts: list[DPVIState], records: Any, bug: str | None) -> np.ndarray:
    """Releases of lanes that are stepped together, float[lanes, T, size of psi]."""
    keys = [starts[0].key if bug == "shared_key" else state.key for state in starts]
    together = stacked([(state.optim_state, state.average) for state in starts])
    state = DPVIState(together[0], jnp.zeros((), jnp.int32), jnp.stack(keys), together[1])
    devices = list(records[0].devices())
    program = BatchedProgram(step, len(starts), shared=True, devices=devices)
    end = program.run(state, records, stacked([hyper] * len(starts)), _STEPS).state
    return np.asarray(jax.vmap(lambda optim_state: _log_of(end._replace(optim_state=optim_state)))(end.optim_state))


def check(
    make_step: Callable[[Any, jax.Array, Rows], PrivateStep],
    rows: Rows,
    key: jax.Array,
    learning_rate: float,
    bug: str | None = None,
    cast: Callable[[Any], Any] = lambda tree: tree,
) -> Check:
    """Check that all paths release the same.

    :param make_step: makes a step from an optimiser, a key and records.
    :param key: of the runs, which are thrown away.
    :param cast: applied to the starting values, for example a cast to half precision.
    """
    init_key, *keys = jax.random.split(key, 1 + _LANES)
    throw_away(init_key)
    step = make_step(logging_sgd(_STEPS, learning_rate), init_key, rows)
    hyper = Hyperparameters.of(step.mechanism)
    first = step.init(init_key, hyper, cast(step.model.initial))
    starts = [first._replace(key=own) for own in keys]
    records = tuple(jnp.asarray(array) for array in rows)
    expected = _single_steps(step, hyper, starts[0], records)
    whole, resumed = _chunks(step, hyper, starts, records)
    lanes = _lanes(step, hyper, starts, records, bug)
    # standard deviation of the noise in a gradient, which is divided by q N
    unit = step.mechanism.standard_deviation / (step.sampler.sampling_rate * step.model.num_records)
    apart = {"a fit's chunks and single steps": np.abs(whole[0] - expected).max() / unit}
    apart["a fit resumed from its checkpoint and one without a stop"] = np.abs(resumed - whole[0]).max() / unit
    for number, (lane, alone) in enumerate(zip(lanes, whole, strict=True), 1):
        apart[f"lane {number} and the fit with its key"] = np.abs(lane - alone).max() / unit
    worst = max(apart, key=lambda name: np.nan_to_num(apart[name], nan=np.inf))
    ratio = float(apart[worst])
    if not ratio <= _TOLERANCE:
        return Check("paths", False, f"{worst} release different sums: {ratio:.3g} times the noise apart.", ratio)
    return Check(
        "paths", True, f"chunks, checkpoints and lanes release the same sums up to {ratio:.1g} times the noise.", ratio
    )
