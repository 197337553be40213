"""Splits a NumPyro model and guide into what is global and what belongs to a record, or says why
that cannot be done.

Only the shapes and types of records are looked at: model and guide are called with one made-up
record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoGuide

from workbench.clipping.separation import PrivacyModelError
from workbench.record_model._networks import NetworkWatch
from workbench.record_model._sites import check_sites, in_words, require_floats
from workbench.record_model.model import Array, Record, RecordModel
from workbench.record_model.plates import (
    Layout,
    Plates,
    abstract_trace,
    automatic_parts,
    by_position,
    find_plates,
    readable,
    require_automatic,
    takes_num_records,
)
from workbench.record_model.threads import without_validation
from workbench.record_model.traces import (
    RecordPlates,
    drawn,
    is_inside,
    is_latent,
    is_subsampling,
    log_density,
    total,
    trace_of,
    used_by,
    used_inputs,
)

__all__ = ["PER_RECORD_PARAMETERS", "split"]

PER_RECORD_PARAMETERS = (
    "A parameter per record (as automatic guides make for local latents) would be learnt from "
    "that record alone: use an amortised guide, whose networks all records share."
)

_FIRST_CALL = threading.Lock()  # of a guide, which several fits may have


def split(
    model: Callable,
    guide: Callable,
    key: Array,
    record: tuple[Any, ...],
    *,
    num_records: int,
    static: dict[str, Any] | None = None,
    layout: Layout = by_position,
) -> RecordModel:
    """Split a model and guide into global and per-record parts, or say why that cannot be done.

    No private record is read: only the shapes and types of ``record`` are used, its values are
    replaced by ones (zeros for integers), and observed sites are masked while an automatic guide
    finds its starting point.

    :param model: NumPyro model; its first arguments are record arrays, and it may take
        ``num_records``.
    :param guide: NumPyro guide with the same arguments (an ``AutoGuide`` will do).
    :param key: typed JAX key for starting values.
    :param record: one record, a tuple of arrays or ``jax.ShapeDtypeStruct`` without the record
        axis.
    :param num_records: N >= 2, a declared public constant, the size of the record plate.
    :param static: further keyword arguments of model and guide.
    :param layout: makes arguments of model and guide of record arrays; by position by default.
    :raises PrivacyModelError: several subsampling plates; an observed site that depends on records,
        outside the plate of a model that subsamples; a latent of each record outside of it; a local
        latent whose guide is not inside the plate; a guide that is not reparametrised; a discrete
        latent for an automatic guide; a global quantity that depends on the records; batch
        statistics or other mutable state, with the layer's name; dropout without a key; parameters
        per record; what ``clipping.separation`` finds.
    """
    static = dict(static or {})
    blank_record = tuple(_blank(array) for array in record)
    constants = [
        {"num_records": num_records, **static} if takes_num_records(fn) else static
        for fn in (model, guide)
    ]
    plates = find_plates(model, layout, blank_record, constants[0], num_records)
    arguments = layout(tuple(jax.device_put(array[None]) for array in blank_record))
    pair = _Pair(
        model, guide, arguments, (constants[0], constants[1]), layout, blank_record, plates
    )
    with _FIRST_CALL:
        imputed = pair.begin_guide(key) if isinstance(guide, AutoGuide) else set()
    initial = pair.initial(key)
    sites = pair.sites
    check_sites(sites["guide"], sites["model"], plates.names)
    candidate = RecordModel(
        model=model,
        guide=guide,
        num_records=num_records,
        static=static,
        blank_record=blank_record,
        plates=plates,
        initial=initial,
        inverse_transforms=pair.inverse_transforms,
        local_latents=tuple(
            name
            for name, site in sites["model"].items()
            if is_latent(site) and is_inside(site, plates.names) and name in sites["guide"]
        ),
        of_records=frozenset(
            name
            for trace in sites.values()
            for name, site in trace.items()
            if is_inside(site, plates.names)
        ),
        starting_values=pair.starting_values,
        layout=layout,
    )
    subsamples = any(is_subsampling(sites["model"][name]) for name in plates.names)
    of_records = candidate.of_records | _outside_plates(candidate, key, subsamples)
    observed = (
        name
        for name, site in sites["model"].items()
        if site["type"] == "sample" and site["is_observed"]
    )
    candidate = replace(
        candidate,
        of_records=of_records,
        observed=tuple(name for name in observed if name in of_records),
    )
    record_model = _with_shared(candidate, key)
    if imputed and record_model.uses_base_noise:
        raise PrivacyModelError(
            "the likelihood depends on missing values that are latents of each record "
            f"({', '.join(sorted(imputed))}): an automatic guide would have parameters for each "
            "of them. Write a guide that draws them from what is observed of the record, inside "
            "its plate."
        )
    return record_model


def _blank(array: np.ndarray | Array | jax.ShapeDtypeStruct) -> np.ndarray:
    """A made-up array instead of a record's: ones, because it may be a weight, but zeros where it
    may be an index.
    """
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    return (np.ones if jnp.issubdtype(kind, jnp.inexact) else np.zeros)(array.shape, kind)


def _zeros_drawn(site: dict[str, Any]) -> np.ndarray | None:
    """Zeros as the value of a latent, of NumPy: a draw compiles a program for each operation."""
    if site["type"] != "sample":
        return None
    is_discrete = getattr(site["fn"].support, "is_discrete", False)
    return np.zeros(site["fn"].shape(), np.int32 if is_discrete else np.float32)


class _WithoutObservations(handlers.Messenger):
    """The model with observed sites that have no likelihood: an automatic guide calls it apart from
    outer handlers.

    :param imputed: latents that are kept from the guide.
    """

    def __init__(self, fn: Callable, imputed: set[str]) -> None:
        super().__init__(fn)
        self._imputed = imputed

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            msg["fn"] = msg["fn"].mask(False)
        elif msg["type"] == "sample" and msg["name"] in self._imputed:
            msg["value"], msg["stop"] = jnp.zeros(msg["fn"].shape()), True


@dataclass(frozen=True)
class _Pair:
    """Model and guide, called with one blank record.

    :param arguments: with the record, by position and by name. :param constants: others of model
        and of guide, by name.
    :param sites: traces of both, of the first call of
        ``starting_values``: what is static in them. :param inverse_transforms: of their parameters,
        from then on.
    """

    model: Callable
    guide: Callable
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    constants: tuple[dict[str, Any], dict[str, Any]]
    layout: Layout
    record: tuple[np.ndarray, ...]
    plates: Plates
    sites: dict[str, dict] = field(default_factory=dict)
    inverse_transforms: dict[str, Any] = field(default_factory=dict)

    def begin_guide(self, key: Array) -> set[str]:
        """Let an automatic guide look for its starting point, and return the observed latents that
        it imputes.

        It does so in its first call, which must not happen under jit, and rejects points by the
        likelihood of the observations, which are made up here and may be impossible.
        """
        constants, full = self.constants[1], self.plates.full
        imputed = require_automatic(
            self.guide,
            self.plates.names,
            lambda member: abstract_trace(
                member, self.layout, self.record, constants, 1, full=full
            ),
        )
        if self.guide.prototype_trace is not None:  # type: ignore[attr-defined]
            return imputed
        args, by_name = self.arguments
        originals = [(member, member.model) for member in automatic_parts(self.guide)]
        for member, original in originals:
            member.model = NetworkWatch(
                _WithoutObservations(RecordPlates(original, 1, None, full), imputed)
            )
        try:
            with without_validation():  # made-up records need not be valid
                undrawn = handlers.substitute(self.guide, substitute_fn=_zeros_drawn)
                trace_of(undrawn, key, {}, args, {**constants, **by_name}, full=full)
        finally:
            for member, original in originals:
                member.model = original
        return imputed

    def starting_values(
        self, key: Array, replacements: dict[str, Any] | None = None
    ) -> dict[str, Array]:
        """Unconstrained starting values of all parameters.

        :param replacements: instead of constants.
        """
        declared = self._declared(key, *self.arguments, replacements or {})
        return _strong(
            {
                name: self.inverse_transforms[name].inv(value)
                for name, (value, _) in declared.items()
            }
        )

    def _declared(
        self,
        key: Array,
        args: tuple[Any, ...],
        by_name: dict[str, Any],
        replacements: dict[str, Any],
    ) -> dict[str, tuple[Any, Any]]:
        """``{parameter: (value, constraint)}`` as model and guide declare them."""
        for_model, for_guide = (
            {**keywords, **by_name, **replacements} for keywords in self.constants
        )
        guide_key, model_key = jax.random.split(key)
        full = self.plates.full
        guide_trace = trace_of(self.guide, guide_key, {}, args, for_guide, full=full)
        model_trace = trace_of(
            self.model, model_key, drawn(guide_trace), args, for_model, full=full
        )
        if not self.sites:
            self.sites.update(guide=guide_trace, model=model_trace)
        return {  # networks are pytrees
            name: (
                jax.tree.map(jnp.asarray, site["value"]),
                site["kwargs"].get("constraint", constraints.real),
            )
            for name, site in (model_trace | guide_trace).items()
            if site["type"] == "param"
        }

    def initial(self, key: Array) -> dict[str, Array]:
        """``starting_values``, and the inverse transforms, with errors of model and guide that a
        reader understands.

        :raises PrivacyModelError: for a parameter whose bounds are made of records.
        """
        shapes: dict[str, Any] = {}

        def declared(key: Array, record: Record) -> Any:
            values, bounds = {}, {}
            for name, (value, constraint) in self._declared(key, *self.layout(record), {}).items():
                require_floats(name, value)
                values[name] = biject_to(constraint).inv(value)
                leaves, shapes[name] = jax.tree.flatten(constraint)
                bounds[name] = [leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer)]
                shapes[name] = shapes[name], leaves
            return {"value": _strong(values), "bounds": bounds}

        record = tuple(jax.device_put(array[None]) for array in self.record)
        try:
            with NetworkWatch(), readable("model or guide"):
                once = jax.jit(declared)
                _require_public_bounds(once.trace(key, record))
                outputs = once(key, record)
        except PrivacyModelError:
            raise
        except Exception as error:
            shape_text = ", ".join(str(array.shape) for array in record)
            error.add_note(
                "(The model and guide were called with one record, that is with arrays of shape "
                f"{shape_text}.)"
            )
            raise
        for name, (structure, leaves) in shapes.items():
            # of bounds that are made inside the model, what they are
            bounds = iter(outputs["bounds"][name])
            concrete = [
                next(bounds) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in leaves
            ]
            self.inverse_transforms[name] = biject_to(jax.tree.unflatten(structure, concrete))
        return outputs["value"]


def _strong(values: dict[str, Any]) -> dict[str, Any]:
    """Without weak types, of Python's numbers, which would compile all that takes parameters once
    more for a step's.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), values)


