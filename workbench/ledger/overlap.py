"""Sketches: encrypted summaries that recognise shared records, in another order, in part, or with other columns.

A sketch has the smallest keyed hashes of whole records and of single columns, so that data sets which share values have some
of these in common, and hashes of whole columns in any order. With each goes the probability that it agrees with unrelated
data. Agreement that chance does not explain is a relation. Tables of a dozen records, or of a few columns with few values,
have too little information to be recognised. Data sets may also share columns that are not secret, such as a list of
countries.

Everything is encrypted with the key of the fingerprints. A file with a sketch and without the key reveals nothing about
records, not even their number.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from workbench._lazy import pd
from workbench.data.columns import Categorical, Numeric
from workbench.data.dataset import Dataset, is_at_rest
from workbench.ledger.fingerprint import secret_key

__all__ = ["Overlap", "overlap", "sketch"]

_DIGITS = (4, 6)  # significant digits: few are the same with other bounds, many distinguish more values
_EMPTY = np.uint32(2**32 - 1)  # pads a set that is stored whole
_USEFUL = 0.5  # a column is useless if unrelated data may share more than this
_EVEN = 0.2  # from this evenness on, a column may only number the records
_LEAST_BITS = 20  # bits of evidence required, in addition to log2 of the number of comparisons
_LEAST_WHOLE_BITS = 24  # bits of evidence required for whole columns or tables

_LAYOUT = np.dtype(
    [
        # by digits; of the features, of all columns; without and with the columns' names
        ("records", [("hashes", "<u4", 640), ("chance", "<f4"), ("multiset", "<u8"), ("bits", "<f4")], (len(_DIGITS), 2, 2)),
        # by digits
        ("columns", [("hashes", "<u4", 128), ("chance", "<f4")], (len(_DIGITS), 32)),
        # without and with the name; columns of one kind, which have the same distinct values or name, may be confused
        ("multisets", [("hash", "<u8", 2), ("kind", "<u8", 2), ("bits", "<f4")], 64),
    ]
)
_NONCE = _TAG = 16  # bytes
_COPIES = 16  # of the records that are in memory while a sketch is made, as float64 and as hashes


class Overlap(NamedTuple):
    """What two data sets share.

    :param share: estimated share of the distinct records of the smaller one that are in the other too, in [0, 1].
    :param how: "records" if whole records agree, "columns" if only values of single columns do.
    """

    share: float
    how: Literal["records", "columns"]


def sketch(dataset: Dataset, key: bytes | None = None) -> bytes:
    """The summary that ``overlap`` compares. It has one size, depends on the training records alone, and is new at each
    call. Of records that stay in a file and are too many for memory it says nothing.

    :param dataset: one that passes its own ``check``. :param key: 32 bytes; None for the user's own.
    :raises ArgumentError: naming ``key file``, if that is damaged.
    """
    key = key or secret_key()
    keyed = _Keyed(_subkey(key, b"sketch hashes"))
    summary = np.zeros((), _LAYOUT)
    for field in ("records", "columns"):
        summary[field]["hashes"], summary[field]["chance"] = _EMPTY, 1
    if _are_too_many(dataset):
        pass  # the fingerprint alone recognises them
    elif dataset.image_shape:
        images = keyed.images(np.asarray(dataset.select(("x",)).train[0]))
        summary["records"][0, 0, 0] = _record_set(images, 0.0)
    else:
        table = list(_table(dataset, keyed))
        for place, digits in enumerate(_DIGITS):
            columns = [_column(*each, digits, keyed) for each in table]
            for which, chosen in enumerate(([column for column in columns if column.is_feature], columns)):
                for named in (0, 1):
                    summary["records"][place, which, named] = _records(chosen, len(dataset.train[0]), bool(named), keyed)
            for slot, kept in enumerate(_column_sets(columns)[:32]):
                summary["columns"][place, slot] = kept
            if place == 0:
                for slot, multiset in enumerate(_multisets(columns, keyed)[:64]):
                    summary["multisets"][slot] = multiset
    nonce = os.urandom(_NONCE)
    sealed = nonce + _ciphered(summary.tobytes(), key, nonce)
    return sealed + _tag(sealed, key)


def _are_too_many(dataset: Dataset) -> bool:
    """Whether the columns of records that stay in a file would take more memory than they may."""
    arrays: list[Any] = [array for array in dataset.train if is_at_rest(array)]
    return any(_COPIES * array.most_bytes > array.stored.memory for array in arrays)


def overlap(one: bytes, other: bytes, key: bytes | None = None) -> Overlap | None:
    """What the data sets of two sketches share; None if nothing is found, or a sketch is damaged or has another key.

    :param key: of both; None for the user's own.
    :raises ArgumentError: naming ``key file``, if that is damaged.
    """
    key = key or secret_key()
    first, second = _opened(one, key), _opened(other, key)
    if first is None or second is None:
        return None
    by_records = max(map(_records_share, first["records"].flat, second["records"].flat))
    by_columns = max(_columns_share(a, b) for a, b in zip(first["columns"], second["columns"], strict=True))
    if max(_multisets_bits(first["multisets"], second["multisets"], named) for named in (0, 1)) >= _LEAST_WHOLE_BITS:
        by_columns = 1.0
    if by_records == by_columns == 0:
        return None
    return Overlap(max(by_records, by_columns), "records" if by_records else "columns")


def _share(one: np.void, other: np.void, *, least_hits: int, least_share: float) -> tuple[float, float]:
    """(share of the smaller set that is in the other too, bits of evidence against chance)."""
    limit = min(one["hashes"][-1], other["hashes"][-1])  # up to here both are known
    a, b = (each["hashes"][(each["hashes"] <= limit) & (each["hashes"] < _EMPTY)] for each in (one, other))
    size, hits = min(len(a), len(b)), len(np.intersect1d(a, b, assume_unique=True))
    chance = float(max(one["chance"], other["chance"]))
    if hits < max(least_hits, least_share * size) or hits <= chance * size:
        return 0.0, 0.0
    misses = size - hits
    # Chernoff's bound on the probability of that many hits
    bits = hits * math.log2(hits / size / chance) + (misses and misses * math.log2(misses / size / (1 - chance)))
    return hits / size, bits


def _records_share(one: np.void, other: np.void) -> float:
    """Share of the records of the smaller data set that are in the other too; 0 if this may be chance."""
    if one["multiset"] == other["multiset"] and one["bits"] >= _LEAST_WHOLE_BITS:
        return 1.0
    share, bits = _share(one, other, least_hits=4, least_share=0.02)
    return share if bits >= _LEAST_BITS + math.log2(math.prod(_LAYOUT["records"].shape)) else 0.0


def _columns_share(one: np.ndarray, other: np.ndarray) -> float:
    """Mean share between a column of ``one`` and one of ``other``, over those that share some; 0 if this may be chance."""
    one, other = one[one["chance"] < 1], other[other["chance"] < 1]
    found = []
    for column in one:
        hits = np.sum(np.isin(other["hashes"], column["hashes"][column["hashes"] < _EMPTY]), axis=1)
        found += [_share(column, match, least_hits=8, least_share=0.2) for match in other[hits >= 8]]
    if max((bits for _, bits in found), default=0) < _LEAST_BITS + math.log2(max(len(one) * len(other), 1)):
        return 0.0
    return float(np.mean([share for share, bits in found if bits > 0]))


def _multisets_bits(one: np.ndarray, other: np.ndarray, named: int) -> float:
    """Evidence that whole columns agree: -log2 of the probability that as many agree by chance."""
    one, other = one[one["bits"] > 0], other[other["bits"] > 0]
    kinds, other_kinds = one["kind"][:, named], other["kind"][:, named]
    agree = np.isin(one["hash"][:, named], other["hash"][:, named])
    evidence = []
    for kind in np.unique(kinds[agree]):
        matched = agree & (kinds == kind)
        matches, size, other_size = (int(np.sum(each)) for each in (matched, kinds == kind, other_kinds == kind))
        pairings = math.comb(size, matches) * math.perm(other_size, matches)
        evidence.append(float(np.sum(one["bits"][matched])) - math.log2(pairings))
    useful = [bits for bits in evidence if bits > 0]
    return sum(useful) - math.log2(math.comb(len(np.unique(kinds)), len(useful)))


class _Keyed:
    """Hashes that nobody can compute without the key."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._salts = np.frombuffer(key, np.uint64) | np.uint64(1)

    def words(self, words: np.ndarray) -> np.ndarray:
        """uint64 of each word, mixed as by splitmix64."""
        mixed = words + self._salts[0]
        for shift, factor in ((30, self._salts[1]), (27, self._salts[2])):
            mixed ^= mixed >> np.uint64(shift)
            mixed *= factor
        return mixed ^ (mixed >> np.uint64(31))

    def text(self, text: str) -> int:
        """48 bits."""
        digest = hashlib.blake2b(text.encode(errors="replace"), key=self._key, digest_size=6).digest()
        return int.from_bytes(digest, "little")

    def labels(self, labels: Any) -> np.ndarray:
        """float64 for each label: its number if it is one, as it may be given elsewhere, otherwise a unique number."""
        numbers = []
        for label in labels:
            try:
                number = float({"False": "0", "True": "1"}.get(label, label))
            except ValueError:
                number = math.nan
            numbers.append(number if math.isfinite(number) else self.text(label) + 0.5)
        return np.array(numbers)

    def images(self, x: np.ndarray) -> np.ndarray:
        """uint64[N] of images in [0, 1], to 1 / 255."""
        flat = x.reshape(len(x), math.prod(x.shape[1:]))
        num_words = -(-flat.shape[1] // 8)
        places = self.words(np.arange(num_words, dtype=np.uint64))
        hashes = np.empty(len(x), np.uint64)
        for start in range(0, len(x), 4096):
            part = np.clip(np.nan_to_num(flat[start : start + 4096]), 0, 1)
            pixels = np.zeros((len(part), 8 * num_words), np.uint8)
            pixels[:, : flat.shape[1]] = np.rint(part * 255)
            hashes[start : start + len(part)] = np.sum(self.words(pixels.view(np.uint64) + places), axis=1)
        return hashes


def _table(dataset: Dataset, keyed: _Keyed) -> Iterator[tuple[str, bool, np.ndarray, int]]:
    """(name, whether it is a feature, float64[N] in the table's units, number of labels or 0) of each column."""
    named = {"group": (dataset.group_name, dataset.groups), "y": (dataset.target_name, dataset.classes)}
    for array, values in zip(dataset.arrays, map(np.asarray, dataset.train), strict=True):
        if array != "x" and values.ndim == 1:
            name, labels = named.get(array, (array, ()))
            codes = keyed.labels(labels)[values.astype(int)] if labels else values.astype(np.float64)
            yield name, False, codes, len(labels)
        elif array != "x":
            flat = values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float64)
            for place, numbers in enumerate(flat.T):
                yield f"{array} {place}", False, numbers, 0
        elif dataset.schema is None:
            flat = values.reshape(len(values), math.prod(values.shape[1:])).astype(np.float64)
            for name, numbers in zip(dataset.feature_names or map(str, range(flat.shape[1])), flat.T, strict=True):
                yield name, True, numbers, 0
        else:
            frame = dataset.schema.decode(np.nan_to_num(values))
            for name, declared in dataset.schema.columns.items():
                if isinstance(declared, Categorical):
                    codes, labels = pd.factorize(frame[name])
                    yield name, True, keyed.labels(labels)[codes], len(declared.labels)
                    continue
                numbers = frame[name].to_numpy(np.float64)
                if isinstance(declared, Numeric):
                    numbers = np.where(np.isnan(numbers), declared.middle, numbers)  # missing ones, as they were filled
                    # the scaled values are rounded, so 0 is only nearly 0
                    numbers = np.where(np.abs(numbers) < 1e-7 * max(abs(declared.low), abs(declared.high)), 0.0, numbers)
                yield name, True, numbers, 0


