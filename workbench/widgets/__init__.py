"""The screens. Only this room and the screens of ``teaching`` import ipywidgets; it contains no mathematics."""

from __future__ import annotations

from typing import Any

from workbench._lazy import named

_HOMES = {"Ledger": "ledger.screen", "Sweep": "sweep.screen", "Workbench": "workbench.screen"}

__all__ = ["Ledger", "Sweep", "Workbench"]


def __getattr__(name: str) -> Any:
    return named("workbench.widgets", name, _HOMES)
