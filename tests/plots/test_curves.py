"""Training curves."""

import dataclasses
import io

import numpy as np
import pytest
from PIL import Image

from workbench.plots import TrainingCurves, png, training_figure
from workbench.plots.curves import two_runs_figure
from workbench.results import HistoryPoint

HISTORY = [HistoryPoint(step, {"elbo": -1 / (1 + step), "auc": 0.5 + step / 100}) for step in range(0, 50, 10)]


def heading(figure):
    return figure.get_suptitle()


def curve(figure, panel):
    return figure.axes[panel].lines[0].get_xydata().tolist()


def size(data):
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def test_picture_is_a_png():
    assert png(TrainingCurves(10, "public data").figure).startswith(b"\x89PNG\r\n\x1a\n")


def test_picture_keeps_its_size_while_curves_grow():
    curves = TrainingCurves(50, "public data")
    empty = size(png(curves.figure))
    curves.draw(HISTORY, "epsilon 1")
    assert size(png(curves.figure)) == empty
    assert empty[0] > empty[1] > 300


def test_panels_show_elbo_and_auc_over_steps():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY)
    assert curve(curves.figure, 0) == [[point.step, point.metrics["elbo"]] for point in HISTORY]
    assert curve(curves.figure, 1) == [[point.step, point.metrics["auc"]] for point in HISTORY]
    assert ["ELBO" in axes.get_title("left") for axes in curves.figure.axes] == [True, False]
    assert ["AUC" in axes.get_title("left") for axes in curves.figure.axes] == [False, True]


def test_drawing_again_moves_the_same_lines():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY[:2])
    before = [line for axes in curves.figure.axes for line in axes.lines]
    curves.draw(HISTORY)
    after = [line for axes in curves.figure.axes for line in axes.lines]
    assert len(after) == 4
    assert all(old is new for old, new in zip(before, after, strict=True))
    assert len(curve(curves.figure, 0)) == 5


def test_a_larger_dot_marks_the_newest_point():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY)
    tip = curves.figure.axes[1].lines[1].get_xydata().tolist()
    assert tip == [[40, HISTORY[-1].metrics["auc"]]]


def test_more_history_changes_the_picture():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY[:2])
    early = png(curves.figure)
    curves.draw(HISTORY)
    assert png(curves.figure) != early


def test_the_line_without_privacy_is_labelled_and_inside_of_its_panel():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY)
    curves.compare({"elbo": 3.5, "auc": 0.999, "log_likelihood": -1.0})
    curves.draw(HISTORY)
    for axes, value in zip(curves.figure.axes, (3.5, 0.999), strict=True):
        (line,) = axes.lines[2:]
        assert set(line.get_ydata()) == {value}
        low, high = axes.get_ylim()
        assert low < value < high
        (note,) = [text.get_text() for text in axes.texts]
        assert note == f"without privacy {value:.4g} (outside the guarantee)"


def test_a_line_that_is_not_finite_is_left_out():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY)
    curves.compare({"elbo": float("nan"), "auc": 0.9})
    assert [len(axes.lines) for axes in curves.figure.axes] == [2, 3]


def test_a_frame_shows_what_the_picture_shows():
    curves = TrainingCurves(50, "public data")
    curves.draw(HISTORY)
    shown = [np.asarray(Image.open(io.BytesIO(data))) for data in (curves.frame(), png(curves.figure))]
    np.testing.assert_array_equal(*shown)


def test_labels_stay_inside_of_the_picture():
    for scale in (1e-4, 1.0, 1e5):
        curves = TrainingCurves(50_000, "outside the guarantee")
        curves.draw(
            [HistoryPoint(step, {"elbo": -scale * (2 + step), "auc": 0.5 + step / 1e6}) for step in range(0, 50_000, 5000)]
        )
        curves.figure.draw_without_rendering()
        width, height = curves.figure.bbox.size
        for axes in curves.figure.axes:
            for label in (*axes.get_yticklabels(), *axes.get_xticklabels(), axes.xaxis.label, axes.title):
                box = label.get_window_extent()
                assert min(box.x0, box.y0) >= -1, label.get_text()
                assert max(box.x1 - width, box.y1 - height) <= 1, label.get_text()


def test_empty_panels_have_no_ticks():
    assert all(len(axes.get_xticks()) == len(axes.get_yticks()) == 0 for axes in TrainingCurves(0, "none").figure.axes)


@pytest.mark.thorough
def test_two_runs_are_told_apart_by_more_than_colour(done, cancelled):
    figure = two_runs_figure({"fit 1": done, "fit 2": cancelled})
    for axes, metric in zip(figure.axes, ("elbo", "auc"), strict=True):
        assert [line.get_label() for line in axes.lines] == ["fit 1", "fit 2"]
        assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 2
        assert axes.lines[0].get_ydata()[-1] == done.history[-1].metrics[metric]
    assert "public data" in figure.get_supxlabel()


