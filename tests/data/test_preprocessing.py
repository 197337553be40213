"""Scaling from declared bounds, and the messages for tables that cannot be used."""

import numpy as np
import pandas as pd
import pytest

from workbench import ArgumentError
from workbench.data.preprocessing import (
    checked_bounds,
    checked_pair,
    numeric_features,
    scale_to_bounds,
    text_of,
)

BOUNDS = {"a": (0.0, 10.0), "b": (-2.0, 2.0)}


def scaled(rows):
    return scale_to_bounds(np.array(rows, float), BOUNDS)


def test_bounds_map_to_minus_one_and_one():
    assert np.array_equal(
        scaled([[0, -2], [10, 2], [5, 0]]), np.array([[-1, -1], [1, 1], [0, 0]], np.float32)
    )


def test_values_outside_the_bounds_are_cut():
    assert np.array_equal(scaled([[-1e9, 3], [1e9, -3]]), np.array([[-1, 1], [1, -1]], np.float32))


def test_scaled_features_are_float32():
    assert scaled([[1, 1]]).dtype == np.float32


def test_scaling_looks_at_one_record_at_a_time():
    rows = np.random.default_rng(0).normal(3, 4, (20, 2))
    changed = rows.copy()
    changed[7] = [1e6, -1e6]
    differs = np.any(scaled(rows) != scaled(changed), axis=1)
    assert np.flatnonzero(differs).tolist() == [7]


LARGEST = np.finfo(float).max
SMALLEST = np.finfo(float).smallest_subnormal
ENDS = [(-9e18, 9e18), (0, 9e18), (-9e18, 0), (0, 1e-18), (-SMALLEST, 9e18), (8e18, 9e18)]


@pytest.mark.parametrize("pair", ["01", b"01", (0, 10**400), (-(10**400), 0)])
def test_what_is_no_pair_of_floats_is_no_bounds(pair):
    with pytest.raises(ArgumentError, match=r"^age=.*must be a pair of numbers"):
        checked_pair("age", pair)


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_bounds_at_the_ends_of_the_numbers_map_to_minus_one_and_one(low, high):
    values = np.array([[low], [high], [LARGEST], [-LARGEST]])
    assert scale_to_bounds(values, {"a": checked_pair("a", (low, high))})[:, 0].tolist() == [
        -1,
        1,
        1,
        -1,
    ]


@pytest.mark.parametrize(
    "pair", [(-1e308, 1e308), (0, LARGEST), (0, 9.1e18), (0, SMALLEST), (0, 1e-19), (1e300, 2e300)]
)
def test_bounds_are_refused_whose_differences_have_no_squares_in_float32(pair):
    with pytest.raises(
        ArgumentError, match=r"^age=\(.*must be within -9e\+18 .. 9e\+18 and at least 1e-18 apart"
    ):
        checked_pair("age", pair)
    low, high = map(np.float32, ENDS[0])
    assert np.isfinite((high - low) ** 2)
    assert np.isfinite((1 / np.float32(1e-18)) ** 2)


@pytest.mark.parametrize(("low", "high"), ENDS)
def test_middle_of_wide_bounds_maps_to_zero(low, high):
    middle = np.array([[low / 2 + high / 2]])
    assert scale_to_bounds(middle, {"a": (low, high)}).item() == pytest.approx(0, abs=1e-6)


def test_one_pair_holds_for_all_features():
    assert checked_bounds((0, 5), ["a", "b"]) == {"a": (0.0, 5.0), "b": (0.0, 5.0)}


def test_bounds_come_back_in_the_order_of_the_features():
    assert list(checked_bounds({"b": (0, 1), "a": (0, 2)}, ["a", "b"])) == ["a", "b"]


def test_missing_bounds_are_listed():
    with pytest.raises(ArgumentError, match=r"no bounds for 2 feature\(s\): b, c") as caught:
        checked_bounds({"a": (0, 1)}, ["a", "b", "c"])
    assert caught.value.argument == "bounds"


def test_bounds_of_an_unknown_column_name_the_nearest():
    with pytest.raises(
        ArgumentError, match=r"bounds='agee': unknown name; did you mean 'age'"
    ) as caught:
        checked_bounds({"age": (0, 1), "agee": (0, 1)}, ["age"])
    assert caught.value.argument == "bounds"


