"""One fit from request to result: settings, run, checkpoints and what it spends."""

from __future__ import annotations

import importlib

_HOMES = {"DeltaWarning": "fits", "PreparedFit": "prepared", "fit": "fits", "prepare": "fits"}

__all__ = ["DeltaWarning", "PreparedFit", "fit", "prepare"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"workbench.fitting.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
