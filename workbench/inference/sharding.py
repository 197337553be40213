"""One fit on several devices: each holds a part of the records, which never leave it.

The minibatch is drawn from all N records with the run's key, on every device alike, and each takes
its own records out of it. It adds up their clipped gradients as whole numbers, and one all-reduce
adds up those sums, without error in any order. Then every device adds the same noise, which follows
from the run's key, and takes the same step of the optimiser. So a fit on several devices has the
sampler, the noise and the guarantee of a fit on one. Only the rounding of a block's sum depends on
which records are in it, as with another ``microbatch_size``.

The devices may belong to several processes (``processes_of``). Each puts on its devices their parts
of the records. Of records in a file it has no others in memory.

Drawing a minibatch takes q N random words, a small part of what its gradients take. Random
allocation takes N words and a sort once an epoch, on every device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workbench._validate import ArgumentError
from workbench.inference.bringing import are_at_rest
from workbench.inference.processes import Processes
from workbench.inference.sources import ON_ONE_DEVICE, RecordSource
from workbench.noise.mechanism import OnGrid
from workbench.record_model.model import Record
from workbench.sampling.minibatch import Minibatch, Sampler, usual_binomial_size

if TYPE_CHECKING:
    from jax.typing import ArrayLike
    from jaxtyping import PyTree

__all__ = ["Shards", "source_on"]

_AXIS = "records"  # of the mesh


@dataclass(frozen=True)
class Shards(RecordSource):
    """Devices among which records are spread: with n = ceil(N / devices), device d holds records d
    n to (d + 1) n - 1.

    N is the public number of records, of which there may be fewer.

    :param devices: of one kind, each once.
    """

    devices: tuple[jax.Device, ...]
    # an allocation is of all records, and each device would hold the whole of it
    keeps_epochs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if len(set(self.devices)) < len(self.devices) or not self.devices:
            raise ArgumentError("devices", self.devices, "must be one device or more, each once.")

    @property
    def mesh(self) -> Mesh:
        """The devices as an axis of records."""
        return Mesh(np.array(self.devices), (_AXIS,))

    def held(self, num_records: int) -> int:
        """Records that a device has room for. The last ones may hold fewer. :param num_records: the
        public number.
        """
        return -(-num_records // len(self.devices))

    def spread(
        self, records: Sequence[Any], public_size: int | None = None
    ) -> tuple[jax.Array, ...]:
        """Each device's part of ``records`` on it. Room that is left is filled up with zeros, which
        no minibatch has.

        :param records: in memory, or in a file from which parts are read.
        :param public_size: of the sampler; the number of records by default.
        """
        per_device = self.held(len(records[0]) if public_size is None else public_size)
        return tuple(
            self._spread(array if are_at_rest((array,)) else np.asarray(array), per_device)
            for array in records
        )

    def _spread(self, array: Any, per_device: int) -> jax.Array:
        number = len(array)

        def part(first: int) -> np.ndarray:
            first, last = min(first, number), min(first + per_device, number)
            rows = array.rows(first, last) if are_at_rest((array,)) else array[first:last]
            room = per_device - len(rows)
            return (
                np.concatenate([rows, np.zeros((room, *array.shape[1:]), array.dtype)])
                if room
                else rows
            )

        sharding, shape = (
            NamedSharding(self.mesh, PartitionSpec(_AXIS)),
            (per_device * len(self.devices), *array.shape[1:]),
        )
        index_of_device: Any = sharding.addressable_devices_indices_map(shape)
        # one after the other: of records in a file a process has one part in memory at a time
        shards = [
            jax.device_put(part(index[0].start or 0), device)
            for device, index in index_of_device.items()
        ]
        return jax.make_array_from_single_device_arrays(shape, sharding, shards)

    @property
    def processes(self) -> Processes:
        """The processes that the devices belong to."""
        return Processes(len({device.process_index for device in self.devices}))

    def placed_records(
        self, records: tuple[Any, ...], device: jax.Device | None, public_size: int | None
    ) -> tuple[Any, ...]:
        """``spread``, also of records in a file."""
        return self.spread(records, public_size)

    def local_copy(self, tree: PyTree) -> Any:
        """Of what ``placed`` returned the copy on the first device of this process."""
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)

    def num_units(self, records: tuple[Any, ...], sampler: Sampler) -> int:
        """As the sampler planned, with what fills the last devices up."""
        size = super().num_units(records, sampler)
        is_filled = size == len(self.devices) * self.held(sampler.public_size)
        return sampler.num_records if is_filled else size

    def placed(self, tree: PyTree, device: jax.Device | None = None) -> Any:
        """``tree`` with a copy of each array on every device. It must be the same in
        every process.
        """
        sharding = NamedSharding(self.mesh, PartitionSpec())

        def copied(leaf: ArrayLike) -> jax.Array:
            if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                return jax.random.wrap_key_data(
                    copied(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf)
                )
            array = np.asarray(leaf)
            return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

        return jax.tree.map(copied, tree)

    def usual_size(self, sampler: Sampler) -> int:
        """Places that a device's part of a minibatch rarely exceeds."""
        per_device = self.held(sampler.public_size)
        return max(
            1,
            min(
                usual_binomial_size(per_device, sampler.sampling_rate, len(self.devices)),
                per_device,
                sampler.capacity,
            ),
        )

    def sum_of(
        self,
        sums: Callable[..., tuple[Any, Any]],
        public_size: int,
        u: PyTree,
        records: Record,
        minibatch: Minibatch,
    ) -> tuple[Any, Any]:
        """What ``sums(u, own records, own minibatch, positions)`` gives on each device, added up
        over all.

        :param sums: gives a sum of gradients, on a grid or not, and one of counts or None.
            ``positions``: where in the whole minibatch the members of its own are, int32[M].
        :param public_size: of the sampler. :param u: where gradients are taken. (Book-keeping would
            not recognise what comes from outside of ``shard_map``: each of its uses begins with a
            ``reshard``.)
        :param records: as ``spread``; others are spread here. :param minibatch: of all records.
        """

        def of_device(u: PyTree, records: tuple[jax.Array, ...], minibatch: Minibatch) -> Any:
            local, positions = _own(minibatch, lax.axis_index(_AXIS) * per_device, per_device)
            total, counts = sums(u, records, local, positions)
            if not isinstance(total, OnGrid):
                return lax.psum((total, counts), _AXIS)
            units, counts = lax.psum((total.units, counts), _AXIS)
            return OnGrid(units, total.spacing), counts  # the spacing is the same everywhere

        per_device = self.held(public_size)
        room = per_device * len(self.devices) - len(records[0])
        filled = tuple(
            jnp.pad(array, [(0, room), *[(0, 0)] * (array.ndim - 1)]) if room else array
            for array in records
        )
        specs = PartitionSpec(), PartitionSpec(_AXIS), PartitionSpec()
        mapped = jax.shard_map(
            of_device, mesh=self.mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False
        )
        return mapped(u, filled, minibatch)


def _own(minibatch: Minibatch, first: jax.Array, per_device: int) -> tuple[Minibatch, jax.Array]:
    """(the part of a minibatch whose records are ``first`` to ``first + per_device - 1``, where
    its places are in the whole).

    Its members come first, in their order. What is drawn decides this, not which records there are:
    one that is left out leaves its place empty here too.
    """
    indices, mask = minibatch
    mine = (indices >= first) & (indices < first + per_device)
    order = jnp.argsort(~mine, stable=True)
    mask = (mine & mask)[order]
    return Minibatch(jnp.where(mask, indices[order] - first, 0), mask), order


def source_on(devices: tuple[jax.Device, ...]) -> RecordSource:
    """Records, each of them a unit, on these devices: on one as they are, among several
    spread out.
    """
    return Shards(devices) if len(devices) > 1 else ON_ONE_DEVICE
