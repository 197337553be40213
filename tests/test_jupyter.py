"""Serving JupyterLab and the screen: which command takes this process's place."""

import importlib.util
import os
import sys

import pytest


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Commands that would have taken the place of this process, in an empty working folder without a display."""
    commands = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(os, "execv", lambda program, command: commands.append(list(command)))
    monkeypatch.setattr("subprocess.call", lambda command: 0)
    return commands


def test_lab_opens_the_quickstart(served, command, tmp_path):
    command("lab", "--no-browser", "--", "--port=1234")
    (line,) = served
    assert line[:4] == [sys.executable, "-m", "jupyter", "lab"]
    assert "--LabApp.default_url=/lab/tree/quickstart.ipynb" in line
    assert line[-1] == "--port=1234"
    assert (tmp_path / "quickstart.ipynb").is_file()


def test_app_serves_the_screen_alone_behind_a_token(served, command, tmp_path):
    command("app", "--no-browser", "--", "--port=1234")
    (line,) = served
    assert line[:4] == [sys.executable, "-m", "voila", "app.ipynb"]
    assert {"--Voila.auto_token=True", "--no-browser"} <= set(line)
    assert line[-1] == "--port=1234"
    assert "wb.widgets.Workbench()" in (tmp_path / "app.ipynb").read_text()


@pytest.mark.parametrize(
    "words", [["teaching", "--no-browser", "--"], ["--no-browser", "teaching", "--"], ["teaching", "--"]], ids=" ".join
)
def test_app_serves_the_teaching_pieces(served, command, tmp_path, words):
    command("app", *words, "--port=1234")
    (line,) = served
    assert line[:4] == [sys.executable, "-m", "voila", "teaching.ipynb"]
    assert {"--Voila.auto_token=True", "--no-browser"} <= set(line)
    assert line[-1] == "--port=1234"
    assert "wb.widgets.teaching.clipping()" in (tmp_path / "teaching.ipynb").read_text()


def test_app_names_its_pages_where_there_is_no_such_one(served, command):
    code, _, err = command("app", "teachin")
    assert code == 2
    assert err == ("workbench app: page='teachin': unknown name; did you mean 'teaching'? known: teaching, workbench.\n")
    assert served == []


def test_a_token_of_the_users_own_is_kept(served, command):
    command("app", "--", "--token=mine")
    assert not any("auto_token" in part for part in served[0])


@pytest.mark.parametrize("name", ["notebooks/app.ipynb", "app.ipynb"])
def test_a_notebook_that_is_there_is_not_overwritten(served, command, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    command("app")
    assert served[0][3] == name
    assert path.read_text() == "mine"


def test_a_browser_opens_where_there_is_a_display(served, command, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    command("app")
    assert "--no-browser" not in served[0]
    monkeypatch.setenv("BROWSER", "none")
    command("app")
    assert "--no-browser" in served[1]


@pytest.mark.parametrize(("name", "package"), [("lab", "jupyterlab"), ("app", "voila")])
def test_a_missing_package_is_named(served, command, monkeypatch, name, package):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda each, *rest: None if each == package else found(each, *rest))
    code, _, err = command(name)
    assert code == 1
    assert f"pip install {package}" in err
    assert served == []
