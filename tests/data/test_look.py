"""What noised counts say of columns: quantiles, levels, gaps and scales."""

import json

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.conftest import some_of
from workbench import ArgumentError
from workbench._schema import FormError
from workbench.data.columns import Categorical, Numeric
from workbench.data.counting import counted, counting_of
from workbench.data.look import Look, Scale, learned, scales_form, scales_from_dict, scales_to_dict

SIZE = 4000


def looked(values, bounds, deviation=0.0, seed=0, **declared):
    """A look at one column and a category, with noise of a generator that protects nobody."""
    frame = pd.DataFrame({"x": values, "w": ["a", "b", "b", "c"] * (len(values) // 4)})
    schema = {"x": Numeric(*bounds, **declared), "w": Categorical(["a", "b"], other=True)}
    data = wb.data.from_frame(frame, schema=schema, evaluation=False)
    counting = counting_of(data)
    noise = np.random.default_rng(seed).normal(size=counting.size) * deviation
    return Look(counting, counted(counting, data, 1) + noise, max(deviation, 1e-3))


def column(kind, seed=0):
    random = np.random.default_rng(seed)
    return {
        "normal": lambda: 50 + 15 * random.normal(size=SIZE),
        "income": lambda: 3e4 * np.exp(0.8 * random.normal(size=SIZE)),
        "heavy": lambda: random.standard_t(2, SIZE),
        "constant": lambda: np.full(SIZE, 7.0),
        "clumps": lambda: np.where(random.random(SIZE) < 0.5, 10.0, 20.0),
        "zeros": lambda: np.where(random.random(SIZE) < 0.9, 0.0, random.exponential(1e4, SIZE)),
    }[kind]()


@pytest.mark.parametrize("bounds", [(0, 1000), (-1e4, 1e4)])
def test_quantiles_without_noise_are_those_of_numpy(bounds):
    values = column("normal")
    look = looked(values, bounds)
    levels = [0.01, 0.25, 0.5, 0.75, 0.99]
    leaf = (bounds[1] - bounds[0]) / 2**14
    assert look.quantiles("x", levels)["value"].to_numpy() == pytest.approx(
        np.quantile(values, levels), abs=1.5 * leaf + 0.5
    )


def test_intervals_of_quantiles_hold_the_truth_as_often_as_they_say():
    values = column("normal")
    truth = np.quantile(values, [0.25, 0.5, 0.75])
    held = []
    for seed in range(60):
        table = looked(values, (0, 1000), 40.0, seed).quantiles("x", [0.25, 0.5, 0.75])
        held.append((table["low"] <= truth) & (truth <= table["high"]))
    assert 0.85 < np.mean(held) <= 1.0


@pytest.mark.parametrize("kind", ["normal", "income", "heavy", "clumps", "zeros"])
@pytest.mark.parametrize("deviation", [0.0, 30.0, 100.0])
def test_scales_hold_most_of_a_column_and_not_much_else(kind, deviation):
    values = column(kind)
    bounds = {"income": (0, 1e6), "zeros": (0, 1e6), "heavy": (-1e4, 1e4)}.get(kind, (0, 1000))
    scale = looked(values, bounds, deviation).scale("x")
    if (kind, deviation) == ("zeros", 100.0):  # which hides whether a tenth are not 0
        assert scale is None
        return
    inside = np.mean((scale.low <= values) & (values <= scale.high))
    assert inside > 0.93
    middle = np.quantile(values, 0.995) - np.quantile(values, 0.005)
    leaf = (bounds[1] - bounds[0]) / 2**14
    assert scale.high - scale.low < 6 * middle + 20 * leaf  # a clump may be at the median
    assert abs(scale.beyond - (1 - inside)) < 0.06


def test_the_end_of_a_scale_is_not_between_most_records_and_few_others_far_away():
    """Of 5000 records, some are 0 and some near 700. Bounds between them would leave those out."""
    for share in (0.03, 0.05, 0.06, 0.08, 0.12):
        few = np.random.default_rng(0).random(5000) < share
        values = np.where(few, 700 + 30 * np.random.default_rng(1).normal(size=5000), 0.0)
        scales = [looked(values, (0, 1000), 60.0, seed).scale("x") for seed in range(60)]
        ends = np.array([scale.high for scale in scales if scale is not None])
        assert np.sum(ends < 600) <= 2
    assert len(ends) > 40


@pytest.mark.parametrize("kind", some_of(["income", "heavy", "clumps", "zeros"]))
def test_no_more_records_are_said_to_be_outside_than_are(kind):
    values = column(kind)
    bounds = {"clumps": (0, 1000), "heavy": (-100, 100)}.get(kind, (0, 1e6))
    scales = [
        looked(np.clip(values, *bounds), bounds, deviation, seed).scale("x")
        for deviation in (5.0, 20.0, 40.0)
        for seed in range(40)
    ]
    outside = [np.mean((values < scale.low) | (values > scale.high)) for scale in scales]
    assert (
        np.mean([scale.beyond > share for scale, share in zip(scales, outside, strict=True)])
        <= 0.01
    )


def test_counts_that_are_mostly_noise_give_no_scale():
    assert looked(column("normal"), (0, 1000), 1000.0).scale("x") is None
    assert set(looked(column("normal"), (0, 1000), 1000.0).scales()) == {"w"}


def test_levels_and_gaps_have_their_counts():
    values = column("normal")
    values[:100] = np.nan
    look = looked(values, (0, 1000), missing=True)
    assert look.levels("w")["records"].tolist() == [1000, 2000, 1000]
    assert look.missing("x")[0] == pytest.approx(100)
    assert look.histogram("x", 8)["records"].sum() == pytest.approx(SIZE - 100)
    assert look.table().loc["x", "learned"]
    with pytest.raises(ArgumentError, match="nothing"):
        look.quantiles("nothing", [0.5])
    with pytest.raises(ArgumentError, match="probabilities"):
        look.quantiles("x", [1.5])
    with pytest.raises(ArgumentError, match="power of two"):
        look.histogram("x", 10)


def test_shares_of_levels_count_the_noise_and_cannot_be_negative():
    """By sums over all numbers of records that there may be, their orders alike."""
    deviation, records = 40.0, np.geomspace(0.01, 4000.0, 200_001)
    look = looked(column("normal"), (0, 1000), deviation)
    counts = {"a": -35.0, "b": look.values[-2], look.levels("w").index[2]: 60.0}
    look.values[-3:] = list(counts.values())
    wanted = {}
    for label, count in counts.items():
        weights = np.exp(-0.5 * ((records - count) / deviation) ** 2)
        mean = np.average(np.log(records), weights=weights)
        error = np.sqrt(np.average((np.log(records) - mean) ** 2, weights=weights))
        wanted[label] = np.exp(mean), error
    total = sum(mean for mean, _ in wanted.values())
    for label, (mean, error) in wanted.items():
        assert look.level_shares("w").levels[label] == pytest.approx(
            [mean / total, error], rel=0.02
        )
    look.values[-3] = -1e9
    assert 0 < look.level_shares("w").levels["a"][0] < 2e-3


def test_what_was_learned_is_read_as_it_was_written():
    look = looked(column("normal"), (0, 1000), 3.0)
    written = json.loads(json.dumps(scales_to_dict(look.scales())))
    scales_form("look", written)
    assert scales_from_dict(written) == look.scales()
    for levels in ({"a": 0.5}, {"a": [0.5, -1.0]}, [0.5]):
        with pytest.raises(FormError, match="levels"):
            scales_form("look", {"w": {"levels": levels}})
    with pytest.raises(FormError, match="spread"):
        scales_form("look", {"x": dict.fromkeys(Scale._fields[:3], 1.0)})


def test_a_learned_schema_stays_within_what_was_declared():
    schema = wb.data.Schema({"x": Numeric(0, 5e4), "w": Categorical(["a", "b"])})
    scale = looked(column("income"), (0, 1e6)).scale("x")
    assert scale.low == 0
    assert 5e4 < scale.high < 1e6
    made = learned(schema, {"x": scale, "other": scale})
    assert made.columns["x"] == Numeric(0, 5e4)
    assert made.columns["w"] == schema.columns["w"]


def test_bounds_that_fit_are_kept():
    values = np.random.default_rng(0).uniform(0, 1, SIZE)
    for deviation in (0.0, 30.0):
        scale = looked(values, (0, 1), deviation).scale("x")
        assert (scale.low, scale.high) == (0, 1)


@pytest.mark.parametrize(
    "bounds", [(1e16, 1e16 + 2), (2.0**62, 2.0**62 + 1024), (1e15, 1e15 + 1), (0.0, 1e-18), (-1, 1)]
)
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_narrow_column_has_bounds_that_a_schema_accepts(bounds, share):
    """Also where numbers of float64 are hardly closer than its declared bounds."""
    low, high = bounds
    places = np.clip(share + np.linspace(-4, 4, SIZE) / 2**14, 0, 1)
    look = looked(low + places * (high - low), bounds)
    column = learned(wb.data.Schema({"x": Numeric(low, high)}), look.scales()).columns["x"]
    assert low <= column.low < column.high <= high
    constant = looked(np.full(SIZE, low + share * (high - low)), bounds)
    assert "x" not in constant.scales()


@pytest.mark.parametrize("deviation", [0.0, 30.0, 100.0])
def test_one_value_is_no_scale(deviation):
    assert looked(column("constant"), (0, 1000), deviation).scale("x") is None
    rare = (np.random.default_rng(0).random(SIZE) < 0.0002).astype(float)
    assert looked(rare, (0, 1), deviation).scale("x") is None
