"""The signature of a released folder: Ed25519, over the manifest, which has the digests of all
other files.

The key is made at its first use and kept in the user's folder of application data. Who loses it
loses no release: a new key signs the next ones. A signature says who made the folder, and nothing
about what is in it.
"""

from __future__ import annotations

import json
from typing import Any

from workbench import _folders
from workbench._keys import make_key, read_key
from workbench._validate import ArgumentError

__all__ = ["SIGNATURE", "is_signed_by", "private_key", "sign"]

SIGNATURE = "signature.json"


def private_key() -> Any:
    """The user's Ed25519 key, which is made if there is none.

    :raises ArgumentError: naming ``sign``, without the package cryptography or a usable key.
    """
    ed25519 = _ed25519()
    if ed25519 is None:
        raise ArgumentError("sign", True, "needs a package: pip install cryptography.")
    path = _folders.state() / "releases.key"
    try:
        return ed25519.Ed25519PrivateKey.from_private_bytes(read_key(path) or make_key(path))
    except OSError as error:
        reason = f"its key, {path}, cannot be used ({error.strerror})."
        raise ArgumentError("sign", True, reason) from None


def sign(key: Any, manifest: bytes) -> bytes:
    """The content of ``signature.json``. :param key: as ``private_key`` returns it."""
    public = key.public_key().public_bytes_raw().hex()
    signature = {"format": 1, "key": public, "signature": key.sign(manifest).hex()}
    return (json.dumps(signature) + "\n").encode()


def is_signed_by(key: str, signature: str, manifest: bytes) -> bool | None:
    """Whether a signature is right; None without the package cryptography.

    :param key: the public key, and ``signature``, in hexadecimal digits.
    """
    ed25519 = _ed25519()
    if ed25519 is None:
        return None
    from cryptography.exceptions import InvalidSignature

    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        return None
    return ed25519
