"""The options of a model, read from signatures and docstrings, for forms and lists of options."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.models.functions import arguments_of, is_numpyro_model
from workbench.models.model import Model, parameters_of

__all__ = ["Kind", "Option", "declared", "evaluated"]

Kind = Literal["number", "whole number", "yes or no", "choice", "text"]
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_KINDS: dict[type, Kind] = {bool: "yes or no", int: "whole number", float: "number", str: "text"}
_LONGEST_HELP = 200  # characters of two sentences; the first is never cut
# ":param name: text" or ":param type name: text", up to another field, an empty line or a line that
# is not indented
_HELP = re.compile(
    r":param\b[^:]*?(\w+):(.*?)(?=:(?:param|type|returns?|rtype|raises?)\b[^:]*:|\n\s*\n|\n\S|\Z)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Option:
    """One option of a model.

    >>> option = wb.models.options("logistic")[0]
    >>> option.name, option.default, option.kind
    ('prior_scale', 5.0, 'number')

    :param name: of the keyword argument.
    :param default: its default value.
    :param kind: of its values.
    :param choices: all values of a "choice"; for a "text", words that are allowed besides numbers,
        such as "learnt".
    :param optional: whether None is allowed.
    :param help: one or two sentences in plain text, or "".
    """

    name: str
    default: Any
    kind: Kind
    choices: tuple[Any, ...] = ()
    optional: bool = False
    help: str = ""

    def problem(self, value: Any) -> str:
        """What is wrong with ``value`` for this kind of option, or "". The model itself may refuse
        more.
        """
        if value is None:
            return "" if self.optional else "must be given."
        if self.kind == "yes or no":
            return "" if isinstance(value, bool) else "must be True or False."
        words = " or ".join(map(repr, self.choices))
        if self.kind == "choice":
            return "" if value in self.choices else f"must be {words}."
        if self.kind == "text" and not self.choices:
            return ""
        if isinstance(value, str):
            return (
                ""
                if value in self.choices
                else "must be a number" + (f" or {words}." if words else ".")
            )
        return "" if math.isfinite(value) else "must be a finite number."


def declared(definition: Model | Callable) -> tuple[Option, ...]:
    """The options of a ``Model``, of a function that returns one, or of a NumPyro model, in their
    order.

    Names and defaults are from the signature, or from the options of a ``Model``. Kinds are from
    annotations, or from the default if there is no readable annotation. Help is the text of
    ``:param name:`` in the docstring. Options that no line of text can hold, such as arrays and
    functions, are left out.
    """
    function = definition.model if isinstance(definition, Model) else definition
    parameters = parameters_of(function)
    if isinstance(definition, Model):
        defaults: Mapping[str, Any] = definition.options
    elif is_numpyro_model(function):
        defaults = {
            name: value
            for name, value in arguments_of(function).options.items()
            if value is not inspect.Parameter.empty
        }
    else:
        named = parameters.values()
        defaults = {
            p.name: p.default for p in named if p.kind in _BY_NAME and p.default is not p.empty
        }
    while isinstance(function, functools.partial):
        function = function.func
    names = vars(sys.modules.get(getattr(function, "__module__", None) or "", object))
    hints = {name: evaluated(parameter.annotation, names) for name, parameter in parameters.items()}
    helps = {name: _beginning(text) for name, text in _HELP.findall(inspect.getdoc(function) or "")}
    options = (
        _option(name, default, hints.get(name), helps.get(name, ""))
        for name, default in defaults.items()
    )
    return tuple(option for option in options if option is not None)


def _option(name: str, default: Any, hint: Any, help: str) -> Option | None:
    members = _parts(hint)
    optional = default is None or type(None) in members
    words = tuple(
        value
        for member in members
        if typing.get_origin(member) is Literal
        for value in typing.get_args(member)
    )
    optional = optional or None in words
    words = tuple(value for value in words if value is not None)
    kinds = {
        kind
        for member in members
        if isinstance(member, type)
        for base, kind in _KINDS.items()
        if member is base
    }
    if not kinds and not words:
        if default is None:
            return Option(name, default, "text", optional=True, help=help)
        kinds = {kind for base, kind in _KINDS.items() if type(default) is base}
    if words and not kinds:
        return Option(name, default, "choice", words, optional, help)
    if kinds == {"yes or no"}:  # a check box has no third state
        if optional or words:
            return Option(name, default, "choice", (True, False, *words), optional, help)
        return Option(name, default, "yes or no", help=help)
    if "text" in kinds:
        return Option(name, default, "text", (), optional, help)
    if words:
        return Option(name, default, "text", words, optional, help)
    return (
        Option(name, default, "number" if "number" in kinds else "whole number", (), optional, help)
        if kinds
        else None
    )


def evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """An annotation, evaluated if it is text; None if that fails, for example for a name that only
    type checkers know.
    """
    try:
        return eval(annotation, dict(names)) if isinstance(annotation, str) else annotation
    except Exception:  # an annotation may be any expression
        return None


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    if hint is None:
        return ()
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _beginning(text: str) -> str:
    """The first sentence of ``text``, and the second where both are short."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(text.replace("``", "").split()))
    beginning = " ".join(sentences[:2])
    return beginning if len(beginning) <= _LONGEST_HELP else sentences[0]
