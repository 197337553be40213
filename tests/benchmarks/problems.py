"""The data of the benchmark problems, from fixed seeds, so that every contender sees the same
records.

Needs numpy only: the workbench and its peers, which pin other releases of jax in environments of
their own, all import it.
"""

from typing import NamedTuple

import numpy as np

__all__ = [
    "NUM_FEATURES",
    "NUM_TOKENS",
    "RECORDS",
    "VOCABULARY",
    "HierarchicalData",
    "Labelled",
    "LogisticData",
    "hierarchical_data",
    "logistic_data",
    "vae_images",
]

NUM_PIXELS = 784
INK = 0.13  # about the share of MNIST's pixels that are on


class HierarchicalData(NamedTuple):
    """Records of several groups, and what is publicly known of the groups."""

    x: np.ndarray  # float32[N, D]
    group: np.ndarray  # int32[N], in 0 .. L - 1
    y: np.ndarray  # int32[N], 0 or 1
    group_features: np.ndarray  # float32[L, K], public


class LogisticData(NamedTuple):
    """Features and a binary target."""

    x: np.ndarray  # float32[N, D]
    y: np.ndarray  # int32[N], 0 or 1


def vae_images(num_records: int = 60_000, seed: int = 0) -> np.ndarray:
    """Random black and white images, float32[N, 784], of MNIST's size and average ink.

    Enough to time a step, whose cost does not depend on what the images show; useless for comparing
    losses.
    """
    rng = np.random.default_rng(seed)
    return (rng.random((num_records, NUM_PIXELS), dtype=np.float32) < INK).astype(np.float32)


def hierarchical_data(
    num_records: int = 500,
    num_features: int = 5,
    num_groups: int = 3,
    num_group_features: int = 3,
    seed: int = 0,
) -> HierarchicalData:
    """Draws of the hierarchical logistic model: M ~ Normal(0, 4), w_l ~ Normal(M g_l, 1), y ~
    Bernoulli(sigmoid(w_l . x)).

    The public group features g_l and the features x are standard normal; groups are equally likely.
    """
    rng = np.random.default_rng(seed)
    mixing = 4 * rng.normal(size=(num_features, num_group_features))
    group_features = rng.normal(size=(num_groups, num_group_features))
    weights = group_features @ mixing.T + rng.normal(size=(num_groups, num_features))
    group = rng.integers(0, num_groups, num_records)
    x = rng.normal(size=(num_records, num_features))
    y = _coin_flips(rng, (x * weights[group]).sum(-1))
    return HierarchicalData(
        x.astype(np.float32), group.astype(np.int32), y, group_features.astype(np.float32)
    )


def logistic_data(num_records: int = 10_000, num_features: int = 50, seed: int = 0) -> LogisticData:
    """Standard normal features, standard normal true weights, and a target drawn from the logistic
    model.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_records, num_features))
    return LogisticData(x.astype(np.float32), _coin_flips(rng, x @ rng.normal(size=num_features)))


def _coin_flips(rng, logits):
    """One 0 or 1 for each logit."""
    return (rng.uniform(size=logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.int32)


# --- records of the networks ----------------------------------------------------------------------

NUM_FEATURES = 104  # Adult with its categories as columns of 0 and 1
# IMDb as Subramani et al. have it: 10 000 words and four marks, 256 a review
VOCABULARY, NUM_TOKENS = (10_004, 256)


class Labelled(NamedTuple):
    """What a network sees, and the class that it should say."""

    x: np.ndarray
    y: np.ndarray  # int32[N]


def tabular_records(num_records: int, seed: int = 0) -> Labelled:
    """Rows of 0 and 1 of Adult's width, float32[N, 104], two classes."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, (num_records, NUM_FEATURES))
    return Labelled(x.astype(np.float32), _classes(rng, num_records, 2))


def gray_records(num_records: int, seed: int = 0) -> Labelled:
    """Random images of MNIST's size, float32[N, 28, 28], ten classes."""
    rng = np.random.default_rng(seed)
    return Labelled(
        rng.random((num_records, 28, 28), dtype=np.float32), _classes(rng, num_records, 10)
    )


def colour_records(num_records: int, seed: int = 0) -> Labelled:
    """Random images of CIFAR-10's size, float32[N, 32, 32, 3], ten classes."""
    rng = np.random.default_rng(seed)
    return Labelled(
        rng.random((num_records, 32, 32, 3), dtype=np.float32), _classes(rng, num_records, 10)
    )


def text_records(num_records: int, seed: int = 0) -> Labelled:
    """Random words, int32[N, 256], two classes."""
    rng = np.random.default_rng(seed)
    return Labelled(
        rng.integers(0, VOCABULARY, (num_records, NUM_TOKENS), np.int32),
        _classes(rng, num_records, 2),
    )


def _classes(rng, num_records, number):
    return rng.integers(0, number, num_records, np.int32)


# by the names that the networks have here and at the peers
RECORDS = {
    "fcnn": tabular_records,
    "mnist_cnn": gray_records,
    "cifar_cnn": colour_records,
    "imdb_lstm": text_records,
    "embedding": text_records,
    "mlp": gray_records,
    "row_rnn": gray_records,
    "row_lstm": gray_records,
    "transformer": text_records,
}
