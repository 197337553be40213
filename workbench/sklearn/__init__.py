"""Private estimators that keep scikit-learn's conventions, for its pipelines, searches and scores.

``import sklearn`` is still scikit-learn, which loads with the first estimator.
"""

from __future__ import annotations

import importlib

_HOMES = {"PrivateClassifier": "classifier", "PrivateClusterer": "clusterer", "PrivateRegressor": "regressor"}

__all__ = ["PrivateClassifier", "PrivateClusterer", "PrivateRegressor"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"workbench.sklearn.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
