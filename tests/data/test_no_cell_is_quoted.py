"""Whatever is wrong with private records, no error or warning shows a cell of theirs, nor do those
that it came from.
"""

import dataclasses
import datetime
import decimal
import functools
import io
import warnings

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.ledger.fingerprint import fingerprint
from workbench.results.prediction import _check_codes
from workbench.widgets.workbench.data_source import file_table, frame_table, upload_table
from workbench.widgets.workbench.declarations import ColumnDeclaration, TableDeclaration

TEXT = "Seymour Quagmire"
NUMBER = 774_233
MARKS = ("Seymour", "Quagmire", "774233", "774_233", "774,233", "7.74233", "2089-07-23")
DAY = datetime.datetime(2089, 7, 23)


class Awkward:
    """Shows itself wherever somebody tries to make something of it."""

    def __repr__(self):
        return TEXT

    def __float__(self):
        raise ValueError(TEXT)

    __array__ = __str__ = __int__ = __bool__ = __hash__ = __len__ = __float__


CELLS = {
    "text": TEXT,
    "number": NUMBER,
    "fraction": NUMBER + 0.5,
    "negative": -NUMBER,
    "huge": NUMBER * 10**400,
    "list": [TEXT, NUMBER],
    "dict": {TEXT: NUMBER},
    "tuple": (NUMBER,),
    "bytes": TEXT.encode(),
    "complex": NUMBER + 1j,
    "date": DAY,
    "timestamp": pd.Timestamp(DAY),
    "decimal": decimal.Decimal(NUMBER),
    "array": np.array([NUMBER]),
    "none": None,
    "na": pd.NA,
    "infinite": float("inf"),
    "awkward": Awkward(),
    "series": pd.Series([NUMBER]),
    "interval": pd.Interval(0, NUMBER),
}


def carried(error, seen=()):
    """Every text that goes with an error: its own, its notes and attributes, and those of the
    errors behind it.
    """
    if error is None or any(error is each for each in seen):
        return ""
    own = [
        str(error),
        repr(error),
        repr(error.args),
        repr(vars(error)),
        *getattr(error, "__notes__", []),
    ]
    behind = [carried(each, (*seen, error)) for each in (error.__cause__, error.__context__)]
    return " ".join([*own, *behind])


