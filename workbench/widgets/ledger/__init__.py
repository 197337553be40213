"""The ledger screen, and the panel that shows the ledger beside a fit."""
