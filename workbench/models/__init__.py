"""What a ``Model`` is, and models by name: those of the gallery, the user's own, and those of
installed packages.

A file of a model also finds here what the gallery uses: ``checks`` of options, ``guides``,
``scoring`` of predictions, ``pictures`` of results and ``networks``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from workbench.models.builders import BUILDERS, builder
from workbench.models.clip_rule import clip_share
from workbench.models.files import from_file
from workbench.models.model import LinearPredictor, Model, NormalResiduals, OwnUnits
from workbench.models.options import Option
from workbench.models.registry import BUILT_IN, get, names, options, origin, register

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.formula.model import formula
    from workbench.gallery.gmm import gmm
    from workbench.gallery.hierarchical_logistic import hierarchical_logistic
    from workbench.gallery.logistic import logistic
    from workbench.gallery.neural_classifier import neural_classifier
    from workbench.gallery.vae import vae
    from workbench.models import checks, guides, networks, pictures, scoring
    from workbench.models.joint_cells import mixed_table
    from workbench.models.joint_normal import normal_table

_MODULES = ("checks", "guides", "networks", "pictures", "scoring")

__all__ = [
    "LinearPredictor",
    "Model",
    "NormalResiduals",
    "Option",
    "OwnUnits",
    "clip_share",
    "from_file",
    "get",
    "names",
    "options",
    "origin",
    "register",
    *_MODULES,
    *BUILDERS,
    *BUILT_IN,
]


def __getattr__(name: str) -> Any:
    """The modules and the factories of the built-in models, which load on first use."""
    if name in _MODULES:
        return importlib.import_module(f"workbench.models.{name}")
    if name in BUILDERS:
        return builder(name)
    if name in BUILT_IN:
        return getattr(importlib.import_module(f"workbench.gallery.{name}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
