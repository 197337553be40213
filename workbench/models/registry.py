"""Models by name: built-in models, models registered in this session, and models of installed distributions.

A model in a file needs no registration: ``from_file`` runs the file and returns its model.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import inspect
import re
import sys
import traceback
import types
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import workbench.gallery as gallery
from workbench import _validate
from workbench.models.builders import BUILDERS, builder
from workbench.models.model import Model, is_numpyro_model, parameters_of
from workbench.models.options import Option, declared, evaluated

__all__ = [
    "BUILT_IN", "ENTRY_POINTS", "Model", "from_file", "get", "is_known", "names", "options", "origin", "register",
    "run_source", "source_file",
]  # fmt: skip

ENTRY_POINTS = "workbench.models"  # the group in which installed distributions declare models
BUILT_IN = tuple(gallery.__all__)
_ORIGIN_BUILT_IN, _ORIGIN_SESSION = "built-in", "registered here"
_NAME = re.compile(r"[^\W\d][\w-]*")
_NAME_RULE = "must be letters, digits, _ and -, beginning with a letter, so that the command line takes it."


# ---- entries ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A named model: ``make(**options) -> Model``, the options it takes (None: any), and its origin.

    ``definition`` is the object that the options can be read from.
    """

    make: Callable[..., Model]
    options: tuple[str, ...] | None
    origin: str
    definition: Any
    defined: tuple[str, str] | None = None


def _place(definition: Any) -> tuple[str, str] | None:
    """(module, qualified name) of a function, or of the function in a ``Model``. Running a cell again repeats both."""
    function = definition.model if isinstance(definition, Model) else definition
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return None if module is None or name is None else (module, name)


def _summary(function: Callable, name: str) -> str:
    first = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return " ".join(first.split()) or f"The NumPyro model {name}."


def _from_numpyro(name: str, function: Callable) -> Model:
    """``Model`` of a NumPyro model. Its docstring is the summary, and arguments after ``num_records`` are options."""
    parameters = list(parameters_of(function).values())
    after = [parameter.name for parameter in parameters].index("num_records") + 1
    options = {p.name: p.default for p in parameters[after:] if p.kind is not p.VAR_KEYWORD}
    missing = [option for option, value in options.items() if value is inspect.Parameter.empty]
    if missing:
        raise _validate.ArgumentError("factory", name, f"must have defaults for {', '.join(missing)}.")
    return Model(name, _summary(function, name), function, options=options)


def _entry(name: str, definition: Any, origin: str) -> _Entry:
    """The entry of a ``Model``, a function that returns one, or a NumPyro model.

    :raises ArgumentError: naming ``factory``, for anything else.
    """
    place, given = _place(definition), definition
    if callable(definition) and is_numpyro_model(definition):
        definition = _from_numpyro(name, definition)
    if isinstance(definition, Model):
        model = definition
        return _Entry(
            lambda **options: replace(model, options={**model.options, **options}),
            tuple(model.options),
            origin,
            given,
            place,
        )
    if not callable(definition):
        raise _validate.ArgumentError(
            "factory", definition, "must be a Model, a function that returns one, or a NumPyro model (it takes num_records)."
        )
    parameters = parameters_of(definition)
    required = [
        p.name for p in parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        raise _validate.ArgumentError(
            "factory",
            getattr(definition, "__qualname__", definition),
            f"must work without arguments if it returns a Model, but needs {', '.join(required)}. A NumPyro "
            "model must take num_records.",
        )
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return _Entry(definition, None if takes_any else tuple(parameters), origin, given, place)


_ENTRIES: dict[str, _Entry] = {}
_warned: set[str] = set()
_LEFT_OUT: Any = object()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, stacklevel=3)


@functools.cache
def _built_in(name: str) -> _Entry:
    """The entry of a built-in model, whose file is imported only now."""
    return _entry(name, getattr(importlib.import_module(f"{gallery.__name__}.{name}"), name), _ORIGIN_BUILT_IN)


