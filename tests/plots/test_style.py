"""The style of all figures."""

import io
import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import workbench.plots
from tests.plots.figures import small_print
from workbench._validate import ArgumentError
from workbench.plots import style

# Machado, Oliveira and Fernandes (2009): complete loss of one kind of cone, on linear RGB
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deutan": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritan": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def linear(colour):
    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast of two colours, as WCAG 2 defines it."""
    light, dark = sorted(
        (linear(colour) @ [0.2126, 0.7152, 0.0722] for colour in (one, other)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


def lightness_and_hue(rgb):
    """CIELAB of linear RGB."""
    weights = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    x, y, z = np.cbrt(weights @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("ink", [style.INK, style.QUIET])
@pytest.mark.parametrize("paper", ["#ffffff", style.SHADE])
def test_text_can_be_read(ink, paper):
    assert contrast(ink, paper) >= 4.5


@pytest.mark.parametrize("scale", [style.DENSITY, style.DIVERGING])
def test_numbers_can_be_read_on_every_shade(scale):
    assert min(contrast(style.INK, scale(value)[:3]) for value in np.linspace(0, 1, 21)) >= 7


def test_lines_stand_out_from_white():
    assert min(contrast(colour, "#ffffff") for colour in style.COLOURS) >= 3


@pytest.mark.parametrize("kind", BLINDNESS)
def test_colours_can_be_told_apart(kind):
    seen = [
        lightness_and_hue(np.array(BLINDNESS[kind]) @ linear(colour)) for colour in style.COLOURS
    ]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 13


def test_series_differ_in_marker_as_well():
    assert len(set(style.MARKERS)) == len(style.MARKERS) >= 8


@pytest.mark.parametrize("label", ["covered", "public data", "outside the guarantee"])
def test_every_label_is_explained_in_small_print(label):
    figure = style.new_figure(7, 3, "title", style.use_line(label))
    assert small_print(figure).startswith(f"{label}: ")
    assert figure.get_suptitle() == "title"


def test_what_is_outside_the_guarantee_is_printed_bold():
    weights = [
        style.new_figure(7, 3, "", style.use_line(label))._supxlabel.get_fontweight()
        for label in ("covered", "outside the guarantee")
    ]
    assert weights == ["normal", "bold"]


def test_a_mixed_figure_says_both():
    assert (
        style.use_line("covered", lines="covered", points="public data")
        == "lines: covered · points: public data"
    )
    assert style.use_line("covered", lines="covered", points="covered").startswith("covered: ")


def test_another_label_is_an_error():
    with pytest.raises(ArgumentError, match="label='private': unknown name"):
        style.use_line("private")
    with pytest.raises(ArgumentError, match="points_label='private'"):
        style.use_line("covered", lines="covered", points="private")


@pytest.mark.parametrize("width", [4.0, 7.0])
def test_long_titles_and_small_print_stay_inside(width):
    figure = style.new_figure(width, 3, "long " * 40, style.use_line("outside the guarantee"))
    figure.draw_without_rendering()
    for text in (figure._suptitle, figure._supxlabel):
        assert text.get_window_extent().x1 <= figure.bbox.x1


def test_long_names_are_shortened_and_keep_their_ends():
    short = style.shortened("standard error of the fractal dimension")
    assert len(short) <= 28
    assert short.startswith("standard error")
    assert short.endswith("dimension")
    assert style.shortened("x" * 28) == "x" * 28


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("worst fractal dimension", ["worst fractal", "dimension"]),
        ("group_weights[group 1, x]", ["group_weights", "[group 1, x]"]),
        ("x" * 20, ["x" * 14, "x" * 6]),
        ("short", ["short"]),
    ],
)
def test_names_are_wrapped_at_spaces_brackets_and_signs(name, lines):
    assert style.wrapped(name, 14).split("\n") == lines


def test_names_that_would_become_equal_end_in_their_place():
    names = [f"a long name with {number} in its middle that is lost" for number in range(100)]
    short = style.short_names([*names, "short"])
    assert len(set(short)) == 101
    assert max(map(len, short)) <= 28
    assert short[41].endswith("…#42")
    assert short[-1] == "short"


def test_the_largest_keep_their_order():
    assert style.largest(np.array([3.0, 1.0, 2.0, 5.0]), 3).tolist() == [0, 2, 3]
    assert style.largest(np.array([3.0, 1.0]), 3).tolist() == [0, 1]


def test_names_beside_points_do_not_cover_each_other():
    figure = style.new_figure(6, 4)
    axes = style.dress(figure.add_subplot())
    places = np.array([(0.5, 0.5), (0.51, 0.5), (0.5, 0.52), (0.95, 0.1), (0.0, 0.9)])
    axes.plot(*places.T, "o")
    axes.set_xlim(0, 1)
    notes = style.annotate_apart(axes, places, [f"point number {number}" for number in range(5)])
    boxes = [note.get_window_extent() for note in notes]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


def test_a_figure_is_svg_on_a_transparent_ground():
    figure = style.new_figure(3, 2, "title")
    style.dress(figure.add_subplot()).plot([0, 1], [0, 1])
    drawn = style.svg(figure)
    assert drawn.startswith(b"<?xml")
    assert drawn == style.svg(figure)
    (ground,) = re.findall(rb'<g id="patch_1">\s*<path d="[^"]*" style="([^"]*)"', drawn)
    assert b"opacity: 0" in ground or b"fill: none" in ground


def test_a_figure_of_many_points_is_a_picture_of_pixels():
    figure = style.new_figure(3, 2)
    style.dress(figure.add_subplot()).plot(*np.random.default_rng(0).normal(size=(2, 20_000)), "o")
    drawn = style.svg(figure)
    assert drawn.startswith(b"\x89PNG")
    assert int.from_bytes(drawn[16:20]) == 720  # twice the pixels that png has
    assert np.asarray(Image.open(io.BytesIO(drawn)))[0, 0, 3] == 0


def test_a_notebook_shows_a_figure_at_twice_its_resolution():
    picture, size = style.new_figure(3, 2)._repr_png_()
    assert size == {"width": 360, "height": 240}
    assert (int.from_bytes(picture[16:20]), int.from_bytes(picture[20:24])) == (720, 480)


def test_public_names_are_sorted_and_exist():
    assert workbench.plots.__all__ == sorted(workbench.plots.__all__)
    assert all(callable(getattr(workbench.plots, name)) for name in workbench.plots.__all__)


@pytest.mark.thorough
def test_no_figure_imports_pyplot():
    code = """
