"""Results of fits: posterior, guarantee and metrics; predictions, synthetic records, reports and
saved files.
"""

from workbench.results.fit_result import FitResult, HistoryPoint
from workbench.results.loading import load

__all__ = ["FitResult", "HistoryPoint", "load"]