class _Column(NamedTuple):
    name: np.uint64  # hash
    is_feature: bool
    words: np.ndarray  # uint64[N], hashes of the values
    distinct: np.ndarray  # those of the distinct values
    counts: np.ndarray  # how often each of these occurs
    chance: float
    is_design: bool  # so even that it may only number the records, or repeats as in a designed experiment


def _column(name: str, is_feature: bool, values: np.ndarray, num_labels: int, digits: int, keyed: _Keyed) -> _Column:
    values = values if num_labels else _rounded(values, digits)
    distinct, counts = np.unique(values, return_counts=True)
    chance = _chance(counts)
    if chance < _USEFUL:
        evenness = len(distinct) / num_labels if num_labels else _evenness(distinct)
        chance, is_design = max(chance, evenness), evenness >= _EVEN
    else:
        is_design = _are_planned(counts)
    words, distinct = keyed.words(values.view(np.uint64)), keyed.words(distinct.view(np.uint64))
    return _Column(np.uint64(keyed.text(name)), is_feature, words, distinct, counts, chance, is_design)


def _records(columns: list[_Column], num_records: int, named: bool, keyed: _Keyed) -> tuple[np.ndarray, float, int, float]:
    """The entry of the layout for records of these columns, in any order."""
    records, random = np.zeros((2, num_records), np.uint64)
    for column in columns:
        words = keyed.words(column.words ^ column.name) if named else column.words
        records += words
        if not column.is_design:
            random += words
    chance = 0.0
    if any(column.is_design for column in columns):
        # two data sets of one design agree in the other columns as two records of one of them do
        repeats = np.unique(random, return_counts=True)[1].astype(float)
        agreement = float(np.sum(repeats * (repeats - 1))) / max(num_records * (num_records - 1), 1)
        chance = min(1.5 * agreement, (1 + agreement) / 2)
    return _record_set(keyed.words(records), chance)


