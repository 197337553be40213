"""The sweep screen through its traits, without a browser."""

import base64
import html
import math
import re
import threading
import time
import types

import ipywidgets
import numpyro
import numpyro.distributions as dist
import pytest

import workbench as wb
from tests import fakes
from tests.conftest import EITHER_STEPS, PRIVATE_BOUNDS
from tests.widget_tree import inside
from workbench import ArgumentError, _numbers
from workbench.models import registry
from workbench.sweeps import prepared as prepared_sweeps
from workbench.widgets import Sweep
from workbench.widgets.sweep import screen as sweep_screen
from workbench.widgets.workbench import run_screen

pytestmark = pytest.mark.usefixtures("made_up_steps")

PATIENCE = 180
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def screens():
    """Makes screens that are closed when the test ends."""
    made = []

    def make(**options):
        made.append(Sweep(**{"epsilons": (1, 4), "seeds": 2, "iterations": (20,), **options}))
        return made[-1]

    yield make
    for screen in made:
        screen.close()
        assert screen.wait(PATIENCE)


def settle(screen):
    """Wait until the plan of the controls is on the screen."""
    assert screen._plans.wait(PATIENCE)
    return screen


def run(screen):
    """Press Start and wait for the end."""
    settle(screen).run.fit.click()
    assert screen.wait(PATIENCE)
    return settle(screen)


def open_chosen(screen):
    """Open the chosen fit, and wait until it is complete."""
    screen.outcome.open.click()
    assert screen._openings.wait(PATIENCE)
    for worker in (
        screen.opened._outlooks,
        screen.opened._compilations,
        screen.opened.outcome._latest,
    ):
        assert worker.wait(PATIENCE)
    return screen.opened


def text(part):
    """The HTML inside as text."""
    return html.unescape(
        "".join(each.value for each in inside(part) if isinstance(each, ipywidgets.HTML))
    )


def buttons(screen):
    """Which of Start, Stop and Resume can be pressed."""
    return [not button.disabled for button in (screen.run.fit, screen.run.stop, screen.run.resume)]


class Output:
    """Keeps what ``display`` shows."""

    def __init__(self):
        self.shown, self.updates = [], []

    def __call__(self, shown, **_):
        self.shown.append(shown)
        return self

    def update(self, content):
        self.updates.append(content.data)


@pytest.fixture(scope="module", params=EITHER_STEPS)
def ended(request):
    """A screen after a sweep of public records: (screen, shown figures, arguments
    of ``display``).
    """
    with fakes.installed(request.param == "made up") as monkeypatch:
        output = Output()
        monkeypatch.setattr(run_screen, "display", output)
        # a fast sweep would be over before the second picture
        monkeypatch.setattr(sweep_screen, "FRAME_SECONDS", 0.01)
        screen = Sweep(epsilons=(1, 4), seeds=6, iterations=(20,))
        screen._ipython_display_()
        figures = []
        screen.outcome.curves.observe(lambda change: figures.append(change.new), names="value")
        screen.ranges.baselines["scikit-learn"].value = True
        screen.ranges.fields["clips"].value, screen.ranges.fields["learning_rates"].value = (
            "0.5",
            "0.01",
        )
        run(screen)
        assert screen.outcome._drawing.wait(PATIENCE)
        yield types.SimpleNamespace(screen=screen, figures=figures, output=output)
        screen.close()


@pytest.fixture(scope="module", params=EITHER_STEPS)
def ended_private(private_data, request):
    with fakes.installed(request.param == "made up"):
        screen = settle(Sweep(data=private_data, epsilons=(1, 2), seeds=2, iterations=(20,)))
        screen.spending.accept.value = True
        run(screen)
    yield screen
    screen.close()


# ---- before a sweep ------------------------------------------------------------------------------


def plain(x, y=None):
    rate = numpyro.sample("rate", dist.Beta(1, 1))
    with numpyro.plate("records", len(x)):
        numpyro.sample("y", dist.Bernoulli(rate), obs=y)


