"""A running JupyterLab, Voilà and Chromium, and what a user does there."""

import os
import re
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


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    pytest.skip("needs Chromium: apt-get install chromium")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def served(folder, command, port, ready):
    """Run a server in ``folder`` until the generator is closed; yields its address when ``ready``
    (a path) answers.
    """
    log = (folder / "server.log").open("w")
    # as on a user's machine: where Python may not keep what it compiles, each kernel compiles jax
    # again, for seconds
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    kept.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "bytecode"))
    server = subprocess.Popen(
        [sys.executable, "-m", "workbench", *command],
        cwd=folder,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=kept,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            if server.poll() is not None:
                pytest.fail(
                    f"{command[0]} did not start:\n" + (folder / "server.log").read_text()[-3000:]
                )
            try:
                urllib.request.urlopen(f"{address}{ready}?token={TOKEN}", timeout=2).close()
                break
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.25)
        else:
            pytest.fail(
                f"{command[0]} did not answer within 60 s:\n"
                + (folder / "server.log").read_text()[-3000:]
            )
        yield address
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        log.close()


@pytest.fixture(scope="session")
def lab_folder(tmp_path_factory):
    """The folder that JupyterLab serves, with a copy of notebooks/."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(
        ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


@pytest.fixture(scope="session")
def lab(lab_folder):
    """The address of a JupyterLab that serves ``lab_folder``."""
    chromium()
    yield from served_lab(lab_folder)


def served_lab(folder):
    """``served`` with ``workbench lab``, with settings of its own: a test changes the theme."""
    port = free_port()
    settings = folder.with_name(f"{folder.name}-settings")
    asks = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    asks.parent.mkdir(parents=True, exist_ok=True)
    asks.write_text('{"fetchNews": "false", "checkForUpdates": false}')
    command = [
        "lab",
        "--no-browser",
        "--",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={TOKEN}",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTERLAB_SETTINGS_DIR", str(settings))
        yield from served(folder, command, port, "/api/status")


@pytest.fixture
def cold_lab(tmp_path):
    """Like ``lab``, with kernels that do not share compiled programs with other tests."""
    chromium()
    shutil.copytree(
        ROOT / "notebooks", tmp_path / "notebooks", ignore=shutil.ignore_patterns("__pycache__")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
        yield from served_lab(tmp_path)


@pytest.fixture
def voila(tmp_path):
    """The address of the screen alone, as ``workbench app`` serves it."""
    chromium()
    yield from served_app(tmp_path)


def served_app(folder, *words):
    """``served`` with ``workbench app``.

    :param words: further ones for Voilà.
    """
    port = free_port()
    command = ["app", "--no-browser", "--", f"--port={port}", f"--Voila.token={TOKEN}", *words]
    yield from served(folder, command, port, "/voila/static/voila.js")


@pytest.fixture
def page(tmp_path, request, screenshots):
    """A page of a fresh Chromium profile, 1280 x 900."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            tmp_path / "profile",
            executable_path=chromium(),
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
            ignore_default_args=["--hide-scrollbars"],  # a user sees them
            viewport={"width": 1280, "height": 900},
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        said = []  # by the page's console, which tells why a screen does not appear
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        failures = request.session.testsfailed
        yield page
        if request.session.testsfailed > failures:
            page.screenshot(path=screenshots / f"failed-{request.node.name}.png")
            print("The console said:", *said[-40:], sep="\n")
        context.close()


@pytest.fixture(scope="session")
def screenshots():
    """The folder for screenshots, kept out of the repository."""
    folder = ROOT / "screenshots"
    folder.mkdir(exist_ok=True)
    return folder


