"""The gallery of models, imported as ``workbench.models``: one file a model, to use by name or to copy from."""

from workbench.models.logistic import logistic
from workbench.models.model import Model
from workbench.models.registry import add_built_in, from_file, get, names, origin, register

add_built_in("logistic", logistic)

__all__ = ["Model", "from_file", "get", "logistic", "names", "origin", "register"]
