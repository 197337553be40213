"""Fingerprints: short texts by which the same records are known again.

A plain hash of private records would let anyone who holds it test guesses about a record: with the others known, one hash a
guess tells whether it is right. So private records are hashed with a secret key, which stays on the user's machine. Two
fingerprints still tell whether two data sets are the same: keep them with one's own notes, out of what is published.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from workbench import _folders, _validate
from workbench.data.dataset import Dataset

__all__ = ["fingerprint", "key_file", "secret_key"]

_KEY_BYTES = 32


def fingerprint(dataset: Dataset) -> str:
    """32 hexadecimal digits that are the same for the same records, and for others differ all but surely.

    What counts: the arrays of training and evaluation records (values, types and shapes), their names, those of features,
    target, classes and groups, the schema, and the features of the groups. Name, description and source do not count.

    Of records that ``is_public`` it is BLAKE2b, the same everywhere. Of others it is BLAKE2b with a secret key that is made
    once and kept in ``key_file()``: the same for this user on this machine alone.

    :raises ArgumentError: naming ``data``, for an array of Python objects; or ``key file``, if that is damaged.
    """
    facts: dict[str, object] = {
        "arrays": dataset.arrays,
        "feature_names": dataset.feature_names,
        "target_name": dataset.target_name,
        "classes": dataset.classes,
        "schema": None if dataset.schema is None else list(dataset.schema.to_dict().items()),
        "group_name": dataset.group_name,
        "groups": dataset.groups,
        "group_feature_names": dataset.group_feature_names,
        "image_shape": dataset.image_shape,
    }
    if dataset.vocabulary_size:  # others keep the fingerprints that they have had
        facts["vocabulary_size"] = dataset.vocabulary_size
    digest = hashlib.blake2b(digest_size=16, key=b"" if dataset.is_public else secret_key())
    group_features = () if dataset.group_features is None else (dataset.group_features,)
    digest.update(_headed(facts))
    for arrays in (dataset.train, dataset.evaluation, group_features):
        digest.update(_headed(len(arrays)))
        for array in map(np.asarray, arrays):
            if array.dtype.hasobject:
                raise _validate.ArgumentError("data", dataset.name, "holds an array of Python objects, not of numbers.")
            digest.update(_headed([array.dtype.newbyteorder("<").str, array.shape]))
            digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def key_file() -> Path:
    """Where the secret key is kept: ``fingerprint.key`` in the folder ``$WORKBENCH_STATE``, or in the user's own."""
    return _folders.state() / "fingerprint.key"


def secret_key() -> bytes:
    """The 32 bytes in ``key_file()``, made where there are none.

    :raises ArgumentError: naming ``key file``, if that is damaged.
    """
    return _secret(key_file())


def _headed(facts: object) -> bytes:
    """JSON after its length, so that no two sequences of facts make the same bytes."""
    text = json.dumps(facts).encode()
    return len(text).to_bytes(8, "little") + text


def _secret(path: Path) -> bytes:
    """The 32 bytes in ``path``, made where there are none; of several that make them at once, the first succeeds."""
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=path.parent)  # readable by the user alone, and so is the link to it
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(os.urandom(_KEY_BYTES))
            with contextlib.suppress(FileExistsError):
                os.link(partial, path)  # whole or not at all, and never over another
        finally:
            os.unlink(partial)
    key = path.read_bytes()
    if len(key) != _KEY_BYTES:
        raise _validate.ArgumentError(
            "key file",
            str(path),
            f"holds {len(key)} bytes in the place of {_KEY_BYTES}; restore it, or delete it to have another made, by which "
            "private records seen before will not be known again.",
        )
    return key
