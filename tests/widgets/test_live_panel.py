"""The display of a running fit."""

import dataclasses
import html
import types

import numpy as np
import pytest

from workbench._numbers import duration, shown
from workbench.inference.training import Snapshot
from workbench.plots.metrics import in_words, of_score, score_name
from workbench.results import HistoryPoint
from workbench.widgets.workbench.live_panel import LivePanel
from workbench.widgets.workbench.session import Progress

PREPARED = types.SimpleNamespace(
    privacy=types.SimpleNamespace(iterations=200, epsilon=2.0, delta=1e-3),
    data=types.SimpleNamespace(evaluation_label="public data", is_public=False),
    spec=types.SimpleNamespace(averages=True),
    hyper=types.SimpleNamespace(dither=np.array([0.1]), moments_from=60),
    shows_metrics=True,
    plan=types.SimpleNamespace(
        epsilon_curve=lambda: [(100, 1.2), (200, 2.0)], epsilon_after=lambda steps: 0.009 * steps
    ),
)


# no sigma for 8
NEAR = ((0.5, 3.5), (1.0, 1.9), (2.0, 1.0), (4.0, 0.55))


class Session:
    """The parts of a session that the panel reads."""

    def __init__(self, result=None, **parts):
        self.prepared, self.result, self.baseline, self.stopping = PREPARED, result, None, False
        self.records = "these"
        self.problem = self.details = self.argument = ""
        self.was_too_early = self.can_resume = False
        self.history = () if result is None else result.history
        vars(self).update(parts)

    def progress(self):
        return Progress("ended", None, self.history, None, None)


def moment(step, stage="fitting", history=(), **parts):
    metrics = history[-1].metrics if history else {}
    snapshot = Snapshot(
        "running", step, {}, step / 100, metrics, step, step / 10, compile_seconds=2.25
    )
    return Progress(
        stage, snapshot, history, parts.get("left"), parts.get("speed"), parts.get("lasted", 3.0)
    )


HISTORY = tuple(
    HistoryPoint(step, {"elbo": -1 / (1 + step), "auc": 0.5 + step / 400}) for step in (0, 50, 100)
)


def test_a_running_fit_tells_steps_speed_time_left_and_privacy_spent():
    panel = LivePanel()
    panel.begin(resumed=False)
    panel.show(Session(), moment(100, history=HISTORY, left=7.0, speed=1234.4))
    shown = html.unescape(panel.status.value)
    for fact in (
        "Fitting…",
        "step 100 of 200",
        "1\u202f234 steps/s",
        "7.0 s left",
        "epsilon spent: at most 0.900 of 2",  # and not 1.00, as a faster bound has it
    ):
        assert fact in shown
    assert "width:50%" in panel.status.value
    curves = html.unescape(panel.curves.value)
    for fact in (
        "<b>AUC</b>",
        "<b>0.750</b>",
        "evaluation records: public data",
        "exploring",
        ">averaging<",
        "spent, at most",
    ):
        assert fact in curves


def test_time_of_compiling_is_told_as_such():
    panel = LivePanel()
    panel.show(Session(), Progress("compiling", None, (), None, None, 4.2))
    assert "Compiling…" in panel.status.value
    assert "4 s so far" in panel.status.value


def test_a_stop_is_told_until_it_has_happened():
    panel = LivePanel()
    panel.show(Session(stopping=True), moment(100))
    assert "Stopping…" in panel.status.value


def test_curves_are_drawn_once_for_each_evaluation():
    panel, session = LivePanel(), Session()
    seen = []
    panel.begin(resumed=False)
    panel.curves.observe(lambda change: seen.append(change.new), names="value")
    for history in (HISTORY[:1], HISTORY[:2], HISTORY[:2], HISTORY):
        panel.show(session, moment(history[-1].step, history=history))
    assert len(seen) == panel.frames == 3
    assert panel.drawing_seconds > 0


