"""Effects, rootograms, proportions and survival curves."""

import numpy as np
import pytest

from tests.plots.figures import legend, outside, overlaps, small_print, ticks
from workbench._validate import ArgumentError
from workbench.plots import (
    effect_figure,
    proportions_figure,
    rootogram_figure,
    survival_check_figure,
)

RANDOM = np.random.default_rng(3)
GRID = np.linspace(20, 80, 7)
COUNTS = RANDOM.poisson(3, (41, 200))


def test_an_effect_is_a_mean_within_its_band():
    draws = RANDOM.normal(GRID / 20, 0.3, (400, 7))
    (axes,) = effect_figure(GRID, draws, "covered", xlabel="age_$_").axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_xydata(), np.column_stack([GRID, draws.mean(axis=0)]))
    band = axes.collections[0].get_paths()[0].vertices
    for place, at in enumerate(GRID):
        low, high = band[band[:, 0] == at, 1].min(), band[band[:, 0] == at, 1].max()
        assert np.mean((draws[:, place] >= low) & (draws[:, place] <= high)) == pytest.approx(
            0.9, abs=0.01
        )
    assert legend(axes) == ["mean and 90 % interval"]


def test_levels_are_points_with_names_and_series_have_a_legend():
    draws = RANDOM.normal(size=(100, 3, 2))
    figure = effect_figure(
        ["a", "b", "a long name of a level $x$"], draws, "covered", series=["yes", "no"]
    )
    (axes,) = figure.axes
    assert ticks(axes, "x")[:2] == ["a", "b"]
    assert legend(axes) == ["yes", "no"]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), draws.mean(axis=0)[:, 1])
    assert not overlaps(figure, axes.get_xticklabels())
    assert not outside(figure, axes.get_xticklabels())


def test_twelve_long_names_of_levels_do_not_overlap():
    names = [f"level number {place}" for place in range(12)]
    figure = effect_figure(names, RANDOM.normal(size=(100, 12)), "covered")
    assert not outside(figure, figure.axes[0].get_xticklabels())


@pytest.mark.parametrize(
    ("values", "draws", "more", "message"),
    [
        ([1, 2], np.zeros((5, 3)), {}, "values="),
        ([2, 1, 3], np.zeros((5, 3)), {}, "must increase"),
        (list(map(str, range(40))), np.zeros((5, 40)), {}, "at most 30 levels"),
        ([1, 2], np.zeros((5, 2, 6)), {}, "at most 5"),
        ([1, 2], np.full((5, 2), np.nan), {}, "finite"),
        ([1, 2], np.zeros((5, 2, 2)), {"series": ["a"]}, "series="),
    ],
)
def test_effects_that_do_not_fit_are_refused(values, draws, more, message):
    with pytest.raises(ArgumentError, match=message):
        effect_figure(values, draws, "covered", **more)


def bars(axes):
    return [patch for patch in axes.patches if hasattr(patch, "get_height")]


def test_a_rootogram_hangs_the_observed_from_the_expected():
    (axes,) = rootogram_figure(COUNTS[0], COUNTS[1:], "public data").axes
    top = int(max(COUNTS[0].max(), np.quantile(COUNTS[1:], 0.995)))
    for count, bar in zip(range(top + 1), bars(axes), strict=True):
        expected = np.sqrt(np.sum(COUNTS[1:] == count) / 40)
        assert bar.get_height() == pytest.approx(np.sqrt(np.sum(COUNTS[0] == count)))
        assert bar.get_y() + bar.get_height() == pytest.approx(expected)
        assert bar.get_x() + bar.get_width() / 2 == pytest.approx(count)
    band = next(patch for patch in axes.patches if not hasattr(patch, "get_height")).get_data()
    feet = np.sqrt(np.mean(COUNTS[1:] == 2) * 200) - np.sqrt(np.sum(COUNTS[1:] == 2, axis=1))
    assert band.values[2] == pytest.approx(np.quantile(feet, 0.95))
    assert band.baseline[2] == pytest.approx(np.quantile(feet, 0.05))
    lowest, highest = axes.get_ylim()
    assert lowest < min(bar.get_y() for bar in bars(axes))
    assert highest > band.values.max()