def test_a_sweep_takes_a_numpyro_function(screens, monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    screen = screens(model=plain, seeds=1)
    assert screen.model.name == "plain"
    assert buttons(settle(screen)) == [True, False, False]
    assert "'plain'" in html.unescape(screen.outcome.code.value)


def test_a_plan_of_public_records_may_start_at_once(screens):
    screen = settle(screens())
    assert "4 fits." in text(screen.spending.view)
    assert "no privacy is spent" in text(screen.spending.view)
    assert not screen.spending.accept.visible
    assert buttons(screen) == [True, False, False]
    assert screen.result is None
    assert "epsilons=[1, 4], iterations=[20], seeds=range(0, 2)" in text(screen.outcome.export)


def test_nothing_starts_before_the_plan_is_there(screens):
    screen = screens()
    assert buttons(screen) == [False, False, False]
    screen.start()
    screen.resume()
    screen.stop()
    assert screen.wait(0)
    assert screen.result is None


BAD = [
    ("epsilons", "1, -1", "epsilons = 1, -1: “-1” must be a finite number"),
    ("epsilons", "one", "“one” must be"),
    ("epsilons", " ", "must have at least one value"),
    ("seeds", "2.5", "seeds = 2.5: must be a whole number"),
    ("seeds", "1001", "at most 1000"),
    ("iterations", "10, 0", "“0” must be a whole"),
    ("num_records", "1", "“1” must be a"),
    ("clips", "0", "“0” must be"),
    ("learning_rates", "fast", "“fast” must be"),
    ("delta", "2", "delta = 2: must be a"),
]


def test_a_bad_value_is_explained_beside_its_field(screens):
    screen = screens()
    for name, value, shown in BAD:
        field = screen.ranges.fields[name]
        before, field.value = field.value, value
        assert shown in html.unescape(field.error)
        assert buttons(screen) == [False, False, False]
        assert "Fix the highlighted fields" in text(screen.spending.view)
        field.value = before
        assert field.error == ""
    assert screen.tabs.open == "Settings"
    screen.ranges.samplers["poisson"].value = False
    assert "samplers: tick at least one" in text(screen.ranges.errors)


def test_what_only_the_records_tell_is_explained_too(screens, private_data, tmp_path):
    screen = screens(data=private_data)
    screen.ranges.fields["num_records"].value = "100"
    settle(screen)
    assert "only public or made-up records" in screen.ranges.fields["num_records"].error
    screen.ranges.fields["num_records"].value = ""
    screen.ranges.fields["store"].value = str(tmp_path)
    settle(screen)
    assert "cannot be used as the file of a sweep" in html.unescape(
        screen.ranges.fields["store"].error
    )
    assert buttons(screen) == [False, False, False]


@pytest.mark.thorough
def test_fits_that_cannot_be_run_are_told_before_the_others_start(screens):
    screen = settle(screens(epsilons=(1, 1e-14), seeds=1, iterations=(1,)))
    assert "1 fit cannot run with these settings: epsilon=1e-14" in text(screen.spending.view)
    assert buttons(screen) == [True, False, False]


def test_values_of_a_list_may_stand_between_commas_or_spaces(screens):
    screen = screens()
    for shown in ("0.5, 1 ,2", "0.5 1 2", "0.5;1; 2,"):
        screen.ranges.fields["epsilons"].value = shown
        assert screen.settings().ranges["epsilons"] == (0.5, 1, 2)


def test_a_sweep_takes_several_models_and_opens_the_fit_of_any(screens):
    screen = screens(epsilons=(1, 2), seeds=1, iterations=(20,))
    models = screen.ranges.fields["models"]
    models.value = "neural_network"
    assert "did you mean 'neural_classifier'?" in html.unescape(models.error)
    models.value = "neural_classifier"
    settle(screen)
    assert "models=['neural_classifier']" in html.unescape(screen.outcome.code.value)
    run(screen)
    assert list(screen.result.table["model"]) == ["logistic"] * 2 + ["neural_classifier"] * 2
    screen.outcome.fit.value = max(dict(screen.outcome.fit.control.options).values())
    opened = open_chosen(screen)
    assert (opened.result.model, opened.model.name) == ("neural_classifier",) * 2


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("data", "brest_cancer"),
        ("model", "logistik"),
        ("seeds", 0),
    ],
)
def test_a_screen_cannot_begin_with_a_bad_value(argument, value):
    with pytest.raises(ArgumentError) as caught:
        Sweep(**{argument: value})
    assert caught.value.argument == argument


def test_every_control_is_described(screens):
    screen = screens()
    for part in ("Model", "Data", "Settings", "Table", "Fits", "Export"):
        screen.tabs.open = part
    controls = [
        part
        for part in inside(screen.view)
        if hasattr(part, "description") and not isinstance(part, ipywidgets.HTML)
    ]
    assert len(controls) > 20
    assert all(
        control.description for control in controls if control is not screen.spending.accept.control
    )
    assert all(part.tooltip for part in controls if isinstance(part, ipywidgets.Button))


# ---- a sweep of public records -------------------------------------------------------------------


def test_a_sweep_ends_with_its_result(ended):
    result = ended.screen.result
    assert (result.status, len(result.table), result.total) == ("done", 13, None)
    assert set(result.table["method"]) == {"dp-vi", "scikit-learn"}
    assert sorted(set(result.table["seed"])) == list(range(6))
    assert "13 of 13 fits" in text(ended.screen.outcome.status)


def dots(figure):
    """The number of fits in each panel of a figure."""
    return [
        len(re.findall("M", path))
        for path in re.findall(r'<path class="dots[^"]*" d="([^"]*)"', figure)
    ]


def test_the_figure_fills_while_the_sweep_runs(ended):
    assert "noise sigma" in ended.figures[0]
    filled = [dots(figure) for figure in ended.figures if dots(figure)]
    assert len(filled) >= 2
    assert filled[-1] == [12, 12]
    assert sum(filled[0]) < 24


def test_the_figure_has_means_baselines_and_the_values_under_the_mouse(ended):
    figure, table = ended.screen.outcome.curves.value, ended.screen.result.table
    assert [title in figure for title in ("<b>AUC</b>", "<b>ELBO</b>", "public data")] == [True] * 3
    strips = [
        html.unescape(strip).split("\n")
        for strip in re.findall(r'<div class="strip[^>]*><span>([^<]*)', figure)
    ]
    means = table[table["method"] == "dp-vi"].groupby("epsilon")[["auc", "elbo"]].mean()
    other = table.loc[table["method"] == "scikit-learn", "auc"].item()
    assert strips == [
        [
            f"epsilon {epsilon:g}",
            f"AUC DP-VI {_numbers.shown(row.auc)}",
            f"AUC scikit-learn {_numbers.shown(other)}",
            f"ELBO {_numbers.shown(row.elbo)}",
        ]
        for epsilon, row in means.iterrows()
    ]
    values = to_their_error(means["auc"], table)
    ends = [f"{value} at epsilon {epsilon}" for epsilon, value in zip((1, 4), values, strict=True)]
    assert f"Mean AUC is {' and '.join(ends)}, over 12 fits in all" in text(
        ended.screen.outcome.sentences
    )


def to_their_error(means, table):
    """Means down to the first digit of their standard error."""
    private = table[table["method"] == "dp-vi"].groupby("epsilon")["auc"]
    error = (private.std() / private.count() ** 0.5).mean()
    places = max(0, -math.floor(math.log10(error)))
    return [f"{value:.{places}f}" for value in means]


def test_what_is_there_is_not_run_again_and_gives_the_time(ended):
    screen = ended.screen
    assert "All 13 fits are done." in text(screen.spending.view)
    assert buttons(screen) == [False, False, False]
    screen.ranges.fields["seeds"].value = "7"
    settle(screen)
    assert "2 of 15 fits remain. About 1.0 s of steps" in re.sub(
        "<.*?>", "", text(screen.spending.view)
    )
    assert buttons(screen) == [True, False, False]
    screen.ranges.fields["seeds"].value = "6"
    settle(screen)


def test_the_table_has_what_varies_and_the_scores(ended):
    shown = re.sub("<.*?>", " ", ended.screen.outcome.table.value).split()
    assert {"epsilon", "seed", "AUC", "ELBO", "status", "scikit-learn"} <= set(shown)
    assert {"iterations", "repetition", "message"}.isdisjoint(shown)
    assert "public data" in ended.screen.outcome.table.value


def test_table_and_figure_can_be_taken_away(ended):
    links = dict(
        re.findall(
            r'download="(.*?)" href="data:.*?;base64,(.*?)"', ended.screen.outcome.files.value
        )
    )
    assert len(base64.b64decode(links["sweep.csv"]).splitlines()) == 14
    assert base64.b64decode(links["sweep-auc.png"]).startswith(PNG)
    assert base64.b64decode(links["sweep-auc.pdf"]).startswith(b"%PDF")


