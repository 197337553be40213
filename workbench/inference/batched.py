"""Many fits stepped together by one compiled program, which has a lane for each fit.

The fits may differ in ``Hyperparameters``, keys and records. A lane takes the same steps as a fit
by itself, with the same keys, so it ends at the same parameters up to the rounding of sums that a
compiler may order differently. All lanes share the cost of compiling and the overhead of each step.
On a CPU each core steps a part of the lanes in its own thread. Several devices each step an equal
part of the lanes, by one program, and exchange nothing.
"""

from __future__ import annotations

import dataclasses
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workbench import _validate
from workbench._compiler import compiler_options
from workbench.inference._epochs import by_epochs
from workbench.inference.compiling import chunk_of, epochs_kept, steps_of_epoch
from workbench.inference.state import DPVIState, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.record_model.model import Record

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = [
    "BatchedProgram",
    "LanesResult",
    "bytes_per_lane",
    "cores",
    "stacked",
    "starting_states",
    "unconstrained",
]

_CHUNK_SECONDS = 0.5  # how long a request to stop may have to wait
_FIRST_CHUNK_STEPS = 20  # in the first chunk, which times the steps
_POLL_SECONDS = 0.05
_STEPS_AHEAD = 1000  # steps that are drawn for ahead; more than memory ever allows
_AXES = DPVIState(0, None, 0, 0, 0)  # type: ignore[arg-type]  # all lanes are at the same step
_EACH_ITS_OWN, _ALL_THE_SAME = PartitionSpec("lanes"), PartitionSpec()  # of what devices hold


class LanesResult(NamedTuple):
    """Where the lanes are in the end.

    :param state: ``DPVIState`` with arrays of lanes on their first axis, ``step`` a scalar. :param
        finished: whether all steps were taken; False after a stop. :param seconds: that stepping
        took. :param compile_seconds: before it.
    """

    state: DPVIState
    finished: bool
    seconds: float
    compile_seconds: float


