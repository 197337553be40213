"""The ``workbench`` command: fit, resume, ledger, sweep, predict, sample, account, audit, models, data, lab, app.

Standard output carries results (with ``--json`` one object and nothing else), standard error progress and errors.
Exit codes: 0 done, 1 failed, 2 unusable arguments (one line), 130 stopped with the partial result kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from workbench import _interrupt
from workbench._validate import ArgumentError
from workbench.cli import account, audit, catalogue, fit, lab, release, sweep
from workbench.cli import ledger as ledger_commands
from workbench.cli.shell import (
    FAILED,
    STOPPED,
    UNUSABLE,
    in_options,
    parser,
    printable,
)

__all__ = ["main"]

COMMANDS = {
    "fit": fit.fit,
    "resume": fit.resume,
    "ledger": ledger_commands.ledger,
    "sweep": sweep.sweep,
    "account": account.account,
    "audit": audit.audit,
    "models": catalogue.models,
    "data": catalogue.data,
    "predict": release.predict,
    "sample": release.sample,
    "lab": lab.lab,
    "app": lab.app,
}


def _apart(words: list[str]) -> tuple[list[str], list[str]]:
    """The words of ``workbench app`` and what stands after its --, which argparse would take for the name of a page."""
    if words[:1] == ["app"] and "--" in words:
        place = words.index("--")
        return words[:place], words[place + 1 :]
    return words, []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if arguments is None:
        _interrupt.leave_at_once()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that has no letter for something shows its number
            stream.reconfigure(errors="backslashreplace")
    words, further = _apart(list(sys.argv[1:] if arguments is None else arguments))
    parsed = parser(COMMANDS).parse_args(words)
    if parsed.command == "app":
        parsed.voila = [*parsed.voila, *further]
    try:
        return int(parsed.run(parsed))
    except ArgumentError as error:
        message = printable(in_options(error))
    except KeyboardInterrupt:
        print(_interrupt.sentence(parsed.command), file=sys.stderr)
        return STOPPED
    except OSError as error:
        from workbench.ledger.ledger import LedgerError

        if not isinstance(error, LedgerError):
            raise
        print(f"workbench {parsed.command}: {printable(str(error))}", file=sys.stderr)
        return FAILED
    except ValueError as error:
        from workbench.inference import PrivacyModelError

        if not isinstance(error, PrivacyModelError):
            raise
        message = str(error)
    print(f"workbench {parsed.command}: {message}", file=sys.stderr)
    return UNUSABLE
