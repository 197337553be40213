"""The roles that columns begin with, from their names and types."""

import io

import numpy as np
import pandas as pd
import pytest

from workbench.widgets.workbench.data_source import frame_table, upload_table
from workbench.widgets.workbench.roles import suggested


@pytest.mark.parametrize(
    ("name", "kind", "role"),
    [
        ("id", "int64", "leave out"),
        ("patient_id", "int64", "leave out"),
        ("PatientID", "object", "leave out"),
        ("id-number", "float64", "leave out"),
        ("uuid", "object", "leave out"),
        ("idle", "float64", "number"),
        ("acid", "float64", "number"),
        ("humidity", "float64", "number"),
        ("solid", "bool", "yes / no"),
        ("notes", "object", "leave out"),
        ("lastName", "object", "leave out"),
        ("notes", "int64", "number"),  # the number of notes
        ("name", "category", "category"),  # its values are declared in the type
        ("ward", "object", "category"),
        ("visit date", "object", "leave out"),
        ("date", "int64", "number"),
        ("updated", "datetime64[ns]", "leave out"),
        ("update", "object", "category"),
        ("z", "complex128", "leave out"),
        ("", "float64", "number"),
        ("ö", "float64", "number"),
    ],
)
def test_names_and_types_suggest_roles(name, kind, role):
    found, note = suggested(name, pd.api.types.pandas_dtype(kind))
    assert found == role
    assert bool(note) == (role == "leave out" and kind != "complex128")


@pytest.mark.parametrize(
    ("cells", "role"),
    [
        (["2024-01-31", "2024-02-01"], "leave out"),
        (["2024-01-31 10:30", ""], "leave out"),
        (["2024-01-31T10:30:00.5Z"], "leave out"),
        (["31.01.2024", "1.2.2024"], "leave out"),
        (["01/31/2024"], "leave out"),
        (["2024-01-31", "soon"], "category"),
        (["1.2"], "number"),
        (["True", "", "False"], "yes / no"),
        (["True", "maybe"], "category"),
        (["a", "b"], "category"),
        (["", ""], "leave out"),  # pandas makes numbers of nothing, and every row would be left out
    ],
)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_types_of_columns_in_files(cells, role, separator):
    content = f"when{separator}b\n" + "".join(f"{cell}{separator}1\n" for cell in cells)
    column = upload_table("table.csv", content.encode()).columns[0]
    assert column.role == role


def test_numbers_with_leading_zeros_are_codes():
    content = b"zip,size,zero,self\n01069,120,0, 012\n80331,10,0,\n"
    table = upload_table("t.csv", content)
    assert [column.role for column in table.columns] == ["category", "number", "number", "category"]
    assert table.read({"zip": str})["zip"].tolist() == ["01069", "80331"]


def test_roles_do_not_depend_on_values():
    """Tables of the same names and types, one with values that are all different, one with a single
    value.
    """
    random = np.random.default_rng(1)
    one = pd.DataFrame({"a": ["x"] * 50, "b": [1.5] * 50, "visit": ["2020-01-01"] * 50})
    other = pd.DataFrame(
        {
            "a": [f"a long text of its own, {number}" for number in range(50)],
            "b": random.normal(size=50),
            "visit": ["x"] * 50,
        }
    )
    assert frame_table("t", one).columns == frame_table("t", other).columns
    files = [frame[["a", "b"]].to_csv(index=False).encode() for frame in (one, other)]
    assert upload_table("t.csv", files[0]).columns == upload_table("t.csv", files[1]).columns


def test_only_the_first_rows_of_a_file_give_types():
    rows = pd.DataFrame({"a": ["2024-01-01"] * 200 + ["soon"], "b": 1})
    buffer = io.BytesIO()
    rows.to_csv(buffer, index=False)
    assert upload_table("t.csv", buffer.getvalue()).columns[0].role == "leave out"
