"""Time of Gaussian noise for 688 884 coordinates, the networks of a VAE, as ratios to
jax.random.normal with threefry.

"floats" is workbench.noise.normals, "integers" is workbench.noise.integers at level 5.

    python normals.py [--size N] [--turns K] [--cores K ...]

They take turns in alternating order; a time is the median over turns, a ratio the median of the
ratios within turns. On a CPU each number of cores has a process of its own. Times are of this
machine; only the ratios mean something elsewhere.
"""

import argparse
import operator
import os
import statistics
import subprocess
import sys
import time

SIZE = 688_884
STEPS = 10  # draws in one turn of the loop


def contenders(size):
    """``{way of calling: (draws a turn, {generator: turn})}``; a turn gives an array."""
    import jax
    import jax.numpy as jnp

    from workbench.noise.chacha20 import new_key
    from workbench.noise.integers import rounded_gaussian
    from workbench.noise.normals import normal

    draws = {
        "floats": (lambda key: normal(key, (size,)), new_key()),
        "integers": (lambda key: rounded_gaussian(key, size, 5), new_key()),
        "threefry": (lambda key: jax.random.normal(key, (size,)), jax.random.key(0)),
    }

    def looped(draw):
        def add(total, step_key):
            return total + draw(step_key), None

        return lambda key: jax.lax.scan(add, jnp.zeros(size), jax.random.split(key, STEPS))[0]

    def turns(way):
        compiled = {name: (jax.jit(way(draw)), key) for name, (draw, key) in draws.items()}
        return {
            name: lambda function=function, key=key: function(key)
            for name, (function, key) in compiled.items()
        }

    return {
        "in a compiled loop": (STEPS, turns(looped)),
        "single calls": (1, turns(lambda draw: draw)),
    }


def seconds(turn):
    """Wall time of one turn."""
    import jax

    began = time.perf_counter()
    jax.block_until_ready(turn())
    return time.perf_counter() - began


def measure(size, turns):
    """Print times and ratios on the cores that this process has."""
    import jax

    device = jax.devices()[0]
    where = (
        f"{len(os.sched_getaffinity(0))} core(s)"
        if device.platform == "cpu"
        else device.device_kind
    )
    print(f"{size} normals, {where}, jax {jax.__version__}, load {os.getloadavg()[0]:.1f}")
    for way, (draws, generators) in contenders(size).items():
        for turn in generators.values():
            seconds(turn)  # compiles
        times = {name: [] for name in generators}
        for number in range(turns):
            for name in list(generators)[:: 1 if number % 2 else -1]:
                times[name].append(seconds(generators[name]) / draws)
        for name in times:
            ratios = " ".join(
                f"{statistics.median(map(operator.truediv, times[name], times[other])):6.2f} x "
                f"{other}"
                for other in ("threefry", "floats")
                if other != name
            )
            print(
                f"  {way:20} {name:9} {statistics.median(times[name]) * 1e3:7.2f} ms {ratios}",
                flush=True,
            )


def main():
    """Measure in a process for each number of cores, because JAX counts cores once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--turns", type=int, default=41)
    parser.add_argument(
        "--cores", type=int, nargs="+", help="on a CPU; by default all of them, and one"
    )
    arguments = parser.parse_args()
    mine = sorted(os.sched_getaffinity(0))
    cores = arguments.cores or sorted({len(mine), 1}, reverse=True)
    if len(cores) == 1:
        os.sched_setaffinity(0, mine[: cores[0]])
        measure(arguments.size, arguments.turns)
        return
    for count in cores:
        again = [
            sys.executable,
            __file__,
            "--size",
            str(arguments.size),
            "--turns",
            str(arguments.turns),
        ]
        subprocess.run([*again, "--cores", str(count)], check=True)


if __name__ == "__main__":
    main()
