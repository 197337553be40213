"""What is declared about the columns of a table, and the way to arrays and back."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import examples
from workbench import ArgumentError
from workbench.data import Boolean, Categorical, Numeric, Schema
from workbench.data.columns import OTHER
from workbench.data.preprocessing import scale_to_bounds

SCHEMA = Schema.from_declaration(
    {
        "age": (0, 120),
        "sex": ["f", "m"],
        "smoker": bool,
        "visits": (0, 50, int),
        "ward": Categorical(["a", "b"], other=True),
    }
)
ROWS = pd.DataFrame(
    {
        "age": [0.0, 120.0, 60.0],
        "sex": ["f", "m", "m"],
        "smoker": [True, False, True],
        "visits": [50, 0, 25],
        "ward": ["b", "a", "elsewhere"],
    }
)


def refused(argument, function, *arguments):
    with pytest.raises(ArgumentError) as caught:
        function(*arguments)
    assert caught.value.argument == argument
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_features_are_named_after_their_columns_and_categories():
    assert SCHEMA.feature_names == ("age", "sex=m", "smoker", "visits", "ward=b", "ward=(other)")


def test_each_kind_is_encoded_in_its_way():
    expected = [[-1, 0, 1, 1, 1, 0], [1, 1, -1, -1, 0, 0], [0, 1, 1, 0, 0, 1]]
    encoded = SCHEMA.encode(ROWS)
    assert encoded.dtype == np.float32
    assert encoded.tolist() == expected


def test_a_weight_is_a_difference_to_the_reference_level():
    """With an intercept, the features have full column rank only if each category has
    a reference.
    """
    rows = pd.DataFrame({"sex": ["f", "m"] * 6, "ward": ["a", "b", "c"] * 4})
    ranks = {}
    for reference in ("f", "m", None):
        schema = Schema(
            {
                "sex": Categorical(["f", "m"], reference=reference),
                "ward": Categorical(["a", "b", "c"]),
            }
        )
        design = np.column_stack([np.ones(12), schema.encode(rows)])
        ranks[reference] = design.shape[1] - np.linalg.matrix_rank(design)
        assert schema.decode(schema.encode(rows)).to_dict() == rows.to_dict()
    assert ranks == {"f": 0, "m": 0, None: 1}
    assert Schema({"sex": Categorical(["f", "m"], reference="m")}).feature_names == ("sex=f",)
    assert Schema({"sex": Categorical(["f"])}).feature_names == ("sex=f",)
    assert Categorical(["f", "m"], other=True, reference="(other)").feature_names("s") == (
        "s=f",
        "s=m",
    )


@pytest.mark.parametrize("categories", [("f",), ("f", "m")])
def test_a_reference_is_one_of_the_levels(categories):
    assert "reference='x'" in refused("reference", lambda: Categorical(categories, reference="x"))


def test_all_levels_are_what_is_encoded_without_references():
    full = SCHEMA.with_all_levels()
    assert np.array_equal(SCHEMA.all_levels(SCHEMA.encode(ROWS)), full.encode(ROWS))
    assert SCHEMA.references == {"sex": "f", "ward": "a"}
    assert full.references == {}


def test_a_schema_that_was_saved_before_there_were_references_has_none():
    written = {"sex": {"kind": "categorical", "categories": ["f", "m"], "other": False}}
    assert Schema.from_dict(written).feature_names == ("sex=f", "sex=m")
    assert Schema.from_declaration(written).feature_names == ("sex=m",)


def test_numbers_are_scaled_as_by_bounds_alone():
    values = np.random.default_rng(0).normal(3, 9, (50, 1))
    encoded = Schema({"a": Numeric(-2, 7)}).encode(pd.DataFrame(values, columns=["a"]))
    assert np.array_equal(encoded, scale_to_bounds(values, {"a": (-2, 7)}))


def test_decoding_gives_the_rows_back():
    decoded = SCHEMA.decode(SCHEMA.encode(ROWS))
    pd.testing.assert_frame_equal(decoded, ROWS.assign(ward=["b", "a", OTHER]), check_dtype=False)
    assert (decoded.visits.dtype, decoded.smoker.dtype, decoded.age.dtype) == (
        np.int64,
        np.bool_,
        np.float64,
    )


def test_bounds_are_those_of_the_numeric_columns():
    assert SCHEMA.bounds == {"age": (0.0, 120.0), "visits": (0.0, 50.0)}


def test_columns_may_stand_anywhere_and_others_are_left_out():
    shuffled = ROWS.assign(extra="x")[["ward", "extra", "visits", "smoker", "sex", "age"]]
    assert np.array_equal(SCHEMA.encode(shuffled), SCHEMA.encode(ROWS))


def test_a_table_without_rows_becomes_an_array_without_rows():
    assert SCHEMA.encode(ROWS[:0]).shape == (0, 6)
    assert SCHEMA.decode(np.zeros((0, 6))).shape == (0, 5)


# --- round trips ----------------------------------------------------------------------------------

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True)
BOUNDS = st.tuples(st.floats(-1e6, 1e6), st.floats(0.01, 1e6)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
WHOLE_BOUNDS = st.tuples(st.integers(-1000, 1000), st.integers(1, 100_000)).map(
    lambda pair: (pair[0], pair[0] + pair[1])
)
KINDS = st.one_of(
    BOUNDS.map(lambda pair: Numeric(*pair)),
    WHOLE_BOUNDS.map(lambda pair: Numeric(*pair, whole=True)),
    st.lists(st.text(max_size=4), min_size=1, max_size=5, unique=True).flatmap(
        lambda levels: st.builds(
            Categorical,
            st.just(levels),
            st.booleans(),
            st.sampled_from([None, *levels][: 1 if len(levels) == 1 else None]),
        )
    ),
    st.just(Boolean()),
)
SCHEMAS = NAMES.flatmap(lambda names: st.fixed_dictionaries(dict.fromkeys(names, KINDS))).map(
    Schema
)


def cells(column):
    if isinstance(column, Boolean):
        return st.booleans()
    if isinstance(column, Categorical):
        return st.sampled_from(column.labels)
    if column.whole:
        return st.integers(int(column.low), int(column.high))
    return st.floats(column.low, column.high)


@examples(60)
@given(st.data())
def test_decode_undoes_encode(data):
    schema = data.draw(SCHEMAS)
    rows = data.draw(
        st.lists(
            st.fixed_dictionaries({n: cells(c) for n, c in schema.columns.items()}),
            min_size=1,
            max_size=4,
        )
    )
    frame = pd.DataFrame(rows)
    decoded = schema.decode(schema.encode(frame))
    for name, column in schema.columns.items():
        if isinstance(column, Numeric):
            allowed = 0 if column.whole else 1e-6 * (column.high - column.low)
            np.testing.assert_allclose(
                decoded[name], frame[name].astype(float), rtol=0, atol=allowed + 1e-9
            )
        else:
            assert decoded[name].tolist() == frame[name].tolist()


@examples(60)
@given(SCHEMAS, st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 100.0]))
def test_what_is_decoded_from_anything_is_within_the_declaration(schema, seed, size):
    x = np.random.default_rng(seed).normal(0, size, (5, len(schema.feature_names)))
    decoded = schema.decode(x)
    for name, (low, high) in schema.bounds.items():
        assert decoded[name].between(low, high).all()
    again = schema.decode(schema.encode(decoded))
    for name, column in schema.columns.items():
        if not isinstance(column, Numeric):
            assert again[name].tolist() == decoded[name].tolist()


@examples(30)
@given(SCHEMAS)
def test_json_and_pickle_keep_a_schema(schema):
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


@pytest.mark.parametrize(("low", "high"), [(-9e18, 9e18), (0, 9e18), (8e18, 9e18), (0, 1e-18)])
def test_bounds_at_the_ends_of_the_numbers_decode_to_themselves(low, high):
    decoded = Schema({"a": Numeric(low, high)}).decode([[-1], [1], [-math.inf], [math.inf]])
    assert decoded["a"].tolist() == [low, high, low, high]


def test_whole_numbers_stay_inside_bounds_that_are_not_whole():
    schema = Schema({"a": Numeric(0.6, 3.4, whole=True)})
    assert schema.decode([[-1], [1]])["a"].tolist() == [1, 3]


# --- records are encoded one by one ---------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "q", 1, 1.5, True])
def test_one_record_moves_no_other(value):
    schema = Schema({"a": Categorical(["1", "True", "x"], other=True), "b": Numeric(0, 1)})
    rows = pd.DataFrame(
        {"a": pd.Series([1, True, 1.0, "x", 1], dtype=object), "b": [0, 1, 0.5, 0.2, 0.1]}
    )
    changed = rows.copy()
    changed.loc[4, "a"] = value
    before, after = schema.encode(rows), schema.encode(changed)
    assert np.array_equal(before[:4], after[:4])
    assert before[:4, :3].tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_a_constant_column_is_fine():
    encoded = SCHEMA.encode(pd.concat([ROWS[:1]] * 3))
    assert np.array_equal(encoded, np.repeat(SCHEMA.encode(ROWS[:1]), 3, axis=0))


@pytest.mark.parametrize("kind", [int, float, str, "Int64", "category", object, "string"])
def test_categories_are_compared_as_text(kind):
    schema = Schema({"a": Categorical((1, 2))})
    assert schema.encode(pd.DataFrame({"a": pd.Series([2, 1]).astype(kind)})).tolist() == [[1], [0]]
    assert schema == Schema({"a": Categorical(("1", "2"))})


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_a_missing_value_is_other_where_there_is_one(missing):
    column = pd.DataFrame({"ward": pd.Series(["a", missing], dtype=object)})
    assert Schema({"ward": SCHEMA.columns["ward"]}).encode(column).tolist() == [[0, 0], [0, 1]]


# --- what cannot be encoded or decoded ------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "values", "shown"),
    [
        ("sex", ["f", "d", "d"], "has none of the declared categories (f, m)"),
        ("sex", ["f", None, "m"], "has none of the declared categories"),
        ("smoker", [0, 2, 1], "some row has neither 0 nor 1"),
        ("smoker", ["yes", "no", "maybe"], "has text, or something else"),
        ("smoker", [True, None, False], "missing or infinite in some row"),
        ("age", [1, float("nan"), 2], "missing or infinite in some row"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_named_by_its_column_and_type(column, values, shown):
    table = ROWS.assign(**{column: values})
    message = refused(column, SCHEMA.encode, table)
    assert message.startswith(f"{column}={str(table[column].dtype)!r}: ")
    assert shown in message


def test_a_missing_column_is_named():
    assert "'visits'" in refused("frame", SCHEMA.encode, ROWS.drop(columns="visits"))


def test_a_repeated_column_is_named():
    assert "more than once" in refused(
        "frame", SCHEMA.encode, pd.concat([ROWS, ROWS[["age"]]], axis=1)
    )


def test_only_a_data_frame_is_encoded():
    refused("frame", SCHEMA.encode, ROWS.to_numpy())


@pytest.mark.parametrize(
    "x", [np.zeros((2, 7)), np.zeros(8), "text", [["a"] * 8], np.full((2, 8), np.nan)]
)
def test_only_numbers_of_the_right_shape_are_decoded(x):
    refused("x", SCHEMA.decode, x)


@pytest.mark.parametrize(
    "given",
    [
        [0, 1],
        (1, 0),
        (0, float("inf")),
        3,
        None,
        "ab",
        {"f", "m"},
        [],
        ["x", "x"],
        [1, "1"],
        [None, "x"],
        (0.2, 0.8, int),
        (0, 1, str),
        {"kind": "numbers"},
        {"kind": "numeric", "lowest": 0},
        {"low": 0, "high": 1},
        {"kind": "numeric", "low": 0, "high": 1, "whole": 1},
        {"kind": "categorical", "categories": "ab"},
        {"kind": "categorical", "categories": ["(other)"], "other": True},
        [["a"], ["b"]],
    ],
)
def test_a_declaration_that_says_nothing_clear_is_named(given):
    refused("schema['a']", Schema.from_declaration, {"a": given})


@pytest.mark.parametrize(
    "columns", [{}, None, [("a", Boolean())], {"a=x": Boolean(), "a": Categorical(["x"])}]
)
def test_a_schema_needs_columns_with_names_of_their_own(columns):
    refused("schema", Schema, columns)


def test_a_column_must_be_of_a_known_kind():
    refused("schema['a']", Schema, {"a": (0, 1)})
    refused("schema", Schema, {1: Boolean(), "1": Boolean()})


@pytest.mark.parametrize(
    "given",
    [(0, 5, int), Numeric(0, 5, True), {"kind": "numeric", "low": 0, "high": 5, "whole": True}],
)
def test_ways_to_declare_a_range_of_whole_numbers(given):
    assert Schema.from_declaration({"a": given}) == Schema({"a": Numeric(0.0, 5.0, whole=True)})


@pytest.mark.parametrize(
    "given", [["f", "m"], ("f", "m"), np.array(["f", "m"]), pd.Index(["f", "m"])]
)
def test_ways_to_declare_categories(given):
    assert Schema.from_declaration({"a": given}) == Schema({"a": Categorical(("f", "m"))})


@pytest.mark.parametrize("given", [bool, Boolean, Boolean(), {"kind": "boolean"}])
def test_ways_to_declare_a_boolean_column(given):
    assert Schema.from_declaration({"a": given}).columns == {"a": Boolean()}


def test_a_schema_declares_itself():
    assert Schema.from_declaration(SCHEMA) is SCHEMA


def test_hidden_entries_of_encoded_rows_are_not_decoded():
    with pytest.raises(ArgumentError, match=r"^x='MaskedArray': has masked entries"):
        SCHEMA.decode(np.ma.masked_equal(SCHEMA.encode(ROWS), 1))
