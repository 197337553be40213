"""The gallery of models, imported as ``workbench.models``: one file a model, to use by name or to copy from."""

from workbench.models.logistic import logistic
from workbench.models.registry import Model, get, names, register

register("logistic", logistic)

__all__ = ["Model", "get", "logistic", "names", "register"]
