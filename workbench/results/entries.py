"""Names of the entries of arrays, such as "weights[age]", the same in tables, pictures
and curves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["entry_names"]


def entry_names(name: str, given: Any, shape: Sequence[int]) -> list[str]:
    """Names of an array's entries, in its order; ``[name]`` for a scalar.

    :param given: labels of its entries, or a tuple of the labels along each axis. Numbers stand for
        labels that do not fit.
    """
    axes = given if isinstance(given, tuple) else (() if given is None else given,)
    if tuple(map(len, axes)) != tuple(shape):
        axes = tuple(map(range, shape))
    places = (", ".join(map(str, place)) for place in itertools.product(*axes))
    return [f"{name}[{place}]" for place in places] if shape else [name]
