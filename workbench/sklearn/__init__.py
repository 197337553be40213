"""Private estimators that keep scikit-learn's conventions, for its pipelines, searches and scores.

``import sklearn`` is still scikit-learn, which loads with the first estimator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench import _lazy

if TYPE_CHECKING:  # what __getattr__ returns, for editors and type checkers
    from workbench.sklearn.classifier import PrivateClassifier
    from workbench.sklearn.clusterer import PrivateClusterer
    from workbench.sklearn.regressor import PrivateRegressor
    from workbench.sklearn.search import PrivateSearchCV

_HOMES = {
    "PrivateClassifier": "classifier",
    "PrivateClusterer": "clusterer",
    "PrivateRegressor": "regressor",
    "PrivateSearchCV": "search",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    return _lazy.named(__name__, name, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
