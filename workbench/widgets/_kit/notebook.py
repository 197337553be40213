"""The notebook around a screen: its variables, and ordinary output that stays in it when widget state does not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from IPython import get_ipython
from IPython.display import HTML

from workbench.widgets._kit import markup

__all__ = ["Record", "complete_for_voila", "namespace"]

_VOILA_SECONDS = 30.0


def namespace() -> Mapping[str, Any]:
    """The notebook's variables; none outside of one."""
    shell = get_ipython()
    return {} if shell is None else shell.user_ns


def complete_for_voila(wait: Callable[[float], object]) -> None:
    """Where Voilà shows the cell, ``wait(seconds)`` until nothing is being computed; elsewhere nothing.

    Its page connects to the kernel when all cells have run, and never hears of what changes while it does.
    """
    if "VOILA_REQUEST_URL" in os.environ:
        wait(_VOILA_SECONDS)


class Record:
    """Ordinary static output under a widget, in each cell that shows it."""

    def __init__(self) -> None:
        self._kept = ""
        self._places: list[Any] = []

    @property
    def content(self) -> HTML:
        """What stands there now."""
        return HTML(self._kept)

    def put(self, place: Any) -> None:
        """Another place for it: the handle of what ``display`` shows of ``content``."""
        self._places.append(place)

    def leave(self, summary: str, body: str) -> None:
        """Have all places show ``body`` (HTML), folded under a line that begins with "Kept in this notebook"."""
        folded = markup.fold(f"Kept in this notebook: {summary}", body)
        self._kept = f'<div style="background:#ffffff;padding:4px">{folded}</div>'
        for place in self._places:
            place.update(self.content)

    def close(self) -> None:
        """Leave what stands there, and write there no more."""
        self._places.clear()