def test_the_line_without_privacy_is_drawn_when_it_is_known():
    panel, session = LivePanel(), Session()
    panel.begin(resumed=False)
    panel.show(session, moment(100, history=HISTORY))
    assert "without privacy" not in panel.curves.value
    session.baseline = {"elbo": -0.1, "auc": 0.99}
    for _ in range(2):
        panel.show(session, moment(200, "comparing", history=HISTORY))
    assert "Fitting without privacy" in panel.status.value
    assert "without privacy 0.990" in panel.curves.value
    assert "outside the guarantee" in panel.curves.value
    assert panel.frames == 2


def test_before_the_first_fit_the_planned_epsilon_is_shown_and_nothing_that_is_not_known():
    panel, empty = LivePanel(), LivePanel().curves.value
    panel.show_plan(PREPARED)
    assert "planned, at most" in panel.score.value
    assert panel.score.value.count("<polyline") == 1
    assert "noise" not in panel.price.value
    panel.show_price(NEAR)
    told = html.unescape(panel.price.value)
    assert "<b>relative interval noise</b>" in told
    assert (
        "3.50 times at epsilon 0.5, 1.90 times at epsilon 1, 1.00 times at epsilon 2, 0.550 "
        "times at epsilon 4" in told
    )
    assert '<line class="faint" x1="625"' in told  # at this plan's
    assert "evaluation records" not in told
    panel.show_price(())  # of which the price is not known
    assert "times at epsilon" not in panel.price.value
    panel.ready("Complete the fields.")
    assert panel.curves.value == empty
    panel.show(Session(), moment(100, history=HISTORY))
    shown = panel.score.value
    panel.show_plan(PREPARED)
    assert panel.score.value == shown


def test_where_no_score_may_be_shown_the_epsilon_spent_has_its_place():
    panel = LivePanel()
    private = types.SimpleNamespace(**{**vars(PREPARED), "shows_metrics": False})
    spent = dataclasses.replace(moment(100), spent=((0, 0.0), (100, 1.1)))
    panel.show_plan(private)
    panel.show(Session(prepared=private), spent)
    assert "spent, at most" in panel.score.value
    assert panel.score.value.count("dpvi-chart") == 1
    assert "AUC" not in panel.score.value


def test_what_is_spent_of_the_planned_epsilon_is_a_bar_below_the_score():
    panel = LivePanel()
    moved = dataclasses.replace(
        moment(100, history=HISTORY), spent=((0, 0.0), (100, 0.6 * PREPARED.privacy.epsilon))
    )
    panel.show(Session(), moved)
    assert "width:45%" in panel.score.value
    assert "epsilon spent</b><b>\N{LESS-THAN OR EQUAL TO} 0.900" in panel.score.value
    running = panel.score.value
    panel._draw(Session(), moved, (100, PREPARED.plan.epsilon_after(100)))
    assert panel.score.value == running  # nor does it fall at a stop


def test_the_score_alone_stands_beside_the_subject_and_all_curves_in_their_part():
    panel = LivePanel()
    panel.show(Session(), moment(100, history=HISTORY))
    assert "<b>ELBO</b>" in panel.curves.value
    assert "<b>ELBO</b>" not in panel.score.value
    assert "<b>AUC</b>" in panel.score.value
    alone = tuple(HistoryPoint(step, {"elbo": -1.0 / (1 + step)}) for step in (0, 50))
    other = LivePanel()
    other.show(Session(), moment(50, history=alone))
    assert "<b>ELBO</b>" in other.score.value


def test_only_lines_of_private_records_are_to_be_kept_to_oneself():
    for is_public in (True, False):
        data = types.SimpleNamespace(evaluation_label="public data", is_public=is_public)
        prepared = types.SimpleNamespace(**{**vars(PREPARED), "data": data})
        panel = LivePanel()
        panel.show(
            Session(prepared=prepared, baseline={"elbo": -0.1}), moment(100, history=HISTORY)
        )
        assert ("keep them to yourself" in panel.curves.value) != is_public


def test_curves_of_private_records_are_marked():
    private = types.SimpleNamespace(
        **{
            **vars(PREPARED),
            "data": types.SimpleNamespace(evaluation_label="outside the guarantee"),
        }
    )
    panel = LivePanel()
    panel.show(Session(prepared=private), moment(100, history=HISTORY))
    assert panel.curves.value.count("⚠ outside the guarantee") == 2