@pytest.mark.parametrize(
    "pair",
    [
        (1, 1),
        (2, 1),
        (0, float("inf")),
        (float("nan"), 1),
        (0,),
        (0, 1, 2),
        5,
        "ab",
        None,
        ("x", 1),
    ],
)
def test_a_bad_pair_is_named_with_its_feature(pair):
    with pytest.raises(ArgumentError) as caught:
        checked_bounds({"a": pair}, ["a"])
    assert caught.value.argument == "bounds['a']"
    assert repr(pair) in str(caught.value)


def test_text_in_a_feature_is_named_with_its_column_and_type():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": pd.Series(["1", "high", "low"], dtype=object)})
    with pytest.raises(
        ArgumentError, match=r"^b='object': .*has text.* in some row; declare its categories"
    ) as caught:
        numeric_features(frame, ["a", "b"])
    assert caught.value.argument == "b"


DAYS = pd.to_datetime(["2020-01-01", "2021-01-01"])


@pytest.mark.parametrize(
    "column",
    [
        DAYS,
        DAYS.tz_localize("UTC"),
        DAYS - DAYS[0],
        pd.period_range("2020", periods=2, freq="Y"),
        pd.interval_range(0, 2),
        [1 + 2j, 3],
    ],
    ids=lambda column: str(getattr(column, "dtype", "complex")),
)
def test_columns_that_hold_no_plain_numbers_are_named_with_their_type(column):
    """pandas would take dates for the nanoseconds since 1970."""
    frame = pd.DataFrame({"a": [1, 2], "admitted": column})
    with pytest.raises(ArgumentError, match="does not have plain numbers") as caught:
        numeric_features(frame, ["a", "admitted"])
    assert str(caught.value).startswith(f"admitted={str(frame.admitted.dtype)!r}: ")


@pytest.mark.parametrize("column", [DAYS, DAYS - DAYS[0]], ids=["dates", "differences"])
@pytest.mark.parametrize("kind", [object, "category"])
def test_dates_among_objects_and_categories_are_named_too(column, kind):
    frame = pd.DataFrame({"admitted": pd.Series(column).astype(kind)})
    with pytest.raises(
        ArgumentError, match=r"^admitted='(object|category)': .*is not a number, in some row"
    ):
        numeric_features(frame, ["admitted"])


@pytest.mark.parametrize(
    "kind", ["int8", "uint64", "float32", "bool", "Int64", "boolean", "category", "string", object]
)
def test_every_type_of_plain_numbers_is_taken(kind):
    column = pd.Series(["1", "0"]).astype(int).astype(kind)
    assert numeric_features(pd.DataFrame({"a": column}), ["a"]).tolist() == [[1.0], [0.0]]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None])
def test_missing_and_infinite_values_are_named_with_their_column(value):
    frame = pd.DataFrame({"a": [1.0, value, 3.0]})
    with pytest.raises(
        ArgumentError, match=r"^a='float64': .*missing or infinite in some row"
    ) as caught:
        numeric_features(frame, ["a"])
    assert caught.value.argument == "a"


def test_a_missing_value_of_a_nullable_column_is_named():
    with pytest.raises(ArgumentError, match=r"^a='Int64': .*missing"):
        numeric_features(pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}), ["a"])


def test_numbers_written_as_text_and_booleans_are_numbers():
    frame = pd.DataFrame({"a": ["1.5", "2"], "b": [True, False]})
    assert np.array_equal(numeric_features(frame, ["b", "a"]), [[1, 1.5], [0, 2]])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.0", "1"),
        ("-3.00", "-3"),
        ("-0.0", "0"),
        (-0.0, "0"),
        ("10.0", "10"),
        (1.0, "1"),
        (1, "1"),
        (0.5, "0.5"),
    ]
    + [(each, each) for each in ("01", "01.0", "1.10", "1.", ".0", "1.0.0", "v1.0", "1e0", "٣.0")]
    + [
        (" 1.0", "1"),
        ("1.0\n", "1"),
        (" a b ", "a b"),
        ("gro\u0308ße", "größe"),
        (pd.Timestamp("2020-01-02"), "2020-01-02"),
    ]
    + [
        ("2020-01-02 00:00:00", "2020-01-02"),
        ("2020-01-02 00:00:01", "2020-01-02 00:00:01"),
        (pd.Period("2020-01"), "2020-01"),
    ],
)
def test_only_whole_numbers_lose_their_point_as_text(value, text):
    assert text_of(value) == text
