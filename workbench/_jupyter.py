"""Serving the notebooks: JupyterLab on the quickstart, and the screen or the teaching pieces alone with Voilà."""

from __future__ import annotations

import importlib.resources
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench import _validate

__all__ = ["PAGES", "serve_app", "serve_lab"]

_FAILED = 1

# what ``workbench app`` serves: the notebook that has the page
PAGES = {"workbench": "app.ipynb", "teaching": "teaching.ipynb"}


def serve_lab(*, no_browser: bool, further: Sequence[str]) -> int:
    """JupyterLab in the working folder, opened on the quickstart; its exit code."""
    if not _is_installed("jupyterlab", "workbench lab: JupyterLab is not installed; pip install jupyterlab."):
        return _FAILED
    notebook = _notebook("quickstart.ipynb")
    command = [sys.executable, "-m", "jupyter", "lab", "--ServerApp.root_dir=."]
    command.append(f"--LabApp.default_url=/lab/tree/{notebook.as_posix()}")
    if no_browser or _has_no_display():
        command.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return _become([*command, *further])


def serve_app(page: str, *, no_browser: bool, further: Sequence[str]) -> int:
    """The workbench screen, or the teaching pieces, without a notebook around them, served by Voilà; its exit code.

    Whoever opens it works as the user who serves it, so the address carries a token.

    :param page: one of ``PAGES``.
    :raises ArgumentError: for another.
    """
    _validate.choice("page", page, PAGES)
    if not _is_installed("voila", "workbench app: Voilà is not installed; pip install voila."):
        return _FAILED
    command = [sys.executable, "-m", "voila", str(_notebook(PAGES[page]))]
    if not any(argument.startswith(("--token", "--Voila.token")) for argument in further):
        command.append("--Voila.auto_token=True")
    if no_browser or _has_no_display():
        command.append("--no-browser")
    return _become([*command, *further])


def _is_installed(package: str, otherwise: str) -> bool:
    found = importlib.util.find_spec(package) is not None
    if not found:
        sys.stderr.write(f"{otherwise}\n")
    return found


def _notebook(name: str) -> Path:
    """The notebook here, or a copy of the package's own: kernels work in the folder that their notebook is in."""
    for path in (Path("notebooks", name), Path(name)):
        if path.is_file():
            return path
    shutil.copyfile(str(importlib.resources.files("workbench.notebooks").joinpath(name)), name)
    return Path(name)


def _has_no_display() -> bool:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return os.environ.get("BROWSER") == "none" or (sys.platform.startswith("linux") and not shown)


def _become(command: list[str]) -> int:
    """Run ``command``, where possible in this process's place, so that whoever ends it ends the server."""
    if os.name == "posix":
        os.execv(command[0], command)
    return subprocess.call(command)
