"""What all fits on a data set have spent together: a file that outlives processes, caps, and
totals.
"""

from workbench.ledger.ledger import Ledger

__all__ = ["Ledger"]
