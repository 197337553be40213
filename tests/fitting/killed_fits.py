"""Run as a program: fits that are killed at random moments and gone on with, each in a process of
its own.

A process that has imported everything but started no JAX is forked for each fit, so that fifty take
minutes. Arguments: how many, and a number from which the moments follow. Prints one JSON object;
``WORKBENCH_STATE`` is its folder.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pandas as pd

import workbench as wb
from workbench.fitting import checkpoints, resuming  # noqa: F401 - imported before the fork
from workbench.ledger.ledger import Ledger
from workbench.results import prediction, storage  # noqa: F401

ITERATIONS = 400_000
SECONDS = 2.0  # less than the steps take

checkpoints.SECONDS = 0.2  # many of them


def dataset():
    random_numbers = np.random.default_rng(3)
    dose, age = random_numbers.uniform(0, 200, 240), random_numbers.uniform(0, 100, 240)
    ill = random_numbers.random(240) < 1 / (1 + np.exp((dose - 100) / 20))
    frame = pd.DataFrame({"dose": dose, "age": age, "ill": ill})
    return wb.data.from_frame(
        frame, target="ill", bounds={"dose": (0, 200), "age": (0, 100)}, name="clinic"
    )


def in_a_child(work):
    """Fork; the child writes what ``work`` returns into a file and ends. Returns its process and
    the file.
    """
    place = Path(os.environ["WORKBENCH_STATE"]) / f"answer-{time.monotonic_ns()}.json"
    child = os.fork()
    if not child:
        try:
            place.write_text(json.dumps(work()))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child, place


def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def answer(child, place):
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    return json.loads(place.read_text())


def values(result):
    assert result.status == "done", result.message
    return {name: np.asarray(array).tolist() for name, array in sorted(result.params.items())}


def fit(data):
    return wb.fit(
        "logistic", data, epsilon=1.0, delta=1e-4, iterations=ITERATIONS, sampling_rate=0.1, seed=5
    )


def main(count, seed):
    moments, data, book = random.Random(seed), dataset(), Ledger()
    whole = answer(*in_a_child(lambda: values(fit(data))))
    report = {"equal": 0, "resumed_from": [], "killed_before_it_began": 0, "ended_before": 0}
    for _ in range(count):
        known = {spend.key for spend in book.spends()}
        child, _ = in_a_child(lambda: values(fit(data)))
        if moments.random() < 0.85:  # most of them in their steps, the others anywhere
            wait_for(
                lambda known=known: any(
                    spend.reached for spend in book.spends() if spend.key not in known
                )
            )
        time.sleep(moments.uniform(0.0, SECONDS))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        spends = book.spends()
        new = [spend for spend in spends if spend.key not in known]
        assert len(spends) == len(known) + len(new)
        assert len(new) <= 1
        assert all(spend.counted == ITERATIONS for spend in spends if spend.status == "reserved")
        if not new:
            report["killed_before_it_began"] += 1
            continue
        (spend,) = new
        if spend.status == "settled":
            report["ended_before"] += 1
            continue
        if moments.random() < 0.5:
            assert spend.key in [each.key for each in book.recover()]
            assert book.spend(spend.key).counted == spend.reached
        folder = Path(spend.run)
        if not list(folder.glob("step-*.npz")):
            assert spend.reached == 0  # no step may have run
            report["killed_before_it_began"] += 1
            continue
        step = checkpoints.newest(folder).facts["step"]
        assert step <= spend.reached
        resumed = answer(*in_a_child(lambda folder=folder: values(wb.resume(folder, data=data))))
        assert resumed == whole, step
        report["equal"] += 1
        report["resumed_from"].append(step)
        after = book.spend(spend.key)
        assert (after.status, after.counted) == ("settled", ITERATIONS)
        assert len(book.spends()) == len(spends)
    book.recover()
    report["states"] = sorted({spend.status for spend in book.spends()})
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
