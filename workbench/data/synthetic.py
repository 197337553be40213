"""Made-up records of known models, from public seeds. They belong to nobody, so everything about
them is public.

No array may have more than 10**8 numbers, training and evaluation records together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench import _validate
from workbench.data.dataset import Dataset

__all__ = ["hierarchical", "mixture", "tokens"]

# of one array; it is made in float64, together with one or two more of that size
_MOST_NUMBERS = 10**8


def hierarchical(
    num_records: int = 500,
    num_features: int = 5,
    num_groups: int = 3,
    num_group_features: int = 3,
    num_evaluation: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Draws of the hierarchical logistic model: arrays x float32[N, D], group int32[N] and y
    int32[N].

    M ~ Normal(0, 4) of shape [D, K], group features g_l ~ Normal(0, 1), weights w_l ~ Normal(M g_l,
    1), groups equally likely, x ~ Normal(0, 1), y ~ Bernoulli(sigmoid(w_l . x)). Features are not
    scaled.

    >>> data = wb.data.hierarchical(num_records=100, num_groups=5)
    >>> data.groups
    ('group 1', 'group 2', 'group 3', 'group 4', 'group 5')

    :param num_records: N >= 2 training records.
    :param num_features: D.
    :param num_groups: L.
    :param num_group_features: K.
    :param num_evaluation: number of evaluation records, by default as many as there are training
        records.
    :param seed: of the generator, >= 0.
    """
    num_records = _validate.integer("num_records", num_records, at_least=2)
    num_features = _validate.integer("num_features", num_features, at_least=1)
    num_groups = _validate.integer("num_groups", num_groups, at_least=1)
    num_group_features = _validate.integer("num_group_features", num_group_features, at_least=1)
    num_evaluation = _evaluation_records(num_evaluation, num_records)
    _check_size("num_features", num_features, num_features, num_group_features)
    _check_size("num_groups", num_groups, num_groups, max(num_features, num_group_features))
    _check_size("num_records", num_records, num_records + num_evaluation, num_features)
    rng = np.random.default_rng(_validate.seed("seed", seed))
    effects = rng.normal(0, 4, (num_features, num_group_features))
    group_features = rng.normal(size=(num_groups, num_group_features))
    weights = group_features @ effects.T + rng.normal(size=(num_groups, num_features))
    total = num_records + num_evaluation
    group = rng.integers(0, num_groups, total)
    x = rng.normal(size=(total, num_features))
    # the sigmoid, without overflow
    probability = 0.5 * (1 + np.tanh(0.5 * np.sum(x * weights[group], axis=-1)))
    y = rng.random(total) < probability
    arrays = (x.astype(np.float32), group.astype(np.int32), y.astype(np.int32))
    return _made_up(
        "hierarchical",
        arrays,
        num_records,
        description=f"Made-up records in {num_groups} groups, from the hierarchical "
        "logistic model.",
        feature_names=tuple(f"x{number + 1}" for number in range(num_features)),
        target_name="y",
        classes=("0", "1"),
        arrays=("x", "group", "y"),
        group_name="group",
        groups=tuple(f"group {number + 1}" for number in range(num_groups)),
        group_features=group_features.astype(np.float32),
        group_feature_names=tuple(f"g{number + 1}" for number in range(num_group_features)),
    )


def mixture(num_records: int = 2000, num_evaluation: int = 100, seed: int = 0) -> Dataset:
    """Points of five spherical clusters in the plane: array x float32[N, 2].

    Centres (0, 0) and (+-2, +-2), covariance 0.5 I, equal weights. Points are not scaled.

    >>> wb.data.mixture(num_records=100).train[0].shape
    (100, 2)

    :param num_records: N >= 2 training records.
    :param num_evaluation: number of evaluation records.
    :param seed: of the generator, >= 0.
    """
    num_records = _validate.integer("num_records", num_records, at_least=2)
    total = num_records + _evaluation_records(num_evaluation, num_records)
    _check_size("num_records", num_records, total, 2)
    rng = np.random.default_rng(_validate.seed("seed", seed))
    centres = np.array([(0, 0), (2, 2), (2, -2), (-2, 2), (-2, -2)], float)
    x = centres[rng.integers(0, len(centres), total)] + rng.normal(0, np.sqrt(0.5), (total, 2))
    return _made_up(
        "mixture",
        (x.astype(np.float32),),
        num_records,
        description="Points of five round clusters in the plane.",
        feature_names=("x1", "x2"),
        arrays=("x",),
    )


