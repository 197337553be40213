"""The display of a running fit."""

import dataclasses
import html
import types

import pytest

from workbench.inference.training import Snapshot
from workbench.results import HistoryPoint
from workbench.widgets.workbench.live_panel import LivePanel, metric_texts
from workbench.widgets.workbench.session import Progress

PREPARED = types.SimpleNamespace(
    privacy=types.SimpleNamespace(iterations=200, epsilon=2.0, delta=1e-3),
    data=types.SimpleNamespace(evaluation_label="public data"),
)


class Session:
    """The parts of a session that the panel reads."""

    def __init__(self, result=None, **parts):
        self.prepared, self.result, self.baseline, self.stopping = PREPARED, result, None, False
        self.problem = self.details = ""
        self.history = () if result is None else result.history
        vars(self).update(parts)

    def progress(self):
        return Progress("ended", None, self.history, None, None)


def moment(step, stage="fitting", history=(), **parts):
    metrics = history[-1].metrics if history else {}
    snapshot = Snapshot("running", step, {}, step / 100, metrics, step, step / 10, compile_seconds=2.25)
    return Progress(stage, snapshot, history, parts.get("left"), parts.get("speed"), parts.get("lasted", 3.0))


HISTORY = tuple(HistoryPoint(step, {"elbo": -1 / (1 + step), "auc": 0.5 + step / 400}) for step in (0, 50, 100))


def test_a_running_fit_tells_steps_speed_time_left_and_privacy_spent():
    panel = LivePanel()
    panel.begin(resumed=False)
    panel.show(Session(), moment(100, history=HISTORY, left=7.0, speed=1234.4))
    shown = html.unescape(panel.status.value)
    for fact in ("Fitting...", "step 100 of 200", "1,234 steps/s", "7 s left", "compiled in 2.2 s", "AUC 0.7500"):
        assert fact in shown
    assert panel.progress.value == 0.5
    assert panel.spent.value == 0.5
    assert "at most 1 of 2" in panel.spent_text.value
    assert "public data" in panel.label.value


def test_time_of_compiling_is_told_as_such():
    panel = LivePanel()
    panel.show(Session(), Progress("compiling", None, (), None, None, 4.2))
    assert "Compiling..." in panel.status.value
    assert "4 s so far" in panel.status.value


def test_a_stop_is_told_until_it_has_happened():
    panel = LivePanel()
    panel.show(Session(stopping=True), moment(100))
    assert "Stopping..." in panel.status.value


def test_curves_are_drawn_once_for_each_evaluation():
    panel, session = LivePanel(), Session()
    seen = []
    panel.begin(resumed=False)
    panel.picture.observe(lambda change: seen.append(bytes(change.new)), names="value")
    for history in (HISTORY[:1], HISTORY[:2], HISTORY[:2], HISTORY):
        panel.show(session, moment(history[-1].step, history=history))
    assert len(seen) == panel.frames == 3
    assert panel.drawing_seconds > 0
    assert len({picture[16:24] for picture in seen}) == 1  # width and height


def test_the_line_without_privacy_is_drawn_when_it_is_known():
    panel, session = LivePanel(), Session()
    panel.begin(resumed=False)
    panel.show(session, moment(100, history=HISTORY))
    before = bytes(panel.picture.value)
    session.baseline = {"elbo": -0.1, "auc": 0.99}
    for _ in range(2):
        panel.show(session, moment(200, "comparing", history=HISTORY))
    assert "Fitting without privacy" in panel.status.value
    assert bytes(panel.picture.value) != before
    assert panel.frames == 2


def test_going_on_keeps_the_curves_and_a_new_fit_drops_them():
    panel, session = LivePanel(), Session()
    panel.begin(resumed=False)
    panel.show(session, moment(100, history=HISTORY))
    curves = panel._curves
    panel.begin(resumed=True)
    assert panel.progress.value == 0.5
    panel.show(session, moment(150, history=(*HISTORY, HistoryPoint(150, {"elbo": -0.1, "auc": 0.9}))))
    assert panel._curves is curves
    panel.begin(resumed=False)
    assert (panel.progress.value, panel.spent.value, panel.label.value) == (0, 0, "")
    panel.show(session, moment(0, history=HISTORY[:1]))
    assert panel._curves is not curves


@pytest.mark.parametrize(
    ("status", "words", "style"),
    [("done", "Done.", "success"), ("cancelled", "Cancelled.", "warning"), ("failed", "Failed.", "danger")],
)
def test_an_end_is_told_in_words_with_its_numbers(done, status, words, style):
    panel = LivePanel()
    panel.finish(Session(dataclasses.replace(done, status=status, message="too <b>large" if status == "failed" else "")))
    assert words in panel.status.value
    assert "300 of 300 steps" in panel.status.value
    assert f"AUC {done.metrics['auc']:.4f}" in panel.status.value
    assert panel.progress.bar_style == style
    assert ("too &lt;b&gt;large" in panel.status.value) == (status == "failed")
    assert "at most 1 of 1" in panel.spent_text.value


def test_a_stopped_fit_has_spent_less(cancelled):
    panel = LivePanel()
    panel.finish(Session(cancelled))
    assert panel.spent.value == pytest.approx(cancelled.guarantee.epsilon_taken)
    assert panel.progress.value == pytest.approx(cancelled.guarantee.steps_taken / 300)


def test_an_error_is_a_sentence_with_its_traceback_folded():
    panel = LivePanel()
    panel.finish(Session(problem="It broke (<b>).", details="Traceback <i>"))
    told, folded = panel.status.value.split("<details><summary>traceback</summary>")
    assert "Failed." in told
    assert "It broke (&lt;b&gt;)." in told
    assert "Traceback &lt;i&gt;" in folded
    assert panel.progress.bar_style == "danger"


def test_a_partial_result_is_shown_beside_the_error(cancelled):
    panel = LivePanel()
    panel.finish(Session(dataclasses.replace(cancelled, status="failed"), problem="It broke.", details="Traceback"))
    for part in ("Failed.", "It broke.", "traceback", f"{cancelled.guarantee.steps_taken:,} of 300 steps"):
        assert part in panel.status.value


def test_no_curves_are_explained(secret):
    panel = LivePanel()
    panel.finish(Session(secret[1]))
    assert "no curves: the evaluation records are private" in panel.status.value


@pytest.mark.parametrize(
    ("metrics", "texts"),
    [
        ({"elbo": -0.5, "log_likelihood": -0.25, "auc": 0.75}, ["ELBO -0.5000", "AUC 0.7500"]),
        ({"elbo": -4.0, "log_likelihood": -3.75}, ["ELBO -4.0000", "log-likelihood -3.7500"]),
        ({"elbo": -27.5, "reconstruction_error": 0.2}, ["ELBO -27.5000", "reconstruction error 0.2000"]),
        ({"elbo": -1.0, "hit_rate": 0.5}, ["ELBO -1.0000", "hit rate 0.5000"]),
        ({}, []),
    ],
)
def test_the_numbers_beside_the_curves_are_those_that_they_show(metrics, texts):
    assert metric_texts(metrics) == texts
