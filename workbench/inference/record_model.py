"""A NumPyro model and guide seen as a global part and a per-record part.

The release point u holds everything that the per-record loss depends on: global latents as the guide drew them, and the
parameters that are used inside the record plate, such as the networks of a variational auto-encoder. Given u, each
record's loss l_i(u) = -[sum log p - sum log q over the sites in the plate] is a function of that record alone (and of base
noise for its local latents), which is what per-record clipping needs. Prior, entropy and every global site that no record
touches stay outside u: they cost no privacy.

The model is traced for one record at a time, so a model that mixes records (batch statistics, say) cannot be expressed.
"""

from __future__ import annotations

import inspect
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
from numpyro.infer.util import transform_fn

from workbench import _validate
from workbench.inference._base_noise import Key, RecordKey, record_keys, two_of
from workbench.inference._modules import NetworkWatch, PrivacyModelError
from workbench.inference._threads import separate_handler_stacks
from workbench.inference._traces import (
    drawn,
    family,
    is_inside,
    is_subsampling,
    log_density,
    one_record,
    total,
    trace_of,
    used_inputs,
)

__all__ = ["PrivacyModelError", "RecordModel", "common_length", "split"]

separate_handler_stacks()

Array = jax.Array
Record = tuple[Array, ...]


def common_length(records: tuple[Any, ...]) -> int:
    """How many records the arrays hold. :raises ArgumentError: naming ``records``: none, or first axes that differ."""
    if not records:
        raise _validate.ArgumentError("records", (), "give the record arrays by position, first axis: records.")
    sizes = [array.shape[0] if getattr(array, "ndim", 0) else 0 for array in records]
    if min(sizes) != max(sizes) or sizes[0] < 1:
        raise _validate.ArgumentError("records", tuple(sizes), "must have the same first axis, one entry a record.")
    return sizes[0]


def _blank(array: Any) -> np.ndarray:
    """A made-up array instead of a record's: ones, because it may be a weight, but zeros where it may be an index."""
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    return (np.ones if jnp.issubdtype(kind, jnp.inexact) else np.zeros)(array.shape, kind)


class _WithoutObservations(handlers.Messenger):
    """The model with observed sites that have no likelihood: an automatic guide calls it apart from outer handlers."""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            msg["fn"] = msg["fn"].mask(False)


def _require_continuous(model: Callable, key: Array, plate_index: Array, *args: Any, **kwargs: Any) -> None:
    """:raises PrivacyModelError: naming a discrete latent of ``model``, which no automatic guide can have."""

    def find(key: Array) -> None:
        for name, site in trace_of(model, key, {}, plate_index, *args, **kwargs).items():
            if site["type"] == "sample" and not site["is_observed"] and site["fn"].support.is_discrete:
                raise PrivacyModelError(
                    f"site {name!r} is a discrete latent ({family(site['fn'])}), which an automatic guide cannot "
                    "have: sum it out in the model, as the mixture in models/gmm.py does."
                )

    with NetworkWatch():
        jax.eval_shape(find, key)


def _record_plate(trace: dict, what: str) -> str:
    plates = [name for name, site in trace.items() if is_subsampling(site)]
    if len(plates) == 1:
        return plates[0]
    if not plates:
        raise PrivacyModelError(
            f"the {what} has no record plate: one numpyro.plate must subsample the records, as in "
            "numpyro.plate('records', num_records, subsample_size=len(x))."
        )
    raise PrivacyModelError(
        f"the {what} has more than one subsampling plate ({', '.join(map(repr, plates))}): exactly one may be the records."
    )


