"""Work off the main thread of which only the newest request counts."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from workbench.widgets._kit.threads import background

__all__ = ["Latest"]

T = TypeVar("T")

_PAUSE_SECONDS = 0.15


class _Request(NamedTuple):
    number: int
    work: Callable[[], Any]
    done: Callable[[Any], None]


class Latest:
    """Runs the newest request in one daemon thread, as controls that change faster than their consequences need it.

    A request waits until none has come for ``pause`` seconds; one that is replaced before it starts is dropped, and one that
    is replaced while it runs ends without its ``done`` being called. Safe to use from any thread.

    :param name: of the thread. :param pause: in seconds.
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
        """Have ``done(work())`` called in the thread, unless something newer is asked for first; returns at once.

        An exception that ``work`` raises is what ``done`` is given; one that ``done`` raises is logged. After ``close``
        nothing happens.
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
        """Forget what was asked for, as if something newer had been; returns at once."""
        with self._changed:
            self._asked += 1
            self._waiting = None
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is asked for and nothing runs; False after ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting is None and not self._running, timeout)

    def close(self) -> None:
        """Drop what waits, and end the thread when what it runs is over; returns at once."""
        with self._changed:
            self._closed = True
            self._waiting = None
            self._changed.notify_all()

    def _serve(self) -> None:
        while (request := self._next()) is not None:
            try:
                self._run(request)
            except Exception:  # the thread serves later requests
                logging.getLogger(__name__).exception("showing a result failed")
            finally:
                with self._changed:
                    self._running = False
                    self._changed.notify_all()

    def _next(self) -> _Request | None:
        """The newest request when its pause is over; None when closed."""
        with self._changed:
            while not self._closed:
                left = None if self._waiting is None else self._due - time.monotonic()
                if self._waiting is not None and left is not None and left <= 0:
                    request, self._waiting = self._waiting, None
                    self._running = True
                    return request
                self._changed.wait(left)
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
