"""The gallery, imported as ``workbench.gallery``: one file a model, to use by name or to copy from."""

from workbench.gallery.gmm import gmm
from workbench.gallery.hierarchical_logistic import hierarchical_logistic
from workbench.gallery.logistic import logistic
from workbench.gallery.neural_classifier import neural_classifier
from workbench.gallery.vae import vae

from workbench.models.registry import add_built_in

for _factory in (logistic, hierarchical_logistic, gmm, vae, neural_classifier):
    add_built_in(_factory.__name__, _factory)

__all__ = ["gmm", "hierarchical_logistic", "logistic", "neural_classifier", "vae"]
