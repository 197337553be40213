"""The Model part of the screen: a menu of models, a form for settings, the plate diagram and the
gallery.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import sys
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets

from workbench import data as data_room
from workbench import models, plots
from workbench._validate import ArgumentError
from workbench.models import Option, registry
from workbench.widgets.kit import fields, markup
from workbench.widgets.kit.fields import Field
from workbench.widgets.kit.threads import background
from workbench.widgets.workbench import formula_menu
from workbench.widgets.workbench.settings import FORMULA

__all__ = ["ModelPanel"]

_PICTURE_WIDTH = 420
# data sets for the gallery's diagrams, in this order
_TRIED = ("breast_cancer", "hierarchical", "mixture", "digits")
_ABOUT_FORMULA = (
    "A regression of the columns under Data, the response among them; ranges and values that you "
    "do not declare there are learned in the fit. Write it as in R: readmitted ~ age + ward + "
    "(1 | hospital)."
)
_CAPTION = (
    "Plate diagram: an arrow leads from a quantity to one that depends on it. Everything inside "
    "a frame is repeated, for example for each record."
)
_GALLERY_CAPTION = "drawn for the data set {}"


class ModelPanel:
    """Choose a model and its options.

    ``model`` is the field of the model's name, ``fields`` has the fields of its options by name,
    and ``view`` is the widget to display.

    :param start: name of the model chosen first.
    :param options: its options that differ from their defaults.
    :param on_change: called without arguments after every change of the model or an option.
    :param formulas: whether to offer regressions from formulas too.
    :param namespace: returns the notebook's variables by name, whose NumPyro functions are offered.
    :raises ArgumentError: for an unknown model, or an option that the model does not have.
    """

    def __init__(
        self,
        start: str,
        options: Mapping[str, Any],
        on_change: Callable[[], None],
        *,
        formulas: bool = False,
        namespace: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._namespace = namespace
        _register_functions(namespace())
        if formulas and start == FORMULA:
            formula_menu.check(options)
        else:
            models.get(start, **options)
        self._on_change, self._extra = on_change, [FORMULA] if formulas else []
        self._unsuitable: Mapping[str, str] = {}
        self._declared: tuple[Option, ...] = ()
        self._kept: dict[str, Any] = {}
        self._closed = threading.Event()
        self.fields: dict[str, Field] = {}
        self.model = fields.choice("model", "model", self._entries(), start)
        self._about = widgets.HTML()
        self._picture = widgets.HTML()
        self._caption = widgets.HTML()
        self._settings = fields.Fold("settings of this model")
        self._gallery = fields.Fold("gallery", on_open=self._open_gallery)
        self._gallery_thread: threading.Thread | None = None
        self._cards: Mapping[str, _Card] = {}
        self.details = widgets.VBox(
            [self._about, self._picture, self._caption, self._settings.view, self._gallery.view]
        )
        self.view = widgets.VBox([self.model.view, self.details])
        self.show_diagram(b"")
        self._describe(options)
        self.model.on_change(self._model_changed)

    def _entries(self) -> list[tuple[str, str]]:
        """The entries of the menu of models: what is shown, and the name."""
        entries = fields.entries([*models.names(), *self._extra], self._unsuitable, "these data")
        return [
            (f"{shown} (this notebook)" if registry.is_of_session(name) else shown, name)
            for shown, name in entries
        ]

    def mark(self, unsuitable: Mapping[str, str]) -> None:
        """Grey the models that cannot fit the chosen data. :param unsuitable: names, and
        why not.
        """
        self._unsuitable = unsuitable
        self.model.show_help(fields.refusals(unsuitable, "these data"))
        if list(self.model.control.options) != self._entries():
            self.model.offer(self._entries(), self.name)

    @property
    def name(self) -> str:
        """The name of the chosen model."""
        return str(self.model.value)

    def options(self) -> dict[str, Any]:
        """The options whose values differ from their defaults."""
        changed = dict(self._kept)
        for option in self._declared:
            value = _read(option, self.fields[option.name])
            if value != option.default:
                changed[option.name] = value
        return changed

    def choose(self, name: str, options: Mapping[str, Any]) -> None:
        """Choose a model with options that differ from their defaults."""
        self.model.value = name
        self._describe(options)
        self._on_change()

    def problems(self) -> dict[str, str]:
        """``{argument: what is wrong with it}``; empty if the model can be made."""
        options = self.options()
        problems = {}
        for option in self._declared:
            if problem := option.problem(options.get(option.name, option.default)):
                problems[option.name] = problem
        try:
            if self.name == FORMULA:
                formula_menu.check(options)
            else:
                models.get(self.name, **options)
        except ArgumentError as error:
            problems[error.argument] = error.expectation
        return problems

    def insist(self) -> None:
        """Say with alarm what is still missing, because somebody wants to fit."""
        for field in self.fields.values():
            field.insist()

    def show(self, problems: Mapping[str, str]) -> None:
        """Show each problem beside its field, or beside the menu of models if it has none."""
        for option in self._declared:
            field = self.fields[option.name]
            is_hint = option.default == "" and field.is_untouched  # of what everybody must write
            field.show_error(problems.get(option.name, ""), is_hint=is_hint)
        remaining = {name: problem for name, problem in problems.items() if name not in self.fields}
        at_menu = remaining.pop("model", "")
        first = [at_menu] if at_menu else []
        self.model.show_error(
            " ".join([*first, *(f"{name}: {problem}" for name, problem in remaining.items())])
        )
        if any(name in self.fields for name in problems):
            self._settings.is_open = True

    def refresh(self) -> None:
        """Update the menu of models and the options of the chosen one; the choice and the settings
        stay.
        """
        _register_functions(self._namespace())
        before, options, entries = self.name, self.options(), self._entries()
        if list(self.model.control.options) != entries:
            self._close_gallery()
            self.model.offer(entries, before)
        if self.name != before:  # the model is gone, and the menu chose its first entry
            return
        self._about.value = _about(before)
        if self._declared != _options_of(before):
            self._describe(options)
            self._on_change()

    def show_diagram(self, svg: bytes, words: str = "") -> None:
        """Show the plate diagram of the chosen model, with ``words`` that describe it; b"" hides
        the diagram.
        """
        self._picture.value = markup.image(svg, words or _CAPTION, _PICTURE_WIDTH) if svg else ""
        self._picture.layout.display = None if svg else "none"
        self._caption.value = (
            markup.fold("the diagram in words", markup.quiet(words or _CAPTION)) if svg else ""
        )
        self._caption.layout.display = self._picture.layout.display

    def close(self) -> None:
        """Close all widgets and end the gallery's thread."""
        self._closed.set()
        fields.close_all(self.view)

    # ---- the form --------------------------------------------------------------------------------

    def _model_changed(self) -> None:
        self.model.show_error("")
        self.show_diagram(b"")
        self._describe({})
        self._on_change()

    def _describe(self, options: Mapping[str, Any]) -> None:
        """Show the chosen model's summary and form, filled with ``options``. Options without a
        field are kept unchanged.
        """
        self._about.value = _about(self.name)
        self._declared = _options_of(self.name)
        self.fields = {option.name: _field(option, options) for option in self._declared}
        self._kept = {name: value for name, value in options.items() if name not in self.fields}
        for field in self.fields.values():
            field.on_change(self._on_change)
        self._settings.fill([field.view for field in self.fields.values()])
        self._settings.is_open = self.name == FORMULA  # which needs one of them
        self._settings.view.layout.display = None if self.fields else "none"

    # ---- the gallery -----------------------------------------------------------------------------

    def _open_gallery(self) -> None:
        """Show the cards, once, and draw their diagrams in a thread, because that traces every
        model.
        """
        if self._gallery_thread is not None:
            return
        cards = self._cards = {name: _Card(name, self._choose) for name in models.names()}
        self._gallery.fill([card.view for card in cards.values()])
        self._gallery_thread = background(
            functools.partial(self._draw_gallery, cards), "dpvi-gallery", self._closed.set
        )

    def _close_gallery(self) -> None:
        self._gallery.is_open = False
        self._gallery_thread, self._cards = None, {}
        self._gallery.fill([])

    def _draw_gallery(self, cards: Mapping[str, _Card]) -> None:
        for card in cards.values():
            if self._closed.is_set() or cards is not self._cards:
                return
            card.draw()

    def _choose(self, name: str) -> None:
        if name in [option for _, option in self.model.control.options]:
            self.model.value = name
        self._gallery.is_open = False


