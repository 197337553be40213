"""Data sets from CSV, Parquet and .npz files."""

import gzip
import io
import sys

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.csv_files import csv_separator, read_csv
from workbench.data.files import UnreadableFileError


@pytest.fixture
def frame():
    random = np.random.default_rng(3)
    return pd.DataFrame(
        {"age": random.uniform(0, 100, 60), "dose": random.uniform(0, 5, 60), "ill": [0, 1] * 30}
    )


BOUNDS = {"age": (0, 100), "dose": (0, 5)}


@pytest.mark.parametrize(("name", "pack"), [("table.csv", bytes), ("table.csv.gz", gzip.compress)])
def test_csv_file_gives_the_same_records_as_its_frame(frame, tmp_path, name, pack):
    file = tmp_path / name
    file.write_bytes(pack(frame.to_csv(index=False).encode()))
    dataset = wb.data.from_csv(file, target="ill", bounds=BOUNDS)
    assert dataset.name == "table"
    assert np.array_equal(
        dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0]
    )


def test_open_csv_file_gives_the_same_records(frame):
    content = frame.to_csv(index=False).encode()
    dataset = wb.data.from_csv(io.BytesIO(content), target="ill", bounds=BOUNDS)
    assert dataset.name == "table"
    assert np.array_equal(
        dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0]
    )
    assert (
        wb.data.from_csv(io.BytesIO(content), target="ill", bounds=BOUNDS, name="clinic").name
        == "clinic"
    )
    with pytest.raises(ArgumentError, match=r"open file.*cannot be read as CSV"):
        wb.data.from_csv(io.BytesIO(b""), target="ill", bounds=BOUNDS)


def test_columns_of_files_without_their_rows(frame, tmp_path):
    pytest.importorskip("pyarrow")
    frame = frame.assign(name=pd.Categorical(["a", "b"] * 30))
    frame.to_parquet(tmp_path / "table.parquet")
    empty = wb.data.files.empty_parquet(tmp_path / "table.parquet")
    assert len(empty) == 0
    assert list(empty.dtypes.astype(str)) == list(frame.dtypes.astype(str))
    frame.to_csv(tmp_path / "table.csv", index=False)
    assert len(read_csv(tmp_path / "table.csv", rows=7)) == 7


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
        ("binary.csv", b"PK\x03\x04\x00\x00,\xff\x00"),
        ("utf16.csv", "a,b\n1,2\n".encode("utf-16-le")),  # without the mark that says so
        ("plain.csv.gz", b"a,b\n"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "cannot be read as CSV" in refused_file(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        # pandas makes an index of the first field, and shifts the others
        ("age,dose,ill\n9,1,2,0\n9,3,4,1\n", "more fields than there are column names"),
        ("age,dose,ill\n1,2,0,9\n3,4,1\n", "more fields than there are column names"),
        # pandas names the second one age.1
        ("age,age,ill\n1,2,0\n", "two columns with the name 'age'"),
        # pandas names it Unnamed: 0
        (",age,dose,ill\n0,1,2,0\n", "no name for column 1"),
        ("age,dose,ill, \n0,1,2,0\n", "no name for column 4"),
    ],
)
def test_columns_of_a_csv_file_are_neither_shifted_nor_renamed(tmp_path, content, reason):
    (tmp_path / "table.csv").write_text(content)
    assert reason in refused_file(tmp_path / "table.csv")
    with pytest.raises(ArgumentError, match=reason):
        wb.data.from_csv(io.BytesIO(content.encode()), target="ill", bounds=BOUNDS)


def test_the_last_comma_of_every_line_is_no_column(tmp_path):
    (tmp_path / "table.csv").write_text("age,dose,ill\n" + "1,2,0,\n3,4,1,\n" * 20)
    assert wb.data.from_csv(tmp_path / "table.csv", target="ill", bounds=BOUNDS).feature_names == (
        "age",
        "dose",
    )


def test_a_file_cut_short_is_named(frame, tmp_path):
    file = tmp_path / "short.csv.gz"
    file.write_bytes(gzip.compress(frame.to_csv(index=False).encode())[:-20])
    assert "cannot be read as CSV" in refused_file(file)


