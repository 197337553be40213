"""``workbench release`` and ``workbench verify``: a folder for a reviewer, and its checks."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Literal

from workbench.cli.shell import (
    DONE,
    FAILED,
    UNUSABLE,
    Options,
    Parser,
    add_all,
    add_command,
    add_json,
    values_of,
    written,
)

__all__ = ["add"]

_CODES = {"passed": DONE, "failed": FAILED, "not checked": UNUSABLE}


_OF_A_RELEASE: Options = {
    "--describe": (
        "a .yaml file of what only you can say, for an entry in the Differential Privacy "
        "Deployments Registry; what it lacks is asked for and kept there",
        {"metavar": "FILE"},
    ),
    "--notebook": (
        "the notebook that made the result; only outputs that are labelled as covered or "
        "public data are put in",
        {"metavar": "FILE.ipynb"},
    ),
    "--sign": (
        "sign it with your Ed25519 key, made at its first use (package cryptography)",
        {"action": "store_true"},
    ),
}


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add ``release`` and ``verify`` to the command."""
    release = add_command(
        commands,
        "release",
        "write a saved result into a folder or zip that a reviewer can check",
        "It has the result, its statement, the claim level by level, the ledger's part, exact "
        "versions, digests of all files, and a script that recomputes epsilon without the "
        "workbench. Metrics that the guarantee does not cover are left out.",
    )
    release.add_argument("result", metavar="RESULT", help="folder that fit --out wrote")
    release.add_argument(
        "--out",
        metavar="FOLDER",
        required=True,
        help="folder to write, new or empty, or a new file that ends in .zip",
    )
    book = release.add_mutually_exclusive_group()
    book.add_argument(
        "--ledger",
        metavar="FILE",
        help="ledger that the fit was recorded in (default: $WORKBENCH_LEDGER, else yours)",
    )
    book.add_argument("--no-ledger", action="store_true", help="leave the ledger's part out")
    add_all(release, _OF_A_RELEASE)
    release.set_defaults(run=_release)
    verify = add_command(
        commands,
        "verify",
        "check a released folder or zip without the records",
        "Prints a line for each check. The exit code is 0 if all passed, 1 if one failed, and 2 "
        "if none failed but something could not be checked.",
    )
    verify.add_argument("folder", metavar="FOLDER", help="folder or zip of workbench release")
    verify.add_argument(
        "--signer",
        metavar="KEY",
        help="public key that the owner states, 64 hexadecimal digits; another one fails",
    )
    add_json(verify)
    verify.set_defaults(run=_verify)


def _release(arguments: argparse.Namespace) -> int:
    """``workbench release``; the exit code."""
    from workbench.releases import release
    from workbench.releases.description import ask

    book: str | Literal[False] | None = False if arguments.no_ledger else arguments.ledger
    if arguments.describe is not None:
        ask(Path(arguments.describe), input if sys.stdin.isatty() else None)
    options = values_of(arguments, _OF_A_RELEASE)
    folder = release(arguments.result, arguments.out, ledger=book, **options)
    print(f"Saved: {folder}", file=sys.stderr)
    return DONE


def _verify(arguments: argparse.Namespace) -> int:
    """``workbench verify``; the exit code."""
    from workbench.releases import verify

    answer = verify(arguments.folder, signer=arguments.signer)
    facts = [finding._asdict() for finding in answer]
    text = json.dumps({"status": answer.status, "checks": facts}) if arguments.json else str(answer)
    written(f"{text}\n", None)
    return _CODES[answer.status]
