"""Data sets by name."""

import socket

import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError


@pytest.fixture(scope="module")
def breast_cancer():
    return wb.data.load("breast_cancer")


def test_breast_cancer_loads_without_a_network(monkeypatch, breast_cancer):
    def refuse(*_):
        raise AssertionError("a data set reached for the network")

    monkeypatch.setattr(socket, "socket", refuse)
    assert np.array_equal(wb.data.load("breast_cancer").train[0], breast_cancer.train[0])


def test_breast_cancer_has_569_records_of_30_features(breast_cancer):
    assert breast_cancer.num_train + breast_cancer.num_evaluation == 569
    assert breast_cancer.train[0].shape == (breast_cancer.num_train, 30)
    assert len(breast_cancer.feature_names) == 30


def test_breast_cancer_counts_malignant_as_one(breast_cancer):
    assert breast_cancer.classes == ("benign", "malignant")
    assert breast_cancer.train[1].sum() + breast_cancer.evaluation[1].sum() == 212


def test_declared_bounds_of_breast_cancer_contain_every_value(breast_cancer):
    from sklearn.datasets import load_breast_cancer

    table = load_breast_cancer(as_frame=True).data
    outside = [
        name
        for name, (low, high) in breast_cancer.bounds.items()
        if not table[name].between(low, high).all()
    ]
    assert outside == []


def test_evaluation_records_of_breast_cancer_are_public(breast_cancer):
    assert breast_cancer.evaluation_label == "public data"


@pytest.mark.parametrize("function", [wb.data.load, wb.data.describe, wb.data.info])
def test_unknown_name_offers_the_nearest(function):
    with pytest.raises(
        ArgumentError, match=r"^data='brest_cancer': unknown name; did you mean 'breast_cancer'"
    ):
        function("brest_cancer")
    with pytest.raises(ArgumentError, match=r"wb\.data\.read_table\('mine\.csv'\) reads a file"):
        function("mine.csv")


def test_split_seed_and_fraction_reach_the_embedded_data(breast_cancer):
    assert (
        wb.data.load("breast_cancer", evaluation_fraction=0.5).num_evaluation
        > 2 * breast_cancer.num_evaluation
    )
    assert not np.array_equal(
        wb.data.load("breast_cancer", split_seed=1).train[0], breast_cancer.train[0]
    )


# --- what there is --------------------------------------------------------------------------------

EVERYTHING = {
    "adult",
    "breast_cancer",
    "digits",
    "exam",
    "fashion_mnist",
    "hierarchical",
    "mixture",
    "tokens",
}
TASKS = {
    "binary target": ("x", "y"),
    "grouped binary target": ("x", "group", "y"),
    "points": ("x",),
    "images": ("x", "y"),
    "token sequences": ("x", "y"),
}


def test_all_names_are_listed_and_described():
    assert set(wb.data.all_names()) == EVERYTHING
    for name in wb.data.all_names():
        told = wb.data.info(name)
        assert (told.name, told.description) == (name, wb.data.describe(name))
        assert all(
            (
                told.licence,
                told.unit,
                told.source,
                told.num_records,
                told.available or told.otherwise,
            )
        )
        assert told.task in TASKS
        assert name in str(told)
        assert "\n" not in str(told)


def test_names_are_those_that_load_now(nothing_at_hand):
    assert {"breast_cancer", "digits", "hierarchical", "mixture", "tokens"} <= set(wb.data.names())
    assert not {"adult", "fashion_mnist"}.intersection(wb.data.names())
    assert all(
        (name in wb.data.names()) == bool(wb.data.info(name).available)
        for name in wb.data.all_names()
    )


@pytest.mark.parametrize("name", sorted(EVERYTHING - {"fashion_mnist"}))
def test_what_is_told_of_a_set_holds_once_it_is_loaded(name):
    if name not in wb.data.names():
        pytest.skip(f"{name} needs a file, a package or a network")
    told, dataset = wb.data.info(name), wb.data.load(name)
    dataset.check()
    assert told.num_records == dataset.num_train + dataset.num_evaluation
    assert TASKS[told.task] == dataset.arrays
    assert (told.task == "images") == bool(dataset.image_shape)
    for field in ("name", "description", "licence", "unit", "source", "evaluation_is_public"):
        assert getattr(told, field) == getattr(dataset, field)
    assert dataset.is_public


def test_nothing_is_downloaded_to_tell_of_a_set(served):
    for name in wb.data.all_names():
        wb.data.info(name)
    assert served[2] == []


def test_a_path_is_refused_where_none_is_read(tmp_path):
    with pytest.raises(
        ArgumentError,
        match=r"^path=.*must be left out, because breast_cancer is not read from a file",
    ):
        wb.data.load("breast_cancer", path=tmp_path)


@pytest.mark.parametrize(
    ("argument", "value"), [("evaluation_fraction", 1.5), ("split_seed", -1), ("split_seed", "a")]
)
@pytest.mark.parametrize("name", ["breast_cancer", "mixture"])
def test_the_split_is_checked_for_every_set(name, argument, value):
    with pytest.raises(ArgumentError, match=rf"^{argument}="):
        wb.data.load(name, **{argument: value})


def test_made_up_records_follow_the_seed_of_the_split():
    assert not np.array_equal(
        wb.data.load("mixture", split_seed=1).train[0], wb.data.load("mixture").train[0]
    )
