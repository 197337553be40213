"""Noised counts of columns: a record moves them by what is stated, and no further."""

import math

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench.data.columns import Boolean, Categorical, Numeric
from workbench.data.counting import counted, counting_of, noised
from workbench.data.look import consistent

STEP = 1000  # spacings of a record
SCHEMA = {
    "stay": Numeric(0, 365, missing=True),
    "income": Numeric(-1e6, 1e6),
    "children": Numeric(0, 20, whole=True),
    "ward": Categorical(["a", "b"], other=True),
    "smoker": Boolean(),
}
# at edges of the range and of leaves, beyond them, in rare levels, and missing
LEAF = 365 / 2**14
EDGES = {
    "stay": [0.0, -0.0, 365.0, 1e308, -1e308, LEAF, np.nextafter(LEAF, 0), np.nan, np.inf, 182.5],
    "income": [0.0, -0.0, 5e-324, -1e6, 1e6, 1e300, -1e300, 2.0**53 + 2, -1.0, 1.0],
    "children": [0, 20, 21, -1, 3, 2**60, 10, 10, 0, 1],
    "ward": ["a", "b", "nowhere", None, "a", "b", "a", "b", "a", "b"],
    "smoker": [True, False] * 5,
    "y": [0.0, 100.0, 50.0, -5.0, 1e9, 25.0, 99.999, 1e-9, 75.0, 12.5],
}


def table(rows=None, **options):
    frame = pd.DataFrame(EDGES)
    return wb.data.from_frame(
        frame if rows is None else frame.iloc[rows],
        target="y",
        schema=SCHEMA,
        target_bounds=(0, 100),
        evaluation=False,
        **options,
    )


def distance(first, second):
    """The squared distance of counts, in squared spacings, exactly."""
    return sum(int(gap) ** 2 for gap in first - second)


def test_a_record_moves_counts_by_the_stated_sensitivity_and_no_further():
    data = table()
    counting = counting_of(data)
    whole = counted(counting, data, STEP)
    allowed = STEP**2 * round(counting.sensitivity**2)
    assert counting.sensitivity**2 == pytest.approx(4 * 14 + 2)
    moved = []
    for row in range(10):
        rows = [place for place in range(10) if place != row]
        moved.append(distance(whole, counted(counting, table(rows), STEP)))
    assert max(moved) == allowed  # reached, so it is no larger than it must be
    assert min(moved) < allowed  # a missing value is one count, and no leaf


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 10])
def test_a_person_moves_counts_no_further_than_a_record(rows):
    frame = pd.DataFrame(EDGES).assign(person=[0] * rows + list(range(1, 11 - rows)))
    extra = pd.DataFrame(EDGES).iloc[:3].assign(person=[90, 91, 91])

    def of(part):
        return wb.data.from_frame(
            part,
            target="y",
            schema=SCHEMA,
            target_bounds=(0, 100),
            unit_id="person",
            max_rows=10,
            evaluation=False,
        )

    both, without = of(pd.concat([frame, extra])), of(pd.concat([frame[frame.person > 0], extra]))
    counting = counting_of(both)
    moved = distance(counted(counting, both, STEP), counted(counting, without, STEP))
    assert 0 < moved <= STEP**2 * counting.sensitivity**2 * (1 + 1e-12)


def test_counts_are_those_of_numpy():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "stay": random.uniform(-10, 400, 500),
            "ward": random.choice(["a", "b", "c"], 500),
            "ill": random.random(500) < 0.3,
        }
    )
    schema = {"stay": (0, 365), "ward": Categorical(["a", "b"], other=True)}
    data = wb.data.from_frame(frame, target="ill", schema=schema, evaluation=False)
    counting = counting_of(data)
    counts = dict(
        zip(
            [column.name for column in counting.columns],
            [counted(counting, data, 1)[place] for _, place in counting.slices()],
            strict=True,
        )
    )
    halves = counts["stay"][-2:]
    cut = np.clip(frame.stay, 0, 365)
    assert halves.tolist() == [(cut < 182.5).sum(), (cut >= 182.5).sum()]
    eighths = counts["stay"][-14:-6]
    assert eighths.tolist() == np.histogram(cut, np.linspace(0, 365, 9))[0].tolist()
    assert counts["ward"].tolist() == [(frame.ward == level).sum() for level in "abc"]
    assert counts["ill"].tolist() == [(~frame.ill).sum(), frame.ill.sum()]


def test_noise_has_the_stated_size_and_is_of_secret_keys_only():
    data = table()
    counting = counting_of(data)
    noise = noised(counting, data, 3.0, wb.noise.new_key()) - counted(counting, data, 1)
    assert counting.deviation(3.0) >= 3.0 * counting.sensitivity
    assert counting.deviation(3.0) == pytest.approx(3.0 * counting.sensitivity, rel=1e-4)
    # 82 000 draws: five standard errors
    assert np.std(noise) == pytest.approx(counting.deviation(3.0), rel=5 / math.sqrt(2 * 8e4))
    assert abs(np.mean(noise)) < 5 * counting.deviation(3.0) / math.sqrt(8e4)
    import jax

    with pytest.raises(TypeError):
        noised(counting, data, 3.0, jax.random.key(0))


def test_noise_beyond_whole_numbers_is_refused():
    with pytest.raises(ArgumentError, match="says nothing"):
        counting_of(table()).per_record(1e6)


def testconsistent_counts_are_least_squares():
    depth = 4
    random = np.random.default_rng(1)
    values = random.normal(size=2 ** (depth + 1) - 2)
    # each interval's count as a sum of leaves
    rows = [np.repeat(np.eye(2 ** (depth - level)), 2**level, axis=1) for level in range(depth)]
    expected = np.linalg.lstsq(np.vstack(rows), values, rcond=None)[0]
    assert consistent(values, depth) == pytest.approx(expected, abs=1e-10)
