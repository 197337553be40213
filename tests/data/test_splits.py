"""Splits into training and evaluation records: of private records each by itself, of published ones
by their places.
"""

import collections

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.splits import by_place, by_record, coins, evaluation_rows

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(200, 2)).astype(np.float32)
Y = RANDOM.integers(0, 2, 200).astype(np.int32)
ALIKE = np.round(X[:, :1] > 0)  # two kinds of records
WRITTEN_DOWN = [0.18794146375453114, 0.11950272633726336]


# --- by place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shorter", [1, 49, 99])
def test_by_place_dropping_the_last_rows_moves_no_other_row(shorter):
    assert np.array_equal(evaluation_rows(100, 0.3, 4)[:shorter], evaluation_rows(shorter, 0.3, 4))
    assert not np.array_equal(evaluation_rows(100, 0.3, 4), evaluation_rows(100, 0.3, 5))


def test_by_place_tables_and_arrays_are_split_alike():
    (left, right), (x_left, x_right) = by_place(pd.DataFrame(X), 0.3, 4), by_place(X, 0.3, 4)
    assert np.array_equal(left.to_numpy(), x_left)
    assert np.array_equal(right.to_numpy(), x_right)
    assert np.array_equal(x_right, X[evaluation_rows(200, 0.3, 4)])


# --- by record ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "split",
    [
        lambda n, *rest: evaluation_rows(n, *rest),
        lambda n, *rest: coins([np.arange(n)], 0) < rest[0],
    ],
)
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_fraction_is_the_share_of_evaluation_rows(split, fraction):
    # six standard deviations of a binomial count: false alarms below 1e-8, and the seed is fixed
    allowed = 6 * np.sqrt(fraction * (1 - fraction) / 10_000)
    assert split(10_000, fraction, 0).mean() == pytest.approx(fraction, abs=allowed)


def test_records_that_are_all_alike_are_split_in_the_same_shares():
    allowed = 6 * np.sqrt(0.2 * 0.8 / 10_000)
    assert by_record([np.zeros((10_000, 3))], 0.2, 0).mean() == pytest.approx(0.2, abs=allowed)


def test_coins_follow_from_content_and_seed_alone():
    assert np.array_equal(coins([X, Y], 3), coins([X.copy(), Y], 3))
    assert np.array_equal(coins([X[::-1], Y[::-1]], 3)[::-1], coins([X, Y], 3))
    assert not np.any(coins([X, Y], 3) == coins([X, Y], 4))
    assert not np.any(coins([X, Y], 3) == coins([X, 1 - Y], 3))


def test_coins_are_the_same_on_every_machine():
    """Written down once: another order of bytes, or another version, may not move records across
    the split.
    """
    big = X.astype(">f4")
    assert np.array_equal(coins([big, Y], 3), coins([X, Y], 3))
    assert (
        coins([np.array([[0.5], [0.5]], np.float32), np.array([1, 1], np.int32)], 0).tolist()
        == WRITTEN_DOWN
    )


def collected(data):
    """Training and evaluation records of a data set, each a collection of bytes without
    an order.
    """
    return [
        collections.Counter(
            b"".join(array[place].tobytes() for array in arrays) for place in range(len(arrays[0]))
        )
        for arrays in (data.train, data.evaluation)
    ]


def differing(before, after):
    return sum(
        ((one - other) + (other - one)).total() for one, other in zip(before, after, strict=True)
    )


LOADERS = {
    "frame": lambda x, y: wb.data.from_frame(
        pd.DataFrame({"a": x[:, 0], "ill": y}), target="ill", bounds=(-4, 4)
    ),
    "groups": lambda x, y: wb.data.from_frame(
        pd.DataFrame({"a": x[:, 0], "ward": np.where(y == 1, "east", "west")}),
        bounds={"a": (-4, 4)},
        group="ward",
        groups=["east", "west"],
    ),
    "arrays": lambda x, y: wb.data.from_arrays(x, y, bounds=(-4, 4)),
    "images": lambda x, y: wb.data.from_images(np.clip(np.abs(x), 0, 1)[:, :, None], y, classes=2),
    "tokens": lambda x, y: wb.data.from_tokens(
        (x > 0).astype(int), y, vocabulary_size=2, classes=2
    ),
}


@pytest.mark.parametrize("gone", [0, 57, 199])
@pytest.mark.parametrize("values", [X, np.repeat(ALIKE, 2, axis=1)], ids=["distinct", "alike"])
@pytest.mark.parametrize("loader", LOADERS)
def test_one_row_more_or_less_is_one_record_more_or_less(loader, values, gone):
    """Wherever it stood. A split by place moved all rows after it."""
    whole = collected(LOADERS[loader](values, Y))
    shorter = collected(LOADERS[loader](np.delete(values, gone, axis=0), np.delete(Y, gone)))
    assert differing(whole, shorter) == 1


def test_another_order_of_the_rows_is_the_same_split():
    frame = pd.DataFrame({"a": X[:, 0], "ill": Y})
    order = RANDOM.permutation(200)
    before, after = (
        wb.data.from_frame(table, target="ill", bounds=(-4, 4))
        for table in (frame, frame.iloc[order])
    )
    assert collected(before) == collected(after)


@pytest.mark.parametrize("fraction", [1e-9, 1 - 1e-9])
def test_too_few_records_on_a_side_are_refused_without_a_count(fraction):
    with pytest.raises(ArgumentError, match=r"^evaluation_fraction=.*too few records") as caught:
        by_record([X], fraction, 0)
    assert "200" not in str(caught.value)


def test_no_records_have_no_coins():
    assert coins([X[:0], Y[:0]], 0).shape == (0,)
