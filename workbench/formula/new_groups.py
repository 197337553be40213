"""Groups of a public table that were not declared, or are missing, and their effects under draws of
a posterior.

A new group has effects drawn from Normal(0, sd), with the sd of each draw. They follow from the
group's name, so all rows that share it, also of other tables, have the same ones. A missing level
is in each draw one of the declared levels at random, each as likely: the same for all rows and
terms.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np

from workbench import _validate
from workbench._lazy import pd
from workbench.data.columns import Categorical, Column, Numeric
from workbench.data.preprocessing import column_name, listed, numbers_in, texts_of
from workbench.data.schema import columns_of, with_index
from workbench.formula.design import Design, Effects, sd_of
from workbench.formula.factors import level_names

__all__ = ["NewGroups", "columns_of_groups"]

_MISSING = ""  # in place of the text of a level
_Part = int | str  # the place of a declared level, or the text of one that was not declared


def columns_of_groups(design: Design) -> frozenset[str]:
    """Columns that name groups and are used for nothing else, whose levels may be new."""
    blocks = (design.block, *(effects.block for effects in design.groups))
    used = {
        name for block in blocks for factor in block.factors.values() for name in factor.columns
    }
    return frozenset(factor.column for effects in design.groups for factor in effects.by) - used


class NewGroups:
    """The groups of ``frame`` that were not declared.

    :param frame: with the columns of ``design``, in their own units.
    :param allowed: whether there may be some.
    :raises ArgumentError: naming a column, if there are some and they are not allowed.
    """

    def __init__(self, design: Design, frame: pd.DataFrame, *, allowed: bool) -> None:
        self._groups = design.groups
        declared = {} if design.schema is None else design.schema.columns
        names = [name for name in declared if name in columns_of_groups(design)]
        series = columns_of(frame, names)
        self._levels: dict[str, tuple[str, ...]] = {}
        unknown = dict[str, list[str | None]]()  # of each row, None for a declared level
        for name in names:
            texts = _unknown(declared[name], series[name])
            if any(text is not None for text in texts):
                self._levels[name] = level_names(declared[name]) or ()
                unknown[name] = texts
        if unknown and not allowed:
            name = next(iter(unknown))
            raise _validate.ArgumentError(
                name,
                None,
                f"has in some row a group that was not declared, or none; declared are "
                f"{listed(self._levels[name])}.",
                code="new groups",
                remedy="Pass new_groups=True: a new group then has an effect drawn from "
                "Normal(0, sd), and a missing one is a declared group at random.",
            )
        self._unknown = unknown
        #: ``frame``, in which declared levels stand for those that were not
        self.frame = _with_declared(frame, unknown, self._levels)
        self._added: dict[str, list[tuple[_Part, ...]]] = {}

    def arrays(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The model's arrays of ``self.frame`` by name, with new groups after the declared ones."""
        arrays = dict(arrays)
        for effects in self._groups:
            columns = [factor.column for factor in effects.by]
            if not {*columns} & {*self._unknown}:
                continue
            index = arrays[effects.name].copy()
            sizes = [len(factor.labels) for factor in effects.by]
            codes = np.array(np.unravel_index(index, sizes)).T.tolist()
            texts = [self._unknown.get(name, [None] * len(index)) for name in columns]
            added = dict[tuple[_Part, ...], int]()
            for row, unknown in enumerate(zip(*texts, strict=True)):
                if any(text is not None for text in unknown):
                    key = tuple(
                        code if text is None else text
                        for code, text in zip(codes[row], unknown, strict=True)
                    )
                    index[row] = len(effects.labels) + added.setdefault(key, len(added))
            arrays[effects.name] = index
            self._added[effects.name] = list(added)
        return arrays

    def draws(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Draws of the model's sites with the effects of new groups after those of the declared.

        :param values: ``{site: array[draws, ...]}``. To be called after ``arrays``.
        """
        values = dict(values)
        for effects in self._groups:
            if added := self._added.get(effects.name):
                declared, sds = values[effects.name], values[sd_of(effects.name)]
                new = [self._effects(effects, key, declared, sds) for key in added]
                values[effects.name] = np.concatenate([declared, np.stack(new, axis=1)], axis=1)
        return values

    def _effects(
        self, effects: Effects, key: tuple[_Part, ...], declared: np.ndarray, sds: np.ndarray
    ) -> np.ndarray:
        """Effects of one group under each draw, [draws, K, ...]."""
        by = effects.by
        if any(isinstance(level, str) and level != _MISSING for level in key):
            labels = [
                factor.labels[level] if isinstance(level, int) else level
                for factor, level in zip(by, key, strict=True)
            ]
            normals = _random(effects.name, *labels).standard_normal(sds.shape)
            return (sds * normals).astype(declared.dtype)
        codes = [
            _random(factor.column).integers(len(factor.labels), size=len(declared))
            if level == _MISSING
            else np.full(len(declared), level)
            for factor, level in zip(by, key, strict=True)
        ]
        group = np.ravel_multi_index(codes, [len(factor.labels) for factor in by])
        return declared[np.arange(len(declared)), group]


def _random(*names: str) -> np.random.Generator:
    """A generator that follows from public names: its numbers protect nothing."""
    digest = hashlib.sha256("\0".join(names).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def _unknown(column: Column, series: pd.Series) -> list[str | None]:
    """The text of each level that was not declared, "" for a missing one, None for a declared:
    "(other)" is that of several groups, and not of one that it stood for.
    """
    if isinstance(column, Categorical):
        declared = set(column.labels)
        return [None if text in declared else text or _MISSING for text in texts_of(series)]
    is_missing = series.isna().to_numpy()
    if not isinstance(column, Numeric):
        return [_MISSING if missing else None for missing in is_missing]
    if column.missing:  # whose missing values are those of the middle, as in the fit
        is_missing = np.zeros(len(series), bool)
    numbers = numbers_in(series)
    low, high = math.ceil(column.low), math.floor(column.high)
    outside = (np.rint(numbers) < low) | (np.rint(numbers) > high)
    return [
        _MISSING if missing else f"{number:.0f}" if is_outside else None
        for number, missing, is_outside in zip(np.rint(numbers), is_missing, outside, strict=True)
    ]


def _with_declared(
    frame: pd.DataFrame,
    unknown: Mapping[str, list[str | None]],
    levels: Mapping[str, tuple[str, ...]],
) -> pd.DataFrame:
    """The table with the first declared level in place of others."""
    if not unknown:
        return frame
    frame = with_index(frame, list(unknown)).copy(deep=False)
    for position, label in enumerate(frame.columns):
        if (name := column_name(label)) in unknown:
            cells = [
                cell if text is None else levels[name][0]
                for cell, text in zip(frame.iloc[:, position], unknown[name], strict=True)
            ]
            frame.isetitem(position, pd.Series(cells, frame.index, object))
    return frame
