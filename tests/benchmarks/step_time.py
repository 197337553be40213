"""Time of one compiled step of a private logistic fit beside numpyro's non-private SVI, in one run.

N = 10 000 records, D = 50 features, expected minibatch 100. Each contender takes STEPS steps inside one compiled loop; the
contenders take turns, and the figures are medians over turns of microseconds a step and of the ratio within a turn.

- private: workbench.inference.DPVI, everything included: secure Poisson minibatch, clipping, secure noise, Adam.
- svi, same batches: numpyro.infer.SVI on the very minibatches that the private fit draws (drawn beforehand, padded and
  masked alike), so the ratio is the price of sampling, clipping and noise.
- svi, fixed 100: SVI on minibatches of exactly 100 records drawn beforehand, as a user without privacy would run it.

Run it with `make bench`, which repeats it on one core.
"""

import functools
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import lax
from numpyro.infer import SVI, Trace_ELBO
from workbench.models import logistic as entry

from workbench.inference.dpvi import DPVI
from workbench.inference.training import jitted_chunk
from workbench.privacy.mechanism import GaussianMechanism
from workbench.privacy.randomness import new_key
from workbench.sampling.poisson import PoissonSampler, overflow_capacity

NUM_RECORDS, NUM_FEATURES, EXPECTED = 10_000, 50, 100
STEPS, TURNS = 10_000, 9


def problem():
    """Standard normal features and a target that depends on them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_RECORDS, NUM_FEATURES)).astype(np.float32)
    y = (rng.uniform(size=NUM_RECORDS) < 1 / (1 + np.exp(-x @ rng.normal(size=NUM_FEATURES)))).astype(np.int32)
    return jnp.asarray(x), jnp.asarray(y)


def private(records, sampler):
    """A function that takes STEPS private steps."""
    logistic = entry()
    mechanism = GaussianMechanism(clip=1.0, noise_multiplier=1.0)
    dpvi = DPVI(logistic.model, logistic.guide, numpyro.optim.Adam(1e-3), sampler=sampler, mechanism=mechanism)
    state = dpvi.init(new_key(), *records)
    chunk = jitted_chunk(dpvi)
    start = functools.partial(jax.tree.map, functools.partial(jnp.array, copy=True))
    return lambda: chunk(start(state), records, jnp.int32(STEPS))


def non_private(records, batches):
    """A function that takes STEPS steps of numpyro's SVI over ``batches`` (indices, mask or None)."""
    logistic = entry()
    indices, mask = batches

    def model(x, y, mask, num_records):  # models/logistic.py, with the padding masked
        weights = numpyro.sample("weights", dist.Normal(0, 5.0).expand([x.shape[-1]]).to_event(1))
        intercept = numpyro.sample("intercept", dist.Normal(0, 5.0))
        kept = numpyro.handlers.mask(mask=True if mask is None else mask)
        with numpyro.plate("records", num_records, subsample_size=x.shape[0]), kept:
            numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)

    def guide(x, y, mask, num_records):
        logistic.guide(x, y, num_records=num_records)

    svi = SVI(model, guide, numpyro.optim.Adam(1e-3), Trace_ELBO())
    first = None if mask is None else mask[0]
    state = svi.init(jax.random.key(1), records[0][indices[0]], records[1][indices[0]], first, NUM_RECORDS)

    @jax.jit
    def run(state, indices, mask):
        def body(state, batch):
            chosen, kept = batch
            return svi.update(state, records[0][chosen], records[1][chosen], kept, NUM_RECORDS)[0], None

        return lax.scan(body, state, (indices, mask))[0]

    return lambda: run(state, indices, mask)


def seconds(contender):
    """Wall time of one turn."""
    began = time.perf_counter()
    jax.block_until_ready(contender())
    return time.perf_counter() - began


def main():
    """Print the table."""
    records = problem()
    rate = EXPECTED / NUM_RECORDS
    sampler = PoissonSampler(NUM_RECORDS, rate, overflow_capacity(NUM_RECORDS, rate, np.log(1e-12)))
    drawn = jax.jit(jax.vmap(sampler.draw))(jax.random.split(new_key(), STEPS))
    fixed = jnp.asarray(np.random.default_rng(1).integers(0, NUM_RECORDS, (STEPS, EXPECTED)))
    contenders = {
        "private": private(records, sampler),
        "svi, same batches": non_private(records, (drawn.indices, drawn.mask)),
        "svi, fixed 100": non_private(records, (fixed, None)),
    }
    for contender in contenders.values():
        seconds(contender)
    times = {name: [] for name in contenders}
    for turn in range(TURNS):
        order = list(contenders) if turn % 2 else list(contenders)[::-1]
        for name in order:
            times[name].append(seconds(contenders[name]) / STEPS * 1e6)
    cores = len(os.sched_getaffinity(0))
    print(f"logistic, N = {NUM_RECORDS}, D = {NUM_FEATURES}, expected minibatch {EXPECTED} (padded to {sampler.capacity})")
    print(f"{cores} core(s), jax {jax.__version__}, Python {sys.version.split()[0]}, {STEPS} steps, median of {TURNS} turns")
    for name, values in times.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(times["private"], values, strict=True))
        print(f"{name:20} {statistics.median(values):7.1f} us a step   private / this = {ratio:.2f}")


if __name__ == "__main__":
    main()
