"""What the sites of a model and a guide must be like, read off one trace of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from workbench.clipping.separation import PrivacyModelError
from workbench.record_model.plates import imputed_names, require_observed
from workbench.record_model.traces import family, is_inside, is_latent, is_subsampling

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["check_sites", "in_words", "require_floats"]


def check_sites(guide_trace: dict, model_trace: dict, plates: tuple[str, ...]) -> None:
    """:raises PrivacyModelError: naming a site that no step of DP-VI can treat. :param plates:
    names of record plates.
    """
    for role, trace in (("model", model_trace), ("guide", guide_trace)):
        for name, site in trace.items():
            if site["type"] == "mutable":
                raise PrivacyModelError(
                    f"site {name!r} of the {role} is mutable state (batch statistics, say): it "
                    "would carry records from step to step un-noised."
                )
            if role == "guide" and is_subsampling(site) and name not in plates:
                raise PrivacyModelError(
                    f"the guide subsamples in plate {name!r}, but the model's record plate is "
                    f"{in_words(plates)}."
                )
    require_observed(model_trace)
    for name, site in model_trace.items():
        if site["type"] != "sample":
            continue
        if site["is_observed"]:
            batch = site["fn"].batch_shape
            observed = jnp.shape(site["value"])[
                : max(0, jnp.ndim(site["value"]) - len(site["fn"].event_shape))
            ]
            if is_inside(site, plates) and jnp.broadcast_shapes(batch, observed) != tuple(batch):
                if set(observed) == {1}:
                    raise PrivacyModelError(
                        f"site {name!r} observes a column of shape (N, 1), or one with more "
                        "axes, where its distribution has the shape (N,), so that all values "
                        "would be compared with all: give it y[:, 0]."
                    )
                raise PrivacyModelError(
                    f"site {name!r} observes values of shape {observed} where one record has "
                    f"{tuple(batch)}: give record arrays by position, so that the model sees one "
                    "record at a time."
                )
            continue
        if (
            name not in guide_trace
            and not site["fn"].has_rsample
            and name not in imputed_names(model_trace)
        ):
            raise PrivacyModelError(
                f"site {name!r} is missing from the guide and {family(site['fn'])} cannot be "
                "reparametrised: give it a guide, or sum it out in a distribution of your own "
                "(as MixtureSameFamily does)."
            )
        if name in guide_trace and is_inside(site, plates) != is_inside(guide_trace[name], plates):
            sides = ("inside", "outside") if is_inside(site, plates) else ("outside", "inside")
            raise PrivacyModelError(
                f"site {name!r} is {sides[0]} the record plate {in_words(plates)} in the model, "
                f"but {sides[1]} it in the guide."
            )
    for name, site in guide_trace.items():
        if not is_latent(site):
            continue
        if name not in model_trace and not site["infer"].get("is_auxiliary"):
            raise PrivacyModelError(f"site {name!r} of the guide is not in the model.")
        if not site["fn"].has_rsample:
            raise PrivacyModelError(
                f"site {name!r} of the guide is not reparametrised ({family(site['fn'])}), which "
                "its gradient requires."
            )


def in_words(plates: tuple[str, ...]) -> str:
    """The plates' names, for a message."""
    return ", ".join(map(repr, plates))


def require_floats(name: str, value: PyTree) -> None:
    """:raises PrivacyModelError: if a leaf of the parameter ``name`` is of a type that has no
    gradient, or complex.
    """
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        label = f"{name}{jax.tree_util.keystr(path)}"
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise PrivacyModelError(
                f"parameter {label!r} is complex: make its real and imaginary part two parameters."
            )
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise PrivacyModelError(
                f"parameter {label!r} is of type {leaf.dtype}, which no gradient can change: "
                "start it from floats, jnp.asarray(..., float), or make it a constant of the "
                "model."
            )
