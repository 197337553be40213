"""Training curves."""

import dataclasses
import functools
from types import SimpleNamespace

import pytest
from matplotlib.text import Text

from tests.plots.figures import small_print
from workbench.plots import png, training_figure
from workbench.plots.curves import two_runs_figure
from workbench.privacy import Guarantee
from workbench.results import HistoryPoint

HISTORY = [
    HistoryPoint(step, {"elbo": -1 / (1 + step), "auc": 0.5 + step / 100})
    for step in range(0, 50, 10)
]
GUARANTEE = SimpleNamespace(epsilon=1.0, delta=1e-5, steps=50, steps_taken=50)


def run(history, label="public data", **facts):
    """A result, as far as a figure of curves looks at it."""
    settings = {"average": facts.pop("average", False)}
    guarantee = SimpleNamespace(**{**vars(GUARANTEE), **facts})
    guarantee.label = functools.partial(Guarantee.label, guarantee)
    return SimpleNamespace(
        history=history, metrics_label=label, status="done", guarantee=guarantee, settings=settings
    )


def heading(figure):
    return figure.get_suptitle()


def curve(figure, panel):
    return figure.axes[panel].lines[0].get_xydata().tolist()


def texts(figure):
    return " ".join(text.get_text() for text in figure.findobj(Text))


def test_panels_show_elbo_and_auc_over_steps():
    figure = training_figure(run(HISTORY))
    assert curve(figure, 0) == [[point.step, point.metrics["elbo"]] for point in HISTORY]
    assert curve(figure, 1) == [[point.step, point.metrics["auc"]] for point in HISTORY]
    assert ["ELBO" in axes.get_title("left") for axes in figure.axes] == [True, False]
    assert ["AUC" in axes.get_title("left") for axes in figure.axes] == [False, True]


def test_a_larger_dot_marks_the_newest_point():
    figure = training_figure(run(HISTORY))
    assert figure.axes[1].lines[1].get_xydata().tolist() == [[40, HISTORY[-1].metrics["auc"]]]


@pytest.mark.parametrize(
    ("average", "taken", "marked"),
    [(True, 50, True), (False, 50, False), (True, 26, True), (True, 25, False)],
)
def test_a_line_marks_where_averaging_begins(average, taken, marked):
    figure = training_figure(run(HISTORY, average=average, steps_taken=taken))
    for axes in figure.axes:
        assert [list(line.get_xdata()) for line in axes.lines[2:]] == ([[25, 25]] if marked else [])
    assert texts(figure).count("averaging begins") == (2 if marked else 0)


@pytest.mark.thorough
def test_a_fit_that_averages_has_its_line(done):
    assert done.settings["average"]
    assert list(training_figure(done).axes[0].lines[2].get_xdata()) == [150, 150]  # of 300 steps


def test_labels_stay_inside_of_the_picture():
    for scale in (1e-4, 1.0, 1e5):
        points = [
            HistoryPoint(step, {"elbo": -scale * (2 + step), "auc": 0.5 + step / 1e6})
            for step in range(0, 50_000, 5000)
        ]
        figure = training_figure(
            run(points, "outside the guarantee", steps=50_000, steps_taken=50_000, average=True)
        )
        figure.draw_without_rendering()
        width, height = figure.bbox.size
        for axes in figure.axes:
            for label in (
                *axes.get_yticklabels(),
                *axes.get_xticklabels(),
                axes.xaxis.label,
                axes.title,
                *axes.texts,
            ):
                box = label.get_window_extent()
                assert min(box.x0, box.y0) >= -1, label.get_text()
                assert max(box.x1 - width, box.y1 - height) <= 1, label.get_text()


@pytest.mark.thorough
def test_two_runs_are_told_apart_by_more_than_colour(done, cancelled):
    figure = two_runs_figure({"fit 1": done, "fit 2": cancelled})
    for axes, metric in zip(figure.axes, ("elbo", "auc"), strict=True):
        assert [line.get_label() for line in axes.lines] == ["fit 1", "fit 2"]
        assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 2
        assert axes.lines[0].get_ydata()[-1] == done.history[-1].metrics[metric]
    assert "public data" in figure.get_supxlabel()