def _require_public_bounds(traced: jax.stages.Traced) -> None:
    """:param traced: a function of a key and records, with ``{"bounds": {parameter: arrays}}``
    among its results.
    """
    bounds = {
        path: used
        for path, used in used_by(traced.jaxpr, traced.out_info)
        if path[0].key == "bounds"
    }
    for path, (_, *of_records) in bounds.items():
        if any(of_records):
            raise PrivacyModelError(
                f"the bounds of parameter {path[1].key!r} (its constraint) are made of records, "
                "which are private: write public constants, as "
                "constraint=constraints.interval(0.0, 10.0)."
            )


def _outside_plates(candidate: RecordModel, key: Array, subsamples: bool) -> set[str]:
    """The sites outside the plates of records that depend on a record: observed and deterministic
    ones.

    :param subsamples: whether the model subsamples. Then SVI would scale what is inside the plate
        alone.
    :raises PrivacyModelError: for a latent or a parameter that depends on a record, or on the index
        of their plate; and for an observed site, where the model subsamples.
    """

    def quantities(record: Record, index: Array) -> dict[str, Array]:
        start, outputs = candidate.start(), {}
        for number, trace in enumerate(candidate._traces(start, key, index, record)):
            for name, site in trace.items():
                kind = (
                    "observed" if site["type"] == "sample" and site["is_observed"] else site["type"]
                )
                if kind == "param" or (
                    kind in ("sample", "observed", "deterministic")
                    and name not in candidate.of_records
                ):
                    outputs[f"{number} {kind} {name}"] = total(site["value"])
                    if site["type"] == "sample":
                        outputs[f"{number} {kind}  {name}"] = log_density(site)
        return outputs

    names = set()
    for output, used in used_inputs(quantities, candidate.blank_record, np.int32(0)).items():
        kind, name = output.split(" ", 2)[1:]
        name = name.strip()
        if kind in ("observed", "deterministic"):
            if any(used):
                names.add(name)
            if any(used) and kind == "observed" and subsamples:
                raise PrivacyModelError(
                    f"site {name!r} is observed outside the record plate "
                    f"{in_words(candidate.plates.names)}, and depends on records: it cannot be "
                    "clipped per record. Move it inside."
                )
            continue
        if any(used[:-1]):
            raise PrivacyModelError(
                f"site {name!r} is global, but depends on the records: it would be released "
                "without noise."
            )
        if used[-1]:
            raise PrivacyModelError(
                f"site {name!r} is global or a parameter, but depends on the index of the record "
                f"plate {in_words(candidate.plates.names)}. {PER_RECORD_PARAMETERS}"
            )
    return names


def _with_shared(candidate: RecordModel, key: Array) -> RecordModel:
    """``candidate`` with u reduced to what the per-record loss depends on."""

    def global_values() -> dict[str, Any]:
        return candidate._global_part(*candidate._traces(candidate.start(), key))[0]

    arguments = (values := jax.eval_shape(global_values), candidate.blank_record, key, np.int32(0))
    flags = used_inputs(lambda *args: {"loss": candidate.record_loss(*args)}, *arguments)["loss"]
    used_values, _, used_key, used_index = jax.tree.unflatten(jax.tree.structure(arguments), flags)
    # a pytree enters u whole, if any of its leaves is used
    shared = tuple(name for name in sorted(values) if any(jax.tree.leaves(used_values[name])))
    if not shared:
        raise PrivacyModelError(
            "no latent or parameter enters an observed site that depends on records: nothing to "
            "learn from records. Put the "
            'records in one plate: `with numpyro.plate("records", len(x)):`, where x is a record '
            "array."
        )
    size = sum(leaf.size for name in shared for leaf in jax.tree.leaves(values[name]))
    return replace(
        candidate, shared=shared, shared_size=size, uses_base_noise=used_key, uses_index=used_index
    )
