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

from workbench import _validate
from workbench.models.relations import relations_of
from workbench.models.scoring import binary_scores

__all__ = ["Model", "inputs_of", "is_numpyro_model", "parameters_of"]


def _default_scores(target: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """Scores of probabilities for a target of 0 and 1; none for other targets, where nobody said what counts as good."""
    return binary_scores(target, predictions) if np.isin(target, (0, 1)).all() else {}


def _nothing(dataset: Any) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Model:
    """A NumPyro model with what surrounds it on the workbench. The first three fields are enough.

    :param name: short name in the registry. :param summary: one sentence for galleries.
    :param model: NumPyro model; record arrays first, then ``num_records`` and the options by keyword.
    :param guide: NumPyro guide with the same arguments, an automatic guide, or a class of automatic guides that is called
        with ``model``. ``AutoNormal`` by default.
    :param predict: ``predict(latents, *record arrays but the last) -> predictions``: global latents and deterministic
        sites of one posterior draw and the fit's parameters in, ``{name: array}``; one prediction a record out (first axis:
        records), such as the probability of class 1. A model of a single array gets that one. Without ``predict``, ELBO
        and log-likelihood are the only metrics.
    :param score: ``score(last record array, predictions) -> {metric: value}`` with predictions averaged over draws. By
        default AUC and log-likelihood where the target is 0 and 1, nothing elsewhere.
    :param check: ``check(dataset)`` raises ``ArgumentError`` if the model cannot fit the data set. By default the number
        of record arrays must be one that ``model`` takes.
    :param coordinates: ``coordinates(dataset) -> {site: labels}`` names the entries of vector-valued sites; they are
        numbered by default. ``{site: (labels, labels)}`` names rows and columns of a matrix.
    :param options: keyword arguments of model and guide with their values, such as prior scales.
    :param reference: where the model is described.
    :param arrays: names of the data set's arrays that the model takes, in order (``Dataset.arrays``); all by default.
    :param constants: ``constants(dataset) -> {keyword: value}``: public facts about the data set that model and guide take
        by keyword, such as group features.
    :param defaults: settings of ``workbench.fit`` that suit the model, such as ``{"clip": 0.3}``, or
        ``defaults(dataset, num_records, epsilon)`` that returns them from public facts about the data set (not from its
        exact size: ``num_records`` is the declared one). What the caller gives goes first; ``epochs`` is for iterations.
    :param pictures: ``{name: picture(result, dataset) -> Figure}``, what ``result.plot(name)`` draws; ``dataset`` holds
        records to draw beside the release, or is None. The first is the one that a screen shows by itself.
    :param sort: ``sort(draws, params) -> draws``: brings ``{site: array[draws, ...]}`` into an order that people expect,
        such as components by weight, or makes of them what people can read, such as sizes of a network's layers. Only
        summaries and pictures see it.
    :raises ArgumentError: if ``model`` or another of the functions is not callable.
    """

    name: str
    summary: str
    model: Callable
    guide: Callable | type[AutoGuide] | None = None
    predict: Callable | None = None
    score: Callable[..., dict[str, float]] = _default_scores
    check: Callable[[Any], None] = None  # type: ignore[assignment]  # filled in below: it depends on ``model``
    coordinates: Callable[[Any], dict[str, Any]] = _nothing
    options: Mapping[str, Any] = field(default_factory=dict)
    reference: str = ""
    arrays: tuple[str, ...] | None = None
    constants: Callable[[Any], dict[str, Any]] = _nothing
    defaults: Mapping[str, Any] | Callable[[Any, int, float], Mapping[str, Any]] = field(default_factory=dict)
    pictures: Mapping[str, Callable[[Any, Any], Any]] = field(default_factory=dict)
    sort: Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], dict[str, np.ndarray]] | None = None

    def __post_init__(self) -> None:
        if self.check is None:
            object.__setattr__(self, "check", functools.partial(_check_record_arrays, self.model))
        for part, optional in _FUNCTIONS.items():
            value = getattr(self, part)
            if not callable(value) and not (optional and value is None):
                raise _validate.ArgumentError(part, value, f"must be a function{' or None' if optional else ''}.")

    def view(self, dataset: Any) -> Any:
        """``dataset`` with the arrays that the model takes, checked.

        :raises ArgumentError: naming ``data``, if the model cannot fit it.
        """
        seen = dataset if self.arrays is None else dataset.select(self.arrays)
        self.check(seen)
        return seen

    def advice(self, dataset: Any, num_records: int, epsilon: float) -> Mapping[str, Any]:
        """``defaults`` for this data set of publicly declared size."""
        return self.defaults(dataset, num_records, epsilon) if callable(self.defaults) else self.defaults

    def diagram(self, dataset: Any) -> Any:
        """The plate diagram as a Figure, which a notebook draws; ``get_label()`` tells it in words.

        No record of ``dataset`` is looked at, and their number is not shown: the record plate is labelled "records". Plates
        of a public size, such as groups, show it.

        :raises ArgumentError: naming ``data``, if the model cannot fit it.
        """
        from workbench.plots import plate_figure

        relations, labels = relations_of(self, self.view(dataset))
        return plate_figure(relations, self.name, labels=labels)

    def new_guide(self) -> Callable:
        """The guide for one fit. An automatic guide remembers the shapes of its first data set, so each fit gets its own."""
        automatic: Callable = AutoNormal
        if isinstance(self.guide, type):
            automatic = self.guide
        elif self.guide is not None:
            return copy.deepcopy(self.guide) if isinstance(self.guide, AutoGuide) else self.guide
        return automatic(self.model)


_FUNCTIONS = {
    "model": False,
    "guide": True,
    "predict": True,
    "score": False,
    "check": False,
    "coordinates": False,
    "constants": False,
    "sort": True,
}


def parameters_of(function: Callable) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function by name; none where it has no signature to read."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # no signature to read, as with some built-in callables
        return {}


def inputs_of(records: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a prediction may look at: all arrays of the records but the last, or the only one."""
    return records[:-1] or records


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
