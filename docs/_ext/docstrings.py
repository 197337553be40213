"""Checks of docstrings: every public name has one and is in the reference, and every field begins a
line.

reStructuredText shows a ``:param x:`` inside a line, or right after a paragraph, as plain text and
says nothing. Each problem is a warning, and ``make docs`` turns warnings into errors.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Container, Iterator
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

_FIELD = re.compile(r"(?<!\S):(?:param|returns?|raises?|yields?)(?: [^:`]+)?:(?=\s|$)")
_log = logging.getLogger(__name__)


def misplaced_fields(lines: list[str]) -> list[str]:
    """The lines of a docstring in which a field is not at the beginning, or has a paragraph right
    before it.
    """
    found, before = [], ""
    for line in lines:
        starts = [match.start() for match in _FIELD.finditer(line)]
        follows_text = before.strip() and not before.startswith((":", " "))
        if starts and (starts != [0] or follows_text):
            found.append(line)
        before = line
    return found


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    for line in misplaced_fields(lines):
        _log.warning(
            "docstring of %s: a field must begin a line, after a blank one: %s", name, line
        )


def public_modules(name: str = "workbench") -> Iterator[ModuleType]:
    """The module of that name and those that its ``__all__`` names, and theirs."""
    module = importlib.import_module(name)
    yield module
    for inner in module.__all__:
        if inspect.ismodule(getattr(module, inner)):
            yield from public_modules(f"{name}.{inner}")


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None] | None:
    """Defaults that Python prints as <something> made readable, and the whole with them: Sphinx
    gives up at one.
    """
    if signature is None or "<" not in signature:
        return None
    while (shorter := re.sub(r"<[^<>]*>", "...", signature)) != signature:
        signature = shorter  # <function f.<locals>.g> has brackets inside
    return signature, returned


def undocumented(documented: Container[str]) -> list[str]:
    """Sentences about public names without a docstring, or not among the ``documented``
    full names.
    """
    problems = []
    for module in public_modules():
        if not module.__doc__:
            problems.append(f"{module.__name__} has no docstring")
        for name in module.__all__:
            value, full = getattr(module, name), f"{module.__name__}.{name}"
            if inspect.ismodule(value) or name == "__version__":
                continue
            # a dataclass without a docstring is given its signature as one
            if not value.__doc__ or value.__doc__.startswith(f"{name}("):
                problems.append(f"{full} has no docstring")
            # a class may be documented in the room that it is from
            if full not in documented and f"{value.__module__}.{value.__name__}" not in documented:
                problems.append(f"{full} is on no page of the reference")
            problems += [f"{full}.{member} has no docstring" for member in _bare_members(value)]
    return problems


def _bare_members(value: Any) -> list[str]:
    """Public methods and properties of a class that have no docstring."""
    bare = []
    for member, inner in vars(value).items() if inspect.isclass(value) else ():
        inner = (
            getattr(inner, "fget", None)
            or getattr(inner, "func", None)
            or getattr(inner, "__func__", inner)
        )
        # the default of a dataclass's field may be a function that was defined elsewhere
        is_ours = inspect.isfunction(inner) and inner.__qualname__.endswith(
            f"{value.__name__}.{member}"
        )
        if is_ours and not member.startswith("_") and not inner.__doc__:
            bare.append(member)
    return bare


def _check(app: Sphinx, env: BuildEnvironment) -> None:
    for problem in undocumented(env.domains.python_domain.objects):
        _log.warning("public name: %s", problem)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _signature)
    app.connect("env-check-consistency", _check)
    return {"parallel_read_safe": True}
