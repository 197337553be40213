"""What the benchmarks let run against each other: NumPyro models, and functions that take many
steps of them at once.

Needs jax and numpyro only, so that it also runs on a GPU machine that has nothing else. Every
contender's steps are inside one compiled loop, and every private one includes the secure minibatch,
clipping, secure noise and Adam.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro.distributions import constraints
from numpyro.infer import SVI, Trace_ELBO
from numpyro.optim import Adam
from problems import hierarchical_data, logistic_data, vae_images

from workbench.inference import DPVI
from workbench.inference.compiling import chunk_of
from workbench.inference.state import Draws
from workbench.noise.chacha20 import new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.plates import takes_num_records
from workbench.sampling import Minibatch, PoissonSampler
from workbench.sampling.poisson import overflow_capacity

LATENT_SIZE, HIDDEN, PIXELS = 50, 400, 784
LOG_OVERFLOW = float(np.log(1e-12))
CHUNK = 10_000  # steps that a compiled loop of small models may take between two stops


@dataclass(frozen=True)
class Problem:
    """A model with its data. ``expected``: minibatch size that is expected; ``steps``: steps of a
    turn.
    """

    name: str
    model: Callable
    guide: Callable
    records: tuple[Any, ...]
    expected: int
    steps: int
    clip: float = 1.0
    noise_multiplier: float = 1.5

    @property
    def num_records(self) -> int:
        """N."""
        return len(self.records[0])

    @functools.cached_property
    def sampler(self) -> PoissonSampler:
        """Poisson minibatches; the padding overflows once in 1e12 steps."""
        rate = self.expected / self.num_records
        return PoissonSampler(
            self.num_records, rate, overflow_capacity(self.num_records, rate, LOG_OVERFLOW)
        )

    @functools.cached_property
    def on_device(self) -> tuple[jax.Array, ...]:
        """The records as JAX arrays."""
        return tuple(jnp.asarray(array) for array in self.records)


# --- models ---------------------------------------------------------------------------------------


def _dense(name, inputs, outputs, x):
    kernel = numpyro.param(
        f"{name}_kernel", lambda key: 0.05 * jax.random.normal(key, (inputs, outputs))
    )
    return x @ kernel + numpyro.param(f"{name}_bias", jnp.zeros(outputs))


def vae_model(images, num_records=None):
    """784-400-50 decoder, Bernoulli pixels (experiments.md, E3)."""
    with numpyro.plate("records", num_records, subsample_size=images.shape[0]):
        code = numpyro.sample("code", dist.Normal(0, 1).expand([LATENT_SIZE]).to_event(1))
        logits = _dense(
            "output", HIDDEN, PIXELS, jax.nn.softplus(_dense("decoder", LATENT_SIZE, HIDDEN, code))
        )
        numpyro.sample("images", dist.Bernoulli(logits=logits).to_event(1), obs=images)


def vae_guide(images, num_records=None):
    """784-400-50 encoder: a normal with mean and scale by two heads."""
    with numpyro.plate("records", num_records, subsample_size=images.shape[0]):
        hidden = jax.nn.softplus(_dense("encoder", PIXELS, HIDDEN, images))
        scale = jnp.exp(_dense("scale", HIDDEN, LATENT_SIZE, hidden))
        numpyro.sample(
            "code", dist.Normal(_dense("mean", HIDDEN, LATENT_SIZE, hidden), scale).to_event(1)
        )


def _mean_field(**shapes):
    def guide(*records, num_records=None):
        for name, shape in shapes.items():
            location = numpyro.param(f"{name}_loc", jnp.zeros(shape))
            scale = numpyro.param(
                f"{name}_scale", jnp.full(shape, 0.1), constraint=constraints.softplus_positive
            )
            numpyro.sample(name, dist.Normal(location, scale).to_event(len(shape)))

    return guide


def vae(expected=128, num_images=60_000, steps=30):
    """688 884 parameters."""
    return Problem("vae", vae_model, vae_guide, (vae_images(num_images),), expected, steps)


def hierarchical(steps=100_000):
    """Hierarchical logistic regression, E1: N = 500, D = 5, three groups with three public
    features.
    """
    x, group, y, features = hierarchical_data()

    def model(x, group, y, num_records=None):
        mixing = numpyro.sample(
            "mixing", dist.Normal(0, 4).expand([x.shape[-1], features.shape[1]]).to_event(2)
        )
        weights = numpyro.sample("weights", dist.Normal(features @ mixing.T, 1).to_event(2))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.sum(weights[group] * x, axis=-1)), obs=y)

    guide = _mean_field(mixing=(x.shape[1], features.shape[1]), weights=(len(features), x.shape[1]))
    return Problem("hierarchical", model, guide, (x, group, y), 50, steps, noise_multiplier=14.5)


def logistic(expected, steps=10_000):
    """Logistic regression, N = 10 000, D = 50."""
    x, y = logistic_data()

    def model(x, y, num_records=None):
        weights = numpyro.sample("weights", dist.Normal(0, 5).expand([x.shape[-1]]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0, 5))
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)

    return Problem(
        f"logistic {expected}",
        model,
        _mean_field(weights=(x.shape[1],), intercept=()),
        (x, y),
        expected,
        steps,
    )


def schools(num_records=5000, expected=100, steps=10_000):
    """Eight schools with 5000: a latent for each record, and an amortised guide."""
    random = np.random.default_rng(0)
    y, spread = random.normal(size=num_records), 1 + random.random(num_records)

    def model(y, spread):
        mean, log_scale = (
            numpyro.sample("mean", dist.Normal(0, 5)),
            numpyro.sample("log_scale", dist.Normal(0, 1)),
        )
        with numpyro.plate("records", num_records, subsample_size=len(y)):
            effect = numpyro.sample("effect", dist.Normal(mean, jnp.exp(log_scale)))
            numpyro.sample("y", dist.Normal(effect, spread), obs=y)

    def guide(y, spread):
        _mean_field(mean=(), log_scale=())()
        with numpyro.plate("records", num_records, subsample_size=len(y)):
            loc, log_scale = _dense("effect", 2, 2, jnp.stack([y, spread], axis=-1)).T
            numpyro.sample("effect", dist.Normal(loc, jnp.exp(log_scale)))

    return Problem(
        "schools", model, guide, (y.astype(np.float32), spread.astype(np.float32)), expected, steps
    )


def principal_components(num_records=5000, expected=100, steps=3000):
    """Probabilistic PCA: five latents for each record of twenty numbers."""
    x = np.random.default_rng(0).normal(size=(num_records, 20)).astype(np.float32)

    def model(x):
        loadings = numpyro.sample("loadings", dist.Normal(0, 1).expand([5, 20]).to_event(2))
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            code = numpyro.sample("code", dist.Normal(0, 1).expand([5]).to_event(1))
            numpyro.sample("x", dist.Normal(code @ loadings, 1).to_event(1), obs=x)

    def guide(x):
        _mean_field(loadings=(5, 20))()
        with numpyro.plate("records", num_records, subsample_size=len(x)):
            scale = jnp.exp(_dense("scale", 20, 5, x))
            numpyro.sample("code", dist.Normal(_dense("mean", 20, 5, x), scale).to_event(1))

    return Problem("principal components", model, guide, (x,), expected, steps)


# --- contenders -----------------------------------------------------------------------------------


def trainer(problem, **options):
    """A DPVI of the problem with its state."""
    mechanism = GaussianMechanism(
        problem.clip, options.pop("noise_multiplier", problem.noise_multiplier)
    )
    dpvi = DPVI(
        problem.model, problem.guide, Adam(1e-3), privacy=(problem.sampler, mechanism), **options
    )
    return dpvi, dpvi.init(new_key(), *problem.records)


def private(problem, **options):
    """A function that takes a turn of private steps, everything included."""
    dpvi, state = trainer(problem, **options)
    chunk = jax.jit(chunk_of(dpvi.private_step, CHUNK), donate_argnums=0)
    copied = functools.partial(jax.tree.map, functools.partial(jnp.array, copy=True))
    return lambda: chunk(copied(state), problem.on_device, jnp.int32(problem.steps), dpvi.hyper)


def _fixed_minibatches(problem):
    drawn = np.random.default_rng(1).integers(
        0, problem.num_records, (problem.steps, problem.expected)
    )
    return jnp.asarray(drawn, jnp.int32)


def clipped(problem, **options):
    """A function that takes a turn of steps with clipping alone: minibatches drawn beforehand, no
    noise.
    """
    dpvi, state = trainer(problem, noise_multiplier=0.0, **options)

    @jax.jit
    def run(state, records, minibatches):
        def body(state, indices):
            base_noise = jax.random.fold_in(jax.random.key(1), state.step)
            draws = Draws(Minibatch(indices, jnp.ones(indices.shape, bool)), None, base_noise)
            return dpvi.step(state, records, draws), None

        return lax.scan(body, state, minibatches)[0]

    minibatches = _fixed_minibatches(problem)
    return lambda: run(state, problem.on_device, minibatches)


def non_private(problem):
    """A function that takes a turn of steps of numpyro's SVI on minibatches of the expected size
    drawn beforehand.
    """
    svi = SVI(problem.model, problem.guide, Adam(1e-3), Trace_ELBO())
    minibatches = _fixed_minibatches(problem)
    first = tuple(array[minibatches[0]] for array in problem.on_device)
    constants = {"num_records": problem.num_records} if takes_num_records(problem.model) else {}
    state = svi.init(jax.random.key(1), *first, **constants)

    @jax.jit
    def run(state, records, minibatches):
        def body(state, indices):
            chosen = tuple(array[indices] for array in records)
            return svi.update(state, *chosen, **constants)[0], None

        return lax.scan(body, state, minibatches)[0]

    return lambda: run(state, problem.on_device, minibatches)