class _Card:
    """A model in the gallery."""

    def __init__(self, name: str, choose: Callable[[str], None]) -> None:
        self.name = name
        self._about = widgets.HTML(_about(name, short=True))
        self._picture = widgets.HTML(markup.quiet("drawing its diagram ..."))
        use = fields.button(f"Use {name}", lambda: choose(name), f"Choose the model {name}")
        title = widgets.HTML(markup.heading(name))
        self.view = widgets.VBox([title, self._about, self._picture, use])

    def draw(self) -> None:
        """Draw the diagram for the first data set that suits the model, if there is one."""
        for data in _TRIED:
            try:
                figure = models.get(self.name).diagram(data_room.load(data))
                shown = markup.image(plots.svg(figure), f"Plate diagram. {figure.get_label()}", 300)
            except Exception:  # a user's model may fail in any way on data that it was not made for
                continue
            self._picture.value = shown + markup.quiet(_GALLERY_CAPTION.format(data))
            return
        self._picture.value = markup.quiet(
            "no diagram: the model fits none of the workbench's data sets."
        )


# ---- pieces --------------------------------------------------------------------------------------


def _options_of(name: str) -> tuple[Option, ...]:
    """The options of a model; none if it cannot be loaded, which ``problems`` reports."""
    if name == FORMULA:
        return formula_menu.options()
    try:
        return models.options(name)
    except ArgumentError:
        return ()