import sys
import numpy as np, pandas as pd
from workbench import plots
ones = np.ones((3, 2)) + np.arange(3)[:, None]
table = pd.DataFrame({"mean": [1.0], "sd": [1.0], "hdi_90%_low": [0.0], "hdi_90%_high": [2.0]})
runs = {"epsilon": [1.0], "method": ["a"], "auc": [0.5], "clip": [1.0], "coverage": [0.9]}
runs = pd.DataFrame(runs)
for figure in (
    plots.forest_figure(table, "covered"),
    plots.pair_figure({"a": ones[:, 0], "b": ones[:, 1]}, "covered"),
    plots.coefficients_figure(None, ones, "covered"),
    plots.group_effects_figure(ones, [1, 2], "covered"),
    plots.mixture_figure([1.0], [[0.0, 0.0]], [[1.0, 1.0]], "covered"),
    plots.image_grid_figure(np.ones((2, 3, 3)), "covered"),
    plots.predictive_check_figure([0, 1], ones / 4, "covered"),
    plots.points_check_figure(ones, ones[None], None, "covered"),
    plots.utility_figure(runs, "auc", "covered"),
    plots.trend_figure(runs, "epsilon", "auc", "method", "covered"),
    plots.calibration_figure(runs, "covered"),
):
    plots.png(figure)
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