# --- separators and decimal commas ----------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_separator_is_found_in_the_first_line(frame, tmp_path, separator, pack):
    file = tmp_path / ("table.csv.gz" if pack is gzip.compress else "table.csv")
    content = frame.to_csv(index=False, sep=separator).encode()
    file.write_bytes(pack(content))
    assert csv_separator(file) == csv_separator(io.BytesIO(content)) == separator
    expected = wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train
    for dataset in (
        wb.data.from_csv(file, target="ill", bounds=BOUNDS),
        wb.data.from_file(file, target="ill", bounds=BOUNDS, separator=separator),
        wb.data.from_csv(io.BytesIO(content), target="ill", bounds=BOUNDS),
    ):
        assert all(
            np.array_equal(one, other) for one, other in zip(dataset.train, expected, strict=True)
        )


@pytest.mark.parametrize(
    ("line", "separator"),
    [
        ("age", ","),
        ("age,dose;ill", ","),
        ('"age, in years, at entry";dose', ";"),
        ("age;dose, in grams", ","),  # a tie: name the separator
        ("a;b;c,d", ";"),
        ("a\tb|c\td", "\t"),
        ('"a|b|c"', ","),
        ("\n\na;b", ";"),
    ],
)
def test_which_separator_a_first_line_has(line, separator):
    """The records below the names never count."""
    assert csv_separator(io.BytesIO(f"{line}\n1,2,3,4,5;6;7;8;9|1|2|3\n".encode())) == separator


def test_a_named_separator_is_the_one_that_counts(tmp_path):
    (tmp_path / "table.csv").write_text("age;dose, in grams\n" + "1;2,5\n3;4,5\n" * 20)
    table = read_csv(tmp_path / "table.csv", separator=";")
    assert list(table.columns) == ["age", "dose, in grams"]
    assert table.iloc[0].tolist() == [1, 2.5]
    # without blanks around
    assert list(read_csv(tmp_path / "table.csv").columns) == ["age;dose", "in grams"]


@pytest.mark.parametrize(
    ("line", "between"), [("sep=;", ";"), ('"sep=|"', "|"), ("SEP=\t", "\t"), ("sep=,", ",")]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_line_that_declares_the_separator_is_no_line_of_names(line, between, encoding):
    rows = "\r\n".join(
        [line, between.join(["age", "a"]), between.join(["40", "1"]), between.join(["50", "0"])]
    )
    table = read_csv(io.BytesIO(rows.encode(encoding)))
    assert table.to_dict("list") == {"age": [40, 50], "a": [1, 0]}
    assert csv_separator(io.BytesIO(rows.encode(encoding))) == between


def test_decimal_commas_of_files_with_semicolons():
    content = b"a;b;c;d;e;f\n1,5;2.5;1;x,1;;2,5\n,5;-1e-2;2;3,4;;2.5\n1e2;+3,;3;2;;NA\n"
    table = read_csv(io.BytesIO(content))
    assert table["a"].tolist() == [1.5, 0.5, 100.0]
    assert table["b"].tolist() == [2.5, -0.01, 3.0]
    assert table["c"].tolist() == [1, 2, 3]
    assert table["c"].dtype.kind == "i"
    assert table["d"].tolist() == ["x,1", "3,4", "2"]  # one text leaves its column as it is
    assert table["e"].isna().all()
    assert table["f"].tolist()[:2] == [2.5, 2.5]
    assert np.isnan(table["f"][2])
    points = read_csv(io.BytesIO(content), decimal=".")
    assert points["a"].tolist() == ["1,5", ",5", "1e2"]
    assert read_csv(io.BytesIO(content), text={"a": (), "c": ()}).iloc[0].tolist()[:3] == [
        "1,5",
        2.5,
        "1",
    ]


def test_types_of_columns_in_files_with_semicolons():
    """As pandas finds them in files with commas."""
    content = b"a;b;c;d;e\nTrue;false;12345678901234567;1;\nFalse;;2; 2 ;\nTRUE;true;3;;\n"
    table = read_csv(io.BytesIO(content))
    assert table["a"].tolist() == [True, False, True]
    assert table["a"].dtype == bool
    assert table["b"].dropna().tolist() == [False, True]
    assert table["c"].dtype == table["d"].dtype == table["e"].dtype == np.float64
    with_commas = read_csv(io.BytesIO(content.replace(b";", b",")))
    assert with_commas["a"].tolist() == table["a"].tolist()
    assert with_commas["d"].dropna().tolist() == table["d"].dropna().tolist() == [1.0, 2.0]


def test_a_decimal_comma_in_a_file_with_tabs_is_asked_for():
    content = b"a\tb\n1,5\t2\n"
    assert read_csv(io.BytesIO(content))["a"].tolist() == ["1,5"]
    assert read_csv(io.BytesIO(content), decimal=",")["a"].tolist() == [1.5]


def test_no_cell_with_commas_changes_how_another_is_read():
    """Points alone, and points with a comma in one other record: the same numbers to the
    last bit.
    """
    random = np.random.default_rng(7)
    numbers = [repr(number) for number in random.uniform(0, 1, 200).tolist()]
    alone = read_csv(
        io.BytesIO("\n".join(["a;b", *(f"{number};1" for number in numbers)]).encode())
    )
    commas = read_csv(
        io.BytesIO(
            "\n".join(["a;b", *(f"{number.replace('.', ',')};1" for number in numbers)]).encode()
        )
    )
    mixed = read_csv(
        io.BytesIO("\n".join(["a;b", *(f"{number};1" for number in numbers), "0,5;1"]).encode())
    )
    assert (
        alone["a"].tolist()
        == commas["a"].tolist()
        == mixed["a"].tolist()[:-1]
        == list(map(float, numbers))
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ":"}, "separator=':'"),
        ({"separator": ""}, "separator=''"),
        ({"separator": 3}, "separator=3"),
        ({"separator": [";"]}, "separator="),
        ({"decimal": ";"}, "decimal=';'"),
        ({"decimal": 1}, "decimal=1"),
        ({"decimal": ","}, "decimal=',': is already the separator"),
    ],
)
def test_other_separators_are_refused(options, message):
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_csv(io.BytesIO(b"a,b\n1,2\n"), bounds=(0, 1), **options)
    assert str(caught.value).startswith(message)


