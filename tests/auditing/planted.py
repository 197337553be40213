"""A model whose per-record gradients a test chooses freely, and bugs that only tests plant.

At a mean of zero, the gradient of a record's negative log-likelihood is the record with the other
sign.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree

from workbench.auditing.bugs import Watched
from workbench.inference.assemble import assemble
from workbench.inference.sources import ON_ONE_DEVICE
from workbench.inference.state import Performance
from workbench.inference.step import PrivateStep
from workbench.noise.mechanism import Noise, OnGrid
from workbench.noise.normals import normal, normal_from
from workbench.sampling import PoissonSampler

STABILITY = 0.01  # what automatic clipping adds to a norm


def model(x, num_records):
    """Normal observations with a common mean. :param x: float[M, d]."""
    mean = numpyro.sample("mean", dist.Normal(jnp.zeros(x.shape[-1]), 10.0).to_event(1))
    with numpyro.plate("records", num_records, subsample_size=x.shape[0]):
        numpyro.sample("x", dist.Normal(mean, 1.0).to_event(1), obs=x)


def guide(x, num_records):
    """All of its mass is at the location, which is zero."""
    location = numpyro.param("location", jnp.zeros(x.shape[-1]))
    numpyro.sample("mean", dist.Delta(location).to_event(1))


def rows_for(lengths, width, clip, clipping):
    """Records whose clipped gradients have these lengths, and the same entry in each coordinate,
    float32[n, width].

    :param lengths: in (-C, C), float64[n]; negative ones point the other way.
    """
    if clipping == "automatic":  # which multiplies by C / (length + STABILITY)
        lengths = STABILITY * lengths / (clip - np.abs(lengths))
    return np.repeat(-lengths[:, None] / math.sqrt(width), width, axis=1).astype(np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class WatchedTotal(Watched):
    """The mechanism, which also keeps the sum before noise while a step is traced."""

    totals: list[Any] = dataclasses.field(default_factory=list)

    def begin(self, minibatch):
        super().begin(minibatch)
        self.totals.clear()

    def add(self, total, noise):
        self.totals.append(total)
        return super().add(total, noise)

    def total(self):
        """The step's sum without noise, int32[size of u], and g; where it has no grid, float[size
        of u] and 1.
        """
        total = self.totals[0]
        units, spacing = total if isinstance(total, OnGrid) else (total, jnp.ones(()))
        return ravel_pytree(units)[0], spacing


@dataclasses.dataclass(frozen=True, eq=False)
class _OnFloatSums(WatchedTotal):
    """A mechanism for ``FloatSums``, which gives it the sum in floating point and the
    noise apart.
    """

    drawn: list[Any] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, eq=False)
class _FloatNoise(_OnFloatSums):
    """PLANTED BUG: float32 normals times sigma C are added to sums in floating point."""

    def words_for(self, size):
        return 2 * size

    def noise_from(self, words, size, level):
        return Noise(normal_from(words[:size], words[size:]), level)

    def noise(self, key, size, level):
        return Noise(normal(key, (size,)), level)

    def add(self, total, noise):
        (drawn,) = self.drawn
        flat, back = ravel_pytree(total)
        draws = drawn.units * jnp.float32(self.standard_deviation)
        self.totals.append(total)
        return self.kept(back(flat + draws.astype(flat.dtype)))


@dataclasses.dataclass(frozen=True, eq=False)
class _FloatSums(_OnFloatSums):
    """PLANTED BUG: the sum is rounded to the grid when all of it has been added up in floating
    point.
    """

    def add(self, total, noise):
        (drawn,) = self.drawn
        size = sum(leaf.size for leaf in jax.tree.leaves(total))
        sigma, clip = jnp.float32(self.noise_multiplier), jnp.float32(self.clip)
        spacing = self.spacing(sigma, clip, drawn.level, 0.0, float(size))
        units = jax.tree.map(lambda leaf: jnp.round(leaf / spacing).astype(jnp.int32), total)
        return super().add(OnGrid(units, spacing), drawn)


class FloatSums(PrivateStep):
    """PLANTED BUG: sums in floating point, in one block; the mechanism does what it does with them
    and the noise.
    """

    def step(self, state, records, draws, hyper):
        self.mechanism.drawn[:] = [draws.noise]
        return super().step(state, records, draws._replace(noise=None), hyper)


class ClampedIndices(PrivateStep):
    """PLANTED BUG: indices beyond the end of an array, or of its first half, read the last record
    there.
    """

    def step(self, state, records, draws, hyper):
        size = self.sampler.num_records
        rows = jnp.minimum(jnp.arange(size), records[0].shape[0] - 1)
        indices = jnp.minimum(draws.minibatch.indices, size // 2)
        clamped = draws._replace(minibatch=draws.minibatch._replace(indices=indices))
        return super().step(state, tuple(array[rows] for array in records), clamped, hyper)


MECHANISMS = {None: WatchedTotal, "float_noise": _FloatNoise, "float_sums": _FloatSums}


def step_of(
    rows,
    key,
    mechanism,
    bug=None,
    learning_rate=1.0,
    estimator="aligned",
    shards=None,
    **performance,
):
    """A step of gradient descent for ``model`` with all ``rows`` in every minibatch, and its
    mechanism.

    :param mechanism: the claimed one. :param bug: of ``MECHANISMS``.
    """
    size = len(rows[0])
    seen = MECHANISMS[bug](mechanism.clip, mechanism.noise_multiplier, mechanism.clipping)
    step = assemble(
        model,
        guide,
        numpyro.optim.SGD(learning_rate),
        key,
        rows,
        sampler=PoissonSampler(size, 1.0, size),
        mechanism=seen,
        estimator=estimator,
        performance=Performance(**performance),
    )
    step = dataclasses.replace(step, source=ON_ONE_DEVICE if shards is None else shards)
    return (step if bug is None else FloatSums(**vars(step))), seen
