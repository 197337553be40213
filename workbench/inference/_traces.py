"""Traces of NumPyro models and guides, and what is read off them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro import handlers
from numpyro.distributions import ExpandedDistribution, Independent, MaskedDistribution

from workbench.inference._base_noise import Key, seeded
from workbench.inference._separation import require_plain

__all__ = [
    "drawn",
    "family",
    "is_inside",
    "is_subsampling",
    "log_density",
    "one_record",
    "total",
    "trace_of",
    "used_inputs",
]

Array = jax.Array
Record = tuple[Array, ...]


def one_record(record: tuple[Any, ...]) -> Record:
    """NumPyro's view of one record: a leading axis of one on each array."""
    return tuple(jnp.asarray(array)[None] for array in record)


def is_subsampling(site: dict[str, Any]) -> bool:
    if site["type"] != "plate":
        return False
    size, subsample_size = site["args"]
    return subsample_size is not None and subsample_size != size


def trace_of(fn: Callable, key: Key, values: dict[str, Any], plate_index: Array, *args: Any, **kwargs: Any) -> dict:
    """The trace of ``fn`` with sites and parameters set to ``values``; subsampling plates get ``plate_index``."""

    def index(site: dict[str, Any]) -> Array | None:
        return jnp.broadcast_to(plate_index, site["args"][1:]) if is_subsampling(site) else None

    fixed = handlers.substitute(handlers.substitute(seeded(fn, key), data=values), substitute_fn=index)
    return handlers.trace(fixed).get_trace(*args, **kwargs)


def is_inside(site: dict[str, Any], plate: str) -> bool:
    return any(frame.name == plate for frame in site["cond_indep_stack"])


def log_density(site: dict[str, Any], plate_scale: float = 1.0) -> Array:
    """Sum of the site's log density with its own scale, without the record plate's factor size / subsample size."""
    if site["intermediates"]:
        value = site["fn"].log_prob(site["value"], site["intermediates"])
    else:
        value = site["fn"].log_prob(site["value"])
    scale = 1.0 if site["scale"] is None else site["scale"]
    return jnp.sum(value * (scale / plate_scale))  # a scale may hold weights, one for each entry


def used_inputs(fn: Callable, *args: Any) -> dict[str, list[bool]]:
    """For each output of ``fn`` (a dict) and each leaf of ``args``: does one depend on the other?

    Read off the jaxpr, not off values, so a dependence that happens to vanish at some point is found too.
    """
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    require_plain(closed)  # what calls Python would seem to be needed by every output
    names = list(jax.tree.unflatten(jax.tree.structure(shapes), range(len(closed.jaxpr.outvars))).items())
    used = {}
    for name, position in names:
        wanted = [place == position for place in range(len(closed.jaxpr.outvars))]
        used[name] = list(dce_jaxpr(closed.jaxpr, wanted)[1])
    return used


def drawn(trace: dict) -> dict[str, Any]:
    return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}


def total(value: Any) -> Array:
    """The sum of all entries of a pytree: a scalar that depends on whatever the pytree depends on."""
    return sum((jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(value)), jnp.zeros(()))


def family(distribution: Any) -> str:
    """The name of a distribution as its author knows it, without what plates and ``to_event`` put around it."""
    while isinstance(distribution, (ExpandedDistribution, Independent, MaskedDistribution)):
        distribution = distribution.base_dist
    return type(distribution).__name__