# --- text in CSV files, Parquet, .npz and files by their suffix -----------------------------------


def test_declared_categories_and_groups_are_read_as_text(tmp_path):
    file = tmp_path / "wards.csv"
    file.write_text("code,ward,ill\n" + "01,1,0\n02,2,1\n" * 10)
    dataset = wb.data.from_csv(
        file, target="ill", schema={"code": ["01", "02"]}, group="ward", groups=["1", 2]
    )
    assert np.array_equal(dataset.train[0][:, 0], dataset.train[2])
    assert np.array_equal(dataset.train[1], dataset.train[2])


def test_a_declared_word_is_a_value_and_not_missing():
    words = ["None", "NA", "nan", "Light"]
    rows = "".join(f"{word},{number % 2},{number}\n" for number in range(10) for word in words)
    text = f"smokes,ill,age\n{rows}"

    def read(separator, **options):
        file = io.BytesIO(text.replace(",", separator).encode())
        return wb.data.from_csv(file, missing="drop", evaluation_fraction=0.3, **options)

    for separator in ",;":
        data = read(separator, schema={"smokes": words})
        assert data.num_train + data.num_evaluation == 40
        assert len(np.unique(data.train[0], axis=0)) == 4
        assert sum(map(len, read(separator, schema={"smokes": ["Light", "NA"]}).train)) < 20
        classes = read(separator, target="smokes", classes=words, features=["age"], bounds=(0, 9))
        assert set(classes.train[1]) == {0, 1, 2, 3}
        none = read(separator, target="smokes", positive="None", features=["age"], bounds=(0, 9))
        assert none.num_train + none.num_evaluation == 20  # "NA" and "nan" are missing still
        grouped = read(
            separator, target="ill", group="smokes", groups=words, features=["age"], bounds=(0, 9)
        )
        assert set(grouped.train[1]) == {0, 1, 2, 3}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_of_windows_is_read(tmp_path, encoding, pack):
    content = pack(("größe;stadt\n" + "1,5;München\n2,5;Köln €\n" * 20).encode(encoding))
    name = "table.csv" if pack is bytes else "table.csv.gz"
    (tmp_path / name).write_bytes(content)
    data = wb.data.from_csv(
        tmp_path / name, schema={"größe": (0, 3), "stadt": ["München", "Köln €"]}
    )
    assert data.num_train + data.num_evaluation == 40
    assert set(data.train[0][:, 1]) == {0, 1}


def test_each_byte_that_is_not_utf_8_is_read_by_itself():
    """No record changes how another is read: the encoding is not chosen for a whole file by its
    records.
    """
    rows = ["Köln".encode(), "München".encode("cp1252"), b"\x81", "Ł".encode()]
    table = read_csv(io.BytesIO(b"a,stadt\n" + b"".join(b"1," + row + b"\n" for row in rows)))
    assert table["stadt"].tolist() == ["Köln", "München", "\x81", "Ł"]


