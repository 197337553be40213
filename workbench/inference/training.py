"""The one training loop: compiled chunks of steps, snapshots out, stop in.

Command line, notebooks, widgets and sweeps all consume the iterator that ``run`` returns.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
import traceback
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench.inference._hoisting import hoist
from workbench.inference._jaxprs import constants, primitives
from workbench.inference.record_model import Record
from workbench.inference.svi import DPVI, DPVIState, Hyperparameters

__all__ = ["Compilation", "Compiling", "Lowered", "Snapshot", "all_finite", "chunk_of", "compile_ahead", "lower", "run"]

Status = Literal["running", "done", "cancelled", "failed"]

_CHUNK_SECONDS = 0.3  # how long a request to stop may have to wait
_FIRST_CHUNK_STEPS = 10  # until a step has been timed
_EVALUATIONS = 200  # points on the curves of a whole run, and more where they would be
_EVALUATION_SECONDS = 1.0  # further apart than this
_EVALUATION_SHARE = 0.25  # of the run's time that evaluations may take, where one of them is slow,
_EVALUATIONS_FREE = 1.0  # and this many seconds
_STEPS_AHEAD = 200  # steps whose random draws are made at once (a tenth of the time of drawing step by step)
_WORDS_AHEAD = 2**17  # but no more random words than this, half a MiB


@dataclass(frozen=True)
class Snapshot:
    """What a run shows between two chunks.

    :param status: "running", or how the run ended.
    :param step: steps taken so far, counting a chunk that failed or was interrupted as taken.
    :param params: constrained parameters, ``{name: numpy array or pytree of them}``: covered by the guarantee.
    :param epsilon_so_far: what an observer of the run up to here has been told at most, None where no accountant was given.
    :param metrics: the newest values of ``evaluate``; what they may be used for depends on the evaluation records.
    :param metrics_step: the step that ``metrics`` belong to.
    :param seconds: time since the first chunk began.
    :param seconds_per_step: of the newest chunk; None until a compiled step has been timed.
    :param compile_seconds: what compiling the steps took, before the run or in it; None until that is done.
    :param message: why the run failed, or what else went wrong, for people. :param details: the traceback behind it.
    """

    status: Status
    step: int
    params: dict[str, Any]
    epsilon_so_far: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    metrics_step: int = 0
    seconds: float = 0.0
    seconds_per_step: float | None = None
    compile_seconds: float | None = None
    message: str = ""
    details: str = ""


Chunk = Callable[[DPVIState, Record, jax.Array, Hyperparameters], DPVIState]


class Compilation(NamedTuple):
    """Compiled steps, ``chunk(state, records, limit, numbers)`` as of ``jitted_chunk``, and the seconds it took."""

    chunk: Chunk
    seconds: float


@dataclass(frozen=True, repr=False)
class Lowered:
    """The steps of a run as XLA is given them, with everything that model, guide and optimiser read while they were traced.

    :param program: a chunk, or where ``is_single`` one step. :param constants: arrays that the program closes over.
    """

    program: jax.stages.Lowered
    constants: tuple[Any, ...]
    is_single: bool

    @functools.cached_property
    def digest(self) -> str:
        """32 hexadecimal digits: equal in all processes for programs that do the same with equal arguments."""
        digest = hashlib.blake2b(self.program.as_text().encode(), digest_size=16)
        for constant in self.constants:  # also in the text, but for where a later JAX makes arguments of them
            is_key = jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
            array = np.asarray(jax.random.key_data(constant) if is_key else constant)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    def compile(self) -> Chunk:
        """``chunk`` as of ``jitted_chunk``."""
        compiled = self.program.compile()
        if not self.is_single:
            return compiled

        def chunk(state: DPVIState, records: Record, limit: jax.Array, numbers: Hyperparameters) -> DPVIState:
            for _ in range(int(limit) - int(state.step)):
                state = compiled(state, records, numbers)
            return state

        return chunk


class Compiling(NamedTuple):
    """Steps that are being compiled; both futures fail as the model does."""

    lowered: Future[Lowered]
    compiled: Future[Compilation]


def steps_drawn_ahead(dpvi: DPVI, interval: int, lanes: int = 1) -> int:
    """How many steps' random draws are made at once: many for small models, one for large ones, none in vain.

    :param interval: steps between two stops of the chunk. :param lanes: fits that are stepped together.
    """
    words = (2 * dpvi.noise_size + dpvi.sampler.words + 2) * lanes
    most = max(1, min(_STEPS_AHEAD, _WORDS_AHEAD // words))
    return math.ceil(interval / math.ceil(interval / most))


def jitted_chunk(dpvi: DPVI, interval: int) -> jax.stages.Wrapped:
    """A jitted ``chunk(state, records, limit, numbers)`` that steps until ``state.step == limit`` and reuses state's memory.

    Each block draws the randomness of a few steps at once, the guide's base noise included (a pure function of key and
    step number, so blocks change no result), and loops over it.
    """
    return jax.jit(chunk_of(dpvi, interval), donate_argnums=0)


def lowered_chunk(dpvi: DPVI, interval: int, state: DPVIState, records: Record) -> Lowered:
    """``jitted_chunk`` for arguments like these; or a single step where its loop would slow it down.

    That is so for convolutions on CPUs: in a loop XLA takes a slower way through them (2.4 times the time of a step of a
    network for CIFAR-10 on two cores), which is more than what calling each step costs.
    """
    traced = jitted_chunk(dpvi, interval).trace(state, records, jnp.int32(0), dpvi.numbers)
    on_cpu = all(device.platform == "cpu" for leaf in jax.tree.leaves(records) for device in leaf.devices())
    is_single = on_cpu and "conv_general_dilated" in primitives(traced.jaxpr.jaxpr)
    if is_single:

        def one_step(state: DPVIState, records: Record, numbers: Hyperparameters) -> DPVIState:
            own = dpvi.with_numbers(numbers)
            return own.step(state, records, own.draw(state.key, state.step))

        traced = jax.jit(one_step, donate_argnums=0).trace(state, records, dpvi.numbers)
    return Lowered(traced.lower(), tuple(constants(traced.jaxpr)), is_single)


def chunk_of(
    dpvi: DPVI, interval: int, lanes: int = 1
) -> Callable[[DPVIState, Record, jax.Array, Hyperparameters], DPVIState]:
    """What ``jitted_chunk`` compiles, for one fit. :param lanes: how many are stepped together, where it is to be mapped."""
    ahead, words_ahead = steps_drawn_ahead(dpvi, interval, lanes), _WORDS_AHEAD // lanes

    def chunk(state: DPVIState, records: Record, limit: jax.Array, numbers: Hyperparameters) -> DPVIState:
        own = dpvi.with_numbers(numbers)

        def one_step(state: DPVIState) -> DPVIState:
            return own.step(state, records, own.draw(state.key, state.step))

        def block(state: DPVIState) -> DPVIState:
            steps = state.step + jnp.arange(block_size, dtype=jnp.int32)
            draws = jax.vmap(functools.partial(own.draw, state.key))(steps)
            noises = jax.vmap(draw_base_noise)(draws.base_noise)

            def body(number: jax.Array, state: DPVIState) -> DPVIState:
                drawn, noise = jax.tree.map(lambda array: array[number], (draws, noises))
                return step_with(noise, (state, drawn._replace(base_noise=None)))

            return lax.fori_loop(0, jnp.minimum(limit - state.step, block_size), body, state)

        if ahead == 1:  # without vmap, under which rare branches would always be taken
            return lax.while_loop(lambda state: state.step < limit, one_step, state)
        draws = jax.eval_shape(own.draw, state.key, state.step)
        draw_base_noise, step_with = hoist(
            lambda key, rest: own.step(rest[0], records, rest[1]._replace(base_noise=key)),
            draws.base_noise,
            (state, draws._replace(base_noise=None)),
        )
        # local latents take base noise for every record of a minibatch
        base_noise_size = sum(value.size for value in jax.eval_shape(draw_base_noise, draws.base_noise))
        block_size = max(1, min(ahead, words_ahead // max(1, base_noise_size)))
        return lax.while_loop(lambda state: state.step < limit, block, state)

    return chunk


def _interval(steps: int) -> int:
    """Steps between two evaluations of a run of ``steps``."""
    return max(1, math.ceil(steps / _EVALUATIONS))


def lower(dpvi: DPVI, state: DPVIState, records: Record, steps: int) -> Lowered:
    """The steps of a run to step number ``steps``. Only shapes, types and devices of ``state`` and ``records`` count."""
    return lowered_chunk(dpvi, _interval(steps), state, records)


def compile_ahead(dpvi: DPVI, state: DPVIState, records: Record, steps: int) -> Compiling:
    """Begin to compile what ``lower`` gives in a thread of its own, for ``run(compiled=)``.

    :raises ArgumentError: if ``records`` are not such as ``dpvi.init`` saw.
    """
    dpvi.require_records(records)
    lowered: Future[Lowered] = Future()

    def work() -> Compilation:
        began = time.perf_counter()
        try:
            lowered.set_result(lower(dpvi, state, records, steps))
        except BaseException as error:
            lowered.set_exception(error)
            raise
        chunk = lowered.result().compile()
        return Compilation(chunk, time.perf_counter() - began)

    compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dpvi-compile")
    compiling = compiler.submit(work)
    compiler.shutdown(wait=False)
    return Compiling(lowered, compiling)


def all_finite(params: Any) -> bool:
    """Whether every entry of a pytree of arrays is a finite number."""
    return all(bool(np.all(np.isfinite(value))) for value in jax.tree.leaves(params))


def run(
    dpvi: DPVI,
    state: DPVIState,
    records: Record,
    steps: int,
    *,
    stop: Callable[[], bool] = lambda: False,
    evaluate: Callable[[dict[str, jax.Array]], dict[str, float]] | None = None,
    epsilon_at: Callable[[int], float] | None = None,
    averaged: bool = False,
    compiled: Compiling | None = None,
    before_chunk: Callable[[DPVIState, int], None] | None = None,
) -> Generator[Snapshot, None, DPVIState]:
    """Train until step number ``steps`` and yield a ``Snapshot`` before the first chunk and after each.

    Chunks take about 0.3 s or end at an evaluation, whichever comes first. The last snapshot's status is "done",
    "cancelled" (``stop()`` was true between two chunks, or KeyboardInterrupt) or "failed" (the parameters are not finite
    any more, or JAX raised; the snapshot then holds the last good parameters).

    :param state: from ``dpvi.init``, or the end of an earlier run.
    :param records: the private records, arrays with first axis N.
    :param steps: T, the step number to stop at (steps of earlier runs of ``state`` included).
    :param stop: asked between chunks.
    :param evaluate: called with the unconstrained parameters 200 times a run, and at least once a second; less often where
        it would take more than a quarter of the time.
    :param epsilon_at: epsilon after a number of steps, for display.
    :param averaged: show and evaluate the mean of the iterates (``DPVI.get_params``).
    :param compiled: of ``compile_ahead`` for the same ``dpvi`` and ``steps``, to compile once for several runs.
    :param before_chunk: called with the state before each chunk and the step that it goes to, to write them down. If that
        fails, with an OSError or a ValueError, the run is cancelled before the chunk, with the error as its message.
    :return: the state at the end, as the generator's value, for going on or saving.
    :raises ArgumentError: before the first snapshot, if ``records`` are not such as ``dpvi.init`` saw.
    """
    records, numbers = tuple(jnp.asarray(array) for array in records), dpvi.numbers
    dpvi.require_records(records)
    constrain = jax.jit(functools.partial(dpvi.get_params, averaged=averaged))
    interval = _interval(steps)
    status: Status = "running"
    message = details = ""
    metrics: dict[str, float] = {}
    metrics_step = 0
    seconds_per_step: float | None = None
    compile_seconds: float | None = None
    evaluating = 0.0  # seconds
    started = measured = time.perf_counter()

    def host_params(state: DPVIState) -> dict[str, Any]:
        # a copy: the next chunk reuses the state's memory, which jit may have handed through
        return jax.tree.map(lambda value: np.array(value, copy=True), constrain(state))

    def measure(state: DPVIState) -> None:
        nonlocal evaluate, message, details, metrics, metrics_step, measured, evaluating
        began = measured = time.perf_counter()
        if evaluate is None:
            return
        try:
            metrics, metrics_step = evaluate(dpvi.unconstrained(state, averaged)), step
            measured = time.perf_counter()
            evaluating += (measured - began) * (step > 0)  # the first one compiles
        except Exception as error:  # whatever a model's own score raises must not lose what epsilon was spent on
            evaluate = None
            message = f"metrics could not be computed from step {step} on ({type(error).__name__}: {error})."
            details = traceback.format_exc()

    def snapshot(status: Status, message: str = "") -> Snapshot:
        return Snapshot(
            status=status,
            step=step,
            params=params,
            epsilon_so_far=epsilon_at(step) if epsilon_at else None,
            metrics=dict(metrics),
            metrics_step=metrics_step,
            seconds=time.perf_counter() - started,
            seconds_per_step=seconds_per_step,
            compile_seconds=compile_seconds,
            message=message,
            details=details,
        )

    # in JAX's own buffers: donation would free memory that the caller may still hold in a NumPy view
    state = jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), state)
    step = int(state.step)
    params = host_params(state)
    # beside the evaluation, which compiles in this thread
    compiling = compile_ahead(dpvi, state, records, steps) if compiled is None else compiled
    try:
        measure(state)
        yield snapshot("running")
        chunk, compile_seconds = compiling.compiled.result()
        while step < steps:
            if stop():
                status = "cancelled"
                break
            affordable = _FIRST_CHUNK_STEPS if seconds_per_step is None else max(1, int(_CHUNK_SECONDS / seconds_per_step))
            until_evaluation = interval - step % interval
            limit = min(steps, step + min(affordable, until_evaluation))
            if before_chunk is not None:
                try:
                    before_chunk(state, limit)
                except (OSError, ValueError) as error:
                    status, message = "cancelled", f"stopped before step {step + 1}: {error}"
                    break
            first_step, step = step, limit  # the chunk counts as taken from the moment it starts
            began = time.perf_counter()
            state = jax.block_until_ready(chunk(state, records, jnp.int32(limit), numbers))
            duration = time.perf_counter() - began
            seconds_per_step = duration / (limit - first_step)
            newest = host_params(state)
            if not all_finite(newest):
                status = "failed"
                message = (
                    f"the parameters were no longer finite after step {step}; the values shown are older. "
                    "A smaller learning rate or clip, or a larger epsilon, helps."
                )
                break
            params = newest
            now = time.perf_counter()
            due = step % interval == 0 or now - measured > _EVALUATION_SECONDS
            if step == steps or (due and evaluating <= _EVALUATION_SHARE * (now - started) + _EVALUATIONS_FREE):
                measure(state)
            if step < steps:
                yield snapshot("running")
        else:
            status = "done"
    except KeyboardInterrupt:
        status, message = "cancelled", "interrupted"
    except (jax.errors.JaxRuntimeError, FloatingPointError, MemoryError) as error:
        status, message, details = "failed", f"{type(error).__name__}: {error}", traceback.format_exc()
    if status == "cancelled" and metrics_step != step and message != "interrupted":
        ended = message
        measure(state)
        message = ended or message
    yield snapshot(status, message)
    return state
