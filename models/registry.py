"""The gallery of models by name, and what the workbench needs to know about each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench import _validate

__all__ = ["Model", "get", "names", "register"]


@dataclass(frozen=True)
class Model:
    """A NumPyro model with what surrounds it on the workbench.

    :param name: short name in the registry. :param summary: one sentence for galleries.
    :param model: NumPyro model; record arrays first, then ``num_records`` and the options by keyword.
    :param guide: NumPyro guide with the same arguments.
    :param predict: ``predict(latents, *record arrays but the last) -> scores`` for evaluation records: latents of one
        posterior draw in, one value a record out, such as the probability of class 1.
    :param score: ``score(target, predictions) -> {metric: value}`` with predictions averaged over draws.
    :param check: ``check(dataset)`` raises ``ArgumentError`` if the model cannot fit the data set.
    :param coordinates: ``coordinates(dataset) -> {site: labels}`` names the entries of vector-valued sites.
    :param options: keyword arguments of model and guide with their values, such as prior scales.
    :param reference: where the model is described.
    """

    name: str
    summary: str
    model: Callable
    guide: Callable
    predict: Callable
    score: Callable[..., dict[str, float]]
    check: Callable[[Any], None]
    coordinates: Callable[[Any], dict[str, list[str]]]
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""


_FACTORIES: dict[str, Callable[..., Model]] = {}


def register(name: str, factory: Callable[..., Model]) -> None:
    """Add a model to the gallery: ``factory(**options)`` returns a ``Model``.

    :raises ArgumentError: if the name is taken.
    """
    if name in _FACTORIES:
        raise _validate.ArgumentError("name", name, "a model of this name is registered already.")
    _FACTORIES[name] = factory


def names() -> list[str]:
    """Names of the registered models."""
    return sorted(_FACTORIES)


def get(name: str, **options: Any) -> Model:
    """The model called ``name``, with its options set, as in ``get("logistic", prior_scale=2.0)``.

    :raises ArgumentError: for an unknown name, with the nearest ones, or an unknown or bad option.
    """
    factory = _FACTORIES[_validate.choice("model", name, _FACTORIES)]
    known = inspect.signature(factory).parameters
    for option, value in options.items():
        if option not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            raise _validate.ArgumentError(option, value, f"unknown option of {name!r}; known: {', '.join(known) or 'none'}.")
    return factory(**options)
