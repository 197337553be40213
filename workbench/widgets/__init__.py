"""The screens. Only this room and the screens of ``teaching`` import ipywidgets; it contains no
mathematics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench._lazy import named

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.widgets.ledger.screen import Ledger
    from workbench.widgets.owners.screen import Coordinator, Owner
    from workbench.widgets.sweep.screen import Sweep
    from workbench.widgets.workbench.screen import Workbench

_HOMES = {
    "Coordinator": "owners.screen",
    "Ledger": "ledger.screen",
    "Owner": "owners.screen",
    "Sweep": "sweep.screen",
    "Workbench": "workbench.screen",
}

__all__ = ["Coordinator", "Ledger", "Owner", "Sweep", "Workbench"]


def __getattr__(name: str) -> Any:
    return named("workbench.widgets", name, _HOMES)
