"""A NumPyro model and guide seen as a global part and a per-record part.

The release point u holds everything that the per-record loss depends on: global latents as the guide drew them, and the
parameters that are used inside the record plate, such as the networks of a variational auto-encoder. Given u, each
record's loss l_i(u) = -[sum log p - sum log q over the sites in the plate] is a function of that record alone (and of base
noise for its local latents), which is what per-record clipping needs. Prior, entropy and every global site that no record
touches stay outside u: they cost no privacy.

The model is traced for one record at a time, so no record reaches another's loss. Whether that is the model which its author
means, ``_additivity`` checks by numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers, validation_enabled
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer.autoguide import AutoGuide
from numpyro.infer.util import transform_fn

from workbench import _validate
from workbench.inference._base_noise import Key, RecordKey, record_keys, two_of
from workbench.inference._modules import NetworkWatch, PrivacyModelError
from workbench.inference._plates import (
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
from workbench.inference._sites import check_sites, in_words, require_floats
from workbench.inference._threads import separate_handler_stacks
from workbench.inference._traces import (
    RecordPlates,
    drawn,
    is_inside,
    is_latent,
    is_subsampling,
    log_densities,
    log_density,
    total,
    trace_of,
    used_inputs,
)

__all__ = ["PrivacyModelError", "RecordModel", "common_length", "split"]

separate_handler_stacks()

_MADE_UP = threading.Lock()  # numpyro validates in all threads or in none

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
    """The model with observed sites that have no likelihood: an automatic guide calls it apart from outer handlers.

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
class RecordModel:
    """What ``split`` returns. Parameters psi are unconstrained: ``{name: array or pytree of arrays}``.

    ``of_records`` names the sites of model and guide that belong to a record, ``plates`` the plates that hold records.
    ``observed`` names the observed ones, ``initial`` are psi's starting values, found without looking at any record.
    ``starting_values(key, others)`` finds these for another key and
    ``others`` instead of static arguments, as a function for jit and vmap.
    ``shared`` names the entries of u and ``shared_size`` counts their coordinates, which is the dimension of the noise.
    ``local_latents`` are the latents inside
    the record plate that the guide draws, and ``uses_base_noise`` says whether each record's loss needs its own randomness
    (for local latents, drawn by guide or model). ``layout`` makes a call's arguments of record arrays.
    """

    model: Callable
    guide: Callable
    num_records: int
    static: dict[str, Any]
    blank_record: tuple[np.ndarray, ...]
    plates: Plates
    initial: dict[str, Any]
    inverse_transforms: dict[str, Any]
    local_latents: tuple[str, ...]
    of_records: frozenset[str] = frozenset()
    observed: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shared_size: int = 0
    uses_base_noise: bool = False
    uses_index: bool = False
    starting_values: Callable[..., dict[str, Any]] = field(default=dict, compare=False, repr=False)
    layout: Layout = by_position
    most_rows: int | None = None

    def with_static(self, values: dict[str, Any]) -> RecordModel:
        """The same model with other values of some keyword arguments, of the same shapes; they may be traced."""
        return replace(self, static={**self.static, **values})

    def require_like(self, records: tuple[Any, ...]) -> int:
        """How many ``records`` there are. :raises ArgumentError: unless each is shaped as the model was split for."""
        size, seen = common_length(records), [array.shape for array in self.blank_record]
        given = [array.shape[1:] for array in records]
        if given != seen:
            raise _validate.ArgumentError("records", given, f"are the shapes of one record, but init was given {seen}.")
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

    def traces(self, values: dict[str, Any], key: Key, records: Record, count: int = 1, **options: Any) -> tuple[dict, dict]:
        """Traces of guide and model for ``count`` records (arrays with first axis ``count``) and one draw of the base noise.

        :param options: of ``trace_of``.
        """
        guide_key, model_key = two_of(key)
        options = {"full_size": self.plates.full_size, **options}
        guide_trace = trace_of(self.guide, guide_key, values, *self._call(self.guide, records), count, **options)
        model_trace = trace_of(
            self.model, model_key, values | drawn(guide_trace), *self._call(self.model, records), count, **options
        )
        return guide_trace, model_trace

    def _call(self, fn: Callable, records: Record) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position and by keyword for model or guide."""
        args, kwargs = self.layout(tuple(map(jnp.asarray, records)))
        constants = {"num_records": self.num_records} if takes_num_records(fn) else {}
        return args, {**constants, **self.static, **kwargs}

    def model_trace(
        self, values: dict[str, Any], key: Key, changed: Callable[[Callable], Callable] = lambda model: model
    ) -> dict:
        """The trace of the model alone for ``blank_record``. :param changed: of the model, a handler of NumPyro's."""
        call = self._call(self.model, tuple(jnp.asarray(array)[None] for array in self.blank_record))
        return trace_of(changed(self.model), key, values, *call, full_size=self.plates.full_size)

    def _traces(self, values: dict[str, Any], key: Key, index: Any = 0, record: Record | None = None) -> tuple[dict, dict]:
        """``traces`` for one record, ``blank_record`` by default."""
        one = tuple(jnp.asarray(array)[None] for array in (self.blank_record if record is None else record))
        return self.traces(values, key, one, index=jnp.broadcast_to(jnp.asarray(index, jnp.int32), (1,)))

    def release_point(self, params: dict[str, Any], key: Key) -> tuple[dict[str, Any], Array]:
        """(u, global loss) for one shared draw of the base noise ``key``.

        The global loss is log q(theta) - log p(theta), float scalar. Both are differentiable in ``params`` and depend on
        no record (checked by ``split``).
        """
        values, global_loss = self._global_part(*self._traces(self.constrain(params), key))
        return {name: values[name] for name in self.shared}, global_loss

    def latents(self, params: dict[str, Any], key: Array) -> dict[str, Array]:
        """One draw of all global latents and global deterministic sites of the model, ``{site: value}``."""
        _, model_trace = self._traces(self.constrain(params), key)
        return {
            name: site["value"]
            for name, site in model_trace.items()
            if (site["type"] == "deterministic" or is_latent(site)) and name not in self.of_records
        }

    def record_loss(self, shared: dict[str, Any], record: Record, key: Key, index: Any = 0) -> Array:
        """l_i(u), float scalar, for one record (arrays without a record axis).

        :param key: base noise of this record's local latents; without any it changes nothing.
        """
        values = self.start() | shared  # values outside u do not enter a record's terms
        guide_trace, model_trace = self._traces(values, key, index, record)
        loss = jnp.zeros(())
        for name, term in self.record_terms(model_trace).items():
            # a local latent that the guide leaves out is drawn from the model: its two terms cancel
            if model_trace[name]["is_observed"] or name in self.local_latents:
                loss = loss - jnp.sum(term)
        for term in self.record_terms(guide_trace).values():
            loss = loss + jnp.sum(term)
        return loss

    def unit_loss(self, shared: dict[str, Any], unit: Record, key: Key) -> Array:
        """The loss of a privacy unit: of its record, or with ``most_rows`` of its rows, which weights float[rows] follow."""
        if self.most_rows is None:
            return self.record_loss(shared, unit, key)
        *rows, weights = unit

        def of_row(record: Record, number: Array | int) -> Array:
            own = key._replace(place=key.place * self.most_rows + number) if isinstance(key, RecordKey) else key
            return self.record_loss(shared, record, own)

        if weights.shape[0] == 1:
            return weights[0] * of_row(tuple(array[0] for array in rows), 0)
        return jnp.sum(weights * jax.vmap(of_row)(tuple(rows), jnp.arange(weights.shape[0])))

    def record_terms(self, trace: dict) -> dict[str, Array]:
        """Log densities of the sites of records, without the factor by which their plate scales what it subsamples."""
        terms = {}
        for name, site in trace.items():
            if site["type"] == "sample" and name in self.of_records:
                sizes = [trace[frame.name]["args"] for frame in self.frames_of(site)]
                terms[name] = log_densities(site, sizes[0][0] / sizes[0][1] if sizes else 1.0)
        return terms

    def frames_of(self, site: dict[str, Any]) -> list[Any]:
        """NumPyro's frames of the plates of records that ``site`` is in: one or none."""
        return [frame for frame in site["cond_indep_stack"] if frame.name in self.plates.names]

    def record_losses(self, shared: dict[str, Any], records: Record, key: Array) -> Array:
        """l_i(u) for each of ``records`` (first axis B), float[B], with base noise for each."""
        keys = record_keys(key, jnp.arange(self.require_like(records)))
        return jax.vmap(lambda record, own: self.record_loss(shared, record, own), (0, RecordKey(None, 0)))(records, keys)

    def _global_part(self, guide_trace: dict, model_trace: dict) -> tuple[dict[str, Any], Array]:
        """Values of global latents and all parameters, and log q - log p over the global sites.

        A latent that the guide leaves out is drawn from the model, so its two terms cancel and both are left out.
        """
        values = {}
        loss = jnp.zeros(())
        for trace, sign in ((guide_trace, 1), (model_trace, -1)):
            for name, site in trace.items():
                is_global = name not in self.of_records
                if site["type"] == "param" or (is_global and is_latent(site)):
                    values[name] = site["value"]
                if is_global and site["type"] == "sample" and (site["is_observed"] or name in guide_trace):
                    loss = loss + sign * log_density(site)
        return values, loss


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

    No private record is read: only the shapes and types of ``record`` are used, its values are replaced by ones (zeros for
    integers), and observed sites are masked while an automatic guide finds its starting point.

    :param model: NumPyro model; its first arguments are record arrays, and it may take ``num_records``.
    :param guide: NumPyro guide with the same arguments (an ``AutoGuide`` will do).
    :param key: typed JAX key for starting values.
    :param record: one record, a tuple of arrays or ``jax.ShapeDtypeStruct`` without the record axis.
    :param num_records: N >= 2, a declared public constant, the size of the record plate.
    :param static: further keyword arguments of model and guide.
    :param layout: makes arguments of model and guide of record arrays; by position by default.
    :raises PrivacyModelError: several subsampling plates; an observed site that depends on records, outside the plate of a
        model that subsamples; a latent of each record outside of it; a local latent whose guide
        is not inside the plate; a guide that is not reparametrised; a discrete latent for an automatic guide; a global
        quantity that depends on the records; batch statistics or other mutable state, with the layer's name; dropout
        without a key; parameters per record; what ``_separation`` finds.
    """
    static = dict(static or {})
    blank_record = tuple(_blank(array) for array in record)
    constants = [{"num_records": num_records, **static} if takes_num_records(fn) else static for fn in (model, guide)]
    plates = find_plates(model, layout, blank_record, constants[0], num_records)
    args, by_name = layout(tuple(jnp.asarray(array[None]) for array in blank_record))
    alike: dict[str, Any] = {"full_size": plates.full_size}

    imputed: set[str] = set()
    if isinstance(guide, AutoGuide):
        imputed = require_automatic(
            guide, plates.names, lambda part: abstract_trace(part, layout, blank_record, constants[1], 1, **alike)
        )
        if guide.prototype_trace is None:
            # an automatic guide looks for a starting point in its first call, which must not happen under jit, and rejects
            # points by the likelihood of the observations, which are made up here and may be impossible
            originals = [(part, part.model) for part in automatic_parts(guide)]
            for part, original in originals:
                inner = original if plates.as_they_are else RecordPlates(original, 1, None, plates.full_size)
                part.model = NetworkWatch(_WithoutObservations(inner, imputed))
            try:
                with _MADE_UP, validation_enabled(False):  # made-up records need not be valid
                    trace_of(guide, key, {}, args, {**constants[1], **by_name}, **alike)
            finally:
                for part, original in originals:
                    part.model = original

    sites: dict[str, dict] = {}
    inverse_transforms: dict[str, Any] = {}

    def starting_values(key: Array, others: dict[str, Any] | None = None) -> dict[str, Array]:
        for_model, for_guide = ({**each, **by_name, **(others or {})} for each in constants)
        guide_key, model_key = jax.random.split(key)
        guide_trace = trace_of(guide, guide_key, {}, args, for_guide, **alike)
        model_trace = trace_of(model, model_key, drawn(guide_trace), args, for_model, **alike)
        if not sites:
            sites.update(guide=guide_trace, model=model_trace)  # read below for what is static in them
        values = {}
        for name, site in (model_trace | guide_trace).items():
            if site["type"] == "param":
                with jax.ensure_compile_time_eval():  # bounds that are arrays: the transform is kept after the trace
                    transform = biject_to(site["kwargs"].get("constraint", constraints.real))
                inverse_transforms.setdefault(name, transform)
                values[name] = transform.inv(jax.tree.map(jnp.asarray, site["value"]))  # networks are pytrees
                require_floats(name, values[name])
        # weak types, of Python's numbers, would compile all that takes parameters once for them and once for a step's
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, leaf.dtype), values)

    try:
        with NetworkWatch(), readable("model or guide"):
            initial = jax.jit(starting_values)(key)
    except PrivacyModelError:
        raise
    except Exception as error:
        shapes = ", ".join(str(array.shape) for array in jax.tree.leaves((args, by_name)) if hasattr(array, "shape"))
        error.add_note(f"(The model and guide were called with one record, that is with arrays of shape {shapes}.)")
        raise
    check_sites(sites["guide"], sites["model"], plates.names)
    candidate = RecordModel(
        model=model,
        guide=guide,
        num_records=num_records,
        static=static,
        blank_record=blank_record,
        plates=plates,
        initial=initial,
        inverse_transforms=inverse_transforms,
        local_latents=tuple(
            name
            for name, site in sites["model"].items()
            if is_latent(site) and is_inside(site, plates.names) and name in sites["guide"]
        ),
        of_records=frozenset(
            name for trace in sites.values() for name, site in trace.items() if is_inside(site, plates.names)
        ),
        starting_values=starting_values,
        layout=layout,
    )
    subsamples = any(is_subsampling(sites["model"][name]) for name in plates.names)
    of_records = candidate.of_records | _outside_plates(candidate, key, subsamples)
    observed = (name for name, site in sites["model"].items() if site["type"] == "sample" and site["is_observed"])
    candidate = replace(candidate, of_records=of_records, observed=tuple(name for name in observed if name in of_records))
    seen = _with_shared(candidate, key)
    if imputed and seen.uses_base_noise:
        raise PrivacyModelError(
            f"the likelihood depends on missing values that are latents of each record ({', '.join(sorted(imputed))}): an "
            "automatic guide would have parameters for each of them. Write a guide that draws them from what is observed of "
            "the record, inside its plate."
        )
    return seen


PER_RECORD_PARAMETERS = (
    "A parameter per record (as automatic guides make for local latents) would be learnt from that record alone: use an "
    "amortised guide, whose networks all records share."
)


def _outside_plates(candidate: RecordModel, key: Array, subsamples: bool) -> set[str]:
    """The sites outside the plates of records that depend on a record: observed and deterministic ones.

    :param subsamples: whether the model subsamples. Then SVI would scale what is inside the plate alone.
    :raises PrivacyModelError: for a latent or a parameter that depends on a record, or on the index of their plate; and for
        an observed site, where the model subsamples.
    """

    def quantities(record: Record, index: Array) -> dict[str, Array]:
        start, outputs = candidate.start(), {}
        for number, trace in enumerate(candidate._traces(start, key, index, record)):
            for name, site in trace.items():
                kind = "observed" if site["type"] == "sample" and site["is_observed"] else site["type"]
                if kind == "param" or (kind in ("sample", "observed", "deterministic") and name not in candidate.of_records):
                    outputs[f"{number} {kind} {name}"] = total(site["value"])
                    if site["type"] == "sample":
                        outputs[f"{number} {kind}  {name}"] = log_density(site)
        return outputs

    found = set()
    for output, used in used_inputs(quantities, candidate.blank_record, np.int32(0)).items():
        kind, name = output.split(" ", 2)[1:]
        name = name.strip()
        if kind in ("observed", "deterministic"):
            if any(used):
                found.add(name)
            if any(used) and kind == "observed" and subsamples:
                raise PrivacyModelError(
                    f"site {name!r} is observed outside the record plate {in_words(candidate.plates.names)}, and depends on "
                    "records: it cannot be clipped per record. Move it inside."
                )
            continue
        if any(used[:-1]):
            raise PrivacyModelError(
                f"site {name!r} is global, but depends on the records: it would be released without noise."
            )
        if used[-1]:
            raise PrivacyModelError(
                f"site {name!r} is global or a parameter, but depends on the index of the record plate "
                f"{in_words(candidate.plates.names)}. {PER_RECORD_PARAMETERS}"
            )
    return found


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
            "no latent or parameter enters an observed site that depends on records: nothing to learn from records. Put the "
            'records in one plate: `with numpyro.plate("records", len(x)):`, where x is a record array.'
        )
    size = sum(leaf.size for name in shared for leaf in jax.tree.leaves(values[name]))
    return replace(candidate, shared=shared, shared_size=size, uses_base_noise=used_key, uses_index=used_index)
