"""The canaries of an audit, and the data sets that contain them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench.data import Dataset

__all__ = ["Canaries", "Rows", "arrays_of", "blank", "made_table", "table_canaries"]

Rows = tuple[np.ndarray, ...]  # record arrays, first axis: records

# features of records made for the audit, and the canary's value in one of them
_FEATURES, _LENGTH = (10, 10.0)


@dataclass(frozen=True)
class Canaries:
    """m pairs of records. A coin for each pair decides whether ``present`` or ``absent`` is in the
    data set.

    ``absent`` is None if an absent canary leaves no row. ``others`` are in every data set.
    """

    present: Rows
    absent: Rows | None
    others: Rows

    @property
    def count(self) -> int:
        return len(self.present[0])

    def rows(self, coins: np.ndarray) -> Rows:
        """The data set for these coins, bool[m]."""
        if self.absent is None:
            chosen = tuple(array[coins] for array in self.present)
        else:
            chosen = tuple(
                np.where(coins.reshape(-1, *[1] * (there.ndim - 1)), there, instead)
                for there, instead in zip(self.present, self.absent, strict=True)
            )
        return tuple(np.concatenate(pair) for pair in zip(self.others, chosen, strict=True))


def arrays_of(name: str, records: Iterable[ArrayLike]) -> Rows:
    """``records`` as NumPy arrays, checked to be one or more arrays of the same length."""
    arrays = tuple(np.asarray(array) for array in records)
    sizes = [array.shape[0] if array.ndim else 0 for array in arrays]
    if not sizes or min(sizes) < 1 or min(sizes) != max(sizes):
        raise _validate.ArgumentError(
            name, tuple(sizes), "must be record arrays of the same length, at least 1."
        )
    return arrays


def blank(records: Rows) -> Rows:
    """Records that contribute nothing to a clipped sum."""
    kinds = [str(array.dtype) for array in records]
    if not any(np.issubdtype(array.dtype, np.floating) for array in records):
        raise _validate.ArgumentError(
            "present", kinds, "must include floating-point numbers: NaN marks a blank record."
        )
    return tuple(
        np.full_like(array, np.nan) if np.issubdtype(array.dtype, np.floating) else array
        for array in records
    )


def made_table(num_others: int, num_canaries: int) -> tuple[Dataset, Rows]:
    """A table whose features are all 0, and canaries that each have one long feature of their own.

    The gradients of the other records and canaries are then nearly orthogonal to a canary's and
    hide little of it.
    """
    width = max(num_canaries, _FEATURES)
    target = (np.arange(max(num_canaries, num_others)) % 2).astype(np.int32)
    train = (np.zeros((num_others, width), np.float32), target[:num_others])
    features = np.eye(num_canaries, width, dtype=np.float32) * _LENGTH
    data = Dataset(
        name="made for the audit",
        description="Records whose features are all 0, so that canaries differ clearly.",
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
    """Canaries for a table with a binary target: each feature is at one of its bounds, chosen by a
    coin.
    """
    train = data.train
    if len(train) != 2 or train[0].ndim != 2 or not np.isin(train[1], (0, 1)).all():
        raise _validate.ArgumentError(
            "canaries",
            None,
            f"{data.name} is not a table with a binary target: pass canaries, a tuple of record "
            "arrays.",
        )
    signs = np.random.default_rng(0).choice([-1, 1], (num_canaries, train[0].shape[1]))
    return signs.astype(train[0].dtype), (np.arange(num_canaries) % 2).astype(train[1].dtype)
