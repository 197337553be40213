"""Which arguments of a call hold records: what ``SVI.run(key, steps, x, y=y)`` takes becomes a
tuple of arrays, and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from workbench import _validate
from workbench.clipping.separation import has_entry_for_each_record

if TYPE_CHECKING:
    from jaxtyping import PyTree

__all__ = ["Arguments"]

_NUMBERS = (bool, int, float, complex, np.generic)


class Arguments:
    """The arguments of the call that a run began with.

    By position every array with an axis holds records, wherever it is in dictionaries and lists. By
    keyword those do that have the same first axis. All else is constant: numbers, words, None,
    other arrays by keyword.

    :raises ArgumentError: naming an ambiguous argument, with what to write instead.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positional = _leaves(args, by_position=True)
        first = [
            leaf
            for _, leaf in positional or _leaves(kwargs)
            if hasattr(leaf, "shape") and np.ndim(leaf)
        ]
        if not first:
            raise _validate.ArgumentError(
                "records", (), "give the record arrays, whose first axis is records."
            )
        sizes = {leaf.shape[0] for leaf in first}
        if len(sizes) > 1:
            raise _validate.ArgumentError(
                "records",
                tuple(leaf.shape[0] for leaf in first),
                "must have the same first axis, one entry a record. Give "
                "public arrays by keyword, and at least one array of records by position.",
            )
        self._size = sizes.pop()
        by_name = {
            name: value
            for name, value in kwargs.items()
            if any(map(self._is_rows, _leaves({name: value})))
        }
        self.static = {name: value for name, value in kwargs.items() if name not in by_name}
        leaves = _leaves(by_name)
        for name, leaf in leaves:
            if np.ndim(leaf) and not self._is_rows((name, leaf)):
                raise _validate.ArgumentError(
                    name,
                    np.shape(leaf),
                    f"has a different first axis than the {self._size} records; pass it as a "
                    "separate argument.",
                )
        for position, value in enumerate(args):
            self._require_constants(position, value)
        self._names = tuple(by_name)
        self._structure = self._structure_of(args, by_name)
        self._is_record = [bool(np.ndim(leaf)) for _, leaf in (*positional, *leaves)]
        # records are not kept
        self._constants = [None if np.ndim(leaf) else leaf for _, leaf in (*positional, *leaves)]

    def _require_constants(self, position: int, value: object) -> None:
        """Refuse what may hold records where JAX does not see them, in an argument by position."""

        def is_rows(value: object) -> bool:
            return _is_leaf(value) or has_entry_for_each_record(value, self._size)

        for path, leaf in jax.tree_util.tree_flatten_with_path(value, is_leaf=is_rows)[0]:
            name = f"argument {position}{jax.tree_util.keystr(path)}"
            entries = (
                leaf.values() if isinstance(leaf, dict) else leaf if isinstance(leaf, tuple) else ()
            )
            if entries and not any(map(np.ndim, entries)):
                raise _validate.ArgumentError(
                    name,
                    type(leaf).__name__,
                    f"has {self._size} numbers, one for each record: give an array, whose first "
                    "axis is records.",
                )
            is_plain = (
                leaf is None
                or isinstance(leaf, (*_NUMBERS, str, list, tuple, dict))
                or callable(leaf)
            )
            if not is_plain and not hasattr(leaf, "shape") and not hasattr(leaf, "to_numpy"):
                raise _validate.ArgumentError(
                    name,
                    type(leaf).__name__,
                    "is not an array, number or string; pass the "
                    "arrays it holds, and public objects by keyword.",
                )

    def _is_rows(self, named: tuple[str, Any]) -> bool:
        shape: tuple[int, ...] = getattr(named[1], "shape", ())
        return len(shape) > 0 and shape[0] == self._size

    @staticmethod
    def _structure_of(args: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
        return jax.tree.structure((args, by_name), is_leaf=_is_leaf)

    def arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The record arrays of another call. :raises ArgumentError: unless it is made like the
        first one.
        """
        by_name = {name: value for name, value in kwargs.items() if name in self._names}
        for name, value in kwargs.items():
            if name not in by_name and not (
                name in self.static and _equal(value, self.static[name])
            ):
                raise _validate.ArgumentError(
                    name, type(value).__name__, "was fixed at init; start a new run to change it."
                )
        if self._structure_of(args, by_name) != self._structure:
            raise _validate.ArgumentError(
                "records",
                len(args),
                f"arguments by position and {sorted(by_name)} by keyword are not those of init.",
            )
        named = (*_leaves(args, by_position=True), *_leaves(by_name))
        for (name, leaf), is_record, constant in zip(
            named, self._is_record, self._constants, strict=True
        ):
            if is_record != bool(np.ndim(leaf)) or not (is_record or _equal(leaf, constant)):
                difference = "held records" if is_record else "was a constant"
                raise _validate.ArgumentError(
                    name,
                    type(leaf).__name__,
                    f"{difference} when the run began: begin another one.",
                )
        leaves = [leaf for _, leaf in named]
        return tuple(
            leaf for leaf, is_record in zip(leaves, self._is_record, strict=True) if is_record
        )

    def layout(self, arrays: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments by position and keyword that hold ``arrays``."""
        remaining = iter(arrays)
        leaves = [
            next(remaining) if is_record else leaf
            for leaf, is_record in zip(self._constants, self._is_record, strict=True)
        ]
        return jax.tree.unflatten(self._structure, leaves)


def _is_leaf(value: object) -> bool:
    """Whether JAX shall not look into ``value``: None, columns, tables, lists of numbers."""
    is_numbers = (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(entry, _NUMBERS) for entry in value)
    )
    return value is None or is_numbers or hasattr(value, "to_numpy")


