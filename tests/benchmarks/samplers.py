"""Speed of minibatch draws: the workbench's samplers and jax.random.choice, as in table 3 of the
d3p paper.

    python samplers.py [step] [ahead] [--turns K]

Microseconds a minibatch inside one compiled loop over steps: "step" draws in each step, "ahead"
draws a block of steps at once under vmap, as training does. Secure draws include their keystream;
jax.random.choice takes threefry keys. Contenders take turns in alternating order; a figure is the
median over turns, and beside it stands the quickest turn, which shows what a machine that others
use as well would do alone.
"""

import argparse
import functools
import os
import statistics
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from turns import seconds, turns_of

from workbench.inference.compiling import _steps_ahead
from workbench.noise.chacha20 import new_key, stream
from workbench.sampling import (
    FeistelSampler,
    Minibatch,
    PoissonSampler,
    ShuffleSampler,
    WithoutReplacementSampler,
)
from workbench.sampling.poisson import overflow_capacity

SIZES = ((60_000, 128), (10_000, 1_000), (500, 50))  # N and the expected minibatch
LOG_OVERFLOW = float(np.log(1e-12))
MANY, FEW = 4_000, 40  # steps a turn, of secure draws and of jax.random.choice


def poisson(num_records, expected):
    """Poisson minibatches whose padding overflows once in 1e12 steps."""
    rate = expected / num_records
    return PoissonSampler(num_records, rate, overflow_capacity(num_records, rate, LOG_OVERFLOW))


def secure(sampler):
    """A function of (key, number) that draws a step's minibatch, and how many of them training
    draws at once.
    """

    def draw(key, number):
        return sampler.draw_from(stream(key, number, sampler.words), key, number)

    return draw, _steps_ahead(types.SimpleNamespace(noise_size=0, sampler=sampler), MANY, 1)


def choice(num_records, expected):
    """The same with jax.random.choice; ahead in few steps, for it takes a permutation of all
    records for each.
    """

    def draw(key, number):
        key = jax.random.fold_in(key, number)
        return Minibatch(
            jax.random.choice(key, num_records, (expected,), replace=False),
            jnp.ones(expected, bool),
        )

    return draw, FEW


def consumed(total, batch):
    """The loop's carry takes in every place of a minibatch, so that no draw can be left out."""
    return total + jnp.sum(jnp.where(batch.mask, batch.indices, total & 1))


def step_by_step(draw, ahead, steps):
    """A compiled loop that draws a minibatch in each step, and its steps."""

    @jax.jit
    def run(key):
        return lax.fori_loop(
            0, steps, lambda step, total: consumed(total, draw(key, step)), jnp.int32(0)
        )

    return run, steps


def drawn_ahead(draw, ahead, steps):
    """A compiled loop over blocks of ``ahead`` steps whose minibatches are drawn at once, and its
    steps.
    """
    blocks = steps // ahead

    @jax.jit
    def run(key):
        def block(number, total):
            batches = jax.vmap(functools.partial(draw, key))(
                number * ahead + jnp.arange(ahead, dtype=jnp.int32)
            )

            def step(own, total):
                return consumed(total, jax.tree.map(lambda array: array[own], batches))

            return lax.fori_loop(0, ahead, step, total)

        return lax.fori_loop(0, blocks, block, jnp.int32(0))

    return run, blocks * ahead


WAYS = {"step": step_by_step, "ahead": drawn_ahead}


def contenders(way, num_records, expected):
    """Functions without arguments that take a turn, by name, and the steps of each."""
    draws = {
        "poisson": (*secure(poisson(num_records, expected)), MANY),
        "without_replacement": (*secure(WithoutReplacementSampler(num_records, expected)), MANY),
        "shuffle": (*secure(ShuffleSampler(num_records, expected)), MANY),
        "feistel": (*secure(FeistelSampler(num_records, expected)), MANY),
        "jax.random.choice": (*choice(num_records, expected), FEW),
    }
    key = new_key()
    turns, steps = {}, {}
    for name, draw in draws.items():
        run, steps[name] = WAYS[way](*draw)
        turns[name] = functools.partial(
            run, jax.random.key(0) if name == "jax.random.choice" else key
        )
    return turns, steps


def measure(way, turns):
    """Print the table of one way to draw: microseconds a minibatch, median (quickest)."""
    table = {}
    for num_records, expected in SIZES:
        runs, steps = contenders(way, num_records, expected)
        for run in runs.values():
            seconds(run)  # compiles
        for name, times in turns_of(runs, turns).items():
            micro = [1e6 * value / steps[name] for value in times]
            table.setdefault(name, []).append(
                f"{statistics.median(micro):9.1f} ({min(micro):8.1f})"
            )
    print(f"\n{way}: us a minibatch, median (quickest) of {turns} turns")
    print(
        f"  {'N / expected minibatch':22}"
        + "".join(f"{f'{size} / {expected}':>21}" for size, expected in SIZES)
    )
    for name, cells in table.items():
        print(f"  {name:22}" + "".join(f"{cell:>21}" for cell in cells), flush=True)


def main():
    """Measure the ways asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="both by default")
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    device = jax.devices()[0]
    where = (
        f"{len(os.sched_getaffinity(0))} core(s)"
        if device.platform == "cpu"
        else device.device_kind
    )
    print(
        f"{where}, jax {jax.__version__}, Python {sys.version.split()[0]}, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    for way in arguments.ways or WAYS:
        measure(way, arguments.turns)


if __name__ == "__main__":
    main()
