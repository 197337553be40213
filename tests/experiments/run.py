"""The published experiments, and what the workbench reaches: ``make experiments``, or ``make
experiments FULL=1``.

    python run.py [hierarchical] [mixture] [autoencoder] [adult] [calibration] [clipping] [one_shot]
        [persons] [rule] [declared] [twins] [normal_table] [mixed_table] [survival] [nuisance]
        [--full]

Tables go to standard output and, with the figures, to runs/experiments.
"""

import argparse
import importlib
import time

from fits import OUT

EXPERIMENTS = (
    "hierarchical",
    "mixture",
    "autoencoder",
    "adult",
    "calibration",
    "clipping",
    "one_shot",
    "persons",
    "rule",
    "declared",
    "twins",
    "normal_table",
    "mixed_table",
    "chosen_marginals",
    "survival",
    "nuisance",
)


def main():
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiments", nargs="*", choices=[*EXPERIMENTS, []], help="all by default")
    parser.add_argument("--full", action="store_true", help="the papers' grids: an hour or more")
    arguments = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in arguments.experiments or EXPERIMENTS:
        began = time.perf_counter()
        importlib.import_module(name).main(arguments.full)
        print(f"({name}: {time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
