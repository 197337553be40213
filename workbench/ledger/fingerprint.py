"""Fingerprints: short texts that recognise the same records.

Anybody who holds a plain hash of private records could test guesses about a record: if the others are known, one hash per
guess shows whether it is right. So private records are hashed with a secret key. The user's own key is in ``key_file()``. A
ledger has its own key beside its file (``workbench.ledger``), so that everybody who writes to it recognises the same
records. Two fingerprints still show whether two data sets are the same: keep them in your own notes, and do not publish
them.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from workbench import _folders, _validate
from workbench.data.dataset import Dataset
from workbench.data.schema import Schema

__all__ = ["fingerprint", "key_file", "make_key", "read_key", "secret_key"]

_KEY_BYTES = 32


def fingerprint(dataset: Dataset, key: bytes | None = None) -> str:
    """32 hexadecimal digits: the same for the same records, and almost surely different for others.

    These count: the arrays of training and evaluation records (values, types and shapes), their names, the names of
    features, target, classes and groups, the schema, and the features of the groups. Name, description and source do not
    count, and neither does which level of a category is the reference.

    Public records get BLAKE2b, which is the same everywhere. Private records get BLAKE2b with a secret key, which is the
    same for everybody who has the key.

    :param key: 32 bytes; None for ``secret_key()``.
    :raises ArgumentError: naming ``data``, for an array of Python objects; or ``key file``, if that is damaged.
    """
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
    }
    if dataset.vocabulary_size:  # data sets without one keep the fingerprints of early versions
        facts["vocabulary_size"] = dataset.vocabulary_size
    counts = () if dataset.units is None else (dataset.units.counts,)
    if dataset.units is not None:
        facts |= {"max_rows": dataset.units.max_rows, "unit_mean": dataset.units.mean}
    digest = hashlib.blake2b(digest_size=16, key=b"" if dataset.is_public else key or secret_key())
    group_features = () if dataset.group_features is None else (dataset.group_features,)
    digest.update(_headed(facts))
    for arrays in ((*dataset.train, *counts), dataset.evaluation, group_features):
        digest.update(_headed(len(arrays)))
        for array in map(np.asarray, arrays):
            if array.dtype.hasobject:
                raise _validate.ArgumentError("data", dataset.name, "holds an array of Python objects instead of numbers.")
            digest.update(_headed([array.dtype.newbyteorder("<").str, array.shape]))
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _columns(schema: Schema) -> dict[str, dict[str, object]]:
    """The columns as early versions declared them."""
    return {
        name: {fact: value for fact, value in column.items() if fact != "reference"}
        for name, column in schema.to_dict().items()
    }


def key_file() -> Path:
    """Where the user's secret key is kept: ``fingerprint.key`` in ``$WORKBENCH_STATE``, or in the default folder."""
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


def read_key(path: Path) -> bytes | None:
    """The 32 bytes in ``path``, None if there is no such file.

    :raises ArgumentError: naming ``key file``, if that is damaged. :raises OSError: if it cannot be read.
    """
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(key) != _KEY_BYTES:
        raise _validate.ArgumentError(
            "key file",
            str(path),
            f"holds {len(key)} bytes instead of {_KEY_BYTES}.",
            remedy="Restore it. Or delete it: a new key is made then, which does not recognise private records seen before.",
        )
    return key


def make_key(path: Path, key: bytes | None = None, mode: int = 0o600) -> bytes:
    """The key in ``path``, which is created if it is missing. Of several processes that create it at once, one succeeds.

    :param key: to keep there; None for a new one. :param mode: permissions of the file.
    :raises ArgumentError, OSError: as ``read_key``, and if it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(key or os.urandom(_KEY_BYTES))
        os.chmod(partial, mode)
        _folders.put_new(Path(partial), path)
    finally:
        Path(partial).unlink(missing_ok=True)
    found = read_key(path)
    if found is None:
        raise FileNotFoundError(f"{path} was deleted while it was created")
    return found


def _headed(facts: object) -> bytes:
    """JSON after its length, so that different sequences of facts give different bytes."""
    text = json.dumps(facts).encode()
    return len(text).to_bytes(8, "little") + text
