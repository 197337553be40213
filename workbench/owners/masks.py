"""Keys of owners, and the masks that hide a sum and cancel in the total.

Two owners agree on a key by X25519 and HKDF-SHA256, which binds it to the plan and to the public
keys of all owners. Its ChaCha20 stream is added to the sum of the first and taken off that of the
second, modulo 2^32: in each round the part of the stream with the number of the round. A key makes
the masks of one plan and is then thrown away.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from workbench import _schema
from workbench._validate import ArgumentError
from workbench.noise.chacha20 import key_from_bytes, stream
from workbench.owners import files
from workbench.owners.planning import Plan, as_plan

__all__ = [
    "KEY_FORM",
    "Masks",
    "code",
    "digest_of_keys",
    "keys_of_all",
    "public_key",
    "require_cryptography",
]

KEY_FORM = _schema.record(
    {"plan": _schema.text(), "owner": _schema.text(), "public_key": _schema.text()}
)
_PURPOSE = b"dpvi-workbench masks of owners, one stream a round, version 2"


def require_cryptography() -> Any:
    """The module of X25519. :raises ArgumentError: naming ``owners``, without the package."""
    try:
        return importlib.import_module("cryptography.hazmat.primitives.asymmetric.x25519")
    except ImportError:
        raise ArgumentError(
            "owners", None, "need a package for their keys: pip install cryptography."
        ) from None


def public_key(secret: bytes) -> bytes:
    """The public key, 32 bytes, of a secret of 32 bytes."""
    private = require_cryptography().X25519PrivateKey.from_private_bytes(secret)
    return bytes(private.public_key().public_bytes_raw())


def keys_of_all(plan: Plan, paths: Iterable[str | Path]) -> list[bytes]:
    """The public keys of all owners, in their order, from the files that ``make_key`` wrote.

    :raises ArgumentError: naming ``keys``, for a file of another plan or of nobody, two of one
        owner, one key for two owners, or an owner whose file is missing.
    """
    by_owner: dict[str, bytes] = {}
    for path in paths:
        content = files.read("keys", path, "key", KEY_FORM)
        plan.require_of("keys", path, content)
        try:
            key = bytes.fromhex(content["public_key"])
        except ValueError:
            key = b""
        if len(key) != 32:
            raise ArgumentError("keys", str(path), "is damaged: a key has 64 hexadecimal digits.")
        if content["owner"] in by_owner:
            reason = f"is a second key of {content['owner']}: agree on one."
            raise ArgumentError("keys", str(path), reason)
        if key in by_owner.values():
            raise ArgumentError("keys", str(path), "has the key of another owner.")
        by_owner[content["owner"]] = key
    plan.require_all("keys", by_owner, "its public key")
    return [by_owner[owner] for owner in plan.owners]


def digest_of_keys(plan: Plan, keys: Sequence[bytes]) -> str:
    """SHA-256 of the plan and of the public keys of all owners."""
    return hashlib.sha256(b"".join([bytes.fromhex(plan.digest), *keys])).hexdigest()


def code(plan: Plan | str | Path, keys: Iterable[str | Path]) -> str:
    """Eight groups of four digits that follow from the plan and all public keys.

    Owners who read them to each other, say on the telephone, know that they have the same plan and
    that nobody exchanged a key on its way.

    :param plan: or its file. :param keys: files of all owners' public keys.
    :raises ArgumentError: naming ``plan`` or ``keys``.
    """
    agreed = as_plan(plan)
    digits = digest_of_keys(agreed, keys_of_all(agreed, keys))
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


_stream = jax.jit(stream, static_argnums=2)


class Masks(NamedTuple):
    """What an owner adds to its sums; over all owners it adds up to 0 modulo 2^32 in each round.

    :param position: of the owner. :param streams: the keys of the streams that it has in common
        with each other owner and nobody else knows, by the place of that owner.
    """

    position: int
    streams: Mapping[int, jax.Array]

    @classmethod
    def of(cls, plan: Plan, secret: bytes, keys: Sequence[bytes], position: int) -> Masks:
        """Those of an owner.

        :param secret: of the owner. :param keys: public ones of all.
        :raises ArgumentError: naming ``keys``, for one that is no point of the curve's main group.
        """
        others = (partner for partner in range(len(keys)) if partner != position)
        return cls(
            position,
            {partner: _of_pair(plan, secret, keys, position, partner) for partner in others},
        )

    def at(self, number: int, size: int) -> np.ndarray:
        """The mask of round ``number`` (from 0), uint32[size]."""
        total = np.zeros(size, np.uint32)
        for partner, key in self.streams.items():
            words = np.asarray(_stream(key, np.int32(number), size), np.uint32)
            total = total + words if self.position < partner else total - words
        return total


def _of_pair(
    plan: Plan, secret: bytes, keys: Sequence[bytes], position: int, partner: int
) -> jax.Array:
    x25519 = require_cryptography()
    hashes = importlib.import_module("cryptography.hazmat.primitives.hashes")
    hkdf = importlib.import_module("cryptography.hazmat.primitives.kdf.hkdf")
    try:
        of_other = x25519.X25519PublicKey.from_public_bytes(keys[partner])
        shared = x25519.X25519PrivateKey.from_private_bytes(secret).exchange(of_other)
    except ValueError:
        reason = f"of {plan.owners[partner]} is no key: ask for another."
        raise ArgumentError("keys", keys[partner].hex(), reason) from None
    pair = [bytes([index]) + keys[index] for index in sorted((position, partner))]
    bound = b"".join([_PURPOSE, bytes.fromhex(digest_of_keys(plan, keys)), *pair])
    derive = hkdf.HKDF(hashes.SHA256(), 32, bytes.fromhex(plan.digest), bound).derive
    return key_from_bytes(derive(shared))
