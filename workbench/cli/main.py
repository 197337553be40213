"""The ``workbench`` command: fit, resume, choose, look, evaluate, owners, pack, ledger, sweep,
predict, sample, release, verify, account, audit, models, data, lab, app.

Results go to standard output (with ``--json`` as one object), progress and errors to standard
error. Exit codes: 0 done, 1 failed, 2 unusable arguments (one line), 130 stopped with the partial
result kept.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Sequence

from workbench import __version__, _interrupt
from workbench._validate import ArgumentError, printable
from workbench.cli import (
    account,
    audit,
    catalogue,
    choose,
    evaluate,
    fit,
    lab,
    ledger,
    look,
    owners,
    pack,
    processes,
    release,
    review,
    sweep,
)
from workbench.cli.shell import FAILED, STOPPED, UNUSABLE, Parser, in_options

__all__ = ["main", "parser"]


def parser() -> Parser:
    """The parser of the command line; the action of a command is its argument ``run``."""
    top = Parser(
        prog="workbench",
        description="Differentially private variational inference. For the options of a command: "
        "workbench COMMAND --help.",
    )
    top.add_argument("--version", action="version", version=f"workbench {__version__}")
    commands = top.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND", parser_class=Parser
    )
    of_records = (fit, choose, look, evaluate, owners, pack, ledger, sweep)
    for module in (*of_records, release, review, account, audit, catalogue, lab):
        module.add(commands)
    return top


def _apart(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of ``workbench app``, and those after its --, which argparse would take for the
    name of a page.
    """
    if words[:1] == ["app"] and "--" in words:
        position = words.index("--")
        return words[:position], words[position + 1 :]
    return words, []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is None:
        _interrupt.leave_at_once()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(
            stream, "reconfigure"
        ):  # a terminal shows the number of a letter that it does not have
            stream.reconfigure(errors="backslashreplace")
    words, further = _apart(list(sys.argv[1:] if arguments is None else arguments))
    parsed = parser().parse_args(words)
    if parsed.command == "app":
        parsed.voila = [*parsed.voila, *further]
    return processes.end(_carried_out(parsed))


def _carried_out(parsed: argparse.Namespace) -> int:
    """Do what a command asks for; the exit code. Errors that have a sentence are printed as one."""
    code = FAILED
    try:
        done = int(parsed.run(parsed))
        sys.stdout.flush()  # here a closed pipe or a full disk can still be said
        return done
    except ArgumentError as error:
        message, code = printable(in_options(error)), UNUSABLE
    except KeyboardInterrupt:
        print(_interrupt.sentence(parsed.command), file=sys.stderr)
        return STOPPED
    except OSError as error:
        from workbench.data.storage.blocks import RecordsError
        from workbench.ledger.ledger import LedgerError

        if isinstance(error, LedgerError | RecordsError):
            reason = str(error)
        elif (
            error.filename is not None and error.strerror is not None
        ):  # a file that this user may not use, a full disk
            reason = f"{error.filename}: {error.strerror}."
        elif error.errno in (errno.EPIPE, errno.ENOSPC):  # files have names
            _drop_output()
            reason = f"cannot write to standard output: {error.strerror}."
        else:
            raise
        message = printable(reason)
    except (RuntimeError, AssertionError) as error:  # JAX asserts that it has a device
        from workbench.inference.processes import ProcessError

        reason = str(error) if isinstance(error, ProcessError) else _why_no_device()
        if not reason:
            raise
        message = printable(reason)
    except ValueError as error:
        from workbench.clipping import PrivacyModelError

        if not isinstance(error, PrivacyModelError):
            raise
        message, code = str(error), UNUSABLE
    print(f"workbench {parsed.command}: {message}", file=sys.stderr)
    return code


def _drop_output() -> None:
    """Let standard output, which takes nothing more, lose the rest, so that Python can end without
    an error.
    """
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _why_no_device() -> str:
    """Why JAX starts no device; "" if it does."""
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0].rstrip(".") or "there is none"
        return (
            f"JAX starts no device of JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')!r}: {reason}."
        )
    return ""
