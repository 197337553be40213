"""The model of a result in pictures and words, made of public facts alone; it works for loaded
results too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints

from workbench._numbers import count
from workbench.models import independence, relations
from workbench.results.prediction import synthetic_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from workbench.results.fit_result import FitResult

__all__ = [
    "diagram",
    "distributions",
    "draws_are_independent",
    "prior_draws",
    "quantities_are_independent",
    "scales_and_shapes",
]


def diagram(result: FitResult) -> Figure:
    """The plate diagram of the fitted model, with the public number of records."""
    from workbench.plots import plate_figure

    structure, labels = relations.relations_of(
        result.predictor.model, _records(result), result.constants
    )
    records = f"records: {count(result.guarantee.num_records)}"
    return plate_figure(
        structure,
        labels={name: records if label == "records" else label for name, label in labels.items()},
    )


def distributions(result: FitResult) -> dict[str, str]:
    """The distribution of each site, as ``relations.distributions_of`` says it."""
    return relations.distributions_of(result.predictor.model, _records(result), result.constants)


def scales_and_shapes(result: FitResult) -> tuple[str, ...]:
    """Latents of which each entry has a bound, such as standard deviations; none of an unknown
    model.
    """
    if not result.model_is_known:
        return ()
    model = result.predictor.model
    try:
        arguments = relations.blank(model, _records(result), result.constants, 2)
        sites = relations.trace_of(model.model, *arguments)
        logarithms = {f"log_{name}" for name in sites} & set(sites)  # in place of what they are of
        return tuple(
            name
            for name, site in sites.items()
            if name in result.draws
            and name not in logarithms
            and (_has_bounds(site) or f"log_{name}" in logarithms)
        )
    except Exception:  # users' models can fail in any way on blank records
        return ()


def _has_bounds(site: dict) -> bool:
    if site["type"] != "sample":
        return False
    support = site["fn"].support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    return support.event_dim == 0 and support is not constraints.real and not support.is_discrete


def prior_draws(result: FitResult) -> dict[str, np.ndarray]:
    """As many draws from the model's prior as the result has of the posterior, ``{site:
    array[draws, ...]}``; nothing was learned for them.

    None where the prior cannot be drawn from, and of a whole table, whose prior is not its NumPyro
    model's.
    """
    if not result.model_is_known or result.predictor.model.table is not None:
        return {}
    model = result.predictor.model

    def one(key: jax.Array) -> dict[str, jax.Array]:
        records, keywords = relations.blank(model, _records(result), result.constants, 2)
        sites = handlers.trace(handlers.seed(model.model, key)).get_trace(*records, **keywords)
        return {name: sites[name]["value"] for name in result.draws if name in sites}

    number = max(map(len, result.draws.values()), default=0)
    try:
        drawn = jax.jit(jax.vmap(one))(jax.random.split(synthetic_key(0), number))
    except Exception:  # an improper prior, or a user's model that fails on blank records
        return {}
    shapes, wanted = (
        {name: values.shape for name, values in draws.items()} for draws in (drawn, result.draws)
    )
    return {name: np.asarray(values) for name, values in drawn.items()} if shapes == wanted else {}


def quantities_are_independent(result: FitResult) -> bool:
    """Whether the guide makes all quantities independent, so that their correlations are zero by
    construction.
    """
    return _holds(independence.are_independent, result)


def draws_are_independent(result: FitResult) -> bool:
    """Whether correlations only come from sorting, and from what is computed of the
    guide's draws.
    """
    return _holds(independence.are_drawn_independently, result)


def _holds(question: Callable[..., bool], result: FitResult) -> bool:
    if not result.model_is_known or not result.draws:
        return False
    try:
        return question(
            result.predictor.model, _records(result), result.constants, list(result.draws)
        )
    except (
        Exception
    ):  # users' guides can fail in any way on blank records; the fit is done, so this may not fail
        return False


def _records(result: FitResult) -> relations.Records:
    return [
        (tuple(shape), kind)
        for shape, kind in zip(
            result.data["record_shapes"], result.data["record_types"], strict=True
        )
    ]
