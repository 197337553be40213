"""Memory of the processes that take the steps of one fit, of records in a file.

    python tests/benchmarks/processes.py --records 4000000 --processes 2 4

Records of 100 bytes are made up as for ``storage.py``. A row is a number of processes and a way of
reading: the highest memory of any of them, less that of the same fit of a small file, and the size
of the part of a process. All are on the CPUs of one machine, so the part on the device is in the
same memory.
"""

import argparse
import json
import resource
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from storage import RECORD, made

SMALL = 10_000  # records
SETTINGS = {
    "epsilon": 1.0,
    "delta": 1e-9,
    "iterations": 20,
    "batch_size": 500,
    "seed": 0,
    "ledger": False,
}


def fit(file, reading, place, count, port):
    """Take part in a fit, and print the highest memory of this process in bytes."""
    import jax

    import workbench as wb

    address = f"127.0.0.1:{port}"
    jax.distributed.initialize(address, int(count), int(place), coordinator_bind_address=address)
    data = wb.data.open(file, reading=reading, memory=1024)
    result = wb.fit(
        "logistic", data, **SETTINGS, execution=wb.Execution(devices="all", checkpoint=False)
    )
    assert result.status == "done", result.message
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def highest(file, reading, count):
    """The highest memory of ``count`` processes that fit together, in bytes."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    command = [sys.executable, __file__, "--fit", str(file), reading]
    processes = [
        subprocess.Popen(
            [*command, str(place), str(count), str(port)], stdout=subprocess.PIPE, text=True
        )
        for place in range(count)
    ]
    return max(json.loads(process.communicate()[0].splitlines()[-1]) for process in processes)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--fit", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        fit(*arguments.fit)
        return
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.wbr", Path(folder) / "large.wbr"
        for file, number in ((small, SMALL), (large, arguments.records)):
            made(file, number, False, 2**18)
        print(f"{arguments.records} records, {arguments.records * RECORD.itemsize / 1e9:.2f} GB")
        print("processes  reading  small, GB  records, GB  part, GB")
        for count in arguments.processes:
            for reading in ("memory", "direct"):
                least, most = (highest(file, reading, count) / 1e9 for file in (small, large))
                part = arguments.records * RECORD.itemsize / count / 1e9
                print(
                    f"{count:9}  {reading:7}  {least:9.2f}  {most - least:11.2f}  {part:8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
