"""The line in a notebook: when it is shown, what it says, and that it never disturbs a fit."""

import re
import sys
import types

import IPython.display
import numpy as np
import pytest

import workbench as wb
from workbench import ArgumentError
from workbench._html import INK
from workbench._numbers import MINUS, shown
from workbench.fitting import fits, progress
from workbench.fitting.groups import grouped
from workbench.inference.training import Snapshot

pytestmark = pytest.mark.usefixtures("made_up_steps")

HOSTILE = "<img src=x onerror=alert(1)>&\"'"


class Notebook:
    """What a frontend is shown: each display, and its updates."""

    def __init__(self):
        self.shown, self.displays = [], 0

    def display(self, content, *, raw, display_id):
        assert raw
        assert display_id
        self.displays += 1
        self.shown.append(content)
        return self

    def update(self, content, *, raw):
        assert raw
        self.shown.append(content)

    @property
    def lines(self):
        return [each["text/plain"] for each in self.shown]


@pytest.fixture
def notebook(monkeypatch):
    found = Notebook()
    monkeypatch.setattr(IPython.display, "display", found.display)
    return found


def shell(name, **parts):
    return lambda: type(name, (), parts)()


@pytest.fixture
def in_a_kernel(monkeypatch, notebook):
    monkeypatch.setattr(IPython, "get_ipython", shell("ZMQInteractiveShell", kernel=object()))
    return notebook


def fit(data="breast_cancer", **settings):
    return wb.fit(
        "logistic",
        data,
        **grouped({"epsilon": 1.0, "iterations": 100, "checkpoint": False, **settings}),
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: None, False),
        (shell("TerminalInteractiveShell"), False),
        (shell("ZMQInteractiveShell"), False),
        (shell("ZMQInteractiveShell", kernel=object()), True),
        (shell("Shell", kernel=object()), True),
        (lambda: 1 / 0, False),
    ],
    ids=["script", "terminal", "no kernel", "Jupyter", "Colab", "broken"],
)
def test_a_notebook_is_recognised_by_its_kernel(monkeypatch, found, expected):
    monkeypatch.setattr(IPython, "get_ipython", found)
    assert progress.in_notebook() is expected


def test_without_ipython_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython")
    assert not progress.in_notebook()
    assert "IPython" not in sys.modules


def test_in_a_notebook_one_line_follows_the_fit(in_a_kernel):
    result = fit()
    assert in_a_kernel.displays == 1
    first, *_, last = in_a_kernel.lines
    assert first == "logistic on breast_cancer · compiling"
    auc = result.metrics["auc"]
    assert last.startswith("logistic on breast_cancer · done · 100 of 100 steps in ")
    assert " s · epsilon = 1, delta = 0.001 · ELBO " in last
    assert f"AUC {shown(auc)}" in last
    assert last.endswith(" (public data)")


@pytest.mark.thorough
def test_in_scripts_and_where_it_is_not_wanted_nothing_is_shown(notebook, monkeypatch, capsys):
    fit()
    monkeypatch.setattr(IPython, "get_ipython", shell("ZMQInteractiveShell", kernel=object()))
    fit(progress=False)
    assert notebook.shown == []
    assert capsys.readouterr() == ("", "")


def test_it_can_be_asked_for_where_no_notebook_is_recognised(notebook):
    fit(progress=True)
    assert notebook.displays == 1


def running(step, seconds, **facts):
    return Snapshot("running", step, {}, 0.7071, seconds=seconds, compile_seconds=1.0, **facts)


@pytest.fixture
def prepared():
    return fits.prepare("logistic", "breast_cancer", epsilon=1.0, iterations=800)


def line_of(prepared, **facts):
    now = [0.0]
    line = progress.ProgressLine(prepared, True, lambda: now[0])
    return line, now


