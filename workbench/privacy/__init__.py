"""Privacy in numbers: accounting, calibration, plans and guarantees.

The accountants import dp-accounting and SciPy, which the inference core must not need, so names
load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import _lazy

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.privacy.accounting import delta, epsilon, epsilon_curve, trade_off
    from workbench.privacy.calibration import max_sampling_rate, max_steps, noise_multiplier
    from workbench.privacy.comparison import compare
    from workbench.privacy.gradient_norms import GradientNorms
    from workbench.privacy.guarantee import Guarantee
    from workbench.privacy.outlook import Outlook

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