def _about(name: str, short: bool = False) -> str:
    """The model's summary and reference; "" if it cannot be made."""
    if name == FORMULA:
        return markup.sentence(_ABOUT_FORMULA)
    try:
        model = models.get(name)
    except ArgumentError:
        return markup.quiet("This model cannot be made.") if short else ""
    reference = f"Reference: {model.reference}" if model.reference and not short else ""
    return markup.sentence(model.summary) + (markup.quiet(reference) if reference else "")


def _text_of(value: object) -> str:
    return "" if value is None else str(value)


def _field(option: Option, options: Mapping[str, Any]) -> Field:
    """The control of an option, with its value in ``options``, else empty or with the default."""
    value = options.get(option.name, option.default)
    label = option.name.replace("_", " ")
    if option.kind == "yes or no":
        return fields.check(option.name, label, bool(value), help=option.help)
    if option.kind == "choice":
        menu: list[tuple[str, Any]] = [(str(choice), choice) for choice in option.choices]
        if option.optional:
            menu.insert(0, ("automatic", None))
        if value not in [choice for _, choice in menu]:
            menu.append((str(value), value))
        return fields.choice(option.name, label, menu, value, help=option.help)
    if (
        option.optional and option.default is not None
    ):  # empty means None here, so the default must be filled in
        return fields.text(
            option.name, label, _text_of(value), placeholder="none", help=option.help
        )
    placeholder = option.help if option.default == "" else f"default: {option.default}"
    if option.default is None:
        placeholder = "no column" if option.name in formula_menu.COLUMNS else "automatic"
    shown = _text_of(options.get(option.name)) if value != option.default else ""
    return fields.text(option.name, label, shown, placeholder=placeholder, help=option.help)


def _read(option: Option, field: Field) -> Any:
    """The option's value. An empty text means None for an optional value, else the default."""
    if option.kind in ("yes or no", "choice"):
        return field.value
    text = str(field.value).strip()
    if not text:
        return None if option.optional else option.default
    return (
        text
        if option.kind == "text" and isinstance(option.default, str) and not option.choices
        else fields.number_in(text)
    )


def _register_functions(namespace: Mapping[str, Any]) -> None:
    """Make models of this session of the NumPyro functions that a notebook defines."""
    for value in list(namespace.values()):
        if type(value) is types.FunctionType and _is_model(value):
            name = value.__name__
            before = registry.definition(name) if registry.is_of_session(name) else value
            # a cell that was run again has another function of the name; a model with a guide stays
            if type(before) is types.FunctionType:
                with contextlib.suppress(ArgumentError):  # of another kind
                    registry.offer(value)


def _is_model(function: types.FunctionType) -> bool:
    """Whether a function of the notebook reads NumPyro and samples, and has no parameters, which
    are a guide's.
    """
    names, numpyro = function.__code__.co_names, sys.modules.get("numpyro")
    if function.__module__ != "__main__" or numpyro is None or "param" in names:
        return False
    read = [
        function.__globals__.get(instruction.argval)
        for instruction in dis.get_instructions(function)
        if instruction.opname == "LOAD_GLOBAL"
    ]
    is_read = [any(value is wanted for value in read) for wanted in (numpyro, numpyro.sample)]
    return is_read[1] or (is_read[0] and "sample" in names)
