"""The first actions of a pool's process. Imports almost nothing, so that they
happen immediately.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading

__all__ = ["begin", "end_with_parent"]


def begin() -> None:
    """Leave Ctrl-C to the parent process, and end when it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


@functools.cache
def end_with_parent() -> None:
    """End this process when its parent ends, even if it is killed. It holds records, and would
    otherwise wait for ever.

    The parent has the other end of a pipe, which the operating system closes.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="dpvi-parent", daemon=True).start()
