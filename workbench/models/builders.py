"""Functions that make models of what they are given, such as a formula, or for one kind of table.
``get`` knows them by name, and no list has them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from workbench.models.model import Model

__all__ = ["BUILDERS", "builder"]

BUILDERS = {
    "formula": "workbench.formula.model",
    "mixed_table": "workbench.models.joint_cells",
    "normal_table": "workbench.models.joint_normal",
}


def builder(name: str) -> Callable[..., Model]:
    """The function of that name, whose module is imported only now."""
    return getattr(importlib.import_module(BUILDERS[name]), name)
