"""Columns of which only the type is declared: counts that a unit moves by what is stated, levels by
a threshold, and ranges that hold the column.
"""

import math

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.undeclared import Table, _edge, _leaf_of, by_type, is_complete

STEP = 1000  # spacings of a record
TYPES = {"a": float, "b": float, "n": int, "ward": str, "code": str}
EDGES = {
    "a": [0.0, -0.0, 1e308, -1e308, np.inf, -np.inf, 5e-324, -5e-324, np.nan, 1.0],
    "b": [2.0**53 + 2, 1.0, np.nextafter(1.0, 0), 1.0625, -1.0, -1.0625, 2e-59, 2.0**61, 1e19, 3.0],
    "n": [0, -1, 1, 2**62, -(2**62), 2**53 + 1, 7, 7, 7, 7],
    "ward": ["x", "x", "", None, "(other)", "rare", "x", "y", "y", "x"],
    "code": [1, "1", 1.0, None, np.nan, "2", "3", "4", "5", "6"],
    "who": [0, 0, 0, 1, 1, 2, 3, 3, 3, 3],
}


def texts_in(frame):
    """The labels of the columns of text, as they are counted."""
    columns = Table(frame, TYPES).counting().columns
    return {column.name: column.labels for column in columns if TYPES[column.name] is str}


def counts_of(frame, texts, **unit):
    """Counts, exactly, in an order that does not depend on which texts occur."""
    table = Table(frame, TYPES, **unit)
    counting = table.counting()
    counts = table.counted(counting, STEP)
    parts = []
    for column, place in counting.slices():
        if column.name in texts:
            by_text = dict(zip(column.labels, counts[place], strict=True))
            parts += [np.array([by_text.get(text, 0) for text in texts[column.name]])]
        else:
            parts += [counts[place]]
    return np.concatenate(parts), counting.sensitivity


def test_a_record_moves_counts_by_the_stated_sensitivity_and_no_further():
    frame = pd.DataFrame(EDGES)
    texts = texts_in(frame)
    whole, stated = counts_of(frame, texts)
    assert stated**2 == pytest.approx(3 * 16 + 2)
    moved = []
    for row in range(10):
        rest, _ = counts_of(frame.drop(index=row), texts)
        moved.append(sum(int(gap) ** 2 for gap in whole - rest))
    assert max(moved) == STEP**2 * round(stated**2)


@pytest.mark.parametrize("max_rows", [1, 2, 3, 10])
def test_a_unit_moves_counts_no_further_than_a_record(max_rows):
    frame = pd.DataFrame(EDGES)
    unit = {"unit_id": "who", "max_rows": max_rows}
    texts = texts_in(frame)
    whole, stated = counts_of(frame, texts, **unit)
    moved = []
    for who in range(4):
        rest, _ = counts_of(frame[frame.who != who], texts, **unit)
        moved.append(sum(int(gap) ** 2 for gap in whole - rest))
    assert 0 < max(moved) <= STEP**2 * stated**2 * (1 + 1e-12)


def test_leaves_are_in_the_order_of_the_floats_and_reach_a_sixteenth_of_an_octave():
    random = np.random.default_rng(0)
    numbers = random.normal(size=20_000) * 10.0 ** random.integers(-300, 300, 20_000)
    numbers = np.sort(np.concatenate([numbers, [0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324]]))
    leaves = _leaf_of(numbers)
    assert np.all(np.diff(leaves) >= 0)
    assert _leaf_of(np.array([-0.0])) == _leaf_of(np.array([0.0]))
    for number in (1.0, 1.5, 1e6, 1e-9):
        leaf = int(_leaf_of(np.array([number]))[0])
        assert _edge(leaf) <= number < _edge(leaf + 1) <= 1.0626 * _edge(leaf)
        leaf = int(_leaf_of(np.array([-number]))[0])
        assert _edge(leaf) <= -number <= _edge(leaf + 1)


