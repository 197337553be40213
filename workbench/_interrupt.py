"""Ctrl-C in the shell's commands before anything is at stake; imports nothing that takes time, so that it can come first.

Python would raise KeyboardInterrupt wherever it is: in a module that is half imported, which fails in other words, or in a
callback of the garbage collector, where it is printed and forgotten, and the fit runs on and spends.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["leave", "leave_at_once", "sentence"]

STOPPED = 130  # exit code
_UNSPENT = {"fit": "; no epsilon spent", "resume": "; no further epsilon spent", "sweep": "; no epsilon spent"}


def sentence(command: str) -> str:
    """What is said of a command that was interrupted before it had anything to keep."""
    return f"workbench {command}".rstrip() + f": interrupted before there was a result{_UNSPENT.get(command, '')}."


def leave(*_: object) -> None:
    """The handler: end the process here and now."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    os.write(2, f"\n{sentence(command)}\n".encode("ascii", "backslashreplace"))
    os._exit(STOPPED)


def leave_at_once() -> None:
    """From here on Ctrl-C is ``leave``, unless it is ignored, as in a script's background, or another program's."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
