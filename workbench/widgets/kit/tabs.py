"""Parts of a screen of which at most one is open. Unlike ipywidgets' Tab, all can be closed and the
titles wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import ipywidgets as widgets

from workbench.widgets.kit import fields
from workbench.widgets.kit.late import send

__all__ = ["Tabs"]


class Tabs:
    """Titles in a line, and below them the page whose title was pressed. ``view`` is the widget to
    display.

    :param pages: widgets by their titles. :param on_open: called with the title of a page that
        opens.
    :param late: titles of those that the browser learns of when they are first opened.
    """

    def __init__(
        self,
        pages: Mapping[str, Any],
        on_open: Callable[[str], None] = lambda title: None,
        *,
        late: Collection[str] = (),
    ) -> None:
        self._parts, self._on_open, self._late = dict(pages), on_open, set(late)
        self._buttons = {
            title: widgets.ToggleButton(
                value=False, description=title, tooltip=f"Show or hide: {title}"
            )
            for title in pages
        }
        self._open = ""
        line = fields.styled(widgets.Box(list(self._buttons.values())), "dpvi-tabs")
        for page in self._parts.values():
            fields.styled(page, "dpvi-part").layout.display = "none"
        self.view = widgets.VBox(
            [line, *(page for title, page in self._parts.items() if title not in self._late)]
        )
        for title, button in self._buttons.items():
            button.observe(
                lambda change, title=title: self._turn(title, change["new"]), names="value"
            )

    @property
    def open(self) -> str:
        """The title of the part that is shown; "" if none is."""
        return self._open

    @open.setter
    def open(self, title: str) -> None:
        if title:
            self._buttons[title].value = True
        elif self._open:
            self._buttons[self._open].value = False

    def _turn(self, title: str, is_open: bool) -> None:
        if title in self._late:
            self._late.remove(title)
            send(self._parts[title])
            self.view.children = (*self.view.children, self._parts[title])
        before = self._open
        self._open = title if is_open else "" if before == title else before
        self._parts[title].layout.display = None if is_open else "none"
        if is_open and before and before != title:
            self._buttons[before].value = False
        if is_open:
            self._on_open(title)

    def close(self) -> None:
        """Close the parts that the page has not learnt of; the others close with ``view``."""
        for title in self._late:
            fields.close_all(self._parts[title])
