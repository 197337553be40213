"""Accuracy of a network trained with Opacus on what accuracy.py wrote to a file: records, and the
weights to start from.

Runs in the environment of opacus_steps.py. Prints one JSON object: accuracy before and after,
Opacus' own epsilon, and seconds a step.
"""

import argparse
import json
import math
import os
import time
import warnings

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch_networks import NETWORKS


def accuracy(model, x, y):
    """Share of the records whose class has the largest logit."""
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def train(model, loader, options):
    """Take the steps; returns the engine, which knows epsilon, and seconds a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)
    engine = PrivacyEngine(accountant="prv")
    noise = {"noise_multiplier": options.noise_multiplier, "max_grad_norm": options.clip}
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, **noise
    )
    criterion = nn.CrossEntropyLoss()
    taken = 0
    began = time.perf_counter()
    while taken < options.steps:
        for x, y in loader:
            optimizer.zero_grad()
            criterion(private(x), y).backward()
            optimizer.step()
            taken += 1
            if taken == options.steps:
                break
    return engine, (time.perf_counter() - began) / taken


def main():
    """Train and print the JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("file")
    for name in ("noise-multiplier", "clip", "learning-rate", "delta"):
        parser.add_argument(f"--{name}", type=float, required=True)
    for name in ("minibatches", "steps", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # no secure mode; backward hooks that only fire for some inputs
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(options.seed)
    held = {name: torch.from_numpy(array) for name, array in np.load(options.file).items()}
    model = NETWORKS[options.network](private=True)
    with torch.no_grad():
        for place, parameter in enumerate(model.parameters()):
            parameter.copy_(held[f"p{place}"])
    test = held["test_x"], held["test_y"].long()
    before = accuracy(model, *test)
    records = TensorDataset(held["x"], held["y"].long())
    loader = DataLoader(records, batch_size=math.ceil(len(records) / options.minibatches))
    if len(loader) != options.minibatches:
        raise RuntimeError(
            f"Opacus would sample at rate 1/{len(loader)}, not 1/{options.minibatches}."
        )
    engine, seconds = train(model, loader, options)
    report = {
        "before": before,
        "accuracy": accuracy(model.eval(), *test),
        "epsilon": engine.get_epsilon(options.delta),
    }
    print(json.dumps({**report, "seconds_per_step": seconds}))


if __name__ == "__main__":
    main()
