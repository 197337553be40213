"""One fit from request to result: settings, run, checkpoints and what it spends."""

from __future__ import annotations

from typing import Any

from workbench import _lazy

_HOMES = {"DeltaWarning": "fits", "PreparedFit": "prepared", "fit": "fits", "prepare": "fits"}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)
