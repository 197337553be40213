"""Minibatches by a Feistel network, as the d3p paper draws them (Prediger et al. 2022): for
comparison only.

A keyed permutation of 0 .. N - 1, with a new key for each step, maps 0 .. b - 1 to the minibatch.
The permutation is a balanced Feistel network on the smallest domain with an even number of bits
that has N numbers. A number outside 0 .. N - 1 is permuted again until it is inside (cycle
walking).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from workbench import _validate
from workbench.sampling._integers import mixed
from workbench.sampling.minibatch import FixedSize, Minibatch

__all__ = ["FeistelSampler"]


@dataclass(frozen=True)
class FeistelSampler(FixedSize):
    """Draws minibatches of ``batch_size`` distinct records, quickly but not exactly uniformly.

    No accountant of this package gives a guarantee for it. A few rounds of a fast round function
    reach only some subsets, and not equally often, and there is no bound on the difference.
    ``WithoutReplacementSampler`` is exact at a similar cost.

    >>> sampler = wb.sampling.FeistelSampler(1000, 10)
    >>> sampler.name, sampler.sampling_rate
    ('feistel', 0.01)

    :param num_records: N in 1 .. 2^30 - 1.
    :param batch_size: b in 1 .. N.
    :param rounds: of the network, at least 2.
    """

    rounds: int = 8

    name = "feistel"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", _validate.integer("rounds", self.rounds, at_least=2))

    @property
    def words(self) -> int:
        """One for each round."""
        return self.rounds

    @property
    def total_variation(self) -> float:
        """1, the trivial bound, because no smaller one is known. Added to delta, it leaves no
        guarantee.
        """
        return 1.0

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from the first words of stream ``number`` of ``key``,
        lane 0.

        Indices are distinct.

        :param words: uint32[``self.words``]; use them for nothing else.
        :raises ArgumentError: if there are more or fewer words.
        """
        self._require(words)
        words = lax.optimization_barrier(words)
        half = max(1, -(-(self.num_records - 1).bit_length() // 2))

        def permuted(numbers: jax.Array) -> jax.Array:
            left_half, right_half = numbers >> np.uint32(half), numbers & np.uint32(2**half - 1)
            for number in range(self.rounds):
                left_half, right_half = (
                    right_half,
                    left_half ^ (mixed(right_half, words[number]) >> np.uint32(32 - half)),
                )
            return (left_half << np.uint32(half)) | right_half

        def outside(numbers: jax.Array) -> jax.Array:
            return numbers >= np.uint32(self.num_records)

        records = lax.while_loop(
            lambda numbers: jnp.any(outside(numbers)),
            lambda numbers: jnp.where(outside(numbers), permuted(numbers), numbers),
            permuted(jnp.arange(self.batch_size, dtype=jnp.uint32)),
        )
        return Minibatch(records.astype(jnp.int32), jnp.ones(self.batch_size, bool))
