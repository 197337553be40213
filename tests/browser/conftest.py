"""A running JupyterLab on a copy of the notebooks, and Chromium to look at it."""

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "browser-test"


def _chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs Chromium: apt-get install chromium")


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The address of a JupyterLab that serves a copy of notebooks/."""
    _chromium()
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    port = _free_port()
    command = [sys.executable, "-m", "workbench.cli", "lab", "--no-browser", "--"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    command += ["--LabApp.news_url=''", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = (folder / "lab.log").open("w")
    server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if server.poll() is not None:
                pytest.fail("JupyterLab did not start:\n" + (folder / "lab.log").read_text()[-3000:])
            try:
                urllib.request.urlopen(f"{address}/api/status?token={TOKEN}", timeout=2).close()
                break
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.25)
        else:
            pytest.fail("JupyterLab did not answer within 60 s:\n" + (folder / "lab.log").read_text()[-3000:])
        yield address
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


@pytest.fixture
def page(tmp_path, request, screenshots):
    """A page of a fresh Chromium profile, 1280 x 900."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=_chromium(),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
            viewport={"width": 1280, "height": 900},
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        failures = request.session.testsfailed
        yield page
        if request.session.testsfailed > failures:
            page.screenshot(path=screenshots / f"failed-{request.node.name}.png")
        context.close()


@pytest.fixture(scope="session")
def screenshots():
    """The folder for screenshots, kept out of the repository."""
    folder = ROOT / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder
