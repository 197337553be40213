"""CSV files: what a spreadsheet would compute stays a text, everything else as it was."""

import io

import numpy as np
import pandas as pd
import pytest

from workbench._csv import inert, to_csv


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        '=HYPERLINK("http://x","y")',
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "\uff1d1",
    ],
)
def test_formulas_become_texts(text):
    assert inert(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", ["", "a=b", "'=1", " x", "-1", "+2.5", "-.5e-3", "3.", 4, -2.5, None, np.nan, True]
)
def test_what_is_no_formula_is_left(value):
    assert inert(value) is value


def test_a_table_keeps_its_numbers_and_its_order():
    table = pd.DataFrame(
        {
            "=name": ["=1+1", "-1", None],
            "kind": pd.Categorical(["@x", "b", "@x"]),
            "value": np.array([-0.1, 2, np.nan], np.float32),
            "text": pd.array(["+a", "b", pd.NA], "string"),
            "count": [-1, 2, 3],
        }
    )
    written = to_csv(table, index=False)
    assert written.splitlines()[:2] == ["'=name,kind,value,text,count", "'=1+1,'@x,-0.1,'+a,-1"]
    read = pd.read_csv(io.StringIO(written))
    assert np.allclose(read["value"], table["value"], equal_nan=True)
    assert read["text"].isna().tolist() == [False, False, True]
    assert list(read["count"]) == [-1, 2, 3]


def test_tables_without_rows_and_with_one_name_twice():
    assert to_csv(pd.DataFrame({"=a": [], "b": []}), index=False) == "'=a,b\n"
    assert to_csv(pd.DataFrame([["=1", 2]], columns=["a", "a"]), index=False) == "a,a\n'=1,2\n"


def test_whole_numbers_stay_whole_beside_missing_ones():
    table = pd.DataFrame({"seed": [2**53 + 1, None], "taken": [1200, None]}, dtype=object)
    assert to_csv(table, index=False) == f"seed,taken\n{2**53 + 1},1200\n,\n"
