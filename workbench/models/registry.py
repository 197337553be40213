"""Models by name: built-in models, models registered in this session, and models of installed
distributions.

A NumPyro function needs no registration (``as_model``), and neither does a model in a file
(``files.from_file``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import workbench.gallery as gallery
from workbench import _validate
from workbench.models.builders import BUILDERS, builder
from workbench.models.functions import from_function, is_numpyro_model
from workbench.models.model import Model, parameters_of
from workbench.models.options import Option, declared

__all__ = [
    "BUILT_IN",
    "ENTRY_POINTS",
    "AnyModel",
    "Model",
    "as_model",
    "definition",
    "entry_of",
    "get",
    "is_known",
    "is_of_session",
    "made_by",
    "names",
    "offer",
    "options",
    "origin",
    "reason",
    "register",
    "registrations",
]

ENTRY_POINTS = "workbench.models"  # the group in which installed distributions declare models
BUILT_IN = tuple(gallery.__all__)
AnyModel = str | Model | Callable[..., Any]  # a name, a Model or a NumPyro function
_ORIGIN_BUILT_IN, _ORIGIN_SESSION = "built-in", "registered here"
_NAME = re.compile(r"[^\W\d][\w-]*")
_NAME_RULE = (
    "must be letters, digits, _ and -, beginning with a letter, so that the command line takes it."
)


# ---- entries -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """A named model: ``make(**options) -> Model``, the options it takes (None: any), and its
    origin.

    ``definition`` is the object that the options can be read from.
    """

    make: Callable[..., Model]
    options: tuple[str, ...] | None
    origin: str
    definition: Any
    defined: tuple[str, str] | None = None


def _place(definition: Model | Callable) -> tuple[str, str] | None:
    """(module, qualified name) of a function, or of the function in a ``Model``. Running a cell
    again repeats both.
    """
    function = definition.model if isinstance(definition, Model) else definition
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return None if module is None or name is None else (module, name)


def entry_of(name: str, definition: Model | Callable, origin: str) -> _Entry:
    """The entry of a ``Model``, a function that returns one, or a NumPyro model.

    :raises ArgumentError: naming ``factory``, for anything else.
    """
    defined, original = _place(definition), definition
    if callable(definition) and is_numpyro_model(definition):
        definition = from_function(name, definition, "factory")
    if isinstance(definition, Model):
        model = definition
        return _Entry(
            lambda **options: replace(model, options={**model.options, **options}),
            tuple(model.options),
            origin,
            original,
            defined,
        )
    if not callable(definition):
        raise _validate.ArgumentError(
            "factory",
            definition,
            "must be a Model, a function that returns one, or a NumPyro function.",
        )
    parameters = parameters_of(definition)
    required = [
        p.name
        for p in parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if required:
        raise _validate.ArgumentError(
            "factory",
            getattr(definition, "__qualname__", definition),
            f"must work without arguments if it returns a Model, but needs {', '.join(required)}.",
        )
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return _Entry(definition, None if takes_any else tuple(parameters), origin, original, defined)


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
    return entry_of(
        name, getattr(importlib.import_module(f"{gallery.__name__}.{name}"), name), _ORIGIN_BUILT_IN
    )


def register(name: str, factory: Any = _LEFT_OUT, *, replace: bool = False) -> Any:
    """Register a model by name, so that the command line and the screens find it. A function call
    or a decorator::

        @wb.models.register("probit")
        def probit(x, y=None, prior_scale=5.0): ...

    The same function may be registered again, for example when a notebook cell is run twice.

    :param name: letters, digits, _ and -. It becomes the model's name.
    :param factory: a ``Model``; a function ``factory(**options)`` that returns one and works
        without arguments; or a NumPyro function, which must be given arrays or takes
        ``num_records``: its guide is ``AutoNormal``, its docstring the summary, and the arguments
        after ``num_records`` or with defaults are options. Without it, a decorator is returned.
    :param replace: True lets another definition replace one that was registered before (never a
        built-in model).
    :return: ``factory`` itself.
    :raises ArgumentError: if the name cannot be used or is taken, or ``factory`` is none of these.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _validate.ArgumentError("name", name, _NAME_RULE)
    if factory is _LEFT_OUT:
        return functools.partial(register, name, replace=replace)
    new = entry_of(name, factory, _ORIGIN_SESSION)
    old = _ENTRIES.get(name)
    if name in BUILT_IN or name in BUILDERS:
        raise _validate.ArgumentError(
            "name", name, "is the name of a built-in model; choose another name."
        )
    if old is not None and not replace and (new.defined is None or new.defined != old.defined):
        location = f" ({'.'.join(old.defined)})" if old.defined else ""
        raise _validate.ArgumentError(
            "name",
            name,
            f"is the name of another registered model{location}; give replace=True to replace it.",
        )
    _ENTRIES[name] = new
    return factory


