"""Made-up records of known models."""

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError


def test_hierarchical_records_have_the_sizes_that_are_asked_for():
    dataset = wb.data.hierarchical(
        40, num_features=4, num_groups=6, num_group_features=2, num_evaluation=30
    )
    assert dataset.arrays == ("x", "group", "y")
    assert [array.shape for array in dataset.train] == [(40, 4), (40,), (40,)]
    assert [array.shape for array in dataset.evaluation] == [(30, 4), (30,), (30,)]
    assert [array.dtype for array in dataset.train] == [np.float32, np.int32, np.int32]
    assert (dataset.group_features.shape, len(dataset.groups)) == ((6, 2), 6)
    assert wb.data.hierarchical(40).num_evaluation == 40


@pytest.mark.parametrize("make", [wb.data.hierarchical, wb.data.mixture, wb.data.tokens])
def test_made_up_records_are_public_and_follow_their_seed(make):
    first, again, other = make(seed=3), make(seed=3), make(seed=4)
    assert np.array_equal(first.train[0], again.train[0])
    assert not np.array_equal(first.train[0], other.train[0])
    assert not np.array_equal(first.train[0][:100], first.evaluation[0][:100])
    assert (first.evaluation_label, first.schema, first.unit) == (
        "public data",
        None,
        "synthetic record",
    )
    assert first.is_public


def test_hierarchical_targets_follow_the_weights_of_their_groups():
    """Over 20 problems, one regression for all groups reaches an AUC of .72 (reference: .721), one
    for each group .99.

    Means of 20 differ from those of another 20 by less than .1 and .01 (four standard errors); the
    seeds are fixed.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    def auc(features, dataset):
        fitted = LogisticRegression(C=10).fit(features(*dataset.train[:2]), dataset.train[2])
        return roc_auc_score(
            dataset.evaluation[2], fitted.decision_function(features(*dataset.evaluation[:2]))
        )

    def by_group(x, group):
        return (x[:, None, :] * (group[:, None] == np.arange(3))[:, :, None]).reshape(len(x), -1)

    problems = [wb.data.hierarchical(seed=seed) for seed in range(20)]
    assert np.mean([auc(lambda x, group: x, problem) for problem in problems]) == pytest.approx(
        0.72, abs=0.1
    )
    assert np.mean([auc(by_group, problem) for problem in problems]) == pytest.approx(
        0.985, abs=0.01
    )


def test_mixture_has_five_round_clusters():
    x = wb.data.mixture(20_000, 100, seed=1).train[0]
    centres = np.array([(0, 0), (2, 2), (2, -2), (-2, 2), (-2, -2)])
    assert (x.shape, x.dtype) == ((20_000, 2), np.float32)
    # exact moments: variance .5 within and 16 / 5 between, no correlation; six standard errors
    assert x.mean(axis=0) == pytest.approx([0, 0], abs=6 * np.sqrt(3.7 / 20_000))
    np.testing.assert_allclose(np.cov(x.T), 3.7 * np.eye(2), atol=0.15)
    nearest = np.argmin(np.linalg.norm(x[:, None] - centres, axis=2), axis=1)
    assert np.bincount(nearest) / 20_000 == pytest.approx([0.2] * 5, abs=0.03)


def test_a_small_mixture_has_100_evaluation_points():
    dataset = wb.data.mixture()
    assert (dataset.num_train, dataset.num_evaluation, dataset.arrays) == (2000, 100, ("x",))


@pytest.mark.parametrize(
    "argument",
    ["num_records", "num_features", "num_groups", "num_group_features", "num_evaluation"],
)
def test_sizes_must_be_whole_numbers_above_zero(argument):
    for value in (0, 1.5, "a"):
        with pytest.raises(ArgumentError, match=rf"^{argument}={value!r}: "):
            wb.data.hierarchical(**{argument: value})


def test_sizes_of_a_mixture_are_checked_too():
    with pytest.raises(ArgumentError, match=r"^num_records=1: "):
        wb.data.mixture(1)
    with pytest.raises(ArgumentError, match=r"^seed=-1: "):
        wb.data.mixture(seed=-1)


@pytest.mark.parametrize(
    ("make", "sizes"),
    [
        (wb.data.hierarchical, {"num_records": 5e8}),
        (wb.data.hierarchical, {"num_records": 10**400}),
        (wb.data.hierarchical, {"num_evaluation": 10**9}),
        (wb.data.hierarchical, {"num_features": 10**8}),
        (wb.data.hierarchical, {"num_groups": 10**9}),
        (wb.data.hierarchical, {"num_group_features": 10**9}),
        (wb.data.mixture, {"num_records": 1e18}),
        (wb.data.mixture, {"num_evaluation": 10**8}),
        (wb.data.tokens, {"num_records": 10**9}),
        (wb.data.tokens, {"length": 10**8}),
        (wb.data.tokens, {"num_classes": 10**9, "vocabulary_size": 10**10}),
        (wb.data.tokens, {"vocabulary_size": 2**31}),
    ],
)
def test_sizes_beyond_the_memory_are_refused_before_any_is_taken(make, sizes):
    with pytest.raises(
        ArgumentError, match=r"^(num_\w+|vocabulary_size)=.*at most|^num_records=.*whole number"
    ):
        make(**sizes)


def test_a_large_vocabulary_takes_no_memory():
    assert wb.data.tokens(20, length=3, vocabulary_size=2**31 - 1).train[0].min() >= 0