def test_a_resumed_fit_keeps_its_curves_and_a_new_one_drops_them():
    panel, session = LivePanel(), Session()
    panel.begin(resumed=False)
    empty = panel.curves.value
    panel.show(session, moment(100, history=HISTORY))
    panel.begin(resumed=True)
    assert panel.curves.value != empty
    assert "dpvi-old" not in panel.curves._dom_classes
    panel.begin(resumed=False)
    assert "dpvi-old" in panel.curves._dom_classes  # until there are new ones
    panel.show(Session(), moment(50, history=HISTORY[:2]))
    assert "dpvi-old" not in panel.curves._dom_classes


def lines(panel):
    return panel.curves.value.count('<polyline class="faint"')


def test_curves_of_earlier_fits_on_the_same_records_stay_as_faint_lines(done):
    panel = LivePanel()
    alone = None
    for records, more in (("these", 0), ("these", 2), ("these", 4), ("others", 0)):
        panel.begin(resumed=False)
        panel.finish(Session(done, records=records))
        alone = lines(panel) if alone is None else alone
        assert lines(panel) == alone + more


def test_the_name_of_an_earlier_curve_is_the_button_of_its_fit(done):
    panel = LivePanel(lambda number, label, tooltip: f"<button>{number}: {label}</button>")
    for number, history in ((3, HISTORY[:2]), (5, HISTORY)):  # which end apart
        panel.begin(resumed=False)
        panel.finish(Session(done, history=history), number)
    named = f"epsilon {done.guarantee.epsilon:g}"
    assert f"<button>3: {named}</button>" in panel.score.value
    assert "<button>5" not in panel.score.value  # of the fit that is shown
    assert 'role="img"' not in panel.score.value  # which would hide the button


def test_a_stop_bounds_what_was_spent_before_it(cancelled):
    spent = tuple((step, 2.0 * step / 200) for step in (0, 60, 120))
    panel = LivePanel()
    panel._draw(Session(), Progress("ended", None, HISTORY, None, None, 0.0, spent), (120, 0.9))
    assert "epsilon 0.900" in panel.curves.value  # and not the pessimistic 1.2
    assert "epsilon 1.20" not in panel.curves.value


@pytest.mark.parametrize(
    ("status", "words"), [("done", "Done."), ("cancelled", "Stopped."), ("failed", "Failed.")]
)
def test_an_end_is_told_in_words_with_its_numbers(done, status, words):
    panel = LivePanel()
    panel.finish(
        Session(
            dataclasses.replace(
                done, status=status, message="too <b>large" if status == "failed" else ""
            )
        )
    )
    assert words in panel.status.value
    assert "300 of 300 steps" in panel.status.value
    assert f"<b>{of_score('auc', done.metrics['auc'])}</b>" in panel.score.value
    assert ("too &lt;b&gt;large" in panel.status.value) == (status == "failed")
    assert (f'<i class="{status}"' in panel.status.value) == (status != "done")


def test_a_stopped_fit_has_spent_less(cancelled):
    panel = LivePanel()
    panel.finish(Session(cancelled, can_resume=True))
    assert "Resume costs nothing more" in panel.status.value
    share = cancelled.guarantee.steps_taken / 300
    assert f"width:{100 * share:.4g}%" in panel.status.value
    assert f"<b>{shown(cancelled.guarantee.epsilon_taken, up=True)}</b>" in panel.curves.value


def test_an_error_is_a_sentence_with_its_traceback_folded():
    panel = LivePanel()
    panel.finish(Session(problem="It broke (<b>).", details="Traceback <i>"))
    told, folded = panel.status.value.split("<details><summary>traceback</summary>")
    assert "Failed." in told
    assert "It broke (&lt;b&gt;)." in told
    assert "Traceback &lt;i&gt;" in folded
    # which stands beside its field
    panel.finish(Session(problem="epsilon=5: too much", argument="epsilon"))
    assert "Refused.</b> The reason stands above." in panel.status.value
    panel.finish(Session(problem="data=1: too few", argument="data"))
    assert "data=1: too few" in panel.status.value


