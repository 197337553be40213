"""Records at rest: what an epoch costs in memory, mapped, encrypted and oblivious, and how it grows
with the records.

An epoch is 1 / q steps of Poisson minibatches, each of M places, which are drawn, read, and brought
as arrays; no step is taken. Records are made up and written by the writer of ``pack``. Files lie in
``--folder``; the page cache of the system is not emptied, so times of files that fit into it are
those of decrypting and copying.

    python tests/benchmarks/storage.py --records 10000000
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import workbench as wb
from workbench.data.storage.facts import layout, public_facts
from workbench.data.storage.form import EVALUATION, TRAIN, Form, new_id
from workbench.data.storage.packing import _Writer

WIDTH = 24  # float32, and a target: 100 bytes
SCHEMA = wb.data.Schema({f"x{place + 1}": wb.data.Numeric(-1, 1) for place in range(WIDTH)})
FACTS = public_facts(
    wb.data.Dataset(
        "made up", "Made up.", (), (), SCHEMA.feature_names, "y", ("0", "1"), schema=SCHEMA
    )
)
RECORD = layout(FACTS)
KEY = bytes(32)  # of made-up records


def made(path, num_records, encrypt, block_size):
    """Write a file of made-up records."""
    per_block = block_size // RECORD.itemsize
    form = Form(
        new_id(), encrypt, RECORD, per_block, (-(-num_records // per_block), 1), FACTS
    ).with_room()
    guard = form.guard(KEY if encrypt else None)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    rng, train = (
        np.random.default_rng(0),
        _Writer(form.section(TRAIN, handle, path, guard), RECORD, per_block),
    )
    for start in range(0, num_records, 2**17):
        records = np.empty(min(2**17, num_records - start), RECORD)
        records["x"], records["y"] = rng.random((len(records), WIDTH), np.float32), 0
        train.add(records)
    train.end(form.blocks[0])
    _Writer(form.section(EVALUATION, handle, path, guard), RECORD, per_block).end(1)
    form.finish(handle, path, guard, {"records": (num_records, 1)})
    os.close(handle)


class Minibatches:
    """Poisson minibatches of made-up draws, without the device: all readings have the same."""

    name = "poisson"

    def __init__(self, num_records, rate, at_once):
        self.num_records, self.sampling_rate, self.at_once = num_records, rate, at_once
        expected = num_records * rate
        self.capacity = int(expected + 8 * np.sqrt(expected))

    def __call__(self, first):
        rng = np.random.default_rng(first)
        indices, mask = (np.zeros((self.at_once, self.capacity), kind) for kind in (np.int32, bool))
        for step in range(self.at_once):
            size = min(rng.binomial(self.num_records, self.sampling_rate), self.capacity)
            indices[step, :size] = np.sort(rng.integers(0, self.num_records, size))
            mask[step, :size] = True
        return indices, mask


def epoch(path, reading, minibatch, memory):
    """(seconds of opening, seconds of an epoch, largest memory of the process in MiB)."""
    began = time.perf_counter()
    key = path.parent / "key"
    key.write_bytes(KEY)
    loaded = "memory" if reading == "in memory" else reading
    data = wb.data.open(
        path, key_file=key if path.stem == "sealed" else None, reading=loaded, memory=memory
    )
    opening = time.perf_counter() - began
    num_records, size = data.num_train, RECORD.itemsize * minibatch
    draws = Minibatches(
        num_records,
        minibatch / num_records,
        max(1, min(200, 2**24 // size, int(memory * 2**24) // size)),
    )
    steps, began = round(num_records / minibatch), time.perf_counter()
    if reading == "in memory":
        for step in range(0, steps, draws.at_once):
            indices, _ = draws(step)
            _ = [array[indices.reshape(-1)] for array in data.train]
    else:
        for _ in data.stored.minibatches(("x", "y"), draws, 0, steps):
            pass
    seconds = time.perf_counter() - began
    return opening, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measured(path, repeats, *arguments):
    """``epoch`` in a process of its own, so that memory is its own: the quickest of some."""
    words = [sys.executable, __file__, "--one", str(path), *map(str, arguments)]
    runs = [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(repeats)
    ]
    return min(([float(word) for word in run] for run in runs), key=lambda run: run[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--minibatch", type=int, default=10_000)
    parser.add_argument("--memory", type=float, nargs="+", default=[1.0])
    parser.add_argument("--block-size", type=int, nargs="+", default=[2**18])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--at-rest",
        action="store_true",
        help="only what has not all in memory; ratios are to mapped",
    )
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        path, reading, minibatch, memory = given.one
        print(*epoch(Path(path), reading, int(minibatch), float(memory)))
        return
    print(
        "records    block  memory  reading                 opening   epoch  ratio  memory of the "
        "process"
    )
    for num_records in given.records:
        for block_size in given.block_size:
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                rows(Path(folder), num_records, block_size, given)


def rows(folder, num_records, block_size, given):
    clear, sealed = folder / "clear.wbr", folder / "sealed.wbr"
    made(clear, num_records, False, block_size)
    made(sealed, num_records, True, block_size)
    in_memory = 2.0 * num_records * RECORD.itemsize / 2**30 + 1 / 8
    cases = [
        ("in memory", clear, "in memory", in_memory),
        ("mapped, directly", clear, "direct", 1.0),
    ]
    cases += [("encrypted, one pass", sealed, "in memory", in_memory)]
    cases += [("encrypted, oblivious", sealed, "oblivious", memory) for memory in given.memory]
    cases = [case for case in cases if case[2] != "in memory" or not given.at_rest]
    base = None
    for name, path, reading, memory in cases:
        opening, seconds, most = measured(path, given.repeats, reading, given.minibatch, memory)
        total = seconds + (opening if name == "encrypted, one pass" else 0.0)
        base = base or seconds
        shown = f"{memory:6.3f}" if reading == "oblivious" else "      "
        print(
            f"{num_records:9d} {block_size // 2**10:4d}KiB {shown}  {name:22s} {opening:7.2f} s "
            f"{total:6.2f} s {total / base:5.1f} {most:8.0f} MiB",
            flush=True,
        )


if __name__ == "__main__":
    main()
