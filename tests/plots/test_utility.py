"""Figures of experiments."""

import itertools

import numpy as np
import pandas as pd
import pytest

from tests.plots.figures import legend, outside, overlaps, small_print, ticks
from workbench._numbers import count
from workbench._validate import ArgumentError
from workbench.plots import calibration_figure, png, trend_figure, utility_figure

EPSILONS = [10.0, 0.1, 1.0, np.inf]


def runs(seeds=6, methods=("aligned", "vanilla"), epsilons=EPSILONS):
    rows = [
        {
            "epsilon": epsilon,
            "method": method,
            "auc": 0.6 + 0.02 * seed + 0.1 * min(epsilon, 2),
            "records": 10 * (1 + seed),
        }
        for epsilon, method, seed in itertools.product(epsilons, methods, range(seeds))
    ]
    return pd.DataFrame(rows)


def line(axes, colour_of):
    return [found for found in axes.lines if found.get_marker() == colour_of]


def test_levels_of_epsilon_are_sorted_and_evenly_spaced():
    (axes,) = utility_figure(runs(), "auc", "public data", ylabel="AUC", title="utility").axes
    assert ticks(axes, "x") == ["0.1", "1", "10", "∞ (no noise)"]
    assert np.allclose(np.diff(axes.get_xticks()), 1)
    assert axes.get_ylabel() == "AUC"


def test_lines_go_through_means_and_methods_stand_side_by_side():
    table = runs()
    (axes,) = utility_figure(table, "auc", "public data").axes
    (one,), (other,) = line(axes, "o"), line(axes, "s")
    expected = table[table["method"] == "aligned"].groupby("epsilon")["auc"].mean()
    assert np.allclose(one.get_ydata(), expected)
    assert (one.get_xdata() < np.arange(4)).all()
    assert (other.get_xdata() > np.arange(4)).all()
    assert one.get_linestyle() != other.get_linestyle()


@pytest.mark.parametrize(("seeds", "boxes", "words"), [(5, 8, "boxes"), (4, 0, "dashes")])
def test_five_runs_make_a_box(seeds, boxes, words):
    (axes,) = utility_figure(runs(seeds), "auc", "public data").axes
    assert len([patch for patch in axes.patches if len(patch.get_path()) >= 5]) == boxes
    assert words in axes.get_xlabel()


def test_baselines_are_lines_with_names_and_values():
    (axes,) = utility_figure(
        runs(), "auc", "public data", baselines={"without privacy": 0.97, "chance": 0.5}
    ).axes
    assert legend(axes) == ["aligned", "vanilla", "without privacy (0.97)", "chance (0.5)"]
    level = [
        found
        for found in axes.lines
        if len(set(found.get_ydata())) == 1 and found.get_ydata()[0] in (0.97, 0.5)
    ]
    assert (
        len(
            {found.get_linestyle() for found in level}
            | {found._unscaled_dash_pattern[1] for found in level}
        )
        >= 2
    )


def test_a_legend_of_many_methods_covers_nothing():
    methods = [f"method with a rather long name {number}" for number in range(8)]
    figure = utility_figure(
        runs(2, methods), "auc", "public data", baselines={"x" * 50: 0.9}, title="a title"
    )
    (axes,) = figure.axes
    figure.draw_without_rendering()
    box = axes.get_legend().get_window_extent()
    assert not box.overlaps(axes.get_window_extent().padded(-2))
    assert not overlaps(
        figure, [*axes.get_legend().get_texts(), figure._suptitle, *axes.get_xticklabels()]
    )
    assert not outside(figure, axes.get_legend().get_texts())


def test_epsilon_can_be_placed_in_proportion():
    (axes,) = utility_figure(runs(epsilons=[1.0, 2.0, 4.0]), "auc", "public data", logx=False).axes
    assert axes.get_xticks().tolist() == [1, 2, 4]


def test_a_method_may_lack_a_level_and_one_run_is_enough():
    table = runs(1).drop(index=0)
    png(utility_figure(table, "auc", "public data"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": "loss"}, "has no column 'loss'"),
        ({"table": runs().iloc[:0]}, "at least one row"),
        ({"table": runs().assign(auc=np.nan)}, "column 'auc' must be finite"),
        ({"table": runs().assign(epsilon=np.nan)}, "column 'epsilon' must be finite"),
        ({"table": runs().assign(method=None)}, "column 'method' must have a value in every row"),
        ({"table": "runs"}, "must be a pandas DataFrame"),
        (
            {"table": runs(1, [str(number) for number in range(9)])},
            "'method' has 9 values.*at most 8",
        ),
        ({"baselines": {"a": np.nan}}, r"baselines\['a'\]=nan"),
        ({"baselines": dict.fromkeys("abcde", 0.5)}, "at most 4, not 5"),
        ({"logx": False}, "logx=False"),
        ({"label": "free"}, "label='free'"),
    ],
)
def test_useless_runs_are_an_error(change, message):
    with pytest.raises(ArgumentError, match=message):
        utility_figure(**({"table": runs(), "metric": "auc", "label": "public data"} | change))


