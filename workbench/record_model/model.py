"""A NumPyro model and guide seen as a global part and a per-record part.

The release point u holds everything that the per-record loss depends on: global latents as the
guide drew them, and the parameters that are used inside the record plate, such as the networks of a
variational auto-encoder. Given u, each record's loss l_i(u) = -[sum log p - sum log q over the
sites in the plate] is a function of that record alone (and of base noise for its local latents),
which is what per-record clipping needs. Prior, entropy and every global site that no record touches
stay outside u: they cost no privacy.

The model is traced for one record at a time, so no record reaches another's loss. Whether that is
the model which its author means, ``additivity`` checks by numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.util import transform_fn

from workbench import _validate
from workbench.record_model.base_noise import Key, RecordKey, record_keys, two_of
from workbench.record_model.plates import (
    Layout,
    Plates,
    by_position,
    takes_num_records,
)
from workbench.record_model.threads import separate_handler_stacks
from workbench.record_model.traces import (
    drawn,
    is_latent,
    log_densities,
    log_density,
    trace_of,
)

__all__ = ["RecordModel", "common_length"]

separate_handler_stacks()

Array = jax.Array
Record = tuple[Array, ...]


def common_length(records: tuple[Any, ...]) -> int:
    """How many records the arrays hold. :raises ArgumentError: naming ``records``: none, or first
    axes that differ.
    """
    if not records:
        raise _validate.ArgumentError(
            "records", (), "give the record arrays by position, first axis: records."
        )
    sizes = [array.shape[0] if getattr(array, "ndim", 0) else 0 for array in records]
    if min(sizes) != max(sizes) or sizes[0] < 1:
        raise _validate.ArgumentError(
            "records", tuple(sizes), "must have the same first axis, one entry a record."
        )
    return sizes[0]


@dataclass(frozen=True)
class RecordModel:
    """What ``splitting.split`` returns. Parameters psi are unconstrained: ``{name: array or pytree
    of arrays}``.

    ``of_records`` names the sites of model and guide that belong to a record, ``plates`` the plates
    that hold records. ``observed`` names the observed ones, ``initial`` are psi's starting values,
    found without looking at any record. ``starting_values(key, others)`` finds these for another
    key and ``others`` instead of static arguments, as a function for jit and vmap. ``shared`` names
    the entries of u and ``shared_size`` counts their coordinates, which is the dimension of the
    noise. ``local_latents`` are the latents inside the record plate that the guide draws, and
    ``uses_base_noise`` says whether each record's loss needs its own randomness (for local latents,
    drawn by guide or model). ``layout`` makes a call's arguments of record arrays.
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
        """The same model with other values of some keyword arguments, of the same shapes; they may
        be traced.
        """
        return replace(self, static={**self.static, **values})

    def require_like(self, records: tuple[Any, ...]) -> int:
        """How many ``records`` there are. :raises ArgumentError: unless each is shaped as the model
        was split for.
        """
        size, expected = common_length(records), [array.shape for array in self.blank_record]
        shapes = [array.shape[1:] for array in records]
        if shapes != expected:
            raise _validate.ArgumentError(
                "records", shapes, f"are the shapes of one record, but init was given {expected}."
            )
        return size

    def constrain(self, params: dict[str, Any]) -> dict[str, Any]:
        """psi in the space where the model and guide declare it."""
        return transform_fn(self.inverse_transforms, params)

    def unconstrain(self, params: dict[str, Any]) -> dict[str, Any]:
        """The inverse of ``constrain``."""
        return {name: self.inverse_transforms[name].inv(value) for name, value in params.items()}

    def start(self) -> dict[str, Any]:
        """The constrained starting values, traced within a trace: of others NumPyro checks each
        with four small programs.
        """
        return self.constrain(jax.tree.map(jnp.copy, self.initial))

    def traces(
        self, values: dict[str, Any], key: Key, records: Record, count: int = 1, **options: Any
    ) -> tuple[dict, dict]:
        """Traces of guide and model for ``count`` records (arrays with first axis ``count``) and
        one draw of the base noise.

        :param options: of ``trace_of``.
        """
        guide_key, model_key = two_of(key)
        options = {"full": self.plates.full, **options}
        guide_trace = trace_of(
            self.guide, guide_key, values, *self._call(self.guide, records), count, **options
        )
        model_trace = trace_of(
            self.model,
            model_key,
            values | drawn(guide_trace),
            *self._call(self.model, records),
            count,
            **options,
        )
        return guide_trace, model_trace

    def _call(self, fn: Callable, records: Record) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments by position and by keyword for model or guide."""
        args, kwargs = self.layout(tuple(map(jnp.asarray, records)))
        constants = {"num_records": self.num_records} if takes_num_records(fn) else {}
        return args, {**constants, **self.static, **kwargs}

    def model_trace(
        self,
        values: dict[str, Any],
        key: Key,
        changed: Callable[[Callable], Callable] = lambda model: model,
    ) -> dict:
        """The trace of the model alone for ``blank_record``. :param changed: of the model, a
        handler of NumPyro's.
        """
        call = self._call(
            self.model, tuple(jnp.asarray(array)[None] for array in self.blank_record)
        )
        return trace_of(changed(self.model), key, values, *call, full=self.plates.full)

    def _traces(
        self, values: dict[str, Any], key: Key, index: int | Array = 0, record: Record | None = None
    ) -> tuple[dict, dict]:
        """``traces`` for one record, ``blank_record`` by default."""
        batch = tuple(
            jnp.asarray(array)[None] for array in (self.blank_record if record is None else record)
        )
        return self.traces(
            values, key, batch, index=jnp.broadcast_to(jnp.asarray(index, jnp.int32), (1,))
        )

    def release_point(self, params: dict[str, Any], key: Key) -> tuple[dict[str, Any], Array]:
        """(u, global loss) for one shared draw of the base noise ``key``.

        The global loss is log q(theta) - log p(theta), float scalar. Both are differentiable in
        ``params`` and depend on no record (checked by ``splitting.split``).
        """
        values, global_loss = self._global_part(*self._traces(self.constrain(params), key))
        return {name: values[name] for name in self.shared}, global_loss

    def latents(self, params: dict[str, Any], key: Array) -> dict[str, Array]:
        """One draw of all global latents and global deterministic sites of the model, ``{site:
        value}``.
        """
        _, model_trace = self._traces(self.constrain(params), key)
        return {
            name: site["value"]
            for name, site in model_trace.items()
            if (site["type"] == "deterministic" or is_latent(site)) and name not in self.of_records
        }

    def record_loss(
        self, shared: dict[str, Any], record: Record, key: Key, index: int | Array = 0
    ) -> Array:
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
        """The loss of a privacy unit: of its record, or with ``most_rows`` of its rows, which
        weights float[rows] follow.
        """
        if self.most_rows is None:
            return self.record_loss(shared, unit, key)
        *rows, weights = unit

        def of_row(record: Record, number: Array | int) -> Array:
            row_key = (
                key._replace(position=key.position * self.most_rows + number)
                if isinstance(key, RecordKey)
                else key
            )
            return self.record_loss(shared, record, row_key)

        if weights.shape[0] == 1:
            return weights[0] * of_row(tuple(array[0] for array in rows), 0)
        return jnp.sum(weights * jax.vmap(of_row)(tuple(rows), jnp.arange(weights.shape[0])))

    @property
    def clipping_correction(self) -> Callable[..., Array] | None:
        """That of the model: (shared, arguments for one record, C) -> what is added to its loss
        before its gradient is clipped, float scalar. None where it has none, and for units of rows.
        """
        return getattr(self.model, "clipping_correction", None) if self.most_rows is None else None

    def correction(
        self, shared: dict[str, Any], record: Record, clip: Array, *, is_centred: bool
    ) -> Array | float:
        """``clipping_correction`` of one record, arrays without a record axis; 0 unless
        ``is_centred``.
        """
        if not is_centred:
            return 0.0
        assert self.clipping_correction is not None
        arguments, _ = self._call(self.model, tuple(array[None] for array in record))
        return self.clipping_correction(shared, arguments, clip)

    def record_terms(self, trace: dict) -> dict[str, Array]:
        """Log densities of the sites of records, without the factor by which their plate scales
        what it subsamples.
        """
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
        return jax.vmap(
            lambda record, record_key: self.record_loss(shared, record, record_key),
            (0, RecordKey(None, 0)),
        )(records, keys)

    def _global_part(self, guide_trace: dict, model_trace: dict) -> tuple[dict[str, Any], Array]:
        """Values of global latents and all parameters, and log q - log p over the global sites.

        A latent that the guide leaves out is drawn from the model, so its two terms cancel and both
        are left out.
        """
        values = {}
        loss = jnp.zeros(())
        for trace, sign in ((guide_trace, 1), (model_trace, -1)):
            for name, site in trace.items():
                is_global = name not in self.of_records
                if site["type"] == "param" or (is_global and is_latent(site)):
                    values[name] = site["value"]
                if (
                    is_global
                    and site["type"] == "sample"
                    and (site["is_observed"] or name in guide_trace)
                ):
                    loss = loss + sign * log_density(site)
        return values, loss
