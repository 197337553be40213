"""The base class of the teaching screens: sliders, pictures and sentences, updated off the main
thread.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import ipywidgets as widgets

from workbench import _validate
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.base import Screen, framed
from workbench.widgets.kit.latest import Latest

__all__ = ["TeachingScreen", "slider"]

_BLANK = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
_STYLE = {"description_width": "150px"}
_REST_SECONDS = (
    1.0  # before computing ahead, which would delay a picture that the user is waiting for
)


def slider(
    name: str,
    value: float,
    label: str,
    values: Sequence[float],
    shown: Callable[[float], str] = "{:g}".format,
) -> Any:
    """A slider over ``values``, which need not be evenly spaced. Arrow keys move it by one value.

    :param name: the argument that ``value`` came from.
    :param value: where it starts; added to ``values`` if it is between them.
    :param label: what it sets, with its unit.
    :param values: whole numbers only, if ``value`` must be one.
    :param shown: turns a value into text.
    :raises ArgumentError: naming ``name``, if ``value`` is outside the range of ``values``.
    """
    are_whole = all(isinstance(level, int) for level in values)
    check: Any = _validate.integer if are_whole else _validate.number
    check(name, value, at_least=min(values), at_most=max(values))
    levels = sorted({*values, value})
    return widgets.SelectionSlider(
        options=[(shown(level), level) for level in levels],
        value=value,
        description=label,
        continuous_update=True,
        style=_STYLE,
        layout=widgets.Layout(width="auto"),
        tooltip=label,
    )


class TeachingScreen(Screen):
    """Controls beside pictures; display it in a notebook cell.

    When a control changes, one thread makes a new picture; of several changes only the newest
    counts. Only this thread writes pictures and words. When the controls have not changed for a
    while, another thread computes what the neighbouring positions of the sliders will show.
    Subclasses define ``forms``, ``_update`` and ``_ahead``.

    ``view`` is the widget to display; ``words`` has the numbers in the picture as text. ``wait``
    waits until both are up to date, and ``close`` frees everything.

    :param title: of the screen.
    :param lesson: what to look at, in a sentence or two.
    :param starts: where each slider starts, by argument.
    :param pictures: (caption, figure) of each.
    :param controls: further ones, below the sliders.
    """

    # {argument: label and values of its slider, and how a value is shown if not as a number}
    forms: ClassVar[Mapping[str, tuple[Any, ...]]]

    def __init__(
        self,
        title: str,
        lesson: str,
        starts: Mapping[str, float],
        pictures: Sequence[tuple[str, Any]],
        *controls: Any,
    ) -> None:
        self.sliders = {
            name: slider(name, starts[name], *form) for name, form in self.forms.items()
        }
        self._asked = 0
        self._newest = Latest("dpvi-teaching", pause=0.0)
        self._resting = Latest("dpvi-teaching-ahead", pause=_REST_SECONDS)
        super().__init__(self._newest, self._resting)
        self.words = widgets.HTML(
            markup.quiet("computing…"), layout=widgets.Layout(min_height="5.6em")
        )
        self._problem = fields.line()
        self.pictures = [_parts(figure.cut) for _, figure in pictures]
        # ipywidgets has no alternative text for images, and a tooltip breaks them, so each image
        # has a caption
        captions = [widgets.HTML(markup.quiet(caption)) for caption, _ in pictures]
        shown = [
            widget
            for images, caption in zip(self.pictures, captions, strict=True)
            for widget in (fields.styled(widgets.Box(images), "dpvi-parts"), caption)
        ]
        control_column = widgets.VBox(
            [*self.sliders.values(), *controls, self._problem],
            layout=widgets.Layout(flex="1 1 300px", min_width="0"),
        )
        picture_column = widgets.VBox(
            [*shown, self.words], layout=widgets.Layout(flex="1.9 1 560px", min_width="0")
        )
        beside = widgets.HBox(
            [control_column, picture_column],
            layout=widgets.Layout(flex_flow="row wrap", grid_gap="8px 16px"),
        )
        self.view = framed(fields.section(title, widgets.HTML(markup.quiet(lesson)), beside))
        for control in self.sliders.values():
            control.observe(lambda _: self.ask(), names="value")
        self.ask()

    def values(self) -> dict[str, Any]:
        """{argument: value} of the sliders."""
        return {name: control.value for name, control in self.sliders.items()}

    def ask(self) -> None:
        """Update the pictures in the background; return at once."""
        self._asked += 1
        self._newest.ask(
            functools.partial(self._update, functools.partial(self._is_old, self._asked)),
            self._show_problem,
        )
        self._resting.ask(functools.partial(self._prepare, self._asked), lambda _: None)

    def _show_problem(self, error: Exception | None) -> None:
        """Show the error that prevented an update; None for none."""
        fields.say(self._problem, markup.problem("" if error is None else fields.in_words(error)))

    def _prepare(self, number: int) -> None:
        for compute in self._ahead():
            if self._is_old(number):
                return
            compute()

    def _is_old(self, number: int) -> bool:
        return number != self._asked or self._closed

    def _update(self, is_old: Callable[[], bool]) -> None:
        """Show what the controls say.

        :param is_old: whether the controls have changed since, so that this update may stop.
        """
        raise NotImplementedError

    def _ahead(self) -> Iterable[Callable[[], object]]:
        """Work to do while the controls do not change."""
        return ()

    def draw(self, index: int, contents: Sequence[bytes]) -> None:
        """Show the parts of a picture."""
        if not self._closed:
            for image, content in zip(self.pictures[index], contents, strict=True):
                image.value = content

    def show(self, index: int, contents: Sequence[bytes], sentences: Sequence[str]) -> None:
        """Show a picture, and sentences below it, the first in bold."""
        if not self._closed:
            self.draw(index, contents)
            first, *details = sentences
            self.words.value = f"<b>{markup.sentence(first)}</b>" + "".join(
                map(markup.sentence, details)
            )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the pictures are up to date; return False after ``timeout`` seconds."""
        return self._newest.wait(timeout)


def _parts(cut: float) -> list[Any]:
    """Images of the two parts of a figure, of which the first has the share ``cut`` of the width.

    One below the other, both have the scale of the first.
    """
    made = [
        widgets.Image(
            value=_BLANK,  # no bytes would show as a broken image
            format="svg+xml",
            layout=widgets.Layout(
                width=f"{100 * fraction:g}%", max_width=f"{100 * fraction / cut:.4g}%"
            ),
        )
        for fraction in (cut, 1 - cut)
    ]
    return [fields.styled(image, "dpvi-figure") for image in made]


def rests(is_old: Callable[[], bool]) -> bool:
    """Wait for a quarter of a second; return False as soon as ``is_old()``."""
    end = time.monotonic() + 0.25
    while time.monotonic() < end:
        if is_old():
            return False
        time.sleep(0.02)
    return True


def around(control: widgets.Widget) -> list[float]:
    """The slider's values next to the present one, the nearest first."""
    values = [value for _, value in control.options]
    here = values.index(control.value)
    steps = (here + step for step in (1, -1, 2, -2))
    return [values[index] for index in steps if 0 <= index < len(values)]
