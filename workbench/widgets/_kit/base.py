"""What all screens are: a view with threads behind it."""

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
    """The parts of a screen below each other, in its style."""
    view = widgets.VBox(
        [widgets.HTML(markup.STYLE_SHEET), *parts],
        layout=widgets.Layout(width="100%", max_width=max_width, padding="8px", **layout),
    )
    view.add_class("dpvi-workbench")
    return view


class Screen:
    """A ``view`` with threads behind it; a notebook cell shows it. Subclasses make the view.

    :param workers: threads that end with the screen.
    """

    view: Any

    def __init__(self, *workers: Latest) -> None:
        self._workers = workers
        self._showing = threading.RLock()  # controls are read, and consequences shown, by one thread at a time
        self._closed = False

    def _ipython_display_(self) -> None:
        complete_for_voila(self.wait)
        display(self.view)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until what was asked for is on the screen; False after ``timeout`` seconds."""
        return all(worker.wait(timeout) for worker in self._workers)

    def close(self) -> None:
        """Remove the view and end the threads."""
        with self._showing:  # what is being shown is not closed half way
            self._closed = True
            for worker in self._workers:
                worker.close()
            for panel in self._panels():
                panel.close()
            fields.close_all(self.view)

    def _panels(self) -> Sequence[Any]:
        """Parts of the screen that are more than widgets, and are closed with it."""
        return ()
