"""Seconds and bytes a step of Opacus 1.6.0 on the networks of networks.py, beside a non-private
step of torch's own layers.

Runs in an environment of its own: ``environment.peer_python("opacus")`` names the interpreter.
Prints one JSON object. "hooks" forms every record's gradient, "ghost" takes norms without forming
them where Opacus knows how. All of them take turns in alternating order in one process. What a step
holds at most is measured in a process for each: how far the resident size rises above what it was
before there were a network and records. Opacus' own Poisson loader is left out, for a fixed
minibatch; its noise is torch's ordinary generator (``secure_mode`` needs a package that is no
longer released).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import opacus
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_networks import NETWORKS, minibatch

CLIP, NOISE_MULTIPLIER, LEARNING_RATE = 1.0, 1.0, 0.01
SLOW = 2.0  # seconds a step from which on one turn is enough
CONTENDERS = ("non-private", "hooks", "ghost")


def prepare(contender, name, batch):
    """A function that takes one step."""
    torch.manual_seed(0)
    x, y = minibatch(name, batch)
    model = NETWORKS[name](private=contender != "non-private")
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    criterion = nn.CrossEntropyLoss()
    if contender != "non-private":
        model, optimizer, criterion = made_private(model, optimizer, criterion, x, y, contender)

    def step():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        return model

    return step


def made_private(model, optimizer, criterion, x, y, mode):
    """What takes the place of the three in Opacus."""
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    options = {
        "noise_multiplier": NOISE_MULTIPLIER,
        "max_grad_norm": CLIP,
        "poisson_sampling": False,
    }
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        criterion=criterion,
        data_loader=loader,
        grad_sample_mode=mode,
        **options,
    )
    return made[0], made[1], made[2] if mode == "ghost" else criterion


def seconds(step, count):
    """Wall time of a turn of ``count`` steps."""
    began = time.perf_counter()
    for _ in range(count):
        step()
    return time.perf_counter() - began


def resident(largest):
    """Bytes of memory that this process has, or the most that it has had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith("VmHWM" if largest else "VmRSS"))
    return int(found.split()[1]) * 1024


def bytes_of(contender, name, batch):
    """Peak of a step, in this process."""
    before = resident(largest=False)
    step = prepare(contender, name, batch)
    for _ in range(3):
        step()
    return resident(largest=True) - before


def bytes_elsewhere(contender, options):
    """The same in a process of its own."""
    command = [
        sys.executable,
        __file__,
        options.network,
        "--batch",
        str(options.batch),
        "--bytes-of",
        contender,
    ]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main():
    """Take the turns and print the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="about what a turn takes")
    parser.add_argument("--bytes-of", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Opacus: no secure mode; torch: backward hooks that only fire for some inputs
    warnings.simplefilter("ignore")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if options.bytes_of:
        print(bytes_of(options.bytes_of, options.network, options.batch))
        return
    steps = {name: prepare(name, options.network, options.batch) for name in CONTENDERS}
    counts, slow = {}, set()
    for name, step in steps.items():
        step()
        a_step = seconds(step, 1)
        counts[name] = max(1, round(options.seconds / a_step))
        if a_step > SLOW and name != "non-private":
            slow.add(name)
    times = {name: [] for name in CONTENDERS}
    for turn in range(options.turns):
        for name in CONTENDERS[:: 1 if turn % 2 else -1]:
            if turn == 0 or name not in slow:
                times[name].append(seconds(steps[name], counts[name]) / counts[name])
    report = {
        "network": options.network,
        "batch": options.batch,
        "version": opacus.__version__,
        "torch": torch.__version__,
    }
    for name, step in steps.items():
        if not all(torch.isfinite(leaf).all() for leaf in step().parameters()):
            raise RuntimeError(
                "The parameters are no longer finite: the seconds would not mean anything."
            )
        report[name] = {
            "seconds_per_step": statistics.median(times[name]),
            "ratio": statistics.median(
                ours / other for ours, other in zip(times[name], times["non-private"], strict=False)
            ),
            "peak_bytes": bytes_elsewhere(name, options),
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