def test_parquet_file_gives_the_same_records_as_its_frame(frame, tmp_path):
    pytest.importorskip("pyarrow")
    file = tmp_path / "table.parquet"
    frame.to_parquet(file)
    dataset = wb.data.from_parquet(file, target="ill", bounds=BOUNDS)
    assert dataset.name == "table"
    assert np.array_equal(
        dataset.train[0], wb.data.from_frame(frame, target="ill", bounds=BOUNDS).train[0]
    )
    file.write_bytes(b"no table")
    refused_by(wb.data.from_parquet, file, "cannot be read as Parquet")


def test_parquet_says_which_package_is_missing(tmp_path, monkeypatch):
    (tmp_path / "table.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused_by(wb.data.from_parquet, tmp_path / "table.parquet", "pip install pyarrow")


def refused_by(function, path, reason, **options):
    with pytest.raises(ArgumentError) as caught:
        function(path, **{"bounds": (0, 1), **options})
    assert caught.value.argument == "path"
    assert repr(str(path)) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_npz_may_hold_its_own_evaluation_records(tmp_path):
    images = np.zeros((5, 4, 4), np.uint8)
    np.savez(
        tmp_path / "images.npz",
        x_train=images,
        y_train=np.arange(5),
        x_test=images[:2],
        y_test=np.arange(2),
    )
    dataset = wb.data.from_npz(tmp_path / "images.npz", classes=5)
    assert (dataset.num_train, dataset.num_evaluation, dataset.image_shape) == (5, 2, (4, 4))


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"a": [1]}, "must have an array 'x' or 'x_train'; it has a."),
        ({"x_train": [[1]], "y_train": [1], "x_test": [[1]]}, "no 'y_test'"),
        ({"x": np.zeros((2, 3, 3)), "group": [1, 2]}, "images with groups"),
        ({"x": np.array([{}], object)}, "cannot be read as .npz"),
    ],
)
def test_an_npz_that_holds_something_else_is_named(tmp_path, arrays, reason):
    np.savez(tmp_path / "table.npz", **arrays)
    refused_by(wb.data.from_npz, tmp_path / "table.npz", reason)


def test_a_single_array_is_no_npz(tmp_path):
    np.save(tmp_path / "array.npy", np.zeros((3, 2)))
    refused_by(wb.data.from_npz, tmp_path / "array.npy", "save several by name")
    (tmp_path / "text.npz").write_text("text")
    refused_by(wb.data.from_npz, tmp_path / "text.npz", "cannot be read as .npz")
    refused_by(wb.data.from_npz, tmp_path / "nowhere.npz", "no such file")


def test_the_suffix_says_how_a_file_is_read(frame, tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    np.savez(tmp_path / "b.NPZ", x=frame[["age", "dose"]], y=frame["ill"])
    (tmp_path / "b.NPZ.npz").rename(tmp_path / "b.NPZ")
    assert wb.data.from_file(tmp_path / "a.csv.gz", target="ill", bounds=BOUNDS).name == "a"
    assert wb.data.from_file(str(tmp_path / "b.NPZ"), bounds=(0, 100)).name == "b"


@pytest.mark.parametrize("name", ["table.xlsx", "table", "csv", "table.csv.txt.gz"])
def test_another_suffix_is_refused_with_those_that_are_known(tmp_path, name):
    refused_by(wb.data.from_file, tmp_path / name, ".csv, .parquet, .pq, .npz")


def test_a_record_in_the_place_of_the_names_is_not_quoted(tmp_path):
    """All its fields are text, so that it does not look like values."""
    file = tmp_path / "table.csv"
    file.write_text("smoker,male,ill\nnever,female,well\nsmoker,male,ill\nnever,male,ill\n")
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_csv(file, target="outcome", positive="ill", schema={"sex": ["male", "female"]})
    assert (caught.value.argument, caught.value.code) == ("path", "no header")
    assert not any(
        cell in str(caught.value).removeprefix(f"path={str(file)!r}")
        for cell in ("smoker", "male", "well")
    )


def test_one_name_that_is_also_a_value_is_no_record(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("female,visits,ill\nfemale,2,1\nmale,3,0\n")
    assert list(read_csv(file).columns) == ["female", "visits", "ill"]


def test_an_unreadable_file_says_its_kind_and_its_reason_apart(tmp_path):
    file = tmp_path / "table.npz"
    file.write_bytes(b"no archive")
    with pytest.raises(UnreadableFileError) as caught:
        wb.data.from_npz(file)
    assert (caught.value.argument, caught.value.kind) == ("path", ".npz")