def tokens(
    num_records: int = 4000,
    length: int = 32,
    vocabulary_size: int = 12,
    num_classes: int = 3,
    num_evaluation: int = 1000,
    seed: int = 0,
) -> Dataset:
    """Token sequences whose class shows in which tokens follow which: arrays x int32[N, T] and y
    int32[N].

    Classes 1 .. K are equally likely. In class k a token is, with chance 0.5, the one before it
    plus k (mod V), else any. Every token is equally frequent in all classes, so counting tokens
    does not help.

    >>> data = wb.data.tokens(num_records=100, length=16)
    >>> data.train[0].shape, data.vocabulary_size
    ((100, 16), 12)

    :param num_records: N >= 2 training records.
    :param length: T >= 2 tokens in a sequence.
    :param vocabulary_size: V, more than K.
    :param num_classes: K >= 2.
    :param num_evaluation: number of evaluation records.
    :param seed: of the generator, >= 0.
    """
    num_records = _validate.integer("num_records", num_records, at_least=2)
    length = _validate.integer("length", length, at_least=2)
    num_classes = _validate.integer("num_classes", num_classes, at_least=2)
    _check_size("num_classes", num_classes, num_classes)
    vocabulary_size = _validate.integer(
        "vocabulary_size", vocabulary_size, at_least=num_classes + 1, at_most=np.iinfo(np.int32).max
    )
    total = num_records + _evaluation_records(num_evaluation, num_records)
    _check_size("num_records", num_records, total, length)
    rng = np.random.default_rng(_validate.seed("seed", seed))
    y = rng.integers(0, num_classes, total)
    x = rng.integers(0, vocabulary_size, (total, length))
    follows = rng.random((total, length)) < 0.5
    for position in range(1, length):
        successor = (x[:, position - 1] + y + 1) % vocabulary_size
        x[:, position] = np.where(follows[:, position], successor, x[:, position])
    arrays = (x.astype(np.int32), y.astype(np.int32))
    return _made_up(
        "tokens",
        arrays,
        num_records,
        description=f"Made-up sequences of {length} tokens; {num_classes} classes differ in which "
        "tokens follow which.",
        feature_names=tuple(f"token {position + 1}" for position in range(length)),
        target_name="class",
        classes=tuple(f"step {number + 1}" for number in range(num_classes)),
        vocabulary_size=vocabulary_size,
    )


def _made_up(name: str, records: tuple[np.ndarray, ...], num_records: int, **facts: Any) -> Dataset:
    """The data set of these records, of which the first ``num_records`` are for training."""
    return Dataset(
        name=name,
        train=tuple(array[:num_records] for array in records),
        evaluation=tuple(array[num_records:] for array in records),
        unit="synthetic record",
        evaluation_is_public=True,
        is_public=True,
        licence="CC0: synthetic",
        source=f"generated by workbench.data.{name}",
        **facts,
    )


def _check_size(argument: str, value: int, count: int, width: int = 1) -> None:
    """Check that an array of count x width numbers fits into the memory of most machines."""
    if count * width > _MOST_NUMBERS:
        raise _validate.ArgumentError(
            argument,
            value,
            f"would make an array of more than {_MOST_NUMBERS:.0e} numbers; at most that many "
            "are possible.",
        )


def _evaluation_records(requested: int | None, num_records: int) -> int:
    return (
        num_records
        if requested is None
        else _validate.integer("num_evaluation", requested, at_least=1)
    )
