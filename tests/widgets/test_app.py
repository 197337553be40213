"""The workbench screen through its traits, without a browser."""

import dataclasses
import html
import threading
import time

import ipywidgets
import numpyro
import numpyro.distributions as dist
import pytest
from workbench.models import registry

import workbench as wb
from workbench import ArgumentError, fitting
from workbench.widgets import Workbench, app

PATIENCE = 180
PNG = b"\x89PNG\r\n\x1a\n"


class Output:
    """What ``display`` shows, kept for the test to look at."""

    def __init__(self):
        self.shown, self.updates = [], []

    def __call__(self, shown, **_):
        self.shown.append(shown)
        return self

    def update(self, content):
        self.updates.append(content.data)


@dataclasses.dataclass
class Run:
    """A screen after its fit, and what was seen on the way."""

    screen: Workbench
    first_picture: bytes
    buttons: list
    statuses: list
    output: Output
    labels: list


def run_to_the_end(screen, monkeypatch):
    output, labels = Output(), []
    monkeypatch.setattr(app, "display", output)
    curves = app.TrainingCurves
    monkeypatch.setattr(app, "TrainingCurves", lambda steps, label: labels.append(label) or curves(steps, label))
    screen._ipython_display_()
    run = Run(screen, bytes(screen.picture.value), [], [], output, labels)
    for name in ("fit_button", "stop_button"):
        getattr(screen, name).observe(lambda change, name=name: run.buttons.append((name, change.new)), names="disabled")
    screen.status.observe(lambda change: run.statuses.append(change.new), names="value")
    screen.fit_button.click()
    assert screen.wait(PATIENCE)
    return run


@pytest.fixture(scope="module")
def ended():
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield run_to_the_end(Workbench(epsilon=2.0, iterations=300), monkeypatch)


