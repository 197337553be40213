"""What a ``Model`` is, and models by name: those of the gallery, the user's own, and those of installed packages."""

from workbench.models.model import Model
from workbench.models.options import Option
from workbench.models.registry import from_file, get, names, options, origin, register

from workbench.gallery import gmm, hierarchical_logistic, logistic, neural_classifier, vae  # isort: skip - they use the above

__all__ = [
    "Model",
    "Option",
    "from_file",
    "get",
    "gmm",
    "hierarchical_logistic",
    "logistic",
    "names",
    "neural_classifier",
    "options",
    "origin",
    "register",
    "vae",
]
