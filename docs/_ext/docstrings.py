"""Docstrings as the workbench writes them, and a check that every public name is documented.

Our docstrings put several short fields on one line, as in ``:param q: share. :param steps: T.``; reStructuredText wants each
at the beginning of a line, with a blank line before the first. ``as_restructured_text`` puts them there. It shields the
marks that are mathematics in ours and markup there, |x| and a * b, and shows an indented paragraph as code.

``undocumented`` names what is public and lacks a docstring or a place in the reference; each is a warning, and ``make docs``
turns warnings into errors.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
from collections.abc import Container, Iterator
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

_FIELD = re.compile(r"(?<!\S):(?:param|returns?|raises?|yields?)(?: [^:`]+)?:(?=\s|$)")
_log = logging.getLogger(__name__)


def as_restructured_text(lines: list[str]) -> list[str]:
    """``lines`` of a docstring with every field at the beginning of a line, and code and mathematics shielded."""
    result: list[str] = []
    in_field = in_code = False
    for line in lines:
        before = next((text for text in reversed(result) if text.strip()), "")
        if not line.strip():
            in_field = False
            result.append("")
            continue
        if line.startswith("    ") and not in_field:
            if not in_code and not before.endswith("::"):
                result += ["::", ""]
            in_code = True
            result.append(line)
            continue
        in_code = False
        starts = [match.start() for match in _FIELD.finditer(line)]
        for start, end in itertools.pairwise(sorted({0, *starts, len(line)})):
            part = _shielded(line[start:end].strip())
            if start in starts:
                if result and result[-1].strip() and not in_field:
                    result.append("")
                in_field = True
                result.append(part)
            elif part:
                result.append(f"    {part}" if in_field else part)
    return result


def _shielded(text: str) -> str:
    """``text`` with | and * escaped outside literals."""
    parts = text.split("``")
    return "``".join(part if place % 2 else re.sub(r"[|*]", r"\\\g<0>", part) for place, part in enumerate(parts))


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = as_restructured_text(lines)


def public_modules(name: str = "workbench") -> Iterator[ModuleType]:
    """The module of that name and those that its ``__all__`` names, and theirs."""
    module = importlib.import_module(name)
    yield module
    for inner in module.__all__:
        if inspect.ismodule(getattr(module, inner)):
            yield from public_modules(f"{name}.{inner}")


def _signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """Defaults that Python prints as <something> made readable, and the whole with them: Sphinx gives up at one."""
    if signature is None or "<" not in signature:
        return None
    return re.sub(r"<[^<>]*>", "...", signature), returned


def undocumented(documented: Container[str]) -> list[str]:
    """Sentences about public names without a docstring, or not among the ``documented`` full names."""
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
        inner = getattr(inner, "fget", None) or getattr(inner, "func", None) or getattr(inner, "__func__", inner)
        # the default of a dataclass's field may be a function that was defined elsewhere
        is_ours = inspect.isfunction(inner) and inner.__qualname__.endswith(f"{value.__name__}.{member}")
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
