"""The data set object and the split into training and evaluation records."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest

from workbench import ArgumentError
from workbench.data.columns import Categorical, Numeric
from workbench.data.dataset import Dataset
from workbench.data.schema import Schema


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
        schema=Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}),
    )


def test_counts_of_records(dataset):
    assert (dataset.num_train, dataset.num_evaluation) == (3, 1)


def test_evaluation_records_are_private_unless_declared(dataset):
    assert dataset.evaluation_label == "outside the guarantee"
    assert dataclasses.replace(dataset, evaluation_is_public=True).evaluation_label == "public data"


def test_declarations_say_that_private_evaluation_records_are_not_protected(dataset):
    text = " ".join(dataset.declarations())
    assert "training records are private" in text
    assert "through noise, or exact and outside the guarantee" in text


def test_declarations_of_private_records_hold_no_count(dataset):
    assert not any(character.isdigit() for line in dataset.declarations() for character in line)


def test_declarations_of_public_evaluation_records(dataset):
    text = " ".join(dataclasses.replace(dataset, evaluation_is_public=True).declarations())
    assert "evaluation records are declared public" in text
    assert "not protected" not in text


def test_repr_shows_no_record(private_data):
    with np.printoptions(threshold=10**6):
        assert "array" not in repr(private_data)


# --- a subset of the training records -------------------------------------------------------------


@pytest.fixture
def numbered():
    places = np.arange(300)
    return Dataset(
        "numbered",
        "Places.",
        (places[:, None], places),
        (places[:7, None], places[:7]),
        feature_names=("a",),
    )


def test_a_subset_has_the_size_asked_for_and_keeps_records_whole(numbered):
    x, y = numbered.subset(40).train
    assert np.array_equal(x[:, 0], y)
    assert len(set(y)) == 40
    assert np.array_equal(y, np.sort(y))


def test_smaller_subsets_are_part_of_larger_ones(numbered):
    chosen = [set(numbered.subset(size).train[1]) for size in (2, 100, 200, 299, 300)]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(chosen))
    assert np.array_equal(numbered.subset(300).train[1], np.arange(300))


def test_which_public_records_a_subset_holds_depends_on_their_places_alone(numbered):
    numbered = dataclasses.replace(numbered, is_public=True)
    other = dataclasses.replace(numbered, train=tuple(-array for array in numbered.train))
    assert np.array_equal(other.subset(40).train[1], -numbered.subset(40).train[1])


def test_a_private_record_moves_at_most_one_other_in_or_out_of_a_subset(numbered):
    """Wherever it stood: places decide nothing, not even of records that are alike."""
    alike = dataclasses.replace(
        numbered, train=tuple(np.asarray(array) // 3 for array in numbered.train)
    )
    for data in (numbered, alike):
        whole = collections.Counter(data.subset(100).train[1].tolist())
        for gone in (0, 17, 150, 299):
            shorter = dataclasses.replace(
                data, train=tuple(np.delete(array, gone, axis=0) for array in data.train)
            )
            part = collections.Counter(shorter.subset(100).train[1].tolist())
            assert (whole - part).total() == (part - whole).total() <= 1


def test_records_of_a_subset_come_from_everywhere(numbered):
    # four standard deviations of a mean of 100 places drawn without replacement; the seed is fixed
    assert abs(numbered.subset(100).train[1].mean() - 149.5) < 4 * 300 / np.sqrt(
        12 * 100
    ) * np.sqrt(2 / 3)


def test_a_subset_is_public_where_its_records_are_and_keeps_the_evaluation_records(numbered):
    subset = dataclasses.replace(numbered, is_public=True).subset(10)
    subset.check()
    assert subset.is_public
    assert subset.evaluation is numbered.evaluation


@pytest.mark.parametrize("size", [1, 0, 301, 2.5, None])
def test_an_impossible_size_of_a_subset_is_named(numbered, size):
    with pytest.raises(ArgumentError, match=r"^num_records=") as caught:
        numbered.subset(size)
    # how many there are is private where another number is declared
    assert "300" not in str(caught.value)


def test_training_records_are_private_unless_said_to_be_public(dataset):
    assert not dataset.is_public


# --- arrays that do not fit -----------------------------------------------------------------------


def grouped(**changes):
    fields = {
        "name": "tiny",
        "description": "Three records.",
        "train": (
            np.zeros((3, 2), np.float32),
            np.array([0, 1, 1], np.int32),
            np.array([0, 1, 0], np.int32),
        ),
        "evaluation": (
            np.zeros((1, 2), np.float32),
            np.array([1], np.int32),
            np.array([1], np.int32),
        ),
        "feature_names": ("a", "b"),
        "target_name": "y",
        "classes": ("no", "yes"),
        "arrays": ("x", "group", "y"),
        "group_name": "ward",
        "groups": ("east", "west"),
        "group_features": np.ones((2, 1), np.float32),
        "group_feature_names": ("intercept",),
    }
    return Dataset(**{**fields, **changes})


X, GROUP, Y = grouped().train


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("train records do not fit: they must be 3 array(s), x, group, y", {"train": (X, Y)}),
        ("arrays x, group, y have different numbers of records", {"train": (X, GROUP[:2], Y)}),
        ("masked entries", {"train": (np.ma.masked_equal(X, 0), GROUP, Y)}),
        ("(3, 1), but there are 2 feature names", {"train": (X[:, :1], GROUP, Y)}),
        ("group must be in 0 .. 1", {"train": (X, GROUP + 1, Y)}),
        ("y must be in 0 .. 1", {"train": (X, GROUP, Y - 1)}),
        ("(3, 2, 2), but there are 2 feature names", {"train": (np.zeros((3, 2, 2)), GROUP, Y)}),
        ("must be 3 array(s)", {"train": (np.float32(0), GROUP, Y)}),
        ("evaluation records do not fit: y must", {"evaluation": (X, GROUP, Y + 1)}),
        ("evaluation records do not fit", {"evaluation": ()}),
        ("image_shape is (8, 8)", {"image_shape": (8, 8), "feature_names": ()}),
        ("group_features have shape (3, 1)", {"group_features": np.ones((3, 1))}),
        ("group_features have shape (2, 1)", {"group_feature_names": ()}),
    ],
)
def test_arrays_that_do_not_fit_are_named(reason, changes):
    with pytest.raises(ArgumentError, match=r"^data='tiny': ") as caught:
        grouped(**changes).check()
    assert reason in str(caught.value)


def test_a_side_without_records_is_fine():
    grouped(evaluation=tuple(array[:0] for array in (X, GROUP, Y))).check()


def test_a_selection_of_arrays_still_fits():
    grouped().check()
    grouped().select(("x", "y")).check()
    grouped().select(("group", "x")).check()


# --- what is shown --------------------------------------------------------------------------------


def test_groups_are_declared():
    assert "the names of the groups and the features of the groups are declared public" in " ".join(
        grouped().declarations()
    )
    assert repr(grouped()) == "Dataset('tiny', 2 features, 2 groups, target 'y')"


def test_categories_are_declared(dataset):
    schema = Schema({"a": Numeric(0, 1), "b": Categorical(["x"])})
    text = " ".join(
        dataclasses.replace(
            dataset, schema=schema, feature_names=schema.feature_names
        ).declarations()
    )
    assert (
        "Names of the columns, the two classes, the categories and the bounds used for scaling "
        "are declared public." in text
    )


def test_points_declare_their_columns_alone():
    points = Dataset("points", "Points.", (X,), (X,), feature_names=("a", "b"), arrays=("x",))
    assert points.declarations()[1] == "Names of the columns are declared public."
    assert (repr(points), points.bounds) == ("Dataset('points', 2 features)", {})


def test_images_declare_their_size():
    images = Dataset(
        "images",
        "Images.",
        (np.zeros((3, 8, 9)),),
        (np.zeros((1, 8, 9)),),
        arrays=("x",),
        image_shape=(8, 9),
    )
    assert images.declarations()[1] == "The size of the images is declared public."
    assert repr(images) == "Dataset('images', 8 x 9 images)"


@pytest.mark.parametrize(
    "place", ["name", "target_name", "group_name", "feature_names", "groups", "classes"]
)
@pytest.mark.parametrize("letter", ["\0", "\x1b[31m", "\n", "\ud800"])
def test_a_name_that_no_file_can_hold_is_refused_when_it_is_declared(place, letter):
    names = f"fee{letter}" if place.endswith("name") else ("age", f"fee{letter}")
    given = {"name": "clinic", "description": "", "train": (), "evaluation": ()} | {place: names}
    with pytest.raises(ArgumentError, match="must not have control characters") as caught:
        Dataset(**given)
    assert caught.value.argument == place
    assert place != "classes" or "fee" not in str(caught.value)
