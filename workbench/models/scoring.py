"""Scores of predictions and checks of targets, shared by the models of the gallery."""

from __future__ import annotations

import numpy as np

from workbench import _validate
from workbench.data import Dataset

__all__ = ["binary_scores", "check_binary_target", "class_scores"]


def binary_scores(target: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    """Area under the ROC curve and mean log-likelihood (nats per record) of predicted probabilities
    of class 1.

    AUC is left out if ``target`` has one class only, because it is not defined then.

    >>> scores = wb.models.scoring.binary_scores(
    ...     np.array([0, 1, 1]), np.array([0.2, 0.9, 0.6])
    ... )
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'log_likelihood': -0.28, 'auc': 1.0}
    """
    target, probability = np.asarray(target), np.asarray(probability, np.float64)
    if (
        target.shape != probability.shape
        or not np.isin(target, (0, 1)).all()
        or not np.isfinite(probability).all()
    ):
        raise ValueError("scores need a 0 or a 1 and a finite probability for each record.")
    is_one = target == 1
    of_target = np.clip(np.where(is_one, probability, 1 - probability), 1e-7, 1 - 1e-7)
    scores = {"log_likelihood": float(np.mean(np.log(of_target)))}
    ones, zeros = np.sum(is_one), np.sum(~is_one)
    if ones and zeros:
        # the share of pairs of a 1 and a 0 that are in this order, ties by half: from ranks, which
        # ties share
        _, inverse, counts = np.unique(probability, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
        scores["auc"] = float((np.sum(ranks[is_one]) - ones * (ones + 1) / 2) / (ones * zeros))
    return scores


def class_scores(target: np.ndarray, probability: np.ndarray) -> dict[str, float]:
    """Accuracy, mean log-likelihood (nats per record) and, for two classes, AUC.

    >>> scores = wb.models.scoring.class_scores(
    ...     np.array([0, 1, 1]), np.array([0.2, 0.9, 0.4])
    ... )
    >>> {name: round(score, 3) for name, score in scores.items()}
    {'accuracy': 0.667, 'log_likelihood': -0.415, 'auc': 1.0}

    :param target: classes, int[B].
    :param probability: of class 1, float[B], or of each class, float[B, K].
    """
    target = np.asarray(target)
    if probability.ndim == 1:
        return {
            "accuracy": float(np.mean((probability > 0.5) == target)),
            **binary_scores(target, probability),
        }
    of_target = np.take_along_axis(np.asarray(probability, np.float64), target[:, None], axis=1)
    return {
        "accuracy": float(np.mean(np.argmax(probability, axis=1) == target)),
        "log_likelihood": float(np.mean(np.log(np.clip(of_target, 1e-7, 1)))),
    }


def check_binary_target(dataset: Dataset) -> None:
    """Check that the target of ``dataset``, its last array, has two classes, 0 and 1.

    >>> wb.models.scoring.check_binary_target(wb.data.load("breast_cancer"))

    :raises ArgumentError: naming ``data``, with the classes if there are not two.
    """
    classes = tuple(dataset.classes)
    if len(classes) != 2:
        shown = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        actual = f"{len(classes)}: {shown}" if classes else "none"
        raise _validate.ArgumentError(
            "data", dataset.name, f"must have a target of two classes; there are {actual}."
        )
