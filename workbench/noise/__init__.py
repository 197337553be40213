"""Secure randomness: keys from the operating system, normal draws with full tails, and the Gaussian
mechanism on top.
"""

from workbench.noise.chacha20 import is_secret, key_from_bytes, key_from_seed, new_key
from workbench.noise.mechanism import GaussianMechanism
from workbench.noise.normals import normal

__all__ = [
    "GaussianMechanism",
    "is_secret",
    "key_from_bytes",
    "key_from_seed",
    "new_key",
    "normal",
]