def register(name: str, factory: Any = _LEFT_OUT, *, replace: bool = False) -> Any:
    """Register a model by name, so that the command line and the screens find it. A function call or a decorator::

        @wb.models.register("probit")
        def probit(x, y=None, num_records=None, prior_scale=5.0): ...

    The same function may be registered again, for example when a notebook cell is run twice.

    :param name: letters, digits, _ and -. It becomes the model's name.
    :param factory: a ``Model``; a function ``factory(**options)`` that returns one and works without arguments; or a
        NumPyro model, which is recognised by its argument ``num_records``: its guide is ``AutoNormal``, its docstring the
        summary, and the arguments after ``num_records`` are options. Without it, a decorator is returned.
    :param replace: True lets another definition replace one that was registered before (never a built-in model).
    :return: ``factory`` itself.
    :raises ArgumentError: if the name cannot be used or is taken, or ``factory`` is none of these.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _validate.ArgumentError("name", name, _NAME_RULE)
    if factory is _LEFT_OUT:
        return functools.partial(register, name, replace=replace)
    new = _entry(name, factory, _ORIGIN_SESSION)
    old = _ENTRIES.get(name)
    if name in BUILT_IN or name in BUILDERS:
        raise _validate.ArgumentError("name", name, "is the name of a built-in model; choose another name.")
    if old is not None and not replace and (new.defined is None or new.defined != old.defined):
        where = f" ({'.'.join(old.defined)})" if old.defined else ""
        raise _validate.ArgumentError(
            "name", name, f"is the name of another registered model{where}; give replace=True to replace it."
        )
    _ENTRIES[name] = new
    return factory


@contextlib.contextmanager
def _registrations() -> Iterator[dict[str, _Entry]]:
    """The models that are registered inside, filled in at the end. If the body fails, they are forgotten."""
    before = dict(_ENTRIES)
    new: dict[str, _Entry] = {}
    try:
        yield new
    except BaseException:
        _ENTRIES.clear()
        _ENTRIES.update(before)
        raise
    new.update({name: entry for name, entry in _ENTRIES.items() if before.get(name) is not entry})


# ---- installed distributions ----------------------------------------------------------------------------------------------


def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of installed distributions by model name. Only metadata is read, and nothing is imported."""
    found: dict[str, importlib.metadata.EntryPoint] = {}
    seen = set()
    for distribution in importlib.metadata.distributions():
        owner = ""
        try:
            if ENTRY_POINTS not in (distribution.read_text("entry_points.txt") or ""):
                continue
            owner = _owner(distribution)
            points = [point for point in distribution.entry_points if point.group == ENTRY_POINTS]
        except Exception as error:  # a broken distribution must not hide the others
            if owner:
                _warn_once(f"the models of {owner} are left out: its entry points cannot be read ({_reason(error)}).")
            continue
        if owner in seen:  # the first on sys.path is the one that is imported
            continue
        seen.add(owner)
        for point in points:
            if not _NAME.fullmatch(point.name):
                _warn_once(f"the model {point.name!r} of {owner} is left out: its name {_NAME_RULE}")
            elif point.name in BUILT_IN or point.name in BUILDERS:
                _warn_once(f"the model {point.name!r} of {owner} is left out: it has the name of a built-in model.")
            elif point.name in found:
                first = _owner(found[point.name].dist)
                _warn_once(f"the model {point.name!r} of {owner} is left out: {first} has one of the same name.")
            else:
                found[point.name] = point
    return found


def _owner(distribution: Any) -> str:
    """Name of a distribution, or its location if the metadata are damaged."""
    try:
        name = distribution.metadata["Name"]
    except Exception:
        name = None
    return str(name or f"an unnamed distribution in {distribution.locate_file('')}")


def _load(name: str, point: importlib.metadata.EntryPoint) -> _Entry:
    owner = _owner(point.dist)
    try:
        with _registrations() as registered:
            entry = _entry(name, point.load(), owner)
        # its module may call ``register`` as well
        _ENTRIES.update({own: replace(registration, origin=owner) for own, registration in registered.items()})
        return entry
    except (Exception, SystemExit) as error:
        raise _validate.ArgumentError(
            "model", name, f"the distribution {owner!r} declares it as {point.value}, which fails: {_reason(error)}."
        ) from error


