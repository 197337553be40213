"""Figures of posterior summaries."""

import numpy as np
import pytest

from tests.plots.figures import (
    GENERATOR,
    legend,
    outside,
    overlaps,
    small_print,
    summary,
    texts,
    ticks,
)
from workbench._intervals import narrowest_interval
from workbench._numbers import MINUS
from workbench._validate import ArgumentError
from workbench.plots import answers_figure, coefficients_figure, forest_figure, pair_figure, png

DRAWS = GENERATOR.normal([3.0, -0.1, -2.0], 0.3, size=(400, 3))
LONG = [f"a long name of a feature, number {number} of all" for number in range(100)]


def intervals(axes):
    (bars,) = axes.collections
    return [segment[:, 0].tolist() for segment in bars.get_segments()]


# --- forest ---------------------------------------------------------------------------------------


def test_forest_shows_mean_and_interval_of_each_quantity_in_order():
    table = summary(5)
    (axes,) = forest_figure(table, "covered").axes
    assert ticks(axes) == list(table.index)
    assert axes.lines[0].get_xdata().tolist() == table["mean"].tolist()
    assert np.allclose(intervals(axes), table[["hdi_90%_low", "hdi_90%_high"]])
    assert axes.get_ylim() == (4.5, -0.5)  # the first on top
    assert "90 % highest-density interval" in axes.get_xlabel()
    assert texts(axes)[0] == "2.00 ± 0.30"


@pytest.mark.parametrize(
    ("stem", "words"),
    [
        ("eti_95%", "95 % equal-tailed interval"),
        ("hdi_90%", "90 % highest-density"),
        ("own", "own"),
    ],
)
def test_forest_names_the_interval_of_the_table(stem, words):
    table = summary(2).rename(
        columns={"hdi_90%_low": f"{stem}_low", "hdi_90%_high": f"{stem}_high"}
    )
    assert words in forest_figure(table, "covered").axes[0].get_xlabel()


def test_forest_grows_with_its_rows():
    heights = [forest_figure(summary(rows), "covered").get_figheight() for rows in (1, 10, 60, 100)]
    assert heights[0] < heights[1] < heights[2] == heights[3]


def test_forest_of_many_rows_shows_the_sixty_largest_and_says_so():
    figure = forest_figure(summary(100), "covered")
    assert ticks(figure.axes[0]) == [f"weights[{row}]" for row in range(60)]
    assert "60 of 100 quantities" in figure.get_suptitle()


def test_forest_of_long_names_has_no_overlaps():
    figure = forest_figure(summary(100, LONG), "covered")
    labels = [*figure.axes[0].get_yticklabels(), *figure.axes[0].texts]
    assert not overlaps(figure, labels)
    assert not outside(figure, labels)
    assert len(set(ticks(figure.axes[0]))) == 60


@pytest.mark.parametrize("label", ["covered", "public data", "outside the guarantee"])
def test_forest_says_what_it_may_be_used_for(label):
    assert small_print(forest_figure(summary(2), label)).startswith(label)


def test_forest_of_a_useless_table_is_an_error():
    with pytest.raises(ArgumentError, match=r"table=.*at least one row"):
        forest_figure(summary(3).iloc[:0], "covered")
    with pytest.raises(ArgumentError, match="has no column 'sd'"):
        forest_figure(summary(3).drop(columns="sd"), "covered")
    with pytest.raises(ArgumentError, match="one pair of interval columns"):
        forest_figure(summary(3)[["mean", "sd"]], "covered")
    with pytest.raises(ArgumentError, match="column 'mean' must be finite, but row 1 is not"):
        forest_figure(summary(3).assign(mean=[0.0, np.nan, 0.0]), "covered")
    with pytest.raises(ArgumentError, match="column 'mean' must contain numbers"):
        forest_figure(summary(3).assign(mean=["a", "b", "c"]), "covered")


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 6])
def test_pairs_have_histograms_on_the_diagonal_points_below_and_correlations_above(count):
    figure = pair_figure(
        {f"x[{place}]": GENERATOR.normal(size=50) for place in range(count)}, "covered"
    )
    panels = np.array(figure.axes).reshape(count, count)
    for row, column in np.ndindex(panels.shape):
        bars, lines, words = (
            len(panels[row, column].patches),
            len(panels[row, column].lines),
            texts(panels[row, column]),
        )
        assert (bars > 0) == (row == column)
        assert (lines == 1) == (row > column)
        assert bool(words) == (column > row)
    assert [panel.get_xlabel() for panel in panels[-1]] == [f"x[{place}]" for place in range(count)]


def test_pairs_show_the_draws_and_their_correlation():
    x = GENERATOR.normal(size=100)
    figure = pair_figure({"a": x, "b": -2 * x}, "covered")
    assert np.allclose(figure.axes[2].lines[0].get_xydata(), np.column_stack([x, -2 * x]))
    assert MINUS + "1.00" in texts(figure.axes[1])[0]


def test_pairs_thin_many_draws_and_take_constant_ones():
    figure = pair_figure({"a": GENERATOR.normal(size=5000), "b": np.zeros(5000)}, "covered")
    assert len(figure.axes[2].lines[0].get_xdata()) == 1000
    assert "unknown" in texts(figure.axes[1])[0]
    png(figure)


@pytest.mark.thorough
def test_pairs_of_six_long_names_have_no_overlaps():
    figure = pair_figure({name: GENERATOR.normal(size=50) for name in LONG[:6]}, "covered")
    labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    assert not overlaps(figure, labels)
    assert not outside(figure, labels)


