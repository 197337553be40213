"""Background work of which only the newest request counts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from workbench.widgets.kit.threads import background

__all__ = ["Latest"]

T = TypeVar("T")

_PAUSE_SECONDS = 0.15


class _Request(NamedTuple):
    number: int
    work: Callable[[], Any]
    done: Callable[[Any], None]


class Latest:
    """A daemon thread that runs the newest request, for controls that change faster than their
    consequences are computed.

    A request starts when no newer one has come for ``pause`` seconds. A request that is replaced
    before it starts is dropped; the result of one that is replaced while it runs is discarded. Safe
    to use from any thread.

    :param name: of the thread.
    :param pause: in seconds.
    """

    def __init__(self, name: str = "dpvi-latest", pause: float = _PAUSE_SECONDS) -> None:
        self._name, self._pause = name, pause
        self._changed = threading.Condition()
        self._waiting: _Request | None = None
        self._running = False
        self._due = 0.0
        self._asked = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Call ``done(work())`` in the thread, unless a newer request comes first; return at once.

        An exception from ``work`` is passed to ``done``; one from ``done`` is logged. After
        ``close`` nothing happens.
        """
        with self._changed:
            if self._closed:
                return
            self._asked += 1
            self._waiting = _Request(self._asked, work, done)
            self._due = time.monotonic() + self._pause
            if self._thread is None:
                self._thread = background(self._serve, self._name, self.close)
            self._changed.notify_all()

    def drop(self) -> None:
        """Drop the present request, as if a newer one had come; return at once."""
        with self._changed:
            self._asked += 1
            self._waiting = None
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until no request waits or runs; return False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._waiting is None and not self._running, timeout
            )

    def close(self) -> None:
        """Drop a waiting request, and end the thread when the running one is over; return
        at once.
        """
        with self._changed:
            self._closed = True
            self._waiting = None
            self._changed.notify_all()

    def _serve(self) -> None:
        while (request := self._next()) is not None:
            try:
                self._run(request)
            except Exception:  # later requests must still be served
                logging.getLogger(__name__).exception("showing a result failed")
            finally:
                with self._changed:
                    self._running = False
                    self._changed.notify_all()

    def _next(self) -> _Request | None:
        """Wait for the newest request until its pause is over; return None when closed."""
        with self._changed:
            while not self._closed:
                delay = None if self._waiting is None else self._due - time.monotonic()
                if self._waiting is not None and delay is not None and delay <= 0:
                    request, self._waiting = self._waiting, None
                    self._running = True
                    return request
                self._changed.wait(delay)
            return None

    def _run(self, request: _Request) -> None:
        try:
            outcome = request.work()
        except Exception as error:
            outcome = error
        with self._changed:
            replaced = self._closed or request.number != self._asked
        if not replaced:
            request.done(outcome)
