"""Speed of private training, as ratios within one run: workbench, numpyro's non-private SVI, and
d3p in its own environment.

    python speed.py [vae] [hierarchical] [logistic] [local] [strategies] [sizes] [lanes]
    [--no-peers] [--turns K]

Contenders take turns in alternating order; a figure is the median over turns, a ratio the median of
the ratios within turns. d3p runs in a process of its own between two halves of the turns, and its
ratio is to the workbench's median. Figures are milliseconds or microseconds a step on this machine;
only the ratios mean something elsewhere.
"""

import argparse
import statistics

import jax
import jax.numpy as jnp
from contenders import (
    clipped,
    hierarchical,
    logistic,
    non_private,
    principal_components,
    private,
    schools,
    trainer,
    vae,
)
from turns import a_step, answer_of, here, ratio, seconds, turns_of

from workbench.clipping.clipped_sums import STRATEGIES
from workbench.inference.batched import BatchedProgram, stacked, starting_states
from workbench.inference.compiling import chunk_of
from workbench.noise.chacha20 import new_key

EPOCH = 469  # minibatches of 128 in 60 000


def d3p(arguments):
    """Seconds a step of d3p, from its own environment."""
    return answer_of("d3p", "d3p_steps.py", *arguments)["seconds_per_step"]


def compare(problem, contenders, turns, peers, ours="private"):
    """Print one problem's table: median time a step and how it stands to the non-private step and
    to d3p.
    """
    print(
        f"\n{problem.name}: N = {problem.num_records}, expected minibatch {problem.expected} "
        f"(room for {problem.sampler.capacity}), {problem.steps} steps a turn, {turns} turns",
        flush=True,
    )
    for contender in contenders.values():
        seconds(contender)  # compiles
    times = turns_of(contenders, turns - turns // 2)
    others = {name: d3p(arguments) for name, arguments in peers.items()}
    for name, more in turns_of(contenders, turns // 2).items():
        times[name] += more
    for name, values in times.items():
        print(
            f"  {name:28} {a_step(statistics.median(values) / problem.steps)}   "
            f"{ratio(values, times['SVI']):7.2f} x SVI"
        )
    ours_a_step = statistics.median(times[ours]) / problem.steps
    for name, theirs in others.items():
        print(f"  {name:28} {a_step(theirs)}   {theirs / ours_a_step:7.1f} x {ours}", flush=True)
    if problem.name == "vae":
        epoch = {
            name: statistics.median(values) / problem.steps * EPOCH
            for name, values in times.items()
        }
        print(
            f"  an epoch of {EPOCH} steps: "
            + ", ".join(f"{name} {value:.3f} s" for name, value in epoch.items())
        )


def run_vae(turns, peers):
    """a. Clipping alone and the whole private step beside SVI."""
    problem = vae(steps=30 if jax.default_backend() == "cpu" else EPOCH)
    contenders = {
        "SVI": non_private(problem),
        "clipping alone": clipped(problem),
        "private": private(problem),
    }
    compare(
        problem,
        contenders,
        turns,
        {"d3p": ["vae"], "d3p, masked data": ["vae", "--masked"]} if peers else {},
    )


def run_hierarchical(turns, peers):
    """b. A small model."""
    problem = hierarchical(steps=100_000 if jax.default_backend() == "cpu" else 2000)
    arguments = {
        "d3p": ["hierarchical"],
        "d3p, Poisson stand-in": ["hierarchical", "--sampler", "poisson"],
    }
    contenders = {"SVI": non_private(problem), "private": private(problem)}
    compare(problem, contenders, turns, arguments if peers else {})


def run_logistic(turns, peers):
    """c. Logistic regression on minibatches of 100 and 1000."""
    for expected in (100, 1000):
        problem = logistic(expected)
        contenders = {"SVI": non_private(problem), "private": private(problem)}
        compare(
            problem,
            contenders,
            turns,
            {"d3p": ["logistic", "--batch", str(expected)]} if peers else {},
        )


def run_local(turns, peers):
    """c. Models with latents of each record."""
    for problem in (schools(), principal_components()):
        compare(problem, {"SVI": non_private(problem), "private": private(problem)}, turns, {})


def run_strategies(turns, peers):
    """d. The strategies of clipping on the VAE, without noise."""
    problem = vae(num_images=10_000, steps=2)
    contenders = {"SVI": non_private(problem)}
    contenders |= {strategy: clipped(problem, strategy=strategy) for strategy in STRATEGIES}
    compare(problem, contenders, min(turns, 5), {}, ours="auto")


def run_sizes(turns, peers):
    """d. Steps a second and memory of the private VAE step against minibatch size."""
    print(
        "\nvae by minibatch size: private steps a second, and bytes that a step needs beside "
        "records and state"
    )
    for expected in (16, 32, 64, 128, 256, 512, 1024, 2048):
        problem = vae(expected, num_images=20_000, steps=max(2, 1024 // expected))
        dpvi, state = trainer(problem)
        chunk = jax.jit(chunk_of(dpvi.private_step, problem.steps), donate_argnums=0)
        compiled = chunk.lower(state, problem.on_device, problem.steps, dpvi.hyper).compile()
        memory = compiled.memory_analysis().temp_size_in_bytes

        def turn(compiled=compiled, state=state, problem=problem, hyper=dpvi.hyper):
            return compiled(jax.tree.map(jnp.copy, state), problem.on_device, problem.steps, hyper)

        seconds(turn)
        rate = problem.steps / statistics.median(seconds(turn) for _ in range(3))
        print(f"  {expected:5}   {rate:8.1f} steps/s   {memory / 2**20:8.1f} MiB", flush=True)


def run_lanes(turns, peers):
    """e. Fits of the hierarchical model that are stepped together, as sweeps do it: time a step and
    lane.
    """
    problem, steps = hierarchical(), 3000
    dpvi, _ = trainer(problem)
    print(
        f"\n{problem.name}: private steps of several fits together, {steps} steps a turn, "
        f"{turns} turns",
        flush=True,
    )
    times = {}
    for lanes in (1, 10, 60, 240):
        program = BatchedProgram(dpvi.private_step, lanes, shared=True, devices=jax.devices()[:1])
        hyper = stacked([dpvi.hyper] * lanes)
        states = starting_states(dpvi.private_step, [new_key() for _ in range(lanes)], hyper)
        results = [program.run(states, problem.on_device, hyper, steps) for _ in range(turns + 1)]
        times[lanes] = statistics.median(result.seconds for result in results[1:]) / steps / lanes
        print(
            f"  {lanes:4} lanes  {a_step(times[lanes])} a step and lane   "
            f"{times[1] / times[lanes]:5.1f} x one lane",
            flush=True,
        )


SECTIONS = {
    "vae": run_vae,
    "hierarchical": run_hierarchical,
    "logistic": run_logistic,
    "local": run_local,
    "strategies": run_strategies,
    "sizes": run_sizes,
    "lanes": run_lanes,
}


def main():
    """Run the sections asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="all by default")
    parser.add_argument(
        "--no-peers",
        action="store_true",
        help="without d3p, which needs Python 3.11 and a network once",
    )
    parser.add_argument("--turns", type=int, default=9)
    arguments = parser.parse_args()
    print(here())
    for name in arguments.sections or SECTIONS:
        SECTIONS[name](arguments.turns, not arguments.no_peers)


if __name__ == "__main__":
    main()
