"""Run as a program: processes that write into one ledger and are killed at random moments.

Arguments: the ledger's file, how many, and a number from which the moments follow. Prints one JSON
object. After each kill the ledger holds whatever the process had said it had written, and at most
one thing that it did not come to say.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))

from promises import promise

from workbench.ledger.ledger import DatasetId, Ledger

FIT = promise(0.2)
CLINIC = DatasetId("clinic", "patient", lambda key: f"{'clinic':0<32}")


def write_for_ever(book, said):
    while True:
        (key,) = book.reserve(CLINIC, [FIT], model="logistic")
        os.write(said, f"reserved {key}\n".encode())
        book.mark([key], 100)
        os.write(said, f"marked {key}\n".encode())
        book.settle(key, 90)
        os.write(said, f"settled {key}\n".encode())


def killed(book, seconds):
    """What a writer had said, in order, when it was killed."""
    reader, said = os.pipe()
    child = os.fork()
    if not child:
        write_for_ever(book, said)
    os.close(said)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader) as lines:
        return [line.split() for line in lines.read().split("\n")[:-1]]


def stage(spend):
    """What was last written of a fit."""
    return "settled" if spend.status == "settled" else "marked" if spend.reached else "reserved"


def main(path, count, seed):
    moments, book = random.Random(seed), Ledger(path)
    book.reserve(CLINIC, [FIT], model="logistic")
    stages = ("reserved", "marked", "settled")
    report = {"fits": 0, "unsaid": 0, "recovered": 0}
    for _ in range(count):
        known = {spend.key for spend in book.spends()}
        said = {key: what for what, key in killed(book, moments.uniform(0.0, 0.2))}
        spends = {spend.key: spend for spend in book.spends() if spend.key not in known}
        assert said.keys() <= spends.keys(), "a spend was lost"
        unsaid = [
            stages.index(stage(spend)) - stages.index(said[key]) if key in said else 1
            for key, spend in spends.items()
        ]
        assert all(ahead >= 0 for ahead in unsaid), "a write was lost"
        assert sum(unsaid) <= 1, "something was written twice"
        for spend in spends.values():
            assert spend.counted == (90 if stage(spend) == "settled" else FIT.steps)
        report["fits"] += len(spends)
        report["unsaid"] += sum(unsaid)
        if moments.random() < 0.5:
            for spend in book.recover():
                assert spend.counted == spend.reached
                report["recovered"] += 1
    assert len({spend.key for spend in book.spends()}) == len(book.spends()) == report["fits"] + 1
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
