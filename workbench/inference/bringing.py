"""Records that stay in a file: the rows of each minibatch are brought to the device while others
are taken.

A sampler's draws depend on the run's key and on step numbers alone. So they can be made ahead of
the steps: a thread draws the minibatches of the next steps, has the file's reader gather M rows for
each, and puts them on the device. The same step code is used as for records on the device. It finds
the rows of a minibatch next to one another.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench.sampling.minibatch import Minibatch, Sampler

if TYPE_CHECKING:
    from workbench.inference.state import DPVIState, Hyperparameters
    from workbench.inference.step import PrivateStep

__all__ = ["Brought", "DrawnAhead", "are_at_rest", "bringing", "require_room", "steps_at_once"]

_MOST_STEPS = 200
_BYTES = 2**24  # of rows that are brought at once, unless one step takes more
_SHARE = 64  # of the memory for records: there are up to four such blocks


def are_at_rest(records: tuple[Any, ...]) -> bool:
    """Whether records stay in a file. Their arrays then have ``stored``, which
    brings minibatches.
    """
    return any(hasattr(array, "stored") for array in records)


def steps_at_once(capacity: int, records: tuple[Any, ...], interval: int) -> int:
    """For how many steps rows are brought at once. :param capacity: M. :param interval: steps
    between two stops.
    """
    size = capacity * sum(array.dtype.itemsize * int(np.prod(array.shape[1:])) for array in records)
    room = min([_BYTES, *(array.stored.memory // _SHARE for array in records)])
    return max(1, min(_MOST_STEPS, interval, room // max(1, size)))


def require_room(sampler: Sampler, records: tuple[Any, ...], steps: int, interval: int) -> None:
    """Check that minibatches of a run of ``steps`` can be brought.

    :raises ArgumentError: naming ``memory``, if it is too little; ``records``, for rows of units
        instead of whole ones.
    """
    if any(array.is_rows for array in records):
        raise _validate.ArgumentError(
            "records",
            records[0].shape,
            'are the rows of units in a file: take whole ones, data.select(("x", "present")).',
        )
    at_once = steps_at_once(sampler.capacity, records, interval)
    records[0].stored.require_room(sampler.capacity, sampler.sampling_rate, at_once, steps)


@dataclass(frozen=True)
class Brought:
    """The sampler of a step whose records are the minibatches of a few steps, M rows each, one
    after another.

    :param sampler: which drew them, and for which privacy is accounted. :param steps: how many they
        are.
    """

    sampler: Sampler
    steps: int

    ascends = False  # rows of several steps are one after another
    preparation = None  # minibatches were drawn

    @property
    def num_records(self) -> int:
        """Rows that were brought."""
        return self.steps * self.sampler.capacity

    def minibatch(self, mask: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, 0 .. steps - 1. :param mask: bool[steps, M], of
        ``sampler``'s minibatches.
        """
        index, capacity = jnp.clip(number, 0, self.steps - 1).astype(jnp.int32), mask.shape[1]
        indices = index * np.int32(capacity) + jnp.arange(capacity, dtype=jnp.int32)
        return Minibatch(indices, mask[index])

    def __getattr__(self, name: str) -> Any:
        """All else is the sampler's: noise comes from the same words of a step's stream."""
        return getattr(self.sampler, name)


