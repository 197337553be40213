"""Privacy in numbers: accounting, calibration, plans and guarantees.

The accountants import dp-accounting and SciPy, which the inference core must not need, so names load on first use.
"""

from __future__ import annotations

from typing import Any

from workbench import _lazy

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

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)
