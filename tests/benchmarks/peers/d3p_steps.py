"""Seconds a step of d3p 0.2.0, the published DP-VI package, on one of the benchmark's problems.

Runs in an environment of its own: ``environment.peer_python("d3p")`` names the interpreter. Prints
one JSON object. The steps are taken as d3p's documentation shows it: DPSVI.update on the
batchifier's next minibatch, inside one compiled fori_loop, with randomness from d3p.random. A first
turn that compiles is not counted.

d3p 0.2.0 has one uniform sampler, minibatches of a fixed size chosen by a Feistel network
("feistel"). Poisson sampling is only in its unreleased development version; "poisson" here stands
for it: one ChaCha uniform for each of the N records, a buffer padded for the largest minibatch to
be expected, and the padding masked out of the model and guide. 0.2.0 then divides by the length of
the buffer, which changes the size of a step but not its cost.

A mask that masks nothing (--masked) alters what XLA makes of the program: it takes d3p's step of
the auto-encoder, most of which is clipping, from 1.6 seconds to .31 on two cores. It is no part of
how d3p is used, but a ratio should be given against both.

The mean-field guides are AutoDiagonalNormal, as d3p's documentation has it: in d3p it takes half
the time of the same guide written by hand with a site for each latent (98 against 190 microseconds
a step of the logistic problem on one core).

Compare on one core (taskset -c 0), except the private auto-encoder, which gains from a second: on
small operations this release of jaxlib is several times slower with two cores than with one.
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import d3p.random
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from d3p.minibatch import subsample_batchify_data
from d3p.svi import DPSVI
from jax import lax
from jax.example_libraries import stax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoDiagonalNormal
from numpyro.optim import Adam

sys.path.insert(0, str(Path(__file__).parents[1]))
import problems

CLIP, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 1e-3
HIDDEN, LATENT, VAE_PARAMETERS = 400, 50, 688_884
OVERFLOW = 1e-12  # probability that a Poisson minibatch is larger than its buffer
PACKAGES = ("d3p", "jax", "jaxlib", "numpyro", "jax-chacha-prng", "numpy")


class Problem(NamedTuple):
    """A model with its data, and how many steps of it make a turn."""

    records: tuple[Any, ...]  # arrays of N rows, the arguments of model and guide
    constants: dict[str, Any]  # their further arguments, besides num_records
    model: Callable[..., None]
    guide: Callable[..., None] | None  # None: AutoDiagonalNormal
    batch: int
    steps: int
    steps_without_privacy: int
    turns: int


def plate(first, num_records):
    """The plate of a minibatch of which ``first`` is the first data argument."""
    return numpyro.plate("records", num_records, subsample_size=first.shape[0])


def vae_model(images, num_records):
    """50 latent numbers an image, decoded by 50-400-784."""
    network = stax.serial(stax.Dense(HIDDEN), stax.Softplus, stax.Dense(images.shape[-1]))
    decode = numpyro.module("decoder", network, (1, LATENT))
    with plate(images, num_records):
        z = numpyro.sample("z", dist.Normal(jnp.zeros(LATENT), 1.0).to_event(1))
        numpyro.sample("image", dist.Bernoulli(logits=decode(z)).to_event(1), obs=images)


def vae_guide(images, num_records):
    """Amortised: location and scale of each image's latent numbers from 784-400-(50, 50)."""
    heads = stax.parallel(stax.Dense(LATENT), stax.serial(stax.Dense(LATENT), stax.Exp))
    network = stax.serial(stax.Dense(HIDDEN), stax.Softplus, stax.FanOut(2), heads)
    encode = numpyro.module("encoder", network, (1, images.shape[-1]))
    with plate(images, num_records):
        location, scale = encode(images)
        numpyro.sample("z", dist.Normal(location, scale).to_event(1))


def hierarchical_model(x, group, y, num_records, group_features):
    """Weights of a group around a linear map M of what is publicly known of the group."""
    shape = (x.shape[-1], group_features.shape[-1])
    mixing = numpyro.sample("M", dist.Normal(0, 4.0).expand(shape).to_event(2))
    weights = numpyro.sample("w", dist.Normal(group_features @ mixing.T, 1.0).to_event(2))
    with plate(x, num_records):
        numpyro.sample("y", dist.Bernoulli(logits=(x * weights[group]).sum(-1)), obs=y)


def logistic_model(x, y, num_records):
    """Logistic regression with wide normal priors."""
    weights = numpyro.sample("weights", dist.Normal(0, 5.0).expand([x.shape[-1]]).to_event(1))
    intercept = numpyro.sample("intercept", dist.Normal(0, 5.0))
    with plate(x, num_records):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + intercept), obs=y)


def vae():
    """Variational auto-encoder 784-400-50 on 60 000 images."""
    return Problem((problems.vae_images(),), {}, vae_model, vae_guide, 128, 4, 200, 2)


def hierarchical():
    """Hierarchical logistic regression, 500 records, sampling rate .1."""
    *records, group_features = problems.hierarchical_data()
    constants = {"group_features": jnp.asarray(group_features)}
    return Problem(tuple(records), constants, hierarchical_model, None, 50, 100_000, 100_000, 3)


def logistic():
    """Logistic regression, 10 000 records of 50 features."""
    return Problem(tuple(problems.logistic_data()), {}, logistic_model, None, 100, 2_000, 2_000, 3)


PROBLEMS = {"vae": vae, "hierarchical": hierarchical, "logistic": logistic}


