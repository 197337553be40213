"""Data sets by name, from a DataFrame and from a CSV file."""

import gzip
import pathlib
import socket

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError

ADULT = pathlib.Path(__file__).parents[2] / "../shared/data/adult.csv.gz"


@pytest.fixture
def frame():
    random = np.random.default_rng(3)
    return pd.DataFrame({"age": random.uniform(0, 100, 60), "dose": random.uniform(0, 5, 60), "ill": [0, 1] * 30})


@pytest.fixture(scope="module")
def breast_cancer():
    return wb.data.load("breast_cancer")


BOUNDS = {"age": (0, 100), "dose": (0, 5)}


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
    outside = [name for name, (low, high) in breast_cancer.bounds.items() if not table[name].between(low, high).all()]
    assert outside == []


def test_evaluation_records_of_breast_cancer_are_public(breast_cancer):
    assert breast_cancer.evaluation_label == "public data"


def test_every_embedded_name_loads_and_is_described():
    for name in wb.data.names():
        assert wb.data.load(name).name == name
        assert wb.data.describe(name).endswith(".")


@pytest.mark.parametrize("function", [wb.data.load, wb.data.describe])
def test_unknown_name_offers_the_nearest(function):
    with pytest.raises(ArgumentError, match=r"^data='brest_cancer': unknown name; did you mean 'breast_cancer'"):
        function("brest_cancer")


def test_split_seed_and_fraction_reach_the_embedded_data(breast_cancer):
    assert wb.data.load("breast_cancer", evaluation_fraction=0.5).num_evaluation > 2 * breast_cancer.num_evaluation
    assert not np.array_equal(wb.data.load("breast_cancer", split_seed=1).train[0], breast_cancer.train[0])


def test_frame_becomes_a_private_data_set(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    assert dataset.evaluation_label == "outside the guarantee"
    assert dataset.feature_names == ("age", "dose")
    assert dataset.target_name == "ill"
    assert dataset.num_train + dataset.num_evaluation == 60


def test_evaluation_records_are_public_once_declared(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS, evaluation_is_public=True)
    assert dataset.evaluation_label == "public data"


def test_arrays_have_the_types_the_models_expect(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    assert [array.dtype for array in (*dataset.train, *dataset.evaluation)] == [np.float32, np.int32] * 2


def test_a_chosen_feature_needs_no_bounds_for_the_others(frame):
    dataset = wb.data.from_frame(frame, target="ill", bounds={"dose": (0, 5)}, features=["dose"])
    assert dataset.feature_names == ("dose",)
    assert dataset.train[0].shape[1] == 1


def test_features_and_target_stay_together(frame):
    frame = frame.assign(ill=(frame.dose > 2.5).astype(int))
    dataset = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    for features, target in (dataset.train, dataset.evaluation):
        assert np.array_equal(features[:, 1] > 0, target == 1)


def test_changing_one_row_changes_that_record_only(frame):
    changed = frame.copy()
    changed.loc[5, ["age", "dose"]] = [1e6, -1e6]
    before, after = (wb.data.from_frame(table, target="ill", bounds=BOUNDS) for table in (frame, changed))
    differing = sum(
        int(np.any(old != new, axis=1).sum())
        for old, new in ((before.train[0], after.train[0]), (before.evaluation[0], after.evaluation[0]))
    )
    assert differing == 1
    assert (before.bounds, before.classes, before.description) == (after.bounds, after.classes, after.description)


def test_taking_away_the_last_row_leaves_the_other_records_where_they_were(frame):
    whole = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    shorter = wb.data.from_frame(frame[:-1], target="ill", bounds=BOUNDS)
    assert np.array_equal(whole.train[0][: shorter.num_train], shorter.train[0])
    assert np.array_equal(whole.evaluation[0][: shorter.num_evaluation], shorter.evaluation[0])


def test_an_unusual_index_does_not_matter(frame):
    plain = wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    repeated = wb.data.from_frame(frame.set_axis([0] * 60, axis=0), target="ill", bounds=BOUNDS)
    assert np.array_equal(plain.train[0], repeated.train[0])


def test_the_users_frame_is_left_alone(frame):
    before = frame.copy()
    wb.data.from_frame(frame, target="ill", bounds=BOUNDS)
    pd.testing.assert_frame_equal(frame, before)


def refused(argument, frame, **changes):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_frame(frame, **{"target": "ill", "bounds": BOUNDS, **changes})
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_unknown_target_names_the_nearest_column(frame):
    assert "did you mean 'ill'" in refused("target", frame, target="iil")


def test_unknown_feature_names_the_nearest_column(frame):
    assert "did you mean 'dose'" in refused("features", frame, features=["doses"])


@pytest.mark.parametrize("features", [[], ["age", "ill"]])
def test_features_must_be_columns_other_than_the_target(frame, features):
    refused("features", frame, features=features)


def test_a_column_name_may_not_occur_twice(frame):
    assert "'age'" in refused("frame", frame.set_axis(["age", "age", "ill"], axis=1))


def test_a_number_and_its_text_are_the_same_column_name(frame):
    assert "'1'" in refused("frame", frame.set_axis([1, "1", "ill"], axis=1))


@pytest.mark.parametrize("table", [[[1, 2]], {"ill": [0, 1]}, None])
def test_only_a_data_frame_will_do(table):
    assert repr(type(table).__name__) in refused("frame", table)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan"), "half"])
def test_evaluation_fraction_must_be_inside_zero_and_one(frame, fraction):
    assert repr(fraction) in refused("evaluation_fraction", frame, evaluation_fraction=fraction)


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9])
def test_each_side_of_the_split_needs_records(frame, fraction):
    assert "too few records of 60" in refused("evaluation_fraction", frame, evaluation_fraction=fraction)


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_split_seed_must_be_a_whole_number(frame, seed):
    assert repr(seed) in refused("split_seed", frame, split_seed=seed)


