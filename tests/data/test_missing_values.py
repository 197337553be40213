"""Rows with missing values: refused, left out, or completed with public values, each by itself."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from tests.conftest import examples
from workbench import ArgumentError

SCHEMA = {
    "age": (0, 120),
    "visits": (0, 9, int),
    "sex": ["f", "m"],
    "smoker": bool,
    "ward": wb.data.Categorical(["a"], other=True),
}
ROW = {"age": 30.0, "visits": 2.0, "sex": "f", "smoker": True, "ward": "a", "ill": 1}


def table(rows=60, **missing):
    """Distinct rows; ``missing`` has the rows of a column without a value."""
    frame = pd.DataFrame([ROW] * rows).assign(age=np.arange(rows) * 1.0, ill=[0, 1] * (rows // 2))
    for column, absent in missing.items():
        frame[column] = frame[column].astype(object)
        frame.loc[absent, column] = None
    return frame


def made(frame, missing, **options):
    return wb.data.from_frame(
        frame, **{"target": "ill", "schema": SCHEMA, "missing": missing, **options}
    )


def rows_of(data):
    """All records of a data set, and the side that each is on, in a fixed order."""
    return sorted(
        (side, *(array[place].tobytes() for array in arrays))
        for side, arrays in (("train", data.train), ("evaluation", data.evaluation))
        for place in range(len(arrays[0]))
    )


@pytest.mark.parametrize("column", ["age", "visits", "sex", "smoker", "ill"])
def test_rows_without_a_value_are_left_out(column):
    frame = table(**{column: [3, 8]})
    with pytest.raises(ArgumentError):
        made(frame, "refuse")
    expected = made(frame.drop(index=[3, 8]).infer_objects(), "refuse")
    assert rows_of(made(frame, "drop")) == rows_of(expected)
    assert made(frame, "drop").description.endswith("Rows with a missing value are left out.")


def test_refusals_say_what_can_be_done():
    for frame in (table(age=[3]), table(ill=[3])):
        with pytest.raises(ArgumentError, match="missing='drop' leaves them out") as caught:
            made(frame, "refuse")
        assert caught.value.code == "missing"


def test_the_middle_of_the_bounds_stands_for_a_missing_number():
    data = made(table(age=[3], visits=[3, 5], sex=[7]), "middle")
    records = np.concatenate([data.train[0], data.evaluation[0]])
    assert len(records) == 59
    assert np.sum(records[:, 1] == 0) == 2
    expected = table().assign(
        visits=lambda frame: frame["visits"].where(~frame.index.isin([3, 5]), 4.5)
    )
    expected.loc[3, "age"] = 60.0
    assert rows_of(data) == rows_of(made(expected.drop(index=7), "refuse"))


def test_an_indicator_says_which_numbers_are_missing():
    frame = table(age=[3], visits=[3, 5], sex=[7])
    data = made(frame, "indicator")
    assert data.feature_names[:4] == ("age", "age is missing", "visits", "visits is missing")
    records = np.concatenate([data.train[0], data.evaluation[0]])
    assert len(records) == 59
    assert records[:, 3].sum() == 2
    assert np.all(records[records[:, 3] == 1][:, 2] == 0)
    without = [row[[0, 2, *range(4, records.shape[1])]].tobytes() for row in records]
    middles = made(frame, "middle")
    assert sorted(without) == sorted(
        row.tobytes() for row in (*middles.train[0], *middles.evaluation[0])
    )
    again = data.schema.decode(records)
    assert again["visits"].isna().sum() == 2
    assert set(again["visits"].dropna()) == {2.0}
    other = made(frame, {"visits": "indicator", "age": 50})
    assert other.feature_names[:3] == ("age", "visits", "visits is missing")
    known = wb.data.Schema.from_dict(data.schema.to_dict())
    assert known == data.schema
    assert wb.data.Schema.from_declaration(SCHEMA).to_dict()["age"]["missing"] is False


@pytest.mark.parametrize("column", ["sex", "smoker", "ward"])
def test_an_indicator_is_for_numbers(column):
    with pytest.raises(ArgumentError, match="missing"):
        made(table(), {column: "indicator"})


def test_a_number_that_may_be_missing_is_still_a_number():
    frame = table().assign(age="old")
    with pytest.raises(ArgumentError, match=r"age=.*not a number") as caught:
        made(frame, "indicator")
    assert "old" not in str(caught.value)


def test_a_missing_category_that_has_a_level_is_not_missing():
    data = made(table(ward=[2, 4]), "drop")
    assert data.num_train + data.num_evaluation == 60
    assert rows_of(data) == rows_of(made(table(ward=[2, 4]), "refuse"))
    assert data.num_train + data.num_evaluation == 60


def test_declared_values_stand_for_missing_ones():
    frame = table(age=[1], sex=[2], smoker=[3], ward=[4], visits=[5])
    data = made(frame, {"age": 40, "sex": "m", "smoker": False, "ward": "a"})
    expected = table().drop(index=5)
    expected.loc[1, "age"], expected.loc[2, "sex"], expected.loc[3, "smoker"] = 40.0, "m", False
    assert rows_of(data) == rows_of(made(expected, "refuse"))


def test_groups_bounds_and_arrays():
    frame = table(sex=[3], age=[5])
    grouped = made(frame, "drop", schema={"age": (0, 120)}, group="sex", groups=["f", "m"])
    assert grouped.num_train + grouped.num_evaluation == 58
    by_bounds = made(frame, "middle", schema=None, bounds={"age": (0, 100)}, features=["age"])
    assert by_bounds.num_train + by_bounds.num_evaluation == 60
    x = np.where(np.arange(40)[:, None] == 7, np.nan, np.linspace(0, 1, 80).reshape(40, 2))
    arrays = wb.data.from_arrays(x, bounds=(0, 1), missing="drop")
    assert arrays.num_train + arrays.num_evaluation == 39


def test_unused_columns_may_miss_values():
    frame = table().assign(note=None)
    assert rows_of(made(frame, "drop")) == rows_of(made(table(), "refuse"))


def test_given_evaluation_records_are_treated_alike():
    data = made(table(age=[3]), "drop", evaluation=table(10, age=[2]))
    assert (data.num_train, data.num_evaluation) == (59, 9)
    with pytest.raises(ArgumentError, match=r"^missing='drop'"):
        made(table(), "drop", evaluation=table(4, age=range(4)))
    with pytest.raises(
        ArgumentError, match=r"^missing='drop'"
    ):  # and not the share of evaluation records
        made(table(age=range(58)), "drop")


@pytest.mark.parametrize("target", [{"target_bounds": (0, 9)}, {"threshold": 1}])
def test_infinite_numbers_are_missing(target):
    """Of features and of targets that are numbers, whatever type the column has. The advice for
    them is thus right.
    """
    infinite = pd.DataFrame(
        {"age": [1.0, np.inf, -np.inf, 4, 5] * 20, "dose": [0.5] * 98 + [np.inf, 1.0]}
    )
    for frame in (
        infinite,
        infinite.astype(object),
        infinite.astype(object).replace(np.inf, "inf"),
    ):
        options = {"target": "dose", "bounds": {"age": (0, 9)}, **target}
        with pytest.raises(
            ArgumentError, match=r"infinite in some row.*missing='drop' leaves them out"
        ):
            wb.data.from_frame(frame, **options)
        data = wb.data.from_frame(frame, missing="drop", **options)
        assert data.num_train + data.num_evaluation == 59
        gapped = frame.assign(age=pd.Series([1.0, None, None, 4, 5] * 20, dtype=object))
        for missing in ("middle", "indicator", {"age": 3}):
            filled, expected = (
                wb.data.from_frame(each, missing=missing, **options) for each in (frame, gapped)
            )
            np.testing.assert_array_equal(filled.train[0], expected.train[0])


@pytest.mark.parametrize("column", ["age", "sex", "smoker"])
def test_other_cells_are_still_refused(column):
    """A date or a text is not a missing value."""
    for cell in ("zebra",) if column == "age" else (7.5,):
        frame = table(age=[3])
        frame[column] = frame[column].astype(object)
        frame.loc[9, column] = cell
        for missing in ("drop", "middle", {"age": 3}):
            with pytest.raises(ArgumentError) as caught:
                made(frame, missing)
            assert caught.value.argument == column
            assert "zebra" not in str(caught.value)
    dates = table().assign(age=pd.to_datetime(["2020-01-01", None] * 30))
    for missing in ("middle", {"age": 3}):
        with pytest.raises(ArgumentError, match="plain numbers"):
            made(dates, missing)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("mean", "missing='mean': must be one of"),
        (None, "missing=None: must be one of"),
        (3, "missing=3"),
        (["drop"], "missing="),
        (np.zeros(3), "missing="),
        ({"agee": 3}, "missing='agee'"),
        ({"ill": 1}, "missing='ill'"),
        ({"age": "old"}, "missing['age']='old'"),
        ({"age": 121}, "missing['age']=121"),
        ({"age": np.nan}, "missing['age']=nan"),
        ({"sex": "x"}, "missing['sex']='x'"),
        ({"smoker": "no"}, "missing['smoker']='no'"),
    ],
)
def test_other_ways_are_refused_with_their_name_and_value(missing, message):
    with pytest.raises(ArgumentError) as caught:
        made(table(), missing)
    assert str(caught.value).startswith(message)


CELLS = {
    "age": st.sampled_from([None, 0.1, 33.3, 1e9]),
    "visits": st.sampled_from([None, 0, 7]),
    "sex": st.sampled_from([None, "f", "m"]),
    "smoker": st.sampled_from([None, True, False]),
    "ward": st.sampled_from([None, "a", "z"]),
    "ill": st.sampled_from([None, 0, 1]),
}


WAYS = ["drop", "middle", {"age": 5, "sex": "m"}, "indicator", {"age": "indicator", "sex": "m"}]


@examples(50)
@given(st.fixed_dictionaries(CELLS), st.sampled_from(WAYS), st.booleans())
def test_a_row_more_is_at_most_a_record_more(row, missing, as_file):
    """Tables that differ in one row give records that differ in at most one, and no record changes
    sides.
    """
    before = table(20, age=[4], sex=[7])
    after = pd.concat([before.astype(object), pd.DataFrame([row], dtype=object)], ignore_index=True)

    def records(frame):
        if as_file:
            content = frame.to_csv(index=False, sep=";", decimal=",").encode()
            data = wb.data.from_csv(
                io.BytesIO(content), target="ill", schema=SCHEMA, missing=missing
            )
        else:
            data = made(frame, missing)
        return rows_of(data)

    one, other = records(before), records(after)
    added = list(other)
    for record in one:
        added.remove(record)
    assert len(added) <= 1
