"""Minibatches of records that lie in strata: each stratum has a sampler of its own, and places of its own in the minibatch."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from workbench import _validate
from workbench.noise.chacha20 import stream
from workbench.sampling.minibatch import Minibatch
from workbench.sampling.poisson import PoissonSampler

__all__ = ["StratifiedSampler"]


@dataclass(frozen=True)
class StratifiedSampler:
    """Draws Poisson minibatches from strata of records, which follow one another. Their places follow one another too.

    Every record is included independently with the same probability q, as by one ``PoissonSampler`` of them all. A record
    moves places in its own stratum alone, so strata may be computed in different ways.

    >>> strata = [wb.sampling.PoissonSampler(size, 0.1, 40, lane=1 + k) for k, size in enumerate([90, 10])]
    >>> sampler = wb.sampling.StratifiedSampler(tuple(strata))
    >>> sampler.name, sampler.num_records, sampler.capacity
    ('poisson', 100, 80)

    :param strata: a sampler for each, of one q, and each with a lane of its own.
    :raises ArgumentError: naming ``strata``.
    """

    strata: tuple[PoissonSampler, ...]

    name = "poisson"
    relation = "add_or_remove_one"

    def __post_init__(self) -> None:
        rates, lanes = ([getattr(one, name) for one in self.strata] for name in ("sampling_rate", "lane"))
        if len(set(rates)) != 1:
            raise _validate.ArgumentError("strata", rates, "must have samplers, all of one sampling rate.")
        if len(set(lanes)) < len(lanes):
            raise _validate.ArgumentError("strata", lanes, "are the lanes of the samplers; each needs its own.")

    @property
    def num_records(self) -> int:
        """N, of all strata."""
        return sum(one.num_records for one in self.strata)

    @property
    def sampling_rate(self) -> float:
        """q, of every stratum."""
        return self.strata[0].sampling_rate

    @property
    def capacity(self) -> int:
        """M, the places of all strata."""
        return sum(one.capacity for one in self.strata)

    def usual_size(self, minibatches: int = 1) -> int:
        """Places that records of all strata together rarely exceed."""
        return max(one.usual_size(minibatches) for one in self.strata)

    @property
    def words(self) -> int:
        """Number of random 32-bit words that ``draw_from`` takes for a minibatch."""
        return sum(one.words for one in self.strata)

    @property
    def total_variation(self) -> float:
        """Upper bound on the total variation distance of a minibatch from exact Poisson sampling, overflow apart."""
        return sum(one.total_variation for one in self.strata)

    def draw(self, key: jax.Array) -> Minibatch:
        """One minibatch, the one of step 0. :raises TypeError: if ``key`` is not a ChaCha20 key."""
        return self.draw_from(stream(key, 0, self.words), key, jnp.uint32(0))

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``: indices of records in all strata, stratum after stratum.

        :param words: uint32[``self.words``], the first of stream ``number`` of ``key``, lane 0.
        :raises ArgumentError: if there are more or fewer words.
        """
        if words.shape != (self.words,):
            raise _validate.ArgumentError("words", words.shape, f"a minibatch takes exactly {self.words} words.")
        parts = jnp.split(words, np.cumsum([one.words for one in self.strata])[:-1])
        drawn = [one.draw_from(part, key, number) for one, part in zip(self.strata, parts, strict=True)]
        first = np.cumsum([0, *(one.num_records for one in self.strata)])
        indices = [jnp.where(batch.mask, batch.indices + start, 0) for batch, start in zip(drawn, first, strict=False)]
        return Minibatch(jnp.concatenate(indices), jnp.concatenate([batch.mask for batch in drawn]))