def buffer_length(num_records, rate):
    """The smallest room that a Poisson minibatch exceeds with probability at most OVERFLOW."""
    surplus = 0.0  # probability of at least size records
    for size in range(num_records, 0, -1):
        ways = (
            math.lgamma(num_records + 1)
            - math.lgamma(size + 1)
            - math.lgamma(num_records - size + 1)
        )
        surplus += math.exp(ways + size * math.log(rate) + (num_records - size) * math.log1p(-rate))
        if surplus > OVERFLOW:
            return size
    return 1


def poisson_batchifier(records, rate):
    """What d3p's batchifiers return, for Poisson sampling: (init, next minibatch); its last array
    says which rows count.
    """
    num_records = records[0].shape[0]
    length = buffer_length(num_records, rate)

    def next_batch(step, state):
        chosen = d3p.random.uniform(d3p.random.fold_in(state, step), (num_records,)) < rate
        (indices,) = jnp.nonzero(chosen, size=length, fill_value=0)
        return *(array[indices] for array in records), jnp.arange(length) < chosen.sum()

    return lambda key: (round(1 / rate), key), next_batch


def one_record_masked(function):
    """The model or guide of one record, switched off as a whole where the last data argument is
    False.

    d3p takes the gradient of every record apart, with its share of the global latents, so one
    scalar mask is right.
    """

    def masked(*arguments, **constants):
        *arrays, counts = arguments
        with numpyro.handlers.mask(mask=counts[0]):
            function(*arrays, **constants)

    return masked


def prepare(problem, sampler, private, masked):
    """Set up one contender.

    :returns: a function that takes a number of steps from where its last call ended and returns
        their seconds, and one that returns the parameters reached.
    """
    num_records = problem.records[0].shape[0]
    records = tuple(map(jnp.asarray, problem.records))
    model, guide = problem.model, problem.guide or AutoDiagonalNormal(problem.model)
    if sampler == "poisson":
        init_batches, next_batch = poisson_batchifier(records, problem.batch / num_records)
    else:
        # a column, or the compiler sees that all of it is true
        counts = (jnp.ones(num_records, bool),) if masked else ()
        init_batches, next_batch = subsample_batchify_data(
            (*records, *counts), batch_size=problem.batch
        )
    if masked or sampler == "poisson":
        model, guide = one_record_masked(model), one_record_masked(guide)
    constants = {"num_records": num_records, **problem.constants}
    if private:
        svi = DPSVI(
            model, guide, Adam(LEARNING_RATE), Trace_ELBO(), CLIP, NOISE_MULTIPLIER, **constants
        )
        key = d3p.random.PRNGKey()
    else:
        svi = SVI(model, guide, Adam(LEARNING_RATE), Trace_ELBO(), **constants)
        key = jax.random.PRNGKey(0)
    _, batches = init_batches(d3p.random.PRNGKey())
    state = svi.init(key, *next_batch(0, batches))
    taken = 0

    @jax.jit
    def run(state, batches, first, count):
        return lax.fori_loop(
            first,
            first + count,
            lambda i, state: svi.update(state, *next_batch(i, batches))[0],
            state,
        )

    def turn(count):
        nonlocal state, taken
        began = time.perf_counter()
        state = jax.block_until_ready(run(state, batches, taken, count))
        taken += count
        return time.perf_counter() - began

    return turn, lambda: svi.get_params(state)


def check(parameters, problem_name):
    """Refuse to report the speed of something else: another network, or steps that ended in NaN."""
    leaves = jax.tree_util.tree_leaves(parameters)
    count = sum(leaf.size for leaf in leaves)
    if problem_name == "vae" and count != VAE_PARAMETERS:
        raise RuntimeError(
            f"Expected {VAE_PARAMETERS} parameters of the auto-encoder, found {count}."
        )
    if not all(bool(jnp.isfinite(leaf).all()) for leaf in leaves):
        raise RuntimeError(
            "The parameters are no longer finite: the seconds would not mean anything."
        )
    return count


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=PROBLEMS)
    parser.add_argument("--sampler", choices=("feistel", "poisson"), default="feistel")
    parser.add_argument(
        "--batch",
        type=int,
        help="minibatch size (default 128, 50 and 100); expected size for poisson",
    )
    parser.add_argument("--steps", type=int, help="steps a turn")
    parser.add_argument("--turns", type=int, help="turns that count, after one that compiles")
    parser.add_argument(
        "--non-private", action="store_true", help="numpyro's SVI on the same minibatches instead"
    )
    parser.add_argument(
        "--masked",
        action="store_true",
        help="with feistel too, send a mask along (of ones: see the docstring)",
    )
    options = parser.parse_args()
    if options.non_private and (options.masked or options.sampler == "poisson"):
        parser.error(
            "--non-private goes with feistel and without a mask: masking record by record needs "
            "per-record gradients"
        )
    return options


def main():
    """Take the turns and print the JSON object."""
    options = arguments()
    problem = PROBLEMS[options.problem]()
    problem = problem._replace(batch=options.batch or problem.batch)
    if not 0 < problem.batch < len(problem.records[0]):
        sys.exit(
            f"Expected 0 < batch={problem.batch} < {len(problem.records[0])}, the number of "
            "records."
        )
    private = not options.non_private
    steps = options.steps or (problem.steps if private else problem.steps_without_privacy)
    turn, parameters = prepare(problem, options.sampler, private, options.masked)
    turn(steps)
    seconds = [turn(steps) for _ in range(options.turns or problem.turns)]
    num_parameters = check(parameters(), options.problem)
    report = {
        "problem": options.problem,
        "sampler": options.sampler,
        "private": private,
        "masked": options.masked or options.sampler == "poisson",
        "batch": problem.batch,
        "parameters": num_parameters,
        "steps": steps,
        "seconds": seconds,
        "seconds_per_step": statistics.median(seconds) / steps,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in PACKAGES},
        },
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
