"""Curves as HTML."""

import functools
import html
import itertools
import re

import pytest

from workbench._numbers import shown
from workbench.widgets.kit.chart import Levels, Panel, chart

up = functools.partial(shown, up=True)


def corners(made, kind):
    (points,) = re.findall(rf'<polyline class="{kind}" points="([^"]*)"', made)
    return [tuple(map(float, point.split(","))) for point in points.split()]


def test_a_line_goes_through_its_points():
    made = chart(
        [
            Panel(
                "AUC", points=((0, 0.5), (50, 0.75), (100, 1.0)), limits=(0.5, 1.0), colour="second"
            )
        ],
        100,
        "x",
    )
    assert corners(made, "second") == [(0, 100), (500, 50), (1000, 0)]


def test_stairs_hold_a_value_until_the_next_point():
    made = chart(
        [
            Panel(
                "epsilon",
                points=((0, 0), (50, 0.5), (100, 1)),
                limits=(0, 1),
                colour="third",
                stairs=True,
            )
        ],
        100,
        "x",
    )
    assert corners(made, "third") == [
        (0, 100),
        (500, 100),
        (500, 50),
        (1000, 50),
        (1000, 0),
        (1000, 0),
    ]


def test_each_evaluation_answers_the_mouse_with_all_values_there():
    panels = [
        Panel("ELBO", points=((0, -1.0), (40, -0.5), (100, -0.25)), limits=(-1, 0)),
        Panel(
            "epsilon",
            points=((0, 0), (30, 0.4), (90, 0.91234)),
            limits=(0, 1),
            stairs=True,
            words=up,
        ),
    ]
    strips = re.findall(
        r'<div class="strip( late)?" style="left:([\d.]+)%;width:([\d.]+)%[^>]*><span>([^<]*)',
        chart(panels, 100, "x"),
    )
    assert [text.split("\n") for *_, text in strips] == [
        ["step 0", "ELBO \N{MINUS SIGN}1.00", "epsilon 0"],
        ["step 40", "ELBO \N{MINUS SIGN}0.500", "epsilon 0.400"],
        ["step 100", "ELBO \N{MINUS SIGN}0.250", "epsilon 0.913"],
    ]
    ends = [float(left) + float(width) for _, left, width, _ in strips]
    assert [float(left) for _, left, *_ in strips] == [0, *ends[:-1]]  # no gap
    assert ends[-1] == 100


def test_values_that_are_not_finite_leave_no_trace():
    made = chart(
        [
            Panel(
                "ELBO", points=((0, float("nan")), (50, -1.0), (100, float("-inf"))), limits=(-1, 0)
            )
        ],
        100,
        "x",
    )
    assert corners(made, "") == [(500, 100)]
    assert "nan" not in made
    assert "inf" not in made


def test_long_runs_stay_small():
    points = tuple((step, step / 1e5) for step in range(100_000))
    made = chart([Panel("ELBO", points=points, limits=(0, 1))], 100_000, "x")
    assert len(made) < 60_000
    assert corners(made, "")[0] == (0, 100)
    assert corners(made, "")[-1][0] == pytest.approx(1000, rel=1e-3)


def test_text_is_escaped():
    hostile = '<script>alert("x")</script>'
    made = chart(
        [
            Panel(
                hostile,
                hostile,
                ((0, 1.0),),
                (0, 1),
                level=(0.5, hostile),
                names={hostile: ((0, 1.0),)},
            )
        ],
        10,
        hostile,
        empty=hostile,
        marks={5: hostile},
    )
    assert "<script" not in made
    assert 'aria-label="&lt;script&gt;' in made
    assert html.unescape(made).count("<script>") >= 6


