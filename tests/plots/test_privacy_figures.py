"""The picture of a plan before any fit."""

import dataclasses

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.conftest import some_of
from tests.plots.figures import legend, outside, overlaps, texts
from workbench.plots import png
from workbench.plots.privacy import outlook_figure
from workbench.privacy.outlook import outlook
from workbench.privacy.plan import PrivacySettings, make_plan

SETTINGS = PrivacySettings(
    epsilon=1.0,
    delta=1e-3,
    iterations=800,
    sampling_rate=0.1,
    sampler="poisson",
    clip=2.0,
    num_records=455,
    seed=None,
)
PLANS = [(0.1, 800), (1.0, 50_000), (8.0, 1), (1.2345, 1_234_567)]
SHOWN = 320  # pixels, the narrowest


def ahead(epsilon=1.0, iterations=800):
    return outlook(
        make_plan(dataclasses.replace(SETTINGS, epsilon=epsilon, iterations=iterations), 455), 31
    )


def shown_texts(figure):
    figure.draw_without_rendering()
    for axes in figure.axes:
        yield from (axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
        for axis in (axes.xaxis, axes.yaxis):  # ticks beyond the end of an axis are not drawn
            low, high = axis.get_view_interval()
            yield from (
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            )
        if axes.get_legend() is not None:
            yield from axes.get_legend().get_texts()


@pytest.mark.parametrize(("epsilon", "iterations"), some_of(PLANS, 4))
def test_panels_show_the_curve_and_the_trade_off(epsilon, iterations):
    seen = ahead(epsilon, iterations)
    spent, attack = outlook_figure(seen).axes
    assert spent.lines[0].get_xydata().tolist() == [[0, 0], *map(list, seen.epsilon_curve)]
    assert texts(spent) == [f"{epsilon:g}"]
    np.testing.assert_allclose(attack.lines[0].get_xydata(), 100 * np.array(seen.trade_off))
    assert attack.lines[1].get_xydata().tolist() == [[0, 0], [100, 100]]
    assert (spent.get_xlabel(), attack.get_xlabel()) == ("steps", "wrongly accused (%)")


def test_the_point_at_one_percent_has_its_number():
    seen = ahead()
    _, attack = outlook_figure(seen).axes
    point = attack.lines[2]
    assert point.get_xydata()[0] == pytest.approx(
        [1, 100 * seen.attack_bounds["true_positive_rate_at_1_percent"]]
    )
    number, guessing = legend(attack)
    assert number == "2.7 % at 1 %"
    assert number.removesuffix(" at 1 %") in seen.words()[1]
    assert guessing == "guessing"
    # series differ in more than colour
    assert point.get_marker() == "D"
    assert attack.lines[1].get_linestyle() == "--"


@pytest.mark.parametrize(("epsilon", "iterations"), some_of(PLANS))
def test_every_text_is_inside_apart_and_large_enough_where_the_picture_is_smallest(
    epsilon, iterations
):
    figure = outlook_figure(ahead(epsilon, iterations))
    labels = list(shown_texts(figure))
    assert outside(figure, labels) == []
    assert overlaps(figure, labels) == []
    pixels_per_inch = SHOWN / figure.get_figwidth()
    assert min(label.get_fontsize() for label in labels) * pixels_per_inch / 96 >= 7.5


def test_a_picture_is_drawn_once(monkeypatch):
    """It follows sliders."""
    painted = []
    paint = Figure.draw

    def count(self, renderer):
        painted.append(renderer)
        paint(self, renderer)

    monkeypatch.setattr(Figure, "draw", count)
    assert png(outlook_figure(ahead())).startswith(b"\x89PNG")
    assert len(painted) <= 2  # one of them lays the figure out and paints nothing
