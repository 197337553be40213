"""Traces of NumPyro models and guides, and what is read off them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr
from jax.interpreters.partial_eval import dce_jaxpr
from numpyro import handlers
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MaskedDistribution,
)

from workbench.clipping.separation import require_plain
from workbench.record_model.base_noise import Key, seeded

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "RecordPlates",
    "drawn",
    "family",
    "is_inside",
    "is_latent",
    "is_subsampling",
    "log_densities",
    "log_density",
    "total",
    "trace_of",
    "used_by",
    "used_inputs",
]

Array = jax.Array
Record = tuple[Array, ...]


def is_subsampling(site: dict[str, Any]) -> bool:
    """Whether a site is a plate that takes a part of its entries."""
    if site["type"] != "plate":
        return False
    size, subsample_size = site["args"]
    return subsample_size is not None and subsample_size != size


class RecordPlates(handlers.Messenger):
    """Gives every subsampling plate ``count`` records, in the order in which they are handed in.

    SVI's plate draws which records it takes. Here they are drawn before the model is called, so
    x[index] and numpyro.subsample(x) must return x as it is. Bodies of
    ``numpyro.contrib.control_flow.scan``, which hide their plates from handlers outside, are
    treated alike.

    :param index: of these records; 0, 1, ... by default.
    :param full: names of plates that hold the records, although they may not subsample.
    :param layers_key: what ``numpyro.prng_key`` returns; a new key by default.
    """

    def __init__(
        self,
        fn: Callable,
        count: int,
        index: Array | None,
        full: Collection[str] = (),
        layers_key: Array | None = None,
    ) -> None:
        super().__init__(fn)
        self.count, self.full, self.layers_key = count, full, layers_key
        self.index = jnp.arange(count) if index is None else index
        self.plates: dict[str, dict[str, Any]] = {}

    def process_message(self, msg: dict[str, Any]) -> None:
        kind = msg["type"]
        if kind == "plate" and not msg.get("_control_flow_done"):
            declared = msg["args"]
            size = declared[0]
            if is_subsampling(msg) or msg["name"] in self.full:
                msg["args"], msg["value"] = (size, self.count), self.index
            here = size if msg["value"] is None else msg["value"].shape[0]
            self.plates[msg["name"]] = {"args": (size, here), "declared": declared}
        elif kind == "subsample":
            msg["kwargs"] = {"event_dim": None}  # so that no plate takes a part of it
        elif kind == "prng_key" and self.layers_key is not None:
            msg["value"] = self.layers_key
        elif kind == "control_flow":
            body, *operands = msg["args"]

            def inside(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return body(*args, **kwargs)

            msg["args"] = (inside, *operands)


def trace_of(
    fn: Callable,
    key: Key,
    values: dict[str, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    count: int = 1,
    *,
    index: Array | None = None,
    full: Collection[str] = (),
    layers_key: Array | None = None,
) -> dict:
    """The trace of ``fn`` for ``count`` records, with sites and parameters set to ``values``.

    Plates are in it with (size, entries that are there) as their "args", and what they asked for as
    "declared". The other arguments are those of ``RecordPlates``.
    """
    plates = RecordPlates(seeded(fn, key), count, index, full, layers_key)
    trace = handlers.trace(handlers.substitute(plates, data=values)).get_trace(*args, **kwargs)
    for name, site in plates.plates.items():  # those in a scan's body too
        trace[name] = {**trace.get(name, {"type": "plate", "name": name}), **site}
    return trace


def is_latent(site: dict[str, Any]) -> bool:
    """Whether a site is drawn and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def is_inside(site: dict[str, Any], plates: Collection[str]) -> bool:
    """Whether a site stands in one of the plates with these names."""
    return any(frame.name in plates for frame in site.get("cond_indep_stack", ()))


def log_densities(site: dict[str, Any], plate_scale: float = 1.0) -> Array:
    """The site's log densities with its own scale, without the record plate's factor size /
    subsample size.
    """
    if site["intermediates"]:
        value = site["fn"].log_prob(site["value"], site["intermediates"])
    else:
        value = site["fn"].log_prob(site["value"])
    scale = (
        1.0 if site["scale"] is None else site["scale"]
    ) / plate_scale  # it may hold weights, one for each entry
    return value if isinstance(scale, float) and scale == 1 else value * scale


def log_density(site: dict[str, Any], plate_scale: float = 1.0) -> Array:
    """The sum of ``log_densities``."""
    return jnp.sum(log_densities(site, plate_scale))


def used_inputs(fn: Callable, *args: PyTree) -> dict[str, list[bool]]:
    """For each output of ``fn`` (a dict) and each leaf of ``args``: does one depend on the other?

    Read off the jaxpr, not off values, so a dependence that happens to vanish at some point is
    found too.
    """
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    require_plain(closed)  # what calls Python would seem to be needed by every output
    return {path[0].key: used for path, used in used_by(closed, shapes)}


def used_by(closed: ClosedJaxpr, results: PyTree) -> Iterator[tuple[Any, list[bool]]]:
    """(path, which arguments it depends on) of each leaf of ``results``, the pytree that ``closed``
    returns.
    """
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(results)[0]]
    needed, _ = dce_jaxpr(closed.jaxpr, [True] * len(paths), instantiate=True)
    for position, path in enumerate(paths):
        yield path, list(dce_jaxpr(needed, [index == position for index in range(len(paths))])[1])


def drawn(trace: dict) -> dict[str, Any]:
    """Values of the latents."""
    return {name: site["value"] for name, site in trace.items() if is_latent(site)}


def total(value: PyTree) -> Array:
    """The sum of all entries of a pytree: a scalar that depends on whatever the pytree
    depends on.
    """
    return sum(
        (jnp.sum(jnp.asarray(leaf, jnp.float32)) for leaf in jax.tree.leaves(value)), jnp.zeros(())
    )


def family(distribution: Distribution) -> str:
    """The name of a distribution as its author knows it, without what plates and ``to_event`` put
    around it.
    """
    while isinstance(distribution, (ExpandedDistribution, Independent, MaskedDistribution)):
        distribution = distribution.base_dist
    return type(distribution).__name__
