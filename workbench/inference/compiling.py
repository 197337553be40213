"""Compiled steps: a chunk of a run as one XLA program, compiled in its own thread.

A chunk draws the randomness of several steps at once, which costs a tenth of drawing it step by
step.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench._compiler import compiler_options
from workbench.clipping.jaxprs import constants, primitives
from workbench.inference import program_cache
from workbench.inference._epochs import by_epochs
from workbench.inference._hoisting import hoist
from workbench.inference.bringing import Brought, are_at_rest, require_room, steps_at_once
from workbench.inference.state import DPVIState, Draws, Hyperparameters
from workbench.inference.step import PrivateStep
from workbench.record_model.model import Record
from workbench.sampling.minibatch import Minibatch, Preparation

__all__ = [
    "Chunk",
    "Compilation",
    "Compiling",
    "Lowered",
    "block_of",
    "chunk_of",
    "compile_ahead",
    "epochs_kept",
    "interval_of",
    "jit_seldom_called",
    "lower",
    "stepping",
    "steps_of_epoch",
]

# (least steps between two stops, steps whose random draws are made at once): a few sizes, so that
# runs of other lengths share a compiled program
_STEPS_AHEAD = ((512, 128), (16, 16), (4, 4), (1, 1))
_WORDS_AHEAD = 2**17  # but no more random words than this, half a MiB
_LEAST_STOPS = 25  # of a run, for its curves
# Seconds by which a step without XLA's optimisation is slower: at all, and for each record and
# coordinate of the noise. Compiling is 1 to 2 seconds quicker. Fits that come later may take the
# same program, so each loses less than a half.
_SLOWER, _SLOWER_EACH, _SOONER = 6e-5, 4e-8, 0.5

Chunk = Callable[..., DPVIState]


class Compilation(NamedTuple):
    """Compiled steps, ``chunk(state, records, limit, hyper)`` as of ``chunk_of``, and the seconds
    it took.
    """

    chunk: Chunk
    seconds: float


@dataclass(frozen=True, repr=False)
class Lowered:
    """The steps of a run as XLA is given them, with everything that model, guide and optimiser read
    while they were traced.

    :param program: a chunk, or where ``is_single`` one step. :param constants: arrays that the
        program closes over.
    :param options: of the compiler. :param identity: of ``program_cache.identity_of``; None for one
        that is always compiled.
    :param epochs: of steps that take a prepared epoch, ``steps_of_epoch``; else None.
    """

    program: jax.stages.Lowered
    constants: tuple[Any, ...]
    is_single: bool
    options: dict[str, Any] = field(default_factory=dict)
    identity: program_cache.Identity | None = None
    epochs: Preparation | None = None

    @functools.cached_property
    def digest(self) -> str:
        """32 hexadecimal digits: equal in all processes for programs that do the same with equal
        arguments.
        """
        return program_cache.digest_of(self.program.as_text(), self.constants, self.options)

    def compile(self) -> Chunk:
        """``chunk`` as of ``chunk_of``; compiled only if this process has not kept the very same
        program.
        """
        digest = "" if self.identity is None else self.digest
        compiled = program_cache.compiled(
            digest, self.identity, lambda: self.program.compile(compiler_options=self.options)
        )
        if self.epochs is not None:
            return by_epochs(
                compiled, program_cache.jit(self.epochs.prepare), self.epochs.steps_per_epoch
            )
        if not self.is_single:
            return compiled

        def chunk(state: DPVIState, *arguments: Any) -> DPVIState:
            *inputs, limit, hyper = arguments
            for _ in range(int(limit) - int(state.step)):
                state = compiled(state, *inputs, hyper)
            return state

        return chunk


class Compiling(NamedTuple):
    """Steps that are being compiled; both futures fail as the model does."""

    lowered: Future[Lowered]
    compilation: Future[Compilation]


def jit_seldom_called(
    function: Callable[..., Any], device: jax.Device, noise_size: int, static: int | None = None
) -> Callable[..., Any]:
    """``jax.jit`` for what is called about 30 times in a fit: with a small model, compiling it is
    most of its time.

    :param static: the place of a static argument.
    """
    return program_cache.jit(
        function, compiler_options(device.platform, noise_size, calls=1), static
    )


def interval_of(steps: int) -> int:
    """Steps after which a run of ``steps`` stops at the latest, to be evaluated: whole blocks."""
    interval = max(1, steps // _LEAST_STOPS)
    return interval - interval % _block(interval)


def _block(interval: int) -> int:
    """Steps whose random draws are made at once, where memory allows that."""
    return next(steps for least, steps in _STEPS_AHEAD if interval >= least)


def stepping(private_step: PrivateStep, ahead: int, lanes: int = 1) -> Callable[..., DPVIState]:
    """``steps_until(limit, state, records, hyper, prepared)`` for jit and vmap, which steps until
    ``state.step == limit``.

    Each block draws the randomness of a few steps at once, the guide's base noise included (a pure
    function of key and step number, so blocks change no result), and loops over it.
    ``prepared(number)`` gives the minibatch of a step, if it is not drawn with the rest.

    :param ahead: steps whose draws are made at once, at most. :param lanes: as for ``chunk_of``.
    """
    words_ahead = _WORDS_AHEAD // lanes

    def steps_until(
        limit: jax.Array,
        state: DPVIState,
        records: Record,
        hyper: Hyperparameters,
        prepared: Callable[[jax.Array], Minibatch | None] = lambda number: None,
    ) -> DPVIState:
        def draw(number: jax.Array) -> Draws:
            return private_step.draw(state.key, number, hyper, prepared(number))

        def one_step(state: DPVIState) -> DPVIState:
            return private_step.step(state, records, draw(state.step), hyper)

        def block(state: DPVIState) -> DPVIState:
            draws = jax.vmap(draw)(state.step + jnp.arange(block_size, dtype=jnp.int32))
            noises = jax.vmap(draw_base_noise)(draws.base_noise)

            def body(number: jax.Array, state: DPVIState) -> DPVIState:
                drawn, noise = jax.tree.map(lambda array: array[number], (draws, noises))
                return step_with(noise, (state, drawn._replace(base_noise=None)))

            return lax.fori_loop(0, jnp.minimum(limit - state.step, block_size), body, state)

        if ahead == 1:  # without vmap, under which rare branches would always be taken
            return lax.while_loop(lambda state: state.step < limit, one_step, state)
        draws = jax.eval_shape(draw, state.step)
        draw_base_noise, step_with = hoist(
            lambda key, pair: private_step.step(
                pair[0], records, pair[1]._replace(base_noise=key), hyper
            ),
            draws.base_noise,
            (state, draws._replace(base_noise=None)),
        )
        # local latents take base noise for every record of a minibatch
        base_noise_size = sum(
            value.size for value in jax.eval_shape(draw_base_noise, draws.base_noise)
        )
        block_size = max(1, min(ahead, words_ahead // max(1, base_noise_size)))
        return lax.while_loop(lambda state: state.step < limit, block, state)

    return steps_until


def chunk_of(private_step: PrivateStep, interval: int, lanes: int = 1) -> Chunk:
    """``chunk(state, records, limit, hyper)`` for jit and vmap, which steps until ``state.step ==
    limit``.

    If the sampler prepares epochs, each is prepared before its first step here.

    :param interval: steps between two stops. :param lanes: how many fits are stepped together,
        where it is to be mapped.
    """
    sampler, ahead = private_step.sampler, _steps_ahead(private_step, interval, lanes)
    preparation = sampler.preparation
    if preparation is None:
        steps_until = stepping(private_step, ahead, lanes)

        def chunk(
            state: DPVIState, records: Record, limit: jax.Array, hyper: Hyperparameters
        ) -> DPVIState:
            return steps_until(limit, state, records, hyper)

        return chunk

    # as many short epochs at once as take about one block
    epochs = max(
        1, min(ahead // preparation.steps_per_epoch, _WORDS_AHEAD // lanes // sampler.public_size)
    )
    span = epochs * preparation.steps_per_epoch
    steps_of_span = stepping(private_step, _evenly(span, ahead), lanes)

    def chunk_of_epochs(
        state: DPVIState, records: Record, limit: jax.Array, hyper: Hyperparameters
    ) -> DPVIState:
        def steps_of_epochs(state: DPVIState) -> DPVIState:
            prepared = preparation.prepare(state.key, state.step // span * epochs, epochs)
            steps = jnp.minimum(limit - state.step, span - state.step % span)
            draw = functools.partial(preparation.draw_prepared, prepared)
            return steps_of_span(state.step + steps, state, records, hyper, draw)

        return lax.while_loop(lambda state: state.step < limit, steps_of_epochs, state)

    return chunk_of_epochs


def epochs_kept(private_step: PrivateStep, lanes: int = 1) -> Preparation | None:
    """The preparation of epochs that are kept between chunks: to prepare one takes longer than to
    draw a block's randomness.

    ``chunk_of`` prepares the epoch of each chunk again. With millions of records that would take
    longer than the chunk.

    :return: None where chunks are those of ``chunk_of``.
    """
    sampler = private_step.sampler
    is_large = sampler.public_size > _WORDS_AHEAD // lanes
    return sampler.preparation if is_large and private_step.source.keeps_epochs else None


def steps_of_epoch(
    private_step: PrivateStep, epochs: Preparation, interval: int, lanes: int = 1
) -> Callable[..., DPVIState]:
    """``steps(state, records, limit, hyper, prepared)`` for jit and vmap, which steps until
    ``state.step == limit``.

    All of them belong to the epoch that ``epochs`` prepared. The other arguments are as for
    ``chunk_of``.
    """
    ahead = _evenly(epochs.steps_per_epoch, _steps_ahead(private_step, interval, lanes))
    steps_until = stepping(private_step, ahead, lanes)

    def steps(
        state: DPVIState,
        records: Record,
        limit: jax.Array,
        hyper: Hyperparameters,
        prepared: Any,
    ) -> DPVIState:
        return steps_until(
            limit, state, records, hyper, functools.partial(epochs.draw_prepared, prepared)
        )

    return steps


def _steps_ahead(private_step: PrivateStep, interval: int, lanes: int = 1) -> int:
    """How many steps' random draws are made at once: many for small models, one for large ones."""
    words = (
        private_step.mechanism.words_for(private_step.noise_size) + private_step.sampler.words + 2
    ) * lanes
    return _evenly(_block(interval), max(1, _WORDS_AHEAD // words))


def _evenly(steps: int, most: int) -> int:
    """The size of equal blocks of at most ``most`` steps, ``steps`` in all."""
    return math.ceil(steps / math.ceil(steps / most))


def lower(
    private_step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    records: Record,
    interval: int,
) -> Lowered:
    """The steps of a run that stops every ``interval`` steps. Only shapes, types and devices of the
    arrays count.

    It is a chunk, or a single step where the chunk's loop would slow it down. That is so for
    convolutions on CPUs: in a loop XLA takes a slower way through them (2.4 times the time of a
    step of a network for CIFAR-10 on two cores), which is more than what calling each step costs.
    The memory of ``state`` is reused. For records at rest it is ``block_of`` as many steps as are
    brought at once, and where ``epochs_kept`` gives a preparation it is ``steps_of_epoch``.
    """
    if are_at_rest(records):
        return _lower_block(private_step, hyper, state, records, interval)
    epochs = epochs_kept(private_step)
    chunk: Callable[..., DPVIState] = chunk_of(private_step, interval)
    prepared: tuple[Any, ...] = ()
    if epochs is not None:
        chunk = steps_of_epoch(private_step, epochs, interval)
        prepared = (jax.eval_shape(epochs.prepare, state.key, np.uint32(0)),)

    def one_step(state: DPVIState, records: Record, hyper: Hyperparameters) -> DPVIState:
        return private_step.step(
            state, records, private_step.draw(state.key, state.step, hyper), hyper
        )

    arguments = (state, records, jnp.int32(0), hyper, *prepared), (state, records, hyper)
    lowered = _lowered((chunk, one_step), arguments, state, private_step, interval)
    return lowered if lowered.is_single else replace(lowered, epochs=epochs)


def block_of(private_step: PrivateStep, interval: int, steps: int) -> Callable[..., DPVIState]:
    """``block(state, rows, mask, first, limit, hyper)`` for jit, which steps until ``state.step ==
    limit``.

    The minibatches of the steps from ``first`` on were brought: ``rows`` are their rows, M for each
    of ``steps`` steps, and ``mask``, bool[steps, M], says which are there. They are taken by the
    same step as those of records on the device.
    """
    sampler = Brought(private_step.sampler, steps)
    steps_until = stepping(
        replace(private_step, sampler=sampler), _steps_ahead(private_step, interval)
    )

    def block(
        state: DPVIState,
        rows: Record,
        mask: jax.Array,
        first: jax.Array,
        limit: jax.Array,
        hyper: Hyperparameters,
    ) -> DPVIState:
        records = private_step.source.in_rows(rows)
        return steps_until(
            limit, state, records, hyper, lambda number: sampler.minibatch(mask, number - first)
        )

    return block


def _lower_block(
    private_step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    records: Record,
    interval: int,
) -> Lowered:
    """As ``lower``, of records at rest."""
    steps, capacity = (
        steps_at_once(private_step.sampler.capacity, records, interval),
        private_step.sampler.capacity,
    )
    block = block_of(private_step, interval, steps)
    sampler = Brought(private_step.sampler, steps)
    block_step = replace(private_step, sampler=sampler)

    def one_step(
        state: DPVIState, rows: Record, mask: jax.Array, first: jax.Array, hyper: Hyperparameters
    ) -> DPVIState:
        minibatch = sampler.minibatch(mask, state.step - first)
        records = private_step.source.in_rows(rows)
        return block_step.step(
            state, records, block_step.draw(state.key, state.step, hyper, minibatch), hyper
        )

    kinds = [jax.dtypes.canonicalize_dtype(array.dtype) for array in records]
    rows = tuple(
        jax.ShapeDtypeStruct((steps * capacity, *array.shape[1:]), kind)
        for array, kind in zip(records, kinds, strict=True)
    )
    first = (state, rows, jax.ShapeDtypeStruct((steps, capacity), bool), jnp.int32(0))
    arguments = (*first, jnp.int32(0), hyper), (*first, hyper)
    return _lowered((block, one_step), arguments, state, private_step, interval)


def _options(private_step: PrivateStep, calls: int, platform: str) -> dict[str, Any]:
    """Options of the compiler for about so many steps; for few it does not optimise."""
    size = private_step.noise_size
    slower = _SLOWER + _SLOWER_EACH * size * private_step.sampler.usual_size()
    return compiler_options(platform, size, int(calls * slower >= _SOONER), calls=calls)


def _lowered(
    programs: tuple[Callable[..., DPVIState], Callable[..., DPVIState]],
    arguments: tuple[tuple[Any, ...], tuple[Any, ...]],
    on_device: Any,
    private_step: PrivateStep,
    interval: int,
) -> Lowered:
    """The first of two programs, many steps, or the second, one step, where the loop of the first
    would slow it down.

    :param arguments: of each, which begin with the state. :param on_device: arrays on the device
        where they run.
    :param interval: as of ``lower``.
    """
    traced = jax.jit(programs[0], donate_argnums=0).trace(*arguments[0])
    on_cpu = all(
        device.platform == "cpu" for leaf in jax.tree.leaves(on_device) for device in leaf.devices()
    )
    is_single = on_cpu and "conv_general_dilated" in primitives(traced.jaxpr.jaxpr)
    if is_single:
        traced = jax.jit(programs[1], donate_argnums=0).trace(*arguments[1])
    options = _options(private_step, interval * _LEAST_STOPS, "cpu" if on_cpu else "")
    identity = program_cache.identity_of(traced, arguments[is_single])
    return Lowered(traced.lower(), tuple(constants(traced.jaxpr)), is_single, options, identity)


def compile_ahead(
    private_step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    records: Record,
    steps: int,
    within: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Compiling:
    """Begin to compile a run of ``steps`` in its own thread, for ``training.run(compiled=)``.

    :param within: a context for that thread.
    :raises ArgumentError: if ``records`` are not such as ``private_step`` was made for, or take
        more memory than they may.
    """
    private_step.require_records(records)
    if are_at_rest(records):
        require_room(private_step.sampler, records, steps, interval_of(steps))
    lowered: Future[Lowered] = Future()

    def work() -> Compilation:
        began = time.perf_counter()
        try:
            lowered.set_result(lower(private_step, hyper, state, records, interval_of(steps)))
        except BaseException as error:
            lowered.set_exception(error)
            raise
        with within():
            chunk = lowered.result().compile()
        return Compilation(chunk, time.perf_counter() - began)

    compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dpvi-compile")
    compiling = compiler.submit(work)
    compiler.shutdown(wait=False)
    return Compiling(lowered, compiling)
