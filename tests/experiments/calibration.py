"""Are the posterior's intervals right? Coverage, width and score, beside an oracle that knows the curvature.

The truth is drawn from the prior, so exact intervals of 90 % hold it in 90 % of repeats. All repeats of a setting differ in
records and keys only, and are stepped together by the library's own lanes. Columns:

- guide: the variational posterior, averaged iterates;
- widened: the same with the noise that ``_location_noise`` estimates from the settings;
- aware: the library's noise-aware posterior;
- oracle: the same with the true curvature, known to nobody.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from fits import OUT
from numpyro.optim import Adam

from workbench.inference import DPVI, noise_aware
from workbench.inference._moments import Moments
from workbench.inference.batched import BatchedProgram, starting_states
from workbench.noise.chacha20 import key_from_seed
from workbench.results._location_noise import location_noise

STEPS = 1000
LEVELS = (0.5, 0.9, 0.95)
DRAWS = 1000


@dataclass(frozen=True)
class World:
    """A model of one vector ``theta`` with prior Normal(0, prior), and records of it.

    :param records: (random, truth [R, d], N) -> arrays [R, N, ...]. :param likelihood: of records given theta.
    :param largest: the largest norm of a record's gradient, or what few exceed. :param share: C as a share of it.
    """

    name: str
    size: int
    num_records: int
    rate: float
    prior: float
    records: Callable
    likelihood: Callable
    largest: float
    share: float = 0.6

    def model(self, *record, num_records=None):
        """The NumPyro model."""
        theta = numpyro.sample("theta", dist.Normal(0, self.prior).expand([self.size]).to_event(1))
        with numpyro.plate("records", num_records, subsample_size=record[0].shape[0]):
            numpyro.sample("y", self.likelihood(theta, *record[:-1]), obs=record[-1])

    def guide(self, *record, num_records=None):
        """Mean field."""
        location = numpyro.param("loc", jnp.zeros(self.size))
        scale = numpyro.param("scale", jnp.full(self.size, 0.1), constraint=dist.constraints.softplus_positive)
        numpyro.sample("theta", dist.Normal(location, scale).to_event(1))


def features(shared=0.0):
    """Uniform in [-1, 1] with a column of ones; ``shared`` is the part that all columns have in common."""

    def draw(random, truth, count):
        repeats, size = truth.shape
        x = (1 - shared) * random.uniform(-1, 1, (repeats, count, size - 1))
        x = x + shared * random.uniform(-1, 1, (repeats, count, 1))
        return np.concatenate([x, np.ones((repeats, count, 1))], axis=2)

    return draw


def regression(outcome, shared=0.0):
    """Records (x, y) with y drawn by ``outcome(random, predictor)``."""

    def draw(random, truth, count):
        x = features(shared)(random, truth, count)
        return x, outcome(random, np.einsum("rnd,rd->rn", x, truth))

    return draw


def coin(random, predictor):
    """Logistic."""
    return (random.random(predictor.shape) < 1 / (1 + np.exp(-predictor))).astype(np.int32)


def logistic(size, count, rate, shared=0.0):
    """Logistic regression."""
    name = f"logistic, N = {count}, d = {size}" + (", columns alike" if shared else "")
    return World(
        name, size, count, rate, 1.0, regression(coin, shared),
        lambda theta, x: dist.Bernoulli(logits=x @ theta), size**0.5,
    )  # fmt: skip


WORLDS = (
    World(
        "mean of a normal", 5, 1000, 0.1, 1.0,
        lambda random, truth, count: (truth[:, None] + random.normal(size=(len(truth), count, truth.shape[1])),),
        lambda theta: dist.Normal(theta, 1).to_event(1), 4.0, 0.9,
    ),
    World(
        "linear", 6, 1000, 0.1, 1.0, regression(lambda random, mean: mean + random.normal(size=mean.shape)),
        lambda theta, x: dist.Normal(x @ theta, 1), 4.9, 0.6,
    ),
    logistic(6, 1000, 0.1),
    logistic(6, 1000, 0.1, 0.7),
    logistic(21, 5000, 0.05),
    World(
        "Poisson", 6, 1000, 0.1, 0.5, regression(lambda random, logs: random.poisson(np.exp(logs)).astype(np.int32)),
        lambda theta, x: dist.Poisson(jnp.exp(x @ theta)), 8.0, 0.6,
    ),
)  # fmt: skip


def private_fits(world, records, epsilon):
    """(averaged parameters, moments, noise of a step) of all repeats."""
    dpvi = DPVI(
        world.model, world.guide, Adam(STEPS**-0.5), epsilon=epsilon, delta=1e-4, iterations=STEPS,
        sampling_rate=world.rate, clip=world.share * world.largest, average_from=STEPS // 2,
    )  # fmt: skip
    dpvi.init(key_from_seed(0), *(array[0] for array in records), num_records=world.num_records)
    step, repeats = dpvi.private_step, len(records[0])
    one = dpvi.hyper._replace(moments_from=jnp.int32(int(0.3 * STEPS)))
    hyper = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (repeats,)), one)
    state = starting_states(step, [key_from_seed(seed) for seed in range(1, repeats + 1)], hyper)
    lanes = BatchedProgram(step, repeats, shared=False, device=jax.devices()[0])
    end = lanes.run(state, records, hyper, STEPS).state
    params = jax.vmap(step.model.constrain)(end.average)
    return jax.device_get(params), jax.device_get(end.moments), float(one.standard_deviation) / world.rate


def curvatures(world, records, location):
    """The true curvature of the log-likelihood at ``location`` [R, d], float[R, d, d]."""

    def likelihood(theta, own):
        return world.likelihood(theta, *own[:-1]).log_prob(own[-1]).sum()

    return -np.asarray(jax.lax.map(lambda each: jax.hessian(likelihood)(*each), (jnp.float32(location), records)), float)


def posteriors(world, truth, records, epsilon, random):
    """{method: draws [R, draws, d]}."""
    params, moments, noise = private_fits(world, records, epsilon)
    location, scale = (np.asarray(params[name], float) for name in ("loc", "scale"))
    moved = location_noise(scale, step_noise=noise, learning_rate=STEPS**-0.5, iterations=STEPS, averaged=True)
    standard = np.swapaxes(random.normal(size=(DRAWS, *location.shape)), 0, 1)
    prior = noise_aware.Prior(np.zeros(world.size), np.full(world.size, world.prior**-2.0))
    aware, oracle = [], []
    for place, curvature in enumerate(curvatures(world, records, truth)):
        own = Moments(*(leaf[place] for leaf in moments))
        aware.append(
            noise_aware.draw(
                own, prior, scale[place], step_noise=noise, sampling_rate=world.rate, count=DRAWS, generator=random
            )
        )
        center, gradient, _, _ = own.centred()
        level = noise**2 + (1 - world.rate) / world.rate * np.diag(curvature).mean()
        known = np.broadcast_to(curvature, (DRAWS, *curvature.shape))
        oracle.append(noise_aware._locations(known, prior, center, gradient, level / own.steps, random))
    return {
        "guide": location[:, None] + scale[:, None] * standard,
        "widened": location[:, None] + np.hypot(scale, moved)[:, None] * standard,
        "aware": np.stack(aware),
        "oracle": np.stack(oracle),
    }


def row(world, epsilon, method, draws, truth):
    """Coverage at each level, and of 90 % intervals width, Winkler's score, and error of the mean."""
    found = {"world": world.name, "epsilon": epsilon, "method": method}
    for level in LEVELS:
        low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2], axis=1)
        inside = (low <= truth) & (truth <= high)
        found[f"{level:.0%}"] = inside.mean()
        if level == 0.9:
            beyond = np.maximum(low - truth, 0) + np.maximum(truth - high, 0)
            found |= {"width": np.mean(high - low), "score": np.mean(high - low + 2 / (1 - level) * beyond)}
            found["standard_error"] = inside.mean(1).std() / np.sqrt(len(inside))
    return found | {"rms": np.sqrt(np.mean((draws.mean(1) - truth) ** 2))}


def main(full):
    """Print the table."""
    repeats = 400 if full else 60
    print(f"\nCalibration: {repeats} repeats, T = {STEPS}, averaged", flush=True)
    table = []
    for number, world in enumerate(WORLDS):
        random = np.random.default_rng(number)
        truth = world.prior * random.normal(size=(repeats, world.size))
        records = tuple(
            jnp.asarray(array, jnp.int32 if array.dtype == np.int32 else jnp.float32)
            for array in world.records(random, truth, world.num_records)
        )
        for epsilon in (0.25, 0.5, 1.0, 2.0, 8.0):
            found = posteriors(world, truth, records, epsilon, random)
            table += [row(world, epsilon, method, draws, truth) for method, draws in found.items()]
        print(pd.DataFrame(table[-20:]).round(3).to_string(index=False), flush=True)
    pd.DataFrame(table).to_csv(OUT / "calibration.csv", index=False)
