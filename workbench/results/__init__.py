"""Results of fits: posterior, guarantee, metrics; saving, loading and reports."""

from workbench.results.fit_result import FitResult, HistoryPoint
from workbench.results.storage import load

__all__ = ["FitResult", "HistoryPoint", "load"]