def test_files_of_another_score_are_made_where_it_is_chosen(ended):
    outcome = ended.screen.outcome
    outcome.metric.value = "elbo"
    assert outcome._drawing.wait(PATIENCE)
    assert "sweep-elbo.png" in outcome.files.value
    outcome.metric.value = "auc"
    assert outcome._drawing.wait(PATIENCE)
    assert "sweep-auc.png" in outcome.files.value


def test_output_that_needs_no_widgets_stays_in_the_notebook(ended):
    assert ended.output.shown[0] is ended.screen.view
    output = ended.output.updates[-1]
    assert "sweep of logistic on breast_cancer, 13 of 13 fits, done" in output
    assert "<img" in output
    assert "<table" in output


@pytest.mark.thorough
def test_a_fit_opens_in_the_workbench_without_being_fitted_again(ended):
    screen = ended.screen
    menu = dict(screen.outcome.fit.control.options)
    assert len(menu) == 12
    screen.outcome.fit.value = menu["epsilon 4, seed 3"]
    opened = open_chosen(screen)
    assert (opened.result.guarantee.epsilon, opened.result.settings["seed"], opened.results) == (
        4.0,
        3,
        [opened.result],
    )
    privacy = opened.settings().privacy
    assert [privacy[name] for name in ("epsilon", "iterations", "clip", "learning_rate")] == [
        4,
        20,
        0.5,
        0.01,
    ]
    assert opened.settings().data.code == "'breast_cancer'"
    assert opened.view in inside(screen.view)
    assert opened.result.guarantee.headline() in text(opened.view)
    assert "weights[mean radius]" in opened.outcome.posterior.value
    assert "20 of 20 steps" in opened.live.status.value
    row = screen.result.table.loc[menu["epsilon 4, seed 3"]]
    assert opened.result.metrics["auc"] == row["auc"]
    assert open_chosen(screen) is not opened
    assert opened._closed


@pytest.mark.thorough
def test_a_stopped_sweep_keeps_its_fits_and_goes_on(screens, monkeypatch, tmp_path):
    screen = settle(screens(store=str(tmp_path / "fits.sqlite"), seeds=6))
    run_group = prepared_sweeps.run_group

    def stopped_after_a_batch(*given, **options):
        for outcomes in run_group(*given, **options):
            yield outcomes
            screen.run.stop.click()

    monkeypatch.setattr(prepared_sweeps, "run_group", stopped_after_a_batch)
    screen.run.fit.click()
    assert buttons(screen) == [False, True, False]
    assert screen.wait(PATIENCE)
    monkeypatch.undo()
    settle(screen)
    assert (screen.result.status, len(screen.result.table)) == ("stopped", 2)
    assert "Stopped." in screen.outcome.status.value
    assert "2 of 12 fits" in screen.outcome.status.value
    assert buttons(screen) == [False, False, True]
    first = screen._session.now().seconds
    time.sleep(0.2)
    assert screen._session.now().seconds == first  # the clock stands while nothing runs
    resumed = time.perf_counter()
    screen.run.resume.click()
    assert screen.wait(PATIENCE)
    assert first < screen._session.now().seconds < first + time.perf_counter() - resumed
    assert (screen.result.status, len(screen.result.table)) == ("done", 12)
    again = settle(screens(store=str(tmp_path / "fits.sqlite"), seeds=6))
    assert "All 12 fits are done." in text(again.spending.view)
    assert len(again.result.table) == 12  # which can be looked at
    assert dots(again.outcome.curves.value) == [12, 12]
    assert open_chosen(again).result.guarantee.epsilon == 1
    assert f"store='{tmp_path / 'fits.sqlite'}'" in text(again.outcome.export)


@pytest.mark.thorough
def test_a_sweep_that_breaks_keeps_its_fits_and_can_go_on(screens, monkeypatch):
    screen = settle(screens())
    monkeypatch.setattr(prepared_sweeps, "run_group", lambda *_, **__: 1 / 0)
    run(screen)
    assert "ZeroDivisionError" in screen.outcome.status.value
    assert "<summary>traceback</summary>" in screen.outcome.status.value
    monkeypatch.undo()
    assert buttons(screen) == [False, False, True]
    screen.run.resume.click()
    assert screen.wait(PATIENCE)
    assert screen.result.status == "done"


