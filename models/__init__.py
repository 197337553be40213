"""The gallery, imported as ``workbench.gallery``: one file per model, to use by name or to copy.

``__all__`` lists the built-in models. The file ``NAME.py`` has a function ``NAME``, which returns
the ``Model``.
"""

__all__ = ["gmm", "hierarchical_logistic", "logistic", "neural_classifier", "vae"]
