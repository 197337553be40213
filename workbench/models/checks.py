"""Checks of a model's options.

Each function returns the checked value, or raises ``workbench.ArgumentError``, which names the
option and its value.
"""

from workbench._validate import choice, flag, integer, number

__all__ = ["choice", "flag", "integer", "number"]
