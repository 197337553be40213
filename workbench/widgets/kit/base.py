"""The base class of all screens: a view with threads behind it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Self

import ipywidgets as widgets
from IPython.display import display

from workbench import _validate
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.latest import Latest
from workbench.widgets.kit.notebook import Successions, complete_for_voila, when_replaced

__all__ = ["Presenting", "Screen", "framed"]

_SUCCESSIONS = Successions()
# sidecar's names for them
_PLACES = {"tab": "tab-after", "right": "split-right", "below": "split-bottom"}


def framed(*children: widgets.Widget, **layout: str) -> Any:
    """A screen's view: its parts in a column, with the style sheet."""
    view: Any = widgets.VBox(
        [widgets.HTML(markup.STYLE_SHEET), *children],
        layout=widgets.Layout(width="100%", max_width="1180px", padding="8px", **layout),
        _view_count=0,  # None would not count
    )
    return fields.styled(view, "dpvi-workbench")


class Screen:
    """A ``view`` with threads behind it, which a notebook cell displays. Subclasses make the view.

    :param workers: threads that end with the screen.
    """

    view: Any

    def __init__(self, *workers: Latest) -> None:
        self._workers = workers
        # only one thread at a time reads controls or shows consequences
        self._showing = threading.RLock()
        self._closed = False
        self._place: Any = None  # of its own in JupyterLab

    def _ipython_display_(self) -> None:
        self._replace()
        complete_for_voila(self.wait)
        display(self.view)

    def _replace(self) -> None:
        """Replace the screen that an earlier execution of this cell displayed."""
        before = _SUCCESSIONS.predecessor(self)
        if before is not None:
            when_replaced(before.view, lambda: self._succeed(before))

    def _succeed(self, before: Self) -> None:
        """Close ``before``, which this screen replaces, and take over what it should not lose."""
        before.close()

    def open(self, where: str = "tab") -> None:
        """Show the screen in a place of its own in JupyterLab, where it stays when the notebook
        scrolls.

        Notebook 7 and Voilà have no such places: there the last line of a cell shows the screen.

        :param where: "tab" beside the notebook's own, "right" for the right half of the window,
            "below" for the lower half.
        """
        from sidecar import Sidecar

        anchor = _PLACES[_validate.choice("where", where, _PLACES)]
        self._leave_place()
        self._place = Sidecar(title=f"DP-VI {type(self).__name__.lower()}", anchor=anchor)
        with self._place:
            display(self)

    def _leave_place(self) -> None:
        if self._place is not None:
            self._place.close()
            self._place = None

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
            self._leave_place()

    def _panels(self) -> Sequence[Any]:
        """Parts of the screen that must be closed with it, besides widgets."""
        return ()


class Presenting(Screen):
    """A screen with a run in one thread, which another thread presents until it has ended."""

    def __init__(self, *workers: Latest) -> None:
        super().__init__(*workers)
        self._session: Any = None
        self._presenter: threading.Thread | None = None

    def stop(self) -> None:
        """End the run early and keep its results, as the Stop button does; return at once."""
        if self._session is not None:
            self._session.stop()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the run has ended and its end is shown; return False after ``timeout``
        seconds.
        """
        if self._presenter is not None:
            self._presenter.join(timeout)
            return not self._presenter.is_alive()
        return True
