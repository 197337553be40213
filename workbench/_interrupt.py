"""Ctrl-C in the shell's commands before there is anything to lose. Imports nothing slow, so that it
can run first.

Python would raise KeyboardInterrupt at any point: in a half-imported module, which then fails with
another error, or in a callback of the garbage collector, where it is printed and ignored, and the
fit runs on and spends.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["leave", "leave_at_once", "sentence"]

STOPPED = 130  # exit code
_UNSPENT = {
    "fit": "; no epsilon spent",
    "resume": "; no further epsilon spent",
    "sweep": "; no epsilon spent",
}


def sentence(command: str) -> str:
    """The message of a command that was interrupted before it had a result."""
    return (
        f"workbench {command}".rstrip()
        + f": interrupted before there was a result{_UNSPENT.get(command, '')}."
    )


def leave(*_: object) -> None:
    """The signal handler: end the process immediately."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    os.write(2, f"\n{sentence(command)}\n".encode("ascii", "backslashreplace"))
    os._exit(STOPPED)


def leave_at_once() -> None:
    """Make ``leave`` the handler of Ctrl-C, unless it is ignored, as in background jobs, or handled
    by another program.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
