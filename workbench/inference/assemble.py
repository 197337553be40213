"""Makes a private step of a NumPyro model and guide, or says why that is impossible."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from workbench import _validate
from workbench.clipping.clipped_sums import check_clipping
from workbench.clipping.separation import (
    BY_POSITION,
    has_axis_of_records,
    has_entry_for_each_record,
    require_no_records,
    require_separate,
    row_sizes_of,
)
from workbench.inference._optimizers import optimizer_for
from workbench.inference.sources import ON_ONE_DEVICE, RecordSource
from workbench.inference.state import (
    DEFAULT_PERFORMANCE,
    Performance,
    Purpose,
    StepOptions,
    fast_child,
)
from workbench.inference.step import PrivateStep
from workbench.noise.chacha20 import fast_key, require_secure
from workbench.noise.mechanism import GaussianMechanism
from workbench.record_model.additivity import require_additive
from workbench.record_model.estimators import ESTIMATORS, RecordLoss
from workbench.record_model.model import common_length
from workbench.record_model.plates import Layout, by_position
from workbench.record_model.splitting import split
from workbench.sampling.minibatch import Sampler

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["assemble"]


def assemble(
    model: Callable,
    guide: Callable,
    optim: Any,
    key: jax.Array,
    records: tuple[Any, ...],
    *,
    sampler: Sampler,
    mechanism: GaussianMechanism,
    num_records: int | None = None,
    estimator: str = "aligned",
    learning_rate: float | None = None,
    performance: Performance = DEFAULT_PERFORMANCE,
    clip_schedule: Callable[[jax.Array], jax.Array] | None = None,
    static: Mapping[str, Any] | None = None,
    layout: Layout = by_position,
    source: RecordSource = ON_ONE_DEVICE,
) -> PrivateStep:
    """The step of DP-VI for a NumPyro model and guide. Only shapes and types of ``records`` (first
    axis: records) are read.

    :param optim: an optimiser, or with ``learning_rate`` a function that makes one of a learning
        rate.
    :param key: of the run whose starting values the step's model holds; other runs may begin with
        other keys.
    :param num_records: N that scales the likelihood, declared public; that of the sampler by
        default.
    :param static: further keyword arguments of model and guide, public constants.
    :param layout: makes arguments of model and guide of record arrays; by position by default.
    :param source: where records are; with ``UnitRows``, ``records`` are rows, first rows and
        numbers of rows.
    :raises PrivacyModelError: if the model cannot be fitted privately (``splitting.split``,
        ``clipping.separation``).
    :raises ArgumentError: naming the argument and its value.
    :raises TypeError: if ``key`` is no key of ``workbench.noise``.
    """
    require_secure(key)
    chosen = ESTIMATORS[_validate.choice("estimator", estimator, ESTIMATORS)]
    check_clipping(mechanism.clipping, performance.strategy, performance.rules)
    rows, index = source.parted(records)
    size = common_length(index or rows)
    sizes = dict.fromkeys((size, common_length(rows)))
    static = dict(static or {})
    row_sizes = row_sizes_of([jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in rows])
    for length in sizes:
        _require_no_record_arrays(static, length, row_sizes)
    if sampler.num_records != size:
        raise _validate.ArgumentError(
            "records",
            size,
            f"does not match the sampler, which draws from {sampler.num_records} records.",
        )
    start_key = fast_child(key, Purpose.STARTING_VALUES)
    by_record = split(
        model,
        guide,
        start_key,
        tuple(jax.ShapeDtypeStruct(array.shape[1:], array.dtype) for array in rows),
        num_records=size if num_records is None else num_records,
        static=static,
        layout=layout,
    )
    require_additive(by_record, start_key, sampler.usual_size())
    by_record = dataclasses.replace(by_record, most_rows=source.rows_of_unit)
    optimizer = optimizer_for(by_record.initial, optim, learning_rate)
    options = StepOptions(clip_schedule)
    step = PrivateStep(
        by_record, sampler, mechanism, chosen, optimizer, performance, source, options
    )
    _require_separate_records(step, *sizes)
    return step


def _require_no_record_arrays(
    static: dict[str, Any], size: int, row_sizes: Collection[int]
) -> None:
    """:raises ArgumentError: naming a keyword argument that looks like one entry for
    each record.
    """

    def is_rows(value: object) -> bool:
        return has_entry_for_each_record(value, size)

    for argument, constant in static.items():
        for path, value in jax.tree_util.tree_flatten_with_path(constant, is_leaf=is_rows)[0]:
            shape = (size,) if is_rows(value) else getattr(value, "shape", ())
            if has_axis_of_records(shape, size, row_sizes):
                name = ".".join(
                    filter(None, (argument, jax.tree_util.keystr(path, simple=True, separator=".")))
                )
                description = "an axis of" if size in shape else "as many entries as rows of"
                raise _validate.ArgumentError(
                    name, shape, f"has {description} {size}, the number of records. {BY_POSITION}"
                )


def _require_separate_records(step: PrivateStep, *num_records: int) -> None:
    """Trace one step and check that each record's loss depends on that record only, and nothing
    else on any record.
    """
    model = step.model
    unit = step.source.as_unit(tuple(map(jnp.asarray, model.blank_record)))

    def without_records(params: PyTree, key: jax.Array) -> Any:
        def release(loss: RecordLoss, u: PyTree) -> Any:
            require_separate(loss, u, (unit, key), *num_records)
            return jax.tree.map(jnp.zeros_like, u)

        return step.estimator.gradient(model, params, key, 1.0, release)

    base_noise = jax.eval_shape(fast_key, jax.ShapeDtypeStruct((2,), jnp.uint32))
    closed, row_sizes = (
        jax.make_jaxpr(without_records)(model.initial, base_noise),
        row_sizes_of(model.blank_record),
    )
    require_no_records(closed, *num_records, row_sizes=row_sizes)
