"""The workbench screen through its traits, without a browser."""

import dataclasses
import functools
import gc
import html
import re
import threading
import time
import types
import weakref

import ipywidgets
import numpyro
import numpyro.distributions as dist
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS
from tests.widget_tree import inside, seen_by_a_user, settled
from workbench import ArgumentError
from workbench._numbers import count
from workbench.fitting import fits, prepared
from workbench.models import registry
from workbench.plots.metrics import of_score
from workbench.widgets import Ledger, Workbench
from workbench.widgets.kit import base, notebook
from workbench.widgets.workbench import run_screen, suitability
from workbench.widgets.workbench.settings import Settings

pytestmark = pytest.mark.usefixtures("made_up_steps")

PATIENCE = 180
settle = functools.partial(settled, patience=PATIENCE)


@pytest.fixture
def screens():
    """Makes screens that are closed when the test ends."""
    made = []

    def make(**options):
        made.append(seen_by_a_user(Workbench(**options)))
        return made[-1]

    yield make
    for screen in made:
        screen.close()
        assert screen.wait(PATIENCE)


@pytest.fixture
def gallery(monkeypatch):
    """Forget what a test registers."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def text(screen):
    """The HTML of the screen as text."""
    return html.unescape(
        "".join(part.value for part in inside(screen.view) if isinstance(part, ipywidgets.HTML))
    )


def fits_running():
    return [
        thread for thread in threading.enumerate() if thread.name in ("dpvi-fit", "dpvi-presenter")
    ]


class Output:
    """Keeps what ``display`` shows."""

    def __init__(self):
        self.shown, self.updates = [], []

    def __call__(self, shown, **_):
        self.shown.append(shown)
        return self

    def update(self, content):
        self.updates.append(content.data)


@dataclasses.dataclass
class Run:
    """A screen after its fit, and what it showed meanwhile."""

    screen: Workbench
    before: str
    buttons: list
    statuses: list
    output: Output


def run_to_the_end(screen, monkeypatch):
    output = Output()
    monkeypatch.setattr(run_screen, "display", output)
    screen._ipython_display_()
    settle(screen)
    run = Run(screen, text(screen), [], [], output)
    for name in ("fit", "stop"):
        getattr(screen.run, name).observe(
            lambda change, name=name: run.buttons.append((name, change.new)), names="disabled"
        )
    screen.live.status.observe(
        lambda change: run.statuses.append(html.unescape(change.new)), names="value"
    )
    screen.run.fit.click()
    assert screen.wait(PATIENCE)
    return run


@pytest.fixture(scope="module", params=EITHER_STEPS)
def ended(request):
    """A fit, from the controls to the result."""
    with fakes.installed(request.param == "made up") as monkeypatch:
        run = run_to_the_end(seen_by_a_user(Workbench(epsilon=2.0, iterations=300)), monkeypatch)
        yield run
        run.screen.close()


@pytest.fixture(scope="module")
def ended_private(private_data):
    """A fit on private evaluation records, with a delta that is too large for them."""
    with fakes.installed() as monkeypatch:
        run = run_to_the_end(
            seen_by_a_user(Workbench(data=private_data, delta=0.1, iterations=20)), monkeypatch
        )
        yield run
        run.screen.close()


# ---- before a fit --------------------------------------------------------------------------------


def test_a_new_screen_starts_no_fit(screens):
    screen = screens()
    assert fits_running() == []
    assert screen.wait(0)
    assert screen.result is None
    assert screen.results == []
    assert [button.disabled for button in (screen.run.fit, screen.run.stop, screen.run.resume)] == [
        False,
        True,
        True,
    ]
    assert "Curves appear here" in screen.live.curves.value
    assert "Nothing yet" in screen.outcome.learnt.value


def test_a_part_is_sent_when_it_is_first_opened_as_it_is_then():
    screen = Workbench()
    parts = [screen.tabs._parts[title] for title in ("Model", "Data", "Settings", "Fits", "Export")]
    assert [part for part in parts if part in inside(screen.view)] == []
    assert [each for part in parts for each in inside(part) if each.comm is not None] == []
    screen.privacy.epsilon.value = "3.21"  # seen by the code, which is in a closed part
    settle(screen)
    seen_by_a_user(screen)
    assert all(
        each.comm is not None and each.layout.comm is not None for each in inside(screen.view)
    )
    assert "epsilon=3.21" in screen.outcome.code.get_state()["value"]
    assert [part for part in parts if part not in inside(screen.view)] == []
    shown = screen.tabs.view.children
    seen_by_a_user(screen)
    assert screen.tabs.view.children == shown
    screen.close()
    assert [each for part in parts for each in inside(part) if each.comm is not None] == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("data", "brest_cancer"),
        ("model", "logistik"),
        ("delta", 2),
    ],
)
def test_a_screen_cannot_begin_with_a_bad_value(argument, value):
    with pytest.raises(ArgumentError) as caught:
        Workbench(**{argument: value})
    assert caught.value.argument == argument
    assert repr(value) in str(caught.value)


def test_the_consequences_are_there_before_any_fit(ended):
    for words in (
        "What this plan means:",
        "sigma = ",
        "An attacker who wrongly accuses 1 % of outsiders",
        "300 steps",
    ):
        assert words in ended.before
    assert "The training records are private" in ended.before


def test_a_model_that_does_not_fit_the_data_is_explained_beside_the_data(screens):
    screen = screens(model="vae", iterations=20)
    settle(screen)
    assert "data: " in text(screen)
    screen.fit()
    assert screen.wait(PATIENCE)
    assert screen.result is None
    assert "Refused." in screen.live.status.value


@pytest.mark.thorough
def test_a_model_brings_data_that_it_can_fit_and_marks_what_it_cannot(screens, private_data):
    screen = screens(iterations=20)
    before = [value for _, value in screen.data.named.control.options]
    screen.model.model.value = "vae"
    assert screen._suits.wait(PATIENCE)
    assert screen.data.named.value == "digits"
    labels = [label for label, _ in screen.data.named.control.options]
    assert "breast_cancer (not for this model)" in labels
    # the page tells a choice by its place, perhaps before it has these labels
    assert [value for _, value in screen.data.named.control.options] == before
    assert "digits" in labels
    # the mark with the reasons
    assert "breast_cancer" in screen.data.named.view.children[0].children[1].value
    assert "must be images" in screen.data.named.view.children[0].children[1].value
    screen.model.model.value = "logistic"
    assert screen._suits.wait(PATIENCE)
    assert screen.data.named.value == "breast_cancer"
    own = screens(data=private_data, iterations=20)
    own.model.model.value = "vae"
    assert own._suits.wait(PATIENCE)
    assert own.data.named.value == private_data.name  # one's own data are never exchanged


@pytest.mark.thorough
def test_data_bring_a_model_that_can_fit_them_and_mark_what_cannot(screens, private_data):
    screen = screens(iterations=20)
    screen.data.named.value = "mixture"
    assert screen._suits.wait(PATIENCE)
    assert screen.model.name == "gmm"
    assert screen.data.named.value == "mixture"  # which is not exchanged in its turn
    labels = {name: label for label, name in screen.model.model.control.options}
    assert labels["vae"] == "vae (not for these data)"
    assert labels["gmm"] == "gmm"
    # the mark with the reasons
    assert "must be images" in screen.model.model.view.children[0].children[1].value
    screen.data.named.value = "hierarchical"
    assert screen._suits.wait(PATIENCE)
    assert screen.model.name == "gmm"  # which fits them too: a choice that can stay does
    own = screens(data=private_data, iterations=20, model="vae")
    assert own._suits.wait(PATIENCE)
    assert own.model.name == "vae"
    assert not any("not for these data" in label for label, _ in own.model.model.control.options)


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ("breast_cancer", "logistic"),
        ("hierarchical", "hierarchical_logistic"),
        ("mixture", "gmm"),
        ("digits", "neural_classifier"),
        ("tokens", "neural_classifier"),
    ],
)
def test_what_data_refuse_is_what_the_models_refuse(data, model):
    refused = suitability.unsuitable_models(data)
    assert suitability.first_model(refused) == model
    for name in wb.models.names():
        assert (name in refused) == (data in suitability.unsuitable_data(name))
    assert suitability.unsuitable_models("no such set") == {}


@pytest.mark.thorough
def test_words_on_a_plan_do_not_wait_for_the_plan_before(screens, monkeypatch):
    screen = settle(screens(iterations=20))
    began, goes_on = threading.Event(), threading.Event()

    def slowly(settings):
        began.set()
        assert goes_on.wait(PATIENCE)
        raise ArgumentError("epsilon", 0, "is never shown.")

    monkeypatch.setattr(screen, "_look_ahead", slowly)
    screen.privacy.epsilon.value = "2.25"
    assert began.wait(PATIENCE)
    screen.privacy.epsilon.value = "2.75"
    assert screen._words.wait(PATIENCE)
    assert "epsilon 2.75" in screen.privacy.promise.value
    monkeypatch.undo()
    goes_on.set()
    settle(screen)


@pytest.mark.thorough
def test_a_plan_is_told_before_the_model_is_read_again(screens, monkeypatch):
    screen = settle(screens(iterations=300))
    told, prepare = [], Settings.prepare

    def prepared(settings, dataset):
        told.append(screen.privacy.promise.value)
        return prepare(settings, dataset)

    monkeypatch.setattr(Settings, "prepare", prepared)
    screen.privacy.epsilon.value = "2"
    settle(screen)
    assert "epsilon 2," in told[-1]
    assert told[-1] == screen.privacy.promise.value
    screen.data.named.value = "hierarchical"  # of which nothing is known
    settle(screen)
    assert told[-1] == told[0] != screen.privacy.promise.value


def test_a_bad_value_is_explained_beside_its_field_and_stops_the_fit(screens):
    screen = screens()
    field = screen.privacy.iterations
    field.value = "<script>"
    assert "iterations = <script>: must be a whole" in html.unescape(field.error)
    assert "<script>" not in field.error
    screen.run.fit.click()
    assert fits_running() == []
    assert screen.result is None
    settle(screen)
    assert "Fix the highlighted fields to see" in text(screen)
    assert "Not ready yet." in screen.live.status.value
    field.value = "3"
    assert field.error == ""


def test_code_follows_the_controls(screens):
    screen = screens()
    screen.privacy.epsilon.value, screen.privacy.delta.value, screen.privacy.iterations.value = (
        "0.5",
        "1e-4",
        "123",
    )
    code = html.unescape(screen.outcome.code.value)
    assert "import workbench as wb" in code
    assert "wb.fit('logistic', 'breast_cancer', epsilon=0.5, delta=0.0001, iterations=123)" in code
    assert "# %%" in screen.outcome.cells.value


def mean_only(x, y=None, num_records=None, concentration=1.0):
    """The rate <b>alone</b>.

    :param concentration: of the prior.
    """
    rate = numpyro.sample("rate", dist.Beta(concentration, concentration))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(rate), obs=y)


def plain(x, y=None, scale=1.0):
    mean_only(x, y, len(x), scale)


def test_a_screen_takes_a_numpyro_function(screens, gallery):
    screen = settle(screens(model=plain, iterations=20, options={"scale": 2.0}))
    assert (screen.model.name, screen.model.options()) == ("plain", {"scale": 2})
    assert ("plain (this notebook)", "plain") in screen.model.model.control.options
    code = html.unescape(screen.outcome.code.value)
    assert "wb.models.register('plain', plain)\nmodel = wb.models.get('plain', scale=2" in code
    screen.fit()
    assert screen.wait(PATIENCE)
    assert (screen.result.status, screen.result.model) == ("done", "plain")


def test_a_model_of_a_later_cell_that_cannot_be_made_is_explained_beside_its_menu(
    screens, gallery, monkeypatch
):
    monkeypatch.setattr(run_screen, "display", Output())
    screen = screens()
    wb.models.register("broken", lambda: 1 / 0)
    screen._ipython_display_()  # which offers it
    screen.model.model.value = "broken"
    assert "ZeroDivisionError" in html.unescape(screen.model.model.error)
    screen.run.fit.click()
    assert fits_running() == []
    screen.model.model.value = "logistic"
    assert screen.model.model.error == ""


def test_every_control_is_described(screens):
    screen = screens()
    controls = [
        part
        for part in inside(screen.view)
        if hasattr(part, "description") and not isinstance(part, ipywidgets.HTML)
    ]
    assert len(controls) > 20
    assert all(control.description for control in controls)
    assert all(part.tooltip for part in controls if isinstance(part, ipywidgets.Button))


# ---- a fit ---------------------------------------------------------------------------------------


def test_a_fit_ends_with_its_result(ended):
    guarantee = ended.screen.result.guarantee
    assert ended.screen.result.status == "done"
    assert (guarantee.epsilon, guarantee.steps_taken, guarantee.secure_randomness) == (
        2.0,
        300,
        True,
    )
    assert ended.screen.results == [ended.screen.result]


def test_guarantee_and_posterior_are_shown(ended):
    shown = text(ended.screen)
    for paragraph in ended.screen.result.guarantee.statement().split("\n\n"):
        assert paragraph in shown
    assert "weights[mean radius]" in shown
    assert "covered by the guarantee" in shown


def test_the_models_own_picture_is_there(ended):
    assert ended.screen.outcome._latest.wait(PATIENCE)
    assert ended.screen.outcome.picture.value == "coefficients"
    assert "data:image/svg+xml;base64," in ended.screen.outcome.image.value


def test_buttons_take_turns(ended):
    assert ended.buttons == [("fit", True), ("stop", False), ("stop", True), ("fit", False)]


def test_status_ends_with_the_numbers(ended):
    metrics = ended.screen.result.metrics
    assert "Done." in ended.statuses[-1]
    assert "300 of 300 steps" in ended.statuses[-1]
    for name in ("auc", "elbo"):
        score = f"<b>{of_score(name, metrics[name])}</b>"
        assert score in html.unescape(ended.screen.live.curves.value)
    assert "width:100%" in ended.statuses[-1]


def test_facts_say_what_was_learnt_and_what_is_promised(ended):
    outcome = ended.screen.outcome
    score = f"AUC {of_score('auc', ended.screen.result.metrics['auc'])}: public data"
    assert score in html.unescape(outcome.learnt.value)
    assert ended.screen.result.guarantee.in_brief() in html.unescape(outcome.promised.value)
    assert "logistic on breast_cancer, epsilon 2" in ended.screen.subject.view.value
    assert (
        "Guarantee of fit 1: logistic on breast_cancer, epsilon 2"
        in ended.screen.outcome.guarantee.value
    )


def test_score_and_promise_are_shown_before_the_posterior_is_drawn(screens, monkeypatch):
    drawn = threading.Event()
    posterior = prepared.PreparedFit._posterior

    def late(fit, last):
        assert drawn.wait(PATIENCE)
        return posterior(fit, last)

    monkeypatch.setattr(prepared.PreparedFit, "_posterior", late)
    screen = settle(screens(iterations=20))
    screen.fit()
    learnt, promised = screen.outcome.learnt, screen.outcome.promised
    deadline = time.monotonic() + PATIENCE
    while not promised.value:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert screen.result is None
    assert "Drawing the posterior…" in screen.live.status.value
    assert "The posterior is being drawn." in learnt.value
    assert "AUC " in learnt.value
    assert "epsilon 1, delta" in promised.value
    assert screen.privacy.promise.value == ""  # or the promise would stand there twice
    before = promised.value
    drawn.set()
    assert screen.wait(PATIENCE)
    assert promised.value == before
    assert "is being drawn" not in learnt.value


@pytest.mark.thorough
def test_the_promise_of_the_next_plan_is_shown_once_it_differs(screens, private_data):
    screen = settle(screens(data=private_data, iterations=20))
    assert "<span>Promised</span>" in screen.privacy.promise.value
    screen.fit()
    assert screen.wait(PATIENCE)
    settle(screen)
    assert screen.privacy.promise.value == ""
    screen.privacy.epsilon.value = "0.5"
    settle(screen)
    assert re.search("Next fit:.*epsilon 0.5 per ", screen.privacy.promise.value)
    assert "<b>epsilon 1," in screen.outcome.promised.value


def test_output_that_needs_no_widgets_stays_in_the_notebook(ended):
    assert isinstance(ended.output.shown[0], ipywidgets.VBox)
    assert len(ended.output.updates) == 1
    output = html.unescape(ended.output.updates[0])
    assert ended.screen.result.guarantee.headline() in output
    assert 'src="data:image/png;base64,' in output
    assert "weights[mean radius]" in output


def test_showing_the_screen_again_shows_the_same_state(ended, shared_state, monkeypatch):
    output = Output()
    monkeypatch.setattr(run_screen, "display", output)
    # fixtures of other modules leave stopped runs of the same records, which the ledger lists
    ended.screen.ledger.refresh.click()
    before = text(settle(ended.screen))
    ended.screen._ipython_display_()
    settle(ended.screen)
    assert output.shown[0] is ended.screen.view
    assert output.shown[1].data == ended.output.updates[-1]
    assert text(ended.screen) == before


@pytest.mark.whole_fit  # what is compiled
@pytest.mark.thorough
def test_a_fit_is_compiled_while_the_user_reads(screens, private_data):
    screen = settle(screens(data=private_data, iterations=30))
    prepared = screen._ready.prepared
    assert prepared.functions.steps.compilation.done()
    screen.fit()
    assert screen.wait(PATIENCE)
    assert screen._session.prepared is prepared


def test_an_earlier_fit_is_shown_again_with_its_own_promise_and_curves(screens, private_data):
    screen = screens(data=private_data, iterations=20)
    seen = []
    for epsilon in ("1", "2"):
        screen.privacy.epsilon.value = epsilon
        settle(screen)
        screen.fit()
        assert screen.wait(PATIENCE)
        seen.append([*shown_of_a_fit(screen), screen.live.status.value])
    assert seen[0] != seen[1]
    one, two = (result.params["weights_loc"] for result in screen.results)
    assert (one != two).all()  # each draws its own noise
    screen.history.presses.view.children[0].click()
    assert [*shown_of_a_fit(screen), screen.live.status.value] == seen[0]
    assert screen.result is screen.results[1]
    screen.history.presses.view.children[1].click()
    assert [*shown_of_a_fit(screen), screen.live.status.value] == seen[1]
    screen.show_again(0)
    assert "dpvi-old" not in screen.subject.view._dom_classes
    screen.data.named.value = "breast_cancer"
    assert "dpvi-old" in screen.subject.view._dom_classes  # it is of other records
    settle(screen)


def shown_of_a_fit(screen):
    outcome = screen.outcome
    parts = (screen.live.score, screen.live.curves, outcome.promised, outcome.guarantee)
    rows = re.sub(r"dpvi-units-\d+", "", screen.subject.view.value)
    return [*(part.value for part in parts), outcome.learnt.value, rows]


def test_a_formula_that_is_missing_is_an_error_once_somebody_wants_to_fit(screens, private_data):
    screen = screens(data=private_data)
    screen.model.model.value = "formula"
    formula = screen.model.fields["formula"]
    assert "dpvi-needed" in formula.control._dom_classes
    screen.fit()
    assert "dpvi-wrong" in formula.control._dom_classes
    assert screen.result is None


@pytest.mark.thorough
def test_a_second_click_while_a_fit_runs_does_nothing(screens, private_data):
    screen = screens(data=private_data, iterations=20)
    screen.fit()
    running = screen._session
    screen.fit()
    screen.resume()
    assert screen._session is running
    assert screen.wait(PATIENCE)


def fitting_at_last(screen):
    deadline = time.monotonic() + PATIENCE
    while screen._session.progress().steps_per_second is None:
        assert time.monotonic() < deadline
        assert not screen._session.ended, screen._session.problem
        time.sleep(0.02)


@pytest.mark.thorough
def test_stop_keeps_what_there_is_and_resume_goes_on(screens, private_data):
    screen = screens(data=private_data, iterations=40_000)
    screen.fit()
    fitting_at_last(screen)
    screen.run.stop.click()
    assert screen.wait(PATIENCE)
    partial = screen.result
    assert partial.status == "cancelled"
    assert 0 < partial.guarantee.steps_taken < 40_000
    assert "Stopped." in screen.live.status.value
    at = f"{count(partial.guarantee.steps_taken)} of {count(40_000)}"
    assert screen.run.resume.tooltip == (
        f"Resume continues logistic on {private_data.name} at step {at}; costs nothing more."
    )
    assert "The run stopped after" in screen.outcome.guarantee.value
    assert [button.disabled for button in (screen.run.fit, screen.run.stop, screen.run.resume)] == [
        False,
        True,
        False,
    ]
    screen.run.resume.click()
    assert screen.wait(PATIENCE)
    whole = screen.result
    assert (whole.status, whole.guarantee.steps_taken) == ("done", 40_000)
    assert whole.guarantee.epsilon == partial.guarantee.epsilon
    assert screen.results == [whole]
    assert screen.run.resume.disabled


def settled_on(screen, words):
    deadline = time.monotonic() + PATIENCE
    while words not in screen.live.status.value:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def test_a_fit_that_is_stopped_too_early_replaces_none_and_leaves_what_was_shown(
    screens, private_data, monkeypatch
):
    screen = settle(screens(data=private_data, iterations=20))
    screen.fit()
    assert screen.wait(PATIENCE)
    first, before = screen.result, shown_of_a_fit(screen)
    may_end, compile_all = threading.Event(), prepared.PreparedFit.compile

    def compile_late(fit):
        assert may_end.wait(PATIENCE)
        compile_all(fit)

    screen.data.named.value = "breast_cancer"
    screen.privacy.epsilon.value = "2"
    settle(screen)
    monkeypatch.setattr(prepared.PreparedFit, "compile", compile_late)
    screen.fit()
    assert settled_on(screen, "Compiling")
    screen.run.stop.click()
    assert screen.wait(5)
    assert shown_of_a_fit(screen) == before
    assert "dpvi-old" in screen.subject.view._dom_classes  # it is of other records
    assert "Stopped.</b> Before the first step. Nothing was spent." in screen.live.status.value
    begun = screen._session.prepared
    tooltip = "Resume continues logistic on breast_cancer before its first step."
    assert screen.run.resume.tooltip == tooltip
    assert not screen.run.fit.disabled
    may_end.set()
    screen.run.resume.click()
    assert screen.wait(PATIENCE)
    assert screen._session.prepared is begun
    assert screen.result.status == "done"
    assert screen.results == [first, screen.result]
    assert shown_of_a_fit(screen) != before
    assert "dpvi-old" not in screen.subject.view._dom_classes
    assert screen._ends[id(screen.result)].fitted.key == screen.settings().key


def test_a_fit_is_old_while_other_records_are_still_unknown(screens, private_data):
    screen = settle(screens(data=private_data, iterations=20))
    screen.fit()
    assert screen.wait(PATIENCE)
    shown = screen.subject.view, screen.live.score
    for name in (private_data.name, "breast_cancer", private_data.name):
        screen.data.named.value = name
        is_other = name != private_data.name
        assert [("dpvi-old" in part._dom_classes) for part in shown] == [is_other] * 2
    screen.data.named.value = screen.data.named.control.options[-1][1]
    assert screen.data.is_incomplete
    parts = screen.subject.view, screen.live.score, screen.outcome.image
    assert all("dpvi-old" in part._dom_classes for part in parts)
    screen.fit()
    assert "Not ready yet.</b> Complete Data." in screen.live.status.value
    assert screen.subject.aim.value == "Fit"  # what it would predict is not known
    assert screen.tabs.open == "Data"


@pytest.mark.thorough
def test_two_screens_do_not_disturb_each_other(screens, private_data):
    pair = [
        screens(iterations=40, epsilon=2.0),
        screens(data=private_data, iterations=40, epsilon=3.0),
    ]
    for screen in pair:
        screen.fit()
    assert all(screen.wait(PATIENCE) for screen in pair)
    assert [screen.result.status for screen in pair] == ["done", "done"]
    assert [screen.result.guarantee.epsilon for screen in pair] == [2.0, 3.0]
    assert [screen.result.params["weights_loc"].shape for screen in pair] == [(30,), (2,)]


def test_a_fit_without_privacy_is_shown_as_outside_the_guarantee(screens):
    screen = screens(iterations=20)
    screen.run.baseline.value = True
    settle(screen)
    drawn = []
    screen.live.curves.observe(lambda change: drawn.append(1), names="value")
    screen.fit()
    assert screen.wait(PATIENCE)
    assert screen._session.baseline.label == "outside the guarantee"
    assert screen.result.status == "done"
    assert "auc" in screen._session.baseline
    assert not hasattr(screen.result, "baseline")


def in_cell(monkeypatch, cell, execution):
    """:param cell: "" where the front end does not name cells, and all have the same code."""
    monkeypatch.setattr(
        notebook, "running_cell", lambda: notebook.Cell(cell or "the code", bool(cell), execution)
    )


def test_a_cell_without_a_name_is_known_by_its_code(monkeypatch):
    metadata = {}
    parent = {"metadata": metadata, "content": {"code": "app"}}
    shell = types.SimpleNamespace(execution_count=3, get_parent=lambda: parent)
    monkeypatch.setattr(notebook, "get_ipython", lambda: shell)
    assert notebook.running_cell() == notebook.Cell("app", False, 3)
    metadata["cellId"] = "a"
    assert notebook.running_cell() == notebook.Cell("a", True, 3)


def test_where_cells_have_no_names_a_screen_is_replaced_when_no_page_shows_it(monkeypatch):
    monkeypatch.setattr(base, "display", Output())
    first, second, third = Ledger(), Ledger(), Ledger()  # as any screen
    in_cell(monkeypatch, "", 1)
    first._ipython_display_()
    first.view._view_count = 1  # as a page says
    in_cell(monkeypatch, "", 2)
    second._ipython_display_()  # of another cell with the same code, or of the same one
    assert not first._closed
    first.view._view_count = 0
    assert first._closed
    in_cell(monkeypatch, "", 3)
    third._ipython_display_()
    assert second._closed  # which no page has shown
    assert not third._closed
    third.close()


def test_a_run_with_nothing_new_to_show_still_tells_that_the_kernel_is_at_work(
    screens, private_data, monkeypatch
):
    drawn, told = threading.Event(), []
    result = prepared.PreparedFit.result
    monkeypatch.setattr(
        prepared.PreparedFit, "result", lambda fit: (drawn.wait(PATIENCE), result(fit))[1]
    )
    monkeypatch.setattr(run_screen, "_ACTIVE_SECONDS", 0.0)
    monkeypatch.setattr("workbench.widgets.workbench.screen.FRAME_SECONDS", 0.05)
    screen = settle(screens(data=private_data, iterations=20))
    monkeypatch.setattr(
        screen.run.stop, "_send", lambda message, buffers=None: told.append(message["method"])
    )
    screen.fit()
    assert screen._session.steps_ended.wait(PATIENCE)
    time.sleep(0.2)
    before = len(told)
    time.sleep(0.3)
    assert len(told) - before >= 2
    drawn.set()
    assert screen.wait(PATIENCE)


@pytest.mark.thorough
def test_a_cell_that_runs_again_keeps_its_run_and_its_results(screens, private_data, monkeypatch):
    monkeypatch.setattr(run_screen, "display", Output())
    first = screens(data=private_data, iterations=40_000)
    in_cell(monkeypatch, "a", 1)
    first._ipython_display_()
    first.fit()
    fitting_at_last(first)
    session = first._session
    second = screens(data=private_data, iterations=40_000)
    in_cell(monkeypatch, "a", 2)
    second._ipython_display_()
    assert first._closed
    assert second._session is session
    assert not session.stopping
    assert not second.run.stop.disabled
    second.run.stop.click()
    assert second.wait(PATIENCE)
    assert second.result.status == "cancelled"
    assert second.results == [second.result]
    third = screens(data=private_data, iterations=20)
    in_cell(monkeypatch, "a", 3)
    third._ipython_display_()
    assert second._closed
    assert third.results == [second.result]


@pytest.mark.thorough
def test_screens_of_one_execution_and_of_other_cells_stay(screens, monkeypatch):
    monkeypatch.setattr(run_screen, "display", Output())
    pair = screens(), screens()
    in_cell(monkeypatch, "a", 1)
    for screen in (*pair, pair[0]):
        screen._ipython_display_()
    in_cell(monkeypatch, "b", 2)
    pair[0]._ipython_display_()
    in_cell(monkeypatch, "b", 3)
    pair[0]._ipython_display_()
    in_cell(monkeypatch, "", 4)  # whose code no cell above has
    screens()._ipython_display_()
    assert not any(screen._closed for screen in pair)
    after = screens(), screens()
    in_cell(monkeypatch, "a", 5)
    for screen in after:
        screen._ipython_display_()
    assert all(screen._closed for screen in pair)
    assert not any(screen._closed for screen in after)


# ---- what may be shown ---------------------------------------------------------------------------


def test_scores_of_private_records_are_covered_once_asked_for(screens, private_data, monkeypatch):
    screen = screens(data=private_data, iterations=20)
    assert screen.run.covered_scores.visible
    screen.run.covered_scores.value = True
    run_to_the_end(screen, monkeypatch)
    result = screen.result
    low, high = result.metric_intervals["auc"]
    assert low < high
    assert re.search(r"AUC [\d.]+ \([\d.]+ to [\d.]+\): covered", screen.outcome.learnt.value)
    assert result.history == ()
    assert "wb.Privacy(covered_scores=True)" in screen.outcome.code.value
    screen.data.named.value = "breast_cancer"
    assert not screen.run.covered_scores.visible
    assert not screen.settings().covered_scores


def test_no_curves_of_private_records_unless_asked(ended_private):
    assert ended_private.screen.result.metrics == {}
    assert ended_private.screen.result.history == ()
    live = ended_private.screen.live
    for part in (live.status, live.score, live.curves, ended_private.screen.outcome.learnt):
        assert not re.search("AUC|ELBO", part.value)
    assert "No score: no public evaluation records" in (ended_private.screen.outcome.learnt.value)


@pytest.mark.whole_fit  # what real steps leave behind
def test_no_private_value_is_on_the_screen(screens, secret, planted, private_data):
    screen = settle(screens(data=private_data, iterations=20))
    screen.fit()
    assert screen.wait(PATIENCE)
    states = repr([part.get_state() for part in inside(screen.view)])
    assert all(str(value) not in states for value in planted)
    assert str(private_data.num_train) in states  # declared: it is N


def test_a_warning_about_delta_stands_beside_the_guarantee(ended_private):
    assert "delta=0.1 is not below 1/N" in ended_private.screen.outcome.guarantee.value
    assert "delta=0.1 is not below 1/N" in ended_private.before


def test_curves_of_private_records_are_marked_once_asked_for(screens, private_data, monkeypatch):
    screen = screens(data=private_data, iterations=20)
    screen.run.evaluate_private.value = True
    run_to_the_end(screen, monkeypatch)
    assert "⚠ outside the guarantee" in screen.live.curves.value
    assert "⚠ outside the guarantee" in screen.live.score.value
    assert "AUC" in screen.outcome.learnt.value
    assert "outside the guarantee" in screen.outcome.guarantee.value
    assert "evaluate_private=True" in screen.outcome.code.value


def test_what_was_ticked_for_one_data_set_does_not_hold_for_another(screens, private_data):
    screen = screens(data=private_data)
    assert screen.run.evaluate_private.visible
    assert not screen.run.evaluate_private.value
    screen.run.evaluate_private.value = True
    assert screen.settings().evaluate_private
    screen.data.named.value = "breast_cancer"
    assert not screen.run.evaluate_private.visible
    assert not screen.settings().evaluate_private  # a hidden box does not count
    screen.data.named.value = private_data.name
    assert not screen.run.evaluate_private.value
    assert not screen.settings().evaluate_private


@pytest.mark.thorough
def test_a_fit_without_curves_shows_none_of_an_earlier_one(screens, private_data, monkeypatch):
    output = Output()
    monkeypatch.setattr(run_screen, "display", output)
    screen = screens(data=private_data, iterations=20)
    empty = screen.live.curves.value
    screen._ipython_display_()
    screen.run.evaluate_private.value = True
    screen.fit()
    assert screen.wait(PATIENCE)
    assert "AUC" in screen.live.curves.value != empty
    assert "<img" in output.updates[-1]
    screen.run.evaluate_private.value = False
    screen.fit()
    assert screen.wait(PATIENCE)
    assert "AUC" not in screen.live.curves.value
    assert "<img" not in output.updates[-1]
    assert "outside the guarantee" in screen.history.table.value


# ---- what goes wrong, and the end ----------------------------------------------------------------


@pytest.mark.thorough
def test_a_fit_that_breaks_is_told_and_can_be_repeated(screens, monkeypatch):
    def explode(*_, **__):
        raise RuntimeError("boom <b>")

    screen = screens(iterations=20)
    settle(screen)
    prepare = fits.prepare
    monkeypatch.setattr(fits, "prepare", explode)
    screen.privacy.epsilon.value = "2"
    settle(screen)
    screen.fit()
    assert screen.wait(PATIENCE)
    told, folded = screen.live.status.value.split("<details><summary>traceback</summary>")
    assert "Failed." in told
    assert "RuntimeError: boom &lt;b&gt;" in told
    assert "Traceback" not in told
    assert "Traceback" in folded
    assert screen.result is None
    assert (screen.run.fit.disabled, screen.run.stop.disabled) == (False, True)
    monkeypatch.setattr(fits, "prepare", prepare)
    settle(screen)
    assert "Failed." in screen.live.status.value
    screen.privacy.epsilon.value = "3"  # the error does not outlive its cause
    settle(screen)
    assert "Ready." in screen.live.status.value
    screen.fit()
    assert screen.wait(PATIENCE)
    assert screen.result.status == "done"


@pytest.mark.thorough
def test_a_result_that_cannot_be_shown_does_not_lock_the_screen(screens, private_data, monkeypatch):
    screen = settle(screens(data=private_data, iterations=20))

    def explode(*_, **__):
        raise RuntimeError("boom <b>")

    monkeypatch.setattr(screen.history, "keep", explode)
    screen.fit()
    assert screen.wait(PATIENCE)
    assert "cannot be shown" in screen.live.status.value
    assert "boom &lt;b&gt;" in screen.live.status.value
    assert (screen.run.fit.disabled, screen.run.stop.disabled) == (False, True)
    assert screen.result.status == "done"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "score", [lambda target, predictions: 1 / 0, lambda target, predictions: {"f1": None}]
)
def test_a_score_that_fails_loses_nothing(screens, gallery, score):
    model = dataclasses.replace(wb.models.get("logistic"), score=score)
    wb.models.register("badly_scored", model)
    screen = screens(model="badly_scored", iterations=20)
    screen.fit()
    assert screen.wait(PATIENCE)
    assert screen.result.status == "done"
    assert "Done." in screen.live.status.value


@pytest.mark.thorough
@pytest.mark.whole_fit  # what compiled steps hold
def test_closing_stops_the_fit_and_frees_what_it_held(private_data, monkeypatch):
    given_back = []
    monkeypatch.setattr(run_screen, "give_back", lambda: given_back.append(1))
    before, threads = set(ipywidgets.widgets.widget._instances), set(threading.enumerate())
    screen = settle(seen_by_a_user(Workbench(data=private_data, iterations=50_000_000)))
    screen.fit()
    fitting_at_last(screen)
    prepared = weakref.ref(screen._session.prepared)
    names = {thread.name for thread in set(threading.enumerate()) - threads}
    assert {"dpvi-outlook", "dpvi-ahead"} <= names
    assert given_back == []
    screen.close()
    assert screen.wait(PATIENCE)
    assert given_back == [1]
    assert screen.result.status == "cancelled"
    screen.fit()
    assert fits_running() == []
    assert screen._outlooks.wait(PATIENCE)
    assert screen._compilations.wait(PATIENCE)
    assert set(ipywidgets.widgets.widget._instances) - before == set()
    for _ in range(50):  # threads that end hold it for a moment
        gc.collect()
        left = [thread.name for thread in set(threading.enumerate()) - threads]
        if prepared() is None and not any(name.startswith("dpvi-") for name in left):
            return
        time.sleep(0.1)
    raise AssertionError(f"held by {gc.get_referrers(prepared())}, or by {left}")