def wait_for(condition, seconds, what):
    """Poll every 20 ms, to catch what is shown only briefly."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s in vain for {what}")


class Notebook:
    """A notebook that a user works in."""

    def __init__(self, page):
        self.page = page
        self.cells = page.locator(".jp-Notebook .jp-Cell")

    def run(self, place):
        """Run a cell and wait for its number; run it again if a kernel that has just started lost
        it.
        """
        cell = self.cells.nth(place)
        prompt = cell.locator(".jp-InputPrompt")
        for _ in range(5):
            self.start(place)
            if "jp-CodeCell" not in (cell.get_attribute("class") or ""):
                return
            wait_for(lambda: "*" not in prompt.inner_text(), 90, f"cell {place} to end")
            if prompt.inner_text().strip("[]: ").isdigit():
                return
        raise AssertionError(f"cell {place} does not run")

    def start(self, place):
        """Run a selected cell by key; press again if the page was not ready and lost the key."""
        cell = self.cells.nth(place)
        if "jp-CodeCell" not in (cell.get_attribute("class") or ""):
            cell.locator(".jp-MarkdownOutput").click()
            self.page.keyboard.press("Control+Enter")
            return
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()
        for _ in range(10):
            prompt.click()
            self.page.keyboard.press("Control+Enter")
            end = time.monotonic() + 4
            while time.monotonic() < end:
                if prompt.inner_text() != before:
                    return
                time.sleep(0.02)
        raise AssertionError(f"cell {place} does not start")


@pytest.fixture
def notebook(lab, lab_folder, page):
    """Opens a new notebook with these cells, in JupyterLab (or ``where="notebooks"``: Notebook 7),
    with an idle kernel.
    """

    import nbformat  # takes as long to import as all else that is collected

    def opened(*cells, name="test", where="doc/tree"):
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        made.metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(made, lab_folder / f"{name}.ipynb")
        return open_notebook(
            page,
            f"{lab}/{where}/{name}.ipynb?{'reset&' if where != 'notebooks' else ''}token={TOKEN}",
        )

    return opened


def open_notebook(page, address):
    """The notebook at ``address``, when its kernel is idle: before that, keys are lost.

    JupyterLab shows an empty code cell, then the notebook with "No Kernel", and both times says
    that the kernel is idle.
    """
    page.goto(address)
    page.locator(".jp-Toolbar-kernelName", has_text="Python 3").wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").wait_for()
    return Notebook(page)


class Screen:
    """The workbench screen as a user sees it: the first, or the one at ``place``, on the page."""

    def __init__(self, page, place=0):
        self.page = page
        self.root = page.locator(".dpvi-workbench").nth(place)
        self.root.wait_for()

    def button(self, name):
        return self.root.locator(
            "button:visible", has_text=re.compile(rf"^\s*{re.escape(name)}\s*$")
        )

    def field(self, label):
        """The control with this label."""
        boxes = self.root.locator(".widget-inline-hbox")
        box = boxes.filter(
            has=self.page.locator(".widget-label", has_text=re.compile(f"^{re.escape(label)}$"))
        ).first
        return box.locator("input, select").first

    def type(self, label, text):
        self.field(label).fill(text)
        self.field(label).press("Enter")

    def choose(self, label, option):
        """Choose an option, also one that is marked as the notebook's, or not for what else is
        chosen.
        """
        menu = self.field(label)
        named = re.compile(rf"^{re.escape(option)}( \((this notebook|not for .*)\))*$")

        def chosen():
            # ipywidgets' spaces
            texts = [text.replace("\xa0", " ") for text in menu.locator("option").all_inner_texts()]
            places = [place for place, text in enumerate(texts) if named.match(text)]
            if places:
                menu.select_option(index=places[0])  # marks may change meanwhile, but not the order
            return places

        wait_for(chosen, 60, f"{option} in a menu")

    def comes_to_rest(self):
        """Wait until nothing has moved for half a second, because a click may miss while a result
        is drawn.
        """
        places = (
            "root => [...root.querySelectorAll('button, input, select')].map(e => "
            "e.getBoundingClientRect().y).join()"
        )
        seen, since = None, time.monotonic()

        def still():
            nonlocal seen, since
            now = self.root.evaluate(places)
            if now != seen:
                seen, since = now, time.monotonic()
            return time.monotonic() - since > 0.5

        wait_for(still, 60, "the screen to come to rest")

    def tick(self, words):
        """Tick the box with these words; click again if the page moved under the mouse, as a user
        would.
        """
        self.comes_to_rest()
        box = self.root.locator("label", has_text=words).locator("input[type=checkbox]")

        def ticked():
            if not box.is_checked():
                box.click()
            return box.is_checked()

        wait_for(ticked, 10, f"the tick beside {words}")

    def headline(self, words, seconds=120):
        """Wait until the status line begins with these words, and return the whole line."""
        status = self.root.locator(".widget-html-content").filter(
            has=self.page.locator("b", has_text=re.compile(f"^{words}"))
        )
        status.first.wait_for(timeout=1000 * seconds)
        return status.first.inner_text()

    def is_ready(self):
        """Wait until the consequences of the plan are known."""
        self.root.locator("b", has_text="What this plan means:").first.wait_for(state="attached")
        return self

    def tab(self, name):
        """Open a part of the screen, unless it is open."""
        button = self.root.locator(
            ".dpvi-tabs button", has_text=re.compile(rf"^\s*{re.escape(name)}\s*$")
        )
        if "mod-active" not in button.get_attribute("class"):
            button.click()

    def watch_curves(self):
        """Record the times at which curves are drawn."""
        self.page.evaluate("""() => { window.curves_seen = [];
          const seen = () => window.curves_seen.push(performance.now());
          for (const each of document.querySelectorAll('.dpvi-workbench img.dpvi-curves'))
            new MutationObserver(seen).observe(each, {attributes: true, attributeFilter: ['src']});
          for (const each of document.querySelectorAll('.dpvi-workbench .dpvi-chart'))
            new MutationObserver(() => each.isConnected || seen()).observe(each.parentNode,
              {childList: true}); }""")

    def curves_seen(self):
        """Times of the changes, in milliseconds of the page's clock."""
        return self.page.evaluate("() => window.curves_seen")

    def pictures(self):
        """Addresses of the visible pictures."""
        return [
            image.get_attribute("src")
            for image in self.root.locator("img:is(.dpvi-figure, .dpvi-paper):visible").all()
        ]