def _require_num_records(fn: Callable, what: str) -> None:
    target = getattr(fn, "model", fn)  # an AutoGuide passes its arguments on to its model
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # no signature to read, as with some built-in callables
        return
    if not any(p.name == "num_records" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        raise PrivacyModelError(f"the {what} takes no argument num_records: it is the size of the record plate.")


@dataclass(frozen=True)
class RecordModel:
    """What ``split`` returns. Parameters psi are unconstrained: ``{name: array or pytree of arrays}``.

    ``observed`` names the observed sites, ``initial`` are psi's starting values, found without looking at any record.
    ``starting_values(key, others)`` finds these for another key and
    ``others`` instead of static arguments, as a function for jit and vmap.
    ``shared`` names the entries of u and ``shared_size`` counts their coordinates, which is the dimension of the noise.
    ``local_latents`` are the latents inside
    the record plate that the guide draws, and ``uses_base_noise`` says whether each record's loss needs its own randomness
    (for local latents, drawn by guide or model).
    """

    model: Callable
    guide: Callable
    num_records: int
    static: dict[str, Any]
    blank_record: tuple[np.ndarray, ...]
    plate: str
    plate_scale: float
    initial: dict[str, Any]
    inverse_transforms: dict[str, Any]
    local_latents: tuple[str, ...]
    observed: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shared_size: int = 0
    uses_base_noise: bool = False
    starting_values: Callable[..., dict[str, Any]] = field(default=dict, compare=False, repr=False)

    def with_static(self, values: dict[str, Any]) -> RecordModel:
        """The same model with other values of some keyword arguments, of the same shapes; they may be traced."""
        return replace(self, static={**self.static, **values})

    def require_like(self, records: tuple[Any, ...]) -> int:
        """How many ``records`` there are. :raises ArgumentError: unless each is shaped as the model was split for."""
        size, seen = common_length(records), [array.shape for array in self.blank_record]
        given = [array.shape[1:] for array in records]
        if given != seen:
            raise _validate.ArgumentError("records", given, f"are the shapes of one record, but init saw {seen}.")
        return size

    def constrain(self, params: dict[str, Any]) -> dict[str, Any]:
        """psi in the space where the model and guide declare it."""
        return transform_fn(self.inverse_transforms, params)

    def unconstrain(self, params: dict[str, Any]) -> dict[str, Any]:
        """The inverse of ``constrain``."""
        return {name: self.inverse_transforms[name].inv(value) for name, value in params.items()}

    def start(self) -> dict[str, Any]:
        """The constrained starting values, traced within a trace: of others NumPyro checks each with four small programs."""
        return self.constrain(jax.tree.map(jnp.copy, self.initial))

    def _traces(self, values: dict[str, Any], key: Key, index: Any = 0, record: Record | None = None) -> tuple[dict, dict]:
        """Traces of guide and model for one record (``blank_record`` by default) and one draw of the base noise."""
        args = one_record(self.blank_record if record is None else record)
        kwargs = {"num_records": self.num_records, **self.static}
        guide_key, model_key = two_of(key)
        index = jnp.asarray(index, jnp.int32)
        guide_trace = trace_of(self.guide, guide_key, values, index, *args, **kwargs)
        model_trace = trace_of(self.model, model_key, values | drawn(guide_trace), index, *args, **kwargs)
        return guide_trace, model_trace

    def release_point(self, params: dict[str, Any], key: Key) -> tuple[dict[str, Any], Array]:
        """(u, global loss) for one shared draw of the base noise ``key``.

        The global loss is log q(theta) - log p(theta), float scalar. Both are differentiable in ``params`` and depend on
        no record (checked by ``split``).
        """
        guide_trace, model_trace = self._traces(self.constrain(params), key)
        values, global_loss = _global_part(guide_trace, model_trace, self.plate)
        return {name: values[name] for name in self.shared}, global_loss

    def latents(self, params: dict[str, Any], key: Array) -> dict[str, Array]:
        """One draw of all global latents and global deterministic sites of the model, ``{site: value}``."""
        _, model_trace = self._traces(self.constrain(params), key)
        return {
            name: site["value"]
            for name, site in model_trace.items()
            if site["type"] in ("sample", "deterministic") and not is_inside(site, self.plate)
        }

    def record_loss(self, shared: dict[str, Any], record: Record, key: Key, index: Any = 0) -> Array:
        """l_i(u), float scalar, for one record (arrays without a record axis).

        :param key: base noise of this record's local latents; without any it changes nothing.
        """
        values = self.start() | shared  # what is not in u does not matter
        guide_trace, model_trace = self._traces(values, key, index, record)
        loss = jnp.zeros(())
        for name, site in model_trace.items():
            # a local latent that the guide leaves out is drawn from the model: its two terms cancel
            counts = site["type"] == "sample" and (site["is_observed"] or name in self.local_latents)
            if counts and is_inside(site, self.plate):
                loss = loss - log_density(site, self.plate_scale)
        for site in guide_trace.values():
            if site["type"] == "sample" and is_inside(site, self.plate):
                loss = loss + log_density(site, self.plate_scale)
        return loss

    def record_losses(self, shared: dict[str, Any], records: Record, key: Array) -> Array:
        """l_i(u) for each of ``records`` (first axis B), float[B], with base noise for each."""
        keys = record_keys(key, jnp.arange(self.require_like(records)))
        return jax.vmap(lambda record, own: self.record_loss(shared, record, own), (0, RecordKey(None, 0)))(records, keys)


def _global_part(guide_trace: dict, model_trace: dict, plate: str) -> tuple[dict[str, Any], Array]:
    """Values of global latents and all parameters, and log q - log p over the global sites.

    A latent that the guide leaves out is drawn from the model, so its two terms cancel and both are left out.
    """
    values = {}
    loss = jnp.zeros(())
    for trace in (guide_trace, model_trace):
        for name, site in trace.items():
            is_latent = site["type"] == "sample" and not is_inside(site, plate)
            if is_latent or site["type"] == "param":
                values[name] = site["value"]
            if is_latent and trace is guide_trace:
                loss = loss + log_density(site)
            elif is_latent and name in guide_trace:
                loss = loss - log_density(site)
    return values, loss


def split(
    model: Callable,
    guide: Callable,
    key: Array,
    record: tuple[Any, ...],
    *,
    num_records: int,
    static: dict[str, Any] | None = None,
) -> RecordModel:
    """Split a model and guide into global and per-record parts, or say why that cannot be done.

    No private record is read: only the shapes and types of ``record`` are used, its values are replaced by ones (zeros for
    integers), and observed sites are masked while an automatic guide finds its starting point.

    :param model: NumPyro model; its first arguments are record arrays, and it takes ``num_records``.
    :param guide: NumPyro guide with the same arguments (an ``AutoGuide`` will do).
    :param key: typed JAX key for starting values.
    :param record: one record, a tuple of arrays or ``jax.ShapeDtypeStruct`` without the record axis.
    :param num_records: N >= 2, a declared public constant, the size of the record plate.
    :param static: further keyword arguments of model and guide.
    :raises PrivacyModelError: no or several record plates; an observed site outside the plate; a local latent whose guide
        is not inside the plate; a guide that is not reparametrised; a discrete latent for an automatic guide; a global
        quantity that depends on the records; batch statistics or other mutable state, with the layer's name; dropout
        without a key; use of the plate's index, parameters per record included; what ``_separation`` finds.
    """
    static = dict(static or {})
    kwargs = {"num_records": num_records, **static}
    for fn, what in ((model, "model"), (guide, "guide")):
        _require_num_records(fn, what)
    blank_record = tuple(_blank(array) for array in record)
    args = tuple(jnp.asarray(array[None]) for array in blank_record)
    zero = jnp.asarray(np.int32(0))

    if isinstance(guide, AutoGuide) and guide.prototype_trace is None:
        # an automatic guide looks for a starting point in its first call, which must not happen under jit, and rejects
        # points by the likelihood of the observations, which are made up here and may be impossible
        original = guide.model
        _require_continuous(original, key, zero, *args, **kwargs)
        guide.model = NetworkWatch(_WithoutObservations(original))
        try:
            trace_of(guide, key, {}, zero, *args, **kwargs)
        finally:
            guide.model = original

    sites: dict[str, dict] = {}
    inverse_transforms: dict[str, Any] = {}

    def starting_values(key: Array, others: dict[str, Any] | None = None) -> dict[str, Array]:
        given = {**kwargs, **(others or {})}
        guide_key, model_key = jax.random.split(key)
        guide_trace = trace_of(guide, guide_key, {}, zero, *args, **given)
        model_trace = trace_of(model, model_key, drawn(guide_trace), zero, *args, **given)
        if not sites:
            sites.update(guide=guide_trace, model=model_trace)  # read below for what is static in them
        values = {}
        for name, site in (model_trace | guide_trace).items():
            if site["type"] == "param":
                transform = biject_to(site["kwargs"].get("constraint", constraints.real))
                inverse_transforms.setdefault(name, transform)
                values[name] = transform.inv(jax.tree.map(jnp.asarray, site["value"]))  # networks are pytrees
        # weak types, of Python's numbers, would compile all that takes parameters once for them and once for a step's
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), values)

    try:
        with NetworkWatch():
            initial = jax.jit(starting_values)(key)
    except PrivacyModelError:
        raise
    except Exception as error:
        shapes = ", ".join(str(array.shape) for array in args)
        error.add_note(f"(The model and guide were called with one record, that is with arrays of shape {shapes}.)")
        raise
    plate = _record_plate(sites["model"], "model")
    size, subsample_size = sites["model"][plate]["args"]
    if size != num_records:
        raise PrivacyModelError(
            f"plate {plate!r} has size {size}, but num_records is {num_records}: pass num_records on to the plate."
        )
    _check_sites(sites["guide"], sites["model"], plate)
    if subsample_size != 1:
        raise PrivacyModelError(
            f"plate {plate!r} has subsample_size {subsample_size} when the model is called with one record: "
            "write subsample_size=len(x), with x a record array."
        )
    candidate = RecordModel(
        model=model,
        guide=guide,
        num_records=num_records,
        static=static,
        blank_record=blank_record,
        plate=plate,
        plate_scale=size / subsample_size,
        initial=initial,
        inverse_transforms=inverse_transforms,
        local_latents=tuple(
            name
            for name, site in sites["model"].items()
            if site["type"] == "sample" and not site["is_observed"] and is_inside(site, plate) and name in sites["guide"]
        ),
        observed=tuple(name for name, site in sites["model"].items() if site["type"] == "sample" and site["is_observed"]),
        starting_values=starting_values,
    )
    _check_global_part(candidate, key)
    return _with_shared(candidate, key)


