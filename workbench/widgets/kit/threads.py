"""Background threads that end before the interpreter does. A thread killed inside compiled code
would abort the process.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable

__all__ = ["Stoppable", "background"]

_PATIENCE = 60.0  # seconds for all threads together to end
_running: dict[threading.Thread, Callable[[], None]] = {}


def background(
    work: Callable[[], None], name: str, stop: Callable[[], None] = lambda: None
) -> threading.Thread:
    """Start ``work`` in a daemon thread called ``name``, and return the thread.

    :param stop: called when the interpreter ends, to make ``work`` end; it must return quickly.
    """

    def run() -> None:
        try:
            work()
        finally:
            # ``stop`` may keep large objects alive
            _running[threading.current_thread()] = lambda: None

    for ended in [
        thread for thread in list(_running) if thread.ident is not None and not thread.is_alive()
    ]:
        _running.pop(ended, None)
    thread = threading.Thread(target=run, name=name, daemon=True)
    _running[thread] = stop
    thread.start()
    return thread


class Stoppable:
    """Work in a background thread that other threads can stop and wait for."""

    def __init__(self) -> None:
        self._stop, self._ended = threading.Event(), threading.Event()

    def _launch(self, work: Callable[[], None], name: str) -> None:
        """Start ``work`` in a thread called ``name``."""
        self._stop.clear()
        self._ended.clear()

        def run() -> None:
            try:
                work()
            finally:
                self._ended.set()

        background(run, name, self.stop)

    def stop(self) -> None:
        """Ask the work to end early and keep its results; return at once."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()

    @property
    def ended(self) -> bool:
        """Whether the work is over, successful or not."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return False after ``timeout`` seconds."""
        return self._ended.wait(timeout)


@atexit.register
def _end_all() -> None:
    """Stop and join all threads, including those that start meanwhile and those whose work
    is over.
    """
    deadline = time.monotonic() + _PATIENCE
    while (
        alive := [(thread, stop) for thread, stop in list(_running.items()) if thread.is_alive()]
    ) and (time.monotonic() < deadline):
        for _, stop in alive:
            stop()
        for thread, _ in alive:
            thread.join(max(0.0, deadline - time.monotonic()))
