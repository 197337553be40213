"""What can be set about a model, read from signatures and docstrings: enough to make a form or a list of options from."""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from workbench.models.model import Model, is_numpyro_model, parameters_of

__all__ = ["Kind", "Option", "declared"]

Kind = Literal["number", "whole number", "yes or no", "choice", "text"]
_KINDS: dict[type, Kind] = {bool: "yes or no", int: "whole number", float: "number", str: "text"}
_LONGEST_HELP = 200  # characters of two sentences; the first is never cut
_ENTRY = re.compile(r":(param|type|returns?|rtype|raises?)\b([^:]*):")


@dataclass(frozen=True)
class Option:
    """One option of a model.

    :param name: of the keyword argument. :param default: its value where nothing is given.
    :param kind: what its values are.
    :param choices: all values of a "choice"; of a "text", words that stand beside numbers, as "learnt" does for a scale.
    :param optional: whether None is a value too. :param help: one or two sentences in plain text, or "".
    """

    name: str
    default: Any
    kind: Kind
    choices: tuple[Any, ...] = ()
    optional: bool = False
    help: str = ""

    def problem(self, value: Any) -> str:
        """What is wrong with ``value`` by the kind of the option alone, "" where nothing is; models may refuse more."""
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
            return "" if value in self.choices else "must be a number" + (f" or {words}." if words else ".")
        return "" if math.isfinite(value) else "must be a finite number."


def declared(definition: Any) -> tuple[Option, ...]:
    """The options of a ``Model``, of a function that returns one, or of a NumPyro model, in their order.

    Names and defaults are those of the signature (of a ``Model``, its options), kinds follow from annotations, and from
    the default where there is none that can be read; help is what the docstring says at ``:param name:``. An option that
    no line of text can hold, such as an array or a function, is left out.
    """
    if isinstance(definition, Model):
        function: Any = definition.model
        defaults: Mapping[str, Any] = definition.options
    else:
        function = definition
        parameters = list(parameters_of(function).values())
        if is_numpyro_model(function):  # record arrays come first, then num_records
            parameters = parameters[[parameter.name for parameter in parameters].index("num_records") + 1 :]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        defaults = {p.name: p.default for p in parameters if p.kind in named and p.default is not p.empty}
    hints, helps = _hints(function), _helps(inspect.getdoc(_inner(function)) or "")
    found = (_option(name, default, hints.get(name), helps.get(name, "")) for name, default in defaults.items())
    return tuple(option for option in found if option is not None)


def _option(name: str, default: Any, hint: Any, help: str) -> Option | None:
    parts = _parts(hint)
    optional = default is None or type(None) in parts
    words = tuple(value for part in parts if typing.get_origin(part) is Literal for value in typing.get_args(part))
    optional = optional or None in words
    words = tuple(value for value in words if value is not None)
    kinds = {kind for part in parts if isinstance(part, type) for base, kind in _KINDS.items() if part is base}
    if not kinds and not words:
        if default is None:
            return Option(name, default, "text", optional=True, help=help)
        kinds = {kind for base, kind in _KINDS.items() if type(default) is base}
    if words and not kinds:
        return Option(name, default, "choice", words, optional, help)
    if kinds == {"yes or no"}:  # a box to tick has no third state
        if optional or words:
            return Option(name, default, "choice", (True, False, *words), optional, help)
        return Option(name, default, "yes or no", help=help)
    if "text" in kinds:
        return Option(name, default, "text", (), optional, help)
    if words:
        return Option(name, default, "text", words, optional, help)
    return Option(name, default, "number" if "number" in kinds else "whole number", (), optional, help) if kinds else None


# ---- annotations --------------------------------------------------------------------------------------------------------


def _inner(function: Any) -> Any:
    """The function with the annotations: inside ``functools.partial``, decorators, or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, type):
        return inspect.unwrap(vars(function).get("__init__", function))
    return function if inspect.isroutine(function) else type(function).__call__


def _hints(function: Callable) -> dict[str, Any]:
    """Annotations by name; those that cannot be read, as a name that is only there for type checkers, are left out."""
    inner = _inner(function)
    found = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        holder = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            found.update(typing.get_type_hints(holder, getattr(inner, "__globals__", {})))
        except Exception:  # an annotation may be any expression
            continue
    return found


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    if hint is None:
        return ()
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


# ---- docstrings ---------------------------------------------------------------------------------------------------------


def _helps(docstring: str) -> dict[str, str]:
    """What stands at ``:param name:``, by name; several entries may share a line, and indented lines go on with one."""
    helps: dict[str, str] = {}
    entries = ""
    for line in docstring.splitlines():
        if line.startswith(":"):
            entries += f" {line}"
        elif entries and line[:1].isspace() and line.strip():
            entries += f" {line.strip()}"
        else:
            helps |= _split(entries)
            entries = ""
    return helps | _split(entries)


def _split(entries: str) -> dict[str, str]:
    _, *rest = _ENTRY.split(entries)
    named = zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    return {names.split()[-1]: _beginning(text) for field, names, text in named if field == "param" and names.split()}


def _beginning(text: str) -> str:
    """The first sentence of ``text``, and the second where both are short."""
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(text.replace("``", "").split()))
    two = " ".join(sentences[:2])
    return two if len(two) <= _LONGEST_HELP else sentences[0]