def test_pairs_of_too_many_or_unequal_scalars_are_an_error():
    with pytest.raises(ArgumentError, match="must be 1 to 6 scalars, not 7"):
        pair_figure({str(place): np.ones(3) for place in range(7)}, "covered")
    with pytest.raises(ArgumentError, match="not 0"):
        pair_figure({}, "covered")
    with pytest.raises(ArgumentError, match=r"has 4 draws, but .* has 3"):
        pair_figure({"a": np.ones(3), "b": np.ones(4)}, "covered")
    with pytest.raises(ArgumentError, match="finite"):
        pair_figure({"a": [1.0, np.inf]}, "covered")


# --- coefficients ---------------------------------------------------------------------------------


def test_coefficients_are_sorted_and_markers_tell_whether_zero_is_inside():
    (axes,) = coefficients_figure(["a", "b", "c"], DRAWS, "covered").axes
    assert ticks(axes) == ["a", "c", "b"]
    zero, filled, hollow = axes.lines
    assert set(zero.get_xdata()) == {0}
    assert filled.get_ydata().tolist() == [0, 1]
    assert hollow.get_ydata().tolist() == [2]
    assert (filled.get_markerfacecolor() != "white", hollow.get_markerfacecolor()) == (
        True,
        "white",
    )
    assert legend(axes) == [
        "own interval excludes zero (2)",
        "contains zero (1)",
    ]
    assert "logits per unit of the scaled feature" in axes.get_xlabel()


def test_coefficients_of_draws_have_the_narrowest_intervals():
    (axes,) = coefficients_figure(None, DRAWS[:, :1], "covered").axes
    low, high = narrowest_interval(DRAWS[:, :1])
    assert intervals(axes) == [[low[0], high[0]]]
    inside = np.mean((DRAWS[:, 0] >= low) & (DRAWS[:, 0] <= high))
    assert 0.9 <= inside <= 0.91
    assert ticks(axes) == ["feature 1"]


def test_coefficients_can_be_a_table():
    (axes,) = coefficients_figure(None, summary(3), "covered").axes
    assert ticks(axes) == ["weights[0]", "weights[1]", "weights[2]"]
    assert ticks(coefficients_figure(["p", "q", "r"], summary(3), "covered").axes[0]) == [
        "p",
        "q",
        "r",
    ]


def test_an_end_that_is_not_zero_is_not_printed_as_zero():
    table = summary(2)
    table["hdi_90%_high"] = [2.5, -0.003]
    (axes,) = coefficients_figure(["a", "b"], table, "covered").axes
    assert legend(axes)[0] == "own interval excludes zero (2)"
    assert any(f", {MINUS}0.003]" in text for text in texts(axes))


def test_coefficients_of_groups_keep_their_order():
    (axes,) = coefficients_figure(["a", "b", "c"], DRAWS, "covered", largest_first=False).axes
    assert ticks(axes) == ["a", "b", "c"]
    figure = coefficients_figure(LONG, summary(100)[::-1], "covered", largest_first=False)
    assert "60 of 100" in figure.get_suptitle()
    assert [int(name.replace("\n", " ").split()[7]) for name in ticks(figure.axes[0])] == list(
        range(40, 100)
    )


def test_a_long_name_is_shown_in_full_in_its_lines():
    name = "mean concavity of the outline of all nuclei in the picture, in units of the radius"
    for figure in (
        coefficients_figure(["a", name, "b"], DRAWS, "covered"),
        forest_figure(summary(3, ["a", name, "b"]), "covered"),
    ):
        (axes,) = figure.axes
        shown = next(label for label in ticks(axes) if "concavity" in label)
        assert shown.replace("\n", " ") == name
        assert shown.count("\n") == 2
        labels = [*axes.get_yticklabels(), *axes.texts]
        assert not overlaps(figure, labels)
        assert not outside(figure, labels)
        assert figure.get_figheight() > forest_figure(summary(3), "covered").get_figheight()


def test_of_many_coefficients_the_sixty_largest_are_shown():
    figure = coefficients_figure(LONG, summary(100), "covered")
    assert len(ticks(figure.axes[0])) == 60
    assert "100 coefficients" in figure.get_suptitle()
    assert not overlaps(figure, [*figure.axes[0].get_yticklabels(), *figure.axes[0].texts])


def test_useless_coefficients_are_an_error():
    with pytest.raises(ArgumentError, match="has 2 features, but coefficients has 3"):
        coefficients_figure(["a", "b"], DRAWS, "covered")
    with pytest.raises(ArgumentError, match=r"coefficients=.*\[draws, features\]"):
        coefficients_figure(None, DRAWS[0], "covered")
    with pytest.raises(ArgumentError, match="names='abc': must be a sequence"):
        coefficients_figure("abc", DRAWS, "covered")


# --- answers --------------------------------------------------------------------------------------


def test_answers_stand_beside_each_other_by_quantity():
    tables = {"twins": summary(3), "posterior": summary(3) + 1}
    (axes,) = answers_figure(tables, "public data").axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(tables)
    bars = [container.lines[0] for container in axes.containers]
    for bar, table in zip(bars, tables.values(), strict=True):
        ends = table[["hdi_90%_low", "hdi_90%_high"]].to_numpy()
        assert bar.get_xdata() == pytest.approx(ends.mean(axis=1))
    assert np.all(bars[0].get_ydata() < bars[1].get_ydata())


def test_answers_to_other_questions_are_refused():
    for tables in ({}, {"one": summary(2), "other": summary(3)}):
        with pytest.raises(ArgumentError, match=r"^answers"):
            answers_figure(tables, "covered")
