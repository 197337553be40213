"""Fingerprints: short texts that recognise the same records.

Anybody who holds a plain hash of private records could test guesses about a record: if the others
are known, one hash per guess shows whether it is right. So private records are hashed with a secret
key. The user's own key is in ``key_file()``. A ledger has its own key beside its file
(``workbench.ledger``), so that everybody who writes to it recognises the same records. Two
fingerprints still show whether two data sets are the same: keep them in your own notes, and do not
publish them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from workbench import _folders, _validate
from workbench._keys import make_key, read_key
from workbench.data.dataset import Dataset, is_at_rest
from workbench.data.schema import Schema

__all__ = ["fingerprint", "key_file", "secret_key"]


def fingerprint(dataset: Dataset, key: bytes | None = None) -> str:
    """32 hexadecimal digits: the same for the same records, and almost surely different for others.

    These count: the arrays of training and evaluation records (values, types and shapes), their
    names, the names of features, target, classes and groups, the schema, and the features of the
    groups. Name, description and source do not count, and neither does which level of a category is
    the reference.

    Public records get BLAKE2b, which is the same everywhere. Private records get BLAKE2b with a
    secret key, which is the same for everybody who has the key.

    :param key: 32 bytes; None for ``secret_key()``.
    :raises ArgumentError: naming ``data``, for an array of Python objects; or ``key file``, if that
        is damaged.
    """
    cache = _kept(dataset)
    dataset = dataset.with_all_levels()
    facts: dict[str, object] = {
        "arrays": dataset.arrays,
        "feature_names": dataset.feature_names,
        "target_name": dataset.target_name,
        "classes": dataset.classes,
        "schema": None if dataset.schema is None else list(_columns(dataset.schema).items()),
        "group_name": dataset.group_name,
        "groups": dataset.groups,
        "group_feature_names": dataset.group_feature_names,
        "image_shape": dataset.image_shape,
        "vocabulary_size": dataset.vocabulary_size,
    }
    counts = () if dataset.units is None else (dataset.units.counts,)
    if dataset.units is not None:
        facts |= {"max_rows": dataset.units.max_rows, "unit_mean": dataset.units.mean}
    key = b"" if dataset.is_public else key or secret_key()
    group_features = () if dataset.group_features is None else (dataset.group_features,)
    digest = hashlib.blake2b(digest_size=16, key=key)
    digest.update(_headed(facts))
    cache_key = digest.hexdigest() + "".join(
        hashlib.blake2b(np.asarray(values).tobytes()).hexdigest() for values in group_features
    )
    if cache_key in cache:
        return cache[cache_key]
    for arrays in ((*dataset.train, *counts), dataset.evaluation, group_features):
        digest.update(_headed(len(arrays)))
        kinds: list[Any] = [
            values if is_at_rest(values) else np.asarray(values) for values in arrays
        ]
        for array in kinds:
            if array.dtype.hasobject:
                raise _validate.ArgumentError(
                    "data", dataset.name, "holds an array of Python objects instead of numbers."
                )
            digest.update(_headed([array.dtype.newbyteorder("<").str, array.shape]))
            for block in array.parts() if is_at_rest(array) else (array,):
                digest.update(
                    np.ascontiguousarray(block, block.dtype.newbyteorder("<"))
                    .reshape(-1)
                    .view(np.uint8)
                    .data
                )
    cache[cache_key] = digest.hexdigest()
    return cache[cache_key]


def _kept(dataset: Dataset) -> dict[str, str]:
    """The fingerprints that are known of records that stay in a file, by a keyed hash of all else
    that counts.

    An encrypted file has those that were computed while it was packed, with nobody able to change
    records or fingerprint.
    """
    arrays: list[Any] = [*dataset.train, *dataset.evaluation]
    if not arrays or not all(is_at_rest(array) and array.transform is None for array in arrays):
        return {}
    return arrays[0].stored.fingerprints


def _columns(schema: Schema) -> dict[str, dict[str, object]]:
    """The columns, without their reference levels."""
    return {
        name: {fact: value for fact, value in column.items() if fact != "reference"}
        for name, column in schema.to_dict().items()
    }


def key_file() -> Path:
    """Where the user's secret key is kept: ``fingerprint.key`` in ``$WORKBENCH_STATE``, or in the
    default folder.
    """
    return _folders.state() / "fingerprint.key"


def secret_key() -> bytes:
    """The 32 bytes in ``key_file()``, which is created if it is missing.

    :raises ArgumentError: naming ``key file``, if that is damaged or cannot be used.
    """
    path = key_file()
    try:
        return read_key(path) or make_key(path)
    except OSError as error:
        raise _validate.ArgumentError(
            "key file",
            str(path),
            f"cannot be used ({error}).",
            remedy="Set $WORKBENCH_STATE to a folder that you may write to.",
        ) from error


def _headed(facts: object) -> bytes:
    """JSON after its length, so that different sequences of facts give different bytes."""
    text = json.dumps(facts).encode()
    return len(text).to_bytes(8, "little") + text
