"""The ipywidgets layer: the only room that imports ipywidgets; it holds no mathematics."""

from workbench.widgets import teaching
from workbench.widgets.app import Workbench
from workbench.widgets.ledger import Ledger
from workbench.widgets.sweep import Sweep

__all__ = ["Ledger", "Sweep", "Workbench", "teaching"]
