"""Chunks, checkpoints and lanes release the same as single steps, which the audit attacks.

The optimiser of a fit sees what was released; the one here keeps every gradient. Runs with the same
keys and records take each path, and their gradients are compared step by step. Missing noise,
repeated noise and another lane's noise are obvious, because noise is large compared with the
tolerance.
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from tests import zoo
from tests.conftest import quick_jit
from workbench.inference import PrivateStep
from workbench.inference.assemble import assemble
from workbench.inference.batched import BatchedProgram, stacked
from workbench.inference.checkpoint import load_state, save_state
from workbench.inference.compiling import lower
from workbench.inference.state import DPVIState, Hyperparameters, Performance
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.key_use import throw_away
from workbench.noise.mechanism import GaussianMechanism
from workbench.sampling import (
    PoissonSampler,
    RandomAllocationSampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)

SIZE, LANES = 12, 3
INTERVAL, STEPS = 4, 6  # steps per chunk, and in all: the second chunk is cut short
TOLERANCE = 1e-3  # of the noise's standard deviation


def maker(
    model=zoo.normal_mean,
    guide=zoo.normal_mean_guide,
    sampler=None,
    clipping="flat",
    kind=PrivateStep,
    estimator="aligned",
    **performance,
):
    def make_step(optim, key, rows):
        step = assemble(
            model,
            guide,
            optim,
            key,
            rows,
            sampler=sampler or PoissonSampler(SIZE, 0.5, SIZE),
            estimator=estimator,
            mechanism=GaussianMechanism(1.0, 1.0, clipping),
            performance=Performance(**performance),
        )
        return kind(**vars(step))

    return make_step


def logging_sgd(learning_rate):
    """Gradient descent that keeps the gradients of the first ``STEPS`` steps, in float32
    or wider.
    """

    def init(params):
        def kept(leaf):
            return jnp.zeros((STEPS, *leaf.shape), jnp.promote_types(leaf.dtype, jnp.float32))

        return jnp.zeros((), jnp.int32), jax.tree.map(kept, params)

    def update(gradient, state, params=None):
        count, log = state
        log = jax.tree.map(
            lambda kept, new: kept.at[count].set(new.astype(kept.dtype)), log, gradient
        )
        return jax.tree.map(lambda leaf: -learning_rate * leaf, gradient), (count + 1, log)

    return optax.GradientTransformation(init, update)


def log_of(state):
    """The gradients that ``logging_sgd`` kept in the state of one run, float[T, size of psi]."""
    _, (_, (_, log)) = state.optim_state
    return quick_jit(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(log)


def copy(state):
    """A copy in its own memory, because compiled chunks reuse the memory of their argument."""
    return jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)


def single_steps(step, hyper, state, records):
    once = jax.jit(
        lambda state: step.step(state, records, step.draw(state.key, state.step, hyper), hyper)
    )
    for _ in range(STEPS):
        state = once(state)
    return np.asarray(log_of(state))


def chunks(step, hyper, starts, records):
    """Releases of a fit's chunks from every start, and from the first start with a checkpoint on
    the way.
    """
    chunk = lower(step, hyper, starts[0], records, INTERVAL).compile()
    whole = [
        np.asarray(log_of(chunk(copy(state), records, jnp.int32(STEPS), hyper))) for state in starts
    ]
    half = chunk(copy(starts[0]), records, jnp.int32(STEPS // 2), hyper)
    with tempfile.TemporaryDirectory() as folder:
        restored = load_state(save_state(half, Path(folder) / "state.npz"), starts[0])
    return whole, np.asarray(log_of(chunk(restored, records, jnp.int32(STEPS), hyper)))


def lanes(step, hyper, starts, records):
    """Releases of lanes that are stepped together, float[lanes, T, size of psi]."""
    together = stacked([(state.optim_state, state.average) for state in starts])
    keys = jnp.stack([state.key for state in starts])
    state = DPVIState(together[0], jnp.zeros((), jnp.int32), keys, together[1])
    program = BatchedProgram(step, len(starts), shared=True, devices=list(records[0].devices()))
    end = program.run(state, records, stacked([hyper] * len(starts)), STEPS).state
    return np.asarray(
        jax.vmap(lambda optim_state: log_of(end._replace(optim_state=optim_state)))(end.optim_state)
    )


def apart(make_step, rows=None, cast=lambda tree: tree, shared_key=False):
    """How far releases by other paths are from those of single steps, as a multiple of the noise,
    by path.

    :param cast: applied to the starting values. :param shared_key: PLANTED BUG: all lanes of a
        sweep draw from one key.
    """
    rows = zoo.normal_mean_data(SIZE) if rows is None else rows
    init_key, *keys = jax.random.split(key_from_seed(0), 1 + LANES)
    throw_away(init_key)
    step = make_step(logging_sgd(1e-3), init_key, rows)
    hyper = Hyperparameters.of(step.mechanism)
    first = step.init(init_key, hyper, cast(step.model.initial))
    starts = [first._replace(key=key) for key in keys]
    records = tuple(jnp.asarray(array) for array in rows)
    expected = single_steps(step, hyper, starts[0], records)
    whole, resumed = chunks(step, hyper, starts, records)
    together = lanes(
        step, hyper, [first._replace(key=keys[0])] * LANES if shared_key else starts, records
    )
    paths = {"chunks": whole[0] - expected, "checkpoint": resumed - whole[0]}
    paths |= {
        f"lane {number}": lane - alone
        for number, (lane, alone) in enumerate(zip(together, whole, strict=True))
    }
    # standard deviation of the noise in a gradient, which is divided by q N
    unit = step.mechanism.standard_deviation / (step.sampler.sampling_rate * step.model.num_records)
    ratios = {path: float(np.abs(difference).max() / unit) for path, difference in paths.items()}
    print(ratios)
    return ratios


def same(ratios):
    """The paths that release what single steps do; NaN is not the same."""
    return {path for path, ratio in ratios.items() if ratio <= TOLERANCE}


ALL = {"chunks", "checkpoint", *(f"lane {number}" for number in range(LANES))}


def test_one_key_for_all_lanes_is_caught():
    assert same(apart(maker(), shared_key=True)) == ALL - {"lane 1", "lane 2"}


class OneDrawForAChunk(PrivateStep):
    """A likely mistake when drawing ahead: all steps of a block get the noise of the first. Single
    steps are correct.
    """

    def draw(self, key, number, hyper, *prepared):
        ahead = isinstance(hyper.clip, jax.core.Tracer)  # as chunks have them
        return super().draw(key, number // 4 * 4 if ahead else number, hyper, *prepared)


@pytest.mark.thorough
def test_noise_that_is_wrong_in_chunks_alone_is_caught():
    assert "chunks" not in same(apart(maker(kind=OneDrawForAChunk)))


@pytest.mark.thorough
def test_the_log_of_an_optimiser_is_every_gradient_it_was_given():
    """Gradient descent: the parameters show the same."""
    rows, key = tuple(map(jnp.asarray, zoo.normal_mean_data(SIZE))), key_from_seed(1)
    step = maker()(logging_sgd(0.1), key, rows)
    hyper = Hyperparameters.of(step.mechanism)
    state = step.init(key, hyper)
    shown = [step.unconstrained(state)]
    once = jax.jit(
        lambda state: step.step(state, rows, step.draw(state.key, state.step, hyper), hyper)
    )
    for _ in range(3):
        state = once(state)
        shown.append(step.unconstrained(state))
    flat = np.array([[float(params[name]) for name in sorted(params)] for params in shown])
    np.testing.assert_allclose(
        -np.diff(flat, axis=0) / 0.1, log_of(state)[:3], rtol=1e-3, atol=1e-5
    )


def half(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), tree)


CASES = {
    "logistic": {"model": zoo.logistic, "guide": zoo.logistic_guide},
    "vanilla": {"estimator": "vanilla"},
    "without replacement": {"sampler": WithoutReplacementSampler(SIZE, 4)},
    "shuffle": {"sampler": ShuffleSampler(SIZE, 4)},
    "random allocation": {"sampler": RandomAllocationSampler(SIZE, 4, SIZE)},
    "parts of a minibatch": {"microbatch_size": 5},
    "loop": {"strategy": "loop", "clipping": "automatic"},
    "book-keeping": {
        "model": zoo.logistic,
        "guide": zoo.logistic_guide,
        "strategy": "bookkeeping",
        "clipping": "per_leaf",
    },
}


@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES)
def test_all_that_fits_accept_goes_the_same_way(case):
    rows = zoo.logistic_data(SIZE) if "model" in CASES[case] else None
    assert same(apart(maker(**CASES[case]), rows)) == ALL


@pytest.mark.thorough
def test_half_precision_goes_the_same_way():
    assert same(apart(maker(estimator="vanilla"), cast=half)) == ALL


@pytest.mark.thorough
def test_double_precision_goes_the_same_way():
    with jax.enable_x64(True):
        assert same(apart(maker())) == ALL
