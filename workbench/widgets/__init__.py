"""The screens. Only this room and the screens of ``teaching`` import ipywidgets; it contains no mathematics."""

from workbench.widgets.ledger.screen import Ledger
from workbench.widgets.sweep.screen import Sweep
from workbench.widgets.workbench.screen import Workbench

__all__ = ["Ledger", "Sweep", "Workbench"]
