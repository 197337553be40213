"""Which records are held out, and which a subset holds: drawn record by record, so that one of them moves no other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench import _validate

__all__ = ["by_place", "by_record", "coins", "evaluation_rows"]


def coins(arrays: Sequence[np.ndarray], seed: int) -> np.ndarray:
    """float64[N] in [0, 1], one coin for each record: a hash of the record itself and of a public seed.

    Equal records are numbered, and each number is hashed with them. So the collection of pairs (record, coin), whatever
    their order, gains or loses exactly one pair with a record that is added or removed, and all others stay.

    :param arrays: of which record i is entry i of each, N >= 0 entries; what a record becomes must not depend on others.
    """
    key = hashlib.blake2b(f"split {seed}".encode(), digest_size=32).digest()
    rows = [_bytes_of(np.asarray(array)) for array in arrays]
    known: dict[bytes, int] = {}
    drawn = np.empty(len(rows[0]))
    for place, record in enumerate(zip(*rows, strict=True)):
        content = hashlib.blake2b(key=key, digest_size=16)
        for part in record:
            content.update(part)
        digest = content.digest()
        number = known[digest] = known.get(digest, -1) + 1
        coin = hashlib.blake2b(digest + number.to_bytes(8, "little"), key=key, digest_size=8).digest()
        drawn[place] = int.from_bytes(coin, "little")
    return drawn / 2.0**64


def by_record(arrays: Sequence[np.ndarray], fraction: Any, seed: Any) -> np.ndarray:
    """bool[N], True for evaluation records, each by its own ``coins``.

    :raises ArgumentError: naming ``evaluation_fraction`` or ``split_seed``; also where a side has too few records.
    """
    fraction, seed = _checked(fraction, seed)
    return _both_sides(coins(arrays, seed) < fraction, fraction)


def by_place(records: Any, fraction: Any, seed: Any) -> tuple[Any, Any]:
    """(training part, evaluation part) of a table or an array by ``evaluation_rows``.

    For published records, of which none comes or goes: one that did would move all that follow.

    :raises ArgumentError: as ``by_record``.
    """
    fraction, seed = _checked(fraction, seed)
    held_out = _both_sides(evaluation_rows(len(records), fraction, seed), fraction)
    return records[~held_out], records[held_out]


def evaluation_rows(num_rows: int, fraction: float, seed: int) -> np.ndarray:
    """bool[num_rows], True for evaluation rows: an independent coin for each row, from its place alone."""
    return np.random.Generator(np.random.PCG64(seed)).random(num_rows) < fraction


def _checked(fraction: Any, seed: Any) -> tuple[float, int]:
    return _validate.probability("evaluation_fraction", fraction), _validate.seed("split_seed", seed)


def _both_sides(held_out: np.ndarray, fraction: float) -> np.ndarray:
    if held_out.sum() < 1 or (~held_out).sum() < 2:
        raise _validate.ArgumentError(
            "evaluation_fraction",
            fraction,
            "leaves too few records on one side of the split, less than 2 to train or none to evaluate; take another "
            "split_seed, or give evaluation=.",
        )
    return held_out


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """uint8[N, bytes of a record], the same on every machine."""
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return values.reshape(len(values), -1).view(np.uint8) if values.size else np.empty((len(values), 0), np.uint8)
