"""Accuracy of private networks trained by the workbench's clipping and by Opacus, from the same
start at the same noise.

    python accuracy.py [adult] [fashion] [--adult FILE] [--epsilon E] [--steps T] [--seeds K]

The network for Adult (104-50-2) and the convolutional one for MNIST, on Fashion-MNIST. Both get the
same records, split, initial weights, clipping norm, noise multiplier, Poisson sampling rate, number
of steps and learning rate of SGD; the noise multiplier is the workbench's for epsilon at delta
1e-5. They differ in their random numbers, hence several seeds, and in what takes the gradients,
which must not show. Adult is read from a CSV file, or where ``$WORKBENCH_DATA`` says; Fashion-MNIST
is Debian's dataset-fashion-mnist.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from descent import apart, begun, descended
from networks import NETWORKS, Network
from problems import NUM_FEATURES
from turns import a_step, answer_of, here

import workbench as wb
from workbench.clipping.clipped_sums import clipped_sum
from workbench.noise.chacha20 import key_from_seed
from workbench.noise.mechanism import GaussianMechanism
from workbench.privacy.calibration import noise_multiplier
from workbench.sampling import PoissonSampler
from workbench.sampling.poisson import overflow_capacity

DELTA, CLIP = 1e-5, 1.0
LOG_OVERFLOW = float(np.log(1e-12))


class Task(NamedTuple):
    """A network with its data, and how it is trained. ``as_torch``: leaves in the order and layout
    of torch's modules.
    """

    network: Network
    load: Callable[[argparse.Namespace], tuple[Any, Any]]
    batch: int
    steps: int
    rate: float
    as_torch: Callable[[Any], list[np.ndarray]]


def adult(options):
    """Training and test records; columns of zeros fill up to the width of the network."""
    data = wb.data.load("adult", path=options.adult)
    return tuple(
        (np.pad(x, ((0, 0), (0, NUM_FEATURES - x.shape[1]))), y)
        for x, y in (data.train, data.evaluation)
    )


def fashion(options):
    """Training and test records."""
    data = wb.data.load("fashion_mnist")
    return data.train, data.evaluation


def _dense(layer):
    return [np.asarray(layer["kernel"]).T, np.asarray(layer["bias"])]


def _fcnn_as_torch(params):
    return [*_dense(params["hidden"]), *_dense(params["output"])]


def _cnn_as_torch(params):
    """Kernels are [out, in, height, width] in torch, whose images have their channels first when
    they are laid out flat.
    """
    convolutions = [
        array
        for name in ("first", "second")
        for array in (
            np.asarray(params[name]["kernel"]).transpose(3, 2, 0, 1),
            np.asarray(params[name]["bias"]),
        )
    ]
    kernel = (
        np.asarray(params["hidden"]["kernel"])
        .reshape(4, 4, 32, -1)
        .transpose(2, 0, 1, 3)
        .reshape(512, -1)
    )
    return [
        *convolutions,
        kernel.T,
        np.asarray(params["hidden"]["bias"]),
        *_dense(params["output"]),
    ]


TASKS = {
    "adult": Task(NETWORKS["fcnn"], adult, 256, 1000, 0.5, _fcnn_as_torch),
    "fashion": Task(NETWORKS["mnist_cnn"], fashion, 128, 800, 0.2, _cnn_as_torch),
}


def accuracy(network, params, records):
    """Share of the records whose class has the largest logit."""
    predicted = jax.jit(
        lambda x: jnp.argmax(jax.vmap(network.logits, in_axes=(None, 0))(params, x), axis=-1)
    )
    return float(np.mean(predicted(records[0]) == records[1]))


def ours(task, sigma, sampling_rate, steps, records, seed):
    """Parameters after training, and seconds a step without compiling."""
    network = task.network
    x, y = (jnp.asarray(array) for array in records)
    size = len(y)
    sampler = PoissonSampler(
        size, sampling_rate, overflow_capacity(size, sampling_rate, LOG_OVERFLOW)
    )
    mechanism, key = GaussianMechanism(CLIP, sigma), key_from_seed(seed)

    @jax.jit
    def step(state, x, y):
        params, number = state
        draw_key, noise_key = jax.random.split(jax.random.fold_in(key, number))
        batch = sampler.draw(draw_key)
        chosen = x[batch.indices], y[batch.indices]
        total, _ = clipped_sum(network.loss, params, chosen, batch.mask, CLIP)
        noise = apart(mechanism.noise(noise_key, network.num_parameters), params)
        mean = jax.tree.map(
            lambda leaf, drawn: (leaf + drawn) / (size * sampling_rate), total, noise
        )
        return descended(network, state, mean)

    jax.block_until_ready(step(begun(network), x, y))
    state = begun(network)
    began = time.perf_counter()
    for _ in range(steps):
        state = step(state, x, y)
    jax.block_until_ready(state)
    return state[0], (time.perf_counter() - began) / steps


def compare(name, options):
    """Train both ways with several seeds and print accuracies."""
    task = TASKS[name]
    task = task._replace(network=replace(task.network, learning_rate=task.rate))
    train, test = task.load(options)
    steps = options.steps or task.steps
    # Opacus takes sampling rates of one over a whole number
    num_minibatches = round(len(train[1]) / task.batch)
    sigma = noise_multiplier(
        epsilon=options.epsilon, delta=DELTA, sampling_rate=1 / num_minibatches, steps=steps
    )
    print(
        f"\n{name}: {task.network.name}, {len(train[1])} records, epsilon {options.epsilon:g} at "
        f"delta {DELTA:g}: sigma {sigma:g}, C {CLIP:g}, q 1/{num_minibatches}, {steps} steps, "
        f"learning rate {task.rate:g}; before training "
        f"{accuracy(task.network, begun(task.network)[0], test):.4f}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "task.npz"
        start = {
            f"p{place}": leaf for place, leaf in enumerate(task.as_torch(begun(task.network)[0]))
        }
        np.savez(file, x=train[0], y=train[1], test_x=test[0], test_y=test[1], **start)
        found = {"workbench": [], "Opacus": []}
        for seed in range(options.seeds):
            params, seconds = ours(task, sigma, 1 / num_minibatches, steps, train, seed)
            found["workbench"].append((accuracy(task.network, params, test), seconds))
            arguments = (
                "--noise-multiplier",
                sigma,
                "--minibatches",
                num_minibatches,
                "--steps",
                steps,
                "--seed",
                seed,
            )
            settings = ("--clip", CLIP, "--learning-rate", task.rate, "--delta", DELTA)
            answer = answer_of(
                "opacus", "opacus_accuracy.py", task.network.name, file, *arguments, *settings
            )
            found["Opacus"].append((answer["accuracy"], answer["seconds_per_step"]))
    for contender, rows in found.items():
        reached = ", ".join(f"{accuracy:.4f}" for accuracy, _ in rows)
        mean = statistics.mean(accuracy for accuracy, _ in rows)
        seconds = statistics.median(seconds for _, seconds in rows)
        print(f"  {contender:12} accuracy {mean:.4f} ({reached})   {a_step(seconds)} a step")
    print(
        f"  Opacus found {answer['before']:.4f} before training, and epsilon "
        f"{answer['epsilon']:.3f} with its own accountant"
    )


def main():
    """Compare on the data asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", choices=[*TASKS, []], help="all by default")
    parser.add_argument("--adult", type=Path, help="Adult as a CSV file")
    parser.add_argument("--epsilon", type=float, default=2)
    parser.add_argument("--steps", type=int, help="by default 1000 for adult, 800 for fashion")
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    print(here())
    for name in options.tasks or TASKS:
        compare(name, options)


if __name__ == "__main__":
    main()
