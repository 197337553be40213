"""Speed and memory of private steps of neural networks, as ratios to non-private ones, beside
Opacus and jax_privacy.

    python layers.py [networks ...] [--tables steps ablation minibatches] [--turns K] [--no-peers]
    [--batch B] python layers.py --foreign [networks ...] [--turns K] [--batch B] python layers.py
    --deep [networks ...] [--turns K] [--batch B]

"steps": contenders take turns in alternating order; a figure is the median over turns, a ratio the
median of the ratios to the non-private step within turns. A strategy that takes seconds a step has
one turn. Bytes are what a compiled step holds at most, its arguments included. A private step is a
clipped sum in whole numbers, the mechanism's noise for every coordinate, and SGD; "naive" is
jit(vmap(grad)) with threefry noise, as a user writes it. Each peer takes its turns in a process of
its own between two halves of these; its ratio is to its own non-private step, and beside it stands
how many times the workbench's private step it takes.

"ablation": table 2 of Subramani et al. 2021, a private step with and without jit and vmap. Without
vmap and jit the step is timed on a few records and scaled to the minibatch, for its cost is in the
calls for each record.

"minibatches": their table 3, the largest minibatch whose step stays within 2 GiB, found to two in a
hundred.

"foreign": clipped sums of networks as flax, equinox and papers write them, whose kernels are made
of others before a record meets them (``foreign.py``), as ratios to the gradient of the mean loss,
in CPU seconds.

"deep": the strategies of clipped sums on networks that people train (``deep.py``), likewise, with
temporary bytes.

Times are of this machine; only the ratios mean something elsewhere.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from descent import Steps, apart, begun, checked, descended, non_private, peak_bytes
from networks import NETWORKS
from turns import a_step, answer_of, here, ratio, turns_of

from workbench.clipping.clipped_sums import STRATEGIES, clipped_sum
from workbench.inference.strata import Stratum, clipped_sum_in_parts
from workbench.noise.chacha20 import new_key
from workbench.noise.mechanism import GaussianMechanism

MEMORY = 2 * 2**30
ALL_RECORDS = 10**6  # a minibatch's size may be that of a constant of the network
FEW_RECORDS = 8  # of a step without jit and vmap
PEERS = {
    "opacus": ("opacus_steps.py", {"hooks": "Opacus, hooks", "ghost": "Opacus, ghost clipping"}),
    "jax_privacy": ("jax_privacy_steps.py", {"private": "jax_privacy"}),
}

# --- steps ----------------------------------------------------------------------------------------


def private(network, strategy, noisy=True):
    """A private step of the workbench."""

    mechanism = GaussianMechanism(network.clip, network.noise_multiplier if noisy else 0.0)

    def step(state, key, x, y):
        params, number = state
        size, noise, spacing_for = len(y), None, None
        if noisy:
            sigma, clip, level = (
                jnp.float32(network.noise_multiplier),
                jnp.float32(network.clip),
                mechanism.level(size),
            )
            noise = mechanism.noise(jax.random.fold_in(key, number), network.num_parameters, level)
            spacing_for = functools.partial(mechanism.spacing, sigma, clip, level)

        def chosen(places):
            return (x, y) if len(places) == size else (x[places], y[places])

        everyone = jnp.ones(size, bool)
        total, _ = clipped_sum_in_parts(
            network.loss,
            params,
            [Stratum(chosen, everyone, size)],
            network.clip,
            strategy,
            "flat",
            None,
            spacing_for,
        )
        noised = mechanism.add(total, noise)
        return descended(network, state, jax.tree.map(lambda leaf: leaf / size, noised))

    return step


def naive(network):
    """A private step as it is written without a library: a gradient for each record by vmap."""
    return _by_record(
        network,
        lambda params, x, y: jax.vmap(lambda *record: _clipped(network, params, *record))(x, y),
    )


def one_by_one(network):
    """The same without vmap: a Python loop over the records."""

    def all_clipped(params, x, y):
        gradients = [_clipped(network, params, *record) for record in zip(x, y, strict=True)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *gradients)

    return _by_record(network, all_clipped)


def _by_record(network, all_clipped):
    def step(state, key, x, y):
        params, number = state
        total = jax.tree.map(lambda leaf: leaf.sum(0), all_clipped(params, x, y))
        drawn = jax.random.normal(jax.random.fold_in(key, number), (network.num_parameters,))
        total = _with_noise(network, total, apart(drawn, params))
        return descended(network, state, jax.tree.map(lambda leaf: leaf / len(y), total))

    return step


def _clipped(network, params, x, y):
    gradient = jax.grad(network.loss)(params, (x, y))
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradient)))
    return jax.tree.map(lambda leaf: leaf * jnp.minimum(1, network.clip / norm), gradient)


def _with_noise(network, total, drawn):
    deviation = network.noise_multiplier * network.clip
    return jax.tree.map(lambda leaf, noise: leaf + deviation * noise, total, drawn)


class Program(NamedTuple):
    """A step, and whether its noise is from the workbench's generator."""

    step: Callable
    secure: bool = True

    @property
    def key(self):
        """What its noise comes from."""
        return new_key() if self.secure else jax.random.key(1)


