"""Packages and names that load at their first use: some take a large part of the time that a small
fit takes.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["dp_event", "named", "optimize", "pd"]


class _Package:
    """Stands for a package until an attribute of it is read, and passes that on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


def named(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """What a package's ``__getattr__`` returns for ``name``. :param homes: its names, and their
    modules in the package.
    """
    if name in homes:
        return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


if TYPE_CHECKING:
    import pandas as pd
    from dp_accounting import dp_event
    from scipy import optimize
else:
    pd, dp_event, optimize = map(_Package, ("pandas", "dp_accounting.dp_event", "scipy.optimize"))