def _leaves(tree: PyTree, by_position: bool = False) -> list[tuple[str, Any]]:
    """(name, value) of each leaf; columns and lists of numbers by position become arrays.

    :raises ArgumentError: for tables, lists of records and arrays that hold no numbers.
    """
    named = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_leaf)[0]:
        path_text = jax.tree_util.keystr(path, simple=True, separator=".")
        name = f"argument {path_text}" if by_position else path_text
        if hasattr(leaf, "to_numpy"):
            if leaf.ndim != 1:
                raise _validate.ArgumentError(
                    name,
                    leaf,
                    "is a table: give its columns, such as df['age'].to_numpy(), or a dictionary "
                    "of them, {column: df[column].to_numpy() for column in df}.",
                )
            leaf = leaf.to_numpy()
        elif isinstance(leaf, list) and by_position:
            leaf = np.asarray(leaf)
        kind = getattr(getattr(leaf, "dtype", None), "kind", "f")
        if kind in "OUSMm":
            raise _validate.ArgumentError(
                name, leaf, "holds words, dates or objects: encode them as numbers."
            )
        named.append((name, leaf))
    for path, value in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_list_of_records)[0]:
        if _is_list_of_records(value):
            name = jax.tree_util.keystr(path, simple=True, separator=".")
            raise _validate.ArgumentError(
                name, len(value), "arrays in a list seem to be records: give np.stack(records)."
            )
    return named


def _is_list_of_records(value: object) -> bool:
    """Whether a list of equal arrays is longer than they are: one array a record rather than one
    array a variable.
    """
    if not isinstance(value, list) or not all(
        np.ndim(array) and hasattr(array, "shape") for array in value
    ):
        return False
    return len({array.shape for array in value}) == 1 and len(value) > value[0].shape[0]


def _equal(first: PyTree, second: PyTree) -> bool:
    if first is second:
        return True
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((first, second))):
        return False
    leaves, second_leaves = jax.tree.leaves(first), jax.tree.leaves(second)
    return len(leaves) == len(second_leaves) and all(map(np.array_equal, leaves, second_leaves))