def test_a_partial_result_is_shown_beside_the_error(cancelled):
    panel = LivePanel()
    panel.finish(
        Session(
            dataclasses.replace(cancelled, status="failed"),
            problem="It broke.",
            details="Traceback",
        )
    )
    for part in (
        "Failed.",
        "It broke.",
        "traceback",
        f"{cancelled.guarantee.steps_taken:,} of 300 steps",
    ):
        assert part in panel.status.value


@pytest.mark.parametrize(
    ("metrics", "texts"),
    [
        (
            {"elbo": -0.5, "log_likelihood": -0.25, "auc": 0.75},
            ["ELBO \N{MINUS SIGN}0.500", "AUC 0.750"],
        ),
        (
            {"elbo": -4.0, "log_likelihood": -3.75},
            ["ELBO \N{MINUS SIGN}4.00", "log-likelihood \N{MINUS SIGN}3.75"],
        ),
        (
            {"elbo": -27.5, "reconstruction_error": 0.2},
            ["ELBO \N{MINUS SIGN}27.5", "reconstruction error 0.200"],
        ),
        ({"elbo": -1.0, "hit_rate": 0.5}, ["ELBO \N{MINUS SIGN}1.00", "hit rate 0.500"]),
        ({}, []),
        ({"elbo": -1.0, "own": "good"}, ["ELBO \N{MINUS SIGN}1.00", "own good"]),
    ],
)
def test_the_numbers_beside_the_curves_are_those_that_they_show(metrics, texts):
    assert in_words(metrics, ("elbo", score_name(metrics))) == texts


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("auc", 0.99970, "> 0.999"),
        ("auc", 1.0, "1.00"),
        ("accuracy", 0.9994, "0.999"),
        ("elbo", 0.9999, "1.000"),
    ],
)
def test_a_score_below_a_perfect_one_is_not_rounded_up_to_it(name, value, text):
    assert of_score(name, value) == text


def test_curves_do_not_round_a_score_up_to_a_perfect_one(done):
    panel = LivePanel()
    panel.begin(resumed=False)
    nearly = (
        HistoryPoint(0, {"elbo": -1.0, "auc": 0.5}),
        HistoryPoint(100, {"elbo": -0.5, "auc": 0.99998}),
    )
    panel.show(Session(), moment(100, history=nearly))
    assert "> 0.999" in html.unescape(panel.curves.value)
    assert "1.000" not in panel.curves.value


def broken(*_):
    raise ValueError("planted")


@pytest.mark.parametrize("pictures", [{}, {"curves": None}, {"its own": None}])
def test_an_opened_fit_is_shown_whatever_its_pictures_do(done, monkeypatch, pictures):
    monkeypatch.setattr(type(done), "pictures", pictures)
    monkeypatch.setattr(type(done), "plot", broken)
    panel = LivePanel()
    panel.show_result(done)
    assert "Done." in panel.status.value
    assert "were not kept" in panel.curves.value


def test_a_fit_that_is_shown_again_took_as_long_as_it_did(done):
    panel = LivePanel()
    panel.begin(resumed=False)
    panel._began -= 47  # with what a compiler takes
    panel.finish(Session(done))
    told = panel.status.value
    assert "300 of 300 steps, 47 s" in told
    kept = panel.drawn
    panel.begin(resumed=False)
    panel.show_result(done, kept)
    assert panel.status.value == told
    panel.show_result(done)  # opened from a folder, which keeps the time of the steps
    assert f"300 of 300 steps in {duration(done.seconds)}" in panel.status.value


def test_a_score_that_is_not_a_number_stays_as_it_is():
    assert of_score("own", "good") == "good"


def test_an_error_of_a_fit_that_took_steps_is_no_refusal():
    panel = LivePanel()
    session = Session(problem="score: not this one", argument="score")
    session.progress = lambda: moment(100)
    panel.finish(session)
    assert "Failed." in panel.status.value
