"""Controls, each with a visible label and unit, a mark that shows its help, and a line for its
error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from workbench._numbers import MINUS
from workbench._validate import ArgumentError
from workbench.widgets.kit import markup

__all__ = [
    "Field",
    "Fold",
    "abreast",
    "argument_words",
    "beside",
    "button",
    "check",
    "choice",
    "close_all",
    "entries",
    "in_words",
    "line",
    "number_in",
    "refusals",
    "say",
    "section",
    "set_style",
    "show_problems",
    "styled",
    "text",
]

_STYLE = {"description_width": "128px"}
_GROUPED = re.compile(r"\d{1,3}(?:[_'\s]\d{3})+")  # digits in groups of three
_OF_COLUMN = re.compile(r"\w+\['(.*)'\]")
_BY_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+")


def line() -> Any:
    """A line of HTML that is hidden until ``say`` fills it."""
    return widgets.HTML(layout=widgets.Layout(display="none"))


def say(line: widgets.HTML, content: str) -> None:
    """Show ``content`` (HTML) in a ``line``; hide the line if ``content`` is ""."""
    line.value = content
    line.layout.display = None if content else "none"


def set_style(widget: widgets.DOMWidget, style: str, is_on: bool) -> None:
    """Give the widget this class of the style sheet, or take it away."""
    (widget.add_class if is_on else widget.remove_class)(style)


def styled(widget: widgets.DOMWidget, *styles: str) -> Any:
    """The widget, with these classes of the style sheet."""
    for style in styles:
        widget.add_class(style)
    return widget


def button(label: str, press: Callable[[], object], tooltip: str = "", **facts: Any) -> Any:
    """A button as wide as its label, unless its layout says otherwise.

    :param press: called when it is pressed; it must return quickly. :param facts: as of
        ``widgets.Button``; "primary" is its only style.
    """
    layout = {"width": "auto"} | facts.pop("layout", {})
    style = "primary" if facts.pop("primary", False) else ""
    made = widgets.Button(
        description=label, tooltip=tooltip, button_style=style, layout=layout, **facts
    )
    made.on_click(lambda _: press())
    return made


def argument_words(argument: str) -> str:
    """An argument as the screen names it: a column by its name alone."""
    named = _OF_COLUMN.fullmatch(argument)
    return named[1] if named else argument.replace("_", " ")


def in_words(error: Exception) -> str:
    """The message of an error, with the name of its class unless it is a ValueError: those are
    written for users. What to do in Python is left out.
    """
    if type(error) is ArgumentError:
        return f"{argument_words(error.argument)}: {error.expectation}"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def entries(names: Sequence[str], reasons: Mapping[str, str], item: str) -> list[tuple[str, str]]:
    """(what is shown, name) for a menu. Names in ``reasons`` do not suit ``item``; the style sheet
    greys them.
    """
    return [(f"{name} (not for {item})" if name in reasons else name, name) for name in names]


def refusals(reasons: Mapping[str, str], item: str) -> str:
    """The help of a menu some of whose entries do not suit ``item``: each reason once; "" for none.

    :param reasons: names of entries, and why not.
    """
    together: dict[str, list[str]] = {}
    for name, why in reasons.items():
        together.setdefault(why, []).append(name)
    listed = "; ".join(f"{', '.join(names)}: {why.rstrip('.')}" for why, names in together.items())
    return f"Not for {item}: {listed}." if listed else ""


class Field:
    """A labelled control. ``view`` is the widget to display; ``control`` has the value.

    ``box`` and ``error_line`` are the two parts of ``view``, for a place where errors stand
    elsewhere.

    :param name: the argument that the control sets, as errors name it.
    """

    def __init__(self, name: str, control: widgets.Widget, help: str = "") -> None:
        self.name = name
        self.control = control
        self._reactions: list[Callable[[], None]] = []
        self._is_offering = self._was_changed = False
        control.layout.width = "auto"
        self._help, self.error_line = line(), line()
        self.show_help(help)
        self.box = styled(widgets.HBox([control, self._help]), "dpvi-control")
        self.view = styled(widgets.VBox([self.box, self.error_line]), "dpvi-field")

    @property
    def value(self) -> Any:
        """The control's value."""
        return self.control.value

    @value.setter
    def value(self, value: Any) -> None:
        self.control.value = value

    @property
    def error(self) -> str:
        """The HTML of the error that is shown; "" for none."""
        return str(self.error_line.value)

    @property
    def is_untouched(self) -> bool:
        """Whether this is an empty text that nobody has changed."""
        return self.value == "" and not self._was_changed

    def insist(self) -> None:
        """Show an error from now on also while nobody has changed the text."""
        self._was_changed = True

    def show_error(self, expectation: str, *, is_hint: bool = False) -> None:
        """Show beside the control what is wrong with its value; "" hides the error.

        :param is_hint: whether nobody did anything wrong, so that it is said without alarm.
        """
        name = self.name.replace("_", " ")
        shown = f"{name}: " if self.value == "" else f"{name} = {self.value}: "
        told = markup.quiet if is_hint else markup.problem
        say(self.error_line, told(shown + expectation) if expectation else "")
        for style, is_so in (("dpvi-wrong", not is_hint), ("dpvi-needed", is_hint)):
            set_style(self.control, style, bool(expectation) and is_so)

    def show_help(self, help: str) -> None:
        """Change the help; "" removes its mark."""
        say(self._help, markup.help_mark(help))

    @property
    def visible(self) -> bool:
        """Whether the field is shown."""
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
        self._was_changed = True
        for react in () if self._is_offering else self._reactions:
            react()

    def offer(self, options: Sequence[Any], value: Any) -> None:
        """Change the menu and choose ``value``, or the first entry if the menu lacks it. This is
        one change at most.
        """
        before, self._is_offering = self.value, True
        try:
            with (
                self.control.hold_sync()
            ):  # who saw the new menu without its choice could make one, which would be lost
                self.control.options = options
                values = [option[1] if isinstance(option, tuple) else option for option in options]
                self.control.value = value if value in values else values[0]
        finally:
            self._is_offering = False
        if self.value != before:
            self._react()


