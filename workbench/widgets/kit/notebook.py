"""The notebook around a screen: its variables, and static output that stays in it when widgets do
not.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from IPython import get_ipython
from IPython.display import HTML, DisplayHandle

from workbench.widgets.kit import markup

if TYPE_CHECKING:
    from ipywidgets import Widget

    from workbench.widgets.kit.base import Screen

__all__ = ["NotebookOutput", "Successions", "complete_for_voila", "namespace", "when_replaced"]

_VOILA_SECONDS = 30.0


def namespace() -> Mapping[str, Any]:
    """The notebook's variables; none outside a notebook."""
    shell = get_ipython()
    return {} if shell is None else shell.user_ns


class Cell(NamedTuple):
    """A notebook cell that is running.

    :param identity: what the front end calls the cell, or its code where the front end does not
        say; "" if neither is known.
    :param is_named: whether the front end has named it. Two cells can have the same code.
    :param execution: number of this execution.
    """

    identity: str
    is_named: bool
    execution: int


def running_cell() -> Cell:
    """The notebook cell that is running."""
    shell = get_ipython()
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    name = str(parent.get("metadata", {}).get("cellId", ""))
    return Cell(
        name or str(parent.get("content", {}).get("code", "")),
        bool(name),
        getattr(shell, "execution_count", 0),
    )


class Successions:
    """Which screen of a cell's earlier execution a new screen of that cell replaces. Screens are
    not kept alive.
    """

    def __init__(self) -> None:
        self._cells: dict[str, tuple[int, list[weakref.ref[Any]], list[weakref.ref[Any]]]] = {}

    def predecessor(self, screen: Screen) -> Any:
        """The screen that ``screen``, displayed now, replaces; None if there is none. The first
        replaces the first.
        """
        cell, _, execution = running_cell()
        if not cell:
            return None
        number, before, now = self._cells.get(cell, (execution, [], []))
        if number != execution:
            before, now = now, []
        shown = [reference() for reference in before]
        predecessor = next((old for old in shown if type(old) is type(screen)), None)
        if screen in shown:  # the same screen again
            predecessor = None
        elif predecessor is not None:
            before = [
                weakref.ref(old) for old in shown if old is not None and old is not predecessor
            ]
        self._cells[cell] = execution, before, [*now, weakref.ref(screen)]
        return predecessor


def when_replaced(view: Widget, act: Callable[[], None]) -> None:
    """Call ``act()`` when no page shows ``view`` any longer, whose cell seems to have run again.

    At once, if the front end has named the running cell, or if no page shows it now. Else another
    cell with the same code may be the one that runs.

    :param view: a widget that counts its views.
    """
    if running_cell().is_named or view.comm is None or not view._view_count:
        act()
        return

    def gone(change: Mapping[str, Any]) -> None:
        if not change["new"]:
            view.unobserve(gone, names="_view_count")
            act()

    view.observe(gone, names="_view_count")


def complete_for_voila(wait: Callable[[float], object]) -> None:
    """Under Voilà, call ``wait(seconds)`` until nothing is being computed; do nothing elsewhere.

    Voilà's page connects to the kernel only after all cells have run, and misses changes before
    that.
    """
    if "VOILA_REQUEST_URL" in os.environ:
        wait(_VOILA_SECONDS)


class NotebookOutput:
    """Static output under a widget, in each cell that shows the widget."""

    def __init__(self) -> None:
        self._html = ""
        self._handles: list[Any] = []

    @property
    def content(self) -> HTML:
        """The present output."""
        return HTML(self._html)

    def add(self, handle: DisplayHandle) -> None:
        """Keep a display of ``content`` up to date, by the handle that ``display`` returned
        for it.
        """
        self._handles.append(handle)

    def write(self, summary: str, body: str) -> None:
        """Show ``body`` (HTML) in all displays, folded under a line that begins with "Kept in this
        notebook".
        """
        folded = markup.fold(f"Kept in this notebook: {summary}", body)
        self._html = f'<div class="dpvi-kept" style="padding:0 8px;font-size:13px">{folded}</div>'
        for handle in self._handles:
            handle.update(self.content)

    def close(self) -> None:
        """Leave the output as it is and write no more."""
        self._handles.clear()
