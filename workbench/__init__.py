"""DP-VI workbench: differentially private Bayesian models, from a widget, a notebook, Python or the
shell.

Names load on first use, so ``import workbench`` starts no JAX and no plotting library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench import (
        clipping,
        data,
        inference,
        ledger,
        models,
        noise,
        owners,
        plots,
        posterior,
        privacy,
        releases,
        results,
        sampling,
        sklearn,
        sweeps,
        teaching,
        widgets,
    )
    from workbench._validate import ArgumentError
    from workbench.auditing import audit
    from workbench.clipping import PrivacyModelError
    from workbench.fitting.choosing import choose
    from workbench.fitting.cross_validation import cross_validate
    from workbench.fitting.evaluating import evaluate
    from workbench.fitting.fits import fit, prepare
    from workbench.fitting.groups import Execution, Privacy, Table, Training
    from workbench.fitting.look import look
    from workbench.fitting.resuming import forget, resume
    from workbench.releases import release, verify
    from workbench.results import FitResult, load
    from workbench.results.combining import combine
    from workbench.results.survival import survival
    from workbench.sweeps.sweeping import sweep

__version__ = "0.1.0"

_ROOMS = (
    *(
        "clipping",
        "data",
        "inference",
        "ledger",
        "models",
        "noise",
        "owners",
        "plots",
        "posterior",
        "privacy",
    ),
    *("releases", "results", "sampling", "sklearn", "sweeps", "teaching", "widgets"),
)
_NAMES = {
    "ArgumentError": "workbench._validate",
    "Execution": "workbench.fitting.groups",
    "FitResult": "workbench.results",
    "audit": "workbench.auditing",
    "choose": "workbench.fitting.choosing",
    "combine": "workbench.results.combining",
    "survival": "workbench.results.survival",
    "cross_validate": "workbench.fitting.cross_validation",
    "evaluate": "workbench.fitting.evaluating",
    "Privacy": "workbench.fitting.groups",
    "PrivacyModelError": "workbench.clipping",
    "Table": "workbench.fitting.groups",
    "Training": "workbench.fitting.groups",
    "fit": "workbench.fitting",
    "forget": "workbench.fitting.resuming",
    "load": "workbench.results",
    "look": "workbench.fitting.look",
    "prepare": "workbench.fitting",
    "release": "workbench.releases",
    "resume": "workbench.fitting.resuming",
    "sweep": "workbench.sweeps.sweeping",
    "verify": "workbench.releases",
}

__all__ = [*_ROOMS, *_NAMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"workbench.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