@pytest.mark.thorough
def test_a_fit_of_fewer_records_opens_with_these(screens):
    screen = screens()
    screen.ranges.fields["num_records"].value = "200, 300"
    run(screen)
    screen.outcome.fit.value = dict(screen.outcome.fit.control.options)[
        "epsilon 4, seed 1, num records 200"
    ]
    assert open_chosen(screen).data.source().load().num_train == 200


@pytest.mark.thorough
def test_what_cannot_be_shown_does_not_lock_the_screen(screens, monkeypatch):
    screen = settle(screens())
    monkeypatch.setattr(screen.outcome, "finish", lambda *_: 1 / 0)
    run(screen)
    assert "cannot be shown" in screen.outcome.status.value
    assert len(screen.result.table) == 4


# ---- private records -----------------------------------------------------------------------------


def test_private_records_are_spent_on_only_when_that_is_accepted(screens, private_data):
    screen = settle(screens(data=private_data))
    total = screen._ready.prepared.total
    assert 4 < total.epsilon < math.inf
    assert f"epsilon = {total.epsilon:g} and delta = " in text(screen.spending.view)
    assert f"epsilon {total.epsilon:g}" in screen.spending.accept.control.description
    assert f"accept_total_epsilon={total.epsilon}" in text(screen.outcome.export)
    assert buttons(screen) == [False, False, False]
    screen.start()
    assert not screen._is_running
    screen.spending.accept.value = True
    assert buttons(screen) == [True, False, False]
    screen.ranges.fields["seeds"].value = "3"
    assert buttons(screen) == [False, False, False]
    settle(screen)
    assert not screen.spending.accept.value
    assert screen._ready.prepared.total.epsilon > total.epsilon


def test_fits_of_private_records_have_secret_randomness_and_no_scores(ended_private):
    result = ended_private.result
    assert (result.status, result.metrics, len(result.table)) == ("done", (), 4)
    assert result.table["seed"].isna().all()
    assert "The evaluation records are private, and their scores were not requested" in text(
        ended_private.outcome.sentences
    )
    assert "noise sigma" in ended_private.outcome.curves.value
    assert dict(ended_private.outcome.fit.control.options) == {
        "epsilon 1, repetition 0": 0,
        "epsilon 2, repetition 0": 1,
        "epsilon 1, repetition 1": 2,
        "epsilon 2, repetition 1": 3,
    }


def test_what_was_spent_on_the_same_records_counts_for_the_next_plan(ended_private, shared_state):
    screen = ended_private
    spent = screen.result.total.epsilon
    screen.ranges.fields["epsilons"].value = "3"
    settle(screen)
    assert screen._ready.prepared.total.fits == 6
    assert screen._ready.prepared.total.epsilon > spent
    assert "4 of these fits have already been made" in text(screen.spending.view)


@pytest.mark.thorough
def test_a_score_through_noise_is_covered_and_has_its_interval(screens, private_data):
    screen = settle(screens(data=private_data, epsilons=(1,), seeds=1))
    screen.run.covered_scores.value = True
    settle(screen)
    assert "this total covers a choice by them" in text(screen.spending.view)
    screen.spending.accept.value = True
    run(screen)
    assert set(screen.result.table["label"]) == {"covered"}
    assert "90 % intervals" in screen.outcome.curves.value
    assert "covered" in screen.outcome.table.value
    assert re.search(r"[\d.]+ \([\d.]+ to [\d.]+\)", screen.outcome.table.value)
    assert re.search(r'class="bars [^"]*" d="M[^"]+V[^"]+"', screen.outcome.curves.value)


