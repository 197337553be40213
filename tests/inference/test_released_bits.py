"""Whatever a step releases is a function of noised whole numbers and of what is public, to the last
bit.

Two sets of records get noise such that the noised whole numbers are the same. Then parameters, the
optimiser's state, mean and moments have to be the same bits: nothing else of the records comes
through.
"""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.optim
import optax
import pytest

from tests import zoo
from tests.conftest import Watched, quick_jit, some_of
from workbench.inference import DPVI
from workbench.inference.state import Draws
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import Noise
from workbench.sampling import Minibatch, PoissonSampler

SIZE = 12
SIMPLE = ("Adam", "Adagrad", "ClippedAdam", "RMSProp", "RMSPropMomentum", "SGD")
OPTIMISERS = {name: getattr(numpyro.optim, name)(1e-2) for name in SIMPLE} | {
    "Momentum": numpyro.optim.Momentum(1e-2, mass=0.9),
    "optax": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2)),
}


def steps_of(optim, precision, estimator):
    """(state before the first step, ``step(state, x, y, mask, noise)`` -> (whole numbers without
    noise, next state), d).
    """
    mechanism = Watched(0.5, 3.0)
    sampler = PoissonSampler(SIZE, 1.0, SIZE)
    trainer = DPVI(
        zoo.logistic, zoo.logistic_guide, optim, privacy=(sampler, mechanism), estimator=estimator
    )
    x, y = zoo.logistic_data(SIZE)
    trainer.init(key_from_seed(0), x.astype(precision), y)
    private_step = trainer.private_step.with_options(counts_norms=True)
    hyper = trainer.hyper._replace(moments_from=jnp.int32(0), average_from=jnp.int32(0))

    @quick_jit
    def step(state, x, y, mask, noise):
        mechanism.seen.clear()
        level = mechanism.level(SIZE, hyper.noise_multiplier)
        draws = Draws(
            Minibatch(jnp.arange(SIZE, dtype=jnp.int32), mask),
            Noise(noise, level),
            jax.random.key(1),
        )
        after = private_step.step(state, (x, y), draws, hyper)
        return jnp.concatenate(
            [jnp.ravel(leaf) for leaf in jax.tree.leaves([seen.units for seen in mechanism.seen])]
        ), after

    return private_step.init(key_from_seed(1), hyper), step, private_step.noised_coordinates


def bits(state):
    """All of a state but its key."""
    leaves = jax.tree.leaves(state._replace(key=None))
    return [np.asarray(leaf).tobytes() for leaf in leaves]


@pytest.mark.parametrize("estimator", some_of(["aligned", "vanilla"]))
@pytest.mark.parametrize("precision", some_of(["float32", "float64"]))
@pytest.mark.parametrize("optimiser", some_of(list(OPTIMISERS), 4))
def test_the_same_noised_whole_numbers_give_the_same_bits(optimiser, precision, estimator):
    with jax.enable_x64(True) if precision == "float64" else nullcontext():
        state, step, size = steps_of(OPTIMISERS[optimiser], precision, estimator)
        x, y = zoo.logistic_data(SIZE)
        x = x.astype(precision)
        everyone, nobody_else = np.ones(SIZE, bool), np.arange(SIZE) > 0
        random = np.random.default_rng(0)
        for _ in range(3):
            noise = random.integers(-(2**24), 2**24, size, dtype=np.int32)
            units, after = step(state, x, y, everyone, noise)
            assert any(leaf.dtype == precision for leaf in jax.tree.leaves(after.optim_state))
            for records, mask in (((x, y), nobody_else), ((-x, 1 - y), everyone)):
                others, apart = step(state, *records, mask, noise)
                assert bits(apart) != bits(after)
                _, same = step(state, *records, mask, noise + np.asarray(units - others))
                assert bits(same) == bits(after)
            state = after
