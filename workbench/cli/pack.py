"""``workbench pack``: a table becomes a file of records, which fits may read while they run."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from workbench.cli.shell import (
    DONE,
    Options,
    Parser,
    add_all,
    add_command,
    check_out,
    number,
    values_of,
    words,
)
from workbench.cli.table import RECORDS, add_table, table_options

__all__ = ["add"]

_OF_A_FILE: Options = {
    "path": ("a CSV, Parquet or NumPy (.npz) file", {"metavar": "TABLE"}),
    "--out": (
        f"the file to write (default: beside the table, with suffix {RECORDS})",
        {"metavar": "FILE"},
    ),
    "--encrypt": (
        "encrypt each block by AES-256-GCM (package cryptography)",
        {"action": "store_true"},
    ),
}
_OF_BLOCKS: Options = {
    "--block-size": (
        "size of a block, from 65536 to 1048576 (default: 262144)",
        {"type": number, "default": 2**18, "metavar": "BYTES"},
    ),
    "--capacity": (
        "public number of training records that the file has room for, so that its size does "
        "not reveal how many there are",
        {"type": number, "metavar": "N"},
    ),
    "--evaluation": (
        "file of evaluation records, instead of a share of TABLE",
        {"metavar": "TABLE"},
    ),
    "--name": ("name of the data set (default: the file's name)", {"type": words}),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``pack`` to the command."""
    pack = add_command(
        commands,
        "pack",
        f"write a table to a {RECORDS} file, for tables larger than memory, encrypted if asked",
        "The table is read part by part. The file appears when it is complete. The names of "
        "columns, bounds and all other declarations are not encrypted.",
    )
    add_all(pack, _OF_A_FILE)
    key = pack.add_mutually_exclusive_group()
    key.add_argument(
        "--key-file",
        metavar="FILE",
        help="file with the key, created if there is none; without the key the records are lost",
    )
    key.add_argument(
        "--keyring",
        metavar="NAME",
        help="name of the key in the system's keyring (package keyring)",
    )
    add_all(pack, _OF_BLOCKS)
    add_table(pack, pack)
    pack.set_defaults(run=_pack)


def _pack(arguments: argparse.Namespace) -> int:
    """``workbench pack``; the exit code."""
    from workbench import data
    from workbench.ledger.fingerprint import fingerprint

    def fingerprints(dataset: Any) -> dict[str, str]:
        fingerprint(dataset)
        return dict(dataset.stored.fingerprints)

    out = (
        f"{os.path.splitext(arguments.path)[0]}{RECORDS}"
        if arguments.out is None
        else arguments.out
    )
    check_out(out)
    named = {} if arguments.name is None else {"name": arguments.name}
    plain = ("encrypt", "key_file", "keyring", "block_size", "capacity", "evaluation")
    written = data.pack(
        arguments.path,
        out,
        **values_of(arguments, plain),
        **table_options(arguments),
        **named,
        fingerprints=fingerprints,
    )
    sys.stderr.write(f"Saved: {written}\n")
    return DONE
