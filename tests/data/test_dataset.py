"""The data set object and the split into training and evaluation records."""

import dataclasses

import numpy as np
import pytest

from workbench.data.dataset import Dataset, evaluation_rows


@pytest.fixture
def dataset():
    return Dataset(
        name="tiny",
        description="Three records.",
        train=(np.zeros((3, 2), np.float32), np.array([0, 1, 0], np.int32)),
        evaluation=(np.zeros((1, 2), np.float32), np.array([1], np.int32)),
        feature_names=("a", "b"),
        target_name="y",
        classes=("no", "yes"),
        bounds={"a": (0.0, 1.0), "b": (0.0, 1.0)},
    )


def test_split_depends_on_position_only():
    assert np.array_equal(evaluation_rows(50, 0.3, 4), evaluation_rows(50, 0.3, 4))


@pytest.mark.parametrize("shorter", [1, 49, 99])
def test_dropping_the_last_rows_moves_no_other_row(shorter):
    assert np.array_equal(evaluation_rows(100, 0.3, 4)[:shorter], evaluation_rows(shorter, 0.3, 4))


def test_split_seed_changes_the_split():
    assert not np.array_equal(evaluation_rows(100, 0.3, 4), evaluation_rows(100, 0.3, 5))


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_fraction_is_the_share_of_evaluation_rows(fraction):
    # six standard deviations of a binomial count: false alarms below 1e-8, and the seed is fixed
    allowed = 6 * np.sqrt(fraction * (1 - fraction) / 10_000)
    assert evaluation_rows(10_000, fraction, 0).mean() == pytest.approx(fraction, abs=allowed)


def test_counts_of_records(dataset):
    assert (dataset.num_train, dataset.num_evaluation) == (3, 1)


def test_evaluation_records_are_private_unless_declared(dataset):
    assert dataset.evaluation_label == "outside the guarantee"
    assert dataclasses.replace(dataset, evaluation_is_public=True).evaluation_label == "public data"


def test_declarations_say_that_private_evaluation_records_are_not_protected(dataset):
    text = " ".join(dataset.declarations())
    assert "training records are private" in text
    assert "evaluation records are private and not protected" in text


def test_declarations_of_private_records_hold_no_count(dataset):
    assert not any(character.isdigit() for line in dataset.declarations() for character in line)


def test_declarations_of_public_evaluation_records(dataset):
    text = " ".join(dataclasses.replace(dataset, evaluation_is_public=True).declarations())
    assert "evaluation records are declared public" in text
    assert "not protected" not in text


def test_declared_bounds_need_no_caveat(dataset):
    assert dataset.caveats == ()


def test_private_scaling_is_a_caveat_and_a_declaration(dataset):
    scaled = dataclasses.replace(dataset, bounds={}, private_scaling=True)
    (caveat,) = scaled.caveats
    assert "mean and standard deviation of the private training records" in caveat
    assert "outside the guarantee" in caveat
    declared = " ".join(scaled.declarations())
    assert "guarantee does not protect them" in declared
    assert "bounds" not in declared
    assert not any(character.isdigit() for character in caveat + declared)


def test_repr_shows_no_record(private_data):
    with np.printoptions(threshold=10**6):
        assert "array" not in repr(private_data)
