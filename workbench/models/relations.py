"""The dependencies between the sites of a NumPyro model, found by tracing it on blank records."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.infer.initialization import init_to_sample
from numpyro.infer.inspect import get_model_relations

__all__ = ["relations_of"]


def relations_of(model: Any, dataset: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """(the model's relations as ``numpyro.infer.inspect.get_model_relations`` gives them, a label for each of its plates).

    :param model: ``Model``. :param dataset: as ``model.view`` returns it. Shapes and public constants are all that is used:
        a plate is labelled with its size where two invented numbers of records leave it the same.
    """
    from workbench.inference._plates import takes_num_records
    from workbench.inference._threads import separate_handler_stacks  # the core need not be there to look at a model

    separate_handler_stacks()
    keywords = {**model.options, **model.constants(dataset)}

    def blank(count: int) -> tuple[tuple[np.ndarray, ...], dict[str, Any]]:
        records = tuple(np.zeros((count, *array.shape[1:]), array.dtype) for array in dataset.train)
        return records, {**keywords, **({"num_records": 2 * count} if takes_num_records(model.model) else {})}

    few, more = (_trace(model.model, *blank(count)) for count in (2, 3))
    labels = {}
    for name, site in few.items():
        if site["type"] == "plate":
            size, subsample_size = site["args"]
            public = name in more and more[name]["args"] == site["args"]
            subsampled = subsample_size not in (None, size)
            labels[name] = "records" if subsampled else f"{name}: {size:,}" if public else name
    relations = get_model_relations(model.model, *blank(2))
    names = {name: _distribution(site["fn"]) for name, site in few.items() if site["type"] == "sample"}
    return {**relations, "sample_dist": {**relations["sample_dist"], **names}}, labels


def _trace(model: Any, records: tuple[Any, ...], keywords: dict[str, Any]) -> dict[str, Any]:
    """The trace of ``model``. Nothing is computed, so its values are abstract."""
    trace: dict[str, Any] = {}

    def run() -> None:
        seeded = handlers.substitute(handlers.seed(model, 0), substitute_fn=init_to_sample)  # improper priors have no draws
        trace.update(handlers.trace(seeded).get_trace(*records, **keywords))

    jax.eval_shape(run)
    return trace


def _distribution(fn: Any) -> str:
    """The name of a distribution as people say it: "Bernoulli" with logits or probabilities, "transformed Gamma"."""
    if isinstance(fn, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)):
        return _distribution(fn.base_dist)
    if type(fn) is dist.TransformedDistribution:
        return f"transformed {_distribution(fn.base_dist)}"
    name = type(fn).__name__
    if name.startswith("Mixture"):
        return "mixture of " + _distribution(getattr(fn, "component_distribution", None) or fn.component_distributions[0])
    return name.removesuffix("Logits").removesuffix("Probs")
