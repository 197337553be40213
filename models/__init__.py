"""The gallery of models, imported as ``workbench.models``: one file a model, to use by name or to copy from."""

from workbench.models.gmm import gmm
from workbench.models.hierarchical_logistic import hierarchical_logistic
from workbench.models.logistic import logistic
from workbench.models.model import Model
from workbench.models.neural_classifier import neural_classifier
from workbench.models.options import Option
from workbench.models.registry import add_built_in, from_file, get, names, options, origin, register
from workbench.models.vae import vae

for _factory in (logistic, hierarchical_logistic, gmm, vae, neural_classifier):
    add_built_in(_factory.__name__, _factory)

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
