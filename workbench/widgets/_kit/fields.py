"""A control with what belongs to it: a visible description with its unit, a line of help, and the place of its error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets

from workbench.widgets._kit import markup

__all__ = ["Field", "Fold", "check", "choice", "close_all", "in_words", "line", "number_in", "row", "say", "section", "text"]

_STYLE = {"description_width": "128px"}


def line() -> Any:
    """A line of HTML that takes no room until ``say`` fills it."""
    return widgets.HTML(layout=widgets.Layout(display="none"))


def say(line: Any, content: str) -> None:
    """Have a ``line`` show ``content`` (HTML); "" takes it away."""
    line.value = content
    line.layout.display = None if content else "none"


def in_words(error: Exception) -> str:
    """What an error says; with the name of its class unless it is a ValueError, as those written for users are."""
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class Field:
    """One labelled control. ``view`` is what to put on the screen; ``control`` has the value.

    :param name: of the argument that the control sets, as errors name it.
    """

    def __init__(self, name: str, control: Any, help: str = "") -> None:
        self.name = name
        self.control = control
        self._reactions: list[Callable[[], None]] = []
        self._is_offering = False
        control.layout.width = "auto"
        self._help, self._error = line(), line()
        self.show_help(help)
        self.view = widgets.VBox([control, self._help, self._error], layout=widgets.Layout(overflow="visible"))

    @property
    def value(self) -> Any:
        """The control's value."""
        return self.control.value

    @value.setter
    def value(self, value: Any) -> None:
        self.control.value = value

    @property
    def error(self) -> str:
        """The HTML of what is wrong with the value; "" where nothing is."""
        return str(self._error.value)

    def show_error(self, expectation: str) -> None:
        """Say beside the control what is wrong with its value and what to do; "" takes it away."""
        shown = f"{self.name} = {self.value}: {expectation}" if expectation else ""
        say(self._error, markup.problem(shown))

    def show_help(self, help: str) -> None:
        """Another line of help; "" takes it away."""
        say(self._help, markup.quiet(help) if help else "")

    @property
    def visible(self) -> bool:
        """Whether the field is on the screen."""
        return self.view.layout.display != "none"

    @visible.setter
    def visible(self, visible: bool) -> None:
        self.view.layout.display = None if visible else "none"

    def on_change(self, react: Callable[[], None]) -> None:
        """Call ``react()`` after every change of the value."""
        self._reactions.append(react)
        if len(self._reactions) == 1:
            self.control.observe(lambda _: self._react(), names="value")

    def _react(self) -> None:
        for react in () if self._is_offering else self._reactions:
            react()

    def offer(self, options: Sequence[Any], value: Any) -> None:
        """Another menu with ``value`` chosen, or its first entry where it lacks that; told as one change, if it is one."""
        before, self._is_offering = self.value, True
        try:
            self.control.options = options
            values = [option[1] if isinstance(option, tuple) else option for option in options]
            self.control.value = value if value in values else values[0]
        finally:
            self._is_offering = False
        if self.value != before:
            self._react()


def text(name: str, label: str, value: str = "", *, placeholder: str = "", help: str = "") -> Field:
    """A line of text, read when the user leaves it or presses Enter. ``label`` has the unit: "delta", "bounds (years)"."""
    control = widgets.Text(description=label, value=value, placeholder=placeholder, continuous_update=False, style=_STYLE)
    return Field(name, control, help)


def choice(name: str, label: str, options: Sequence[Any], value: Any, *, help: str = "") -> Field:
    """A menu of values, or of (text, value) pairs."""
    return Field(name, widgets.Dropdown(description=label, options=options, value=value, style=_STYLE), help)


def check(name: str, label: str, value: bool = False, *, help: str = "") -> Field:
    """A box to tick."""
    return Field(name, widgets.Checkbox(description=label, value=value, indent=False), help)


def number_in(text: str) -> float | int | str | None:
    """The number that a text field holds: None where it is empty, the text itself where it is no number.

    Validators then refuse the text by its name and value. Whole numbers stay whole, also as "1e4".
    """
    text = text.strip()
    if not text:
        return None
    try:
        return int(text.replace("_", "").replace(" ", ""))
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if "." not in text and value.is_integer() and "-" not in text else value


class Fold:
    """Children under a button that shows and hides them. An Accordion's header cannot be reached by keyboard, this can.

    ``view`` is what to put on the screen; ``is_open`` says and sets whether the children are seen.
    """

    def __init__(self, title: str, children: Sequence[Any] = (), on_open: Callable[[], None] | None = None) -> None:
        self._on_open = on_open
        self.button = widgets.ToggleButton(
            value=False, description=title, icon="chevron-right", layout=widgets.Layout(width="auto"),
            tooltip=f"Show or hide: {title}",
        )  # fmt: skip
        self.box = widgets.VBox(list(children), layout=widgets.Layout(display="none"))
        self.view = widgets.VBox([self.button, self.box], layout=widgets.Layout(overflow="visible"))
        self.button.observe(lambda _: self._turn(), names="value")

    @property
    def is_open(self) -> bool:
        """Whether the children are seen."""
        return bool(self.button.value)

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self.button.value = is_open

    def fill(self, children: Sequence[Any]) -> None:
        """Other children; the old ones are closed."""
        old, self.box.children = self.box.children, tuple(children)
        for child in old:
            close_all(child)

    def _turn(self) -> None:
        self.button.icon = "chevron-down" if self.is_open else "chevron-right"
        self.box.layout.display = None if self.is_open else "none"
        if self.is_open and self._on_open is not None:
            self._on_open()


def close_all(widget: Any) -> None:
    """Close ``widget``, what is inside, and their layouts and styles, which ipywidgets would keep for good."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    for part in (getattr(widget, "style", None), widget.layout):
        if isinstance(part, widgets.Widget):
            part.close()
    widget.close()


def row(*children: Any, flex: str) -> Any:
    """Children beside each other as far as there is room, the others below."""
    return widgets.HBox(
        children,
        layout=widgets.Layout(
            flex=flex,
            flex_flow="row wrap",
            align_items="flex-start",
            align_content="flex-start",
            min_width="0",
            grid_gap="10px",
        ),
    )


def section(title: str, *children: Any) -> Any:
    """A framed part of the screen under its title."""
    box = widgets.VBox([widgets.HTML(markup.heading(title)), *children], layout=widgets.Layout(width="auto"))
    box.add_class("dpvi-section")
    return box
