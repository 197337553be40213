"""Records that an audit plants and the data sets that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench import _validate
from workbench.data import Dataset

__all__ = ["Canaries", "Rows", "arrays_of", "blank", "made_table", "table_canaries"]

Rows = tuple[np.ndarray, ...]  # record arrays, first axis: records

_FEATURES, _LENGTH = 10, 10.0  # of records made for the audit


@dataclass(frozen=True)
class Canaries:
    """m pairs of records; a coin each decides whether ``present`` or ``absent`` stands in the data set.

    ``absent`` is None where a canary that is out leaves no row. ``others`` are in every data set.
    """

    present: Rows
    absent: Rows | None
    others: Rows

    @property
    def count(self) -> int:
        return len(self.present[0])

    def rows(self, coins: np.ndarray) -> Rows:
        """The data set for bool[m] coins."""
        if self.absent is None:
            chosen = tuple(array[coins] for array in self.present)
        else:
            chosen = tuple(
                np.where(coins.reshape(-1, *[1] * (there.ndim - 1)), there, instead)
                for there, instead in zip(self.present, self.absent, strict=True)
            )
        return tuple(np.concatenate(parts) for parts in zip(self.others, chosen, strict=True))


def arrays_of(name: str, records: Any) -> Rows:
    """``records`` as NumPy arrays, checked to be one or more of one length."""
    arrays = tuple(np.asarray(array) for array in records)
    sizes = [array.shape[0] if array.ndim else 0 for array in arrays]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise _validate.ArgumentError(name, tuple(sizes), "must be record arrays with the same first axis, of 1 or more.")
    return arrays


def blank(records: Rows) -> Rows:
    """Records that contribute nothing to a clipped sum."""
    kinds = [str(array.dtype) for array in records]
    if not any(np.issubdtype(array.dtype, np.floating) for array in records):
        raise _validate.ArgumentError("present", kinds, "whole numbers alone, where NaN cannot mark a blank record.")
    return tuple(np.full_like(array, np.nan) if np.issubdtype(array.dtype, np.floating) else array for array in records)


def made_table(num_others: int, num_canaries: int) -> tuple[Dataset, Rows]:
    """A table whose records have no features, and canaries with one long feature each, of its own where there are many.

    The others' gradients and those of further canaries are then nearly orthogonal to a canary's, and hide little of it.
    """
    width = max(num_canaries, _FEATURES)
    target = (np.arange(max(num_canaries, num_others)) % 2).astype(np.int32)
    train = (np.zeros((num_others, width), np.float32), target[:num_others])
    features = np.eye(num_canaries, width, dtype=np.float32) * _LENGTH
    data = Dataset(
        name="made for the audit",
        description="Records without features, for canaries to stand out from.",
        train=train,
        evaluation=tuple(array[:0] for array in train),
        feature_names=tuple(f"feature {number}" for number in range(width)),
        target_name="target",
        classes=("0", "1"),
        evaluation_is_public=True,
        licence="public domain",
        source="the audit",
    )
    return data, (features, target[:num_canaries])


def table_canaries(data: Dataset, num_canaries: int) -> Rows:
    """Canaries for a table with a binary target: every feature at one of its bounds, by a coin each."""
    train = data.train
    if len(train) != 2 or train[0].ndim != 2 or not np.isin(train[1], (0, 1)).all():
        raise _validate.ArgumentError(
            "canaries", None, f"{data.name} is no table with a binary target: give canaries, a tuple of record arrays."
        )
    signs = np.random.default_rng(0).choice([-1, 1], (num_canaries, train[0].shape[1]))
    return signs.astype(train[0].dtype), (np.arange(num_canaries) % 2).astype(train[1].dtype)