COLUMNS = {
    "skewed": lambda random, size: random.lognormal(10, 1, size),
    "small and negative": lambda random, size: -random.exponential(1e-7, size),
    "years": lambda random, size: random.normal(2000, 5, size),
    "around 0": lambda random, size: random.normal(0, 1, size),
    "heavy tails": lambda random, size: random.standard_cauchy(size),
    "constant": lambda random, size: np.full(size, 7.0),
    "zeros": lambda random, size: np.zeros(size),
    "counts": lambda random, size: random.poisson(2, size),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_learned_ranges_hold_the_column_and_its_scale_is_found_in_them(kind, tmp_path):
    values = COLUMNS[kind](np.random.default_rng(1), 20_000)
    seen = wb.look(pd.DataFrame({"x": values}), epsilon=1, seed=3, ledger=False)
    column = seen.schema.columns["x"]
    assert np.mean((values >= column.low) & (values <= column.high)) >= 0.995
    if np.ptp(values) > 0:
        low, middle, high = seen.quantiles("x", [0.1, 0.5, 0.9])["value"]
        reach = np.quantile(values, 0.9) - np.quantile(values, 0.1)
        assert abs(low - np.quantile(values, 0.1)) < 0.1 * reach + 0.5 * column.whole
        assert abs(middle - np.quantile(values, 0.5)) < 0.1 * reach + 0.5 * column.whole
        assert abs(high - np.quantile(values, 0.9)) < 0.1 * reach + 0.5 * column.whole
    if np.all(values >= 0):
        assert column.low >= (-1.0 if kind == "zeros" else 0.0)


@pytest.mark.parametrize("rest", [1.0, 3000.0, -3000.0])
def test_a_range_does_not_end_between_most_records_and_few_others(rest):
    """One in twenty is not 0, which noise may hide. Then -1 to 1 keeps them apart from the zeros; a
    range that ended anywhere between, as of a tail, would leave them out.
    """
    values = np.where(np.arange(5000) % 20 == 0, rest, 0.0)
    misses = 0
    for seed in range(20):
        seen = wb.look(pd.DataFrame({"x": values}), epsilon=0.3, seed=seed, ledger=False)
        column = seen.schema.columns["x"]
        is_kept = column.low <= rest <= column.high
        misses += not is_kept and (column.low, column.high) != (-1.0, 1.0)
    assert misses == 0


def test_a_text_of_one_record_is_a_level_no_more_often_than_delta_allows():
    frame = pd.DataFrame({"ward": ["a"] * 300 + ["b"] * 5})
    table = Table(frame, {"ward": str})
    counting = table.counting()
    deviation, delta = 4.0, 0.02
    random = np.random.default_rng(0)
    alone = frequent = 0
    for _ in range(20_000):
        values = np.array([300.0, 1.0]) + deviation * random.normal(size=2)
        levels = table.schema(counting, values, deviation, delta).columns["ward"].categories
        alone += "b" in levels
        frequent += "a" in levels
    assert frequent == 20_000
    # within four standard deviations on both sides: a threshold that is too high fails as well
    assert abs(alone - 20_000 * delta) < 4 * math.sqrt(20_000 * delta)


def test_a_unit_with_several_texts_of_its_own_has_a_higher_threshold():
    frame = pd.DataFrame({"ward": ["a", "b", "c", "d"], "who": [0, 0, 1, 1]})
    one = Table(frame, {"ward": str}, "who", 1)._threshold(4.0, 0.01)
    two = Table(frame, {"ward": str}, "who", 2)._threshold(4.0, 0.01)
    assert two > one > 4


def test_rare_texts_are_other_and_their_number_is_not_in_the_guarantee():
    def look(texts):
        frame = pd.DataFrame({"ward": ["a"] * 3000 + ["b"] * 1000 + texts})
        return wb.look(frame, epsilon=1, seed=0, ledger=False)

    few, many = look(["c"] * 5), look([f"person {number}" for number in range(50)])
    assert few.schema.columns["ward"] == Categorical(["a", "b"], other=True)
    assert many.schema.columns["ward"] == Categorical(["a", "b"], other=True)
    sized = look(["c"] * 50).guarantee  # as many records
    assert sized == many.guarantee


def test_one_record_of_a_file_moves_no_text_of_another(tmp_path):
    """pandas chooses types by blocks of rows, here of 4096, unless it is told not to."""
    counts = []
    for texts in (["x", "01"] * 4096 + ["x"], ["x", "01"] * 4096 + ["01"]):
        rest, rows = ",1" * 199, [*texts, *["01"] * 4000]
        names = "".join(f",c{number}" for number in range(199))
        text = "\n".join([f"ward{names}", *(f"{row}{rest}" for row in rows)])
        (tmp_path / "file.csv").write_text(text)
        table = wb.data.read_table(tmp_path / "file.csv")
        assert by_type(table)["ward"] is str
        counts.append(table["ward"].value_counts())
    assert (counts[1] - counts[0]).to_dict() == {"01": 1, "x": -1}


def test_types_are_read_and_values_are_not():
    frame = pd.DataFrame(
        {
            "f": [1.0, 2.0],
            "i": [1, 2],
            "b": [True, False],
            "t": ["x", "y"],
            "c": pd.Categorical(["x", "y"]),
            "m": pd.array([1, None], "Int64"),
            "who": [1, 2],
        }
    )
    expected = {"f": float, "i": int, "b": Boolean(), "t": str, "c": str, "m": int}
    assert by_type(frame, "who") == expected
    assert by_type(frame.iloc[:0], "who") == expected
    assert is_complete({"a": (0, 1), "b": bool})
    assert not is_complete({"a": (0, 1), "b": float})
    with pytest.raises(ArgumentError, match=r"^schema\['day'\].*type datetime64"):
        by_type(pd.DataFrame({"day": pd.to_datetime(["2020-01-01"])}))


def test_declared_columns_stay_as_they_are_declared():
    frame = pd.DataFrame({"age": np.arange(5000) % 90, "stay": np.arange(5000) % 31})
    seen = wb.look(frame, schema={"age": (0, 120), "stay": float}, epsilon=1, seed=0, ledger=False)
    assert list(seen.schema.columns) == ["age", "stay"]
    assert seen.schema.columns["age"] == Numeric(0, 120)
    assert seen.schema.columns["stay"].high < 365


@pytest.mark.parametrize(
    ("frame", "argument"),
    [
        (pd.DataFrame({"x": np.arange(100.0)}), "epsilon=0.1"),
        (pd.DataFrame({"ward": ["a", "b"] * 50}), "epsilon=0.1"),
        (pd.DataFrame({"x": [np.nan, *np.arange(5000.0)]}), "x"),
        (pd.DataFrame({"x": [np.inf, *np.arange(5000.0)]}), "x"),
    ],
)
def test_what_cannot_be_learned_is_refused_before_anything_is_spent(frame, argument, tmp_path):
    ledger = wb.ledger.Ledger(tmp_path / "ledger.sqlite")
    with pytest.raises(ArgumentError, match=argument):
        wb.look(frame, epsilon=0.1, ledger=ledger)
    assert not ledger.exists() or ledger.spends() == []


class Secretive:
    """An object of a user whose text is an error that quotes it."""

    def __str__(self):
        raise ValueError("a secret")

    __repr__ = __str__


def test_rows_have_a_digest_whatever_objects_they_hold():
    cells = ["a", "\ud800", Secretive(), [1, 2], None, 1.5, b"x", {"k": 1}]
    frame = pd.DataFrame({"t": pd.Series(cells * 500, dtype=object), "n": np.arange(4000.0)})
    declared = {"t": str, "n": float}
    digest = Table(frame, declared).digest(b"key")
    assert digest == Table(frame.copy(), declared).digest(b"key")
    others = [
        frame.iloc[:-1],
        frame.assign(n=np.append(np.arange(3999.0), -1.0)),
        frame.assign(t=frame["t"].where(np.arange(4000) != 5, 2.5)),
        frame.rename(columns={"n": "m"}),
        frame.assign(more=[{1}] * 4000),
    ]
    all_digests = {Table(frame, declared).digest(b"other"), digest}
    for other in others:
        renamed = {"t": str, "m": float} if "m" in other else declared
        all_digests.add(Table(other, renamed).digest(b"key"))
    assert len(all_digests) == 7
    assert Table(frame, {"n": float}).digest(b"key") == digest  # of the table, not of what is used
    # a level of the index can be a column of a formula
    indexed = frame.set_index(pd.Index(np.arange(4000) % 7, name="day"))
    by_day = {Table(indexed, declared).digest(b"key"), digest}
    by_day.add(Table(indexed.set_index(indexed.index[::-1]), declared).digest(b"key"))
    assert len(by_day) == 3
    seen = wb.look(frame.assign(unused=[[1]] * 4000), schema=declared, epsilon=1, seed=0)
    assert "a" in seen.schema.columns["t"].categories


@pytest.mark.parametrize(
    "values",
    [
        1_600_000_000_000_000_000 + np.arange(5000) * 10**13,  # nanoseconds
        np.full(5000, 2**63 + 5, np.uint64),
        np.linspace(1e18, 6e18, 5000),
        -np.linspace(1e18, 6e18, 5000),
        np.full(5000, 1e308),
        np.zeros(5000),
        np.zeros(5000, int),
    ],
)
def test_no_column_ends_a_look_after_it_is_charged(values):
    seen = wb.look(pd.DataFrame({"x": values}), epsilon=1, seed=0, ledger=False)
    column = seen.schema.columns["x"]
    assert column.low < column.high
    assert column.low < np.clip(float(values[0]), -4e18, 4e18) * (1 + 1e-9) + 1e-9
    assert column.whole or not np.any(values == 0) or values.dtype == float


def test_rows_that_are_left_out_are_not_quoted_and_infinite_numbers_not_counted():
    x = pd.Series(np.random.default_rng(0).normal(5, 1, 5000)).astype(object)
    x[0] = "a secret"
    x[1] = math.inf
    frame = pd.DataFrame({"x": x, "y": np.arange(5000.0)})
    frame.loc[[0, 1], "y"] = np.nan
    seen = wb.look(
        frame, schema={"x": float, "y": float}, missing="drop", epsilon=1, seed=0, ledger=False
    )
    assert seen.schema.columns["x"].high < 100


def test_columns_that_their_types_declare_need_no_first_release():
    frame = pd.DataFrame({0: [True, False] * 500, 1: [False, True] * 500, 2: np.arange(1000) // 2})
    seen = wb.look(frame, unit_id=2, max_rows=1, epsilon=1, seed=0, ledger=False)
    assert dict(seen.schema.columns) == {"0": Boolean(), "1": Boolean()}
    with pytest.raises(ArgumentError, match="max_rows='2'"):
        wb.look(frame, unit_id=2, max_rows="2", schema={0: int}, epsilon=1, ledger=False)
