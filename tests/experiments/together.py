"""Many private fits that differ in numbers only (records, keys, public constants, noise), as one vmapped loop."""

import copy
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.privacy.randomness import fast_key, key_from_seed

__all__ = ["keys_of", "predictions_of", "train"]


def keys_of(seeds):
    """A stack of the runs' keys."""
    return jnp.stack([key_from_seed(seed) for seed in seeds])


def _with_constants(dpvi, constants):
    """``dpvi`` with some of its model's keyword arguments replaced; they may be traced."""
    own = copy.copy(dpvi)
    own.records_split = dataclasses.replace(dpvi.split, static={**dpvi.split.static, **constants})
    return own


def train(dpvi, start, keys, records, steps, *, constants=None, noise=None):
    """Unconstrained parameters of all runs, ``{"last": ..., "average": ...}``, first axis: runs.

    :param start: the state that every run starts from; the keys are put in its place. :param records: arrays [runs, N, ...].
    :param constants: ``{keyword: [runs, ...]}``. :param noise: float[runs], the noise multiplier of each run; that of
        ``dpvi`` by default.
    """
    ratios = np.ones(len(keys)) if noise is None else np.asarray(noise) / dpvi.mechanism.noise_multiplier

    @jax.jit
    @jax.vmap
    def run(key, own_records, own_constants, ratio):
        own = _with_constants(dpvi, own_constants)

        def step(state, _):
            draws = own.draw(key, state.step)
            return own.step(state, own_records, draws._replace(noise=ratio * draws.noise)), None

        end = lax.scan(step, start._replace(key=key), None, length=steps)[0]
        return {"last": own.unconstrained(end), "average": own.unconstrained(end, averaged=True)}

    return run(keys, records, constants or {}, jnp.asarray(ratios, jnp.float32))


def predictions_of(dpvi, predict, params, keys, inputs, *, constants=None, draws=50):
    """Mean predictions of all runs, [runs, records, ...]; the arguments are stacked as in ``train``."""

    @jax.jit
    @jax.vmap
    def run(own_params, key, own_inputs, own_constants):
        seen = _with_constants(dpvi, own_constants).split
        fitted = seen.constrain(own_params)

        def one(draw):
            return predict(fitted | seen.latents(own_params, draw), *own_inputs)

        return jnp.mean(jax.vmap(one)(jax.random.split(fast_key(key), draws)), axis=0)

    return np.asarray(run(params, keys, inputs, constants or {}))
