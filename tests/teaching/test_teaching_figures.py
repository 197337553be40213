"""Figures of the teaching screens: they show the numbers, stay inside their frame, and are redrawn
quickly.
"""

import re

import numpy as np
import pytest

from tests.conftest import some_of
from tests.plots.figures import outside, overlaps
from workbench.noise.chacha20 import key_from_seed
from workbench.privacy.steps import LAWS
from workbench.teaching.figures import (
    AttackFigure,
    CompositionFigure,
    DescentFigure,
    MinibatchFigure,
    SpendingFigure,
)
from workbench.teaching.simulations import (
    CLOUD,
    Descent,
    attack,
    clipped_location,
    minibatches,
    several_fits,
    spent,
)

SVG = b"<?xml"


def shown(figure):
    """All texts of a figure but ticks beyond the ends of an axis."""
    figure.draw_without_rendering()
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += [axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    return texts


def check(kept):
    assert outside(kept.figure, shown(kept.figure)) == []
    assert overlaps(kept.figure, shown(kept.figure)) == []
    first, second = kept.frame()
    assert first.startswith(SVG)
    assert second.startswith(SVG)
    assert first != second
    assert across(kept) == []


def across(kept):
    """What is drawn across the place where the figure is cut in two; a pixel of blank must be left
    on each side.
    """
    figure = kept.figure
    place, renderer = kept.cut * figure.bbox.width, figure.canvas.get_renderer()
    texts = [text for text in shown(figure) if text.get_visible() and text.get_text().strip()]
    parts = [
        *texts,
        *figure.axes,
        *figure.artists,
        *(h for legend in figure.legends for h in legend.legend_handles),
    ]
    boxes = [(part, part.get_window_extent(renderer)) for part in parts]
    return [str(part) for part, box in boxes if box.x0 < place + 1 and box.x1 > place - 1]


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 16.0])
@pytest.mark.parametrize("rate", some_of([0.001, 0.01, 0.5], 3, first=1))
def test_the_attack_is_drawn_on_both_axes_with_its_point(epsilon, rate):
    seen = attack(epsilon=epsilon, delta=1e-5, sampling_rate=1.0, steps=100)
    kept = AttackFigure()
    kept.draw(attack(epsilon=2.0, delta=1e-5, sampling_rate=1.0, steps=100), 0.1)
    kept.draw(seen, rate)
    for axes in kept.figure.axes:
        fit, bound, guess, point = axes.lines[1], axes.lines[0], axes.lines[2], axes.lines[3]
        np.testing.assert_allclose(fit.get_ydata(), 100 * seen.accounted)
        np.testing.assert_allclose(bound.get_ydata(), 100 * seen.promised)
        assert point.get_xydata()[0] == pytest.approx([100 * rate, 100 * seen.found(rate)[1]])
        assert len({line.get_linestyle() for line in (fit, bound, guess)}) == 3
    check(kept)


@pytest.mark.parametrize("count", [1, 10, 50])
def test_composition_marks_the_fits_that_are_chosen(count):
    seen = several_fits(epsilon=0.5, delta=1e-6, sampling_rate=1.0, steps=100, counts=(1, 10, 50))
    kept = CompositionFigure()
    kept.draw(seen, count)
    (axes,) = kept.figure.axes
    heights = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "None"]
    assert heights == list(seen.of(count))
    assert f"epsilon {seen.of(count)[2]:.4g}" in kept.figure.texts[2].get_text()
    check(kept)


def test_minibatches_are_cells_with_their_counts():
    members = [
        minibatches(name, num_records=40, batch_size=8, steps=40, key=key_from_seed(1))
        for name in LAWS
    ]
    kept = MinibatchFigure(40, 40)
    kept.draw(members)
    for (picture, counts), member in zip(
        np.reshape(kept.figure.axes, (len(LAWS), 2)), members, strict=True
    ):
        np.testing.assert_array_equal(picture.images[0].get_array(), member.T)
        np.testing.assert_array_equal(counts.lines[0].get_xdata(), member.sum(axis=0))
    assert "minibatches of 8\ndrawn 8 times each" in kept.figure.texts[2].get_text()
    check(kept)


@pytest.mark.thorough
def test_epsilon_over_steps_has_a_line_a_sampler_and_relation_and_a_number():
    plan = {"sampling_rate": 0.1, "noise_multiplier": 3.0, "steps": 100, "delta": 1e-5}
    cases = [(law.name, relation) for law in LAWS.values() for relation in law.relations]
    found = [spent(*case, name, **plan) for name in ("pld", "rdp") for case in cases]
    kept = SpendingFigure()
    kept.draw(found, 100)
    (axes,) = kept.figure.axes
    curves = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert len({(line.get_linestyle(), line.get_marker()) for line in curves}) == len(cases) == 5
    for line, each in zip(curves, found[:5], strict=True):
        assert line.get_xydata().tolist() == [list(point) for point in each.curve]
    said = [
        float(number)
        for each in kept.figure.texts
        for number in re.findall(r"(?:PLD|RDP) ([\d.]+)", each.get_text())
    ]
    bounds = [
        each.epsilon
        for pair in zip(found[:5], found[5:], strict=True)
        for each in pair
        if np.isfinite(each.epsilon)
    ]
    assert len(said) == len(bounds) > 5
    # rounded up
    assert all(bound <= number <= 1.01 * bound for number, bound in zip(said, bounds, strict=True))
    check(kept)
    kept.draw([each._replace(curve=(), epsilon=np.inf) for each in found[:5]], 100)
    assert "PLD no bound" in kept.figure.texts[0].get_text()


@pytest.mark.thorough
@pytest.mark.parametrize(("clip", "sigma"), [(0.05, 16.0), (1.0, 0.0), (5.0, 4.0)])
def test_a_step_shows_every_pull_the_ball_the_sum_and_the_noise(clip, sigma):
    numbers = {"clip": clip, "noise_multiplier": sigma, "learning_rate": 0.3, "sampling_rate": 0.5}
    descent = Descent(seed=1)
    path = descent.run((3.0, -1.5), 4, **numbers)
    step = descent.step(path[-1], 4, **numbers)
    kept = DescentFigure()
    kept.draw(step, path, clipped_location(CLOUD, clip), clip=clip, sigma=sigma, rate=0.5)
    assert len(kept._pulls.get_segments()) == len(kept._cut.get_segments()) == step.drawn.sum()
    for segment in kept._cut.get_segments():
        np.testing.assert_allclose(segment[0], step.before)
        assert np.linalg.norm(segment[1] - segment[0]) <= clip * (1 + 1e-5)
    assert kept._edge.get_radius() == clip
    np.testing.assert_allclose(kept._next.get_xydata()[0], step.after)
    collection, tip = kept._arrows["noised"]
    np.testing.assert_allclose(tip.get_xydata()[0], step.noised / 20, rtol=1e-5)
    np.testing.assert_allclose(collection.get_segments()[0][1], step.noised / 20, rtol=1e-5)
    assert kept._spread.get_radius() == pytest.approx(sigma * clip / 20, abs=1e-8)
    check(kept)
