"""Posterior predictive checks."""

import numpy as np
import pytest
from scipy import stats

from tests.plots.figures import GENERATOR, legend, outside, overlaps, small_print
from workbench._validate import ArgumentError
from workbench.plots import points_check_figure, predictive_check_figure
from workbench.plots.checks import _counts_of_ones

CHANCES = GENERATOR.uniform(size=(30, 50))
OBSERVED = (GENERATOR.uniform(size=50) < CHANCES.mean(axis=0)).astype(int)


def heights(axes):
    return np.array([patch.get_height() for patch in axes.patches])


@pytest.mark.parametrize("records", [30, 3000])
def test_counts_of_equal_chances_are_binomial(records):
    mass = _counts_of_ones(np.full((3, records), 0.3))
    assert mass.sum() == pytest.approx(1)
    assert np.allclose(mass, stats.binom.pmf(np.arange(records + 1), records, 0.3), atol=2e-4)


def test_counts_of_unequal_chances_are_a_mean_over_draws():
    mass = _counts_of_ones(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.5, 0.5, 0.0]]))
    assert np.allclose(mass, np.array([0.25, 1.5, 0.25, 1.0]) / 3)


def test_counts_of_certain_outcomes_are_certain_in_large_data_sets():
    mass = _counts_of_ones(np.repeat([[1.0, 0.0]], 600, axis=1))
    assert mass[600] == pytest.approx(1)


def test_replicated_shares_add_up_and_the_observed_one_is_a_line():
    _, axes = predictive_check_figure(OBSERVED, CHANCES, "public data").axes
    assert heights(axes).sum() == pytest.approx(1, abs=1e-3)
    assert set(axes.lines[0].get_xdata()) == {OBSERVED.mean()}
    assert any(f"{OBSERVED.mean():.3f}" in text for text in legend(axes))


@pytest.mark.parametrize(("outcome", "words"), [(0, "<1 % lie below"), (1, ">99 % lie below")])
def test_an_unlikely_share_is_inside_the_picture_and_its_rank_is_told(outcome, words):
    _, axes = predictive_check_figure(np.full(50, outcome), CHANCES, "public data").axes
    left, right = axes.get_xlim()
    assert left < outcome < right
    assert any(words in text for text in legend(axes))


def test_calibration_shows_the_share_of_ones_of_each_bin():
    predicted = np.tile([0.12, 0.18, 0.75, 0.75, 1.0], (4, 1))
    axes, _ = predictive_check_figure([0, 1, 1, 1, 1], predicted, "public data").axes
    points = next(line for line in axes.lines if line.get_linestyle() == "None")
    assert np.allclose(points.get_xydata(), [(0.15, 0.5), (0.75, 1), (1, 1)])
    assert [text.get_text() for text in axes.texts] == ["2", "2", "1"]
    interval = stats.binomtest(1, 2).proportion_ci(0.9, method="wilson")
    assert np.allclose(axes.collections[0].get_segments()[0][:, 1], interval)


@pytest.mark.parametrize("label", ["public data", "outside the guarantee"])
def test_the_check_says_what_it_may_be_used_for(label):
    figure = predictive_check_figure(OBSERVED, CHANCES, label)
    assert small_print(figure).startswith(label)
    boxes = [axes.get_legend() for axes in figure.axes]
    figure.draw_without_rendering()
    assert not boxes[0].get_window_extent().overlaps(boxes[1].get_window_extent())
    assert not outside(figure, [text for box in boxes for text in box.get_texts()])


@pytest.mark.parametrize(
    ("observed", "chances", "message"),
    [
        ([0, 2], np.ones((3, 2)) / 2, "observed=.*only 0 and 1"),
        ([0, 1], np.ones((3, 3)) / 2, "probabilities=.*has 3 records, but observed has 2"),
        ([0, 1], np.ones((3, 2)) * 2, "probabilities=.*at most 1"),
        ([0, 1], np.ones(2), r"probabilities=.*\[draws, records\]"),
        ([0, np.nan], np.ones((3, 2)), "observed=.*finite"),
    ],
)
def test_useless_probabilities_are_an_error(observed, chances, message):
    with pytest.raises(ArgumentError, match=message):
        predictive_check_figure(observed, chances, "public data")


# --- points ---------------------------------------------------------------------------------------


def test_points_are_densities_within_bands():
    points, copies = GENERATOR.normal(size=(200, 2)), GENERATOR.normal(size=(40, 200, 2))
    figure = points_check_figure(points, copies, ["a", "b"], "public data")
    assert [axes.get_title("left") for axes in figure.axes] == ["a", "b"]
    for axes in figure.axes:
        band, middle, ours = axes.patches
        values, edges, bottom = band.get_data()
        assert (bottom <= middle.get_data().values).all()
        assert (middle.get_data().values <= values).all()
        assert np.sum(ours.get_data().values * np.diff(edges)) == pytest.approx(1, abs=0.02)
        inside = (bottom <= ours.get_data().values) & (ours.get_data().values <= values)
        assert inside.mean() > 0.5


def test_the_twelve_features_that_differ_most_are_shown():
    points, copies = np.zeros((20, 30)), GENERATOR.normal(size=(5, 20, 30)) * 0.01
    copies[..., 25] += 3
    figure = points_check_figure(points, copies, None, "public data")
    titles = [axes.get_title("left") for axes in figure.axes]
    assert len(titles) == 12
    assert "feature 26" in titles
    assert "12 of 30 features" in figure.get_suptitle()


def test_the_legend_of_points_covers_no_title():
    figure = points_check_figure(np.ones((9, 2)), np.ones((3, 9, 2)), None, "public data")
    figure.draw_without_rendering()
    (box,) = figure.legends
    titles = [axes._left_title for axes in figure.axes]
    assert not any(box.get_window_extent().overlaps(title.get_window_extent()) for title in titles)
    assert not overlaps(figure, [*box.get_texts(), *titles])


def test_replicated_data_may_be_of_another_size_but_not_of_other_features():
    points_check_figure(np.zeros((9, 2)), np.zeros((3, 50, 2)), None, "public data")
    with pytest.raises(ArgumentError, match=r"replicated=.*has 3 features, but observed has 2"):
        points_check_figure(np.zeros((9, 2)), np.zeros((3, 9, 3)), None, "public data")
    with pytest.raises(ArgumentError, match=r"names=.*has 1 features"):
        points_check_figure(np.zeros((9, 2)), np.zeros((3, 9, 2)), ["a"], "public data")
