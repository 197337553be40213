"""Evaluation records and subsets, drawn record by record so that one record does not
move another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench import _validate
from workbench._lazy import pd

__all__ = [
    "by_place",
    "by_record",
    "by_unit",
    "checked",
    "coins",
    "coins_of",
    "digests",
    "evaluation_rows",
    "numbered_coins",
    "numbers_of",
    "require_both_sides",
]


def coins(arrays: Sequence[np.ndarray], seed: int | str) -> np.ndarray:
    """float64[N] in [0, 1], one coin per record: a hash of the record itself and of a public seed.

    Equal records are numbered, and the number is hashed with them. So if a record is added or
    removed, the collection of pairs (record, coin) gains or loses exactly one pair, whatever the
    order, and all others are unchanged.

    :param seed: of a split, or a word for another purpose, whose coins are others.
    :param arrays: record i is entry i of each, N >= 0 entries. The encoding of a record must not
        depend on others.
    """
    return coins_of([digest.tobytes() for digest in digests(arrays, seed)], seed)


def digests(arrays: Sequence[np.ndarray], seed: int | str) -> np.ndarray:
    """A hash of each record itself and of a public seed, two uint64, "high" and "low". :param
    arrays: as for ``coins``.
    """
    rows, key = [_bytes_of(np.asarray(array)) for array in arrays], _key(seed)
    hashes = bytearray()
    for record in zip(*rows, strict=True):
        content = hashlib.blake2b(key=key, digest_size=16)
        for field in record:
            content.update(field)
        hashes += content.digest()
    return np.frombuffer(bytes(hashes), [("high", "<u8"), ("low", "<u8")])


def coins_of(contents: Sequence[bytes], seed: int | str) -> np.ndarray:
    """``coins`` of what each record is known by."""
    counts = dict[bytes, int]()
    numbers = np.empty(len(contents), np.int64)
    for index, content in enumerate(contents):
        numbers[index] = counts[content] = counts.get(content, -1) + 1
    return numbered_coins(contents, numbers, seed)


def numbered_coins(contents: Sequence[bytes], numbers: np.ndarray, seed: int | str) -> np.ndarray:
    """``coins_of`` records of which ``numbers``, int[N], says how many equal ones precede each."""
    key, drawn = _key(seed), np.empty(len(contents))
    for index, (content, number) in enumerate(zip(contents, numbers.tolist(), strict=True)):
        coin = hashlib.blake2b(
            content + number.to_bytes(8, "little"), key=key, digest_size=8
        ).digest()
        drawn[index] = int.from_bytes(coin, "little")
    return drawn / 2.0**64


def numbers_of(hashes: np.ndarray) -> np.ndarray:
    """How many equal ones precede each of ``digests``: int64[N]."""
    order = np.lexsort((hashes["low"], hashes["high"]))
    ordered = hashes[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: len(hashes)])
    numbers = np.empty(len(hashes), np.int64)
    numbers[order] = np.arange(len(hashes)) - np.repeat(starts, np.diff(starts, append=len(hashes)))
    return numbers


def _key(seed: int | str) -> bytes:
    return hashlib.blake2b(f"split {seed}".encode(), digest_size=32).digest()


def by_unit(contents: Sequence[bytes], fraction: float, seed: int) -> np.ndarray:
    """bool[units], True for evaluation units, by coins as of ``coins``.

    :param contents: all that is known of each unit, which must not depend on others.
    :raises ArgumentError: as ``by_record``.
    """
    fraction, seed = checked(fraction, seed)
    return _both_sides(coins_of(contents, seed) < fraction, fraction)


def by_record(arrays: Sequence[np.ndarray], fraction: float, seed: int) -> np.ndarray:
    """bool[N], True for evaluation records, by ``coins``.

    :raises ArgumentError: naming ``evaluation_fraction`` or ``split_seed``; also if a side has too
        few records.
    """
    fraction, seed = checked(fraction, seed)
    return _both_sides(coins(arrays, seed) < fraction, fraction)


def by_place(records: pd.DataFrame | np.ndarray, fraction: float, seed: int) -> tuple[Any, Any]:
    """(training part, evaluation part) of a table or an array by ``evaluation_rows``.

    For published records only. There no record is added or removed, which would move all records
    after it.

    :raises ArgumentError: as ``by_record``.
    """
    fraction, seed = checked(fraction, seed)
    held_out = _both_sides(evaluation_rows(len(records), fraction, seed), fraction)
    return records[~held_out], records[held_out]


def evaluation_rows(num_rows: int, fraction: float, seed: int) -> np.ndarray:
    """bool[num_rows], True for evaluation rows: an independent coin for each row, from its position
    alone.
    """
    return np.random.Generator(np.random.PCG64(seed)).random(num_rows) < fraction


def checked(fraction: float, seed: int) -> tuple[float, int]:
    """Share of evaluation records and public seed. :raises ArgumentError: naming one that is out of
    range, or a seed that has nothing to decide.
    """
    evaluation_fraction = _validate.number("evaluation_fraction", fraction, at_least=0, below=1)
    seed = _validate.seed("split_seed", seed)
    if seed and not evaluation_fraction:
        raise _validate.ArgumentError(
            "split_seed",
            seed,
            "says which records are held out, and none are: also give evaluation_fraction.",
        )
    return evaluation_fraction, seed


def _both_sides(held_out: np.ndarray, fraction: float) -> np.ndarray:
    require_both_sides(int(held_out.sum()), int((~held_out).sum()), fraction)
    return held_out


def require_both_sides(evaluation: int, training: int, fraction: float) -> None:
    """Check how many records are on each side. :raises ArgumentError: naming
    ``evaluation_fraction``.
    """
    if (fraction > 0 and evaluation < 1) or training < 2:
        raise _validate.ArgumentError(
            "evaluation_fraction",
            fraction,
            "leaves too few records on one side of the split: fewer than 2 to train, or none to "
            "evaluate. Choose another split_seed, give evaluation=, or hold out none with "
            "evaluation_fraction=0.",
        )


def _bytes_of(array: np.ndarray) -> np.ndarray:
    """uint8[N, bytes of a record], the same on every machine."""
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return (
        values.reshape(len(values), -1).view(np.uint8)
        if values.size
        else np.empty((len(values), 0), np.uint8)
    )
