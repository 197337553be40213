"""People with several rows, all alike: what an audit with ``max_rows`` makes of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from workbench.inference.state import DPVIState
from workbench.inference.step import PrivateStep
from workbench.record_model.model import Record

__all__ = ["EqualRows", "in_rows", "whole"]


class EqualRows(PrivateStep):
    """The step of people who have several rows each, all alike: ``records`` are one row of each."""

    def require_records(self, records: tuple[Any, ...]) -> None:
        """As of ``PrivateStep``, for the rows that are made of ``records``."""
        super().require_records(jax.eval_shape(self._rows_of, tuple(records)))

    def _checked(self, state: DPVIState, records: Record) -> Record:
        return self._rows_of(super()._checked(state, records))

    def _rows_of(self, records: tuple[Any, ...]) -> Record:
        assert self.source.rows_of_unit is not None
        return in_rows(records, self.source.rows_of_unit)


def whole(step: PrivateStep, records: Record) -> Record:
    """``records`` as the loss of ``step`` takes them: with ``units`` the rows of each, and their
    weights.
    """
    return jax.vmap(step.source.as_unit)(tuple(map(jnp.asarray, records)))


def in_rows(records: Sequence[Any], count: int) -> Record:
    """Records as units with ``count`` rows each, all alike: rows, first rows and numbers
    of rows.
    """
    size = len(records[0])
    rows = tuple(jnp.repeat(jnp.asarray(array), count, axis=0) for array in records)
    return (*rows, jnp.arange(size, dtype=jnp.int32) * count, jnp.full(size, count, jnp.int32))
