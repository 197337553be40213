"""A fit without XLA: for tests of screens and commands, whose subject is what is around the steps.

Settings, plan, calibration, ledger, checkpoints, the loop over chunks and the statement are real. The steps, the predictions
that are scored and the posterior's draws are made up, in NumPy. They are functions of key and step, as the real ones are: a
resumed fit ends where a whole one does, and two fits with secret keys differ.
"""

import functools
import hashlib
from concurrent.futures import Future

import jax
import jax.numpy as jnp
import numpy as np

from workbench.fitting import prepared
from workbench.fitting.evaluation import evaluation_of
from workbench.inference.compiling import Compilation, Compiling, interval_of

SIZE = 0.01  # of a made-up step
_shapes = {}  # of what an evaluation gives: it takes longer to trace than a whole made-up fit does


def install(monkeypatch):
    """Fits of this test take made-up steps."""
    monkeypatch.setattr(prepared, "lower", lower)
    monkeypatch.setattr(prepared, "compile_ahead", compile_ahead)
    for name, of in (("compute", compute), ("draw", draw)):
        stand_in = functools.cached_property(of)
        stand_in.__set_name__(prepared.Program, name)
        monkeypatch.setattr(prepared.Program, name, stand_in)


def words(key):
    """An entry of the key that NumPy's generators take."""
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return [int(word) for word in np.asarray(jax.random.key_data(key) if is_key else key).ravel()]


class Lowered:
    """As ``compiling.Lowered``, of steps that nobody traced."""

    def __init__(self, step, hyper, state, records, interval):
        parts = [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves((state, records))]
        facts = repr((parts, sorted(step.model.initial), repr(step.model.static), hyper.average_from is None, interval))
        self.digest = hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()


def chunk(state, records, limit, numbers):
    """Add small normal numbers to every parameter, those of step number t from the run's key and t."""
    leaves, tree = jax.tree.flatten((state.optim_state, state.average))
    is_float = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    values = [np.array(leaf) for leaf, moves in zip(leaves, is_float, strict=True) if moves]
    key, size = words(state.key), sum(value.size for value in values)
    cuts = np.cumsum([value.size for value in values])[:-1]
    for step in range(int(state.step), int(limit)):
        moved = np.random.default_rng([*key, step]).standard_normal(size, np.float32) * SIZE
        values = [old + new.reshape(old.shape) for old, new in zip(values, np.split(moved, cuts), strict=True)]
    moved = iter(values)
    leaves = [
        jax.device_put(next(moved).astype(leaf.dtype), leaf.device) if moves else leaf
        for leaf, moves in zip(leaves, is_float, strict=True)
    ]
    optim_state, average = jax.tree.unflatten(tree, leaves)
    return state._replace(optim_state=optim_state, average=average, step=jnp.asarray(limit, jnp.int32))


def lower(step, hyper, state, records, interval):
    return Lowered(step, hyper, state, records, interval)


def compile_ahead(step, hyper, state, records, steps):
    step.require_records(records)
    lowered, compiled = Future(), Future()
    lowered.set_result(Lowered(step, hyper, state, records, interval_of(steps)))
    compiled.set_result(Compilation(chunk, 0.01))
    return Compiling(lowered, compiled)


def compute(program):
    """Predictions at random, an ELBO and a log-likelihood that depend on the parameters."""

    def outputs(params, records, key):
        leaves = jax.tree.leaves((params, records))
        asked = program._model.model, program._model.predict, *((np.shape(leaf), str(leaf.dtype)) for leaf in leaves)
        if asked not in _shapes:
            real = evaluation_of(program._step, program._model, program._num_evaluation)
            _shapes[asked] = jax.eval_shape(real, params, records, key)
        _, log_likelihood, predictions = _shapes[asked]
        spread = float(np.mean([np.mean(np.abs(leaf)) for leaf in jax.tree.leaves(params)]))
        score = np.float32(-1 - 1 / (1 + spread))
        if predictions is not None:
            predictions = np.random.default_rng(words(key)).uniform(0.01, 0.99, predictions.shape).astype(np.float32)
            if predictions.ndim > 1:  # classes
                predictions /= predictions.sum(-1, keepdims=True)
        return score, None if log_likelihood is None else score, predictions

    return outputs


def draw(program):
    """Positive numbers, which any scale may be too."""

    def latents(params, key, count):
        one = jax.eval_shape(lambda: program._step.model.latents(program._step.model.initial, key))
        found = {name: jax.ShapeDtypeStruct((count, *leaf.shape), leaf.dtype) for name, leaf in one.items()}
        random = np.random.default_rng(words(key))
        return {name: np.abs(random.standard_normal(leaf.shape)).astype(leaf.dtype) for name, leaf in found.items()}

    return latents
