"""The sweep of figure 4 of the paper of d3p: 6 levels of epsilon x 10 seeds x 100 000 steps, N =
500, q = .1.

    python sweep.py [--no-peers] [--turns K] [--steps T]

Each turn is a process of its own, so that it imports, calibrates and compiles as a user's first
sweep does; the folder of calibrated numbers is empty. d3p's time is its seconds a step on one core
times the number of steps, divided by the number of cores, as if that many of its fits ran side by
side at full speed; compiling each is not counted. (On two cores one of its fits takes several times
as long as on one.)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EPSILONS, SEEDS, RECORDS, RATE = (0.25, 0.5, 1, 2, 4, 8), range(10), 500, 0.1


def turn(steps):
    """Print what a sweep took, as JSON, and how good its fits are."""
    began = time.perf_counter()
    import workbench as wb
    from workbench.sweeps import sweeping

    imported = time.perf_counter()
    prepared = sweeping.prepare(
        "hierarchical_logistic",
        wb.data.hierarchical,
        epsilons=EPSILONS,
        seeds=SEEDS,
        iterations=steps,
        num_records=RECORDS,
        sampling_rates=RATE,
        delta=1 / RECORDS,
    )
    ready = time.perf_counter()
    result = prepared.run()
    ended = time.perf_counter()
    table = result.table
    assert set(table["status"]) == {"done"}, table["message"].tolist()
    found = {
        "imports": imported - began,
        "checking and calibrating": ready - imported,
        "fits": ended - ready,
        "of these stepping": float(table["seconds"].sum()),
        "in all": ended - began,
    }
    print(
        json.dumps(
            {"seconds": found, "auc": table.groupby("epsilon")["auc"].mean().round(4).to_dict()}
        )
    )


def main():
    """Turns of ours in fresh processes, then d3p."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-peers", action="store_true", help="without d3p")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--turn", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.turn:
        turn(arguments.steps)
        return
    answers = []
    command = [sys.executable, __file__, "--turn", "--steps", str(arguments.steps)]
    for _ in range(arguments.turns):
        with tempfile.TemporaryDirectory() as empty:
            environment = {**os.environ, "WORKBENCH_CACHE": empty}
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            )
        answers.append(json.loads(done.stdout))
    fits = len(EPSILONS) * len(SEEDS)
    cores = len(os.sched_getaffinity(0))
    print(
        f"{fits} fits of {arguments.steps:,} steps, {cores} core(s), load "
        f"{os.getloadavg()[0]:.1f}, median of {arguments.turns} turns"
    )
    for name in answers[0]["seconds"]:
        values = [answer["seconds"][name] for answer in answers]
        print(
            f"  {name:28} {statistics.median(values):7.1f} s   ({min(values):.1f} to "
            f"{max(values):.1f})"
        )
    print(f"  mean AUC by epsilon: {answers[0]['auc']}")
    if not arguments.no_peers:
        sys.path.insert(0, str(Path(__file__).parent))
        from speed import d3p

        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        ours = statistics.median(answer["seconds"]["in all"] for answer in answers)
        for name, options in (("d3p", []), ("d3p, Poisson stand-in", ["--sampler", "poisson"])):
            theirs = d3p(["hierarchical", *options]) * fits * arguments.steps / cores
            print(f"  {name:28} {theirs:7.1f} s   {theirs / ours:.1f} x ours")


if __name__ == "__main__":
    main()
