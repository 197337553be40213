"""Buttons within HTML, as in the cells of a table."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import ipywidgets as widgets

from workbench.widgets.kit.markup import Html, escape

__all__ = ["Presses"]

# What is pressed is drawn anew, some times at once, without the button that had the focus: its
# successor, else the first button there, else the place itself takes the focus, unless that went
# elsewhere meanwhile.
_PRESS = (
    "const place=this.closest('.widget-html-content'),name=this.textContent;"
    "place.drawn?.disconnect();place.drawn=new MutationObserver(()=>{{"
    "if(document.activeElement!==document.body)return;"
    "const all=[...place.querySelectorAll('.dpvi-press')];place.tabIndex=-1;"
    "(all.find(each=>each.textContent===name)??all[0]??place).focus({{preventScroll:true}})}});"
    "place.drawn.observe(place,{{childList:true}});setTimeout(()=>place.drawn.disconnect(),5000);"
    "document.querySelector('.{}').click()"
)


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
            f'onclick="{_PRESS.format(f"{self._name}-{number}")}">'
            f"{escape(label)}</button>"
        )

    def _add(self, number: int) -> None:
        button = widgets.Button()
        button.add_class(f"{self._name}-{number}")
        button.on_click(lambda _: self._on_press(number))
        self.view.children = (*self.view.children, button)
