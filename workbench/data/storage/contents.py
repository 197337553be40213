"""Whether records are as the header of their file declares them: a file in the clear may be
anybody's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.data.columns import Boolean, Categorical
from workbench.data.dataset import PRESENT
from workbench.data.schema import Schema
from workbench.data.storage.facts import dataset_facts
from workbench.data.storage.form import ROWS

__all__ = ["Declared"]


class Declared:
    """What the encoding of a data set's declarations can give.

    :param facts: of the header.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        described = dataset_facts(facts)
        schema: Schema = described["schema"]
        widths = [len(column.feature_names(name)) for name, column in schema.columns.items()]
        starts = np.cumsum(widths) - widths
        self._one_of: list[
            tuple[int, int, bool]
        ] = []  # (first feature, number of them, whether one of them must be 1)
        signs, choices = list[int](), list[int]()  # features of -1 and 1, and of 0 and 1
        for start, width, column in zip(
            starts.tolist(), widths, schema.columns.values(), strict=True
        ):
            if isinstance(column, Boolean):
                signs.append(start)
            elif isinstance(column, Categorical):
                choices += range(start, start + width)
                self._one_of.append((start, width, column.reference is None))
            elif width > 1:  # whether the number is missing
                choices.append(start + 1)
        self._width, self._signs, self._choices = sum(widths), signs, choices
        self._ranges: dict[str, tuple[float, float]] = {"group": (0, len(described["groups"]) - 1)}
        bounds = described["target_bounds"]
        last = len(described["classes"]) - 1
        self._ranges["y"] = (
            (0, last)
            if bounds is None
            else (float(np.float32(bounds[0])), float(np.float32(bounds[1])))
        )

    def allows(self, records: np.ndarray) -> bool:
        """Whether all values of some records of a file can come from declared columns."""
        names = records.dtype.names or ()
        for name in set(names) & self._ranges.keys():
            low, high = self._ranges[name]
            if not np.all((records[name] >= low) & (records[name] <= high)):
                return False
        if PRESENT in names:  # the first of a unit's places for rows
            present = records[PRESENT]
            if not (np.all(present[:, 0] == 1) and np.all((present == 0) | (present == 1))):
                return False
            if not np.all(present[:, 1:] <= present[:, :-1]):
                return False
        if ROWS in names and not np.all(records[ROWS] >= 0):
            return False
        return self._allows_features(np.ascontiguousarray(records["x"]).reshape(-1, self._width))

    def _allows_features(self, x: np.ndarray) -> bool:
        if not (np.min(x, initial=0) >= -1 and np.max(x, initial=0) <= 1):  # NaN is neither
            return False
        signs, choices = x[:, self._signs], x[:, self._choices]
        if not (np.all(np.abs(signs) == 1) and np.all((choices == 0) | (choices == 1))):
            return False
        for start, width, is_needed in self._one_of:
            levels = sum(x[:, index] for index in range(start, start + width))
            if not np.all((levels <= 1) & (levels >= is_needed)):
                return False
        return True