def _reason(error: BaseException) -> str:
    """An exception in one line, without the full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---- looking up -----------------------------------------------------------------------------------------------------------


def names() -> list[str]:
    """Names of all models: built-in, registered in this session, and declared by installed distributions.

    >>> wb.models.names()
    ['gmm', 'hierarchical_logistic', 'logistic', 'neural_classifier', 'vae']
    """
    return sorted({*BUILT_IN, *_ENTRIES, *_installed()})


def _find(name: str) -> _Entry:
    entry = _known(name)
    if entry is not None:
        return entry
    installed = _installed()
    return _load(name, installed[_validate.choice("model", name, {*BUILT_IN, *_ENTRIES, *installed})])


def _known(name: Any) -> _Entry | None:
    """The entry of a built-in model, or of one registered in this session; needs no look at installed distributions."""
    if not isinstance(name, str):
        return None
    if name in BUILDERS:
        return _Entry(builder(name), None, _ORIGIN_BUILT_IN, builder(name))
    return _built_in(name) if name in BUILT_IN else _ENTRIES.get(name)


def is_known(name: str) -> bool:
    """Whether ``get`` finds a model of this name."""
    return name in BUILDERS or name in names()


def origin(name: str) -> str:
    """Where a model comes from: "built-in", "registered here", or the name of the distribution that declares it.

    >>> wb.models.origin("logistic")
    'built-in'

    :raises ArgumentError: for an unknown name, with the nearest ones.
    """
    entry = _known(name)
    if entry is not None:
        return entry.origin
    installed = _installed()
    return _owner(installed[_validate.choice("model", name, {*BUILT_IN, *_ENTRIES, *installed})].dist)


def options(name: str) -> tuple[Option, ...]:
    """The options of the model called ``name``, each with its default, kind, choices and a line of help.

    >>> [option.name for option in wb.models.options("gmm")]
    ['num_components', 'covariance', 'prior_scale']

    :raises ArgumentError: for an unknown name, with the nearest ones, or a model of a distribution that cannot be loaded.
    """
    return declared(_find(name).definition)


def definition(name: str) -> Any:
    """The object that ``name`` was registered with. Another registration gives another object.

    :raises ArgumentError: for an unknown name, with the nearest ones.
    """
    return _find(name).definition


def get(name: str, **options: Any) -> Model:
    """The model called ``name``, with its options set, as in ``get("logistic", prior_scale=2.0)``.

    >>> wb.models.get("gmm", num_components=3).name
    'gmm'

    :raises ArgumentError: for an unknown name, with the nearest ones; an unknown or bad option; or if a model of the user or
        of a distribution cannot be made, with the reason.
    """
    return _make(name, _find(name), options)


def _make(name: str, entry: _Entry, options: Mapping[str, Any]) -> Model:
    for option, value in options.items():
        if entry.options is not None and option not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise _validate.ArgumentError(option, value, f"unknown option of {name!r}; known: {known}.")
    try:
        model = entry.make(**options)
    except _validate.ArgumentError:
        raise
    except Exception as error:
        raise _validate.ArgumentError("model", name, f"({entry.origin}) cannot be made: {_reason(error)}.") from error
    if not isinstance(model, Model):
        raise _validate.ArgumentError(
            "model", name, f"({entry.origin}): its function returned {type(model).__name__}, not a workbench.models.Model."
        )
    return model if model.name == name else replace(model, name=name)


# ---- files ----------------------------------------------------------------------------------------------------------------


def from_file(source: str | Path, /, **options: Any) -> Model:
    """The model in a Python file, as in ``from_file("probit.py")`` or ``from_file("probit.py:sparse")``. Runs the file.

    >>> import shutil, workbench.gallery.logistic
    >>> shutil.copy(workbench.gallery.logistic.__file__, "mine.py")
    'mine.py'
    >>> wb.models.from_file("mine.py", prior_scale=2.0).options["prior_scale"]
    2.0

    :param source: path of a file, or path:NAME. NAME is a registered name, or anything at the top level of the file that
        ``register`` would take. Without a NAME the file must have exactly one model: one that it registers; or else one
        ``Model`` at its top level; or else one function annotated to return a ``Model``, as in a copy of a gallery file.
    :param options: of the model, as for ``get``.
    :raises ArgumentError: naming ``model``, if there is no such file; if the file fails, with the reason and the line (what
        it registered before is forgotten); or if it has no model, several, or none of that name. Naming an option that is
        unknown or has a bad value.
    """
    text = str(source)
    path, wanted = text, ""
    if re.search(r"\.\w+:[^\W\d]\w*(-\w+)*$", text):
        path, _, wanted = text.rpartition(":")
    file = _validate.path("model", path)
    if not file.is_file():
        raise _validate.ArgumentError("model", text, "no such file.")
    try:
        with _registrations() as registered:
            module = _run_file(file)
    except (Exception, SystemExit) as error:
        raise _validate.ArgumentError("model", text, f"the file fails{_line(error, file)}: {_reason(error)}.") from error
    held = {name: value for name, value in vars(module).items() if isinstance(value, Model)}
    functions = _functions(module)
    if not wanted:
        factories = [name for name, function in functions.items() if _returns_model(function, module)]
        candidates = list(registered) or _distinct(held) or factories
        if len(candidates) != 1:
            problem = "has several models" if candidates else "registers no model and holds none"
            choices = candidates or list(functions)
            hint = f"; choose one with {path}:NAME, where NAME is one of {', '.join(choices)}" if choices else ""
            raise _validate.ArgumentError("model", text, f"the file {problem}{hint}.")
        wanted = candidates[0]
    if wanted in registered:
        return get(wanted, **options)
    if wanted not in vars(module):
        raise _validate.unknown_name("model", wanted, [*registered, *held, *functions])
    name = held[wanted].name if wanted in held else wanted
    try:
        entry = _entry(name, vars(module)[wanted], path)
    except _validate.ArgumentError as error:
        raise _validate.ArgumentError("model", text, error.expectation) from None
    return _make(name, entry, options)


def _functions(module: types.ModuleType) -> dict[str, Callable]:
    """Public functions that ``module`` defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def _returns_model(function: Callable, module: types.ModuleType) -> bool:
    return evaluated(function.__annotations__.get("return"), vars(module)) is Model