def show_problems(
    by_name: Mapping[str, Field], problems: Mapping[str, str], elsewhere: widgets.HTML
) -> None:
    """Show each problem beside its field, and hide the others.

    :param by_name: the fields by the arguments that they set. :param problems: by argument.
    :param elsewhere: a ``line`` for those of arguments without a field; "" is none's.
    """
    beside = {by_name[name]: text for name, text in problems.items() if name in by_name}
    for field in dict.fromkeys(by_name.values()):
        field.show_error(beside.get(field, ""))
    without_field = [
        f"{name}: {text}" if name else text
        for name, text in problems.items()
        if name not in by_name
    ]
    say(elsewhere, "".join(map(markup.problem, without_field)))


def text(name: str, label: str, value: str = "", *, placeholder: str = "", help: str = "") -> Field:
    """A text field, read when the user leaves it or presses Enter. Its label states the unit, such
    as "bounds (years)".
    """
    control = widgets.Text(
        description=label,
        value=value,
        placeholder=placeholder,
        continuous_update=False,
        style=_STYLE,
    )
    return Field(name, control, help)


def choice(name: str, label: str, options: Sequence[Any], value: Any, *, help: str = "") -> Field:
    """A menu of values or of (text, value) pairs."""
    return Field(
        name, widgets.Dropdown(description=label, options=options, value=value, style=_STYLE), help
    )


def check(name: str, label: str, value: bool = False, *, help: str = "") -> Field:
    """A checkbox."""
    return Field(name, widgets.Checkbox(description=label, value=value, indent=False), help)


def number_in(text: str, *, is_whole: bool = False) -> float | int | str | None:
    """The number in a text field; None if it is empty, and the text itself if it is not a number.

    Validators then reject the text with its name and value. Whole numbers stay whole, also "1e4"
    and "50 000".

    :param is_whole: whether a whole number is expected. Only then is "50,000" one: elsewhere the
        comma may mean a fraction.
    """
    text = text.strip().replace(MINUS, "-")
    if not text:
        return None
    if _GROUPED.fullmatch(text) or (is_whole and _BY_COMMAS.fullmatch(text)):
        text = re.sub(r"\D", "", text)
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if "." not in text and value.is_integer() and "-" not in text else value


class Fold:
    """Children under a button that shows and hides them. Unlike an Accordion's header, it can be
    reached by keyboard.

    ``view`` is the widget to display; ``is_open`` gets and sets whether the children are shown.
    """

    def __init__(
        self, title: str, children: Sequence[Any] = (), on_open: Callable[[], None] | None = None
    ) -> None:
        self._on_open = on_open
        self.button = widgets.ToggleButton(
            value=False,
            description=title,
            icon="chevron-right",
            layout=widgets.Layout(width="auto"),
            tooltip=f"Show or hide: {title}",
        )
        self.button.add_class("dpvi-unfolds")
        self.box = widgets.VBox(list(children), layout=widgets.Layout(display="none"))
        self.view = widgets.VBox([self.button, self.box])
        self.button.observe(lambda _: self._turn(), names="value")

    @property
    def is_open(self) -> bool:
        """Whether the children are shown."""
        return bool(self.button.value)

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self.button.value = is_open

    def fill(self, children: Sequence[Any]) -> None:
        """Replace the children and close the old ones."""
        old, self.box.children = self.box.children, tuple(children)
        for child in old:
            close_all(child)

    def _turn(self) -> None:
        self.button.icon = "chevron-down" if self.is_open else "chevron-right"
        self.box.layout.display = None if self.is_open else "none"
        if self.is_open and self._on_open is not None:
            self._on_open()


def close_all(widget: widgets.Widget) -> None:
    """Close ``widget``, its children, and their layouts and styles, which ipywidgets would
    otherwise keep forever.
    """
    for child in getattr(widget, "children", ()):
        close_all(child)
    for companion in (getattr(widget, "style", None), widget.layout):
        if isinstance(companion, widgets.Widget):
            companion.close()
    widget.close()


def beside(main: widgets.Widget, *side: widgets.Widget) -> Any:
    """The main part of a screen, and beside it what it means."""
    column = styled(widgets.VBox(side), "dpvi-side")
    return styled(widgets.Box([main, column]), "dpvi-main")


def abreast(*columns: Sequence[widgets.Widget]) -> Any:
    """Columns of equal width, one below the other where there is no room."""
    return styled(widgets.Box([widgets.VBox(column) for column in columns]), "dpvi-abreast")


def section(title: str, *children: widgets.Widget) -> Any:
    """A framed part of the screen with a title."""
    parts = [widgets.HTML(markup.heading(title)), *children]
    return styled(widgets.VBox(parts, layout=widgets.Layout(width="auto")), "dpvi-section")