def _record_set(records: np.ndarray, chance: float) -> tuple[np.ndarray, float, int, float]:
    distinct, counts = np.unique(records, return_counts=True)
    bits = _bits(counts) if chance < 1 else 0.0
    return _smallest(distinct, 640), max(_chance(counts), chance), int(np.sum(records)), bits


def _column_sets(columns: list[_Column]) -> list[tuple[np.ndarray, float]]:
    """Smallest hashes of the useful columns and their chance, in an order that depends on the values alone."""
    useful = [column for column in columns if column.chance < _USEFUL and len(column.counts) >= 16]
    return sorted(((_smallest(column.distinct, 128), column.chance) for column in useful), key=lambda each: each[0][0])


def _multisets(columns: list[_Column], keyed: _Keyed) -> list[tuple[list[int], list[int], float]]:
    """Entries of the layout for all informative columns, in an order that depends on the values alone."""
    entries: dict[float, tuple[list[int], list[int], float]] = {}
    for column in columns:
        hashes = keyed.words(column.distinct)
        total, kind = np.sum(hashes * column.counts.astype(np.uint64)), np.sum(hashes)
        named = keyed.words(np.array([total ^ column.name]))[0]
        bits = 0.0 if column.is_design else _bits(column.counts)
        entry = [int(total), int(named)], [int(kind), int(column.name)], bits
        entries[bits] = min(entry, entries.get(bits, entry))  # only one of columns that determine each other
    return sorted(entry for bits, entry in entries.items() if bits > 0)


