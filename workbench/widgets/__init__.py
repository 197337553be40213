"""The ipywidgets layer: the only room that imports ipywidgets; it holds no mathematics."""

from typing import Any

__all__ = ["Workbench"]


def __getattr__(name: str) -> Any:
    if name == "Workbench":
        from workbench.widgets.app import Workbench

        return Workbench
    raise AttributeError(name)