@functools.cache
def programs(name):
    """The compiled steps of one network, ``{contender: program}``; the strategy that "auto" takes
    has no second one.
    """
    network = NETWORKS[name]
    return {
        "non-private": Program(non_private(network), secure=False),
        "private": Program(private(network, "auto")),
        "private, without noise": Program(private(network, "auto", noisy=False)),
        **{
            strategy: Program(private(network, strategy))
            for strategy in STRATEGIES
            if strategy not in ("auto", chosen(network))
        },
        "naive": Program(naive(network), secure=False),
    }


def chosen(network):
    """The strategy that "auto" takes."""
    params, _ = jax.eval_shape(lambda: begun(network))
    records = tuple(map(jnp.asarray, network.records(2)))
    explanation = clipped_sum(
        network.loss, params, records, jnp.ones(2, bool), network.clip, "auto", explain=True
    )
    return explanation.strategy


# --- tables ---------------------------------------------------------------------------------------


def run_steps(network, batch, turns, peers):
    """Print median time, ratio and bytes of every contender."""
    compiled = programs(network.name)
    steps = {
        name: Steps(program.step, network, batch, program.key) for name, program in compiled.items()
    }
    print(
        f"\n{network.name}: {network.num_parameters:,} parameters, minibatch {batch}, {turns} "
        f"turns; auto is {chosen(network)}",
        flush=True,
    )
    slow = {name for name, contender in steps.items() if contender.fit()} - {
        "non-private",
        "private",
    }
    times = turns_of(steps, turns - turns // 2, once=slow)
    answers = {peer: _peer(peer, network, batch, turns) for peer in PEERS} if peers else {}
    quick = {name: contender for name, contender in steps.items() if name not in slow}
    for name, more in turns_of(quick, turns // 2).items():
        times[name] += more
    times = {name: steps[name].a_step(values) for name, values in times.items()}
    for name, values in times.items():
        checked(steps[name])
        line = (
            f"{a_step(statistics.median(values))}   {ratio(values, times['non-private']):7.2f} x "
            "non-private"
        )
        print(f"  {name:28} {line}   {_mebibytes(steps[name].peak_bytes())}", flush=True)
    ours = statistics.median(times["private"])
    for peer, answer in answers.items():
        for key, label in {"non-private": f"{peer}'s non-private", **PEERS[peer][1]}.items():
            theirs = answer[key]
            line = (
                f"{a_step(theirs['seconds_per_step'])}   {theirs['ratio']:7.2f} x its non-private"
            )
            times_ours = f"{theirs['seconds_per_step'] / ours:6.1f} x private"
            print(
                f"  {label:28} {line}   {_mebibytes(theirs['peak_bytes'])}   {times_ours}",
                flush=True,
            )


def _peer(peer, network, batch, turns):
    return answer_of(peer, PEERS[peer][0], network.name, "--batch", batch, "--turns", turns)


def _mebibytes(count):
    return f"{count / 2**20:8.1f} MiB"


def run_ablation(network, batch, turns, peers):
    """Print a private step with and without jit and vmap."""
    turns = min(turns, 3)
    print(f"\n{network.name}: ablation, minibatch {batch}, {turns} turns", flush=True)
    compiled, key = programs(network.name), jax.random.key(1)
    steps = {
        "jit, auto": Steps(compiled["private"].step, network, batch, new_key()),
        "jit and vmap": Steps(compiled["naive"].step, network, batch, key),
        "vmap without jit": Steps(naive(network), network, batch, key, compiled=False),
        "jit without vmap": Steps(compiled["loop"].step, network, batch, new_key()),
        "neither": Steps(one_by_one(network), network, FEW_RECORDS, key, compiled=False),
    }
    slow = {name for name, contender in steps.items() if contender.fit()} - {"jit and vmap"}
    times = turns_of(steps, turns, once=slow)
    times = {name: contender.a_step(times[name]) for name, contender in steps.items()}
    times["neither"] = [value * batch / FEW_RECORDS for value in times["neither"]]
    for name, values in times.items():
        line = (
            f"{a_step(statistics.median(values))}   {ratio(values, times['jit and vmap']):7.2f} "
            "x jit and vmap"
        )
        print(f"  {name:28} {line}", flush=True)


def run_minibatches(network, batch, turns, peers):
    """Print the largest minibatch of every strategy."""
    print(f"\n{network.name}: largest minibatch within {MEMORY / 2**30:.0f} GiB", flush=True)
    found = {}
    for name, program in programs(network.name).items():
        if name in ("private, without noise", "loop", "naive"):
            continue
        found[name] = largest_minibatch(network, program)
        print(
            f"  {name:28} {found[name]:10,}   {found[name] / found['non-private']:6.3f} x "
            "non-private",
            flush=True,
        )


def largest_minibatch(network, program, limit=MEMORY):
    """Records whose step takes at most ``limit`` bytes: compiled, not run, for sizes guessed from
    the bytes of the last.
    """
    step, key = jax.jit(program.step, donate_argnums=0), program.key
    one = network.records(1)

    @functools.cache
    def needed(size):
        records = [jax.ShapeDtypeStruct((size, *array.shape[1:]), array.dtype) for array in one]
        return peak_bytes(step, jax.eval_shape(lambda: begun(network)), key, *records)

    fits, fails = 0, None
    size = 32
    while fails is None or fails - fits > max(1, fits // 50):
        if needed(size) <= limit:
            fits = size
        else:
            fails = size
        if fails == 1:
            return 0
        # 0.99: rather below, where two guesses end the search
        guess = int(0.99 * size * limit / needed(size))
        guess = min(max(guess, fits + max(1, fits // 60)), 64 * max(fits, 1))
        size = guess if fails is None or guess < fails else (fits + fails) // 2
    return fits


def run_foreign(names, batch, turns):
    """Print the ratio of clipped sums to plain gradients, and that of their compilations, of
    networks of other libraries.
    """
    from foreign import FOREIGN

    for name in names or FOREIGN:
        params, loss, records = FOREIGN[name]()
        arguments = params, tuple(map(jnp.asarray, records(batch)))
        times, compilations, _ = _sums_timed(loss, arguments, ["auto"], turns)
        line = (
            f"{a_step(statistics.median(times['plain']))}   "
            f"{ratio(times['auto'], times['plain']):7.2f} x plain"
        )
        print(
            f"  {name:28} {line}   compiled in "
            f"{compilations['auto'] / compilations['plain']:.1f} x",
            flush=True,
        )


def run_deep(names, batch, turns):
    """Print what "auto" takes beside the other strategies: time, bytes, compilation, and which
    strategy it is.
    """
    from deep import DEEP

    for name in names or DEEP:
        params, loss, records, usual = DEEP[name]()
        size = batch or usual
        arguments = params, tuple(map(jnp.asarray, records(size)))
        times, compilations, held = _sums_timed(
            loss, arguments, ["auto", "bookkeeping", "vmap"], turns
        )
        chosen = clipped_sum(loss, *arguments, jnp.ones(size, bool), 1.0, explain=True).strategy
        print(f"\n{name}: minibatch {size}; auto is {chosen}", flush=True)
        for kind, values in times.items():
            line = (
                f"{a_step(statistics.median(values))}   {ratio(values, times['plain']):7.2f} x "
                "plain"
            )
            compiled = f"compiled in {compilations[kind] / compilations['plain']:.1f} x"
            print(f"  {kind:28} {line}   {_mebibytes(held[kind])}   {compiled}", flush=True)


def _sums_timed(loss, arguments, strategies, turns):
    """({program: CPU seconds of each turn}, {program: CPU seconds to compile}, {program: temporary
    bytes}).
    """
    programs = {"plain": jax.grad(functools.partial(_mean_loss, loss))}
    programs |= {
        strategy: functools.partial(_clipped_sum, loss, strategy) for strategy in strategies
    }
    compiled, compilations = {}, {}
    for kind, program in programs.items():
        began = time.process_time()
        compiled[kind] = jax.jit(program).lower(*arguments).compile()
        compilations[kind] = time.process_time() - began
    held = {
        kind: program.memory_analysis().temp_size_in_bytes for kind, program in compiled.items()
    }
    for program in compiled.values():
        _cpu_seconds(program, arguments, 1)
    counts = {
        kind: max(1, round(0.1 / _cpu_seconds(program, arguments, 1)))
        for kind, program in compiled.items()
    }
    times = {kind: [] for kind in compiled}
    for turn in range(turns):
        for kind in list(compiled)[:: 1 if turn % 2 else -1]:
            times[kind].append(_cpu_seconds(compiled[kind], arguments, counts[kind]))
    return times, compilations, held


def _mean_loss(loss, params, records):
    return jax.vmap(loss, in_axes=(None, 0))(params, records).mean()


def _clipped_sum(loss, strategy, params, records):
    everyone = jnp.ones(len(records[1]), bool)
    return clipped_sum(loss, params, records, everyone, 1.0, strategy, num_records=ALL_RECORDS)[0]


def _cpu_seconds(program, arguments, count):
    began = time.process_time()
    for _ in range(count):
        jax.block_until_ready(program(*arguments))
    return (time.process_time() - began) / count


TABLES = {"steps": run_steps, "ablation": run_ablation, "minibatches": run_minibatches}


def main():
    """Print the tables asked for, of the networks asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", choices=[*NETWORKS, []], help="all by default")
    parser.add_argument(
        "--tables", nargs="+", choices=TABLES, default=list(TABLES), help="all by default"
    )
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--no-peers",
        action="store_true",
        help="without Opacus and jax_privacy, which are installed once",
    )
    parser.add_argument("--batch", type=int, help="size of the minibatch; 128 by default")
    parser.add_argument(
        "--foreign",
        nargs="*",
        metavar="NETWORK",
        help="networks of other libraries only; all by default",
    )
    parser.add_argument(
        "--deep",
        nargs="*",
        metavar="NETWORK",
        help="strategies on deep networks only; all by default",
    )
    arguments = parser.parse_args()
    print(here())
    if arguments.deep is not None:
        run_deep(arguments.deep, arguments.batch, arguments.turns)
        return
    if arguments.foreign is not None:
        run_foreign(arguments.foreign, arguments.batch or 128, arguments.turns)
        return
    for name in arguments.networks or NETWORKS:
        network = NETWORKS[name]
        for table in arguments.tables:
            TABLES[table](
                network, arguments.batch or network.batch, arguments.turns, not arguments.no_peers
            )


if __name__ == "__main__":
    main()