@pytest.fixture(scope="module")
def ended_private(private_data):
    """A fit on private evaluation records, with a delta that is too large for them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield run_to_the_end(Workbench(data=private_data, delta=0.1, iterations=20), monkeypatch)


def fits_running():
    return [thread for thread in threading.enumerate() if thread.name in ("dpvi-fit", "dpvi-presenter")]


def test_a_new_screen_starts_no_fit():
    screen = Workbench()
    assert fits_running() == []
    assert screen.result is None
    assert screen.guarantee.value == ""
    assert (screen.fit_button.disabled, screen.stop_button.disabled) == (False, True)
    assert bytes(screen.picture.value).startswith(PNG)


def test_waiting_without_a_fit_returns_at_once():
    assert Workbench().wait(0)


def test_every_control_is_described():
    screen = Workbench()
    controls = (screen.model, screen.data, screen.epsilon, screen.delta, screen.iterations, screen.evaluate_private)
    assert all(control.description for control in (*controls, screen.fit_button, screen.stop_button))
    assert all(button.tooltip for button in (screen.fit_button, screen.stop_button))


def test_menus_offer_every_model_and_data_set():
    screen = Workbench()
    assert list(screen.model.options) == wb.models.names()
    assert list(screen.data.options) == wb.data.names()


@pytest.mark.parametrize(
    ("argument", "value"),
    [("data", "brest_cancer"), ("model", "logistik"), ("epsilon", -1), ("delta", 2), ("iterations", 0), ("iterations", 2.5)],
)
def test_a_screen_cannot_begin_with_a_bad_value(argument, value):
    with pytest.raises(ArgumentError) as caught:
        Workbench(**{argument: value})
    assert caught.value.argument == argument
    assert repr(value) in str(caught.value)


def test_data_that_are_no_data_set_are_refused():
    with pytest.raises(ArgumentError, match=r"^data='list': "):
        Workbench(data=[1, 2])


def refuses_to_fit(screen):
    screen.fit_button.click()
    return fits_running() == [] and screen.result is None


@pytest.mark.parametrize(
    ("control", "value", "shown"),
    [("epsilon", -1.0, "epsilon = -1.0"), ("epsilon", 0.0, "epsilon = 0.0"), ("delta", "abc", "delta = abc"),
     ("delta", "1.5", "delta = 1.5"), ("iterations", 0, "iterations = 0")],
)  # fmt: skip
def test_a_bad_value_is_explained_beside_its_field_and_stops_the_fit(control, value, shown):
    screen = Workbench()
    getattr(screen, control).value = value
    assert f"{shown}: must be a " in screen.errors[control].value
    assert [name for name, label in screen.errors.items() if label.value] == [control]
    assert refuses_to_fit(screen)


@pytest.fixture
def gallery(monkeypatch):
    """What a test registers is forgotten afterwards."""
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))


def mean_only(x, y=None, num_records=None):
    """The rate <b>alone</b>."""
    rate = numpyro.sample("rate", dist.Beta(1.0, 1.0))
    with numpyro.plate("records", num_records, subsample_size=len(x)):
        numpyro.sample("y", dist.Bernoulli(rate), obs=y)


def test_a_model_registered_before_is_offered_and_can_be_fitted(gallery):
    before = Workbench()
    wb.models.register("mean_only", mean_only)
    screen = Workbench(iterations=20)
    assert "mean_only" not in before.model.options
    assert "mean_only" in screen.model.options
    screen.model.value = "mean_only"
    assert "The rate &lt;b&gt;alone&lt;/b&gt;." in screen.about.value
    assert "wb.fit('mean_only', 'breast_cancer', " in html.unescape(screen.code.value)
    screen.fit()
    assert screen.wait(PATIENCE)
    assert (screen.result.state, screen.result.model) == ("done", "mean_only")
    assert list(screen.result.metrics) == ["elbo", "log_likelihood"]
    assert "ELBO" in screen.status.value
    assert "rate" in screen.posterior.value


def test_a_model_that_cannot_be_made_is_explained_beside_its_menu(gallery):
    wb.models.register("broken", lambda: 1 / 0)
    screen = Workbench()
    screen.model.value = "broken"
    assert "model = broken: (registered here) cannot be made: ZeroDivisionError" in html.unescape(
        screen.errors["model"].value
    )
    assert wb.data.describe("breast_cancer") in html.unescape(screen.about.value)
    assert refuses_to_fit(screen)
    screen.model.value = "logistic"
    assert screen.errors["model"].value == ""


def test_an_explanation_goes_when_the_value_is_mended():
    screen = Workbench()
    screen.epsilon.value = -1.0
    screen.epsilon.value = 3.0
    assert screen.errors["epsilon"].value == ""


def test_hostile_text_in_a_field_is_escaped():
    screen = Workbench()
    screen.delta.value = "<script>"
    assert "<script>" not in screen.errors["delta"].value
    assert "&lt;script&gt;" in screen.errors["delta"].value


def test_an_empty_delta_means_the_default():
    screen = Workbench(delta=1e-5)
    assert screen.settings().delta == 1e-5
    screen.delta.value = " "
    assert screen.settings().delta is None


def test_a_delta_given_to_the_screen_is_not_raised():
    delta = 1 / 569.0000001
    assert Workbench(delta=delta).settings().delta <= delta


def test_code_follows_the_controls():
    screen = Workbench()
    screen.epsilon.value, screen.delta.value, screen.iterations.value = 0.5, "1e-4", 123
    code = html.unescape(screen.code.value)
    assert "import workbench as wb" in code
    assert "wb.fit('logistic', 'breast_cancer', epsilon=0.5, delta=0.0001, iterations=123)" in code


def test_a_fit_ends_with_its_result(ended):
    assert ended.screen.result.state == "done"
    assert ended.screen.result.guarantee.epsilon == 2.0
    assert ended.screen.result.guarantee.steps_taken == 300
    assert ended.screen.result.guarantee.secure_randomness


def test_guarantee_is_shown_in_full(ended):
    shown = html.unescape(ended.screen.guarantee.value)
    for paragraph in ended.screen.result.guarantee.statement().split("\n\n"):
        assert paragraph in shown


def test_posterior_is_shown_with_its_label(ended):
    table = ended.screen.posterior.value
    assert "covered by the guarantee" in table
    for name, row in ended.screen.result.summary_table().iterrows():
        assert html.escape(name) in table
        assert f"{row['mean']:.3f}" in table


def test_buttons_take_turns(ended):
    assert ended.buttons == [
        ("fit_button", True), ("stop_button", False), ("stop_button", True), ("fit_button", False)
    ]  # fmt: skip


def test_picture_shows_the_curves_in_the_end(ended):
    assert bytes(ended.screen.picture.value).startswith(PNG)
    assert bytes(ended.screen.picture.value) != ended.first_picture
    assert ended.labels == ["public data"]


def test_status_goes_from_preparing_to_done(ended):
    assert "Preparing..." in ended.statuses[0]
    assert "Done." in ended.statuses[-1]
    metrics = ended.screen.result.metrics
    assert f"AUC {metrics['auc']:.4f}" in ended.statuses[-1]
    assert f"ELBO {metrics['elbo']:.4f}" in ended.statuses[-1]


def test_progress_is_full_in_the_end(ended):
    assert (ended.screen.progress.value, ended.screen.progress.bar_style) == (100, "success")


def test_a_record_that_needs_no_widgets_stays_in_the_notebook(ended):
    assert isinstance(ended.output.shown[0], ipywidgets.VBox)
    assert len(ended.output.updates) == 1
    record = html.unescape(ended.output.updates[0])
    assert ended.screen.result.guarantee.headline() in record
    assert 'src="data:image/png;base64,' in record
    assert "weights[mean radius]" in record


def test_a_second_fit_replaces_the_first():
    screen = Workbench(iterations=20)
    screen.fit()
    running = screen._session
    screen.fit()
    assert screen._session is running
    assert screen.wait(PATIENCE)
    first = screen.result
    screen.epsilon.value = 4.0
    screen.fit()
    assert screen.wait(PATIENCE)
    assert (first.guarantee.epsilon, screen.result.guarantee.epsilon) == (1.0, 4.0)
    assert screen.result.guarantee.headline() in html.unescape(screen.guarantee.value)
    assert first.guarantee.headline() not in html.unescape(screen.guarantee.value)


def test_stop_ends_a_fit_with_what_it_has():
    screen = Workbench(iterations=200_000)
    screen.fit()
    deadline = time.monotonic() + PATIENCE
    while screen._session.progress().stage != "fitting":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    screen.stop_button.click()
    assert screen.wait(PATIENCE)
    guarantee = screen.result.guarantee
    assert screen.result.state == "cancelled"
    assert 0 < guarantee.steps_taken < 200_000
    assert guarantee.epsilon_taken < guarantee.epsilon == 1.0
    assert "Cancelled." in screen.status.value
    assert "The run stopped after" in screen.guarantee.value
    assert (screen.fit_button.disabled, screen.stop_button.disabled) == (False, True)


def test_two_screens_fit_at_once(private_data):
    screens = [Workbench(iterations=40, epsilon=2.0), Workbench(data=private_data, iterations=40, epsilon=3.0)]
    for screen in screens:
        screen.fit()
    assert all(screen.wait(PATIENCE) for screen in screens)
    assert [screen.result.state for screen in screens] == ["done", "done"]
    assert [screen.result.guarantee.epsilon for screen in screens] == [2.0, 3.0]
    assert [screen.result.params["weights_loc"].shape for screen in screens] == [(30,), (2,)]


def test_checkbox_for_private_curves_is_there_for_private_data_only(private_data):
    screen = Workbench(data=private_data)
    assert screen.data.value == "clinic"
    assert screen.evaluate_private.layout.display == ""
    assert not screen.evaluate_private.value
    screen.data.value = "breast_cancer"
    assert screen.evaluate_private.layout.display == "none"
    public = dataclasses.replace(private_data, evaluation_is_public=True)
    assert Workbench(data=public).evaluate_private.layout.display == "none"


def test_own_data_appear_as_a_variable_in_the_code(private_data):
    assert "wb.fit('logistic', data, " in html.unescape(Workbench(data=private_data).code.value)


def test_no_curves_of_private_records_unless_asked(ended_private):
    assert ended_private.screen.result.metrics == {}
    assert ended_private.screen.result.history == ()
    assert not any("AUC" in status or "ELBO" in status for status in ended_private.statuses)
    assert "no curves: the evaluation records are private" in ended_private.statuses[-1]


def test_a_warning_about_delta_stands_beside_the_guarantee(ended_private):
    assert "delta=0.1 is not below 1/N" in ended_private.screen.guarantee.value


def test_curves_of_private_records_are_marked_once_asked_for(private_data, monkeypatch):
    screen = Workbench(data=private_data, iterations=20)
    screen.evaluate_private.value = True
    run = run_to_the_end(screen, monkeypatch)
    assert run.labels == ["outside the guarantee"]
    assert "AUC" in run.statuses[-1]
    assert "outside the guarantee" in screen.guarantee.value
    assert "evaluate_private=True" in screen.code.value


def test_a_hidden_box_does_not_count(private_data):
    screen = Workbench(data=private_data)
    screen.evaluate_private.value = True
    screen.data.value = "breast_cancer"
    assert not screen.settings().evaluate_private


def test_a_fit_that_breaks_is_told_and_can_be_repeated(monkeypatch):
    def explode(*_, **__):
        raise RuntimeError("boom <b>")

    monkeypatch.setattr(fitting, "prepare", explode)
    screen = Workbench()
    screen.fit()
    assert screen.wait(PATIENCE)
    assert "Failed." in screen.status.value
    told, folded = screen.status.value.split("<details><summary>traceback</summary>")
    assert "RuntimeError: boom &lt;b&gt;" in told
    assert "Traceback" not in told
    assert "Traceback" in folded
    assert screen.progress.bar_style == "danger"
    assert screen.result is None
    assert (screen.fit_button.disabled, screen.stop_button.disabled) == (False, True)


def test_closing_stops_the_fit(monkeypatch, cancelled):
    class UntilStopped:
        cautions = ()

        def run(self, stop):
            while not stop():
                time.sleep(0.01)
            yield from ()

        def result(self):
            return cancelled

    monkeypatch.setattr(fitting, "prepare", lambda *_, **__: UntilStopped())
    screen = Workbench()
    screen.fit()
    screen.close()
    assert screen.wait(PATIENCE)
    assert screen.result is cancelled


@pytest.mark.parametrize(
    ("metrics", "texts"),
    [
        ({"elbo": -0.5, "log_likelihood": -0.25, "auc": 0.75}, ["ELBO -0.5000", "AUC 0.7500"]),
        ({"elbo": -4.0, "log_likelihood": -3.75}, ["ELBO -4.0000", "log-likelihood -3.7500"]),
        ({"elbo": -27.5, "reconstruction_error": 0.2}, ["ELBO -27.5000", "reconstruction error 0.2000"]),
        ({"count": 1.0}, []),
    ],
)
def test_the_numbers_beside_the_curves_are_those_that_they_show(metrics, texts):
    assert app._metric_texts(metrics) == texts
