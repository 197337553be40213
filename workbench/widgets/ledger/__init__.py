"""The ledger screen, and the strip that shows the ledger beside a fit."""