def test_a_feature_may_not_be_chosen_twice(frame):
    refused("features", frame.assign(extra=1.0), features=["age", "age", "dose"])


@pytest.mark.parametrize(("name", "pack"), [("table.csv", bytes), ("table.csv.gz", gzip.compress)])
def test_csv_file_gives_the_same_records_as_its_frame(frame, tmp_path, name, pack):
    file = tmp_path / name
    file.write_bytes(pack(frame.to_csv(index=False).encode()))
    dataset = wb.data.from_csv(file, target="ill", bounds=BOUNDS)
    assert dataset.name == "table"
    assert np.array_equal(dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0])


# --- scaling by private statistics, on request ----------------------------------------------------------------------------


def test_private_scaling_standardises_by_the_training_records_alone(frame):
    dataset = wb.data.from_frame(frame, target="ill", private_scaling=True)
    held_out = wb.data.dataset.evaluation_rows(60, 0.2, 0)
    features = frame[["age", "dose"]].to_numpy()
    training = features[~held_out]
    for mine, rows in ((dataset.train[0], training), (dataset.evaluation[0], features[held_out])):
        np.testing.assert_allclose(mine, (rows - training.mean(0)) / training.std(0), rtol=1e-5, atol=1e-6)
        assert mine.dtype == np.float32
    assert (dataset.private_scaling, dataset.bounds) == (True, {})
    assert "outside the guarantee" in dataset.caveats[0]


def test_private_scaling_lets_one_record_move_the_others_and_declared_bounds_do_not(frame):
    """What the caveat is about."""
    changed = frame.copy()
    first = int(np.argmin(wb.data.dataset.evaluation_rows(60, 0.2, 0)))
    changed.loc[first, "age"] = 1e4

    def records_moved(**scaling):
        before, after = (wb.data.from_frame(table, target="ill", **scaling).train[0] for table in (frame, changed))
        return int(np.any(before != after, axis=1).sum())

    assert records_moved(bounds=BOUNDS) == 1
    assert records_moved(private_scaling=True) == len(frame) - wb.data.dataset.evaluation_rows(60, 0.2, 0).sum()


def test_a_constant_column_may_be_scaled_privately(frame):
    dataset = wb.data.from_frame(frame.assign(dose=0.1), target="ill", private_scaling=True)
    assert np.all(dataset.train[0][:, 1] == 0)


def test_bounds_and_private_scaling_exclude_each_other(frame):
    assert "private_scaling=True" in refused("bounds", frame, private_scaling=True)


def test_one_of_bounds_and_private_scaling_must_be_chosen(frame):
    message = refused("bounds", frame, bounds=None)
    assert message.startswith("bounds=None: declare the public range")
    assert "private_scaling=True" in message


