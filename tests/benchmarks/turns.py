"""How the benchmarks take time: contenders take turns in alternating order, peers answer from
environments of their own.

Needs jax only, for a peer imports it too.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import jax

__all__ = ["a_step", "answer_of", "here", "ratio", "seconds", "turns_of"]

PEERS = Path(__file__).resolve().parent / "peers"


def seconds(contender):
    """Wall time of one turn."""
    began = time.perf_counter()
    jax.block_until_ready(contender())
    return time.perf_counter() - began


def turns_of(contenders, count, once=()):
    """Seconds of ``count`` turns of each contender; those named in ``once`` take part in the first
    only.
    """
    times = {name: [] for name in contenders}
    for turn in range(count):
        for name in list(contenders)[:: 1 if turn % 2 else -1]:
            if turn == 0 or name not in once:
                times[name].append(seconds(contenders[name]))
    return times


def ratio(times, others):
    """Median of the ratios within turns, those from the first on that both took part in."""
    return statistics.median(ours / theirs for ours, theirs in zip(times, others, strict=False))


def a_step(value):
    """Seconds, as milliseconds or microseconds."""
    return f"{value * 1e3:9.3f} ms" if value > 1e-3 else f"{value * 1e6:9.2f} us"


def here():
    """One line about the machine."""
    device = jax.devices()[0]
    where = (
        f"{len(os.sched_getaffinity(0))} core(s)"
        if device.platform == "cpu"
        else device.device_kind
    )
    return (
        f"{where}, jax {jax.__version__}, Python {sys.version.split()[0]}, load "
        f"{os.getloadavg()[0]:.1f}"
    )


def answer_of(peer, script, *arguments):
    """What a script of ``peers`` prints as JSON, run in that peer's environment."""
    from peers.environment import peer_python

    command = [str(peer_python(peer)), str(PEERS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
