"""Figures of mixtures."""

import numpy as np
import pytest
from matplotlib.patches import Ellipse

from tests.plots.figures import GENERATOR, legend, outside, overlaps, small_print, texts, ticks
from workbench._numbers import MINUS
from workbench._validate import ArgumentError
from workbench.plots import mixture_figure, png

WEIGHTS = np.array([0.6, 0.39, 0.01])


def mixture(features, components=3):
    means = GENERATOR.normal(size=(components, features)) * 3
    return means, np.full((components, features), 0.5)


def test_two_features_are_ellipses_of_one_and_two_standard_deviations():
    means, scales = mixture(2)
    (axes,) = mixture_figure(WEIGHTS, means, scales * [1, 2], "covered", names=["a", "b"]).axes
    ellipses = [patch for patch in axes.patches if isinstance(patch, Ellipse)]
    assert [(patch.width, patch.height) for patch in ellipses] == 3 * [(1.0, 2.0), (2.0, 4.0)]
    assert np.allclose([patch.center for patch in ellipses[::2]], means)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("a", "b")
    assert texts(axes) == ["1  (60 %)", "2  (39 %)", "3  (1 %)"]
    assert any("density" in text for text in legend(axes))


def test_areas_of_markers_follow_the_weights():
    means, scales = mixture(2)
    (axes,) = mixture_figure([0.6, 0.3, 0.1], means, scales, "covered").axes
    sizes = axes.collections[-1].get_sizes()
    assert np.allclose(sizes / sizes[0], [1, 1 / 2, 1 / 6])


def test_points_lie_inside_and_both_labels_are_printed():
    means, scales = mixture(2)
    points = GENERATOR.normal(size=(300, 2)) * 9
    figure = mixture_figure(
        WEIGHTS, means, scales, "covered", points=points, points_label="public data"
    )
    (axes,) = figure.axes
    assert small_print(figure) == "mixture: covered · points: public data"
    assert np.allclose(axes.lines[0].get_xydata(), points)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert left < points[:, 0].min() < points[:, 0].max() < right
    assert bottom < points[:, 1].min() < points[:, 1].max() < top


def test_many_points_are_thinned():
    means, scales = mixture(2)
    points = GENERATOR.normal(size=(9000, 2))
    (axes,) = mixture_figure(
        WEIGHTS, means, scales, "covered", points=points, points_label="public data"
    ).axes
    assert len(axes.lines[0].get_xdata()) == 4000


def test_one_feature_is_a_density_that_integrates_to_one():
    means, scales = mixture(1)
    points = GENERATOR.normal(size=(300, 1))
    figure = mixture_figure(
        WEIGHTS, means, scales, "covered", points=points, points_label="outside the guarantee"
    )
    (axes,) = figure.axes
    density = next(line for line in axes.lines if line.get_label() == "mixture")
    assert np.trapezoid(density.get_ydata(), density.get_xdata()) == pytest.approx(1, abs=0.01)
    assert len(axes.patches) >= 10  # the histogram
    assert texts(axes)[0] == "1  (60 %)"
    assert "points: outside the guarantee" in small_print(figure)
    png(figure)


def test_many_features_are_a_table_of_means():
    means, scales = mixture(5)
    names = [f"feature {letter}" for letter in "abcde"]
    axes = mixture_figure(WEIGHTS, means, scales, "covered", names=names).axes[0]
    assert ticks(axes) == names
    assert ticks(axes, "x") == ["1\n60 %", "2\n39 %", "3\n1 %"]
    assert np.allclose(
        [float(text.replace(MINUS, "-")) for text in texts(axes)], means.T.ravel(), atol=0.005
    )


def test_a_table_compares_with_the_mean_of_the_points():
    means, scales = mixture(3)
    points = np.full((4, 3), 7.0)
    axes = mixture_figure(
        WEIGHTS, means, scales, "covered", points=points, points_label="public data"
    ).axes[0]
    assert ticks(axes, "x")[-1] == "points\nmean"
    assert float(texts(axes)[3]) == 7


@pytest.mark.thorough
def test_a_large_table_shows_what_differs_most_and_says_so():
    means, scales = mixture(80, components=15)
    weights = np.arange(1, 16) / 120
    names = [f"a feature with a very long name, number {number}" for number in range(80)]
    components = [f"component of number {number}" for number in range(1, 16)]
    figure = mixture_figure(weights, means, scales, "covered", names=names, components=components)
    axes = figure.axes[0]
    assert (len(ticks(axes)), len(ticks(axes, "x"))) == (60, 12)
    assert ticks(axes, "x")[0].endswith("r 4 (3 %)")  # the three lightest are left out
    title = " ".join(figure.get_suptitle().split())
    assert "60 of 80 features" in title
    assert "12 heaviest of 15 components" in title
    labels = [*axes.get_yticklabels(), *axes.get_xticklabels(), *axes.texts[:36]]
    assert not overlaps(figure, labels)
    assert not outside(figure, [*labels, figure._suptitle])


def test_components_can_have_names():
    means, scales = mixture(2)
    (axes,) = mixture_figure(WEIGHTS, means, scales, "covered", components=["x", "y", "z"]).axes
    assert [text.split()[0] for text in texts(axes)] == ["x", "y", "z"]


@pytest.mark.thorough
def test_one_component_without_spread_of_means_can_be_drawn():
    for features in (1, 2, 3):
        png(mixture_figure([1.0], np.zeros((1, features)), np.ones((1, features)), "covered"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": [0.5, 0.5]}, "means=.*has 3 components, but weights has 2"),
        ({"weights": [0.5, 0.4, 0.3]}, "weights=.*must sum to 1"),
        ({"weights": [1.5, -0.5, 0.0]}, r"weights=.*at least 0, but contains -0.5 at \[1\]"),
        ({"scales": np.zeros((3, 2))}, "scales=.*greater than 0"),
        ({"means": np.full((3, 2), np.nan)}, "means=.*finite"),
        ({"means": np.zeros(3)}, r"means=.*\[components, features\]"),
        ({"points": np.zeros((4, 2))}, "points_label=None"),
        ({"points_label": "covered"}, "points_label='covered'"),
        (
            {"points": np.zeros((4, 3)), "points_label": "covered"},
            "points=.*has 3 features, but means has 2",
        ),
        ({"names": ["a"]}, "names=.*has 1 features"),
        ({"label": "mine"}, "label='mine'"),
    ],
)
def test_a_useless_mixture_is_an_error(change, message):
    means, scales = mixture(2)
    with pytest.raises(ArgumentError, match=message):
        mixture_figure(
            **({"weights": WEIGHTS, "means": means, "scales": scales, "label": "covered"} | change)
        )
