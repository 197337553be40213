"""Many fits over a grid of settings: what to run, together or on a cluster, kept in one file, as a table and figures."""

from workbench.sweeps.result import SweepResult
from workbench.sweeps.sweeping import BudgetError, sweep

__all__ = ["BudgetError", "SweepResult", "sweep"]
