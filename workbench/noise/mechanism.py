"""The Gaussian mechanism: the object that adds the noise also has the clipping norm that the noise is for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench._limits import LARGEST_CLIP, SMALLEST_CLIP
from workbench.noise.chacha20 import require_secure
from workbench.noise.normals import normal, normal_from

__all__ = ["CLIPPINGS", "GaussianMechanism"]

# ways to bring a record's term to a norm of at most C (``inference.clipping.clipped_sum``)
CLIPPINGS = ("flat", "automatic", "per_leaf")

_LARGEST_DEVIATION = 3e37  # a draw of eleven of them is finite in float32, and there are none as far out


@dataclass(frozen=True)
class GaussianMechanism:
    """Adds N(0, (sigma C)^2) to every coordinate of a sum of per-record terms, each of l2 norm at most C.

    Under add_or_remove_one the sensitivity of the sum is C, and under replace_one it is 2 C, for every way of clipping. The
    accountant of the sampler knows which one holds.

    >>> mechanism = wb.noise.GaussianMechanism(clip=2.0, noise_multiplier=1.5)
    >>> mechanism.standard_deviation
    3.0

    :param clip: C, the largest l2 norm of one record's term, in the units of the sum.
    :param noise_multiplier: sigma = noise standard deviation / C, without unit. Zero means no noise and no privacy, and is
        only for tests and non-private baselines.
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
        """Standard deviation of the noise in each coordinate, sigma C."""
        return self.clip * self.noise_multiplier if self.noise_multiplier > 0 else 0.0

    def noise(self, key: jax.Array, size: int, standard_deviation: jax.Array | None = None) -> jax.Array:
        """Noise for ``size`` coordinates, float32[size].

        :param standard_deviation: float32 scalar that replaces the mechanism's own, for a compiled step that takes it as an
            argument. It is ignored by a mechanism without noise.
        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        require_secure(key)
        if self.noise_multiplier == 0:
            return jnp.zeros(size, jnp.float32)
        return normal(key, (size,)) * self._scale(standard_deviation)

    def noise_from(self, words: jax.Array, standard_deviation: jax.Array | None = None) -> jax.Array:
        """``noise`` from words of ``chacha20.stream``: uint32[2, size] -> float32[size]. Use the words for nothing else."""
        if self.noise_multiplier == 0:
            return jnp.zeros(words.shape[1], jnp.float32)
        return normal_from(words[0], words[1]) * self._scale(standard_deviation)

    def _scale(self, standard_deviation: jax.Array | None) -> Any:
        return jnp.float32(self.standard_deviation) if standard_deviation is None else standard_deviation

    @staticmethod
    def add(total: Any, noise: jax.Array) -> Any:
        """``total`` (a pytree of arrays) plus ``noise`` (one flat vector with a coordinate for each of its entries).

        :raises ArgumentError: if the number of draws is not the number of coordinates.
        """
        leaves, treedef = jax.tree.flatten(total)
        ends = np.cumsum([leaf.size for leaf in leaves])
        if noise.shape != (ends[-1],):  # broadcasting one draw to several coordinates would protect none of them
            raise _validate.ArgumentError("noise", noise.shape, f"must have one draw for each of {ends[-1]} coordinates.")
        draws = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(noise, ends[:-1]), leaves, strict=True)]
        noised = [leaf + draw.astype(leaf.dtype) for leaf, draw in zip(leaves, draws, strict=True)]
        return jax.tree.unflatten(treedef, noised)
