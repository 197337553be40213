"""Clipped sums of per-record gradients of any JAX loss, with JAX alone."""

from workbench.clipping.clipped_sums import clipped_sum
from workbench.clipping.separation import PrivacyModelError

__all__ = ["PrivacyModelError", "clipped_sum"]