def _check_sites(guide_trace: dict, model_trace: dict, plate: str) -> None:
    for what, trace in (("model", model_trace), ("guide", guide_trace)):
        for name, site in trace.items():
            if site["type"] == "mutable":
                raise PrivacyModelError(
                    f"site {name!r} of the {what} is mutable state (batch statistics, say): it would carry records from "
                    "step to step un-noised."
                )
            if what == "guide" and is_subsampling(site) and name != plate:
                raise PrivacyModelError(
                    f"the guide subsamples in plate {name!r}, but the model's record plate is {plate!r}."
                )
    for name, site in model_trace.items():
        if site["type"] != "sample":
            continue
        if site["is_observed"] and not is_inside(site, plate):
            raise PrivacyModelError(
                f"site {name!r} is observed outside the record plate {plate!r}: it cannot be clipped per record."
            )
        if site["is_observed"]:
            batch = site["fn"].batch_shape
            observed = site["value"].shape[: max(0, len(site["value"].shape) - len(site["fn"].event_shape))]
            if jnp.broadcast_shapes(batch, observed) != tuple(batch):
                raise PrivacyModelError(
                    f"site {name!r} observes values of shape {observed} where one record has {tuple(batch)}: give record "
                    "arrays by position, so that the model sees one record at a time."
                )
            continue
        if name not in guide_trace and not site["fn"].has_rsample:
            raise PrivacyModelError(
                f"site {name!r} is missing from the guide and {family(site['fn'])} cannot be reparametrised: give it "
                "a guide, or sum it out in a distribution of your own (as MixtureSameFamily does)."
            )
        if name in guide_trace and is_inside(site, plate) != is_inside(guide_trace[name], plate):
            where = ("inside", "outside") if is_inside(site, plate) else ("outside", "inside")
            raise PrivacyModelError(
                f"site {name!r} is {where[0]} the record plate {plate!r} in the model, but {where[1]} it in the guide."
            )
    for name, site in guide_trace.items():
        if site["type"] == "sample" and name not in model_trace and not site["infer"].get("is_auxiliary"):
            raise PrivacyModelError(f"site {name!r} of the guide is not in the model.")
        if site["type"] == "sample" and not site["fn"].has_rsample:
            raise PrivacyModelError(
                f"site {name!r} of the guide is not reparametrised ({family(site['fn'])}): its gradient needs that."
            )