class DrawnAhead:
    """The minibatches of a run, drawn ahead of its steps: those that a step itself would draw.

    :param draw: ``draw(key, number, hyper)`` of the run's step. :param key: of the run.
    """

    def __init__(
        self,
        sampler: Sampler,
        draw: Callable[..., Any],
        key: jax.Array,
        hyper: Hyperparameters,
        at_once: int,
    ) -> None:
        self.name, self.capacity, self.sampling_rate, self.at_once = (
            sampler.name,
            sampler.capacity,
            sampler.sampling_rate,
            at_once,
        )
        self._key, self._hyper = key, hyper
        numbers = np.arange(at_once, dtype=np.int32)
        self._preparation = preparation = sampler.preparation
        if preparation is not None:
            self._prepare = jax.jit(preparation.prepare)
            self._of_epoch = jax.jit(
                lambda prepared, first: jax.vmap(
                    lambda number: preparation.draw_prepared(prepared, number)
                )(first + numbers)
            )
            self._epoch: tuple[int, Any] | None = None
        else:
            # noise, which comes from the same words, is not computed, because nothing uses it
            self._at = jax.jit(
                lambda key, hyper, first: jax.vmap(
                    lambda number: draw(key, number, hyper).minibatch
                )(first + numbers)
            )

    def __call__(self, first: int) -> tuple[np.ndarray, np.ndarray]:
        """(indices, int32[at_once, M]; mask, bool[at_once, M]) of the steps from ``first`` on."""
        if self._preparation is None:
            drawn = self._at(self._key, self._hyper, np.int32(first))
            return np.asarray(drawn.indices), np.asarray(drawn.mask)
        indices, masks, step, length = [], [], first, self._preparation.steps_per_epoch
        while step < first + self.at_once:
            epoch = step // length
            if self._epoch is None or self._epoch[0] != epoch:
                self._epoch = None  # before another one takes its memory
                self._epoch = epoch, self._prepare(self._key, np.uint32(epoch))
            count = min(first + self.at_once, (epoch + 1) * length) - step
            drawn = self._of_epoch(self._epoch[1], np.int32(step))
            indices.append(np.asarray(drawn.indices)[:count])
            masks.append(np.asarray(drawn.mask)[:count])
            step += count
        return np.concatenate(indices), np.concatenate(masks)


class _Block(NamedTuple):
    """Minibatches on the device: of the steps from ``first`` on, before ``last``."""

    first: int
    last: int
    rows: tuple[jax.Array, ...]
    mask: jax.Array


@contextlib.contextmanager
def bringing(
    block: Callable[..., Any],
    private_step: PrivateStep,
    hyper: Hyperparameters,
    state: DPVIState,
    records: tuple[Any, ...],
    steps: int,
    interval: int,
) -> Iterator[Callable[..., Any]]:
    """``chunk(state, records, limit, hyper)`` as of ``compiling.chunk_of``, for records at rest.

    :param block: compiled, of ``compiling.block_of`` for ``private_step``. :param state: from which
        the run goes on.
    :param steps: where it ends. :param interval: steps between two stops.
    """
    sampler = private_step.sampler
    at_once = steps_at_once(sampler.capacity, records, interval)
    # the steps reuse the memory of the state
    key = jax.jit(lambda key: jnp.array(key, copy=True))(state.key)
    thread = _Thread(
        DrawnAhead(sampler, private_step.draw, key, hyper, at_once),
        records,
        int(state.step),
        steps,
        state.step.device,
    )
    loaded: list[_Block] = []

    def chunk(
        state: DPVIState, records: tuple[Any, ...], limit: int | jax.Array, hyper: Hyperparameters
    ) -> Any:
        step, end = int(state.step), int(limit)
        while step < end:
            if not loaded or step >= loaded[0].last:
                loaded[:] = [thread.next()]
            stop = min(end, loaded[0].last)
            state = block(
                state,
                loaded[0].rows,
                loaded[0].mask,
                jnp.int32(loaded[0].first),
                jnp.int32(stop),
                hyper,
            )
            step = stop
        return state

    try:
        yield chunk
    finally:
        thread.close()


class _Thread:
    """Brings blocks of minibatches in their order; one is ready while another is taken."""

    def __init__(
        self,
        draws: DrawnAhead,
        records: tuple[Any, ...],
        first: int,
        steps: int,
        device: jax.Device,
    ) -> None:
        self._ready: queue.Queue[_Block | BaseException] = queue.Queue(maxsize=1)
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._work,
            args=(draws, records, first, steps, device),
            name="dpvi-records",
            daemon=True,
        )
        self._thread.start()

    def _work(
        self,
        draws: DrawnAhead,
        records: tuple[Any, ...],
        first: int,
        steps: int,
        device: jax.Device,
    ) -> None:
        try:
            names = tuple(array.name for array in records)
            for number, rows, mask in records[0].stored.minibatches(names, draws, first, steps):
                on_device = tuple(jax.device_put(array, device) for array in rows)
                if not self._put(
                    _Block(number, number + draws.at_once, on_device, jax.device_put(mask, device))
                ):
                    return
        except BaseException as error:
            self._put(error)

    def _put(self, item: _Block | BaseException) -> bool:
        while not self._ended.is_set():
            with contextlib.suppress(queue.Full):
                self._ready.put(item, timeout=0.1)
                return True
        return False

    def next(self) -> _Block:
        """The next block. :raises RecordsError: if it cannot be read."""
        block = self._ready.get()
        if isinstance(block, BaseException):
            raise block
        return block

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()
