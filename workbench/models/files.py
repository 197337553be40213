"""Models in Python files of the user's, which are run."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench import _validate
from workbench.models.model import Model
from workbench.models.options import evaluated
from workbench.models.registry import entry_of, get, made_by, reason, registrations

__all__ = ["from_file", "run_source", "source_file"]


def from_file(source: str | Path, /, **options: Any) -> Model:
    """The model in a Python file, as in ``from_file("probit.py")`` or
    ``from_file("probit.py:sparse")``. Runs the file.

    >>> import shutil, workbench.gallery.logistic
    >>> shutil.copy(workbench.gallery.logistic.__file__, "mine.py")
    'mine.py'
    >>> wb.models.from_file("mine.py", prior_scale=2.0).options["prior_scale"]
    2.0

    :param source: path of a file, or path:NAME. NAME is a registered name, or anything at the top
        level of the file that ``register`` would take. Without a NAME the file must have exactly
        one model: one that it registers; or else one ``Model`` at its top level; or else one
        function annotated to return a ``Model``, as in a copy of a gallery file.
    :param options: of the model, as for ``get``.
    :raises ArgumentError: naming ``model``, if there is no such file; if the file fails, with the
        reason and the line (what it registered before is forgotten); or if it has no model,
        several, or none of that name. Naming an option that is unknown or has a bad value.
    """
    text = str(source)
    path, wanted = text, ""
    if re.search(r"\.\w+:[^\W\d]\w*(-\w+)*$", text):
        path, _, wanted = text.rpartition(":")
    file = _validate.path("model", path)
    if not file.is_file():
        raise _validate.ArgumentError("model", text, "no such file.")
    try:
        with registrations() as registered:
            module = _run_file(file)
    except (Exception, SystemExit) as error:
        raise _validate.ArgumentError(
            "model", text, f"the file fails{_line(error, file)}: {reason(error)}."
        ) from error
    models = {name: value for name, value in vars(module).items() if isinstance(value, Model)}
    functions = _functions(module)
    if not wanted:
        # a model with two names counts once
        distinct = {id(model): name for name, model in reversed(models.items())}
        factories = [
            name
            for name, function in functions.items()
            if evaluated(function.__annotations__.get("return"), vars(module)) is Model
        ]
        candidates = list(registered) or list(reversed(distinct.values())) or factories
        if len(candidates) != 1:
            problem = "has several models" if candidates else "registers no model and holds none"
            choices = candidates or list(functions)
            hint = (
                f"; choose one with {path}:NAME, where NAME is one of {', '.join(choices)}"
                if choices
                else ""
            )
            raise _validate.ArgumentError("model", text, f"the file {problem}{hint}.")
        wanted = candidates[0]
    if wanted in registered:
        return get(wanted, **options)
    if wanted not in vars(module):
        raise _validate.unknown_name("model", wanted, [*registered, *models, *functions])
    name = models[wanted].name if wanted in models else wanted
    try:
        entry = entry_of(name, vars(module)[wanted], path)
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError("model", text, error.expectation) from None
    return made_by(name, entry, options)


def _functions(module: types.ModuleType) -> dict[str, Callable]:
    """Public functions that ``module`` defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def source_file(model: Model) -> Path | None:
    """The file that ``from_file`` ran for ``model``; None if it is not from a file."""
    module = sys.modules.get(getattr(model.model, "__module__", None) or "")
    file = Path(getattr(module, "__file__", None) or "")
    return file if module is not None and module.__name__ == _module_name(file) else None


def run_source(file: str | Path) -> None:
    """Run the ``source_file`` of a model, once, in another process that will unpickle the model."""
    if _module_name(Path(file)) not in sys.modules:
        with registrations():
            _run_file(Path(file))


def _module_name(path: Path) -> str:
    return f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"


def _run_file(file: Path) -> types.ModuleType:
    """Run ``file`` as a new module. Its folder goes last on sys.path, so files beside it are found
    but hide nothing.
    """
    path = file.resolve()
    module = types.ModuleType(_module_name(path))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        # without bytecode, so that edits count at once
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _line(error: BaseException, file: Path) -> str:
    """ " in line 7", or "" if no line of the file is involved."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}" if error.filename == str(file.resolve()) else ""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file.resolve())
    ]
    return f" in line {lines[-1]}" if lines else ""
