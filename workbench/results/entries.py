"""Names of the entries of arrays, such as "weights[age]", the same in tables, pictures
and curves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["entry_names"]


def entry_names(name: str, labels: Sequence[Any] | None, shape: Sequence[int]) -> list[str]:
    """Names of an array's entries, in its order; ``[name]`` for a scalar.

    :param labels: of its entries, or a tuple of the labels along each axis. Numbers stand for
        labels that do not fit.
    """
    axes = labels if isinstance(labels, tuple) else (() if labels is None else labels,)
    if tuple(map(len, axes)) != tuple(shape):
        axes = tuple(map(range, shape))
    entries = (", ".join(map(str, entry)) for entry in itertools.product(*axes))
    return [f"{name}[{entry}]" for entry in entries] if shape else [name]
