"""An array as the matrices that meet a record, and one step back to what it was made of; see
``_preparation``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench.clipping._uses import Preparation, Value
from workbench.clipping.jaxprs import aval
from workbench.clipping.kernel_factors import Factors

__all__ = ["Frame", "Leaves", "Step", "all_formed", "one_place", "transposed"]

Array = jax.Array
Leaves = Sequence[Any]  # of u: arrays, or their shapes and types
Stage = Callable[[Factors, Leaves], Factors]


class Frame(NamedTuple):
    """An array as S matrices, p x d, that meet a record at T places; see ``_linear_uses``.

    :param arrange: the array as [S, p, d], a linear function: each entry of the result is an entry
        of the array.
    :param shape: (S, T, p, d). :param rows: whether a_i is numbers of rows. :param scaled: whether
        D is there.
    :param stages: how the factors come about, from those of the operation.
    """

    arrange: Callable[[Array], Array]
    shape: tuple[int, int, int, int]
    rows: bool = False
    scaled: bool = False
    stages: tuple[Stage, ...] = ()

    def then(self, stage: Stage, **changes: Any) -> Frame:
        """The frame after one more stage."""
        return self._replace(stages=(*self.stages, stage), **changes)

    def numbers(self, shape: Sequence[int]) -> np.ndarray:
        """Flat indices in an array of ``shape`` of the entries of its matrices, int[S, p, d]."""
        with jax.ensure_compile_time_eval():
            return np.asarray(
                self.arrange(jnp.arange(math.prod(shape), dtype=jnp.int32).reshape(shape))
            )


class Step(NamedTuple):
    """A preparation, with the scans around it that take the leaf apart.

    :param leaves: shapes and types. :param lengths: of all scans around it.
    """

    made: Preparation
    leaves: Leaves
    lengths: tuple[int, ...]

    @property
    def apart(self) -> tuple[bool, ...]:
        return self.made.operands[self.made.sides[0]].apart

    @property
    def turns(self) -> tuple[int, ...]:
        return tuple(
            length for length, apart in zip(self.lengths, self.apart, strict=False) if apart
        )

    @property
    def before(self) -> tuple[int, ...]:
        return (*self.turns, *aval(self.made.equation.invars[self.made.sides[0]]).shape)

    @property
    def after(self) -> tuple[int, ...]:
        return (*self.turns, *aval(self.made.equation.outvars[0]).shape)

    @property
    def parts(self) -> int:
        """How many parts the leaf is taken into."""
        return math.prod(self.turns)

    def vmapped(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """Map a function of arrays in one turn over the axes of scans in front."""
        for _ in self.turns:
            function = jax.vmap(function)
        return function

    def spread(self, array: Array, value: Value) -> Array:
        """Broadcast ``array``, of a value that may be the same in some turns, to the leaf's axes of
        scans.
        """
        axis = 0
        for length, differs, all_ in zip(self.lengths, value.apart, self.apart, strict=False):
            if all_ and not differs:
                array = jnp.broadcast_to(
                    jnp.expand_dims(array, axis), (*array.shape[:axis], length, *array.shape[axis:])
                )
            axis += all_
        return array

    def stretched(self, array: Array) -> Array:
        """Broadcast ``array``, which has the leaf's axes of scans, to the shape of the result."""
        count = len(self.turns)
        ones = (1,) * (len(self.after) - array.ndim)
        return jnp.broadcast_to(
            array.reshape(*array.shape[:count], *ones, *array.shape[count:]), self.after
        )


def transposed(frame: Frame) -> Frame:
    """The frame of the transposed matrices."""
    s, t, p, d = frame.shape
    arrange = lambda array: jnp.swapaxes(frame.arrange(array), 1, 2)  # noqa: E731
    return frame.then(lambda factors, leaves: factors.turned(), arrange=arrange, shape=(s, t, d, p))


def one_place(g: Array) -> Factors:
    """Factors of gradients that are formed for each record, g[M, S, n]: one place, and a = 1."""
    return Factors(jnp.ones((*g.shape[:2], 1, 1), g.dtype), g[:, :, None])


def all_formed(
    frame: Frame, arrange: Callable[[Array], Array], shape: Sequence[int], count: int
) -> Frame | None:
    """The frame of an array whose gradient is formed for each record; None for looked-up rows.

    :param arrange: the array as its matrices. :param shape: of the array. :param count: its parts.
    """
    if frame.rows:
        return None

    def form(factors: Factors, leaves: Leaves) -> Factors:
        formed = factors.formed()
        (back,) = jax.vmap(
            jax.linear_transpose(arrange, jax.ShapeDtypeStruct(tuple(shape), formed.dtype))
        )(formed)
        return one_place(back.reshape(len(formed), count, -1))

    size = math.prod(shape) // count
    return frame.then(
        form,
        arrange=lambda array: array.reshape(count, 1, size),
        shape=(count, 1, 1, size),
        scaled=False,
    )
