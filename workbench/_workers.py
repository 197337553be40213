"""What a process of a pool does before its first task; imports next to nothing, so that it is done at once."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading

__all__ = ["begin", "end_with_parent"]


def begin() -> None:
    """Leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


@functools.cache
def end_with_parent() -> None:
    """Have this process end when its parent does, which may be killed: it holds records, and would wait for ever.

    The parent has the other end of a pipe, which the operating system closes.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="dpvi-parent", daemon=True).start()
