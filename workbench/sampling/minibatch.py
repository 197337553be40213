"""The interface of samplers: a padded minibatch, and the facts that step, accountant and
plan need.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from scipy.special import ndtri

from workbench import _validate
from workbench._limits import MOST_RECORDS
from workbench.noise.chacha20 import stream

__all__ = ["FixedSize", "Minibatch", "Preparation", "RandomSize", "Sampler", "usual_binomial_size"]


class Minibatch(NamedTuple):
    """A padded minibatch. ``indices``: int32[M], row numbers; ``mask``: bool[M], False on padding
    (index 0 there).

    >>> minibatch = wb.sampling.Minibatch(
    ...     np.array([3, 1, 0]), np.array([True, True, False])
    ... )
    >>> minibatch.members(5).tolist()
    [False, True, False, True, False]
    """

    indices: jax.Array
    mask: jax.Array

    def members(self, num_records: int) -> jax.Array:
        """bool[N]: which of ``num_records`` records are in it."""
        return jnp.zeros(num_records, bool).at[self.indices].max(self.mask)


class Preparation(Protocol):
    """Draws of whole epochs at once, for a sampler to which that is cheaper than step by step.

    Epoch e has steps e t .. (e + 1) t - 1. Runs prepare an epoch once and keep it between the
    chunks of their steps. Both functions are pure, for jit, scan and vmap, and agree with the
    sampler's ``draw_from``.

    >>> sampler = wb.sampling.RandomAllocationSampler(1000, 100, capacity=40)
    >>> sampler.preparation.steps_per_epoch
    100
    """

    @property
    def steps_per_epoch(self) -> int:
        """t, public."""

    @property
    def preparing_words(self) -> int:
        """About how many 32-bit words of memory it takes to prepare an epoch."""

    def prepare(self, key: jax.Array, epoch: jax.Array, epochs: int = 1) -> Any:
        """What ``draw_prepared`` needs of ``epoch`` and those that follow: a tree of arrays whose
        shapes are public.

        :param epochs: how many to prepare at once; ``epoch`` must then be a multiple of it.
        """

    def draw_prepared(self, prepared: Any, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``, from ``prepare`` of its epoch."""


class Sampler(Protocol):
    """Decides which records enter a step. A frozen dataclass whose draws are pure functions for
    jit, scan and vmap.

    A step draws from stream number ``step`` of the run's key. Words of lane 0 are passed to
    ``draw_from``, and a sampler that needs more takes them from its own lanes. No step asks which
    sampler it is: what is accounted for follows from ``name``, and how its draws are made and kept
    from ``preparation``. ``RandomSize`` and ``FixedSize`` have what most samplers share.

    >>> sampler = wb.prepare(
    ...     "logistic", "breast_cancer", epsilon=1.0, sampling_rate=0.1
    ... ).plan.sampler
    >>> sampler.name, sampler.num_records, sampler.sampling_rate
    ('poisson', 458, 0.1)
    """

    @property
    def name(self) -> str:
        """That of the law of its minibatches in ``workbench.privacy``: accountants count what this
        law costs.
        """

    @property
    def num_records(self) -> int:
        """N, the number of records to draw from."""

    @property
    def public_size(self) -> int:
        """The number of records that is declared, N by default. Shapes and spacings follow
        from it.
        """

    @property
    def sampling_rate(self) -> float:
        """q in (0, 1], public: the expected share of the records in a minibatch."""

    @property
    def capacity(self) -> int:
        """M, the number of places in the padded minibatch."""

    def usual_size(self, minibatches: int = 1) -> int:
        """Places that the largest of ``minibatches`` rarely exceeds, at most M. Other places cost
        time only when used.
        """

    @property
    def words(self) -> int:
        """Number of random 32-bit words that ``draw_from`` takes for a minibatch."""

    @property
    def total_variation(self) -> float:
        """Upper bound on the total variation distance of a minibatch from that of the ideal
        sampler, without overflow.
        """

    @property
    def has_random_size(self) -> bool:
        """Whether the number of records in a minibatch is random, so that it may hide N."""

    @property
    def ascends(self) -> bool:
        """Whether the indices of a minibatch ascend, padding last; else units with several rows are
        sorted first.
        """

    @property
    def preparation(self) -> Preparation | None:
        """How epochs are drawn at once; None if each step draws its own minibatch."""

    @property
    def remark(self) -> str:
        """A sentence about its minibatches that stands with every guarantee; "" for none."""

    def draw(self, key: jax.Array) -> Minibatch:
        """One minibatch, the one of step 0.

        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """

    def draw_from(self, words: jax.Array, key: jax.Array, number: jax.Array) -> Minibatch:
        """The minibatch of step ``number``.

        :param words: uint32[``self.words``], the first of stream ``number`` of ``key``, lane 0. Use
            them for nothing else, because draws that share a word are not independent.
        :raises ArgumentError: if there are more or fewer words.
        """


