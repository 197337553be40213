"""The base class of all screens: a view with threads behind it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from workbench.widgets._kit import fields, markup
from workbench.widgets._kit.latest import Latest
from workbench.widgets._kit.notebook import complete_for_voila

__all__ = ["Screen", "framed"]


def framed(*parts: Any, max_width: str = "1500px", **layout: str) -> Any:
    """A screen's view: its parts in a column, with the style sheet."""
    view = widgets.VBox(
        [widgets.HTML(markup.STYLE_SHEET), *parts],
        layout=widgets.Layout(width="100%", max_width=max_width, padding="8px", **layout),
    )
    view.add_class("dpvi-workbench")
    return view


class Screen:
    """A ``view`` with threads behind it, which a notebook cell displays. Subclasses make the view.

    :param workers: threads that end with the screen.
    """

    view: Any

    def __init__(self, *workers: Latest) -> None:
        self._workers = workers
        self._showing = threading.RLock()  # only one thread at a time reads controls or shows consequences
        self._closed = False

    def _ipython_display_(self) -> None:
        complete_for_voila(self.wait)
        display(self.view)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all requests are done and shown; return False after ``timeout`` seconds."""
        return all(worker.wait(timeout) for worker in self._workers)

    def close(self) -> None:
        """Remove the view and end the threads."""
        with self._showing:  # wait until nothing is being shown
            self._closed = True
            for worker in self._workers:
                worker.close()
            for panel in self._panels():
                panel.close()
            fields.close_all(self.view)

    def _panels(self) -> Sequence[Any]:
        """Parts of the screen that must be closed with it, besides widgets."""
        return ()
