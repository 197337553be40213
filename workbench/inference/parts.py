"""Parameters, the optimiser's state and the noise in equal parts, one for each device of a row of the mesh.

Hybrid sharded data parallelism (Rajbhandari et al. 2020, arXiv 1910.02054; Zhao et al. 2023, arXiv 2304.11277). The mesh has
an axis of records and one of parameters. Records are spread over both. Between steps a device keeps its part of the
parameters and of the optimiser's state, as vectors; devices of one column have the same part. A step:

1. An all-gather in the row gives each device all parameters.
2. It adds up the clipped gradients of its own records, as whole numbers. A reduce-scatter in the row and an all-reduce in
   the column add up these sums, without error in any order, such that a device has its part of the sum.
3. It draws its part of the noise, which is that of one device bit for bit, and adds it to its part of the sum. So each
   coordinate has the noise of one device, once, before it is a floating-point number.
4. It updates its part. Where the gradient of the parameters is what was released and nothing else, as for networks without
   a prior (``is_direct``), it has all that this takes. Else another all-gather gives each device all that was released, for
   the guide's part of the gradient.

All of it is one function that is mapped over the devices, so XLA has no exchange to choose. Everything outside of the steps
sees states as those of one device (``Parts.joined``).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.interpreters.partial_eval import dce_jaxpr
from jax.sharding import NamedSharding, PartitionSpec

from workbench._validate import ArgumentError
from workbench.inference import _factors, _release
from workbench.inference._optimizers import ELEMENTWISE, Optimizer, is_elementwise
from workbench.inference._release import Release
from workbench.inference.estimators import ESTIMATORS, RecordLoss
from workbench.inference.record_model import Record
from workbench.inference.sharding import PARAMETERS, RECORDS, Shards
from workbench.inference.state import DPVIState, Draws, Hyperparameters
from workbench.noise import integers
from workbench.noise.chacha20 import fast_key
from workbench.noise.mechanism import Noise, OnGrid

if TYPE_CHECKING:
    from workbench.inference.step import PrivateStep

__all__ = ["Parts"]

_WHOLE, _PART = PartitionSpec(), PartitionSpec(PARAMETERS)


@dataclass(frozen=True, eq=False)
class Parts:
    """A step whose parameters are in parts. P is their number.

    :param own: the step, with ``shards`` of several parts.
    :raises ArgumentError: naming ``optimizer``, unless it treats each parameter by itself; ``devices``, if parameters are of
        several types or 2^31 and more; ``noise_multiplier``, if there is no noise, without which sums are not whole numbers.
    """

    own: PrivateStep

    def __post_init__(self) -> None:
        base, types = self.own.optimizer.optim, sorted({str(leaf.dtype) for leaf in self._leaves})
        if not is_elementwise(base):
            raise ArgumentError(
                "optimizer", type(base).__name__, f"must be one of {', '.join(kind.__name__ for kind in ELEMENTWISE)} of "
                "numpyro.optim where parameters are split among devices: others may not treat each parameter by itself."
            )  # fmt: skip
        parts = self.shards.parts
        grid = f"{len(self.shards.devices) // parts}x{parts}"
        if parts * max(self.noise_width, -(-self.size // parts)) >= 2**31:  # where a part begins is an int32
            raise ArgumentError("devices", grid, f"cannot split {self.size:,} parameters: there must be fewer than 2^31.")
        if len(types) > 1:
            raise ArgumentError("devices", grid, f"cannot split parameters of several types: {', '.join(types)}.")
        if any(jnp.promote_types(kind, jnp.float32) != kind for kind in types):
            raise ArgumentError("devices", grid, f"cannot split parameters of half precision: {', '.join(types)}.")
        if self.own.mechanism.noise_multiplier == 0:
            raise ArgumentError("noise_multiplier", 0, "must be above 0 where parameters are split among devices.")

    @property
    def shards(self) -> Shards:
        """The devices."""
        assert self.own.shards is not None
        return self.own.shards

    @functools.cached_property
    def _leaves(self) -> list[Any]:
        return [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(self.own.model.initial)]

    @functools.cached_property
    def size(self) -> int:
        """P."""
        return sum(math.prod(leaf.shape) for leaf in self._leaves)

    @functools.cached_property
    def noise_width(self) -> int:
        """Coordinates of a part of the noised sum and counts."""
        coordinates, parts = self.own.noised_coordinates, self.shards.parts
        return integers.part_size(coordinates, parts) if self.own.is_large else -(-coordinates // parts)

    @functools.cached_property
    def width(self) -> int:
        """Parameters of a part; the last ones may have room that is not used."""
        return self.noise_width if self.is_direct else -(-self.size // self.shards.parts)

    @functools.cached_property
    def is_direct(self) -> bool:
        """Whether the gradient of the parameters is G / q, so that a device needs its part of G alone.

        That is so if u is the parameters, and there is neither a prior nor an entropy that depends on them; and if no
        moments are kept, which take all of G.
        """
        model = self.own.model
        if self.own.keeps_moments:
            return False
        if self.own.estimator is ESTIMATORS["vanilla"]:
            return True
        key = jax.eval_shape(fast_key, jax.ShapeDtypeStruct((2,), jnp.uint32))
        closed, shapes = jax.make_jaxpr(model.release_point, return_shape=True)(model.initial, key)
        taken, given = closed.jaxpr.invars[: len(self._leaves)], closed.jaxpr.outvars
        _, used = dce_jaxpr(closed.jaxpr, [False] * (len(given) - 1) + [True])  # by the global loss, the last one
        of_u: Any = jax.tree.structure(shapes[0])
        is_same = bool(of_u == jax.tree.structure(model.initial)) and list(given[:-1]) == list(taken)
        return is_same and not any(used[: len(taken)])

    @functools.cached_property
    def _optimizer(self) -> Optimizer:
        """That of the step, of one vector or a part of it."""
        return dataclasses.replace(self.own.optimizer, vector=None, kinds=self._leaves[0].dtype)

    # ---- noise --------------------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, coordinates: int, level: jax.Array) -> Noise:
        """As ``GaussianMechanism.noise``, int32[parts * noise_width], of which each device draws its part."""
        parts = self.shards.parts

        def of_device(key: jax.Array, level: jax.Array) -> jax.Array:
            return self.own.mechanism.noise_part(key, coordinates, lax.axis_index(PARAMETERS), parts, level)

        return Noise(self._mapped(of_device, (_WHOLE, _WHOLE), _PART)(key, level), level)

    def divided(self, noise: Noise) -> Noise:
        """``noise`` of few coordinates, which each device has drawn, as ``noise``."""

        def of_device(units: jax.Array) -> jax.Array:
            return self._here(units, self.noise_width)

        return Noise(self._mapped(of_device, (_WHOLE,), _PART)(noise.units), noise.level)

    def _mapped(self, of_device: Any, taken: Any, given: Any) -> Any:
        return jax.shard_map(of_device, mesh=self.shards.mesh, in_specs=taken, out_specs=given, check_vma=False)

    def _here(self, vector: jax.Array, width: int) -> jax.Array:
        """This device's part of a vector, with zeros where it has ended."""
        filled = jnp.pad(vector, (0, self.shards.parts * width - len(vector)))
        return lax.dynamic_slice_in_dim(filled, lax.axis_index(PARAMETERS) * width, width)

    # ---- a step -------------------------------------------------------------------------------------------------------

    def step(self, state: DPVIState, records: tuple[jax.Array, ...], draws: Draws, hyper: Hyperparameters) -> DPVIState:
        """As ``PrivateStep.step``. :param state: of ``split``. :param draws: whose noise is in parts."""
        specs = self._specs(state)
        drawn = Draws(_WHOLE, Noise(_PART, _WHOLE), _WHOLE)  # type: ignore[arg-type]  # where arrays are, not arrays
        taken = specs, PartitionSpec(self.shards.axes), drawn, _WHOLE
        mapped = self._mapped(self._on_device, taken, specs)
        without_key = state._replace(key=None)  # type: ignore[arg-type]  # it is not needed, so it stays where it is
        following: DPVIState = mapped(without_key, self.shards.filled(records, self.own.sampler.public_size), draws, hyper)
        return following._replace(key=state.key)

    def _specs(self, state: DPVIState) -> Any:
        """Where the arrays of a state are: vectors of parameters in parts."""
        optim_state = jax.tree.map(lambda leaf: _PART if leaf.ndim else _WHOLE, state.optim_state)
        return DPVIState(optim_state, _WHOLE, None, None if state.average is None else _PART, _WHOLE)  # type: ignore[arg-type]

    def _on_device(self, state: DPVIState, records: Record, draws: Draws, hyper: Hyperparameters) -> DPVIState:
        step, model = self.own, self.own.model_with(hyper)
        released: list[tuple[jax.Array, Release]] = []

        def noised_sum(loss: RecordLoss, u: Any) -> Any:
            u = step.dithered(u, state, draws, hyper)
            sums, sigma, of_norms = step.clipped_sums(loss, state, draws, hyper)
            total, counts = self.shards.sum_here(sums, u, records, draws.minibatch)
            part = self._noised(total, counts, draws.noise, sigma / of_norms)
            released.append((part, self._release(u, part, counts is not None)))
            return jax.tree.map(lambda leaf, like: leaf.astype(_factors.single(like).dtype), released[0][1].total, u)

        own = self._optimizer.get_params(state.optim_state)
        params = _tree_like(lax.all_gather(own, PARAMETERS, tiled=True), model.initial)
        gradient = step.estimator.gradient(model, params, draws.base_noise, step.sampler.sampling_rate, noised_sum)
        part, release = released[0]
        if self.is_direct:  # what is behind the last parameter, noise and counts, goes where no parameter is
            part = part.astype(_factors.single(own).dtype)
            mean = (part / step.sampler.sampling_rate).astype(own.dtype) / model.num_records
        else:
            mean = self._here(_flat(jax.tree.map(lambda leaf: leaf / model.num_records, gradient)), self.width)
        optim_state = self._optimizer.update(mean, state.optim_state, hyper.learning_rate)
        average = step.averaged(state, lambda: self._optimizer.get_params(optim_state), hyper)
        return DPVIState(optim_state, state.step + 1, state.key, average, step.moments(state, release, hyper))

    def _places(self, width: int) -> jax.Array:
        """Where the entries of this device's part are in the whole, int32[width]."""
        return lax.axis_index(PARAMETERS) * width + jnp.arange(width)

    def _noised(self, total: OnGrid, counts: Any, noise: Noise | None, sigma: jax.Array) -> jax.Array:
        """This device's part of the noised sum and counts of all devices, float32[noise_width].

        :param total: the sum of this device's records. :param counts: theirs, or None. :param sigma: as of
            ``_release.noised``.
        """
        assert noise is not None
        units, spacing = _flat(total.units), total.spacing  # the spacing is the same everywhere
        if counts is not None:
            on_grid = _release.counts_on_grid(self.own.mechanism, counts, noise.level, sigma)
            units = jnp.concatenate([units, on_grid.units])
            is_sum = self._places(self.noise_width) < self.own.noise_size
            spacing = jnp.where(is_sum, spacing, on_grid.spacing)
        units = jnp.pad(units, (0, self.shards.parts * self.noise_width - len(units)))
        units = lax.psum_scatter(units, PARAMETERS, tiled=True)
        if len(self.shards.devices) > self.shards.parts:
            units = lax.psum(units, RECORDS)
        part: jax.Array = self.own.mechanism.add(OnGrid(units, spacing), noise)
        return part

    def _release(self, u: Any, part: jax.Array, has_counts: bool) -> Release:
        """What the step releases, of which ``part`` is this device's; where the gradient is direct, counts alone."""
        size, counts = self.own.noise_size, None
        if not self.is_direct:
            whole = lax.all_gather(part, PARAMETERS, tiled=True)
            counts = whole[size : self.own.noised_coordinates] if has_counts else None
            return Release(u, _tree_like(whole, u), counts)
        if has_counts:
            at = jnp.arange(size, self.own.noised_coordinates) - lax.axis_index(PARAMETERS) * self.noise_width
            is_here = (at >= 0) & (at < self.noise_width)
            counts = lax.psum(jnp.where(is_here, part[jnp.where(is_here, at, 0)], 0), PARAMETERS)
        return Release(u, jax.tree.map(jnp.zeros_like, u), counts)

    # ---- states -------------------------------------------------------------------------------------------------------

    def split(self, state: DPVIState) -> DPVIState:
        """A state of one device in parts on the devices; those of a column have equal parts."""
        first, *leaves = jax.tree.leaves(state.optim_state)
        _, *vectors = self._kinds
        columns = [leaves[number :: len(vectors)] for number in range(len(vectors))]
        treedef = jax.tree.structure(self._of_vector)
        optim_state = jax.tree.unflatten(treedef, [self.shards.replicated(first), *map(self._spread, columns)])
        average = None if state.average is None else self._spread(jax.tree.leaves(state.average))
        rest = self.shards.replicated((state.step, state.key, state.moments))
        return DPVIState(optim_state, rest[0], rest[1], average, rest[2])

    def joined(self, state: DPVIState) -> DPVIState:
        """The inverse of ``split``, with parameters and the optimiser's state in the memory of the host."""
        first, *vectors = jax.tree.leaves(state.optim_state)
        columns = [jax.tree.leaves(_tree_like(np.asarray(vector), self._of_one)) for vector in vectors]
        leaves = [leaf for row in zip(*columns, strict=True) for leaf in row]
        like = jax.eval_shape(self.own.optimizer.init, self.own.model.initial)
        here = jax.tree.map(lambda leaf: leaf.addressable_data(0), (first, state.step, state.key, state.moments))
        optim_state = jax.tree.unflatten(jax.tree.structure(like), [here[0], *leaves])
        average = None if state.average is None else _tree_like(np.asarray(state.average), self.own.model.initial)
        return DPVIState(optim_state, here[1], here[2], average, here[3])

    def on_host(self, state: DPVIState) -> DPVIState:
        """A state of one device with parameters and the optimiser's state in the memory of the host."""
        to_host = lambda leaf: np.asarray(leaf) if leaf.ndim else leaf  # noqa: E731
        optim_state, average = jax.tree.map(to_host, (state.optim_state, state.average))
        return state._replace(optim_state=optim_state, average=average)

    @functools.cached_property
    def _of_vector(self) -> Any:
        """The optimiser's state of one vector: a count of steps, and vectors like it."""
        return jax.eval_shape(self._optimizer.init, jax.ShapeDtypeStruct((self.size,), self._leaves[0].dtype))

    @property
    def _kinds(self) -> list[Any]:
        return jax.tree.leaves(self._of_vector)

    @property
    def _of_one(self) -> Any:
        """Arrays like what the optimiser of one device takes as parameters: one vector, or a tree."""
        return self._kinds[1] if self.own.optimizer.vector is not None else self.own.model.initial

    def _spread(self, leaves: list[Any]) -> jax.Array:
        whole = np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves])
        filled = np.pad(whole, (0, self.shards.parts * self.width - len(whole)))
        sharding = NamedSharding(self.shards.mesh, _PART)
        return jax.make_array_from_callback(filled.shape, sharding, lambda index: filled[index])


def _flat(tree: Any) -> jax.Array:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def _tree_like(vector: Any, like: Any) -> Any:
    """The first entries of a vector as the leaves of a tree like ``like``."""
    leaves, treedef = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = [vector[end - math.prod(leaf.shape) : end] for leaf, end in zip(leaves, ends, strict=True)]
    return jax.tree.unflatten(treedef, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
