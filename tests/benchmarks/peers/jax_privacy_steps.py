"""Seconds and bytes a step of jax_privacy 2.0.0 on one of networks.py, beside the same non-private
step as the workbench's.

Runs in an environment of its own: ``environment.peer_python("jax_privacy")`` names the interpreter.
Prints one JSON object. The private step is that of its documentation: ``clipped_grad`` of the loss,
``gaussian_privatizer``, then SGD, all in one compiled program. A first turn that compiles is not
counted.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import jax
import jax_privacy
from jax_privacy import noise_addition

sys.path.insert(0, str(Path(__file__).parents[1]))
import descent
import networks
import turns


def private(network, batch):
    """A step whose noise has the standard deviation sigma C, as in the workbench."""
    clipped = jax_privacy.clipped_grad(
        network.loss, l2_clip_norm=network.clip, keep_batch_dim=False
    )
    deviation = network.noise_multiplier * clipped.sensitivity()

    def step(state, key, x, y):
        # the privatizer's state is its key: made anew from the step's, which costs one hash
        privatizer = noise_addition.gaussian_privatizer(
            stddev=deviation, prng_key=jax.random.fold_in(key, state[1])
        )
        noisy, _ = privatizer.update(clipped(state[0], (x, y)), privatizer.init(state[0]))
        return descent.descended(network, state, jax.tree.map(lambda leaf: leaf / batch, noisy))

    return step


def main():
    """Take the turns and print the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=networks.NETWORKS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    network = networks.NETWORKS[options.network]
    key = jax.random.key(1)
    programs = {
        "non-private": descent.non_private(network),
        "private": private(network, options.batch),
    }
    contenders = {
        name: descent.Steps(step, network, options.batch, key) for name, step in programs.items()
    }
    slow = {name for name, contender in contenders.items() if contender.fit()} - {"non-private"}
    times = turns.turns_of(contenders, options.turns, once=slow)
    times = {name: contender.a_step(times[name]) for name, contender in contenders.items()}
    for contender in contenders.values():
        descent.checked(contender)
    report = {
        name: {
            "seconds_per_step": statistics.median(times[name]),
            "ratio": turns.ratio(times[name], times["non-private"]),
            "peak_bytes": contender.peak_bytes(),
        }
        for name, contender in contenders.items()
    }
    print(
        json.dumps(
            {
                "network": network.name,
                "batch": options.batch,
                "version": jax_privacy.__version__,
                **report,
            }
        )
    )


if __name__ == "__main__":
    main()