# --- trends ---------------------------------------------------------------------------------------


def test_a_trend_shows_mean_and_spread_at_the_values_of_x():
    table = pd.DataFrame({"n": [100, 100, 1000, 1000], "auc": [0.5, 0.7, 0.8, 0.8], "epsilon": 1.0})
    (axes,) = trend_figure(table, "n", "auc", "epsilon", "public data", xlabel="records").axes
    assert np.allclose(axes.lines[0].get_xydata(), [(100, 0.6), (1000, 0.8)])
    assert axes.get_xscale() == "log"
    assert ticks(axes, "x") == ["100", count(1000)]
    assert axes.get_xlabel().startswith("records (lines: means")
    assert "standard deviation" in axes.get_xlabel()
    corners = axes.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx(0.8)
    assert corners[:, 1].min() == pytest.approx(0.6 - np.std([0.5, 0.7], ddof=1))


def test_a_trend_of_single_runs_has_no_band_to_speak_of():
    table = pd.DataFrame({"n": [1, 2], "auc": [0.5, 0.6], "method": "a"})
    (axes,) = trend_figure(table, "n", "auc", "method", "public data", logx=False).axes
    assert "standard deviation" not in axes.get_xlabel()
    assert axes.get_xscale() == "linear"


def test_lines_of_a_trend_are_sorted_and_differ_in_more_than_colour():
    (axes,) = trend_figure(
        runs(2, epsilons=[3.0, 0.5, 1.0]), "records", "auc", "epsilon", "public data"
    ).axes
    assert legend(axes) == ["epsilon 0.5", "epsilon 1", "epsilon 3"]
    assert len({found.get_marker() for found in axes.lines}) == 3
    assert len({found.get_linestyle() for found in axes.lines}) == 3


def test_a_trend_over_nothing_is_an_error():
    with pytest.raises(ArgumentError, match="'n' must be above 0"):
        trend_figure(
            pd.DataFrame({"n": [0], "auc": [0.5], "by": ["a"]}), "n", "auc", "by", "public data"
        )
    with pytest.raises(ArgumentError, match="no column 'by'"):
        trend_figure(pd.DataFrame({"n": [1], "auc": [0.5]}), "n", "auc", "by", "public data")


# --- coverage -------------------------------------------------------------------------------------

COVERAGE = pd.DataFrame(
    [
        {"clip": clip, "epsilon": epsilon, "coverage": 0.5 + 0.1 * place, "standard_error": 0.02}
        for place, clip in enumerate((0.1, 1.0, 10.0))
        for epsilon in (1.0, np.inf)
    ]
)


def test_coverage_has_a_line_an_epsilon_and_the_nominal_one():
    figure = calibration_figure(COVERAGE, "public data")
    (axes,) = figure.axes
    assert legend(axes) == ["epsilon 1", "epsilon ∞ (no noise)", "nominal (0.9)"]
    assert ticks(axes, "x") == ["0.1", "1", "10"]
    assert "2 standard errors" in axes.get_xlabel()
    assert len(axes.containers) == 2
    assert np.allclose(axes.containers[0].lines[0].get_ydata(), [0.5, 0.6, 0.7])
    assert axes.get_ylim() == (-0.03, 1.05)
    assert small_print(figure).startswith("public data")


def test_coverage_without_errors_has_no_bars():
    (axes,) = calibration_figure(
        COVERAGE.drop(columns="standard_error"), "public data", nominal=0.8
    ).axes
    assert "standard errors" not in axes.get_xlabel()
    assert legend(axes)[-1] == "nominal (0.8)"
    assert "80 %" in axes.get_ylabel()


@pytest.mark.parametrize(
    "change", [{"clip": 0.0}, {"coverage": 1.2}, {"coverage": np.nan}, {"standard_error": np.inf}]
)
def test_useless_coverage_is_an_error(change):
    with pytest.raises(ArgumentError, match="table="):
        calibration_figure(COVERAGE.assign(**change), "public data")


def test_a_nominal_coverage_is_a_probability():
    with pytest.raises(ArgumentError, match="nominal=90"):
        calibration_figure(COVERAGE, "public data", nominal=90)