def _rounded(values: np.ndarray, digits: int) -> np.ndarray:
    """float64 with ``digits`` significant digits: the same bits for the same digits."""
    values = np.clip(np.nan_to_num(values), -1e290, 1e290)
    size = np.abs(values) * (1 + 0.5 * 10.0**-digits)  # of the power of ten that the rounded number has
    exponent = np.floor(np.log10(np.maximum(size, 1e-290))).astype(int)
    power = (10.0 ** np.arange(-310, 300))[digits - 1 - exponent + 310]
    return np.rint(values * power) / power + 0.0  # never -0


def _chance(counts: np.ndarray) -> float:
    """Largest share of distinct values that unrelated data may have in common with these, from how many repeat in them."""
    return min(3 * (float(np.sum(counts > 1)) + 1) / max(len(counts), 1), 1.0)


def _evenness(distinct: np.ndarray) -> float:
    """Small for random values, and 1 for values like 1, 2, 3, ..., which unrelated data share as well."""
    gaps = np.diff(distinct)
    return float(np.quantile(gaps, 0.02, method="lower") / np.median(gaps))


def _are_planned(counts: np.ndarray) -> bool:
    """Whether counts differ less than random ones would: Poisson counts above 0 have about this variance."""
    mean = np.mean(counts)
    return bool(np.var(counts) < (mean - 1.5 / mean) / 2)


def _bits(counts: np.ndarray) -> float:
    """A low estimate of -log2 of the probability that unrelated data have the same counts; 0 if they are planned."""
    sizes, times = np.unique(counts, return_counts=True)
    bits = 0.5 * np.log2(2 * np.pi * sizes * times)
    return 0.0 if len(bits) < 2 or _are_planned(counts) else float(np.sum(bits) - np.max(bits))


def _smallest(hashes: np.ndarray, size: int) -> np.ndarray:
    """uint32[size]: the upper halves of the smallest, in ascending order."""
    if len(hashes) > 2 * size:
        hashes = np.partition(hashes, 2 * size)[: 2 * size]
    smallest = np.unique((hashes >> np.uint64(32)).astype(np.uint32))[:size]
    return np.concatenate([smallest, np.full(size - len(smallest), _EMPTY)])


def _subkey(key: bytes, purpose: bytes) -> bytes:
    return hashlib.blake2b(purpose, key=key, digest_size=32).digest()


def _ciphered(data: bytes, key: bytes, nonce: bytes) -> bytes:
    """``data`` encrypted, or decrypted."""
    stream = hashlib.shake_256(_subkey(key, b"sketch stream") + nonce).digest(len(data))
    return np.bitwise_xor(np.frombuffer(data, np.uint8), np.frombuffer(stream, np.uint8)).tobytes()


def _tag(sealed: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(sealed, key=_subkey(key, b"sketch tag"), digest_size=_TAG).digest()


def _opened(blob: bytes, key: bytes) -> np.void | None:
    """The summary in ``blob``; None if it was not made with this key, or is damaged."""
    if len(blob) != _NONCE + _LAYOUT.itemsize + _TAG or not hmac.compare_digest(blob[-_TAG:], _tag(blob[:-_TAG], key)):
        return None
    return np.frombuffer(_ciphered(blob[_NONCE:-_TAG], key, blob[:_NONCE]), _LAYOUT)[0]