def test_an_empty_chart_says_why_and_has_no_axis():
    made = chart([Panel("ELBO"), Panel("epsilon")], 0, "nothing yet", empty="Curves appear here.")
    assert made.count("Curves appear here.") == 1
    assert "steps" not in made
    assert "polyline" not in made


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((-9, -0.9, -0.5, -0.2), ' style="left:50%">↓ \N{MINUS SIGN}9.00'),
        ((9, -0.1, -0.4, -0.9), ' above" style="left:50%">↑ 9.00'),
        ((-0.9, -0.5, -0.5, -0.2), ""),  # begins within
        ((-9, -8, -7, -6), ""),  # never comes in
    ],
)
def test_a_curve_that_comes_in_from_outside_says_where_it_began(values, said):
    points = tuple((25 * place, value) for place, value in enumerate(values))
    made = chart([Panel("ELBO", points=points, limits=(-1, 0))], 100, "x")
    assert re.findall(r'class="begins"?([^<]*)', made) == ([said] if said else [])


def test_lines_without_keys_have_their_names_where_there_is_room():
    lines = {
        "age": ((0, 0.5), (100, 0.9)),
        "dose": ((0, 0.5), (100, 0.1)),
        "sex": ((0, 0.5), (100, 0.12)),
        "none": (),
    }
    made = chart([Panel("posterior forming", limits=(0, 1), names=lines, height=200)], 100, "x")
    assert re.findall(r'class="name" style="top:clamp\(13px,(\d+)%[^>]*>([^<]*)', made) == [
        ("10", "age")
    ]


def test_levels_are_in_their_places_and_their_lines_have_keys():
    lines = {"a": ((0.5, 0.0), (1.5, 0.5), (2.5, 1.0)), "b": ((1.5, 0.25),), "c": (), "d": ()}
    panel = Panel(
        "AUC", limits=(0, 1), names=lines, has_keys=True, dots={"b": ((0.5, 0.25), (2.5, 0.75))}
    )
    made = chart([panel], 0, "x", levels=Levels("epsilon", {0.5: "0.5", 1.5: "1", 2.5: "8"}))
    assert corners(made, "") == [(166.7, 100), (500, 50), (833.3, 0)]
    assert re.findall(r'class="dots ([^"]*)" d="([^"]*)"', made) == [
        ("second dashes", "M166.7,75h0M833.3,25h0")
    ]
    (keys,) = re.findall(r'<div class="keys">(.*?)</div>', made)
    assert re.findall(r'<i class="([^"]*)"></i>(.)', keys) == [
        ("", "a"),
        ("second dashes", "b"),
        ("third dotted", "c"),
        ("faint", "d"),
    ]
    strips = re.findall(r'<div class="strip[^>]*><span>([^<]*)', made)
    assert strips == [
        "epsilon 0.5\nAUC a 0",
        "epsilon 1\nAUC a 0.500\nAUC b 0.250",
        "epsilon 8\nAUC a 1.00",
    ]
    assert re.findall(r"<span style=\"left:([\d.]+)%\">([\d.]+)</span>", made) == [
        ("16.67", "0.5"),
        ("50", "1"),
        ("83.33", "8"),
    ]


def test_one_line_needs_no_key_and_many_levels_few_labels():
    panel = Panel(
        "AUC", limits=(0, 1), names={"": tuple((n + 0.5, 0.5) for n in range(40))}, has_keys=True
    )
    made = chart([panel], 0, "x", levels=Levels("N", {n + 0.5: str(n) for n in range(40)}))
    assert "keys" not in made
    shares = [float(share) for share in re.findall(r"<span style=\"left:([\d.]+)%", made)]
    assert min(after - before for before, after in itertools.pairwise(shares)) >= 9
    assert len(shares) == 10
    assert shares[-1] == 98.75  # the last one is there


@pytest.mark.parametrize(
    ("steps", "texts"),
    [
        (1, ["0", "1"]),
        (2, ["0", "1", "2"]),
        (10, ["0", "5", "10"]),
        (800, ["0", "200", "400", "600", "800"]),
    ],
)
def test_steps_on_the_axis_are_whole_and_each_stands_there_once(steps, texts):
    made = chart([Panel("AUC", points=((0, 0.5), (steps, 1.0)), limits=(0.5, 1.0))], steps, "x")
    axis = made.partition('<div class="x">')[2].partition("</div>")[0]
    assert re.findall(r"<span[^>]*>([^<]*)</span>", axis) == texts