def test_many_counts_are_shown_in_ranges_that_lose_none():
    observed = np.append(COUNTS[0] * 30, 999)
    (axes,) = rootogram_figure(observed, np.tile(observed, (9, 1)), "public data").axes
    assert len(bars(axes)) <= 41
    assert sum(bar.get_height() ** 2 for bar in bars(axes)) == pytest.approx(len(observed))
    assert [bar.get_y() for bar in bars(axes)] == pytest.approx([0] * len(bars(axes)))


def test_proportions_are_shares_within_those_of_replicated_data():
    codes = RANDOM.integers(0, 3, (51, 100))
    (axes,) = proportions_figure(
        codes[0], codes[1:], ["a", "b", "never", "c"], "outside the guarantee"
    ).axes
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.bincount(codes[0], minlength=4) / 100)
    shares = np.mean(codes[1:] == 1, axis=1)
    bar = axes.patches[1]
    assert bar.get_y() == pytest.approx(np.quantile(shares, 0.05))
    assert bar.get_y() + bar.get_height() == pytest.approx(np.quantile(shares, 0.95))
    assert axes.get_ylim()[1] > max(patch.get_y() + patch.get_height() for patch in axes.patches)
    assert small_print(axes.figure).startswith("outside the guarantee")


def test_a_survival_curve_is_the_product_limit():
    """At 1, 1 of 4 dies; at 2, 1 of 3, and one leaves alive; at 3, the last one."""
    times, died = np.array([1, 2, 2, 3]), np.array([1, 1, 0, 1])
    (axes,) = survival_check_figure(
        times, died, [1, 2, 3], np.full((3, 3), 0.5), "public data"
    ).axes
    assert sorted(set(axes.lines[1].get_ydata())) == pytest.approx([0, 0.5, 0.75, 1])


def test_a_survival_curve_has_a_band_and_the_records_steps():
    times = RANDOM.exponential(10, 60)
    grid = np.linspace(0, 30, 31)
    curves = np.exp(-grid / RANDOM.normal(10, 1, (200, 1)))
    (axes,) = survival_check_figure(
        times, times < 15, grid, curves, "public data", xlabel="days"
    ).axes
    mean, steps, censored = axes.lines
    np.testing.assert_allclose(mean.get_ydata(), curves.mean(axis=0))
    assert steps.get_ydata()[0] == 1
    assert len(censored.get_xdata()) == np.sum(times >= 15)
    assert set(censored.get_ydata()) <= set(steps.get_ydata())


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: rootogram_figure([1.5, 2], np.ones((3, 2)), "public data"), "whole numbers"),
        (lambda: rootogram_figure([-1, 2], np.ones((3, 2)), "public data"), "observed="),
        (
            lambda: rootogram_figure([1, 2], np.ones((3, 3)), "public data"),
            "replicated=.*3 records",
        ),
        (
            lambda: proportions_figure([0, 3], np.ones((3, 2)), ["a", "b"], "public data"),
            "observed=",
        ),
        (
            lambda: proportions_figure(
                [0, 1], np.zeros((3, 2)), list(map(str, range(31))), "public data"
            ),
            "at most 30",
        ),
        (
            lambda: survival_check_figure([1, 2], [1, 2], [0, 1], np.ones((3, 2)), "public data"),
            "observed=",
        ),
        (
            lambda: survival_check_figure([1, 2], [1, 1], [1, 0], np.ones((3, 2)), "public data"),
            "must increase",
        ),
        (
            lambda: survival_check_figure(
                [1, 2], [1, 1], [0, 1], np.full((3, 2), 1.1), "public data"
            ),
            "curves=",
        ),
    ],
)
def test_records_that_do_not_fit_are_refused(draw, message):
    with pytest.raises(ArgumentError, match=message):
        draw()
