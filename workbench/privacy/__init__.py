"""Privacy in numbers: accounting, calibration, plans and guarantees.

The accountants import dp-accounting and SciPy, which the inference core must not need, so names load on first use.
"""

from __future__ import annotations

import importlib

_HOMES = {
    "compare": "comparison",
    "delta": "accounting",
    "epsilon": "accounting",
    "epsilon_curve": "accounting",
    "GradientNorms": "gradient_norms",
    "Guarantee": "guarantee",
    "max_sampling_rate": "calibration",
    "max_steps": "calibration",
    "noise_multiplier": "calibration",
    "Outlook": "outlook",
    "trade_off": "accounting",
}

__all__ = [
    "GradientNorms",
    "Guarantee",
    "Outlook",
    "compare",
    "delta",
    "epsilon",
    "epsilon_curve",
    "max_sampling_rate",
    "max_steps",
    "noise_multiplier",
    "trade_off",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"workbench.privacy.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