@pytest.mark.parametrize("value", [None, 1, "no"])
def test_private_scaling_is_asked_for_in_so_many_words(frame, value):
    assert "must be True or False" in refused("private_scaling", frame, bounds=None, private_scaling=value)


def test_csv_file_may_be_scaled_privately(frame, tmp_path):
    file = tmp_path / "table.csv"
    frame.to_csv(file, index=False)
    assert wb.data.from_csv(file, target="ill", private_scaling=True).private_scaling


# --- names of columns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels", [[0, 1, 2], ["0", "1", "2"], pd.Index([0, 1, 2], dtype="uint8")], ids=["int", "text", "uint8"]
)
@pytest.mark.parametrize("given", [int, str])
def test_columns_may_be_given_as_whole_numbers_or_as_their_text(frame, labels, given):
    dataset = wb.data.from_frame(
        frame.set_axis(labels, axis=1),
        target=given(2),
        bounds={given(0): (0, 100), given(1): (0, 5)},
        features=[given(0), given(1)],
    )
    assert (dataset.feature_names, dataset.target_name) == (("0", "1"), "2")
    assert np.array_equal(dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0])


def test_other_labels_may_be_given_as_they_stand_in_the_frame(frame):
    day = pd.Timestamp("2020-01-01")
    table = frame.set_axis([("a", 1), day, 2.5], axis=1)
    dataset = wb.data.from_frame(table, target=2.5, bounds={day: (0, 5)}, features=[day])
    assert (dataset.feature_names, dataset.target_name) == ((str(day),), "2.5")


@pytest.mark.parametrize("label", [3, True, None, ["ill"], np.array([1, 2])])
def test_a_label_that_is_no_column_is_named(frame, label):
    refused("target", frame, target=label)
    refused("features", frame, features=[label])


@pytest.mark.parametrize("features", ["age", 3])
def test_features_must_be_a_list(frame, features):
    assert "list of column names" in refused("features", frame, features=features)


def test_dates_are_refused_with_the_name_of_their_column(frame):
    dated = frame.assign(admitted=pd.Timestamp("2020-01-01"))
    assert "no plain numbers" in refused("admitted", dated, bounds={**BOUNDS, "admitted": (0, 1)})


@pytest.mark.parametrize("bounds", [np.zeros((3, 2)), {"age": np.arange(3.0), "dose": (0, 5)}])
def test_bounds_that_are_arrays_are_refused_on_one_line(frame, bounds):
    refused("bounds['age']", frame, bounds=bounds)


def refused_file(path):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_csv(path, target="ill", bounds=BOUNDS)
    assert caught.value.argument == "path"
    assert repr(str(path)) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_file_is_named(tmp_path):
    assert "no such file" in refused_file(tmp_path / "nowhere.csv")


def test_a_folder_is_no_file(tmp_path):
    assert "no such file" in refused_file(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("ragged.csv", b"a,b\n1,2\n1,2,3,4\n"),
        ("binary.csv", b"\xff\xfe\x00abc"),
        ("plain.csv.gz", b"a,b\n"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "cannot be read as CSV" in refused_file(tmp_path / name)


def test_a_file_cut_short_is_named(frame, tmp_path):
    file = tmp_path / "short.csv.gz"
    file.write_bytes(gzip.compress(frame.to_csv(index=False).encode())[:-20])
    assert "cannot be read as CSV" in refused_file(file)


@pytest.mark.skipif(not ADULT.is_file(), reason="the shared copy of Adult is not on this machine")
def test_adult_census_from_its_file():
    bounds = {
        "age": (0, 100), "education_num": (1, 16), "capital_gain": (0, 100_000), "capital_loss": (0, 5000),
        "hours_per_week": (0, 100),
    }  # fmt: skip
    dataset = wb.data.from_csv(ADULT, target="income", positive=">50K", bounds=bounds, features=list(bounds))
    assert dataset.name == "adult"
    assert dataset.classes == ("<=50K", ">50K")
    assert dataset.num_train + dataset.num_evaluation > 30_000
    assert dataset.train[0].shape == (dataset.num_train, 5)
    # about a quarter earned more than 50,000 dollars
    assert 0.2 < dataset.train[1].mean() < 0.3
    assert np.abs(dataset.train[0]).max() <= 1
