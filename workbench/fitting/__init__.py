"""One fit from request to result: settings, run, checkpoints and what it spends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import _lazy

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.fitting.fits import DeltaWarning, fit, prepare
    from workbench.fitting.prepared import PreparedFit
    from workbench.fitting.scoring import ScoreWarning

_HOMES = {
    "DeltaWarning": "fits",
    "PreparedFit": "prepared",
    "ScoreWarning": "scoring",
    "fit": "fits",
    "prepare": "fits",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)
