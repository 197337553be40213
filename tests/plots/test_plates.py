"""Plate diagrams: their content, and that nothing overlaps."""

import itertools

import numpy as np
import pytest
from matplotlib.patches import Ellipse, FancyArrowPatch, FancyBboxPatch, Rectangle

from tests.conftest import some_of
from tests.plots.figures import outside, overlaps
from workbench._validate import ArgumentError
from workbench.plots import plate_figure, plate_words


def relations(sites, plates=(), observed=("y",), parameters=()):
    """As NumPyro returns them: ``sites`` is {name: (distribution, what it depends on)},
    ``parameters`` {name: used by}.
    """
    parameters = dict(parameters)
    return {
        "sample_sample": {name: list(before) for name, (_, before) in sites.items()},
        "sample_param": {
            name: [p for p, users in parameters.items() if name in users] for name in sites
        },
        "sample_dist": {name: distribution for name, (distribution, _) in sites.items()},
        "param_constraint": dict.fromkeys(parameters, ""),
        "plate_sample": dict(plates),
        "observed": list(observed),
    }


NORMAL = "Normal"
REGRESSION = relations(
    {
        "weights": (NORMAL, ()),
        "intercept": (NORMAL, ()),
        "y": ("Bernoulli", ("weights", "intercept")),
    },
    {"records": ["y"]},
)
NESTED = relations(
    {
        "shared": (NORMAL, ()),
        "region": (NORMAL, ("shared",)),
        "school": (NORMAL, ("region",)),
        "noise": ("Gamma", ()),
        "code": (NORMAL, ()),
        "line": ("Deterministic", ("school", "code")),
        "y": (NORMAL, ("line", "noise", "shared")),
    },
    {"regions": ["region", "school"], "schools": ["school"], "records": ["code", "line", "y"]},
)
NETWORK = relations(
    {"code": (NORMAL, ()), "x": ("Bernoulli", ("code",))},
    {"records": ["code", "x"]},
    ["x"],
    {
        "offset": ["x"],
        **{f"decoder_{part}": ["x"] for part in ("a_kernel", "a_bias", "b_kernel", "b_bias")},
    },
)
MANY = relations(
    {
        **{f"coefficient_{i}": (NORMAL, ()) for i in range(11)},
        "y": (NORMAL, [f"coefficient_{i}" for i in range(11)]),
    },
    {"records": ["y"]},
)


