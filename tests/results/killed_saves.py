"""Run as a program: processes that save over an older result and are killed at random moments, and
two that race.

A process that has imported everything but started no JAX is forked for each. Arguments: how many,
and a number from which the moments follow. Prints one JSON object.
"""

import dataclasses
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import workbench as wb
from workbench.privacy.guarantee import Guarantee
from workbench.results import FitResult, HistoryPoint, prediction, storage  # noqa: F401 - imported before the fork

PROMISE = Guarantee(
    0.5,
    1e-4,
    "add_or_remove_one",
    "patient",
    "poisson",
    0.1,
    2.0,
    1.0,
    100,
    100,
    0.5,
    1000,
    "pld",
    0.0,
    0.0,
    True,
)

DATA = {
    **dict.fromkeys(("description", "licence", "source", "group"), ""),
    **{
        name: []
        for name in ("classes", "arrays", "feature_names", "groups", "declarations", "image_shape")
    },
    **{name: [] for name in ("record_shapes", "record_types")},
    **dict.fromkeys(("target_bounds", "schema")),
    "name": "clinic",
    "unit": "patient",
    "num_evaluation": 9,
    "target": "ill",
    "vocabulary_size": 0,
}
SETTINGS = {
    **dict.fromkeys(("seed", "devices")),
    **dict.fromkeys(("average", "evaluate_private"), False),
    "epsilon": 0.5,
    "delta": 1e-4,
    "iterations": 100,
    "sampling_rate": 0.1,
    "clip": 1.0,
    "num_records": 1000,
    "draws": 200,
    "learning_rate": 0.1,
    "estimator": "aligned",
    "device": "cpu:0",
}


def result_of(epsilon):
    """A result in which every number is its epsilon."""
    entry = np.full((3,), epsilon, np.float32)
    return FitResult(
        status="done",
        message="",
        guarantee=dataclasses.replace(PROMISE, epsilon=epsilon, epsilon_taken=epsilon),
        model="nobody's",
        model_options={},
        data=DATA,
        settings=SETTINGS,
        params={"w_loc": entry},
        draws={"w": np.full((200, 3), epsilon, np.float32)},
        coordinates={},
        history=(HistoryPoint(0, {"elbo": -epsilon}), HistoryPoint(100, {"elbo": epsilon})),
        metrics={"elbo": epsilon},
        metrics_label="public data",
        seconds=1.0,
        finished="",
    )


def epsilons_of(folder):
    loaded = wb.load(folder)
    numbers = {
        float(each)
        for part in (loaded.params, loaded.draws)
        for value in part.values()
        for each in np.unique(value)
    }
    return {loaded.guarantee.epsilon, loaded.metrics["elbo"], *numbers}


def child(work):
    number = os.fork()
    if not number:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return number


def save_often(folder, epsilon, count):
    for _ in range(count):
        result_of(epsilon).save(folder)


def main(count, seed):
    moments, folder = random.Random(seed), Path(tempfile.mkdtemp())
    report = {"killed": 0, "old": 0, "new": 0, "mixtures": [], "loads_while_two_write": 0}
    began = time.monotonic()
    result_of(0.5).save(folder)
    seconds = time.monotonic() - began
    for _ in range(count):
        result_of(0.5).save(folder)
        number = child(lambda: save_often(folder, 8.0, 1))
        time.sleep(moments.uniform(0.0, seconds))
        os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        report["killed"] += os.WIFSIGNALED(status)
        found = epsilons_of(folder)
        if len(found) > 1:
            report["mixtures"].append(sorted(found))
        report["new" if 8.0 in found else "old"] += 1
    writers = [
        child(lambda epsilon=epsilon: save_often(folder, epsilon, 10)) for epsilon in (0.5, 8.0)
    ]
    running = set(writers)
    while running:
        found = epsilons_of(folder)
        if len(found) > 1:
            report["mixtures"].append(sorted(found))
        report["loads_while_two_write"] += 1
        for number in list(running):
            ended, status = os.waitpid(number, os.WNOHANG)
            if ended:
                assert status == 0
                running.discard(number)
    result_of(2.0).save(folder)
    assert epsilons_of(folder) == {2.0}
    assert len(list(folder.iterdir())) == 5
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
