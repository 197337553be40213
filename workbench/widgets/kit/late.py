"""Widgets of which the page learns late. Each costs it about a millisecond before a
screen appears.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ipywidgets as widgets

__all__ = ["send", "unsent"]


class _Local(
    threading.local
):  # no ContextVar: callbacks that are scheduled meanwhile would keep its value
    is_unsent = False


_this_thread = _Local()  # other threads make widgets as usual
_send_one = widgets.Widget.open


def _open(widget: widgets.Widget) -> None:
    if not _this_thread.is_unsent:
        _send_one(widget)


widgets.Widget.open = _open  # ipywidgets has no other way: every widget is sent when it is made


@contextmanager
def unsent() -> Iterator[None]:
    """Make widgets that are in the kernel only, until ``send``. They can be read, changed and
    observed meanwhile.
    """
    before, _this_thread.is_unsent = _this_thread.is_unsent, True
    try:
        yield
    finally:
        _this_thread.is_unsent = before


def send(widget: widgets.Widget) -> None:
    """Send ``widget`` as it is now, and all that it shows, where the page does not know it yet."""
    for child in getattr(widget, "children", ()):
        send(child)
    for item in (getattr(widget, "style", None), widget.layout, widget):
        if isinstance(item, widgets.Widget) and item.comm is None:
            state = item.get_state()
            _send_one(item)
            if item.get_state() != state:  # another thread changed it before it could be told
                item.send_state()