_PER_RECORD_PARAMETERS = (
    "A parameter per record (as automatic guides make for local latents) would be learnt from that record alone: use an "
    "amortised guide, whose networks all records share."
)


def _check_global_part(candidate: RecordModel, key: Array) -> None:
    """No global value, log density or parameter may depend on a record or on the plate's index."""

    def quantities(record: Record, index: Array) -> dict[str, Array]:
        start, outputs = candidate.start(), {}
        for number, trace in enumerate(candidate._traces(start, key, index, record)):
            for name, site in trace.items():
                if site["type"] == "param" or (site["type"] == "sample" and not is_inside(site, candidate.plate)):
                    outputs[f"{number} value {name}"] = total(site["value"])
                    if site["type"] == "sample":
                        outputs[f"{number} density {name}"] = log_density(site)
        return outputs

    for output, used in used_inputs(quantities, candidate.blank_record, np.int32(0)).items():
        name = output.split(" ", 2)[2]
        if any(used[:-1]):
            raise PrivacyModelError(
                f"site {name!r} is global, but depends on the records: it would be released without noise."
            )
        if used[-1]:
            raise PrivacyModelError(
                f"site {name!r} is global or a parameter, but depends on the index of the record plate "
                f"{candidate.plate!r}. {_PER_RECORD_PARAMETERS}"
            )


