"""Many fits over a grid of settings, stepped together or on a cluster, kept in one file, with
tables and figures.
"""

from workbench.sweeps.result import SweepResult
from workbench.sweeps.sweeping import BudgetError, sweep

__all__ = ["BudgetError", "SweepResult", "sweep"]
