"""Serving JupyterLab and the screen: which command takes this process's place."""

import contextlib
import importlib.util
import os
import pathlib
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest


@pytest.fixture
def served(monkeypatch, tmp_path):
    """Commands that would have taken the place of this process, in an empty working folder without
    a display.
    """
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
    "words",
    [["teaching", "--no-browser", "--"], ["--no-browser", "teaching", "--"], ["teaching", "--"]],
    ids=" ".join,
)
def test_app_serves_the_teaching_pieces(served, command, tmp_path, words):
    command("app", *words, "--port=1234")
    (line,) = served
    assert line[:4] == [sys.executable, "-m", "voila", "teaching.ipynb"]
    assert {"--Voila.auto_token=True", "--no-browser"} <= set(line)
    assert line[-1] == "--port=1234"
    assert "wb.teaching.clipping()" in (tmp_path / "teaching.ipynb").read_text()


def test_app_names_its_pages_where_there_is_no_such_one(served, command):
    code, _, err = command("app", "teachin")
    assert code == 2
    assert err == (
        "workbench app: page='teachin': unknown name; did you mean 'teaching'? known: teaching, "
        "workbench.\n"
    )
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
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda each, *rest: None if each == package else found(each, *rest),
    )
    code, _, err = command(name)
    assert code == 1
    assert f"pip install {package}" in err
    assert served == []


@pytest.mark.parametrize(
    "words",
    [
        ["--token="],
        ["--token", ""],
        ["--Voila.token="],
        ["--IdentityProvider.token=''"],
        ["--Voila.auto_token=False"],
    ],
    ids=" ".join,
)
def test_a_page_without_a_token_is_refused(served, command, words):
    code, _, err = command("app --", shlex.join(words))
    assert code == 2
    assert err.startswith("workbench app: token='': must not be empty")
    assert served == []


def test_a_page_on_the_network_comes_with_a_warning(served, command):
    assert "without encryption" in command("app", "--", "--Voila.ip=0.0.0.0")[2]
    assert command("app", "--", "--Voila.ip=127.0.0.1", "--token")[2] == ""
    assert all("--Voila.auto_token=True" in line for line in served)


def test_files_are_served_only_where_the_user_says_so(served, command):
    command("app")
    assert "--VoilaConfiguration.file_allowlist=(?!)." in served[0]
    _, _, err = command("""app -- "--VoilaConfiguration.file_allowlist=['public.*']" """)
    assert "are served without the token" in err
    assert [word for word in served[1] if "file_allowlist" in word] == [
        "--VoilaConfiguration.file_allowlist=['public.*']"
    ]


def test_kernels_of_pages_that_were_left_end_unless_the_user_says_otherwise(served, command):
    command("app", "--", "--MappingKernelManager.cull_idle_timeout=0")
    (line,) = served
    assert [word for word in line if "cull_idle_timeout" in word] == [
        "--MappingKernelManager.cull_idle_timeout=0"
    ]
    assert "--MappingKernelManager.cull_interval=30" in line
    command("app")
    assert "--MappingKernelManager.cull_idle_timeout=300" in served[1]


def status(address):
    """Of a page that is not followed to the login."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_):
            return None

    try:
        with urllib.request.build_opener(Stay).open(address, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.integration
def test_a_running_page_serves_no_file_of_its_folder(tmp_path):
    for name in ("curves.png", "scan.JPG", "a.gif", "b.svg", "deep/c.png", "clinic.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("private")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # of the environment that Voila is installed in, which may be another one than that of this
    # interpreter
    shared = str(
        pathlib.Path(importlib.util.find_spec("voila").origin).parents[4] / "share" / "jupyter"
    )
    environment = {
        **os.environ,
        "JUPYTER_PATH": os.pathsep.join([os.environ.get("JUPYTER_PATH", ""), shared]),
    }
    words = ["app", "--no-browser", "--", f"--port={port}", "--Voila.token=secret"]
    command = [sys.executable, "-m", "workbench", *words]
    with open(tmp_path.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
                break
            assert process.poll() is None, tmp_path.with_suffix(".log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        page = f"http://localhost:{port}"
        for name in (
            "curves.png",
            "scan.JPG",
            "a.gif",
            "b.svg",
            "deep/c.png",
            "clinic.csv",
            "app.ipynb",
            "../x.png",
        ):
            for way in ("voila/files", "files", "static", "."):
                assert status(f"{page}/{way}/{name}") in (302, 403, 404), (way, name)
            assert status(f"{page}/voila/files/{name}?token=secret") in (302, 403, 404)
        assert status(f"{page}/voila/files/curves.png?token=secret") == 403
        for place in ("", "api/kernels", "api/contents", "voila/render/app.ipynb"):
            assert status(f"{page}/{place}") == 302
    finally:
        process.terminate()
        process.wait(timeout=30)
    assert "Deprecat" not in tmp_path.with_suffix(".log").read_text()