def stacked(trees: Sequence[Any]) -> Any:
    """One pytree of arrays with a first axis for the entries of ``trees``."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def starting_states(
    private_step: PrivateStep, keys: Sequence[jax.Array], hyper: Hyperparameters
) -> DPVIState:
    """The states from which fits with ``keys`` start, stacked, as ``private_step.init`` would give
    them one by one.

    The guide must not be an automatic one, which draws its starting values when the model is split.

    :param hyper: stacked.
    """
    return jax.jit(jax.vmap(private_step.init, out_axes=_AXES))(jnp.stack(list(keys)), hyper)


def bytes_per_lane(
    private_step: PrivateStep, state: DPVIState, records: Sequence[Any], *, shared: bool
) -> int:
    """About how much memory one lane takes, from shapes alone.

    :param records: of one fit. :param shared: whether all lanes read the same copy of them.
    """
    state_bytes = sum(
        leaf.size * leaf.dtype.itemsize
        for leaf in jax.tree.leaves((state.optim_state, state.average, state.moments))
    )
    record_bytes = 0 if shared else sum(array.size * array.dtype.itemsize for array in records)
    size, sampler, noise_size = (
        private_step.performance.microbatch_size,
        private_step.sampler,
        private_step.noise_size,
    )
    # gradients of a minibatch's records, in the worst case one by one, and what is drawn ahead
    gradient_bytes = (sampler.usual_size() if size is None else size) * noise_size * 4
    words = private_step.mechanism.words_for(noise_size) + sampler.words
    epoch = 0 if sampler.preparation is None else sampler.preparation.preparing_words
    return int(
        4 * state_bytes + record_bytes + gradient_bytes + 4 * (noise_size + 2 * words + epoch)
    )


def unconstrained(private_step: PrivateStep, state: DPVIState, averaged: bool) -> dict[str, Any]:
    """``private_step.unconstrained`` of all lanes, stacked."""
    return jax.jit(
        jax.vmap(lambda state: private_step.unconstrained(state, averaged), in_axes=(_AXES,))
    )(state)


class BatchedProgram:
    """The compiled steps of up to ``lanes`` fits, for one batch of fits after another.

    :param private_step: of any of the fits: sampler, N and structure are common to all.
    :param lanes: how many at once; a smaller batch is filled up with copies of its last lane, which
        are thrown away.
    :param shared: whether all lanes read the same records. :param devices: of this process, where
        they run.
    """

    def __init__(
        self, private_step: PrivateStep, lanes: int, *, shared: bool, devices: Sequence[jax.Device]
    ) -> None:
        self._parts = (
            min(lanes, cores()) if len(devices) == 1 and devices[0].platform == "cpu" else 1
        )
        self._each = -(-lanes // (self._parts * len(devices)))  # lanes of a device, or of a core
        used = -(-lanes // (self._parts * self._each))
        self._mesh, self._width = Mesh(np.array(devices[:used]), ("lanes",)), used * self._each
        self._shared = shared
        performance = private_step.performance
        if (
            performance.microbatch_size is None
        ):  # the largest minibatch of all lanes decides, wherever they are
            performance = performance._replace(
                microbatch_size=private_step.sampler.usual_size(lanes)
            )
        self._step = dataclasses.replace(private_step, performance=performance)
        self._chunk: Callable[..., DPVIState] | None = None

    def run(
        self,
        state: DPVIState,
        records: Record,
        hyper: Hyperparameters,
        steps: int,
        *,
        stop: Callable[[], bool] = lambda: False,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> LanesResult:
        """Step all lanes until step number ``steps``.

        :param state: stacked, ``step`` a scalar. :param records: [lanes, N, ...], or [N, ...] where
            shared.
        :param hyper: stacked. :param stop: asked about every 0.5 s.
        :param on_step: called in this thread, with the number of steps that all lanes have taken.
        :raises ArgumentError: if there are more lanes than places for them, if ``records`` or
            ``hyper`` have another number of lanes than ``state``, or if the records are not such as
            the step was made for.
        :raises jax.errors.JaxRuntimeError: as JAX does, such as RESOURCE_EXHAUSTED.
        """
        began = time.perf_counter()
        lanes, first_step = state.key.shape[0], int(state.step)
        self._require_lanes(lanes, records, hyper)
        groups = [self._part(state, records, hyper, number) for number in range(self._parts)]
        if self._chunk is None:
            self._chunk = self._compiled(*groups[0])
        compiled = time.perf_counter()
        chunk, taken, halted = self._chunk, [first_step] * self._parts, threading.Event()

        def run_part(number: int) -> DPVIState:
            state, mine, ours = groups[number]
            groups[number] = None  # its memory is given to the steps
            step, per_step = first_step, math.inf
            try:
                while step < steps and not halted.is_set():
                    affordable = (
                        max(1, int(_CHUNK_SECONDS / per_step))
                        if step > first_step
                        else _FIRST_CHUNK_STEPS
                    )
                    limit = min(steps, step + affordable)
                    chunk_began = time.perf_counter()
                    state = jax.block_until_ready(chunk(state, mine, jnp.int32(limit), ours))
                    per_step = (time.perf_counter() - chunk_began) / (limit - step)
                    taken[number] = step = limit
            except BaseException:
                halted.set()  # the other groups need not continue
                raise
            return state

        with ThreadPoolExecutor(self._parts, thread_name_prefix="dpvi-lanes") as pool:
            running = [pool.submit(run_part, number) for number in range(self._parts)]
            try:
                while wait(running, timeout=_POLL_SECONDS).not_done:
                    on_step(min(taken))
                    if stop():
                        halted.set()
            except BaseException:
                halted.set()
                raise
            ends = [future.result() for future in running]
        of_parts = [(end.optim_state, end.key, end.average, end.moments) for end in ends]
        of_lanes = jax.tree.map(
            lambda *leaves: jnp.concatenate(leaves)[:lanes],
            *jax.device_put(of_parts, self._mesh.devices[0]),
        )
        end = DPVIState(of_lanes[0], jnp.int32(min(taken)), *of_lanes[1:])
        on_step(min(taken))
        return LanesResult(
            end, min(taken) == steps, time.perf_counter() - compiled, compiled - began
        )

    def _require_lanes(self, lanes: int, records: Record, hyper: Hyperparameters) -> None:
        """Places beyond the end of an array are read as its last: a lane would have another's
        records, clip or noise.
        """
        if lanes > self._parts * self._width:
            raise _validate.ArgumentError(
                "state", lanes, f"lanes, but there are places for {self._parts * self._width}."
            )
        for name, stacked in (("records", () if self._shared else records), ("hyper", hyper)):
            for leaf in jax.tree.leaves(stacked):
                if leaf.shape[:1] != (lanes,):
                    raise _validate.ArgumentError(
                        name, leaf.shape, f"must have a first axis of {lanes}, an entry a lane."
                    )
        shapes = [
            jax.ShapeDtypeStruct(array.shape if self._shared else array.shape[1:], array.dtype)
            for array in records
        ]
        self._step.require_records(tuple(shapes))

    def _part(self, state: DPVIState, records: Record, hyper: Hyperparameters, number: int) -> Any:
        """(state, records, hyper) of a core's lanes, or of all, on the devices; the state in its
        own memory.
        """
        lanes = state.key.shape[0]
        indices = np.minimum(np.arange(number * self._width, (number + 1) * self._width), lanes - 1)

        def on_all(tree: PyTree) -> Any:
            return jax.device_put(tree, NamedSharding(self._mesh, _ALL_THE_SAME))

        def chosen(tree: PyTree) -> Any:
            return jax.device_put(
                jax.tree.map(lambda leaf: leaf[indices], tree),
                NamedSharding(self._mesh, _EACH_ITS_OWN),
            )

        of_lanes = chosen((state.optim_state, state.key, state.average, state.moments))
        group_state = DPVIState(
            of_lanes[0], on_all(jnp.array(state.step, copy=True)), *of_lanes[1:]
        )
        return group_state, on_all(records) if self._shared else chosen(records), chosen(hyper)

    def _compiled(
        self, state: DPVIState, records: Record, hyper: Hyperparameters
    ) -> Callable[..., DPVIState]:
        epochs = epochs_kept(self._step, self._each)
        lane_chunk: Callable[..., DPVIState] = chunk_of(self._step, _STEPS_AHEAD, self._each)
        prepared: tuple[Any, ...] = ()
        if epochs is not None:
            lane_chunk = steps_of_epoch(self._step, epochs, _STEPS_AHEAD, self._each)
            prepare = jax.jit(self._spread(epochs.prepare, (0, None), 0))
            prepared = (jax.eval_shape(prepare, state.key, np.uint32(0)),)
        axes = _AXES, None if self._shared else 0, None, 0, *(0 for _ in prepared)
        chunk = jax.jit(self._spread(lane_chunk, axes, _AXES), donate_argnums=0)
        lowered = chunk.lower(state, records, jnp.int32(0), hyper, *prepared)
        options = compiler_options(self._mesh.devices[0].platform, self._step.noise_size, level=2)
        if self._parts > 1:  # a core each: threads of XLA's own would wait for one another
            options["xla_cpu_multi_thread_eigen"] = False
        compiled = lowered.compile(compiler_options=options)
        return compiled if epochs is None else by_epochs(compiled, prepare, epochs.steps_per_epoch)

    def _spread(
        self, of_lane: Callable[..., Any], in_axes: tuple[Any, ...], out_axes: PyTree
    ) -> Callable[..., Any]:
        """``jax.vmap(of_lane, in_axes, out_axes)``, in which each device has its own lanes."""
        of_lanes = jax.vmap(of_lane, in_axes, out_axes)
        if self._mesh.size == 1:
            return of_lanes
        in_specs, out_specs = jax.tree.map(
            lambda axis: _ALL_THE_SAME if axis is None else _EACH_ITS_OWN,
            (in_axes, out_axes),
            is_leaf=lambda axis: axis is None,
        )
        return jax.shard_map(
            of_lanes, mesh=self._mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
        )


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