@pytest.mark.thorough
def test_runs_with_other_scores_are_compared_by_the_elbo(done):
    other = dataclasses.replace(
        done,
        metrics={"elbo": -1.0, "hits": 0.5},
        history=(HistoryPoint(0, {"elbo": -1.0, "hits": 0.5}),),
        metrics_label="outside the guarantee",
    )
    figure = two_runs_figure({"fit 1": done, "fit 2": other})
    assert len(figure.axes) == 1
    assert "outside the guarantee" in figure.get_supxlabel()


def test_every_point_lies_inside_its_panel():
    figure = training_figure(run([*HISTORY, HistoryPoint(50, {"elbo": -9.0, "auc": 0.02})]))
    for axes in figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        points = axes.lines[0].get_xydata()
        assert all(left <= x <= right and bottom <= y <= top for x, y in points)


def test_a_bad_start_does_not_flatten_the_rest():
    late = [HistoryPoint(step, {"elbo": -0.5 + step / 1000}) for step in range(1, 40)]
    figure = training_figure(run([HistoryPoint(0, {"elbo": -1e6}), *late]))
    assert figure.axes[0].get_ylim()[0] > -1


def test_a_bad_start_of_an_error_does_not_flatten_the_rest():
    late = [
        HistoryPoint(step, {"reconstruction_error": 0.3 - step / 1000}) for step in range(1, 40)
    ]
    figure = training_figure(
        run([HistoryPoint(0, {"elbo": 0.0, "reconstruction_error": 1e6}), *late])
    )
    bottom, top = figure.axes[1].get_ylim()
    assert 0.2 < bottom < top < 0.4


@pytest.mark.parametrize("label", ["public data", "outside the guarantee"])
def test_label_stands_in_the_picture(label):
    figure = training_figure(run(HISTORY, label))
    assert small_print(figure).startswith(label)
    assert heading(figure) == "epsilon 1, delta 1e-05"


def test_epsilon_is_never_rounded_down():
    assert heading(training_figure(run(HISTORY, epsilon=1.2345671))).startswith("epsilon 1.23457,")


def test_a_run_without_a_score_has_one_panel():
    figure = training_figure(run([HistoryPoint(0, {"elbo": -1.0})]))
    assert len(figure.axes) == 1
    assert curve(figure, 0) == [[0, -1.0]]


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_a_metric_that_is_not_finite_can_be_drawn(value):
    png(training_figure(run([HistoryPoint(0, {"elbo": value, "auc": 0.5})])))


@pytest.mark.thorough
def test_figure_of_a_result_shows_its_whole_history(done):
    figure = training_figure(done)
    assert curve(figure, 0) == [[point.step, point.metrics["elbo"]] for point in done.history]
    assert "epsilon 1, delta 0.001" in heading(figure)
    assert "public data" in small_print(figure)


@pytest.mark.thorough
def test_figure_of_a_stopped_run_says_where_it_stopped(cancelled):
    assert f"cancelled at step {cancelled.guarantee.steps_taken}" in heading(
        training_figure(cancelled)
    )


def test_figure_of_a_private_run_is_empty(secret):
    figure = training_figure(secret[1])
    assert not any(axes.lines for axes in figure.axes)
    assert "the evaluation records were not used" in texts(figure)
    assert small_print(figure) == ""  # nothing is shown that a label could be about


@pytest.mark.parametrize(
    ("metrics", "title"),
    [
        ({"auc": 0.7, "log_likelihood": -0.5}, "evaluation AUC"),
        (
            {"log_likelihood": -0.5, "reconstruction_error": 0.2},
            "evaluation log-likelihood (nats per record)",
        ),
        ({"reconstruction_error": 0.2}, "reconstruction error (RMSE per pixel)"),
        ({"squared_error": 0.2}, "evaluation squared error"),
    ],
)
def test_the_second_panel_shows_the_score_that_the_model_has(metrics, title):
    figure = training_figure(run([HistoryPoint(3, {"elbo": -1.0, **metrics})]))
    assert figure.axes[1].get_title("left") == title
    assert curve(figure, 1) == [[3, value] for value in list(metrics.values())[:1]]


def test_the_score_is_that_of_the_first_point_that_has_one():
    points = [{"elbo": -1.0}, {"log_likelihood": -0.5}, {"log_likelihood": -0.4, "auc": 0.9}]
    figure = training_figure(
        run([HistoryPoint(step, metrics) for step, metrics in enumerate(points)])
    )
    assert "log-likelihood" in figure.axes[1].get_title("left")
    assert curve(figure, 1) == [[1, -0.5], [2, -0.4]]