def random_relations(seed):
    """Up to 12 sites with random arrows, and frames that lie in or beside each other."""
    generator = np.random.default_rng(seed)
    names = [f"site_{place}" for place in range(generator.integers(2, 13))]
    sites = {
        name: (NORMAL, [before for before in names[:place] if generator.random() < 0.3])
        for place, name in enumerate(names)
    }
    split = int(generator.integers(1, len(names)))
    plates = {"late": names[split:], "early": names[: split // 2], "inner": names[split:][:2]}
    return relations(sites, plates, names[-1:])


CASES = {"regression": REGRESSION, "nested": NESTED, "network": NETWORK, "many": MANY}
CASES |= {f"random {seed}": random_relations(seed) for seed in range(12)}


def parts(figure, kind):
    (axes,) = figure.axes
    return [patch for patch in axes.patches if isinstance(patch, kind)]


def site_boxes(figure):
    """{name: (left, bottom, right, top)} in points."""
    return {outline.get_label(): box_of(outline) for outline in outlines(figure)}


def box_of(outline):
    return outline.get_path().get_extents(outline.get_patch_transform()).extents


def outlines(figure):
    return parts(figure, (Ellipse, Rectangle))


def frame_boxes(figure):
    return [
        (box.get_x(), box.get_y(), box.get_x() + box.get_width(), box.get_y() + box.get_height())
        for box in parts(figure, FancyBboxPatch)
    ]


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def apart(one, other):
    return one[0] >= other[2] or other[0] >= one[2] or one[1] >= other[3] or other[1] >= one[3]


def holds(outer, inner):
    return (
        outer[0] < inner[0] and outer[1] < inner[1] and outer[2] > inner[2] and outer[3] > inner[3]
    )


@pytest.mark.parametrize("case", some_of(list(CASES), 3, 1))
def test_nothing_lies_over_anything_else(case):
    figure = plate_figure(CASES[case], "model")
    boxes, frames = site_boxes(figure), frame_boxes(figure)
    assert all(apart(one, other) for one, other in itertools.combinations(boxes.values(), 2))
    assert all(
        apart(*pair) or holds(*pair) or holds(*pair[::-1])
        for pair in itertools.combinations(frames, 2)
    )
    assert all(apart(frame, box) or holds(frame, box) for frame in frames for box in boxes.values())
    labels = [text for text in figure.axes[0].texts]
    assert not overlaps(figure, labels)
    assert not outside(figure, labels)


@pytest.mark.parametrize("case", CASES)
def test_frames_hold_what_is_theirs_and_nothing_else(case):
    boxes = site_boxes(figure := plate_figure(CASES[case]))
    held = {
        frozenset(name for name, box in boxes.items() if holds(frame, box))
        for frame in frame_boxes(figure)
    }
    assert held == {frozenset(inside) for inside in CASES[case]["plate_sample"].values() if inside}


@pytest.mark.parametrize("case", some_of(list(CASES), 3))
def test_arrows_go_down_and_pass_by_other_sites(case):
    figure = plate_figure(CASES[case])
    for arrow in parts(figure, FancyArrowPatch):
        # the last is the end marker
        line = arrow._path_original.cleaned(curves=False).vertices[:-1]
        assert line[0][1] > line[-1][1]
        touched = [outline.get_label() for outline in outlines(figure) if passes(line, outline)]
        assert len(touched) == 2, touched


def passes(line, outline):
    """Whether a line meets the outline of a site, or what is inside."""
    steps = np.linspace(0, 1, 40)[:, None]
    points = np.concatenate(
        [one + (other - one) * steps for one, other in itertools.pairwise(line)]
    )
    left, bottom, right, top = box_of(outline)
    offsets = (points - [(left + right) / 2, (bottom + top) / 2]) / [
        (right - left) / 2,
        (top - bottom) / 2,
    ]
    far = np.abs(offsets).max(axis=1) if isinstance(outline, Rectangle) else np.hypot(*offsets.T)
    return bool((far < 1 + 1e-6).any())


@pytest.mark.parametrize("case", CASES)
def test_there_is_one_arrow_for_each_dependence(case):
    sites = CASES[case]["sample_sample"]
    dependences = sum(map(len, sites.values())) + (2 if case == "network" else 0)
    assert len(parts(plate_figure(CASES[case]), FancyArrowPatch)) == dependences


@pytest.mark.parametrize("case", some_of(list(CASES), 3, 2))
def test_a_diagram_can_be_read_at_320_pixels(case):
    figure = plate_figure(CASES[case], "model")
    assert figure.get_figwidth() == pytest.approx(4.2, abs=0.05)
    assert min(text.get_fontsize() for text in figure.axes[0].texts) >= 8


@pytest.mark.parametrize("case", ["regression", "network"])
def test_small_models_have_small_diagrams(case):
    assert plate_figure(CASES[case], "model").get_figheight() <= 3.2


def test_each_site_shows_its_name_and_distribution():
    assert {"weights", "intercept", "y", "~ Normal", "~ Bernoulli", "records"} <= set(
        texts(plate_figure(REGRESSION))
    )


def test_observed_sites_are_shaded_and_computed_ones_dashed_and_the_signs_are_told():
    figure = plate_figure(NESTED)
    faces = {outline.get_label(): outline.get_facecolor() for outline in outlines(figure)}
    assert [name for name, face in faces.items() if face != (1, 1, 1, 1)] == ["y"]
    assert [
        outline.get_label() for outline in outlines(figure) if outline.get_linestyle() != "-"
    ] == ["line"]
    assert "shaded: observed · dashed: computed" in texts(figure)


def test_the_parameters_of_a_network_are_one_box():
    figure = plate_figure(NETWORK)
    assert {box.get_label() for box in parts(figure, Rectangle)} == {"offset", "decoder"}
    assert {"4 parameters", "parameter"} <= set(texts(figure))


def test_frames_show_the_given_labels_instead_of_their_names():
    shown = texts(plate_figure(NESTED, labels={"regions": "regions: 4", "records": "people"}))
    assert {"regions: 4", "people", "schools"} <= set(shown)
    assert not {"regions", "records"} & set(shown)


def test_parts_of_crossed_plates_have_one_name():
    crossed = relations(
        {"row": (NORMAL, ()), "column": (NORMAL, ()), "y": (NORMAL, ("row", "column"))},
        {"rows": ["row", "y"], "columns": ["y"], "columns__CLONE": ["column"]},
    )
    assert texts(plate_figure(crossed, labels={"columns": "columns: 5"})).count("columns: 5") == 2


def test_dollar_signs_and_long_names_are_shown_as_they_are():
    name = "a$b$" + "very_long_name" * 3
    figure = plate_figure(relations({name: (NORMAL, ()), "y": (NORMAL, (name,))}), "m$o$del")
    figure.canvas.draw()
    assert any(text.startswith("a$b$very") and "…" in text for text in texts(figure))
    assert not outside(figure, figure.axes[0].texts)


def test_the_diagram_is_told_in_words():
    expected = (
        "weights ~ Normal; intercept ~ Normal; "
        "y ~ Bernoulli, given weights and intercept, observed, in the plate records: all."
    )
    labels = {"records": "records: all"}
    assert plate_words(REGRESSION, labels=labels) == expected
    assert plate_figure(REGRESSION, labels=labels).get_label() == expected


def test_a_notebook_shows_the_figure():
    picture, size = plate_figure(REGRESSION)._repr_png_()
    assert picture.startswith(b"\x89PNG")
    assert size["width"] == pytest.approx(4.2 * 120, abs=2)


def test_a_model_without_sites_is_an_error():
    with pytest.raises(ArgumentError, match=r"^relations=.*no site"):
        plate_figure(relations({}, observed=()))
