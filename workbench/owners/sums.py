"""An owner's noised sums in whole numbers: of gradients or statistics, and of counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from workbench._compiler import compiler_options
from workbench.data.counting import counted
from workbench.inference.state import DPVIState, Hyperparameters, Purpose
from workbench.inference.step import PrivateStep
from workbench.noise import integers, key_use
from workbench.noise.chacha20 import key_from_seed
from workbench.record_model.model import Record

if TYPE_CHECKING:
    from workbench.owners.agreements import Agreement, LookAgreement

__all__ = ["OwnCounts", "OwnSums", "Sum", "Sums", "flat_point"]


class Sum(NamedTuple):
    """A noised sum in whole numbers. :param words: uint32[d]. :param spacings: g of the sum, and
    of counts of norms where there are some, public.
    """

    words: np.ndarray
    spacings: list[float]


class Sums(Protocol):
    """What an owner releases of its records."""

    @property
    def start(self) -> np.ndarray:
        """A point where the first sum may be taken, float[p]."""

    def begin(self, key: jax.Array) -> None:
        """Draw minibatches and noise with ``key`` from here on, which no run has begun with."""

    def at(self, number: int, point: np.ndarray, rung: int = 0) -> Sum:
        """The sum of round ``number``, from 0, at ``point``, with C at this rung of its ladder.

        :raises ArgumentError: if that round has been answered.
        """


@dataclass(eq=False, repr=False)
class OwnCounts:
    """The noised counts of one owner's columns, of which there is one round."""

    side: LookAgreement
    start: np.ndarray
    _key: jax.Array | None = None

    def begin(self, key: jax.Array) -> None:
        """Draw the noise with ``key``, which no run has begun with."""
        self._key = key

    def at(self, number: int, point: np.ndarray, rung: int = 0) -> Sum:
        """The counts. :raises ArgumentError: if they were released before."""
        if self._key is None:
            raise RuntimeError("begin with a secret key first.")
        key_use.draw_steps(self._key, number, number + 1)
        side = self.side
        key = jax.random.fold_in(self._key, Purpose.LOOK)
        noise = integers.rounded_gaussian(key, side.size, side.level)
        counts = counted(side.counting, side.data, side.per_record)
        words = (counts + np.asarray(noise, np.int64)).astype(np.uint32)  # modulo 2^32
        return Sum(words, [1 / side.per_record])


def flat_point(
    step: PrivateStep, state: DPVIState, hyper: Hyperparameters
) -> tuple[jax.Array, Callable[[jax.Array], Any]]:
    """(u of zeros as a vector, what makes the pytree u of a vector)."""

    def point(state: DPVIState) -> Any:
        return step.point(state, step.draw(state.key, state.step, hyper), hyper)

    shapes = jax.eval_shape(point, state)
    return jax.flatten_util.ravel_pytree(
        jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    )


@dataclass(eq=False, repr=False)
class OwnSums:
    """The noised sums of one owner's records.

    :param start: a point where gradients may be taken, 0, float[p].
    """

    start: np.ndarray
    _step: PrivateStep
    _hyper: Hyperparameters
    _records: Record
    _program: Callable[..., tuple[jax.Array, list[jax.Array]]]
    _state: DPVIState | None = None

    @classmethod
    def of(cls, side: Agreement) -> OwnSums:
        """Those of an owner's agreement, compiled; nothing is computed yet."""
        spec, step = side.spec, side.step
        # with its own part of the noise, unlike that of the total
        of_owner = replace(side.privacy, mechanism=step.mechanism)
        hyper = spec.estimation.hyper(spec, of_owner, step)
        size = step.sampler.num_records  # without what ``agreement`` fills up with
        records = tuple(array[:size] for array in spec.placed_records())
        state = step.init(key_from_seed(0), hyper, step.model.initial)
        start, restored = flat_point(step, state, hyper)

        def total(
            u: jax.Array, state: DPVIState, records: Record
        ) -> tuple[jax.Array, list[jax.Array]]:
            draws = step.draw(state.key, state.step, hyper)
            _, total, counts = step.release(restored(u), state, records, draws, hyper)
            on_grids = [total] if counts is None else [total, counts]
            units = jax.flatten_util.ravel_pytree([on_grid.units for on_grid in on_grids])[0]
            return units, [on_grid.spacing for on_grid in on_grids]

        options = compiler_options(spec.device.platform, step.noise_size)
        program = jax.jit(total).lower(start, state, records).compile(options)
        return cls(np.asarray(start), step, hyper, records, program)

    def begin(self, key: jax.Array) -> None:
        """Draw minibatches and noise with ``key`` from here on, which no run has begun with."""
        self._state = self._step.init(key, self._hyper, self._step.model.initial)

    def at(self, number: int, point: np.ndarray, rung: int = 0) -> Sum:
        """The sum of round ``number``, of gradients at ``point``.

        :param rung: of C on its ladder, where C adapts (``adaptive_clip``): the noise is in
            proportion, whatever C is.
        :raises ArgumentError: if that round has been answered: the same noise on another sum would
            show the difference.
        """
        if self._state is None:
            raise RuntimeError("begin with a secret key first.")
        key_use.draw_steps(self._state.key, number, number + 1)
        moments = self._state.moments
        if moments is not None and moments.rung is not None:
            moments = moments._replace(rung=jnp.asarray(rung, moments.rung.dtype))
        state = self._state._replace(step=jnp.int32(number), moments=moments)
        like = jnp.asarray(point, self.start.dtype)
        units, spacings = self._program(like, state, self._records)
        return Sum(np.asarray(units).view(np.uint32), [float(spacing) for spacing in spacings])
