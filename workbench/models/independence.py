"""Whether a guide makes all quantities independent, so that correlations of its draws are noise."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import numpyro.distributions as dist
from numpyro import handlers

from workbench.models import relations
from workbench.models.model import Model

__all__ = ["are_drawn_independently", "are_independent"]


def are_independent(
    model: Model, records: relations.Records, constants: Mapping[str, Any], names: Collection[str]
) -> bool:
    """Whether every two scalars among the latents ``names`` are independent under the guide,
    whatever its parameters.

    False where this cannot be seen, as for draws that the model sorts or transforms.

    :param model: ``Model``. :param records: as for ``relations_of``. :param constants: of the data
        set, public.
    """
    return model.sort is None and _are_independent(model, records, constants, names, of_draws=False)


def are_drawn_independently(
    model: Model, records: relations.Records, constants: Mapping[str, Any], names: Collection[str]
) -> bool:
    """Whether all correlations of the latents ``names`` come from sorting, and from what is
    computed of the guide's draws.

    Arguments as for ``are_independent``.
    """
    return _are_independent(model, records, constants, names, of_draws=True)


def _are_independent(
    model: Model,
    records: relations.Records,
    constants: Mapping[str, Any],
    names: Collection[str],
    of_draws: bool,
) -> bool:
    guide = SimpleNamespace(model=model.new_guide(), options=model.options)
    args, keywords = relations.blank(model, records, constants, 2)
    # an automatic guide looks at its first records
    handlers.seed(guide.model, 0)(*args, **keywords)
    trace = relations.trace_of(guide.model, args, keywords)
    if of_draws:
        names = [name for name in names if trace.get(name, {}).get("type") == "sample"]
    if not all(name in trace and _is_elementwise(trace[name]["fn"]) for name in names):
        return False
    dependence = relations.dependence(guide, args, keywords, trace)
    used: set[str] = set()
    for name in names:
        sources = _sources(name, trace, dependence)
        if sources & used:
            return False
        used |= sources
    return True


def _is_elementwise(fn: dist.Distribution) -> bool:
    """Whether the entries of a draw are independent. A Delta stands for a function of
    other draws.
    """
    while isinstance(fn, (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)):
        fn = fn.base_dist
    if isinstance(fn, dist.TransformedDistribution):
        return all(
            transform.domain.event_dim == 0 for transform in fn.transforms
        ) and _is_elementwise(fn.base_dist)
    if isinstance(fn, dist.Delta):
        return not fn.shape()
    return not fn.event_shape


def _sources(name: str, trace: Mapping[str, Any], dependence: Mapping[str, Any]) -> set[str]:
    """The site and all random sites that it depends on."""
    reached, new = set(), [name]
    while new:
        site = new.pop()
        reached.add(site)
        used = dependence[site][""].union(*dependence[site].values())
        new += [
            source
            for source in used - reached
            if trace.get(source, {}).get("type") in ("sample", "deterministic")
        ]
    return reached
