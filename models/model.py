"""A NumPyro model with what surrounds it on the workbench."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpyro.infer.autoguide import AutoGuide, AutoNormal
from workbench.models._scoring import binary_scores

from workbench import _validate

__all__ = ["Model", "is_numpyro_model", "parameters_of"]


def _default_scores(target: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Scores of probabilities for a target of 0 and 1; none for other targets, where nobody said what counts as good."""
    return binary_scores(target, predictions) if np.isin(target, (0, 1)).all() else {}


def _no_coordinates(dataset: Any) -> dict[str, list[str]]:
    return {}


@dataclass(frozen=True)
class Model:
    """A NumPyro model with what surrounds it on the workbench. The first three fields are enough.

    :param name: short name in the registry. :param summary: one sentence for galleries.
    :param model: NumPyro model; record arrays first, then ``num_records`` and the options by keyword.
    :param guide: NumPyro guide with the same arguments, an automatic guide, or a class of automatic guides that is called
        with ``model``. ``AutoNormal`` by default.
    :param predict: ``predict(latents, *record arrays but the last) -> scores`` for evaluation records: latents of one
        posterior draw in, one value a record out, such as the probability of class 1. Without it the ELBO is the only
        metric.
    :param score: ``score(target, predictions) -> {metric: value}`` with predictions averaged over draws. By default AUC
        and log-likelihood where the target is 0 and 1, nothing elsewhere.
    :param check: ``check(dataset)`` raises ``ArgumentError`` if the model cannot fit the data set. By default the number
        of record arrays must be one that ``model`` takes.
    :param coordinates: ``coordinates(dataset) -> {site: labels}`` names the entries of vector-valued sites; they are
        numbered by default.
    :param options: keyword arguments of model and guide with their values, such as prior scales.
    :param reference: where the model is described.
    :raises ArgumentError: if ``model`` or another of the functions is not callable.
    """

    name: str
    summary: str
    model: Callable
    guide: Callable | type[AutoGuide] | None = None
    predict: Callable | None = None
    score: Callable[..., dict[str, float]] = _default_scores
    check: Callable[[Any], None] = None  # type: ignore[assignment]  # filled in below: it depends on ``model``
    coordinates: Callable[[Any], dict[str, list[str]]] = _no_coordinates
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""

    def __post_init__(self) -> None:
        if self.check is None:
            object.__setattr__(self, "check", functools.partial(_check_record_arrays, self.model))
        for part, optional in _FUNCTIONS.items():
            value = getattr(self, part)
            if not callable(value) and not (optional and value is None):
                raise _validate.ArgumentError(part, value, f"must be a function{' or None' if optional else ''}.")

    def new_guide(self) -> Callable:
        """The guide for one fit. An automatic guide remembers the shapes of its first data set, so each fit gets its own."""
        automatic: Callable = AutoNormal
        if isinstance(self.guide, type):
            automatic = self.guide
        elif self.guide is not None:
            return copy.deepcopy(self.guide) if isinstance(self.guide, AutoGuide) else self.guide
        return automatic(self.model)


_FUNCTIONS = {"model": False, "guide": True, "predict": True, "score": False, "check": False, "coordinates": False}


def parameters_of(function: Callable) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function by name; none where it has no signature to read."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # no signature to read, as with some built-in callables
        return {}


def is_numpyro_model(function: Callable) -> bool:
    """Every NumPyro model for the workbench takes ``num_records``, and no factory does."""
    return "num_records" in parameters_of(function)


def _check_record_arrays(model: Callable, dataset: Any) -> None:
    parameters = parameters_of(model)
    if "num_records" not in parameters or any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        return  # cannot be told from the signature
    arrays = list(parameters)[: list(parameters).index("num_records")]
    required = sum(parameters[name].default is inspect.Parameter.empty for name in arrays)
    given = len(dataset.train)
    if not required <= given <= len(arrays):
        raise _validate.ArgumentError(
            "data", dataset.name, f"a record has {given} array(s), but the model takes {', '.join(arrays) or 'none'}."
        )