@contextlib.contextmanager
def registrations() -> Iterator[dict[str, _Entry]]:
    """The models that are registered inside, filled in at the end. If the body fails, they are
    forgotten.
    """
    before = dict(_ENTRIES)
    new: dict[str, _Entry] = {}
    try:
        yield new
    except BaseException:
        _ENTRIES.clear()
        _ENTRIES.update(before)
        raise
    new.update({name: entry for name, entry in _ENTRIES.items() if before.get(name) is not entry})


# ---- installed distributions ---------------------------------------------------------------------


def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of installed distributions by model name. Only metadata is read, and nothing is
    imported.
    """
    entry_points: dict[str, importlib.metadata.EntryPoint] = {}
    owners = set()
    for distribution in importlib.metadata.distributions():
        owner = ""
        try:
            if ENTRY_POINTS not in (distribution.read_text("entry_points.txt") or ""):
                continue
            owner = _owner(distribution)
            points = [point for point in distribution.entry_points if point.group == ENTRY_POINTS]
        except Exception as error:  # a broken distribution must not hide the others
            if owner:
                _warn_once(
                    f"the models of {owner} are left out: its entry points cannot be read "
                    f"({reason(error)})."
                )
            continue
        if owner in owners:  # the first on sys.path is the one that is imported
            continue
        owners.add(owner)
        for point in points:
            if not _NAME.fullmatch(point.name):
                _warn_once(
                    f"the model {point.name!r} of {owner} is left out: its name {_NAME_RULE}"
                )
            elif point.name in BUILT_IN or point.name in BUILDERS:
                _warn_once(
                    f"the model {point.name!r} of {owner} is left out: it has the name of a "
                    "built-in model."
                )
            elif point.name in entry_points:
                first = _owner(entry_points[point.name].dist)
                _warn_once(
                    f"the model {point.name!r} of {owner} is left out: {first} has one of the "
                    "same name."
                )
            else:
                entry_points[point.name] = point
    return entry_points


# metadata of an installed package, None where Python finds none
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
        with registrations() as registered:
            entry = entry_of(name, point.load(), owner)
        # its module may call ``register`` as well
        _ENTRIES.update(
            {key: replace(registration, origin=owner) for key, registration in registered.items()}
        )
        return entry
    except (Exception, SystemExit) as error:
        raise _validate.ArgumentError(
            "model",
            name,
            f"the distribution {owner!r} declares it as {point.value}, which fails: "
            f"{reason(error)}.",
        ) from error


def reason(error: BaseException) -> str:
    """An exception in one line, without the full stop."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# ---- looking up ----------------------------------------------------------------------------------


def names() -> list[str]:
    """Names of all models: built-in, registered in this session, and declared by installed
    distributions.

    >>> wb.models.names()
    ['gmm', 'hierarchical_logistic', 'logistic', 'neural_classifier', 'vae']
    """
    return sorted({*BUILT_IN, *_ENTRIES, *_installed()})