def test_a_running_fit_says_how_far_it_is(prepared, notebook):
    line, now = line_of(prepared)
    line.begin()
    for place, snapshot in enumerate(
        [running(0, 1.0), running(400, 3.0, metrics={"elbo": -0.31234, "auc": 0.9})], start=1
    ):
        now[0] = float(place)
        line.update(snapshot)
    assert notebook.lines[1:] == [
        "logistic on breast_cancer · step 0 of 800 · epsilon spent: at most 0.708 of 1",
        "logistic on breast_cancer · step 400 of 800 · 2 s left · epsilon spent: at most 0.708 "
        f"of 1 · ELBO {MINUS}0.312 (public data)",
    ]
    html = notebook.shown[-1]["text/html"]
    assert html.count("<div") == 1
    assert set(re.findall("color:([^;]+)", html)) == {INK}


def test_it_is_written_at_most_four_times_a_second(prepared, notebook):
    line, now = line_of(prepared)
    line.begin()
    for tick in range(1, 101):
        now[0] = tick / 100  # a second
        line.update(running(tick, now[0]))
    assert len(notebook.shown) == 1 + 4


def test_private_metrics_are_shown_only_on_request_and_with_their_label(private_data, in_a_kernel):
    fit(private_data)
    assert not any("ELBO" in text or "AUC" in text for text in in_a_kernel.lines)
    fit(private_data, evaluate_private=True)
    last = in_a_kernel.lines[-1]
    assert "ELBO" in last
    assert last.endswith("(outside the guarantee)")


def test_metrics_that_a_fit_may_not_show_are_not_shown_whoever_computed_them(
    private_data, notebook
):
    prepared = fits.prepare("logistic", private_data, epsilon=1.0, iterations=800)
    line, now = line_of(prepared)
    now[0] = 1.0
    line.update(running(400, 3.0, metrics={"elbo": -0.31}))
    assert "ELBO" not in notebook.lines[-1]


def test_a_stopped_fit_says_so(in_a_kernel):
    steps = []
    fit(on_snapshot=lambda snapshot: steps.append(snapshot.step), stop=lambda: len(steps) > 2)
    assert " · cancelled · " in in_a_kernel.lines[-1]


def test_an_error_ends_the_line_and_is_raised(in_a_kernel):
    def fail(snapshot):
        raise KeyError("secret value")

    with pytest.raises(KeyError):
        fit(on_snapshot=fail)
    assert in_a_kernel.lines[-1] == "logistic on breast_cancer · ended with KeyError"


def test_epsilon_is_not_rounded_down(prepared, notebook):
    line, now = line_of(prepared)
    now[0] = 1.0
    line.update(Snapshot("running", 1, {}, 123.4564, compile_seconds=1.0))
    assert "at most 124 of" in notebook.lines[-1]


@pytest.mark.parametrize("value", ["no", 1, 0])
def test_what_is_no_flag_is_refused(value):
    with pytest.raises(ArgumentError, match=f"^progress={value!r}: must be True or False"):
        fit(progress=value)


@pytest.mark.parametrize("fails", ["first", "later"])
def test_a_frontend_that_fails_does_not_disturb_the_fit(in_a_kernel, monkeypatch, fails, capsys):
    def broken(*arguments, **options):
        raise OSError("the frontend is gone")

    monkeypatch.setattr(
        *((IPython.display, "display") if fails == "first" else (in_a_kernel, "update")), broken
    )
    assert fit().status == "done"
    assert capsys.readouterr() == ("", "")


def test_names_and_metrics_of_the_user_are_escaped(notebook):
    data = types.SimpleNamespace(name=HOSTILE, evaluation_label="public data")
    model = types.SimpleNamespace(name=HOSTILE)
    privacy = types.SimpleNamespace(iterations=800, epsilon=1.0)
    prepared = types.SimpleNamespace(data=data, model=model, privacy=privacy, shows_metrics=True)
    guarantee = types.SimpleNamespace(steps_taken=800, steps=800, epsilon=1.0, delta=1e-3)
    metrics = {"elbo": np.float32(-1), HOSTILE: 0.5, "own": HOSTILE}
    line, now = line_of(prepared)
    line.begin()
    now[0] = 1.0
    line.update(running(1, 1.0))
    line.end(
        types.SimpleNamespace(status="done", guarantee=guarantee, seconds=3700.0, metrics=metrics)
    )
    assert len(notebook.shown) == 3
    assert "in 1 h 01 min" in notebook.lines[-1]
    for each in notebook.shown:
        assert "<img" not in each["text/html"]
        assert "&lt;img" in each["text/html"]