@pytest.mark.thorough
def test_a_private_score_is_computed_only_on_request_and_explained_as_a_leak(screens, private_data):
    screen = settle(screens(data=private_data, epsilons=(1,), seeds=1))
    assert "Choosing the fit with the best score" not in text(screen.spending.view)
    assert screen.ranges._baseline_box.layout.display == "none"
    screen.run.evaluate_private.value = True
    settle(screen)
    assert "Choosing the fit with the best score on private evaluation records leaks" in text(
        screen.spending.view
    )
    assert "leaks as well, because" in text(screen.run.options)
    screen.spending.accept.value = True
    run(screen)
    assert "outside the guarantee" in screen.outcome.table.value
    assert "outside the guarantee" in screen.outcome.curves.value
    assert dots(screen.outcome.curves.value)
    screen.data.named.value = "breast_cancer"
    screen.data.named.value = private_data.name
    assert not screen.run.evaluate_private.value


def test_no_private_value_is_on_the_screen(ended_private, planted):
    screen = ended_private
    assert open_chosen(screen).result.metrics == {}
    states = repr([part.get_state() for part in inside(screen.view)])
    assert all(str(value) not in states for value in planted)


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_closing_stops_the_sweep_and_ends_its_threads():
    threads, instances = set(threading.enumerate()), set(ipywidgets.widgets.widget._instances)
    screen = settle(Sweep(epsilons=(1, 4), seeds=2, iterations=(50_000_000,)))
    screen.start()
    deadline = time.monotonic() + PATIENCE
    while not screen._session.now().step:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    screen.close()
    assert screen.wait(PATIENCE)
    assert screen.result.status == "stopped"
    screen.start()
    while left := [
        thread.name
        for thread in set(threading.enumerate()) - threads
        if thread.name.startswith("dpvi-")
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)
    assert set(ipywidgets.widgets.widget._instances) - instances == set()


# ---- keeping the best ----------------------------------------------------------------------------


def test_the_best_of_the_combinations_is_kept_inside_the_guarantee(screens, private_data):
    screen = settle(screens(data=private_data, epsilons=(1,), iterations=(20, 30), seeds=1))
    assert "spend epsilon 1," in text(screen.best.view)
    assert not screen.best.choose.disabled
    screen.best.choose.click()
    assert "nothing is shown until the end" in text(screen.best.view)
    assert screen._choices.wait(PATIENCE)
    result = screen.opened.result
    assert (result.guarantee.epsilon, result.settings["candidates"]) == (1.0, 2)
    assert result.metrics_label == "covered"
    assert re.search(r"AUC [\d.]+ \([\d.]+ to [\d.]+\): covered", text(screen.opened.view))
    assert f"Kept: combination {result.settings['chosen']} of 2" in text(screen.best.view)
    assert "wb.choose(candidates" in html.unescape(screen.best._code.value)
    assert screen.result is None  # no sweep ran


def test_the_code_of_a_choice_makes_it(screens, monkeypatch):
    screen = settle(screens(epsilons=(2,), iterations=(20, 30), seeds=1))
    code = screen.settings().choice_as_code()
    assert code.startswith("candidates = {")
    called = {}
    library = types.SimpleNamespace(
        choose=lambda candidates, data, **more: called.update(c=candidates, data=data, **more)
    )
    exec(code, {"wb": library})
    assert called == {
        "c": {"model": ["logistic"], "iterations": [20, 30]},
        "data": "breast_cancer",
        "epsilon": 2,
    }


def test_what_is_no_choice_says_why(screens, private_frame):
    screen = settle(screens(epsilons=(1, 2), seeds=1))
    assert screen.best.choose.disabled
    assert "one epsilon" in text(screen.best.view)
    screen.ranges.fields["epsilons"].value = "1"
    assert not settle(screen).best.choose.disabled
    screen.ranges.fields["num_records"].value = "100"
    assert "must be empty" in text(settle(screen).best.view)
    whole = wb.data.from_frame(
        private_frame, target="ill", bounds=PRIVATE_BOUNDS, evaluation_fraction=0.0
    )
    assert "evaluation records" in text(settle(screens(data=whole, epsilons=(1,))).best.view)


def test_an_error_of_a_choice_is_shown(screens, private_data, monkeypatch):
    def refused(*arguments, **more):
        raise ArgumentError("epsilon", 1, "is refused here.")

    monkeypatch.setattr(sweep_screen, "choose", refused)
    screen = settle(screens(data=private_data, epsilons=(1,), seeds=1))
    screen.best.choose.click()
    assert screen._choices.wait(PATIENCE)
    assert "is refused here" in text(screen.best.view)
    assert not screen.best.choose.disabled