class Streamed:
    """The common part of all samplers."""

    ascends = False

    @property
    def preparation(self) -> Preparation | None:
        """None: each step draws its own minibatch."""
        return None

    @property
    def remark(self) -> str:
        """Empty: there is nothing to say."""
        return ""

    def draw(self: Sampler, key: jax.Array) -> Minibatch:
        """The minibatch of step 0; a pure function of ``key`` for jit, scan and vmap.

        :raises TypeError: if ``key`` is not a ChaCha20 key.
        """
        return self.draw_from(stream(key, 0, self.words), key, jnp.uint32(0))

    def _require(self: Sampler, words: jax.Array) -> None:
        """:raises ArgumentError: unless there are as many ``words`` as a minibatch takes."""
        if words.shape != (self.words,):
            raise _validate.ArgumentError(
                "words", words.shape, f"a minibatch takes exactly {self.words} words."
            )


def usual_binomial_size(num_records: int, sampling_rate: float, minibatches: int) -> int:
    """What the largest of that many binomial sizes exceeds with probability 1/161: 2.5 standard
    deviations for one.
    """
    expected = num_records * sampling_rate
    deviations = float(-ndtri(1 / (161 * minibatches)))
    return math.ceil(expected + deviations * math.sqrt(expected * (1 - sampling_rate)))


class RandomSize(Streamed):
    """The common part of samplers whose minibatches have a binomial size."""

    has_random_size = True

    def _check_declared(self: Any) -> None:
        """:raises ArgumentError: naming ``declared``, if it is below N: shapes that follow from it
        would be too small.
        """
        if self.declared is not None:
            _validate.integer(
                "declared", self.declared, at_least=self.num_records, at_most=MOST_RECORDS
            )

    @property
    def members(self: Any) -> int:
        """How many records may enter a minibatch."""
        return 0 if self.is_vacant else int(self.num_records)

    @property
    def public_size(self: Any) -> int:
        """The number of records that is declared, N by default."""
        return int(self.num_records if self.declared is None else self.declared)

    def usual_size(self: Any, minibatches: int = 1) -> int:
        """Places that the largest of ``minibatches`` exceeds with probability 1/161: 2.5 standard
        deviations for one.
        """
        return max(
            1,
            min(
                usual_binomial_size(self.public_size, self.sampling_rate, minibatches),
                self.capacity,
            ),
        )


@dataclass(frozen=True)
class FixedSize(Streamed):
    """The common part of samplers whose minibatches have one public size.

    :param num_records: N in 1 .. 2^30 - 1.
    :param batch_size: b in 1 .. N.
    """

    num_records: int
    batch_size: int

    has_random_size = False

    def __post_init__(self) -> None:
        num_records = _validate.integer(
            "num_records", self.num_records, at_least=1, at_most=MOST_RECORDS
        )
        object.__setattr__(self, "num_records", num_records)
        batch_size = _validate.integer(
            "batch_size", self.batch_size, at_least=1, at_most=num_records
        )
        object.__setattr__(self, "batch_size", batch_size)

    @property
    def public_size(self) -> int:
        """N, which is not hidden under replace_one."""
        return self.num_records

    @property
    def sampling_rate(self) -> float:
        """q = b / N, the share of the records in a minibatch."""
        return self.batch_size / self.num_records

    @property
    def capacity(self) -> int:
        """b, places in the minibatch."""
        return self.batch_size

    def usual_size(self, minibatches: int = 1) -> int:
        """b, which every minibatch has."""
        return self.batch_size