def _find(name: str) -> _Entry:
    return _known(name) or _load(name, _point(name))


def _point(name: str) -> importlib.metadata.EntryPoint:
    """Where an installed distribution declares a model."""
    installed = _installed()
    return installed[_validate.choice("model", name, {*BUILT_IN, *_ENTRIES, *installed})]


def _known(name: object) -> _Entry | None:
    """The entry of a built-in model, or of one registered in this session; needs no look at
    installed distributions.
    """
    if not isinstance(name, str):
        return None
    if name in BUILDERS:
        return _Entry(builder(name), None, _ORIGIN_BUILT_IN, builder(name))
    return _built_in(name) if name in BUILT_IN else _ENTRIES.get(name)


def is_known(name: str) -> bool:
    """Whether ``get`` finds a model of this name."""
    return name in BUILDERS or name in names()


def is_of_session(name: str) -> bool:
    """Whether a model was registered in this session."""
    return name in _ENTRIES and _ENTRIES[name].origin == _ORIGIN_SESSION


def origin(name: str) -> str:
    """Where a model comes from: "built-in", "registered here", or the name of the distribution that
    declares it.

    >>> wb.models.origin("logistic")
    'built-in'

    :raises ArgumentError: for an unknown name, with the nearest ones.
    """
    entry = _known(name)
    return _owner(_point(name).dist) if entry is None else entry.origin


def options(name: str) -> tuple[Option, ...]:
    """The options of the model called ``name``, each with its default, kind, choices and a line of
    help.

    >>> [option.name for option in wb.models.options("gmm")]
    ['num_components', 'covariance', 'prior_scale']

    :raises ArgumentError: for an unknown name, with the nearest ones, or a model of a distribution
        that cannot be loaded.
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

    :raises ArgumentError: for an unknown name, with the nearest ones; an unknown or bad option; or
        if a model of the user or of a distribution cannot be made, with the reason.
    """
    return made_by(name, _find(name), options)


def as_model(model: AnyModel, argument: str = "model") -> Model:
    """The model of a name, a ``Model`` as it is, or that of a NumPyro function, which needs no
    registration.

    :raises ArgumentError: naming ``argument``, for anything else, or a function that cannot be a
        model.
    """
    if isinstance(model, str):
        return get(model)
    return model if isinstance(model, Model) else from_function(_name_of(model), model, argument)


def _name_of(function: Callable) -> str:
    """A function's name, or with another ending where another model has that."""
    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    name = name if _NAME.fullmatch(name) else "model"
    entry = _ENTRIES.get(name)
    is_taken = (
        is_known(name)
        if entry is None
        else _place(function) is None or entry.defined != _place(function)
    )
    return f"{name}_function" if is_taken else name


def offer(model: AnyModel) -> str:
    """The name of a model for the menu of a screen; a ``Model`` or NumPyro function is registered
    for that.

    :raises ArgumentError: as ``as_model`` and ``register`` do.
    """
    if isinstance(model, str):
        return model
    name = as_model(model).name
    register(name, model, replace=True)
    return name


def made_by(name: str, entry: _Entry, options: Mapping[str, Any]) -> Model:
    for option, value in options.items():
        if entry.options is not None and option not in entry.options:
            choices = ", ".join(entry.options) or "none"
            raise _validate.ArgumentError(
                option, value, f"unknown option of {name!r}; known: {choices}."
            )
    try:
        model = entry.make(**options)
    except _validate.ArgumentError:
        raise
    except Exception as error:
        raise _validate.ArgumentError(
            "model", name, f"({entry.origin}) cannot be made: {reason(error)}."
        ) from error
    if not isinstance(model, Model):
        raise _validate.ArgumentError(
            "model",
            name,
            f"({entry.origin}): its function returned {type(model).__name__}, not a "
            "workbench.models.Model.",
        )
    return model if model.name == name else replace(model, name=name)
