"""Figures of the effects of groups."""

import numpy as np
import pytest

from tests.plots.figures import GENERATOR, legend, overlaps, texts
from workbench._validate import ArgumentError
from workbench.plots import group_effects_figure

DRAWS = GENERATOR.normal([3.0, -0.1, -2.0], 0.3, size=(400, 3))
FEATURE, GRID = np.array([0.1, 0.5, 0.9]), np.linspace(0, 1, 5)
LINES = GENERATOR.normal(1, 0.1, size=(400, 1)) * GRID


def test_group_effects_stand_at_their_feature():
    (axes,) = group_effects_figure(
        DRAWS, FEATURE, "covered", names=["a", "b", "c"], xlabel="size", ylabel="slope"
    ).axes
    assert np.allclose(axes.lines[-1].get_xydata(), np.column_stack([FEATURE, DRAWS.mean(axis=0)]))
    assert texts(axes) == ["a", "b", "c"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("size", "slope")
    assert legend(axes) == ["group: mean and 90 % interval"]


def test_group_effects_show_the_line_with_its_band():
    (axes,) = group_effects_figure(DRAWS, FEATURE, "covered", fitted=LINES, grid=GRID).axes
    assert np.allclose(axes.lines[0].get_xydata(), np.column_stack([GRID, LINES.mean(axis=0)]))
    assert legend(axes)[:2] == ["regression on the feature", "its 90 % interval"]


@pytest.mark.parametrize(("groups", "named"), [(12, 12), (13, 0)])
def test_up_to_twelve_groups_are_named(groups, named):
    figure = group_effects_figure(GENERATOR.normal(size=(20, groups)), np.arange(groups), "covered")
    assert len(texts(figure.axes[0])) == named
    assert not overlaps(figure, figure.axes[0].texts)


def test_useless_group_effects_are_an_error():
    with pytest.raises(ArgumentError, match=r"group_feature=.*has 2 groups, but effects has 3"):
        group_effects_figure(DRAWS, [1.0, 2.0], "covered")
    with pytest.raises(ArgumentError, match="grid=None"):
        group_effects_figure(DRAWS, FEATURE, "covered", fitted=LINES)
    with pytest.raises(ArgumentError, match=r"grid=.*must increase"):
        group_effects_figure(DRAWS, FEATURE, "covered", fitted=LINES, grid=GRID[::-1])
    with pytest.raises(ArgumentError, match=r"names=.*has 1 groups"):
        group_effects_figure(DRAWS, FEATURE, "covered", names=["a"])
