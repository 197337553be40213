"""Buttons within HTML, as in the cells of a table."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import ipywidgets as widgets

from workbench.widgets.kit.markup import Html, escape

__all__ = ["Presses"]


class Presses:
    """Each button in HTML presses one of ipywidgets that nobody sees: ``view``, which must be on
    the page.

    :param on_press: called with the number of a button that is pressed.
    """

    def __init__(self, on_press: Callable[[int], None]) -> None:
        # a page may show the screens of several kernels
        self._on_press, self._name = on_press, f"dpvi-press-{secrets.token_hex(4)}"
        self.view = widgets.VBox(layout=widgets.Layout(display="none"))

    def button(self, number: int, label: str, tooltip: str, *, is_on: bool = False) -> Html:
        """A button as HTML. :param tooltip: what it does. :param is_on: whether that is
        so now.
        """
        while number >= len(self.view.children):
            self._add(len(self.view.children))
        return Html(
            f'<button type="button" class="dpvi-press" aria-pressed="{str(is_on).lower()}" '
            f'title="{escape(tooltip, quote=True)}" '
            f"onclick=\"document.querySelector('.{self._name}-{number}').click()\">"
            f"{escape(label)}</button>"
        )

    def _add(self, number: int) -> None:
        button = widgets.Button()
        button.add_class(f"{self._name}-{number}")
        button.on_click(lambda _: self._on_press(number))
        self.view.children = (*self.view.children, button)
