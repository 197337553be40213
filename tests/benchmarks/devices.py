"""What a step on several devices exchanges and computes, counted in the programs that XLA compiles
for simulated devices.

    python devices.py [vae] [logistic]

There are no seconds, because simulated devices share the cores of one machine. Strong scaling has
the same records and minibatch on more devices, weak scaling as many of both for each device. A row
is a number of devices: the records of one and the places of its share of a minibatch, how many
exchanges of any kind a step has, the bytes of a device's arrays that they exchange, and XLA's
estimates for one device: operations, bytes read or written, and bytes of its arguments (records and
state).
"""

import os

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)

import argparse
import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
from contenders import logistic, vae
from numpyro.optim import Adam

from workbench.inference.assemble import assemble
from workbench.inference.sharding import Shards
from workbench.inference.state import Hyperparameters
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism

COUNTS = (1, 2, 4, 8)
EXCHANGES = (
    r"all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
)
RECORDS, EXPECTED = 1024, 128  # of a device, with weak scaling


def of_size(name, times):
    """The problem with ``times`` as many records and as large a minibatch."""
    problem = (
        vae(EXPECTED * times, RECORDS * times) if name == "vae" else logistic(EXPECTED * times)
    )
    return replace(problem, records=tuple(array[: RECORDS * times] for array in problem.records))


def compiled(problem, count):
    """(one step on ``count`` devices, records that a device has room for, places of its share of a
    minibatch).
    """
    key, mechanism = key_from_seed(0), GaussianMechanism(problem.clip, problem.noise_multiplier)
    step = assemble(
        problem.model,
        problem.guide,
        Adam(1e-3),
        key,
        problem.records,
        sampler=problem.sampler,
        mechanism=mechanism,
    )
    shards = Shards(tuple(jax.devices()[:count]))
    hyper, step = Hyperparameters.of(mechanism), step.with_options(keeps_moments=False)
    state = shards.placed(step.init(key, hyper))
    if count > 1:
        step = replace(step, source=shards)
    places = step.sampler.usual_size() if count == 1 else shards.usual_size(step.sampler)

    def one(state, records):
        return step.step(state, records, step.draw(state.key, state.step, hyper), hyper)

    program = jax.jit(one, donate_argnums=0).lower(state, shards.spread(problem.records)).compile()
    return program, shards.held(problem.num_records), places


def exchanged(text):
    """(how many exchanges the text of a program has, bytes of a device's arrays in them)."""
    shapes = re.findall(rf"= (.*?) (?:{EXCHANGES})(?:-start)?\(", text)
    arrays = [found for shape in shapes for found in re.findall(r"[a-z]+(\d+)\[([\d,]*)\]", shape)]
    return len(shapes), sum(
        (int(bits) // 8) * math.prod(int(size) for size in of.split(",") if size)
        for bits, of in arrays
    )


def table(name, kind):
    """Print the rows of one problem and kind of scaling."""
    print(f"\n{name}, {kind} scaling")
    print(
        "devices  records  places  exchanges  bytes exchanged  operations  bytes touched  arguments"
    )
    for count in COUNTS:
        problem = of_size(name, count if kind == "weak" else COUNTS[-1])
        program, records, places = compiled(problem, count)
        number, size = exchanged(program.as_text())
        cost, memory = program.cost_analysis(), program.memory_analysis()
        print(
            f"{count:7}  {records:7}  {places:6}  {number:9}  {size:15}  {cost['flops']:10.3g}  "
            f"{cost['bytes accessed']:13.3g}  {memory.argument_size_in_bytes:9}",
            flush=True,
        )


def main():
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "problems", nargs="*", default=["vae", "logistic"], help="which: vae, logistic"
    )
    print(f"jax {jax.__version__}, {jnp.zeros(()).devices()}")
    for name in parser.parse_args().problems:
        for kind in ("weak", "strong"):
            table(name, kind)


if __name__ == "__main__":
    main()
