"""Where a step reads its records, behind one interface: it does not ask whether they are rows,
units or spread out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp

from workbench.inference.bringing import are_at_rest
from workbench.inference.processes import ALONE, Processes
from workbench.inference.strata import Stratum, stratum_of
from workbench.record_model.model import Record, common_length
from workbench.sampling.minibatch import Minibatch, Sampler

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["ON_ONE_DEVICE", "RecordSource"]


@dataclass(frozen=True)
class RecordSource:
    """Records on one device, a row for each; ``UnitRows`` has several for a unit, ``Shards``
    spreads them out.
    """

    # whether the allocation of an epoch may stay on the device from one chunk to the next
    keeps_epochs: ClassVar[bool] = True

    @property
    def rows_of_unit(self) -> int | None:
        """Rows that a privacy unit has at most; None where each record is a unit."""
        return None

    @property
    def processes(self) -> Processes:
        """The processes that the devices belong to."""
        return ALONE

    def placed(self, tree: PyTree, device: jax.Device) -> Any:
        """``tree`` on the devices that take the steps. :param device: of this process, where there
        is one.
        """
        return jax.device_put(tree, device)

    def placed_records(
        self, records: tuple[Any, ...], device: jax.Device, public_size: int | None
    ) -> tuple[Any, ...]:
        """``records`` on the devices that take the steps; those of a file stay there.

        :param public_size: the number of records that is public, where there may be fewer.
        """
        return records if are_at_rest(records) else self.placed(records, device)

    def local_copy(self, tree: PyTree) -> Any:
        """Of what ``placed`` returned the copy on the first device of this process, to compute with
        it alone.
        """
        return tree

    def parted(self, records: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """(arrays of rows, those that find the rows of each unit); the latter are none where each
        row is a unit.
        """
        return records, ()

    def in_rows(self, records: Record) -> Record:
        """What a step takes, of whole records that a file brings."""
        return records

    def as_unit(self, record: Record) -> Record:
        """One record as the loss takes a unit: repeated, where units have several rows."""
        return record

    def num_units(self, records: tuple[Any, ...], sampler: Sampler) -> int:
        """How many records there are, or units. Places that only fill up a device count as the
        sampler planned them.
        """
        rows, index = self.parted(records)
        return common_length(index or rows)

    def usual_size(self, sampler: Sampler) -> int:
        """Places that a device's part of a minibatch rarely exceeds."""
        return sampler.usual_size()

    def strata(
        self,
        minibatch: Minibatch,
        records: Record,
        at: jax.Array | None,
        size: int,
        *,
        needs_place: bool,
        ascending: bool,
    ) -> list[Stratum]:
        """The minibatch by strata: records that are alike in shape.

        :param at: places of its members in the whole minibatch; None where this is the whole.
        :param size: records brought in at once. :param needs_place: whether the loss asks for a
            record's place.
        :param ascending: whether the minibatch is in the order of records.
        """
        positions = jnp.arange(len(minibatch.mask)) if at is None else at
        return [stratum_of(records, minibatch, positions if needs_place else None, size)]

    def sum_of(
        self,
        sums: Callable[..., tuple[Any, Any]],
        public_size: int,
        u: PyTree,
        records: Record,
        minibatch: Minibatch,
    ) -> tuple[Any, Any]:
        """(total, counts) of ``sums(u, records, minibatch)``, which adds up the clipped gradients
        of a minibatch.

        :param public_size: of the sampler.
        """
        return sums(u, records, minibatch)


ON_ONE_DEVICE = RecordSource()
