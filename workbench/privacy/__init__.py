"""What is promised and how it is computed: accounting, calibration, noise and randomness.

The accountants import dp-accounting (and SciPy), which the inference core must do without, so names load on first use.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "delta": "accounting",
    "epsilon": "accounting",
    "Guarantee": "guarantee",
    "noise_multiplier": "calibration",
    "GaussianMechanism": "mechanism",
}

__all__ = ["GaussianMechanism", "Guarantee", "delta", "epsilon", "noise_multiplier"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"workbench.privacy.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
