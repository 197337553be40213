"""Scores of predictions, shared by the models of the gallery."""

from __future__ import annotations

import numpy as np

__all__ = ["binary_scores"]


def binary_scores(target: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    """Area under the ROC curve and mean log-likelihood (nats per record) of predicted probabilities of class 1.

    AUC is left out where ``target`` holds one class only, for it is not defined there.
    """
    from sklearn.metrics import log_loss, roc_auc_score

    scores = {"log_likelihood": -float(log_loss(target, np.clip(probability, 1e-7, 1 - 1e-7), labels=[0, 1]))}
    if len(np.unique(target)) == 2:
        scores["auc"] = float(roc_auc_score(target, probability))
    return scores