def shown_by(call):
    """What a call shows on its way and in its error; None where it has none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
            error = None
        except ArgumentError as raised:
            error = raised
    texts = [str(warning.message) for warning in caught] + [carried(error)]
    assert not [mark for mark in MARKS for text in texts if mark in text]
    return None if error is None else str(error)


def column(cell, others):
    """60 cells, the 38th of them ``cell``."""
    cells = pd.Series([*others, *others][:60], dtype=object)
    cells.iat[37] = cell
    return cells


FRAME = pd.DataFrame({"age": np.linspace(0, 9, 60), "ill": [0, 1] * 30})
NUMBERS, TEXTS, FLAGS = [1.0, 2.0] * 30, ["a", "b"] * 30, [True, False] * 30
TABLES = {
    "bounds": (NUMBERS, {"bounds": (0, 9)}),
    "number": (NUMBERS, {"schema": {"cell": (0, 9)}}),
    "category": (TEXTS, {"schema": {"cell": ["a", "b"]}}),
    "boolean": (FLAGS, {"schema": {"cell": bool}}),
    "undeclared target": (FLAGS, {"target": "cell", "bounds": (0, 9)}),
    "classes": (TEXTS, {"target": "cell", "classes": ["a", "b"], "bounds": (0, 9)}),
    "positive": (TEXTS, {"target": "cell", "positive": "a", "bounds": (0, 9)}),
    "threshold": (NUMBERS, {"target": "cell", "threshold": 1.5, "bounds": (0, 9)}),
    "group": (TEXTS, {"group": "cell", "groups": ["a", "b"], "bounds": (0, 9)}),
}


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("table", TABLES)
def test_no_cell_of_a_table_is_quoted(table, cell):
    others, options = TABLES[table]
    frame = FRAME.assign(cell=column(CELLS[cell], others))
    message = shown_by(lambda: wb.data.from_frame(frame, **{"target": "ill", **options}))
    evaluation = {"evaluation": frame[30:]}
    assert (message is None) == (
        shown_by(
            lambda: wb.data.from_frame(frame[:30], **{"target": "ill", **options}, **evaluation)
        )
        is None
    )
    if cell == "text" and table != "positive":  # it would be no test if these were taken
        assert "row" in message or "positive" in message


@pytest.mark.parametrize("kind", ["category", "string", "Int64", "Float64"])
def test_no_cell_of_a_typed_column_is_quoted(kind):
    value = TEXT if kind in ("category", "string") else NUMBER
    frame = FRAME.assign(cell=pd.Series([value, None] * 30, dtype=kind))
    for options in (
        {"bounds": (0, 9)},
        {"schema": {"cell": bool}},
        {"schema": {"cell": ["a"]}},
    ):
        assert "row" in shown_by(
            lambda options=options: wb.data.from_frame(frame, target="ill", **options)
        )


X, Y = np.zeros((40, 2, 2)), np.zeros(40, int)


def planted(array, value):
    changed = np.array(array, type(value) if isinstance(value, (int, float)) else object)
    changed.flat[17] = value
    return changed


@pytest.mark.parametrize("value", [NUMBER, NUMBER + 0.5, -NUMBER, TEXT, np.nan, [TEXT]], ids=repr)
@pytest.mark.parametrize(
    "make",
    [
        lambda value: wb.data.from_images(planted(X, value)),
        lambda value: wb.data.from_images(X, planted(Y, value), classes=2),
        lambda value: wb.data.from_images(X, Y, classes=2, evaluation=(planted(X, value), Y)),
        lambda value: wb.data.from_tokens(planted(X[:, 0], value), vocabulary_size=5),
        lambda value: wb.data.from_tokens(
            X[:, 0].astype(int), planted(Y, value), vocabulary_size=5, classes=3
        ),
        lambda value: wb.data.from_arrays(X[:, 0], planted(Y, value), bounds=(0, 1)),
        lambda value: wb.data.from_arrays(
            X[:, 0], group=planted(Y, value), groups=[0, 1], bounds=(0, 1)
        ),
        lambda value: wb.data.from_arrays([[1, 2], [value]], bounds=(0, 1)),
        lambda value: fingerprint(dataclasses.replace(BARE, train=(np.array([[value]], object),))),
        lambda value: dataclasses.replace(
            BARE, train=(X[:, 0], planted(Y, value)), arrays=("x", "y")
        ).check(),
        lambda value: _check_codes("y", planted(Y, value), 3),
    ],
)
def test_no_entry_of_an_array_is_quoted(make, value):
    assert shown_by(lambda: make(value)) is not None or isinstance(value, (str, list, float))


BARE = wb.data.Dataset("bare", "", (X[:, 0],), (X[:1, 0],), arrays=("x",), classes=("a", "b"))

GOOD = "age,cell\n" + "1,2\n" * 30
FILES = {
    "text": GOOD + f"3,{TEXT}\n",
    "number": GOOD + f"3,{NUMBER}{'0' * 400}\n",
    "too many": GOOD + f"3,4,{TEXT}\n",
    "too many, first": f"age,cell\n3,4,{TEXT}\n" + "1,2\n" * 30,
    "too many, all": "age,cell\n" + f"{TEXT},3,4\n" * 30,
    "open quote": GOOD + f'3,"{TEXT}\n',
    "not UTF-8": GOOD.encode() + TEXT.encode() + b",\xff\xfe\n",
    "UTF-16": (GOOD + TEXT).encode("utf-16"),
    "NUL": GOOD + f"3,\0{TEXT}\n",
    "mixed": "age,cell\n" + "1.0000000,2.0000000\n" * 20_000 + f"{TEXT},{TEXT}\n",
}


@pytest.mark.parametrize("content", FILES)
@pytest.mark.parametrize(
    "options",
    [
        {"bounds": (0, 9)},
        {"schema": {"age": (0, 9), "cell": ["2"]}},
        {"target": "cell", "bounds": (0, 9)},
        {"target": "cell", "classes": ["2", "3"], "bounds": (0, 9)},
    ],
    ids=lambda options: options.get("target", next(iter(options))) + str(len(options)),
)
def test_no_cell_of_a_csv_file_is_quoted(tmp_path, command, content, options):
    held = FILES[content] if isinstance(FILES[content], bytes) else FILES[content].encode()
    (tmp_path / "table.csv").write_bytes(held)
    assert shown_by(lambda: wb.data.from_csv(tmp_path / "table.csv", **options))
    assert shown_by(lambda: wb.data.from_csv(io.BytesIO(held), **options))
    if options == {"bounds": (0, 9)}:
        code, out, err = command(
            "fit",
            "--model",
            "gmm",
            "--data",
            tmp_path / "table.csv",
            "--bounds",
            "0:9",
            "--epsilon",
            1,
        )
        assert (code, out) == (2, "")
        assert not any(mark in err for mark in MARKS)


def test_no_cell_of_a_parquet_or_npz_file_is_quoted(tmp_path):
    pytest.importorskip("pyarrow")
    bad = tmp_path / "bad.parquet"
    FRAME.assign(cell=[TEXT] * 60).to_parquet(bad)
    assert shown_by(lambda: wb.data.from_parquet(bad, target="ill", bounds=(0, 9)))
    bad.write_bytes(bad.read_bytes().replace(b"age", b"\xffge"))
    assert shown_by(lambda: wb.data.from_parquet(bad, target="ill", bounds=(0, 9)))
    bad.write_bytes(TEXT.encode() * 9)
    assert shown_by(lambda: wb.data.from_parquet(bad, target="ill", bounds=(0, 9)))
    for x in (
        np.array([[TEXT]]),
        np.array([[TEXT, NUMBER]], object),
        np.array([[DAY]], "datetime64[s]"),
    ):
        np.savez(tmp_path / "bad.npz", x=x)
        assert shown_by(lambda: wb.data.from_npz(tmp_path / "bad.npz", bounds=(0, 9)))
    (tmp_path / "bad.npz").write_bytes(TEXT.encode() * 9)
    assert shown_by(lambda: wb.data.from_npz(tmp_path / "bad.npz", bounds=(0, 9)))


@pytest.mark.parametrize("cell", CELLS)
def test_no_cell_is_quoted_on_the_screen(cell):
    frame = FRAME.assign(cell=column(CELLS[cell], NUMBERS))
    for declared in (
        ColumnDeclaration("cell", "number", low="0", high="9"),
        ColumnDeclaration("cell", "category", values="1, 2"),
        ColumnDeclaration("cell", "yes / no"),
        ColumnDeclaration("cell", "target"),
        ColumnDeclaration("cell", "target", positive="1"),
        ColumnDeclaration("cell", "group", groups="1, 2"),
    ):
        columns = (ColumnDeclaration("age", "number", low="0", high="9"), declared)
        source = frame_table("frame", frame[["age", "cell"]]).source(TableDeclaration(columns))
        shown_by(source.load)


@pytest.mark.parametrize("content", FILES)
def test_no_cell_of_a_file_is_quoted_on_the_screen(tmp_path, content):
    held = FILES[content] if isinstance(FILES[content], bytes) else FILES[content].encode()
    (tmp_path / "table.csv").write_bytes(held)
    columns = tuple(
        ColumnDeclaration(name, "number", low="0", high="9") for name in ("age", "cell")
    )
    for table in (
        functools.partial(upload_table, "table.csv", held),
        functools.partial(file_table, str(tmp_path / "table.csv")),
    ):
        assert shown_by(lambda table=table: table().source(TableDeclaration(columns)).load())


def test_no_cell_of_records_to_predict_is_quoted(done):
    records = wb.data.load("breast_cancer").schema.decode(done.public_records[0][:5]).astype(object)
    for cell in CELLS.values():
        table = records.copy()
        table.iat[3, 4] = cell
        shown_by(lambda table=table: done.predict(table))
    x, y = (array[:5].copy() for array in done.public_records)
    assert shown_by(lambda: done.predict(np.where(x == x[3, 4], np.nan, x)))
    assert shown_by(lambda: done.score((x, np.where(y == y[0], NUMBER, y))))
    assert shown_by(lambda: done.predict(np.ma.masked_equal(x, x[3, 4])))


# its first line is a record
HEADLESS = "first_record,774233,Quagmire\n" + "3,47,yes\n4,50,no\n" * 20
PLAIN = {"target": "Quagmire", "positive": "yes", "bounds": (0, 100)}


@pytest.mark.parametrize(
    "number", ["774233", "-774233.5", ".774233", "2089-07-23", "$774233", "7.74233e5"]
)
@pytest.mark.parametrize(
    "options",
    [
        {"target": "ill"},
        {"group": "ward", "groups": ["a"]},
        {"features": ["age"]},
        {"features": [["Quagmire"]]},
        {"bounds": {"age": (0, 100)}},
        {"bounds": {"first_record": (0, 100)}},
        {"bounds": None, "schema": {"age": (0, 100)}},
        {"bounds": None, "schema": {"first_record": (0, 100)}, "features": ["age"]},
    ],
    ids=str,
)
def test_the_first_record_of_a_file_without_names_is_not_quoted(number, options):
    content = HEADLESS.replace("774233", number).encode()
    assert wb.data.from_csv(io.BytesIO(content), **PLAIN)
    with pytest.raises(ArgumentError) as caught:
        wb.data.from_csv(io.BytesIO(content), **{**PLAIN, **options})
    assert not [mark for mark in (number, "Quagmire") if mark in carried(caught.value)]
    assert "header row" in str(caught.value) or "schema" in options


def test_a_repeated_cell_of_a_first_record_is_not_quoted():
    content = "774233,Quagmire,Quagmire\n1,2,3\n"
    assert "header row" in shown_by(
        lambda: wb.data.from_csv(io.BytesIO(content.encode()), target="ill", bounds=(0, 9))
    )
    frame = pd.DataFrame([[1, 2, 3]] * 9, columns=["774233", "Quagmire", "Quagmire"])
    assert "header row" in shown_by(lambda: wb.data.from_frame(frame, bounds=(0, 9)))
    once, other = frame.iloc[:, :2], frame.iloc[:, :1]
    assert "header row" in shown_by(
        lambda: wb.data.from_frame(once, bounds=(0, 9), evaluation=other)
    )
    assert "header row" in shown_by(
        lambda: wb.data.Schema({"age": wb.data.Numeric(0, 9)}).encode(once)
    )


@pytest.mark.parametrize("argument", ["target", "group", "features"])
@pytest.mark.parametrize(
    "value", [[TEXT, NUMBER], {TEXT: NUMBER}, (TEXT,), np.array([TEXT, NUMBER])], ids=repr
)
def test_cells_instead_of_a_name_are_shown_by_their_type(argument, value):
    given = [value] if argument == "features" else value
    assert type(value).__name__ in shown_by(
        lambda: wb.data.from_frame(FRAME, **{"bounds": (0, 9), argument: given})
    )


@pytest.mark.parametrize(
    "records", [{"age": NUMBER}, TEXT, NUMBER, [{"age": NUMBER}], ({"age": TEXT},)], ids=repr
)
def test_no_cell_of_records_in_another_form_is_quoted(done, records):
    assert shown_by(lambda: done.predict(records))
    assert shown_by(lambda: done.score(records))