def _with_shared(candidate: RecordModel, key: Array) -> RecordModel:
    """``candidate`` with u reduced to what the per-record loss depends on."""

    def global_values() -> dict[str, Any]:
        return _global_part(*candidate._traces(candidate.start(), key), candidate.plate)[0]

    arguments = (values := jax.eval_shape(global_values), candidate.blank_record, key, np.int32(0))
    flags = used_inputs(lambda *args: {"loss": candidate.record_loss(*args)}, *arguments)["loss"]
    used_values, _, used_key, used_index = jax.tree.unflatten(jax.tree.structure(arguments), flags)
    if used_index:
        raise PrivacyModelError(
            f"the model or guide uses the index of the record plate {candidate.plate!r}: it is called with the minibatch's "
            f"records, so index nothing with it. {_PER_RECORD_PARAMETERS}"
        )
    # a pytree enters u whole, if any of its leaves is used
    shared = tuple(name for name in sorted(values) if any(jax.tree.leaves(used_values[name])))
    if not shared:
        raise PrivacyModelError(
            "no latent or parameter enters the observed sites of the record plate: nothing to learn from records."
        )
    size = sum(leaf.size for name in shared for leaf in jax.tree.leaves(values[name]))
    return replace(candidate, shared=shared, shared_size=size, uses_base_noise=used_key)
