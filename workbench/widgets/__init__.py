"""The ipywidgets layer: the only room that imports ipywidgets; it holds no mathematics."""

from workbench.widgets.ledger.screen import Ledger
from workbench.widgets.sweep.screen import Sweep
from workbench.widgets.workbench.screen import Workbench

__all__ = ["Ledger", "Sweep", "Workbench"]
