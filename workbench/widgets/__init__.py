"""The ipywidgets layer: the only room that imports ipywidgets; it holds no mathematics."""

from workbench.widgets.app import Workbench

__all__ = ["Workbench"]
