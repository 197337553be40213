"""Tables as other programs write them: what is plain is read, and the rest is refused with what to
do about it.
"""

import datetime
import io
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.preprocessing import finite_numbers

N = 60
TABLE = pd.DataFrame({"age": np.linspace(0, 9, N), "ill": [0, 1] * (N // 2)})
OPTIONS = {"target": "ill", "bounds": {"age": (0, 9)}}
COMPOSED = "größe"
DECOMPOSED = unicodedata.normalize("NFD", COMPOSED)
DAYS = pd.date_range("2020-01-01", periods=2)


def refused(call):
    with pytest.raises(ArgumentError) as caught:
        call()
    return str(caught.value)


def same(data, expected):
    assert data.feature_names == expected.feature_names
    for array, other in zip(
        (*data.train, *data.evaluation), (*expected.train, *expected.evaluation), strict=True
    ):
        np.testing.assert_array_equal(array, other)


# ---- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [COMPOSED, DECOMPOSED])
@pytest.mark.parametrize("declared", [COMPOSED, DECOMPOSED])
def test_names_and_levels_are_the_same_in_both_forms_of_unicode(name, declared, tmp_path):
    frame = TABLE.assign(kind=[name, "other"] * 30).rename(
        columns={"age": name, "ill": f"{name} 2"}
    )
    schema = {declared: (0, 9), "kind": [declared, "other"]}
    options = {"target": f"{declared} 2", "schema": schema, "missing": {declared: 3}}
    data = wb.data.from_frame(frame, **options)
    assert data.feature_names == (COMPOSED, "kind=other")
    frame.to_csv(tmp_path / "t.csv", index=False)
    same(wb.data.from_csv(tmp_path / "t.csv", **options), data)
    wb.data.pack(tmp_path / "t.csv", tmp_path / "t.wbr", **options)
    same(wb.data.open(tmp_path / "t.wbr"), data)
    np.testing.assert_array_equal(data.schema.encode(frame)[:, 1], [0, 1] * 30)
    bounds = {"target": f"{declared} 2", "bounds": {declared: (0, 9)}, "features": [declared]}
    assert wb.data.from_frame(frame, **bounds).feature_names == (COMPOSED,)


@pytest.mark.parametrize(
    "days", [list(DAYS), [day.date() for day in DAYS], ["2020-01-01", "2020-01-02"]], ids=str
)
@pytest.mark.parametrize(
    "declared", [list(DAYS), [day.date() for day in DAYS], ["2020-01-01", "2020-01-02"]], ids=str
)
def test_days_are_levels_in_whatever_type(days, declared):
    data = wb.data.from_frame(TABLE.assign(day=days * 30), target="ill", schema={"day": declared})
    assert data.feature_names == ("day=2020-01-02",)


def test_blanks_after_separators_are_no_part_of_names_and_levels():
    text = "age, sex , ill\n" + "1, f, no\n2, m , yes\n" * 30
    options = {
        "target": "ill",
        "schema": {"age": (0, 9), "sex": ["f", "m"]},
        "classes": ["no", "yes"],
    }
    data = wb.data.from_csv(io.BytesIO(text.encode()), **options)
    same(data, wb.data.from_csv(io.BytesIO(text.replace(" ", "").encode()), **options))
    assert "two columns with the name 'age'" in refused(
        lambda: wb.data.from_csv(io.BytesIO(text.replace("sex", "age").encode()), **options)
    )


@pytest.mark.parametrize(
    ("yes", "no"),
    [
        ("yes", "no"),
        ("Y", "N"),
        (" True", "FALSE "),
        ("t", "f"),
        (True, False),
        ("1", "0"),
        (1, "no"),
    ],
)
def test_words_for_truth_are_read_where_bool_is_declared(yes, no):
    frame = TABLE.assign(smoker=pd.Series([yes, no] * 30, dtype=object))
    data = wb.data.from_frame(frame, target="ill", schema={"smoker": bool})
    same(
        data,
        wb.data.from_frame(
            TABLE.assign(smoker=[True, False] * 30), target="ill", schema={"smoker": bool}
        ),
    )


def test_levels_of_a_named_index_are_columns_if_they_are_declared(tmp_path):
    frame = TABLE.assign(id=np.arange(N) // 2)
    options = {**OPTIONS, "unit_id": "id", "max_rows": 2}
    data = wb.data.from_frame(frame, **options)
    same(wb.data.from_frame(frame.set_index("id"), **options), data)
    same(wb.data.from_frame(frame.set_index(["id", "ill"]), **options), data)
    frame.set_index("id").to_parquet(tmp_path / "t.parquet")
    same(wb.data.from_parquet(tmp_path / "t.parquet", **options), data)
    wb.data.pack(tmp_path / "t.parquet", tmp_path / "t.wbr", **options)
    same(wb.data.open(tmp_path / "t.wbr"), data)
    # what nobody asks for is no feature
    assert wb.data.from_frame(frame.set_index("id"), target="ill", bounds=(0, 9)).feature_names == (
        "age",
    )
    np.testing.assert_array_equal(
        data.schema.encode(frame.set_index("age")), data.schema.encode(frame)
    )


class Foreign:
    """A table of another package."""

    def __init__(self, frame):
        self._frame = frame

    def to_pandas(self):
        if isinstance(self._frame, Exception):
            raise self._frame
        return self._frame


def test_tables_that_convert_themselves_are_taken():
    arrow = pytest.importorskip("pyarrow")
    data = wb.data.from_frame(TABLE[:40], evaluation=TABLE[40:], **OPTIONS)
    for make in (arrow.Table.from_pandas, Foreign):
        same(wb.data.from_frame(make(TABLE[:40]), evaluation=make(TABLE[40:]), **OPTIONS), data)
        np.testing.assert_array_equal(data.schema.encode(make(TABLE)), data.schema.encode(TABLE))
    for table in (Foreign(ImportError("Quagmire")), Foreign([1]), Foreign):
        message = refused(lambda table=table: wb.data.from_frame(table, **OPTIONS))
        assert message.startswith("frame=")
        assert "Quagmire" not in message


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (["45 %", "7%", 3], "take off the percent signs"),
        (["1 234,5", "7,0"], "decimal=','"),
        (["1\u202f234", "7,0"], "decimal=','"),
        (["1,234.5", None], "between thousands"),
        (["1'234", "2"], "between thousands"),
        (["2020-01-31", "2020-02-28 10:00"], "convert dates"),
        (["31.1.2020", "1"], "convert dates"),
        ([datetime.date(2020, 1, 31), 1], "convert dates"),
        ([pd.Timestamp("2020-01-31")] * 2, "convert dates"),
        (pd.PeriodIndex(["2020-01", "2020-02"], freq="M"), "convert dates"),
        (["yes", "No"], "declare it as bool"),
        (["NA", 3], "say with missing="),
        (["n/a", "", "-", "1.5"], "say with missing="),
        (["NA", "old"], "declare its categories"),
        ([1j, 2j], "complex numbers are not taken"),
        (np.array([1j, 2j], object), "complex numbers are not taken"),
        (["45 %", "old"], "declare its categories"),
        (["old", "1"], "declare its categories"),
        ([[1], 2], "declare its categories"),
    ],
    ids=str,
)
def test_cells_that_are_no_numbers_are_refused_with_what_to_do(cells, advice):
    message = refused(lambda: finite_numbers(pd.Series(cells, name="cell")))
    assert advice in message
    assert not any(digits in message for digits in ("45", "234", "2020", "old"))


def test_a_range_of_dates_is_refused_with_what_to_do():
    for options in (
        {"bounds": {"day": tuple(DAYS)}, "features": ["day"]},
        {"schema": {"day": tuple(DAYS)}},
    ):
        assert "days since a public date" in refused(
            lambda options=options: wb.data.from_frame(
                TABLE.assign(day=list(DAYS) * 30), target="ill", **options
            )
        )


def test_files_of_other_programs_are_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as book:
        book.writestr("[Content_Types].xml", "Quagmire" * 99)
    excel = (tmp_path / "book.xlsx").read_bytes()
    (tmp_path / "book.csv").write_bytes(excel)
    (tmp_path / "old.csv").write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + b"Quagmire" * 99)
    TABLE.to_csv(tmp_path / "packed.csv.gz", index=False)
    (tmp_path / "packed.csv").write_bytes((tmp_path / "packed.csv.gz").read_bytes())
    TABLE.to_parquet(tmp_path / "table.parquet")
    (tmp_path / "table.csv").write_bytes((tmp_path / "table.parquet").read_bytes())
    for path, words in (
        ("book.xlsx", "save the sheet as CSV"),
        ("book.csv", "save the sheet as CSV"),
        ("old.csv", "save the sheet as CSV"),
        ("packed.csv", "name it .csv.gz"),
        ("table.csv", "name it .parquet"),
        ("table.tsv", "name it .csv"),
    ):
        message = refused(lambda path=path: wb.data.from_file(tmp_path / path, **OPTIONS))
        assert words in message
        assert "Quagmire" not in message
    assert "save the sheet as CSV" in refused(
        lambda: wb.data.from_csv(io.BytesIO(excel), **OPTIONS)
    )
    TABLE.to_csv(tmp_path / "packed.csv.zip", index=False)
    assert wb.data.from_file(tmp_path / "packed.csv.zip", **OPTIONS)


def test_what_is_outside_a_declaration_is_said_with_it():
    frame = TABLE.assign(ill=["yes", "no"] * 30)
    said = " ".join(
        wb.data.from_frame(
            frame, target="ill", positive="Yes", bounds={"age": (0, 9)}
        ).declarations()
    )
    assert "set to the nearest bound" in said
    assert "All values of the target but 'Yes' are one class" in said


def test_complex_numbers_are_no_target():
    frame = TABLE.assign(ill=np.array([1j, 1 + 1j] * 30))
    options = {"target": "ill", "bounds": {"age": (0, 9)}}
    assert "other values than 0 and 1" in refused(lambda: wb.data.from_frame(frame, **options))
    message = refused(lambda: wb.data.from_frame(frame, target_bounds=(0, 1), **options))
    assert "complex numbers are not taken" in message


@pytest.mark.parametrize(
    "text",
    ["# made in 2020\nage,ill\n1,0\n", "# a, b\nage,ill\n", "#made\nage,ill\n", "% c\nage,ill\n"],
)
def test_a_file_that_begins_with_a_comment_is_refused(text):
    message = refused(
        lambda: wb.data.from_csv(io.BytesIO(text.encode()), target="ill", bounds={"age": (0, 9)})
    )
    assert "the first line must hold the column names" in message
    assert "made" not in message


def test_names_may_begin_with_a_hash():
    content = "#,#age,ill\n" + "1,2,0\n2,3,1\n" * 20
    assert wb.data.from_csv(
        io.BytesIO(content.encode()), target="ill", bounds=(0, 9)
    ).feature_names == ("#", "#age")


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_table_with_too_few_rows_is_refused_as_such(rows):
    options = {"target": "ill", "bounds": {"age": (0, 9)}}
    message = refused(lambda: wb.data.from_frame(TABLE.head(rows), **options))
    assert "has too few rows" in message
    assert message.startswith("frame=")
    if rows < 2:
        assert "has too few rows" in refused(
            lambda: wb.data.from_frame(TABLE.head(rows), evaluation_fraction=0, **options)
        )