def test_runs_with_other_scores_are_compared_by_the_elbo(done):
    other = dataclasses.replace(
        done, metrics={"elbo": -1.0, "hits": 0.5}, history=(HistoryPoint(0, {"elbo": -1.0, "hits": 0.5}),),
        metrics_label="outside the guarantee",
    )  # fmt: skip
    figure = two_runs_figure({"fit 1": done, "fit 2": other})
    assert len(figure.axes) == 1
    assert "outside the guarantee" in figure.get_supxlabel()


def test_every_point_lies_inside_its_panel():
    curves = TrainingCurves(50, "public data")
    curves.draw([*HISTORY, HistoryPoint(50, {"elbo": -9.0, "auc": 0.02})])
    for axes in curves.figure.axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        points = axes.lines[0].get_xydata()
        assert all(left <= x <= right and bottom <= y <= top for x, y in points)


def test_a_bad_start_does_not_flatten_the_rest():
    late = [HistoryPoint(step, {"elbo": -0.5 + step / 1000}) for step in range(1, 40)]
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(0, {"elbo": -1e6}), *late])
    assert curves.figure.axes[0].get_ylim()[0] > -1


@pytest.mark.parametrize("label", ["public data", "outside the guarantee"])
def test_label_stands_in_the_picture(label):
    curves = TrainingCurves(50, label)
    assert heading(curves.figure) == f"curves: {label}"
    curves.draw(HISTORY, "epsilon 1")
    assert heading(curves.figure).startswith(f"curves: {label}")
    assert heading(curves.figure).endswith("epsilon 1")


def test_a_metric_that_is_missing_leaves_its_panel_empty():
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(0, {"elbo": -1.0})])
    assert curve(curves.figure, 0) == [[0, -1.0]]
    assert curve(curves.figure, 1) == []


@pytest.mark.parametrize("value", [float("nan"), -float("inf")])
def test_a_metric_that_is_not_finite_can_be_drawn(value):
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(0, {"elbo": value, "auc": 0.5})])
    png(curves.figure)


def test_figure_of_a_result_shows_its_whole_history(done):
    figure = training_figure(done)
    assert curve(figure, 0) == [[point.step, point.metrics["elbo"]] for point in done.history]
    assert "epsilon 1, delta 0.001" in heading(figure)
    assert "public data" in heading(figure)


def test_figure_of_a_stopped_run_says_where_it_stopped(cancelled):
    assert f"cancelled at step {cancelled.guarantee.steps_taken}" in heading(training_figure(cancelled))


def test_figure_of_a_private_run_is_empty_and_labelled(secret):
    figure = training_figure(secret[1])
    assert curve(figure, 0) == curve(figure, 1) == []
    assert "outside the guarantee" in heading(figure)


@pytest.mark.parametrize(
    ("metrics", "title"),
    [
        ({"auc": 0.7, "log_likelihood": -0.5}, "evaluation AUC"),
        ({"log_likelihood": -0.5, "reconstruction_error": 0.2}, "evaluation log-likelihood (nats per record)"),
        ({"reconstruction_error": 0.2}, "reconstruction error (RMSE per pixel)"),
        ({"squared_error": 0.2}, "evaluation squared error"),
        ({}, ""),
    ],
)
def test_the_second_panel_shows_the_score_that_the_model_has(metrics, title):
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(3, {"elbo": -1.0, **metrics})])
    assert curves.figure.axes[1].get_title("left") == title
    assert curve(curves.figure, 1) == [[3, value] for value in list(metrics.values())[:1]]


def test_the_score_is_settled_by_the_first_point_that_has_one():
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(0, {"elbo": -1.0})])
    curves.draw([HistoryPoint(0, {"elbo": -1.0}), HistoryPoint(1, {"log_likelihood": -0.5})])
    curves.draw([HistoryPoint(1, {"log_likelihood": -0.5}), HistoryPoint(2, {"log_likelihood": -0.4, "auc": 0.9})])
    assert "log-likelihood" in curves.figure.axes[1].get_title("left")
    assert curve(curves.figure, 1) == [[1, -0.5], [2, -0.4]]


def test_a_bad_start_of_an_error_does_not_flatten_the_rest():
    late = [HistoryPoint(step, {"reconstruction_error": 0.3 - step / 1000}) for step in range(1, 40)]
    curves = TrainingCurves(50, "public data")
    curves.draw([HistoryPoint(0, {"reconstruction_error": 1e6}), *late])
    bottom, top = curves.figure.axes[1].get_ylim()
    assert 0.2 < bottom < top < 0.4