def _distinct(held: dict[str, Model]) -> list[str]:
    """Names of different models. A model with two names counts once."""
    first: dict[int, str] = {}
    for name, model in held.items():
        first.setdefault(id(model), name)
    return list(first.values())


def source_file(model: Model) -> Path | None:
    """The file that ``from_file`` ran for ``model``; None if it is not from a file."""
    module = sys.modules.get(getattr(model.model, "__module__", None) or "")
    file = Path(getattr(module, "__file__", None) or "")
    return file if module is not None and module.__name__ == _module_name(file) else None


def run_source(file: str | Path) -> None:
    """Run the ``source_file`` of a model, once, in another process that will unpickle the model."""
    if _module_name(Path(file)) not in sys.modules:
        with _registrations():
            _run_file(Path(file))


def _module_name(path: Path) -> str:
    return f"{path.stem}_{zlib.crc32(str(path).encode()):08x}"


def _run_file(file: Path) -> types.ModuleType:
    """Run ``file`` as a new module. Its folder goes last on sys.path, so files beside it are found but hide nothing."""
    path = file.resolve()
    module = types.ModuleType(_module_name(path))
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # without bytecode, so that edits count at once
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def _line(error: BaseException, file: Path) -> str:
    """ " in line 7", or "" if no line of the file is involved."""
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}" if error.filename == str(file.resolve()) else ""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file.resolve())]
    return f" in line {lines[-1]}" if lines else ""
