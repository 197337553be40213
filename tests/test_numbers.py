"""Numbers as people read them."""

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from workbench import _numbers
from workbench._numbers import MINUS

BOUNDS = st.floats(1e-12, 1e9)


@pytest.mark.parametrize(
    ("size", "places"),
    [(150, 0), (1.5, 1), (0.15, 2), (0.0023, 4), (1e-9, 6), (0, 3), (math.inf, 3)],
)
def test_decimals_show_two_digits_of_a_size(size, places):
    assert _numbers.decimals(size) == places


def test_rows_of_a_table_have_the_same_decimals_or_more_where_a_spread_needs_them():
    assert _numbers.places_for([0.2, 0.3, 0.001, 0.0, 20.0]) == [2, 2, 3, 2, 2]
    assert _numbers.places_for([]) == []


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [
        (-0.001, 2, "0.00"),
        (-0.25, 1, MINUS + "0.2"),
        (3, 2, "3.00"),
        (math.nan, 2, "\N{EN DASH}"),
        (-math.inf, 2, MINUS + "∞"),
    ],
)
def test_a_number_has_its_decimals_and_zero_no_sign(value, places, text):
    assert _numbers.fixed(value, places) == text


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (0.98765, None, "0.988"),
        (123.4, None, "123"),
        (-12.34, None, MINUS + "12.3"),
        (0, None, "0"),
        (0, 0.5, "0.00"),
        (12.345, 0.5, "12.35"),
        (2.5e6, None, "2.5e+06"),
        (1e-7, None, "1e-07"),
        (math.nan, None, "\N{EN DASH}"),
    ],
)
def test_numbers_show_the_digits_that_matter(value, spread, text):
    assert _numbers.shown(value, spread) == text


@given(BOUNDS)
def test_a_bound_is_never_rounded_down(bound):
    for text in (_numbers.upper(bound), _numbers.upper(bound, 2), _numbers.shown(bound, up=True)):
        assert float(text) >= bound
    assert float(_numbers.upper(bound)) <= bound * (1 + 1e-5)
    assert float(_numbers.fixed(bound, 3, up=True)) >= bound


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (1.2345671, "1.23457"),
        (1.2345612, "1.23457"),
        (8, "8"),
    ],
)
def test_a_bound_of_few_digits_is_as_it_is(bound, text):
    assert _numbers.upper(bound) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (800, "800"), (12_000, "12_000"), (1_234_567, "1_234_567")]
)
def test_large_counts_are_in_groups_of_three(number, text):
    assert _numbers.count(number) == text.replace("_", "\N{NARROW NO-BREAK SPACE}")
    assert _numbers.count(number, " ") == text.replace("_", " ")
    # spaces in it are spaces to Python
    assert int("".join(_numbers.count(number).split())) == number


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0, 5, 10], ["0", "5", "10"]),
        ([0.98, 0.99, 1.0], ["0.98", "0.99", "1.00"]),
        ([-0.25, 0.0], [MINUS + "0.25", "0.00"]),
        ([0.1 * n for n in range(1, 4)], ["0.1", "0.2", "0.3"]),
        ([0, 2e6], ["0", "2e+06"]),
        ([-0.6], [MINUS + "0.6"]),
    ],
)
def test_ticks_have_the_fewest_decimals_that_show_all_of_them(values, texts):
    assert _numbers.ticks(values) == texts


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9999, "9999"), (12_000, "12k"), (1_600_000, "1.6M")]
)
def test_steps_are_brief_where_there_is_little_room(number, text):
    assert _numbers.brief(number) == text
