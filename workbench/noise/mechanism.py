"""The Gaussian mechanism: the object that adds the noise also has the clipping norm that the noise
is for.

Sums are whole multiples of a spacing g, and so is the noise: a Gaussian rounded to whole multiples
of g. As x + round(Z) = round(x + Z) for whole x, what is released is a function of the sum with
continuous Gaussian noise, and every accountant of the Gaussian mechanism holds for it as it is. No
floating-point number is made before the two are added up, so the last bits reveal nothing (Mironov
2012).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.noise import integers
from workbench.noise.chacha20 import require_secure

if TYPE_CHECKING:
    from types import ModuleType

    from jaxtyping import PyTree

__all__ = ["CLIPPINGS", "GaussianMechanism", "Noise", "OnGrid"]

# ways to bring a record's term to a norm of at most C (``clipping.clipped_sums.clipped_sum``)
CLIPPINGS = ("flat", "automatic", "per_leaf")

_LARGEST_DEVIATION = (
    3e37  # a draw of eleven of them is finite in float32, and there are none as far out
)
_AT_ZERO = 11  # at level 0 the noise has a standard deviation of 2^11 spacings
_LARGEST_SUM = 2.0**29  # spacings that a minibatch's sum may have; half of what there is room for
_LAST_BITS = 1 + 2e-6  # for the rounding of g itself
_ROUNDING = 1e-5  # of sigma, and of its logarithm


def _level(numbers: ModuleType, deviation: float | jax.Array) -> Any:
    """The finest level whose standard deviation is at most ``deviation`` spacings. :param numbers:
    numpy or jax.numpy.
    """
    return numbers.clip(
        numbers.floor(numbers.log2(deviation)) - _AT_ZERO, integers.COARSEST, integers.FINEST
    )


class OnGrid(NamedTuple):
    """A sum in whole multiples of g. ``units``: pytree of int32 arrays; ``spacing``: g, float32
    scalar, public.
    """

    units: Any
    spacing: jax.Array


class Noise(NamedTuple):
    """Noise in whole multiples of g. ``units``: int32[d]; ``level``: how fine it is, int32 scalar,
    public.
    """

    units: jax.Array
    level: jax.Array


@dataclass(frozen=True)
class GaussianMechanism:
    """Adds Gaussian noise to every coordinate of a sum of per-record terms, each of l2 norm at most
    C.

    Under add_or_remove_one the sensitivity of the sum is C, and under replace_one it is 2 C, for
    every way of clipping. The accountant of the sampler knows which one holds. Arithmetic adds a
    little to C, mostly less than a thousandth (``clipping.whole_sums``), and the noise has sigma
    times all of it.

    >>> mechanism = wb.noise.GaussianMechanism(clip=2.0, noise_multiplier=1.5)
    >>> mechanism.standard_deviation
    3.0

    :param clip: C, the largest l2 norm of one record's term, in the units of the sum.
    :param noise_multiplier: sigma = noise standard deviation / C, without unit. Zero means no noise
        and no privacy, and is only for tests and non-private baselines.
    :param clipping: how terms are brought to norm C, one of ``CLIPPINGS``.
    """

    clip: float
    noise_multiplier: float
    clipping: str = "flat"

    def __post_init__(self) -> None:
        _validate.number("noise_multiplier", self.noise_multiplier, at_least=0)
        _validate.choice("clipping", self.clipping, CLIPPINGS)
        # a non-private baseline may have clip=inf, which switches clipping off
        if self.noise_multiplier > 0 or self.clip != math.inf:
            _validate.number("clip", self.clip, at_least=SMALLEST_CLIP, at_most=LARGEST_CLIP)
        if self.standard_deviation > _LARGEST_DEVIATION:
            raise _validate.ArgumentError(
                "noise_multiplier",
                self.noise_multiplier,
                f"times clip={self.clip:g} must be at most {_LARGEST_DEVIATION:g}.",
            )

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise in each coordinate, sigma C, without what pays for the
        rounding of sums.
        """
        return self.clip * self.noise_multiplier if self.noise_multiplier > 0 else 0.0

    def level(self, capacity: int, noise_multiplier: jax.Array | None = None) -> jax.Array:
        """How fine the noise is, int32 scalar: as fine as leaves room for a sum of ``capacity``
        records.

        :param noise_multiplier: float32 scalar that replaces the mechanism's own, for a compiled
            step that takes it as an argument.
        """
        sigma = jnp.float32(self.noise_multiplier) if noise_multiplier is None else noise_multiplier
        return _level(jnp, sigma * np.float32(_LARGEST_SUM / capacity)).astype(jnp.int32)

    def has_room(self, capacity: int, units: float) -> bool:
        """Whether noise fits between the rounding of the sum and the largest whole number.

        :param units: as of ``spacing``; the number of coordinates at least, where no rows are
            looked up.
        """
        return 2 * math.sqrt(units) <= self.room(capacity)

    def room(self, capacity: int) -> float:
        """The standard deviation of the noise in spacings, over sigma; infinite without noise."""
        if self.noise_multiplier == 0:
            return math.inf
        # a step computes its level and its spacing from sigma in float32
        level = float(_level(np, self.noise_multiplier * (1 - _ROUNDING) * _LARGEST_SUM / capacity))
        return float(2.0 ** (_AT_ZERO + level) / (self.noise_multiplier * (1 + _ROUNDING)))

    def noise(self, key: jax.Array, size: int, level: jax.Array) -> Noise | None:
        """Noise for ``size`` coordinates; None from a mechanism without noise.

        :param level: of ``level``.
        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        require_secure(key)
        return (
            Noise(integers.rounded_gaussian(key, size, level), level)
            if self.noise_multiplier > 0
            else None
        )

    def noise_from(self, words: jax.Array, size: int, level: jax.Array) -> Noise | None:
        """``noise`` from words of ``chacha20.stream``: uint32[``words_for(size)``]. Use them for
        nothing else.
        """
        if self.noise_multiplier == 0:
            return None
        return Noise(integers.rounded_gaussian_from(words, size, level), level)

    def words_for(self, size: int) -> int:
        """How many words ``noise_from`` takes."""
        return integers.words_for(size) if self.noise_multiplier > 0 else 0

    @staticmethod
    def spacing(
        noise_multiplier: jax.Array, clip: jax.Array, level: jax.Array, slack: float, units: float
    ) -> jax.Array:
        """g, float32 scalar: the spacing at which the noise is sigma times the sensitivity of the
        sum.

        Noise has a standard deviation of s = 2^(11 + level) spacings, and a sum whose terms keep C
        has the sensitivity C (1 + slack) + sqrt(units) g. So g (s - sigma sqrt(units)) = sigma C (1
        + slack). The result is NaN, and so is all that is released, where sigma sqrt(units) is more
        than half of s: spacings would be too wide for that much noise.

        :param noise_multiplier: sigma, float32 scalar.
        :param clip: C, float32 scalar.
        :param level: of the noise.
        :param slack: what arithmetic adds to C, a part of it.
        :param units: squared length of rounding, in g^2.
        """
        deviation = jnp.ldexp(jnp.float32(1), level + _AT_ZERO)
        for_rounding = noise_multiplier * np.float32(math.sqrt(units))
        wanted = noise_multiplier * clip * np.float32((1 + slack) * _LAST_BITS)
        return jnp.where(
            2 * for_rounding <= deviation, wanted / (deviation - for_rounding), jnp.nan
        )

    @staticmethod
    def whole_spacings(noise_multiplier: jax.Array, level: jax.Array) -> jax.Array:
        """By how many spacings a record may move what gets noise of ``level``, so that the noise is
        sigma times it; int32.

        For counts, which are whole numbers already and need no rounding.

        :param noise_multiplier: sigma, float32 scalar.
        :param level: of the noise.
        """
        deviation = jnp.ldexp(jnp.float32(1), level + _AT_ZERO)
        return jnp.floor(deviation / (noise_multiplier * np.float32(_LAST_BITS))).astype(jnp.int32)

    @staticmethod
    def on_grid(total: Any, noise: Noise | None) -> OnGrid:
        """``total`` with one draw of ``noise`` for each of its entries, still in whole multiples of
        g, modulo 2^32: for what is added up further before it is read.

        :raises ArgumentError, TypeError: as ``add``.
        """
        if noise is None or not isinstance(total, OnGrid):
            raise TypeError(
                "total: noise is added to sums on a grid (OnGrid) only, and to all of them."
            )
        leaves, treedef = jax.tree.flatten(total.units)
        ends = np.cumsum([leaf.size for leaf in leaves])
        if noise.units.shape != (
            ends[-1],
        ):  # broadcasting one draw to several coordinates would protect none of them
            raise _validate.ArgumentError(
                "noise",
                noise.units.shape,
                f"must have one draw for each of {ends[-1]} coordinates.",
            )
        draws = jnp.split(noise.units, ends[:-1])
        # a sum of more than 2^31 would begin again at -2^31: a function of the sum all the same
        noised = [leaf + draw.reshape(leaf.shape) for leaf, draw in zip(leaves, draws, strict=True)]
        return OnGrid(jax.tree.unflatten(treedef, noised), total.spacing)

    @staticmethod
    def add(total: PyTree, noise: Noise | None) -> Any:
        """``total`` with one draw of ``noise`` for each of its entries, a pytree of arrays.

        Whole numbers are added to whole numbers, without error, before anything becomes a
        floating-point number.

        :param total: ``OnGrid``; where there is no noise, a pytree of arrays that is returned as it
            is.
        :raises ArgumentError: if the number of draws is not the number of coordinates.
        :raises TypeError: if a sum that is not on a grid is to have noise, or one on a grid none.
        """
        if noise is None and not isinstance(total, OnGrid):
            return total
        units, spacing = GaussianMechanism.on_grid(total, noise)
        return jax.tree.map(lambda leaf: leaf.astype(jnp.float32) * spacing, units)
