"""Data sets of token sequences from NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from workbench import _validate
from workbench.data.arrays import labelled
from workbench.data.dataset import Dataset
from workbench.data.preprocessing import unmasked
from workbench.data.targets import class_names

__all__ = ["from_tokens"]


def from_tokens(
    x: ArrayLike,
    y: ArrayLike | None = None,
    *,
    vocabulary_size: int,
    classes: Iterable[Any] | int | None = None,
    evaluation: tuple[Any, ...] | None = None,
    evaluation_fraction: float = 0.2,
    split_seed: int = 0,
    evaluation_is_public: bool = False,
    unit: str = "sequence",
    name: str = "tokens",
) -> Dataset:
    """A data set of token sequences of one length, one per record. Its arrays are "x", int32[N, T],
    and "y" with ``y``.

    The vocabulary is public and declared; it must not be read off private texts. Before, cut or pad
    all sequences to one public length, with a separate token for the padding, and give rare words a
    common token.

    >>> tokens, labels = np.random.randint(0, 100, (50, 16)), np.arange(50) % 2
    >>> wb.data.from_tokens(tokens, labels, vocabulary_size=100, classes=["spam", "mail"])
    Dataset('tokens', 16 tokens of 100, target 'class')

    :param x: whole numbers[N, T], ids of tokens in 0 .. V - 1.
    :param y: whole numbers[N], 0 .. number of classes - 1.
    :param vocabulary_size: V >= 2, public.
    :param classes: names of all classes, public, or their number K for 0 .. K - 1; needed with
        ``y``.
    :param evaluation: ``(x, y)``, or ``(x,)``, instead of a split of ``x``.
    :param evaluation_fraction: probability of each sequence to become an evaluation record, in [0,
        1), by its own content.
    :param split_seed: public seed of the split, >= 0.
    :param evaluation_is_public: True declares the evaluation records public.
    :param unit: what one sequence is, in words.
    :raises ArgumentError: naming ``x``, ``y``, ``vocabulary_size``, ``classes`` or ``evaluation``,
        with the shape or type, never with a token or class of a record.
    """
    size = _validate.integer(
        "vocabulary_size", vocabulary_size, at_least=2, at_most=np.iinfo(np.int32).max
    )
    names = () if y is None else class_names(classes)
    both = labelled(
        {"x": x} if y is None else {"x": x, "y": y},
        functools.partial(_checked_tokens, size),
        names,
        evaluation,
        evaluation_fraction,
        split_seed,
        "sequence",
    )
    length = both[0][0].shape[1]
    return Dataset(
        name=name,
        description=f"Sequences of {length} tokens out of {size}"
        + (f", {len(names)} classes." if names else "."),
        train=tuple(training for training, _ in both),
        evaluation=tuple(evaluated for _, evaluated in both),
        feature_names=tuple(f"token {position + 1}" for position in range(length)),
        target_name="class" if y is not None else "",
        classes=names,
        unit=unit,
        evaluation_is_public=evaluation_is_public,
        arrays=("x", "y")[: len(both)],
        vocabulary_size=size,
    )


def _checked_tokens(vocabulary_size: int, argument: str, x: ArrayLike) -> np.ndarray:
    """int32[N, T]. Errors show no token of a record."""
    values = unmasked(argument, x)
    if values.ndim != 2 or not values.shape[1]:
        shown = values if values.ndim else type(x).__name__
        raise _validate.ArgumentError(
            argument, shown, "must have shape (sequences, tokens), all of one length."
        )
    if values.dtype.kind not in "iu":
        raise _validate.ArgumentError(
            argument, str(values.dtype), "must be whole numbers with an integer type."
        )
    if values.size and not (values.min() >= 0 and values.max() < vocabulary_size):
        raise _validate.ArgumentError(
            argument,
            values,
            f"has values outside 0 .. {vocabulary_size - 1}, the tokens; declare a larger "
            "vocabulary_size, or give other words a common token.",
        )
    return values.astype(np.int32)
