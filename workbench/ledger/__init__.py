"""What all fits on a data set have spent together: a record that outlives processes, budgets, and what they add up to."""

from workbench.ledger.ledger import Ledger

__all__ = ["Ledger"]
