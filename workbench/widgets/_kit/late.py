"""Widgets of which the page learns late. Each costs it about a millisecond before a screen appears."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import ipywidgets as widgets

__all__ = ["send", "unsent"]

_is_unsent = ContextVar("unsent", default=False)  # of one thread: others make widgets as usual
_send_one = widgets.Widget.open


def _open(widget: Any) -> None:
    if not _is_unsent.get():
        _send_one(widget)


widgets.Widget.open = _open  # ipywidgets has no other way: every widget is sent when it is made


@contextmanager
def unsent() -> Iterator[None]:
    """Make widgets that are in the kernel only, until ``send``. They can be read, changed and observed meanwhile."""
    token = _is_unsent.set(True)
    try:
        yield
    finally:
        _is_unsent.reset(token)


def send(widget: Any) -> None:
    """Send ``widget`` as it is now, and all that it shows, where the page does not know it yet."""
    for child in getattr(widget, "children", ()):
        send(child)
    for part in (getattr(widget, "style", None), widget.layout, widget):
        if isinstance(part, widgets.Widget) and part.comm is None:
            state = part.get_state()
            _send_one(part)
            if part.get_state() != state:  # another thread changed it before it could be told
                part.send_state()
